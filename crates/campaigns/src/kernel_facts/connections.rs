//! Very many connections between two pods, and a few flows at full rate meanwhile.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use palisade_core::net::Family;
use palisade_lab::packet::read::ReceivedPacket;
use palisade_lab::topology::Location;
use palisade_lab::wire::Wire;
use palisade_nft::Conntrack;
use palisade_nft::node::MarkBits;

use crate::faults::crafted::{Connection, Direction, Phase, Protocol};
use crate::faults::ledger::{DecisionTimes, Expected, Log, Tally, Timeline};
use crate::faults::matrix::mute;
use crate::faults::objects::{Objects, Pod, admits, isolates, pod_address};
use crate::faults::test_node::{CLIENT, OTHER_CLIENT, SERVER, SPARE, TestNode};
use crate::faults::traffic::{Flow, MIN_PAYLOAD, Traffic};

/// The port of all servers.
const PORT: u16 = 8080;
/// The client ports for one server port.
const CLIENT_PORTS: std::ops::Range<u16> = 10_000..60_000;
/// Packets in flight; the kernel's queue holds a thousand.
const BATCH: usize = 250;

/// The pods with very many connections, and a server that every client may always reach. The other
/// pods have the watched flows.
const LOADED_CLIENT: usize = SPARE[0];
const LOADED_SERVER: usize = SPARE[1];
const OTHER_SERVER: usize = SPARE[2];

/// The objects. Unless `is_open`, no client reaches a server.
pub fn objects(is_open: bool) -> Objects {
    let mut objects = Objects::new();
    for (name, app, place) in [
        ("client", "client", CLIENT),
        ("many", "client", LOADED_CLIENT),
        ("server", "server", SERVER),
        ("mass", "server", LOADED_SERVER),
        ("other", "other", OTHER_SERVER),
        ("other-client", "other-client", OTHER_CLIENT),
    ] {
        objects.put_pod(&Pod::at(name, app, place));
    }
    objects.put_policy("server", &isolates("server"));
    objects.put_policy("other", &isolates("other"));
    objects.put_policy("other-admits", &admits("other", "client", &[PORT]));
    if is_open {
        objects.put_policy("open", &admits("server", "client", &[PORT, PORT + 1]));
    }
    objects
}

/// The same with an isolated pod at the address of the loaded server.
pub fn after_moving() -> Objects {
    let mut objects = objects(true);
    objects.take("Pod", "mass");
    let mut pod = Pod::at("successor", "successor", LOADED_SERVER);
    pod.uid = 1;
    objects.put_pod(&pod);
    objects.put_policy("successor", &isolates("successor"));
    objects
}

/// Established TCP connections.
#[derive(Debug)]
pub struct ManyConnections {
    wire: Wire,
    connections: Vec<Connection>,
}

impl ManyConnections {
    /// Opens connections. The policies must allow them.
    pub fn open(node: &TestNode, count: usize) -> Result<ManyConnections> {
        mute(node, LOADED_CLIENT)?;
        mute(node, LOADED_SERVER)?;
        let at = |place, port| SocketAddr::new(pod_address(place, Family::V4), port);
        let servers = [PORT, PORT + 1].into_iter();
        let connections = servers.flat_map(|server| {
            CLIENT_PORTS.map(move |client| Connection {
                protocol: Protocol::Tcp,
                client: at(LOADED_CLIENT, client),
                destination: at(LOADED_SERVER, server),
                server: at(LOADED_SERVER, server),
            })
        });
        let connections: Vec<Connection> = connections.take(count).collect();
        ensure!(connections.len() == count, "too many connections");
        let mut many = ManyConnections {
            wire: Wire::open(&node.world)?,
            connections,
        };
        for (direction, phase) in [
            (Direction::FromClient, Phase::Opening),
            (Direction::FromServer, Phase::Opening),
            (Direction::FromClient, Phase::Confirming),
        ] {
            let arrived = many.send(direction, phase)?;
            ensure!(arrived == count, "{arrived} of {count} were opened");
        }
        Ok(many)
    }

    /// The number of connections.
    pub fn count(&self) -> usize {
        self.connections.len()
    }

    /// Sends one data packet of each connection. Returns how many arrived. Missing ones are sent
    /// twice: a busy machine may lose a packet, but a policy drops both.
    pub fn run(&mut self, direction: Direction) -> Result<usize> {
        self.send(direction, Phase::Running)
    }

    fn send(&mut self, direction: Direction, phase: Phase) -> Result<usize> {
        let mut left = std::mem::take(&mut self.connections);
        let all = left.clone();
        let outcome = (0..2).try_for_each(|_| {
            let mut missing = Vec::new();
            for some in left.chunks(BATCH) {
                missing.extend(self.exchange(some, direction, phase)?);
            }
            left = missing;
            Ok::<(), anyhow::Error>(())
        });
        let arrived = all.len() - left.len();
        self.connections = all;
        outcome.map(|()| arrived)
    }

    /// Sends a packet of each connection. Returns the connections whose packet did not arrive.
    fn exchange(
        &mut self,
        some: &[Connection],
        direction: Direction,
        phase: Phase,
    ) -> Result<Vec<Connection>> {
        let mut packets = Vec::new();
        for connection in some {
            packets.push(
                connection
                    .packet(direction, phase)?
                    .context("TCP without a packet")?,
            );
        }
        let (from, to) = match direction {
            Direction::FromClient => (LOADED_CLIENT, LOADED_SERVER),
            Direction::FromServer => (LOADED_SERVER, LOADED_CLIENT),
        };
        let packets = packets.iter().map(Vec::as_slice);
        let received: Vec<(Location, ReceivedPacket)> =
            self.wire.exchange(Location::Pod(from), packets)?;
        let there = received
            .iter()
            .filter(|(place, _)| *place == Location::Pod(to));
        let ports: BTreeSet<(u16, u16)> =
            there.filter_map(|(_, received)| received.ports).collect();
        let is_missing = |it: &&Connection| {
            let (client, server) = (it.client.port(), it.server.port());
            !ports.contains(&match direction {
                Direction::FromClient => (client, server),
                Direction::FromServer => (server, client),
            })
        };
        Ok(some.iter().filter(is_missing).copied().collect())
    }
}

/// The number of connections with the mark of a generation.
pub fn marked(conntrack: &mut Conntrack, generation: u16) -> Result<usize> {
    let counts = conntrack.generations(MarkBits::DEFAULT)?;
    Ok(counts.get(&generation).copied().unwrap_or(0))
}

/// Flows at full rate: both directions of a connection that changes toggle and of one that is
/// always allowed, and flows that are always denied.
#[derive(Debug)]
pub struct WatchedFlows {
    /// The packets.
    pub traffic: Traffic,
    /// The expected verdicts of each flow.
    timelines: Vec<Timeline>,
    /// The flows that changes toggle.
    toggled: Vec<usize>,
}

impl WatchedFlows {
    /// Opens the sockets. The toggled flows are allowed at first.
    pub fn open(node: &TestNode) -> Result<WatchedFlows> {
        let mut watched = WatchedFlows {
            traffic: Traffic::default(),
            timelines: Vec::new(),
            toggled: Vec::new(),
        };
        let at = |place| SocketAddr::new(pod_address(place, Family::V4), PORT);
        for (place, is_toggled) in [(SERVER, true), (OTHER_SERVER, false)] {
            let server = node.socket(place, Family::V4, PORT)?;
            let client = node.socket(CLIENT, Family::V4, 0)?;
            watched
                .traffic
                .add_receiver(Location::Pod(place), &server)?;
            watched
                .traffic
                .add_receiver(Location::Pod(CLIENT), &client)?;
            let back = client.local_addr()?;
            for (from, to) in [(client, at(place)), (server, back)] {
                let flow = watched.add(vec![from], to, Expected::Allowed, !is_toggled);
                watched.toggled.extend(is_toggled.then_some(flow));
            }
        }
        let strangers = node.sockets(OTHER_CLIENT, Family::V4, 16)?;
        watched.add(strangers, at(SERVER), Expected::Denied, false);
        Ok(watched)
    }

    fn add(
        &mut self,
        from: Vec<std::net::UdpSocket>,
        to: SocketAddr,
        expected: Expected,
        is_paced: bool,
    ) -> usize {
        self.timelines.push(Timeline::new(expected));
        self.traffic.add(Flow {
            from,
            to,
            length: MIN_PAYLOAD,
            is_paced,
        })
    }

    /// Records a change of the toggled flows, with its start and end.
    pub fn change(&mut self, times: (u64, u64), is_open: bool) {
        let expected = if is_open {
            Expected::Allowed
        } else {
            Expected::Denied
        };
        for flow in &self.toggled {
            if let Some(timeline) = self.timelines.get_mut(*flow) {
                timeline.change(times, expected);
            }
        }
    }

    /// Tallies all packets.
    pub fn tally(&self, logs: &[Log]) -> Tally {
        let decided = DecisionTimes::of(logs);
        let mut all = Tally::default();
        for (timeline, log) in self.timelines.iter().zip(logs) {
            all += log.tally(timeline, &decided);
        }
        all
    }

    /// The time of the last packet of the toggled flows between two times.
    pub fn last_toggled(&self, logs: &[Log], from: u64, to: u64) -> Option<u64> {
        let logs = self.toggled.iter().filter_map(|it| logs.get(*it));
        let times = logs.flat_map(|it| it.arrived.iter().map(|(_, at)| *at));
        times.filter(|it| (from..to).contains(it)).max()
    }
}
