//! Packets of pods, of the outside and of the node, all the time.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use palisade_core::net::Family;
use palisade_lab::network::LabNetwork;
use palisade_lab::topology::Location;

use super::judge::{Kind, Tally, Times, judge};
use super::node::{CLIENT, NODE, PODS, PORT, SERVER, STRANGER, address};
use crate::faults::traffic::Clock;

/// A port that no policy allows, one at which the denied are answered, and one at which the node is.
const OTHER: u16 = 5_002;
const ANSWERED: u16 = 5_003;
const PROBED: u16 = 5_010;
/// Where pods listen with TCP for their node.
const TCP: u16 = 8_080;

/// So many sockets of a flow take turns: each is a connection of its own.
const SOCKETS: usize = 4;
/// How long a connection of the node to its pod may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long pods may take until they answer at all, and how long an answer takes.
const LONGEST_START: Duration = Duration::from_secs(20);
const ANSWER: Duration = Duration::from_millis(25);
/// After so many rounds the node asks its pods by TCP.
const TCP_ROUND: usize = 20;

/// Who sends to whom at which port, and what the policies of the node say of it.
const FLOWS: [(Kind, Location, Location, u16); 15] = [
    (Kind::Allowed, CLIENT, SERVER, PORT),
    (Kind::Allowed, Location::Outside, SERVER, PORT),
    (Kind::Allowed, CLIENT, Location::Outside, PORT),
    (Kind::Allowed, SERVER, NODE, PORT),
    (Kind::Denied, CLIENT, SERVER, OTHER),
    (Kind::Denied, STRANGER, SERVER, PORT),
    (Kind::Denied, CLIENT, STRANGER, PORT),
    (Kind::Denied, Location::Outside, STRANGER, PORT),
    (Kind::Denied, Location::Outside, SERVER, OTHER),
    (Kind::Denied, STRANGER, Location::Outside, PORT),
    (Kind::Denied, STRANGER, NODE, PORT),
    (Kind::Begun, STRANGER, SERVER, ANSWERED),
    (Kind::Probe, NODE, CLIENT, PROBED),
    (Kind::Probe, NODE, SERVER, PROBED),
    (Kind::Probe, NODE, STRANGER, PROBED),
];

/// One flow of one family.
#[derive(Debug)]
struct Flow {
    kind: Kind,
    from: Vec<UdpSocket>,
    to: SocketAddr,
    /// When each packet was sent, and whether it arrived, or was answered if it has to be.
    packets: Vec<(u64, bool)>,
}

/// All flows.
#[derive(Debug)]
pub(super) struct Flows {
    world: LabNetwork,
    clock: Clock,
    flows: Vec<Flow>,
    /// Where packets arrive, and whether they are sent back.
    receivers: Vec<(UdpSocket, bool)>,
    listeners: Vec<(SocketAddr, TcpListener)>,
    /// How many connections the node has opened to its pods, and those that failed, with the time of their start.
    tcp: u64,
    failed: Vec<(u64, String)>,
    rounds: usize,
}

impl Flows {
    /// Opens the sockets in all places.
    pub(super) fn open(world: &LabNetwork, clock: Clock) -> Result<Flows> {
        let socket = |place, at: SocketAddr| -> Result<UdpSocket> {
            let socket = world.run_in(place, || UdpSocket::bind(at))?;
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
                    let is_echo = matches!(kind, Kind::Begun | Kind::Probe);
                    receivers.push((socket(to, at)?, is_echo));
                }
                let own = SocketAddr::new(address(from, family), 0);
                let count = if kind == Kind::Begun { 1 } else { SOCKETS };
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
                let at = SocketAddr::new(address(place, family), TCP);
                let listener = world.run_in(place, || TcpListener::bind(at))?;
                let listener = listener.with_context(|| format!("cannot listen at {at}"))?;
                listener.set_nonblocking(true)?;
                listeners.push((at, listener));
            }
        }
        Ok(Flows {
            world: world.clone(),
            clock,
            flows,
            receivers,
            listeners,
            tcp: 0,
            failed: Vec::new(),
            rounds: 0,
        })
    }

    /// Has the node ask its pods until each has answered once, before anything is enforced: the first packets of new
    /// namespaces can be lost. None of these packets counts.
    pub(super) fn warm_up(&mut self) -> Result<()> {
        let deadline = Instant::now() + LONGEST_START;
        loop {
            self.failed.clear();
            self.connect()?;
            for (place, flow) in self.flows.iter_mut().enumerate() {
                if flow.kind == Kind::Probe {
                    flow.packets = vec![(0, false)];
                    for socket in &flow.from {
                        let head = (place as u64) << 32;
                        // What is not sent is not answered.
                        let _ = socket.send_to(&head.to_be_bytes(), flow.to);
                    }
                }
            }
            // Twice: what is sent back has to arrive, and nothing may be under way at the end.
            for _ in 0..2 {
                thread::sleep(ANSWER);
                self.receive();
            }
            let has_answered = |flow: &Flow| match flow.kind {
                Kind::Probe => flow.packets.iter().all(|(_, answered)| *answered),
                Kind::Allowed | Kind::Denied | Kind::Begun => true,
            };
            if self.failed.is_empty() && self.flows.iter().all(has_answered) {
                break;
            }
            ensure!(Instant::now() < deadline, "the pods do not come up");
        }
        for flow in &mut self.flows {
            flow.packets.clear();
        }
        self.tcp = 0;
        Ok(())
    }

    /// Sends a packet of every flow, and takes what has arrived.
    pub(super) fn round(&mut self) -> Result<()> {
        for (place, flow) in self.flows.iter_mut().enumerate() {
            let number = flow.packets.len();
            let head = (place as u64) << 32 | number as u64;
            flow.packets.push((self.clock.now(), false));
            if let Some(socket) = flow.from.get(number % flow.from.len().max(1)) {
                // A refusal is about an earlier packet, or what the kernel says to this one.
                let _ = socket.send_to(&head.to_be_bytes(), flow.to);
            }
        }
        self.rounds += 1;
        if self.rounds % TCP_ROUND == 1 {
            self.connect()?;
        }
        self.receive();
        Ok(())
    }

    /// The node opens a connection to each of its pods.
    fn connect(&mut self) -> Result<()> {
        for (at, listener) in &self.listeners {
            let began = self.clock.now();
            let opened = self
                .world
                .run_in(NODE, || TcpStream::connect_timeout(at, PATIENCE))?;
            self.tcp += 1;
            if let Err(error) = opened {
                let took = (self.clock.now() - began) / 1_000_000;
                let words = format!("TCP to {at} after {took} ms: {error}");
                self.failed.push((began, words));
            }
            // The kernel has accepted it; this makes room.
            while listener.accept().is_ok() {}
        }
        Ok(())
    }

    /// Takes what has arrived, and sends back what is to be answered.
    pub(super) fn receive(&mut self) {
        for (receiver, is_echo) in &self.receivers {
            while let Some((head, from)) = next(receiver) {
                if *is_echo {
                    // Its sender finds out if it does not come.
                    let _ = receiver.send_to(&head.to_be_bytes(), from);
                } else {
                    note(&mut self.flows, head);
                }
            }
        }
        let mut answers = Vec::new();
        for flow in &self.flows {
            if matches!(flow.kind, Kind::Begun | Kind::Probe) {
                for socket in &flow.from {
                    answers.extend(std::iter::from_fn(|| next(socket)).map(|(head, _)| head));
                }
            }
        }
        for head in answers {
            note(&mut self.flows, head);
        }
    }

    /// What became of all packets.
    pub(super) fn judge(&self, times: Times) -> Tally {
        let mut tally = Tally::default();
        for flow in &self.flows {
            tally.add(judge(flow.kind, flow.packets.iter().copied(), times));
        }
        tally.probes += self.tcp;
        tally.unanswered += self.failed.len() as u64;
        tally
    }

    /// The flows that leaked or were lost, in words.
    pub(super) fn examples(&self, times: Times) -> Vec<String> {
        let after = |from: u64, at: u64| (at as f64 - from as f64) / 1e6;
        let failed = self.failed.iter().map(|(began, words)| {
            let [table, ready] = [times.table, times.ready].map(|it| after(it, *began));
            format!("{words}; {table:.1} ms after the first table, {ready:.1} after ready")
        });
        let mut words: Vec<String> = failed.collect();
        for (flow, (kind, from, to, _)) in self.flows.iter().zip(FLOWS.iter().cycle()) {
            let tally = judge(flow.kind, flow.packets.iter().copied(), times);
            if tally.leaked + tally.lost + tally.unanswered > 0 {
                let wrong = matches!(kind, Kind::Denied | Kind::Begun);
                let packets = flow.packets.iter().filter(|(_, it)| *it == wrong);
                let when = packets.map(|(at, _)| after(times.table, *at));
                let when: Vec<String> = when.take(3).map(|it| format!("{it:.1}")).collect();
                words.push(format!(
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
        words
    }
}

fn note(flows: &mut [Flow], head: u64) {
    let (place, number) = ((head >> 32) as usize, head as u32 as usize);
    let flow = flows.get_mut(place);
    if let Some((_, arrived)) = flow.and_then(|it| it.packets.get_mut(number)) {
        *arrived = true;
    }
}

/// The next packet that waits at a socket.
fn next(socket: &UdpSocket) -> Option<(u64, SocketAddr)> {
    loop {
        let mut head = [0; 8];
        match socket.recv_from(&mut head) {
            Ok((8, from)) => return Some((u64::from_be_bytes(head), from)),
            Ok(_) => {}
            // An ICMP error about an earlier packet.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(_) => return None,
        }
    }
}
