//! Addresses and labels that match less than they seem to: one family of two, clients behind a
//! Service, and namespaces without a tenant label.

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

pub(super) fn find(context: &CheckContext<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if context.has_pods() {
        open_family(context, &mut findings);
        hidden_clients(context, &mut findings);
        unlabelled_tenants(context, &mut findings);
    }
    findings
}

/// Finds rules that deny all addresses of one family in a policy without a rule for the other
/// family, for pods that have both (D87).
fn open_family(context: &CheckContext<'_>, findings: &mut Vec<Finding>) {
    // Only rules of the ordered tiers can deny.
    let suspects = |rule: &RuleId| {
        let place = context.program.place(*rule)?;
        let effect = context.cluster.effect(place)?;
        let policy = context.policy(place.policy)?;
        let is_ordered = match policy.rank {
            PolicyRank::EarlyAdmin | PolicyRank::Ordered(..) => true,
            PolicyRank::NetworkPolicy | PolicyRank::DefaultGroup => false,
        };
        let is_read = !policy
            .rules(place.direction)
            .list
            .get(place.index as usize)?
            .failed_closed;
        let is_suspect = is_ordered && is_read && effect.action == Action::Deny;
        is_suspect.then_some((place, effect, policy))
    };
    if !has_both_families(context.cluster) {
        return;
    }
    // Only rules that select such a pod: a policy for pods of one family need not mention the
    // other.
    let classes = dual_stack(context);
    for direction in Direction::BOTH {
        let rules = context.rules_on(direction, classes.iter().copied());
        for (place, effect, policy) in rules.iter().filter_map(suspects) {
            for (index, peer) in effect.peers.iter().flatten().enumerate() {
                let Some(family) = whole_family(peer) else {
                    continue;
                };
                let other = other(family);
                let mut rules = policy.rules(direction).list.iter();
                if !rules.any(|rule| {
                    let its = rule.effect.as_ref();
                    its.is_some_and(|its| considers(its, other, effect))
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

/// Whether any pod has addresses of both families.
fn has_both_families(cluster: &Cluster<'_>) -> bool {
    cluster.pods.iter().any(|pod| is_dual(&pod.addresses))
}

fn is_dual(addresses: &[IpAddr]) -> bool {
    let has = |family| addresses.iter().any(|it| Family::of(*it) == family);
    addresses.len() > 1 && has(Family::V4) && has(Family::V6)
}

/// Returns the classes with a pod that has addresses of both families.
fn dual_stack<'c>(context: &CheckContext<'c>) -> Vec<&'c Class> {
    let mut found = FxHashSet::default();
    for (index, pod) in context.cluster.pods.iter().enumerate() {
        if is_dual(&pod.addresses) {
            found.extend(context.program.class_id(PodId(count(index))));
        }
    }
    let classes = context.program.classes.iter();
    classes.filter(|it| found.contains(&it.id)).collect()
}

fn other(family: Family) -> Family {
    match family {
        Family::V4 => Family::V6,
        Family::V6 => Family::V4,
    }
}

/// Returns the family of which a peer matches every address.
fn whole_family(peer: &Peer<'_>) -> Option<Family> {
    match peer {
        Peer::Block { cidr, except } if except.is_empty() && cidr.net().prefix_len() == 0 => {
            Some(Family::of(cidr.first()))
        }
        Peer::Block { .. } | Peer::Pods(_) | Peer::Nodes(_) | Peer::Domains(_) | Peer::All => None,
    }
}

/// Whether a rule shows that the author considered the family that `denying` leaves open: it denies
/// that family too, or has another action for nearly all of its addresses.
fn considers(rule: &Effect<'_>, family: Family, denying: &Effect<'_>) -> bool {
    let covers = rule.ports.is_none() || rule.ports == denying.ports;
    // A half counts too: two halves deny the same as the whole.
    let nearly_all = |cidr: &Cidr| match family {
        Family::V4 => cidr.net().prefix_len() <= 1,
        // `2000::/3` has all global unicast addresses.
        Family::V6 => cidr.net().prefix_len() <= 3,
    };
    let covers_family = |peer: &Peer<'_>| match peer {
        Peer::Block { cidr, .. } => Family::of(cidr.first()) == family && nearly_all(cidr),
        Peer::All => rule.action == Action::Deny,
        Peer::Pods(_) | Peer::Nodes(_) | Peer::Domains(_) => false,
    };
    let names = rule.peers.as_ref().map_or_else(
        || rule.action == Action::Deny,
        |peers| peers.iter().any(covers_family),
    );
    covers && names
}

/// Finds blocks of client addresses for pods behind a Service that accepts traffic at every node.
/// Traffic that another node forwards has that node's address (D79).
fn hidden_clients(context: &CheckContext<'_>, findings: &mut Vec<Finding>) {
    let nodes = NodeAddresses::new(&context.cluster.nodes);
    let mut services: FxHashMap<(RulePlace, u32), ServiceId> = FxHashMap::default();
    for ((protocol, port), behind) in exposed(context) {
        let classes = behind.classes.iter();
        let classes = classes.filter_map(|it| context.program.classes.get(*it as usize));
        for rule in context.rules_on(Direction::Ingress, classes) {
            let has_blocks = |rule: &&crate::program::Rule| rule.blocks.start != rule.blocks.end;
            let rule = context
                .program
                .rules
                .get(rule.0 as usize)
                .filter(has_blocks);
            let Some((place, effect)) =
                rule.and_then(|it| Some((it.place, context.cluster.effect(it.place)?)))
            else {
                continue;
            };
            let may_carry = effect.ports.as_ref().is_none_or(|ports| {
                ports.iter().any(|it| match it {
                    PortMatch::Numbers(its, range) => *its == protocol && range.contains(port),
                    // The names of the backends are not resolved here; the protocol is enough.
                    PortMatch::Named(its, _) => its.is_none_or(|it| it == protocol),
                })
            });
            let peers = effect.peers.iter().flatten().enumerate();
            for (index, peer) in peers.filter(|_| may_carry) {
                if let Peer::Block { cidr, except } = peer
                    && nodes.distinguishes(*cidr, except)
                {
                    let service = services
                        .entry((place, count(index)))
                        .or_insert(behind.service);
                    // The map of ports has no order; the smallest Service keeps the output stable.
                    *service = (*service).min(behind.service);
                }
            }
        }
    }
    findings.extend(
        services
            .into_iter()
            .map(|((place, index), service)| Finding {
                detail: FindingDetail::Others(vec![FindingTarget::Service(service)]),
                ..now(Code::SnatIpBlock, FindingTarget::Peer(place, index))
            }),
    );
}

/// The pods behind a port that every node accepts traffic for.
struct NodePortBackends {
    /// The first Service that leads there.
    service: ServiceId,
    classes: FxHashSet<u32>,
}

/// Returns the backends of all ports that every node accepts traffic for, by protocol and port at
/// the pod.
fn exposed(context: &CheckContext<'_>) -> FxHashMap<(Protocol, NonZeroU16), NodePortBackends> {
    let mut exposed: FxHashMap<(Protocol, NonZeroU16), NodePortBackends> = FxHashMap::default();
    let services = (0_u32..).map(ServiceId).zip(&context.cluster.services);
    for (id, service) in services.filter(|(_, it)| hides_clients(it)) {
        let is_outside = !service.external_addresses.is_empty();
        let ports = service.ports.iter();
        for port in ports.filter(|it| is_outside || it.node_port.is_some()) {
            for backend in &port.backends {
                let pod = pod_of(context.program, backend.target);
                let Some(class) = pod.and_then(|pod| context.program.class_id(pod)) else {
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

/// Whether traffic to a Service may arrive with the address of a node. A Service with the external
/// traffic policy `Local` preserves the source: only nodes with a backend accept its traffic.
fn hides_clients(service: &Service<'_>) -> bool {
    !service.external_traffic_local && !service.is_external_name && !service.is_headless
}

/// Returns the pod of a backend, also if the backend is the address of one.
fn pod_of(program: &Program, backend: BackendTarget) -> Option<PodId> {
    match backend {
        BackendTarget::Pod(pod) => Some(pod),
        BackendTarget::Address(address) => match program.owner(address) {
            Some(Owner::Pod(pod)) => Some(pod),
            Some(Owner::Node(_)) | None => None,
        },
    }
}

/// The addresses of nodes, which forwarded traffic has, and the pod ranges of nodes, both
/// ascending.
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

    /// Whether a block distinguishes some client from the node that forwards its traffic.
    fn distinguishes(&self, cidr: Cidr, except: &[Cidr]) -> bool {
        // All addresses: client and node both match.
        if cidr.net().prefix_len() == 0 && except.is_empty() {
            return false;
        }
        // A block of pod addresses is not meant for clients outside the cluster.
        let up_to = self
            .pod_cidrs
            .partition_point(|it| it.first() <= cidr.first());
        let before = up_to.checked_sub(1).and_then(|it| self.pod_cidrs.get(it));
        if before.is_some_and(|it| *it == cidr || it.strictly_contains(cidr)) {
            return false;
        }
        // If the block has every node, forwarded traffic matches like its client does. If it has
        // none or some, it may not.
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
        let has_every_node =
            within(&cidr) == nodes.len() && except.iter().all(|it| within(it) == 0);
        nodes.is_empty() || !has_every_node
    }
}

/// Finds peers that match other tenants while some namespaces have no tenant label: these are
/// neither the same tenant nor another (D47).
fn unlabelled_tenants(context: &CheckContext<'_>, findings: &mut Vec<Finding>) {
    let mut inhabited: Vec<u32> = context
        .program
        .classes
        .iter()
        .map(|it| it.namespace)
        .collect();
    // Classes are sorted by namespace.
    inhabited.dedup();
    let mut shares: FxHashMap<&[&str], (u64, u64)> = FxHashMap::default();
    for (place, effect) in context.rules() {
        let policy = context.policy(place.policy);
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
            // Only if the subject requires the label: otherwise its namespaces need not be tenants.
            if keys.is_empty() || !keys.iter().any(|key| requires(subject, key)) {
                continue;
            }
            let (lacking, all) = *shares.entry(keys).or_insert_with(|| {
                let spaces = inhabited.iter();
                let spaces = spaces.filter_map(|it| context.cluster.namespaces.get(*it as usize));
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

/// Whether a subject selects only namespaces with a label.
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
