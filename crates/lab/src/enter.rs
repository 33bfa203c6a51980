//! Getting the right to make network namespaces, as root or without it.
//!
//! A user namespace gives this process every right over networks that it makes itself and none
//! over the machine's: the lab then cannot touch the host's network even by mistake. Where user
//! namespaces are refused, real root makes a network namespace alone.

use std::fs;
use std::io;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Uid, getegid, geteuid};

use crate::world::rtnl::{Rtnl, RtnlError};

/// What the caller needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Whatever works: a user namespace first, then real root.
    Any,
    /// Real root and no user namespace, for what the kernel grants to no other (large netlink
    /// buffers, for one).
    Root,
}

/// By what right this process now makes namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// In a user namespace of its own.
    UserNamespace,
    /// As real root.
    Root,
}

/// Why this process may not make network namespaces.
#[derive(Debug, thiserror::Error)]
pub enum EnterError {
    /// The kernel lets only a process with one thread make a user namespace.
    #[error(
        "{0} threads are running, but a user namespace needs a process with only one: enter before \
         starting threads"
    )]
    Threads(usize),
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
}

/// Makes this process able to build network namespaces, and moves it into an empty one.
///
/// It must be called before any thread is started. The limit of open files is raised to what is
/// allowed, since every namespace is held by an open file.
pub fn enter(want: Want) -> Result<Privilege, EnterError> {
    raise_open_files();
    let user = geteuid();
    let group = getegid();
    if want == Want::Root {
        if !user.is_root() || in_user_namespace() {
            return Err(EnterError::NotRoot);
        }
        return as_root();
    }
    let threads = fs::read_dir("/proc/self/task")
        .map_err(|source| EnterError::File {
            path: "/proc/self/task",
            source,
        })?
        .count();
    if threads > 1 {
        return Err(EnterError::Threads(threads));
    }
    match unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET) {
        Ok(()) => {
            // Without this, the kernel does not let an unprivileged process map its group.
            write("/proc/self/setgroups", "deny")?;
            write("/proc/self/uid_map", &format!("0 {user} 1"))?;
            write("/proc/self/gid_map", &format!("0 {group} 1"))?;
            loopback_up().map_err(EnterError::Powerless)?;
            Ok(Privilege::UserNamespace)
        }
        Err(_) if Uid::effective().is_root() => as_root(),
        Err(errno) => Err(EnterError::Refused(errno)),
    }
}

fn as_root() -> Result<Privilege, EnterError> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(EnterError::RootRefused)?;
    loopback_up().map_err(EnterError::Powerless)?;
    Ok(Privilege::Root)
}

/// The smallest thing that needs rights over the network. Some systems let a user namespace be
/// made and then take its rights away, which only shows when they are used.
fn loopback_up() -> Result<(), RtnlError> {
    let mut rtnl = Rtnl::open()?;
    rtnl.set_up(crate::world::rtnl::LOOPBACK);
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

/// A refusal is not an error: the default is enough for small labs, and a large one says what it
/// lacks when it gets there.
fn raise_open_files() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

fn write(path: &'static str, text: &str) -> Result<(), EnterError> {
    fs::write(path, text).map_err(|source| EnterError::File { path, source })
}
