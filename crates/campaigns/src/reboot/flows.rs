//! Flows of pods, of the outside and of the node.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use palisade_core::net::Family;
use palisade_lab::network::LabNetwork;
use palisade_lab::topology::Location;

use super::node::{CLIENT, ISOLATED, NODE, PODS, PORT, SERVER, address};
use super::tally::{FlowKind, Tally, Times, tally_packets};
use crate::faults::traffic::Clock;

/// A port that no policy allows, a denied port that replies, and the port of the node's probes.
const DENIED_PORT: u16 = 5_002;
const REPLYING_PORT: u16 = 5_003;
const PROBE_PORT: u16 = 5_010;
/// The TCP port of pods for probes of their node.
const TCP_PORT: u16 = 8_080;

/// Sockets per flow, in turn: each is a connection of its own.
const SOCKETS: usize = 4;
/// The timeout of a connection from the node to its pod.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The time within which pods must reply at first, and the time of one reply.
const WARM_UP_TIMEOUT: Duration = Duration::from_secs(20);
const REPLY_TIME: Duration = Duration::from_millis(25);
/// Rounds between two TCP probes.
const TCP_PROBE_ROUNDS: usize = 20;

/// Source, destination, port and kind of each flow.
const FLOWS: [(FlowKind, Location, Location, u16); 15] = [
    (FlowKind::Allowed, CLIENT, SERVER, PORT),
    (FlowKind::Allowed, Location::Outside, SERVER, PORT),
    (FlowKind::Allowed, CLIENT, Location::Outside, PORT),
    (FlowKind::Allowed, SERVER, NODE, PORT),
    (FlowKind::Denied, CLIENT, SERVER, DENIED_PORT),
    (FlowKind::Denied, ISOLATED, SERVER, PORT),
    (FlowKind::Denied, CLIENT, ISOLATED, PORT),
    (FlowKind::Denied, Location::Outside, ISOLATED, PORT),
    (FlowKind::Denied, Location::Outside, SERVER, DENIED_PORT),
    (FlowKind::Denied, ISOLATED, Location::Outside, PORT),
    (FlowKind::Denied, ISOLATED, NODE, PORT),
    (FlowKind::Established, ISOLATED, SERVER, REPLYING_PORT),
    (FlowKind::Probe, NODE, CLIENT, PROBE_PORT),
    (FlowKind::Probe, NODE, SERVER, PROBE_PORT),
    (FlowKind::Probe, NODE, ISOLATED, PROBE_PORT),
];

/// One flow of one family.
#[derive(Debug)]
struct Flow {
    kind: FlowKind,
    from: Vec<UdpSocket>,
    to: SocketAddr,
    /// The time of each packet, and whether it arrived, or was answered if it is a probe.
    packets: Vec<(u64, bool)>,
}

/// All flows.
#[derive(Debug)]
pub(super) struct Flows {
    network: LabNetwork,
    clock: Clock,
    flows: Vec<Flow>,
    /// The receiving sockets, and whether they echo.
    receivers: Vec<(UdpSocket, bool)>,
    listeners: Vec<(SocketAddr, TcpListener)>,
    /// The number of TCP probes, and those that failed, with the time of their start.
    tcp: u64,
    failed: Vec<(u64, String)>,
    rounds: usize,
}

impl Flows {
    /// Opens the sockets in all locations.
    pub(super) fn open(network: &LabNetwork, clock: Clock) -> Result<Flows> {
        let socket = |place, at: SocketAddr| -> Result<UdpSocket> {
            let socket = network.run_in(place, || UdpSocket::bind(at))?;
            let socket = socket.with_context(|| format!("cannot bind {at}"))?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let mut flows = Vec::new();
        let mut receivers: Vec<(UdpSocket, bool)> = Vec::new();
        let mut bound = Vec::new();
        for family in Family::BOTH {
            for (kind, from, to, port) in FLOWS {
                let at = SocketAddr::new(address(to, family), port);
                if !bound.contains(&at) {
                    bound.push(at);
                    let is_echo = matches!(kind, FlowKind::Established | FlowKind::Probe);
                    receivers.push((socket(to, at)?, is_echo));
                }
                let own = SocketAddr::new(address(from, family), 0);
                let count = if kind == FlowKind::Established {
                    1
                } else {
                    SOCKETS
                };
                let from = (0..count).map(|_| socket(from, own));
                flows.push(Flow {
                    kind,
                    from: from.collect::<Result<_>>()?,
                    to: at,
                    packets: Vec::new(),
                });
            }
        }
        let mut listeners = Vec::new();
        for (place, _) in PODS {
            for family in Family::BOTH {
                let at = SocketAddr::new(address(place, family), TCP_PORT);
                let listener = network.run_in(place, || TcpListener::bind(at))?;
                let listener = listener.with_context(|| format!("cannot listen at {at}"))?;
                listener.set_nonblocking(true)?;
                listeners.push((at, listener));
            }
        }
        Ok(Flows {
            network: network.clone(),
            clock,
            flows,
            receivers,
            listeners,
            tcp: 0,
            failed: Vec::new(),
            rounds: 0,
        })
    }

    /// Probes the pods until each has replied, before the first table: the first packets of new
    /// namespaces can be lost. These packets do not count.
    pub(super) fn warm_up(&mut self) -> Result<()> {
        let deadline = Instant::now() + WARM_UP_TIMEOUT;
        loop {
            self.failed.clear();
            self.connect()?;
            for (place, flow) in self.flows.iter_mut().enumerate() {
                if flow.kind == FlowKind::Probe {
                    flow.packets = vec![(0, false)];
                    for socket in &flow.from {
                        let head = (place as u64) << 32;
                        // A packet that is not sent is not answered.
                        let _ = socket.send_to(&head.to_be_bytes(), flow.to);
                    }
                }
            }
            // Twice: for the probes and for their replies. None may be in flight at the end.
            for _ in 0..2 {
                thread::sleep(REPLY_TIME);
                self.receive();
            }
            let has_replied = |flow: &Flow| match flow.kind {
                FlowKind::Probe => flow.packets.iter().all(|(_, answered)| *answered),
                FlowKind::Allowed | FlowKind::Denied | FlowKind::Established => true,
            };
            if self.failed.is_empty() && self.flows.iter().all(has_replied) {
                break;
            }
            ensure!(Instant::now() < deadline, "the pods do not reply");
        }
        for flow in &mut self.flows {
            flow.packets.clear();
        }
        self.tcp = 0;
        Ok(())
    }

    /// Sends a packet of every flow, and receives the packets that have arrived.
    pub(super) fn round(&mut self) -> Result<()> {
        for (place, flow) in self.flows.iter_mut().enumerate() {
            let number = flow.packets.len();
            let head = (place as u64) << 32 | number as u64;
            flow.packets.push((self.clock.now(), false));
            if let Some(socket) = flow.from.get(number % flow.from.len().max(1)) {
                // An error concerns an earlier packet, or is the verdict on this one.
                let _ = socket.send_to(&head.to_be_bytes(), flow.to);
            }
        }
        self.rounds += 1;
        if self.rounds % TCP_PROBE_ROUNDS == 1 {
            self.connect()?;
        }
        self.receive();
        Ok(())
    }

    /// Opens a connection from the node to each of its pods.
    fn connect(&mut self) -> Result<()> {
        for (at, listener) in &self.listeners {
            let started = self.clock.now();
            let opened = self
                .network
                .run_in(NODE, || TcpStream::connect_timeout(at, CONNECT_TIMEOUT))?;
            self.tcp += 1;
            if let Err(error) = opened {
                let took = (self.clock.now() - started) / 1_000_000;
                let message = format!("TCP to {at} after {took} ms: {error}");
                self.failed.push((started, message));
            }
            // Empties the queue of accepted connections.
            while listener.accept().is_ok() {}
        }
        Ok(())
    }

    /// Receives the packets that have arrived, and echoes probes.
    pub(super) fn receive(&mut self) {
        for (receiver, is_echo) in &self.receivers {
            while let Some((head, from)) = next(receiver) {
                if *is_echo {
                    // The sender detects a lost reply.
                    let _ = receiver.send_to(&head.to_be_bytes(), from);
                } else {
                    record(&mut self.flows, head);
                }
            }
        }
        let mut replies = Vec::new();
        for flow in &self.flows {
            if matches!(flow.kind, FlowKind::Established | FlowKind::Probe) {
                for socket in &flow.from {
                    replies.extend(std::iter::from_fn(|| next(socket)).map(|(head, _)| head));
                }
            }
        }
        for head in replies {
            record(&mut self.flows, head);
        }
    }

    /// Tallies all packets.
    pub(super) fn tally(&self, times: Times) -> Tally {
        let mut tally = Tally::default();
        for flow in &self.flows {
            tally.add(tally_packets(
                flow.kind,
                flow.packets.iter().copied(),
                times,
            ));
        }
        tally.probes += self.tcp;
        tally.unanswered += self.failed.len() as u64;
        tally
    }

    /// The flows with leaked, lost or unanswered packets, as text.
    pub(super) fn examples(&self, times: Times) -> Vec<String> {
        let after = |from: u64, at: u64| (at as f64 - from as f64) / 1e6;
        let failed = self.failed.iter().map(|(started, message)| {
            let [table, ready] = [times.table, times.ready].map(|it| after(it, *started));
            format!("{message}; {table:.1} ms after the first table, {ready:.1} after ready")
        });
        let mut message: Vec<String> = failed.collect();
        for (flow, (kind, from, to, _)) in self.flows.iter().zip(FLOWS.iter().cycle()) {
            let tally = tally_packets(flow.kind, flow.packets.iter().copied(), times);
            if tally.leaked + tally.lost + tally.unanswered > 0 {
                let wrong = matches!(kind, FlowKind::Denied | FlowKind::Established);
                let packets = flow.packets.iter().filter(|(_, it)| *it == wrong);
                let when = packets.map(|(at, _)| after(times.table, *at));
                let when: Vec<String> = when.take(3).map(|it| format!("{it:.1}")).collect();
                message.push(format!(
                    "{kind:?} {from} to {to} at {}: {} leaked, {} lost, {} unanswered; the first {} ms after \
                     the first table; ready {:.1} ms after it",
                    flow.to,
                    tally.leaked,
                    tally.lost,
                    tally.unanswered,
                    when.join(", "),
                    after(times.table, times.ready)
                ));
            }
        }
        message
    }
}

fn record(flows: &mut [Flow], head: u64) {
    let (place, number) = ((head >> 32) as usize, head as u32 as usize);
    let flow = flows.get_mut(place);
    if let Some((_, arrived)) = flow.and_then(|it| it.packets.get_mut(number)) {
        *arrived = true;
    }
}

/// The next packet of a socket.
fn next(socket: &UdpSocket) -> Option<(u64, SocketAddr)> {
    loop {
        let mut head = [0; 8];
        match socket.recv_from(&mut head) {
            Ok((8, from)) => return Some((u64::from_be_bytes(head), from)),
            Ok(_) => {}
            // An ICMP error of an earlier packet.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(_) => return None,
        }
    }
}
