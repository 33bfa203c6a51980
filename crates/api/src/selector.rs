//! Label selectors, as every API version writes them.

use std::borrow::Cow;

use palisade_core::labels::{Operator, Requirement};

use crate::decode::{Decode, Readable, Unreadable};
use crate::fields::Fields;
use crate::metadata::{check_label_key, check_label_value, labels};
use crate::path::At;
use crate::problem::{Code, Span};

/// A label selector over borrowed text.
pub type Selector<'a> = palisade_core::labels::Selector<Cow<'a, str>>;

/// The keys of a selector.
pub(crate) const SELECTOR: Fields = Fields::strict(&["matchLabels", "matchExpressions"]).hints(&[
    ("namespaceSelector", "this field is the selector itself; write `matchLabels` directly in it, like `namespaces: {matchLabels: ...}`"),
    ("podSelector", "this field is the selector itself; write `matchLabels` directly in it, like `namespaces: {matchLabels: ...}`"),
])
    .fallback("write labels under `matchLabels`");

/// Reads a label selector.
pub(crate) fn selector<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Readable<Selector<'a>> {
    d.hint_type("write a selector: `{matchLabels: {app: web}}`");
    let mut parts = SelectorParts::default();
    let found_fields = d.object(at, SELECTOR, |d, name, at| parts.field(d, name, at))?;
    if found_fields.sound {
        parts.finish()
    } else {
        Err(Unreadable)
    }
}

/// A selector whose keys are read one by one, because other keys may be beside them.
#[derive(Debug, Default)]
pub(crate) struct SelectorParts<'a> {
    requirements: Vec<Requirement<Cow<'a, str>>>,
    broken: bool,
}

impl<'a> SelectorParts<'a> {
    /// Reads `matchLabels` or `matchExpressions`.
    pub(crate) fn field(&mut self, d: &mut Decode<'a, '_>, name: &str, at: &At<'_>) {
        match name {
            "matchLabels" => match labels(d, at) {
                Ok(labels) => self
                    .requirements
                    .extend(labels.into_iter().map(|(key, value)| Requirement {
                        key,
                        operator: Operator::In,
                        values: vec![value],
                    })),
                Err(Unreadable) => self.broken = true,
            },
            _ => match d.list(at, 0..=usize::MAX, requirement) {
                Ok(requirements) => {
                    for requirement in requirements {
                        match requirement {
                            Ok(requirement) => self.requirements.push(requirement),
                            Err(Unreadable) => self.broken = true,
                        }
                    }
                }
                Err(Unreadable) => self.broken = true,
            },
        }
    }

    /// The selector, if all of it could be read.
    pub(crate) fn finish(self) -> Readable<Selector<'a>> {
        if self.broken {
            return Err(Unreadable);
        }
        Ok(Selector {
            requirements: self.requirements,
        })
    }
}

const REQUIREMENT: Fields = Fields::strict(&["key", "operator", "values"]);

fn requirement<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Readable<Requirement<Cow<'a, str>>> {
    let mut key = Err(Unreadable);
    let mut operator: Readable<(Operator, Span)> = Err(Unreadable);
    let mut values: Readable<Vec<Readable<Cow<'a, str>>>> = Ok(Vec::new());
    let mut values_span = d.anchor();
    let found_fields = d.object(at, REQUIREMENT, |d, name, at| match name {
        "key" => {
            key = d.string(at).map(|key| {
                check_label_key(d, at, &key);
                key.value
            });
        }
        "operator" => operator = d.word(at, &OPERATORS, &[]),
        _ => {
            values_span = d.anchor();
            values = d.list(at, 0..=usize::MAX, |d, at| {
                let value = d.string(at)?;
                check_label_value(d, at, &value);
                Ok(value.value)
            });
        }
    })?;
    d.require(at, &found_fields, "key", "");
    d.require(
        at,
        &found_fields,
        "operator",
        "the operators are `In`, `NotIn`, `Exists` and `DoesNotExist`",
    );
    let (operator, _) = operator?;
    let values: Vec<Cow<'a, str>> = values?.into_iter().collect::<Readable<_>>()?;
    let takes_values = matches!(operator, Operator::In | Operator::NotIn);
    if takes_values == values.is_empty() {
        let (message, help) = if takes_values {
            (
                "needs at least one value",
                "to match only the key use `Exists` or `DoesNotExist`",
            )
        } else {
            ("takes no values", "remove `values`, or use `In` or `NotIn`")
        };
        d.report(
            Code::SelectorValues,
            &at.field("values"),
            values_span,
            format!("the operator `{}` {message}", operator.name()),
            help,
        );
        return Err(Unreadable);
    }
    if !found_fields.sound {
        return Err(Unreadable);
    }
    Ok(Requirement {
        key: key?,
        operator,
        values,
    })
}

const OPERATORS: [(&str, Operator); 4] = [
    ("In", Operator::In),
    ("NotIn", Operator::NotIn),
    ("Exists", Operator::Exists),
    ("DoesNotExist", Operator::DoesNotExist),
];
