//! Namespaces to test in.

use std::fs;
use std::io;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getgid, getuid};

/// Becomes root of a new user namespace, or stays root if that is forbidden.
pub(crate) fn become_root() -> Result<(), String> {
    let (user, group) = (getuid(), getgid());
    match unshare(CloneFlags::CLONE_NEWUSER) {
        Ok(()) => {
            let write = |path: &str, text: String| {
                fs::write(path, text).map_err(|error| format!("{path}: {error}"))
            };
            write("/proc/self/setgroups", "deny".to_owned())?;
            write("/proc/self/uid_map", format!("0 {user} 1"))?;
            write("/proc/self/gid_map", format!("0 {group} 1"))?;
        }
        Err(_) if user.is_root() => {}
        Err(error) => return Err(format!("no user namespace, and not root: {error}")),
    }
    unshare(CloneFlags::CLONE_NEWNET).map_err(|error| format!("no network namespace: {error}"))
}

/// Enters a new network namespace that has nothing but a loopback interface, which is up.
pub(crate) fn enter_a_new_one() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    const SET_LINK: u16 = 19;
    const REQUEST_AND_ACK: u16 = 5;
    const LOOPBACK: i32 = 1;
    const UP: u32 = 1;
    let mut message = Vec::new();
    message.extend(32u32.to_ne_bytes());
    message.extend(SET_LINK.to_ne_bytes());
    message.extend(REQUEST_AND_ACK.to_ne_bytes());
    message.extend([0; 12]);
    message.extend(LOOPBACK.to_ne_bytes());
    message.extend(UP.to_ne_bytes());
    message.extend(UP.to_ne_bytes());
    let socket = Socket::new(NETLINK_ROUTE)?;
    socket.send_to(&message, &SocketAddr::new(0, 0), 0)?;
    let mut answer = Vec::with_capacity(4096);
    socket.recv(&mut answer, 0)?;
    match answer.get(16..20) {
        Some([0, 0, 0, 0]) => Ok(()),
        _ => Err(io::Error::other("the loopback interface does not come up")),
    }
}
