//! Policies without an effect, because they or their subjects are unreadable: verdicts that ignore
//! them may be wrong.

use std::collections::{HashMap, HashSet};

use palisade_core::policy::Direction;

use super::place;
use crate::kind::Kind;
use crate::manifest::Manifests;
use crate::object::{Namespace, Object, ObjectSpec};
use crate::problem::{Code, Problem, SourceId};

/// An unreadable policy, or an unreadable document that may be one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// The identifier; `None`: unknown.
    pub object: Option<String>,
    /// Why it has no effect.
    pub problem: Problem,
    /// Which pods it may be for.
    pub scope: UnreadScope,
    /// Whether it may decide about traffic to them, and from them.
    pub decides: [bool; 2],
}

/// The pods that an unreadable policy may be for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnreadScope {
    /// Those of every namespace.
    Cluster,
    /// Those of one namespace.
    Namespace(String),
    /// Those of every namespace, because its own is unknown.
    Unknown,
}

impl Unread {
    /// An unreadable document.
    pub(crate) fn document(problem: Problem, scope: UnreadScope) -> Unread {
        Unread {
            object: problem.object.clone(),
            problem,
            scope,
            decides: [true, true],
        }
    }

    /// Whether it could select pods of a namespace, in a direction.
    pub fn could_select(&self, direction: Direction, namespace: &str) -> bool {
        let [ingress, egress] = self.decides;
        let decides = match direction {
            Direction::Ingress => ingress,
            Direction::Egress => egress,
        };
        decides
            && match &self.scope {
                UnreadScope::Cluster | UnreadScope::Unknown => true,
                UnreadScope::Namespace(its) => its == namespace,
            }
    }
}

/// Returns what `--lenient` continues without: policies with an unreadable subject (D20, D110),
/// unreadable policies (D123), and unreadable documents, in the order of the sources.
pub fn unread(manifests: &Manifests<'_>) -> Vec<Unread> {
    let mut found = manifests.dropped.clone();
    let mut errors: HashMap<(SourceId, Option<&str>), Vec<&Problem>> = HashMap::new();
    for problem in manifests.problems.iter().filter(|it| it.is_error()) {
        let key = (problem.source, problem.object.as_deref());
        errors.entry(key).or_default().push(problem);
    }
    if !errors.is_empty() {
        let policies = || {
            let objects = manifests.objects.iter().enumerate();
            objects.filter(|(_, object)| object.kind.is_policy())
        };
        // Of duplicate objects the later one counts.
        let last: HashMap<_, usize> = policies()
            .map(|(index, object)| (place(object), index))
            .collect();
        let isolated = isolated(&manifests.objects);
        for (index, object) in policies() {
            let is_last = last.get(&place(object)) == Some(&index);
            if !is_last && !object.metadata.name.is_empty() {
                continue;
            }
            // Without isolation of the namespace a 2016 policy has no effect (D69).
            let is_without_isolation = object.kind == Kind::NetworkPolicy2016
                && !isolated.contains(object.namespace().unwrap_or_default());
            if !is_without_isolation && !super::policies::is_audited(object) {
                found.extend(of_object(object, &errors));
            }
        }
    }
    found.sort_by_key(|it| (it.problem.source, it.problem.span.start));
    found
}

/// The namespaces that the 2016 annotation isolates.
fn isolated<'o>(objects: &'o [Object<'_>]) -> HashSet<&'o str> {
    let isolated = objects.iter().filter(|it| {
        let isolated = ObjectSpec::Namespace(Namespace { isolated: true });
        it.spec == isolated
    });
    isolated.map(|it| &*it.metadata.name).collect()
}

/// Returns a policy without an effect, with the problem that it is due to.
fn of_object(
    object: &Object<'_>,
    errors: &HashMap<(SourceId, Option<&str>), Vec<&Problem>>,
) -> Option<Unread> {
    let decides = directions(&object.spec)?;
    let is_named = !object.metadata.name.is_empty();
    let id = is_named.then(|| object.id());
    let its = errors.get(&(object.source, id.as_deref()))?.iter();
    let its = its.filter(|it| it.span.start >= object.span.start);
    let problem = its.min_by_key(|it| distance_from_subject(it))?;
    let is_misread = object.spec == ObjectSpec::Unreadable;
    let scope = if !object.kind.is_namespaced() {
        UnreadScope::Cluster
    } else if is_named && !(is_misread && object.metadata.namespace.is_none()) {
        UnreadScope::Namespace(object.namespace().unwrap_or_default().to_owned())
    } else {
        UnreadScope::Unknown
    };
    Some(Unread {
        object: id.clone(),
        problem: (*problem).clone(),
        scope,
        decides,
    })
}

/// Returns whether a policy decides about ingress and egress; `None`: its subject is readable, or
/// it decides nothing.
fn directions(spec: &ObjectSpec<'_>) -> Option<[bool; 2]> {
    let decides = match spec {
        ObjectSpec::NetworkPolicy(policy) if policy.pod_selector.is_err() => [
            policy.isolates(Direction::Ingress),
            policy.isolates(Direction::Egress),
        ],
        ObjectSpec::NetworkPolicy2016(policy) if policy.pod_selector.is_err() => [true, false],
        ObjectSpec::ClusterPolicy(policy) if policy.subject.is_err() => {
            [!policy.ingress.is_empty(), !policy.egress.is_empty()]
        }
        ObjectSpec::EarlyPolicy(policy) if policy.applied_to.is_err() => [true, true],
        ObjectSpec::Unreadable => [true, true],
        ObjectSpec::NetworkPolicy(_)
        | ObjectSpec::NetworkPolicy2016(_)
        | ObjectSpec::ClusterPolicy(_)
        | ObjectSpec::EarlyPolicy(_)
        | ObjectSpec::Namespace(_)
        | ObjectSpec::Pod(_)
        | ObjectSpec::Node(_)
        | ObjectSpec::Service(_)
        | ObjectSpec::EndpointSlice(_)
        | ObjectSpec::Workload(_) => return None,
    };
    (decides != [false, false]).then_some(decides)
}

const SUBJECTS: [&str; 3] = ["spec.podSelector", "spec.subject", "spec.appliedTo"];
/// Parts whose problems leave the policy in effect.
const PARTS: [&str; 3] = ["spec.ingress", "spec.egress", "status"];

/// Orders the problems of an object: those of its subject, those of the object, those of its rules.
fn distance_from_subject(problem: &Problem) -> u8 {
    let path = problem.path.as_deref().unwrap_or_default();
    if SUBJECTS.iter().any(|it| path.starts_with(it)) {
        // Another problem of the subject is often why it has no readable field.
        u8::from(problem.code == Code::InvalidSubject)
    } else if PARTS.iter().any(|it| path.starts_with(it)) {
        3
    } else {
        2
    }
}
