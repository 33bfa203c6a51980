//! Addresses that do not mean what they seem to: one family of two, clients behind a Service, and
//! tenants that have no label.

use std::net::IpAddr;
use std::num::NonZeroU16;

use rustc_hash::{FxHashMap, FxHashSet};

use super::context::CheckContext;
use super::{Code, Finding, FindingDetail, FindingTarget, now};
use crate::compile::count;
use crate::labels::{Operator, Selector};
use crate::model::{
    BackendTarget, Cluster, Effect, NamespaceSet, Node, Peer, PodId, PodSet, PolicyRank, PortMatch,
    Service, ServiceId, label,
};
use crate::net::{Cidr, Family, Protocol};
use crate::policy::{Action, Direction};
use crate::program::{Class, Owner, Program, RuleId, RulePlace};

pub(super) fn find(ground: &CheckContext<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if ground.has_pods() {
        open_family(ground, &mut findings);
        hidden_clients(ground, &mut findings);
        unlabelled_tenants(ground, &mut findings);
    }
    findings
}

/// A rule that denies all addresses of one family, in a policy that says nothing of the other one,
/// on pods that have both (D87).
fn open_family(ground: &CheckContext<'_>, findings: &mut Vec<Finding>) {
    let suspects = |rule: &RuleId| {
        let place = ground.program.place(*rule)?;
        let effect = ground.cluster.effect(place)?;
        let policy = ground.policy(place.policy)?;
        let is_ordered = match policy.rank {
            PolicyRank::EarlyAdmin | PolicyRank::Ordered(..) => true,
            PolicyRank::NetworkPolicy | PolicyRank::DefaultGroup => false,
        };
        let is_read = !policy
            .rules(place.direction)
            .list
            .get(place.index as usize)?
            .failed_closed;
        let is_meant = is_ordered && is_read && effect.action == Action::Deny;
        is_meant.then_some((place, effect, policy))
    };
    if !has_both_families(ground.cluster) {
        return;
    }
    let classes = dual_stack(ground);
    for direction in Direction::BOTH {
        let rules = ground.rules_on(direction, classes.iter().copied());
        for (place, effect, policy) in rules.iter().filter_map(suspects) {
            for (index, peer) in effect.peers.iter().flatten().enumerate() {
                let Some(family) = whole_family(peer) else {
                    continue;
                };
                let other = other(family);
                let mut rules = policy.rules(direction).list.iter();
                if !rules.any(|rule| {
                    let its = rule.effect.as_ref();
                    its.is_some_and(|its| speaks_of(its, other, effect))
                }) {
                    findings.push(Finding {
                        detail: FindingDetail::Text(other.to_string()),
                        ..now(Code::V6Open, FindingTarget::Peer(place, count(index)))
                    });
                }
            }
        }
    }
}

/// Whether somebody has addresses of both families.
fn has_both_families(cluster: &Cluster<'_>) -> bool {
    cluster.pods.iter().any(|pod| is_dual(&pod.addresses))
}

fn is_dual(addresses: &[IpAddr]) -> bool {
    let has = |family| addresses.iter().any(|it| Family::of(*it) == family);
    addresses.len() > 1 && has(Family::V4) && has(Family::V6)
}

/// The classes with a pod that has addresses of both families.
fn dual_stack<'c>(ground: &CheckContext<'c>) -> Vec<&'c Class> {
    let mut found = FxHashSet::default();
    for (index, pod) in ground.cluster.pods.iter().enumerate() {
        if is_dual(&pod.addresses) {
            found.extend(ground.program.class_id(PodId(count(index))));
        }
    }
    let classes = ground.program.classes.iter();
    classes.filter(|it| found.contains(&it.id)).collect()
}

fn other(family: Family) -> Family {
    match family {
        Family::V4 => Family::V6,
        Family::V6 => Family::V4,
    }
}

/// The family of which a peer is every address.
fn whole_family(peer: &Peer<'_>) -> Option<Family> {
    match peer {
        Peer::Block { cidr, except } if except.is_empty() && cidr.net().prefix_len() == 0 => {
            Some(Family::of(cidr.first()))
        }
        Peer::Block { .. } | Peer::Pods(_) | Peer::Nodes(_) | Peer::Domains(_) | Peer::All => None,
    }
}

/// Whether a rule shows that the author thought of the other family where a rule denies one: it
/// denies that family too, or says of its addresses that something else becomes of them.
fn speaks_of(rule: &Effect<'_>, family: Family, denying: &Effect<'_>) -> bool {
    let covers = rule.ports.is_none() || rule.ports == denying.ports;
    let nearly_all = |cidr: &Cidr| match family {
        Family::V4 => cidr.net().prefix_len() <= 1,
        // Nothing else is routed in the world.
        Family::V6 => cidr.net().prefix_len() <= 3,
    };
    let is_meant = |peer: &Peer<'_>| match peer {
        Peer::Block { cidr, .. } => Family::of(cidr.first()) == family && nearly_all(cidr),
        Peer::All => rule.action == Action::Deny,
        Peer::Pods(_) | Peer::Nodes(_) | Peer::Domains(_) => false,
    };
    let names = rule.peers.as_ref().map_or_else(
        || rule.action == Action::Deny,
        |peers| peers.iter().any(is_meant),
    );
    covers && names
}

/// Blocks of client addresses for pods behind a Service that lets traffic enter through any node:
/// what arrives from another node has that node's address (D79).
fn hidden_clients(ground: &CheckContext<'_>, findings: &mut Vec<Finding>) {
    let nodes = NodeAddresses::new(&ground.cluster.nodes);
    let mut told: FxHashMap<(RulePlace, u32), ServiceId> = FxHashMap::default();
    for ((protocol, port), behind) in exposed(ground) {
        let classes = behind.classes.iter();
        let classes = classes.filter_map(|it| ground.program.classes.get(*it as usize));
        for rule in ground.rules_on(Direction::Ingress, classes) {
            let is_plain = |rule: &&crate::program::Rule| rule.blocks.start != rule.blocks.end;
            let rule = ground.program.rules.get(rule.0 as usize).filter(is_plain);
            let Some((place, effect)) =
                rule.and_then(|it| Some((it.place, ground.cluster.effect(it.place)?)))
            else {
                continue;
            };
            let may_carry = effect.ports.as_ref().is_none_or(|ports| {
                ports.iter().any(|it| match it {
                    PortMatch::Numbers(its, range) => *its == protocol && range.contains(port),
                    PortMatch::Named(its, _) => its.is_none_or(|it| it == protocol),
                })
            });
            let peers = effect.peers.iter().flatten().enumerate();
            for (index, peer) in peers.filter(|_| may_carry) {
                if let Peer::Block { cidr, except } = peer
                    && nodes.distinguishes(*cidr, except)
                {
                    let service = told.entry((place, count(index))).or_insert(behind.service);
                    *service = (*service).min(behind.service);
                }
            }
        }
    }
    findings.extend(told.into_iter().map(|((place, index), service)| Finding {
        detail: FindingDetail::Others(vec![FindingTarget::Service(service)]),
        ..now(Code::SnatIpBlock, FindingTarget::Peer(place, index))
    }));
}

/// Who is behind the ports that can be reached through any node.
struct NodePortBackends {
    /// The first Service.
    service: ServiceId,
    classes: FxHashSet<u32>,
}

fn exposed(ground: &CheckContext<'_>) -> FxHashMap<(Protocol, NonZeroU16), NodePortBackends> {
    let mut exposed: FxHashMap<(Protocol, NonZeroU16), NodePortBackends> = FxHashMap::default();
    let services = (0_u32..).map(ServiceId).zip(&ground.cluster.services);
    for (id, service) in services.filter(|(_, it)| hides_clients(it)) {
        let is_outside = !service.external_addresses.is_empty();
        let ports = service.ports.iter();
        for port in ports.filter(|it| is_outside || it.node_port.is_some()) {
            for backend in &port.backends {
                let pod = pod_of(ground.program, backend.target);
                let Some(class) = pod.and_then(|pod| ground.program.class_id(pod)) else {
                    continue;
                };
                let behind = exposed.entry((port.protocol, backend.port));
                let behind = behind.or_insert_with(|| NodePortBackends {
                    service: id,
                    classes: FxHashSet::default(),
                });
                behind.classes.insert(class);
            }
        }
    }
    exposed
}

fn hides_clients(service: &Service<'_>) -> bool {
    !service.external_traffic_local && !service.is_external_name && !service.is_headless
}

fn pod_of(program: &Program, party: BackendTarget) -> Option<PodId> {
    match party {
        BackendTarget::Pod(pod) => Some(pod),
        BackendTarget::Address(address) => match program.owner(address) {
            Some(Owner::Pod(pod)) => Some(pod),
            Some(Owner::Node(_)) | None => None,
        },
    }
}

/// The addresses that traffic has when a node has passed it on, and those of pods, which keep theirs;
/// both ascending.
struct NodeAddresses {
    addresses: Vec<IpAddr>,
    pod_cidrs: Vec<Cidr>,
}

impl NodeAddresses {
    fn new(nodes: &[Node<'_>]) -> NodeAddresses {
        let known = || nodes.iter().filter(|it| it.has_object);
        let addresses = known().flat_map(|it| &it.addresses);
        let mut addresses: Vec<IpAddr> = addresses.map(|it| it.to_canonical()).collect();
        addresses.sort_unstable();
        let mut pod_cidrs: Vec<Cidr> = known().flat_map(|it| &it.pod_cidrs).copied().collect();
        pod_cidrs.sort_unstable_by_key(|it| it.first());
        NodeAddresses {
            addresses,
            pod_cidrs,
        }
    }

    /// Whether a block can tell a client from the node that passed it on. All addresses tell nothing
    /// apart, blocks of pods are not about clients outside, and where every node is in the block
    /// those who enter through one are so too.
    fn distinguishes(&self, cidr: Cidr, except: &[Cidr]) -> bool {
        if cidr.net().prefix_len() == 0 && except.is_empty() {
            return false;
        }
        let up_to = self
            .pod_cidrs
            .partition_point(|it| it.first() <= cidr.first());
        let before = up_to.checked_sub(1).and_then(|it| self.pod_cidrs.get(it));
        if before.is_some_and(|it| *it == cidr || it.strictly_contains(cidr)) {
            return false;
        }
        let starts_v6 = self.addresses.partition_point(|it| it.is_ipv4());
        let (v4, v6) = self.addresses.split_at(starts_v6);
        let nodes = match Family::of(cidr.first()) {
            Family::V4 => v4,
            Family::V6 => v6,
        };
        let within = |block: &Cidr| {
            let start = nodes.partition_point(|it| *it < block.first());
            nodes.partition_point(|it| *it <= block.last()) - start
        };
        let all_are_meant = within(&cidr) == nodes.len() && except.iter().all(|it| within(it) == 0);
        nodes.is_empty() || !all_are_meant
    }
}

/// Peers of other tenants, where namespaces without the label are neither the same nor another
/// tenant (D47).
fn unlabelled_tenants(ground: &CheckContext<'_>, findings: &mut Vec<Finding>) {
    let mut inhabited: Vec<u32> = ground
        .program
        .classes
        .iter()
        .map(|it| it.namespace)
        .collect();
    inhabited.dedup();
    let mut shares: FxHashMap<&[&str], (u64, u64)> = FxHashMap::default();
    for (place, effect) in ground.rules() {
        let policy = ground.policy(place.policy);
        let Some(subject) = policy.and_then(|it| it.subject.as_ref()) else {
            continue;
        };
        for (index, peer) in effect.peers.iter().flatten().enumerate() {
            let Peer::Pods(PodSet {
                namespaces: NamespaceSet::NotSameLabels(keys),
                ..
            }) = peer
            else {
                continue;
            };
            if keys.is_empty() || !keys.iter().any(|key| requires(subject, key)) {
                continue;
            }
            let (lacking, all) = *shares.entry(keys).or_insert_with(|| {
                let spaces = inhabited.iter();
                let spaces = spaces.filter_map(|it| ground.cluster.namespaces.get(*it as usize));
                let known = spaces.filter(|it| it.has_object);
                let lacks =
                    |labels: &[(&str, &str)]| keys.iter().any(|key| label(labels, key).is_none());
                known.fold((0, 0), |(lacking, all), it| {
                    (lacking + u64::from(lacks(&it.labels)), all + 1)
                })
            });
            if lacking > 0 {
                findings.push(Finding {
                    detail: FindingDetail::Share(lacking, all),
                    ..now(
                        Code::TenantUnlabelled,
                        FindingTarget::Peer(place, count(index)),
                    )
                });
            }
        }
    }
}

/// Whether a subject is only about namespaces that have a label.
fn requires(subject: &PodSet<'_>, key: &str) -> bool {
    let by = |selector: &Selector<&str>| {
        let mut requirements = selector.requirements.iter();
        requirements
            .any(|it| it.key == key && matches!(it.operator, Operator::In | Operator::Exists))
    };
    match &subject.namespaces {
        NamespaceSet::Selected { selector, .. } => by(selector),
        NamespaceSet::Exact(_)
        | NamespaceSet::Own
        | NamespaceSet::NotOwn
        | NamespaceSet::SameLabels(_)
        | NamespaceSet::NotSameLabels(_) => false,
    }
}
