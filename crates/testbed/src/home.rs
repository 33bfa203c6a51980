//! The directory of a testbed, and its ledger: everything that must be removed, recorded as it is
//! created.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result, at};
use crate::process::{Identity, Process};

/// The file that marks the directory of a testbed.
pub(crate) const LEDGER: &str = "ledger";

/// One entry of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    /// The process that created the testbed.
    Starter(Identity),
    /// A process with its name.
    Process(String, Identity),
    /// A network namespace that is mounted on a file.
    Namespace(PathBuf),
}

/// The directory of a testbed.
#[derive(Debug, Clone)]
pub(crate) struct Home {
    pub(crate) directory: PathBuf,
}

impl Home {
    /// Creates a directory that only its owner can enter; an error if the path exists.
    pub(crate) fn make(directory: &Path) -> Result<Home> {
        if let Some(parent) = directory.parent() {
            fs::create_dir_all(parent).map_err(at("make", parent))?;
        }
        if directory.join(LEDGER).is_file() {
            let path = directory.display();
            let text =
                format!("`{path}` already has a testbed; remove it with `palisade-testbed down`");
            return Err(Error::Refused(text));
        }
        let made = DirBuilder::new().mode(0o700).create(directory);
        made.map_err(at("make", directory))?;
        let home = Home::at(directory)?;
        home.note(&Entry::Starter(myself()))?;
        Ok(home)
    }

    /// The home of an existing testbed.
    pub(crate) fn open(directory: &Path) -> Result<Home> {
        let home = Home::at(directory)?;
        if home.file(LEDGER).is_file() {
            return Ok(home);
        }
        let path = home.directory.display();
        Err(Error::Refused(format!("no testbed in `{path}`")))
    }

    fn at(directory: &Path) -> Result<Home> {
        // Marks and mounts are compared as text: a directory must have one canonical path.
        let directory = directory.canonicalize().map_err(at("find", directory))?;
        Ok(Home { directory })
    }

    /// A file of it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// A directory of it, which is created if needed.
    pub(crate) fn subdirectory(&self, name: &str) -> Result<PathBuf> {
        let path = self.file(name);
        fs::create_dir_all(&path).map_err(at("make", &path))?;
        Ok(path)
    }

    /// Adds an entry to the ledger, before or after its creation.
    pub(crate) fn note(&self, entry: &Entry) -> Result<()> {
        let path = self.file(LEDGER);
        let line = line(entry);
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.map_err(at("write", &path))
    }

    /// Starts a process and records it.
    pub(crate) fn start(&self, name: &str, command: std::process::Command) -> Result<Process> {
        let logs = self.subdirectory("logs")?;
        let log = logs.join(format!("{name}.log"));
        let mut process = Process::start(name, command, &log, &self.directory)?;
        let noted = self.note(&Entry::Process(name.to_owned(), process.identity));
        if let Err(error) = noted {
            process.kill();
            return Err(error);
        }
        Ok(process)
    }

    /// All entries, in order. Unreadable lines are skipped: a process that was killed while writing
    /// leaves half a line.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let text = fs::read_to_string(self.file(LEDGER)).unwrap_or_default();
        text.lines().filter_map(entry).collect()
    }

    /// Its network namespaces.
    pub(crate) fn namespaces(&self) -> Vec<PathBuf> {
        let namespaces = self.entries().into_iter().filter_map(|it| match it {
            Entry::Namespace(path) => Some(path),
            Entry::Starter(_) | Entry::Process(..) => None,
        });
        namespaces.collect()
    }

    /// The recorded processes, the last of each name.
    pub(crate) fn processes(&self) -> Vec<(String, Identity)> {
        let mut processes: Vec<(String, Identity)> = Vec::new();
        for entry in self.entries() {
            if let Entry::Process(name, identity) = entry {
                processes.retain(|(it, _)| *it != name);
                processes.push((name, identity));
            }
        }
        processes
    }
}

/// This process.
pub(crate) fn myself() -> Identity {
    let pid = i32::try_from(std::process::id()).unwrap_or(0);
    Identity::of(pid).unwrap_or(Identity { pid, start: 0 })
}

fn line(entry: &Entry) -> String {
    match entry {
        Entry::Starter(Identity { pid, start }) => format!("starter {pid} {start}\n"),
        Entry::Process(name, Identity { pid, start }) => format!("process {pid} {start} {name}\n"),
        Entry::Namespace(path) => format!("namespace {}\n", path.display()),
    }
}

fn entry(line: &str) -> Option<Entry> {
    let (word, rest) = line.split_once(' ')?;
    let identity = |rest: &str| {
        let (pid, start) = rest.split_once(' ')?;
        let (pid, start) = (pid.parse().ok()?, start.parse().ok()?);
        Some(Identity { pid, start })
    };
    match word {
        "starter" => Some(Entry::Starter(identity(rest)?)),
        "process" => {
            let (rest, name) = rest.rsplit_once(' ')?;
            Some(Entry::Process(name.to_owned(), identity(rest)?))
        }
        "namespace" => Some(Entry::Namespace(rest.into())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Entry, entry, line};
    use crate::process::Identity;

    #[test]
    fn what_is_written_down_is_read_again() {
        let identity = Identity { pid: 7, start: 99 };
        for it in [
            Entry::Starter(identity),
            Entry::Process("etcd".to_owned(), identity),
            Entry::Namespace("/a b/c".into()),
        ] {
            assert_eq!(entry(line(&it).trim_end()), Some(it));
        }
        assert_eq!(entry("process 7"), None);
        assert_eq!(entry("proc"), None);
    }
}
