//! A client of rtnetlink: links, addresses, neighbors and routes, with many messages in one system
//! call.
//!
//! The caller chooses the numbers of interfaces: a message can then name an interface that an
//! earlier message of the same batch creates.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, State,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteScope,
    RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// The interface number of the loopback interface in every network namespace.
pub(crate) const LOOPBACK: u32 = 1;

/// The bytes after which a batch is sent: well below the smallest send buffer that a system may
/// give to a socket.
const LARGEST_BATCH: usize = 48 * 1024;

/// A hardware address.
pub(crate) type Mac = [u8; 6];

/// Why the network could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum RtnlError {
    /// The netlink socket failed.
    #[error("cannot use the rtnetlink socket: {0}")]
    Socket(#[from] io::Error),
    /// The kernel refused a message.
    #[error("the kernel refused to {what}: {source}")]
    Refused {
        /// The operation of the message.
        what: String,
        /// The error in the answer.
        source: io::Error,
    },
    /// An answer could not be read.
    #[error("cannot read the kernel's rtnetlink response: {0}")]
    Unreadable(String),
}

/// One end of a pair of connected interfaces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VethEnd<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// Its number.
    pub(crate) index: u32,
    /// Its hardware address.
    pub(crate) mac: Mac,
}

/// A netlink socket in the network namespace that it was opened in, and a batch of messages.
pub(crate) struct Rtnl {
    socket: Socket,
    batch: Vec<u8>,
    /// The operation of each message of the batch, for errors.
    requests: Vec<String>,
    /// The offset of the last message of the batch.
    last: usize,
    /// The sequence number of the first message of the batch.
    first: u32,
    /// The first error of a batch that was sent because of its size.
    failed: Option<RtnlError>,
}

impl Rtnl {
    /// Opens a socket in the calling thread's network namespace.
    pub(crate) fn open() -> Result<Rtnl, RtnlError> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // An error then does not repeat the whole message.
        socket.set_cap_ack(true)?;
        Ok(Rtnl {
            socket,
            batch: Vec::new(),
            requests: Vec::new(),
            last: 0,
            first: 1,
            failed: None,
        })
    }

    /// Adds a pair of interfaces: one end here, up, and the other one in another namespace, down.
    pub(crate) fn add_pair(
        &mut self,
        here: VethEnd<'_>,
        there: VethEnd<'_>,
        namespace: BorrowedFd<'_>,
    ) {
        let mut peer = veth_message(there);
        peer.attributes
            .push(LinkAttribute::NetNsFd(namespace.as_raw_fd()));
        let mut message = veth_message(here);
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        message.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]));
        let what = format!("create the interfaces {} and {}", here.name, there.name);
        self.push(RouteNetlinkMessage::NewLink(message), CREATE, what);
    }

    /// Sets an interface up.
    pub(crate) fn set_up(&mut self, index: u32) {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        let what = format!("bring interface {index} up");
        self.push(RouteNetlinkMessage::SetLink(message), 0, what);
    }

    /// Adds an address to an interface, without a network around it.
    pub(crate) fn add_address(&mut self, index: u32, address: IpAddr) {
        let mut message = AddressMessage::default();
        message.header.family = family(address);
        message.header.prefix_len = length(address);
        message.header.index = index;
        if address.is_ipv6() {
            // The address is unique by construction. While the kernel looked for duplicates, it
            // would not answer.
            message.header.flags = AddressHeaderFlags::Nodad;
        }
        message.attributes = vec![
            AddressAttribute::Local(address),
            AddressAttribute::Address(address),
        ];
        let what = format!("add the address {address}");
        self.push(RouteNetlinkMessage::NewAddress(message), CREATE, what);
    }

    /// Adds a permanent neighbor with its hardware address.
    pub(crate) fn add_neighbour(&mut self, index: u32, address: IpAddr, mac: Mac) {
        let mut message = NeighbourMessage::default();
        message.header.family = family(address);
        message.header.ifindex = index;
        message.header.state = NeighbourState::Permanent;
        message.header.kind = RouteType::Unicast;
        message.attributes = vec![
            NeighbourAttribute::Destination(match address {
                IpAddr::V4(address) => NeighbourAddress::Inet(address),
                IpAddr::V6(address) => NeighbourAddress::Inet6(address),
            }),
            NeighbourAttribute::LinkLayerAddress(mac.to_vec()),
        ];
        let what = format!("add the neighbour {address}");
        self.push(RouteNetlinkMessage::NewNeighbour(message), CREATE, what);
    }

    /// Adds a route to one address through an interface, by a gateway or directly.
    pub(crate) fn add_route(&mut self, to: IpAddr, index: u32, gateway: Option<IpAddr>) {
        let what = format!("add a route to {to}");
        let mut message = route(to, index, gateway);
        message.header.destination_prefix_length = length(to);
        message
            .attributes
            .push(RouteAttribute::Destination(RouteAddress::from(to)));
        self.push(RouteNetlinkMessage::NewRoute(message), CREATE, what);
    }

    /// Adds a default route by a gateway.
    pub(crate) fn add_default_route(&mut self, index: u32, gateway: IpAddr) {
        let what = format!("add a default route by {gateway}");
        let message = route(gateway, index, Some(gateway));
        self.push(RouteNetlinkMessage::NewRoute(message), CREATE, what);
    }

    /// Sends the batch, and waits until the kernel has carried it out.
    pub(crate) fn commit(&mut self) -> Result<(), RtnlError> {
        self.flush();
        match self.failed.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Returns the names of interfaces that cannot carry packets yet, except the loopback
    /// interface, which has no such state.
    pub(crate) fn not_ready(&mut self) -> Result<Vec<String>, RtnlError> {
        let mut request =
            NetlinkMessage::from(RouteNetlinkMessage::GetLink(LinkMessage::default()));
        request.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
        request.header.sequence_number = self.first;
        self.first = self.first.wrapping_add(1);
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;

        let mut waiting = Vec::new();
        loop {
            for message in self.receive()? {
                if let NetlinkPayload::Done(_) = message.payload {
                    return Ok(waiting);
                } else if let NetlinkPayload::Error(error) = message.payload {
                    return Err(RtnlError::Refused {
                        what: "list interfaces".to_owned(),
                        source: error.to_io(),
                    });
                } else if let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) =
                    message.payload
                {
                    waiting.extend(name_unless_ready(link));
                }
            }
        }
    }

    fn push(&mut self, message: RouteNetlinkMessage, flags: u16, what: String) {
        let mut message = NetlinkMessage::from(message);
        message.header.flags = NLM_F_REQUEST | flags;
        let number = u32::try_from(self.requests.len()).unwrap_or(u32::MAX);
        message.header.sequence_number = self.first.wrapping_add(number);
        message.finalize();
        let start = self.batch.len();
        // Each message begins at a multiple of four bytes.
        let end = (start + message.buffer_len()).next_multiple_of(4);
        self.batch.resize(end, 0);
        if let Some(space) = self.batch.get_mut(start..) {
            message.serialize(space);
        }
        self.last = start;
        self.requests.push(what);
        if end >= LARGEST_BATCH {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if self.requests.is_empty() {
            return;
        }
        let result = self.exchange();
        let count = u32::try_from(self.requests.len()).unwrap_or(u32::MAX);
        self.first = self.first.wrapping_add(count);
        self.batch.clear();
        self.requests.clear();
        if let Err(error) = result
            && self.failed.is_none()
        {
            self.failed = Some(error);
        }
    }

    /// Sends the batch and reads its answers.
    fn exchange(&mut self) -> Result<(), RtnlError> {
        // Only the last message requests an acknowledgment. An earlier one is answered if it fails.
        if let Some([low, high]) = self.batch.get_mut(self.last + 6..self.last + 8) {
            [*low, *high] = (u16::from_ne_bytes([*low, *high]) | NLM_F_ACK).to_ne_bytes();
        }
        self.socket.send(&self.batch, 0)?;
        let mut failed = None;
        loop {
            for message in self.receive()? {
                let NetlinkPayload::Error(answer) = message.payload else {
                    continue;
                };
                let number = message.header.sequence_number.wrapping_sub(self.first) as usize;
                if answer.code.is_some() && failed.is_none() {
                    let what = self.requests.get(number).cloned().unwrap_or_default();
                    failed = Some(RtnlError::Refused {
                        what,
                        source: answer.to_io(),
                    });
                }
                if number + 1 == self.requests.len() {
                    return failed.map_or(Ok(()), Err);
                }
            }
        }
    }

    fn receive(&self) -> Result<Vec<NetlinkMessage<RouteNetlinkMessage>>, RtnlError> {
        let (bytes, _) = self.socket.recv_from_full()?;
        let mut rest = bytes.as_slice();
        let mut messages = Vec::new();
        while !rest.is_empty() {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                .map_err(|error| RtnlError::Unreadable(error.to_string()))?;
            let length = (message.header.length as usize).next_multiple_of(4);
            rest = rest.get(length.max(4)..).unwrap_or_default();
            messages.push(message);
        }
        Ok(messages)
    }
}

const CREATE: u16 = NLM_F_CREATE | NLM_F_EXCL;

fn veth_message(end: VethEnd<'_>) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = end.index;
    message.attributes = vec![
        LinkAttribute::IfName(end.name.to_owned()),
        LinkAttribute::Address(end.mac.to_vec()),
        LinkAttribute::Mtu(1500),
    ];
    message
}

fn route(of: IpAddr, index: u32, gateway: Option<IpAddr>) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(of);
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.kind = RouteType::Unicast;
    message.header.scope = RouteScope::Link;
    message.attributes = vec![RouteAttribute::Oif(index)];
    if let Some(gateway) = gateway {
        message.header.scope = RouteScope::Universe;
        // The gateway is in no configured network, but on that link.
        message.header.flags = RouteFlags::Onlink;
        message
            .attributes
            .push(RouteAttribute::Gateway(RouteAddress::from(gateway)));
    }
    message
}

fn name_unless_ready(link: LinkMessage) -> Option<String> {
    if link.header.index == LOOPBACK {
        return None;
    }
    let mut name = None;
    for attribute in link.attributes {
        if let LinkAttribute::IfName(text) = attribute {
            name = Some(text);
        } else if attribute == LinkAttribute::OperState(State::Up) {
            return None;
        }
    }
    name
}

fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

fn length(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}
