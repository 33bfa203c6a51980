//! Bodies and their steps, each kept once as long as a local class faces it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::super::digest::Hashes;
use super::super::slab::Slab;
use crate::plan::{AfterAdmin, GroupId, MergedUnion, PeerScope, RuleChain, RuleChainId, Step};
use crate::policy::{Action, Direction, Verdict};

/// How often a group is named.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GroupUses {
    pub(super) all: u32,
    /// By what denies, passes on, or makes an exception: who joins such a group may lose something.
    pub(super) narrowing: u32,
}

/// Bodies, steps, and how often groups are named by them.
#[derive(Debug)]
pub(in crate::incremental) struct RuleChains {
    pub(in crate::incremental) bodies: BTreeMap<RuleChainId, Kept>,
    ids: HashMap<Arc<ChainContent>, RuleChainId, Hashes>,
    next: u32,
    steps: Slab<KeptStep>,
    step_ids: HashMap<Arc<Step>, u32, Hashes>,
    pub(super) uses: FxHashMap<u32, GroupUses>,
    /// The groups that lost their last use since the last commit.
    pub(super) unused: Vec<u32>,
}

/// A body that someone faces.
#[derive(Debug)]
pub(in crate::incremental) struct Kept {
    pub(in crate::incremental) body: Arc<RuleChain>,
    content: Arc<ChainContent>,
    uses: u32,
}

/// What a body is made of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ChainContent {
    direction: Direction,
    admin: StepList,
    rest: RestList,
}

/// Steps, by their numbers.
pub(super) type StepList = Arc<[u32]>;

/// What comes after the Admin tier.
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

/// Finds the numbers of the steps of one planning, of which many are the same.
#[derive(Debug, Default)]
pub(super) struct StepInterner(FxHashMap<usize, (Arc<Step>, u32)>);

impl RuleChains {
    pub(super) fn new(hashes: Hashes) -> RuleChains {
        RuleChains {
            bodies: BTreeMap::new(),
            ids: HashMap::with_hasher(hashes),
            next: 0,
            steps: Slab::default(),
            step_ids: HashMap::with_hasher(hashes),
            uses: FxHashMap::default(),
            unused: Vec::new(),
        }
    }

    /// The numbers of some steps. They have to be used before the commit ends.
    pub(super) fn list(&mut self, steps: &[Arc<Step>], seen: &mut StepInterner) -> StepList {
        let numbers = steps.iter().map(|step| {
            // Whoever is seen is kept, so that a place stands for one step.
            let place = Arc::as_ptr(step).addr();
            if let Some((_, known)) = seen.0.get(&place) {
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
            seen.0.insert(place, (Arc::clone(step), id));
            id
        });
        numbers.collect()
    }

    pub(super) fn rest(&mut self, rest: &AfterAdmin, seen: &mut StepInterner) -> RestList {
        RestList {
            merged: rest.merged.clone(),
            steps: self.list(&rest.steps, seen),
            verdict: rest.verdict,
        }
    }

    /// The number of a body, with one more use; `None`: there is nothing to ask. Says whether it is new.
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
            if let Some(kept) = self.bodies.get_mut(&known) {
                kept.uses += 1;
            }
            return Some((known, false));
        }
        let whole = AfterAdmin {
            merged: rest.merged.clone(),
            steps: self.arcs(&rest.steps),
            verdict: rest.verdict,
        };
        let body = Arc::new(whole.after(self.arcs(admin), direction)?);
        for id in admin.iter().chain(rest.steps.iter()) {
            self.use_step(*id);
        }
        for GroupId(group) in rest.merged.groups() {
            self.uses.entry(group).or_default().all += 1;
        }
        let id = self.number();
        let content = Arc::new(content);
        self.ids.insert(Arc::clone(&content), id);
        let kept = Kept {
            body,
            content,
            uses: 1,
        };
        self.bodies.insert(id, kept);
        Some((id, true))
    }

    /// A number that no body has had.
    pub(super) fn number(&mut self) -> RuleChainId {
        let id = RuleChainId(self.next);
        self.next += 1;
        id
    }

    /// One use less; says whether it was the last.
    pub(super) fn release(&mut self, id: RuleChainId) -> bool {
        let Some(kept) = self.bodies.get_mut(&id) else {
            return false;
        };
        kept.uses -= 1;
        if kept.uses > 0 {
            return false;
        }
        if let Some(kept) = self.bodies.remove(&id) {
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

    /// The steps that someone faces.
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
            if uses.all == 0 {
                self.uses.remove(&group);
                self.unused.push(group);
            }
        }
    }
}

/// The groups that a step names, and whether who joins one may lose something.
fn named_by(step: &Step) -> Vec<(u32, bool)> {
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
