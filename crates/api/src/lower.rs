//! From objects to a cluster: one model for every API version.
//!
//! Lowering cannot fail. Unreadable parts fail closed here, and nowhere else: rules in
//! `lower/policies.rs`, by `fail_closed`. Every object is destructured field by field: a new field
//! does not compile until its lowering is written.

mod endpoints;
mod policies;
mod services;
mod unread;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use palisade_core::budget::{Budget, OverBudget};
use palisade_core::incremental::ObjectKey;
use palisade_core::model::{Cluster, Labels, Namespace, NamespaceId, Origin};
use palisade_core::owners::conflicts;
use rayon::slice::ParallelSliceMut as _;

use crate::kind::Kind;
use crate::metadata::Metadata;
use crate::object::{Object, ObjectSpec};
use crate::problem::{Code, Problem};

pub use self::unread::{Unread, UnreadScope, unread};

/// The result of lowering all objects.
#[derive(Debug)]
pub struct Lowered<'o> {
    /// The cluster.
    pub cluster: Cluster<'o>,
    /// The problems that no single object shows.
    pub problems: Vec<Problem>,
}

/// Lowers objects. Of duplicate objects the later one counts. `learned` has the addresses that
/// domain names have resolved to.
pub fn lower<'o>(objects: &'o [Object<'_>], learned: Vec<(String, IpAddr)>) -> Lowered<'o> {
    lower_within(objects, learned, Budget::default())
}

/// [`lower`] with this budget for the NetworkPolicies of each namespace (D148).
pub fn lower_within<'o>(
    objects: &'o [Object<'_>],
    learned: Vec<(String, IpAddr)>,
    budget: Budget,
) -> Lowered<'o> {
    let objects = Objects::new(objects);
    let mut cluster = Cluster {
        namespaces: namespaces(&objects),
        learned,
        ..Cluster::default()
    };
    endpoints::lower(&objects, &mut cluster);
    services::lower(&objects, &mut cluster);
    policies::lower(&objects, &mut cluster, policies::Isolation::ByAnnotation);
    let over = palisade_core::budget::apply(&mut cluster, budget);
    let mut problems = problems(&objects, &cluster);
    problems.extend(over_budget(&objects, &cluster, &over));
    problems.sort_by_key(|it| (it.source, it.span.start, it.span.end, it.code));
    Lowered { cluster, problems }
}

/// Lowers one object, for incremental updates. A 2016 policy is included whether or not its
/// namespace is isolated: the caller knows the namespace (D69).
pub fn lower_one<'o>(object: &'o Object<'_>) -> Cluster<'o> {
    let objects = Objects::new(std::slice::from_ref(object));
    let mut cluster = Cluster {
        namespaces: namespaces(&objects),
        ..Cluster::default()
    };
    endpoints::lower(&objects, &mut cluster);
    policies::lower(&objects, &mut cluster, policies::Isolation::Anywhere);
    cluster
}

/// Returns the key of an object in incremental updates; `None`: no plan of a node depends on its
/// kind.
pub fn key<'k>(object: &'k Object<'_>) -> Option<ObjectKey<'k>> {
    Some(ObjectKey {
        kind: object.kind.enforced()?,
        namespace: object.namespace().unwrap_or_default(),
        name: &object.metadata.name,
    })
}

/// The objects that count, with their places.
struct Objects<'o, 'a> {
    all: &'o [Object<'a>],
    list: Vec<(Origin, &'o Object<'a>)>,
    /// The pods that count, by namespace and name.
    pods: Vec<PodKey<'o>>,
    /// The names of the namespaces, in order.
    namespaces: Vec<&'o str>,
    namespace_ids: HashMap<&'o str, NamespaceId>,
}

/// The sort key of pods: the namespace, the first bytes of the name as a number (so few texts are
/// compared), the name, and the index of the object.
type PodKey<'o> = (NamespaceId, u128, &'o str, Origin);

impl<'o, 'a> Objects<'o, 'a> {
    fn new(objects: &'o [Object<'a>]) -> Objects<'o, 'a> {
        let (namespaces, namespace_ids, namespaces_of) = namespaces_of(objects);
        let mut is_replaced = vec![false; objects.len()];
        let mut last: HashMap<(Kind, &str, &str), usize> = HashMap::new();
        let mut pods = Vec::new();
        for (index, (object, namespace)) in objects.iter().zip(namespaces_of).enumerate() {
            if object.kind == Kind::Pod {
                let name = &*object.metadata.name;
                pods.push((namespace, first_bytes(name), name, origin(index)));
            } else if !object.metadata.name.is_empty()
                && let Some(before) = last.insert(place(object), index)
                && let Some(is_replaced) = is_replaced.get_mut(before)
            {
                *is_replaced = true;
            }
        }
        // There are many pods, and they must be sorted anyway: duplicates become neighbours.
        pods.par_sort_unstable();
        let twice = pods.iter().zip(pods.iter().skip(1));
        for ((namespace, _, name, before), (its_namespace, _, its_name, _)) in twice {
            if (namespace, name) == (its_namespace, its_name)
                && !name.is_empty()
                && let Some(is_replaced) = is_replaced.get_mut(before.0 as usize)
            {
                *is_replaced = true;
            }
        }
        let counts = |origin: Origin| is_replaced.get(origin.0 as usize) == Some(&false);
        pods.retain(|(.., origin)| counts(*origin));
        let list = objects.iter().enumerate();
        let list = list.map(|(index, object)| (origin(index), object));
        Objects {
            all: objects,
            list: list.filter(|(origin, _)| counts(*origin)).collect(),
            pods,
            namespaces,
            namespace_ids,
        }
    }

    /// The namespace of an object.
    fn namespace_of(&self, object: &Object<'_>) -> NamespaceId {
        let namespace = object.namespace().unwrap_or_default();
        let known = self.namespace_ids.get(namespace).copied();
        // The list has the namespace of every object.
        known.unwrap_or(NamespaceId(u32::MAX))
    }

    /// The object at a place.
    fn object(&self, origin: Origin) -> Option<&'o Object<'a>> {
        self.all.get(origin.0 as usize)
    }
}

fn origin(index: usize) -> Origin {
    Origin(u32::try_from(index).unwrap_or(u32::MAX))
}

/// The first bytes of a text, in an order that agrees with that of the texts.
fn first_bytes(text: &str) -> u128 {
    let mut bytes = [0; 16];
    for (to, from) in bytes.iter_mut().zip(text.bytes()) {
        *to = from;
    }
    u128::from_be_bytes(bytes)
}

/// The names of all namespaces in order, their numbers, and the namespace of each object.
type NamespacesOf<'o> = (
    Vec<&'o str>,
    HashMap<&'o str, NamespaceId>,
    Vec<NamespaceId>,
);

fn namespaces_of<'o>(objects: &'o [Object<'_>]) -> NamespacesOf<'o> {
    let mut ids: HashMap<&'o str, NamespaceId> = HashMap::new();
    let mut names: Vec<&'o str> = Vec::new();
    let mut of_objects = Vec::with_capacity(objects.len());
    // Objects of one namespace often come together.
    let mut last: Option<(&'o str, NamespaceId)> = None;
    for object in objects {
        let namespace = if object.kind == Kind::Namespace {
            Some(&*object.metadata.name)
        } else {
            object.namespace()
        };
        let Some(namespace) = namespace else {
            of_objects.push(NamespaceId(u32::MAX));
            continue;
        };
        let id = match last {
            Some((name, id)) if name == namespace => id,
            _ => *ids.entry(namespace).or_insert_with(|| {
                names.push(namespace);
                NamespaceId(u32::try_from(names.len() - 1).unwrap_or(u32::MAX))
            }),
        };
        last = Some((namespace, id));
        of_objects.push(id);
    }
    // Numbers were assigned in input order; they must be in the order of names.
    let mut sorted = names.clone();
    sorted.sort_unstable();
    for (index, name) in sorted.iter().enumerate() {
        let id = NamespaceId(u32::try_from(index).unwrap_or(u32::MAX));
        ids.insert(name, id);
    }
    let numbers: Vec<Option<NamespaceId>> =
        names.iter().map(|name| ids.get(name).copied()).collect();
    for of_object in &mut of_objects {
        let number = numbers.get(of_object.0 as usize).copied().flatten();
        *of_object = number.unwrap_or(NamespaceId(u32::MAX));
    }
    (sorted, ids, of_objects)
}

fn place<'k>(object: &'k Object<'_>) -> (Kind, &'k str, &'k str) {
    let namespace = object.namespace().unwrap_or_default();
    (object.kind, namespace, &object.metadata.name)
}

const NAME_LABEL: &str = "kubernetes.io/metadata.name";

fn namespaces<'o>(objects: &Objects<'o, '_>) -> Vec<Namespace<'o>> {
    let mut known: HashMap<&str, &Metadata<'_>> = HashMap::new();
    for (_, object) in &objects.list {
        if object.kind == Kind::Namespace {
            known.insert(&object.metadata.name, &object.metadata);
        }
    }
    let namespace = |name: &'o str| {
        let object = known.get(name);
        let mut labels: Vec<(&'o str, &'o str)> = Vec::new();
        if let Some(metadata) = object {
            let others = metadata.labels.iter().filter(|(key, _)| key != NAME_LABEL);
            labels.extend(others.map(|(key, value)| (&**key, &**value)));
        }
        // Even if the object has another value, this label is the name (D23).
        labels.push((NAME_LABEL, name));
        labels.sort_unstable();
        Namespace {
            name,
            labels: labels.into(),
            has_object: object.is_some(),
        }
    };
    objects
        .namespaces
        .iter()
        .map(|name| namespace(name))
        .collect()
}

/// Labels as policies see them.
fn labels<'o>(labels: &'o crate::metadata::Labels<'_>) -> Labels<'o> {
    let pairs = labels.iter().map(|(key, value)| (&**key, &**value));
    let mut labels: Labels<'o> = pairs.collect();
    // This is the only reference.
    if let Some(labels) = Arc::get_mut(&mut labels) {
        labels.sort_unstable();
    }
    labels
}

/// The problems that no single object shows.
fn problems(objects: &Objects<'_, '_>, cluster: &Cluster<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut reported = vec![false; cluster.namespaces.len()];
    let is_unknown = cluster.namespaces.iter().any(|it| !it.has_object);
    for (_, object) in objects.list.iter().filter(|_| is_unknown) {
        let ObjectSpec::Pod(_) = object.spec else {
            continue;
        };
        let id = objects.namespace_of(object).0 as usize;
        let known = cluster.namespaces.get(id).is_some_and(|it| it.has_object);
        let Some(reported) = reported
            .get_mut(id)
            .filter(|reported| !known && !**reported)
        else {
            continue;
        };
        *reported = true;
        let name = object.namespace().unwrap_or_default();
        let message = format!("the input has no Namespace `{name}`; its only label is its name");
        let help = "add the Namespace object if policies select namespaces by label";
        problems.push(problem(Code::NamespaceUnknown, object, message, help));
    }
    for conflict in conflicts(cluster) {
        let winner = cluster.pods.get(conflict.winner.0 as usize);
        let loser = conflict
            .loser
            .and_then(|it| cluster.pods.get(it.0 as usize));
        let Some(object) = loser.or(winner).and_then(|pod| objects.object(pod.origin)) else {
            continue;
        };
        let winner = cluster.pod_name(conflict.winner);
        let message = match conflict.loser {
            Some(_) => format!(
                "`{winner}` also has the address {} and keeps it",
                conflict.address
            ),
            None => format!(
                "a node also has the address {}; it counts as the pod's",
                conflict.address
            ),
        };
        let help = "one of them was probably deleted; read the objects again";
        problems.push(problem(Code::IpConflict, object, message, help));
    }
    problems
}

/// The policies that do not fit into the budgets of their namespaces.
fn over_budget(
    objects: &Objects<'_, '_>,
    cluster: &Cluster<'_>,
    over: &[OverBudget],
) -> Vec<Problem> {
    let problem = |OverBudget { policy, entries }: &OverBudget| {
        let policy = cluster.policies.get(policy.0 as usize)?;
        let object = objects.object(policy.origin)?;
        let namespace = object.namespace().unwrap_or_default();
        let most = cluster.budget.entries();
        let message = if *entries > most {
            format!(
                "the policy has {entries} entries, more than the {most} of a namespace's budget; it isolates its pods, and none of its rules has an effect"
            )
        } else {
            format!(
                "the policies of `{namespace}` have more than {most} entries together; this one, with {entries}, does not fit: it isolates its pods, and none of its rules has an effect"
            )
        };
        let help = "write fewer ports, peers and exceptions, or raise --namespace-budget, also for the agents";
        Some(problem(Code::OverBudget, object, message, help))
    };
    over.iter().filter_map(problem).collect()
}

fn problem(code: Code, object: &Object<'_>, message: String, help: &str) -> Problem {
    Problem {
        code,
        source: object.source,
        span: object.metadata.name_span,
        object: Some(object.id()),
        path: None,
        message,
        help: Some(help.to_owned()),
        related: None,
    }
}
