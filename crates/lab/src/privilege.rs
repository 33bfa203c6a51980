//! Obtains the right to make network namespaces, as root or without.
//!
//! A user namespace gives a process every right over networks that it makes itself, and none over
//! the machine's: a lab in it cannot touch the host's network even by mistake. Where user
//! namespaces are refused, real root makes a network namespace alone.
//!
//! Only a process with one thread can make a user namespace, and no program can promise to have one
//! only: an allocator may start a thread before `main`. The program is therefore started again,
//! with the same arguments, and the new process makes its namespaces between `fork` and `exec`,
//! where it always has one thread. It is in them from its first instruction.

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

/// The privilege that the caller needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequiredPrivilege {
    /// Any: a user namespace first, then real root.
    Any,
    /// Real root without a user namespace, for what the kernel grants to root alone, such as large
    /// netlink buffers.
    Root,
}

/// The privilege by which this process makes namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// In a user namespace of its own.
    UserNamespace,
    /// As real root.
    Root,
}

/// The role of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessRole {
    /// The process inside the namespaces, which does the work.
    Inside(Privilege),
    /// The process outside. The one inside has ended.
    Ended(ExitStatus),
}

/// Why this program cannot make network namespaces.
#[derive(Debug, thiserror::Error)]
pub enum EnterError {
    /// The caller needs root, and this process is not root.
    #[error("this needs root without a user namespace: run it as root")]
    NotRoot,
    /// Neither a user namespace nor root is available.
    #[error(
        "the kernel refuses user namespaces ({0}): run as root, or allow them (sysctl \
         user.max_user_namespaces above 0; Debian: kernel.unprivileged_userns_clone=1; in a container: \
         a profile that permits unshare)"
    )]
    Refused(Errno),
    /// Real root is not enough, as in some containers.
    #[error(
        "the kernel refuses a network namespace ({0}): in a container, add the capability \
         SYS_ADMIN; if there are too many, raise sysctl user.max_net_namespaces"
    )]
    RootRefused(Errno),
    /// The namespace was made, but without rights over its network.
    #[error(
        "the new user namespace has no rights over its network ({0}): run as root, or \
         allow it (Ubuntu: sysctl kernel.apparmor_restrict_unprivileged_userns=0)"
    )]
    Powerless(RtnlError),
    /// A file of the kernel could not be read or written.
    #[error("cannot use {path}: {source}; if this system restricts user namespaces, run as root")]
    File {
        /// The path of the file.
        path: &'static str,
        /// The error.
        source: io::Error,
    },
    /// The program could not be started again.
    #[error("cannot start this program again: {0}")]
    Start(io::Error),
    /// The started process cannot be waited for.
    #[error("cannot wait for the started process: {0}")]
    Attend(io::Error),
    /// The process claims to be inside, but is in a network that has addresses.
    #[error(
        "the variable {INSIDE} is set, but this process has no network namespace of its own: unset it"
    )]
    NotInside,
}

/// The variable by which the process inside is recognized: its parent process, and the user
/// namespace of that.
// A variable that another program has set names another parent.
const INSIDE: &str = "PALISADE_INSIDE";
/// The addresses of a network: none, while it is new.
const ADDRESSES: &str = "/proc/self/net/fib_trie";
const USERS: &str = "/proc/self/ns/user";

/// Continues in new namespaces: starts this program again inside, with the same arguments, standard
/// streams and environment, and waits for it. In the process inside it returns at once.
pub fn enter(needed: RequiredPrivilege) -> Result<ProcessRole, EnterError> {
    enter_with(needed, |_| {})
}

/// [`enter`], with changes to the command that is started inside.
pub fn enter_with(
    needed: RequiredPrivilege,
    prepare: impl FnOnce(&mut Command),
) -> Result<ProcessRole, EnterError> {
    if let Some(users) = claimed() {
        return arrive(users).map(ProcessRole::Inside);
    }
    if needed == RequiredPrivilege::Root && (!geteuid().is_root() || in_user_namespace()) {
        return Err(EnterError::NotRoot);
    }
    let mut arguments = std::env::args_os();
    // The program's file may have been replaced since it was started. The process still has it.
    let mut command = Command::new("/proc/self/exe");
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    command.args(arguments);
    let claim = format!("{} {}", getpid(), users()?);
    command.env(INSIDE, claim);
    prepare(&mut command);
    let child = start(command, needed).map_err(EnterError::from)?;
    attend(child)
        .map(ProcessRole::Ended)
        .map_err(EnterError::Attend)
}

/// [`enter`], for programs that do nothing outside: the process outside ends here, as the one
/// inside ended.
pub fn stay_inside(needed: RequiredPrivilege) -> Result<Privilege, EnterError> {
    enter(needed).map(inside)
}

/// Returns the privilege of the process inside. The process outside ends here.
pub fn inside(entered: ProcessRole) -> Privilege {
    match entered {
        ProcessRole::Inside(privilege) => privilege,
        ProcessRole::Ended(status) => std::process::exit(i32::from(ended_like(status))),
    }
}

/// Reports whether this is the process inside.
pub fn is_inside() -> bool {
    claimed().is_some()
}

/// Returns the user namespace of the process outside, if that one started this process.
fn claimed() -> Option<u64> {
    let text = std::env::var(INSIDE).ok()?;
    let (parent, users) = text.split_once(' ')?;
    let is_ours = parent.parse() == Ok(getppid().as_raw());
    users.parse().ok().filter(|_| is_ours)
}

/// Sets up the process inside.
fn arrive(users_outside: u64) -> Result<Privilege, EnterError> {
    // A claim alone is no proof. A process in the host's network must not go on as if it were
    // inside: only a network without addresses is new.
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

/// Returns the kernel's number of the user namespace of this process.
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

/// Sets the loopback interface up, as the smallest test of rights over the network. Some systems
/// allow a user namespace and then take its rights away, which shows only when they are used.
fn loopback_up() -> Result<(), RtnlError> {
    let mut rtnl = Rtnl::open()?;
    rtnl.set_up(crate::network::rtnl::LOOPBACK);
    rtnl.commit()
}

/// Reports whether root is root of a user namespace only. That one maps fewer than all users.
fn in_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let mut fields = map.split_whitespace();
    !matches!(
        (fields.next(), fields.next(), fields.next()),
        (Some("0"), Some("0"), Some("4294967295"))
    )
}

/// Raises the limit of open files, since every namespace is one. A refusal is no error: the default
/// suffices for small labs, and a large one reports what it lacks.
fn raise_open_files() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
