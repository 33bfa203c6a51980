//! Short constructors of clusters for tests.

use std::num::NonZeroU16;

use crate::labels::{Operator, Requirement, Selector};
use crate::model::{
    Cluster, Effect, Namespace, NamespaceId, NamespaceSet, Node, Origin, Peer, Pod, PodPhase,
    PodSet, Policy, PolicyRank, PortMatch, Rule, Rules,
};
use crate::net::{CidrText, PortRange, Protocol};
use crate::policy::{Action, PolicyApi, Tier};

/// The namespaces of every test: `x` and `y` have a team each, `z` has none.
pub(crate) const NAMESPACES: [(&str, Option<&str>); 3] =
    [("x", Some("blue")), ("y", Some("red")), ("z", None)];

fn namespace(name: &str) -> NamespaceId {
    let index = NAMESPACES.iter().position(|it| it.0 == name).unwrap();
    NamespaceId(u32::try_from(index).unwrap())
}

/// Makes a pod with its name as the label `app`, and an address of its own.
pub(crate) fn pod(namespace_name: &'static str, name: &'static str) -> Pod<'static> {
    let namespace = namespace(namespace_name);
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
pub(crate) fn template(namespace: &'static str, name: &'static str) -> Pod<'static> {
    Pod {
        template: Some("deploy"),
        addresses: Vec::new(),
        ..pod(namespace, name)
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

pub(crate) fn cluster(pods: Vec<Pod<'static>>, policies: Vec<Draft>) -> Cluster<'static> {
    let namespaces = NAMESPACES.map(|(name, team)| {
        let mut labels = vec![("kubernetes.io/metadata.name", name)];
        labels.extend(team.map(|team| ("team", team)));
        Namespace {
            name,
            labels: labels.into(),
            has_object: true,
        }
    });
    let mut policies: Vec<Policy<'static>> = policies.into_iter().map(Draft::build).collect();
    policies.sort_by_key(|it| (it.api, it.namespace, it.name));
    Cluster {
        namespaces: namespaces.to_vec(),
        pods,
        policies,
        ..Cluster::default()
    }
}

/// A policy under construction.
#[derive(Clone, Debug)]
pub(crate) struct Draft(Policy<'static>);

impl Draft {
    pub(crate) fn ingress(mut self, rule: Rule<'static>) -> Draft {
        self.0.ingress.isolates = isolates(self.0.rank);
        self.0.ingress.list.push(rule);
        self
    }

    pub(crate) fn egress(mut self, rule: Rule<'static>) -> Draft {
        self.0.egress.isolates = isolates(self.0.rank);
        self.0.egress.list.push(rule);
        self
    }

    pub(crate) fn ingress_isolates(mut self) -> Draft {
        self.0.ingress.isolates = true;
        self
    }

    pub(crate) fn egress_isolates(mut self) -> Draft {
        self.0.egress.isolates = true;
        self
    }

    pub(crate) fn subject(mut self, subject: PodSet<'static>) -> Draft {
        self.0.subject = Some(subject);
        self
    }

    pub(crate) fn build(self) -> Policy<'static> {
        self.0
    }
}

fn isolates(rank: PolicyRank) -> bool {
    matches!(rank, PolicyRank::NetworkPolicy | PolicyRank::DefaultGroup)
}

pub(crate) fn policy(generation: PolicyApi, name: &'static str, rank: PolicyRank) -> Draft {
    Draft(Policy {
        api: generation,
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

pub(crate) fn admin(name: &'static str, priority: i64) -> Draft {
    let rank = PolicyRank::Ordered(Tier::Admin, priority);
    policy(PolicyApi::Cluster, name, rank)
}

pub(crate) fn baseline(name: &'static str, priority: i64) -> Draft {
    let rank = PolicyRank::Ordered(Tier::Baseline, priority);
    policy(PolicyApi::Cluster, name, rank)
}

/// Makes a NetworkPolicy that selects all pods of its namespace.
pub(crate) fn netpol(namespace_name: &str, name: &'static str) -> Draft {
    let mut draft = policy(PolicyApi::NetworkPolicy, name, PolicyRank::NetworkPolicy);
    let namespace = namespace(namespace_name);
    draft.0.namespace = Some(namespace);
    draft.subject(PodSet {
        namespaces: NamespaceSet::Exact(namespace),
        pods: None,
    })
}

pub(crate) fn everything() -> Selector<&'static str> {
    Selector {
        requirements: Vec::new(),
    }
}

pub(crate) fn any_namespace() -> NamespaceSet<'static> {
    NamespaceSet::Selected {
        selector: everything(),
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

pub(crate) fn all() -> Vec<Peer<'static>> {
    vec![Peer::All]
}

/// Returns the pods of a namespace as a peer.
pub(crate) fn pods_of(namespace_name: &str) -> Vec<Peer<'static>> {
    vec![Peer::Pods(PodSet {
        namespaces: NamespaceSet::Exact(namespace(namespace_name)),
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

pub(crate) fn tcp(port: u16) -> PortMatch<'static> {
    let port = NonZeroU16::new(port).unwrap();
    PortMatch::Numbers(Protocol::Tcp, PortRange::single(port))
}

pub(crate) fn named(name: &'static str) -> PortMatch<'static> {
    PortMatch::Named(None, name)
}
