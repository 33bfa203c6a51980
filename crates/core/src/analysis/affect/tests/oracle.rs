//! A second evaluation: every flow of small random clusters, rule by rule from the text of the
//! model and without the compiled form.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::super::*;
use crate::compile::compile;
use crate::decide::Traffic;
use crate::fixture::{
    PolicyDraft, Random, admin, any_namespace, baseline, block, cluster, declared, is, named,
    netpol, node, pod, policy, port, ports, rule, service, tcp, template,
};
use crate::labels::Selector;
use crate::model::{Effect, NamespaceId, NodeId, Peer, Pod, PodSet, PortMatch};
use crate::net::CidrText;
use crate::policy::Action;
use crate::program::Owner;

const BLOCKS: [&str; 6] = [
    "0.0.0.0/0",
    "10.0.0.0/8",
    "10.1.0.0/24",
    "203.0.113.0/24",
    "192.0.2.0/24",
    "fd00::/64",
];

/// Addresses on both sides of each boundary of each block.
const ADDRESSES: [&str; 14] = [
    "1.0.0.0",
    "9.255.255.255",
    "10.0.0.250",
    "10.0.255.255",
    "10.1.0.254",
    "10.1.1.0",
    "11.0.0.0",
    "192.0.2.99",
    "192.0.3.0",
    "203.0.113.99",
    "203.0.114.0",
    "fcff::1",
    "fd00::99",
    "fd00:0:0:1::",
];

/// Ports on both sides of each boundary of each range, and a protocol without ports.
fn traffics() -> Vec<Traffic> {
    let mut traffics = vec![Traffic::Portless];
    for protocol in Protocol::ALL {
        for number in [1, 52, 53, 54, 79, 80, 81, 443, 444, 8079, 8080, 8081] {
            traffics.push(Traffic::Port(protocol, port(number)));
        }
    }
    traffics
}

fn peer(random: &mut Random) -> Vec<Peer<'static>> {
    let pods = |namespaces, pods| vec![Peer::Pods(PodSet { namespaces, pods })];
    match random.below(11) {
        0 => vec![Peer::All],
        1 => pods(any_namespace(), None),
        2 => pods(any_namespace(), Some(is("app", "a"))),
        3 => pods(NamespaceSet::Exact(NamespaceId(1)), None),
        4 => pods(NamespaceSet::Own, None),
        5 => pods(NamespaceSet::NotOwn, Some(is("app", "b"))),
        6 => pods(NamespaceSet::SameLabels(vec!["team"]), None),
        7 => pods(NamespaceSet::NotSameLabels(vec!["team"]), None),
        8 => vec![Peer::Nodes(is("name", "n1"))],
        9 => block(random.one(&BLOCKS)),
        _ => vec![Peer::Block {
            cidr: CidrText::parse("0.0.0.0/0").unwrap().cidr,
            except: vec![CidrText::parse("10.1.0.0/24").unwrap().cidr],
        }],
    }
}

fn some_ports(random: &mut Random) -> Option<Vec<PortMatch<'static>>> {
    match random.below(8) {
        0..=2 => None,
        3 => Some(vec![tcp(80)]),
        4 => Some(vec![ports(Protocol::Tcp, 80, 443)]),
        5 => Some(vec![ports(Protocol::Udp, 53, 53)]),
        6 => Some(vec![named("http")]),
        _ => Some(vec![
            PortMatch::Named(Some(Protocol::Tcp), "web"),
            tcp(8080),
        ]),
    }
}

fn fill(random: &mut Random, mut draft: PolicyDraft, actions: &[Action]) -> PolicyDraft {
    for _ in 0..=random.below(2) {
        let rule = rule(random.one(actions), peer(random), some_ports(random));
        draft = if random.below(2) == 0 {
            draft.ingress(rule)
        } else {
            draft.egress(rule)
        };
    }
    match random.below(3) {
        0 => draft.subject(PodSet {
            namespaces: any_namespace(),
            pods: Some(is("app", random.one(&["a", "b"]))),
        }),
        _ => draft,
    }
}

fn random_policies(random: &mut Random) -> Vec<PolicyDraft> {
    const ANY: [Action; 3] = [Action::Accept, Action::Deny, Action::Pass];
    const TWO: [Action; 2] = [Action::Accept, Action::Deny];
    let mut policies = Vec::new();
    for name in ["p", "q", "r"] {
        if random.below(3) > 0 {
            let priority = random.one(&[1, 2, 2, 3]);
            policies.push(fill(random, admin(name, priority), &ANY));
        }
    }
    for name in ["s", "t"] {
        if random.below(2) == 0 {
            let priority = random.one(&[1, 2]);
            policies.push(fill(random, baseline(name, priority), &ANY));
        }
    }
    for (namespace, name) in [("x", "n"), ("x", "o"), ("y", "n")] {
        match random.below(4) {
            0 => policies.push(netpol(namespace, name).ingress_isolates()),
            1 => policies.push(netpol(namespace, name).egress_isolates()),
            2 => {
                let rule = rule(Action::Accept, peer(random), some_ports(random));
                policies.push(netpol(namespace, name).ingress(rule).egress_isolates());
            }
            _ => {}
        }
    }
    for name in ["e", "f"] {
        if random.below(4) == 0 {
            let early = policy(PolicyApi::EarlyCluster, name, PolicyRank::EarlyAdmin);
            policies.push(fill(random, early, &TWO));
        }
        if random.below(4) == 0 {
            let default = policy(PolicyApi::Default, name, PolicyRank::DefaultGroup);
            policies.push(fill(random, default, &[Action::Accept]));
        }
    }
    if random.below(3) == 0 {
        let rank = PolicyRank::Ordered(Tier::Baseline, BASELINE_ADMIN_PRIORITY);
        let banp = policy(PolicyApi::BaselineAdmin, "default", rank);
        policies.push(fill(random, banp, &TWO));
    }
    policies
}

fn random_cluster(random: &mut Random) -> Cluster<'static> {
    let mut pods = vec![pod("x", "a"), pod("x", "b"), pod("y", "a"), pod("z", "b")];
    pods[0].ports = [declared("http", 8080, Protocol::Tcp)].into();
    pods[1].ports = [
        declared("web", 80, Protocol::Tcp),
        declared("http", 53, Protocol::Udp),
    ]
    .into();
    pods[2].node = Some("n1");
    if random.below(2) == 0 {
        pods[0].addresses.push("fd00::1".parse().unwrap());
        pods[3].addresses = vec!["fd00:0:0:1::1".parse().unwrap()];
    }
    let mut host = pod("z", "h");
    host.host_network = true;
    host.addresses = vec!["192.0.2.1".parse().unwrap()];
    host.node = Some("n1");
    pods.push(host);
    if random.below(2) == 0 {
        pods.push(template("y", "t"));
    }
    let mut cluster = cluster(pods, random_policies(random));
    cluster.nodes = vec![node("n1", "192.0.2.1")];
    if random.below(2) == 0 {
        cluster.nodes.push(node("n2", "11.0.0.1"));
    }
    if random.below(2) == 0 {
        cluster.services = vec![service("y", "s", (PodId(2), 80))];
    }
    cluster
}

/// A peer of a flow.
#[derive(Clone, Debug)]
struct End {
    pod: Option<PodId>,
    node: Option<NodeId>,
    /// Its possible addresses.
    addresses: Vec<IpAddr>,
    local_to: Option<&'static str>,
}

fn text(addresses: &[&str]) -> Vec<IpAddr> {
    addresses.iter().map(|it| it.parse().unwrap()).collect()
}

fn all_peers(cluster: &Cluster<'static>, owner: impl Fn(IpAddr) -> Option<Owner>) -> Vec<End> {
    let mut peers = Vec::new();
    for (id, pod) in cluster.pods.iter().enumerate() {
        let id = PodId(u32::try_from(id).unwrap());
        if pod.host_network {
            peers.push(End {
                pod: None,
                node: Some(NodeId(0)),
                addresses: pod.addresses.clone(),
                local_to: pod.node,
            });
        } else if pod.addresses.is_empty() {
            peers.push(End {
                pod: Some(id),
                node: None,
                addresses: text(&ADDRESSES),
                local_to: None,
            });
        } else {
            peers.extend(pod.addresses.iter().map(|it| End {
                pod: Some(id),
                node: None,
                addresses: vec![*it],
                local_to: None,
            }));
        }
    }
    for (id, node) in cluster.nodes.iter().enumerate() {
        for local_to in [Some(node.name), None] {
            peers.push(End {
                pod: None,
                node: Some(NodeId(u32::try_from(id).unwrap())),
                addresses: node.addresses.clone(),
                local_to,
            });
        }
    }
    let outside = text(&ADDRESSES).into_iter();
    peers.extend(outside.filter(|it| owner(*it).is_none()).map(|it| End {
        pod: None,
        node: None,
        addresses: vec![it],
        local_to: None,
    }));
    peers
}

/// A flow from the view of its subject.
struct Seen<'c> {
    cluster: &'c Cluster<'static>,
    subject: &'c Pod<'static>,
    direction: Direction,
    peer: &'c End,
    address: IpAddr,
    traffic: Traffic,
}

impl Seen<'_> {
    fn matches(&self, effect: &Effect<'_>) -> bool {
        let peers = effect.peers.as_ref();
        let ports = effect.ports.as_ref();
        peers.is_none_or(|it| it.iter().any(|it| self.is_peer(it)))
            && ports.is_none_or(|it| it.iter().any(|it| self.is_port(it)))
    }

    fn peer_pod(&self) -> Option<&Pod<'static>> {
        self.peer.pod.map(|id| &self.cluster.pods[id.0 as usize])
    }

    fn is_peer(&self, peer: &Peer<'_>) -> bool {
        match peer {
            Peer::All => true,
            Peer::Block { cidr, except } => {
                cidr.contains(self.address) && !except.iter().any(|it| it.contains(self.address))
            }
            Peer::Nodes(selector) => self.peer.node.is_some_and(|id| {
                let node = &self.cluster.nodes[id.0 as usize];
                selector.matches(|key| label(&node.labels, key))
            }),
            Peer::Domains(_) => false,
            Peer::Pods(set) => self.peer_pod().is_some_and(|pod| {
                let selected = |it: &Selector<&str>| it.matches(|key| label(&pod.labels, key));
                self.is_namespace(&set.namespaces, pod.namespace)
                    && set.pods.as_ref().is_none_or(selected)
            }),
        }
    }

    fn is_namespace(&self, set: &NamespaceSet<'_>, of_peer: NamespaceId) -> bool {
        let labels = |id: NamespaceId| &self.cluster.namespaces[id.0 as usize].labels;
        let own = self.subject.namespace;
        let values = |id, keys: &[&str]| {
            let values = keys.iter().map(|key| label(labels(id), key));
            values.collect::<Option<Vec<&str>>>()
        };
        match set {
            NamespaceSet::Exact(id) => *id == of_peer,
            NamespaceSet::Selected { selector, .. } => {
                selector.matches(|key| label(labels(of_peer), key))
            }
            NamespaceSet::Own => own == of_peer,
            NamespaceSet::NotOwn => own != of_peer,
            NamespaceSet::SameLabels(keys) => {
                let (own, other) = (values(own, keys), values(of_peer, keys));
                own.is_some() && own == other
            }
            NamespaceSet::NotSameLabels(keys) => {
                let (own, other) = (values(own, keys), values(of_peer, keys));
                own.is_some() && other.is_some() && own != other
            }
        }
    }

    fn is_port(&self, port: &PortMatch<'_>) -> bool {
        let Traffic::Port(protocol, number) = self.traffic else {
            return false;
        };
        match port {
            PortMatch::Numbers(of, range) => *of == protocol && range.contains(number),
            PortMatch::Named(of, name) => {
                let destination = match self.direction {
                    Direction::Ingress => Some(self.subject),
                    Direction::Egress => self.peer_pod(),
                };
                let mut declared = destination.into_iter().flat_map(|pod| pod.ports.iter());
                of.is_none_or(|of| of == protocol)
                    && declared.any(|it| {
                        (it.name, it.port, it.protocol) == (Some(*name), number, protocol)
                    })
            }
        }
    }

    /// Returns the rules of a policy that match, in the order of the object.
    fn hits(&self, id: PolicyId) -> Vec<(Decider, Action)> {
        let rules = self.cluster.policies[id.0 as usize].rules(self.direction);
        let rules = rules.list.iter().enumerate();
        let hits = rules.filter_map(|(index, rule)| {
            let effect = rule.effect.as_ref().filter(|it| self.matches(it))?;
            let place = RulePlace {
                policy: id,
                direction: self.direction,
                index: u32::try_from(index).unwrap(),
            };
            Some((Decider::Rule(place), effect.action))
        });
        hits.collect()
    }

    /// Evaluates the flow with some of the policies (section 1.1).
    fn evaluate(&self, policies: &[PolicyId]) -> Judgement {
        let rank = |id: &PolicyId| self.cluster.policies[id.0 as usize].rank;
        let of = |is_of_tier: fn(PolicyRank) -> bool| {
            let these = policies.iter().filter(move |id| is_of_tier(rank(id)));
            these.copied().collect::<Vec<PolicyId>>()
        };
        let mut admin = None;
        let early = of(|it| it == PolicyRank::EarlyAdmin);
        let early: Vec<(Decider, Action)> = early.iter().flat_map(|id| self.hits(*id)).collect();
        let denying = early.iter().filter(|it| it.1 == Action::Deny);
        let allowing = early.iter().filter(|it| it.1 != Action::Deny);
        let ordered = of(|it| matches!(it, PolicyRank::Ordered(Tier::Admin, _)));
        let ordered: Vec<(Decider, Action)> =
            ordered.iter().flat_map(|id| self.hits(*id)).collect();
        if let Some((part, action)) = denying.chain(allowing).chain(&ordered).next() {
            admin = Some((*part, *action));
            let verdict = match action {
                Action::Accept => Some(Verdict::Allow),
                Action::Deny => Some(Verdict::Deny),
                Action::Pass => None,
            };
            if let Some(verdict) = verdict {
                return Judgement {
                    verdict,
                    admin,
                    by: vec![*part],
                };
            }
        }
        let (verdict, by) = self
            .isolated(&of(|it| it == PolicyRank::NetworkPolicy))
            .or_else(|| {
                let ordered = of(|it| matches!(it, PolicyRank::Ordered(Tier::Baseline, _)));
                let first = ordered.iter().flat_map(|id| self.hits(*id)).next()?;
                let verdict = match first.1 {
                    Action::Accept | Action::Pass => Verdict::Allow,
                    Action::Deny => Verdict::Deny,
                };
                Some((verdict, vec![first.0]))
            })
            .or_else(|| self.isolated(&of(|it| it == PolicyRank::DefaultGroup)))
            .unwrap_or((Verdict::Allow, Vec::new()));
        Judgement { verdict, admin, by }
    }

    fn isolated(&self, policies: &[PolicyId]) -> Option<(Verdict, Vec<Decider>)> {
        let hits = policies.iter().flat_map(|id| self.hits(*id));
        let hits: Vec<Decider> = hits.map(|it| it.0).collect();
        match (policies.is_empty(), hits.is_empty()) {
            (true, _) => None,
            (false, false) => Some((Verdict::Allow, hits)),
            (false, true) => {
                let isolation = |id: &PolicyId| Decider::Isolation(*id, self.direction);
                Some((Verdict::Deny, policies.iter().map(isolation).collect()))
            }
        }
    }

    /// Returns the effects: an override for each policy whose own verdict differs from that of all
    /// policies, with the parts that decide; deferrals; and the parts that decide the flow.
    fn facts(&self, policies: &[PolicyId]) -> BTreeSet<Fact> {
        let rank = |id: PolicyId| self.cluster.policies[id.0 as usize].rank;
        let tier = |id: PolicyId| match rank(id) {
            PolicyRank::EarlyAdmin | PolicyRank::Ordered(Tier::Admin, _) => 0,
            PolicyRank::NetworkPolicy => 1,
            PolicyRank::Ordered(Tier::Baseline, _) | PolicyRank::DefaultGroup => 2,
        };
        let all = self.evaluate(policies);
        let mut found = BTreeSet::new();
        for id in policies {
            let later = policies.iter().filter(|it| tier(**it) > tier(*id));
            let mut alone: Vec<PolicyId> = later.copied().collect();
            // The policies of a union give one verdict together.
            match rank(*id) {
                PolicyRank::NetworkPolicy | PolicyRank::DefaultGroup => {
                    let same = policies.iter().filter(|it| rank(**it) == rank(*id));
                    alone.extend(same);
                }
                PolicyRank::EarlyAdmin | PolicyRank::Ordered(..) => alone.push(*id),
            }
            alone.sort_by_key(|id| precedence(&self.cluster.policies[id.0 as usize]));
            let own = self.evaluate(&alone);
            let speaking = own.admin.map(|it| it.0).into_iter().chain(own.by);
            let speaking = speaking.filter(|part| part.policy() == *id);
            if own.verdict == all.verdict {
                continue;
            }
            let decided = all
                .admin
                .filter(|it| it.1 != Action::Pass || tier(*id) == 0);
            let winners = decided.map_or(all.by.clone(), |it| vec![it.0]);
            for loser in speaking.collect::<BTreeSet<Decider>>() {
                found.extend(
                    winners
                        .iter()
                        .map(|it| Fact::Override(*it, loser, all.verdict)),
                );
            }
        }
        if let Some((part, action)) = all.admin {
            found.insert(Fact::Settles(part));
            if action == Action::Pass {
                let to = all.by.iter();
                found.extend(to.map(|to| Fact::Deferral(part, *to, all.verdict)));
            }
        }
        found.extend(all.by.iter().map(|it| Fact::Settles(*it)));
        found
    }
}

/// An effect of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fact {
    Override(Decider, Decider, Verdict),
    Deferral(Decider, Decider, Verdict),
    Settles(Decider),
}

fn facts(effects: &Effects) -> BTreeSet<Fact> {
    let overrides = effects.overrides.iter();
    let overrides = overrides.map(|it| Fact::Override(it.winner, it.loser, it.verdict));
    let deferrals = effects.deferrals.iter();
    let deferrals = deferrals.map(|it| Fact::Deferral(it.rule, it.to, it.verdict));
    let settling = effects.deciding.iter().map(|it| Fact::Settles(*it));
    overrides.chain(deferrals).chain(settling).collect()
}

struct Judgement {
    verdict: Verdict,
    /// The first rule of the Admin tier that matches, including Pass.
    admin: Option<(Decider, Action)>,
    by: Vec<Decider>,
}

fn expected(cluster: &Cluster<'static>, program: &Program, id: PodId) -> BTreeSet<Fact> {
    let subject = &cluster.pods[id.0 as usize];
    let mut found = BTreeSet::new();
    for direction in Direction::BOTH {
        let selecting = policies_on(cluster, id, direction);
        for peer in &all_peers(cluster, |it| program.owner(it)) {
            let is_itself = peer.pod == Some(id) && subject.template.is_none();
            let is_local = direction == Direction::Ingress
                && peer.local_to.is_some()
                && peer.local_to == subject.node;
            let served = cluster.services.iter().flat_map(|it| &it.ports);
            let served = served.flat_map(|it| it.backends.iter().map(|to| (it.protocol, to)));
            let served: Vec<Traffic> = served
                .filter(|(_, to)| to.target == BackendTarget::Pod(id))
                .map(|(protocol, to)| Traffic::Port(protocol, to.port))
                .collect();
            let addresses = peer.addresses.iter().copied().filter(|address| {
                let own = &subject.addresses;
                own.is_empty() || own.iter().any(|it| it.is_ipv4() == address.is_ipv4())
            });
            let addresses: Vec<IpAddr> = addresses.collect();
            for traffic in traffics() {
                if is_local || (is_itself && !served.contains(&traffic)) {
                    continue;
                }
                let stories = addresses.iter().map(|address| {
                    let flow = Seen {
                        cluster,
                        subject,
                        direction,
                        peer,
                        address: *address,
                        traffic,
                    };
                    flow.facts(&selecting)
                });
                let certain = stories.reduce(|a, b| a.intersection(&b).copied().collect());
                found.extend(certain.unwrap_or_default());
            }
        }
    }
    found
}

#[test]
fn every_flow_of_random_clusters_agrees() {
    let mut n_overrides = 0;
    for seed in 1..=100 {
        let mut random = Random(seed);
        let cluster = random_cluster(&mut random);
        let program = compile(&cluster);
        let finder = OverrideFinder::new(&cluster, &program);
        let mut of_all = BTreeSet::new();
        let pods = (0..u32::try_from(cluster.pods.len()).unwrap()).map(PodId);
        let pods: Vec<PodId> = pods.filter(|id| program.class(*id).is_some()).collect();
        for id in &pods {
            let expected = expected(&cluster, &program, *id);
            let effects = finder.effects(&[*id]);
            for it in &effects.overrides {
                super::check(&program, it);
            }
            let found = facts(&effects);
            assert_eq!(found, expected, "seed {seed}, {}", cluster.pod_name(*id));
            n_overrides += effects.overrides.len();
            of_all.extend(found);
        }
        let found = facts(&finder.effects(&pods));
        assert_eq!(found, of_all, "seed {seed}");
    }
    assert!(n_overrides > 500, "{n_overrides}");
}
