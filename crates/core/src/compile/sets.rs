//! Pod sets: the subjects and peers of all policies, each matched once against all classes.

use std::collections::HashMap;

use rustc_hash::FxHashMap;

use super::labels::{LabelSpace, count};
use crate::model::{Cluster, NamespaceId, NamespaceSet, PodSet, label};
use crate::program::{NONE, Relation};

/// Which namespaces a pod set is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Scope {
    One(u32),
    /// By namespace selectors: one, less others.
    Selected(u32, Vec<u32>),
    /// Any; whether the subject's namespace fits is asked at the flow.
    Related(u32),
}

/// A kind of relation, before it is applied to namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RelationKey<'a> {
    same: bool,
    /// The keys to compare; none compares the names.
    keys: Option<Vec<&'a str>>,
}

/// All pod sets.
#[derive(Debug, Default)]
pub(super) struct PodSets<'a> {
    pub(super) pods: LabelSpace<'a>,
    namespaces: LabelSpace<'a>,
    sets: Vec<(Scope, Option<u32>)>,
    ids: FxHashMap<(Scope, Option<u32>), u32>,
    relations: Vec<RelationKey<'a>>,
    relation_ids: HashMap<RelationKey<'a>, u32>,
}

impl<'a> PodSets<'a> {
    /// The number of a set; equal ones have one number.
    pub(super) fn add(&mut self, set: &PodSet<'a>) -> u32 {
        let scope = match &set.namespaces {
            NamespaceSet::Exact(NamespaceId(namespace)) => Scope::One(*namespace),
            NamespaceSet::Selected { selector, except } => {
                let selector = self.namespaces.selector(selector);
                let except = except.iter().map(|it| self.namespaces.selector(it));
                let mut except: Vec<u32> = except.collect();
                except.sort_unstable();
                except.dedup();
                Scope::Selected(selector, except)
            }
            NamespaceSet::Own => Scope::Related(self.relation(true, None)),
            NamespaceSet::NotOwn => Scope::Related(self.relation(false, None)),
            NamespaceSet::SameLabels(keys) => Scope::Related(self.relation(true, Some(keys))),
            NamespaceSet::NotSameLabels(keys) => Scope::Related(self.relation(false, Some(keys))),
        };
        let pods = set.pods.as_ref().map(|pods| self.pods.selector(pods));
        let key = (scope, pods);
        if let Some(known) = self.ids.get(&key) {
            return *known;
        }
        let id = count(self.sets.len());
        self.sets.push(key.clone());
        self.ids.insert(key, id);
        id
    }

    fn relation(&mut self, same: bool, keys: Option<&Vec<&'a str>>) -> u32 {
        let keys = keys.map(|keys| {
            let mut keys = keys.clone();
            keys.sort_unstable();
            keys.dedup();
            keys
        });
        let key = RelationKey { same, keys };
        if let Some(known) = self.relation_ids.get(&key) {
            return *known;
        }
        let id = count(self.relations.len());
        self.relations.push(key.clone());
        self.relation_ids.insert(key, id);
        id
    }

    pub(super) fn len(&self) -> usize {
        self.sets.len()
    }

    /// The relation of each set, if it has one.
    pub(super) fn set_relations(&self) -> Vec<Option<u32>> {
        let relation = |(scope, _): &(Scope, Option<u32>)| match scope {
            Scope::Related(relation) => Some(*relation),
            Scope::One(_) | Scope::Selected(..) => None,
        };
        self.sets.iter().map(relation).collect()
    }

    /// The relations, applied to the namespaces.
    pub(super) fn relations(&self, cluster: &Cluster<'_>) -> Vec<Relation> {
        let groups = |key: &RelationKey<'_>| {
            let Some(keys) = &key.keys else {
                return (0..count(cluster.namespaces.len())).collect();
            };
            let mut groups: HashMap<Vec<&str>, u32> = HashMap::new();
            let mut numbers: Vec<u32> = Vec::with_capacity(cluster.namespaces.len());
            for namespace in &cluster.namespaces {
                let values = keys.iter().map(|key| label(&namespace.labels, key));
                let values: Option<Vec<&str>> = values.collect();
                // An empty list of keys relates nothing (D46, D47).
                numbers.push(match values.filter(|_| !keys.is_empty()) {
                    None => NONE,
                    Some(values) => {
                        let next = count(groups.len());
                        *groups.entry(values).or_insert(next)
                    }
                });
            }
            numbers
        };
        let relations = self.relations.iter().map(|key| Relation {
            same: key.same,
            groups: groups(key),
        });
        relations.collect()
    }

    /// For each class of pods, given as namespace and label set, the sets it is in, ascending.
    /// The sets that depend on a relation hold the pods that could be meant.
    pub(super) fn of_classes(
        &mut self,
        cluster: &Cluster<'a>,
        classes: &[(u32, u32)],
    ) -> Vec<Vec<u32>> {
        let index = ClassIndex::new(classes, cluster.namespaces.len(), self.pods.n_sets());
        let namespaces = NamespaceMatches::new(&mut self.namespaces, cluster);
        let pod_matches = self.pods.matches();
        let mut in_sets = vec![Vec::new(); classes.len()];
        for (id, (scope, selector)) in self.sets.iter().enumerate() {
            let label_sets = selector.map(|selector| {
                pod_matches
                    .get(selector as usize)
                    .map_or(&[][..], Vec::as_slice)
            });
            let selected = match scope {
                Scope::Selected(selector, except) => Some(namespaces.of(*selector, except)),
                Scope::One(_) | Scope::Related(_) => None,
            };
            let candidates = match (scope, label_sets) {
                (Scope::One(namespace), _) => index.of_namespaces(&[*namespace]),
                (_, Some(label_sets)) => index.of_label_sets(label_sets),
                (Scope::Selected(..), None) => {
                    index.of_namespaces(selected.as_deref().unwrap_or_default())
                }
                (Scope::Related(_), None) => (0..count(classes.len())).collect(),
            };
            for class in candidates {
                let Some((namespace, label_set)) = classes.get(class as usize) else {
                    continue;
                };
                let namespace_fits = match (scope, &selected) {
                    (_, Some(selected)) => selected.binary_search(namespace).is_ok(),
                    (Scope::One(one), None) => one == namespace,
                    (Scope::Selected(..) | Scope::Related(_), None) => true,
                };
                let labels_fit = label_sets.is_none_or(|it| it.binary_search(label_set).is_ok());
                if namespace_fits
                    && labels_fit
                    && let Some(sets) = in_sets.get_mut(class as usize)
                {
                    sets.push(count(id));
                }
            }
        }
        in_sets
    }
}

/// Which classes a namespace and a label set have.
struct ClassIndex {
    by_namespace: Vec<Vec<u32>>,
    by_label_set: Vec<Vec<u32>>,
}

impl ClassIndex {
    fn new(classes: &[(u32, u32)], n_namespaces: usize, n_label_sets: usize) -> ClassIndex {
        let mut index = ClassIndex {
            by_namespace: vec![Vec::new(); n_namespaces],
            by_label_set: vec![Vec::new(); n_label_sets],
        };
        for (class, (namespace, label_set)) in classes.iter().enumerate() {
            if let Some(list) = index.by_namespace.get_mut(*namespace as usize) {
                list.push(count(class));
            }
            if let Some(list) = index.by_label_set.get_mut(*label_set as usize) {
                list.push(count(class));
            }
        }
        index
    }

    fn of_namespaces(&self, namespaces: &[u32]) -> Vec<u32> {
        let lists = namespaces.iter();
        let lists = lists.filter_map(|it| self.by_namespace.get(*it as usize));
        lists.flatten().copied().collect()
    }

    fn of_label_sets(&self, label_sets: &[u32]) -> Vec<u32> {
        let lists = label_sets.iter();
        let lists = lists.filter_map(|it| self.by_label_set.get(*it as usize));
        lists.flatten().copied().collect()
    }
}

/// The namespaces that each namespace selector selects, ascending.
struct NamespaceMatches {
    of_selector: Vec<Vec<u32>>,
}

impl NamespaceMatches {
    fn new<'a>(space: &mut LabelSpace<'a>, cluster: &Cluster<'a>) -> NamespaceMatches {
        let mut with_set: Vec<Vec<u32>> = Vec::new();
        for (id, namespace) in cluster.namespaces.iter().enumerate() {
            let set = space.set(&namespace.labels) as usize;
            if set >= with_set.len() {
                with_set.resize(set + 1, Vec::new());
            }
            if let Some(list) = with_set.get_mut(set) {
                list.push(count(id));
            }
        }
        let of = |sets: Vec<u32>| {
            let lists = sets.iter();
            let lists = lists.filter_map(|set| with_set.get(*set as usize));
            let mut namespaces: Vec<u32> = lists.flatten().copied().collect();
            namespaces.sort_unstable();
            namespaces
        };
        NamespaceMatches {
            of_selector: space.matches().into_iter().map(of).collect(),
        }
    }

    fn of(&self, selector: u32, except: &[u32]) -> Vec<u32> {
        let list = |selector: u32| {
            self.of_selector
                .get(selector as usize)
                .map_or(&[][..], Vec::as_slice)
        };
        let is_excepted = |namespace: &u32| {
            except
                .iter()
                .any(|it| list(*it).binary_search(namespace).is_ok())
        };
        let selected = list(selector).iter().copied();
        selected.filter(|it| !is_excepted(it)).collect()
    }
}
