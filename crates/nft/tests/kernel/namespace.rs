//! Namespaces to test in.

use std::io;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// Enters a new network namespace that has nothing but a loopback interface, which is up.
pub(crate) fn enter_a_new_one() -> io::Result<()> {
    palisade_need::own_network()?;
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
