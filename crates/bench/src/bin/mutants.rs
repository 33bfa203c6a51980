//! Seeded mistakes: applies each patch of `crates/bench/mutants` to a copy of the workspace and runs
//! the tests there. A mistake that no test notices is a hole in the tests.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File};
use std::io::{Write as _, stderr, stdout};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use serde_json::Value;

/// Where the patches are, from the root of the repository.
const PATCHES: &str = "crates/bench/mutants";

/// What is built and run, one after the other. The cases come first: they are quick, and a case that
/// fails says what is wrong.
const STAGES: [&[&str]; 3] = [
    &["-p", "palisade", "--test", "cases", "--test", "explain"],
    &["-p", "palisade-bench", "--test", "agree", "--test", "cells"],
    &[
        "-p",
        "palisade-core",
        "-p",
        "palisade-api",
        "--lib",
        "--tests",
    ],
];

/// Applies seeded mistakes to a copy of the workspace and sees whether the tests notice
#[derive(Debug, Parser)]
struct Args {
    /// Only the mistakes whose names contain this; may be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Run the other tests too when one has failed
    #[arg(long)]
    all_tests: bool,
    /// Only see whether the patches apply
    #[arg(long)]
    apply_only: bool,
    /// Seconds after which a build or a test is ended
    #[arg(long, default_value_t = 600)]
    timeout: u64,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(err) => {
            say(&format!("mutants: {err:#}"));
            ExitCode::from(2)
        }
    }
}

/// Progress. With standard error closed there is nobody left to tell.
fn say(line: &str) {
    let _ = writeln!(stderr(), "{line}");
}

/// Whether every mistake was caught.
fn run(args: &Args) -> Result<bool> {
    let root = root()?;
    let patches = patches(&root.join(PATCHES), &args.only)?;
    let directory = tempfile::tempdir()?;
    let timeout = Duration::from_secs(args.timeout);
    let mut copy = Copy {
        root: directory.path().join("palisade"),
        // At first everything is compiled.
        timeout: timeout * 6,
    };
    copy.fill(&root)?;
    if !args.apply_only {
        say("building and testing without a mistake");
        let clean = copy.test(false)?;
        ensure!(
            clean == Outcome::Missed,
            "the tests fail without a mistake: {clean}"
        );
    }
    copy.timeout = timeout;
    let start = Instant::now();
    let mut n_bad = 0;
    for (index, patch) in patches.iter().enumerate() {
        let name = name(patch);
        say(&format!(
            "{}/{} {name} after {} s",
            index + 1,
            patches.len(),
            start.elapsed().as_secs()
        ));
        let outcome = copy.one(patch, args)?;
        n_bad += usize::from(!outcome.is_good());
        writeln!(stdout(), "{name}: {outcome}")?;
    }
    let n = patches.len();
    let what = if args.apply_only { "apply" } else { "caught" };
    writeln!(stdout(), "{} of {n} {what}", n - n_bad)?;
    directory.close()?;
    Ok(n_bad == 0)
}

/// The root of the repository that this runs in.
fn root() -> Result<PathBuf> {
    let output = Command::new("git")
        .args(["rev-parse", "--show-toplevel"])
        .output()
        .context("git")?;
    ensure!(output.status.success(), "not in a git repository");
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim_end()))
}

fn patches(directory: &Path, only: &[String]) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let paths = entries.map(|entry| entry.map(|it| it.path()));
    let mut paths: Vec<PathBuf> = paths.collect::<Result<_, _>>()?;
    paths.retain(|path| path.extension().is_some_and(|it| it == "patch"));
    paths.retain(|path| only.is_empty() || only.iter().any(|it| name(path).contains(it)));
    paths.sort();
    ensure!(!paths.is_empty(), "there is no such patch");
    Ok(paths)
}

fn name(patch: &Path) -> String {
    let stem = patch.file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

/// What became of a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// Tests failed: each with what it says.
    Caught(Vec<String>),
    /// No test failed.
    Missed,
    /// The patch applies; more was not asked.
    Applies,
    /// The patch does not apply any more.
    Stale(String),
    /// What it makes does not compile.
    Broken(String),
}

impl Outcome {
    fn is_good(&self) -> bool {
        match self {
            Outcome::Caught(_) | Outcome::Applies => true,
            Outcome::Missed | Outcome::Stale(_) | Outcome::Broken(_) => false,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Caught(by) => write!(f, "caught by {}", by.join("; ")),
            Outcome::Missed => f.write_str("NOT CAUGHT"),
            Outcome::Applies => f.write_str("applies"),
            Outcome::Stale(why) => write!(f, "STALE, the patch does not apply: {why}"),
            Outcome::Broken(why) => write!(f, "BROKEN, it does not compile: {why}"),
        }
    }
}

/// How a command ended, and what it wrote.
struct Ended {
    /// `None`: it took too long.
    success: Option<bool>,
    output: String,
}

/// A test that was built.
struct Test {
    name: String,
    program: PathBuf,
    directory: PathBuf,
}

/// The copy of the workspace.
struct Copy {
    root: PathBuf,
    timeout: Duration,
}

impl Copy {
    /// Copies what git knows or would add.
    fn fill(&self, from: &Path) -> Result<()> {
        let output = Command::new("git")
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .current_dir(from)
            .output()?;
        ensure!(output.status.success(), "git ls-files failed");
        for file in String::from_utf8(output.stdout)?.split('\0') {
            let source = from.join(file);
            // A file may be deleted and still be in the index.
            if source.is_file() {
                let target = self.root.join(file);
                fs::create_dir_all(target.parent().unwrap_or(&self.root))?;
                fs::copy(&source, target).with_context(|| file.to_owned())?;
            }
        }
        Ok(())
    }

    fn one(&self, patch: &Path, args: &Args) -> Result<Outcome> {
        if let Err(why) = self.apply(patch, &[])? {
            return Ok(Outcome::Stale(why));
        }
        let outcome = if args.apply_only {
            Ok(Outcome::Applies)
        } else {
            self.test(args.all_tests)
        };
        if let Err(why) = self.apply(patch, &["--reverse"])? {
            bail!("{} cannot be taken back: {why}", patch.display());
        }
        outcome
    }

    /// Applies a patch wholly or not at all; the inner error says why not.
    fn apply(&self, patch: &Path, options: &[&str]) -> Result<Result<(), String>> {
        let output = Command::new("git")
            .args(["apply", "-p1"])
            .args(options)
            .arg(patch)
            .current_dir(&self.root)
            // The copy is no repository, nor part of one that it may happen to lie in.
            .env(
                "GIT_CEILING_DIRECTORIES",
                self.root.parent().unwrap_or(&self.root),
            )
            .output()?;
        if output.status.success() {
            return Ok(Ok(()));
        }
        let told = String::from_utf8_lossy(&output.stderr);
        Ok(Err(told.lines().collect::<Vec<&str>>().join("; ")))
    }

    /// Builds the tests and runs them, up to the first that fails.
    fn test(&self, all_tests: bool) -> Result<Outcome> {
        let mut failed = Vec::new();
        for stage in STAGES {
            let tests = match self.build(stage)? {
                Ok(tests) => tests,
                Err(why) => return Ok(Outcome::Broken(why)),
            };
            for test in tests {
                let mut command = Command::new(&test.program);
                command.current_dir(&test.directory);
                let ended = self.bounded(command)?;
                match ended.success {
                    Some(true) => continue,
                    Some(false) => failed.push(format!("{}{}", test.name, findings(&ended.output))),
                    None => failed.push(format!("{} (HANGS)", test.name)),
                }
                if !all_tests {
                    return Ok(Outcome::Caught(failed));
                }
            }
        }
        Ok(if failed.is_empty() {
            Outcome::Missed
        } else {
            Outcome::Caught(failed)
        })
    }

    /// The tests of a stage; the inner error is the compiler's.
    fn build(&self, stage: &[&str]) -> Result<Result<Vec<Test>, String>> {
        let mut command = Command::new("cargo");
        command.args(["test", "--no-run", "--offline", "--locked"]);
        command.arg("--message-format=json-render-diagnostics");
        command.args(stage).current_dir(&self.root);
        command.env("CARGO_TARGET_DIR", self.root.join("target"));
        // Nobody will debug it, and it links faster without.
        command.env("CARGO_PROFILE_DEV_DEBUG", "0");
        let ended = self.bounded(command)?;
        if ended.success != Some(true) {
            let lines = ended.output.lines();
            let mut errors = lines.filter(|line| line.starts_with("error"));
            let why = errors.next().unwrap_or("the compiler takes too long");
            return Ok(Err(why.to_owned()));
        }
        let messages = ended.output.lines();
        let messages = messages.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut tests: Vec<Test> = messages.filter_map(|it| test(&it)).collect();
        tests.sort_by(|a, b| a.name.cmp(&b.name));
        ensure!(!tests.is_empty(), "{} has no tests", stage.join(" "));
        Ok(Ok(tests))
    }

    /// Runs a command, and ends it with everything that it has started when the time is over.
    fn bounded(&self, mut command: Command) -> Result<Ended> {
        let log = self.root.with_extension("log");
        let file = File::create(&log)?;
        // A test that is ended leaves its temporary files behind.
        let temporary = self.root.with_extension("tmp");
        fs::create_dir_all(&temporary)?;
        command.env("TMPDIR", temporary).stdin(Stdio::null());
        command.stdout(file.try_clone()?).stderr(file);
        let start = Instant::now();
        let mut child = command.process_group(0).spawn()?;
        let success = loop {
            if let Some(status) = child.try_wait()? {
                break Some(status.success());
            }
            if start.elapsed() > self.timeout {
                let group = format!("kill -s KILL -- -{}", child.id());
                Command::new("sh").args(["-c", &group]).status()?;
                child.wait()?;
                break None;
            }
            sleep(Duration::from_millis(50));
        };
        let output = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        Ok(Ended { success, output })
    }
}

/// The test that a message of cargo is about, if it is about one.
fn test(message: &Value) -> Option<Test> {
    let target = message.get("target")?;
    let of_profile = message.get("profile")?.get("test")?;
    let program = message.get("executable")?.as_str()?;
    let manifest = Path::new(message.get("manifest_path")?.as_str()?);
    of_profile.as_bool()?.then_some(Test {
        name: target.get("name")?.as_str()?.to_owned(),
        program: program.into(),
        directory: manifest.parent()?.to_owned(),
    })
}

/// What a failed test names: cases or seeds, or else the test functions. The first few of them.
fn findings(output: &str) -> String {
    let mut found: BTreeSet<&str> = BTreeSet::new();
    let mut functions: BTreeSet<&str> = BTreeSet::new();
    for line in output.lines() {
        let function = line.strip_prefix("test ");
        functions.extend(function.and_then(|it| it.strip_suffix(" ... FAILED")));
        let (start, _) = line.split_once(": ").unwrap_or_default();
        let is_case = start.contains('/') && !start.contains(' ');
        if is_case || start.starts_with("seed ") {
            found.insert(start);
        }
    }
    // They say more than the function that runs them all.
    let found = if found.is_empty() { functions } else { found };
    let first: Vec<&str> = found.iter().copied().take(3).collect();
    match found.len() - first.len() {
        _ if first.is_empty() => String::new(),
        0 => format!(" ({})", first.join(", ")),
        more => format!(" ({} and {more} more)", first.join(", ")),
    }
}
