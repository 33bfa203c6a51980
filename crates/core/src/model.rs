//! The cluster as policies see it, to which every API version is lowered.
//!
//! Texts borrow from the objects. Nothing here needs an API's rules any more: every default has
//! been applied, and a rule with an unreadable field has failed closed (D16).

use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use crate::budget::Budget;
use crate::domain::DomainPattern;
use crate::labels::Selector;
use crate::net::{Cidr, PortRange, Protocol};
use crate::policy::{Action, Direction, PolicyApi, Tier};
use crate::program::RulePlace;

/// A namespace, by its index in [`Cluster::namespaces`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceId(pub u32);

/// A pod or a pod template, by its index in [`Cluster::pods`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodId(pub u32);

/// A node, by its index in [`Cluster::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// A policy, by its index in [`Cluster::policies`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyId(pub u32);

/// A Service, by its index in [`Cluster::services`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceId(pub u32);

/// The object from which a value was lowered, by its index in the lowered list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin(pub u32);

/// Labels, sorted by key. Pods of one workload share them.
pub type Labels<'a> = Arc<[(&'a str, &'a str)]>;

/// Returns the value of a label.
pub fn label<'a>(labels: &[(&'a str, &'a str)], key: &str) -> Option<&'a str> {
    // Labels are sorted: see [`Labels`].
    let found = labels.binary_search_by(|(it, _)| (*it).cmp(key)).ok()?;
    labels.get(found).map(|(_, value)| *value)
}

/// All objects that verdicts depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster<'a> {
    /// The namespaces, by name; also those that only other objects name.
    pub namespaces: Vec<Namespace<'a>>,
    /// The nodes, by name; also those that only pods name.
    pub nodes: Vec<Node<'a>>,
    /// The pods, by namespace and name, then the templates of workloads without pods.
    pub pods: Vec<Pod<'a>>,
    /// The workloads, with their pods or their template.
    pub workloads: Vec<Workload<'a>>,
    /// The Services, by namespace and name.
    pub services: Vec<Service<'a>>,
    /// The policies of all API versions.
    pub policies: Vec<Policy<'a>>,
    /// Domain names, each with an address that it has resolved to.
    pub learned: Vec<(String, IpAddr)>,
    /// The budget of the NetworkPolicies of each namespace; a policy that does not fit is marked
    /// (D148).
    pub budget: Budget,
}

/// A namespace, with or without an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace<'a> {
    /// The name; `kubernetes.io/metadata.name` holds it as well.
    pub name: &'a str,
    /// The labels; `kubernetes.io/metadata.name` is always the name (D23).
    pub labels: Labels<'a>,
    /// Whether the object is in the input.
    pub has_object: bool,
}

/// A node, with or without an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node<'a> {
    /// The name, as in `spec.nodeName` of pods.
    pub name: &'a str,
    /// The labels, for selectors of nodes.
    pub labels: Labels<'a>,
    /// The internal and external addresses, internal ones first (D106, D133).
    pub addresses: Vec<IpAddr>,
    /// The blocks from which the node's pods get addresses. No verdict depends on them.
    pub pod_cidrs: Vec<Cidr>,
    /// Whether the object is in the input; a node that only pods name has no address.
    pub has_object: bool,
}

/// A pod, or the template that stands for the pods of a workload that has none yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod<'a> {
    /// The namespace, which NetworkPolicies select within.
    pub namespace: NamespaceId,
    /// The name; for a template the workload's name.
    pub name: &'a str,
    /// The short name of the workload's kind, if this is a template.
    pub template: Option<&'static str>,
    /// The labels, for selectors of pods.
    pub labels: Labels<'a>,
    /// The ports that the containers declare (D34). Pods of one workload share them.
    pub ports: Arc<[ContainerPort<'a>]>,
    /// The addresses, in order; none: unknown (D83).
    pub addresses: Vec<IpAddr>,
    /// The name of the pod's node.
    pub node: Option<&'a str>,
    /// Whether the pod uses its node's network; no policy then selects it as a pod (D73).
    pub host_network: bool,
    /// The phase.
    pub phase: PodPhase,
    /// Whether the pod is ready, and Services send traffic to it.
    pub ready: bool,
    /// The creation time, as in the object.
    pub created: Option<&'a str>,
    /// The object of the pod, or of the workload for a template.
    pub origin: Origin,
}

impl Pod<'_> {
    /// Returns whether policies can select the pod (D48, D81).
    pub fn is_selectable(&self) -> bool {
        // A pod in the host network is its node (D48), and an ended pod has no address (D81).
        !self.host_network && self.phase != PodPhase::Terminated
    }
}

/// The phase of a pod. If two pods have one address, the pod with the smaller phase wins it (D82,
/// D134).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodPhase {
    /// The pod runs.
    Running,
    /// Not all containers have started.
    Pending,
    /// The node does not answer, or the object has no phase.
    Unknown,
    /// The pod succeeded or failed: not a subject, not a peer, and its address is free (D81).
    Terminated,
}

/// A port that a container declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerPort<'a> {
    /// The name, for named ports of rules and Services.
    pub name: Option<&'a str>,
    /// The number.
    pub port: NonZeroU16,
    /// The protocol.
    pub protocol: Protocol,
}

impl<'a> ContainerPort<'a> {
    /// Returns the name, and the port that has it; `None`: the port has no name.
    pub fn named(&self) -> Option<(&'a str, Protocol, NonZeroU16)> {
        self.name.map(|name| (name, self.protocol, self.port))
    }
}

/// A workload and the pods that stand for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload<'a> {
    /// The short name of the kind, as in `shop/deploy/web`.
    pub kind: &'static str,
    /// The namespace.
    pub namespace: NamespaceId,
    /// The name.
    pub name: &'a str,
    /// The live pods, or the template alone.
    pub pods: Vec<PodId>,
    /// Whether another workload in the input owns it, as a Deployment owns ReplicaSets.
    pub is_owned: bool,
    /// The number of pods in its spec, if set.
    pub replicas: Option<u32>,
}

/// A Service with its resolved backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service<'a> {
    /// The namespace.
    pub namespace: NamespaceId,
    /// The name.
    pub name: &'a str,
    /// The addresses that clients in the cluster dial; none for a headless Service.
    pub cluster_addresses: Vec<IpAddr>,
    /// The addresses that clients outside dial.
    pub external_addresses: Vec<IpAddr>,
    /// Whether the Service is an alias for a DNS name outside the cluster (`ExternalName`).
    pub is_external_name: bool,
    /// Whether clients dial the backends directly.
    pub is_headless: bool,
    /// Whether outside traffic stays on the node where it arrives (`externalTrafficPolicy: Local`).
    pub external_traffic_local: bool,
    /// The ports, in the order of the object.
    pub ports: Vec<ServicePort<'a>>,
}

/// A port of a Service and its backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort<'a> {
    /// The name.
    pub name: Option<&'a str>,
    /// The port that clients dial.
    pub port: NonZeroU16,
    /// The port on every node that leads to the same backends.
    pub node_port: Option<NonZeroU16>,
    /// The protocol.
    pub protocol: Protocol,
    /// The ready backends.
    pub backends: Vec<Backend>,
}

/// One backend of a port of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Backend {
    /// The pod or address that receives the traffic.
    pub target: BackendTarget,
    /// The port at the backend.
    pub port: NonZeroU16,
}

/// The destination behind a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BackendTarget {
    /// A pod, at all its addresses.
    Pod(PodId),
    /// An address without a named pod; any object may have it.
    Address(IpAddr),
}

/// A policy of any API version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy<'a> {
    /// The kind and API version.
    pub api: PolicyApi,
    /// The `apiVersion` of the object.
    pub api_version: &'a str,
    /// The namespace, if the kind has one.
    pub namespace: Option<NamespaceId>,
    /// The name.
    pub name: &'a str,
    /// The position in the order of evaluation.
    pub rank: PolicyRank,
    /// The pods that the policy selects; `None`: no pods, because the subject is unreadable (D20).
    pub subject: Option<PodSet<'a>>,
    /// The rules for traffic to the pods, and whether the policy isolates them.
    pub ingress: Rules<'a>,
    /// The rules for traffic from the pods, and whether the policy isolates them.
    pub egress: Rules<'a>,
    /// Whether the policy is in audit mode, and has no effect on verdicts.
    pub audited: bool,
    /// The creation time, as the [digits](crate::time::digits) of a time.
    pub created: Option<u64>,
    /// Whether the policy is over the budget of its namespace; none of its rules then has an effect
    /// (D148).
    pub is_over_budget: bool,
    /// The object. For the isolation by an annotation it is the namespace's.
    pub origin: Origin,
}

impl<'a> Policy<'a> {
    /// Returns the rules for a direction.
    pub fn rules(&self, direction: Direction) -> &Rules<'a> {
        match direction {
            Direction::Ingress => &self.ingress,
            Direction::Egress => &self.egress,
        }
    }
}

/// The position of a policy in the order of evaluation (1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyRank {
    /// In the Admin tier, without a priority: all Deny rules come before all Accept rules, and
    /// those before policies with a priority (D61).
    EarlyAdmin,
    /// In a tier, at a priority; the smaller number first.
    Ordered(Tier, i64),
    /// Between the tiers: the rules of all policies are a union.
    NetworkPolicy,
    /// After the other policies of the Baseline tier: a union, then isolation (D62).
    DefaultGroup,
}

/// The rules of a policy for one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules<'a> {
    /// Whether selected pods are denied what no rule accepts (D9).
    pub isolates: bool,
    /// The rules, in the order of the object.
    pub list: Vec<Rule<'a>>,
}

/// A rule, at its index in the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule<'a> {
    /// The `name` of the rule, for kinds that have one.
    pub name: Option<&'a str>,
    /// The action as in the object, for kinds that have one.
    pub written_action: Option<&'a str>,
    /// The effect; `None`: the rule failed closed (D16) or matches nothing (D21).
    pub effect: Option<Effect<'a>>,
    /// Whether the rule has an unreadable field.
    pub failed_closed: bool,
}

/// The action of a rule and what it matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect<'a> {
    /// The action on matching traffic.
    pub action: Action,
    /// The peers, of which one must match; `None`: every peer.
    pub peers: Option<Vec<Peer<'a>>>,
    /// The ports, of which one must match; `None`: every port of every protocol (D14).
    pub ports: Option<Vec<PortMatch<'a>>>,
}

impl Effect<'_> {
    /// Denies everything in its direction: the effect of a Deny or Pass rule that failed closed.
    pub const DENY_ALL: Effect<'static> = Effect {
        action: Action::Deny,
        peers: None,
        ports: None,
    };
}

/// A peer of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer<'a> {
    /// Pods, by namespaces and labels.
    Pods(PodSet<'a>),
    /// Nodes by labels, at all their addresses (D43).
    Nodes(Selector<&'a str>),
    /// A block of addresses, with exceptions.
    Block {
        /// The block.
        cidr: Cidr,
        /// The exceptions, for this peer alone (D100).
        except: Vec<Cidr>,
    },
    /// The addresses that matching domain names have resolved to (D54).
    Domains(Vec<DomainPattern>),
    /// Every peer of either family (D57).
    All,
}

/// Pods selected by namespace and labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSet<'a> {
    /// The namespaces of the pods.
    pub namespaces: NamespaceSet<'a>,
    /// The labels of the pods; `None`: all pods.
    pub pods: Option<Selector<&'a str>>,
}

/// Namespaces, selected by themselves or relative to the subject's namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceSet<'a> {
    /// One namespace.
    Exact(NamespaceId),
    /// Namespaces selected by labels, without those that an exception selects.
    Selected {
        /// The selector.
        selector: Selector<&'a str>,
        /// The exceptions (D67).
        except: Vec<Selector<&'a str>>,
    },
    /// The subject's own namespace (D45, D67).
    Own,
    /// Every namespace but the subject's.
    NotOwn,
    /// Namespaces with the subject's values for all these keys (D46).
    SameLabels(Vec<&'a str>),
    /// Namespaces that have all these keys, and another value for at least one (D47).
    NotSameLabels(Vec<&'a str>),
}

/// A port filter of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PortMatch<'a> {
    /// A range of ports of one protocol.
    Numbers(Protocol, PortRange),
    /// The ports of this name at the destination, of one protocol or of any (D33, D41).
    Named(Option<Protocol>, &'a str),
}

impl<'a> Cluster<'a> {
    /// Returns the node of a name, if its object is in the input.
    pub fn node(&self, name: &str) -> Option<NodeId> {
        let found = self
            .nodes
            .binary_search_by(|node| node.name.cmp(name))
            .ok()?;
        // Without its object a node has neither labels nor addresses: nothing could match it
        // (D108).
        let known = self.nodes.get(found).is_some_and(|node| node.has_object);
        known.then_some(NodeId(u32::try_from(found).ok()?))
    }

    /// Returns the name of a namespace.
    pub fn namespace_name(&self, id: NamespaceId) -> &str {
        self.namespaces
            .get(id.0 as usize)
            .map_or("", |namespace| namespace.name)
    }

    /// Returns the addresses of the resolved names that a pattern matches (D54).
    pub fn learned_for<'c>(
        &'c self,
        patterns: &'c [DomainPattern],
    ) -> impl Iterator<Item = IpAddr> + 'c {
        // A linear search: names come from one file, and each pattern is resolved once per cluster.
        let matches = move |name: &str| patterns.iter().any(|it| it.matches(name));
        let learned = self.learned.iter();
        learned.filter_map(move |(name, address)| matches(name).then_some(*address))
    }

    /// Returns the effect of a rule, if it has one.
    pub fn effect(&self, place: RulePlace) -> Option<&Effect<'a>> {
        let policy = self.policies.get(place.policy.0 as usize)?;
        let rule = policy
            .rules(place.direction)
            .list
            .get(place.index as usize)?;
        rule.effect.as_ref()
    }

    /// Returns the identifier of a policy: `netpol/shop/db`, `cnp/tenants`.
    pub fn policy_name(&self, id: PolicyId) -> String {
        let Some(policy) = self.policies.get(id.0 as usize) else {
            return String::new();
        };
        let short = policy.api.short();
        match policy.namespace {
            Some(namespace) => {
                format!("{short}/{}/{}", self.namespace_name(namespace), policy.name)
            }
            None => format!("{short}/{}", policy.name),
        }
    }

    /// Returns the identifier of a rule: `netpol/shop/db#ingress[0]`.
    pub fn rule_name(&self, place: RulePlace) -> String {
        let policy = self.policy_name(place.policy);
        format!("{policy}#{}[{}]", place.direction.key(), place.index)
    }

    /// Returns the name of a pod: `shop/web-0`, or `shop/deploy/web` for a template.
    pub fn pod_name(&self, id: PodId) -> String {
        let Some(pod) = self.pods.get(id.0 as usize) else {
            return String::new();
        };
        let namespace = self.namespace_name(pod.namespace);
        match pod.template {
            // The kind keeps a template apart from a pod with the name of its workload.
            Some(kind) => format!("{namespace}/{kind}/{}", pod.name),
            None => format!("{namespace}/{}", pod.name),
        }
    }

    /// Returns the name of a Service: `shop/svc/web`.
    pub fn service_name(&self, id: ServiceId) -> String {
        match self.services.get(id.0 as usize) {
            Some(it) => format!("{}/svc/{}", self.namespace_name(it.namespace), it.name),
            None => String::new(),
        }
    }
}
