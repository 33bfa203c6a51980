//! What policies can see of all objects, in little room.
//!
//! Texts, label sets and port lists are kept once. Pods that no policy could tell apart are one class. Whoever
//! changes something here says beforehand which addresses it is about (`touch`), so that the engine can
//! compare what they were at the last commit with what they are at the next.

mod claims;
mod classes;
mod model;
mod nodes;
mod pods;
mod policies;
mod stamp;
mod table;
mod touched;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use rustc_hash::FxHashMap;

use self::claims::Claims;
pub(super) use self::claims::{Claimant, Owner};
pub(super) use self::model::Excerpt;
pub(super) use self::pods::Pod;
pub(super) use self::touched::{Before, Touched};
use super::digest::Hashes;
use super::named::Amongs;
use super::select::RequiredLabels;
use super::slab::{Index, Lists, NONE, Slab};
use super::texts::{Symbol, Texts};
use crate::budget::Budget;
use crate::net::Protocol;

/// The label that every namespace has: its name (D23).
pub(super) const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Everything.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) texts: Texts,
    /// The node that it is kept for.
    pub(super) own_node: Symbol,
    pub(super) name_label: Symbol,
    /// Labels, sorted by the text of their keys.
    pub(super) labels: Lists<(Symbol, Symbol)>,
    /// The ports that have names, in the order of the containers.
    pub(super) ports: Lists<(Symbol, Protocol, u16)>,
    pub(super) namespaces: Slab<Namespace>,
    pub(super) namespace_ids: FxHashMap<Symbol, u32>,
    pub(super) nodes: Slab<Node>,
    pub(super) node_ids: FxHashMap<Symbol, u32>,
    /// The pods of the host network, by the name of their node.
    pub(super) host_pods: FxHashMap<Symbol, Vec<u32>>,
    /// What only pods of the host network have.
    hosted: FxHashMap<u32, Hosted>,
    pub(super) classes: Slab<Class>,
    class_index: Index,
    /// Classes without pods, the oldest first: workloads often come back.
    idle: std::collections::VecDeque<u32>,
    pub(super) pods: Slab<Pod>,
    pod_index: Index,
    /// The addresses of pods that have not just one of IPv4.
    more_addresses: FxHashMap<u32, Box<[IpAddr]>>,
    claims: Claims,
    pub(super) policies: Slab<Policy>,
    policy_index: Index,
    /// What the NetworkPolicies of each namespace may be together.
    budget: Budget,
    /// Those that do not fit, by their namespaces.
    pub(super) over_budget: BTreeMap<u32, BTreeSet<u32>>,
    /// The policies of the ordered tiers, and whom they could select; `None`: nobody.
    pub(super) ordered: BTreeMap<u32, Option<RequiredLabels>>,
    /// The groups that owners are in, as sorted lists.
    pub(super) groups: Lists<u32>,
    /// The empty list of groups.
    pub(super) no_groups: u32,
    /// The destinations of groups with named ports.
    pub(super) amongs: Amongs,
    pub(super) changes: Changes,
    /// Room for texts that are hashed together.
    scratch: Vec<u8>,
}

/// A namespace, also one that only other objects speak of.
#[derive(Debug, Default)]
pub(super) struct Namespace {
    pub(super) name: Symbol,
    /// The hash of its name.
    hash: u64,
    pub(super) labels: u32,
    pub(super) known: bool,
    /// How many classes, pods of the host network, policies and objects speak of it.
    uses: u32,
    /// Whether it has the annotation of 2016.
    pub(super) is_isolated: bool,
    /// Its classes are a chain.
    pub(super) first_class: u32,
    /// The NetworkPolicies that live there are another.
    first_policy: u32,
}

/// A node that was given.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) name: Symbol,
    pub(super) labels: u32,
    pub(super) addresses: Box<[IpAddr]>,
    pub(super) pod_cidrs: Box<[crate::net::Cidr]>,
    /// The groups that its addresses are in.
    pub(super) groups: u32,
}

/// Pods that no policy could tell apart.
#[derive(Debug, Default)]
pub(super) struct Class {
    /// The hash of all that makes it.
    digest: u128,
    pub(super) namespace: u32,
    pub(super) labels: u32,
    pub(super) ports: u32,
    pub(super) n_pods: u32,
    /// Its pods are a chain.
    pub(super) first_pod: u32,
    /// The groups that its pods' addresses are in; `NONE`: not known yet.
    pub(super) groups: u32,
    next: u32,
    previous: u32,
}

impl Class {
    /// Whether it is not the blank in the place of one that was dropped.
    pub(super) fn is_there(&self) -> bool {
        self.digest != 0
    }
}

/// A policy.
#[derive(Debug, Default)]
pub(super) struct Policy {
    /// The hash of its object's key.
    digest: u128,
    /// Its encoded form.
    pub(super) bytes: Box<[u8]>,
    /// What it takes of the budget of its namespace.
    entries: u64,
    /// Its namespace, or `NONE`.
    pub(super) namespace: u32,
    /// The next NetworkPolicy of the namespace.
    next: u32,
}

/// A pod of the host network, which has no class.
#[derive(Clone, Copy, Debug)]
struct Hosted {
    namespace: u32,
    /// The name of its node, or `NONE`.
    node: Symbol,
}

/// What has happened since the last commit.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) touched: Touched,
    /// Pods that were taken out; their numbers are free after the commit.
    pub(super) gone_pods: Vec<u32>,
    pub(super) gone_nodes: Vec<u32>,
    /// Namespaces with other labels.
    pub(super) relabelled: Vec<u32>,
    /// Nodes with other labels.
    pub(super) relabelled_nodes: Vec<u32>,
    /// Classes that are new, or have pods again.
    pub(super) new_classes: Vec<u32>,
    /// Namespaces with other NetworkPolicies.
    pub(super) policed: Vec<u32>,
    /// Policies of the ordered tiers, by number, as they were and as they are.
    pub(super) ordered: Vec<(u32, Box<[u8]>)>,
    /// Policies that were taken out; their numbers are free after the commit.
    pub(super) gone_policies: Vec<u32>,
    /// Pods that were made anew under their names.
    pub(super) recreated: BTreeSet<u32>,
}

impl Store {
    pub(super) fn new(own_node: &str, hashes: Hashes, budget: Budget) -> Store {
        let mut texts = Texts::new(hashes);
        let own_node = texts.intern(own_node);
        let name_label = texts.intern(NAME_LABEL);
        let mut groups = Lists::default();
        let (no_groups, _) = groups.intern(&[]);
        Store {
            texts,
            own_node,
            name_label,
            labels: Lists::default(),
            ports: Lists::default(),
            namespaces: Slab::default(),
            namespace_ids: FxHashMap::default(),
            nodes: Slab::default(),
            node_ids: FxHashMap::default(),
            host_pods: FxHashMap::default(),
            hosted: FxHashMap::default(),
            classes: Slab::default(),
            class_index: Index::default(),
            idle: std::collections::VecDeque::new(),
            pods: Slab::default(),
            pod_index: Index::default(),
            more_addresses: FxHashMap::default(),
            claims: Claims::default(),
            policies: Slab::default(),
            policy_index: Index::default(),
            budget,
            over_budget: BTreeMap::new(),
            ordered: BTreeMap::new(),
            groups,
            no_groups,
            amongs: Amongs::default(),
            changes: Changes::default(),
            scratch: Vec::new(),
        }
    }

    /// The number of a label set, with one more use.
    fn label_set(&mut self, labels: &[(&str, &str)]) -> u32 {
        let mut pairs = Vec::with_capacity(labels.len());
        for (key, value) in labels {
            pairs.push((self.texts.intern(key), self.texts.intern(value)));
        }
        let (id, is_new) = self.labels.intern(&pairs);
        if !is_new {
            self.release_pairs(&pairs);
        }
        id
    }

    fn release_labels(&mut self, id: u32) {
        if let Some(pairs) = self.labels.release(id) {
            self.release_pairs(&pairs);
        }
    }

    fn release_pairs(&mut self, pairs: &[(Symbol, Symbol)]) {
        for (key, value) in pairs {
            self.texts.release(*key);
            self.texts.release(*value);
        }
    }

    /// Whether a label set is made of these texts.
    fn same_labels(&self, id: u32, labels: &[(&str, &str)]) -> bool {
        let pairs = self.labels.get(id);
        let same = |((key, value), (its_key, its_value)): (&(u32, u32), &(&str, &str))| {
            self.texts.get(*key) == *its_key && self.texts.get(*value) == *its_value
        };
        pairs.len() == labels.len() && pairs.iter().zip(labels).all(same)
    }

    /// The number of a namespace, with one more use; it may not be given (yet).
    fn use_namespace(&mut self, name: &str) -> u32 {
        let symbol = self.texts.intern(name);
        if let Some(known) = self.namespace_ids.get(&symbol).copied() {
            self.texts.release(symbol);
            if let Some(namespace) = self.namespaces.get_mut(known) {
                namespace.uses += 1;
            }
            return known;
        }
        let labels = self.label_set(&[(NAME_LABEL, name)]);
        let id = self.namespaces.insert(Namespace {
            name: symbol,
            hash: self.texts.hashes().text(name).short(),
            labels,
            known: false,
            uses: 1,
            is_isolated: false,
            first_class: NONE,
            first_policy: NONE,
        });
        self.namespace_ids.insert(symbol, id);
        id
    }

    fn release_namespace(&mut self, id: u32) {
        let Some(namespace) = self.namespaces.get_mut(id) else {
            return;
        };
        namespace.uses = namespace.uses.saturating_sub(1);
        if namespace.uses == 0 {
            let namespace = self.namespaces.remove(id);
            self.namespace_ids.remove(&namespace.name);
            self.release_labels(namespace.labels);
            self.texts.release(namespace.name);
        }
    }

    /// A namespace as its object has it; `None`: there is no object.
    pub(super) fn set_namespace(&mut self, name: &str, given: Option<&[(&str, &str)]>) -> bool {
        let symbol = self.texts.find(name);
        let known = symbol.and_then(|it| self.namespace_ids.get(&it).copied());
        let was_known = known.and_then(|id| self.namespaces.get(id));
        let was_known = was_known.is_some_and(|it| it.known);
        if !was_known && given.is_none() {
            return false;
        }
        let id = self.use_namespace(name);
        let before = self.namespaces.get(id).map_or(NONE, |it| it.labels);
        let by_name = [(NAME_LABEL, name)];
        let labels = given.unwrap_or(&by_name);
        let differs = !self.same_labels(before, labels);
        if differs {
            let labels = self.label_set(labels);
            if let Some(namespace) = self.namespaces.get_mut(id) {
                namespace.labels = labels;
            }
            self.release_labels(before);
            self.changes.relabelled.push(id);
        }
        if let Some(namespace) = self.namespaces.get_mut(id) {
            namespace.known = given.is_some();
        }
        // The object is one use.
        if was_known {
            self.release_namespace(id);
        }
        if given.is_none() {
            self.release_namespace(id);
        }
        differs || was_known != given.is_some()
    }

    /// The classes of a namespace.
    pub(super) fn classes_of(&self, namespace: u32) -> impl Iterator<Item = (u32, &Class)> {
        let first = self.namespaces.get(namespace);
        let mut next = first.map_or(NONE, |it| it.first_class);
        std::iter::from_fn(move || {
            let id = next;
            let class = self.classes.get(id)?;
            next = class.next;
            Some((id, class))
        })
    }

    /// The NetworkPolicies of a namespace, in no order.
    pub(super) fn policies_of(&self, namespace: u32) -> Vec<u32> {
        // Nobody may speak of it any more.
        let first = self.namespaces.get(namespace).filter(|it| it.uses > 0);
        let mut next = first.map_or(NONE, |it| it.first_policy);
        let mut policies = Vec::new();
        while let Some(policy) = self.policies.get(next) {
            policies.push(next);
            next = policy.next;
        }
        policies
    }

    /// Finds out which policies do not fit into the budgets of their namespaces now.
    pub(super) fn find_over_budget(&mut self) {
        let mut policed = std::mem::take(&mut self.changes.policed);
        // Each policy that changed has named it, and there may be thousands.
        policed.sort_unstable();
        policed.dedup();
        for namespace in policed {
            let over = self.over_budget(namespace);
            if over.is_empty() {
                self.over_budget.remove(&namespace);
            } else {
                self.over_budget.insert(namespace, over);
            }
            self.changes.policed.push(namespace);
        }
    }

    /// The pods of a class.
    pub(super) fn pods_of(&self, class: u32) -> impl Iterator<Item = (u32, &Pod)> {
        let mut next = self.classes.get(class).map_or(NONE, |it| it.first_pod);
        std::iter::from_fn(move || {
            let id = next;
            let pod = self.pods.get(id)?;
            next = pod.next;
            Some((id, pod))
        })
    }

    /// Forgets what only the last batch needed.
    pub(super) fn settle(&mut self) {
        let changes = std::mem::take(&mut self.changes);
        for (_, before) in changes.touched.iter() {
            self.groups.release(before.groups);
            if before.ports != NONE {
                self.release_ports(before.ports);
            }
        }
        // The next batch is often as large.
        self.changes.touched = changes.touched.emptied();
        for pod in changes.gone_pods {
            self.pods.give_back(pod);
        }
        for node in changes.gone_nodes {
            self.nodes.give_back(node);
        }
        for policy in changes.gone_policies {
            self.policies.give_back(policy);
        }
        self.drop_idle();
    }
}
