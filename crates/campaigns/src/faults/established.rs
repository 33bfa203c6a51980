//! F03: connections that are running when their policy changes. After a commit that denies them has
//! returned, no packet of either direction arrives; when they are allowed again, they go on; others do
//! not notice.

use std::net::{IpAddr, SocketAddr};

use anyhow::Result;
use palisade_core::net::{Family, Protocol as Ports};
use palisade_lab::packet::read::ReceivedPacket;
use palisade_lab::services::{Entry, translations};
use palisade_lab::topology::Location;
use palisade_lab::wire::Wire;
use palisade_nft::node::Established;
use palisade_nft::{Conntrack, Kernel};
use serde_json::{Value, json};

use super::crafted::{Connection, PROTOCOLS, Protocol, Stage as Part, Way};
use super::matrix::mute;
use super::objects::{Objects, Pod, isolates, pod_address};
use super::outcome::Outcome;
use super::programming::{Programming, Swap};
use super::test_node::{CLIENT, SERVER, SPARE, TestNode};

/// The port of the servers, and that of the Service before them.
const PORT: u16 = 8080;
const SERVICE_PORT: u16 = 80;

/// What of a connection has been seen when its policy changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Data in both directions, before and after.
    Both,
    /// After the opening, only the server sends.
    OnlyAnswers,
    /// It was not opened completely.
    HalfOpen,
}

/// A connection, and where it goes.
#[derive(Clone, Copy, Debug)]
struct Case {
    connection: Connection,
    server: usize,
    shape: Shape,
    /// Whether the cut is about it.
    is_cut: bool,
}

/// Who is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// The server does not take the client's any more.
    AtServer,
    /// The client may not send to the server any more.
    AtClient,
}

fn peer(app: &str) -> Value {
    json!([{"podSelector": {"matchLabels": {"app": app}}}])
}

/// The objects; if something is cut, the client reaches only the other server.
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

/// Every kind of connection, directly and through a Service, at source ports from some on.
fn cases(first_port: u16) -> Vec<Case> {
    let [other, ..] = SPARE;
    let mut cases = Vec::new();
    let mut port = first_port;
    for family in Family::BOTH {
        for (server, is_cut) in [(SERVER, true), (other, false)] {
            for protocol in PROTOCOLS {
                for through_service in [false, true] {
                    for shape in [Shape::Both, Shape::OnlyAnswers, Shape::HalfOpen] {
                        let is_echo = protocol == Protocol::Echo;
                        let half = shape == Shape::HalfOpen && protocol != Protocol::Tcp;
                        // Echoes between two addresses look alike.
                        if half || is_echo && (through_service || shape != Shape::Both) {
                            continue;
                        }
                        port += 1;
                        let at = |address, port| SocketAddr::new(address, port);
                        let direct = at(pod_address(server, family), PORT);
                        let dialled = match through_service {
                            true => at(service(family, server), SERVICE_PORT),
                            false => direct,
                        };
                        cases.push(Case {
                            connection: Connection {
                                protocol,
                                client: at(pod_address(CLIENT, family), port),
                                dialled,
                                server: direct,
                            },
                            server,
                            shape,
                            is_cut,
                        });
                    }
                }
            }
        }
    }
    cases
}

/// What a Service proxy would put on the node.
fn translate(stage: &TestNode) -> Result<()> {
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
    stage.on_node(|| Ok(Kernel::open()?.install_plain(&translations(&entries))?))
}

/// The connections and the sockets that they are made with.
struct Running {
    wire: Wire,
    cases: Vec<Case>,
}

impl Running {
    /// Sends a packet of each connection that is chosen; says of which one it arrived.
    fn send(
        &mut self,
        way: Way,
        part: Part,
        is_chosen: impl Fn(&Case) -> bool,
    ) -> Result<Vec<(Case, bool)>> {
        let mut arrived = Vec::new();
        let mut places = vec![CLIENT];
        if way == Way::Back {
            places = self.cases.iter().map(|it| it.server).collect();
            places.sort_unstable();
            places.dedup();
        }
        for place in places {
            let from_here = |case: &Case| way == Way::There || case.server == place;
            let mut packets = Vec::new();
            let mut sent = Vec::new();
            for case in &self.cases {
                if from_here(case)
                    && is_chosen(case)
                    && let Some(packet) = case.connection.packet(way, part)?
                {
                    packets.push(packet);
                    sent.push(*case);
                }
            }
            let packets = packets.iter().map(Vec::as_slice);
            let seen: Vec<(Location, ReceivedPacket)> =
                self.wire.exchange(Location::Pod(place), packets)?;
            arrived.extend(sent.into_iter().map(|case| {
                let to = match way {
                    Way::There => Location::Pod(case.server),
                    Way::Back => Location::Pod(CLIENT),
                };
                let is_its = |(place, seen): &(Location, ReceivedPacket)| {
                    *place == to && case.connection.is_its(way, seen)
                };
                (case, seen.iter().any(is_its))
            }));
        }
        Ok(arrived)
    }

    /// Opens all connections, as far as their shape wants it.
    fn open(&mut self, outcome: &mut Outcome) -> Result<()> {
        let complete = |case: &Case| case.shape != Shape::HalfOpen;
        for (way, part) in [(Way::There, Part::Opening), (Way::Back, Part::Opening)] {
            let all = self.send(way, part, |_| true)?;
            note(outcome, &all, true, "while it was opened");
        }
        for (way, part) in [
            (Way::There, Part::Confirming),
            (Way::Back, Part::Confirming),
            (Way::There, Part::Running),
            (Way::Back, Part::Running),
        ] {
            let all = self.send(way, part, |case| {
                let answers = case.shape == Shape::OnlyAnswers && part == Part::Running;
                complete(case) && !(answers && way == Way::There)
            })?;
            note(outcome, &all, true, "before anything changed");
        }
        Ok(())
    }

    /// Sends data both ways, on those that are cut or on the others.
    fn run(&mut self, outcome: &mut Outcome, arrives: Arrives, when: &str) -> Result<()> {
        for way in [Way::Back, Way::There] {
            let all = self.send(way, Part::Running, |case| {
                !(case.shape == Shape::OnlyAnswers && way == Way::There)
            })?;
            let (cut, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|(it, _)| it.is_cut);
            note(outcome, &cut, arrives == Arrives::All, when);
            note(outcome, &others, true, when);
        }
        Ok(())
    }
}

/// What is expected of the connections that a cut is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrives {
    All,
    None,
}

fn note(outcome: &mut Outcome, all: &[(Case, bool)], expected: bool, when: &str) {
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

/// Cuts running connections so many times, at either side.
pub fn cuts(
    name: &str,
    stage: &TestNode,
    programming: &mut dyn Programming,
    cuts: u64,
) -> Result<Outcome> {
    let mut outcome = Outcome::new(name);
    outcome.count("leaked", 0);
    outcome.count("lost", 0);
    let [other, ..] = SPARE;
    for pod in [CLIENT, SERVER, other] {
        mute(stage, pod)?;
    }
    translate(stage)?;
    let mut conntrack = stage.on_node(|| Ok(Conntrack::open()?))?;
    let mut running = Running {
        wire: Wire::open(&stage.world)?,
        cases: cases(30_000),
    };
    // Connections that are older than all policies.
    running.open(&mut outcome)?;
    running.run(&mut outcome, Arrives::All, "without policies")?;
    programming.apply(&objects(Some(Cut::AtServer)))?;
    running.run(&mut outcome, Arrives::None, "after the first table")?;
    programming.apply(&objects(None))?;
    running.run(
        &mut outcome,
        Arrives::All,
        "after the first table allowed it",
    )?;
    for number in 0..cuts {
        conntrack.flush()?;
        running.cases = cases(31_000 + (number % 200) as u16 * 100);
        running.open(&mut outcome)?;
        let cut = match number % 2 {
            0 => Cut::AtServer,
            _ => Cut::AtClient,
        };
        for repeat in 0..2 {
            let (applied, commit) = stage.clock.time(|| programming.apply(&objects(Some(cut))));
            applied?;
            outcome.took("cut", commit.1 - commit.0);
            let when = if repeat == 0 {
                "after a cut"
            } else {
                "after another cut"
            };
            running.run(&mut outcome, Arrives::None, when)?;
            programming.apply(&objects(None))?;
            running.run(&mut outcome, Arrives::All, "after it was allowed again")?;
        }
        let cut = running.cases.iter().filter(|it| it.is_cut).count() as u64;
        outcome.count("cuts", 2);
        outcome.count("connections cut", 2 * cut);
    }
    Ok(outcome)
}

/// With `--established=keep`, connections that run go on after a cut, and new ones are not made.
pub fn kept(name: &str, cuts: u64) -> Result<Outcome> {
    let stage = TestNode::build()?;
    let mut outcome = Outcome::new(name);
    outcome.count("leaked", 0);
    outcome.count("lost", 0);
    let [other, ..] = SPARE;
    for pod in [CLIENT, SERVER, other] {
        mute(&stage, pod)?;
    }
    translate(&stage)?;
    let mut swap = Swap::open(&stage)?;
    swap.established = Established::Keep;
    let mut conntrack = stage.on_node(|| Ok(Conntrack::open()?))?;
    let mut running = Running {
        wire: Wire::open(&stage.world)?,
        cases: Vec::new(),
    };
    for number in 0..cuts {
        conntrack.flush()?;
        swap.apply(&objects(None))?;
        running.cases = cases(31_000 + (number % 100) as u16 * 200);
        running.open(&mut outcome)?;
        swap.apply(&objects(Some(Cut::AtServer)))?;
        running.run(
            &mut outcome,
            Arrives::All,
            "after a cut that keeps what runs",
        )?;
        let is_new = |case: &Case| case.connection.protocol != Protocol::Echo;
        running.cases = cases(31_100 + (number % 100) as u16 * 200);
        let all = running.send(Way::There, Part::Opening, is_new)?;
        let (cut, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|(it, _)| it.is_cut);
        note(&mut outcome, &cut, false, "although it is new");
        note(&mut outcome, &others, true, "although it is not cut");
        outcome.count("cuts", 1);
    }
    Ok(outcome)
}
