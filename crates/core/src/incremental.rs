//! The plan of one node, kept up to date while objects change.
//!
//! Objects come in one by one, each lowered by itself. The store keeps the parts of them that
//! policies can see, in a compact form. A batch ends with a commit, which returns the difference of
//! the node's plan. There is no second engine: rule chains come from the compiler and the planner,
//! which run on the few classes and policies that a change concerns.

mod arena;
mod digest;
mod encoded;
mod engine;
mod named;
mod names;
mod select;
mod sharing;
mod slab;
mod store;
mod texts;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

pub use self::digest::HashKey;
use self::digest::Hashes;
use self::engine::Engine;
use self::store::{Claimant, Store};
use crate::budget::Budget;
use crate::model::Cluster;
use crate::net::Cidr;
use crate::plan::{MERGE_OVER, Plan, PlanChange, PodChains, RuleChain, RuleChainId, SHARE_FROM};
use crate::policy::{Direction, PolicyApi};
use crate::program::RuleId;
use crate::text::object_id;

/// The kinds of objects that the plan of a node depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObjectKind {
    /// A pod.
    Pod,
    /// A namespace.
    Namespace,
    /// A node.
    Node,
    /// A policy of this API.
    Policy(PolicyApi),
}

impl ObjectKind {
    /// Returns the prefix of identifiers of its objects: `pod`, `ns`, `node`, `netpol`, `cnp`, ...
    pub fn short(self) -> &'static str {
        match self {
            ObjectKind::Pod => "pod",
            ObjectKind::Namespace => "ns",
            ObjectKind::Node => "node",
            ObjectKind::Policy(api) => api.short(),
        }
    }
}

// By the text, as in identifiers: the order of kinds reaches no evaluation, and a new kind changes
// no order of others.
impl Ord for ObjectKind {
    fn cmp(&self, other: &ObjectKind) -> Ordering {
        self.short().cmp(other.short())
    }
}

impl PartialOrd for ObjectKind {
    fn partial_cmp(&self, other: &ObjectKind) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The key of an object. It includes the kind: a policy and a pod of one name are two objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey<'a> {
    /// The kind.
    pub kind: ObjectKind,
    /// The namespace; empty for cluster-wide kinds.
    pub namespace: &'a str,
    /// The name of the object in its namespace.
    pub name: &'a str,
}

impl ObjectKey<'_> {
    /// Returns the identifier, as in problems of the object: `netpol/shop/db`.
    pub fn id(self) -> String {
        object_id(self.kind.short(), self.namespace, self.name)
    }
}

/// Keeps the parts of a cluster that policies can see, and the plan of one node.
#[derive(Debug)]
pub struct IncrementalPlanner {
    store: Store,
    engine: Engine,
    snapshot: Arc<Snapshot>,
    /// Whether a commit came after the snapshot.
    is_old: bool,
}

/// The sizes of the store and of the plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pods that have an address and have not terminated.
    pub pods: usize,
    /// Namespaces that have an object.
    pub namespaces: usize,
    /// Nodes that have an object.
    pub nodes: usize,
    /// NetworkPolicies of both API versions, v1 and 2016.
    pub network_policies: usize,
    /// Policies of the ordered tiers.
    pub ordered_policies: usize,
    /// NetworkPolicies that do not fit into the budgets of their namespaces.
    pub over_budget: usize,
    /// Classes of pods, some of which may be without pods.
    pub classes: usize,
    /// Addresses that an object claims.
    pub addresses: usize,
    /// Addresses of pods of this node.
    pub local_addresses: usize,
    /// Classes of pods of this node.
    pub local_classes: usize,
    /// Groups that rule chains name.
    pub groups: usize,
    /// Sets that stand for these groups; groups of the same members can share one.
    pub sets: usize,
    /// Splits so far of sets whose groups became different.
    pub splits: u64,
    /// Rule chains of the pods of this node.
    pub chains: usize,
}

/// The state of a commit. A reader that keeps a snapshot does not block the next commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The rule chains, by their published numbers.
    pub chains: BTreeMap<RuleChainId, Arc<RuleChain>>,
    /// The rule chains of each address of the node's pods.
    pub pods: BTreeMap<IpAddr, PodChains>,
    /// The sizes at that commit.
    pub counts: Counts,
}

/// An address that more than one object claims.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedConflict {
    /// The contested address.
    pub address: IpAddr,
    /// The claimants as `namespace/name` or `node/name`, the owner first (D82, D134).
    pub claimants: Vec<String>,
}

/// The location of a rule: policy, direction and index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleName<'l> {
    /// The API of the policy.
    pub api: PolicyApi,
    /// The namespace of the policy; empty for cluster-wide kinds.
    pub namespace: &'l str,
    /// The name of the policy.
    pub name: &'l str,
    /// The direction of the rule list.
    pub direction: Direction,
    /// The position in the rule list.
    pub index: u32,
}

impl IncrementalPlanner {
    /// Returns an empty planner for the node of this name. `key` is the key of all its hashes.
    pub fn new(node: &str, key: HashKey) -> IncrementalPlanner {
        IncrementalPlanner::merging(node, key, MERGE_OVER)
    }

    /// Returns an empty planner that merges unions of more steps than `merge_over` into sets.
    pub fn merging(node: &str, key: HashKey, merge_over: usize) -> IncrementalPlanner {
        IncrementalPlanner::sharing(node, key, merge_over, SHARE_FROM)
    }

    /// Returns a planner like [`IncrementalPlanner::merging`]. Groups of the same members share a
    /// set if they have `share_from` members or more.
    pub fn sharing(
        node: &str,
        key: HashKey,
        merge_over: usize,
        share_from: usize,
    ) -> IncrementalPlanner {
        IncrementalPlanner::within(Budget::default(), node, key, merge_over, share_from)
    }

    /// Returns a planner like [`IncrementalPlanner::sharing`], with this budget for the
    /// NetworkPolicies of each namespace.
    pub fn within(
        budget: Budget,
        node: &str,
        key: HashKey,
        merge_over: usize,
        share_from: usize,
    ) -> IncrementalPlanner {
        let hashes = Hashes::new(key);
        IncrementalPlanner {
            store: Store::new(node, hashes, budget),
            engine: Engine::new(merge_over, share_from, hashes),
            snapshot: Arc::default(),
            is_old: false,
        }
    }

    /// Takes in an object as it is now. `lowered` is the cluster that has this object only. Returns
    /// whether policies can see a difference.
    pub fn set(&mut self, key: ObjectKey<'_>, lowered: &Cluster<'_>) -> bool {
        match key.kind {
            ObjectKind::Pod => {
                let pod = lowered.pods.first();
                self.store.set_pod(key.namespace, key.name, pod)
            }
            ObjectKind::Namespace => {
                // Lowering lists every namespace that an object names; `has_object` distinguishes
                // the Namespace itself from a reference to it.
                let namespace = lowered.namespaces.iter().find(|it| it.name == key.name);
                let labels = namespace.filter(|it| it.has_object).map(|it| &*it.labels);
                // The annotation of 2016 is lowered to a policy of its own (D69), which the store
                // keeps under the key of the Namespace.
                let isolation = lowered.policies.first().map(|policy| (lowered, policy));
                let differs = self.store.set_namespace(key.name, labels);
                // Left of the `||`: the isolation must be set whether or not the labels differ.
                self.store.set_isolation(key, isolation) || differs
            }
            ObjectKind::Node => {
                let node = lowered.nodes.iter().find(|it| it.name == key.name);
                self.store.set_node(key.name, node)
            }
            ObjectKind::Policy(_) => {
                let policy = lowered.policies.first().map(|policy| (lowered, policy));
                self.store.set_policy(key, policy)
            }
        }
    }

    /// Removes an object. Returns whether policies can see a difference.
    pub fn remove(&mut self, key: ObjectKey<'_>) -> bool {
        // An object that is lowered to nothing and an object that is gone have the same effect.
        self.set(key, &Cluster::default())
    }

    /// Ends a batch. Returns the difference of the plan since the last commit.
    pub fn commit(&mut self) -> PlanChange {
        self.is_old = true;
        self.engine.commit(&mut self.store)
    }

    /// Lets all groups of the same members share a set from now on. The changes of earlier commits
    /// do not lead to the plan after this call. Call it before [`IncrementalPlanner::plan`] returns
    /// the whole plan for a new installation.
    pub fn share(&mut self) {
        self.is_old = true;
        self.engine.merge();
    }

    /// Returns the whole plan as of the last commit.
    pub fn plan(&self) -> Plan {
        self.engine.plan(&self.store)
    }

    /// Returns the rule of this number in steps, as long as its policy exists.
    pub fn rule(&self, RuleId(id): RuleId) -> Option<RuleName<'_>> {
        let (policy, direction, index) = self.engine.rule(id)?;
        let (api, namespace, name) = self.store.policy_name(policy)?;
        Some(RuleName {
            api,
            namespace,
            name,
            direction,
            index,
        })
    }

    /// Returns the sizes of the store and of the plan.
    pub fn counts(&self) -> Counts {
        let namespaces = self.store.namespaces.iter();
        let ordered_policies = self.store.ordered.len();
        Counts {
            pods: self.store.pods.len(),
            namespaces: namespaces.filter(|(_, it)| it.has_object).count(),
            nodes: self.store.node_ids.len(),
            network_policies: self.store.policies.len().saturating_sub(ordered_policies),
            ordered_policies,
            over_budget: self.store.over_budget.values().map(BTreeSet::len).sum(),
            classes: self.store.classes.len(),
            addresses: self.store.n_addresses(),
            local_addresses: self.engine.pods.len(),
            local_classes: self.engine.local.len(),
            groups: self.engine.groups.active.len(),
            sets: self.engine.n_sets(),
            splits: self.engine.splits,
            chains: self.engine.chains.stored.len(),
        }
    }

    /// Returns the address blocks of this node's pods, from its Node object.
    pub fn pod_blocks(&self) -> &[Cidr] {
        let node = self.store.node_ids.get(&self.store.own_node);
        let node = node.and_then(|id| self.store.nodes.get(*id));
        node.map(|it| &*it.pod_cidrs).unwrap_or_default()
    }

    /// Returns the addresses of the pods of this node, as of the last commit, in order.
    pub fn local_addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.engine.pods.keys().copied()
    }

    /// Returns the NetworkPolicies that do not fit into the budgets of their namespaces (D148), by
    /// namespace and name, as of the last commit.
    pub fn over_budget(&self) -> Vec<(&str, &str)> {
        let over = self.store.over_budget.values().flatten();
        let names = over.filter_map(|id| self.store.policy_name(*id));
        let mut names: Vec<_> = names
            .map(|(_, namespace, name)| (namespace, name))
            .collect();
        names.sort_unstable();
        names
    }

    /// Returns the addresses that more than one object claims, in order.
    pub fn conflicts(&self) -> Vec<NamedConflict> {
        let name_of = |claimant: &Claimant| match claimant {
            Claimant::Pod(pod) | Claimant::HostPod(pod) => {
                let (namespace, name) = self.store.pod_name(*pod);
                format!("{namespace}/{name}")
            }
            Claimant::Node(node) => format!("node/{}", self.store.node_name(*node)),
        };
        let conflicts = self.store.conflicts().into_iter();
        conflicts
            .map(|(address, claimants)| NamedConflict {
                address,
                claimants: claimants.iter().map(name_of).collect(),
            })
            .collect()
    }

    /// Returns the state as of the last commit.
    pub fn snapshot(&mut self) -> Arc<Snapshot> {
        // Made on demand: a commit costs no more than its change, but a snapshot walks all rule
        // chains and pods of the node.
        if self.is_old {
            self.is_old = false;
            let chains = self.engine.chains.stored.iter();
            let pods = self.engine.pods.iter();
            let published = &self.engine.published;
            self.snapshot = Arc::new(Snapshot {
                chains: chains
                    .map(|(id, it)| published.chain(*id, &it.chain))
                    .collect(),
                pods: pods
                    .filter_map(|(address, (_, chains))| {
                        Some((*address, published.pod_chains((*chains)?)))
                    })
                    .collect(),
                counts: self.counts(),
            });
        }
        Arc::clone(&self.snapshot)
    }
}
