//! Queries of the kernel's routes, links and filters, over the routing socket.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::Path;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkDeserializable, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::link::{
    InfoBridge, InfoData, InfoKind, LinkAttribute, LinkInfo, LinkMessage, LinkXdp, XdpAttached,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::tc::TcMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::bypass::{LinkKind, PodRoute};
use crate::elsewhere::NodeInterface;
use crate::nesting::is_too_deep;
use crate::services::VirtualServices;
use crate::traffic::Traffic;

/// Why the kernel's state is unknown.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket failed.
    #[error("cannot query the kernel for routes")]
    Socket(#[from] io::Error),
    /// An answer could not be parsed.
    #[error("cannot parse the kernel's response to a route query: {0}")]
    Unreadable(String),
    /// The list of virtual services exists and cannot be read.
    #[error("cannot read the kernel's list of IPVS virtual services")]
    Services(#[source] io::Error),
    /// Every dump was interrupted by changes.
    #[error("routes and links changed during every attempt to list them")]
    Restless,
}

/// The buffer for one datagram. The kernel's are a few kilobytes, 32 KB at most.
const ROOM: usize = 64 << 10;

/// The length of a message header.
const HEADER: usize = 16;

/// The number of attempts at a dump that changes interrupt.
const TRIES: usize = 5;

/// A routing socket in one network namespace.
#[derive(Debug)]
pub struct Routes {
    socket: Socket,
    sequence: u32,
}

impl Routes {
    /// Opens a socket in the network namespace of the calling thread.
    pub fn open() -> Result<Routes, Error> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Routes {
            socket,
            sequence: 0,
        })
    }

    /// Returns the routes to some addresses; `None`: there is none.
    pub fn pod_routes(
        &mut self,
        addresses: impl Iterator<Item = IpAddr>,
    ) -> Result<BTreeMap<IpAddr, Option<PodRoute>>, Error> {
        let shows_all = [
            shows_all_bridged("iptables"),
            shows_all_bridged("ip6tables"),
        ];
        let mut links: BTreeMap<u32, (String, LinkKind)> = BTreeMap::new();
        let mut routes = BTreeMap::new();
        for address in addresses {
            let Some((index, is_direct)) = self.route(address)? else {
                routes.insert(address, None);
                continue;
            };
            let (interface, link) = match links.get(&index) {
                Some(known) => known.clone(),
                None => {
                    let Some(new) = self.link(index, shows_all)? else {
                        routes.insert(address, None);
                        continue;
                    };
                    links.entry(index).or_insert(new).clone()
                }
            };
            let route = PodRoute {
                interface,
                link,
                is_direct,
            };
            routes.insert(address, Some(route));
        }
        Ok(routes)
    }

    /// Returns all interfaces, and the indexes of those behind which a gateway forwards.
    pub fn interfaces(&mut self) -> Result<(Vec<NodeInterface>, BTreeSet<u32>), Error> {
        let mut interfaces = Vec::new();
        let query = RouteNetlinkMessage::GetLink(LinkMessage::default());
        for link in self.list(&query)? {
            if let RouteNetlinkMessage::NewLink(link) = link {
                // Whether bridges show their packets to netfilter does not matter here.
                interfaces.push(interface(&link, [false; 2]));
            }
        }
        let mut gateways = BTreeSet::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut query = RouteMessage::default();
            query.header.address_family = family;
            for route in self.list(&RouteNetlinkMessage::GetRoute(query))? {
                if let RouteNetlinkMessage::NewRoute(route) = route {
                    note_gateways(None, &route.attributes, &mut gateways);
                }
            }
        }
        Ok((interfaces, gateways))
    }

    /// Returns the virtual services, which IPVS translates.
    pub fn virtual_services(&self) -> Result<VirtualServices, Error> {
        virtual_services(Path::new("/proc/thread-self/net/ip_vs"))
    }

    /// Returns the indexes of interfaces with an eBPF program as a filter of traffic control.
    pub fn filtered(&mut self) -> Result<BTreeSet<u32>, Error> {
        let query = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
        let mut filtered = BTreeSet::new();
        for discipline in self.list::<Traffic>(&query)? {
            // A shared block is queried by its index. The interface index is then
            // `TCM_IFINDEX_MAGIC_BLOCK`, all ones.
            let shared = discipline.blocks.iter().map(|block| (-1, *block));
            let index = i32::try_from(discipline.index).unwrap_or_default();
            let own = discipline.parents().into_iter().map(|it| (index, it));
            let parents: Vec<(i32, u32)> = if discipline.blocks.is_empty() {
                own.collect()
            } else {
                shared.collect()
            };
            for (index, parent) in parents {
                let mut query = TcMessage::with_index(index);
                query.header.parent = parent.into();
                let query = RouteNetlinkMessage::GetTrafficFilter(query);
                // An interface that has gone in the meantime has no filters.
                let filters = match self.list::<Traffic>(&query) {
                    Err(Error::Socket(_)) => continue,
                    filters => filters?,
                };
                if filters.iter().any(|it| it.kind == "bpf") {
                    filtered.insert(discipline.index);
                }
            }
        }
        Ok(filtered)
    }

    /// Returns the index of the interface by which packets to an address leave, and whether the
    /// address is a neighbor there.
    fn route(&mut self, address: IpAddr) -> Result<Option<(u32, bool)>, Error> {
        let mut query = RouteMessage::default();
        let (family, destination, bits) = match address {
            IpAddr::V4(it) => (AddressFamily::Inet, RouteAddress::Inet(it), 32),
            IpAddr::V6(it) => (AddressFamily::Inet6, RouteAddress::Inet6(it), 128),
        };
        query.header.address_family = family;
        query.header.destination_prefix_length = bits;
        query
            .attributes
            .push(RouteAttribute::Destination(destination));
        let Some(RouteNetlinkMessage::NewRoute(route)) =
            self.request(RouteNetlinkMessage::GetRoute(query))?
        else {
            return Ok(None);
        };
        Ok(leaves_by(&route))
    }

    /// Returns the name and kind of an interface, or of its bridge if it is a port of one: its
    /// packets are bridged, wherever routes lead.
    fn link(
        &mut self,
        index: u32,
        shows_all: [bool; 2],
    ) -> Result<Option<(String, LinkKind)>, Error> {
        let Some(found) = self.one_link(index, shows_all)? else {
            return Ok(None);
        };
        if let Some(controller) = found.controller
            && let Some(bridge) = self.one_link(controller, shows_all)?
            && matches!(bridge.link, LinkKind::Bridge { .. })
        {
            return Ok(Some((bridge.name, bridge.link)));
        }
        Ok(Some((found.name, found.link)))
    }

    fn one_link(
        &mut self,
        index: u32,
        shows_all: [bool; 2],
    ) -> Result<Option<NodeInterface>, Error> {
        let mut query = LinkMessage::default();
        query.header.index = index;
        let answer = self.request(RouteNetlinkMessage::GetLink(query))?;
        let Some(RouteNetlinkMessage::NewLink(link)) = answer else {
            return Ok(None);
        };
        Ok(Some(interface(&link, shows_all)))
    }

    /// Requests a consistent dump.
    fn list<Answer>(&mut self, query: &RouteNetlinkMessage) -> Result<Vec<Answer>, Error>
    where
        Answer: NetlinkDeserializable<Error: std::fmt::Display>,
    {
        for _ in 0..TRIES {
            self.send(query.clone(), NLM_F_REQUEST | NLM_F_DUMP)?;
            if let Some(all) = self.receive_list()? {
                return Ok(all);
            }
        }
        Err(Error::Restless)
    }

    /// Receives a dump; `None`: changes interrupted it.
    fn receive_list<Answer>(&mut self) -> Result<Option<Vec<Answer>>, Error>
    where
        Answer: NetlinkDeserializable<Error: std::fmt::Display>,
    {
        let mut list = List::new(self.sequence);
        loop {
            let mut bytes = Vec::with_capacity(ROOM);
            self.socket.recv(&mut bytes, 0)?;
            if list.piece(&bytes)? {
                return Ok(list.is_whole.then_some(list.all));
            }
        }
    }

    fn send(&mut self, query: RouteNetlinkMessage, flags: u16) -> Result<(), Error> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut message = NetlinkMessage::from(query);
        message.header.flags = flags;
        message.header.sequence_number = self.sequence;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        Ok(())
    }

    /// Sends a request. Returns the answer; `None`: the kernel has none.
    fn request(
        &mut self,
        query: RouteNetlinkMessage,
    ) -> Result<Option<RouteNetlinkMessage>, Error> {
        self.send(query, NLM_F_REQUEST)?;
        loop {
            let mut answer = Vec::with_capacity(ROOM);
            self.socket.recv(&mut answer, 0)?;
            if let Some(answer) = answered(&answer, self.sequence)? {
                return Ok(answer);
            }
        }
    }
}

/// A dump, as its pieces arrive.
#[derive(Debug)]
pub(crate) struct List<Answer> {
    /// The sequence number of the request.
    sequence: u32,
    pub(crate) all: Vec<Answer>,
    /// Whether no change has interrupted it.
    pub(crate) is_whole: bool,
}

impl<Answer: NetlinkDeserializable<Error: std::fmt::Display>> List<Answer> {
    pub(crate) fn new(sequence: u32) -> List<Answer> {
        List {
            sequence,
            all: Vec::new(),
            is_whole: true,
        }
    }

    /// Adds a piece. Returns whether it was the last.
    pub(crate) fn piece(&mut self, bytes: &[u8]) -> Result<bool, Error> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let message = message(rest)?;
            let length = usize::try_from(message.header.length).unwrap_or(usize::MAX);
            // At least one step, or else a message of length 0 would be read for ever.
            let length = length.next_multiple_of(4).max(4);
            rest = rest.get(length..).unwrap_or_default();
            // The answer to an earlier, abandoned request.
            if message.header.sequence_number != self.sequence {
                continue;
            }
            self.is_whole &= message.header.flags & NLM_F_DUMP_INTR == 0;
            match message.payload {
                NetlinkPayload::InnerMessage(message) => self.all.push(message),
                NetlinkPayload::Done(_) => return Ok(true),
                NetlinkPayload::Error(error) => {
                    let number = error.raw_code().saturating_neg();
                    return Err(Error::Socket(io::Error::from_raw_os_error(number)));
                }
                NetlinkPayload::Noop | NetlinkPayload::Overrun(_) | _ => {}
            }
        }
        Ok(false)
    }
}

/// Parses the answer to a request: `None` inside if the kernel has none. `None`: it answers another
/// request.
pub(crate) fn answered(
    bytes: &[u8],
    sequence: u32,
) -> Result<Option<Option<RouteNetlinkMessage>>, Error> {
    let answer = message::<RouteNetlinkMessage>(bytes)?;
    // The answer to an earlier, abandoned request.
    if answer.header.sequence_number != sequence {
        return Ok(None);
    }
    // An error means that there is no route, or that the interface is gone.
    Ok(Some(match answer.payload {
        NetlinkPayload::InnerMessage(message) => Some(message),
        NetlinkPayload::Done(_)
        | NetlinkPayload::Error(_)
        | NetlinkPayload::Noop
        | NetlinkPayload::Overrun(_)
        | _ => None,
    }))
}

/// Parses the first message of a datagram.
fn message<Answer>(bytes: &[u8]) -> Result<NetlinkMessage<Answer>, Error>
where
    Answer: NetlinkDeserializable<Error: std::fmt::Display>,
{
    let header: Option<&[u8; HEADER]> = bytes.first_chunk();
    let kind = header.map_or(0, |it| u16::from_ne_bytes([it[4], it[5]]));
    if is_too_deep(kind, bytes.get(HEADER..).unwrap_or_default()) {
        return Err(Error::Unreadable("it is nested too deeply".to_owned()));
    }
    NetlinkMessage::deserialize(bytes).map_err(|error| Error::Unreadable(error.to_string()))
}

/// Returns the index of the interface by which a route leaves, and whether it leads to a neighbor
/// there.
pub(crate) fn leaves_by(route: &RouteMessage) -> Option<(u32, bool)> {
    // Local routes are addresses of the node itself, and unreachable or blackhole routes lead
    // nowhere.
    if route.header.kind != RouteType::Unicast {
        return None;
    }
    let mut interface = None;
    let mut is_direct = true;
    for attribute in &route.attributes {
        if let RouteAttribute::Oif(index) = attribute {
            interface = Some(*index);
        }
        is_direct &= !matches!(
            attribute,
            RouteAttribute::Gateway(_) | RouteAttribute::Via(_)
        );
    }
    interface.map(|index| (index, is_direct))
}

pub(crate) fn interface(link: &LinkMessage, shows_all: [bool; 2]) -> NodeInterface {
    let index = link.header.index;
    let mut found = NodeInterface {
        index,
        name: format!("#{index}"),
        link: LinkKind::Hardware,
        controller: None,
        has_xdp: false,
    };
    for attribute in &link.attributes {
        if let LinkAttribute::IfName(it) = attribute {
            found.name.clone_from(it);
        }
        if let LinkAttribute::Controller(index) = attribute {
            found.controller = Some(*index);
        }
        if let LinkAttribute::Xdp(attached) = attribute {
            found.has_xdp = is_attached(attached);
        }
        if let LinkAttribute::LinkInfo(infos) = attribute {
            found.link = kind(infos, shows_all);
        }
    }
    found
}

/// Returns whether an XDP program is attached, in any mode.
fn is_attached(xdp: &[LinkXdp]) -> bool {
    let is_one = |it: &LinkXdp| matches!(it, LinkXdp::Attached(how) if *how != XdpAttached::None);
    xdp.iter().any(is_one)
}

/// Reads the kernel's list of virtual services (IPVS).
fn virtual_services(list: &Path) -> Result<VirtualServices, Error> {
    // The list may be long, and one service is enough.
    const BEGINNING: u64 = 4 << 10;
    let mut text = String::new();
    let list = File::open(list);
    match list.and_then(|it| it.take(BEGINNING).read_to_string(&mut text)) {
        Ok(_) => Ok(VirtualServices::Listed(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(VirtualServices::None),
        Err(error) => Err(Error::Services(error)),
    }
}

/// Adds the interfaces at which a route, or one of its next hops, leads to a gateway.
pub(crate) fn note_gateways(
    by: Option<u32>,
    attributes: &[RouteAttribute],
    gateways: &mut BTreeSet<u32>,
) {
    let mut interface = by;
    let mut leads_on = false;
    for attribute in attributes {
        if let RouteAttribute::Oif(index) = attribute {
            interface = Some(*index);
        }
        if let RouteAttribute::MultiPath(next_hops) = attribute {
            for hop in next_hops {
                note_gateways(Some(hop.interface_index), &hop.attributes, gateways);
            }
        }
        leads_on |= matches!(
            attribute,
            RouteAttribute::Gateway(_) | RouteAttribute::Via(_)
        );
    }
    gateways.extend(interface.filter(|_| leads_on));
}

/// Returns the kind of an interface from its attributes.
fn kind(infos: &[LinkInfo], shows_all: [bool; 2]) -> LinkKind {
    let mut found = LinkKind::Other;
    let mut shows = shows_all;
    for info in infos {
        if let LinkInfo::Kind(kind) = info {
            found = of_kind(kind, shows);
        }
        if let LinkInfo::Data(InfoData::Bridge(settings)) = info {
            // A bridge has settings of its own besides those of the namespace.
            let is_on = |wanted| settings.contains(&wanted);
            let [v4, v6] = &mut shows;
            *v4 |= is_on(InfoBridge::NfCallIpTables(true));
            *v6 |= is_on(InfoBridge::NfCallIp6Tables(true));
            found = LinkKind::Bridge { shows };
        }
    }
    found
}

fn of_kind(kind: &InfoKind, shows: [bool; 2]) -> LinkKind {
    let parts = [
        InfoKind::MacVlan,
        InfoKind::MacVtap,
        InfoKind::IpVlan,
        InfoKind::IpVtap,
        InfoKind::Netkit,
    ];
    // The node uses these like hardware: pods can use sub-interfaces of them, too.
    let hardware = [
        InfoKind::Bond,
        InfoKind::Vlan,
        InfoKind::Other("team".to_owned()),
    ];
    if *kind == InfoKind::Veth {
        LinkKind::Pair
    } else if *kind == InfoKind::Bridge {
        LinkKind::Bridge { shows }
    } else if *kind == InfoKind::Other("openvswitch".to_owned()) {
        LinkKind::Switch
    } else if parts.contains(kind) {
        LinkKind::Part
    } else if hardware.contains(kind) {
        LinkKind::Hardware
    } else {
        LinkKind::Other
    }
}

/// Returns whether all bridges of the network namespace show their packets to netfilter. Without
/// the module the setting does not exist.
fn shows_all_bridged(to: &str) -> bool {
    let setting = fs::read_to_string(format!("/proc/sys/net/bridge/bridge-nf-call-{to}"));
    setting.is_ok_and(|it| it.trim() == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, inside: &[u8]) -> Vec<u8> {
        let length = u16::try_from(inside.len() + 4).unwrap_or(u16::MAX);
        [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), inside].concat()
    }

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 16).unwrap_or(u32::MAX);
        let header = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10]];
        [&header.concat(), body].concat()
    }

    /// A route with a next hop that has next hops, one of which has next hops, and so on.
    fn route(depth: usize) -> Vec<u8> {
        let mut inside = Vec::new();
        for _ in 0..depth {
            let length = u16::try_from(inside.len() + 8).unwrap_or(u16::MAX);
            let hop = [&length.to_ne_bytes()[..], &[0; 6], &inside].concat();
            inside = attribute(9, &hop);
        }
        let head = [2, 0, 0, 0, 254, 0, 0, 1, 0, 0, 0, 0];
        message(24, &[&head[..], &inside].concat())
    }

    /// A pair whose other end is a pair, and so on.
    fn link(depth: usize) -> Vec<u8> {
        let mut link = vec![0; 16];
        for _ in 0..depth {
            let kind = attribute(1, b"veth\0\0\0\0");
            let data = attribute(2, &attribute(1, &link));
            link = [vec![0; 16], attribute(18, &[kind, data].concat())].concat();
        }
        message(16, &link)
    }

    #[test]
    fn error_numbers_of_any_size_are_handled() {
        for code in [i32::MIN, -1, i32::MAX] {
            let refused = message(2, &[&code.to_ne_bytes()[..], &[0; 16]].concat());
            let list = List::<RouteNetlinkMessage>::new(0).piece(&refused);
            assert!(matches!(list, Err(Error::Socket(_))));
            assert!(matches!(answered(&refused, 0), Ok(Some(None))));
        }
    }

    #[test]
    fn deep_nesting_is_rejected() {
        for one in [route(1), link(1)] {
            assert!(matches!(answered(&one, 0), Ok(Some(Some(_)))));
            assert!(matches!(
                List::<RouteNetlinkMessage>::new(0).piece(&one),
                Ok(false)
            ));
        }
        for deepest in [route(2), route(5_400), link(2), link(1_500)] {
            let single = answered(&deepest, 0);
            assert!(matches!(single, Err(Error::Unreadable(_))));
            let list = List::<RouteNetlinkMessage>::new(0).piece(&deepest);
            assert!(matches!(list, Err(Error::Unreadable(_))));
        }
    }

    #[test]
    fn only_a_kernel_without_a_list_has_no_virtual_services() {
        let there = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let listed = virtual_services(Path::new(there));
        assert!(matches!(listed, Ok(VirtualServices::Listed(text)) if !text.is_empty()));
        let missing = virtual_services(Path::new("/proc/thread-self/net/no_such_list"));
        assert!(matches!(missing, Ok(VirtualServices::None)));
        // A directory can be opened and not read, also by root.
        let unreadable = virtual_services(Path::new("/proc/thread-self/net"));
        assert!(matches!(unreadable, Err(Error::Services(_))));
    }

    #[test]
    fn an_xdp_program_is_found_in_any_mode() {
        let link = |how: XdpAttached| {
            let mut link = LinkMessage::default();
            let xdp = vec![LinkXdp::Attached(how)];
            link.attributes.push(LinkAttribute::Xdp(xdp));
            interface(&link, [false; 2]).has_xdp
        };
        assert!(!link(XdpAttached::None));
        for how in [
            XdpAttached::Driver,
            XdpAttached::SocketBuffer,
            XdpAttached::Hardware,
            XdpAttached::Multiple,
        ] {
            assert!(link(how), "{how:?}");
        }
    }
}
