//! Starting a process in other namespaces: the only place with `unsafe` code.
//!
//! Namespaces are changed between `fork` and `exec`. The process has one thread there, whatever the
//! program that it comes from has started. It may only make system calls there, since any lock of
//! a library could be held by a thread that was not copied: no memory is taken, nothing is printed.

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

/// What the new process could not do.
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

/// Why there is no process; without a step, it could not be started at all.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) step: Option<StartStep>,
    pub(super) source: io::Error,
}

/// Starts a program in namespaces of its own. It ends when this process does.
pub(super) fn start(mut command: Command, want: RequiredPrivilege) -> Result<Child, Failure> {
    let cannot = |source| Failure { step: None, source };
    let (told, teller) = pipe2(OFlag::O_CLOEXEC).map_err(|errno| cannot(errno.into()))?;
    let user_map = format!("0 {} 1", geteuid());
    let group_map = format!("0 {} 1", getegid());
    let is_root = geteuid().is_root();
    let go = move || {
        let done = go_into_own(want, is_root, user_map.as_bytes(), group_map.as_bytes());
        done.map_err(|(step, errno)| {
            let number = STEPS.iter().position(|it| *it == step).unwrap_or_default();
            let number = u8::try_from(number).unwrap_or_default();
            // If even this fails, the error has no step.
            let _ = write(&teller, &[number]);
            io::Error::from(errno)
        })
    };
    let child = before_exec(&mut command, go).spawn();
    // The end that the command holds has to be closed, or reading would not end.
    drop(command);
    child.map_err(|source| {
        let mut number = [0];
        let step = File::from(told)
            .read_exact(&mut number)
            .ok()
            .and_then(|()| STEPS.get(usize::from(number[0])).copied());
        Failure { step, source }
    })
}

/// Starts a program in namespaces that are there: of users, if it is not in them already, and of a network.
pub(crate) fn start_in(
    mut command: Command,
    users: Option<OwnedFd>,
    network: OwnedFd,
) -> io::Result<Child> {
    let go = move || {
        set_pdeathsig(Signal::SIGKILL)?;
        if let Some(users) = &users {
            setns(users.as_fd(), CloneFlags::CLONE_NEWUSER)?;
        }
        setns(network.as_fd(), CloneFlags::CLONE_NEWNET)?;
        Ok(())
    };
    before_exec(&mut command, go).spawn()
}

/// Has a command do something in its new process, before its program starts.
fn before_exec(
    command: &mut Command,
    go: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) -> &mut Command {
    #[allow(
        unsafe_code,
        reason = "no safe function changes namespaces between fork and exec"
    )]
    // SAFETY: both closures that are given here make system calls only: they take no memory and no lock, and
    // what they use was made before the fork and is theirs.
    unsafe {
        command.pre_exec(go)
    }
}

/// Runs between `fork` and `exec`.
fn go_into_own(
    want: RequiredPrivilege,
    is_root: bool,
    user_map: &[u8],
    group_map: &[u8],
) -> Result<(), (StartStep, Errno)> {
    let at = |step: StartStep| move |errno: Errno| (step, errno);
    if want == RequiredPrivilege::Root {
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
    // After the change of users, which would take it back.
    set_pdeathsig(Signal::SIGKILL).map_err(at(StartStep::Parent))
}

fn put(path: &CStr, text: &[u8]) -> Result<(), Errno> {
    let file = open(path, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    write(file, text).map(drop)
}
