//! The documentation is true: its manifests are valid, and its commands print what it says.
//! `UPDATE_DOCS=1` writes the output of the commands anew; read the difference.
//!
//! Labs say how long they took, which is never the same: those times, and nothing else, are not
//! compared. Where no network namespaces can be made, what labs print is not compared at all.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking, and says what it left out"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

use palisade_api::{Options, Problem, Source, read};

fn find_pages(directory: &Path, pages: &mut Vec<PathBuf>) {
    for entry in directory.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            find_pages(&path, pages);
        } else if path.extension().is_some_and(|it| it == "md") {
            pages.push(path);
        }
    }
}

#[test]
fn yaml_blocks_are_valid_objects() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut files = Vec::new();
    find_pages(&docs, &mut files);
    files.sort();
    let mut blocks = 0;
    for file in files.iter().filter(|it| !it.ends_with("problems.md")) {
        let text = std::fs::read_to_string(file).unwrap();
        for block in text.split("\n```yaml\n").skip(1) {
            let block = block.split("\n```").next().unwrap();
            let sources = [Source::new("block.yaml", block.as_bytes().to_vec())];
            let manifests = read(&sources, Options::default(), &|_| {});
            let errors: Vec<&Problem> = manifests
                .problems
                .iter()
                .filter(|it| it.is_error())
                .collect();
            assert!(
                errors.is_empty(),
                "{}: {errors:#?}\n{block}",
                file.display()
            );
            assert!(!manifests.objects.is_empty(), "{}: {block}", file.display());
            blocks += 1;
        }
    }
    assert!(blocks >= 10, "{blocks}");
}

/// What a command line prints, run at the root of the repository. `None`: it is a lab, and none can
/// be built here.
fn output(root: &Path, line: &str) -> Option<String> {
    let words = shell_words(line);
    assert_eq!(words[0], "palisade", "{line}");
    let output = Command::new(env!("CARGO_BIN_EXE_palisade"))
        .args(&words[1..])
        .current_dir(root)
        .output()
        .unwrap();
    let is_refused = output.status.code() == Some(2)
        && output
            .stderr
            .starts_with(b"palisade: cannot make network namespaces");
    if words[1] == "lab" && is_refused {
        let told = String::from_utf8_lossy(&output.stderr);
        println!("not compared: {line}\n{told}");
        return None;
    }
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    let lines = text.lines().map(|line| format!("{}\n", line.trim_end()));
    Some(lines.collect())
}

/// A page without the seconds that its labs took.
fn without_times(page: &str) -> String {
    let lines = page.lines().map(|line| {
        if !line.contains(" measured with packets in ") {
            return format!("{line}\n");
        }
        let words: Vec<&str> = line.split(' ').collect();
        let kept = words.iter().enumerate().map(|(place, word)| {
            let is_time = words
                .get(place + 1)
                .is_some_and(|unit| unit.trim_end_matches(';') == "s");
            if is_time { "?" } else { word }
        });
        format!("{}\n", kept.collect::<Vec<&str>>().join(" "))
    });
    lines.collect()
}

#[test]
fn only_the_times_of_labs_are_passed_over() {
    let page = "2 pods on 1 node, built in 0.2 s; 4 flows measured with packets in 1.0 s\nin 3 s\n";
    let kept = "2 pods on 1 node, built in ? s; 4 flows measured with packets in ? s\nin 3 s\n";
    assert_eq!(without_times(page), kept);
}

/// Words, with single quotes.
fn shell_words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            _ => words.last_mut().unwrap().push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn console_blocks_print_what_they_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap();
    let mut files = vec![root.join("README.md")];
    find_pages(&root.join("docs"), &mut files);
    files.sort();
    let mut commands = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let mut made = String::new();
        let mut in_block = false;
        let mut skipping = false;
        for line in text.lines() {
            if line == "```console" {
                in_block = true;
            } else if line == "```" {
                in_block = false;
                skipping = false;
            } else if in_block && let Some(command) = line.strip_prefix("$ ") {
                commands += 1;
                let printed = output(&root, command);
                made += &format!("{line}\n{}", printed.as_deref().unwrap_or_default());
                skipping = printed.is_some();
                continue;
            }
            if !skipping {
                made += &format!("{line}\n");
            }
        }
        let is_said = |page: &str| without_times(page) == without_times(&made);
        if std::env::var_os("UPDATE_DOCS").is_some() && !is_said(&text) {
            std::fs::write(&file, &made).unwrap();
        }
        let written = std::fs::read_to_string(&file).unwrap();
        assert!(
            is_said(&written),
            "{} does not say what its commands print; run with UPDATE_DOCS=1 and read the difference",
            file.display()
        );
    }
    assert!(commands >= 5, "{commands}");
}
