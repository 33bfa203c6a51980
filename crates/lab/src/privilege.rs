//! Getting the right to make network namespaces, as root or without it.
//!
//! A user namespace gives a process every right over networks that it makes itself and none over
//! the machine's: a lab in it cannot touch the host's network even by mistake. Where user
//! namespaces are refused, real root makes a network namespace alone.
//!
//! The kernel lets only a process with one thread make a user namespace, and no program can promise
//! that it has only one: an allocator may start a thread before `main`. So the program is started
//! once more, with the same arguments, and the new process makes its namespaces between `fork` and
//! `exec`, where it always has one thread. It is in them from its first instruction.

mod attend;
mod start;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{geteuid, getpid, getppid};

pub use self::attend::{attend, ended_like};
pub(crate) use self::start::start_in;
use self::start::{Failure, StartStep, start};
use crate::network::rtnl::{Rtnl, RtnlError};

/// What the caller needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequiredPrivilege {
    /// Whatever works: a user namespace first, then real root.
    Any,
    /// Real root and no user namespace, for what the kernel grants to no other (large netlink
    /// buffers, for one).
    Root,
}

/// By what right this process makes namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// In a user namespace of its own.
    UserNamespace,
    /// As real root.
    Root,
}

/// Which of the two processes this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessRole {
    /// The one inside, which has work to do.
    Inside(Privilege),
    /// The one outside: the one inside has ended.
    Ended(ExitStatus),
}

/// Why this program may not make network namespaces.
#[derive(Debug, thiserror::Error)]
pub enum EnterError {
    /// Root was asked for, and this is not root.
    #[error("this needs root without a user namespace: run it as root")]
    NotRoot,
    /// Neither way is open.
    #[error(
        "the kernel refuses user namespaces ({0}): run as root, or allow them (sysctl \
         user.max_user_namespaces above 0; Debian: kernel.unprivileged_userns_clone=1; in a container: \
         a profile that permits unshare)"
    )]
    Refused(Errno),
    /// Real root is not enough, which happens in containers.
    #[error(
        "the kernel refuses a network namespace ({0}): in a container, add the capability \
         SYS_ADMIN; if there are too many, raise sysctl user.max_net_namespaces"
    )]
    RootRefused(Errno),
    /// The namespace was made, but without rights over its network.
    #[error(
        "a user namespace was made, but it gives no right over its network ({0}): run as root, or \
         allow it (Ubuntu: sysctl kernel.apparmor_restrict_unprivileged_userns=0)"
    )]
    Powerless(RtnlError),
    /// A file of the kernel could not be read or written.
    #[error("cannot use {path}: {source}; if this system restricts user namespaces, run as root")]
    File {
        /// Which file.
        path: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The program could not be started once more.
    #[error("cannot start this program once more: {0}")]
    Start(io::Error),
    /// The process that was started cannot be waited for.
    #[error("cannot wait for the process that was started: {0}")]
    Attend(io::Error),
    /// The process claims to be inside, and is in a network that has addresses.
    #[error(
        "the variable {INSIDE} is set, but this process has no network namespace of its own: unset it"
    )]
    NotInside,
}

/// How the process inside knows that it is: the process that started it, and the user namespace that that one is
/// in. A variable of that name which somebody else has set names another process.
const INSIDE: &str = "PALISADE_INSIDE";
/// The addresses that a network has: none, while it is new.
const ADDRESSES: &str = "/proc/self/net/fib_trie";
const USERS: &str = "/proc/self/ns/user";

/// Goes on in namespaces of this program's own: starts it once more inside, with the same arguments,
/// standard streams and environment, and waits for it. Called by the process inside, it says so.
pub fn enter(want: RequiredPrivilege) -> Result<ProcessRole, EnterError> {
    enter_with(want, |_| {})
}

/// [`enter`], with something to add to the command that is started inside.
pub fn enter_with(
    want: RequiredPrivilege,
    prepare: impl FnOnce(&mut Command),
) -> Result<ProcessRole, EnterError> {
    if let Some(users) = claimed() {
        return arrive(users).map(ProcessRole::Inside);
    }
    if want == RequiredPrivilege::Root && (!geteuid().is_root() || in_user_namespace()) {
        return Err(EnterError::NotRoot);
    }
    let mut words = std::env::args_os();
    // The file may have been replaced since it was started; the process has it all the same.
    let mut command = Command::new("/proc/self/exe");
    if let Some(name) = words.next() {
        command.arg0(name);
    }
    command.args(words);
    let claim = format!("{} {}", getpid(), users()?);
    command.env(INSIDE, claim);
    prepare(&mut command);
    let child = start(command, want).map_err(EnterError::from)?;
    attend(child)
        .map(ProcessRole::Ended)
        .map_err(EnterError::Attend)
}

/// Whether this is the process inside.
pub fn is_inside() -> bool {
    claimed().is_some()
}

/// The user namespace of the process outside, if this is the one that it started.
fn claimed() -> Option<u64> {
    let text = std::env::var(INSIDE).ok()?;
    let (parent, users) = text.split_once(' ')?;
    let is_ours = parent.parse() == Ok(getppid().as_raw());
    users.parse().ok().filter(|_| is_ours)
}

/// What the process inside does first. It believes that it is inside only in a network where nobody has an address.
fn arrive(users_outside: u64) -> Result<Privilege, EnterError> {
    let path = ADDRESSES;
    let addresses = fs::read(path).map_err(|source| EnterError::File { path, source })?;
    if !addresses.is_empty() {
        return Err(EnterError::NotInside);
    }
    raise_open_files();
    loopback_up().map_err(EnterError::Powerless)?;
    Ok(if users()? == users_outside {
        Privilege::Root
    } else {
        Privilege::UserNamespace
    })
}

/// What the kernel knows the user namespace of this process by.
fn users() -> Result<u64, EnterError> {
    let path = USERS;
    let found = fs::metadata(path).map_err(|source| EnterError::File { path, source })?;
    Ok(found.ino())
}

impl From<Failure> for EnterError {
    fn from(Failure { step, source }: Failure) -> EnterError {
        let errno = Errno::from_raw(source.raw_os_error().unwrap_or_default());
        let path = match step {
            Some(StartStep::Users) => return EnterError::Refused(errno),
            Some(StartStep::Network) => return EnterError::RootRefused(errno),
            Some(StartStep::Parent) | None => return EnterError::Start(source),
            Some(StartStep::Groups) => "/proc/self/setgroups",
            Some(StartStep::UserMap) => "/proc/self/uid_map",
            Some(StartStep::GroupMap) => "/proc/self/gid_map",
        };
        EnterError::File { path, source }
    }
}

/// The smallest thing that needs rights over the network. Some systems let a user namespace be
/// made and then take its rights away, which only shows when they are used.
fn loopback_up() -> Result<(), RtnlError> {
    let mut rtnl = Rtnl::open()?;
    rtnl.set_up(crate::network::rtnl::LOOPBACK);
    rtnl.commit()
}

/// Whether root here is root of a user namespace only: it then maps fewer than all users.
fn in_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let mut words = map.split_whitespace();
    !matches!(
        (words.next(), words.next(), words.next()),
        (Some("0"), Some("0"), Some("4294967295"))
    )
}

/// Every namespace is held by an open file. A refusal is not an error: the default is enough for small labs, and
/// a large one says what it lacks when it gets there.
fn raise_open_files() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
