//! The memory of the kernel.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the kernel's own memory can be read from.
#[derive(Clone, Debug)]
pub(super) enum Memory {
    /// The cgroup of this process, if it is alone in it.
    Cgroup(PathBuf),
    /// The whole machine's: others count too.
    Machine,
}

impl Memory {
    pub(super) fn find() -> Memory {
        match own_cgroup() {
            Some(cgroup) => Memory::Cgroup(cgroup),
            None => Memory::Machine,
        }
    }

    /// The source of the numbers, as text.
    pub(super) fn source(&self) -> &'static str {
        match self {
            Memory::Cgroup(_) => "`kernel` of the cgroup of this process alone",
            Memory::Machine => {
                "Slab + Percpu + VmallocUsed of the whole machine in /proc/meminfo, since this \
                 process has no cgroup (version 2) to itself"
            }
        }
    }

    /// The bytes in use now.
    pub(super) fn bytes(&self) -> Option<u64> {
        match self {
            Memory::Cgroup(cgroup) => {
                let numbers = numbers(&cgroup.join("memory.stat"))?;
                numbers.get("kernel").copied()
            }
            Memory::Machine => {
                let numbers = numbers(Path::new("/proc/meminfo"))?;
                let parts = ["Slab:", "Percpu:", "VmallocUsed:"];
                let parts = parts.iter().filter_map(|part| numbers.get(*part));
                Some(parts.sum::<u64>() << 10)
            }
        }
    }
}

fn own_cgroup() -> Option<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let cgroup = Path::new("/sys/fs/cgroup").join(path);
    let members = fs::read_to_string(cgroup.join("cgroup.procs")).ok()?;
    let is_alone = members.trim() == std::process::id().to_string();
    (is_alone && cgroup.join("memory.stat").is_file()).then_some(cgroup)
}

/// The lines of a file of the form `word number`.
fn numbers(path: &Path) -> Option<BTreeMap<String, u64>> {
    let text = fs::read_to_string(path).ok()?;
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_owned();
        Some((name, words.next()?.parse().ok()?))
    });
    Some(lines.collect())
}
