//! F03: established connections whose policy changes. After the commit that denies them, no packet
//! of either direction arrives. When they are allowed again, they continue. Other connections are
//! not affected.

use std::net::{IpAddr, SocketAddr};

use anyhow::Result;
use palisade_core::net::{Family, Protocol as Ports};
use palisade_lab::packet::read::ReceivedPacket;
use palisade_lab::services::{Entry, translations};
use palisade_lab::topology::Location;
use palisade_lab::wire::Wire;
use palisade_nft::node::EstablishedFlows;
use palisade_nft::{Conntrack, Kernel};
use serde_json::{Value, json};

use super::crafted::{Connection, Direction, PROTOCOLS, Phase, Protocol};
use super::matrix::mute;
use super::objects::{Objects, Pod, isolates, pod_address};
use super::outcome::Outcome;
use super::programmer::{Programmer, Swap};
use super::test_node::{CLIENT, SERVER, SPARE, TestNode};

/// The port of the servers, and the port of their Service.
const PORT: u16 = 8080;
const SERVICE_PORT: u16 = 80;

/// The packets of a connection before its policy changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrafficPattern {
    /// Data in both directions, before and after.
    Both,
    /// After the handshake, only the server sends.
    ServerOnly,
    /// The handshake is not complete.
    HalfOpen,
}

/// A connection and its server.
#[derive(Clone, Copy, Debug)]
struct Case {
    connection: Connection,
    server: usize,
    pattern: TrafficPattern,
    /// Whether a cut denies it.
    is_cut: bool,
}

/// The policy that denies connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// The server's ingress denies the client.
    AtServer,
    /// The client's egress denies the server.
    AtClient,
}

fn peer(app: &str) -> Value {
    json!([{"podSelector": {"matchLabels": {"app": app}}}])
}

/// The objects. With a cut, the client reaches only the other server.
fn objects(cut: Option<Cut>) -> Objects {
    let [other, ..] = SPARE;
    let mut objects = Objects::new();
    objects.put_pod(&Pod::at("client", "client", CLIENT));
    objects.put_pod(&Pod::at("server", "server", SERVER));
    objects.put_pod(&Pod::at("other", "other", other));
    for app in ["client", "server", "other"] {
        objects.put_policy(app, &isolates(app));
    }
    let admit = |app: &str| {
        json!({
            "podSelector": {"matchLabels": {"app": app}},
            "ingress": [{"from": peer("client")}],
        })
    };
    let send = |app: &str| {
        json!({
            "podSelector": {"matchLabels": {"app": "client"}},
            "policyTypes": ["Egress"],
            "egress": [{"to": peer(app)}],
        })
    };
    objects.put_policy("other-admits", &admit("other"));
    objects.put_policy("sends-to-other", &send("other"));
    if cut != Some(Cut::AtServer) {
        objects.put_policy("server-admits", &admit("server"));
    }
    if cut != Some(Cut::AtClient) {
        objects.put_policy("sends-to-server", &send("server"));
    }
    objects
}

fn service(family: Family, server: usize) -> IpAddr {
    match family {
        Family::V4 => IpAddr::from([10, 96, 0, server as u8]),
        Family::V6 => IpAddr::from([0xfd00, 0x96, 0, 0, 0, 0, 0, server as u16]),
    }
}

/// Every kind of connection, directly and through a Service, with source ports from `first_port`
/// on.
fn cases(first_port: u16) -> Vec<Case> {
    let [other, ..] = SPARE;
    let mut cases = Vec::new();
    let mut port = first_port;
    for family in Family::BOTH {
        for (server, is_cut) in [(SERVER, true), (other, false)] {
            for protocol in PROTOCOLS {
                for through_service in [false, true] {
                    for pattern in [
                        TrafficPattern::Both,
                        TrafficPattern::ServerOnly,
                        TrafficPattern::HalfOpen,
                    ] {
                        let is_echo = protocol == Protocol::Echo;
                        let half = pattern == TrafficPattern::HalfOpen && protocol != Protocol::Tcp;
                        // Echoes between two addresses cannot be distinguished.
                        if half || is_echo && (through_service || pattern != TrafficPattern::Both) {
                            continue;
                        }
                        port += 1;
                        let at = |address, port| SocketAddr::new(address, port);
                        let direct = at(pod_address(server, family), PORT);
                        let destination = match through_service {
                            true => at(service(family, server), SERVICE_PORT),
                            false => direct,
                        };
                        cases.push(Case {
                            connection: Connection {
                                protocol,
                                client: at(pod_address(CLIENT, family), port),
                                destination,
                                server: direct,
                            },
                            server,
                            pattern,
                            is_cut,
                        });
                    }
                }
            }
        }
    }
    cases
}

/// Installs the address translation of a Service proxy on the node.
fn translate(node: &TestNode) -> Result<()> {
    let [other, ..] = SPARE;
    let mut entries = Vec::new();
    for family in Family::BOTH {
        for server in [SERVER, other] {
            for protocol in [Ports::Tcp, Ports::Udp, Ports::Sctp] {
                entries.push(Entry {
                    address: service(family, server),
                    protocol,
                    port: SERVICE_PORT,
                    backends: vec![(pod_address(server, family), PORT)],
                    masquerade: false,
                });
            }
        }
    }
    node.on_node(|| Ok(Kernel::open()?.install_plain(&translations(&entries))?))
}

/// The connections, and the sockets that send their packets.
struct Connections {
    wire: Wire,
    cases: Vec<Case>,
}

impl Connections {
    /// Sends a packet of each selected connection. Returns which of them arrived.
    fn send(
        &mut self,
        direction: Direction,
        phase: Phase,
        is_selected: impl Fn(&Case) -> bool,
    ) -> Result<Vec<(Case, bool)>> {
        let mut arrived = Vec::new();
        let mut places = vec![CLIENT];
        if direction == Direction::FromServer {
            places = self.cases.iter().map(|it| it.server).collect();
            places.sort_unstable();
            places.dedup();
        }
        for place in places {
            let from_here =
                |case: &Case| direction == Direction::FromClient || case.server == place;
            let mut packets = Vec::new();
            let mut sent = Vec::new();
            for case in &self.cases {
                if from_here(case)
                    && is_selected(case)
                    && let Some(packet) = case.connection.packet(direction, phase)?
                {
                    packets.push(packet);
                    sent.push(*case);
                }
            }
            let packets = packets.iter().map(Vec::as_slice);
            let received: Vec<(Location, ReceivedPacket)> =
                self.wire.exchange(Location::Pod(place), packets)?;
            arrived.extend(sent.into_iter().map(|case| {
                let to = match direction {
                    Direction::FromClient => Location::Pod(case.server),
                    Direction::FromServer => Location::Pod(CLIENT),
                };
                let matches = |(place, received): &(Location, ReceivedPacket)| {
                    *place == to && case.connection.matches(direction, received)
                };
                (case, received.iter().any(matches))
            }));
        }
        Ok(arrived)
    }

    /// Opens all connections, according to their pattern.
    fn open(&mut self, outcome: &mut Outcome) -> Result<()> {
        let complete = |case: &Case| case.pattern != TrafficPattern::HalfOpen;
        for (direction, phase) in [
            (Direction::FromClient, Phase::Opening),
            (Direction::FromServer, Phase::Opening),
        ] {
            let all = self.send(direction, phase, |_| true)?;
            record(outcome, &all, true, "during the handshake");
        }
        for (direction, phase) in [
            (Direction::FromClient, Phase::Confirming),
            (Direction::FromServer, Phase::Confirming),
            (Direction::FromClient, Phase::Running),
            (Direction::FromServer, Phase::Running),
        ] {
            let all = self.send(direction, phase, |case| {
                let is_server_only =
                    case.pattern == TrafficPattern::ServerOnly && phase == Phase::Running;
                complete(case) && !(is_server_only && direction == Direction::FromClient)
            })?;
            record(outcome, &all, true, "before the change");
        }
        Ok(())
    }

    /// Sends data in both directions.
    fn run(&mut self, outcome: &mut Outcome, arrives: Arrives, when: &str) -> Result<()> {
        for direction in [Direction::FromServer, Direction::FromClient] {
            let all = self.send(direction, Phase::Running, |case| {
                !(case.pattern == TrafficPattern::ServerOnly && direction == Direction::FromClient)
            })?;
            let (cut, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|(it, _)| it.is_cut);
            record(outcome, &cut, arrives == Arrives::All, when);
            record(outcome, &others, true, when);
        }
        Ok(())
    }
}

/// The expectation for connections that a cut denies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrives {
    All,
    None,
}

fn record(outcome: &mut Outcome, all: &[(Case, bool)], expected: bool, when: &str) {
    for (case, arrived) in all {
        outcome.count("packets", 1);
        let what = match (expected, *arrived) {
            (true, true) | (false, false) => continue,
            (true, false) => "lost",
            (false, true) => "leaked",
        };
        outcome.count(what, 1);
        outcome.check(false, || format!("{what} {when}: {case:?}"));
    }
}

/// Cuts established connections, alternately at both sides.
pub fn cuts(
    name: &str,
    node: &TestNode,
    programmer: &mut dyn Programmer,
    cuts: u64,
) -> Result<Outcome> {
    let mut outcome = Outcome::of_packets(name);
    let [other, ..] = SPARE;
    for pod in [CLIENT, SERVER, other] {
        mute(node, pod)?;
    }
    translate(node)?;
    let mut conntrack = node.on_node(|| Ok(Conntrack::open()?))?;
    let mut connections = Connections {
        wire: Wire::open(&node.world)?,
        cases: cases(30_000),
    };
    // Connections from before the first policy.
    connections.open(&mut outcome)?;
    connections.run(&mut outcome, Arrives::All, "without policies")?;
    programmer.apply(&objects(Some(Cut::AtServer)))?;
    connections.run(&mut outcome, Arrives::None, "after the first table")?;
    programmer.apply(&objects(None))?;
    connections.run(
        &mut outcome,
        Arrives::All,
        "after the first table allowed it",
    )?;
    for number in 0..cuts {
        conntrack.flush()?;
        connections.cases = cases(31_000 + (number % 200) as u16 * 100);
        connections.open(&mut outcome)?;
        let cut = match number % 2 {
            0 => Cut::AtServer,
            _ => Cut::AtClient,
        };
        for repeat in 0..2 {
            let (applied, commit) = node.clock.time(|| programmer.apply(&objects(Some(cut))));
            applied?;
            outcome.record_time("cut", commit.1 - commit.0);
            let when = if repeat == 0 {
                "after a cut"
            } else {
                "after another cut"
            };
            connections.run(&mut outcome, Arrives::None, when)?;
            programmer.apply(&objects(None))?;
            connections.run(&mut outcome, Arrives::All, "after it was allowed again")?;
        }
        let cut = connections.cases.iter().filter(|it| it.is_cut).count() as u64;
        outcome.count("cuts", 2);
        outcome.count("connections cut", 2 * cut);
    }
    Ok(outcome)
}

/// With `--established=keep`, established connections continue after a cut, and new ones are
/// denied.
pub fn kept(name: &str, cuts: u64) -> Result<Outcome> {
    let node = TestNode::build()?;
    let mut outcome = Outcome::of_packets(name);
    let [other, ..] = SPARE;
    for pod in [CLIENT, SERVER, other] {
        mute(&node, pod)?;
    }
    translate(&node)?;
    let mut swap = Swap::open(&node)?;
    swap.established = EstablishedFlows::Keep;
    let mut conntrack = node.on_node(|| Ok(Conntrack::open()?))?;
    let mut connections = Connections {
        wire: Wire::open(&node.world)?,
        cases: Vec::new(),
    };
    for number in 0..cuts {
        conntrack.flush()?;
        swap.apply(&objects(None))?;
        connections.cases = cases(31_000 + (number % 100) as u16 * 200);
        connections.open(&mut outcome)?;
        swap.apply(&objects(Some(Cut::AtServer)))?;
        connections.run(
            &mut outcome,
            Arrives::All,
            "after a cut with --established=keep",
        )?;
        let is_new = |case: &Case| case.connection.protocol != Protocol::Echo;
        connections.cases = cases(31_100 + (number % 100) as u16 * 200);
        let all = connections.send(Direction::FromClient, Phase::Opening, is_new)?;
        let (cut, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|(it, _)| it.is_cut);
        record(&mut outcome, &cut, false, "although it is new");
        record(&mut outcome, &others, true, "although it is not cut");
        outcome.count("cuts", 1);
    }
    Ok(outcome)
}
