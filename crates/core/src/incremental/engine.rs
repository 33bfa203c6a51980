//! The rule chains of local pods, kept up to date.
//!
//! A commit plans only what a change concerns: the ordered tiers of local classes that a changed
//! policy selects, and the unions of local classes in namespaces with changed NetworkPolicies. The
//! ordinary compiler and planner do so on an excerpt of the cluster. Each class of pods has a list
//! of the groups that it is in. The change of an address is the difference between two such lists.

mod addresses;
mod admin;
mod class_plan;
mod groups;
mod local;
mod membership;
mod registry;
mod rule_chains;
mod share;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use rustc_hash::FxHashMap;

use self::groups::Groups;
pub(super) use self::registry::TextSpec;
use self::registry::{GroupNumbers, PortNames, RuleNumbers};
use self::rule_chains::{RestList, RuleChains, StepList};
use super::digest::Hashes;
use super::sharing::{PublishedChains, Sharing};
use super::slab::NONE;
use super::store::{Owner, Store};
use crate::plan::{PlanChange, PodChains, RuleChainId};
use crate::policy::Direction;

/// The plan of the node, in parts that change separately.
#[derive(Debug)]
pub(super) struct Engine {
    merge_over: usize,
    numbers: GroupNumbers,
    rules: RuleNumbers,
    pub(super) groups: Groups,
    pub(super) chains: RuleChains,
    /// The sets that stand for groups.
    sharing: Sharing,
    /// The number of sets that were split so far.
    pub(super) splits: u64,
    /// The rule chains as published, where they differ from the engine's.
    pub(super) published: PublishedChains,
    /// The classes that have local pods.
    pub(super) local: BTreeMap<u32, LocalClass>,
    /// The addresses of local pods: the class, and the rule chains as of the last commit, if any.
    pub(super) pods: BTreeMap<IpAddr, (u32, Option<PodChains>)>,
    /// The number of addresses with each list of ports; none is zero.
    with_ports: FxHashMap<u32, u32>,
    /// The names of ports that plans resolved, with their results.
    names: PortNames,
}

/// A class that has local pods.
#[derive(Debug, Default)]
pub(super) struct LocalClass {
    addresses: BTreeSet<IpAddr>,
    ingress: DirectionPlan,
    egress: DirectionPlan,
    /// The names of ports that its plan resolved.
    names: BTreeSet<Box<str>>,
}

impl LocalClass {
    fn side(&mut self, direction: Direction) -> &mut DirectionPlan {
        match direction {
            Direction::Ingress => &mut self.ingress,
            Direction::Egress => &mut self.egress,
        }
    }

    fn pod_chains(&self) -> PodChains {
        PodChains {
            egress: self.egress.chain,
            ingress: self.ingress.chain,
        }
    }
}

/// The plan of a class for one direction.
#[derive(Debug, Default)]
struct DirectionPlan {
    admin: StepList,
    /// The NetworkPolicies if they isolate the class, else the Baseline tier.
    rest: Option<RestList>,
    /// Whether `rest` is the NetworkPolicies.
    is_union: bool,
    chain: Option<RuleChainId>,
}

/// The parts of the plan that a commit must renew.
#[derive(Debug, Default)]
struct Dirty {
    /// Classes whose ordered tiers must be planned.
    ordered: BTreeSet<u32>,
    /// Classes for which only some policies of the Admin tier changed.
    spliced: BTreeSet<u32>,
    /// These policies, in their old or new form.
    admin: BTreeSet<u32>,
    /// Classes whose NetworkPolicies must be planned.
    union: BTreeSet<u32>,
    /// Addresses of pods that are local now or were before.
    addresses: BTreeSet<IpAddr>,
    /// Classes that no longer have local pods.
    ended: Vec<LocalClass>,
}

impl Engine {
    pub(super) fn new(merge_over: usize, share_from: usize, hashes: Hashes) -> Engine {
        Engine {
            merge_over,
            numbers: GroupNumbers::new(hashes),
            rules: RuleNumbers::default(),
            groups: Groups::default(),
            chains: RuleChains::new(hashes),
            sharing: Sharing::new(share_from, hashes),
            splits: 0,
            published: PublishedChains::default(),
            local: BTreeMap::new(),
            pods: BTreeMap::new(),
            with_ports: FxHashMap::default(),
            names: PortNames::new(),
        }
    }

    /// Ends a batch, and returns the difference of the plan.
    // The order of the steps:
    // 1. Owners of addresses, local classes and counts of ports, since everything below uses them.
    // 2. Rule chains. Planning finds out which groups begin, and which end.
    // 3. Members, which need these groups and the lists that `touch` retained.
    // 4. `settle` releases these lists and the numbers of removed objects. From here on the store
    //    has the state after the commit, and no touched address.
    // 5. `share` translates the finished change from groups to sets.
    pub(super) fn commit(&mut self, store: &mut Store) -> PlanChange {
        let mut change = PlanChange::default();
        // Whether a policy keeps its rules depends on the others of its namespace. Planning reads
        // only the result.
        store.find_over_budget();
        // Taken out for the loop, which changes `touched` and reads the rest of the store.
        let mut touched = std::mem::take(&mut store.changes.touched);
        let recreated = std::mem::take(&mut store.changes.recreated);
        let mut dirty = Dirty::default();
        let mut ports_changed = false;
        for (address, before) in touched.iter_mut() {
            let owner = store.owner(*address);
            before.now = owner;
            let (_, ports) = store.lists_of(owner);
            // A pod that was deleted and created again between two reads keeps its number, but the
            // connections of its address belong to the old pod.
            let is_new = matches!(owner, Some(Owner::Pod(id)) if recreated.contains(&id));
            if before.owner.is_some() && (before.owner != owner || is_new) {
                change.changed_hands.push(*address);
                change.reevaluate |= owner.is_some();
            }
            ports_changed |= self.move_ports(before.ports, ports);
            let local = store.local_class(owner);
            if before.is_local || local.is_some() {
                self.move_local(*address, local, &mut dirty);
            }
        }
        change.changed_hands.sort_unstable();
        change.reevaluate |= !dirty.addresses.is_empty();
        // After the loop: a class may lose its last address before it gets another one.
        self.end_empty(&mut dirty);
        self.find_dirty(store, ports_changed, &mut dirty);
        self.plan_dirty(store, &mut dirty, &mut change);
        // After planning, which finds the steps of a removed policy by the numbers of its rules.
        for policy in &store.changes.gone_policies {
            self.rules.remove(*policy);
        }
        // Back in the store before members move: `is_touched` must be true for these addresses,
        // which are compared one by one, and not again with their class. `settle` must release the
        // lists in it.
        store.changes.touched = touched;
        self.move_members(store, &mut change);
        self.change_pods(&dirty, &mut change);
        store.settle();
        self.share(store, change)
    }

    /// Counts an address under other ports. Returns whether a list of ports appeared or is gone.
    // Only then can a name resolve to other ports. Most new addresses are pods of workloads that
    // have others.
    fn move_ports(&mut self, before: u32, after: u32) -> bool {
        if before == after {
            return false;
        }
        let mut changed = false;
        if before != NONE
            && let Some(count) = self.with_ports.get_mut(&before)
        {
            *count -= 1;
            if *count == 0 {
                self.with_ports.remove(&before);
                changed = true;
            }
        }
        if after != NONE {
            let count = self.with_ports.entry(after).or_insert(0);
            *count += 1;
            changed |= *count == 1;
        }
        changed
    }

    /// Notes the class of the local pod that owns an address; `None` if no local pod owns it.
    fn move_local(&mut self, address: IpAddr, class: Option<u32>, dirty: &mut Dirty) {
        let before = self.pods.get(&address).map(|(class, _)| *class);
        dirty.addresses.insert(address);
        if before == class {
            return;
        }
        if let Some(local) = before.and_then(|class| self.local.get_mut(&class)) {
            local.addresses.remove(&address);
        }
        match class {
            None => {
                self.pods.remove(&address);
            }
            Some(class) => {
                let local = self.local.entry(class).or_insert_with(|| {
                    dirty.ordered.insert(class);
                    dirty.union.insert(class);
                    LocalClass::default()
                });
                local.addresses.insert(address);
                // The old rule chains stay until `change_pods` compares: if the new class has the
                // same ones, nothing is published.
                let chains = self.pods.get(&address).and_then(|(_, chains)| *chains);
                self.pods.insert(address, (class, chains));
            }
        }
    }

    fn end_empty(&mut self, dirty: &mut Dirty) {
        // Most batches move no local address, and need no look at all local classes.
        if dirty.addresses.is_empty() {
            return;
        }
        let ended = self.local.extract_if(.., |_, it| it.addresses.is_empty());
        for (class, local) in ended {
            dirty.ordered.remove(&class);
            dirty.union.remove(&class);
            dirty.spliced.remove(&class);
            dirty.ended.push(local);
        }
    }

    /// Returns the policy of a rule, its direction, and its position in the rule list.
    pub(super) fn rule(&self, id: u32) -> Option<(u32, Direction, u32)> {
        self.rules.place(id)
    }
}
