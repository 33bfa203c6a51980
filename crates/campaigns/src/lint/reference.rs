//! A small cluster, flow by flow: the possible ends, and the rules that match, evaluated on the
//! model without the compiled form.

mod ends;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroU16;

use palisade_core::EndName;
use palisade_core::decide::Traffic;
use palisade_core::model::{
    BackendTarget, Cluster, Effect, NamespaceSet, NodeId, Peer, Pod, PodId, PodSet, PolicyId,
    PolicyRank, PortMatch, label,
};
use palisade_core::net::{Family, Protocol};
use palisade_core::policy::{Action, Direction, Tier};
use palisade_core::program::{Program, RulePlace};

/// The rules that match a flow, by their indices in [`ReferenceCluster::rules`].
pub(super) type Mask = u128;

/// The maximum number of rules.
pub(super) const MAX_RULES: usize = 128;

/// A rule with an effect.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) place: RulePlace,
    pub(super) action: Action,
    pub(super) failed_closed: bool,
}

/// Flows in one direction with one subject and the same matching rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cell {
    pub(super) direction: Direction,
    pub(super) subject: u32,
    pub(super) mask: Mask,
}

/// The other end of a flow.
#[derive(Clone, Debug)]
pub(super) struct End<'c> {
    pub(super) name: EndName,
    pod: Option<PodId>,
    node: Option<NodeId>,
    family: Family,
    /// Its possible addresses.
    addresses: Vec<IpAddr>,
    local_to: Option<&'c str>,
    only_receives: bool,
}

pub(super) struct ReferenceCluster<'c> {
    pub(super) cluster: &'c Cluster<'c>,
    pub(super) rules: Vec<Rule>,
    pub(super) cells: BTreeSet<Cell>,
    ends: Vec<End<'c>>,
}

impl<'c> ReferenceCluster<'c> {
    /// Enumerates the flows. `None` if there are too many rules.
    pub(super) fn new(cluster: &'c Cluster<'c>, program: &Program) -> Option<ReferenceCluster<'c>> {
        let mut rules = Vec::new();
        for (id, policy) in (0..).zip(&cluster.policies) {
            for direction in Direction::BOTH {
                let list = policy.rules(direction);
                let isolates = matches!(
                    policy.rank,
                    PolicyRank::NetworkPolicy | PolicyRank::DefaultGroup
                );
                if policy.audited || policy.subject.is_none() || (isolates && !list.isolates) {
                    continue;
                }
                for (index, rule) in (0..).zip(&list.list) {
                    let Some(effect) = &rule.effect else {
                        continue;
                    };
                    rules.push(Rule {
                        place: RulePlace {
                            policy: PolicyId(id),
                            direction,
                            index,
                        },
                        action: effect.action,
                        failed_closed: rule.failed_closed,
                    });
                }
            }
        }
        let mut reference = ReferenceCluster {
            cluster,
            rules,
            cells: BTreeSet::new(),
            ends: ends::ends(cluster, program),
        };
        (reference.rules.len() <= MAX_RULES).then(|| {
            reference.find_cells();
            reference
        })
    }

    pub(super) fn pod(&self, id: PodId) -> Option<&'c Pod<'c>> {
        self.cluster.pods.get(id.0 as usize)
    }

    fn effect(&self, rule: &Rule) -> Option<&'c Effect<'c>> {
        self.cluster.effect(rule.place)
    }

    /// Whether a policy selects a pod.
    pub(super) fn selects(&self, policy: PolicyId, subject: PodId) -> bool {
        let policy = self.cluster.policies.get(policy.0 as usize);
        let set = policy.and_then(|it| it.subject.as_ref());
        set.is_some_and(|set| self.is_in(set, subject, None))
    }

    pub(super) fn is_in(&self, set: &PodSet<'_>, pod: PodId, subject: Option<PodId>) -> bool {
        let Some(pod) = self.pod(pod).filter(|pod| pod.is_selectable()) else {
            return false;
        };
        let of = |pod: &Pod<'_>, key: &str| {
            let namespace = self.cluster.namespaces.get(pod.namespace.0 as usize)?;
            label(&namespace.labels, key)
        };
        let label_of = |key: &str| of(pod, key);
        let subject = subject.and_then(|it| self.pod(it));
        let subject_label = |key: &str| of(subject?, key);
        let subject_namespace = subject.map(|it| it.namespace);
        let is_namespace = match &set.namespaces {
            NamespaceSet::Exact(id) => *id == pod.namespace,
            NamespaceSet::Selected { selector, except } => {
                selector.matches(label_of) && !except.iter().any(|it| it.matches(label_of))
            }
            NamespaceSet::Own => subject_namespace == Some(pod.namespace),
            NamespaceSet::NotOwn => subject_namespace
                .is_some_and(|subject_namespace| subject_namespace != pod.namespace),
            // Without keys, no namespace matches.
            NamespaceSet::SameLabels(keys) => {
                let is_same =
                    |key: &&str| label_of(key).is_some() && label_of(key) == subject_label(key);
                !keys.is_empty() && keys.iter().all(is_same)
            }
            NamespaceSet::NotSameLabels(keys) => {
                keys.iter()
                    .all(|key| label_of(key).is_some() && subject_label(key).is_some())
                    && keys.iter().any(|key| label_of(key) != subject_label(key))
            }
        };
        let pods = set.pods.as_ref();
        is_namespace && pods.is_none_or(|it| it.matches(|key| label(&pod.labels, key)))
    }

    fn is_peer(&self, peer: &Peer<'_>, subject: PodId, end: &End<'_>, address: IpAddr) -> bool {
        match peer {
            Peer::All => true,
            Peer::Block { cidr, except } => {
                cidr.contains(address) && !except.iter().any(|it| it.contains(address))
            }
            Peer::Domains(patterns) => {
                let mut resolved = self.cluster.learned.iter();
                resolved.any(|(name, it)| {
                    it.to_canonical() == address && patterns.iter().any(|it| it.matches(name))
                })
            }
            Peer::Nodes(selector) => {
                let node = end
                    .node
                    .and_then(|id| self.cluster.nodes.get(id.0 as usize));
                node.is_some_and(|node| selector.matches(|key| label(&node.labels, key)))
            }
            Peer::Pods(set) => end.pod.is_some_and(|it| self.is_in(set, it, Some(subject))),
        }
    }

    fn is_port(port: &PortMatch<'_>, traffic: Traffic, destination: Option<&Pod<'_>>) -> bool {
        let Traffic::Port(protocol, number) = traffic else {
            return false;
        };
        match port {
            PortMatch::Numbers(label_of, range) => *label_of == protocol && range.contains(number),
            PortMatch::Named(label_of, name) => {
                let mut ports = destination.into_iter().flat_map(|it| it.ports.iter());
                label_of.is_none_or(|it| it == protocol)
                    && ports.any(|it| {
                        it.name == Some(*name) && it.protocol == protocol && it.port == number
                    })
            }
        }
    }

    /// The rules whose ports match traffic to a destination.
    fn ports_mask(&self, traffic: Traffic, destination: Option<&Pod<'_>>) -> Mask {
        let matches = |rule: &Rule| {
            self.effect(rule).is_some_and(|effect| {
                let ports = effect.ports.as_ref();
                ports.is_none_or(|it| it.iter().any(|it| Self::is_port(it, traffic, destination)))
            })
        };
        self.mask(matches)
    }

    fn mask(&self, has: impl Fn(&Rule) -> bool) -> Mask {
        let rules = self.rules.iter().enumerate().filter(|(_, rule)| has(rule));
        rules.fold(0, |mask, (at, _)| mask | 1 << at)
    }

    /// The rules of a subject whose peers match an end at an address.
    fn peers_mask(&self, direction: Direction, subject: PodId, end: &End<'_>, at: IpAddr) -> Mask {
        self.mask(|rule| {
            rule.place.direction == direction
                && self.selects(rule.place.policy, subject)
                && self.effect(rule).is_some_and(|effect| {
                    let peers = effect.peers.as_ref();
                    peers.is_none_or(|it| it.iter().any(|it| self.is_peer(it, subject, end, at)))
                })
        })
    }

    /// The rules that match a flow from or to an end, for each of its possible addresses.
    pub(super) fn matching(
        &self,
        direction: Direction,
        subject: PodId,
        (name, family): (EndName, Option<Family>),
        traffic: Traffic,
    ) -> Vec<Mask> {
        let fits = |end: &&End<'_>| end.name == name && family.is_none_or(|it| it == end.family);
        let mut masks = Vec::new();
        // Other addresses outside are not among the sampled ends.
        let outside = match name {
            EndName::Address(at) if !self.ends.iter().any(|it| it.name == name) => Some(End {
                name,
                pod: None,
                node: None,
                family: Family::of(at),
                addresses: vec![at],
                local_to: None,
                only_receives: false,
            }),
            EndName::Address(_) | EndName::Block(_) | EndName::Pod(_) | EndName::Node(_) => None,
        };
        for end in self.ends.iter().filter(fits).chain(&outside) {
            let destination = match direction {
                Direction::Ingress => self.pod(subject),
                Direction::Egress => end.pod.and_then(|it| self.pod(it)),
            };
            let ports = self.ports_mask(traffic, destination);
            for at in &end.addresses {
                masks.push(ports & self.peers_mask(direction, subject, end, *at));
            }
        }
        masks
    }

    fn find_cells(&mut self) {
        let traffics = self.traffics();
        let mut of_destination: BTreeMap<Option<u32>, BTreeSet<Mask>> = BTreeMap::new();
        let pods = (0..)
            .zip(&self.cluster.pods)
            .map(|(id, pod)| (Some(id), Some(pod)));
        for (id, pod) in pods.chain([(None, None)]) {
            let masks = traffics.iter().map(|it| self.ports_mask(*it, pod));
            of_destination.insert(id, masks.collect());
        }
        let mut cells = BTreeSet::new();
        let subjects = (0..).map(PodId).zip(&self.cluster.pods);
        for (subject, pod) in subjects.filter(|(_, pod)| pod.is_selectable()) {
            let has = |family| {
                let mut addresses = pod.addresses.iter();
                pod.addresses.is_empty() || addresses.any(|it| Family::of(*it) == family)
            };
            for direction in Direction::BOTH {
                let is_source = direction == Direction::Ingress;
                for end in self.ends.iter().filter(|end| has(end.family)) {
                    if is_source && end.only_receives {
                        continue;
                    }
                    let is_local = is_source && end.local_to.is_some() && end.local_to == pod.node;
                    if is_local {
                        continue;
                    }
                    let is_self = end.pod == Some(subject) && pod.template.is_none();
                    let destination = match direction {
                        Direction::Ingress => Some(subject.0),
                        Direction::Egress => end.pod.map(|it| it.0),
                    };
                    let service_ports: BTreeSet<Mask>;
                    let ports = if is_self {
                        service_ports = self.service_ports(subject, end.family);
                        Some(&service_ports)
                    } else {
                        of_destination.get(&destination)
                    };
                    for at in &end.addresses {
                        let peers = self.peers_mask(direction, subject, end, *at);
                        for ports in ports.into_iter().flatten() {
                            cells.insert(Cell {
                                direction,
                                subject: subject.0,
                                mask: peers & ports,
                            });
                        }
                    }
                }
            }
        }
        self.cells = cells;
    }

    /// The rules whose ports match a flow of a pod to itself through a Service.
    fn service_ports(&self, id: PodId, family: Family) -> BTreeSet<Mask> {
        let mut masks = BTreeSet::new();
        let Some(pod) = self.pod(id) else {
            return masks;
        };
        for service in &self.cluster.services {
            let has_family = service.cluster_addresses.is_empty()
                || pod.addresses.is_empty()
                || service
                    .cluster_addresses
                    .iter()
                    .any(|it| Family::of(*it) == family);
            if service.is_headless || service.is_external_name || !has_family {
                continue;
            }
            for port in &service.ports {
                let mut backends = port.backends.iter();
                let subject_label = backends
                    .by_ref()
                    .filter(|it| it.target == BackendTarget::Pod(id));
                let traffics = subject_label.map(|it| Traffic::Port(port.protocol, it.port));
                masks.extend(traffics.map(|it| self.ports_mask(it, Some(pod))));
            }
        }
        masks
    }

    /// A few ports of every interval between the rules' edges, and every named port.
    fn traffics(&self) -> Vec<Traffic> {
        let mut traffics = vec![Traffic::Portless];
        for protocol in Protocol::ALL {
            let mut starts = BTreeSet::from([1_u16]);
            let ports = self
                .rules
                .iter()
                .filter_map(|it| self.effect(it)?.ports.as_ref());
            for port in ports.flatten() {
                if let PortMatch::Numbers(label_of, range) = port
                    && *label_of == protocol
                {
                    starts.insert(range.start().get());
                    starts.extend(range.end().get().checked_add(1));
                }
            }
            let mut numbers: BTreeSet<u16> = BTreeSet::new();
            for start in &starts {
                let end = starts
                    .range(start + 1..)
                    .next()
                    .map_or(u16::MAX, |it| it - 1);
                // More than the named ports of a pod.
                numbers.extend((*start..=end).take(12));
            }
            let named = self.cluster.pods.iter().flat_map(|it| it.ports.iter());
            let named = named.filter(|it| it.protocol == protocol);
            numbers.extend(named.map(|it| it.port.get()));
            let numbers = numbers.into_iter().filter_map(NonZeroU16::new);
            traffics.extend(numbers.map(|it| Traffic::Port(protocol, it)));
        }
        traffics
    }
}

/// The tier of a policy, if it is ordered.
pub(super) fn tier(place: PolicyRank) -> Option<Tier> {
    match place {
        PolicyRank::EarlyAdmin | PolicyRank::Ordered(Tier::Admin, _) => Some(Tier::Admin),
        PolicyRank::Ordered(Tier::Baseline, _) | PolicyRank::DefaultGroup => Some(Tier::Baseline),
        PolicyRank::NetworkPolicy => None,
    }
}
