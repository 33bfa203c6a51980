//! Enters a lab that another process runs.
//!
//! A lab that can be visited has a file in memory, with the path of each of its namespaces. The
//! file has a name by which it is found among the open files of processes, and ends with its
//! process: nothing is left on disk.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::prctl::set_dumpable;
use nix::unistd::geteuid;

use crate::network::{LabNetwork, NetworkError};
use crate::privilege::{attend, start_in};
use crate::topology::Location;

/// The name of the file; the kernel shows it as `/memfd:palisade-lab (deleted)`.
const NAME: &str = "palisade-lab";

/// A lab that can be visited, for as long as this value lives.
#[derive(Debug)]
pub struct AnnouncedLab {
    _file: File,
}

/// A lab that another process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningLab {
    /// The id of the process.
    pub process: u32,
    /// Its locations by name, with the path of each.
    pub places: Vec<(String, PathBuf)>,
}

/// Lets other processes of the same user find the locations of a lab. Names have no line breaks.
pub fn announce(
    world: &LabNetwork,
    places: &[(String, Location)],
) -> Result<AnnouncedLab, NetworkError> {
    let mut lines = String::new();
    for (name, place) in places {
        let path = world.namespace_path(*place)?;
        lines += &format!("{name} {}\n", path.display());
    }
    let failed = |source| NetworkError::Namespace {
        place: Location::Outside,
        source,
    };
    // The kernel hides the open files of a process in a user namespace from their owner, unless it
    // is dumpable.
    set_dumpable(true).map_err(|errno| failed(errno.into()))?;
    let file = memfd_create(NAME, MFdFlags::MFD_CLOEXEC).map_err(|errno| failed(errno.into()))?;
    let mut file = File::from(file);
    file.write_all(lines.as_bytes()).map_err(failed)?;
    Ok(AnnouncedLab { _file: file })
}

/// Lists the labs of this user that can be visited, ordered by process.
pub fn running() -> Vec<RunningLab> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut found: Vec<RunningLab> = processes
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let process = entry.file_name().to_str()?.parse().ok()?;
            // Files of other users are not trusted: their paths could lead anywhere.
            if entry.metadata().ok()?.uid() != geteuid().as_raw() {
                return None;
            }
            let places = places_of(&entry.path())?;
            Some(RunningLab { process, places })
        })
        .collect();
    found.sort_by_key(|it| it.process);
    found
}

/// Reads the locations that a process has announced.
fn places_of(process: &Path) -> Option<Vec<(String, PathBuf)>> {
    let files = fs::read_dir(process.join("fd")).ok()?;
    let is_it = |path: &PathBuf| {
        let target = fs::read_link(path).unwrap_or_default();
        target.to_string_lossy() == format!("/memfd:{NAME} (deleted)")
    };
    let mut files = files.filter_map(|entry| Some(entry.ok()?.path()));
    let text = fs::read_to_string(files.find(is_it)?).ok()?;
    let own_files = process.join("fd");
    let places = text.lines().filter_map(|line| {
        let (name, path) = line.split_once(' ')?;
        let path = PathBuf::from(path);
        // Only paths to open files of the process itself: any other path could be a namespace of
        // the host.
        let is_own = path.parent() == Some(own_files.as_path());
        is_own.then(|| (name.to_owned(), path))
    });
    Some(places.collect())
}

/// Runs a command in a location of a lab, and waits for it.
pub fn run_in(lab: &RunningLab, place: &Path, command: Command) -> io::Result<ExitStatus> {
    let process = Path::new("/proc").join(lab.process.to_string());
    let network = File::open(place)?;
    // Rights over a network come from the user namespace that owns it.
    let same_users =
        fs::read_link(process.join("ns/user"))? == fs::read_link("/proc/self/ns/user")?;
    let users = if same_users {
        None
    } else {
        Some(File::open(process.join("ns/user"))?.into())
    };
    attend(start_in(command, users, network.into())?)
}
