//! The cluster as policies see it: what every generation of the API is lowered to.
//!
//! Texts borrow from the objects. Nothing here is undecided: a rule that could not be read has
//! already failed closed (D16), and every default of the API has been applied.

use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use crate::budget::Budget;
use crate::domain::DomainPattern;
use crate::labels::Selector;
use crate::net::{Cidr, PortRange, Protocol};
use crate::policy::{Action, Direction, PolicyApi, Tier};
use crate::program::RulePlace;

/// A namespace, by its place in [`Cluster::namespaces`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceId(pub u32);

/// A pod or a pod template, by its place in [`Cluster::pods`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodId(pub u32);

/// A node, by its place in [`Cluster::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// A policy, by its place in [`Cluster::policies`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyId(pub u32);

/// A Service, by its place in [`Cluster::services`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceId(pub u32);

/// The object that something was lowered from, by its place in whatever was lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin(pub u32);

/// Labels, sorted by key. Pods of one workload share them.
pub type Labels<'a> = Arc<[(&'a str, &'a str)]>;

/// The value of a label.
pub fn label<'a>(labels: &[(&'a str, &'a str)], key: &str) -> Option<&'a str> {
    let found = labels.binary_search_by(|(it, _)| (*it).cmp(key)).ok()?;
    labels.get(found).map(|(_, value)| *value)
}

/// Everything that decides about flows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster<'a> {
    /// The namespaces, by name; also those that only other objects speak of.
    pub namespaces: Vec<Namespace<'a>>,
    /// The nodes, by name.
    pub nodes: Vec<Node<'a>>,
    /// The pods, by namespace and name, then the templates of workloads without pods.
    pub pods: Vec<Pod<'a>>,
    /// The workloads.
    pub workloads: Vec<Workload<'a>>,
    /// The Services, by namespace and name.
    pub services: Vec<Service<'a>>,
    /// The policies of all generations.
    pub policies: Vec<Policy<'a>>,
    /// The addresses that names have resolved to.
    pub learned: Vec<(String, IpAddr)>,
    /// What the NetworkPolicies of each namespace may be together; those that do not fit say so (D148).
    pub budget: Budget,
}

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its labels; `kubernetes.io/metadata.name` is always its name (D23).
    pub labels: Labels<'a>,
    /// Whether the object itself was given.
    pub has_object: bool,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its labels.
    pub labels: Labels<'a>,
    /// Its internal and external addresses, internal ones first (D106, D133).
    pub addresses: Vec<IpAddr>,
    /// The blocks that its pods get addresses from. They decide nothing about flows.
    pub pod_cidrs: Vec<Cidr>,
    /// Whether the object itself was given; a name that only pods mention has no address.
    pub has_object: bool,
}

/// A pod, or the template that stands for the pods a workload does not have yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod<'a> {
    /// Its namespace.
    pub namespace: NamespaceId,
    /// Its name; for a template the workload's.
    pub name: &'a str,
    /// What it is a template of: the short word for the kind.
    pub template: Option<&'static str>,
    /// Its labels.
    pub labels: Labels<'a>,
    /// The ports that its containers declare (D34). Pods of one workload share them.
    pub ports: Arc<[ContainerPort<'a>]>,
    /// Its addresses, in order; none: not known (D83).
    pub addresses: Vec<IpAddr>,
    /// The node that it is on.
    pub node: Option<&'a str>,
    /// Whether it uses its node's network, and so is not a pod to any policy (D73).
    pub host_network: bool,
    /// How far it has come.
    pub life: PodLifecycle,
    /// Whether it takes traffic of Services.
    pub ready: bool,
    /// When it was created, as written.
    pub created: Option<&'a str>,
    /// The object.
    pub origin: Origin,
}

impl Pod<'_> {
    /// Whether policies can select it (D48, D81).
    pub fn is_selectable(&self) -> bool {
        !self.host_network && self.life != PodLifecycle::Ended
    }
}

/// How far a pod has come, in the order in which pods win an address that two have (D82, D134).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodLifecycle {
    /// It runs.
    Running,
    /// Not all of its containers have started.
    Pending,
    /// Its node does not answer, or nobody said.
    Unknown,
    /// It has ended: not a subject, not a peer, and its address is free (D81).
    Ended,
}

/// A port that a container declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerPort<'a> {
    /// Its name.
    pub name: Option<&'a str>,
    /// Its number.
    pub port: NonZeroU16,
    /// Its protocol.
    pub protocol: Protocol,
}

impl<'a> ContainerPort<'a> {
    /// Its name, and which port has it.
    pub fn named(&self) -> Option<(&'a str, Protocol, NonZeroU16)> {
        self.name.map(|name| (name, self.protocol, self.port))
    }
}

/// A workload and the pods that stand for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload<'a> {
    /// The short word for its kind, as in `shop/deploy/web`.
    pub kind: &'static str,
    /// Its namespace.
    pub namespace: NamespaceId,
    /// Its name.
    pub name: &'a str,
    /// Its live pods, or its template alone.
    pub pods: Vec<PodId>,
    /// Whether another workload that is given made it, as a Deployment makes ReplicaSets.
    pub is_made: bool,
    /// How many pods it asks for, if it says so.
    pub replicas: Option<u32>,
}

/// A Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service<'a> {
    /// Its namespace.
    pub namespace: NamespaceId,
    /// Its name.
    pub name: &'a str,
    /// What clients inside dial; none for a headless one.
    pub cluster_addresses: Vec<IpAddr>,
    /// What clients outside dial.
    pub external_addresses: Vec<IpAddr>,
    /// Whether it is only another name for something outside.
    pub is_external_name: bool,
    /// Whether clients dial its backends themselves.
    pub is_headless: bool,
    /// Whether traffic from outside stays on the node it arrives at.
    pub external_traffic_local: bool,
    /// Its ports.
    pub ports: Vec<ServicePort<'a>>,
}

/// A port of a Service and where it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort<'a> {
    /// Its name.
    pub name: Option<&'a str>,
    /// What clients dial.
    pub port: NonZeroU16,
    /// The port of every node that leads here.
    pub node_port: Option<NonZeroU16>,
    /// The protocol.
    pub protocol: Protocol,
    /// The backends that take traffic.
    pub backends: Vec<Backend>,
}

/// One backend of a port of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Backend {
    /// Who it is.
    pub target: BackendTarget,
    /// The port there.
    pub port: NonZeroU16,
}

/// Who a backend is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BackendTarget {
    /// A pod, at all its addresses.
    Pod(PodId),
    /// An address, whoever has it.
    Address(IpAddr),
}

/// A policy of any generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy<'a> {
    /// The generation that it was written in.
    pub generation: PolicyApi,
    /// The version of the API, as the object has it.
    pub api_version: &'a str,
    /// Its namespace, if it lives in one.
    pub namespace: Option<NamespaceId>,
    /// Its name.
    pub name: &'a str,
    /// Where it stands in the order of evaluation.
    pub rank: PolicyRank,
    /// The pods it is about; `None`: no pods, because the subject could not be read (D20).
    pub subject: Option<PodSet<'a>>,
    /// Whether selected pods are isolated, and the rules, for traffic to them.
    pub ingress: Rules<'a>,
    /// Likewise for traffic from them.
    pub egress: Rules<'a>,
    /// Whether it only says what it would do.
    pub audited: bool,
    /// When it was created, as the [digits](crate::time::digits) of a time.
    pub created: Option<u64>,
    /// Whether it does not fit into the budget of its namespace, so that no rule of it has an effect (D148).
    pub is_over_budget: bool,
    /// The object; the isolation that an annotation causes has that of its namespace.
    pub origin: Origin,
}

impl<'a> Policy<'a> {
    /// The rules for a direction.
    pub fn rules(&self, direction: Direction) -> &Rules<'a> {
        match direction {
            Direction::Ingress => &self.ingress,
            Direction::Egress => &self.egress,
        }
    }
}

/// Where a policy stands in the order of evaluation (1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyRank {
    /// In the Admin tier, without a priority: every Deny goes before every Allow, and both before
    /// policies with a priority (D61).
    EarlyAdmin,
    /// In a tier, at a priority; lower first.
    Ordered(Tier, i64),
    /// Between the tiers: rules of all policies are a union.
    NetworkPolicy,
    /// After the Baseline tier's ordered policies: a union, then isolation (D62).
    DefaultGroup,
}

/// The rules of a policy for one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules<'a> {
    /// Whether the pods that are selected are denied what no rule accepts (D9).
    pub isolates: bool,
    /// The rules, in the order of the object.
    pub list: Vec<Rule<'a>>,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule<'a> {
    /// The name that its author gave it.
    pub name: Option<&'a str>,
    /// The action as the object writes it, if rules of its generation have one.
    pub written_action: Option<&'a str>,
    /// What it does; `None`: nothing, since it failed closed (D16) or matches nothing (D21).
    pub effect: Option<Effect<'a>>,
    /// Whether something in it could not be read.
    pub failed_closed: bool,
}

/// What a rule does, and to what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect<'a> {
    /// The action.
    pub action: Action,
    /// Who the other end is; `None`: anyone.
    pub peers: Option<Vec<Peer<'a>>>,
    /// The ports; `None`: every port of every protocol (D14).
    pub ports: Option<Vec<PortMatch<'a>>>,
}

impl Effect<'_> {
    /// A rule that denies everything in its direction.
    pub const DENY_ALL: Effect<'static> = Effect {
        action: Action::Deny,
        peers: None,
        ports: None,
    };
}

/// The other end of a flow, as a rule names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer<'a> {
    /// Pods.
    Pods(PodSet<'a>),
    /// The addresses of nodes (D43).
    Nodes(Selector<&'a str>),
    /// A block of addresses without some inside it.
    Block {
        /// The block.
        cidr: Cidr,
        /// What is taken out of it, for this peer alone (D100).
        except: Vec<Cidr>,
    },
    /// The addresses that these names have resolved to (D54).
    Domains(Vec<DomainPattern>),
    /// Everyone.
    All,
}

/// Some pods of some namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSet<'a> {
    /// Which namespaces.
    pub namespaces: NamespaceSet<'a>,
    /// Which of their pods; `None`: all.
    pub pods: Option<Selector<&'a str>>,
}

/// Some namespaces, possibly as seen from the subject's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceSet<'a> {
    /// One.
    Exact(NamespaceId),
    /// By labels, less those that any exception selects.
    Selected {
        /// Which.
        selector: Selector<&'a str>,
        /// And which of them not.
        except: Vec<Selector<&'a str>>,
    },
    /// The subject's own (D45, D67).
    Own,
    /// Every other.
    NotOwn,
    /// Those that have the subject's values for all these keys (D46).
    SameLabels(Vec<&'a str>),
    /// Those that have all these keys, and another value for at least one (D47).
    NotSameLabels(Vec<&'a str>),
}

/// What a rule says of protocol and port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PortMatch<'a> {
    /// Ports of one protocol.
    Numbers(Protocol, PortRange),
    /// The port of this name at the destination; of any protocol if none is said (D33, D41).
    Named(Option<Protocol>, &'a str),
}

impl<'a> Cluster<'a> {
    /// The node of a name, if the object was given.
    pub fn node(&self, name: &str) -> Option<NodeId> {
        let found = self
            .nodes
            .binary_search_by(|node| node.name.cmp(name))
            .ok()?;
        let known = self.nodes.get(found).is_some_and(|node| node.has_object);
        known.then_some(NodeId(u32::try_from(found).ok()?))
    }

    /// A namespace's name.
    pub fn namespace_name(&self, id: NamespaceId) -> &str {
        self.namespaces
            .get(id.0 as usize)
            .map_or("", |namespace| namespace.name)
    }

    /// The addresses that names have resolved to which some pattern means (D54).
    pub fn learned_for<'c>(
        &'c self,
        patterns: &'c [DomainPattern],
    ) -> impl Iterator<Item = IpAddr> + 'c {
        let is_meant = move |name: &str| patterns.iter().any(|it| it.matches(name));
        let learned = self.learned.iter();
        learned.filter_map(move |(name, address)| is_meant(name).then_some(*address))
    }

    /// What a rule does, if it has an effect.
    pub fn effect(&self, place: RulePlace) -> Option<&Effect<'a>> {
        let policy = self.policies.get(place.policy.0 as usize)?;
        let rule = policy
            .rules(place.direction)
            .list
            .get(place.index as usize)?;
        rule.effect.as_ref()
    }

    /// A policy's identifier: `netpol/shop/db`, `cnp/tenants`.
    pub fn policy_name(&self, id: PolicyId) -> String {
        let Some(policy) = self.policies.get(id.0 as usize) else {
            return String::new();
        };
        let short = policy.generation.short();
        match policy.namespace {
            Some(namespace) => {
                format!("{short}/{}/{}", self.namespace_name(namespace), policy.name)
            }
            None => format!("{short}/{}", policy.name),
        }
    }

    /// A pod's name: `shop/web-0`, or `shop/deploy/web` for a template.
    pub fn pod_name(&self, id: PodId) -> String {
        let Some(pod) = self.pods.get(id.0 as usize) else {
            return String::new();
        };
        let namespace = self.namespace_name(pod.namespace);
        match pod.template {
            Some(kind) => format!("{namespace}/{kind}/{}", pod.name),
            None => format!("{namespace}/{}", pod.name),
        }
    }

    /// A Service's name: `shop/svc/web`.
    pub fn service_name(&self, id: ServiceId) -> String {
        match self.services.get(id.0 as usize) {
            Some(it) => format!("{}/svc/{}", self.namespace_name(it.namespace), it.name),
            None => String::new(),
        }
    }
}
