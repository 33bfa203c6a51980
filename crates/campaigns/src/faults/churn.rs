//! A churning cluster: objects, their changes, and flows that the changes affect or must not
//! affect.

use std::net::{SocketAddr, UdpSocket};

use anyhow::Result;
use palisade_core::net::Family;
use palisade_lab::topology::Location;
use serde_json::json;

use super::ledger::{DecisionTimes, Expected, Log, Tally, Timeline};
use super::objects::{Objects, Pod, admits, isolates, pod_address, sends};
use super::test_node::{CLIENT, OTHER_CLIENT, SERVER, SPARE, TestNode};
use super::traffic::{Flow, MIN_PAYLOAD, Traffic};
use palisade_generate::Rng;

/// The server's port that the client may always use.
pub const OPEN: u16 = 5001;
/// The server's port that a policy opens and closes.
pub const TOGGLED: u16 = 5002;
/// The server's port that its ingress allows and the client's egress denies.
pub const EGRESS_DENIED: u16 = 5003;

/// A churning cluster.
#[derive(Clone, Debug)]
pub struct ChurningCluster {
    /// Its current objects.
    pub objects: Objects,
    /// Whether the toggled port is open.
    pub is_open: bool,
    has_allow_all: bool,
    rng: Rng,
    peers: u8,
    local_pods: [bool; SPARE.len()],
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeKind {
    /// Rewrites the rules of the server's policy.
    Rewrite,
    /// Opens or closes the toggled port.
    Toggle,
    /// Creates or deletes pods of other nodes that policies select.
    RemotePods,
    /// Creates or deletes an isolated pod of this node.
    LocalPod,
    /// Gives the other client another label, which no rule matches.
    Relabel,
    /// Isolates the other client's egress and the client's ingress with policies that allow
    /// everything, or removes these policies.
    AllowAll,
}

/// All of them.
pub const CHANGE_KINDS: [ChangeKind; 6] = [
    ChangeKind::Rewrite,
    ChangeKind::Toggle,
    ChangeKind::RemotePods,
    ChangeKind::LocalPod,
    ChangeKind::Relabel,
    ChangeKind::AllowAll,
];

impl ChurningCluster {
    /// The initial cluster. The toggled port is closed.
    pub fn new(seed: u64) -> ChurningCluster {
        let mut objects = Objects::new();
        objects.put_pod(&Pod::at("client", "client", CLIENT));
        objects.put_pod(&Pod::at("server", "server", SERVER));
        objects.put_pod(&Pod::at("stranger", "stranger", OTHER_CLIENT));
        objects.put_policy(
            "server",
            &admits("server", "client", &[OPEN, EGRESS_DENIED]),
        );
        objects.put_policy("client", &sends("client", "server", &[OPEN, TOGGLED]));
        objects.put_policy("tenant", &isolates("tenant"));
        ChurningCluster {
            objects,
            is_open: false,
            has_allow_all: false,
            rng: Rng::new(seed),
            peers: 0,
            local_pods: [false; SPARE.len()],
        }
    }

    /// Makes a random change.
    pub fn change(&mut self) -> ChangeKind {
        let kind = CHANGE_KINDS.get(self.rng.below(CHANGE_KINDS.len() as u64) as usize);
        let kind = kind.copied().unwrap_or(ChangeKind::Toggle);
        self.apply(kind);
        kind
    }

    /// Makes a change of one kind.
    pub fn apply(&mut self, kind: ChangeKind) {
        match kind {
            ChangeKind::Rewrite => {
                let mut ports = vec![OPEN, EGRESS_DENIED];
                let others = 0..self.rng.below(12);
                ports.extend(others.map(|_| 6_000 + self.rng.below(1_000) as u16));
                self.objects
                    .put_policy("server", &admits("server", "client", &ports));
            }
            ChangeKind::Toggle => {
                self.is_open = !self.is_open;
                if self.is_open {
                    self.objects
                        .put_policy("toggled", &admits("server", "client", &[TOGGLED]));
                } else {
                    self.objects.take("NetworkPolicy", "toggled");
                }
            }
            ChangeKind::RemotePods => {
                let count = self.rng.below(20) as u8;
                for number in 0..count.max(self.peers) {
                    let name = format!("peer-{number}");
                    if number < count {
                        self.objects
                            .put_pod(&Pod::elsewhere(&name, "client", number + 1));
                    } else {
                        self.objects.take("Pod", &name);
                    }
                }
                self.peers = count;
            }
            ChangeKind::LocalPod => {
                let which = self.rng.below(SPARE.len() as u64) as usize;
                if let (Some(local_pod), Some(place)) =
                    (self.local_pods.get_mut(which), SPARE.get(which))
                {
                    *local_pod = !*local_pod;
                    let name = format!("tenant-{which}");
                    if *local_pod {
                        self.objects.put_pod(&Pod::at(&name, "tenant", *place));
                    } else {
                        self.objects.take("Pod", &name);
                    }
                }
            }
            ChangeKind::Relabel => {
                let app = format!("stranger-{}", self.rng.below(100));
                self.objects
                    .put_pod(&Pod::at("stranger", &app, OTHER_CLIENT));
            }
            ChangeKind::AllowAll => self.toggle_allow_all(),
        }
    }
}

impl ChurningCluster {
    fn toggle_allow_all(&mut self) {
        self.has_allow_all = !self.has_allow_all;
        let admits = json!({
            "podSelector": {"matchLabels": {"app": "client"}},
            "policyTypes": ["Ingress"],
            "ingress": [{}],
        });
        let others = json!([
            {"key": "app", "operator": "NotIn", "values": ["client", "server", "tenant"]},
        ]);
        let sends = json!({
            "podSelector": {"matchExpressions": others},
            "policyTypes": ["Egress"],
            "egress": [{}],
        });
        for (name, spec) in [("allow-all-in", admits), ("allow-all-out", sends)] {
            if self.has_allow_all {
                self.objects.put_policy(name, &spec);
            } else {
                self.objects.take("NetworkPolicy", name);
            }
        }
    }
}

/// The flows of the cluster, and the expected verdicts.
#[derive(Debug)]
pub struct ChurnFlows {
    /// The packets.
    pub traffic: Traffic,
    flows: Vec<(&'static str, Timeline)>,
    toggled: Vec<usize>,
}

/// Source ports of denied flows: most packets find no state of earlier ones.
const SOURCE_PORTS: usize = 64;

impl ChurnFlows {
    /// Opens the sockets.
    pub fn open(node: &TestNode) -> Result<ChurnFlows> {
        let mut flows = ChurnFlows {
            traffic: Traffic::default(),
            flows: Vec::new(),
            toggled: Vec::new(),
        };
        for family in Family::BOTH {
            let receiver = |port| node.socket(SERVER, family, port);
            let (open, toggled, denied_egress) = (
                receiver(OPEN)?,
                receiver(TOGGLED)?,
                receiver(EGRESS_DENIED)?,
            );
            let client = node.socket(CLIENT, family, 0)?;
            for receiver in [&open, &toggled, &denied_egress] {
                flows
                    .traffic
                    .add_receiver(Location::Pod(SERVER), receiver)?;
            }
            flows.traffic.add_receiver(Location::Pod(CLIENT), &client)?;
            let client_address = client.local_addr()?;
            let at = |port| SocketAddr::new(pod_address(SERVER, family), port);
            let denied = node.sockets(OTHER_CLIENT, family, SOURCE_PORTS)?;
            let is_4 = family == Family::V4;
            flows.add("allowed", vec![client], at(OPEN), Expected::Allowed);
            flows.add("replies", vec![open], client_address, Expected::Allowed);
            flows.add("denied by ingress", denied, at(OPEN), Expected::Denied);
            // From one port and from many: packets with and without an entry in connection
            // tracking.
            let to = node.socket(CLIENT, family, OPEN)?;
            flows.traffic.add_receiver(Location::Pod(CLIENT), &to)?;
            let ports = if is_4 { SOURCE_PORTS } else { 1 };
            let allow_all = node.sockets(OTHER_CLIENT, family, ports)?;
            let to = to.local_addr()?;
            flows.add("allow-all", allow_all, to, Expected::Allowed);
            if is_4 {
                let denied_egress = node.sockets(CLIENT, family, 1)?;
                flows.add(
                    "denied by egress",
                    denied_egress,
                    at(EGRESS_DENIED),
                    Expected::Denied,
                );
            }
            let toggled = node.sockets(CLIENT, family, 1)?;
            let toggled = flows.add("toggled", toggled, at(TOGGLED), Expected::Denied);
            flows.toggled.push(toggled);
        }
        Ok(flows)
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
            length: MIN_PAYLOAD,
            is_paced: expected == Expected::Allowed,
        })
    }

    /// Sets the expected verdict of the toggled port from a commit on.
    pub fn expect(&mut self, commit: (u64, u64), toggled: Expected) {
        for place in &self.toggled {
            if let Some((_, timeline)) = self.flows.get_mut(*place) {
                timeline.change(commit, toggled);
            }
        }
    }

    /// Accepts any outcome of any packet during these times.
    pub fn allow_either(&mut self, times: &[(u64, u64)]) {
        for (_, timeline) in &mut self.flows {
            times.iter().for_each(|it| timeline.allow_either(*it));
        }
    }

    /// Tallies all flows, with a message for each flow that leaked or lost packets.
    pub fn tally(&self, logs: &[Log]) -> (Tally, Vec<String>) {
        let mut all = Tally::default();
        let mut violations = Vec::new();
        let decided = DecisionTimes::of(logs);
        for ((name, timeline), log) in self.flows.iter().zip(logs) {
            let tally = log.tally(timeline, &decided);
            all += tally;
            if tally.leaked + tally.lost > 0 {
                violations.push(format!(
                    "flow `{name}`: {} leaked, {} lost of {}",
                    tally.leaked, tally.lost, tally.sent
                ));
            }
        }
        (all, violations)
    }
}
