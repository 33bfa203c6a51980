//! Finds the rule that nearly allowed a denied flow, and the conditions that the flow does not
//! meet.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::budget::{crowded_names, limits_names};
use crate::decide::{Cause, Flow, Identity, Traffic};
use crate::domain::DomainPattern;
use crate::labels::{Requirement, Selector};
use crate::model::{
    Cluster, ContainerPort, Effect, Labels, NamespaceId, NamespaceSet, Peer, Pod, PodSet,
    PortMatch, label,
};
use crate::net::Cidr;
use crate::policy::{Action, Direction, Tier};
use crate::program::{Program, RulePlace, direction_index};

/// A rule that would have allowed the flow if a few conditions were met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearMiss<'a> {
    /// The policy, direction and index of the rule.
    pub rule: RulePlace,
    /// The conditions of the rule that the flow does not meet.
    pub conditions: Vec<Condition<'a>>,
}

/// A condition of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition<'a> {
    /// A requirement on the labels of the peer's pod, and the value that it has.
    PodLabel(Requirement<&'a str>, Option<&'a str>),
    /// A requirement on the labels of the peer's namespace, and the value that it has.
    NamespaceLabel(Requirement<&'a str>, Option<&'a str>),
    /// A requirement on the labels of the peer's node, and the value that it has.
    NodeLabel(Requirement<&'a str>, Option<&'a str>),
    /// The peer must be in this namespace.
    Namespace(NamespaceId),
    /// The peer's namespace must be related to the subject's in this way.
    Relation(NamespaceSet<'a>),
    /// The peer must be a pod.
    Pod,
    /// The peer must be a node.
    Node,
    /// The peer's address must be in a block, outside its exceptions.
    Address(Cidr, Vec<Cidr>),
    /// The peer's address must be one that a matching domain name has resolved to.
    Domain(Vec<DomainPattern>),
    /// The port must be one of these.
    Port(Vec<PortMatch<'a>>),
}

impl Condition<'_> {
    /// Returns how hard it is to meet the condition: labels and ports are easy to change, addresses
    /// are not.
    fn distance(&self) -> u32 {
        match self {
            Condition::PodLabel(..) | Condition::Port(_) => 2,
            Condition::NamespaceLabel(..) | Condition::NodeLabel(..) => 3,
            Condition::Namespace(_) | Condition::Relation(_) => 5,
            Condition::Address(..) | Condition::Domain(_) => 8,
            Condition::Pod | Condition::Node => 12,
        }
    }
}

/// The peer of a flow, as rules see it.
struct PeerProperties<'c, 'a> {
    pod: Option<&'c Pod<'a>>,
    node: Option<&'c Labels<'a>>,
    address: Option<IpAddr>,
}

/// Returns the rule that was nearest to allowing a flow that a direction denies, among the rules
/// that are evaluated before the denial. `address` is the peer's, if known.
pub fn nearest<'a>(
    cluster: &Cluster<'a>,
    program: &Program,
    flow: &Flow,
    direction: Direction,
    cause: Cause,
    address: Option<IpAddr>,
) -> Option<NearMiss<'a>> {
    let (subject, peer) = match direction {
        Direction::Ingress => (flow.destination.identity, flow.source.identity),
        Direction::Egress => (flow.source.identity, flow.destination.identity),
    };
    let Identity::Pod(subject) = subject else {
        return None;
    };
    let subject = cluster.pods.get(subject.0 as usize)?;
    let other = PeerProperties {
        pod: match peer {
            Identity::Pod(pod) => cluster.pods.get(pod.0 as usize),
            Identity::Node(_) | Identity::External => None,
        },
        node: match peer {
            Identity::Node(Some(node)) => cluster.nodes.get(node.0 as usize).map(|it| &it.labels),
            Identity::Node(None) | Identity::Pod(_) | Identity::External => None,
        },
        address,
    };
    let destination = match direction {
        Direction::Ingress => Some(subject),
        Direction::Egress => other.pod,
    };
    let mut best: Option<(u32, NearMiss<'a>)> = None;
    for rule in candidates(program, flow, direction, cause) {
        let Some(effect) = cluster.effect(rule) else {
            continue;
        };
        let mut wants = peer_wants(cluster, subject, &other, effect);
        let policy = cluster.policies.get(rule.policy.0 as usize);
        // The same limit on names as in the compiler: a near miss must not claim a match that does
        // not hold.
        let few = policy.is_some_and(|it| limits_names(it, direction));
        wants.extend(port_wants(flow.traffic, destination, effect, few));
        let distance = wants.iter().map(Condition::distance).sum();
        // At equal distance the first rule in order of evaluation stays. A rule with all conditions
        // met, yet without effect on this flow, is no suggestion.
        if !wants.is_empty() && best.as_ref().is_none_or(|(known, _)| distance < *known) {
            best = Some((
                distance,
                NearMiss {
                    rule,
                    conditions: wants,
                },
            ));
        }
    }
    best.map(|(_, miss)| miss)
}

/// Returns the rules that could have prevented the denial, in order of evaluation.
fn candidates(
    program: &Program,
    flow: &Flow,
    direction: Direction,
    cause: Cause,
) -> Vec<RulePlace> {
    let Ok(view) = program.view(flow, direction) else {
        return Vec::new();
    };
    let could_allow = |action: Action| match action {
        Action::Accept | Action::Pass => true,
        Action::Deny => false,
    };
    // A Pass rule counts: a later tier might have allowed the flow.
    let before = |tier: Tier| {
        let rules = program.subject_rules(tier, &view).into_iter();
        let rules = rules.take_while(|rule| cause.rule() != Some(*rule));
        rules.filter(|rule| program.action(*rule).is_some_and(could_allow))
    };
    let rules: Vec<_> = match cause {
        Cause::AdminRule(..) => before(Tier::Admin).collect(),
        Cause::BaselineRule(..) | Cause::DefaultIsolation(_) => before(Tier::Baseline).collect(),
        // Only rules of the isolating policies: an Admin rule would also allow the flow, but owners
        // of namespaces cannot change it.
        Cause::Isolation(_) => {
            let index = direction_index(direction);
            let union = view.subject.unions.get(index).copied();
            let union = union.and_then(|id| program.unions.get(index)?.get(id as usize));
            union.map(|union| union.rules.clone()).unwrap_or_default()
        }
        Cause::NetworkPolicyRule(_)
        | Cause::Default
        | Cause::Exempt(_)
        | Cause::NotApplicable(_) => Vec::new(),
    };
    rules
        .into_iter()
        .filter_map(|rule| program.place(rule))
        .collect()
}

/// Returns the conditions of the rule's nearest peer; empty if a peer matches.
fn peer_wants<'a>(
    cluster: &Cluster<'a>,
    subject: &Pod<'a>,
    other: &PeerProperties<'_, 'a>,
    effect: &Effect<'a>,
) -> Vec<Condition<'a>> {
    let Some(peers) = &effect.peers else {
        return Vec::new();
    };
    let wants = peers.iter().map(|peer| match peer {
        Peer::All => Vec::new(),
        Peer::Pods(set) => match other.pod {
            Some(pod) => pod_wants(cluster, subject, pod, set),
            None => vec![Condition::Pod],
        },
        Peer::Nodes(selector) => match other.node {
            Some(labels) => unmet(selector, labels, Condition::NodeLabel),
            None => vec![Condition::Node],
        },
        Peer::Block { cidr, except } => {
            let within = |address: IpAddr| {
                cidr.contains(address) && !except.iter().any(|it| it.contains(address))
            };
            if other.address.is_some_and(within) {
                Vec::new()
            } else {
                vec![Condition::Address(*cidr, except.clone())]
            }
        }
        Peer::Domains(patterns) => {
            let mut learned = cluster.learned.iter();
            let matches = learned.any(|(name, address)| {
                Some(*address) == other.address && patterns.iter().any(|it| it.matches(name))
            });
            if matches {
                Vec::new()
            } else {
                vec![Condition::Domain(patterns.clone())]
            }
        }
    });
    let distance = |wants: &Vec<Condition<'_>>| wants.iter().map(Condition::distance).sum::<u32>();
    // A rule without readable peers matches no pod.
    wants
        .min_by_key(distance)
        .unwrap_or_else(|| vec![Condition::Pod])
}

fn pod_wants<'a>(
    cluster: &Cluster<'a>,
    subject: &Pod<'a>,
    pod: &Pod<'a>,
    set: &PodSet<'a>,
) -> Vec<Condition<'a>> {
    let labels = |id: NamespaceId| cluster.namespaces.get(id.0 as usize).map(|it| &it.labels);
    let (Some(own), Some(others)) = (labels(subject.namespace), labels(pod.namespace)) else {
        return vec![Condition::Pod];
    };
    let mut wants = match &set.namespaces {
        NamespaceSet::Exact(namespace) if *namespace == pod.namespace => Vec::new(),
        NamespaceSet::Exact(namespace) => vec![Condition::Namespace(*namespace)],
        NamespaceSet::Selected { selector, except } => {
            let mut wants = unmet(selector, others, Condition::NamespaceLabel);
            // An exception cannot be met by one label: the whole set is shown.
            if except.iter().any(|it| it.matches(|key| label(others, key))) {
                wants.push(Condition::Relation(set.namespaces.clone()));
            }
            wants
        }
        NamespaceSet::Own if subject.namespace == pod.namespace => Vec::new(),
        NamespaceSet::NotOwn if subject.namespace != pod.namespace => Vec::new(),
        NamespaceSet::SameLabels(keys) if related(keys, own, others, true) => Vec::new(),
        NamespaceSet::NotSameLabels(keys) if related(keys, own, others, false) => Vec::new(),
        NamespaceSet::Own
        | NamespaceSet::NotOwn
        | NamespaceSet::SameLabels(_)
        | NamespaceSet::NotSameLabels(_) => vec![Condition::Relation(set.namespaces.clone())],
    };
    if let Some(selector) = &set.pods {
        wants.extend(unmet(selector, &pod.labels, Condition::PodLabel));
    }
    wants
}

fn related(keys: &[&str], own: &Labels<'_>, others: &Labels<'_>, same: bool) -> bool {
    let values = |labels: &Labels<'_>| -> Option<Vec<String>> {
        let values = keys.iter().map(|key| label(labels, key).map(str::to_owned));
        values.collect()
    };
    match (values(own), values(others)) {
        // Both namespaces need every key, and an empty list matches nothing (D46, D47).
        (Some(own), Some(others)) => !keys.is_empty() && (own == others) == same,
        _ => false,
    }
}

/// Returns the requirements of a selector that labels do not meet.
fn unmet<'a>(
    selector: &Selector<&'a str>,
    labels: &Labels<'a>,
    want: fn(Requirement<&'a str>, Option<&'a str>) -> Condition<'a>,
) -> Vec<Condition<'a>> {
    let requirements = selector.requirements.iter().filter_map(|requirement| {
        let value = label(labels, requirement.key);
        (!requirement.accepts(value)).then(|| want(requirement.clone(), value))
    });
    requirements.collect()
}

fn port_wants<'a>(
    traffic: Traffic,
    destination: Option<&Pod<'_>>,
    effect: &Effect<'a>,
    limits_names: bool,
) -> Option<Condition<'a>> {
    let ports = effect.ports.as_ref()?;
    let declared = destination.map_or(&[][..], |pod| &pod.ports);
    let crowded = if limits_names {
        crowded_names(declared.iter().filter_map(ContainerPort::named))
    } else {
        BTreeMap::new()
    };
    let matches = |port: &PortMatch<'_>| {
        let Traffic::Port(protocol, number) = traffic else {
            return false;
        };
        match port {
            PortMatch::Numbers(its, range) => *its == protocol && range.contains(number),
            PortMatch::Named(its, name) => {
                its.is_none_or(|its| its == protocol)
                    && !crowded.contains_key(name)
                    && declared
                        .iter()
                        .any(|it| it.named() == Some((*name, protocol, number)))
            }
        }
    };
    (!ports.iter().any(matches)).then(|| Condition::Port(ports.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::affect::Decider;
    use crate::compile::compile;
    use crate::fixture::{
        PolicyDraft, admin, all, allow, baseline, cluster, decider, default_policy, deny, flow,
        labelled, netpol, pass, pod, pods_of, rule, tcp,
    };

    /// Returns the rule nearest to allowing TCP port 80 from `y/b` to `x/a`, and its conditions.
    fn near_miss(policies: Vec<PolicyDraft>) -> Option<(String, String)> {
        let cluster = cluster(vec![pod("x", "a"), pod("y", "b")], policies);
        let program = compile(&cluster);
        let flow = flow(&cluster, &program, ["y/b", "x/a"], 80);
        let cause = program.decide(&flow).ingress;
        let address = cluster.pods[1].addresses.first().copied();
        let found = nearest(
            &cluster,
            &program,
            &flow,
            Direction::Ingress,
            cause,
            address,
        )?;
        let rule = decider(&cluster, Decider::Rule(found.rule));
        let conditions = found.conditions.iter().map(|it| {
            let Condition::PodLabel(requirement, value) = it else {
                return format!("{it:?}");
            };
            let value = value.unwrap_or("absent");
            format!(
                "{} is {value}, not {:?}",
                requirement.key, requirement.values
            )
        });
        Some((rule, conditions.collect::<Vec<_>>().join(", ")))
    }

    fn miss(rule: &str, conditions: &str) -> Option<(String, String)> {
        Some((rule.to_owned(), conditions.to_owned()))
    }

    #[test]
    fn the_rule_with_the_easiest_conditions_is_nearest() {
        let policies = || {
            netpol("x", "np")
                .ingress(allow(pods_of("x")))
                .ingress(allow(labelled("app", "c")))
        };
        assert_eq!(
            near_miss(vec![policies()]),
            miss("netpol/x/np#ingress[1]", "app is b, not [\"c\"]")
        );
        let with_port = policies().ingress(rule(Action::Accept, all(), Some(vec![tcp(81)])));
        // A port is as easy to change as a label: the first in order of evaluation stays.
        assert_eq!(
            near_miss(vec![with_port]),
            miss("netpol/x/np#ingress[1]", "app is b, not [\"c\"]")
        );
    }

    #[test]
    fn rules_behind_the_denial_are_not_near_misses() {
        let after = vec![
            admin("p", 1)
                .ingress(deny(all()))
                .ingress(allow(labelled("app", "c"))),
        ];
        assert_eq!(near_miss(after), None);
        // A Pass before the denial would have left the flow to later tiers, which allow it.
        let before = vec![
            admin("p", 1)
                .ingress(pass(labelled("app", "c")))
                .ingress(deny(all())),
        ];
        assert_eq!(
            near_miss(before),
            miss("cnp/p#ingress[0]", "app is b, not [\"c\"]")
        );
    }

    #[test]
    fn rules_behind_the_isolation_of_default_policies_are_not_near_misses() {
        let isolated = || default_policy("d").ingress_isolates();
        let near = |priority| baseline("b", priority).ingress(allow(labelled("app", "c")));
        assert_eq!(
            near_miss(vec![isolated(), near(1000)]),
            miss("cnp/b#ingress[0]", "app is b, not [\"c\"]")
        );
        // Default policies have the effective priority 1002 (1.2), and a priority out of range
        // keeps its place in integer order (D116). A pod that they isolate gets no further (D62).
        assert_eq!(near_miss(vec![isolated(), near(2000)]), None);
    }
}
