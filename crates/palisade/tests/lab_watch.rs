//! `palisade lab --watch`: a lab that follows its files.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use palisade_need::{Need, run, tests};
use serde_json::Value;

fn main() -> ExitCode {
    let labs = tests![
        needs [Need::NAMESPACES]:
        changes_of_files_are_measured_and_broken_ones_are_waited_out,
        a_lab_may_begin_with_files_that_are_not_in_order,
        what_is_not_there_at_all_is_a_mistake,
        on_a_terminal_it_is_drawn_in_place_and_what_changed_is_marked,
        a_round_that_is_interrupted_ends_too,
        the_page_shows_what_is_printed,
    ];
    let broken = tests![
        needs [Need::NAMESPACES, Need::IP]:
        the_measurement_is_reported_and_not_the_prediction,
    ];
    run(labs.into_iter().chain(broken))
}

/// Long enough for a machine that is busy.
const SOON: Duration = Duration::from_secs(30);

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../..").canonicalize().unwrap()
}

/// A copy of the shop, and the documentation beside it.
fn shop() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let own = directory.path().join("my-shop");
    std::fs::create_dir(&own).unwrap();
    for file in root().join("examples/shop").read_dir().unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), own.join(file.file_name())).unwrap();
    }
    std::os::unix::fs::symlink(root().join("docs"), directory.path().join("docs")).unwrap();
    directory
}

/// A file with some of its text replaced, put in the place of the old one.
fn edit(file: &Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.contains(from), "{from}");
    replace(file, &text.replace(from, to));
}

fn replace(file: &Path, text: &str) {
    let new = file.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, file).unwrap();
}

fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    let status = Command::new("kill").args([name, &id]).status().unwrap();
    assert!(status.success());
}

fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (to, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines() {
            let Ok(line) = line else { return };
            if to.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// A lab that runs in a directory.
struct Running {
    child: Child,
    out: Receiver<String>,
    progress: Receiver<String>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(directory: &Path, args: &[&str]) -> Running {
    let mut child = Command::new(env!("CARGO_BIN_EXE_palisade"))
        .args(["lab", "--watch"])
        .args(args)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    Running {
        out: lines(child.stdout.take().unwrap()),
        progress: lines(child.stderr.take().unwrap()),
        child,
    }
}

impl Running {
    #[track_caller]
    fn report(&self) -> Value {
        let line = self.out.recv_timeout(SOON).unwrap();
        let report: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(report["kind"], "LabReport");
        assert_eq!(report["differences"], 0, "{line}");
        report
    }

    #[track_caller]
    fn until_printed(&self, words: &str) {
        let deadline = Instant::now() + SOON;
        let mut progress = Vec::new();
        while progress
            .last()
            .is_none_or(|it: &String| !it.contains(words))
        {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.progress.recv_timeout(left) {
                Ok(line) => progress.push(line),
                Err(error) => panic!("{error}: {words}: {progress:#?}"),
            }
        }
    }

    /// How it ended.
    fn ended(&mut self) -> Option<i32> {
        let deadline = Instant::now() + SOON;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "it is still there");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn measured(report: &Value) -> Vec<&str> {
    let probes = report["probes"].as_array().unwrap().iter();
    probes
        .map(|it| it["measured"].as_str().unwrap_or("-"))
        .collect()
}

/// The network namespaces that are open in processes of this user, beside the machine's own.
fn namespaces(process: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let files = Path::new("/proc").join(process).join("fd").read_dir();
    for file in files.into_iter().flatten().flatten() {
        let target = std::fs::read_link(file.path()).unwrap_or_default();
        let target = target.to_string_lossy().into_owned();
        found.extend(Some(target).filter(|it| it.starts_with("net:[")));
    }
    found
}

/// The process that has the lab: the child of the one that was started.
fn inside(outside: &Child) -> String {
    let parent = format!("PPid:\t{}", outside.id());
    let processes = Path::new("/proc").read_dir().unwrap().flatten();
    let mut children = processes.filter(|it| {
        let status = std::fs::read_to_string(it.path().join("status")).unwrap_or_default();
        status.lines().any(|line| line == parent)
    });
    let child = children.next().expect("a child");
    child.file_name().to_string_lossy().into_owned()
}

fn all_namespaces() -> BTreeSet<String> {
    let processes = Path::new("/proc").read_dir().unwrap().flatten();
    let names = processes.map(|it| it.file_name().to_string_lossy().into_owned());
    let numbers = names.filter(|it| it.bytes().all(|byte| byte.is_ascii_digit()));
    numbers.flat_map(|it| namespaces(&it)).collect()
}

/// Web may call the API, and only the API the database; the API's named port is 9000.
const FLOWS: &str = "\
shop/web-0 shop/api-0 tcp/9000
shop/web-0 shop/db-0 tcp/5432
shop/api-0 shop/db-0 tcp/5432
";

fn changes_of_files_are_measured_and_broken_ones_are_waited_out() {
    let directory = shop();
    let own = directory.path().join("my-shop");
    let (policies, flows) = (own.join("policies.yaml"), directory.path().join("flows"));
    std::fs::write(&flows, FLOWS).unwrap();
    let args = ["-f", "my-shop", "--flows", "flows", "-o", "jsonl"];
    let mut running = start(directory.path(), &args);
    let report = running.report();
    assert_eq!(measured(&report), ["Allow", "Deny", "Allow"]);
    assert!(report.get("change").is_none());

    // The web pods lose the API, and no other pod does.
    edit(&policies, "port: http}", "port: metrics}");
    let report = running.report();
    assert_eq!(measured(&report), ["Deny", "Deny", "Allow"]);
    let change = &report["change"];
    assert_eq!(change["changed"], serde_json::json!(["policies.yaml"]));
    assert_eq!(
        (&change["opened"], &change["closed"]),
        (&0.into(), &1.into())
    );
    assert_eq!(change["rebuilt"], false);

    // Half a file is not enforced.
    let good = std::fs::read_to_string(&policies).unwrap();
    replace(&policies, &format!("{good}---\nkind: ["));
    running.until_printed("the lab stays unchanged");
    replace(&policies, &good.replace("port: metrics}", "port: http}"));
    let report = running.report();
    assert_eq!(measured(&report), ["Allow", "Deny", "Allow"]);
    assert_eq!(report["change"]["opened"], 1);

    // New files count, and so does one that is gone.
    for (name, expected) in [("web-to-db.yaml", "Deny"), ("db-from-web.yaml", "Allow")] {
        let text = std::fs::read_to_string(root().join("docs/lab").join(name)).unwrap();
        replace(&own.join(name), &text);
        assert_eq!(measured(&running.report()), ["Allow", expected, "Allow"]);
    }
    std::fs::remove_file(own.join("db-from-web.yaml")).unwrap();
    let report = running.report();
    assert_eq!(measured(&report), ["Allow", "Deny", "Allow"]);
    assert_eq!(
        report["change"]["gone"],
        serde_json::json!(["db-from-web.yaml"])
    );

    // Other flows of the same lab.
    replace(&flows, "shop/api-0 shop/db-0 tcp/5432\n");
    let report = running.report();
    assert_eq!(measured(&report), ["Allow"]);
    assert_eq!(report["change"]["oldFlows"], 2);

    // Another address is another lab.
    edit(&own.join("pods.yaml"), "10.20.1.11", "10.20.1.99");
    let report = running.report();
    assert_eq!(measured(&report), ["Allow"]);
    assert_eq!(report["change"]["rebuilt"], true);

    let open = namespaces(&inside(&running.child));
    assert!(open.len() >= 10, "{open:?}");
    signal(&running.child, "-TERM");
    assert_eq!(running.ended(), Some(0));
    let left = all_namespaces();
    assert!(open.is_disjoint(&left), "{left:?}");
}

/// A node of the lab stops forwarding to a pod, which no policy requires: the lab reports the
/// packets, and that they are not what was predicted.
fn the_measurement_is_reported_and_not_the_prediction() {
    let directory = shop();
    let flows = "shop/web-0 shop/api-0 tcp/9000\nshop/web-0 shop/db-0 tcp/5432\n";
    std::fs::write(directory.path().join("flows"), flows).unwrap();
    let args = ["-f", "my-shop", "--flows", "flows", "-o", "jsonl"];
    let mut running = start(directory.path(), &args);
    assert_eq!(measured(&running.report()), ["Allow", "Deny"]);
    // Both pods are on this node.
    let broken = Command::new(env!("CARGO_BIN_EXE_palisade"))
        .args(["lab", "exec", "--lab", &inside(&running.child), "node/n1"])
        .args(["--", "ip", "rule", "add", "to", "10.20.1.11", "blackhole"])
        .output()
        .unwrap();
    let progress = String::from_utf8_lossy(&broken.stderr);
    assert!(broken.status.success(), "{progress}");
    let policies = directory.path().join("my-shop/policies.yaml");
    let text = std::fs::read_to_string(&policies).unwrap();
    replace(&policies, &format!("{text}# nothing else\n"));
    let line = running.out.recv_timeout(SOON).unwrap();
    let report: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(measured(&report), ["Deny", "Deny"], "{line}");
    assert_eq!(report["probes"][0]["predicted"], "Allow", "{line}");
    assert_eq!(report["differences"], 1, "{line}");
    assert_eq!(report["change"]["closed"], 1, "{line}");
    signal(&running.child, "-TERM");
    assert_eq!(running.ended(), Some(1));
}

fn a_lab_may_begin_with_files_that_are_not_in_order() {
    let directory = shop();
    let policies = directory.path().join("my-shop/policies.yaml");
    let good = std::fs::read_to_string(&policies).unwrap();
    replace(&policies, "kind: [");
    let args = ["-f", "my-shop", "-o", "jsonl"];
    let mut running = start(directory.path(), &args);
    running.until_printed("waiting until the files are valid");
    replace(&policies, &good);
    let report = running.report();
    assert!(measured(&report).len() > 300);
    assert!(report.get("change").is_none());
    signal(&running.child, "-INT");
    assert_eq!(running.ended(), Some(0));
}

fn what_is_not_there_at_all_is_a_mistake() {
    let directory = shop();
    for args in [
        ["-f", "my-shop", "-f", "nothing"],
        ["-f", "my-shop", "--flows", "nothing"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_palisade"))
            .args(["lab", "--watch"])
            .args(args)
            .current_dir(directory.path())
            .output()
            .unwrap();
        let progress = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{progress}");
        assert!(
            progress.contains("cannot read nothing: No such file"),
            "{progress}"
        );
    }
}

fn on_a_terminal_it_is_drawn_in_place_and_what_changed_is_marked() {
    let directory = shop();
    let terminal = nix::pty::openpty(None, None).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_palisade"))
        .args(["lab", "-f", "my-shop", "--watch"])
        .current_dir(directory.path())
        .env("TERM", "xterm")
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .stdout(terminal.slave)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let shown = lines(std::fs::File::from(terminal.master));
    let next = |ending: &str| {
        let mut text = String::new();
        while !text.contains(ending) {
            text += &shown.recv_timeout(SOON).unwrap();
            text += "\n";
        }
        text.replace('\r', "")
    };
    let ending = "all predictions match the packets";
    let first = next(ending);
    assert!(first.starts_with("\u{1b}[H\u{1b}[2Jfrom \\ to:"), "{first}");
    edit(
        &directory.path().join("my-shop/policies.yaml"),
        "port: http}",
        "port: metrics}",
    );
    let second = next(ending);
    // Without colours the screen is cleared all the same, and nothing else is escaped.
    let (clear, second) = second.split_at(7);
    assert_eq!(clear, "\u{1b}[H\u{1b}[2J");
    assert!(!second.contains('\u{1b}'), "{second}");
    let head = second.lines().next().unwrap();
    assert!(head.contains(" UTC policies.yaml changed: "), "{head}");
    assert!(
        head.ends_with("0 differences between prediction and packets"),
        "{head}"
    );
    assert!(second.contains("   * changed\n"), "{second}");
    // The web pods reach the API on another port now, and its Service no more.
    let row = second.lines().find(|it| it.starts_with("shop/web-0 "));
    assert_eq!(
        row.unwrap().trim_end(),
        "shop/web-0              o -*o   - - - - - - - +*- - -"
    );
    signal(&child, "-INT");
    assert!(child.wait().unwrap().success());
}

fn a_round_that_is_interrupted_ends_too() {
    let directory = shop();
    let mut running = start(directory.path(), &["-f", "my-shop", "-o", "jsonl"]);
    std::thread::sleep(Duration::from_millis(60));
    signal(&running.child, "-INT");
    // It depends on how far it came.
    let code = running.ended();
    assert!(matches!(code, None | Some(0 | 2)), "{code:?}");
}

/// A text without the time of the day and the seconds that things took.
fn without_times(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let line = match line.split_once(" UTC ") {
            Some((_, rest)) => format!("?:?:? UTC {rest}"),
            None => line.to_owned(),
        };
        let words: Vec<&str> = line.split(' ').collect();
        let kept = words.iter().enumerate().map(|(place, word)| {
            let unit = words.get(place + 1).map(|it| it.trim_end_matches(';'));
            if unit == Some("s") { "?" } else { word }
        });
        format!("{}\n", kept.collect::<Vec<&str>>().join(" ").trim_end())
    });
    lines.collect()
}

fn the_page_shows_what_is_printed() {
    let page = std::fs::read_to_string(root().join("docs/tutorials/lab.md")).unwrap();
    let section = page.split("\n## Follow the files\n").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let blocks: Vec<&str> = section
        .split("```text\n")
        .skip(1)
        .map(|it| it.split("```").next().unwrap())
        .collect();
    let [first, second, ..] = blocks.as_slice() else {
        panic!("{blocks:?}");
    };
    let (command, first) = first.split_once('\n').unwrap();
    assert_eq!(
        command,
        "$ palisade lab -f my-shop --flows docs/lab/flows.txt --watch"
    );
    let directory = shop();
    let args = ["-f", "my-shop", "--flows", "docs/lab/flows.txt"];
    let running = start(directory.path(), &args);
    let next = |n_lines: usize| {
        let lines = (0..n_lines).map(|_| running.out.recv_timeout(SOON).unwrap() + "\n");
        lines.collect::<String>()
    };
    let printed = next(first.lines().count());
    assert_eq!(without_times(&printed), without_times(first));
    let change = "sed -i 's/port: http}/port: metrics}/' my-shop/policies.yaml";
    assert!(section.contains(change));
    let policies = directory.path().join("my-shop/policies.yaml");
    edit(&policies, "port: http}", "port: metrics}");
    // Rounds are apart by an empty line.
    assert_eq!(next(1), "\n");
    let printed = next(second.lines().count());
    assert_eq!(without_times(&printed), without_times(second));
}
