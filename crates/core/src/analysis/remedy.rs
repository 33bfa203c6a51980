//! Finds the smallest change to labels, ports or rules that allows a denied flow. Every suggestion
//! is tried on a copy of the objects that the flow depends on.

use std::net::IpAddr;
use std::sync::Arc;

use crate::analysis::nearest::{Condition, NearMiss};
use crate::answer::FlowAnswer;
use crate::compile::compile;
use crate::decide::{Cause, Flow, FlowEnd, Identity, Traffic};
use crate::labels::Operator;
use crate::model::{
    Cluster, ContainerPort, Effect, Labels, NamespaceId, NamespaceSet, Peer, Pod, PodId, PodPhase,
    PodSet, Policy, PolicyId, PortMatch, Rule, Rules,
};
use crate::net::{Cidr, PortRange, Protocol};
use crate::policy::{Action, Direction, PolicyApi, Verdict};
use crate::program::{Program, RulePlace};

/// A change that would allow a flow in one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy<'a> {
    /// Set labels of a pod; `None` removes one.
    LabelPod(PodId, Vec<(&'a str, Option<&'a str>)>),
    /// Set labels of a namespace; `None` removes one.
    LabelNamespace(NamespaceId, Vec<(&'a str, Option<&'a str>)>),
    /// Add the flow's port to a rule.
    AddPort(RulePlace),
    /// Add a rule for the flow's peer and port to a policy.
    AddRule(PolicyId, Direction),
    /// Insert a rule that accepts the flow before the rule that denies it.
    AcceptBefore(RulePlace),
}

/// A direction that denies a flow.
#[derive(Clone, Debug)]
pub struct Denial<'a> {
    /// Ingress or egress.
    pub direction: Direction,
    /// The cause of the denial.
    pub cause: Cause,
    /// The rule that nearly allowed the flow.
    pub miss: Option<NearMiss<'a>>,
}

/// Returns the smallest change for each direction that denies a flow, if together they allow it.
pub fn remedies<'a>(
    cluster: &Cluster<'a>,
    program: &Program,
    single: &FlowAnswer,
    denials: &[Denial<'a>],
) -> Vec<Remedy<'a>> {
    let options: Vec<Vec<Remedy<'a>>> = denials
        .iter()
        .map(|denial| options(cluster, program, single, denial))
        .collect();
    let attempts: Vec<Vec<Remedy<'a>>> = match options.as_slice() {
        [one] => one.iter().map(|change| vec![change.clone()]).collect(),
        // Both directions deny: a suggestion needs a change for each. In order of the lists, the
        // first that works is the smallest.
        [one, two] => {
            let pairs = one.iter().flat_map(|first| {
                two.iter()
                    .map(move |second| vec![first.clone(), second.clone()])
            });
            pairs.collect()
        }
        _ => Vec::new(),
    };
    if attempts.is_empty() {
        return Vec::new();
    }
    // Each attempt compiles a cluster. In the excerpt most pods and policies cost almost nothing.
    let small = excerpt(cluster, single);
    let works = |changes: &Vec<Remedy<'a>>| allows(&small, single, changes);
    attempts.into_iter().find(works).unwrap_or_default()
}

/// Returns an excerpt of a cluster with everything that a flow can depend on, whatever the remedy:
/// its ends, and the policies that could select them.
fn excerpt<'a>(cluster: &Cluster<'a>, single: &FlowAnswer) -> Cluster<'a> {
    let ends = [
        single.flow.source.identity,
        single.flow.destination.identity,
    ];
    let ends = ends.map(|identity| match identity {
        Identity::Pod(pod) => Some(pod),
        Identity::Node(_) | Identity::External => None,
    });
    let is_end = |index: usize| {
        let mut ends = ends.iter().flatten();
        ends.any(|end| end.0 as usize == index)
    };
    let no_labels: Labels<'a> = Vec::new().into();
    let no_ports: Arc<[ContainerPort<'a>]> = Vec::new().into();
    let pods = cluster.pods.iter().enumerate();
    let pods = pods.map(|(index, pod)| {
        if is_end(index) {
            return pod.clone();
        }
        Pod {
            labels: Arc::clone(&no_labels),
            ports: Arc::clone(&no_ports),
            addresses: Vec::new(),
            // No selector matches an ended pod. It keeps its place in the list, for the ids of the
            // flow.
            phase: PodPhase::Terminated,
            ..*pod
        }
    });
    let of_end = |pod: &PodId| cluster.pods.get(pod.0 as usize).map(|pod| pod.namespace);
    let namespaces: Vec<NamespaceId> = ends.iter().flatten().filter_map(of_end).collect();
    let policies = cluster.policies.iter().map(|policy| {
        let could_select = policy.namespace.is_none_or(|it| namespaces.contains(&it));
        if could_select {
            return policy.clone();
        }
        Policy {
            // A policy of another namespace selects neither end. It keeps its id.
            subject: None,
            ingress: Rules::default(),
            egress: Rules::default(),
            ..*policy
        }
    });
    Cluster {
        namespaces: cluster.namespaces.clone(),
        nodes: cluster.nodes.clone(),
        pods: pods.collect(),
        workloads: Vec::new(),
        services: Vec::new(),
        policies: policies.collect(),
        learned: cluster.learned.clone(),
        budget: cluster.budget,
    }
}

/// Returns the possible changes for a direction, smallest first.
fn options<'a>(
    cluster: &Cluster<'a>,
    program: &Program,
    single: &FlowAnswer,
    denial: &Denial<'a>,
) -> Vec<Remedy<'a>> {
    let mut options = Vec::new();
    if let Some(miss) = &denial.miss {
        options.extend(of_miss(cluster, single, denial, miss));
    }
    match denial.cause {
        Cause::Isolation(id) | Cause::DefaultIsolation(id) => {
            let policies = program.isolation(id).iter().filter(|id| {
                let policy = cluster.policies.get(id.0 as usize);
                policy.is_some_and(|policy| {
                    // A policy over its budget has no effect (D148).
                    !policy.is_over_budget && can_name(policy.api, single, denial)
                })
            });
            let nearest = denial.miss.as_ref().map(|miss| miss.rule.policy);
            let mut policies: Vec<PolicyId> = policies.copied().collect();
            // The policy of the nearest rule first: its author probably meant this flow. The sort
            // is stable.
            policies.sort_by_key(|policy| Some(*policy) != nearest);
            let policies = policies.into_iter();
            options.extend(policies.map(|policy| Remedy::AddRule(policy, denial.direction)));
        }
        Cause::AdminRule(_, rule) | Cause::BaselineRule(_, rule) => {
            let place = program.place(rule);
            let place = place.filter(|place| {
                let policy = cluster.policies.get(place.policy.0 as usize);
                policy.is_some_and(|policy| can_name(policy.api, single, denial))
            });
            options.extend(place.map(Remedy::AcceptBefore));
        }
        Cause::NetworkPolicyRule(_)
        | Cause::Default
        | Cause::Exempt(_)
        | Cause::NotApplicable(_) => {}
    }
    options
}

/// Returns whether a kind of policy has a peer for the other side of a flow.
fn can_name(api: PolicyApi, single: &FlowAnswer, denial: &Denial<'_>) -> bool {
    let (other, address) = match denial.direction {
        Direction::Ingress => (single.flow.source.identity, single.source_address),
        Direction::Egress => (single.flow.destination.identity, single.destination_address),
    };
    let is_pod = matches!(other, Identity::Pod(_));
    match api {
        PolicyApi::NetworkPolicy | PolicyApi::EarlyCluster | PolicyApi::Default => {
            is_pod || address.is_some()
        }
        // These kinds have address blocks for egress only.
        PolicyApi::Cluster | PolicyApi::Admin | PolicyApi::BaselineAdmin => {
            is_pod || (address.is_some() && denial.direction == Direction::Egress)
        }
        // An annotation has no list of rules.
        PolicyApi::IsolationAnnotation => false,
        // This kind has neither addresses nor SCTP.
        PolicyApi::NetworkPolicy2016 => {
            is_pod && !matches!(single.flow.traffic, Traffic::Port(Protocol::Sctp, _))
        }
    }
}

/// Returns the change that makes the nearest rule match, if labels or ports alone are enough.
fn of_miss<'a>(
    cluster: &Cluster<'a>,
    single: &FlowAnswer,
    denial: &Denial<'a>,
    miss: &NearMiss<'a>,
) -> Option<Remedy<'a>> {
    let other = match denial.direction {
        Direction::Ingress => single.flow.source.identity,
        Direction::Egress => single.flow.destination.identity,
    };
    let has_port = matches!(single.flow.traffic, Traffic::Port(..));
    if let [Condition::Port(_)] = miss.conditions.as_slice() {
        // ICMP cannot be added to a list of ports (D14).
        return has_port.then_some(Remedy::AddPort(miss.rule));
    }
    let Identity::Pod(pod) = other else {
        return None;
    };
    let mut of_pod = Vec::new();
    let mut of_namespace = Vec::new();
    for want in &miss.conditions {
        let (requirement, list) = match want {
            Condition::PodLabel(requirement, _) => (requirement, &mut of_pod),
            Condition::NamespaceLabel(requirement, _) => (requirement, &mut of_namespace),
            Condition::NodeLabel(..)
            | Condition::Namespace(_)
            | Condition::Relation(_)
            | Condition::Pod
            | Condition::Node
            | Condition::Address(..)
            | Condition::Domain(_)
            | Condition::Port(_) => return None,
        };
        let value = match requirement.operator {
            Operator::In => Some(*requirement.values.first()?),
            Operator::NotIn | Operator::DoesNotExist => None,
            // Any value would do.
            Operator::Exists => Some("true"),
        };
        list.push((requirement.key, value));
    }
    match (of_pod.is_empty(), of_namespace.is_empty()) {
        (false, true) => Some(Remedy::LabelPod(pod, of_pod)),
        (true, false) => {
            let namespace = cluster.pods.get(pod.0 as usize)?.namespace;
            // The API server sets this label; it cannot be changed (D23).
            let is_name = |(key, _): &(&str, _)| *key == "kubernetes.io/metadata.name";
            let fixed = of_namespace.iter().any(is_name);
            (!fixed).then_some(Remedy::LabelNamespace(namespace, of_namespace))
        }
        _ => None,
    }
}

/// Returns whether the flow is allowed after the changes.
fn allows(cluster: &Cluster<'_>, single: &FlowAnswer, changes: &[Remedy<'_>]) -> bool {
    let mut changed = cluster.clone();
    for change in changes {
        apply(&mut changed, single, change);
    }
    // A policy that no longer fits into its budget would allow nothing (D148).
    if !crate::budget::still_fits(&changed) {
        return false;
    }
    let program = compile(&changed);
    let atom = |address: Option<IpAddr>, end: FlowEnd| FlowEnd {
        address: address.map_or(program.address_atom(UNSPECIFIED), |it| {
            program.address_atom(it)
        }),
        ..end
    };
    let flow = Flow {
        source: atom(single.source_address, single.flow.source),
        destination: atom(single.destination_address, single.flow.destination),
        ..single.flow
    };
    program.decide(&flow).verdict() == Verdict::Allow
}

/// Stands for an unknown address, on which no suggestion depends.
const UNSPECIFIED: IpAddr = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);

fn apply<'a>(cluster: &mut Cluster<'a>, single: &FlowAnswer, change: &Remedy<'a>) {
    match change {
        Remedy::LabelPod(pod, labels) => {
            if let Some(pod) = cluster.pods.get_mut(pod.0 as usize) {
                relabel(&mut pod.labels, labels);
            }
        }
        Remedy::LabelNamespace(namespace, labels) => {
            if let Some(namespace) = cluster.namespaces.get_mut(namespace.0 as usize) {
                relabel(&mut namespace.labels, labels);
            }
        }
        Remedy::AddPort(place) => {
            let port = port_of(single);
            if let Some(rule) = rule_mut(cluster, *place)
                && let Some(Effect {
                    ports: Some(ports), ..
                }) = &mut rule.effect
            {
                ports.extend(port);
            }
        }
        Remedy::AddRule(policy, direction) => {
            let rule = accepting(cluster, single, *direction);
            if let Some(rules) = rules_mut(cluster, *policy, *direction) {
                rules.push(rule);
            }
        }
        Remedy::AcceptBefore(place) => {
            let rule = accepting(cluster, single, place.direction);
            if let Some(rules) = rules_mut(cluster, place.policy, place.direction) {
                let index = (place.index as usize).min(rules.len());
                rules.insert(index, rule);
            }
        }
    }
}

fn relabel<'a>(labels: &mut Labels<'a>, changes: &[(&'a str, Option<&'a str>)]) {
    let mut changed = labels.to_vec();
    for (key, value) in changes {
        changed.retain(|(its, _)| its != key);
        changed.extend(value.map(|value| (*key, value)));
    }
    changed.sort_unstable();
    *labels = changed.into();
}

fn rules_mut<'c, 'a>(
    cluster: &'c mut Cluster<'a>,
    policy: PolicyId,
    direction: Direction,
) -> Option<&'c mut Vec<Rule<'a>>> {
    let policy = cluster.policies.get_mut(policy.0 as usize)?;
    Some(match direction {
        Direction::Ingress => &mut policy.ingress.list,
        Direction::Egress => &mut policy.egress.list,
    })
}

fn rule_mut<'c, 'a>(cluster: &'c mut Cluster<'a>, place: RulePlace) -> Option<&'c mut Rule<'a>> {
    rules_mut(cluster, place.policy, place.direction)?.get_mut(place.index as usize)
}

fn port_of<'a>(single: &FlowAnswer) -> Option<PortMatch<'a>> {
    match single.flow.traffic {
        Traffic::Port(protocol, port) => {
            Some(PortMatch::Numbers(protocol, PortRange::single(port)))
        }
        Traffic::Portless | Traffic::NeighborDiscovery => None,
    }
}

/// Returns the rule of a suggestion, which accepts the flow's peer on the flow's port.
fn accepting<'a>(cluster: &Cluster<'a>, single: &FlowAnswer, direction: Direction) -> Rule<'a> {
    let (identity, address) = match direction {
        Direction::Ingress => (single.flow.source.identity, single.source_address),
        Direction::Egress => (single.flow.destination.identity, single.destination_address),
    };
    let peer = match identity {
        Identity::Pod(id) => cluster.pods.get(id.0 as usize).map(|pod| {
            Peer::Pods(PodSet {
                namespaces: NamespaceSet::Exact(pod.namespace),
                pods: Some(distinguishing_labels(&pod.labels)),
            })
        }),
        Identity::Node(_) | Identity::External => address.map(|address| Peer::Block {
            cidr: Cidr::single(address),
            except: Vec::new(),
        }),
    };
    Rule {
        name: None,
        written_action: None,
        effect: Some(Effect {
            action: Action::Accept,
            peers: Some(peer.into_iter().collect()),
            ports: port_of(single).map(|port| vec![port]),
        }),
        failed_closed: false,
    }
}

/// Returns a selector of the labels that identify a pod, without those that controllers add.
pub fn distinguishing_labels<'a>(
    labels: &[(&'a str, &'a str)],
) -> crate::labels::Selector<&'a str> {
    // By convention one of these labels identifies a workload. Other labels, such as a version,
    // change with a rollout.
    const NAMES: [&str; 3] = ["app.kubernetes.io/name", "app", "k8s-app"];
    const HASHES: [&str; 6] = [
        "pod-template-hash",
        "controller-revision-hash",
        "statefulset.kubernetes.io/pod-name",
        "apps.kubernetes.io/pod-index",
        "controller-uid",
        "batch.kubernetes.io/controller-uid",
    ];
    let name = labels.iter().find(|(key, _)| NAMES.contains(key));
    let identifying: Vec<&(&str, &str)> = match name {
        Some(name) => vec![name],
        None => {
            let others = labels.iter().filter(|(key, _)| !HASHES.contains(key));
            others.collect()
        }
    };
    let requirements = identifying
        .into_iter()
        .map(|(key, value)| crate::labels::Requirement {
            key: *key,
            operator: Operator::In,
            values: vec![*value],
        });
    crate::labels::Selector {
        requirements: requirements.collect(),
    }
}
