//! AdminNetworkPolicy and BaselineAdminNetworkPolicy of `policy.networking.k8s.io/v1alpha1`.
//!
//! Three shapes share this apiVersion: K, the proposal; N, releases v0.1.0 to v0.1.2; and F,
//! v0.1.3 to v0.1.8. They differ in how a peer names namespaces, so an object's shape is known
//! from its peers (D37), and one object must keep to one shape.

mod peer;
mod port;

use palisade_core::policy::{Action, Direction, Tier};

use self::peer::peer;
use self::port::ports;
use crate::cluster_policy::{
    Channels, ClusterPolicy, ClusterRule, NamespaceSelector, RuleNotes, missing_subject, priority,
    subject,
};
use crate::decode::{Decode, Readable, Unreadable};
use crate::fields::Fields;
use crate::path::At;
use crate::problem::{Code, Span};

/// Which of the two kinds is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdminKind {
    Admin,
    Baseline,
}

/// The shape of an object, as far as it was read.
#[derive(Debug, Default)]
struct Dialect {
    /// The first place with the shape of the proposal and of the first releases.
    early: Option<(Option<String>, Span)>,
    /// The first place with the shape of the later releases.
    late: Option<(Option<String>, Span)>,
    /// Rules with peers that only the later releases have: direction, index and place.
    late_peers: Vec<(Direction, usize, Span)>,
    /// Whether the object has `related`, which only the proposal has.
    has_related: bool,
    /// Lists of label keys with more than 100, which the proposal does not limit.
    keys_over_limit: Vec<(Option<String>, Span)>,
    /// The problems with release channels that were reported.
    channels: Channels,
    /// In a baseline policy: the 101st peer of a rule.
    peers_over_limit: Vec<(Direction, usize, Span)>,
}

const SPEC: Fields = Fields::strict(&["priority", "subject", "ingress", "egress"]).hints(&[
    (
        "tier",
        "an AdminNetworkPolicy is always in the Admin tier; `tier` is a field of ClusterNetworkPolicy",
    ),
    ("podSelector", "select the pods with `subject`"),
    (
        "policyTypes",
        "an AdminNetworkPolicy does not isolate; remove `policyTypes`",
    ),
]);
const BASELINE_SPEC: Fields = Fields::strict(&["subject", "ingress", "egress"]).hints(&[
    (
        "priority",
        "a cluster has one BaselineAdminNetworkPolicy; it has no priority",
    ),
    (
        "tier",
        "a BaselineAdminNetworkPolicy is always in the Baseline tier",
    ),
    ("podSelector", "select the pods with `subject`"),
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
        early_shape: false,
    };
    let mut dialect = Dialect::default();
    let found_fields = d.object(at, fields, |d, name, at| match name {
        "priority" => policy.priority = Some(d.independent(|d| priority(d, at))),
        "subject" => {
            policy.subject = d.independent(|d| subject(d, at, NamespaceSelector::Required))
        }
        "ingress" => policy.ingress = rules(d, at, kind, Direction::Ingress, &mut dialect),
        _ => policy.egress = rules(d, at, kind, Direction::Egress, &mut dialect),
    })?;
    if kind == AdminKind::Admin {
        d.require(
            at,
            &found_fields,
            "priority",
            "write a number from 0 (first) to 1000 (last)",
        );
    }
    if !found_fields.has("subject") {
        missing_subject(d, at, found_fields.anchor);
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
    policy.early_shape = dialect.early.is_some();
    if !dialect.has_related {
        for (path, span) in &dialect.keys_over_limit {
            let message = "the list has more than 100 entries";
            d.report_late(Code::TooMany, path.clone(), *span, message, "");
        }
    }
    let Some(early) = &dialect.early else {
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
    if let Some(late) = &dialect.late {
        let (first, second) = if late.1.start < early.1.start {
            (late, early)
        } else {
            (early, late)
        };
        let message = if early.1 == late.1 {
            "this peer has the shapes of two releases at once"
        } else {
            "this peer has another release's shape than an earlier peer"
        };
        d.report_two(
            Code::DialectMixed,
            second.clone(),
            ("the other shape is here", first.1),
            message,
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
            "this peer has the shape since v0.1.3; other peers have the earlier shape",
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
        d.independent(|d| rule(d, at, kind, (direction, index - 1), dialect))
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
        "protocols",
        "in v1alpha1, write ports in `ports`, like `- portNumber: {protocol: TCP, port: 80}`",
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
    ("Accept", "in v1alpha1 the action is `Allow`"),
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
    let mut rule = ClusterRule::unread(d.span());
    let mut notes = RuleNotes::default();
    let mut readable = true;
    let found_fields = d.object(at, fields, |d, name, at| match name {
        "name" => readable &= rule.read_name(d, at),
        "action" => readable &= rule.read_action(d, at, actions, &ACTION_HINTS),
        "ports" => {
            d.hint_type("a list: `- portNumber: {protocol: TCP, port: 8080}`");
            rule.ports = ports(d, at, &mut notes);
        }
        _ => {
            // Releases before v0.1.2 set no limit for baseline policies: checked when the shape is
            // known.
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
                notes.peer(span, at, &peer);
                peer
            });
        }
    });
    let Ok(found_fields) = found_fields else {
        return rule;
    };
    rule.sound = found_fields.sound && readable;
    let words = match kind {
        AdminKind::Admin => "write `Allow`, `Deny` or `Pass`",
        AdminKind::Baseline => "write `Allow` or `Deny`",
    };
    d.require(at, &found_fields, "action", words);
    d.require(
        at,
        &found_fields,
        peers_key(direction),
        "add at least one peer; for all pods of the cluster write `- namespaces: {}`",
    );
    if let Some((span, _)) = notes.by_address {
        dialect.late_peers.push((direction, index, span));
    }
    if let Some((span, message)) = notes.named_port_by_address("namedPort") {
        d.report(
            Code::Channel,
            &at.field("ports"),
            span,
            message,
            "write the number of the port",
        );
    }
    notes.check_domains(d, &mut rule, "Allow");
    rule
}
