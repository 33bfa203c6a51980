//! The NetworkPolicy of the 2016 proposal, and the annotation that isolates a namespace.

use palisade_core::labels::{Operator, Requirement};

use crate::decode::{Decode, Readable, Text, Unreadable};
use crate::fields::{Fields, OneOfHelp};
use crate::input::ValueShape;
use crate::metadata::{Metadata, labels};
use crate::path::At;
use crate::ports::{PortMatch, port_2016};
use crate::problem::{Code, Span};
use crate::selector::{Selector, SelectorParts};
use palisade_core::text::ticked;

/// A NetworkPolicy of 2016. It has an effect only in a namespace that the annotation isolates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkPolicy2016<'a> {
    /// The pods it selects. Unreadable: none (D110).
    pub pod_selector: Readable<Selector<'a>>,
    /// The rules for traffic to them.
    pub ingress: Vec<Rule2016<'a>>,
}

impl Default for NetworkPolicy2016<'_> {
    /// A policy that selects all pods of its namespace and has no rules.
    fn default() -> Self {
        NetworkPolicy2016 {
            pod_selector: Ok(Selector {
                requirements: Vec::new(),
            }),
            ingress: Vec::new(),
        }
    }
}

/// A rule of 2016.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule2016<'a> {
    /// The sources; empty: every source.
    pub sources: Readable<Vec<Readable<Source2016<'a>>>>,
    /// The ports; empty: every port of every protocol.
    pub ports: Readable<Vec<Readable<PortMatch<'a>>>>,
    /// Whether every key of the rule was known.
    pub sound: bool,
    /// Where the rule is.
    pub span: Span,
}

/// A source of 2016: pods of the own namespace, or all pods of some namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source2016<'a> {
    /// Pods of the policy's own namespace.
    Pods(Selector<'a>),
    /// All pods of the selected namespaces.
    Namespaces(Selector<'a>),
}

const NO_EGRESS: &str = "the 2016 API has only `ingress`; write `apiVersion: networking.k8s.io/v1`";
const SPEC: Fields = Fields::strict(&["podSelector", "ingress"])
    .hints(&[("egress", NO_EGRESS), ("policyTypes", NO_EGRESS)]);

/// Reads `spec`.
pub(crate) fn spec<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Readable<NetworkPolicy2016<'a>> {
    let mut policy = NetworkPolicy2016::default();
    d.object(at, SPEC, |d, name, at| match name {
        "podSelector" => policy.pod_selector = d.independent(|d| bare_or_selector(d, at)),
        _ => {
            let rules = d.list(at, 0..=usize::MAX, |d, at| d.independent(|d| rule(d, at)));
            policy.ingress = rules.unwrap_or_default();
        }
    })?;
    Ok(policy)
}

const RULE: Fields = Fields::strict(&["ports", "from"])
    .hints(&[("to", "in `ingress` rules, write the sources in `from`")]);

fn rule<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Rule2016<'a> {
    let mut rule = Rule2016 {
        sources: Ok(Vec::new()),
        ports: Ok(Vec::new()),
        sound: true,
        span: d.span(),
    };
    d.hint_type("a rule is a mapping with `from` and `ports`");
    let found_fields = d.object(at, RULE, |d, name, at| match name {
        "ports" => rule.ports = d.list(at, 0..=usize::MAX, port_2016),
        _ => rule.sources = d.list(at, 0..=usize::MAX, source),
    });
    match found_fields {
        Ok(found_fields) => rule.sound = found_fields.sound,
        Err(Unreadable) => rule.sources = Err(Unreadable),
    }
    rule
}

const NO_BLOCKS: (&str, &str) = (
    "ipBlock",
    "the 2016 API has no addresses; write `apiVersion: networking.k8s.io/v1`",
);
const SOURCE: Fields = Fields::strict(&["pods", "namespaces"]).hints(&[
    NO_BLOCKS,
    ("podSelector", "in `v1beta` the field is `pods`"),
    ("namespaceSelector", "in `v1beta` the field is `namespaces`"),
]);
/// The proposal has `pods` and `namespaces`; the released API has the names of today (D125).
const SHIPPED_SOURCE: Fields =
    Fields::strict(&["pods", "namespaces", "podSelector", "namespaceSelector"]).hints(&[NO_BLOCKS]);

fn source<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Readable<Source2016<'a>> {
    let (fields, names): (_, &[&str]) = if d.api_version() == "v1beta" {
        (SOURCE, &["pods", "namespaces"])
    } else {
        (
            SHIPPED_SOURCE,
            &["pods", "namespaces", "podSelector", "namespaceSelector"],
        )
    };
    let mut source = Err(Unreadable);
    let found_fields = d.object(at, fields, |d, name, at| {
        let read = bare_or_selector(d, at);
        source = match name {
            "pods" | "podSelector" => read.map(Source2016::Pods),
            _ => read.map(Source2016::Namespaces),
        };
    })?;
    let help = OneOfHelp {
        none: "write `pods` or `namespaces`; for every source remove `from`",
        several: "pods and namespaces cannot be combined in the 2016 API",
    };
    d.one_of(at, &found_fields, names, Code::OneOf, help)?;
    if found_fields.sound {
        source
    } else {
        Err(Unreadable)
    }
}

/// A selector, or the bare map of labels that the proposal's samples use (D70).
fn bare_or_selector<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Readable<Selector<'a>> {
    if d.shape() != ValueShape::Map || !d.is_bare_map(&["matchLabels", "matchExpressions"]) {
        let mut parts = SelectorParts::default();
        let found_fields = d.object(at, crate::selector::SELECTOR, |d, name, at| {
            parts.field(d, name, at)
        })?;
        return if found_fields.sound {
            parts.finish()
        } else {
            Err(Unreadable)
        };
    }
    let span = d.span();
    let labels = labels(d, at)?;
    d.report(
        Code::BareSelector,
        at,
        span,
        "this map of labels is read as `matchLabels`, which only the 2016 API allows",
        "indent the labels under `matchLabels`",
    );
    Ok(Selector {
        requirements: labels
            .into_iter()
            .map(|(key, value)| Requirement {
                key,
                operator: Operator::In,
                values: vec![value],
            })
            .collect(),
    })
}

const ISOLATION: &str = "net.beta.kubernetes.io/network-isolation";
const SHIPPED_ISOLATION: &str = "net.beta.kubernetes.io/network-policy";

/// Whether a namespace's annotations isolate its pods for ingress (D69, D71, D126). An unreadable
/// value is reported and isolates.
pub(crate) fn isolation(d: &mut Decode<'_, '_>, metadata: &Metadata<'_>) -> bool {
    let root = At::Root;
    let at = root.field("metadata");
    let at = at.field("annotations");
    let mut isolated = false;
    for (key, value) in &metadata.annotations {
        let Ok(value) = value else {
            isolated |= matches!(&**key, ISOLATION | SHIPPED_ISOLATION);
            continue;
        };
        isolated |= match &**key {
            ISOLATION => match &*value.value {
                "true" => true,
                "false" => false,
                _ => {
                    unreadable_isolation(
                        d,
                        &at.field(key),
                        value,
                        "write `\"true\"` or `\"false\"`",
                    );
                    true
                }
            },
            SHIPPED_ISOLATION => match shipped_isolation(&value.value) {
                Some(isolated) => isolated,
                None => {
                    let help = "write `'{\"ingress\": {\"isolation\": \"DefaultDeny\"}}'`";
                    unreadable_isolation(d, &at.field(key), value, help);
                    true
                }
            },
            _ => false,
        };
    }
    isolated
}

fn unreadable_isolation(d: &mut Decode<'_, '_>, at: &At<'_>, value: &Text<'_>, help: &str) {
    d.report(
        Code::IsolationAnnotation,
        at,
        value.span,
        format!(
            "{} is not a value of this annotation; it isolates the namespace",
            ticked(&value.value)
        ),
        help,
    );
}

/// Reads `{"ingress": {"isolation": "DefaultDeny"}}`; `None` if it is broken.
fn shipped_isolation(text: &str) -> Option<bool> {
    use crate::input::{Input, Scalar, json::Json};
    let mut json = Json::new(text, 0);
    let mut isolated = Some(false);
    if json.shape() != ValueShape::Map {
        return None;
    }
    json.enter();
    while let Some((key, _)) = json.next_key() {
        if key != "ingress" || json.shape() != ValueShape::Map {
            json.skip();
            continue;
        }
        json.enter();
        while let Some((key, _)) = json.next_key() {
            match (&*key, json.shape()) {
                ("isolation", ValueShape::Str) => {
                    let word = json.scalar().0;
                    isolated = (word == Scalar::Str("DefaultDeny".into())).then_some(true);
                }
                ("isolation", _) => {
                    isolated = None;
                    json.skip();
                }
                _ => json.skip(),
            }
        }
    }
    let end = json.offset();
    if json.error().is_some() || end < text.len() {
        None
    } else {
        isolated
    }
}
