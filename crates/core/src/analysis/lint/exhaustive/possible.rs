//! Satisfiability of selectors: whether any object, existing or not, can match.
//!
//! A selector is a conjunction of requirements on single keys, and keys are independent. It is
//! therefore enough to look for a value of each key alone. `kubernetes.io/metadata.name` has the
//! name of the namespace (D23): it always exists, and its value must be a valid name.

use std::collections::BTreeMap;

use crate::labels::{Operator, Requirement, Selector};
use crate::model::{NamespaceSet, PodSet};

/// The label that every namespace has.
pub(super) const NAME: &str = "kubernetes.io/metadata.name";

/// The maximum number of combinations to try in [`can_fit`], which are the product of the
/// exceptions' lengths. Beyond it the result is unknown, and there is no finding.
const MAX_COMBINATIONS: usize = 4096;

/// The objects whose labels a selector matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LabelOwner {
    Namespace,
    Other,
}

type Conditions<'r> = Vec<Requirement<&'r str>>;

/// Returns a key whose requirements neither any value nor absence meets.
pub(super) fn contradiction<'r>(
    requirements: &[Requirement<&'r str>],
    whose: LabelOwner,
) -> Option<&'r str> {
    let mut by_key: BTreeMap<&str, Vec<&Requirement<&str>>> = BTreeMap::new();
    for it in requirements {
        by_key.entry(it.key).or_default().push(it);
    }
    let found = by_key.into_iter().find(|(key, list)| {
        let is_name = whose == LabelOwner::Namespace && *key == NAME;
        let fits = |value: Option<&str>| list.iter().all(|it| it.accepts(value));
        let mut named = list.iter().flat_map(|it| &it.values).copied();
        let by_value = named.any(|it| fits(Some(it)) && (!is_name || is_namespace_name(it)));
        // A value that no requirement lists meets `NotIn` and `Exists`. Values are unlimited, so
        // one such value always exists.
        let is_listed = list.iter().any(|it| it.operator == Operator::In);
        let must_be_absent = list.iter().any(|it| it.operator == Operator::DoesNotExist);
        let by_another = !is_listed && !must_be_absent;
        !(by_value || by_another || (!is_name && fits(None)))
    });
    found.map(|(key, _)| key)
}

/// Whether a namespace can have this name: a DNS label of RFC 1123.
fn is_namespace_name(name: &str) -> bool {
    let is_inner = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
    let ends = [name.bytes().next(), name.bytes().last()];
    name.len() <= 63
        && name.bytes().all(is_inner)
        && ends.iter().all(|it| it.is_some_and(|it| it != b'-'))
}

/// Returns the requirement that exactly the labels without this one meet. `NotIn` accepts a missing
/// key, so it is the exact opposite of `In`.
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

/// Whether some labels meet all requirements and match none of the exceptions; `None` if there are
/// too many combinations.
fn can_fit(requirements: &[Requirement<&str>], except: &[&Selector<&str>]) -> Option<bool> {
    let n_combinations: Option<usize> = except.iter().try_fold(1_usize, |n_combinations, it| {
        let n_combinations = n_combinations.checked_mul(it.requirements.len())?;
        (n_combinations <= MAX_COMBINATIONS).then_some(n_combinations)
    });
    // Labels match no exception if they violate at least one requirement of each. Each combination
    // is one requirement for each exception, encoded as a number of mixed radix.
    (0..n_combinations?).try_fold(false, |found, combination| {
        if found {
            return Some(true);
        }
        let mut all: Conditions<'_> = requirements.to_vec();
        let mut rest = combination;
        for it in except {
            let n = it.requirements.len();
            all.extend(it.requirements.get(rest % n.max(1)).map(negated));
            rest /= n.max(1);
        }
        Some(contradiction(&all, LabelOwner::Namespace).is_none())
    })
}

/// Returns a value if a set of pods can never have a member: the contradictory key, or `None`
/// inside if the exceptions together exclude everything.
pub(super) fn never(set: &PodSet<'_>) -> Option<Option<String>> {
    let pods = set.pods.as_ref().map_or(&[][..], |it| &it.requirements);
    if let Some(key) = contradiction(pods, LabelOwner::Other) {
        return Some(Some(key.to_owned()));
    }
    match &set.namespaces {
        NamespaceSet::Selected { selector, except } => {
            if let Some(key) = contradiction(&selector.requirements, LabelOwner::Namespace) {
                return Some(Some(key.to_owned()));
            }
            let except: Vec<&Selector<&str>> = except.iter().collect();
            let can = can_fit(&selector.requirements, &except);
            // Unknown is not a finding.
            (can == Some(false)).then_some(None)
        }
        NamespaceSet::Exact(_)
        | NamespaceSet::Own
        | NamespaceSet::NotOwn
        | NamespaceSet::SameLabels(_)
        | NamespaceSet::NotSameLabels(_) => None,
    }
}

/// Whether a pod can be in both sets; `false` if that is unknown.
pub(super) fn can_meet(a: &PodSet<'_>, b: &PodSet<'_>) -> bool {
    let pods = [a, b].into_iter().filter_map(|it| it.pods.as_ref());
    let pods: Conditions<'_> = pods
        .flat_map(|it| it.requirements.iter().cloned())
        .collect();
    if contradiction(&pods, LabelOwner::Other).is_some() {
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
