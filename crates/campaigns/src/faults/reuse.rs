//! F02: the owners of addresses. Pods are created, run, end, are deleted and are created again
//! under the same name, and addresses change owners while connections are established. Packets must
//! follow the engine's verdict for the current owner.

use std::net::{IpAddr, SocketAddr};

use anyhow::Result;
use palisade_core::net::Family;
use palisade_lab::topology::Location;
use palisade_lab::wire::Wire;
use serde_json::json;

use super::churn::{OPEN, TOGGLED};
use super::crafted::{Connection, Direction, Phase, Protocol};
use super::matrix::{Matrix, Verdicts};
use super::objects::{Objects, Pod, admits, isolates, pod_address, sends};
use super::outcome::Outcome;
use super::programmer::Programmer;
use super::test_node::{CLIENT, SERVER, SPARE, TestNode};
use palisade_generate::Rng;

/// Changes in one history.
const STEPS: u64 = 25;
/// The names that pods reuse.
const NAMES: [&str; 4] = ["job-0", "job-1", "web-0", "web-1"];
/// The labels of pods: `frontend` and `backend` have policies with rules, `isolated` has one
/// without, `unselected` has none.
const APPS: [&str; 4] = ["frontend", "backend", "isolated", "unselected"];

/// A pod that has an object.
#[derive(Clone, Copy, Debug)]
struct PodState {
    app: &'static str,
    place: Option<usize>,
    phase: &'static str,
    minute: u64,
}

/// The current pods, by name.
#[derive(Clone, Debug)]
struct History {
    rng: Rng,
    minute: u64,
    pods: [Option<PodState>; NAMES.len()],
}

impl History {
    fn new(seed: u64) -> History {
        History {
            rng: Rng::new(seed),
            minute: 1,
            pods: [None; NAMES.len()],
        }
    }

    /// Makes a random change of one pod.
    fn step(&mut self) -> String {
        let which = self.rng.below(NAMES.len() as u64) as usize;
        let app = self.rng.pick(&APPS);
        let place = self.rng.pick(&SPARE);
        let kind = self.rng.below(4);
        self.minute += 1;
        let minute = self.minute;
        let name = NAMES.get(which).copied().unwrap_or_default();
        let Some(pod) = self.pods.get_mut(which) else {
            return String::new();
        };
        let fresh = PodState {
            app,
            place: Some(place),
            phase: "Running",
            minute,
        };
        match pod {
            None if kind == 0 => {
                *pod = Some(PodState {
                    place: None,
                    phase: "Pending",
                    ..fresh
                });
            }
            None => *pod = Some(fresh),
            Some(it) if it.place.is_none() => {
                it.place = Some(place);
                it.phase = "Running";
            }
            // The pod terminates, and keeps its address in its status.
            Some(it) if kind == 0 => it.phase = "Succeeded",
            Some(it) if kind == 1 => it.phase = "Failed",
            // A new pod with the same name.
            Some(_) if kind == 2 => *pod = Some(fresh),
            Some(_) => *pod = None,
        }
        format!("{name}: {pod:?}")
    }

    fn objects(&self) -> Objects {
        let mut objects = Objects::new();
        objects.put_pod(&Pod::at("client", "client", CLIENT));
        objects.put_pod(&Pod::at("server", "server", SERVER));
        objects.put_policy("isolated", &isolates("isolated"));
        objects.put_policy("frontend-sends", &sends("frontend", "server", &[OPEN]));
        objects.put_policy("frontend-admits", &admits("frontend", "client", &[OPEN]));
        objects.put_policy("backend-admits", &admits("backend", "server", &[TOGGLED]));
        let selected = json!({"matchExpressions": [
            {"key": "app", "operator": "In", "values": ["frontend", "backend", "unselected", "client"]},
        ]});
        let server = json!({
            "podSelector": {"matchLabels": {"app": "server"}},
            "ingress": [{"from": [{"podSelector": selected}]}],
        });
        objects.put_policy("server", &server);
        for (name, state) in NAMES.iter().zip(&self.pods) {
            let Some(state) = state else { continue };
            let mut pod = Pod::at(name, state.app, state.place.unwrap_or(0));
            if state.place.is_none() {
                pod.addresses.clear();
            }
            objects.put_pod(&Pod {
                phase: state.phase,
                minute: state.minute,
                uid: state.minute,
                ..pod
            });
        }
        objects
    }
}

/// A connection with the address of one place, which continues while its owners change.
struct LastingConnection {
    connection: Connection,
    from: usize,
    to: usize,
    is_open: bool,
}

fn lasting() -> Vec<LastingConnection> {
    let mut all = Vec::new();
    for family in Family::BOTH {
        for place in SPARE {
            for protocol in [Protocol::Tcp, Protocol::Udp] {
                for (from, to) in [(place, SERVER), (CLIENT, place)] {
                    let at = |pod, port| SocketAddr::new(pod_address(pod, family), port);
                    let server = at(to, OPEN);
                    all.push(LastingConnection {
                        connection: Connection {
                            protocol,
                            client: at(from, 21_000),
                            destination: server,
                            server,
                        },
                        from,
                        to,
                        is_open: false,
                    });
                }
            }
        }
    }
    all
}

impl LastingConnection {
    /// Whether a packet arrives.
    fn passes(&self, wire: &mut Wire, direction: Direction, phase: Phase) -> Result<bool> {
        let (from, to) = match direction {
            Direction::FromClient => (self.from, self.to),
            Direction::FromServer => (self.to, self.from),
        };
        let Some(packet) = self.connection.packet(direction, phase)? else {
            return Ok(true);
        };
        let received = wire.exchange(Location::Pod(from), [packet.as_slice()])?;
        Ok(received.iter().any(|(place, received)| {
            *place == Location::Pod(to) && self.connection.matches(direction, received)
        }))
    }

    /// Sends in both directions: all packets arrive, or none.
    fn run(&mut self, wire: &mut Wire, allowed: bool, outcome: &mut Outcome) -> Result<()> {
        let phases: &[(Direction, Phase)] = if self.is_open {
            &[
                (Direction::FromServer, Phase::Running),
                (Direction::FromClient, Phase::Running),
            ]
        } else if allowed {
            self.is_open = true;
            &[
                (Direction::FromClient, Phase::Opening),
                (Direction::FromServer, Phase::Opening),
                (Direction::FromClient, Phase::Confirming),
                (Direction::FromClient, Phase::Running),
            ]
        } else {
            &[(Direction::FromClient, Phase::Opening)]
        };
        for (direction, phase) in phases {
            let passed = self.passes(wire, *direction, *phase)?;
            outcome.count("packets of lasting connections", 1);
            if passed != allowed {
                let what = if passed { "leaked" } else { "lost" };
                outcome.count(what, 1);
                outcome.check(false, || {
                    format!("{what}: {:?} {direction:?}", self.connection)
                });
            }
        }
        Ok(())
    }
}

/// Runs histories.
pub fn histories(
    name: &str,
    node: &TestNode,
    programmer: &mut dyn Programmer,
    histories: u64,
    seed: u64,
) -> Result<Outcome> {
    let mut outcome = Outcome::of_packets(name);
    let mut matrix = Matrix::open(node)?;
    for number in 0..histories {
        let mut history = History::new(seed.wrapping_mul(1_000_003).wrapping_add(number));
        programmer.apply(&history.objects())?;
        node.on_node(|| Ok(palisade_nft::Conntrack::open()?.flush()?))?;
        let mut connections = lasting();
        for _ in 0..STEPS {
            let message = history.step();
            let objects = history.objects();
            programmer.apply(&objects)?;
            outcome.count("steps", 1);
            let predicted = matrix.predicted(&objects)?;
            for connection in &mut connections {
                let ends = [connection.connection.client, connection.connection.server];
                let allowed = matrix.verdict_of(&predicted, ends.map(|it| it.ip()), OPEN);
                connection.run(matrix.wire(), allowed, &mut outcome)?;
            }
            let when = format!("in history {number} after {message}");
            matrix.compare_with(&mut outcome, &[&predicted], &when)?;
        }
        outcome.count("histories", 1);
    }
    Ok(outcome)
}

impl Matrix {
    /// The predicted verdict for two addresses and a port. No policy here distinguishes TCP from
    /// UDP.
    fn verdict_of(&self, predicted: &Verdicts, [from, to]: [IpAddr; 2], port: u16) -> bool {
        let probes = self.probes().iter().zip(predicted);
        let mut its = probes.filter(|(probe, _)| {
            (probe.source, probe.destination) == (from, to) && probe.carried.port() == Some(port)
        });
        its.next().is_some_and(|(_, verdict)| *verdict)
    }
}
