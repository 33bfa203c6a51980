//! From objects to the cluster they mean: one model for every generation.
//!
//! Lowering cannot fail. What could not be read has failed closed here, and nowhere else: rules in
//! `lower/policies.rs`, by `fail_closed`. Every object is taken apart field by field, so that a new
//! field does not compile until someone has decided what it means.

mod endpoints;
mod policies;
mod services;

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::net::IpAddr;

use palisade_core::compile::conflicts;
use palisade_core::model::{Cluster, Labels, Namespace, NamespaceId, Origin};

use crate::kind::Kind;
use crate::metadata::Metadata;
use crate::object::{Body, Object};
use crate::problem::{Code, Problem};

/// What objects mean together.
#[derive(Debug)]
pub struct Lowered<'o> {
    /// The cluster.
    pub cluster: Cluster<'o>,
    /// What is remarkable about them together.
    pub problems: Vec<Problem>,
}

/// Lowers objects. Of an object that is given twice the later one counts. `learned` says what
/// domain names have resolved to.
pub fn lower<'o>(objects: &'o [Object<'_>], learned: Vec<(String, IpAddr)>) -> Lowered<'o> {
    let objects = Objects::new(objects);
    let mut cluster = Cluster {
        namespaces: namespaces(&objects),
        learned,
        ..Cluster::default()
    };
    endpoints::lower(&objects, &mut cluster);
    services::lower(&objects, &mut cluster);
    policies::lower(&objects, &mut cluster);
    let problems = problems(&objects, &cluster);
    Lowered { cluster, problems }
}

/// The objects that count, with their places.
struct Objects<'o, 'a> {
    list: Vec<(Origin, &'o Object<'a>)>,
    namespaces: BTreeMap<&'o str, NamespaceId>,
}

impl<'o, 'a> Objects<'o, 'a> {
    fn new(objects: &'o [Object<'a>]) -> Objects<'o, 'a> {
        let mut last: HashMap<(Kind, &str, &str), usize> = HashMap::with_capacity(objects.len());
        for (index, object) in objects.iter().enumerate() {
            last.insert(key(object), index);
        }
        let is_last = |(index, object): &(usize, &Object<'_>)| {
            object.metadata.name.is_empty() || last.get(&key(object)) == Some(index)
        };
        let counted = objects.iter().enumerate().filter(is_last);
        let counted = counted
            .map(|(index, object)| (Origin(u32::try_from(index).unwrap_or(u32::MAX)), object));
        let mut objects = Objects {
            list: counted.collect(),
            namespaces: BTreeMap::new(),
        };
        for (_, object) in &objects.list {
            let namespace = if object.kind == Kind::Namespace {
                Some(&*object.metadata.name)
            } else {
                object.namespace()
            };
            if let Some(namespace) = namespace {
                objects.namespaces.insert(namespace, NamespaceId(0));
            }
        }
        for (index, id) in objects.namespaces.values_mut().enumerate() {
            *id = NamespaceId(u32::try_from(index).unwrap_or(u32::MAX));
        }
        objects
    }

    /// The namespace that an object lives in.
    fn namespace_of(&self, object: &Object<'_>) -> NamespaceId {
        let namespace = object.namespace().unwrap_or_default();
        let known = self.namespaces.get(namespace).copied();
        // Every namespace of every object was put there.
        known.unwrap_or(NamespaceId(u32::MAX))
    }
}

fn key<'k>(object: &'k Object<'_>) -> (Kind, &'k str, &'k str) {
    let namespace = object.namespace().unwrap_or_default();
    (object.kind, namespace, &object.metadata.name)
}

const NAME_LABEL: &str = "kubernetes.io/metadata.name";

fn namespaces<'o>(objects: &Objects<'o, '_>) -> Vec<Namespace<'o>> {
    let mut given: HashMap<&str, &Metadata<'_>> = HashMap::new();
    for (_, object) in &objects.list {
        if object.kind == Kind::Namespace {
            given.insert(&object.metadata.name, &object.metadata);
        }
    }
    let namespace = |name: &'o str| {
        let object = given.get(name);
        let mut labels: Labels<'o> = Vec::new();
        if let Some(metadata) = object {
            let others = metadata.labels.iter().filter(|(key, _)| key != NAME_LABEL);
            labels.extend(others.map(|(key, value)| (&**key, &**value)));
        }
        // Whatever the object says, this label is the name (D23).
        labels.push((NAME_LABEL, name));
        labels.sort_unstable();
        Namespace {
            name,
            labels,
            known: object.is_some(),
        }
    };
    objects
        .namespaces
        .keys()
        .map(|name| namespace(name))
        .collect()
}

/// Labels as policies see them.
fn labels<'o>(labels: &'o crate::metadata::Labels<'_>) -> Labels<'o> {
    let mut labels: Labels<'o> = labels
        .iter()
        .map(|(key, value)| (&**key, &**value))
        .collect();
    labels.sort_unstable();
    labels
}

/// What is remarkable about the objects together.
fn problems(objects: &Objects<'_, '_>, cluster: &Cluster<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut told = vec![false; cluster.namespaces.len()];
    for (_, object) in &objects.list {
        let Body::Pod(_) = object.body else { continue };
        let id = objects.namespace_of(object).0 as usize;
        let known = cluster.namespaces.get(id).is_some_and(|it| it.known);
        let Some(told) = told.get_mut(id).filter(|told| !known && !**told) else {
            continue;
        };
        *told = true;
        let name = object.namespace().unwrap_or_default();
        let message =
            format!("the namespace `{name}` is not given, so it has no label but its name");
        let help = "give the Namespace object as well, if policies select namespaces by label";
        problems.push(problem(Code::NamespaceUnknown, object, message, help));
    }
    let object_of = |origin: Origin| {
        let found = objects.list.binary_search_by_key(&origin, |(it, _)| *it);
        found
            .ok()
            .and_then(|at| objects.list.get(at))
            .map(|(_, object)| *object)
    };
    for conflict in conflicts(cluster) {
        let winner = cluster.pods.get(conflict.winner.0 as usize);
        let loser = conflict
            .loser
            .and_then(|it| cluster.pods.get(it.0 as usize));
        let Some(object) = loser.or(winner).and_then(|pod| object_of(pod.origin)) else {
            continue;
        };
        let winner = cluster.pod_name(conflict.winner);
        let message = match conflict.loser {
            Some(_) => format!(
                "the address {} belongs to `{winner}` as well, which keeps it",
                conflict.address
            ),
            None => format!(
                "the address {} is also a node's; it counts as the pod's",
                conflict.address
            ),
        };
        let help = "one of them is probably gone: take the objects anew";
        problems.push(problem(Code::IpConflict, object, message, help));
    }
    problems.sort_by_key(|it| (it.source, it.span.start, it.span.end, it.code));
    problems
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
