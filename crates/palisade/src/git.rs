//! Reads the manifests of `git:REV:PATH` with the `git` command.

use std::ffi::OsStr;
use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, anyhow, bail, ensure};
use palisade_api::{MAX_SOURCE_BYTES, Source};
use palisade_watch::list::{is_hidden, is_manifest};

use crate::draw::clean;

/// Returns the manifests at a path of a revision, in order.
pub(crate) fn read(revision: &str, path: &str, recursive: bool) -> anyhow::Result<Vec<Source>> {
    // A revision is never read as an option, and a path never as a pattern.
    let commit = resolve(revision)?;
    let path = if path.is_empty() { "." } else { path };
    let wanted = list(&commit, path, recursive)?;
    if wanted.is_empty() {
        let advice = if recursive {
            ""
        } else {
            "; add -R to read the directories below it"
        };
        bail!(
            "no .yaml, .yml or .json files in {} of revision {}{advice}",
            clean(path),
            clean(revision)
        );
    }
    let contents = contents(&wanted)?;
    let sources = wanted.into_iter().zip(contents).map(|((_, name), bytes)| {
        let name = format!("git:{revision}:{name}");
        Source::new(name, bytes)
    });
    Ok(sources.collect())
}

fn resolve(revision: &str) -> anyhow::Result<String> {
    let wanted = format!("{revision}^{{commit}}");
    let found = run(&[
        "rev-parse",
        "--verify",
        "--quiet",
        "--end-of-options",
        &wanted,
    ])?;
    let commit = found.map(|text| String::from_utf8_lossy(&text).trim().to_owned());
    let advice = "is it fetched? a shallow clone has only the last commits: `git fetch --unshallow`, or fetch-depth: 0 in a workflow";
    commit.map_err(|words| {
        let words = words.trim();
        let because = if words.is_empty() {
            String::new()
        } else {
            format!(" ({})", clean(words))
        };
        anyhow!("revision {} not found{because}; {advice}", clean(revision))
    })
}

/// An entry of a tree: its type, its id, and its name relative to the current directory.
type Entry = (String, String, String);

/// Returns the manifests at a path of a commit, by id and name. A path of a file counts whatever
/// its extension is.
fn list(commit: &str, path: &str, recursive: bool) -> anyhow::Result<Vec<(String, String)>> {
    let plain = &normal(path);
    let is_here = plain == ".";
    let named = if is_here {
        String::new()
    } else {
        let here = entries(&["ls-tree", "-z", commit, "--", plain])?;
        let entry = here.into_iter().next();
        let (kind, id, name) =
            entry.ok_or_else(|| anyhow!("{} not found in revision {commit}", clean(path)))?;
        if kind != "tree" {
            return Ok(vec![(id, name)]);
        }
        name
    };
    let all = entries(&["ls-tree", "-r", "-z", commit, "--", plain])?;
    let blobs = all.into_iter().filter(|(kind, ..)| kind == "blob");
    // As in a directory of files: hidden files and directories are skipped.
    let is_selected = |name: &str| {
        let below = name.strip_prefix(&named).unwrap_or(name);
        let parts: Vec<&OsStr> = below
            .split('/')
            .filter(|part| !part.is_empty())
            .map(OsStr::new)
            .collect();
        let Some((file, directories)) = parts.split_last() else {
            return false;
        };
        is_manifest(file)
            && (recursive || directories.is_empty())
            && !directories.iter().any(|it| is_hidden(it))
    };
    let selected = blobs.filter(|(_, _, name)| is_selected(name));
    Ok(selected.map(|(_, id, name)| (id, name)).collect())
}

/// Removes `.` and `..` from a path: git lists the content of a directory for a path that ends in
/// `..`.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|it| *it != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    if parts.is_empty() {
        return ".".to_owned();
    }
    parts.join("/")
}

/// Parses the entries that git lists.
fn entries(args: &[&str]) -> anyhow::Result<Vec<Entry>> {
    let found = run(args)?.map_err(|words| anyhow!("git: {}", clean(words.trim())))?;
    let text = String::from_utf8_lossy(&found).into_owned();
    let entries = text.split('\0').filter_map(|line| {
        // `100644 blob ID\tNAME`; links and modules are no manifests.
        let (head, name) = line.split_once('\t')?;
        let mut words = head.split(' ');
        let (mode, kind, id) = (words.next()?, words.next()?, words.next()?);
        let is_plain = mode.starts_with("100") || kind == "tree";
        is_plain.then(|| (kind.to_owned(), id.to_owned(), name.to_owned()))
    });
    Ok(entries.collect())
}

/// Reads the content of blobs.
fn contents(wanted: &[(String, String)]) -> anyhow::Result<Vec<Vec<u8>>> {
    let mut child = Command::new("git")
        .args(["cat-file", "--batch"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot run git")?;
    let mut stdin = child.stdin.take().context("cannot write to git")?;
    let requests: String = wanted.iter().map(|(id, _)| format!("{id}\n")).collect();
    // A separate thread: git stops reading while its output pipe is full.
    let writer = std::thread::spawn(move || stdin.write_all(requests.as_bytes()));
    let output = child.wait_with_output().context("cannot read from git")?;
    let _ = writer.join();
    let mut rest = output.stdout.as_slice();
    let mut contents = Vec::with_capacity(wanted.len());
    for (_, name) in wanted {
        let broken = || anyhow!("git returned {} incompletely", clean(name));
        let end = rest
            .iter()
            .position(|byte| *byte == b'\n')
            .ok_or_else(broken)?;
        let head = String::from_utf8_lossy(rest.get(..end).unwrap_or_default());
        let size = head
            .split(' ')
            .nth(2)
            .and_then(|it| it.parse::<usize>().ok());
        let size = size.ok_or_else(broken)?;
        ensure!(size <= MAX_SOURCE_BYTES, "{} is too large", clean(name));
        let start = end + 1;
        let bytes = rest.get(start..start + size).ok_or_else(broken)?;
        contents.push(bytes.to_vec());
        rest = rest.get(start + size + 1..).unwrap_or_default();
    }
    Ok(contents)
}

/// Runs git, and returns its output, or its error message.
fn run(args: &[&str]) -> anyhow::Result<Result<Vec<u8>, String>> {
    let output = Command::new("git")
        .args(["--literal-pathspecs"])
        .args(args)
        .stdin(Stdio::null())
        .output();
    let output = output.context("cannot run git, which git:REV:PATH needs")?;
    if output.status.success() {
        return Ok(Ok(output.stdout));
    }
    Ok(Err(String::from_utf8_lossy(&output.stderr).into_owned()))
}
