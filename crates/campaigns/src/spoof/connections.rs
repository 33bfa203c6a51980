//! Connections between pods, and packets that other pods inject into them.

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
/// The TCP and UDP ports of servers, and the first UDP port of clients.
const TCP_PORT: u16 = 8_080;
const UDP_PORT: u16 = 5_353;
const FIRST_CLIENT_PORT: u16 = 5_300;
const TIMEOUT: Duration = Duration::from_secs(5);

/// An open TCP connection.
#[derive(Debug)]
struct Stream {
    client: SocketAddr,
    server: SocketAddr,
    _open: (TcpStream, TcpStream),
}

/// A connection for every protocol and family between each pair.
#[derive(Debug)]
pub(super) struct Connections {
    streams: Vec<(usize, usize, Stream)>,
}

impl Connections {
    /// Opens the connections. The agents must be ready.
    pub(super) fn open(cluster: &Cluster) -> Result<Connections> {
        let network = cluster.network();
        let mut streams = Vec::new();
        for (client, server) in PAIRS {
            for family in Family::BOTH {
                let at = SocketAddr::new(address(Location::Pod(server), family), TCP_PORT);
                let listener = network.in_pod(server, || TcpListener::bind(at))?;
                let listener = listener.with_context(|| format!("cannot listen at {at}"))?;
                let client_stream =
                    network.in_pod(client, || TcpStream::connect_timeout(&at, TIMEOUT))?;
                let client_stream =
                    client_stream.with_context(|| format!("cannot connect to {at}"))?;
                let (server_stream, from) = listener.accept()?;
                let stream = Stream {
                    client: from,
                    server: at,
                    _open: (client_stream, server_stream),
                };
                streams.push((client, server, stream));
            }
        }
        Ok(Connections { streams })
    }

    /// Sends a packet in both directions of every connection, which keeps it alive. Counts those
    /// that arrive.
    pub(super) fn refresh(&self, cluster: &mut Cluster, next: &mut u32) -> Result<Count> {
        let mut count = Count::default();
        for (number, (client, server)) in PAIRS.into_iter().enumerate() {
            for (from, to, is_reply) in [(client, server, false), (server, client, true)] {
                let mut batch = Batch::default();
                let gateway = cluster.network().gateway_hardware(from);
                let first = *next;
                for family in Family::BOTH {
                    for payloads in payloads(number, is_reply) {
                        let probe = probe((from, to, family), number, is_reply, payloads, *next);
                        let mut packet = Vec::new();
                        build(&probe, &mut packet)?;
                        batch.add_bytes(gateway, packet);
                        *next += 1;
                    }
                }
                let sent = (*next - first) as usize;
                let arrivals = batch.send(&mut cluster.wire, Location::Pod(from), first, sent)?;
                let there = arrivals.locations.iter().flatten();
                count.add(
                    sent as u64,
                    there.filter(|it| **it == Location::Pod(to)).count() as u64,
                );
            }
        }
        Ok(count)
    }

    /// A packet of a random connection, or its fragments, sent by a pod that is neither of its
    /// ends. `None` unless `same_bridge` says whether the sender shares a bridge with the pod whose
    /// address it uses.
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
        let is_reply = rng.chance(50);
        let (claimed, to) = match is_reply {
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
            0 => vec![self.segment((client, server), family, is_reply, id)?],
            1 => {
                let payloads = ProbePayload::Udp {
                    port: udp_port(number, is_reply),
                };
                let probe = probe(ends, number, is_reply, payloads, id);
                split(&datagram(&probe, 1_800)?, 1_200, id)?
            }
            _ => {
                let all = payloads(number, is_reply);
                let place = rng.below(all.len() as u64) as usize;
                let payloads = all.get(place).copied().unwrap_or(ProbePayload::Echo);
                let mut packet = Vec::new();
                build(&probe(ends, number, is_reply, payloads, id), &mut packet)?;
                vec![packet]
            }
        };
        Ok(Some(packets))
    }

    fn segment(
        &self,
        pair: (usize, usize),
        family: Family,
        is_reply: bool,
        id: u32,
    ) -> Result<Vec<u8>> {
        let is_match = |(client, server, stream): &&(usize, usize, Stream)| {
            (*client, *server) == pair && stream.server.is_ipv6() == (family == Family::V6)
        };
        let (_, _, stream) = self
            .streams
            .iter()
            .find(is_match)
            .context("no connection")?;
        let (source, destination) = match is_reply {
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

/// A random pod.
pub(super) fn any_pod(rng: &mut Rng) -> usize {
    rng.below(PODS.len() as u64) as usize
}

fn udp_port(number: usize, is_reply: bool) -> u16 {
    match is_reply {
        false => UDP_PORT,
        true => FIRST_CLIENT_PORT + number as u16,
    }
}

/// The packets of one direction of a pair's connections, beside TCP. Only clients send echo
/// requests.
fn payloads(number: usize, is_reply: bool) -> Vec<ProbePayload> {
    let udp = ProbePayload::Udp {
        port: udp_port(number, is_reply),
    };
    let [protocol, _] = HONEST_PROTOCOLS;
    let echo = (!is_reply).then_some(ProbePayload::Echo);
    [udp, ProbePayload::Other { protocol }]
        .into_iter()
        .chain(echo)
        .collect()
}

fn probe(
    (source, to, family): (usize, usize, Family),
    number: usize,
    is_reply: bool,
    payload: ProbePayload,
    id: u32,
) -> ProbeSpec {
    ProbeSpec {
        source: address(Location::Pod(source), family),
        destination: address(Location::Pod(to), family),
        carried: payload,
        source_port: udp_port(number, !is_reply),
        id,
    }
}
