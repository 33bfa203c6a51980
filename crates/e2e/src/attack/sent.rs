//! Packets of a tenant's pod: with source addresses of others, and messages that only routers send.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use palisade_lab::packet::read::read;
use palisade_lab::packet::{ProbePayload, ProbeSpec, build};
use socket2::{Domain, Protocol, Socket, Type};

use super::ground::{Ground, VICTIM};
use super::objects::TENANT;
use super::sender::{link_local, send_from};
use super::{AttackArgs, Findings};
use crate::cluster::pods::{Pod, enter};
use crate::cluster::traffic::Stream;

/// The addresses of the nodes, which may reach their own pods regardless of policies.
const NODES: [Ipv4Addr; 2] = [
    Ipv4Addr::new(172, 30, 0, 101),
    Ipv4Addr::new(172, 30, 0, 102),
];
/// The protocols of probes, and those of the sockets that see them.
const PROBES: [ProbePayload; 3] = [
    ProbePayload::Udp { port: 53 },
    ProbePayload::Tcp { port: 80 },
    ProbePayload::Echo,
];
const SEEN: [Protocol; 3] = [Protocol::UDP, Protocol::TCP, Protocol::ICMPV4];
/// The maximum time of a packet in flight.
const LAST: Duration = Duration::from_millis(300);
/// Messages of ICMPv6: router advertisement and redirect, and the solicitation that neighbours
/// send.
const ADVERTISEMENT: u8 = 134;
const REDIRECT: u8 = 137;
const SOLICITATION: u8 = 135;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Sends packets of a pod to another with a source address. Returns the number that arrived.
pub fn spoofed(program: &Path, from: &Pod, source: IpAddr, to: &Pod, count: u32) -> Result<Stream> {
    let mut packets = Vec::new();
    let mut ids = BTreeSet::new();
    for _ in 0..count {
        for carried in PROBES {
            let id = next();
            let draft = ProbeSpec {
                source,
                destination: to.address,
                carried,
                // Never the same twice: a sender that knows the ports of a UDP connection can add
                // packets to it by default.
                source_port: 20_000 + (id % 40_000) as u16,
                id,
            };
            let mut packet = Vec::new();
            build(&draft, &mut packet)?;
            packets.push(packet);
            ids.insert(id);
        }
    }
    let sockets = || SEEN.map(|it| (Domain::IPV4, it)).to_vec();
    let seen = receive(&to.network, &sockets(), || {
        send_from(from, program, &packets)
    })?;
    let arrived: BTreeSet<u32> = seen
        .iter()
        .filter_map(|it| read(it)?.id)
        .filter(|it| ids.contains(it))
        .collect();
    Ok(Stream {
        sent: packets.len() as u64,
        arrived: arrived.len() as u64,
        ..Stream::default()
    })
}

/// A number that no other probe has.
fn next() -> u32 {
    static LATEST: AtomicU32 = AtomicU32::new(1_000);
    LATEST.fetch_add(1, Ordering::Relaxed)
}

/// The packets that sockets of a network namespace receive during some work, after the input path.
fn receive(
    network: &Path,
    protocols: &[(Domain, Protocol)],
    work: impl FnOnce() -> Result<()>,
) -> Result<Vec<Vec<u8>>> {
    let is_quiet = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut workers = Vec::new();
        for (domain, protocol) in protocols.iter().copied() {
            let (ready, started) = channel();
            let is_quiet = &is_quiet;
            workers.push(scope.spawn(move || listen(network, domain, protocol, is_quiet, &ready)));
            // If it ends without an answer, its error follows below.
            let _ = started.recv();
        }
        let result = work();
        thread::sleep(LAST);
        is_quiet.store(true, Ordering::Release);
        let mut seen = Vec::new();
        for worker in workers {
            let received = worker.join().map_err(|_| anyhow!("a thread panicked"))?;
            seen.extend(received?);
        }
        result.map(|()| seen)
    })
}

fn listen(
    network: &Path,
    domain: Domain,
    protocol: Protocol,
    is_quiet: &AtomicBool,
    ready: &Sender<()>,
) -> Result<Vec<Vec<u8>>> {
    enter(network)?;
    let mut socket = Socket::new(domain, Type::RAW, Some(protocol))?;
    socket.set_read_timeout(Some(Duration::from_millis(50)))?;
    let _ = ready.send(());
    let mut seen = Vec::new();
    let mut buffer = [0; 2_048];
    while !is_quiet.load(Ordering::Acquire) {
        if let Ok(length) = socket.read(&mut buffer) {
            seen.push(buffer.get(..length).unwrap_or_default().to_vec());
        }
    }
    Ok(seen)
}

/// Senders, forged addresses and receivers: on one node and between two, as an allowed client and
/// as a node.
fn lies(ground: &Ground) -> Result<Vec<(&Pod, IpAddr, &Pod)>> {
    let (web, db) = (ground.pod(VICTIM, "web")?, ground.pod(VICTIM, "db")?);
    let [n1, n2] = NODES.map(IpAddr::V4);
    let mut lies = Vec::new();
    for from in [ground.pod(TENANT, "db")?, ground.pod(TENANT, "web")?] {
        let to_web = [db.address, n1, n2].map(|source| (from, source, web));
        let to_db = [web.address, n2, n1].map(|source| (from, source, db));
        lies.extend(to_web.into_iter().chain(to_db));
    }
    Ok(lies)
}

/// Shows that the packets arrive where no agent runs: they are well made, and what drops them later
/// are agents.
pub fn without_agents(ground: &Ground, program: &Path, findings: &mut Findings) -> Result<()> {
    let mut all = Stream::default();
    for (from, source, to) in lies(ground)? {
        let stream = spoofed(program, from, source, to, 5)?;
        all.sent += stream.sent;
        all.arrived += stream.arrived;
    }
    // A kernel takes no packet from outside with an address of its own: half of the lies are the
    // node's at that node.
    ensure!(all.arrived * 2 >= all.sent, "without agents: {all:?}");
    findings.note(format!(
        "without agents, {} of {} packets in the name of others arrive (the others name the node that they cross, which any kernel drops)",
        all.arrived, all.sent
    ));
    let received = router_messages(ground, program)?;
    findings.note(format!("without agents, {received}"));
    Ok(())
}

/// Packets of the tenant in the name of others.
pub fn senders(ground: &Ground, args: &AttackArgs, findings: &mut Findings) -> Result<()> {
    let program = std::env::current_exe()?;
    let (web, db) = (ground.pod(VICTIM, "web")?, ground.pod(VICTIM, "db")?);
    let honest = spoofed(&program, db, db.address, web, args.packets)?;
    ensure!(
        honest.arrived == honest.sent,
        "packets in one's own name: {honest:?}"
    );
    for is_after in [false, true] {
        let mut all = Stream::default();
        for (from, source, to) in lies(ground)? {
            let stream = spoofed(&program, from, source, to, args.packets)?;
            all.sent += stream.sent;
            all.arrived += stream.arrived;
            ensure!(
                stream.arrived == 0,
                "{} of {} packets of {} as {source} reached {}",
                stream.arrived,
                stream.sent,
                from.called(),
                to.called()
            );
        }
        findings.note(format!(
            "0 of {} packets in the name of others arrived{}; {} of {} in one's own name did (IPv4: these pods have no other routed family)",
            all.sent,
            if is_after { " after a restart" } else { "" },
            honest.arrived,
            honest.sent
        ));
        if !is_after {
            ground.restart(findings)?;
        }
    }
    Ok(())
}

/// What of a router's messages a node took.
#[derive(Clone, Copy, Debug, Default)]
struct RouterMessages {
    has_ipv6: bool,
    advertisements: usize,
    redirects: usize,
    solicitations: usize,
    has_route: bool,
    pod_redirects: usize,
}

impl std::fmt::Display for RouterMessages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.has_ipv6 {
            write!(
                f,
                "the pod's node takes {} of 10 router advertisements, {} of 10 redirects and {} of 10 neighbour solicitations, {} a route of the pod, and another pod ",
                self.advertisements,
                self.redirects,
                self.solicitations,
                if self.has_route { "gets" } else { "has not" },
            )?;
        } else {
            write!(f, "(no IPv6 here) another pod ")?;
        }
        write!(
            f,
            "takes {} of 10 ICMP redirects in its gateway's name",
            self.pod_redirects
        )
    }
}

/// Messages of routers, from a pod of the tenant to its node and to a pod beside it.
pub fn routers(ground: &Ground, _: &AttackArgs, findings: &mut Findings) -> Result<()> {
    let program = std::env::current_exe()?;
    for is_after in [false, true] {
        let received = router_messages(ground, &program)?;
        findings.note(received.to_string());
        ensure!(
            received.advertisements + received.redirects + received.pod_redirects == 0
                && !received.has_route,
            "messages of a pod as a router arrive: {received}"
        );
        ensure!(
            !received.has_ipv6 || received.solicitations == 10,
            "neighbor solicitations do not arrive: {received}"
        );
        if !is_after {
            ground.restart(findings)?;
        }
    }
    Ok(())
}

fn router_messages(ground: &Ground, program: &Path) -> Result<RouterMessages> {
    let (pod, web) = (ground.pod(TENANT, "db")?, ground.pod(VICTIM, "web")?);
    let mut received = RouterMessages {
        pod_redirects: redirects(pod, web, program)?,
        ..RouterMessages::default()
    };
    let Some((own, _)) = pod.inside(|| Ok(link_local()))? else {
        return Ok(received);
    };
    received.has_ipv6 = true;
    let node = ground.network(1);
    for (kind, count) in [
        (ADVERTISEMENT, &mut received.advertisements),
        (REDIRECT, &mut received.redirects),
        (SOLICITATION, &mut received.solicitations),
    ] {
        let packets = (0..10).map(|_| message(own, kind));
        let packets = packets.collect::<Result<Vec<_>>>()?;
        let seen = receive(&node, &[(Domain::IPV6, Protocol::ICMPV6)], || {
            send_from(pod, program, &packets)
        })?;
        let tails = packets.iter().filter_map(|it| it.last_chunk::<8>());
        let tails: BTreeSet<&[u8; 8]> = tails.collect();
        let of_kind = seen.iter().filter(|it| it.first() == Some(&kind));
        let ours = of_kind.filter(|it| it.last_chunk().is_some_and(|it| tails.contains(it)));
        *count = ours.count();
    }
    let mut routes = ground.whole.cluster.enter(1, Path::new("ip"));
    let routes = routes
        .args(["-6", "route", "show", "default"])
        .output()
        .context("cannot run ip")?;
    received.has_route = !routes.stdout.trim_ascii().is_empty();
    Ok(received)
}

/// A message of a router, as it must be to be believed.
fn message(own: Ipv6Addr, kind: u8) -> Result<Vec<u8>> {
    let draft = ProbeSpec {
        source: own.into(),
        destination: ALL_NODES.into(),
        carried: ProbePayload::Icmpv6 { kind },
        source_port: 0,
        id: next(),
    };
    let mut packet = Vec::new();
    build(&draft, &mut packet)?;
    if let Some(hops) = packet.get_mut(7) {
        *hops = 255;
    }
    if kind == ADVERTISEMENT {
        // It is a router for this long.
        add(&mut packet, 46, 42, 1_800);
    }
    Ok(packet)
}

/// Sends ICMP redirects to a pod with the address of its gateway. Returns the number that arrived.
fn redirects(from: &Pod, to: &Pod, program: &Path) -> Result<usize> {
    let IpAddr::V4(address) = to.address else {
        return Ok(0);
    };
    let [a, b, c, _] = address.octets();
    let mut packets = Vec::new();
    for _ in 0..10 {
        let draft = ProbeSpec {
            source: IpAddr::V4(Ipv4Addr::new(a, b, c, 1)),
            destination: to.address,
            carried: ProbePayload::Echo,
            source_port: 7,
            id: next(),
        };
        let mut packet = Vec::new();
        build(&draft, &mut packet)?;
        // The type of an echo request is 8, that of a redirect 5.
        add(&mut packet, 20, 22, 0_u16.wrapping_sub(0x0300));
        packets.push(packet);
    }
    let seen = receive(&to.network, &[(Domain::IPV4, Protocol::ICMPV4)], || {
        send_from(from, program, &packets)
    })?;
    Ok(seen.iter().filter(|it| it.get(20) == Some(&5)).count())
}

/// Adds a number to a word of a packet, and takes it out of the checksum at another place.
fn add(packet: &mut [u8], at: usize, checksum: usize, number: u16) {
    let get = |packet: &[u8], at: usize| -> Option<u16> {
        let bytes: [u8; 2] = packet.get(at..at + 2)?.try_into().ok()?;
        Some(u16::from_be_bytes(bytes))
    };
    let (Some(old), Some(sum)) = (get(packet, at), get(packet, checksum)) else {
        return;
    };
    let new = old.wrapping_add(number);
    // RFC 1624: HC' = ~(~HC + ~m + m').
    let mut all = u32::from(!sum) + u32::from(!old) + u32::from(new);
    while all > 0xffff {
        all = (all & 0xffff) + (all >> 16);
    }
    for (at, word) in [(at, new), (checksum, !(all as u16))] {
        if let Some(bytes) = packet.get_mut(at..at + 2) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum of an ICMP message with its checksum, as RFC 1071 has it; right if all bits are set.
    fn sum(bytes: &[u8]) -> u16 {
        let words = bytes.chunks(2).map(|it| {
            let low = it.get(1).copied().unwrap_or(0);
            u32::from(u16::from_be_bytes([it[0], low]))
        });
        let mut all: u32 = words.sum();
        while all > 0xffff {
            all = (all & 0xffff) + (all >> 16);
        }
        all as u16
    }

    #[test]
    fn a_changed_word_keeps_the_checksum_right() {
        let draft = ProbeSpec {
            source: "10.0.0.1".parse().unwrap(),
            destination: "10.0.0.2".parse().unwrap(),
            carried: ProbePayload::Echo,
            source_port: 7,
            id: 9,
        };
        let mut packet = Vec::new();
        build(&draft, &mut packet).unwrap();
        assert_eq!(sum(&packet[20..]), 0xffff);
        add(&mut packet, 20, 22, 0_u16.wrapping_sub(0x0300));
        assert_eq!(packet[20], 5);
        assert_eq!(sum(&packet[20..]), 0xffff);
    }

    #[test]
    fn an_advertisement_is_one_of_a_router() {
        let own = "fe80::1".parse().unwrap();
        let packet = message(own, ADVERTISEMENT).unwrap();
        assert_eq!((packet[7], packet[40]), (255, ADVERTISEMENT));
        assert_eq!(packet[46..48], 1_800_u16.to_be_bytes());
    }
}
