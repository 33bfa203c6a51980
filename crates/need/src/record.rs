//! Which tests were skipped, across all test programs of one run of cargo.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use nix::unistd::{Pid, getppid};

use crate::look::build_directory;
use crate::need::Need;

/// The number of skipped tests, by need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// The need and how to get it, with the number of tests.
    counts: BTreeMap<(String, String), usize>,
}

impl Skipped {
    pub(crate) fn of(needs: &[Need]) -> Skipped {
        let mut skipped = Skipped::default();
        for need in needs {
            skipped.add(need.what, need.how);
        }
        skipped
    }

    fn add(&mut self, what: &str, how: &str) {
        *self
            .counts
            .entry((what.to_owned(), how.to_owned()))
            .or_default() += 1;
    }

    /// How many there are.
    pub fn total(&self) -> usize {
        self.counts.values().sum()
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total();
        let tests = if total == 1 { "test" } else { "tests" };
        if total == 0 {
            return write!(f, "no tests skipped");
        }
        let parts = self.counts.iter().map(|((what, how), count)| {
            let need = if *count == 1 { "needs" } else { "need" };
            format!("{count} {need} {what} ({how})")
        });
        let parts: Vec<String> = parts.collect();
        write!(f, "{total} {tests} skipped: {}", parts.join(", "))
    }
}

/// The file with the skipped tests of one run: all test programs of a run have cargo as their
/// parent.
#[derive(Debug)]
pub(crate) struct Record {
    path: PathBuf,
}

impl Record {
    /// The record of the run that this process belongs to.
    pub(crate) fn of_this_run() -> io::Result<Record> {
        let build = build_directory();
        let build = build.ok_or_else(|| io::Error::other("cargo did not build this program"))?;
        let directory = build.join("skipped-tests");
        fs::create_dir_all(&directory)?;
        Record::of(&directory, getppid())
    }

    fn of(directory: &Path, parent: Pid) -> io::Result<Record> {
        // With its start time, because process ids are reused.
        let stat = fs::read_to_string(format!("/proc/{parent}/stat"))?;
        let behind_name = stat.rsplit(')').next().unwrap_or_default();
        let started = behind_name.split_whitespace().nth(19).unwrap_or("0");
        Ok(Record {
            path: directory.join(format!("{parent}-{started}")),
        })
    }

    pub(crate) fn add(&self, needs: &[Need]) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.path)?;
        for need in needs {
            writeln!(file, "{}\t{}", need.what, need.how)?;
        }
        Ok(())
    }

    /// Reads and removes the record, and the records of runs that were interrupted.
    fn take(&self) -> io::Result<Skipped> {
        let mut skipped = Skipped::default();
        if self.path.exists() {
            for line in io::read_to_string(File::open(&self.path)?)?.lines() {
                if let Some((what, how)) = line.split_once('\t') {
                    skipped.add(what, how);
                }
            }
            fs::remove_file(&self.path)?;
        }
        for old in self
            .path
            .parent()
            .into_iter()
            .flat_map(fs::read_dir)
            .flatten()
            .flatten()
        {
            let name = old.file_name();
            let process = name.to_string_lossy();
            let process = process.split('-').next().unwrap_or_default();
            if !Path::new("/proc").join(process).exists() {
                fs::remove_file(old.path())?;
            }
        }
        Ok(skipped)
    }
}

/// The tests skipped so far in the run of this process; removes the record.
pub fn end_of_run() -> io::Result<Skipped> {
    Record::of_this_run()?.take()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_programs_of_a_run_skipped_is_added_up_once() {
        let directory = tempfile::tempdir().unwrap();
        let record = || Record::of(directory.path(), getppid()).unwrap();
        fs::write(
            directory.path().join("999999999-1"),
            "an old run\tremoved\n",
        )
        .unwrap();
        record().add(&[Need::ROOT, Need::NAMESPACES]).unwrap();
        record().add(&[Need::NAMESPACES]).unwrap();
        let all = record().take().unwrap();
        assert_eq!(
            all.to_string(),
            "3 tests skipped: 2 need network namespaces (run as root, or allow user namespaces), \
             1 needs root (run as root)"
        );
        assert_eq!(record().take().unwrap().to_string(), "no tests skipped");
        assert_eq!(directory.path().read_dir().unwrap().count(), 0);
    }
}
