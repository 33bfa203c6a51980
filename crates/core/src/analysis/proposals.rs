//! Plans changes of policies that would allow a denied query.
//!
//! A plan is not proven: its caller applies it, evaluates the query again, and compares the
//! clusters before and after. No plan changes a label: other selectors may use it, and would then
//! select other pods.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::num::NonZeroU16;

use crate::analysis::nearest::{Condition, NearMiss, nearest};
use crate::answer::{Answer, FlowAnswer, Transport};
use crate::decide::{Cause, FlowEnd, Identity};
use crate::flow_end::EndName;
use crate::model::{Cluster, NamespaceId, PolicyId};
use crate::net::{Cidr, Protocol};
use crate::policy::{Action, Direction, PolicyApi, Verdict};
use crate::program::{IsolationId, Program, RuleId, RulePlace};

/// The most plans for one query. Each is tried on the whole input.
const MOST_PLANS: usize = 12;

/// The most policies of an isolated pod that get a plan with a rule of their own.
const MOST_POLICIES: usize = 3;

/// The most peers of a planned rule: the limit of a ClusterNetworkPolicy.
const MOST_PEERS: usize = 25;

/// A change of one policy, or a new one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyEdit<'a> {
    /// Adds ports to a rule that accepts the peers already.
    AddPorts(RulePlace, Vec<PlannedPort>),
    /// Adds a rule at the end of a policy whose rules only accept.
    AppendRule(PolicyId, PlannedRule<'a>),
    /// Inserts a rule that accepts before the rule that denies.
    InsertRule(RulePlace, PlannedRule<'a>),
    /// Adds a NetworkPolicy for some pods.
    NewNetworkPolicy(PlannedPods<'a>, PlannedRule<'a>),
}

impl PolicyEdit<'_> {
    /// Returns the policy by name, and the place in it: edits in this order leave the places of
    /// those before them as they are, if they are carried out from the last to the first.
    fn place(&self, cluster: &Cluster<'_>) -> (u8, String, Direction, Option<u32>) {
        let of_rule = |number, place: RulePlace| {
            let policy = cluster.policy_name(place.policy);
            (number, policy, place.direction, Some(place.index))
        };
        match self {
            PolicyEdit::AddPorts(place, _) => of_rule(0, *place),
            PolicyEdit::AppendRule(id, rule) => (1, cluster.policy_name(*id), rule.direction, None),
            PolicyEdit::InsertRule(place, _) => of_rule(2, *place),
            PolicyEdit::NewNetworkPolicy(pods, rule) => {
                let namespace = cluster.namespace_name(pods.namespace).to_owned();
                (3, namespace, rule.direction, None)
            }
        }
    }
}

/// A protocol and its destination port.
pub type PlannedPort = (Protocol, NonZeroU16);

/// A rule that accepts peers on ports.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlannedRule<'a> {
    /// The direction.
    pub direction: Direction,
    /// The peers, sorted.
    pub peers: Vec<PlannedPeer<'a>>,
    /// The ports, sorted; none: every port of every protocol, as for ICMP (D14).
    pub ports: Vec<PlannedPort>,
}

/// A peer of a planned rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlannedPeer<'a> {
    /// Pods of one namespace.
    Pods(PlannedPods<'a>),
    /// Addresses.
    Block(Cidr),
}

/// Pods of one namespace with some labels; without labels all of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlannedPods<'a> {
    /// The namespace.
    pub namespace: NamespaceId,
    /// The labels.
    pub labels: Vec<(&'a str, &'a str)>,
}

/// Which labels of a pod a planned selector has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LabelChoice {
    /// The label that names the workload by convention, or else all.
    Name,
    /// All labels but those that controllers add.
    All,
}

/// Flows of a query that one cause denies in one direction.
struct DeniedGroup<'f> {
    direction: Direction,
    cause: Cause,
    flows: Vec<&'f FlowAnswer>,
}

/// Plans changes that could allow all flows of an answer, those with fewer edits first.
///
/// There is no plan if a flow depends on an unknown address, or if no change of a policy helps.
pub fn plans<'a>(
    cluster: &Cluster<'a>,
    program: &Program,
    answer: &Answer,
) -> Vec<Vec<PolicyEdit<'a>>> {
    let Some(groups) = denied_groups(answer) else {
        return Vec::new();
    };
    let mut plans: Vec<Vec<PolicyEdit<'a>>> = Vec::new();
    for choice in [LabelChoice::Name, LabelChoice::All] {
        let planner = Planner {
            cluster,
            program,
            choice,
        };
        let options = groups.iter().map(|group| planner.options(group));
        for mut plan in combinations(options) {
            // By name: the order of ids depends on that of the files.
            plan.sort_by_cached_key(|edit| edit.place(cluster));
            plan.dedup();
            if !plans.contains(&plan) {
                plans.push(plan);
            }
        }
    }
    // The sort is stable: among plans of one length the better guesses stay first.
    plans.sort_by_key(Vec::len);
    plans.truncate(MOST_PLANS);
    plans
}

/// Groups the denied flows by direction and cause; `None`: a denial has no single cause.
fn denied_groups(answer: &Answer) -> Option<Vec<DeniedGroup<'_>>> {
    // In order of the flows: numbers of rules and of isolating sets depend on the order of files.
    let mut groups: Vec<DeniedGroup<'_>> = Vec::new();
    for flow in &answer.flows {
        for direction in Direction::BOTH {
            let cause = flow.outcome.direction(direction).cause?;
            if cause.verdict() == Verdict::Allow {
                continue;
            }
            let is_same =
                |it: &&mut DeniedGroup<'_>| (it.direction, it.cause) == (direction, cause);
            match groups.iter_mut().find(is_same) {
                Some(group) => group.flows.push(flow),
                None => groups.push(DeniedGroup {
                    direction,
                    cause,
                    flows: vec![flow],
                }),
            }
        }
    }
    Some(groups)
}

/// Returns choices of one option for each group. Their number is bounded; the first options of a
/// group are the better ones.
fn combinations<'a>(
    options: impl Iterator<Item = Vec<Vec<PolicyEdit<'a>>>>,
) -> Vec<Vec<PolicyEdit<'a>>> {
    let mut plans: Vec<Vec<PolicyEdit<'a>>> = vec![Vec::new()];
    for options in options {
        let longer = plans.iter().flat_map(|plan| {
            options.iter().map(move |option| {
                let mut longer = plan.clone();
                longer.extend(option.iter().cloned());
                longer
            })
        });
        plans = longer.take(MOST_PLANS).collect();
    }
    plans.retain(|plan| !plan.is_empty());
    plans
}

struct Planner<'p, 'a> {
    cluster: &'p Cluster<'a>,
    program: &'p Program,
    choice: LabelChoice,
}

impl<'a> Planner<'_, 'a> {
    /// Returns the edits that could allow the flows of a group in its direction.
    fn options(&self, group: &DeniedGroup<'_>) -> Vec<Vec<PolicyEdit<'a>>> {
        let mut options = Vec::new();
        options.extend(self.more_ports(group).map(|edit| vec![edit]));
        let Some(rule) = self.rule(group) else {
            return options;
        };
        let new_policy = self.new_policies(group, &rule);
        match group.cause {
            Cause::Isolation(id) | Cause::DefaultIsolation(id) => {
                let policies = self.with_room(id, group, &rule).into_iter();
                let appended = policies.map(|id| vec![PolicyEdit::AppendRule(id, rule.clone())]);
                options.extend(appended);
                options.extend(new_policy);
            }
            Cause::AdminRule(_, id) => {
                options.extend(self.before(id, &rule));
            }
            Cause::BaselineRule(_, id) => {
                options.extend(self.before(id, &rule));
                // A NetworkPolicy takes the pod out of the Baseline tier, and isolates it (D10).
                options.extend(new_policy);
            }
            Cause::NetworkPolicyRule(_)
            | Cause::Default
            | Cause::Exempt(_)
            | Cause::NotApplicable(_) => {}
        }
        options
    }

    /// Returns isolating policies that could get a rule, the better ones first.
    fn with_room(
        &self,
        id: IsolationId,
        group: &DeniedGroup<'_>,
        rule: &PlannedRule<'a>,
    ) -> Vec<PolicyId> {
        let first = group.flows.first();
        let nearest = first.and_then(|it| self.miss(it, group));
        let nearest = nearest.map(|miss| miss.rule.policy);
        let policies = self.program.isolation(id).iter().copied();
        let policies = policies.filter_map(|id| {
            let policy = self.cluster.policies.get(id.0 as usize)?;
            // A policy over its budget has no effect (D148).
            let has_room = !policy.is_over_budget && can_express(policy.api, rule);
            // The author of the nearest rule probably meant this flow. A policy without rules is
            // there to deny.
            let is_empty = policy.rules(group.direction).list.is_empty();
            let name = self.cluster.policy_name(id);
            has_room.then_some((Some(id) != nearest, is_empty, name, id))
        });
        let mut policies: Vec<_> = policies.collect();
        policies.sort_unstable();
        policies.truncate(MOST_POLICIES);
        policies.into_iter().map(|(.., id)| id).collect()
    }

    fn miss(&self, flow: &FlowAnswer, group: &DeniedGroup<'_>) -> Option<NearMiss<'a>> {
        let (direction, cause) = (group.direction, group.cause);
        let address = peer_address(flow, direction);
        let (cluster, program) = (self.cluster, self.program);
        nearest(cluster, program, &flow.flow, direction, cause, address)
    }

    fn before(&self, id: RuleId, rule: &PlannedRule<'a>) -> Option<Vec<PolicyEdit<'a>>> {
        let place = self.program.place(id)?;
        let policy = self.cluster.policies.get(place.policy.0 as usize)?;
        can_express(policy.api, rule).then(|| vec![PolicyEdit::InsertRule(place, rule.clone())])
    }

    /// Plans a NetworkPolicy for each different subject of the flows.
    fn new_policies(
        &self,
        group: &DeniedGroup<'_>,
        rule: &PlannedRule<'a>,
    ) -> Option<Vec<PolicyEdit<'a>>> {
        let subjects: Option<BTreeSet<PlannedPods<'a>>> = group
            .flows
            .iter()
            .map(|flow| {
                let (subject, _) = ends(flow, group.direction);
                self.pods(subject)
            })
            .collect();
        let edit = |subject| PolicyEdit::NewNetworkPolicy(subject, rule.clone());
        Some(subjects?.into_iter().map(edit).collect())
    }

    /// Plans more ports for a rule that lacks nothing else.
    fn more_ports(&self, group: &DeniedGroup<'_>) -> Option<PolicyEdit<'a>> {
        let ports = ports(group).filter(|ports| !ports.is_empty())?;
        let mut places = group.flows.iter().map(|flow| {
            let miss = self.miss(flow, group)?;
            matches!(miss.conditions.as_slice(), [Condition::Port(_)]).then_some(miss.rule)
        });
        let place = places.next().flatten()?;
        let policy = self.cluster.policies.get(place.policy.0 as usize)?;
        let effect = self.cluster.effect(place)?;
        // A Pass leaves the verdict to a later tier, and a rule over its budget has no effect.
        let accepts = effect.action == Action::Accept && !policy.is_over_budget;
        let fits = accepts && ports.iter().all(|(it, _)| has_protocol(policy.api, *it));
        (fits && places.all(|it| it == Some(place))).then_some(PolicyEdit::AddPorts(place, ports))
    }

    /// Plans the rule that accepts the peers of the flows on their ports.
    fn rule(&self, group: &DeniedGroup<'_>) -> Option<PlannedRule<'a>> {
        let peers: Option<BTreeSet<PlannedPeer<'a>>> = group
            .flows
            .iter()
            .map(|flow| self.peer(flow, group.direction))
            .collect();
        let peers: Vec<PlannedPeer<'a>> = peers?.into_iter().collect();
        (peers.len() <= MOST_PEERS).then_some(PlannedRule {
            direction: group.direction,
            peers,
            ports: ports(group)?,
        })
    }

    fn peer(&self, flow: &FlowAnswer, direction: Direction) -> Option<PlannedPeer<'a>> {
        let (_, peer) = ends(flow, direction);
        if let Identity::Pod(_) = peer.identity {
            return self.pods(peer).map(PlannedPeer::Pods);
        }
        let name = match direction {
            Direction::Ingress => flow.source,
            Direction::Egress => flow.destination,
        };
        match name {
            EndName::Block(block) => Some(PlannedPeer::Block(block)),
            EndName::Pod(_) | EndName::Node(_) | EndName::Address(_) => {
                let address = peer_address(flow, direction)?;
                Some(PlannedPeer::Block(Cidr::single(address)))
            }
        }
    }

    fn pods(&self, end: FlowEnd) -> Option<PlannedPods<'a>> {
        let Identity::Pod(id) = end.identity else {
            return None;
        };
        let pod = self.cluster.pods.get(id.0 as usize)?;
        Some(PlannedPods {
            namespace: pod.namespace,
            labels: distinguishing_labels(&pod.labels, self.choice),
        })
    }
}

/// Returns the subject and the peer of a flow in a direction.
fn ends(flow: &FlowAnswer, direction: Direction) -> (FlowEnd, FlowEnd) {
    match direction {
        Direction::Ingress => (flow.flow.destination, flow.flow.source),
        Direction::Egress => (flow.flow.source, flow.flow.destination),
    }
}

fn peer_address(flow: &FlowAnswer, direction: Direction) -> Option<IpAddr> {
    match direction {
        Direction::Ingress => flow.source_address,
        Direction::Egress => flow.destination_address,
    }
}

/// Returns the ports of the flows, or none if a flow has no port.
fn ports(group: &DeniedGroup<'_>) -> Option<Vec<PlannedPort>> {
    let ports: Option<BTreeSet<PlannedPort>> = group
        .flows
        .iter()
        .map(|flow| match flow.transport {
            Transport::Port(protocol, port) => Some((protocol, port)),
            Transport::Icmp | Transport::Icmp6(_) | Transport::Ip(_) => None,
        })
        .collect();
    Some(ports.unwrap_or_default().into_iter().collect())
}

/// Returns whether a kind of policy can have a rule with these peers and ports.
fn can_express(api: PolicyApi, rule: &PlannedRule<'_>) -> bool {
    let has_block = rule
        .peers
        .iter()
        .any(|it| matches!(it, PlannedPeer::Block(_)));
    let peers = match api {
        PolicyApi::NetworkPolicy | PolicyApi::Default => true,
        // These kinds have address blocks for egress only.
        PolicyApi::Cluster | PolicyApi::Admin | PolicyApi::BaselineAdmin => {
            !has_block || rule.direction == Direction::Egress
        }
        // An annotation has no list of rules. Among early policies every Deny precedes every Allow
        // (D61), so no rule can come before one.
        PolicyApi::IsolationAnnotation | PolicyApi::EarlyCluster => false,
        PolicyApi::NetworkPolicy2016 => !has_block,
    };
    peers && rule.ports.iter().all(|(it, _)| has_protocol(api, *it))
}

fn has_protocol(api: PolicyApi, protocol: Protocol) -> bool {
    // SCTP came later (D72).
    api != PolicyApi::NetworkPolicy2016 || protocol != Protocol::Sctp
}

/// Returns the labels that identify a pod, without those that controllers add.
fn distinguishing_labels<'a>(
    labels: &[(&'a str, &'a str)],
    choice: LabelChoice,
) -> Vec<(&'a str, &'a str)> {
    // By convention one of these labels identifies a workload. Other labels, such as a version,
    // change with a rollout.
    const NAMES: [&str; 3] = ["app.kubernetes.io/name", "app", "k8s-app"];
    const OF_CONTROLLERS: [&str; 6] = [
        "pod-template-hash",
        "controller-revision-hash",
        "statefulset.kubernetes.io/pod-name",
        "apps.kubernetes.io/pod-index",
        "controller-uid",
        "batch.kubernetes.io/controller-uid",
    ];
    let name = labels.iter().find(|(key, _)| NAMES.contains(key));
    match (choice, name) {
        (LabelChoice::Name, Some(name)) => vec![*name],
        (LabelChoice::Name | LabelChoice::All, _) => {
            let others = labels.iter().copied();
            others
                .filter(|(key, _)| !OF_CONTROLLERS.contains(key))
                .collect()
        }
    }
}
