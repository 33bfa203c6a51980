//! What policies select, in a form in which equal selections are equal values.

use std::collections::BTreeMap;

use crate::domain::DomainPattern;
use crate::labels::{Operator, Requirement, Selector};
use crate::model::{Cluster, NamespaceId, NamespaceSet, Peer, PodSet};
use crate::net::Cidr;

/// Peers or subjects of a policy, with all lists sorted and without duplicates.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SelectedSet<'c> {
    /// Every peer.
    Everything,
    /// Pods of some namespaces, by their labels.
    Pods(NamespaceTerm<'c>, Selector<&'c str>),
    /// Nodes, by their labels.
    Nodes(Selector<&'c str>),
    /// A block of addresses, without some parts.
    Block(Cidr, Vec<Cidr>),
    /// The addresses that a domain name has resolved to.
    Domain(&'c DomainPattern),
}

/// The namespaces of selected pods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NamespaceTerm<'c> {
    /// One namespace, by its name: namespaces of two clusters have different indexes.
    Named(&'c str),
    /// Namespaces by labels, without those that an exception selects.
    Selected(Selector<&'c str>, Vec<Selector<&'c str>>),
    /// The subject's own namespace.
    Own,
    /// Every other namespace.
    NotOwn,
    /// Namespaces with the subject's values for these keys.
    SameLabels(Vec<&'c str>),
    /// Namespaces with another value than the subject's for one of these keys.
    NotSameLabels(Vec<&'c str>),
}

/// The label that holds the name of a namespace.
pub(super) const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The maximum number of parts of a selector. A list that would make more stays whole.
const MOST_PARTS: usize = 256;

impl<'c> SelectedSet<'c> {
    /// Returns the sets of a peer.
    pub(super) fn of_peer(
        cluster: &'c Cluster<'c>,
        home: Option<NamespaceId>,
        peer: &'c Peer<'c>,
    ) -> Vec<SelectedSet<'c>> {
        match peer {
            Peer::Pods(set) => SelectedSet::of_pods(cluster, home, set),
            Peer::Nodes(selector) => split(selector)
                .into_iter()
                .map(SelectedSet::Nodes)
                .collect(),
            Peer::Block { cidr, except } => {
                let mut except = except.clone();
                except.sort_unstable();
                except.dedup();
                vec![SelectedSet::Block(*cidr, except)]
            }
            Peer::Domains(patterns) => patterns.iter().map(SelectedSet::Domain).collect(),
            Peer::All => vec![SelectedSet::Everything],
        }
    }

    /// Returns the sets of pods, one for each combination of listed values. `home` is the namespace
    /// of the policy.
    pub(super) fn of_pods(
        cluster: &'c Cluster<'c>,
        home: Option<NamespaceId>,
        set: &'c PodSet<'c>,
    ) -> Vec<SelectedSet<'c>> {
        // A value that is added to a list changes the flows of pods with that value, whether pods
        // with the other values exist or not. So each value is a set of its own.
        let pods = set.pods.as_ref().map_or_else(|| vec![EVERY], split);
        let mut sets = Vec::new();
        for namespaces in NamespaceTerm::of(cluster, home, &set.namespaces) {
            let of = |pods: &Selector<&'c str>| SelectedSet::Pods(namespaces.clone(), pods.clone());
            sets.extend(pods.iter().map(of));
        }
        sets
    }

    /// Returns the requirements on labels, first those of namespaces.
    fn requirements(&mut self) -> impl Iterator<Item = &mut Requirement<&'c str>> {
        let (first, second) = match self {
            SelectedSet::Pods(NamespaceTerm::Selected(namespaces, _), pods) => {
                (Some(namespaces), Some(pods))
            }
            SelectedSet::Pods(_, labels) | SelectedSet::Nodes(labels) => (None, Some(labels)),
            SelectedSet::Everything | SelectedSet::Block(..) | SelectedSet::Domain(_) => {
                (None, None)
            }
        };
        let lists = first.into_iter().chain(second);
        lists.flat_map(|it| &mut it.requirements)
    }
}

/// The selector of everything.
const EVERY: Selector<&str> = Selector {
    requirements: Vec::new(),
};

impl<'c> NamespaceTerm<'c> {
    fn of(
        cluster: &'c Cluster<'c>,
        home: Option<NamespaceId>,
        set: &'c NamespaceSet<'c>,
    ) -> Vec<NamespaceTerm<'c>> {
        let sorted = |keys: &[&'c str]| {
            let mut keys = keys.to_vec();
            keys.sort_unstable();
            keys.dedup();
            keys
        };
        let term = match (set, home) {
            (NamespaceSet::Selected { selector, except }, _) => {
                let mut except: Vec<_> = except.iter().map(canonical).collect();
                except.sort_unstable();
                except.dedup();
                let parts = split(selector).into_iter();
                return parts
                    .map(|it| NamespaceTerm::selected(it, &except))
                    .collect();
            }
            (NamespaceSet::Exact(id), _) => NamespaceTerm::Named(cluster.namespace_name(*id)),
            (NamespaceSet::Own, Some(id)) => NamespaceTerm::Named(cluster.namespace_name(id)),
            (NamespaceSet::Own, None) => NamespaceTerm::Own,
            (NamespaceSet::NotOwn, _) => NamespaceTerm::NotOwn,
            (NamespaceSet::SameLabels(keys), _) => NamespaceTerm::SameLabels(sorted(keys)),
            (NamespaceSet::NotSameLabels(keys), _) => NamespaceTerm::NotSameLabels(sorted(keys)),
        };
        vec![term]
    }

    fn selected(selector: Selector<&'c str>, except: &[Selector<&'c str>]) -> NamespaceTerm<'c> {
        // Every namespace has its name as a label (D23), and no other one can have it.
        if let ([only], []) = (selector.requirements.as_slice(), except)
            && let (NAME_LABEL, Operator::In, [name]) =
                (only.key, only.operator, only.values.as_slice())
        {
            return NamespaceTerm::Named(name);
        }
        NamespaceTerm::Selected(selector, except.to_vec())
    }
}

/// Sorts requirements and their values.
fn canonical<'c>(selector: &Selector<&'c str>) -> Selector<&'c str> {
    let mut requirements = selector.requirements.clone();
    for requirement in &mut requirements {
        requirement.values.sort_unstable();
        requirement.values.dedup();
    }
    requirements.sort_unstable();
    requirements.dedup();
    Selector { requirements }
}

/// Splits a selector by the values that its requirements list. A label set that the selector
/// selects is in exactly one part.
fn split<'c>(selector: &Selector<&'c str>) -> Vec<Selector<&'c str>> {
    let mut parts: Vec<Selector<&'c str>> = vec![EVERY];
    for requirement in canonical(selector).requirements {
        let n_values = requirement.values.len();
        let is_list = requirement.operator == Operator::In && n_values > 1;
        if !is_list || parts.len().saturating_mul(n_values) > MOST_PARTS {
            for part in &mut parts {
                part.requirements.push(requirement.clone());
            }
            continue;
        }
        let mut longer = Vec::with_capacity(parts.len() * n_values);
        for part in &parts {
            for value in &requirement.values {
                let mut part = part.clone();
                part.requirements.push(Requirement {
                    values: vec![*value],
                    ..requirement.clone()
                });
                longer.push(part);
            }
        }
        parts = longer;
    }
    parts
}

/// Joins sets that differ in one listed value, and what belongs to them: the opposite of splitting.
pub(super) fn joined<'c, T>(
    sets: BTreeMap<SelectedSet<'c>, T>,
    join: impl Fn(&mut T, T),
) -> BTreeMap<SelectedSet<'c>, T> {
    let mut sets = sets;
    let count = |set: &SelectedSet<'c>| set.clone().requirements().count();
    let most = sets.keys().map(count).max().unwrap_or(0);
    for index in 0..most {
        let mut groups: BTreeMap<SelectedSet<'c>, (Vec<&'c str>, T)> = BTreeMap::new();
        for (mut set, with) in sets {
            let requirement = set.requirements().nth(index);
            let list = requirement.filter(|it| it.operator == Operator::In);
            let values = list.map(|it| std::mem::take(&mut it.values));
            let values = values.unwrap_or_default();
            match groups.get_mut(&set) {
                Some((known, others)) => {
                    known.extend(values);
                    join(others, with);
                }
                None => {
                    groups.insert(set, (values, with));
                }
            }
        }
        let whole = |(mut set, (mut values, with)): (SelectedSet<'c>, (Vec<&'c str>, T))| {
            values.sort_unstable();
            values.dedup();
            let requirement = set.requirements().nth(index);
            if let Some(list) = requirement.filter(|it| it.operator == Operator::In) {
                list.values = values;
            }
            (set, with)
        };
        sets = groups.into_iter().map(whole).collect();
    }
    sets
}
