//! Connections between pods, and packets that other pods put into them.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result};
use palisade_core::net::Family;
use palisade_lab::packet::fragment::split;
use palisade_lab::packet::segment::{ACK, PSH, Segment};
use palisade_lab::packet::{ProbePayload, ProbeSpec, build, datagram};
use palisade_lab::topology::Location;

use super::bytes::{Batch, HONEST_PROTOCOLS};
use super::cluster::{Cluster, PODS, address, share_bridge};
use super::report::Count;
use palisade_generate::Rng;

/// Clients and servers: routed and bridged, on one node and on two.
const PAIRS: [(usize, usize); 4] = [(0, 5), (2, 5), (0, 4), (5, 2)];
/// The ports of servers, of TCP and UDP, and the first of clients of UDP.
const TCP: u16 = 8_080;
const UDP: u16 = 5_353;
const CLIENTS: u16 = 5_300;
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection of TCP, with what keeps it open.
#[derive(Debug)]
struct Stream {
    client: SocketAddr,
    server: SocketAddr,
    _open: (TcpStream, TcpStream),
}

/// A connection of every protocol and family between each pair.
#[derive(Debug)]
pub(super) struct Connections {
    streams: Vec<(usize, usize, Stream)>,
}

impl Connections {
    /// Opens them. Agents enforce already.
    pub(super) fn open(cluster: &Cluster) -> Result<Connections> {
        let world = cluster.world();
        let mut streams = Vec::new();
        for (client, server) in PAIRS {
            for family in Family::BOTH {
                let at = SocketAddr::new(address(Location::Pod(server), family), TCP);
                let listener = world.in_pod(server, || TcpListener::bind(at))?;
                let listener = listener.with_context(|| format!("cannot listen at {at}"))?;
                let near = world.in_pod(client, || TcpStream::connect_timeout(&at, PATIENCE))?;
                let near = near.with_context(|| format!("cannot connect to {at}"))?;
                let (far, from) = listener.accept()?;
                let stream = Stream {
                    client: from,
                    server: at,
                    _open: (near, far),
                };
                streams.push((client, server, stream));
            }
        }
        Ok(Connections { streams })
    }

    /// Lets both ends of every connection send once, so that none of them ends; how many of those packets arrived.
    pub(super) fn refresh(&self, cluster: &mut Cluster, next: &mut u32) -> Result<Count> {
        let mut count = Count::default();
        for (number, (client, server)) in PAIRS.into_iter().enumerate() {
            for (from, to, is_back) in [(client, server, false), (server, client, true)] {
                let mut batch = Batch::default();
                let gateway = cluster.world().gateway_hardware(from);
                let first = *next;
                for family in Family::BOTH {
                    for carried in carried(number, is_back) {
                        let draft = draft((from, to, family), number, is_back, carried, *next);
                        let mut packet = Vec::new();
                        build(&draft, &mut packet)?;
                        batch.add_bytes(gateway, packet);
                        *next += 1;
                    }
                }
                let sent = (*next - first) as usize;
                let arrivals = batch.send(&mut cluster.wire, Location::Pod(from), first, sent)?;
                let there = arrivals.places.iter().flatten();
                count.add(
                    sent as u64,
                    there.filter(|it| **it == Location::Pod(to)).count() as u64,
                );
            }
        }
        Ok(count)
    }

    /// A packet of some connection, or its fragments, from a pod that is neither of its ends; `None` if its sender shares a bridge with who it
    /// claims to be, unless that is wanted.
    pub(super) fn injected(
        &self,
        rng: &mut Rng,
        from: usize,
        same_bridge: bool,
        id: u32,
    ) -> Result<Option<Vec<Vec<u8>>>> {
        let number = rng.below(PAIRS.len() as u64) as usize;
        let Some((client, server)) = PAIRS.get(number).copied() else {
            return Ok(None);
        };
        let is_back = rng.chance(50);
        let (claimed, to) = match is_back {
            false => (client, server),
            true => (server, client),
        };
        if from == claimed || from == to || share_bridge(from, claimed) != same_bridge {
            return Ok(None);
        }
        let family = match rng.chance(50) {
            true => Family::V4,
            false => Family::V6,
        };
        let ends = (claimed, to, family);
        let packets = match rng.below(5) {
            0 => vec![self.segment((client, server), family, is_back, id)?],
            1 => {
                let carried = ProbePayload::Udp {
                    port: udp_port(number, is_back),
                };
                let draft = draft(ends, number, is_back, carried, id);
                split(&datagram(&draft, 1_800)?, 1_200, id)?
            }
            _ => {
                let all = carried(number, is_back);
                let place = rng.below(all.len() as u64) as usize;
                let carried = all.get(place).copied().unwrap_or(ProbePayload::Echo);
                let mut packet = Vec::new();
                build(&draft(ends, number, is_back, carried, id), &mut packet)?;
                vec![packet]
            }
        };
        Ok(Some(packets))
    }

    fn segment(
        &self,
        pair: (usize, usize),
        family: Family,
        is_back: bool,
        id: u32,
    ) -> Result<Vec<u8>> {
        let is_it = |(client, server, stream): &&(usize, usize, Stream)| {
            (*client, *server) == pair && stream.server.is_ipv6() == (family == Family::V6)
        };
        let (_, _, stream) = self.streams.iter().find(is_it).context("no connection")?;
        let (source, destination) = match is_back {
            false => (stream.client, stream.server),
            true => (stream.server, stream.client),
        };
        let segment = Segment {
            source,
            destination,
            flags: ACK | PSH,
            sequence: id,
            acknowledgment: 1,
            data: b"not of this connection",
        };
        Ok(segment.build()?)
    }
}

/// Any pod.
pub(super) fn any_pod(rng: &mut Rng) -> usize {
    rng.below(PODS.len() as u64) as usize
}

fn udp_port(number: usize, is_back: bool) -> u16 {
    match is_back {
        false => UDP,
        true => CLIENTS + number as u16,
    }
}

/// The packets of one direction of a pair's connections, beside TCP. Only clients send echo requests.
fn carried(number: usize, is_back: bool) -> Vec<ProbePayload> {
    let udp = ProbePayload::Udp {
        port: udp_port(number, is_back),
    };
    let [protocol, _] = HONEST_PROTOCOLS;
    let echo = (!is_back).then_some(ProbePayload::Echo);
    [udp, ProbePayload::Other { protocol }]
        .into_iter()
        .chain(echo)
        .collect()
}

fn draft(
    (source, to, family): (usize, usize, Family),
    number: usize,
    is_back: bool,
    carried: ProbePayload,
    id: u32,
) -> ProbeSpec {
    ProbeSpec {
        source: address(Location::Pod(source), family),
        destination: address(Location::Pod(to), family),
        carried,
        source_port: udp_port(number, !is_back),
        id,
    }
}
