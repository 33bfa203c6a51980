//! Small clusters for the unit tests of this crate: short constructors of the model's types.

use std::num::NonZeroU16;

use crate::analysis::affect::Decider;
use crate::decide::{Flow, FlowEnd, Identity, Traffic};
use crate::labels::{Operator, Requirement, Selector};
use crate::model::{
    Backend, BackendTarget, Cluster, ContainerPort, Effect, Namespace, NamespaceId, NamespaceSet,
    Node, Origin, Peer, Pod, PodId, PodPhase, PodSet, Policy, PolicyId, PolicyRank, PortMatch,
    Rule, Rules, Service, ServicePort,
};
use crate::net::{CidrText, PortRange, Protocol};
use crate::policy::{Action, PolicyApi, Tier};
use crate::program::Program;

/// Random numbers, the same in every run (splitmix64).
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        usize::try_from(mixed % u64::try_from(bound).unwrap()).unwrap()
    }

    pub(crate) fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }
}

/// The namespaces of [`cluster`]: `x` and `y` have a team each, `z` has none.
const NAMESPACES: [(&str, Option<&str>); 3] =
    [("x", Some("blue")), ("y", Some("red")), ("z", None)];

/// A namespace of a small cluster: the name of one that [`cluster`] has, or the number of one that
/// a test passes to [`cluster_in`].
pub(crate) trait InCluster {
    fn id(self) -> NamespaceId;
}

impl InCluster for NamespaceId {
    fn id(self) -> NamespaceId {
        self
    }
}

impl InCluster for &str {
    fn id(self) -> NamespaceId {
        let index = NAMESPACES.iter().position(|it| it.0 == self).unwrap();
        NamespaceId(u32::try_from(index).unwrap())
    }
}

/// Makes a namespace with its object.
pub(crate) fn namespace(
    name: &'static str,
    labels: &[(&'static str, &'static str)],
) -> Namespace<'static> {
    let mut labels = labels.to_vec();
    // Every namespace has this label (D23).
    labels.push(("kubernetes.io/metadata.name", name));
    labels.sort_unstable();
    Namespace {
        name,
        labels: labels.into(),
        has_object: true,
    }
}

/// Makes a pod with its name as the label `app`, and an address of its own.
pub(crate) fn pod(namespace: impl InCluster, name: &'static str) -> Pod<'static> {
    let namespace = namespace.id();
    let last = name.bytes().map(u32::from).sum::<u32>() % 250 + 1;
    let address = format!("10.{}.0.{last}", namespace.0);
    Pod {
        namespace,
        name,
        template: None,
        labels: [("app", name)].into(),
        ports: [].into(),
        addresses: vec![address.parse().unwrap()],
        node: None,
        host_network: false,
        phase: PodPhase::Running,
        ready: true,
        created: None,
        origin: Origin(0),
    }
}

/// Makes the template of a Deployment.
pub(crate) fn template(namespace: impl InCluster, name: &'static str) -> Pod<'static> {
    Pod {
        template: Some("deploy"),
        addresses: Vec::new(),
        ..pod(namespace, name)
    }
}

/// Makes a port that a container declares.
pub(crate) fn declared(
    name: &'static str,
    number: u16,
    protocol: Protocol,
) -> ContainerPort<'static> {
    ContainerPort {
        name: Some(name),
        port: port(number),
        protocol,
    }
}

/// Makes a Service whose TCP port 80 leads to a port of one pod.
pub(crate) fn service(
    namespace: impl InCluster,
    name: &'static str,
    (pod, target): (PodId, u16),
) -> Service<'static> {
    let backend = Backend {
        target: BackendTarget::Pod(pod),
        port: port(target),
    };
    Service {
        namespace: namespace.id(),
        name,
        cluster_addresses: vec!["10.96.0.1".parse().unwrap()],
        external_addresses: Vec::new(),
        is_external_name: false,
        is_headless: false,
        external_traffic_local: false,
        ports: vec![ServicePort {
            name: None,
            port: port(80),
            node_port: None,
            protocol: Protocol::Tcp,
            backends: vec![backend],
        }],
    }
}

pub(crate) fn node(name: &'static str, address: &str) -> Node<'static> {
    Node {
        name,
        labels: [("name", name)].into(),
        addresses: vec![address.parse().unwrap()],
        pod_cidrs: Vec::new(),
        has_object: true,
    }
}

/// Makes a cluster with the namespaces `x`, `y` and `z`.
pub(crate) fn cluster(pods: Vec<Pod<'static>>, policies: Vec<PolicyDraft>) -> Cluster<'static> {
    let namespaces = NAMESPACES.map(|(name, team)| match team {
        Some(team) => namespace(name, &[("team", team)]),
        None => namespace(name, &[]),
    });
    cluster_in(namespaces.into(), pods, policies)
}

/// Makes a cluster with namespaces of its own, which must be in the order of their names.
pub(crate) fn cluster_in(
    namespaces: Vec<Namespace<'static>>,
    pods: Vec<Pod<'static>>,
    policies: Vec<PolicyDraft>,
) -> Cluster<'static> {
    assert!(namespaces.is_sorted_by_key(|it| it.name));
    let policies = policies.into_iter().map(PolicyDraft::build);
    let mut policies: Vec<Policy<'static>> = policies.collect();
    policies.sort_by_key(|it| (it.api, it.namespace, it.name));
    Cluster {
        namespaces,
        pods,
        policies,
        ..Cluster::default()
    }
}

/// Returns the pod with a name such as `x/a`.
pub(crate) fn pod_id(cluster: &Cluster<'_>, name: &str) -> PodId {
    let mut ids = (0..).map(PodId).take(cluster.pods.len());
    ids.find(|id| cluster.pod_name(*id) == name).unwrap()
}

/// Returns the policy with an identifier such as `netpol/x/a`.
pub(crate) fn policy_id(cluster: &Cluster<'_>, name: &str) -> PolicyId {
    let mut ids = (0..).map(PolicyId).take(cluster.policies.len());
    ids.find(|id| cluster.policy_name(*id) == name).unwrap()
}

/// Makes a TCP flow between two pods at their first addresses.
pub(crate) fn flow(
    cluster: &Cluster<'_>,
    program: &Program,
    [from, to]: [&str; 2],
    number: u16,
) -> Flow {
    let end = |name: &str| {
        let id = pod_id(cluster, name);
        let address = cluster.pods[id.0 as usize].addresses[0];
        FlowEnd {
            identity: Identity::Pod(id),
            address: program.address_atom(address),
        }
    };
    Flow {
        source: end(from),
        destination: end(to),
        traffic: Traffic::Port(Protocol::Tcp, port(number)),
        via_service: false,
        node_local: false,
    }
}

/// Formats a decider as `netpol/x/np#ingress[0]`, or `netpol/x/np (ingress)` for isolation.
pub(crate) fn decider(cluster: &Cluster<'_>, decider: Decider) -> String {
    match decider {
        Decider::Rule(place) => cluster.rule_name(place),
        Decider::Isolation(policy, direction) => {
            format!("{} ({direction})", cluster.policy_name(policy))
        }
    }
}

/// A policy under construction.
#[derive(Clone, Debug)]
pub(crate) struct PolicyDraft(Policy<'static>);

impl PolicyDraft {
    pub(crate) fn ingress(mut self, rule: Rule<'static>) -> PolicyDraft {
        self.0.ingress.isolates = isolates(self.0.rank);
        self.0.ingress.list.push(rule);
        self
    }

    pub(crate) fn egress(mut self, rule: Rule<'static>) -> PolicyDraft {
        self.0.egress.isolates = isolates(self.0.rank);
        self.0.egress.list.push(rule);
        self
    }

    pub(crate) fn ingress_isolates(mut self) -> PolicyDraft {
        self.0.ingress.isolates = true;
        self
    }

    pub(crate) fn egress_isolates(mut self) -> PolicyDraft {
        self.0.egress.isolates = true;
        self
    }

    pub(crate) fn subject(mut self, subject: PodSet<'static>) -> PolicyDraft {
        self.0.subject = Some(subject);
        self
    }

    /// Puts the policy into a namespace, all of whose pods it selects.
    pub(crate) fn in_namespace(mut self, namespace: impl InCluster) -> PolicyDraft {
        let namespace = namespace.id();
        self.0.namespace = Some(namespace);
        self.subject(PodSet {
            namespaces: NamespaceSet::Exact(namespace),
            pods: None,
        })
    }

    /// Selects pods by their labels, in the namespaces that the draft selects.
    pub(crate) fn pods(mut self, pods: Selector<&'static str>) -> PolicyDraft {
        if let Some(subject) = &mut self.0.subject {
            subject.pods = Some(pods);
        }
        self
    }

    /// Selects the pods of namespaces by the labels of these.
    pub(crate) fn namespaces(self, namespaces: Selector<&'static str>) -> PolicyDraft {
        self.subject(PodSet {
            namespaces: selected(namespaces),
            pods: None,
        })
    }

    pub(crate) fn build(self) -> Policy<'static> {
        self.0
    }
}

fn isolates(rank: PolicyRank) -> bool {
    matches!(rank, PolicyRank::NetworkPolicy | PolicyRank::DefaultGroup)
}

pub(crate) fn policy(api: PolicyApi, name: &'static str, rank: PolicyRank) -> PolicyDraft {
    PolicyDraft(Policy {
        api,
        api_version: "",
        namespace: None,
        name,
        rank,
        subject: Some(PodSet {
            namespaces: any_namespace(),
            pods: None,
        }),
        ingress: Rules::default(),
        egress: Rules::default(),
        audited: false,
        created: None,
        is_over_budget: false,
        origin: Origin(0),
    })
}

pub(crate) fn admin(name: &'static str, priority: i64) -> PolicyDraft {
    let rank = PolicyRank::Ordered(Tier::Admin, priority);
    policy(PolicyApi::Cluster, name, rank)
}

pub(crate) fn baseline(name: &'static str, priority: i64) -> PolicyDraft {
    let rank = PolicyRank::Ordered(Tier::Baseline, priority);
    policy(PolicyApi::Cluster, name, rank)
}

/// Makes a ClusterNetworkPolicy of 2021.
pub(crate) fn early(name: &'static str) -> PolicyDraft {
    policy(PolicyApi::EarlyCluster, name, PolicyRank::EarlyAdmin)
}

/// Makes a DefaultNetworkPolicy of 2021.
pub(crate) fn default_policy(name: &'static str) -> PolicyDraft {
    policy(PolicyApi::Default, name, PolicyRank::DefaultGroup)
}

/// Makes a NetworkPolicy that selects all pods of its namespace.
pub(crate) fn netpol(namespace: impl InCluster, name: &'static str) -> PolicyDraft {
    policy(PolicyApi::NetworkPolicy, name, PolicyRank::NetworkPolicy).in_namespace(namespace)
}

pub(crate) fn everything() -> Selector<&'static str> {
    Selector {
        requirements: Vec::new(),
    }
}

pub(crate) fn any_namespace() -> NamespaceSet<'static> {
    selected(everything())
}

pub(crate) fn selected(selector: Selector<&'static str>) -> NamespaceSet<'static> {
    NamespaceSet::Selected {
        selector,
        except: Vec::new(),
    }
}

pub(crate) fn is(key: &'static str, value: &'static str) -> Selector<&'static str> {
    Selector {
        requirements: vec![Requirement {
            key,
            operator: Operator::In,
            values: vec![value],
        }],
    }
}

pub(crate) fn has(key: &'static str) -> Selector<&'static str> {
    Selector {
        requirements: vec![Requirement {
            key,
            operator: Operator::Exists,
            values: Vec::new(),
        }],
    }
}

pub(crate) fn all() -> Vec<Peer<'static>> {
    vec![Peer::All]
}

/// Returns the pods of a namespace as a peer.
pub(crate) fn pods_of(namespace: impl InCluster) -> Vec<Peer<'static>> {
    vec![Peer::Pods(PodSet {
        namespaces: NamespaceSet::Exact(namespace.id()),
        pods: None,
    })]
}

/// Returns the pods with a label in all namespaces as a peer.
pub(crate) fn labelled(key: &'static str, value: &'static str) -> Vec<Peer<'static>> {
    vec![Peer::Pods(PodSet {
        namespaces: any_namespace(),
        pods: Some(is(key, value)),
    })]
}

pub(crate) fn block(text: &str) -> Vec<Peer<'static>> {
    vec![Peer::Block {
        cidr: CidrText::parse(text).unwrap().cidr,
        except: Vec::new(),
    }]
}

pub(crate) fn rule(
    action: Action,
    peers: Vec<Peer<'static>>,
    ports: Option<Vec<PortMatch<'static>>>,
) -> Rule<'static> {
    Rule {
        name: None,
        written_action: None,
        effect: Some(Effect {
            action,
            peers: Some(peers),
            ports,
        }),
        failed_closed: false,
    }
}

pub(crate) fn allow(peers: Vec<Peer<'static>>) -> Rule<'static> {
    rule(Action::Accept, peers, None)
}

pub(crate) fn deny(peers: Vec<Peer<'static>>) -> Rule<'static> {
    rule(Action::Deny, peers, None)
}

pub(crate) fn pass(peers: Vec<Peer<'static>>) -> Rule<'static> {
    rule(Action::Pass, peers, None)
}

pub(crate) fn port(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).unwrap()
}

pub(crate) fn ports(protocol: Protocol, first: u16, last: u16) -> PortMatch<'static> {
    let range = PortRange::new(port(first), port(last)).unwrap();
    PortMatch::Numbers(protocol, range)
}

pub(crate) fn tcp(number: u16) -> PortMatch<'static> {
    ports(Protocol::Tcp, number, number)
}

pub(crate) fn named(name: &'static str) -> PortMatch<'static> {
    PortMatch::Named(None, name)
}
