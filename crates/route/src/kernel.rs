//! Asks the kernel for routes and links.

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

/// Why the kernel's routes are not known.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket failed.
    #[error("cannot ask the kernel for routes")]
    Socket(#[from] io::Error),
    /// An answer could not be understood.
    #[error("the kernel's answer about a route cannot be read: {0}")]
    Unreadable(String),
    /// The list of virtual services is there and cannot be read.
    #[error("the kernel's list of virtual services (IPVS) cannot be read")]
    Services(#[source] io::Error),
    /// They changed all the time.
    #[error("routes and links changed whenever they were listed")]
    Restless,
}

/// Answers are a few kilobytes at most.
const ROOM: usize = 64 << 10;

/// The bytes of the header of a message.
const HEADER: usize = 16;

/// A list that changes meanwhile is asked for so often.
const TRIES: usize = 5;

/// Our side of the conversation about routes, in one network namespace.
#[derive(Debug)]
pub struct Routes {
    socket: Socket,
    sequence: u32,
}

impl Routes {
    /// Opens it in the network namespace of the calling thread.
    pub fn open() -> Result<Routes, Error> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Routes {
            socket,
            sequence: 0,
        })
    }

    /// The ways to all of some addresses; `None`: there is none.
    pub fn pod_routes(
        &mut self,
        addresses: impl Iterator<Item = IpAddr>,
    ) -> Result<BTreeMap<IpAddr, Option<PodRoute>>, Error> {
        let shows_all = [
            shows_all_bridged("iptables"),
            shows_all_bridged("ip6tables"),
        ];
        let mut links: BTreeMap<u32, (String, LinkKind)> = BTreeMap::new();
        let mut ways = BTreeMap::new();
        for address in addresses {
            let Some((index, is_direct)) = self.route(address)? else {
                ways.insert(address, None);
                continue;
            };
            let (interface, link) = match links.get(&index) {
                Some(known) => known.clone(),
                None => {
                    let Some(new) = self.link(index, shows_all)? else {
                        ways.insert(address, None);
                        continue;
                    };
                    links.entry(index).or_insert(new).clone()
                }
            };
            let way = PodRoute {
                interface,
                link,
                is_direct,
            };
            ways.insert(address, Some(way));
        }
        Ok(ways)
    }

    /// All interfaces, and the numbers of those at which somebody else forwards.
    pub fn interfaces(&mut self) -> Result<(Vec<NodeInterface>, BTreeSet<u32>), Error> {
        let mut interfaces = Vec::new();
        let ask = RouteNetlinkMessage::GetLink(LinkMessage::default());
        for link in self.list(&ask)? {
            if let RouteNetlinkMessage::NewLink(link) = link {
                interfaces.push(interface(&link, [false; 2]));
            }
        }
        let mut gateways = BTreeSet::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut ask = RouteMessage::default();
            ask.header.address_family = family;
            for route in self.list(&RouteNetlinkMessage::GetRoute(ask))? {
                if let RouteNetlinkMessage::NewRoute(route) = route {
                    note_gateways(None, &route.attributes, &mut gateways);
                }
            }
        }
        Ok((interfaces, gateways))
    }

    /// What the kernel says of virtual services, which IPVS translates.
    pub fn virtual_services(&self) -> Result<VirtualServices, Error> {
        virtual_services(Path::new("/proc/thread-self/net/ip_vs"))
    }

    /// The numbers of the interfaces at which a program of eBPF is a filter of traffic control.
    pub fn filtered(&mut self) -> Result<BTreeSet<u32>, Error> {
        let ask = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
        let mut filtered = BTreeSet::new();
        for discipline in self.list::<Traffic>(&ask)? {
            // Shared blocks are asked for by their number instead of an interface's.
            let shared = discipline.blocks.iter().map(|block| (-1, *block));
            let index = i32::try_from(discipline.index).unwrap_or_default();
            let own = discipline.parents().into_iter().map(|it| (index, it));
            let parents: Vec<(i32, u32)> = if discipline.blocks.is_empty() {
                own.collect()
            } else {
                shared.collect()
            };
            for (index, parent) in parents {
                let mut ask = TcMessage::with_index(index);
                ask.header.parent = parent.into();
                let ask = RouteNetlinkMessage::GetTrafficFilter(ask);
                // What is gone meanwhile has no filters.
                let filters = match self.list::<Traffic>(&ask) {
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

    /// The number of the interface that packets to an address leave by, and whether it is a neighbour there.
    fn route(&mut self, address: IpAddr) -> Result<Option<(u32, bool)>, Error> {
        let mut ask = RouteMessage::default();
        let (family, destination, bits) = match address {
            IpAddr::V4(it) => (AddressFamily::Inet, RouteAddress::Inet(it), 32),
            IpAddr::V6(it) => (AddressFamily::Inet6, RouteAddress::Inet6(it), 128),
        };
        ask.header.address_family = family;
        ask.header.destination_prefix_length = bits;
        ask.attributes
            .push(RouteAttribute::Destination(destination));
        let Some(RouteNetlinkMessage::NewRoute(route)) =
            self.request(RouteNetlinkMessage::GetRoute(ask))?
        else {
            return Ok(None);
        };
        Ok(leaves_by(&route))
    }

    /// What an interface is. A port of a bridge is the bridge: what comes in there is bridged, wherever routes lead.
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
        let mut ask = LinkMessage::default();
        ask.header.index = index;
        let answer = self.request(RouteNetlinkMessage::GetLink(ask))?;
        let Some(RouteNetlinkMessage::NewLink(link)) = answer else {
            return Ok(None);
        };
        Ok(Some(interface(&link, shows_all)))
    }

    /// All of something, as it was at one moment.
    fn list<Answer>(&mut self, question: &RouteNetlinkMessage) -> Result<Vec<Answer>, Error>
    where
        Answer: NetlinkDeserializable<Error: std::fmt::Display>,
    {
        for _ in 0..TRIES {
            self.send(question.clone(), NLM_F_REQUEST | NLM_F_DUMP)?;
            if let Some(all) = self.receive_list()? {
                return Ok(all);
            }
        }
        Err(Error::Restless)
    }

    /// What the kernel lists; `None`: it changed meanwhile.
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

    fn send(&mut self, question: RouteNetlinkMessage, flags: u16) -> Result<(), Error> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut message = NetlinkMessage::from(question);
        message.header.flags = flags;
        message.header.sequence_number = self.sequence;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        Ok(())
    }

    /// The answer to a question; `None`: the kernel says that there is none.
    fn request(
        &mut self,
        question: RouteNetlinkMessage,
    ) -> Result<Option<RouteNetlinkMessage>, Error> {
        self.send(question, NLM_F_REQUEST)?;
        loop {
            let mut answer = Vec::with_capacity(ROOM);
            self.socket.recv(&mut answer, 0)?;
            if let Some(answer) = answered(&answer, self.sequence)? {
                return Ok(answer);
            }
        }
    }
}

/// A list, as its pieces arrive.
#[derive(Debug)]
pub(crate) struct List<Answer> {
    /// The number of the question.
    sequence: u32,
    pub(crate) all: Vec<Answer>,
    /// Whether nothing changed meanwhile.
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

    /// Takes a piece; says whether it was the last.
    pub(crate) fn piece(&mut self, bytes: &[u8]) -> Result<bool, Error> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let message = message(rest)?;
            let length = usize::try_from(message.header.length).unwrap_or(usize::MAX);
            let length = length.next_multiple_of(4).max(4);
            rest = rest.get(length..).unwrap_or_default();
            // What was asked before and given up.
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

/// What answers a question: `None` inside if the kernel says that there is none. `None`: it answers another one.
pub(crate) fn answered(
    bytes: &[u8],
    sequence: u32,
) -> Result<Option<Option<RouteNetlinkMessage>>, Error> {
    let answer = message::<RouteNetlinkMessage>(bytes)?;
    // What was asked before and given up.
    if answer.header.sequence_number != sequence {
        return Ok(None);
    }
    // An error says that there is no route, or no such interface any more.
    Ok(Some(match answer.payload {
        NetlinkPayload::InnerMessage(message) => Some(message),
        NetlinkPayload::Done(_)
        | NetlinkPayload::Error(_)
        | NetlinkPayload::Noop
        | NetlinkPayload::Overrun(_)
        | _ => None,
    }))
}

/// The first message of what was received.
fn message<Answer>(bytes: &[u8]) -> Result<NetlinkMessage<Answer>, Error>
where
    Answer: NetlinkDeserializable<Error: std::fmt::Display>,
{
    let header: Option<&[u8; HEADER]> = bytes.first_chunk();
    let kind = header.map_or(0, |it| u16::from_ne_bytes([it[4], it[5]]));
    if is_too_deep(kind, bytes.get(HEADER..).unwrap_or_default()) {
        return Err(Error::Unreadable("it is nested too deep".to_owned()));
    }
    NetlinkMessage::deserialize(bytes).map_err(|error| Error::Unreadable(error.to_string()))
}

/// The number of the interface that a route leaves by, and whether it leads to a neighbour there.
pub(crate) fn leaves_by(route: &RouteMessage) -> Option<(u32, bool)> {
    // An address of the node itself is no pod's, and what is not to be reached has no way.
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

/// Whether a program is attached, in whatever way.
fn is_attached(xdp: &[LinkXdp]) -> bool {
    let is_one = |it: &LinkXdp| matches!(it, LinkXdp::Attached(how) if *how != XdpAttached::None);
    xdp.iter().any(is_one)
}

/// What the kernel's list of virtual services (IPVS) says.
fn virtual_services(list: &Path) -> Result<VirtualServices, Error> {
    // The list may be long, and its first service is all that matters.
    const BEGINNING: u64 = 4 << 10;
    let mut text = String::new();
    let list = File::open(list);
    match list.and_then(|it| it.take(BEGINNING).read_to_string(&mut text)) {
        Ok(_) => Ok(VirtualServices::Listed(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(VirtualServices::None),
        Err(error) => Err(Error::Services(error)),
    }
}

/// The interfaces at which a route, or one of several ways of it, goes on to a gateway.
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
        if let RouteAttribute::MultiPath(ways) = attribute {
            for way in ways {
                note_gateways(Some(way.interface_index), &way.attributes, gateways);
            }
        }
        leads_on |= matches!(
            attribute,
            RouteAttribute::Gateway(_) | RouteAttribute::Via(_)
        );
    }
    gateways.extend(interface.filter(|_| leads_on));
}

/// What an interface is, by what the kernel says of it.
fn kind(infos: &[LinkInfo], shows_all: [bool; 2]) -> LinkKind {
    let mut found = LinkKind::Other;
    let mut shows = shows_all;
    for info in infos {
        if let LinkInfo::Kind(kind) = info {
            found = of_kind(kind, shows);
        }
        if let LinkInfo::Data(InfoData::Bridge(settings)) = info {
            // A single bridge can show what the others do not.
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
    // What a machine takes for hardware: pods can have parts of it just as well.
    let wires = [
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
    } else if wires.contains(kind) {
        LinkKind::Hardware
    } else {
        LinkKind::Other
    }
}

/// Whether all bridges of the network namespace show their packets to netfilter. Without the module there is no such setting.
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

    /// A route one of whose ways has several ways, one of which has several, and so on.
    fn route(depth: usize) -> Vec<u8> {
        let mut inside = Vec::new();
        for _ in 0..depth {
            let length = u16::try_from(inside.len() + 8).unwrap_or(u16::MAX);
            let way = [&length.to_ne_bytes()[..], &[0; 6], &inside].concat();
            inside = attribute(9, &way);
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
    fn no_number_of_an_error_is_too_large() {
        for code in [i32::MIN, -1, i32::MAX] {
            let refused = message(2, &[&code.to_ne_bytes()[..], &[0; 16]].concat());
            let list = List::<RouteNetlinkMessage>::new(0).piece(&refused);
            assert!(matches!(list, Err(Error::Socket(_))));
            assert!(matches!(answered(&refused, 0), Ok(Some(None))));
        }
    }

    #[test]
    fn what_no_kernel_nests_is_not_followed_for_ever() {
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
        // A directory can be opened and not be read, whoever asks.
        let unreadable = virtual_services(Path::new("/proc/thread-self/net"));
        assert!(matches!(unreadable, Err(Error::Services(_))));
    }

    #[test]
    fn a_program_at_the_driver_is_seen_however_it_is_attached() {
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
