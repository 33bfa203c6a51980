//! Packets that try to evade the rules: fragments, segments without a connection, false senders,
//! forged ICMP errors, IPv6 extension headers, and routed link messages. They must not arrive where
//! the flow is denied.

use std::net::SocketAddr;

use palisade_core::answer::{FlowVerdict, Transport};
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

/// Flows of each kind per cluster.
const MAX_FLOWS: usize = 12;
/// The first probe identifier, far from those of other probes.
const FIRST_ID: u32 = 0x7000_0000;

/// Tries to evade the rules of a cluster.
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
            matches!(attempt.carried, Transport::Port(it, _) if it == protocol)
                && *is_denied == denied
        };
        let some: Vec<ProbePlan> = direct.iter().filter(fits).map(|it| it.0).collect();
        // Spread over the cluster rather than from its start.
        let step = some.len().div_ceil(MAX_FLOWS).max(1);
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
        guards.behind_extension_header(&attempt)?;
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

    fn report_difference(&mut self, what: &str, attempt: &ProbePlan, how: &str) {
        let message = format!("{what}, as in {attempt:?}: {how}");
        let seed = self.seed;
        self.compared.differences.push(Difference { seed, message });
    }

    /// Sends a datagram in three fragments: all arrive, or none.
    fn fragments(&mut self, attempt: &ProbePlan, denied: bool) -> Result<(), LabError> {
        let id = self.take_id();
        let probe_spec = probe_spec(attempt, id);
        let whole = datagram(&probe_spec, 3_000).map_err(WireError::from)?;
        let fragments = split(&whole, 1_280, id).map_err(WireError::from)?;
        for reversed in [false, true] {
            let mut fragments = fragments.clone();
            if reversed {
                fragments.reverse();
            }
            let arrived = self.send(attempt.from, &fragments)?;
            let to = attempt.to;
            let arrived = arrived.iter().filter(|(place, received)| {
                *place == to && received.fragment.is_some() && received.source == attempt.source
            });
            let arrived = arrived.count();
            let expected = if denied { 0 } else { fragments.len() };
            if arrived != expected {
                let how = format!("{arrived} of {} fragments arrived", fragments.len());
                self.report_difference("a fragmented datagram", attempt, &how);
            }
            self.lab.clear_connections()?;
        }
        self.compared.denied += u64::from(denied);
        Ok(())
    }

    /// Sends a segment without SYN, which must not arrive where the flow is denied.
    fn segment(&mut self, attempt: &ProbePlan, flags: u8, what: &str) -> Result<(), LabError> {
        let id = self.take_id();
        let segment = segment(attempt, flags, id, false)?;
        let arrived = self.send(attempt.from, &[segment])?;
        self.compared.denied += 1;
        if arrived.iter().any(|it| has_arrived(it, attempt, id)) {
            self.report_difference(what, attempt, "it arrived");
        }
        Ok(())
    }

    /// Sends data of the server, which must not open the flow for the client: connection tracking
    /// would take it for the first packet of a reverse connection.
    fn reversed(&mut self, attempt: &ProbePlan) -> Result<(), LabError> {
        self.lab.clear_connections()?;
        let (first, second) = (self.take_id(), self.take_id());
        let from_server = segment(attempt, ACK | PSH, first, true)?;
        self.send(attempt.to, &[from_server])?;
        let from_client = segment(attempt, ACK | PSH, second, false)?;
        let arrived = self.send(attempt.from, &[from_client])?;
        self.compared.denied += 1;
        if arrived.iter().any(|it| has_arrived(it, attempt, second)) {
            let what = "a segment after data of the server";
            self.report_difference(what, attempt, "it arrived");
        }
        Ok(())
    }

    /// Sends with the addresses of others, which must not arrive.
    fn spoofed(&mut self, attempt: &ProbePlan) -> Result<(), LabError> {
        let Location::Pod(own) = attempt.from else {
            return Ok(());
        };
        let pods = self.lab.world().topology().pods.clone();
        let ipv4 = attempt.source.is_ipv4();
        let others = pods.iter().enumerate().filter(|(index, _)| *index != own);
        let others = others.flat_map(|(_, pod)| &pod.addresses);
        let mut others = others.filter(|it| it.is_ipv4() == ipv4 && **it != attempt.destination);
        let outside = self.lab.world().topology().outside.clone();
        let mut outside = outside.iter().filter(|it| it.is_ipv4() == ipv4);
        let false_sources = [others.next().copied(), outside.next().copied()];
        for source in false_sources.into_iter().flatten() {
            let id = self.take_id();
            let mut probe_spec = probe_spec(attempt, id);
            probe_spec.source = source;
            let packet = datagram(&probe_spec, 16).map_err(WireError::from)?;
            let arrived = self.send(attempt.from, &[packet])?;
            self.compared.denied += 1;
            let is_probe = |received: &ReceivedPacket| {
                matches!(received.kind, PacketKind::Probe(_)) && received.id == Some(id)
            };
            if arrived.iter().any(|(_, received)| is_probe(received)) {
                let what = format!("a packet sent as {source}");
                self.report_difference(&what, attempt, "it arrived");
            }
        }
        Ok(())
    }

    /// Sends ICMP errors: they pass from an end of the connection, and from no other pod of the
    /// node. Errors from outside may come from a router.
    fn errors(&mut self, attempt: &ProbePlan) -> Result<(), LabError> {
        let id = self.take_id();
        let sent = datagram(&probe_spec(attempt, id), 16).map_err(WireError::from)?;
        self.send(attempt.from, std::slice::from_ref(&sent))?;
        let error = |source| port_unreachable(source, attempt.source, &sent);
        let own = error(attempt.destination).map_err(WireError::from)?;
        let is_error = |(place, received): &(Location, ReceivedPacket)| {
            *place == attempt.from
                && matches!(received.kind, PacketKind::Error(_))
                && received.id == Some(id)
        };
        if !self.send(attempt.to, &[own])?.iter().any(is_error) {
            self.report_difference(
                "an ICMP error of a connection",
                attempt,
                "it did not arrive",
            );
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
                let what = format!("a forged ICMP error of {address}");
                self.report_difference(&what, attempt, "it arrived");
            }
        }
        Ok(())
    }

    /// Sends a segment after an IPv6 extension header, which must not open the flow.
    fn behind_extension_header(&mut self, attempt: &ProbePlan) -> Result<(), LabError> {
        if attempt.source.is_ipv4() {
            return Ok(());
        }
        const AUTHENTICATION: [u8; 12] = [0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1];
        const OPTIONS: [u8; 8] = [0, 0, 1, 4, 0, 0, 0, 0];
        for (kind, header) in [(51, &AUTHENTICATION[..]), (60, &OPTIONS), (0, &OPTIONS)] {
            let (hidden, plain) = (self.take_id(), self.take_id());
            let opening = segment(attempt, SYN, hidden, false)?;
            let wrapped = with_extension_header(&opening, kind, header);
            self.send(attempt.from, &[wrapped])?;
            // A packet of the connection that it may have opened.
            let after = segment(attempt, SYN, plain, false)?;
            let arrived = self.send(attempt.from, &[after])?;
            self.compared.denied += 1;
            if arrived.iter().any(|it| has_arrived(it, attempt, plain)) {
                let what = format!("a segment after one with an extension header of type {kind}");
                self.report_difference(&what, attempt, "it arrived");
            }
        }
        Ok(())
    }

    /// Sends routed link messages, and such messages over IPv4, which are not exempt.
    fn routed_link_control(&mut self, attempt: &ProbePlan) -> Result<(), LabError> {
        // Multicast listener messages have hop limit 1; with 2, it is 1 after routing.
        for (kind, hops) in [(135, 255), (131, 2), (143, 2)] {
            let id = self.take_id();
            let mut probe_spec = probe_spec(attempt, id);
            let mut packet = Vec::new();
            if attempt.source.is_ipv4() {
                probe_spec.carried = ProbePayload::Other { protocol: 253 };
                build(&probe_spec, &mut packet).map_err(WireError::from)?;
                packet = as_protocol(packet, 58, kind);
            } else {
                probe_spec.carried = ProbePayload::Icmpv6 { kind };
                build(&probe_spec, &mut packet).map_err(WireError::from)?;
                overwrite(&mut packet, 7, &[hops]);
            }
            let arrived = self.send(attempt.from, &[packet])?;
            self.compared.denied += 1;
            let is_probe = |(place, received): &(Location, ReceivedPacket)| {
                *place == attempt.to && received.source == attempt.source
            };
            // The verdict of either end denies the flow.
            if arrived.iter().any(is_probe) {
                let what = format!("a routed link message of type {kind}");
                self.report_difference(&what, attempt, "it arrived");
            }
        }
        Ok(())
    }

    /// Sends neighbor discovery of each pod to its node, which passes (D89), and router messages,
    /// which must not (D147).
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
                let probe_spec = ProbeSpec {
                    source: *own,
                    destination: *node,
                    carried: ProbePayload::Icmpv6 { kind },
                    source_port: 1,
                    id,
                };
                let mut packet = Vec::new();
                build(&probe_spec, &mut packet).map_err(WireError::from)?;
                overwrite(&mut packet, 7, &[255]);
                let from = Location::Pod(index);
                let arrived = self.send(from, &[packet])?;
                self.compared.denied += u64::from(!passes);
                let is_probe = |(place, received): &(Location, ReceivedPacket)| {
                    *place == Location::Node(pod.node) && received.id == Some(id)
                };
                if arrived.iter().any(is_probe) != passes {
                    let message = format!(
                        "a message of type {kind} from {own} to its node: expected to pass: {passes}"
                    );
                    let seed = self.seed;
                    self.compared.differences.push(Difference { seed, message });
                }
            }
        }
        Ok(())
    }
}

/// Whether our packet arrived at the destination.
fn has_arrived(
    (place, received): &(Location, ReceivedPacket),
    attempt: &ProbePlan,
    id: u32,
) -> bool {
    *place == attempt.to && received.id == Some(id) && received.source == attempt.source
}

/// An IPv6 packet with an extension header.
fn with_extension_header(packet: &[u8], kind: u8, header: &[u8]) -> Vec<u8> {
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

/// An IPv4 packet with another protocol number.
fn as_protocol(mut packet: Vec<u8>, protocol: u8, first: u8) -> Vec<u8> {
    overwrite(&mut packet, 9, &[protocol]);
    overwrite(&mut packet, 20, &[first]);
    overwrite(&mut packet, 10, &[0, 0]);
    let message = packet.chunks_exact(2).take(10);
    let message = message.filter_map(|it| Some(u32::from(u16::from_be_bytes(*it.first_chunk()?))));
    let mut sum: u32 = message.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let sum = !u16::try_from(sum).unwrap_or(0);
    overwrite(&mut packet, 10, &sum.to_be_bytes());
    packet
}

fn probe_spec(attempt: &ProbePlan, id: u32) -> ProbeSpec {
    let port = match attempt.carried {
        Transport::Port(_, port) => port.get(),
        Transport::Icmp | Transport::Icmp6(_) | Transport::Ip(_) => 0,
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
        Transport::Port(_, port) => port.get(),
        Transport::Icmp | Transport::Icmp6(_) | Transport::Ip(_) => 0,
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
