//! Runs every command of a program of campaigns or benchmarks at its smallest size: a command that
//! is not run for months stops working.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::{Need, Test, run_in_turn};

/// A program whose commands are run.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its path.
    pub path: &'static str,
    /// Commands that another test or `.ci/run` runs: the command, a file of the repository, and a
    /// text that this file must contain.
    pub elsewhere: &'static [(&'static str, &'static str, &'static str)],
}

/// A command at its smallest size.
#[derive(Clone, Copy, Debug)]
pub struct Smallest {
    /// The arguments. `PEER` is replaced by a program that prints an empty answer of
    /// netpol-analyzer.
    pub words: &'static str,
    /// What the command needs of the machine.
    pub needs: &'static [Need],
    /// The text that it must print, with exit code 0. A number sign matches any number but 0.
    pub prints: &'static [&'static str],
}

/// Runs the commands, one test each, and a test that no command of the program is missing.
pub fn smallest(program: &'static Program, all: &'static [Smallest]) -> ExitCode {
    let complete = Test::new("every_command_is_here", || {
        every_command_is_here(program, all);
    });
    let commands = all
        .iter()
        .map(|it| Test::new(it.words, || check(program, it)).needs(it.needs));
    run_in_turn([complete].into_iter().chain(commands))
}

/// Builds the program `palisade`, unless it is up to date, and returns its path. It is beside
/// `beside`, a program of the same build.
pub fn palisade(beside: &str) -> PathBuf {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--locked", "-p", "palisade"]);
    let built = build.current_dir(root()).status();
    assert!(
        built.is_ok_and(|it| it.success()),
        "palisade cannot be built"
    );
    Path::new(beside).with_file_name("palisade")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn started(program: &Program) -> Command {
    let mut command = Command::new(program.path);
    command.current_dir(root());
    command
}

fn every_command_is_here(program: &Program, all: &[Smallest]) {
    let help = started(program).arg("--help").output();
    let help = help.map(|it| String::from_utf8_lossy(&it.stdout).into_owned());
    let help = help.unwrap_or_default();
    let (_, commands) = help.split_once("Commands:\n").unwrap_or_default();
    let (commands, _) = commands.split_once("\n\n").unwrap_or_default();
    let named = commands
        .lines()
        .filter_map(|it| it.strip_prefix("  ")?.split(' ').next());
    let named: BTreeSet<&str> = named.filter(|it| !it.is_empty() && *it != "help").collect();
    let run = all.iter().filter_map(|it| it.words.split(' ').next());
    let elsewhere = program.elsewhere.iter().map(|(command, ..)| *command);
    assert_eq!(named, run.chain(elsewhere).collect());
    for (command, file, words) in program.elsewhere {
        let text = fs::read_to_string(root().join(file)).unwrap_or_default();
        assert!(text.contains(words), "{file} does not run `{command}`");
    }
}

fn check(program: &Program, smallest: &Smallest) {
    palisade(program.path);
    let peer = std::env::temp_dir().join(format!("palisade-peer-{}", std::process::id()));
    let words = smallest.words.split(' ').map(|it| match it {
        "PEER" => {
            let written = fs::write(&peer, "#!/bin/sh\necho src,dst,conn\n");
            let written =
                written.and_then(|()| fs::set_permissions(&peer, Permissions::from_mode(0o755)));
            assert!(written.is_ok(), "{} cannot be written", peer.display());
            peer.as_os_str()
        }
        other => other.as_ref(),
    });
    let output = started(program).args(words).output();
    // Only the command with this argument writes it.
    let _ = fs::remove_file(&peer);
    let (code, printed) = match output {
        Ok(it) => (it.status.code(), [it.stdout, it.stderr].concat()),
        Err(error) => (None, error.to_string().into_bytes()),
    };
    let printed = String::from_utf8_lossy(&printed);
    assert_eq!(code, Some(0), "{printed}");
    for expected in smallest.prints {
        assert!(has(&printed, expected), "no {expected:?} in\n{printed}");
    }
}

/// Whether a text has words; a number sign matches any number but 0.
fn has(text: &str, words: &str) -> bool {
    let mut parts = words.split('#');
    let first = parts.next().unwrap_or_default();
    let rest: Vec<&str> = parts.collect();
    text.match_indices(first).any(|(at, _)| {
        let mut behind = text.get(at + first.len()..).unwrap_or_default();
        rest.iter().all(|part| {
            let digits = behind.find(|c: char| !c.is_ascii_digit() && c != '.');
            let (number, next) = behind.split_at(digits.unwrap_or(behind.len()));
            let is_number = number.parse::<f64>().is_ok_and(|it| it > 0.0);
            match next.strip_prefix(part) {
                Some(next) if is_number => {
                    behind = next;
                    true
                }
                Some(_) | None => false,
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::has;

    #[test]
    fn a_number_sign_stands_for_any_number_but_zero() {
        assert!(has("12 answers, 0 differ", "# answers, 0 differ"));
        assert!(has("took 1.5 s", "took # s"));
        assert!(!has("0 answers, 0 differ", "# answers"));
        assert!(!has("no answers", "# answers"));
    }
}
