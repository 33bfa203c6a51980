//! The two processes of a lab: the one that was started, and the one in namespaces, whatever starts
//! them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use palisade_need::{Need, run, tests};

fn main() -> ExitCode {
    let as_anyone = tests![
        needs [Need::NAMESPACES]:
        variables_of_the_allocator_do_not_matter,
        a_variable_that_claims_to_be_inside_is_not_believed,
        a_script_without_input_and_a_deleted_program_do,
        other_threads_do_not_matter,
        a_killed_lab_leaves_nothing,
        a_signal_that_ends_the_lab_ends_the_command,
        what_a_visitor_ends_with_is_passed_on,
        a_lab_starts_no_thread_of_the_allocator,
    ];
    let as_root = tests![
        needs [Need::ROOT, Need::NAMESPACES]:
        an_ordinary_user_may_run_it,
    ];
    run(as_anyone.into_iter().chain(as_root))
}

const LAST_LINE: &str = "all predictions match the packets";

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../..").canonicalize().unwrap()
}

fn lab() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_palisade"));
    command.args(["lab", "-f", "examples/shop"]);
    command.current_dir(root());
    command
}

/// It measured, and everything was as predicted.
#[track_caller]
fn assert_measured(output: &Output) {
    let tree = String::from_utf8_lossy(&output.stdout);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{tree}{printed}");
    let last = tree.lines().last().unwrap_or_default();
    // Read off the policies of the example, flow by flow, when it was written.
    assert_eq!(
        last,
        format!("138 allowed, 242 denied; {LAST_LINE}"),
        "{printed}"
    );
}

fn variables_of_the_allocator_do_not_matter() {
    // The first starts a thread before `main`.
    for (name, value) in [
        ("_RJEM_MALLOC_CONF", "background_thread:true"),
        ("MALLOC_CONF", "background_thread:true"),
        ("RAYON_NUM_THREADS", "3"),
    ] {
        assert_measured(&lab().env(name, value).output().unwrap());
    }
}

fn a_variable_that_claims_to_be_inside_is_not_believed() {
    for value in ["", "1", "1 2", "x y", "4026531837 4026531837"] {
        assert_measured(&lab().env("PALISADE_INSIDE", value).output().unwrap());
    }
    // Even one that names the process that starts it: a network that has addresses is in use.
    let claim = format!("{} 0", std::process::id());
    let output = lab().env("PALISADE_INSIDE", claim).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    assert!(printed.contains("PALISADE_INSIDE is set"), "{printed}");
}

fn a_script_without_input_and_a_deleted_program_do() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("palisade");
    std::fs::copy(env!("CARGO_BIN_EXE_palisade"), &program).unwrap();
    // The program is gone from its path as soon as it runs.
    let script = r#"exec 3<"$0"; rm "$0"; exec /proc/self/fd/3 lab -f examples/shop <&-"#;
    let output = Command::new("sh")
        .args(["-c", script])
        .arg(&program)
        .current_dir(root())
        .output()
        .unwrap();
    assert!(!program.exists());
    assert_measured(&output);
}

/// A thread that has nothing to do with the lab runs while it enters: one for the progress of
/// reading.
fn other_threads_do_not_matter() {
    let flags = "background_thread:true,max_background_threads:4";
    let mut command = lab();
    command.env("_RJEM_MALLOC_CONF", flags).arg("--keep");
    let mut running = Running::start(command);
    let tasks = Path::new("/proc").join(running.child.id().to_string());
    let n_threads = tasks.join("task").read_dir().unwrap().count();
    assert!(
        n_threads >= 2,
        "{n_threads}: the process outside has one thread only"
    );
    running.end("-KILL");
}

struct Running {
    child: Child,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// A lab that has measured and is kept up.
    fn start(mut command: Command) -> Running {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let printed = BufReader::new(child.stderr.take().unwrap());
        let mut running = Running { child };
        let is_up = printed
            .lines()
            .map_while(Result::ok)
            .any(|it| it.contains("the lab runs until Ctrl-C"));
        assert!(is_up, "{:?}", running.child.try_wait());
        running
    }

    /// The process in namespaces.
    fn inside(&self) -> PathBuf {
        let parent = format!("PPid:\t{}", self.child.id());
        let processes = Path::new("/proc").read_dir().unwrap().flatten();
        let mut children = processes.map(|it| it.path()).filter(|it| {
            let status = std::fs::read_to_string(it.join("status")).unwrap_or_default();
            status.lines().any(|line| line == parent)
        });
        children.next().expect("a process in namespaces")
    }

    /// What it ended with. A test that waits for ever says nothing.
    #[track_caller]
    fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the lab does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn end(&mut self, signal: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status().unwrap();
        assert!(sent.success());
    }
}

fn kept() -> Running {
    let mut command = lab();
    command.arg("--keep");
    Running::start(command)
}

#[track_caller]
fn until_gone(process: &Path) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while process.join("exe").symlink_metadata().is_ok() && process.join("ns/net").exists() {
        assert!(
            Instant::now() < deadline,
            "{} is still there",
            process.display()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn a_killed_lab_leaves_nothing() {
    let mut running = kept();
    let inside = running.inside();
    running.end("-KILL");
    running.ended();
    until_gone(&inside);
}

/// The lab with signals as a terminal leaves them: `nohup` and background jobs of shells have some
/// of them ignored, which programs inherit.
fn with_default_signals(lab: &Command) -> Command {
    let mut command = Command::new("env");
    command
        .arg("--default-signal=INT,TERM,HUP")
        .arg(lab.get_program())
        .args(lab.get_args())
        .current_dir(root());
    command
}

fn a_signal_that_ends_the_lab_ends_the_command() {
    for (name, number) in [("-INT", 2), ("-TERM", 15), ("-HUP", 1)] {
        let mut command = lab();
        command.arg("--keep");
        let mut running = Running::start(with_default_signals(&command));
        let inside = running.inside();
        running.end(name);
        let status = running.ended();
        assert_eq!(status.signal(), Some(number), "{name}: {status}");
        until_gone(&inside);
    }
}

fn what_a_visitor_ends_with_is_passed_on() {
    let running = kept();
    let process = running.inside();
    let process = process.file_name().unwrap().to_str().unwrap();
    let visit = |words: &[&str]| {
        let visit = ["lab", "exec", "--lab", process, "shop/web-0", "--"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_palisade"));
        command.args(visit).args(words).output().unwrap()
    };
    // The address of the example's manifest, in the pod's own network.
    let output = visit(&["cat", "/proc/net/fib_trie"]);
    let tree = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(tree.contains("|-- 10.20.1.10"), "{tree}");
    assert_eq!(visit(&["sh", "-c", "exit 7"]).status.code(), Some(7));
    let output = visit(&["no-such-program"]);
    assert_eq!(output.status.code(), Some(2));
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(
        printed.contains("cannot run `no-such-program`"),
        "{printed}"
    );
}

/// The names of a process's threads.
fn threads(process: &Path) -> Vec<String> {
    let tasks = process.join("task").read_dir().unwrap().flatten();
    let names = tasks.map(|it| std::fs::read_to_string(it.path().join("comm")).unwrap_or_default());
    names.map(|it| it.trim().to_owned()).collect()
}

const OF_THE_ALLOCATOR: &str = "jemalloc_bg_thd";

/// An agent does: tests of the agent look for it.
fn a_lab_starts_no_thread_of_the_allocator() {
    let running = kept();
    for process in [
        running.inside(),
        Path::new("/proc").join(running.child.id().to_string()),
    ] {
        let names = threads(&process);
        assert!(!names.iter().any(|it| it == OF_THE_ALLOCATOR), "{names:?}");
    }
}

/// As `cargo run` does for a user who is not root.
fn an_ordinary_user_may_run_it() {
    const UNPRIVILEGED: u32 = 65_534;
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("palisade");
    std::fs::copy(env!("CARGO_BIN_EXE_palisade"), &program).unwrap();
    let shop = directory.path().join("shop");
    std::fs::create_dir(&shop).unwrap();
    for file in root().join("examples/shop").read_dir().unwrap().flatten() {
        std::fs::copy(file.path(), shop.join(file.file_name())).unwrap();
    }
    let readable = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    readable(directory.path(), 0o755);
    let output = Command::new(&program)
        .args(["lab", "-f", "shop"])
        .current_dir(directory.path())
        .uid(UNPRIVILEGED)
        .gid(UNPRIVILEGED)
        .output()
        .unwrap();
    assert_measured(&output);
}
