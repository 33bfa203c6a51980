//! ClusterNetworkPolicy of `policy.networking.k8s.io/v1alpha2`, in all its release channels.

use palisade_core::net::{PortRange, Protocol};
use palisade_core::policy::{Action, Direction, Tier};

use crate::cluster_policy::{
    Channels, ClusterPeer, ClusterPolicy, ClusterRule, NamespaceSelector, NamespaceSet, ONE_PEER,
    RuleNotes, domain_names, missing_subject, namespaced_pods, networks, priority, subject,
};
use crate::decode::{Decode, Readable, Unreadable};
use crate::fields::{Fields, OneOfHelp};
use crate::path::At;
use crate::ports::{PortMatch, SinglePort, free_port_name, port_number, port_range};
use crate::problem::Code;
use crate::selector::selector;

const SPEC: Fields =
    Fields::strict(&["tier", "priority", "subject", "ingress", "egress"]).hints(&[
        ("podSelector", "select the pods with `subject`"),
        (
            "policyTypes",
            "a ClusterNetworkPolicy does not isolate; remove `policyTypes`",
        ),
        ("appliedTo", "in v1alpha2, select the pods with `subject`"),
    ]);

const TIERS: [(&str, Tier); 2] = [("Admin", Tier::Admin), ("Baseline", Tier::Baseline)];

/// Reads `spec`.
pub(crate) fn spec<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Readable<ClusterPolicy<'a>> {
    let mut policy = ClusterPolicy {
        tier: Err(Unreadable),
        priority: Some(Err(Unreadable)),
        subject: Err(Unreadable),
        ingress: Vec::new(),
        egress: Vec::new(),
        early_shape: false,
    };
    let mut channels = Channels::default();
    let found_fields = d.object(at, SPEC, |d, name, at| match name {
        "tier" => {
            policy.tier = d
                .independent(|d| d.word(at, &TIERS, &[]))
                .map(|(tier, _)| tier)
        }
        "priority" => policy.priority = Some(d.independent(|d| priority(d, at))),
        "subject" => {
            policy.subject = d.independent(|d| subject(d, at, NamespaceSelector::Optional))
        }
        "ingress" => policy.ingress = rules(d, at, Direction::Ingress, &mut channels),
        _ => policy.egress = rules(d, at, Direction::Egress, &mut channels),
    })?;
    d.require(
        at,
        &found_fields,
        "tier",
        "write `tier: Admin` or `tier: Baseline`",
    );
    d.require(
        at,
        &found_fields,
        "priority",
        "write a number from 0 (first) to 1000 (last)",
    );
    if !found_fields.has("subject") {
        missing_subject(d, at, found_fields.anchor);
    }
    Ok(policy)
}

fn rules<'a>(
    d: &mut Decode<'a, '_>,
    at: &At<'_>,
    direction: Direction,
    channels: &mut Channels,
) -> Vec<ClusterRule<'a>> {
    d.list(at, 0..=25, |d, at| {
        d.independent(|d| rule(d, at, direction, channels))
    })
    .unwrap_or_default()
}

const RULE_HINTS: &[(&str, &str)] = &[
    ("from", "in `egress` rules, write the peers in `to`"),
    (
        "to",
        "in `ingress` rules, write the peers in `from`; a rule with destinations belongs under `egress`",
    ),
    (
        "ports",
        "in v1alpha2, write ports in `protocols`, like `- tcp: {destinationPort: {number: 80}}`",
    ),
];
const INGRESS_RULE: Fields =
    Fields::strict(&["name", "action", "from", "protocols"]).hints(RULE_HINTS);
const EGRESS_RULE: Fields =
    Fields::strict(&["name", "action", "to", "protocols"]).hints(RULE_HINTS);

const ACTIONS: [(&str, Action); 3] = [
    ("Accept", Action::Accept),
    ("Deny", Action::Deny),
    ("Pass", Action::Pass),
];
const ACTION_HINTS: [(&str, &str); 1] = [("Allow", "in v1alpha2 the action is `Accept`")];

fn rule<'a>(
    d: &mut Decode<'a, '_>,
    at: &At<'_>,
    direction: Direction,
    channels: &mut Channels,
) -> ClusterRule<'a> {
    let (fields, peers_key) = match direction {
        Direction::Ingress => (INGRESS_RULE, "from"),
        Direction::Egress => (EGRESS_RULE, "to"),
    };
    let mut rule = ClusterRule::unread(d.span());
    let mut notes = RuleNotes::default();
    let mut readable = true;
    let found_fields = d.object(at, fields, |d, name, at| match name {
        "name" => readable &= rule.read_name(d, at),
        "action" => readable &= rule.read_action(d, at, &ACTIONS, &ACTION_HINTS),
        "protocols" => {
            rule.ports = Some(d.list(at, 1..=25, |d, at| {
                let span = d.span();
                let port = protocol_element(d, at);
                notes.port(span, &port);
                port
            }));
        }
        _ => {
            rule.peers = d.list(at, 1..=25, |d, at| {
                let span = d.span();
                let peer = peer(d, at, direction, channels);
                notes.peer(span, at, &peer);
                peer
            });
        }
    });
    let Ok(found_fields) = found_fields else {
        return rule;
    };
    rule.sound = found_fields.sound && readable;
    d.require(
        at,
        &found_fields,
        "action",
        "write `Accept`, `Deny` or `Pass`",
    );
    d.require(
        at,
        &found_fields,
        peers_key,
        "add at least one peer; for all pods of the cluster write `- namespaces: {}`",
    );
    if let Some((span, message)) = notes.named_port_by_address("destinationNamedPort") {
        channels.report_once(
            d,
            &at.field("protocols"),
            span,
            "destinationNamedPort",
            &message,
        );
    }
    notes.check_domains(d, &mut rule, "Accept");
    rule
}

const PEER_HINTS: &[(&str, &str)] = &[
    ("matchLabels", "indent it under `namespaces`"),
    ("matchExpressions", "indent it under `namespaces`"),
    (
        "namespaceSelector",
        "write `namespaces`, or `pods: {namespaceSelector: ..., podSelector: ...}`",
    ),
    ("podSelector", "write `pods: {podSelector: ...}`"),
    (
        "ipBlock",
        "write `networks`, a list of address blocks; it exists only under `egress`",
    ),
    (
        "networks",
        "an `ingress` rule cannot match by address; use `namespaces`, `pods` or `all`",
    ),
    (
        "nodes",
        "an `ingress` rule cannot match by node; use `namespaces`, `pods` or `all`",
    ),
    ("domainNames", "only `egress` rules can have domain names"),
    (
        "protocols",
        "write `protocols` beside `from` or `to`, not inside a peer",
    ),
];
const PRUNED_INGRESS_PEER: Fields = Fields::strict(&["namespaces", "pods"]);
const PRUNED_EGRESS_PEER: Fields =
    Fields::strict(&["namespaces", "pods", "networks", "nodes", "domainNames"]);
const INGRESS_PEER: Fields = Fields::strict(&["namespaces", "pods", "all"]).hints(PEER_HINTS);
const EGRESS_PEER: Fields = Fields::strict(&[
    "namespaces",
    "pods",
    "networks",
    "nodes",
    "domainNames",
    "all",
])
.hints(PEER_HINTS);

fn peer<'a>(
    d: &mut Decode<'a, '_>,
    at: &At<'_>,
    direction: Direction,
    channels: &mut Channels,
) -> Readable<ClusterPeer<'a>> {
    // No upstream CRD has `all`: an API server with those CRDs drops it (D57, D128).
    let (fields, names): (_, &[&str]) = match (direction, d.as_pruned()) {
        (Direction::Ingress, true) => (PRUNED_INGRESS_PEER, &["namespaces", "pods"]),
        (Direction::Ingress, false) => (INGRESS_PEER, &["namespaces", "pods", "all"]),
        (Direction::Egress, true) => (
            PRUNED_EGRESS_PEER,
            &["namespaces", "pods", "networks", "nodes", "domainNames"],
        ),
        (Direction::Egress, false) => (
            EGRESS_PEER,
            &[
                "namespaces",
                "pods",
                "networks",
                "nodes",
                "domainNames",
                "all",
            ],
        ),
    };
    let mut peer = Err(Unreadable);
    let found_fields = d.object(at, fields, |d, name, at| {
        let anchor = d.anchor();
        peer = match name {
            "namespaces" => {
                selector(d, at).map(|it| ClusterPeer::Namespaces(NamespaceSet::Selector(it)))
            }
            "pods" => namespaced_pods(d, at, NamespaceSelector::Optional).map(
                |(namespaces, pods)| ClusterPeer::Pods(NamespaceSet::Selector(namespaces), pods),
            ),
            "networks" => networks(d, at).map(ClusterPeer::Networks),
            "nodes" => {
                channels.report_once(d, at, anchor, "nodes", "the standard channel has no `nodes`: its CRD would reject this peer");
                selector(d, at).map(ClusterPeer::Nodes)
            }
            "domainNames" => {
                channels.report_once(d, at, anchor, "domainNames", "the standard channel has no `domainNames`: its CRD would reject this peer");
                domain_names(d, at).map(ClusterPeer::DomainNames)
            }
            _ => {
                channels.report_once(d, at, anchor, "all", "only the palisade channel has `all`: the CRDs of the other channels would reject this peer");
                all(d, at)
            }
        };
    })?;
    d.one_of(at, &found_fields, names, Code::OneOf, ONE_PEER)?;
    if found_fields.sound {
        peer
    } else {
        Err(Unreadable)
    }
}

/// Reads `all: {}`, which must be empty (D57).
fn all<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Readable<ClusterPeer<'a>> {
    d.hint_type("write `all: {}`");
    let found_fields = d.object(at, Fields::strict(&[]), |d, _, _| d.skip())?;
    if found_fields.sound {
        Ok(ClusterPeer::All)
    } else {
        Err(Unreadable)
    }
}

const PROTOCOL: Fields = Fields::strict(&["tcp", "udp", "sctp", "destinationNamedPort"]).hints(&[
    ("destinationPort", "indent it under `tcp`, `udp` or `sctp`"),
    (
        "protocol",
        "write the protocol as the key: `- tcp: {destinationPort: {number: 80}}`",
    ),
    ("port", "write `- tcp: {destinationPort: {number: 80}}`"),
    (
        "portNumber",
        "in v1alpha2 write `- tcp: {destinationPort: {number: 80}}`",
    ),
    (
        "portRange",
        "in v1alpha2 write `- tcp: {destinationPort: {range: {start: 1, end: 2}}}`",
    ),
    (
        "namedPort",
        "in v1alpha2 the field is `destinationNamedPort`",
    ),
    ("TCP", "protocols are lower case here: `tcp`"),
    ("UDP", "protocols are lower case here: `udp`"),
    ("SCTP", "protocols are lower case here: `sctp`"),
]);

/// Reads an element of `protocols`.
fn protocol_element<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Readable<PortMatch<'a>> {
    let mut element = Err(Unreadable);
    let found_fields = d.object(at, PROTOCOL, |d, name, at| {
        element = match name {
            "tcp" => protocol_ports(d, at, Protocol::Tcp),
            "udp" => protocol_ports(d, at, Protocol::Udp),
            "sctp" => protocol_ports(d, at, Protocol::Sctp),
            _ => free_port_name(d, at).map(PortMatch::Named),
        };
    })?;
    d.one_of(
        at,
        &found_fields,
        &["tcp", "udp", "sctp", "destinationNamedPort"],
        Code::OneOf,
        OneOfHelp {
            none: "write `tcp`, `udp` or `sctp` with a `destinationPort`",
            several: "write one protocol per entry, each with its own `- `",
        },
    )?;
    if found_fields.sound {
        element
    } else {
        Err(Unreadable)
    }
}

const PORTS: Fields = Fields::strict(&["destinationPort"]).hints(&[
    ("port", "write `destinationPort: {number: ...}`"),
    ("number", "indent it under `destinationPort`"),
    ("range", "indent it under `destinationPort`"),
]);

fn protocol_ports<'a>(
    d: &mut Decode<'a, '_>,
    at: &At<'_>,
    protocol: Protocol,
) -> Readable<PortMatch<'a>> {
    let mut range = Err(Unreadable);
    let found_fields = d.object(at, PORTS, |d, _, at| range = destination_port(d, at))?;
    if !found_fields.has("destinationPort") && found_fields.sound {
        // The schema rejects it; as written it matches every port of the protocol (D50).
        d.require(
            at,
            &found_fields,
            "destinationPort",
            "for every port write `destinationPort: {range: {start: 1, end: 65535}}`",
        );
        return Ok(PortMatch::Numbers(protocol, PortRange::ALL));
    }
    if found_fields.sound {
        range.map(|range| PortMatch::Numbers(protocol, range))
    } else {
        Err(Unreadable)
    }
}

const DESTINATION_PORT: Fields = Fields::strict(&["number", "range"]).hints(&[
    ("start", "indent it under `range`"),
    ("end", "indent it under `range`"),
    ("port", "the field is `number`"),
]);

fn destination_port(d: &mut Decode<'_, '_>, at: &At<'_>) -> Readable<PortRange> {
    d.hint_type("write `destinationPort: {number: 80}`");
    let mut ports = Err(Unreadable);
    let found_fields = d.object(at, DESTINATION_PORT, |d, name, at| {
        ports = match name {
            "number" => port_number(d, at).map(|(port, _)| PortRange::single(port)),
            _ => range(d, at, SinglePort::Invalid),
        };
    })?;
    let help = OneOfHelp {
        none: "write `number: 80`, or `range: {start: 1, end: 2}`",
        several: "write two entries, one with `number` and one with `range`",
    };
    d.one_of(at, &found_fields, &["number", "range"], Code::OneOf, help)?;
    if found_fields.sound {
        ports
    } else {
        Err(Unreadable)
    }
}

const RANGE: Fields = Fields::strict(&["start", "end"]);

fn range(d: &mut Decode<'_, '_>, at: &At<'_>, single: SinglePort) -> Readable<PortRange> {
    let mut start = Err(Unreadable);
    let mut end = Err(Unreadable);
    let found_fields = d.object(at, RANGE, |d, name, at| match name {
        "start" => start = port_number(d, at),
        _ => end = port_number(d, at),
    })?;
    d.require(at, &found_fields, "start", "");
    d.require(at, &found_fields, "end", "");
    let range = port_range(d, at, start?, end?, single)?;
    if found_fields.sound {
        Ok(range)
    } else {
        Err(Unreadable)
    }
}
