//! The pods, nodes and names of a cluster that selectors can select.

use std::collections::BTreeSet;

use rustc_hash::FxHashSet;

use super::sets::{NamespaceTerm, SelectedSet};
use crate::labels::{Operator, Selector};
use crate::model::{Cluster, label};

/// Labels of a pod or a namespace.
pub(super) type LabelList<'l> = [(&'l str, &'l str)];

/// The objects of a cluster, by their labels.
pub(super) struct Inventory<'c> {
    cluster: &'c Cluster<'c>,
    /// The distinct labels of the pods that policies can select, for each namespace.
    pods: Vec<Vec<&'c LabelList<'c>>>,
}

impl<'c> Inventory<'c> {
    pub(super) fn new(cluster: &'c Cluster<'c>) -> Inventory<'c> {
        let mut pods = vec![Vec::new(); cluster.namespaces.len()];
        // Pods of one workload are alike: a large cluster has few distinct label sets.
        let mut known: FxHashSet<(u32, &LabelList<'_>)> = FxHashSet::default();
        for pod in cluster.pods.iter().filter(|pod| pod.is_selectable()) {
            let of_namespace = pods.get_mut(pod.namespace.0 as usize);
            if let Some(list) = of_namespace
                && known.insert((pod.namespace.0, &pod.labels))
            {
                list.push(&*pod.labels);
            }
        }
        Inventory { cluster, pods }
    }

    /// Returns the namespaces with a pod of one of the sets.
    pub(super) fn homes<'s>(&self, sets: impl Iterator<Item = &'s SelectedSet<'s>>) -> Vec<usize> {
        let mut homes = BTreeSet::new();
        for set in sets {
            let SelectedSet::Pods(term, selector) = set else {
                continue;
            };
            // A subject is absolute: it has no namespace to be relative to.
            let has_pod = |index: &usize| self.labels_of(*index, selector).next().is_some();
            homes.extend(self.namespaces(term, &[]).into_iter().filter(has_pod));
        }
        homes.into_iter().collect()
    }

    /// Returns whether the input has a member of a set; of a list of values, a member with each.
    /// `homes` are the namespaces that the set is relative to.
    pub(super) fn has(&self, set: &SelectedSet<'_>, homes: &[usize]) -> bool {
        match set {
            SelectedSet::Everything | SelectedSet::Block(..) => true,
            SelectedSet::Domain(pattern) => {
                let mut names = self.cluster.learned.iter();
                names.any(|(name, _)| pattern.matches(name))
            }
            SelectedSet::Nodes(selector) => {
                let nodes = self.cluster.nodes.iter().filter(|it| it.has_object);
                let mut open = OpenValues::new(selector);
                nodes.map(|it| &*it.labels).any(|labels| open.add(labels))
            }
            SelectedSet::Pods(term, selector) => {
                let mut open = OpenValues::new(selector);
                let mut open_namespaces = match term {
                    NamespaceTerm::Selected(selector, _) => OpenValues::new(selector),
                    NamespaceTerm::Named(_)
                    | NamespaceTerm::Own
                    | NamespaceTerm::NotOwn
                    | NamespaceTerm::SameLabels(_)
                    | NamespaceTerm::NotSameLabels(_) => OpenValues::default(),
                };
                let mut namespaces = self.namespaces(term, homes).into_iter();
                namespaces.any(|index| {
                    let own = self.namespace_labels(index);
                    let mut pods = self.labels_of(index, selector);
                    pods.any(|labels| {
                        let is_complete = open.add(labels);
                        open_namespaces.add(own) && is_complete
                    })
                })
            }
        }
    }

    /// Returns the labels of the pods of a namespace that a selector selects.
    fn labels_of<'s>(
        &'s self,
        namespace: usize,
        selector: &'s Selector<&'s str>,
    ) -> impl Iterator<Item = &'c LabelList<'c>> + 's {
        let pods = self.pods.get(namespace).into_iter().flatten().copied();
        pods.filter(|labels| selector.matches(|key| label(labels, key)))
    }

    fn namespace_labels(&self, index: usize) -> &'c LabelList<'c> {
        let namespace = self.cluster.namespaces.get(index);
        namespace.map_or(&[], |it| &*it.labels)
    }

    /// Returns the namespaces of a term.
    fn namespaces(&self, term: &NamespaceTerm<'_>, homes: &[usize]) -> Vec<usize> {
        let all = 0..self.cluster.namespaces.len();
        match term {
            NamespaceTerm::Named(name) => {
                let namespaces = &self.cluster.namespaces;
                let found = namespaces.binary_search_by(|it| it.name.cmp(name));
                found.into_iter().collect()
            }
            NamespaceTerm::Selected(..) => all
                .filter(|it| term.selects(self.namespace_labels(*it)))
                .collect(),
            NamespaceTerm::Own => homes.to_vec(),
            NamespaceTerm::NotOwn => {
                let is_other = |it: &usize| homes.iter().any(|home| home != it);
                all.filter(is_other).collect()
            }
            NamespaceTerm::SameLabels(keys) => {
                let is_like = |own: &[&str], other: &[&str]| !keys.is_empty() && own == other;
                self.related(keys, homes, is_like)
            }
            NamespaceTerm::NotSameLabels(keys) => {
                self.related(keys, homes, |own, other| own != other)
            }
        }
    }

    /// Returns the namespaces that have all keys, with values that compare with those of a home.
    fn related(
        &self,
        keys: &[&str],
        homes: &[usize],
        compare: impl Fn(&[&str], &[&str]) -> bool,
    ) -> Vec<usize> {
        let values = |index: usize| -> Option<Vec<&'c str>> {
            let labels = self.namespace_labels(index);
            keys.iter().map(|key| label(labels, key)).collect()
        };
        let homes: BTreeSet<Vec<&str>> = homes.iter().filter_map(|it| values(*it)).collect();
        let is_related = |index: &usize| {
            let own = values(*index);
            own.is_some_and(|own| homes.iter().any(|home| compare(&own, home)))
        };
        let all = 0..self.cluster.namespaces.len();
        all.filter(is_related).collect()
    }
}

impl NamespaceTerm<'_> {
    /// Returns whether a selector of the term selects a namespace with these labels.
    pub(super) fn selects(&self, labels: &LabelList<'_>) -> bool {
        let NamespaceTerm::Selected(selector, except) = self else {
            return false;
        };
        let has = |key: &str| label(labels, key);
        selector.matches(has) && !except.iter().any(|it| it.matches(has))
    }
}

/// The listed values of a selector of which no member was found yet.
#[derive(Default)]
struct OpenValues<'s> {
    lists: Vec<(&'s str, BTreeSet<&'s str>)>,
}

impl<'s> OpenValues<'s> {
    fn new(selector: &'s Selector<&'s str>) -> OpenValues<'s> {
        let lists = selector.requirements.iter();
        let lists = lists.filter(|it| it.operator == Operator::In);
        let values = lists.map(|it| (it.key, it.values.iter().copied().collect()));
        OpenValues {
            lists: values.collect(),
        }
    }

    /// Removes the values of a member, and returns whether no value is left.
    fn add(&mut self, labels: &LabelList<'_>) -> bool {
        for (key, values) in &mut self.lists {
            if let Some(value) = label(labels, key) {
                values.remove(value);
            }
        }
        self.lists.iter().all(|(_, values)| values.is_empty())
    }
}
