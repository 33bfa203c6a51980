//! Whether selectors can match anything at all, whatever objects there are.
//!
//! A selector is a conjunction of conditions, each about one key, and keys are independent, so that it
//! is enough to look for a value for each key. The value of `kubernetes.io/metadata.name` is the
//! namespace's name (D23): it is always there, and it has to be a name that a namespace can have.

use std::collections::BTreeMap;

use crate::labels::{Operator, Requirement, Selector};
use crate::model::{NamespaceSet, PodSet};

/// The label that every namespace has.
pub(super) const NAME: &str = "kubernetes.io/metadata.name";

/// How many ways to be no exception are tried; nothing is claimed beyond.
const MOST_WAYS: usize = 4096;

/// Whose labels are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    Namespace,
    Other,
}

type Conditions<'r> = Vec<Requirement<&'r str>>;

/// A key for which no value, nor its absence, fits all requirements.
pub(super) fn contradiction<'r>(
    requirements: &[Requirement<&'r str>],
    whose: Whose,
) -> Option<&'r str> {
    let mut by_key: BTreeMap<&str, Vec<&Requirement<&str>>> = BTreeMap::new();
    for it in requirements {
        by_key.entry(it.key).or_default().push(it);
    }
    let found = by_key.into_iter().find(|(key, list)| {
        let is_name = whose == Whose::Namespace && *key == NAME;
        let fits = |value: Option<&str>| list.iter().all(|it| it.accepts(value));
        let mut named = list.iter().flat_map(|it| &it.values).copied();
        let by_value = named.any(|it| fits(Some(it)) && (!is_name || is_namespace_name(it)));
        // A value that nobody names: whoever lists values wants one of them, or any other.
        let is_listed = list.iter().any(|it| it.operator == Operator::In);
        let must_be_absent = list.iter().any(|it| it.operator == Operator::DoesNotExist);
        let by_another = !is_listed && !must_be_absent;
        !(by_value || by_another || (!is_name && fits(None)))
    });
    found.map(|(key, _)| key)
}

/// Whether a namespace can have a name (RFC 1123).
fn is_namespace_name(name: &str) -> bool {
    let is_inner = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
    let ends = [name.bytes().next(), name.bytes().last()];
    name.len() <= 63
        && name.bytes().all(is_inner)
        && ends.iter().all(|it| it.is_some_and(|it| it != b'-'))
}

/// The opposite of a requirement.
fn negated<'r>(it: &Requirement<&'r str>) -> Requirement<&'r str> {
    Requirement {
        key: it.key,
        operator: match it.operator {
            Operator::In => Operator::NotIn,
            Operator::NotIn => Operator::In,
            Operator::Exists => Operator::DoesNotExist,
            Operator::DoesNotExist => Operator::Exists,
        },
        values: it.values.clone(),
    }
}

/// Whether some labels fit all requirements and none of the exceptions; `None`: not found out.
fn can_fit(requirements: &[Requirement<&str>], except: &[&Selector<&str>]) -> Option<bool> {
    let ways: Option<usize> = except.iter().try_fold(1_usize, |ways, it| {
        let ways = ways.checked_mul(it.requirements.len())?;
        (ways <= MOST_WAYS).then_some(ways)
    });
    // To be no exception is to break one requirement of each.
    (0..ways?).try_fold(false, |found, way| {
        if found {
            return Some(true);
        }
        let mut all: Conditions<'_> = requirements.to_vec();
        let mut rest = way;
        for it in except {
            let n = it.requirements.len();
            all.extend(it.requirements.get(rest % n.max(1)).map(negated));
            rest /= n.max(1);
        }
        Some(contradiction(&all, Whose::Namespace).is_none())
    })
}

/// Why a set of pods can never have a member: the key that is in the way, or nothing in particular.
pub(super) fn never(set: &PodSet<'_>) -> Option<Option<String>> {
    let pods = set.pods.as_ref().map_or(&[][..], |it| &it.requirements);
    if let Some(key) = contradiction(pods, Whose::Other) {
        return Some(Some(key.to_owned()));
    }
    match &set.namespaces {
        NamespaceSet::Selected { selector, except } => {
            if let Some(key) = contradiction(&selector.requirements, Whose::Namespace) {
                return Some(Some(key.to_owned()));
            }
            let except: Vec<&Selector<&str>> = except.iter().collect();
            let can = can_fit(&selector.requirements, &except);
            (can == Some(false)).then_some(None)
        }
        NamespaceSet::Exact(_)
        | NamespaceSet::Own
        | NamespaceSet::NotOwn
        | NamespaceSet::SameLabels(_)
        | NamespaceSet::NotSameLabels(_) => None,
    }
}

/// Whether a pod can be in both sets; `false` if that is not found out.
pub(super) fn can_meet(a: &PodSet<'_>, b: &PodSet<'_>) -> bool {
    let pods = [a, b].into_iter().filter_map(|it| it.pods.as_ref());
    let pods: Conditions<'_> = pods
        .flat_map(|it| it.requirements.iter().cloned())
        .collect();
    if contradiction(&pods, Whose::Other).is_some() {
        return false;
    }
    let mut requirements: Conditions<'_> = Vec::new();
    let mut excepted = Vec::new();
    for set in [a, b] {
        if let NamespaceSet::Selected { selector, except } = &set.namespaces {
            requirements.extend(selector.requirements.iter().cloned());
            excepted.extend(except);
        }
    }
    can_fit(&requirements, &excepted).unwrap_or(false)
}
