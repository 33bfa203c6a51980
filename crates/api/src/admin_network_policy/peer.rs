//! Peers of AdminNetworkPolicy rules, in the shapes of all releases.

use std::borrow::Cow;

use palisade_core::policy::Direction;

use super::{AdminKind, Dialect};
use crate::cluster_policy::{
    ClusterPeer, NamespaceSelector, NamespaceSet, ONE_PEER, domain_names, namespaced_pods, networks,
};
use crate::decode::{Decode, Readable, Unreadable};
use crate::fields::{Fields, ObjectFields, OneOfHelp};
use crate::metadata::check_label_key;
use crate::path::At;
use crate::problem::{Code, Span};
use crate::selector::{Selector, SelectorParts, selector};

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
        "an `ingress` rule cannot match by address; use `namespaces` or `pods`",
    ),
    (
        "nodes",
        "an `ingress` rule cannot match by node; use `namespaces` or `pods`",
    ),
    (
        "domainNames",
        "only `egress` rules of an AdminNetworkPolicy can have domain names",
    ),
    (
        "all",
        "`all` is a field of ClusterNetworkPolicy; write `namespaces: {}` for every pod",
    ),
];
const INGRESS_PEER: Fields = Fields::strict(&["namespaces", "pods"]).hints(PEER_HINTS);
const EGRESS_PEER: Fields =
    Fields::strict(&["namespaces", "pods", "networks", "nodes", "domainNames"]).hints(PEER_HINTS);
const BASELINE_EGRESS_PEER: Fields =
    Fields::strict(&["namespaces", "pods", "networks", "nodes"]).hints(PEER_HINTS);

/// Reads a peer in any shape.
pub(super) fn peer<'a>(
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
    let found_fields = d.object(at, fields, |d, name, at| {
        peer = match name {
            "namespaces" => namespaces(d, at, dialect, Place::Peer).map(ClusterPeer::Namespaces),
            "pods" => pods(d, at, dialect),
            "networks" => networks(d, at).map(ClusterPeer::Networks),
            "nodes" => {
                dialect.channels.not_in_standard(d, at, "nodes");
                selector(d, at).map(ClusterPeer::Nodes)
            }
            _ => {
                dialect.channels.not_in_standard(d, at, "domainNames");
                domain_names(d, at).map(ClusterPeer::DomainNames)
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

/// Where an early `namespaces` object is.
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
])
.fallback("write a selector: `matchLabels` or `matchExpressions`");
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
        let found_fields = d.object(at, LATE_NAMESPACES, |d, name, at| parts.field(d, name, at))?;
        if found_fields.pruned {
            pruned_wide(d, at, fielded_at, "namespaceSelector");
        }
        return parts.finish().map(NamespaceSet::Selector);
    }
    let mut early: Readable<NamespaceSet<'a>> = Err(Unreadable);
    let mut wide = None;
    let mut parts = SelectorParts::default();
    let found_fields = d.object(at, NAMESPACES, |d, name, at| {
        let anchor = d.anchor();
        match name {
            "matchLabels" | "matchExpressions" => parts.field(d, name, at),
            _ => {
                early = early_namespaces(d, name, at, dialect);
                let everything =
                    matches!(&early, Ok(NamespaceSet::Selector(it)) if it.selects_everything());
                if early.is_ok() && !everything {
                    wide.get_or_insert((anchor, name));
                }
            }
        }
    })?;
    let span = found_fields.anchor;
    let is_early = EARLY_NAMES.iter().any(|name| found_fields.has(name));
    let is_late = found_fields.has("matchLabels") || found_fields.has("matchExpressions");
    if is_early {
        dialect.early.get_or_insert_with(|| (at.text(), span));
        if place == Place::Peer
            && let Some((span, name)) = wide
        {
            pruned_wide(d, &at.field(name), span, name);
        }
    }
    if is_late || (!is_early && found_fields.sound) {
        dialect.late.get_or_insert_with(|| (at.text(), span));
    }
    if is_early && is_late {
        return Err(Unreadable);
    }
    if !is_early {
        let late = parts.finish();
        return if found_fields.sound {
            late.map(NamespaceSet::Selector)
        } else {
            Err(Unreadable)
        };
    }
    exactly_one_early(d, at, &found_fields)?;
    if found_fields.sound {
        early
    } else {
        Err(Unreadable)
    }
}

fn exactly_one_early(
    d: &mut Decode<'_, '_>,
    at: &At<'_>,
    found_fields: &ObjectFields,
) -> Readable<()> {
    d.one_of(
        at,
        found_fields,
        &EARLY_NAMES,
        Code::OneOf,
        OneOfHelp {
            none: "choose one way to select the namespaces",
            several: "write several peers, each with its own `- `",
        },
    )
}

fn pruned_wide(d: &mut Decode<'_, '_>, at: &At<'_>, span: Span, field: &str) {
    let help = match field {
        "namespaceSelector" => {
            "if the cluster has such CRDs write the selector directly: `namespaces: {matchLabels: ...}`"
        }
        _ => {
            "later releases cannot express this; with their CRDs write a selector, one policy for each tenant"
        }
    };
    d.report(
        Code::AnpPrunedWide,
        at,
        span,
        "a cluster with the CRDs of v0.1.3 or later drops this field and stores `namespaces: {}`, which matches every namespace",
        help,
    );
}

fn early_namespaces<'a>(
    d: &mut Decode<'a, '_>,
    name: &str,
    at: &At<'_>,
    dialect: &mut Dialect,
) -> Readable<NamespaceSet<'a>> {
    match name {
        "related" => {
            dialect.has_related = true;
            related(d, at)
        }
        "namespaceSelector" => selector(d, at).map(NamespaceSet::Selector),
        "sameLabels" => label_keys(d, at, dialect).map(NamespaceSet::SameLabels),
        _ => label_keys(d, at, dialect).map(NamespaceSet::NotSameLabels),
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

fn label_keys<'a>(
    d: &mut Decode<'a, '_>,
    at: &At<'_>,
    dialect: &mut Dialect,
) -> Readable<Vec<Cow<'a, str>>> {
    let mut n_keys = 0;
    let keys = d.list(at, 0..=usize::MAX, |d, item| {
        n_keys += 1;
        if n_keys == 101 {
            dialect.keys_over_limit.push((at.text(), d.anchor()));
        }
        let key = d.string(item)?;
        check_label_key(d, item, &key);
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
    let found_fields = d.object(at, PODS, |d, name, at| match name {
        "namespaces" => {
            let anchor = d.anchor();
            let mut inner = Dialect::default();
            early = Some(namespaces(d, at, &mut inner, Place::Pods));
            dialect.has_related |= inner.has_related;
            dialect.keys_over_limit.append(&mut inner.keys_over_limit);
            dialect.early.get_or_insert_with(|| (at.text(), anchor));
            // Only the early shape exists here.
            if let (None, Some((_, late))) = (&inner.early, inner.late) {
                d.report(
                    Code::OneOf,
                    at,
                    late,
                    "`namespaces` must have exactly one of `related`, `namespaceSelector`, `sameLabels` and `notSameLabels`",
                    "put the selector under `namespaceSelector`",
                );
                early = Some(Err(Unreadable));
            }
        }
        "namespaceSelector" => {
            let anchor = d.anchor();
            dialect.late.get_or_insert_with(|| (at.text(), anchor));
            late = Some(selector(d, at));
        }
        _ => pods = selector(d, at),
    })?;
    d.require(
        at,
        &found_fields,
        "podSelector",
        "for all pods write `podSelector: {}`",
    );
    let namespaces = match (early, late) {
        (Some(early), None) => early?,
        (None, Some(late)) => NamespaceSet::Selector(late?),
        (Some(_), Some(_)) => return Err(Unreadable),
        (None, None) => {
            if dialect.early.is_some() {
                let help = "for all namespaces write `namespaces: {namespaceSelector: {}}`";
                d.require(at, &found_fields, "namespaces", help);
            } else {
                let help = "for all namespaces write `namespaceSelector: {}`";
                d.require(at, &found_fields, "namespaceSelector", help);
            }
            return Err(Unreadable);
        }
    };
    let pods = pods?;
    if found_fields.sound {
        Ok(ClusterPeer::Pods(namespaces, pods))
    } else {
        Err(Unreadable)
    }
}
