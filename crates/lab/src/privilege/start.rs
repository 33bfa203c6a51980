//! Starts a process in other namespaces: the only file of the lab with `unsafe` code.
//!
//! Namespaces are changed between `fork` and `exec`. The process has one thread there, regardless
//! of the parent's. It may only make system calls: a thread that was not copied could hold any lock
//! of a library. It neither allocates memory nor prints.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::{getegid, geteuid, pipe2, write};

use super::RequiredPrivilege;

/// The step of the new process that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartStep {
    Parent,
    Users,
    Network,
    Groups,
    UserMap,
    GroupMap,
}

const STEPS: [StartStep; 6] = [
    StartStep::Parent,
    StartStep::Users,
    StartStep::Network,
    StartStep::Groups,
    StartStep::UserMap,
    StartStep::GroupMap,
];

/// Why there is no process. Without a step, it could not be started at all.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) step: Option<StartStep>,
    pub(super) source: io::Error,
}

/// Starts a program in new namespaces. It ends when this process does.
pub(super) fn start(mut command: Command, needed: RequiredPrivilege) -> Result<Child, Failure> {
    let cannot = |source| Failure { step: None, source };
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC).map_err(|errno| cannot(errno.into()))?;
    let user_map = format!("0 {} 1", geteuid());
    let group_map = format!("0 {} 1", getegid());
    let is_root = geteuid().is_root();
    let enter = move || {
        let done = go_into_own(needed, is_root, user_map.as_bytes(), group_map.as_bytes());
        done.map_err(|(step, errno)| {
            let number = STEPS.iter().position(|it| *it == step).unwrap_or_default();
            let number = u8::try_from(number).unwrap_or_default();
            // If even this fails, the error has no step.
            let _ = write(&writer, &[number]);
            io::Error::from(errno)
        })
    };
    let child = before_exec(&mut command, enter).spawn();
    // The command holds a writing end of the pipe. Unless it is closed, reading does not end.
    drop(command);
    child.map_err(|source| {
        let mut number = [0];
        let step = File::from(reader)
            .read_exact(&mut number)
            .ok()
            .and_then(|()| STEPS.get(usize::from(number[0])).copied());
        Failure { step, source }
    })
}

/// Starts a program in existing namespaces: of users, if it is in others, and of a network.
pub(crate) fn start_in(
    mut command: Command,
    users: Option<OwnedFd>,
    network: OwnedFd,
) -> io::Result<Child> {
    let enter = move || {
        set_pdeathsig(Signal::SIGKILL)?;
        if let Some(users) = &users {
            setns(users.as_fd(), CloneFlags::CLONE_NEWUSER)?;
        }
        setns(network.as_fd(), CloneFlags::CLONE_NEWNET)?;
        Ok(())
    };
    before_exec(&mut command, enter).spawn()
}

/// Runs a closure in the new process of a command, before its program starts.
fn before_exec(
    command: &mut Command,
    go: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) -> &mut Command {
    #[allow(
        unsafe_code,
        reason = "no safe function changes namespaces between fork and exec"
    )]
    // SAFETY: both closures that are passed here make system calls only. They allocate no memory
    // and take no lock, and they own all that they use, which was made before the fork.
    unsafe {
        command.pre_exec(go)
    }
}

/// Enters new namespaces, between `fork` and `exec`.
fn go_into_own(
    needed: RequiredPrivilege,
    is_root: bool,
    user_map: &[u8],
    group_map: &[u8],
) -> Result<(), (StartStep, Errno)> {
    let at = |step: StartStep| move |errno: Errno| (step, errno);
    if needed == RequiredPrivilege::Root {
        unshare(CloneFlags::CLONE_NEWNET).map_err(at(StartStep::Network))?;
    } else {
        match unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET) {
            Ok(()) => {
                // Without this, the kernel does not let an unprivileged process map its group.
                put(c"/proc/self/setgroups", b"deny").map_err(at(StartStep::Groups))?;
                put(c"/proc/self/uid_map", user_map).map_err(at(StartStep::UserMap))?;
                put(c"/proc/self/gid_map", group_map).map_err(at(StartStep::GroupMap))?;
            }
            Err(_) if is_root => {
                unshare(CloneFlags::CLONE_NEWNET).map_err(at(StartStep::Network))?;
            }
            Err(errno) => return Err((StartStep::Users, errno)),
        }
    }
    // After the change of users, which would reset it.
    set_pdeathsig(Signal::SIGKILL).map_err(at(StartStep::Parent))
}

fn put(path: &CStr, text: &[u8]) -> Result<(), Errno> {
    let file = open(path, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    write(file, text).map(drop)
}
