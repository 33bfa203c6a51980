//! Groups as selections over the symbols of the store. Their members are found among classes and
//! nodes without a policy.

use std::net::IpAddr;
use std::sync::Arc;

use super::encoded::{ScopeText, conditions, selection};
use super::engine::TextSpec;
use super::named::Named;
use super::slab::NONE;
use super::store::Store;
use super::texts::Symbol;
use crate::labels::{Operator, Selector};
use crate::model::{NamespaceSet, PodSet};
use crate::net::{Family, Protocol};
use crate::plan::GroupKind;

/// The members of a group, by labels, names and addresses.
#[derive(Debug)]
pub(super) enum GroupSpec {
    /// Pods, nodes, single addresses, and pods that have a name at a port.
    Hosts {
        pods: Vec<Arc<Selection>>,
        nodes: Vec<Conditions>,
        singles: Vec<IpAddr>,
        named: Vec<Named>,
    },
    /// Blocks of one length, by their first addresses.
    Nets(Family, u8, Vec<IpAddr>),
    /// Ranges of addresses, by their bounds.
    Ranges(Family, Vec<IpAddr>),
    /// Pods whose port of this number has this name.
    Named(Symbol, Protocol, u16),
}

/// Some pods of some namespaces, with every relation to a subject resolved.
#[derive(Debug)]
pub(super) struct Selection {
    pub(super) scope: Scope,
    pub(super) pods: Conditions,
}

/// The namespaces of a selection.
#[derive(Debug)]
pub(super) enum Scope {
    /// The namespace of this name.
    Exact(Symbol),
    /// All but the namespace of this name.
    Other(Symbol),
    /// The namespaces that meet the conditions and no exception.
    Selected(Conditions, Vec<Conditions>),
    /// The namespaces that have all these keys, and another value for at least one (D47).
    Differing(Vec<(Symbol, Symbol)>),
}

/// Requirements that must all hold.
pub(super) type Conditions = Vec<Condition>;

/// A requirement of a selector, in symbols.
#[derive(Debug)]
pub(super) struct Condition {
    pub(super) key: Symbol,
    pub(super) operator: Operator,
    pub(super) values: Vec<Symbol>,
}

impl Condition {
    fn accepts(&self, value: Option<Symbol>) -> bool {
        let listed = |value: Symbol| self.values.contains(&value);
        match self.operator {
            Operator::In => value.is_some_and(listed),
            // As in Kubernetes, an absent label meets `NotIn`.
            Operator::NotIn => !value.is_some_and(listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

fn value(labels: &[(Symbol, Symbol)], key: Symbol) -> Option<Symbol> {
    // Sorted by the texts of the keys, not by symbols; labels are few.
    let mut found = labels.iter().filter(|(it, _)| *it == key);
    found.next().map(|(_, value)| *value)
}

/// Returns whether labels meet all conditions.
pub(super) fn meets(conditions: &[Condition], labels: &[(Symbol, Symbol)]) -> bool {
    let mut conditions = conditions.iter();
    conditions.all(|it| it.accepts(value(labels, it.key)))
}

impl Scope {
    /// Returns whether a namespace of this name and labels is in the scope.
    pub(super) fn holds(&self, name: Symbol, labels: &[(Symbol, Symbol)]) -> bool {
        match self {
            Scope::Exact(it) => *it == name,
            Scope::Other(it) => *it != name,
            Scope::Selected(selector, except) => {
                meets(selector, labels) && !except.iter().any(|it| meets(it, labels))
            }
            Scope::Differing(pairs) => {
                let differs =
                    |(key, its): &(Symbol, Symbol)| value(labels, *key).map(|it| it != *its);
                // `None` if one key is missing: the namespace is then not in the scope (D47).
                let all: Option<Vec<bool>> = pairs.iter().map(differs).collect();
                all.is_some_and(|all| all.contains(&true))
            }
        }
    }
}

impl GroupSpec {
    pub(super) fn kind(&self) -> GroupKind {
        match self {
            GroupSpec::Hosts { .. } | GroupSpec::Named(..) => GroupKind::Hosts,
            GroupSpec::Nets(family, length, _) => GroupKind::Nets(*family, *length),
            GroupSpec::Ranges(family, _) => GroupKind::Ranges(*family),
        }
    }

    /// Returns all symbols of the group, except those of the named ports of hosts.
    // `release_named` releases those: groups share the subsets, which count uses of their own.
    fn symbols(&self) -> Vec<Symbol> {
        let mut symbols = Vec::new();
        match self {
            GroupSpec::Named(name, ..) => symbols.push(*name),
            GroupSpec::Nets(..) | GroupSpec::Ranges(..) => {}
            GroupSpec::Hosts { pods, nodes, .. } => {
                symbols.extend(pods.iter().flat_map(|it| it.symbols()));
                nodes.iter().for_each(|it| add_symbols(it, &mut symbols));
            }
        }
        symbols
    }
}

impl Selection {
    /// Returns whether pods with these labels are selected in the namespace of this name and these
    /// labels.
    pub(super) fn selects(
        &self,
        (namespace, namespace_labels): (Symbol, &[(Symbol, Symbol)]),
        labels: &[(Symbol, Symbol)],
    ) -> bool {
        meets(&self.pods, labels) && self.scope.holds(namespace, namespace_labels)
    }

    /// Returns all symbols of the selection, one for each use.
    pub(super) fn symbols(&self) -> Vec<Symbol> {
        let mut symbols = Vec::new();
        match &self.scope {
            Scope::Exact(name) | Scope::Other(name) => symbols.push(*name),
            Scope::Selected(selector, except) => {
                add_symbols(selector, &mut symbols);
                except.iter().for_each(|it| add_symbols(it, &mut symbols));
            }
            Scope::Differing(pairs) => {
                symbols.extend(pairs.iter().flat_map(|(key, value)| [*key, *value]));
            }
        }
        add_symbols(&self.pods, &mut symbols);
        symbols
    }
}

fn add_symbols(conditions: &Conditions, symbols: &mut Vec<Symbol>) {
    for it in conditions {
        symbols.push(it.key);
        symbols.extend(&it.values);
    }
}

impl Store {
    /// Removes one use of every text of a group.
    pub(super) fn release_spec(&mut self, spec: &GroupSpec) {
        for symbol in spec.symbols() {
            self.texts.release(symbol);
        }
        if let GroupSpec::Hosts { named, .. } = spec {
            named.iter().for_each(|it| self.release_named(it));
        }
    }

    /// Returns a group over the symbols of the store, with one more use of each text.
    // Comparisons of classes with groups are then comparisons of numbers. A text that no object has
    // gets a symbol too; an object that brings it later gets the same one.
    pub(super) fn spec(&mut self, spec: &TextSpec) -> GroupSpec {
        match spec {
            TextSpec::Nets(family, length, nets) => GroupSpec::Nets(*family, *length, nets.clone()),
            TextSpec::Ranges(family, bounds) => GroupSpec::Ranges(*family, bounds.clone()),
            TextSpec::Named(name, protocol, port) => {
                GroupSpec::Named(self.texts.intern(name), *protocol, port.get())
            }
            TextSpec::Hosts {
                pods,
                nodes,
                singles,
                named,
            } => GroupSpec::Hosts {
                pods: pods.iter().filter_map(|it| self.selection(it)).collect(),
                nodes: nodes
                    .iter()
                    .filter_map(|it| conditions(it))
                    .map(|it| self.conditions(&it))
                    .collect(),
                singles: singles.clone(),
                named: named.iter().map(|it| self.named(it)).collect(),
            },
        }
    }

    pub(super) fn selection(&mut self, bytes: &[u8]) -> Option<Arc<Selection>> {
        let (scope, pods) = selection(bytes)?;
        let scope = match scope {
            ScopeText::Exact(name) => Scope::Exact(self.texts.intern(name)),
            ScopeText::Other(name) => Scope::Other(self.texts.intern(name)),
            ScopeText::Selected(selector, except) => Scope::Selected(
                self.conditions(&selector),
                except.iter().map(|it| self.conditions(it)).collect(),
            ),
            ScopeText::Differing(pairs) => {
                let pairs = pairs.iter();
                let pairs =
                    pairs.map(|(key, value)| (self.texts.intern(key), self.texts.intern(value)));
                Scope::Differing(pairs.collect())
            }
        };
        let pods = pods.map(|pods| self.conditions(&pods));
        Some(Arc::new(Selection {
            scope,
            pods: pods.unwrap_or_default(),
        }))
    }

    fn conditions(&mut self, selector: &Selector<&str>) -> Conditions {
        let requirements = selector.requirements.iter();
        requirements
            .map(|it| Condition {
                key: self.texts.intern(it.key),
                operator: it.operator,
                values: it
                    .values
                    .iter()
                    .map(|value| self.texts.intern(value))
                    .collect(),
            })
            .collect()
    }
}

/// The labels that a subject requires. They bound the classes that it can select; the compiler
/// decides which of these it does select.
#[derive(Debug, Default)]
pub(super) struct RequiredLabels {
    namespaces: Vec<(Symbol, Vec<Symbol>)>,
    pods: Vec<(Symbol, Vec<Symbol>)>,
}

impl RequiredLabels {
    /// Returns the required labels in symbols of the store, without new uses.
    // A text without symbol is in no label. It becomes `NONE`, which equals no symbol.
    pub(super) fn find(store: &Store, subject: &PodSet<'_>) -> RequiredLabels {
        RequiredLabels::new(subject, &mut |text| store.texts.find(text).unwrap_or(NONE))
    }

    fn new(subject: &PodSet<'_>, symbol: &mut dyn FnMut(&str) -> Symbol) -> RequiredLabels {
        let mut required = |selector: &Selector<&str>| {
            // `In` is the operator of nearly all selectors. The others, and exceptions, only make
            // the subject narrower: without them too many classes are planned, never too few.
            let requirements = selector.requirements.iter();
            let required = requirements.filter(|it| it.operator == Operator::In);
            let required = required.map(|it| {
                let values = it.values.iter().map(|value| symbol(value)).collect();
                (symbol(it.key), values)
            });
            required.collect::<Vec<(Symbol, Vec<Symbol>)>>()
        };
        let namespaces = match &subject.namespaces {
            NamespaceSet::Selected { selector, .. } => required(selector),
            NamespaceSet::Exact(_)
            | NamespaceSet::Own
            | NamespaceSet::NotOwn
            | NamespaceSet::SameLabels(_)
            | NamespaceSet::NotSameLabels(_) => Vec::new(),
        };
        RequiredLabels {
            namespaces,
            pods: subject.pods.as_ref().map(required).unwrap_or_default(),
        }
    }

    /// Returns whether the subject could select a class.
    pub(super) fn could_be(&self, store: &Store, class: u32) -> bool {
        let Some(class) = store.classes.get(class) else {
            return false;
        };
        let has = |required: &[(Symbol, Vec<Symbol>)], labels: u32| {
            let labels = store.labels.get(labels);
            required.iter().all(|(key, values)| {
                let mut labels = labels.iter();
                labels.any(|(its_key, value)| its_key == key && values.contains(value))
            })
        };
        let namespace = store.namespaces.get(class.namespace);
        let namespace = namespace.map_or(NONE, |it| it.labels);
        has(&self.namespaces, namespace) && has(&self.pods, class.labels)
    }
}

impl Store {
    /// Returns the required labels of a subject, with one more use of every text.
    // The uses keep the symbols valid as long as the policy exists. With `find`, a label that comes
    // later would get a symbol that the policy does not know.
    pub(super) fn required_labels(&mut self, subject: &PodSet<'_>) -> RequiredLabels {
        RequiredLabels::new(subject, &mut |text| self.texts.intern(text))
    }

    /// Removes one use of every text of required labels.
    pub(super) fn release_required(&mut self, required: &RequiredLabels) {
        for (key, values) in required.namespaces.iter().chain(&required.pods) {
            self.texts.release(*key);
            values.iter().for_each(|value| self.texts.release(*value));
        }
    }
}
