//! What one node has to enforce, while everything changes.
//!
//! Objects are taken in one by one, as what each of them means by itself. What policies can see of
//! them is kept in little room; a batch ends with a commit, which says what is different about the node's plan.
//! There is no second engine: what pods have to face comes from the compiler and the planner, run on the
//! few classes and policies that a change concerns.

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
use crate::policy::Direction;
use crate::program::RuleId;

/// How an object is called. The kind is part of it, so that a policy and a pod of one name are two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey<'a> {
    /// The kind, by the word that stands for it alone: `pod`, `ns`, `node`, `netpol`, `cnp`, ...
    pub kind: &'static str,
    /// The namespace that it lives in; empty if it lives in none.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
}

/// What policies can see of a cluster, and the plan of one node.
#[derive(Debug)]
pub struct IncrementalPlanner {
    store: Store,
    engine: Engine,
    snapshot: Arc<Snapshot>,
    /// Whether something was committed that the snapshot does not have.
    is_old: bool,
}

/// How much there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pods that have an address and have not ended.
    pub pods: usize,
    /// Namespaces whose objects were given.
    pub namespaces: usize,
    /// Nodes.
    pub nodes: usize,
    /// NetworkPolicies of both generations.
    pub network_policies: usize,
    /// Policies of the ordered tiers.
    pub ordered_policies: usize,
    /// NetworkPolicies that do not fit into the budgets of their namespaces.
    pub over_budget: usize,
    /// Classes of pods, some of which may be without pods.
    pub classes: usize,
    /// Addresses that someone has.
    pub addresses: usize,
    /// Addresses of pods of this node.
    pub local_addresses: usize,
    /// Classes of pods of this node.
    pub local_classes: usize,
    /// Groups that bodies name.
    pub groups: usize,
    /// What those are told as: fewer, where some have the same members.
    pub sets: usize,
    /// How many times groups that were told as one have become different.
    pub splits: u64,
    /// What pods of this node have to face.
    pub chains: usize,
}

/// How things were at a commit. Whoever holds it is in nobody's way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// What subjects have to face.
    pub chains: BTreeMap<RuleChainId, Arc<RuleChain>>,
    /// What the addresses of the node's pods have to face.
    pub pods: BTreeMap<IpAddr, PodChains>,
    /// How much there was.
    pub counts: Counts,
}

/// An address that more than one object claims.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// The address.
    pub address: IpAddr,
    /// Who claims it, in words; the first one has it (D82, D134).
    pub claimants: Vec<String>,
}

/// A rule, in words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleName<'l> {
    /// The kind of the policy's object, as its key has it.
    pub kind: &'l str,
    /// The namespace; empty if the policy lives in none.
    pub namespace: &'l str,
    /// The name.
    pub name: &'l str,
    /// The direction of the list.
    pub direction: Direction,
    /// The place in the list.
    pub index: u32,
}

impl IncrementalPlanner {
    /// Nothing yet, for the node of this name. What is kept is found by hashes under this key.
    pub fn new(node: &str, key: HashKey) -> IncrementalPlanner {
        IncrementalPlanner::merging(node, key, MERGE_OVER)
    }

    /// [`IncrementalPlanner::new`], where unions of more steps than `merge_over` are asked at once.
    pub fn merging(node: &str, key: HashKey, merge_over: usize) -> IncrementalPlanner {
        IncrementalPlanner::sharing(node, key, merge_over, SHARE_FROM)
    }

    /// [`IncrementalPlanner::merging`], where groups of at least `share_from` members are told as one if they have the same members.
    pub fn sharing(
        node: &str,
        key: HashKey,
        merge_over: usize,
        share_from: usize,
    ) -> IncrementalPlanner {
        IncrementalPlanner::within(Budget::default(), node, key, merge_over, share_from)
    }

    /// [`IncrementalPlanner::sharing`], where the NetworkPolicies of each namespace have this budget.
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

    /// What an object is now: the cluster that it alone means. Says whether policies can see a
    /// difference.
    pub fn set(&mut self, key: ObjectKey<'_>, meaning: &Cluster<'_>) -> bool {
        match key.kind {
            "pod" | "Pod" => {
                let pod = meaning.pods.first();
                self.store.set_pod(key.namespace, key.name, pod)
            }
            "ns" | "Namespace" => {
                let namespace = meaning.namespaces.iter().find(|it| it.name == key.name);
                let labels = namespace.filter(|it| it.has_object).map(|it| &*it.labels);
                let isolation = meaning.policies.first().map(|policy| (meaning, policy));
                let differs = self.store.set_namespace(key.name, labels);
                self.store.set_isolation(key, isolation) || differs
            }
            "node" | "Node" => {
                let node = meaning.nodes.iter().find(|it| it.name == key.name);
                self.store.set_node(key.name, node)
            }
            _ => {
                let policy = meaning.policies.first().map(|policy| (meaning, policy));
                self.store.set_policy(key, policy)
            }
        }
    }

    /// An object is gone. Says whether policies can see a difference.
    pub fn remove(&mut self, key: ObjectKey<'_>) -> bool {
        self.set(key, &Cluster::default())
    }

    /// Ends a batch: what is different about the plan since the last commit.
    pub fn commit(&mut self) -> PlanChange {
        self.is_old = true;
        self.engine.commit(&mut self.store)
    }

    /// Has all groups that have the same members be told as one from now on. What commits have told so far does not lead to the plan of
    /// after this: it is for when the whole plan is told once more, before [`IncrementalPlanner::plan`] is asked for it.
    pub fn share(&mut self) {
        self.is_old = true;
        self.engine.merge();
    }

    /// The whole plan as of the last commit.
    pub fn plan(&self) -> Plan {
        self.engine.plan(&self.store)
    }

    /// The rule that steps have this number for, as long as its policy is there.
    pub fn rule(&self, RuleId(id): RuleId) -> Option<RuleName<'_>> {
        let (policy, direction, index) = self.engine.rule(id)?;
        let (kind, namespace, name) = self.store.policy_name(policy)?;
        Some(RuleName {
            kind,
            namespace,
            name,
            direction,
            index,
        })
    }

    /// How much there is.
    pub fn counts(&self) -> Counts {
        let namespaces = self.store.namespaces.iter();
        let ordered_policies = self.store.ordered.len();
        Counts {
            pods: self.store.pods.len(),
            namespaces: namespaces.filter(|(_, it)| it.known).count(),
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
            chains: self.engine.chains.bodies.len(),
        }
    }

    /// The blocks that the pods of this node get addresses from, as its object has them.
    pub fn pod_blocks(&self) -> &[Cidr] {
        let node = self.store.node_ids.get(&self.store.own_node);
        let node = node.and_then(|id| self.store.nodes.get(*id));
        node.map(|it| &*it.pod_cidrs).unwrap_or_default()
    }

    /// The addresses of the pods of this node, as of the last commit, in order.
    pub fn local_addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.engine.pods.keys().copied()
    }

    /// The NetworkPolicies that do not fit into the budgets of their namespaces (D148), by namespace and name, as of the last commit.
    pub fn over_budget(&self) -> Vec<(&str, &str)> {
        let over = self.store.over_budget.values().flatten();
        let names = over.filter_map(|id| self.store.policy_name(*id));
        let mut names: Vec<_> = names
            .map(|(_, namespace, name)| (namespace, name))
            .collect();
        names.sort_unstable();
        names
    }

    /// The addresses that more than one object claims, in order.
    pub fn conflicts(&self) -> Vec<Conflict> {
        let named = |claimant: &Claimant| match claimant {
            Claimant::Pod(pod) | Claimant::HostPod(pod) => {
                let (namespace, name) = self.store.pod_name(*pod);
                format!("{namespace}/{name}")
            }
            Claimant::Node(node) => format!("node/{}", self.store.node_name(*node)),
        };
        let conflicts = self.store.conflicts().into_iter();
        conflicts
            .map(|(address, claimants)| Conflict {
                address,
                claimants: claimants.iter().map(named).collect(),
            })
            .collect()
    }

    /// How things are as of the last commit. It is made when it is asked for.
    pub fn snapshot(&mut self) -> Arc<Snapshot> {
        if self.is_old {
            self.is_old = false;
            let bodies = self.engine.chains.bodies.iter();
            let pods = self.engine.pods.iter();
            let told = &self.engine.told;
            self.snapshot = Arc::new(Snapshot {
                chains: bodies.map(|(id, it)| told.body(*id, &it.body)).collect(),
                pods: pods
                    .filter_map(|(address, (_, faced))| Some((*address, told.faced((*faced)?))))
                    .collect(),
                counts: self.counts(),
            });
        }
        Arc::clone(&self.snapshot)
    }
}
