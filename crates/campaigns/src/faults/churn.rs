//! A small town that changes all the time: objects, what is never touched by their changes, and what is.

use std::net::{SocketAddr, UdpSocket};

use anyhow::Result;
use palisade_core::net::Family;
use palisade_lab::topology::Location;
use serde_json::json;

use super::ledger::{Expected, Log, Settled, Tally, Timeline};
use super::objects::{Objects, Pod, admits, isolates, pod_address, sends};
use super::test_node::{CLIENT, SERVER, SPARE, STRANGER, TestNode};
use super::traffic::{Flow, SHORTEST, Traffic};
use palisade_generate::Rng;

/// The port that the client may always talk to.
pub const OPEN: u16 = 5001;
/// The port whose door is opened and shut.
pub const DOOR: u16 = 5002;
/// The port that the server would admit the client to, but the client may not send to.
pub const UNSENT: u16 = 5003;

/// The town.
#[derive(Clone, Debug)]
pub struct ChurningCluster {
    /// Its objects now.
    pub objects: Objects,
    /// Whether the door is open.
    pub is_open: bool,
    is_guarded: bool,
    rng: Rng,
    peers: u8,
    tenants: [bool; SPARE.len()],
}

/// What a change does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Rules of the server's policy are rewritten.
    Rewrite,
    /// The door is opened or shut.
    Door,
    /// Pods elsewhere that policies select come or go.
    Peers,
    /// A pod of this node comes or goes, with policies of its own.
    Tenant,
    /// The stranger gets another label, which admits it nowhere.
    Relabel,
    /// The stranger's way out and the client's way in begin or cease to be judged, by policies that
    /// allow everything.
    Guard,
}

/// All of them.
pub const KINDS: [Kind; 6] = [
    Kind::Rewrite,
    Kind::Door,
    Kind::Peers,
    Kind::Tenant,
    Kind::Relabel,
    Kind::Guard,
];

impl ChurningCluster {
    /// The town on its first day. The door is shut.
    pub fn new(seed: u64) -> ChurningCluster {
        let mut objects = Objects::new();
        objects.put_pod(&Pod::at("client", "client", CLIENT));
        objects.put_pod(&Pod::at("server", "server", SERVER));
        objects.put_pod(&Pod::at("stranger", "stranger", STRANGER));
        objects.put_policy("server", &admits("server", "client", &[OPEN, UNSENT]));
        objects.put_policy("client", &sends("client", "server", &[OPEN, DOOR]));
        objects.put_policy("tenant", &isolates("tenant"));
        ChurningCluster {
            objects,
            is_open: false,
            is_guarded: false,
            rng: Rng::new(seed),
            peers: 0,
            tenants: [false; SPARE.len()],
        }
    }

    /// Changes something.
    pub fn change(&mut self) -> Kind {
        let kind = KINDS.get(self.rng.below(KINDS.len() as u64) as usize);
        let kind = kind.copied().unwrap_or(Kind::Door);
        self.change_so(kind);
        kind
    }

    /// Changes something of one kind.
    pub fn change_so(&mut self, kind: Kind) {
        match kind {
            Kind::Rewrite => {
                let mut ports = vec![OPEN, UNSENT];
                let others = 0..self.rng.below(12);
                ports.extend(others.map(|_| 6_000 + self.rng.below(1_000) as u16));
                self.objects
                    .put_policy("server", &admits("server", "client", &ports));
            }
            Kind::Door => {
                self.is_open = !self.is_open;
                if self.is_open {
                    self.objects
                        .put_policy("door", &admits("server", "client", &[DOOR]));
                } else {
                    self.objects.take("NetworkPolicy", "door");
                }
            }
            Kind::Peers => {
                let wanted = self.rng.below(20) as u8;
                for number in 0..wanted.max(self.peers) {
                    let name = format!("peer-{number}");
                    if number < wanted {
                        self.objects
                            .put_pod(&Pod::elsewhere(&name, "client", number + 1));
                    } else {
                        self.objects.take("Pod", &name);
                    }
                }
                self.peers = wanted;
            }
            Kind::Tenant => {
                let which = self.rng.below(SPARE.len() as u64) as usize;
                if let (Some(tenant), Some(place)) = (self.tenants.get_mut(which), SPARE.get(which))
                {
                    *tenant = !*tenant;
                    let name = format!("tenant-{which}");
                    if *tenant {
                        self.objects.put_pod(&Pod::at(&name, "tenant", *place));
                    } else {
                        self.objects.take("Pod", &name);
                    }
                }
            }
            Kind::Relabel => {
                let app = format!("stranger-{}", self.rng.below(100));
                self.objects.put_pod(&Pod::at("stranger", &app, STRANGER));
            }
            Kind::Guard => self.guard(),
        }
    }
}

impl ChurningCluster {
    fn guard(&mut self) {
        self.is_guarded = !self.is_guarded;
        let admits = json!({
            "podSelector": {"matchLabels": {"app": "client"}},
            "policyTypes": ["Ingress"],
            "ingress": [{}],
        });
        let strangers = json!([
            {"key": "app", "operator": "NotIn", "values": ["client", "server", "tenant"]},
        ]);
        let sends = json!({
            "podSelector": {"matchExpressions": strangers},
            "policyTypes": ["Egress"],
            "egress": [{}],
        });
        for (name, spec) in [("guard-in", admits), ("guard-out", sends)] {
            if self.is_guarded {
                self.objects.put_policy(name, &spec);
            } else {
                self.objects.take("NetworkPolicy", name);
            }
        }
    }
}

/// The flows of the town, and what should become of them.
#[derive(Debug)]
pub struct ChurnFlows {
    /// The packets.
    pub traffic: Traffic,
    flows: Vec<(&'static str, Timeline)>,
    door: Vec<usize>,
}

/// Denied flows come from so many ports, so that most packets meet no memory of the ones before.
const PORTS: usize = 64;

impl ChurnFlows {
    /// Opens the sockets.
    pub fn open(stage: &TestNode) -> Result<ChurnFlows> {
        let mut streets = ChurnFlows {
            traffic: Traffic::default(),
            flows: Vec::new(),
            door: Vec::new(),
        };
        for family in Family::BOTH {
            let ear = |port| stage.socket(SERVER, family, port);
            let (open, door, unsent) = (ear(OPEN)?, ear(DOOR)?, ear(UNSENT)?);
            let client = stage.socket(CLIENT, family, 0)?;
            for ear in [&open, &door, &unsent] {
                streets.traffic.hear(Location::Pod(SERVER), ear)?;
            }
            streets.traffic.hear(Location::Pod(CLIENT), &client)?;
            let back = client.local_addr()?;
            let at = |port| SocketAddr::new(pod_address(SERVER, family), port);
            let barred = stage.sockets(STRANGER, family, PORTS)?;
            let is_4 = family == Family::V4;
            streets.add("allowed", vec![client], at(OPEN), Expected::Allowed);
            streets.add("answers", vec![open], back, Expected::Allowed);
            streets.add("denied on arrival", barred, at(OPEN), Expected::Denied);
            // From one port, and from many: judged already, or not yet.
            let to = stage.socket(CLIENT, family, OPEN)?;
            streets.traffic.hear(Location::Pod(CLIENT), &to)?;
            let ports = if is_4 { PORTS } else { 1 };
            let guarded = stage.sockets(STRANGER, family, ports)?;
            let to = to.local_addr()?;
            streets.add("guarded", guarded, to, Expected::Allowed);
            if is_4 {
                let unsent = stage.sockets(CLIENT, family, 1)?;
                streets.add("denied on leaving", unsent, at(UNSENT), Expected::Denied);
            }
            let door = stage.sockets(CLIENT, family, 1)?;
            let door = streets.add("door", door, at(DOOR), Expected::Denied);
            streets.door.push(door);
        }
        Ok(streets)
    }

    fn add(
        &mut self,
        name: &'static str,
        from: Vec<UdpSocket>,
        to: SocketAddr,
        expected: Expected,
    ) -> usize {
        self.flows.push((name, Timeline::new(expected)));
        self.traffic.add(Flow {
            from,
            to,
            length: SHORTEST,
            is_paced: expected == Expected::Allowed,
        })
    }

    /// From now on the door is expected to be open, shut or either.
    pub fn expect(&mut self, commit: (u64, u64), door: Expected) {
        for place in &self.door {
            if let Some((_, timeline)) = self.flows.get_mut(*place) {
                timeline.change(commit, door);
            }
        }
    }

    /// Times in which anything may happen to anyone.
    pub fn excuse(&mut self, times: &[(u64, u64)]) {
        for (_, timeline) in &mut self.flows {
            times.iter().for_each(|it| timeline.excuse(*it));
        }
    }

    /// What became of all flows: of the worst, its name.
    pub fn judge(&self, logs: &[Log]) -> (Tally, Vec<String>) {
        let mut all = Tally::default();
        let mut broken = Vec::new();
        let settled = Settled::of(logs);
        for ((name, timeline), log) in self.flows.iter().zip(logs) {
            let tally = log.judge(timeline, &settled);
            all += tally;
            if tally.leaked + tally.lost > 0 {
                broken.push(format!(
                    "flow `{name}`: {} leaked, {} lost of {}",
                    tally.leaked, tally.lost, tally.sent
                ));
            }
        }
        (all, broken)
    }
}
