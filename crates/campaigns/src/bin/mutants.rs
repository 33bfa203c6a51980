//! Seeded mistakes: applies each patch of `crates/campaigns/mutants` to a copy of the workspace,
//! and runs the tests that must detect it. An undetected mistake is a gap in the tests.

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

/// The default tests for a mistake, in order. The cases come first: they are fast, and a failing
/// case shows what is wrong.
const STAGES: [&str; 3] = [
    "-p palisade --test cases --test explain",
    "-p palisade-campaigns --test agree --test cells",
    "-p palisade-core -p palisade-api --lib --tests",
];

/// Apply seeded mistakes to a copy of the workspace, and check that the tests detect them
#[derive(Debug, Parser)]
struct Args {
    /// Only mistakes whose names contain this; repeatable
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Only this number of mistakes, chosen by the seed
    #[arg(long, value_name = "N")]
    sample: Option<usize>,
    /// The seed of the sample: any text, such as the commit
    #[arg(long, value_name = "SEED", default_value = "0", requires = "sample")]
    seed: String,
    /// Continue with the other tests when one has failed
    #[arg(long)]
    all_tests: bool,
    /// Only check that the patches apply
    #[arg(long)]
    apply_only: bool,
    /// Keep the copy and its build in this directory for the next run. It must not be the target
    /// directory of another build, which would contain the mistakes
    #[arg(long, value_name = "DIR")]
    target_dir: Option<PathBuf>,
    /// The timeout of a build or a test, in seconds
    #[arg(long, default_value_t = 600)]
    timeout: u64,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(err) => {
            report(&format!("mutants: {err:#}"));
            ExitCode::from(2)
        }
    }
}

/// Prints progress. A closed standard error is no failure.
fn report(line: &str) {
    let _ = writeln!(stderr(), "{line}");
}

/// Runs the mistakes. Returns whether all are caught.
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
        "another run uses {}",
        directory.display()
    );
    let timeout = Duration::from_secs(args.timeout);
    let mut copy = Copy {
        root: directory.join("palisade"),
        target: directory.join("target"),
        // The first build compiles everything.
        timeout: timeout * 6,
    };
    copy.fill(&root)?;
    let mut ignored = BTreeSet::new();
    if !args.apply_only {
        report("building and testing without mistakes");
        ignored = copy.clean(&mutants)?;
    }
    copy.timeout = timeout;
    let start = Instant::now();
    let mut counts: BTreeMap<OutcomeClass, usize> = BTreeMap::new();
    for (index, mutant) in mutants.iter().enumerate() {
        report(&format!(
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
        *counts.entry(outcome.class()).or_default() += 1;
        writeln!(stdout(), "{}: {outcome}", mutant.name)?;
    }
    let count = |class| counts.get(&class).copied().unwrap_or(0);
    let what = if args.apply_only { "apply" } else { "caught" };
    let mut summary = format!("{} of {} {what}", count(OutcomeClass::Good), mutants.len());
    if count(OutcomeClass::Untried) > 0 {
        summary += &format!(", {} not run", count(OutcomeClass::Untried));
    }
    writeln!(stdout(), "{summary}")?;
    Ok(count(OutcomeClass::Bad) == 0)
}

/// The root of the current repository.
fn root() -> Result<PathBuf> {
    let output = Command::new("git")
        .args(["rev-parse", "--show-toplevel"])
        .output()
        .context("git")?;
    ensure!(output.status.success(), "not in a git repository");
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim_end()))
}

/// The selected mistakes.
fn chosen(mut mutants: Vec<Mutant>, args: &Args) -> Result<Vec<Mutant>> {
    let only = &args.only;
    mutants.retain(|it| only.is_empty() || only.iter().any(|word| it.name.contains(word)));
    if let Some(n) = args.sample {
        mutants = sample(mutants, n, &args.seed);
    }
    ensure!(!mutants.is_empty(), "no such patch");
    Ok(mutants)
}

/// The tests for a mistake.
fn stages(mutant: &Mutant) -> Vec<Tests> {
    if mutant.found_by.is_empty() {
        return STAGES.iter().map(|line| Tests::parse(line)).collect();
    }
    mutant.found_by.clone()
}

/// The outcome of a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// Tests failed, each with its findings.
    Caught(Vec<String>),
    /// No test failed.
    Missed,
    /// All its tests are ignored on this machine.
    Untried,
    /// The patch applies, with `--apply-only`.
    Applies,
    /// The patch no longer applies.
    Stale(String),
    /// The patched sources do not compile.
    Broken(String),
}

/// The class of an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum OutcomeClass {
    Good,
    Bad,
    Untried,
}

impl Outcome {
    fn class(&self) -> OutcomeClass {
        match self {
            Outcome::Caught(_) | Outcome::Applies => OutcomeClass::Good,
            Outcome::Missed | Outcome::Stale(_) | Outcome::Broken(_) => OutcomeClass::Bad,
            Outcome::Untried => OutcomeClass::Untried,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Caught(by) => write!(f, "caught by {}", by.join("; ")),
            Outcome::Missed => f.write_str("NOT CAUGHT"),
            Outcome::Untried => f.write_str("not run, its tests are ignored here"),
            Outcome::Applies => f.write_str("applies"),
            Outcome::Stale(why) => write!(f, "STALE, the patch does not apply: {why}"),
            Outcome::Broken(why) => write!(f, "BROKEN, it does not compile: {why}"),
        }
    }
}

/// The result of a command.
struct CommandResult {
    /// `None` after a timeout.
    success: Option<bool>,
    output: String,
}

/// A built test program.
struct Test {
    name: String,
    program: PathBuf,
    directory: PathBuf,
}

/// A copy of the workspace.
struct Copy {
    root: PathBuf,
    /// Its target directory.
    target: PathBuf,
    timeout: Duration,
}

impl Copy {
    /// Copies all tracked and untracked files of the workspace. Unchanged files are not written:
    /// cargo need not build them again.
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
        let mut stale_files = BTreeSet::new();
        files(&self.root, &mut stale_files)?;
        for file in String::from_utf8(output.stdout)?.split('\0') {
            let source = from.join(file);
            // A deleted file may still be in the index.
            if source.is_file() {
                let target = self.root.join(file);
                if !stale_files.remove(&target) || fs::read(&source)? != fs::read(&target)? {
                    fs::create_dir_all(target.parent().unwrap_or(&self.root))?;
                    fs::copy(&source, target).with_context(|| file.to_owned())?;
                }
            }
        }
        for file in stale_files {
            fs::remove_file(&file).with_context(|| file.display().to_string())?;
        }
        Ok(())
    }

    /// Runs all tests without a mistake. Returns the tests that are all ignored on this machine.
    fn clean(&self, mutants: &[Mutant]) -> Result<BTreeSet<Tests>> {
        let all: BTreeSet<Tests> = mutants.iter().flat_map(stages).collect();
        let mut ignored = BTreeSet::new();
        for tests in all {
            let text = [tests.build.join(" "), tests.run.join(" ")].join(" ");
            let mut results = TestResults::default();
            if let Err(why) = self.test(&tests, true, &mut results)? {
                bail!("{text} does not compile without mistakes: {why}");
            }
            ensure!(
                results.failed.is_empty(),
                "tests fail without mistakes: {}",
                results.failed.join("; ")
            );
            ensure!(results.passed + results.ignored > 0, "{text} has no tests");
            if results.passed == 0 {
                report(&format!("{text}: all tests are ignored here"));
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
            bail!("cannot revert {}: {why}", mutant.path.display());
        }
        outcome
    }

    /// Applies a patch completely or not at all. The inner error is git's.
    fn apply(&self, patch: &Path, options: &[&str]) -> Result<Result<(), String>> {
        let output = Command::new("git")
            .args(["apply", "-p1"])
            .args(options)
            .arg(patch)
            .current_dir(&self.root)
            // The copy is no repository, and must not belong to a surrounding one.
            .env(
                "GIT_CEILING_DIRECTORIES",
                self.root.parent().unwrap_or(&self.root),
            )
            .output()?;
        if output.status.success() {
            return Ok(Ok(()));
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        Ok(Err(stderr.lines().collect::<Vec<&str>>().join("; ")))
    }

    /// Builds and runs tests, up to the first failure.
    fn try_all(&self, stages: &[Tests], all_tests: bool) -> Result<Outcome> {
        let mut results = TestResults::default();
        for tests in stages {
            if let Err(why) = self.test(tests, all_tests, &mut results)? {
                return Ok(Outcome::Broken(why));
            }
            if !results.failed.is_empty() && !all_tests {
                break;
            }
        }
        Ok(if results.failed.is_empty() {
            Outcome::Missed
        } else {
            Outcome::Caught(results.failed)
        })
    }

    /// Builds and runs tests. The inner error is the compiler's.
    fn test(
        &self,
        tests: &Tests,
        all_tests: bool,
        results: &mut TestResults,
    ) -> Result<Result<(), String>> {
        let built = match self.build(&tests.build)? {
            Ok(built) => built,
            Err(why) => return Ok(Err(why)),
        };
        for test in built {
            let mut command = Command::new(&test.program);
            command.args(&tests.run).current_dir(&test.directory);
            let result = self.bounded(command)?;
            let (passed, ignored) = counted(&result.output);
            results.passed += passed;
            results.ignored += ignored;
            match result.success {
                Some(true) => continue,
                Some(false) => {
                    let findings = findings(&result.output);
                    results.failed.push(format!("{}{findings}", test.name));
                }
                None => results.failed.push(format!("{} (HANGS)", test.name)),
            }
            if !all_tests {
                break;
            }
        }
        Ok(Ok(()))
    }

    /// Builds tests. The inner error is the compiler's.
    fn build(&self, arguments: &[String]) -> Result<Result<Vec<Test>, String>> {
        let mut command = Command::new("cargo");
        command.args(["test", "--no-run", "--offline", "--locked"]);
        command.arg("--message-format=json-render-diagnostics");
        command.args(arguments).current_dir(&self.root);
        command.env("CARGO_TARGET_DIR", &self.target);
        // Linking is faster without debug information.
        command.env("CARGO_PROFILE_DEV_DEBUG", "0");
        let result = self.bounded(command)?;
        if result.success != Some(true) {
            let lines = result.output.lines();
            let mut errors = lines.filter(|line| line.starts_with("error"));
            let why = errors.next().unwrap_or("the build timed out");
            return Ok(Err(why.to_owned()));
        }
        let messages = result.output.lines();
        let messages = messages.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut tests: Vec<Test> = messages.filter_map(|it| test(&it)).collect();
        tests.sort_by(|a, b| a.name.cmp(&b.name));
        ensure!(!tests.is_empty(), "{} has no tests", arguments.join(" "));
        Ok(Ok(tests))
    }

    /// Runs a command, and kills its process group after the timeout.
    fn bounded(&self, mut command: Command) -> Result<CommandResult> {
        let log = self.root.with_extension("log");
        let file = File::create(&log)?;
        // A killed test leaves its temporary files.
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
        Ok(CommandResult { success, output })
    }
}

/// The results of tests.
#[derive(Debug, Default)]
struct TestResults {
    /// The failed programs, each with its findings.
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

/// The numbers of passed and ignored tests. A program without a summary counts as one test.
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

/// The test program of a message of cargo, if it has one.
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

/// The first failures of a test program: cases or seeds, or else test functions.
fn findings(output: &str) -> String {
    let mut found: BTreeSet<&str> = BTreeSet::new();
    let mut functions: BTreeSet<&str> = BTreeSet::new();
    // The output of a test may separate its name from its result; the list at the end has all
    // failures.
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
    // Cases and seeds are more specific than the function that runs them.
    let found = if found.is_empty() { functions } else { found };
    let first: Vec<&str> = found.iter().copied().take(3).collect();
    match found.len() - first.len() {
        _ if first.is_empty() => String::new(),
        0 => format!(" ({})", first.join(", ")),
        more => format!(" ({} and {more} more)", first.join(", ")),
    }
}
