//! AdminNetworkPolicy and BaselineAdminNetworkPolicy of `policy.networking.k8s.io/v1alpha1`.
//!
//! Three shapes share this apiVersion: K, the proposal; N, releases v0.1.0 to v0.1.2; and F,
//! v0.1.3 to v0.1.8. They differ in how a peer names namespaces, so an object's shape is known
//! from its peers (D37), and one object must keep to one shape.

use std::borrow::Cow;

use palisade_core::net::{PortRange, Protocol};
use palisade_core::policy::{Action, Direction, Tier};

use crate::cluster_policy::{
    ClusterPeer, ClusterPolicy, ClusterRule, NamespaceSelector, NamespaceSet, RuleNotes,
    domain_names, missing_subject, namespaced_pods, networks, priority, rule_name, subject,
};
use crate::decode::{Decode, Fielded, Fields, Readable, Unreadable};
use crate::metadata::check_label_key;
use crate::path::At;
use crate::ports::{
    PortMatch, SinglePort, free_port_name, port_number, port_range, protocol_or_empty,
};
use crate::problem::{Code, Span};
use crate::selector::{Selector, SelectorParts, selector};

/// Which of the two kinds is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdminKind {
    Admin,
    Baseline,
}

/// What an object has shown of its shape so far.
#[derive(Debug, Default)]
struct Dialect {
    /// Where the shape of the proposal and of the first releases was seen.
    early: Option<Span>,
    /// Where the shape of the later releases was seen.
    late: Option<Span>,
    /// Rules with peers that only the later releases have: direction, index and place.
    late_peers: Vec<(Direction, usize, Span)>,
    /// In a baseline policy: the 101st peer of a rule.
    peers_over_limit: Vec<(Direction, usize, Span)>,
}

const SPEC: Fields = Fields::strict(&["priority", "subject", "ingress", "egress"]).hints(&[
    (
        "tier",
        "AdminNetworkPolicy is the Admin tier by itself; `tier` belongs to ClusterNetworkPolicy",
    ),
    ("podSelector", "the pods are selected by `subject`"),
    (
        "policyTypes",
        "an AdminNetworkPolicy isolates nothing by itself; remove it",
    ),
]);
const BASELINE_SPEC: Fields = Fields::strict(&["subject", "ingress", "egress"]).hints(&[
    (
        "priority",
        "there is only one BaselineAdminNetworkPolicy, so it has no priority",
    ),
    (
        "tier",
        "BaselineAdminNetworkPolicy is the Baseline tier by itself",
    ),
    ("podSelector", "the pods are selected by `subject`"),
]);

/// Reads `spec`.
pub(crate) fn spec<'a>(
    d: &mut Decode<'a, '_>,
    at: &At<'_>,
    kind: AdminKind,
) -> Readable<ClusterPolicy<'a>> {
    let fields = match kind {
        AdminKind::Admin => SPEC,
        AdminKind::Baseline => BASELINE_SPEC,
    };
    let mut policy = ClusterPolicy {
        tier: Ok(if kind == AdminKind::Admin {
            Tier::Admin
        } else {
            Tier::Baseline
        }),
        priority: (kind == AdminKind::Admin).then_some(Err(Unreadable)),
        subject: Err(Unreadable),
        ingress: Vec::new(),
        egress: Vec::new(),
    };
    let mut dialect = Dialect::default();
    let fielded = d.object(at, fields, |d, name, at| match name {
        "priority" => policy.priority = Some(priority(d, at)),
        "subject" => policy.subject = subject(d, at, NamespaceSelector::Required),
        "ingress" => policy.ingress = rules(d, at, kind, Direction::Ingress, &mut dialect),
        _ => policy.egress = rules(d, at, kind, Direction::Egress, &mut dialect),
    })?;
    if kind == AdminKind::Admin {
        d.require(
            at,
            &fielded,
            "priority",
            "write a number from 0 (first) to 1000 (last)",
        );
    }
    if !fielded.has("subject") {
        missing_subject(d, at, fielded.anchor);
    }
    one_dialect(d, at, &dialect, &mut policy);
    Ok(policy)
}

/// An object that mixes shapes has no meaning in any release (D37, D120).
fn one_dialect(
    d: &mut Decode<'_, '_>,
    at: &At<'_>,
    dialect: &Dialect,
    policy: &mut ClusterPolicy<'_>,
) {
    let Some(early) = dialect.early else {
        for (direction, index, span) in &dialect.peers_over_limit {
            let list = at.field(direction.key());
            let rule = list.index(*index);
            let peers = rule.field(peers_key(*direction));
            d.report(
                Code::TooMany,
                &peers,
                *span,
                "the list has more than 100 entries",
                "split the rule",
            );
        }
        return;
    };
    if let Some(late) = dialect.late {
        let span = if late.start > early.start {
            late
        } else {
            early
        };
        d.report(
            Code::DialectMixed,
            at,
            span,
            "this peer has the shape of another release than the peers before it",
            "write all peers alike: `namespaces: {matchLabels: ...}` and `pods: {namespaceSelector: ..., podSelector: ...}` since v0.1.3",
        );
        for rule in policy.ingress.iter_mut().chain(&mut policy.egress) {
            rule.sound = false;
        }
    }
    for (direction, index, span) in &dialect.late_peers {
        let list = at.field(direction.key());
        d.report(
            Code::DialectMixed,
            &list.index(*index),
            *span,
            "this peer exists only since v0.1.3, and other peers of the object have the shape before it",
            "write the other peers in the newer shape: `namespaces: {matchLabels: ...}`",
        );
        let rules = match direction {
            Direction::Ingress => &mut policy.ingress,
            Direction::Egress => &mut policy.egress,
        };
        if let Some(rule) = rules.get_mut(*index) {
            rule.sound = false;
        }
    }
}

fn peers_key(direction: Direction) -> &'static str {
    match direction {
        Direction::Ingress => "from",
        Direction::Egress => "to",
    }
}

fn rules<'a>(
    d: &mut Decode<'a, '_>,
    at: &At<'_>,
    kind: AdminKind,
    direction: Direction,
    dialect: &mut Dialect,
) -> Vec<ClusterRule<'a>> {
    let mut index = 0;
    d.list(at, 0..=100, |d, at| {
        index += 1;
        rule(d, at, kind, (direction, index - 1), dialect)
    })
    .unwrap_or_default()
}

const RULE_HINTS: &[(&str, &str)] = &[
    ("from", "rules under `egress` name their peers in `to`"),
    (
        "to",
        "rules under `ingress` name their peers in `from`; a rule about destinations belongs under `egress`",
    ),
    (
        "protocols",
        "in v1alpha1 ports are written in `ports`, like `- portNumber: {protocol: TCP, port: 80}`",
    ),
];
const INGRESS_RULE: Fields = Fields::strict(&["name", "action", "from", "ports"]).hints(RULE_HINTS);
const EGRESS_RULE: Fields = Fields::strict(&["name", "action", "to", "ports"]).hints(RULE_HINTS);

const ACTIONS: [(&str, Action); 3] = [
    ("Allow", Action::Accept),
    ("Deny", Action::Deny),
    ("Pass", Action::Pass),
];
const BASELINE_ACTIONS: [(&str, Action); 2] = [("Allow", Action::Accept), ("Deny", Action::Deny)];
const ACTION_HINTS: [(&str, &str); 2] = [
    ("Accept", "in v1alpha1 the word is `Allow`"),
    (
        "Pass",
        "a BaselineAdminNetworkPolicy has only `Allow` and `Deny`",
    ),
];

fn rule<'a>(
    d: &mut Decode<'a, '_>,
    at: &At<'_>,
    kind: AdminKind,
    (direction, index): (Direction, usize),
    dialect: &mut Dialect,
) -> ClusterRule<'a> {
    let fields = match direction {
        Direction::Ingress => INGRESS_RULE,
        Direction::Egress => EGRESS_RULE,
    };
    let actions: &[(&'static str, Action)] = match kind {
        AdminKind::Admin => &ACTIONS,
        AdminKind::Baseline => &BASELINE_ACTIONS,
    };
    let mut rule = ClusterRule {
        name: None,
        action: Err(Unreadable),
        action_text: None,
        peers: Err(Unreadable),
        ports: None,
        sound: false,
        span: d.span(),
    };
    let mut notes = RuleNotes::default();
    let fielded = d.object(at, fields, |d, name, at| match name {
        "name" => rule.name = rule_name(d, at),
        "action" => {
            let span = d.span();
            rule.action = d.word(at, actions, &ACTION_HINTS).map(|(action, _)| action);
            rule.action_text = Some(d.written(span).trim_matches(['"', '\'']).into());
        }
        "ports" => {
            d.hint_type("a list: `- portNumber: {protocol: TCP, port: 8080}`");
            rule.ports = ports(d, at, &mut notes);
        }
        _ => {
            // Releases before v0.1.2 set no limit for baseline policies: judged when the shape is known.
            let most = if kind == AdminKind::Admin {
                100
            } else {
                usize::MAX
            };
            let mut n_peers = 0;
            rule.peers = d.list(at, 1..=most, |d, at| {
                n_peers += 1;
                let span = d.span();
                if kind == AdminKind::Baseline && n_peers == 101 {
                    dialect.peers_over_limit.push((direction, index, span));
                }
                let peer = peer(d, at, kind, direction, dialect);
                notes.peer(span, &peer);
                peer
            });
        }
    });
    let Ok(fielded) = fielded else { return rule };
    rule.sound = fielded.sound;
    let words = match kind {
        AdminKind::Admin => "write `Allow`, `Deny` or `Pass`",
        AdminKind::Baseline => "write `Allow` or `Deny`",
    };
    d.require(at, &fielded, "action", words);
    d.require(
        at,
        &fielded,
        peers_key(direction),
        "name at least one peer; for all pods of the cluster write `- namespaces: {}`",
    );
    if let Some((span, _)) = notes.by_address {
        dialect.late_peers.push((direction, index, span));
    }
    notes.check_domains(d, at, &mut rule, "Allow");
    if let Some((span, message)) = notes.named_port_by_address("namedPort") {
        d.report(
            Code::Channel,
            &at.field("ports"),
            span,
            message,
            "write the number of the port",
        );
    }
    rule
}

fn ports<'a>(
    d: &mut Decode<'a, '_>,
    at: &At<'_>,
    notes: &mut RuleNotes,
) -> Option<Readable<Vec<Readable<PortMatch<'a>>>>> {
    let ports = d.list(at, 0..=100, |d, at| {
        let span = d.span();
        let port = port(d, at);
        notes.port(span, &port);
        port
    });
    // An empty list filters nothing (D39).
    (ports != Ok(Vec::new())).then_some(ports)
}

const PORT: Fields = Fields::strict(&["portNumber", "namedPort", "portRange"]).hints(&[
    ("port", "write `portNumber: {protocol: TCP, port: ...}`"),
    ("protocol", "write `portNumber: {protocol: ..., port: ...}`"),
    ("number", "write `portNumber: {protocol: TCP, port: ...}`"),
    (
        "endPort",
        "write `portRange: {protocol: TCP, start: ..., end: ...}`",
    ),
    (
        "tcp",
        "in v1alpha1 write `portNumber: {protocol: TCP, port: ...}`",
    ),
    (
        "udp",
        "in v1alpha1 write `portNumber: {protocol: UDP, port: ...}`",
    ),
    (
        "sctp",
        "in v1alpha1 write `portNumber: {protocol: SCTP, port: ...}`",
    ),
]);

fn port<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Readable<PortMatch<'a>> {
    let mut port = Err(Unreadable);
    let fielded = d.object(at, PORT, |d, name, at| {
        port = match name {
            "portNumber" => numbered(d, at),
            "portRange" => ranged(d, at),
            _ => free_port_name(d, at).map(PortMatch::Named),
        };
    })?;
    let names = ["portNumber", "namedPort", "portRange"];
    d.one_of(at, &fielded, &names, Code::OneOf, "write one port an entry")?;
    if fielded.sound { port } else { Err(Unreadable) }
}

const PORT_NUMBER: Fields =
    Fields::strict(&["protocol", "port"]).hints(&[("number", "the field is `port`")]);

fn numbered<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Readable<PortMatch<'a>> {
    let mut protocol = Ok(Protocol::Tcp);
    let mut port = Err(Unreadable);
    let fielded = d.object(at, PORT_NUMBER, |d, name, at| match name {
        "protocol" => protocol = protocol_or_empty(d, at),
        _ => port = port_number(d, at),
    })?;
    d.require(at, &fielded, "port", "");
    let (port, _) = port?;
    let protocol = protocol?;
    if fielded.sound {
        Ok(PortMatch::Numbers(protocol, PortRange::single(port)))
    } else {
        Err(Unreadable)
    }
}

const PORT_RANGE: Fields = Fields::strict(&["protocol", "start", "end"]);

fn ranged<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Readable<PortMatch<'a>> {
    let mut protocol = Ok(Protocol::Tcp);
    let mut start = Err(Unreadable);
    let mut end = Err(Unreadable);
    let fielded = d.object(at, PORT_RANGE, |d, name, at| match name {
        "protocol" => protocol = protocol_or_empty(d, at),
        "start" => start = port_number(d, at),
        _ => end = port_number(d, at),
    })?;
    d.require(at, &fielded, "start", "");
    d.require(at, &fielded, "end", "");
    let range = port_range(d, at, start?, end?, SinglePort::Warned)?;
    let protocol = protocol?;
    if fielded.sound {
        Ok(PortMatch::Numbers(protocol, range))
    } else {
        Err(Unreadable)
    }
}

const PEER_HINTS: &[(&str, &str)] = &[
    ("matchLabels", "indent it under `namespaces`"),
    ("matchExpressions", "indent it under `namespaces`"),
    (
        "namespaceSelector",
        "write `namespaces`, or `pods: {namespaceSelector: ..., podSelector: ...}`",
    ),
    (
        "podSelector",
        "write `pods: {namespaceSelector: ..., podSelector: ...}`",
    ),
    (
        "ipBlock",
        "write `networks`, a list of address blocks; it exists only under `egress`",
    ),
    (
        "networks",
        "traffic that comes in cannot be matched by address; use `namespaces` or `pods`",
    ),
    (
        "nodes",
        "traffic that comes in cannot be matched by node; use `namespaces` or `pods`",
    ),
    (
        "domainNames",
        "only `egress` rules of an AdminNetworkPolicy can name domains",
    ),
    (
        "all",
        "`all` belongs to ClusterNetworkPolicy; write `namespaces: {}` for every pod",
    ),
];
const INGRESS_PEER: Fields = Fields::strict(&["namespaces", "pods"]).hints(PEER_HINTS);
const EGRESS_PEER: Fields =
    Fields::strict(&["namespaces", "pods", "networks", "nodes", "domainNames"]).hints(PEER_HINTS);
const BASELINE_EGRESS_PEER: Fields =
    Fields::strict(&["namespaces", "pods", "networks", "nodes"]).hints(PEER_HINTS);

fn peer<'a>(
    d: &mut Decode<'a, '_>,
    at: &At<'_>,
    kind: AdminKind,
    direction: Direction,
    dialect: &mut Dialect,
) -> Readable<ClusterPeer<'a>> {
    let (fields, names): (_, &[&str]) = match (direction, kind) {
        (Direction::Ingress, _) => (INGRESS_PEER, &["namespaces", "pods"]),
        (Direction::Egress, AdminKind::Admin) => (
            EGRESS_PEER,
            &["namespaces", "pods", "networks", "nodes", "domainNames"],
        ),
        (Direction::Egress, AdminKind::Baseline) => (
            BASELINE_EGRESS_PEER,
            &["namespaces", "pods", "networks", "nodes"],
        ),
    };
    let mut peer = Err(Unreadable);
    let fielded = d.object(at, fields, |d, name, at| {
        peer = match name {
            "namespaces" => namespaces(d, at, dialect, Place::Peer).map(ClusterPeer::Namespaces),
            "pods" => pods(d, at, dialect),
            "networks" => networks(d, at).map(ClusterPeer::Networks),
            "nodes" => selector(d, at).map(ClusterPeer::Nodes),
            _ => domain_names(d, at).map(ClusterPeer::DomainNames),
        };
    })?;
    d.one_of(
        at,
        &fielded,
        names,
        Code::OneOf,
        "split it into several peers, or name the one that is meant",
    )?;
    if fielded.sound { peer } else { Err(Unreadable) }
}

/// Where an early `namespaces` object stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Directly in a peer, where later releases have a selector.
    Peer,
    /// In `pods`, which later releases refuse without a `namespaceSelector`.
    Pods,
}

const EARLY_NAMES: [&str; 4] = [
    "related",
    "namespaceSelector",
    "sameLabels",
    "notSameLabels",
];
const NAMESPACES: Fields = Fields::strict(&[
    "related",
    "namespaceSelector",
    "sameLabels",
    "notSameLabels",
    "matchLabels",
    "matchExpressions",
]);
const LATE_NAMESPACES: Fields = Fields::strict(&["matchLabels", "matchExpressions"]);

/// Reads `namespaces` of a peer in any shape.
fn namespaces<'a>(
    d: &mut Decode<'a, '_>,
    at: &At<'_>,
    dialect: &mut Dialect,
    place: Place,
) -> Readable<NamespaceSet<'a>> {
    if d.as_pruned() {
        let fielded_at = d.anchor();
        let mut parts = SelectorParts::default();
        let fielded = d.object(at, LATE_NAMESPACES, |d, name, at| parts.field(d, name, at))?;
        if fielded.pruned {
            pruned_wide(d, at, fielded_at);
        }
        return parts.finish().map(NamespaceSet::Selector);
    }
    let mut early: Readable<NamespaceSet<'a>> = Err(Unreadable);
    let mut wide = None;
    let mut parts = SelectorParts::default();
    let fielded = d.object(at, NAMESPACES, |d, name, at| {
        let anchor = d.anchor();
        match name {
            "matchLabels" | "matchExpressions" => parts.field(d, name, at),
            _ => {
                early = early_namespaces(d, name, at);
                let everything =
                    matches!(&early, Ok(NamespaceSet::Selector(it)) if it.selects_everything());
                if !everything {
                    wide.get_or_insert((anchor, name));
                }
            }
        }
    })?;
    let span = fielded.anchor;
    let is_early = EARLY_NAMES.iter().any(|name| fielded.has(name));
    let is_late = fielded.has("matchLabels") || fielded.has("matchExpressions");
    if is_early {
        dialect.early.get_or_insert(span);
        if place == Place::Peer
            && let Some((span, name)) = wide
        {
            pruned_wide(d, &at.field(name), span);
        }
    }
    if is_late || (!is_early && fielded.sound) {
        dialect.late.get_or_insert(span);
    }
    if is_early && is_late {
        return Err(Unreadable);
    }
    if !is_early {
        let late = parts.finish();
        return if fielded.sound {
            late.map(NamespaceSet::Selector)
        } else {
            Err(Unreadable)
        };
    }
    exactly_one_early(d, at, &fielded)?;
    if fielded.sound {
        early
    } else {
        Err(Unreadable)
    }
}

fn exactly_one_early(d: &mut Decode<'_, '_>, at: &At<'_>, fielded: &Fielded) -> Readable<()> {
    d.one_of(
        at,
        fielded,
        &EARLY_NAMES,
        Code::OneOf,
        "name one way to select the namespaces",
    )
}

fn pruned_wide(d: &mut Decode<'_, '_>, at: &At<'_>, span: Span) {
    d.report(
        Code::AnpPrunedWide,
        at,
        span,
        "a cluster with the CRDs of v0.1.3 or later drops this field and stores `namespaces: {}`, which matches every namespace",
        "if the cluster has such CRDs write the selector directly: `namespaces: {matchLabels: ...}`",
    );
}

fn early_namespaces<'a>(
    d: &mut Decode<'a, '_>,
    name: &str,
    at: &At<'_>,
) -> Readable<NamespaceSet<'a>> {
    match name {
        "related" => related(d, at),
        "namespaceSelector" => selector(d, at).map(NamespaceSet::Selector),
        "sameLabels" => label_keys(d, at).map(NamespaceSet::SameLabels),
        _ => label_keys(d, at).map(NamespaceSet::NotSameLabels),
    }
}

fn related<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Readable<NamespaceSet<'a>> {
    const WORDS: [(&str, ()); 2] = [("Self", ()), ("NotSelf", ())];
    let span = d.span();
    let text = d.written(span).trim_matches(['"', '\'']);
    let (word, other_case) = match text {
        "Self" | "NotSelf" => (text, false),
        _ if text.eq_ignore_ascii_case("self") => ("Self", true),
        _ if text.eq_ignore_ascii_case("notself") => ("NotSelf", true),
        _ => return d.word(at, &WORDS, &[]).map(|_| NamespaceSet::Own),
    };
    d.string(at)?;
    if other_case {
        d.report(
            Code::RelatedCase,
            at,
            span,
            format!("`{text}` is read as `{word}`"),
            format!("write `{word}`"),
        );
    }
    Ok(if word == "Self" {
        NamespaceSet::Own
    } else {
        NamespaceSet::NotOwn
    })
}

fn label_keys<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Readable<Vec<Cow<'a, str>>> {
    let keys = d.list(at, 0..=100, |d, at| {
        let key = d.string(at)?;
        check_label_key(d, at, &key);
        Ok(key.value)
    })?;
    keys.into_iter().collect()
}

const PODS: Fields = Fields::strict(&["namespaces", "namespaceSelector", "podSelector"])
    .hints(&[("matchLabels", "indent it under `podSelector`")]);

/// Reads `pods` of a peer in any shape.
fn pods<'a>(
    d: &mut Decode<'a, '_>,
    at: &At<'_>,
    dialect: &mut Dialect,
) -> Readable<ClusterPeer<'a>> {
    if d.as_pruned() {
        let (namespaces, pods) = namespaced_pods(d, at, NamespaceSelector::Required)?;
        return Ok(ClusterPeer::Pods(NamespaceSet::Selector(namespaces), pods));
    }
    let mut early: Option<Readable<NamespaceSet<'a>>> = None;
    let mut late: Option<Readable<Selector<'a>>> = None;
    let mut pods = Err(Unreadable);
    let fielded = d.object(at, PODS, |d, name, at| match name {
        "namespaces" => {
            let anchor = d.anchor();
            let mut inner = Dialect::default();
            early = Some(namespaces(d, at, &mut inner, Place::Pods));
            dialect.early.get_or_insert(anchor);
            // In this place only the early shape exists.
            if let (None, Some(late)) = (inner.early, inner.late) {
                d.report(
                    Code::OneOf,
                    at,
                    late,
                    "`namespaces` must hold exactly one of `related`, `namespaceSelector`, `sameLabels` and `notSameLabels`",
                    "put the selector under `namespaceSelector`",
                );
                early = Some(Err(Unreadable));
            }
        }
        "namespaceSelector" => {
            dialect.late.get_or_insert(d.anchor());
            late = Some(selector(d, at));
        }
        _ => pods = selector(d, at),
    })?;
    d.require(
        at,
        &fielded,
        "podSelector",
        "for all pods write `podSelector: {}`",
    );
    let namespaces = match (early, late) {
        (Some(early), None) => early?,
        (None, Some(late)) => NamespaceSet::Selector(late?),
        (Some(_), Some(_)) => return Err(Unreadable),
        (None, None) => {
            d.require(
                at,
                &fielded,
                "namespaceSelector",
                "for all namespaces write `namespaceSelector: {}`",
            );
            return Err(Unreadable);
        }
    };
    let pods = pods?;
    if fielded.sound {
        Ok(ClusterPeer::Pods(namespaces, pods))
    } else {
        Err(Unreadable)
    }
}
