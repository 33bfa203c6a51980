//! The common part of AdminNetworkPolicy, BaselineAdminNetworkPolicy and ClusterNetworkPolicy: one
//! model for all releases of `policy.networking.k8s.io`.

use std::borrow::Cow;

use palisade_core::domain::DomainPattern;
use palisade_core::net::Cidr;
use palisade_core::policy::{Action, Tier};

use crate::blocks::{CidrRule, cidr};
use crate::decode::{Decode, Readable, Text, Unreadable};
use crate::fields::{Fields, OneOfHelp};
use crate::input::ValueShape;
use crate::path::At;
use crate::ports::PortMatch;
use crate::problem::{Code, Span};
use crate::selector::{Selector, selector};
use palisade_core::text::ticked;

/// A cluster-wide policy of any release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterPolicy<'a> {
    /// Its tier. Unreadable: before the NetworkPolicies, failing closed (D19).
    pub tier: Readable<Tier>,
    /// Its place in the tier; lower first. A BaselineAdminNetworkPolicy has none.
    pub priority: Option<Readable<i64>>,
    /// The pods it selects. Unreadable: none (D20).
    pub subject: Readable<Subject<'a>>,
    /// The rules for traffic to them, in order.
    pub ingress: Vec<ClusterRule<'a>>,
    /// The rules for traffic from them, in order.
    pub egress: Vec<ClusterRule<'a>>,
    /// Whether it has the shape of a release before v0.1.3.
    pub early_shape: bool,
}

/// The pods that a cluster-wide policy selects, never host-network pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject<'a> {
    /// In which namespaces.
    pub namespaces: Selector<'a>,
    /// Which pods there; without one, all.
    pub pods: Option<Selector<'a>>,
}

/// A rule. If anything of it is unreadable or unsound, it fails closed as a whole (D16).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterRule<'a> {
    /// The name in the object.
    pub name: Option<Cow<'a, str>>,
    /// Its action. Unreadable: it denies what it matches (D18).
    pub action: Readable<Action>,
    /// The action as the object writes it.
    pub action_text: Option<Cow<'a, str>>,
    /// Any of these must match.
    pub peers: Readable<Vec<Readable<ClusterPeer<'a>>>>,
    /// Any of these must match; `None`: no filter.
    pub ports: Option<Readable<Vec<Readable<PortMatch<'a>>>>>,
    /// Whether its shape is valid.
    pub sound: bool,
    /// Where the rule is.
    pub span: Span,
}

/// A peer of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterPeer<'a> {
    /// All pods of some namespaces.
    Namespaces(NamespaceSet<'a>),
    /// Some pods of some namespaces.
    Pods(NamespaceSet<'a>, Selector<'a>),
    /// Addresses.
    Networks(Vec<Cidr>),
    /// The addresses of nodes.
    Nodes(Selector<'a>),
    /// The addresses that these names resolve to.
    DomainNames(Vec<DomainPattern>),
    /// Every address.
    All,
}

/// A set of namespaces, possibly relative to the subject's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceSet<'a> {
    /// By their labels.
    Selector(Selector<'a>),
    /// The subject's own namespace.
    Own,
    /// Every other namespace.
    NotOwn,
    /// Those with the same values as the subject's for all these keys.
    SameLabels(Vec<Cow<'a, str>>),
    /// Those with all these keys and another value for at least one.
    NotSameLabels(Vec<Cow<'a, str>>),
}

impl<'a> ClusterRule<'a> {
    /// An unread rule.
    pub(crate) fn unread(span: Span) -> ClusterRule<'a> {
        ClusterRule {
            name: None,
            action: Err(Unreadable),
            action_text: None,
            peers: Err(Unreadable),
            ports: None,
            sound: false,
            span,
        }
    }

    /// Reads `name`; whether it could be read.
    pub(crate) fn read_name(&mut self, d: &mut Decode<'a, '_>, at: &At<'_>) -> bool {
        self.name = rule_name(d, at);
        self.name.is_some()
    }

    /// Reads `action` by the values of its release; returns whether it was a string. An unknown
    /// value leaves the match as it is (D18).
    pub(crate) fn read_action(
        &mut self,
        d: &mut Decode<'a, '_>,
        at: &At<'_>,
        words: &[(&'static str, Action)],
        hints: &[(&str, &str)],
    ) -> bool {
        let span = d.span();
        let is_word = d.shape() == ValueShape::Str;
        self.action = d.word(at, words, hints).map(|(action, _)| action);
        self.action_text = Some(d.written(span).trim_matches(['"', '\'']).into());
        is_word
    }
}

impl ClusterPeer<'_> {
    /// The field of a peer that matches by address; some fields cannot be combined with it.
    fn address_field(&self) -> Option<&'static str> {
        match self {
            ClusterPeer::Namespaces(_) | ClusterPeer::Pods(..) => None,
            ClusterPeer::Networks(_) => Some("networks"),
            ClusterPeer::Nodes(_) => Some("nodes"),
            ClusterPeer::DomainNames(_) => Some("domainNames"),
            ClusterPeer::All => Some("all"),
        }
    }
}

/// For peers of all releases.
pub(crate) const ONE_PEER: OneOfHelp = OneOfHelp {
    none: "for all pods of the cluster write `namespaces: {}`",
    several: "write several peers, each with its own `- `",
};

/// Parts of a rule that are checked together when the whole rule was read.
#[derive(Debug, Default)]
pub(crate) struct RuleNotes {
    /// The first port by name alone.
    named_port: Option<Span>,
    /// The first peer by address.
    pub(crate) by_address: Option<(Span, &'static str)>,
    /// The first peer by domain name.
    domains: Option<(Span, Option<String>)>,
}

impl RuleNotes {
    pub(crate) fn peer(&mut self, span: Span, at: &At<'_>, peer: &Readable<ClusterPeer<'_>>) {
        let Ok(peer) = peer else { return };
        if let Some(field) = peer.address_field() {
            self.by_address.get_or_insert((span, field));
        }
        if matches!(peer, ClusterPeer::DomainNames(_)) {
            self.domains.get_or_insert_with(|| (span, at.text()));
        }
    }

    pub(crate) fn port(&mut self, span: Span, port: &Readable<PortMatch<'_>>) {
        if let Ok(PortMatch::Named(_)) = port {
            self.named_port.get_or_insert(span);
        }
    }

    /// Domain names can only be accepted (D53); another action is a defect of the rule.
    pub(crate) fn check_domains(
        self,
        d: &mut Decode<'_, '_>,
        rule: &mut ClusterRule<'_>,
        accept: &str,
    ) {
        let Some((span, path)) = self.domains else {
            return;
        };
        if rule.action.is_err() || rule.action == Ok(Action::Accept) {
            return;
        }
        rule.sound = false;
        d.report_two(
            Code::DomainAction,
            (path, span),
            ("in this rule", rule.span),
            format!("`domainNames` is only allowed in a rule whose action is `{accept}`"),
            "deny the addresses with `networks`, and accept the names in an earlier rule",
        );
    }

    /// A port by name beside a peer by address: its place and the message (D52).
    pub(crate) fn named_port_by_address(&self, port_field: &str) -> Option<(Span, String)> {
        let (_, field) = self.by_address?;
        let message = format!(
            "`{port_field}` beside `{field}` is rejected by the experimental channel; elsewhere it matches only addresses of pods"
        );
        self.named_port.map(|span| (span, message))
    }
}

/// Which problems with release channels were reported: each once per object.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    reported: Vec<&'static str>,
}

impl Channels {
    /// Reports a peer field that the standard channel does not have.
    pub(crate) fn not_in_standard(
        &mut self,
        d: &mut Decode<'_, '_>,
        at: &At<'_>,
        field: &'static str,
    ) {
        let message =
            format!("the standard channel has no `{field}`: its CRD would reject this peer");
        let span = d.anchor();
        self.report_once(d, at, span, field, &message);
    }

    /// Reports it once per object.
    pub(crate) fn report_once(
        &mut self,
        d: &mut Decode<'_, '_>,
        at: &At<'_>,
        span: Span,
        what: &'static str,
        message: &str,
    ) {
        if self.reported.contains(&what) {
            return;
        }
        self.reported.push(what);
        d.report(
            Code::Channel,
            at,
            span,
            message,
            "install the CRDs of a channel that accepts it",
        );
    }
}

pub(crate) const SUBJECT: Fields = Fields::strict(&["namespaces", "pods"]).hints(&[
    (
        "namespaceSelector",
        "in a subject, `namespaces` is the selector itself",
    ),
    (
        "podSelector",
        "write `pods: {namespaceSelector: ..., podSelector: ...}`",
    ),
    ("matchLabels", "indent it under `namespaces`"),
    ("matchExpressions", "indent it under `namespaces`"),
]);

/// Whether `namespaceSelector` is optional beside `podSelector`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamespaceSelector {
    Required,
    Optional,
}

/// Reads `subject`.
pub(crate) fn subject<'a>(
    d: &mut Decode<'a, '_>,
    at: &At<'_>,
    rule: NamespaceSelector,
) -> Readable<Subject<'a>> {
    let anchor = d.anchor();
    let mark = d.mark();
    let read = subject_fields(d, at, rule);
    if read.is_err() && d.errors_since(mark) && !d.invalid_subject_since(mark) {
        d.report(
            Code::InvalidSubject,
            at,
            anchor,
            "the subject is unreadable; the policy would select no pods",
            "correct the problem inside it",
        );
    }
    read
}

fn subject_fields<'a>(
    d: &mut Decode<'a, '_>,
    at: &At<'_>,
    rule: NamespaceSelector,
) -> Readable<Subject<'a>> {
    let mut namespaces = None;
    let mut pods = None;
    let found_fields = d.object(at, SUBJECT, |d, name, at| match name {
        "namespaces" => namespaces = Some(selector(d, at)),
        _ => pods = Some(namespaced_pods(d, at, rule)),
    })?;
    let help = OneOfHelp {
        none: "to select every pod of the cluster write `namespaces: {}`",
        several: "keep one; `pods` can select namespaces as well",
    };
    d.one_of(
        at,
        &found_fields,
        &["namespaces", "pods"],
        Code::InvalidSubject,
        help,
    )?;
    let subject = match (namespaces, pods) {
        (Some(namespaces), _) => Subject {
            namespaces: namespaces?,
            pods: None,
        },
        (None, Some(pods)) => {
            let (namespaces, pods) = pods?;
            Subject {
                namespaces,
                pods: Some(pods),
            }
        }
        (None, None) => return Err(Unreadable),
    };
    if found_fields.sound {
        Ok(subject)
    } else {
        Err(Unreadable)
    }
}

/// Reports a policy without a subject.
pub(crate) fn missing_subject(d: &mut Decode<'_, '_>, at: &At<'_>, span: Span) {
    d.report(
        Code::InvalidSubject,
        &at.field("subject"),
        span,
        "the policy has no `subject`; it would select no pods",
        "add `subject`; `subject: {namespaces: {}}` selects every pod of the cluster",
    );
}

const NAMESPACED_PODS: Fields = Fields::strict(&["namespaceSelector", "podSelector"]).hints(&[
    (
        "namespaces",
        "write `namespaceSelector` and `podSelector` in this release",
    ),
    ("matchLabels", "indent it under `podSelector`"),
]);

/// Reads `pods: {namespaceSelector, podSelector}`.
pub(crate) fn namespaced_pods<'a>(
    d: &mut Decode<'a, '_>,
    at: &At<'_>,
    rule: NamespaceSelector,
) -> Readable<(Selector<'a>, Selector<'a>)> {
    let mut namespaces = None;
    let mut pods = None;
    let found_fields = d.object(at, NAMESPACED_PODS, |d, name, at| match name {
        "namespaceSelector" => namespaces = Some(selector(d, at)),
        _ => pods = Some(selector(d, at)),
    })?;
    d.require(
        at,
        &found_fields,
        "podSelector",
        "for all pods write `podSelector: {}`",
    );
    let everything = Selector {
        requirements: Vec::new(),
    };
    if rule == NamespaceSelector::Required {
        d.require(
            at,
            &found_fields,
            "namespaceSelector",
            "for all namespaces write `namespaceSelector: {}`",
        );
    }
    let namespaces = match (namespaces, rule) {
        (Some(namespaces), _) => namespaces?,
        (None, NamespaceSelector::Optional) => everything,
        (None, NamespaceSelector::Required) => return Err(Unreadable),
    };
    let pods = pods.unwrap_or(Err(Unreadable))?;
    if found_fields.sound {
        Ok((namespaces, pods))
    } else {
        Err(Unreadable)
    }
}

/// Reads `name` of a rule.
fn rule_name<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Option<Cow<'a, str>> {
    let text = d.string(at).ok()?;
    let length = text.value.chars().count();
    if length > 100 {
        d.report(
            Code::TooLong,
            at,
            text.span,
            format!("the name has {length} characters; at most 100 are allowed"),
            "",
        );
    }
    Some(text.value)
}

/// Reads `priority`. A number out of range keeps its place in the order (D116).
pub(crate) fn priority(d: &mut Decode<'_, '_>, at: &At<'_>) -> Readable<i64> {
    d.integer_in(at, 0..=1000).map(|(priority, _)| priority)
}

/// Reads `networks`.
pub(crate) fn networks(d: &mut Decode<'_, '_>, at: &At<'_>) -> Readable<Vec<Cidr>> {
    d.hint_type("a list: `- 192.0.2.0/24`");
    let mut seen: Vec<String> = Vec::new();
    let entries = d.list(at, 1..=25, |d, at| {
        let span = d.span();
        let text = written(d, span);
        let read = cidr(d, at, CidrRule::Strict);
        if read.is_ok() {
            report_duplicate(d, at, span, &mut seen, text);
        }
        read
    })?;
    entries.into_iter().collect()
}

/// Reads `domainNames`.
pub(crate) fn domain_names(d: &mut Decode<'_, '_>, at: &At<'_>) -> Readable<Vec<DomainPattern>> {
    d.hint_type("a list: `- \"*.example.com\"`");
    let mut seen: Vec<String> = Vec::new();
    let entries = d.list(at, 1..=25, |d, at| {
        let text = d.string(at)?;
        let pattern = domain(d, at, &text)?;
        report_duplicate(d, at, text.span, &mut seen, text.value.into_owned());
        Ok(pattern)
    })?;
    entries.into_iter().collect()
}

fn domain(d: &mut Decode<'_, '_>, at: &At<'_>, text: &Text<'_>) -> Readable<DomainPattern> {
    match DomainPattern::parse(&text.value) {
        Ok(pattern) => {
            if pattern.is_odd() {
                d.report(
                    Code::DomainOdd,
                    at,
                    text.span,
                    format!(
                        "the API accepts {}, which is probably not a host name",
                        ticked(&text.value)
                    ),
                    "write a host name; for addresses use `networks`",
                );
            }
            Ok(pattern)
        }
        Err(error) => {
            d.report(
                Code::DomainInvalid,
                at,
                text.span,
                format!("{} is not a domain name: {error}", ticked(&text.value)),
                "write `www.example.com`, or `*.example.com` for every name below it",
            );
            Err(Unreadable)
        }
    }
}

/// Lists with set semantics compare the texts.
fn report_duplicate(
    d: &mut Decode<'_, '_>,
    at: &At<'_>,
    span: Span,
    seen: &mut Vec<String>,
    text: String,
) {
    if seen.contains(&text) {
        d.report(
            Code::DuplicateItem,
            at,
            span,
            format!("duplicate entry {}", ticked(&text)),
            "remove one of them",
        );
    }
    seen.push(text);
}

fn written(d: &Decode<'_, '_>, span: Span) -> String {
    d.written(span).trim_matches(['"', '\'']).to_owned()
}

const STATUS: Fields = Fields::strict(&["conditions"]);
const CONDITION: Fields = Fields::strict(&[
    "type",
    "status",
    "reason",
    "message",
    "lastTransitionTime",
    "observedGeneration",
]);

/// Whether a `status` must have `conditions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conditions {
    Required,
    Optional,
}

/// The places of duplicate conditions of one type.
pub(crate) type RepeatedConditions = Vec<(Option<String>, Span)>;

/// Reads `status`, which only has to be well formed. Whether a type may occur twice depends on the
/// release, which the status does not show.
pub(crate) fn status(
    d: &mut Decode<'_, '_>,
    at: &At<'_>,
    conditions: Conditions,
) -> RepeatedConditions {
    let mut repeated = Vec::new();
    let found_fields = d.object(at, STATUS, |d, _, at| {
        let mut types: Vec<String> = Vec::new();
        drop(d.list(at, 0..=usize::MAX, |d, at| {
            condition(d, at, &mut types, &mut repeated);
        }));
    });
    // Programs in Go write the zero value as null, and an API server drops what a client writes
    // here.
    if let Ok(found_fields) = found_fields
        && !found_fields.is_null("conditions")
        && conditions == Conditions::Required
    {
        let help = "write `conditions: []`, or remove `status`";
        d.require(at, &found_fields, "conditions", help);
    }
    repeated
}

/// Reports duplicate conditions.
pub(crate) fn report_repeated(d: &mut Decode<'_, '_>, repeated: RepeatedConditions) {
    for (path, span) in repeated {
        let message = format!(
            "there are two conditions of type {}",
            ticked(d.written(span))
        );
        d.report_late(
            Code::DuplicateItem,
            path,
            span,
            message,
            "remove one of them",
        );
    }
}

fn condition(
    d: &mut Decode<'_, '_>,
    at: &At<'_>,
    types: &mut Vec<String>,
    repeated: &mut RepeatedConditions,
) {
    const STATUSES: [(&str, ()); 3] = [("True", ()), ("False", ()), ("Unknown", ())];
    let Ok(found_fields) = d.object(at, CONDITION, |d, name, at| match name {
        "type" => {
            if let Ok(text) = d.string(at) {
                let name = text.value.into_owned();
                if types.contains(&name) {
                    repeated.push((at.text(), text.span));
                }
                types.push(name);
            }
        }
        "status" => drop(d.word(at, &STATUSES, &[])),
        "observedGeneration" => d.check_integer(at),
        _ => drop(d.string(at)),
    }) else {
        return;
    };
    for name in ["type", "status", "reason", "message", "lastTransitionTime"] {
        d.require(at, &found_fields, name, "");
    }
}
