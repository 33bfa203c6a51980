//! Commands and answers as a page shows them, tried on a cluster.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

/// A command and its documented output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The command line.
    pub command: String,
    /// The output; a line of three dots matches any lines.
    pub answer: Vec<String>,
}

/// The commands of the first `shell-session` below a heading. What needs no cluster is in blocks of
/// another name, which other tests try.
pub fn block(page: &str, heading: &str) -> Result<Vec<Shown>> {
    let from = page.split_once(&format!("\n{heading}\n"));
    let (_, rest) = from.with_context(|| format!("no heading {heading}"))?;
    let (_, rest) = rest
        .split_once("\n```shell-session\n")
        .context("no block")?;
    let (block, _) = rest.split_once("\n```").context("a block without an end")?;
    let mut all: Vec<Shown> = Vec::new();
    for line in block.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            let (command, answer) = (command.to_owned(), Vec::new());
            all.push(Shown { command, answer });
        } else {
            let last = all.last_mut().context("an answer without a command")?;
            last.answer.push(line.to_owned());
        }
    }
    ensure!(!all.is_empty(), "an empty block");
    Ok(all)
}

/// Whether lines are as they are shown.
fn is_as_shown(lines: &[String], shown: &[String]) -> bool {
    match shown.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if first == "..." => {
            (0..=lines.len()).any(|at| is_as_shown(lines.get(at..).unwrap_or_default(), rest))
        }
        Some((first, rest)) => match lines.split_first() {
            Some((line, lines)) => line.trim_end() == first && is_as_shown(lines, rest),
            None => false,
        },
    }
}

/// The time within which packets must follow a change.
const SETTLED: Duration = Duration::from_secs(20);
/// The line after the output of each command.
const END: &str = "--- end of the answer ---";

/// Runs all commands in one shell, and compares their output.
pub fn replay(shell: &mut Command, all: &[Shown]) -> Result<()> {
    let shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = shell.spawn().context("no shell")?;
    let mut to = child.stdin.take().context("a shell without ears")?;
    let mut from = BufReader::new(child.stdout.take().context("a shell without a voice")?);
    for shown in all {
        let end = Instant::now() + SETTLED;
        loop {
            let lines = type_in(&mut to, &mut from, &shown.command)?;
            if is_as_shown(&lines, &shown.answer) {
                break;
            }
            // A reader types more slowly than this program; a packet may be a moment too early.
            let is_probe = shown.command.contains(" exec ");
            if !is_probe || Instant::now() > end {
                let (lines, answer) = (lines.join("\n"), shown.answer.join("\n"));
                bail!(
                    "$ {}\n{lines}\n\nbut the page shows\n\n{answer}",
                    shown.command
                );
            }
        }
    }
    drop(to);
    child.wait()?;
    Ok(())
}

fn type_in(
    to: &mut ChildStdin,
    from: &mut BufReader<ChildStdout>,
    command: &str,
) -> Result<Vec<String>> {
    // The command must not read the next line.
    writeln!(to, "{{ {command}\n}} 2>&1 </dev/null; echo; echo '{END}'")?;
    to.flush()?;
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        ensure!(from.read_line(&mut line)? > 0, "the shell has ended");
        let line = line.trim_end_matches('\n');
        if line == END {
            break;
        }
        lines.push(line.to_owned());
    }
    // The empty line before the end is ours.
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{Shown, block, is_as_shown, replay};

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn commands_and_output_are_distinguished() {
        let page = "# A\n\n```shell-session\n$ no\n```\n\n## B\n\n```console\n$ no\n```\n\n```shell-session\n$ x=1\n$ echo $x\n1\n```\n";
        let expected = [("x=1", ""), ("echo $x", "1")].map(|(command, answer)| Shown {
            command: command.to_owned(),
            answer: lines(answer),
        });
        let found = block(page, "## B").unwrap_or_default();
        assert_eq!(found, expected);
        assert!(block(page, "## C").is_err());
        // One shell for all of it.
        assert!(replay(&mut Command::new("sh"), &found).is_ok());
        let wrong = [Shown {
            command: "echo 2; exit_ 2>/dev/null".to_owned(),
            answer: lines("1"),
        }];
        assert!(replay(&mut Command::new("sh"), &wrong).is_err());
    }

    #[test]
    fn dots_stand_for_any_lines() {
        let is = |has: &str, shown: &str| is_as_shown(&lines(has), &lines(shown));
        assert!(is("a\nb\nc", "...\nc"));
        assert!(is("c", "...\nc"));
        assert!(is("a\nb", "a\n..."));
        assert!(!is("a\nb", "...\nc"));
        assert!(!is("a\nb", "a"));
        assert!(!is("a", "a\nb"));
    }
}
