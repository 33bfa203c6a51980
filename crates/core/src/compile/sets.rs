//! Pod sets: the subjects and peers of all policies, each matched once against all classes.

use std::collections::HashMap;

use rustc_hash::FxHashMap;

use super::classes::{ClassIndex, SetMembers, SetsBuilder};
use super::labels::{LabelSpace, count};
use crate::id_set::{IdSet, ones, set_bit};
use crate::model::{Cluster, NamespaceId, NamespaceSet, PodSet, label};
use crate::program::{NONE, Relation};

/// The namespaces of a pod set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Scope {
    One(u32),
    /// Those that one selector selects, without those that others select.
    Selected(u32, Vec<u32>),
    /// Any. The relation to the subject's namespace is evaluated for each flow.
    Related(u32),
}

/// A relation between namespaces, before it is applied to those of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RelationKey<'a> {
    same: bool,
    /// The label keys to compare; `None`: names are compared.
    keys: Option<Vec<&'a str>>,
}

/// The distinct pod sets so far, and the selectors that they consist of.
#[derive(Debug, Default)]
pub(super) struct PodSets<'a> {
    pub(super) pods: LabelSpace<'a>,
    namespaces: LabelSpace<'a>,
    scopes: Vec<Scope>,
    scope_ids: FxHashMap<Scope, u32>,
    /// Scope and pod selector of each set.
    sets: Vec<(u32, Option<u32>)>,
    ids: FxHashMap<(u32, Option<u32>), u32>,
    relations: Vec<RelationKey<'a>>,
    relation_ids: HashMap<RelationKey<'a>, u32>,
}

impl<'a> PodSets<'a> {
    /// Returns the number of a set. Equal sets have the same number.
    pub(super) fn add(&mut self, set: &PodSet<'a>) -> u32 {
        let scope = match &set.namespaces {
            NamespaceSet::Exact(NamespaceId(namespace)) => Scope::One(*namespace),
            NamespaceSet::Selected { selector, except } => {
                let selector = self.namespaces.selector(selector);
                let except = except.iter().map(|it| self.namespaces.selector(it));
                let mut except: Vec<u32> = except.collect();
                // A namespace is excepted if any of these selects it: order does not matter (D67).
                except.sort_unstable();
                except.dedup();
                Scope::Selected(selector, except)
            }
            // These compare names: namespaces may have equal labels and are still different.
            NamespaceSet::Own => Scope::Related(self.relation(true, None)),
            NamespaceSet::NotOwn => Scope::Related(self.relation(false, None)),
            NamespaceSet::SameLabels(keys) => Scope::Related(self.relation(true, Some(keys))),
            NamespaceSet::NotSameLabels(keys) => Scope::Related(self.relation(false, Some(keys))),
        };
        let pods = set.pods.as_ref().map(|pods| self.pods.selector(pods));
        let scope = self.scope(scope);
        let id = count(self.sets.len());
        *self.ids.entry((scope, pods)).or_insert_with(|| {
            self.sets.push((scope, pods));
            id
        })
    }

    fn scope(&mut self, scope: Scope) -> u32 {
        if let Some(known) = self.scope_ids.get(&scope) {
            return *known;
        }
        let id = count(self.scopes.len());
        self.scopes.push(scope.clone());
        self.scope_ids.insert(scope, id);
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

    /// Returns the relation of each set, if it has one.
    pub(super) fn set_relations(&self) -> Vec<Option<u32>> {
        let relation = |(scope, _): &(u32, Option<u32>)| match self.scopes.get(*scope as usize)? {
            Scope::Related(relation) => Some(*relation),
            Scope::One(_) | Scope::Selected(..) => None,
        };
        self.sets.iter().map(relation).collect()
    }

    /// Returns the relations, applied to the namespaces of the cluster.
    pub(super) fn relations(&self, cluster: &Cluster<'_>) -> Vec<Relation> {
        // Namespaces of one group agree in all keys. A verdict compares two numbers and no labels.
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

    /// Matches all sets against the classes of pods: pairs of namespace and label set, sorted by
    /// namespace. A set with a relation has pods of all namespaces, related or not.
    pub(super) fn of_classes(
        &mut self,
        cluster: &Cluster<'a>,
        classes: &[(u32, u32)],
    ) -> SetMembers {
        let index = ClassIndex::new(classes, cluster.namespaces.len(), self.pods.n_sets());
        let scopes = self.scope_members(cluster);
        let selectors = self.pods.matches();
        let mut builder = SetsBuilder::new(&index, &scopes, &selectors, self.sets.len());
        // Sets of one selector are adjacent: `SetsBuilder` keeps the bits of one selector only.
        let mut order: Vec<(Option<u32>, u32, u32)> = Vec::with_capacity(self.sets.len());
        let sets = self.sets.iter().enumerate();
        order.extend(sets.map(|(id, (scope, selector))| (*selector, *scope, count(id))));
        order.sort_unstable();
        for (selector, scope, id) in order {
            builder.add(id, scope, selector);
        }
        builder.finish()
    }

    /// Returns the namespaces of each scope; `None`: all.
    fn scope_members(&mut self, cluster: &Cluster<'a>) -> Vec<Option<IdSet>> {
        let n_namespaces = cluster.namespaces.len();
        let mut with_set: Vec<Vec<u32>> = Vec::new();
        for (id, namespace) in cluster.namespaces.iter().enumerate() {
            let set = self.namespaces.set(&namespace.labels) as usize;
            if set >= with_set.len() {
                with_set.resize(set + 1, Vec::new());
            }
            if let Some(list) = with_set.get_mut(set) {
                list.push(count(id));
            }
        }
        // Selectors were matched once per label set. Each set stands for all namespaces that have
        // it.
        let of_selectors: Vec<IdSet> = self
            .namespaces
            .matches()
            .iter()
            .map(|sets| {
                let of_set = |set: u32| with_set.get(set as usize).into_iter().flatten().copied();
                match sets {
                    IdSet::Few(sets) => {
                        let mut list: Vec<u32> = sets.iter().copied().flat_map(of_set).collect();
                        list.sort_unstable();
                        IdSet::from_list(list, n_namespaces)
                    }
                    IdSet::Many(sets) => {
                        let mut bits = vec![0; n_namespaces.div_ceil(64)];
                        let namespaces = ones(sets).flat_map(of_set);
                        namespaces.for_each(|namespace| set_bit(&mut bits, namespace));
                        IdSet::from_bits(bits, n_namespaces)
                    }
                }
            })
            .collect();
        let members = |scope: &Scope| match scope {
            Scope::One(namespace) => Some(IdSet::Few(vec![*namespace])),
            Scope::Related(_) => None,
            Scope::Selected(selector, except) => {
                let selected = of_selectors.get(*selector as usize)?;
                if except.is_empty() {
                    return Some(selected.clone());
                }
                let mut list = Vec::new();
                let is_excepted = |namespace: u32| {
                    let except = except.iter();
                    let mut except = except.filter_map(|it| of_selectors.get(*it as usize));
                    except.any(|it| it.contains(namespace))
                };
                selected.for_each(|namespace| {
                    if !is_excepted(namespace) {
                        list.push(namespace);
                    }
                });
                Some(IdSet::from_list(list, n_namespaces))
            }
        };
        self.scopes.iter().map(members).collect()
    }
}
