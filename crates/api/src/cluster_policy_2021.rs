//! The ClusterNetworkPolicy and DefaultNetworkPolicy of 2021 (`networking.k8s.io/v1alpha1`).

use std::borrow::Cow;

use palisade_core::policy::{Action, Direction};

use crate::blocks::{IpBlock, ip_block};
use crate::decode::{Decode, Readable, Unreadable};
use crate::fields::Fields;
use crate::input::ValueShape;
use crate::path::At;
use crate::ports::{PortMatch, network_policy_port};
use crate::problem::{Code, Span};
use crate::selector::{Selector, selector};

/// Either of the two kinds; a DefaultNetworkPolicy's rules have no action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy2021<'a> {
    /// The pods it selects. Unreadable: none (D64).
    pub applied_to: Readable<AppliedTo<'a>>,
    /// Rules for traffic to them; `None`: the key is absent. The isolation of a default policy
    /// depends on it (D63).
    pub ingress: Option<Vec<Rule2021<'a>>>,
    /// Rules for traffic from them.
    pub egress: Option<Vec<Rule2021<'a>>>,
}

/// The pods that an early policy selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedTo<'a> {
    /// In which namespaces.
    pub namespaces: Selector<'a>,
    /// Which pods there; without one, all.
    pub pods: Option<Selector<'a>>,
}

/// A rule of an early policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule2021<'a> {
    /// The action; a default policy has none.
    pub action: Option<Readable<Action>>,
    /// The action as the object writes it.
    pub action_text: Option<Cow<'a, str>>,
    /// The peers; empty: every peer (D66).
    pub peers: Readable<Vec<Readable<Peer2021<'a>>>>,
    /// The ports; empty: every port of every protocol.
    pub ports: Readable<Vec<Readable<PortMatch<'a>>>>,
    /// Whether every key of the rule was known.
    pub sound: bool,
    /// Where the rule is.
    pub span: Span,
}

/// A peer of an early policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer2021<'a> {
    /// Pods of some namespaces; without a set, of all (D65).
    Pods {
        /// Which namespaces.
        namespaces: Option<Namespaces2021<'a>>,
        /// Which of their pods; without one, all.
        pods: Option<Selector<'a>>,
    },
    /// Addresses.
    IpBlock(IpBlock),
}

/// A set of namespaces in an early policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Namespaces2021<'a> {
    /// The subject's own namespace.
    Own,
    /// Those selected, less those that any exception selects.
    Selected {
        /// Its selector.
        selector: Selector<'a>,
        /// The exceptions.
        except: Vec<Selector<'a>>,
    },
}

/// Which of the two kinds is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind2021 {
    Cluster,
    Default,
}

const SPEC: Fields = Fields::strict(&["appliedTo", "ingress", "egress"]).hints(&[
    ("subject", "in the 2021 API, select the pods with `appliedTo`"),
    ("tier", "the 2021 API has no tiers; for tiers write `apiVersion: policy.networking.k8s.io/v1alpha2`"),
    ("priority", "the 2021 API has no priorities: Deny is evaluated before Allow"),
]);

/// Reads `spec`.
pub(crate) fn spec<'a>(
    d: &mut Decode<'a, '_>,
    at: &At<'_>,
    kind: Kind2021,
) -> Readable<Policy2021<'a>> {
    let mut policy = Policy2021 {
        applied_to: Err(Unreadable),
        ingress: None,
        egress: None,
    };
    let found_fields = d.object(at, SPEC, |d, name, at| match name {
        "appliedTo" => policy.applied_to = d.independent(|d| applied_to(d, at)),
        "ingress" => policy.ingress = Some(rules(d, at, kind, Direction::Ingress)),
        _ => policy.egress = Some(rules(d, at, kind, Direction::Egress)),
    })?;
    if !found_fields.has("appliedTo") {
        d.report(
            Code::InvalidSubject,
            &at.field("appliedTo"),
            found_fields.anchor,
            "the policy has no `appliedTo`; it would select no pods",
            "add `appliedTo`; `appliedTo: {namespaceSelector: {}}` selects every pod of the cluster",
        );
    }
    Ok(policy)
}

const APPLIED_TO: Fields = Fields::strict(&["namespaceSelector", "podSelector"]).hints(&[
    ("namespaces", "the field is `namespaceSelector`"),
    ("pods", "the field is `podSelector`"),
]);

fn applied_to<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Readable<AppliedTo<'a>> {
    let anchor = d.anchor();
    let mark = d.mark();
    let mut namespaces = None;
    let mut pods = None;
    let found_fields = d.object(at, APPLIED_TO, |d, name, at| match name {
        "namespaceSelector" => namespaces = Some(selector(d, at)),
        _ => pods = Some(selector(d, at)),
    });
    let read = match (&found_fields, namespaces) {
        (Ok(found_fields), Some(Ok(namespaces))) if found_fields.sound => {
            pods.transpose().map(|pods| AppliedTo { namespaces, pods })
        }
        _ => Err(Unreadable),
    };
    if read.is_err() {
        let missing =
            matches!(&found_fields, Ok(found_fields) if !found_fields.has("namespaceSelector"));
        if missing {
            let message = "`appliedTo` has no `namespaceSelector`; the policy would select no pods";
            let help = "for all namespaces write `namespaceSelector: {}`";
            d.report(Code::InvalidSubject, at, anchor, message, help);
        } else if d.errors_since(mark) {
            let message = "`appliedTo` is unreadable; the policy would select no pods";
            d.report(
                Code::InvalidSubject,
                at,
                anchor,
                message,
                "correct the problem inside it",
            );
        }
    }
    read
}

fn rules<'a>(
    d: &mut Decode<'a, '_>,
    at: &At<'_>,
    kind: Kind2021,
    direction: Direction,
) -> Vec<Rule2021<'a>> {
    d.list(at, 0..=usize::MAX, |d, at| {
        d.independent(|d| rule(d, at, kind, direction))
    })
    .unwrap_or_default()
}

const RULE_HINTS: &[(&str, &str)] = &[
    ("from", "in `egress` rules, write the peers in `to`"),
    ("to", "in `ingress` rules, write the peers in `from`"),
    (
        "onlyFrom",
        "only `ingress` rules of a DefaultNetworkPolicy have `onlyFrom`",
    ),
    (
        "onlyTo",
        "only `egress` rules of a DefaultNetworkPolicy have `onlyTo`",
    ),
];
const DEFAULT_RULE_HINTS: &[(&str, &str)] = &[
    ("from", "in a DefaultNetworkPolicy the field is `onlyFrom`"),
    ("to", "in a DefaultNetworkPolicy the field is `onlyTo`"),
    (
        "action",
        "a DefaultNetworkPolicy only allows; remove the action",
    ),
];
const INGRESS_RULE: Fields = Fields::strict(&["action", "from", "ports"]).hints(RULE_HINTS);
const EGRESS_RULE: Fields = Fields::strict(&["action", "to", "ports"]).hints(RULE_HINTS);
const DEFAULT_INGRESS_RULE: Fields =
    Fields::strict(&["onlyFrom", "ports"]).hints(DEFAULT_RULE_HINTS);
const DEFAULT_EGRESS_RULE: Fields = Fields::strict(&["onlyTo", "ports"]).hints(DEFAULT_RULE_HINTS);

const ACTIONS: [(&str, Action); 2] = [("Allow", Action::Accept), ("Deny", Action::Deny)];
const ACTION_HINTS: [(&str, &str); 2] = [
    ("Accept", "in the 2021 API the action is `Allow`"),
    ("Pass", "the 2021 API has only `Allow` and `Deny`"),
];

fn rule<'a>(
    d: &mut Decode<'a, '_>,
    at: &At<'_>,
    kind: Kind2021,
    direction: Direction,
) -> Rule2021<'a> {
    let fields = match (kind, direction) {
        (Kind2021::Cluster, Direction::Ingress) => INGRESS_RULE,
        (Kind2021::Cluster, Direction::Egress) => EGRESS_RULE,
        (Kind2021::Default, Direction::Ingress) => DEFAULT_INGRESS_RULE,
        (Kind2021::Default, Direction::Egress) => DEFAULT_EGRESS_RULE,
    };
    let mut rule = Rule2021 {
        action: (kind == Kind2021::Cluster).then_some(Err(Unreadable)),
        action_text: None,
        peers: Ok(Vec::new()),
        ports: Ok(Vec::new()),
        sound: true,
        span: d.span(),
    };
    let mut readable = true;
    let found_fields = d.object(at, fields, |d, name, at| match name {
        "action" => {
            // An unknown value leaves the match as it is (D18); another type does not.
            readable &= d.shape() == ValueShape::Str;
            let span = d.span();
            rule.action = Some(d.word(at, &ACTIONS, &ACTION_HINTS).map(|(it, _)| it));
            rule.action_text = Some(d.written(span).trim_matches(['"', '\'']).into());
        }
        "ports" => {
            d.hint_type("a list: `- port: 80`");
            rule.ports = d.list(at, 0..=usize::MAX, network_policy_port);
        }
        _ => rule.peers = d.list(at, 0..=usize::MAX, peer),
    });
    match found_fields {
        Ok(found_fields) => {
            rule.sound = found_fields.sound && readable;
            if kind == Kind2021::Cluster {
                d.require(at, &found_fields, "action", "write `Allow` or `Deny`");
            }
        }
        Err(Unreadable) => rule.peers = Err(Unreadable),
    }
    rule
}

const PEER: Fields = Fields::strict(&["podSelector", "namespaces", "ipBlock"]).hints(&[
    ("namespaceSelector", "write `namespaces: {selector: ...}`"),
    ("pods", "the field is `podSelector`"),
    (
        "networks",
        "write one block in an entry: `ipBlock: {cidr: ...}`",
    ),
]);

fn peer<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Readable<Peer2021<'a>> {
    let mut pods = None;
    let mut spaces = None;
    let mut block = None;
    let found_fields = d.object(at, PEER, |d, name, at| match name {
        "podSelector" => pods = Some(selector(d, at)),
        "namespaces" => spaces = Some(namespaces(d, at)),
        _ => block = Some(ip_block(d, at)),
    })?;
    if !found_fields.sound {
        return Err(Unreadable);
    }
    match (block, pods, spaces) {
        (Some(block), None, None) => block.map(Peer2021::IpBlock),
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
        (None, None, None) => {
            d.report(
                Code::OneOf,
                at,
                found_fields.anchor,
                "the peer is empty",
                "set `podSelector`, `namespaces` or `ipBlock`; for every namespace write `namespaces: {selector: {}}`",
            );
            Err(Unreadable)
        }
        (None, pods, spaces) => {
            let peer = Peer2021::Pods {
                namespaces: spaces.transpose()?,
                pods: pods.transpose()?,
            };
            if let Peer2021::Pods {
                namespaces: None, ..
            } = peer
            {
                d.report(
                    Code::PodSelectorEverywhere,
                    at,
                    found_fields.anchor,
                    "the peer has no `namespaces`; it matches pods of all namespaces",
                    "write `namespaces: {self: true}` for the subject's own namespace, `namespaces: {selector: {}}` for all",
                );
            }
            Ok(peer)
        }
    }
}

const NAMESPACES: Fields = Fields::strict(&["self", "selector", "except"]).hints(&[
    ("matchLabels", "indent it under `selector`"),
    ("namespaceSelector", "the field is `selector`"),
]);

fn namespaces<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Readable<Namespaces2021<'a>> {
    let mut own = Ok(false);
    let mut selected = None;
    let mut except = Ok(Vec::new());
    let found_fields = d.object(at, NAMESPACES, |d, name, at| match name {
        "self" => own = d.boolean(at),
        "selector" => selected = Some(selector(d, at)),
        _ => except = d.list(at, 0..=usize::MAX, selector),
    })?;
    let own = own?;
    if own && (found_fields.has("selector") || found_fields.has("except")) {
        d.report(
            Code::OneOf,
            at,
            found_fields.anchor,
            "`self: true` cannot be set with `selector` or `except`",
            "write two peers, each with its own `- `",
        );
        return Err(Unreadable);
    }
    if !found_fields.sound {
        return Err(Unreadable);
    }
    if own {
        return Ok(Namespaces2021::Own);
    }
    let Some(selected) = selected else {
        let message = if found_fields.has("except") {
            "`except` must be set with `selector`"
        } else {
            "`namespaces` selects nothing"
        };
        d.report(
            Code::OneOf,
            at,
            found_fields.anchor,
            message,
            "write `self: true` for the pod's own namespace, or `selector: {}` for all",
        );
        return Err(Unreadable);
    };
    let except = except?.into_iter().collect::<Readable<Vec<_>>>()?;
    Ok(Namespaces2021::Selected {
        selector: selected?,
        except,
    })
}
