//! Rule chains and their steps, each stored once while a local class uses it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::super::digest::Hashes;
use super::super::slab::Slab;
use crate::plan::{AfterAdmin, GroupId, MergedUnion, PeerScope, RuleChain, RuleChainId, Step};
use crate::policy::{Action, Direction, Verdict};

/// The number of times that steps and unions name a group.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GroupUses {
    pub(super) all: u32,
    /// The uses in steps that deny or pass, and in exceptions: a new member may lose access.
    pub(super) narrowing: u32,
}

/// The rule chains, their steps, and the uses of groups by them.
#[derive(Debug)]
pub(in crate::incremental) struct RuleChains {
    pub(in crate::incremental) stored: BTreeMap<RuleChainId, StoredChain>,
    ids: HashMap<Arc<ChainContent>, RuleChainId, Hashes>,
    next: u32,
    steps: Slab<KeptStep>,
    // Authors choose the ports in steps, so the hash is keyed.
    step_ids: HashMap<Arc<Step>, u32, Hashes>,
    pub(super) uses: FxHashMap<u32, GroupUses>,
    /// The groups that lost their last use since the last commit.
    pub(super) unused: Vec<u32>,
}

/// A rule chain in use.
#[derive(Debug)]
pub(in crate::incremental) struct StoredChain {
    pub(in crate::incremental) chain: Arc<RuleChain>,
    content: Arc<ChainContent>,
    /// The number of local classes that use the chain.
    uses: u32,
}

/// The parts of a rule chain, with steps by number.
// Rule chains are compared by these numbers. A chain can have thousands of steps, most of which
// other chains have as well.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ChainContent {
    direction: Direction,
    admin: StepList,
    rest: RestList,
}

/// Steps, by number.
pub(super) type StepList = Arc<[u32]>;

/// The part of a rule chain after the Admin tier.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RestList {
    pub(super) merged: MergedUnion,
    pub(super) steps: StepList,
    pub(super) verdict: Verdict,
}

#[derive(Debug, Default)]
struct KeptStep {
    step: Option<Arc<Step>>,
    uses: u32,
}

/// Finds the numbers of the steps of one planner run, in which classes share many steps.
#[derive(Debug, Default)]
pub(super) struct StepInterner(FxHashMap<usize, (Arc<Step>, u32)>);

impl RuleChains {
    pub(super) fn new(hashes: Hashes) -> RuleChains {
        RuleChains {
            stored: BTreeMap::new(),
            ids: HashMap::with_hasher(hashes),
            next: 0,
            steps: Slab::default(),
            step_ids: HashMap::with_hasher(hashes),
            uses: FxHashMap::default(),
            unused: Vec::new(),
        }
    }

    /// Returns the numbers of some steps. A rule chain must use them before the commit ends.
    // A new step has no use yet, and only its release would remove it.
    pub(super) fn list(&mut self, steps: &[Arc<Step>], interner: &mut StepInterner) -> StepList {
        let numbers = steps.iter().map(|step| {
            // The planner returns the same `Arc` for the same step: its address is found without a
            // hash of the step. The interner keeps the `Arc`, so the address stays that of this
            // step.
            let pointer = Arc::as_ptr(step).addr();
            if let Some((_, known)) = interner.0.get(&pointer) {
                return *known;
            }
            let id = match self.step_ids.get(step) {
                Some(known) => *known,
                None => {
                    let id = self.steps.insert(KeptStep {
                        step: Some(Arc::clone(step)),
                        uses: 0,
                    });
                    self.step_ids.insert(Arc::clone(step), id);
                    id
                }
            };
            interner.0.insert(pointer, (Arc::clone(step), id));
            id
        });
        numbers.collect()
    }

    pub(super) fn rest(&mut self, rest: &AfterAdmin, interner: &mut StepInterner) -> RestList {
        RestList {
            merged: rest.merged.clone(),
            steps: self.list(&rest.steps, interner),
            verdict: rest.verdict,
        }
    }

    /// Returns the number of a rule chain, with one more use, and whether the chain is new. `None`
    /// if there is nothing to evaluate.
    pub(super) fn take(
        &mut self,
        direction: Direction,
        admin: &StepList,
        rest: &RestList,
    ) -> Option<(RuleChainId, bool)> {
        let content = ChainContent {
            direction,
            admin: Arc::clone(admin),
            rest: rest.clone(),
        };
        if let Some(known) = self.ids.get(&content).copied() {
            if let Some(kept) = self.stored.get_mut(&known) {
                kept.uses += 1;
            }
            return Some((known, false));
        }
        let whole = AfterAdmin {
            merged: rest.merged.clone(),
            steps: self.arcs(&rest.steps),
            verdict: rest.verdict,
        };
        let chain = Arc::new(whole.after(self.arcs(admin), direction)?);
        for id in admin.iter().chain(rest.steps.iter()) {
            self.use_step(*id);
        }
        for GroupId(group) in rest.merged.groups() {
            self.uses.entry(group).or_default().all += 1;
        }
        let id = self.number();
        let content = Arc::new(content);
        self.ids.insert(Arc::clone(&content), id);
        let kept = StoredChain {
            chain,
            content,
            uses: 1,
        };
        self.stored.insert(id, kept);
        Some((id, true))
    }

    /// Returns a number that no rule chain has had.
    // Packets in flight are still in an old chain while its successor is written. A number that is
    // used again would write into it.
    pub(super) fn number(&mut self) -> RuleChainId {
        let id = RuleChainId(self.next);
        self.next += 1;
        id
    }

    /// Removes a use. Returns whether it was the last one.
    pub(super) fn release(&mut self, id: RuleChainId) -> bool {
        let Some(kept) = self.stored.get_mut(&id) else {
            return false;
        };
        kept.uses -= 1;
        if kept.uses > 0 {
            return false;
        }
        if let Some(kept) = self.stored.remove(&id) {
            self.ids.remove(&kept.content);
            let ChainContent { admin, rest, .. } = &*kept.content;
            for id in admin.iter().chain(rest.steps.iter()) {
                self.release_step(*id);
            }
            for GroupId(group) in rest.merged.groups() {
                self.release_group(group, false);
            }
        }
        true
    }

    /// Returns the steps in use.
    pub(super) fn each_step(&self) -> impl Iterator<Item = (u32, &Step)> {
        let steps = self.steps.iter();
        steps.filter_map(|(id, kept)| Some((id, &**kept.step.as_ref()?)))
    }

    pub(super) fn step(&self, id: u32) -> Option<&Step> {
        self.steps.get(id)?.step.as_deref()
    }

    fn arcs(&self, ids: &[u32]) -> Vec<Arc<Step>> {
        let steps = ids.iter().filter_map(|id| self.steps.get(*id));
        steps.filter_map(|it| it.step.clone()).collect()
    }

    fn use_step(&mut self, id: u32) {
        let Some(kept) = self.steps.get_mut(id) else {
            return;
        };
        kept.uses += 1;
        // Groups count steps, not the chains that share a step.
        if kept.uses > 1 {
            return;
        }
        let step = kept.step.clone();
        for (group, narrows) in step.iter().flat_map(|step| named_by(step)) {
            let uses = self.uses.entry(group).or_default();
            uses.all += 1;
            uses.narrowing += u32::from(narrows);
        }
    }

    fn release_step(&mut self, id: u32) {
        let Some(kept) = self.steps.get_mut(id) else {
            return;
        };
        kept.uses -= 1;
        if kept.uses > 0 {
            return;
        }
        if let Some(step) = self.steps.remove(id).step {
            self.step_ids.remove(&step);
            for (group, narrows) in named_by(&step) {
                self.release_group(group, narrows);
            }
        }
    }

    fn release_group(&mut self, group: u32, narrows: bool) {
        if let Some(uses) = self.uses.get_mut(&group) {
            uses.all -= 1;
            uses.narrowing -= u32::from(narrows);
            // Only noted: a chain of the same commit may use the group again, and its members then
            // need not be written anew.
            if uses.all == 0 {
                self.uses.remove(&group);
                self.unused.push(group);
            }
        }
    }
}

/// Returns the groups that a step names, each with whether a new member may lose access.
fn named_by(step: &Step) -> Vec<(u32, bool)> {
    // An exception of a step that accepts takes access away as well.
    let narrows = step.action != Action::Accept;
    let mut named = Vec::new();
    for port in step.ports.iter().flatten() {
        named.extend(port.at.map(|GroupId(group)| (group, narrows)));
    }
    for peer in step.peers.iter().flatten() {
        if let PeerScope::Group(GroupId(group)) = peer.within {
            named.push((group, narrows));
        }
        named.extend(peer.except.iter().map(|GroupId(group)| (*group, true)));
    }
    named
}
