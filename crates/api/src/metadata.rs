//! Object metadata: the identity of an object, and the labels that selectors match.

use std::borrow::Cow;

use crate::decode::{Decode, Expected, Readable, Text};
use crate::fields::{Fields, ObjectFields};
use crate::input::ValueShape;
use crate::names::{is_dns_label, is_dns_subdomain, is_label_key, is_label_value};
use crate::path::At;
use crate::problem::{Code, Span};
use palisade_core::text::ticked;

/// Labels in the order they were written.
pub type Labels<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

/// The metadata of an object, as far as policies and their explanations need it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata<'a> {
    /// The name; empty if it is unreadable, or only `generateName` is set.
    pub name: Cow<'a, str>,
    /// The namespace as written.
    pub namespace: Option<Cow<'a, str>>,
    /// The labels.
    pub labels: Labels<'a>,
    /// The annotations that Palisade reads.
    pub annotations: Vec<(Cow<'a, str>, Readable<Text<'a>>)>,
    /// The owners, by kind and name.
    pub owners: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// The time of creation, as written.
    pub creation_timestamp: Option<Cow<'a, str>>,
    /// The UID.
    pub uid: Option<Cow<'a, str>>,
    /// The place of the name, or of the object if it has none.
    pub name_span: Span,
}

/// Whether objects of a kind are namespaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Cluster,
    Namespaced,
}

/// What a name must look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameRule {
    Subdomain,
    Label,
}

const METADATA: Fields = Fields::strict(&[
    "name",
    "namespace",
    "labels",
    "annotations",
    "generateName",
    "uid",
    "creationTimestamp",
    "ownerReferences",
    "managedFields",
    "resourceVersion",
    "generation",
    "selfLink",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "finalizers",
    "clusterName",
]);

/// Whether selectors match the labels of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LabelUse {
    /// Selectors match them: without readable labels it is unknown which policies select it (D123).
    Selected,
    /// No selector matches them: unreadable labels have no effect.
    Named,
}

/// Reads `metadata`. Only an unreadable identity, or unreadable labels that selectors match, make
/// the whole object unreadable; everything else there fails on its own.
pub(crate) fn metadata<'a>(
    d: &mut Decode<'a, '_>,
    at: &At<'_>,
    scope: Scope,
    rule: NameRule,
    labelled: LabelUse,
) -> Readable<(Metadata<'a>, ObjectFields)> {
    let mut metadata = Metadata {
        name_span: d.anchor(),
        ..Metadata::default()
    };
    let found_fields = d.object(at, METADATA, |d, name, at| match name {
        "name" => {
            if let Ok(text) = d.string(at) {
                metadata.name_span = text.span;
                if text.value.is_empty() {
                    let help = "set a name";
                    d.report(Code::NameMissing, at, text.span, "the name is empty", help);
                } else {
                    check_name(d, at, &text, rule);
                }
                metadata.name = text.value;
            }
        }
        "namespace" => {
            if let Ok(text) = d.string(at) {
                if !text.value.is_empty() {
                    check_namespace(d, at, &text, scope);
                }
                metadata.namespace = Some(text.value);
            }
        }
        "labels" => {
            metadata.labels = match labelled {
                LabelUse::Named => d.independent(|d| labels(d, at)).unwrap_or_default(),
                LabelUse::Selected => labels(d, at).unwrap_or_else(|_| {
                    // Without some of its labels other policies would select it.
                    d.misread();
                    Labels::new()
                }),
            };
        }
        "annotations" => {
            // The reader of the annotation decides what an unreadable value means (D69).
            metadata.annotations = d.independent(|d| annotations(d, at)).unwrap_or_default();
        }
        "ownerReferences" => {
            let owners = d.independent(|d| d.list(at, 0..=usize::MAX, owner));
            metadata.owners = owners.unwrap_or_default();
        }
        "uid" => metadata.uid = text(d, at),
        "creationTimestamp" => metadata.creation_timestamp = text(d, at),
        "generateName" | "resourceVersion" | "selfLink" | "deletionTimestamp" | "clusterName" => {
            drop(text(d, at));
        }
        "generation" | "deletionGracePeriodSeconds" => d.independent(|d| d.check_integer(at)),
        "finalizers" => {
            let text = |d: &mut Decode<'a, '_>, at: &At<'_>| d.string(at).is_ok();
            drop(d.independent(|d| d.list(at, 0..=usize::MAX, text)));
        }
        "managedFields" if d.shape() != ValueShape::Seq => {
            d.independent(|d| d.wrong_type(at, Expected::List));
        }
        _ => d.skip(),
    })?;
    let named = found_fields.has("name")
        || found_fields.has("generateName")
        || found_fields.advises("name");
    if !named {
        missing_name(d, at, found_fields.anchor);
    }
    Ok((metadata, found_fields))
}

/// A text that no other field depends on.
fn text<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Option<Cow<'a, str>> {
    let text = d.independent(|d| d.string(at));
    text.ok().map(|it| it.value)
}

/// Reports that an object has no name.
pub(crate) fn missing_name(d: &mut Decode<'_, '_>, at: &At<'_>, span: Span) {
    d.report(
        Code::NameMissing,
        &at.field("name"),
        span,
        "the object has no name",
        "add `metadata.name`",
    );
}

fn check_name(d: &mut Decode<'_, '_>, at: &At<'_>, text: &Text<'_>, rule: NameRule) {
    let (fits, what) = match rule {
        NameRule::Subdomain => (
            is_dns_subdomain(&text.value),
            "lower-case letters, digits, `-` and `.`, at most 253 characters",
        ),
        NameRule::Label => (
            is_dns_label(&text.value),
            "lower-case letters, digits and `-`, at most 63 characters",
        ),
    };
    if !fits {
        d.report(
            Code::NameInvalid,
            at,
            text.span,
            format!("{} is not a valid name", ticked(&text.value)),
            format!("a name has {what}, and starts and ends with a letter or digit"),
        );
    }
}

fn check_namespace(d: &mut Decode<'_, '_>, at: &At<'_>, text: &Text<'_>, scope: Scope) {
    if scope == Scope::Cluster {
        d.report(
            Code::NamespaceScope,
            at,
            text.span,
            "objects of this kind are cluster-scoped and have no namespace",
            "remove the field",
        );
    } else if !is_dns_label(&text.value) {
        d.report(
            Code::NameInvalid,
            at,
            text.span,
            format!("{} is not the name of a namespace", ticked(&text.value)),
            "the name of a namespace has lower-case letters, digits and `-`, at most 63 characters, and starts and ends with a letter or digit",
        );
    }
}

/// Reads labels and checks their syntax.
pub(crate) fn labels<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Readable<Labels<'a>> {
    d.hint_type("write a mapping of labels: `app: web`");
    let mut labels = Labels::new();
    let mut sound = true;
    d.entries(at, |d, key, at| match label_value(d, &key, at) {
        Ok(value) => labels.push((key.value, value)),
        Err(_) => sound = false,
    })?;
    if sound {
        Ok(labels)
    } else {
        Err(crate::decode::Unreadable)
    }
}

/// Reads the value of a label, and checks its key as well.
fn label_value<'a>(d: &mut Decode<'a, '_>, key: &Text<'a>, at: &At<'_>) -> Readable<Cow<'a, str>> {
    check_label_key(d, at, key);
    if d.shape() == ValueShape::Null {
        let span = key.span;
        d.skip();
        d.report(
            Code::NullLabel,
            at,
            span,
            format!("the label {} has no value", ticked(&key.value)),
            "write `\"\"` for the empty value; to match only the key use `matchExpressions` with `Exists`",
        );
        return Err(crate::decode::Unreadable);
    }
    let value = d.string(at)?;
    check_label_value(d, at, &value);
    Ok(value.value)
}

/// Checks the syntax of a label key.
pub(crate) fn check_label_key(d: &mut Decode<'_, '_>, at: &At<'_>, key: &Text<'_>) {
    if !is_label_key(&key.value) {
        d.report(
            Code::LabelInvalid,
            at,
            key.span,
            format!("{} is not a label key", ticked(&key.value)),
            "a key is `name` or `prefix/name`: letters, digits, `-`, `_` and `.`, the name at most 63 characters, the prefix in lower case",
        );
    }
}

/// Checks the syntax of a label value.
pub(crate) fn check_label_value(d: &mut Decode<'_, '_>, at: &At<'_>, value: &Text<'_>) {
    if !is_label_value(&value.value) {
        d.report(
            Code::LabelInvalid,
            at,
            value.span,
            format!("{} is not a label value", ticked(&value.value)),
            "a value has letters, digits, `-`, `_` and `.`, at most 63 characters, and starts and ends with a letter or digit",
        );
    }
}

/// The annotations that Palisade reads; other values are only checked to be text.
fn annotations<'a>(
    d: &mut Decode<'a, '_>,
    at: &At<'_>,
) -> Readable<Vec<(Cow<'a, str>, Readable<Text<'a>>)>> {
    let mut annotations = Vec::new();
    let span = d.span();
    d.hint_type(if d.written(span).contains("network-isolation") {
        "write a mapping: `net.beta.kubernetes.io/network-isolation: \"true\"`"
    } else {
        "write a mapping: `key: \"value\"`"
    });
    d.entries(at, |d, key, at| {
        let ours = key.value.starts_with("net.beta.kubernetes.io/")
            || key.value.starts_with("palisade.dev/");
        if d.shape() == ValueShape::Null {
            d.skip();
        } else if ours || d.shape() != ValueShape::Str {
            annotations.push((key.value, d.string(at)));
        } else {
            d.skip();
        }
    })?;
    Ok(annotations)
}

fn owner<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> (Cow<'a, str>, Cow<'a, str>) {
    const OWNER: Fields = Fields::open(&["kind", "name"]);
    let mut owner = (Cow::Borrowed(""), Cow::Borrowed(""));
    drop(d.object(at, OWNER, |d, name, at| {
        let text = d.string(at).map(|text| text.value).unwrap_or_default();
        match name {
            "kind" => owner.0 = text,
            _ => owner.1 = text,
        }
    }));
    owner
}
