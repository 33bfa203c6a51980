//! Seeded mistakes: applies each patch of `crates/campaigns/mutants` to a copy of the workspace and runs
//! the tests there that should find it. A mistake that no test notices is a hole in the tests.

use std::collections::{BTreeMap, BTreeSet};
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
use palisade_campaigns::mutants::{Mutant, Tests, all, sample};
use serde_json::Value;

/// What is built and run for a mistake that does not say what finds it, one after the other. The cases come
/// first: they are quick, and a case that fails says what is wrong.
const STAGES: [&str; 3] = [
    "-p palisade --test cases --test explain",
    "-p palisade-campaigns --test agree --test cells",
    "-p palisade-core -p palisade-api --lib --tests",
];

/// Applies seeded mistakes to a copy of the workspace and sees whether the tests notice
#[derive(Debug, Parser)]
struct Args {
    /// Only the mistakes whose names contain this; may be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Only so many of them, chosen by the seed
    #[arg(long, value_name = "N")]
    sample: Option<usize>,
    /// What chooses them: a number or any other word, such as the commit that is tested
    #[arg(long, value_name = "SEED", default_value = "0", requires = "sample")]
    seed: String,
    /// Run the other tests too when one has failed
    #[arg(long)]
    all_tests: bool,
    /// Only see whether the patches apply
    #[arg(long)]
    apply_only: bool,
    /// Keep the copy and what is built of it here, for the next run; without it all is built anew.
    /// Not the directory that others build in, which would have the mistakes
    #[arg(long, value_name = "DIR")]
    target_dir: Option<PathBuf>,
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
    let mutants = chosen(all(&root)?, args)?;
    let temporary = tempfile::tempdir()?;
    let directory = match &args.target_dir {
        Some(directory) => {
            fs::create_dir_all(directory)?;
            directory.canonicalize()?
        }
        None => temporary.path().to_owned(),
    };
    let lock = File::create(directory.join("lock"))?;
    ensure!(
        lock.try_lock().is_ok(),
        "somebody else is at work in {}",
        directory.display()
    );
    let timeout = Duration::from_secs(args.timeout);
    let mut copy = Copy {
        root: directory.join("palisade"),
        target: directory.join("target"),
        // At first everything is compiled.
        timeout: timeout * 6,
    };
    copy.fill(&root)?;
    let mut ignored = BTreeSet::new();
    if !args.apply_only {
        say("building and testing without a mistake");
        ignored = copy.clean(&mutants)?;
    }
    copy.timeout = timeout;
    let start = Instant::now();
    let mut counts: BTreeMap<Sort, usize> = BTreeMap::new();
    for (index, mutant) in mutants.iter().enumerate() {
        say(&format!(
            "{}/{} {} after {} s",
            index + 1,
            mutants.len(),
            mutant.name,
            start.elapsed().as_secs()
        ));
        let stages = stages(mutant);
        let outcome = if stages.iter().any(|it| !ignored.contains(it)) || args.apply_only {
            copy.one(mutant, &stages, args)?
        } else {
            Outcome::Untried
        };
        *counts.entry(outcome.sort()).or_default() += 1;
        writeln!(stdout(), "{}: {outcome}", mutant.name)?;
    }
    let count = |sort| counts.get(&sort).copied().unwrap_or(0);
    let what = if args.apply_only { "apply" } else { "caught" };
    let mut summary = format!("{} of {} {what}", count(Sort::Good), mutants.len());
    if count(Sort::Untried) > 0 {
        summary += &format!(", {} not tried", count(Sort::Untried));
    }
    writeln!(stdout(), "{summary}")?;
    Ok(count(Sort::Bad) == 0)
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

/// Those that were asked for.
fn chosen(mut mutants: Vec<Mutant>, args: &Args) -> Result<Vec<Mutant>> {
    let only = &args.only;
    mutants.retain(|it| only.is_empty() || only.iter().any(|word| it.name.contains(word)));
    if let Some(n) = args.sample {
        mutants = sample(mutants, n, &args.seed);
    }
    ensure!(!mutants.is_empty(), "there is no such patch");
    Ok(mutants)
}

/// The tests that a mistake is tried with.
fn stages(mutant: &Mutant) -> Vec<Tests> {
    if mutant.found_by.is_empty() {
        return STAGES.iter().map(|line| Tests::parse(line)).collect();
    }
    mutant.found_by.clone()
}

/// What became of a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// Tests failed: each with what it says.
    Caught(Vec<String>),
    /// No test failed.
    Missed,
    /// Without the mistake its tests run here not at all.
    Untried,
    /// The patch applies; more was not asked.
    Applies,
    /// The patch does not apply any more.
    Stale(String),
    /// What it makes does not compile.
    Broken(String),
}

/// What an outcome counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sort {
    Good,
    Bad,
    Untried,
}

impl Outcome {
    fn sort(&self) -> Sort {
        match self {
            Outcome::Caught(_) | Outcome::Applies => Sort::Good,
            Outcome::Missed | Outcome::Stale(_) | Outcome::Broken(_) => Sort::Bad,
            Outcome::Untried => Sort::Untried,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Caught(by) => write!(f, "caught by {}", by.join("; ")),
            Outcome::Missed => f.write_str("NOT CAUGHT"),
            Outcome::Untried => f.write_str("not tried, its tests are ignored here"),
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
    /// Where it is built.
    target: PathBuf,
    timeout: Duration,
}

impl Copy {
    /// Makes it the same as what git knows or would add. What is the same already is left alone, so that it is not
    /// built again.
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
        fs::create_dir_all(&self.root)?;
        let mut left = BTreeSet::new();
        files(&self.root, &mut left)?;
        for file in String::from_utf8(output.stdout)?.split('\0') {
            let source = from.join(file);
            // A file may be deleted and still be in the index.
            if source.is_file() {
                let target = self.root.join(file);
                if !left.remove(&target) || fs::read(&source)? != fs::read(&target)? {
                    fs::create_dir_all(target.parent().unwrap_or(&self.root))?;
                    fs::copy(&source, target).with_context(|| file.to_owned())?;
                }
            }
        }
        for file in left {
            fs::remove_file(&file).with_context(|| file.display().to_string())?;
        }
        Ok(())
    }

    /// Runs all tests that mistakes need, without a mistake. Gives those of which this machine can run none.
    fn clean(&self, mutants: &[Mutant]) -> Result<BTreeSet<Tests>> {
        let all: BTreeSet<Tests> = mutants.iter().flat_map(stages).collect();
        let mut ignored = BTreeSet::new();
        for tests in all {
            let words = [tests.build.join(" "), tests.run.join(" ")].join(" ");
            let mut told = Told::default();
            if let Err(why) = self.test(&tests, true, &mut told)? {
                bail!("{words} does not compile without a mistake: {why}");
            }
            ensure!(
                told.failed.is_empty(),
                "the tests fail without a mistake: {}",
                told.failed.join("; ")
            );
            ensure!(told.passed + told.ignored > 0, "{words} has no tests");
            if told.passed == 0 {
                say(&format!("{words}: all of them are ignored here"));
                ignored.insert(tests);
            }
        }
        Ok(ignored)
    }

    fn one(&self, mutant: &Mutant, stages: &[Tests], args: &Args) -> Result<Outcome> {
        if let Err(why) = self.apply(&mutant.path, &[])? {
            return Ok(Outcome::Stale(why));
        }
        let outcome = if args.apply_only {
            Ok(Outcome::Applies)
        } else {
            self.try_all(stages, args.all_tests)
        };
        if let Err(why) = self.apply(&mutant.path, &["--reverse"])? {
            bail!("{} cannot be taken back: {why}", mutant.path.display());
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

    /// Builds tests and runs them, up to the first that fails.
    fn try_all(&self, stages: &[Tests], all_tests: bool) -> Result<Outcome> {
        let mut told = Told::default();
        for tests in stages {
            if let Err(why) = self.test(tests, all_tests, &mut told)? {
                return Ok(Outcome::Broken(why));
            }
            if !told.failed.is_empty() && !all_tests {
                break;
            }
        }
        Ok(if told.failed.is_empty() {
            Outcome::Missed
        } else {
            Outcome::Caught(told.failed)
        })
    }

    /// Builds tests and runs them; the inner error is the compiler's.
    fn test(&self, tests: &Tests, all_tests: bool, told: &mut Told) -> Result<Result<(), String>> {
        let built = match self.build(&tests.build)? {
            Ok(built) => built,
            Err(why) => return Ok(Err(why)),
        };
        for test in built {
            let mut command = Command::new(&test.program);
            command.args(&tests.run).current_dir(&test.directory);
            let ended = self.bounded(command)?;
            let (passed, ignored) = counted(&ended.output);
            told.passed += passed;
            told.ignored += ignored;
            match ended.success {
                Some(true) => continue,
                Some(false) => {
                    let findings = findings(&ended.output);
                    told.failed.push(format!("{}{findings}", test.name));
                }
                None => told.failed.push(format!("{} (HANGS)", test.name)),
            }
            if !all_tests {
                break;
            }
        }
        Ok(Ok(()))
    }

    /// Builds tests; the inner error is the compiler's.
    fn build(&self, arguments: &[String]) -> Result<Result<Vec<Test>, String>> {
        let mut command = Command::new("cargo");
        command.args(["test", "--no-run", "--offline", "--locked"]);
        command.arg("--message-format=json-render-diagnostics");
        command.args(arguments).current_dir(&self.root);
        command.env("CARGO_TARGET_DIR", &self.target);
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
        ensure!(!tests.is_empty(), "{} has no tests", arguments.join(" "));
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

/// What tests told.
#[derive(Debug, Default)]
struct Told {
    /// The programs that failed, each with what it says.
    failed: Vec<String>,
    passed: usize,
    ignored: usize,
}

/// All files below a directory.
fn files(directory: &Path, found: &mut BTreeSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            files(&entry.path(), found)?;
        } else {
            found.insert(entry.path());
        }
    }
    Ok(())
}

/// How many tests passed, and how many were ignored. A program that does not say is one test.
fn counted(output: &str) -> (usize, usize) {
    let mut result = output.lines().filter_map(|line| {
        let result = line.strip_prefix("test result: ")?;
        let count = |word: &str| -> Option<usize> {
            let (before, _) = result.split_once(word)?;
            before.trim_end().rsplit(' ').next()?.parse().ok()
        };
        Some((count(" passed;")?, count(" ignored;")?))
    });
    result.next_back().unwrap_or((1, 0))
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
    // What a test prints may stand between its name and what became of it; at the end they are listed once more.
    let (_, last) = output.rsplit_once("\nfailures:\n").unwrap_or_default();
    functions.extend(last.lines().map_while(|it| it.strip_prefix("    ")));
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
