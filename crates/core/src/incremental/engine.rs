//! What local pods have to face, kept up to date.
//!
//! A commit plans anew only what local classes concern: the ordered tiers of classes that a changed policy
//! selects, the union of classes whose namespace has other NetworkPolicies; both by the ordinary compiler and
//! planner, on an excerpt of the cluster. Who is in the groups that bodies name is kept for each class of
//! pods, and what changed about an address is the difference between two lists of groups.

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
use super::sharing::{Sharing, Told};
use super::slab::NONE;
use super::store::{Owner, Store};
use crate::plan::{PlanChange, PodChains, RuleChainId};
use crate::policy::Direction;

/// What is kept of the plan.
#[derive(Debug)]
pub(super) struct Engine {
    merge_over: usize,
    numbers: GroupNumbers,
    rules: RuleNumbers,
    pub(super) groups: Groups,
    pub(super) chains: RuleChains,
    /// Which groups are told as one.
    sharing: Sharing,
    /// How many sets were split.
    pub(super) splits: u64,
    /// How bodies are told.
    pub(super) told: Told,
    /// The classes that have local pods.
    pub(super) local: BTreeMap<u32, LocalClass>,
    /// The addresses of local pods: the class, and what they face, once that was told.
    pub(super) pods: BTreeMap<IpAddr, (u32, Option<PodChains>)>,
    /// How many addresses have each list of ports; none is zero.
    with_ports: FxHashMap<u32, u32>,
    /// What the names of ports that were asked for stand for.
    names: PortNames,
}

/// A class that has local pods.
#[derive(Debug, Default)]
pub(super) struct LocalClass {
    addresses: BTreeSet<IpAddr>,
    ingress: DirectionPlan,
    egress: DirectionPlan,
    /// The names of ports that were asked for when it was planned.
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

/// What a class faces in one direction.
#[derive(Debug, Default)]
struct DirectionPlan {
    admin: StepList,
    /// The NetworkPolicies, or else the Baseline tier.
    rest: Option<RestList>,
    is_union: bool,
    chain: Option<RuleChainId>,
}

/// What has to be planned anew.
#[derive(Debug, Default)]
struct Dirty {
    /// The ordered tiers of these classes.
    ordered: BTreeSet<u32>,
    /// What some policies of the Admin tier say to these.
    spliced: BTreeSet<u32>,
    /// Those policies, as they were or as they are.
    admin: BTreeSet<u32>,
    /// The NetworkPolicies of these.
    union: BTreeSet<u32>,
    /// Addresses of local pods, now or before.
    addresses: BTreeSet<IpAddr>,
    /// Classes that have no local pods any more.
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
            told: Told::default(),
            local: BTreeMap::new(),
            pods: BTreeMap::new(),
            with_ports: FxHashMap::default(),
            names: PortNames::new(),
        }
    }

    /// Ends a batch.
    pub(super) fn commit(&mut self, store: &mut Store) -> PlanChange {
        let mut change = PlanChange::default();
        store.find_over_budget();
        let mut touched = std::mem::take(&mut store.changes.touched);
        let recreated = std::mem::take(&mut store.changes.recreated);
        let mut dirty = Dirty::default();
        let mut ports_changed = false;
        for (address, before) in touched.iter_mut() {
            let owner = store.owner(*address);
            before.now = owner;
            let (_, ports) = store.standing(owner);
            let is_new = matches!(owner, Some(Owner::Pod(id)) if recreated.contains(&id));
            if before.owner.is_some() && (before.owner != owner || is_new) {
                change.changed_hands.push(*address);
                change.rejudge |= owner.is_some();
            }
            ports_changed |= self.move_ports(before.ports, ports);
            let local = store.local_class(owner);
            if before.is_local || local.is_some() {
                self.move_local(*address, local, &mut dirty);
            }
        }
        change.changed_hands.sort_unstable();
        change.rejudge |= !dirty.addresses.is_empty();
        self.end_empty(&mut dirty);
        self.find_dirty(store, ports_changed, &mut dirty);
        self.plan_dirty(store, &mut dirty, &mut change);
        for policy in &store.changes.gone_policies {
            self.rules.forget(*policy);
        }
        store.changes.touched = touched;
        self.move_members(store, &mut change);
        self.change_pods(&dirty, &mut change);
        store.settle();
        self.share(store, change)
    }

    /// Counts an address under other ports; says whether some ports appeared or are gone.
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

    /// Takes note of the class that an address is local with.
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
                // What it faces is told at the end.
                let faced = self.pods.get(&address).and_then(|(_, faced)| *faced);
                self.pods.insert(address, (class, faced));
            }
        }
    }

    fn end_empty(&mut self, dirty: &mut Dirty) {
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

    /// The policy of a rule, its direction, and its place there.
    pub(super) fn rule(&self, id: u32) -> Option<(u32, Direction, u32)> {
        self.rules.place(id)
    }
}
