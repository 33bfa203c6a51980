//! NetworkPolicy of `networking.k8s.io/v1`.

use palisade_core::policy::Direction;

use crate::blocks::{IpBlock, ip_block};
use crate::decode::{Decode, Readable, Unreadable};
use crate::fields::Fields;
use crate::path::At;
use crate::ports::{PortMatch, network_policy_port};
use crate::problem::{Code, Span};
use crate::selector::{Selector, selector};

/// A NetworkPolicy. Unreadable parts match nothing; it still isolates (D21).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkPolicy<'a> {
    /// The pods that it isolates; unreadable: none (D110).
    pub pod_selector: Readable<Selector<'a>>,
    /// The directions as written. An unreadable entry isolates both (D102).
    pub policy_types: Vec<Readable<Direction>>,
    /// The rules for traffic to the pods.
    pub ingress: Vec<NetworkPolicyRule<'a>>,
    /// The rules for traffic from the pods.
    pub egress: Vec<NetworkPolicyRule<'a>>,
}

impl Default for NetworkPolicy<'_> {
    /// A policy that selects all pods of its namespace and has no rules.
    fn default() -> Self {
        NetworkPolicy {
            pod_selector: Ok(Selector {
                requirements: Vec::new(),
            }),
            policy_types: Vec::new(),
            ingress: Vec::new(),
            egress: Vec::new(),
        }
    }
}

impl NetworkPolicy<'_> {
    /// Whether the policy isolates its pods in a direction. Without `policyTypes` it applies to
    /// ingress, and to egress if it has egress rules.
    pub fn isolates(&self, direction: Direction) -> bool {
        if self.policy_types.is_empty() {
            return direction == Direction::Ingress || !self.egress.is_empty();
        }
        self.policy_types
            .iter()
            .any(|it| it.is_err() || *it == Ok(direction))
    }
}

impl NetworkPolicy<'_> {
    /// Whether the rules for a direction are evaluated: not those of an unlisted direction, even if
    /// an unreadable entry isolates in it (D31, D105).
    pub fn has_rules(&self, direction: Direction) -> bool {
        if self.policy_types.is_empty() {
            return self.isolates(direction);
        }
        self.policy_types.contains(&Ok(direction))
    }
}

/// A rule of a NetworkPolicy: it allows what matches a peer and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkPolicyRule<'a> {
    /// The peers; empty: every peer. An unreadable list makes the rule match nothing.
    pub peers: Readable<Vec<Readable<NetworkPolicyPeer<'a>>>>,
    /// The ports; empty: every port of every protocol.
    pub ports: Readable<Vec<Readable<PortMatch<'a>>>>,
    /// Whether every key of the rule was known.
    pub sound: bool,
    /// Where the rule is.
    pub span: Span,
}

/// A peer of a NetworkPolicy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkPolicyPeer<'a> {
    /// Pods: of the policy's own namespace if there is no namespace selector.
    Pods {
        /// The namespaces.
        namespaces: Option<Selector<'a>>,
        /// Which of their pods; without one, all.
        pods: Option<Selector<'a>>,
    },
    /// Addresses.
    IpBlock(IpBlock),
}

const SPEC: Fields = Fields::strict(&["podSelector", "policyTypes", "ingress", "egress"]).hints(&[
    ("subject", "select the pods with `podSelector`"),
    (
        "priority",
        "NetworkPolicies have no order; ClusterNetworkPolicy has priorities",
    ),
    (
        "tier",
        "NetworkPolicies have no tier; ClusterNetworkPolicy has tiers",
    ),
    (
        "namespaceSelector",
        "a NetworkPolicy applies to its own namespace; remove it, and set `metadata.namespace`",
    ),
    ("selector", "did you mean `podSelector`?"),
]);

const DIRECTIONS: [(&str, Direction); 2] = [
    ("Ingress", Direction::Ingress),
    ("Egress", Direction::Egress),
];

/// Reads `spec`.
pub(crate) fn spec<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Readable<NetworkPolicy<'a>> {
    let mut policy = NetworkPolicy::default();
    let mut keys = Vec::new();
    d.object(at, SPEC, |d, name, at| match name {
        "podSelector" => policy.pod_selector = d.independent(|d| selector(d, at)),
        "policyTypes" => {
            d.hint_type("write a list: `[Ingress, Egress]`");
            policy.policy_types = d
                .list(at, 0..=2, |d, at| {
                    d.word(at, &DIRECTIONS, &[]).map(|(it, _)| it)
                })
                .unwrap_or_else(|Unreadable| vec![Err(Unreadable)]);
        }
        "ingress" => {
            keys.push((Direction::Ingress, d.anchor()));
            policy.ingress = rules(d, at, Direction::Ingress);
        }
        _ => {
            keys.push((Direction::Egress, d.anchor()));
            policy.egress = rules(d, at, Direction::Egress);
        }
    })?;
    for (direction, key) in keys {
        report_ignored(d, at, &policy, direction, key);
    }
    Ok(policy)
}

/// Reports rules that are ignored because of `policyTypes` (D31), if all of that could be read.
fn report_ignored(
    d: &mut Decode<'_, '_>,
    at: &At<'_>,
    policy: &NetworkPolicy<'_>,
    direction: Direction,
    key: Span,
) {
    let (rules, word) = match direction {
        Direction::Ingress => (&policy.ingress, "Ingress"),
        Direction::Egress => (&policy.egress, "Egress"),
    };
    let is_readable = policy.policy_types.iter().all(Result::is_ok);
    if is_readable && !rules.is_empty() && !policy.has_rules(direction) {
        d.report(
            Code::IgnoredRules,
            &at.field(direction.key()),
            key,
            format!("the rules are ignored: `policyTypes` does not include `{word}`"),
            format!("add `{word}` to `policyTypes`, which isolates the pods in this direction, or remove the rules"),
        );
    }
}

fn rules<'a>(
    d: &mut Decode<'a, '_>,
    at: &At<'_>,
    direction: Direction,
) -> Vec<NetworkPolicyRule<'a>> {
    d.list(at, 0..=usize::MAX, |d, at| {
        d.independent(|d| rule(d, at, direction))
    })
    .unwrap_or_default()
}

const INGRESS_RULE: Fields = Fields::strict(&["from", "ports"]).hints(&[
    ("to", "in `ingress` rules, write the peers in `from`"),
    ("action", "a NetworkPolicy only allows; remove the action"),
    (
        "protocols",
        "in a NetworkPolicy, write protocols in `ports`",
    ),
    ("podSelector", "put it in a list under `from`"),
    ("namespaceSelector", "put it in a list under `from`"),
    ("ipBlock", "put it in a list under `from`"),
]);

const EGRESS_RULE: Fields = Fields::strict(&["to", "ports"]).hints(&[
    ("from", "in `egress` rules, write the peers in `to`"),
    ("action", "a NetworkPolicy only allows; remove the action"),
    (
        "protocols",
        "in a NetworkPolicy, write protocols in `ports`",
    ),
    ("podSelector", "put it in a list under `to`"),
    ("namespaceSelector", "put it in a list under `to`"),
    ("ipBlock", "put it in a list under `to`"),
]);

fn rule<'a>(d: &mut Decode<'a, '_>, at: &At<'_>, direction: Direction) -> NetworkPolicyRule<'a> {
    let fields = match direction {
        Direction::Ingress => INGRESS_RULE,
        Direction::Egress => EGRESS_RULE,
    };
    let mut rule = NetworkPolicyRule {
        peers: Ok(Vec::new()),
        ports: Ok(Vec::new()),
        sound: true,
        span: d.span(),
    };
    d.hint_type("a rule is a mapping with its peers and `ports`");
    let found_fields = d.object(at, fields, |d, name, at| match name {
        "ports" => {
            d.hint_type("a list: `- port: 80`");
            rule.ports = d.list(at, 0..=usize::MAX, network_policy_port);
        }
        _ => rule.peers = d.list(at, 0..=usize::MAX, peer),
    });
    match found_fields {
        Ok(found_fields) => rule.sound = found_fields.sound,
        Err(Unreadable) => rule.peers = Err(Unreadable),
    }
    rule
}

const PEER: Fields = Fields::strict(&["podSelector", "namespaceSelector", "ipBlock"]).hints(&[
    (
        "pods",
        "in a NetworkPolicy, write `podSelector`, with `namespaceSelector` beside it if needed",
    ),
    (
        "namespaces",
        "in a NetworkPolicy the field is `namespaceSelector`",
    ),
    (
        "networks",
        "in a NetworkPolicy, write one block in an entry: `ipBlock: {cidr: ...}`",
    ),
    ("cidr", "put it under `ipBlock`"),
    (
        "matchLabels",
        "put it under `podSelector` or `namespaceSelector`, one level deeper",
    ),
    (
        "ports",
        "write `ports` beside `from` or `to`, not inside a peer",
    ),
]);

fn peer<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Readable<NetworkPolicyPeer<'a>> {
    let mut pods = None;
    let mut namespaces = None;
    let mut block = None;
    let found_fields = d.object(at, PEER, |d, name, at| match name {
        "podSelector" => pods = Some(selector(d, at)),
        "namespaceSelector" => namespaces = Some(selector(d, at)),
        _ => block = Some(ip_block(d, at)),
    })?;
    if !found_fields.sound {
        return Err(Unreadable);
    }
    match (block, pods, namespaces) {
        (Some(block), None, None) => block.map(NetworkPolicyPeer::IpBlock),
        (None, None, None) => {
            d.report(
                Code::OneOf,
                at,
                found_fields.anchor,
                "the peer is empty",
                "set `podSelector`, `namespaceSelector` or `ipBlock`; for every pod of every namespace write `namespaceSelector: {}`",
            );
            Err(Unreadable)
        }
        (Some(_), _, _) => {
            d.report(
                Code::OneOf,
                at,
                found_fields.anchor,
                "`ipBlock` and a selector cannot be set in one peer",
                "write two peers, each with its own `- `",
            );
            Err(Unreadable)
        }
        (None, pods, namespaces) => Ok(NetworkPolicyPeer::Pods {
            namespaces: namespaces.transpose()?,
            pods: pods.transpose()?,
        }),
    }
}
