//! Very many connections between two pods, and a few packets that are watched meanwhile.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use palisade_core::net::Family;
use palisade_lab::packet::read::ReceivedPacket;
use palisade_lab::topology::Location;
use palisade_lab::wire::Wire;
use palisade_nft::Conntrack;
use palisade_nft::node::MarkBits;

use crate::faults::crafted::{Connection, Protocol, Stage as Part, Way};
use crate::faults::ledger::{Expected, Log, Settled, Tally, Timeline};
use crate::faults::matrix::mute;
use crate::faults::objects::{Objects, Pod, admits, isolates, pod_address};
use crate::faults::test_node::{CLIENT, SERVER, SPARE, STRANGER, TestNode};
use crate::faults::traffic::{Flow, SHORTEST, Traffic};

/// The port of everything.
const PORT: u16 = 8080;
/// The ports that one server's port is dialled from.
const DIALLED_FROM: std::ops::Range<u16> = 10_000..60_000;
/// Packets that are under way at once; the kernel's queue holds a thousand.
const AT_ONCE: usize = 250;

/// The pods: a client and a server that are watched, two of the same kinds with very many connections, and one that the
/// client may always talk to.
const MANY: usize = SPARE[0];
const MASS: usize = SPARE[1];
const OTHER: usize = SPARE[2];

/// The objects. If the door is shut no client reaches a server.
pub fn objects(is_open: bool) -> Objects {
    let mut objects = Objects::new();
    for (name, app, place) in [
        ("client", "client", CLIENT),
        ("many", "client", MANY),
        ("server", "server", SERVER),
        ("mass", "server", MASS),
        ("other", "other", OTHER),
        ("stranger", "stranger", STRANGER),
    ] {
        objects.put_pod(&Pod::at(name, app, place));
    }
    objects.put_policy("server", &isolates("server"));
    objects.put_policy("other", &isolates("other"));
    objects.put_policy("other-admits", &admits("other", "client", &[PORT]));
    if is_open {
        objects.put_policy("door", &admits("server", "client", &[PORT, PORT + 1]));
    }
    objects
}

/// The same with another pod at the server's address, which is no server and takes nobody's connections.
pub fn after_moving() -> Objects {
    let mut objects = objects(true);
    objects.take("Pod", "mass");
    let mut pod = Pod::at("successor", "successor", MASS);
    pod.uid = 1;
    objects.put_pod(&pod);
    objects.put_policy("successor", &isolates("successor"));
    objects
}

/// Connections of TCP, both ways open.
#[derive(Debug)]
pub struct Crowd {
    wire: Wire,
    connections: Vec<Connection>,
}

impl Crowd {
    /// Opens so many. The policies must allow them.
    pub fn open(stage: &TestNode, count: usize) -> Result<Crowd> {
        mute(stage, MANY)?;
        mute(stage, MASS)?;
        let at = |place, port| SocketAddr::new(pod_address(place, Family::V4), port);
        let servers = [PORT, PORT + 1].into_iter();
        let connections = servers.flat_map(|server| {
            DIALLED_FROM.map(move |client| Connection {
                protocol: Protocol::Tcp,
                client: at(MANY, client),
                dialled: at(MASS, server),
                server: at(MASS, server),
            })
        });
        let connections: Vec<Connection> = connections.take(count).collect();
        ensure!(connections.len() == count, "so many are not supported");
        let mut crowd = Crowd {
            wire: Wire::open(&stage.world)?,
            connections,
        };
        for (way, part) in [
            (Way::There, Part::Opening),
            (Way::Back, Part::Opening),
            (Way::There, Part::Confirming),
        ] {
            let arrived = crowd.send(way, part)?;
            ensure!(arrived == count, "{arrived} of {count} were opened");
        }
        Ok(crowd)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.connections.len()
    }

    /// One packet of data of each, one way; says how many arrived. What did not is sent once more: a busy machine may lose
    /// a packet, a policy drops both.
    pub fn run(&mut self, way: Way) -> Result<usize> {
        self.send(way, Part::Running)
    }

    fn send(&mut self, way: Way, part: Part) -> Result<usize> {
        let mut left = std::mem::take(&mut self.connections);
        let all = left.clone();
        let outcome = (0..2).try_for_each(|_| {
            let mut absent = Vec::new();
            for some in left.chunks(AT_ONCE) {
                absent.extend(self.exchange(some, way, part)?);
            }
            left = absent;
            Ok::<(), anyhow::Error>(())
        });
        let arrived = all.len() - left.len();
        self.connections = all;
        outcome.map(|()| arrived)
    }

    /// Sends a packet of each of some; returns those whose packet did not arrive.
    fn exchange(&mut self, some: &[Connection], way: Way, part: Part) -> Result<Vec<Connection>> {
        let mut packets = Vec::new();
        for connection in some {
            packets.push(
                connection
                    .packet(way, part)?
                    .context("TCP without a packet")?,
            );
        }
        let (from, to) = match way {
            Way::There => (MANY, MASS),
            Way::Back => (MASS, MANY),
        };
        let packets = packets.iter().map(Vec::as_slice);
        let seen: Vec<(Location, ReceivedPacket)> =
            self.wire.exchange(Location::Pod(from), packets)?;
        let there = seen.iter().filter(|(place, _)| *place == Location::Pod(to));
        let ports: BTreeSet<(u16, u16)> = there.filter_map(|(_, seen)| seen.ports).collect();
        let is_absent = |it: &&Connection| {
            let (client, server) = (it.client.port(), it.server.port());
            !ports.contains(&match way {
                Way::There => (client, server),
                Way::Back => (server, client),
            })
        };
        Ok(some.iter().filter(is_absent).copied().collect())
    }
}

/// How many connections have a mark of a generation.
pub fn marked(conntrack: &mut Conntrack, generation: u16) -> Result<usize> {
    let counts = conntrack.generations(MarkBits::DEFAULT)?;
    Ok(counts.get(&generation).copied().unwrap_or(0))
}

/// Packets at full rate: of a connection that a change is about, of one that it is not about, both ways, and such as are
/// never allowed.
#[derive(Debug)]
pub struct Watched {
    /// The packets.
    pub traffic: Traffic,
    /// What should become of each flow.
    timelines: Vec<Timeline>,
    /// Those that the door is for.
    door: Vec<usize>,
}

impl Watched {
    /// Opens the sockets; the door is open.
    pub fn open(stage: &TestNode) -> Result<Watched> {
        let mut watched = Watched {
            traffic: Traffic::default(),
            timelines: Vec::new(),
            door: Vec::new(),
        };
        let at = |place| SocketAddr::new(pod_address(place, Family::V4), PORT);
        for (place, is_door) in [(SERVER, true), (OTHER, false)] {
            let server = stage.socket(place, Family::V4, PORT)?;
            let client = stage.socket(CLIENT, Family::V4, 0)?;
            watched.traffic.hear(Location::Pod(place), &server)?;
            watched.traffic.hear(Location::Pod(CLIENT), &client)?;
            let back = client.local_addr()?;
            for (from, to) in [(client, at(place)), (server, back)] {
                let flow = watched.add(vec![from], to, Expected::Allowed, !is_door);
                watched.door.extend(is_door.then_some(flow));
            }
        }
        let strangers = stage.sockets(STRANGER, Family::V4, 16)?;
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
            length: SHORTEST,
            is_paced,
        })
    }

    /// The door was opened or shut by a change that began and ended at these times.
    pub fn change(&mut self, times: (u64, u64), is_open: bool) {
        let expected = if is_open {
            Expected::Allowed
        } else {
            Expected::Denied
        };
        for flow in &self.door {
            if let Some(timeline) = self.timelines.get_mut(*flow) {
                timeline.change(times, expected);
            }
        }
    }

    /// What became of all packets.
    pub fn judge(&self, logs: &[Log]) -> Tally {
        let settled = Settled::of(logs);
        let mut all = Tally::default();
        for (timeline, log) in self.timelines.iter().zip(logs) {
            all += log.judge(timeline, &settled);
        }
        all
    }

    /// When the last packet through the door arrived between two times.
    pub fn last_through_the_door(&self, logs: &[Log], from: u64, to: u64) -> Option<u64> {
        let logs = self.door.iter().filter_map(|it| logs.get(*it));
        let times = logs.flat_map(|it| it.arrived.iter().map(|(_, at)| *at));
        times.filter(|it| (from..to).contains(it)).max()
    }
}
