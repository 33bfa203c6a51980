//! Network namespaces for tests that run in them.

use std::io;

use nix::sched::{CloneFlags, unshare};

use crate::look::{Maps, into_user_namespace};

/// Moves this process, which must have one thread, into a user namespace and a network namespace of
/// its own: tests can then touch no network of the machine. Where user namespaces are not allowed,
/// root enters a network namespace alone.
pub(crate) fn go_inside() -> Result<(), String> {
    let maps = Maps::new();
    if into_user_namespace(&maps).is_err() && !maps.is_root {
        return Err("cannot enter a user namespace; the process must have one thread".to_owned());
    }
    own_network().map_err(|error| format!("cannot enter a network namespace: {error}"))
}

/// Moves this thread into a new network namespace.
pub fn own_network() -> io::Result<()> {
    Ok(unshare(CloneFlags::CLONE_NEWNET)?)
}
