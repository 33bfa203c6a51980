//! Checks of the machine.

use std::env;
use std::ffi::CStr;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use nix::sys::stat::Mode;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork, getegid, geteuid, write};

/// Whether a program is on the path.
pub(crate) fn program(name: &str) -> Result<(), String> {
    let path = env::var_os("PATH").unwrap_or_default();
    if env::split_paths(&path).any(|it| it.join(name).is_file()) {
        return Ok(());
    }
    Err(format!("program `{name}` not found on the path"))
}

/// Whether this is root of the machine, and not of a user namespace.
pub(crate) fn root() -> Result<(), String> {
    if !geteuid().is_root() {
        return Err("the user is not root".to_owned());
    }
    let map = std::fs::read_to_string("/proc/self/uid_map").map_err(|error| error.to_string())?;
    let words: Vec<&str> = map.split_whitespace().collect();
    match words.as_slice() {
        ["0", "0", "4294967295"] => Ok(()),
        _ => Err("the user is root of a user namespace only".to_owned()),
    }
}

/// Whether the kernel is of a release, or newer.
pub(crate) fn kernel(major: u32, minor: u32) -> Result<(), String> {
    let path = "/proc/sys/kernel/osrelease";
    let release = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let mut numbers = release.split(['.', '-']).map(|it| it.trim().parse::<u32>());
    match (numbers.next(), numbers.next()) {
        (Some(Ok(ours)), Some(Ok(minor_of_ours))) if (ours, minor_of_ours) >= (major, minor) => {
            Ok(())
        }
        _ => Err(format!("the kernel is Linux {}", release.trim())),
    }
}

/// The step at which a forked process failed, by its exit code.
const STEPS: [&str; 5] = [
    "",
    "the kernel does not allow user namespaces, and the user is not root",
    "the users of a user namespace cannot be mapped",
    "a user namespace has no rights over networks",
    "the kernel does not allow network namespaces",
];

/// Whether network namespaces can be created: a forked process tries it.
pub(crate) fn namespaces() -> Result<(), String> {
    let maps = Maps::new();
    #[allow(
        unsafe_code,
        reason = "only a process of one thread may make a user namespace, and no safe function forks"
    )]
    // SAFETY: until it ends, the new process makes system calls only: it allocates no memory and
    // takes no lock.
    let forked = unsafe {
        match fork() {
            Ok(ForkResult::Child) => nix::libc::_exit(match tried(&maps) {
                Ok(()) => 0,
                Err(step) => step,
            }),
            Ok(ForkResult::Parent { child }) => Ok(child),
            Err(errno) => Err(errno),
        }
    };
    let child = forked.map_err(|errno| format!("no process can be started: {errno}"))?;
    loop {
        match waitpid(child, None) {
            Ok(WaitStatus::Exited(_, 0)) => return Ok(()),
            Ok(WaitStatus::Exited(_, code)) => {
                let step = usize::try_from(code).ok().and_then(|it| STEPS.get(it));
                return Err(step.map_or("the reason is unknown", |it| it).to_owned());
            }
            Err(Errno::EINTR) => {}
            other => return Err(format!("the process that tried it ended with {other:?}")),
        }
    }
}

/// Runs between `fork` and the end of the process.
fn tried(maps: &Maps) -> Result<(), i32> {
    match into_user_namespace(maps) {
        Ok(()) => {}
        Err(_) if maps.is_root => {}
        Err(step) => return Err(step),
    }
    unshare(CloneFlags::CLONE_NEWNET).map_err(|_| 4)?;
    // Some systems allow creating a user namespace and then remove its rights.
    let (family, protocol) = (AddressFamily::Inet, SockProtocol::Icmp);
    let opened = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol);
    opened.map(drop).map_err(|_| 3)
}

/// Maps the root of a user namespace to its creator.
pub(crate) struct Maps {
    pub(crate) is_root: bool,
    users: String,
    groups: String,
}

impl Maps {
    pub(crate) fn new() -> Maps {
        Maps {
            is_root: geteuid().is_root(),
            users: format!("0 {} 1", geteuid()),
            groups: format!("0 {} 1", getegid()),
        }
    }
}

/// Enters a new user namespace; an error is the number of a step. Makes system calls only.
pub(crate) fn into_user_namespace(maps: &Maps) -> Result<(), i32> {
    unshare(CloneFlags::CLONE_NEWUSER).map_err(|_| 1)?;
    put(c"/proc/self/setgroups", b"deny")?;
    put(c"/proc/self/uid_map", maps.users.as_bytes())?;
    put(c"/proc/self/gid_map", maps.groups.as_bytes())
}

fn put(path: &CStr, text: &[u8]) -> Result<(), i32> {
    let file = open(path, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty()).map_err(|_| 2)?;
    write(file, text).map(drop).map_err(|_| 2)
}

/// The directory that cargo builds into: test programs are in its directory `deps`.
pub(crate) fn build_directory() -> Option<PathBuf> {
    let program = env::current_exe().ok()?;
    let mut above = program.ancestors();
    above
        .find(|it| it.file_name().is_some_and(|name| name == "deps"))
        .and_then(Path::parent)
        .map(Path::to_owned)
}
