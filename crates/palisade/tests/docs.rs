//! The documentation is true: its manifests are valid, and its commands print what it says.
//! `UPDATE_DOCS=1` writes the output of the commands anew; read the difference.
//!
//! Labs say how long they took, which is never the same: those times, and nothing else, are not
//! compared.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use palisade_api::{Options, Problem, Source, read};
use palisade_need::{Need, run_in_turn, tests};

fn main() -> ExitCode {
    let plain = tests![
        yaml_blocks_are_valid_objects,
        only_the_times_of_labs_are_ignored,
    ];
    // These may write pages: they run sequentially.
    let commands = tests![console_blocks_print_what_they_say];
    let labs = tests![needs [Need::NAMESPACES]: console_blocks_of_labs_print_what_they_say];
    run_in_turn(plain.into_iter().chain(commands).chain(labs))
}

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

/// What a command line prints, run at the root of the repository.
fn output(root: &Path, line: &str) -> String {
    let words = shell_words(line);
    assert_eq!(words[0], "palisade", "{line}");
    let output = Command::new(env!("CARGO_BIN_EXE_palisade"))
        .args(&words[1..])
        .current_dir(root)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    let lines = text.lines().map(|line| format!("{}\n", line.trim_end()));
    lines.collect()
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

fn only_the_times_of_labs_are_ignored() {
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

/// Pages, with the commands of their console blocks run that are wanted, and the others unchanged.
fn check_console_blocks(is_wanted: fn(&str) -> bool) -> usize {
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
        let mut is_made = false;
        for line in text.lines() {
            if line == "```console" {
                in_block = true;
            } else if line == "```" {
                in_block = false;
                is_made = false;
            } else if in_block && let Some(command) = line.strip_prefix("$ ") {
                made += &format!("{line}\n");
                is_made = is_wanted(command);
                if is_made {
                    commands += 1;
                    made += &output(&root, command);
                }
                continue;
            }
            if !is_made {
                made += &format!("{line}\n");
            }
        }
        let is_stated = |page: &str| without_times(page) == without_times(&made);
        if std::env::var_os("UPDATE_DOCS").is_some() && !is_stated(&text) {
            std::fs::write(&file, &made).unwrap();
        }
        let written = std::fs::read_to_string(&file).unwrap();
        assert!(
            is_stated(&written),
            "{} does not say what its commands print; run with UPDATE_DOCS=1 and read the difference:\n{made}",
            file.display()
        );
    }
    commands
}

fn is_lab(command: &str) -> bool {
    command.starts_with("palisade lab ")
}

fn console_blocks_print_what_they_say() {
    let commands = check_console_blocks(|command| !is_lab(command));
    assert!(commands >= LEAST_COMMANDS, "{commands}");
}

fn console_blocks_of_labs_print_what_they_say() {
    let commands = check_console_blocks(is_lab);
    assert!(commands >= LEAST_LABS, "{commands}");
}

/// So many commands the pages had when they were last counted.
const LEAST_COMMANDS: usize = 39;
const LEAST_LABS: usize = 7;
