//! The parts of all objects that policies can see, in a compact form.
//!
//! Texts, label sets and port lists are stored once. Pods that no policy can distinguish are one
//! class. Before a change, each method of the store records the state of the addresses that it
//! concerns (`touch`). The engine compares their state at the last commit with that at the next.

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
pub(super) use self::touched::{AddressState, Touched};
use super::digest::Hashes;
use super::named::PodSubsets;
use super::select::RequiredLabels;
use super::slab::{Index, Lists, NONE, Slab};
use super::texts::{Symbol, Texts};
use crate::budget::Budget;
use crate::net::Protocol;

/// The label that every namespace has: its name (D23).
pub(super) const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The objects of a cluster, as far as policies can see them.
// Objects have numbers, and lists of numbers in place of pointers: four bytes each, and no borrow
// of one object while another one changes.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) texts: Texts,
    /// The node of the plan.
    pub(super) own_node: Symbol,
    pub(super) name_label: Symbol,
    /// Label sets, sorted by the texts of their keys.
    pub(super) labels: Lists<(Symbol, Symbol)>,
    /// Lists of named ports, in the order of the containers.
    pub(super) ports: Lists<(Symbol, Protocol, u16)>,
    pub(super) namespaces: Slab<Namespace>,
    pub(super) namespace_ids: FxHashMap<Symbol, u32>,
    pub(super) nodes: Slab<Node>,
    pub(super) node_ids: FxHashMap<Symbol, u32>,
    /// The host-network pods, by the name of their node.
    pub(super) host_pods: FxHashMap<Symbol, Vec<u32>>,
    /// The data that only host-network pods have.
    // Not in `Pod`: these are few, and every pod would be larger.
    hosted: FxHashMap<u32, Hosted>,
    pub(super) classes: Slab<Class>,
    class_index: Index,
    /// Classes without pods, the oldest first.
    // Kept for a while, because workloads often come back: a class that stays has its groups.
    idle: std::collections::VecDeque<u32>,
    pub(super) pods: Slab<Pod>,
    pod_index: Index,
    /// The addresses of pods that do not have exactly one IPv4 address.
    // The single one of all others is in `Pod`, without an allocation.
    more_addresses: FxHashMap<u32, Box<[IpAddr]>>,
    claims: Claims,
    pub(super) policies: Slab<Policy>,
    policy_index: Index,
    /// The budget for the NetworkPolicies of each namespace.
    budget: Budget,
    /// The policies that do not fit, by namespace.
    pub(super) over_budget: BTreeMap<u32, BTreeSet<u32>>,
    /// The policies of the ordered tiers, and the labels that their subjects require; `None` if a
    /// policy selects no pod.
    pub(super) ordered: BTreeMap<u32, Option<RequiredLabels>>,
    /// The groups of classes and nodes, as sorted lists.
    pub(super) groups: Lists<u32>,
    /// The empty list of groups.
    pub(super) no_groups: u32,
    /// The subsets of groups with named ports.
    pub(super) amongs: PodSubsets,
    pub(super) changes: Changes,
    /// A buffer for texts that are hashed together.
    scratch: Vec<u8>,
}

/// A namespace with or without an object.
#[derive(Debug, Default)]
pub(super) struct Namespace {
    pub(super) name: Symbol,
    /// The hash of the name.
    hash: u64,
    pub(super) labels: u32,
    /// Whether it has an object.
    pub(super) has_object: bool,
    /// The number of classes, host-network pods, policies and objects that refer to it.
    uses: u32,
    /// Whether it has the annotation of 2016.
    pub(super) is_isolated: bool,
    /// The first of its classes, which form a linked list.
    pub(super) first_class: u32,
    /// The first of its NetworkPolicies, which form another one.
    first_policy: u32,
}

/// A node that has an object.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) name: Symbol,
    pub(super) labels: u32,
    pub(super) addresses: Box<[IpAddr]>,
    pub(super) pod_cidrs: Box<[crate::net::Cidr]>,
    /// The groups that its addresses are in.
    pub(super) groups: u32,
}

/// Pods that no policy can distinguish: of the same namespace, labels and named ports.
#[derive(Debug, Default)]
pub(super) struct Class {
    /// The hash of namespace, labels and ports.
    digest: u128,
    pub(super) namespace: u32,
    pub(super) labels: u32,
    pub(super) ports: u32,
    pub(super) n_pods: u32,
    /// The first of its pods, which form a linked list.
    pub(super) first_pod: u32,
    /// The groups that its pods' addresses are in; `NONE` before its first commit.
    pub(super) groups: u32,
    next: u32,
    previous: u32,
}

impl Class {
    /// Returns false for the blank that a dropped class leaves.
    pub(super) fn is_there(&self) -> bool {
        self.digest != 0
    }
}

/// A policy in its encoded form.
#[derive(Debug, Default)]
pub(super) struct Policy {
    /// The hash of its object's key.
    // Long enough to stand for the key, which is stored nowhere.
    digest: u128,
    pub(super) bytes: Box<[u8]>,
    /// Its entries in the budget of its namespace.
    entries: u64,
    /// Its namespace, or `NONE`.
    pub(super) namespace: u32,
    /// The next NetworkPolicy of the namespace.
    next: u32,
}

/// The data of a host-network pod, which has no class.
#[derive(Clone, Copy, Debug)]
struct Hosted {
    namespace: u32,
    /// The name of its node, or `NONE`.
    node: Symbol,
}

/// The changes since the last commit.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) touched: Touched,
    /// Pods that were removed; their numbers are free after the commit.
    pub(super) gone_pods: Vec<u32>,
    pub(super) gone_nodes: Vec<u32>,
    /// Namespaces with other labels.
    pub(super) relabelled: Vec<u32>,
    /// Nodes with other labels.
    pub(super) relabelled_nodes: Vec<u32>,
    /// Classes that are new.
    pub(super) new_classes: Vec<u32>,
    /// Namespaces with other NetworkPolicies.
    pub(super) policed: Vec<u32>,
    /// Changed policies of the ordered tiers, in their old and in their new form.
    pub(super) ordered: Vec<(u32, Box<[u8]>)>,
    /// Policies that were removed; their numbers are free after the commit.
    pub(super) gone_policies: Vec<u32>,
    /// Pods that were deleted and created again under the same name.
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
            amongs: PodSubsets::default(),
            changes: Changes::default(),
            scratch: Vec::new(),
        }
    }

    /// Returns the number of a label set, with one more use.
    fn label_set(&mut self, labels: &[(&str, &str)]) -> u32 {
        let mut pairs = Vec::with_capacity(labels.len());
        for (key, value) in labels {
            pairs.push((self.texts.intern(key), self.texts.intern(value)));
        }
        let (id, is_new) = self.labels.intern(&pairs);
        // A set has one use of each text, however many uses it has itself.
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

    /// Returns whether a label set has these texts.
    fn same_labels(&self, id: u32, labels: &[(&str, &str)]) -> bool {
        let pairs = self.labels.get(id);
        let same = |((key, value), (its_key, its_value)): (&(u32, u32), &(&str, &str))| {
            self.texts.get(*key) == *its_key && self.texts.get(*value) == *its_value
        };
        pairs.len() == labels.len() && pairs.iter().zip(labels).all(same)
    }

    /// Returns the number of a namespace, with one more use. It need not have an object (yet).
    fn use_namespace(&mut self, name: &str) -> u32 {
        let symbol = self.texts.intern(name);
        if let Some(known) = self.namespace_ids.get(&symbol).copied() {
            self.texts.release(symbol);
            if let Some(namespace) = self.namespaces.get_mut(known) {
                namespace.uses += 1;
            }
            return known;
        }
        // The only label of a namespace without object (D23).
        let labels = self.label_set(&[(NAME_LABEL, name)]);
        let id = self.namespaces.insert(Namespace {
            name: symbol,
            hash: self.texts.hashes().text(name).short(),
            labels,
            has_object: false,
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

    /// Sets the labels of a namespace from its object; `None` if there is no object.
    pub(super) fn set_namespace(&mut self, name: &str, object: Option<&[(&str, &str)]>) -> bool {
        let symbol = self.texts.find(name);
        let known = symbol.and_then(|it| self.namespace_ids.get(&it).copied());
        let was_known = known.and_then(|id| self.namespaces.get(id));
        let was_known = was_known.is_some_and(|it| it.has_object);
        if !was_known && object.is_none() {
            return false;
        }
        let id = self.use_namespace(name);
        let before = self.namespaces.get(id).map_or(NONE, |it| it.labels);
        let by_name = [(NAME_LABEL, name)];
        let labels = object.unwrap_or(&by_name);
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
            namespace.has_object = object.is_some();
        }
        // The object is one use. `use_namespace` above added it: one too many if it was there
        // before, and two if it is gone.
        if was_known {
            self.release_namespace(id);
        }
        if object.is_none() {
            self.release_namespace(id);
        }
        differs || was_known != object.is_some()
    }

    /// Returns the classes of a namespace.
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

    /// Returns the NetworkPolicies of a namespace, in no order.
    pub(super) fn policies_of(&self, namespace: u32) -> Vec<u32> {
        // A removed namespace is a blank, whose first policy is 0 and not `NONE`.
        let first = self.namespaces.get(namespace).filter(|it| it.uses > 0);
        let mut next = first.map_or(NONE, |it| it.first_policy);
        let mut policies = Vec::new();
        while let Some(policy) = self.policies.get(next) {
            policies.push(next);
            next = policy.next;
        }
        policies
    }

    /// Determines which policies do not fit into the budgets of their namespaces.
    pub(super) fn find_over_budget(&mut self) {
        let mut policed = std::mem::take(&mut self.changes.policed);
        // Each changed policy has added its namespace, possibly thousands of times.
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

    /// Returns the pods of a class.
    pub(super) fn pods_of(&self, class: u32) -> impl Iterator<Item = (u32, &Pod)> {
        let mut next = self.classes.get(class).map_or(NONE, |it| it.first_pod);
        std::iter::from_fn(move || {
            let id = next;
            let pod = self.pods.get(id)?;
            next = pod.next;
            Some((id, pod))
        })
    }

    /// Drops the changes of the batch, and releases everything that was kept for the commit.
    // Only now are the numbers of removed objects free: until here they name these objects.
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
