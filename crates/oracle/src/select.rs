//! Label selectors (section 2.0).

use crate::json::{Bad, Map, Res, field, list, object, only, string_map, text, texts};
use serde_json::Value;

/// Labels of a pod, namespace or node.
pub(crate) type Labels = Vec<(String, String)>;

/// The value of a label.
pub(crate) fn label<'a>(labels: &'a Labels, key: &str) -> Option<&'a str> {
    labels
        .iter()
        .find(|(k, _)| k == key)
        .map(|(_, v)| v.as_str())
}

#[derive(Clone, Debug)]
enum Requirement {
    Is(String, String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    DoesNotExist(String),
}

/// All requirements must hold; none at all selects everything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector(Vec<Requirement>);

impl Selector {
    /// Whether it selects these labels.
    pub(crate) fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|r| match r {
            Requirement::Is(k, v) => label(labels, k) == Some(v),
            Requirement::In(k, vs) => label(labels, k).is_some_and(|v| vs.iter().any(|w| w == v)),
            Requirement::NotIn(k, vs) => {
                label(labels, k).is_none_or(|v| !vs.iter().any(|w| w == v))
            }
            Requirement::Exists(k) => label(labels, k).is_some(),
            Requirement::DoesNotExist(k) => label(labels, k).is_none(),
        })
    }

    /// The number of its values; one for a requirement without any.
    pub(crate) fn values(&self) -> u64 {
        let each = self.0.iter().map(|r| match r {
            Requirement::Is(..) | Requirement::Exists(_) | Requirement::DoesNotExist(_) => 1,
            Requirement::In(_, vs) | Requirement::NotIn(_, vs) => vs.len().max(1) as u64,
        });
        each.sum()
    }

    /// Whether there is any requirement.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A `LabelSelector`. Unknown keys and operators, value lists that do not fit (D17), null label
    /// values (D122) and wrong types (D123) are defects.
    pub(crate) fn read(v: &Value) -> Res<Self> {
        let map = object(v)?;
        only(map, &["matchLabels", "matchExpressions"])?;
        let mut all = Self::from_map(field(map, "matchLabels"))?.0;
        if let Some(exprs) = field(map, "matchExpressions") {
            for e in list(exprs)? {
                all.push(Self::expression(object(e)?)?);
            }
        }
        Ok(Self(all))
    }

    /// A bare map of labels.
    pub(crate) fn from_map(v: Option<&Value>) -> Res<Self> {
        Ok(Self(
            string_map(v)?
                .into_iter()
                .map(|(k, v)| Requirement::Is(k, v))
                .collect(),
        ))
    }

    /// D70: in the 2016 form a map with neither `matchLabels` nor `matchExpressions` is a map of
    /// labels.
    pub(crate) fn read_2016(v: &Value) -> Res<Self> {
        let map = object(v)?;
        if map.contains_key("matchLabels") || map.contains_key("matchExpressions") {
            Self::read(v)
        } else {
            Self::from_map(Some(v))
        }
    }

    fn expression(e: &Map) -> Res<Requirement> {
        only(e, &["key", "operator", "values"])?;
        let key = text(field(e, "key").ok_or(Bad)?)?.to_owned();
        let values = field(e, "values")
            .map(texts)
            .transpose()?
            .unwrap_or_default();
        // Operators are case-sensitive (2.0).
        match (text(field(e, "operator").ok_or(Bad)?)?, values.is_empty()) {
            ("In", false) => Ok(Requirement::In(key, values)),
            ("NotIn", false) => Ok(Requirement::NotIn(key, values)),
            ("Exists", true) => Ok(Requirement::Exists(key)),
            ("DoesNotExist", true) => Ok(Requirement::DoesNotExist(key)),
            _ => Err(Bad),
        }
    }
}
