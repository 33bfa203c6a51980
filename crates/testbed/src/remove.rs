//! Removes a testbed of any starter, also of a killed one: by its ledger and the state of the
//! kernel.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result, at};
use crate::home::{Home, myself};
use crate::process::{Identity, command, descendants, everybody, is_marked, kill_all, run, until};

/// The timeout for the kernel to end processes.
const ENDING: Duration = Duration::from_secs(20);

/// The control group in which containerd creates those of containers, unless kubelet names another.
const CONTAINERS: &str = "k8s.io";

/// Ends and removes everything; idempotent.
pub(crate) fn remove(home: &Home) -> Result<()> {
    let recorded: BTreeSet<Identity> = home.processes().into_iter().map(|(_, it)| it).collect();
    // First the processes that would start others.
    kill_all(&recorded, ENDING);
    for _ in 0..20 {
        let left = members(home);
        if left.is_empty() {
            break;
        }
        // Containers before their records: an interruption must not leave an unrecorded container.
        let inner = descendants(&left);
        kill_all(&inner, ENDING);
        kill_all(&left, ENDING);
    }
    let containers = containers(home);
    let left = members(home);
    if let Some(process) = left.first() {
        let output = fs::read_to_string(format!("/proc/{}/comm", process.pid)).unwrap_or_default();
        return Err(Error::Timeout {
            what: format!("the end of process {} ({})", process.pid, output.trim()),
            seconds: ENDING.as_secs(),
            output: "it cannot be killed".to_owned(),
        });
    }
    for container in &containers {
        remove_group(container)?;
    }
    if !containers.is_empty() {
        for directory in group_directories(CONTAINERS) {
            // Fails, as it should, while another testbed has containers there.
            let _ = fs::remove_dir(directory);
        }
    }
    for namespace in home.namespaces() {
        unmount(&namespace)?;
    }
    match fs::remove_dir_all(&home.directory) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(at("remove", &home.directory)(error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The processes of a testbed: those with its mark, in one of its network namespaces, or in one of
/// its containers.
pub(crate) fn members(home: &Home) -> BTreeSet<Identity> {
    let spaces = home.namespaces();
    let spaces: Vec<(u64, u64)> = spaces.iter().filter_map(|it| place(it)).collect();
    let mut members = BTreeSet::new();
    for (process, _) in everybody() {
        let net = PathBuf::from(format!("/proc/{}/ns/net", process.pid));
        let is_inside = || place(&net).is_some_and(|it| spaces.contains(&it));
        if is_marked(process, &home.directory) || (!spaces.is_empty() && is_inside()) {
            members.insert(process);
        }
    }
    for container in containers(home) {
        for directory in group_directories(&container) {
            inhabitants(&directory, &mut members);
        }
    }
    members.remove(&myself());
    members
}

/// The control groups of all containers that have not been deleted: containerd keeps a directory
/// for each in its state.
fn containers(home: &Home) -> Vec<String> {
    let mut found = Vec::new();
    for node in subdirectories(&home.directory) {
        for container in subdirectories(&node.join("state/io.containerd.runtime.v2.task/k8s.io")) {
            let id = container.file_name().and_then(|it| it.to_str());
            found.extend(id.map(|id| format!("{CONTAINERS}/{id}")));
        }
    }
    found
}

/// The identity of a file, independent of its mounts.
fn place(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// Unmounts a namespace, if it is mounted.
fn unmount(path: &Path) -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let text = path.display().to_string();
    let is_mount = |line: &str| line.split(' ').nth(1) == Some(text.as_str());
    for _ in mounts.lines().filter(|it| is_mount(it)) {
        run(command("umount", [path]), ENDING)?;
    }
    Ok(())
}

/// The directories of a group in all hierarchies.
fn group_directories(path: &str) -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let mut directories = vec![root.join(path)];
    if let Ok(entries) = fs::read_dir(root) {
        let hierarchies = entries.filter_map(Result::<_, std::io::Error>::ok);
        directories.extend(hierarchies.map(|it| it.path().join(path)));
    }
    directories.retain(|it| it.is_dir());
    directories.sort();
    directories.dedup();
    directories
}

/// The processes of a group and of those below it.
fn inhabitants(directory: &Path, found: &mut BTreeSet<Identity>) {
    let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    found.extend(text.lines().filter_map(|it| Identity::of(it.parse().ok()?)));
    for below in subdirectories(directory) {
        inhabitants(&below, found);
    }
}

fn subdirectories(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let paths = entries.filter_map(|it| Some(it.ok()?.path()));
    paths.filter(|it| it.is_dir() && !it.is_symlink()).collect()
}

/// Removes a group from all hierarchies, the deepest directories first.
fn remove_group(path: &str) -> Result<()> {
    fn empty(directory: &Path) {
        for below in subdirectories(directory) {
            empty(&below);
        }
        // Fails while an ended process was not waited for; the caller tries again.
        let _ = fs::remove_dir(directory);
    }
    for directory in group_directories(path) {
        let is_gone = until(Duration::from_secs(5), || {
            empty(&directory);
            !directory.is_dir()
        });
        if !is_gone {
            let busy = std::io::Error::from(ErrorKind::ResourceBusy);
            return Err(at("remove", &directory)(busy));
        }
    }
    Ok(())
}
