//! F02: who owns an address. Pods come, run, end, go, come again under the same name, and addresses
//! change hands while connections run: packets must do what the engine says of the owner of now.

use std::net::{IpAddr, SocketAddr};

use anyhow::Result;
use palisade_core::net::Family;
use palisade_lab::topology::Location;
use palisade_lab::wire::Wire;
use serde_json::json;

use super::churn::{DOOR, OPEN};
use super::crafted::{Connection, Protocol, Stage as Part, Way};
use super::matrix::{Matrix, Verdicts};
use super::objects::{Objects, Pod, admits, isolates, pod_address, sends};
use super::outcome::Outcome;
use super::programming::Programming;
use super::test_node::{CLIENT, SERVER, SPARE, TestNode};
use palisade_generate::Rng;

/// How often something changes in one history.
const STEPS: u64 = 25;
/// The names that pods have one after the other.
const NAMES: [&str; 4] = ["job-0", "job-1", "web-0", "web-1"];
/// What they are: `guest` and `clerk` have policies, `tenant` may do nothing, `plain` everything.
const APPS: [&str; 4] = ["guest", "clerk", "tenant", "plain"];

/// A pod that exists as an object.
#[derive(Clone, Copy, Debug)]
struct Tenant {
    app: &'static str,
    place: Option<usize>,
    phase: &'static str,
    minute: u64,
}

/// Everyone who exists, by name.
#[derive(Clone, Debug)]
struct History {
    rng: Rng,
    minute: u64,
    tenants: [Option<Tenant>; NAMES.len()],
}

impl History {
    fn new(seed: u64) -> History {
        History {
            rng: Rng::new(seed),
            minute: 1,
            tenants: [None; NAMES.len()],
        }
    }

    /// Lets something happen to one pod.
    fn step(&mut self) -> String {
        let which = self.rng.below(NAMES.len() as u64) as usize;
        let app = self.rng.pick(&APPS);
        let place = self.rng.pick(&SPARE);
        let kind = self.rng.below(4);
        self.minute += 1;
        let minute = self.minute;
        let name = NAMES.get(which).copied().unwrap_or_default();
        let Some(tenant) = self.tenants.get_mut(which) else {
            return String::new();
        };
        let fresh = Tenant {
            app,
            place: Some(place),
            phase: "Running",
            minute,
        };
        match tenant {
            None if kind == 0 => {
                *tenant = Some(Tenant {
                    place: None,
                    phase: "Pending",
                    ..fresh
                });
            }
            None => *tenant = Some(fresh),
            Some(it) if it.place.is_none() => {
                it.place = Some(place);
                it.phase = "Running";
            }
            // It ends, and keeps its address in its status.
            Some(it) if kind == 0 => it.phase = "Succeeded",
            Some(it) if kind == 1 => it.phase = "Failed",
            // Another one of the same name.
            Some(_) if kind == 2 => *tenant = Some(fresh),
            Some(_) => *tenant = None,
        }
        format!("{name}: {tenant:?}")
    }

    fn objects(&self) -> Objects {
        let mut objects = Objects::new();
        objects.put_pod(&Pod::at("client", "client", CLIENT));
        objects.put_pod(&Pod::at("server", "server", SERVER));
        objects.put_policy("tenant", &isolates("tenant"));
        objects.put_policy("guest-sends", &sends("guest", "server", &[OPEN]));
        objects.put_policy("guest-admits", &admits("guest", "client", &[OPEN]));
        objects.put_policy("clerk-admits", &admits("clerk", "server", &[DOOR]));
        let selected = json!({"matchExpressions": [
            {"key": "app", "operator": "In", "values": ["guest", "clerk", "plain", "client"]},
        ]});
        let server = json!({
            "podSelector": {"matchLabels": {"app": "server"}},
            "ingress": [{"from": [{"podSelector": selected}]}],
        });
        objects.put_policy("server", &server);
        for (name, tenant) in NAMES.iter().zip(&self.tenants) {
            let Some(tenant) = tenant else { continue };
            let mut pod = Pod::at(name, tenant.app, tenant.place.unwrap_or(0));
            if tenant.place.is_none() {
                pod.addresses.clear();
            }
            objects.put_pod(&Pod {
                phase: tenant.phase,
                minute: tenant.minute,
                uid: tenant.minute,
                ..pod
            });
        }
        objects
    }
}

/// A connection of one of the places with somebody else, which goes on whoever owns the place.
struct Lasting {
    connection: Connection,
    from: usize,
    to: usize,
    is_open: bool,
}

fn lasting() -> Vec<Lasting> {
    let mut all = Vec::new();
    for family in Family::BOTH {
        for place in SPARE {
            for protocol in [Protocol::Tcp, Protocol::Udp] {
                for (from, to) in [(place, SERVER), (CLIENT, place)] {
                    let at = |pod, port| SocketAddr::new(pod_address(pod, family), port);
                    let server = at(to, OPEN);
                    all.push(Lasting {
                        connection: Connection {
                            protocol,
                            client: at(from, 21_000),
                            dialled: server,
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

impl Lasting {
    /// Whether a packet arrives.
    fn passes(&self, wire: &mut Wire, way: Way, part: Part) -> Result<bool> {
        let (from, to) = match way {
            Way::There => (self.from, self.to),
            Way::Back => (self.to, self.from),
        };
        let Some(packet) = self.connection.packet(way, part)? else {
            return Ok(true);
        };
        let seen = wire.exchange(Location::Pod(from), [packet.as_slice()])?;
        Ok(seen
            .iter()
            .any(|(place, seen)| *place == Location::Pod(to) && self.connection.is_its(way, seen)))
    }

    /// Sends both ways: all packets or none.
    fn run(&mut self, wire: &mut Wire, allowed: bool, outcome: &mut Outcome) -> Result<()> {
        let parts: &[(Way, Part)] = if self.is_open {
            &[(Way::Back, Part::Running), (Way::There, Part::Running)]
        } else if allowed {
            self.is_open = true;
            &[
                (Way::There, Part::Opening),
                (Way::Back, Part::Opening),
                (Way::There, Part::Confirming),
                (Way::There, Part::Running),
            ]
        } else {
            &[(Way::There, Part::Opening)]
        };
        for (way, part) in parts {
            let passed = self.passes(wire, *way, *part)?;
            outcome.count("packets of lasting connections", 1);
            if passed != allowed {
                let what = if passed { "leaked" } else { "lost" };
                outcome.count(what, 1);
                outcome.check(false, || format!("{what}: {:?} {way:?}", self.connection));
            }
        }
        Ok(())
    }
}

/// Runs so many histories.
pub fn histories(
    name: &str,
    stage: &TestNode,
    programming: &mut dyn Programming,
    histories: u64,
    seed: u64,
) -> Result<Outcome> {
    let mut outcome = Outcome::new(name);
    outcome.count("leaked", 0);
    outcome.count("lost", 0);
    let mut matrix = Matrix::open(stage)?;
    for number in 0..histories {
        let mut history = History::new(seed.wrapping_mul(1_000_003).wrapping_add(number));
        programming.apply(&history.objects())?;
        stage.on_node(|| Ok(palisade_nft::Conntrack::open()?.flush()?))?;
        let mut connections = lasting();
        for _ in 0..STEPS {
            let words = history.step();
            let objects = history.objects();
            programming.apply(&objects)?;
            outcome.count("steps", 1);
            let predicted = matrix.predicted(&objects)?;
            for connection in &mut connections {
                let ends = [connection.connection.client, connection.connection.server];
                let allowed = matrix.says(&predicted, ends.map(|it| it.ip()), OPEN);
                connection.run(matrix.wire(), allowed, &mut outcome)?;
            }
            let when = format!("in history {number} after {words}");
            matrix.compare_with(&mut outcome, &[&predicted], &when)?;
        }
        outcome.count("histories", 1);
    }
    Ok(outcome)
}

impl Matrix {
    /// What a prediction says of two addresses and a port. TCP is not told from UDP by any policy here.
    fn says(&self, predicted: &Verdicts, [from, to]: [IpAddr; 2], port: u16) -> bool {
        let probes = self.probes().iter().zip(predicted);
        let mut its = probes.filter(|(probe, _)| {
            (probe.source, probe.destination) == (from, to) && probe.carried.port() == Some(port)
        });
        its.next().is_some_and(|(_, verdict)| *verdict)
    }
}
