//! Packets that try to get past the rules: fragments, segments out of the middle of a connection
//! that nobody knows, false senders, errors about others' connections, what hides behind headers of
//! IPv6, and messages of the link that were routed. They must not get where opening is denied.

use std::net::SocketAddr;

use palisade_core::answer::{FlowVerdict, Transport as Asked};
use palisade_core::net::Protocol;
use palisade_core::query::FlowQuery;
use palisade_lab::lab::{Lab, LabError};
use palisade_lab::packet::fragment::split;
use palisade_lab::packet::read::{PacketKind, ReceivedPacket};
use palisade_lab::packet::segment::{ACK, FIN, PSH, SYN, Segment};
use palisade_lab::packet::{
    PacketError, ProbePayload, ProbeSpec, build, datagram, port_unreachable,
};
use palisade_lab::probe_plan::{ProbeKind, ProbePlan};
use palisade_lab::topology::Location;
use palisade_lab::trial::Trial;
use palisade_lab::wire::WireError;

use super::{Compared, Difference};

/// So many flows of each sort are tried in a cluster.
const MOST: usize = 12;
/// Marks of our own, far from those of probes.
const FIRST_ID: u32 = 0x7000_0000;

/// Tries to get past the rules of a cluster.
pub(super) fn check(
    seed: u64,
    lab: &mut Lab,
    trials: &[(&FlowQuery, Trial)],
) -> Result<Compared, LabError> {
    let mut guards = Guards {
        seed,
        lab,
        id: FIRST_ID,
        compared: Compared::default(),
    };
    let direct: Vec<(ProbePlan, bool)> =
        trials.iter().flat_map(|(_, trial)| direct(trial)).collect();
    let of = |protocol: Protocol, denied: bool| {
        let fits = move |(attempt, is_denied): &&(ProbePlan, bool)| {
            matches!(attempt.carried, Asked::Port(it, _) if it == protocol) && *is_denied == denied
        };
        let some: Vec<ProbePlan> = direct.iter().filter(fits).map(|it| it.0).collect();
        // Spread over the cluster rather than from its start.
        let step = some.len().div_ceil(MOST).max(1);
        some.into_iter().step_by(step).collect::<Vec<ProbePlan>>()
    };
    for denied in [true, false] {
        for attempt in of(Protocol::Udp, denied) {
            guards.fragments(&attempt, denied)?;
        }
    }
    for attempt in of(Protocol::Tcp, true) {
        guards.segment(&attempt, ACK | PSH, "a segment of an unknown connection")?;
        guards.segment(&attempt, SYN | FIN, "a segment that makes no sense")?;
        guards.reversed(&attempt)?;
    }
    for attempt in of(Protocol::Udp, false) {
        guards.errors(&attempt)?;
        guards.spoofed(&attempt)?;
    }
    for attempt in of(Protocol::Tcp, true) {
        guards.behind_a_header(&attempt)?;
        guards.routed_link_control(&attempt)?;
    }
    guards.link_control()?;
    Ok(guards.compared)
}

/// The flows of a trial that are dialled directly between pods, and whether they are denied.
fn direct(trial: &Trial) -> Vec<(ProbePlan, bool)> {
    let singles = trial.predicted.flows.iter().zip(&trial.means);
    let direct = singles.filter_map(|(single, means)| match means {
        Ok(ProbeKind::Packet(attempt)) => {
            let between_pods = matches!(
                (attempt.from, attempt.to),
                (Location::Pod(_), Location::Pod(_))
            );
            let denied = match single.outcome.verdict {
                FlowVerdict::Deny => true,
                FlowVerdict::Allow => false,
                FlowVerdict::Mixed | FlowVerdict::Unknown => return None,
            };
            (between_pods && !single.flow.via_service).then_some((*attempt, denied))
        }
        Ok(ProbeKind::Inside(_)) | Err(_) => None,
    });
    direct.collect()
}

struct Guards<'l> {
    seed: u64,
    lab: &'l mut Lab,
    id: u32,
    compared: Compared,
}

impl Guards<'_> {
    fn take_id(&mut self) -> u32 {
        self.id += 1;
        self.id
    }

    fn send(
        &mut self,
        from: Location,
        packets: &[Vec<u8>],
    ) -> Result<Vec<(Location, ReceivedPacket)>, LabError> {
        self.compared.probes += 1;
        let packets = packets.iter().map(Vec::as_slice);
        Ok(self.lab.wire().exchange(from, packets)?)
    }

    fn differs(&mut self, what: &str, attempt: &ProbePlan, how: &str) {
        let words = format!("{what}, as in {attempt:?}: {how}");
        let seed = self.seed;
        self.compared.differences.push(Difference { seed, words });
    }

    /// A datagram in three pieces is judged as one: all of it arrives, or nothing.
    fn fragments(&mut self, attempt: &ProbePlan, denied: bool) -> Result<(), LabError> {
        let id = self.take_id();
        let draft = draft(attempt, id);
        let whole = datagram(&draft, 3_000).map_err(WireError::from)?;
        let pieces = split(&whole, 1_280, id).map_err(WireError::from)?;
        for reversed in [false, true] {
            let mut pieces = pieces.clone();
            if reversed {
                pieces.reverse();
            }
            let arrived = self.send(attempt.from, &pieces)?;
            let to = attempt.to;
            let arrived = arrived.iter().filter(|(place, seen)| {
                *place == to && seen.fragment.is_some() && seen.source == attempt.source
            });
            let arrived = arrived.count();
            let expected = if denied { 0 } else { pieces.len() };
            if arrived != expected {
                let how = format!("{arrived} of {} pieces arrived", pieces.len());
                self.differs("a datagram in pieces", attempt, &how);
            }
            self.lab.clear_connections()?;
        }
        self.compared.denied += u64::from(denied);
        Ok(())
    }

    /// A segment that opens nothing does not get where opening is denied.
    fn segment(&mut self, attempt: &ProbePlan, flags: u8, what: &str) -> Result<(), LabError> {
        let id = self.take_id();
        let segment = segment(attempt, flags, id, false)?;
        let arrived = self.send(attempt.from, &[segment])?;
        self.compared.denied += 1;
        if arrived.iter().any(|it| is_seen(it, attempt, id)) {
            self.differs(what, attempt, "it arrived");
        }
        Ok(())
    }

    /// Data of the server must not open a way for the client: connection tracking would take it for
    /// the first packet of a connection the other way round.
    fn reversed(&mut self, attempt: &ProbePlan) -> Result<(), LabError> {
        self.lab.clear_connections()?;
        let (first, second) = (self.take_id(), self.take_id());
        let from_server = segment(attempt, ACK | PSH, first, true)?;
        self.send(attempt.to, &[from_server])?;
        let from_client = segment(attempt, ACK | PSH, second, false)?;
        let arrived = self.send(attempt.from, &[from_client])?;
        self.compared.denied += 1;
        if arrived.iter().any(|it| is_seen(it, attempt, second)) {
            let what = "a segment after data of the server";
            self.differs(what, attempt, "it arrived");
        }
        Ok(())
    }

    /// Whoever sends as somebody else is not heard.
    fn spoofed(&mut self, attempt: &ProbePlan) -> Result<(), LabError> {
        let Location::Pod(own) = attempt.from else {
            return Ok(());
        };
        let pods = self.lab.world().topology().pods.clone();
        let ipv4 = attempt.source.is_ipv4();
        let others = pods.iter().enumerate().filter(|(index, _)| *index != own);
        let others = others.flat_map(|(_, pod)| &pod.addresses);
        let mut others = others.filter(|it| it.is_ipv4() == ipv4 && **it != attempt.destination);
        let beyond = self.lab.world().topology().outside.clone();
        let mut beyond = beyond.iter().filter(|it| it.is_ipv4() == ipv4);
        let false_names = [others.next().copied(), beyond.next().copied()];
        for source in false_names.into_iter().flatten() {
            let id = self.take_id();
            let mut draft = draft(attempt, id);
            draft.source = source;
            let packet = datagram(&draft, 16).map_err(WireError::from)?;
            let arrived = self.send(attempt.from, &[packet])?;
            self.compared.denied += 1;
            let is_it = |seen: &ReceivedPacket| {
                matches!(seen.kind, PacketKind::Probe(_)) && seen.id == Some(id)
            };
            if arrived.iter().any(|(_, seen)| is_it(seen)) {
                let what = format!("a packet sent as {source}");
                self.differs(&what, attempt, "it arrived");
            }
        }
        Ok(())
    }

    /// An error is heard from who has to do with the connection, and from no other pod of the node.
    /// What comes from elsewhere may be of a router on the way.
    fn errors(&mut self, attempt: &ProbePlan) -> Result<(), LabError> {
        let id = self.take_id();
        let sent = datagram(&draft(attempt, id), 16).map_err(WireError::from)?;
        self.send(attempt.from, std::slice::from_ref(&sent))?;
        let error = |source| port_unreachable(source, attempt.source, &sent);
        let own = error(attempt.destination).map_err(WireError::from)?;
        let is_error = |(place, seen): &(Location, ReceivedPacket)| {
            *place == attempt.from
                && matches!(seen.kind, PacketKind::Error(_))
                && seen.id == Some(id)
        };
        if !self.send(attempt.to, &[own])?.iter().any(is_error) {
            self.differs("an error about a connection", attempt, "it did not arrive");
        }
        let Location::Pod(listener) = attempt.from else {
            return Ok(());
        };
        let pods = self.lab.world().topology().pods.clone();
        let ipv4 = attempt.source.is_ipv4();
        let node = pods.get(listener).map(|pod| pod.node);
        let others = pods.iter().enumerate().filter_map(|(index, pod)| {
            let place = Location::Pod(index);
            let is_other = place != attempt.from && place != attempt.to && Some(pod.node) == node;
            let mut own = pod.addresses.iter().filter(|it| it.is_ipv4() == ipv4);
            Some((place, *own.next()?)).filter(|_| is_other)
        });
        for (place, address) in others.take(2) {
            let forged = error(address).map_err(WireError::from)?;
            self.compared.denied += 1;
            if self.send(place, &[forged])?.iter().any(is_error) {
                let what = format!("an error of {address} about others");
                self.differs(&what, attempt, "it arrived");
            }
        }
        Ok(())
    }

    /// What connection tracking reads behind a header must be what is judged.
    fn behind_a_header(&mut self, attempt: &ProbePlan) -> Result<(), LabError> {
        if attempt.source.is_ipv4() {
            return Ok(());
        }
        const AUTHENTICATION: [u8; 12] = [0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1];
        const OPTIONS: [u8; 8] = [0, 0, 1, 4, 0, 0, 0, 0];
        for (kind, header) in [(51, &AUTHENTICATION[..]), (60, &OPTIONS), (0, &OPTIONS)] {
            let (hidden, plain) = (self.take_id(), self.take_id());
            let opening = segment(attempt, SYN, hidden, false)?;
            let wrapped = with_header(&opening, kind, header);
            self.send(attempt.from, &[wrapped])?;
            // The way that it may have opened.
            let after = segment(attempt, SYN, plain, false)?;
            let arrived = self.send(attempt.from, &[after])?;
            self.compared.denied += 1;
            if arrived.iter().any(|it| is_seen(it, attempt, plain)) {
                let what = format!("a segment after one behind a header of type {kind}");
                self.differs(&what, attempt, "it arrived");
            }
        }
        Ok(())
    }

    /// Messages of the link are nothing special once they are routed, and are not of IPv4.
    fn routed_link_control(&mut self, attempt: &ProbePlan) -> Result<(), LabError> {
        // Groups are asked about with a hop limit of 1, which one that is routed once has as 2.
        for (kind, hops) in [(135, 255), (131, 2), (143, 2)] {
            let id = self.take_id();
            let mut draft = draft(attempt, id);
            let mut packet = Vec::new();
            if attempt.source.is_ipv4() {
                draft.carried = ProbePayload::Other { protocol: 253 };
                build(&draft, &mut packet).map_err(WireError::from)?;
                packet = as_protocol(packet, 58, kind);
            } else {
                draft.carried = ProbePayload::Icmpv6 { kind };
                build(&draft, &mut packet).map_err(WireError::from)?;
                overwrite(&mut packet, 7, &[hops]);
            }
            let arrived = self.send(attempt.from, &[packet])?;
            self.compared.denied += 1;
            let is_it = |(place, seen): &(Location, ReceivedPacket)| {
                *place == attempt.to && seen.source == attempt.source
            };
            // Some end of what is denied is judged, and that is enough.
            if arrived.iter().any(is_it) {
                let what = format!("a message of the link of type {kind}, routed");
                self.differs(&what, attempt, "it arrived");
            }
        }
        Ok(())
    }

    /// Every pod may talk to its node about the link (D89), but does not route for it (D147).
    fn link_control(&mut self) -> Result<(), LabError> {
        let topology = self.lab.world().topology().clone();
        for (index, pod) in topology.pods.iter().enumerate() {
            let node = topology.nodes.get(pod.node);
            let node = node.into_iter().flat_map(|it| &it.addresses);
            let mut node = node.filter(|it| it.is_ipv6());
            let mut own = pod.addresses.iter().filter(|it| it.is_ipv6());
            let (Some(own), Some(node)) = (own.next(), node.next()) else {
                continue;
            };
            for (kind, passes) in [(135, true), (134, false), (137, false)] {
                let id = self.take_id();
                let draft = ProbeSpec {
                    source: *own,
                    destination: *node,
                    carried: ProbePayload::Icmpv6 { kind },
                    source_port: 1,
                    id,
                };
                let mut packet = Vec::new();
                build(&draft, &mut packet).map_err(WireError::from)?;
                overwrite(&mut packet, 7, &[255]);
                let from = Location::Pod(index);
                let arrived = self.send(from, &[packet])?;
                self.compared.denied += u64::from(!passes);
                let is_it = |(place, seen): &(Location, ReceivedPacket)| {
                    *place == Location::Node(pod.node) && seen.id == Some(id)
                };
                if arrived.iter().any(is_it) != passes {
                    let words = format!(
                        "a message of type {kind} from {own} to its node: {passes} expected"
                    );
                    let seed = self.seed;
                    self.compared.differences.push(Difference { seed, words });
                }
            }
        }
        Ok(())
    }
}

/// Whether a packet of ours is what arrived, and where it should not.
fn is_seen((place, seen): &(Location, ReceivedPacket), attempt: &ProbePlan, id: u32) -> bool {
    *place == attempt.to && seen.id == Some(id) && seen.source == attempt.source
}

/// A packet of IPv6 with something between its header and what it carries.
fn with_header(packet: &[u8], kind: u8, header: &[u8]) -> Vec<u8> {
    let (ip, carried) = packet.split_at_checked(40).unwrap_or((packet, &[]));
    let mut out = [ip, header, carried].concat();
    let length = u16::try_from(header.len() + carried.len()).unwrap_or(u16::MAX);
    let next = out.get(6).copied().unwrap_or(0);
    overwrite(&mut out, 4, &length.to_be_bytes());
    overwrite(&mut out, 6, &[kind]);
    overwrite(&mut out, 40, &[next]);
    out
}

fn overwrite(bytes: &mut [u8], at: usize, with: &[u8]) {
    for (to, from) in bytes.iter_mut().skip(at).zip(with) {
        *to = *from;
    }
}

/// A packet of IPv4 that says it carries another protocol.
fn as_protocol(mut packet: Vec<u8>, protocol: u8, first: u8) -> Vec<u8> {
    overwrite(&mut packet, 9, &[protocol]);
    overwrite(&mut packet, 20, &[first]);
    overwrite(&mut packet, 10, &[0, 0]);
    let words = packet.chunks_exact(2).take(10);
    let words = words.filter_map(|it| Some(u32::from(u16::from_be_bytes(*it.first_chunk()?))));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let sum = !u16::try_from(sum).unwrap_or(0);
    overwrite(&mut packet, 10, &sum.to_be_bytes());
    packet
}

fn draft(attempt: &ProbePlan, id: u32) -> ProbeSpec {
    let port = match attempt.carried {
        Asked::Port(_, port) => port.get(),
        Asked::Icmp | Asked::Icmp6(_) | Asked::Ip(_) => 0,
    };
    ProbeSpec {
        source: attempt.source,
        destination: attempt.destination,
        carried: ProbePayload::Udp { port },
        source_port: 20_000 + (id % 9_999) as u16,
        id,
    }
}

fn segment(attempt: &ProbePlan, flags: u8, id: u32, reversed: bool) -> Result<Vec<u8>, LabError> {
    let port = match attempt.carried {
        Asked::Port(_, port) => port.get(),
        Asked::Icmp | Asked::Icmp6(_) | Asked::Ip(_) => 0,
    };
    let client = SocketAddr::new(attempt.source, 31_000 + port % 1_000);
    let server = SocketAddr::new(attempt.destination, port);
    let (source, destination) = if reversed {
        (server, client)
    } else {
        (client, server)
    };
    let segment = Segment {
        source,
        destination,
        flags,
        sequence: id,
        acknowledgment: 1,
        data: b"data",
    };
    let built: Result<Vec<u8>, PacketError> = segment.build();
    Ok(built.map_err(WireError::from)?)
}
