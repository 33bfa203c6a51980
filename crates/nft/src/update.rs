//! Updates the installed table with each change of the node's plan.
//!
//! A change becomes a few transactions. The first one prepares what nothing leads to yet: new rule
//! chains, the groups that only they use, and chains of newly selected addresses. The second one
//! switches: every rule and element that leads a pod to its rule chains, and members of groups. The
//! third one cleans up what nothing leads to any more, and the last one sweeps out members and sets
//! that no rule uses any more.
//!
//! The first two are one transaction, unless an element of a map leads to a new chain. So are the
//! last two if they are small. No packet meets what the first and the last one change: large ones
//! are carried out in pieces, since the kernel does not take a batch of any size, and commits of
//! other programs must not wait for one. Chains that packets may be in are rewritten in place, and
//! elements that stay are never touched. docs/internals/dataplane.md has the reasons.

mod draft;
mod group_users;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use palisade_core::net::Family;
use palisade_core::plan::{
    GroupId, GroupKind, Plan, PlanChange, PodChains, RuleChain, RuleChainId,
};

use self::draft::FinishedDraft;
use self::group_users::GroupUsers;
use crate::node::{self, Generation, SenderChecks, Settings};
use crate::ruleset::{Interface, Name, Ruleset};
use crate::transaction::{Transaction, in_pieces};

/// The state of the installed table that its changes depend on: everything but the members of
/// groups.
#[derive(Clone, Debug)]
pub struct TableUpdater {
    settings: Settings,
    /// The interfaces that do not lead to pods, if the next change sets others.
    elsewhere: Option<BTreeSet<Interface>>,
    kinds: BTreeMap<GroupId, GroupKind>,
    installed: BTreeMap<RuleChainId, ChainState>,
    /// The number of rule chains that use each group.
    group_users: GroupUsers,
    pods: BTreeMap<IpAddr, PodChains>,
    /// The capacity of each set that can change, except the maps of single rule chains.
    rooms: BTreeMap<Name, SetCapacity>,
    chains: Quota,
    sets: Quota,
    /// The most elements and rules of a transaction that can be carried out in pieces.
    piece: usize,
}

/// The default of [`TableUpdater::in_pieces_of`]: about two megabytes, for which the kernel takes
/// some tens of milliseconds.
pub const PIECE: usize = 32_768;

/// The expected contents of the table. The ruleset is made on demand, since it may be large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedTable {
    plan: Plan,
    settings: Settings,
    /// The sizes of the sets that can change. A set keeps the size that it was created with.
    sizes: BTreeMap<Name, u32>,
}

impl ExpectedTable {
    /// Returns the table as a value: [`node::ruleset`] with the sizes of the installed sets.
    pub fn ruleset(&self) -> Ruleset {
        let mut ruleset = node::ruleset(&self.plan, &self.settings);
        for set in &mut ruleset.sets {
            if let Some(size) = self.sizes.get(&set.name) {
                set.size = *size;
            }
        }
        ruleset
    }
}

/// A rule chain in the table.
#[derive(Clone, Debug)]
struct ChainState {
    chain: Arc<RuleChain>,
    /// The number of addresses of each family that use it. It has chains for those families.
    users: [usize; 2],
}

/// The transactions of a change.
#[derive(Debug, Default)]
struct ChangeTransactions {
    /// Prepare and switch.
    switch: Vec<Transaction>,
    /// Clean-up and sweep.
    clean: Vec<Transaction>,
}

impl ChangeTransactions {
    fn new(phases: [draft::Phase; 4], piece: usize) -> ChangeTransactions {
        let [prepare, switch, clean, sweep] = phases;
        // Elements are read live: a packet in the old rules meets a new element of a map at once,
        // and a chain of the same transaction is empty for that packet. The chains must then be
        // there one transaction earlier. Rules take effect together with the chains that they lead
        // to: without such elements, prepare and switch are one transaction, which saves a check of
        // the whole table.
        let must_wait = switch.leads_anywhere();
        let mut before = in_pieces(prepare.ops(), piece);
        match before.last_mut() {
            // Only the last piece: the earlier ones are as large as they may be.
            Some(prepare) if !must_wait => prepare.ops.extend(switch.ops()),
            _ => before.push(Transaction::new(switch.ops())),
        }
        let mut clean = Transaction::new(clean.ops());
        let mut swept = in_pieces(sweep.ops(), piece);
        // A sweep of one piece goes with the clean-up: every transaction costs the kernel a check
        // of the whole table.
        if let [sweep] = swept.as_mut_slice() {
            clean.ops.append(&mut sweep.ops);
        }
        swept.insert(0, clean);
        before.retain(|transaction| !transaction.is_empty());
        swept.retain(|transaction| !transaction.is_empty());
        ChangeTransactions {
            switch: before,
            clean: swept,
        }
    }

    fn transactions(mut self) -> Vec<Transaction> {
        // Packets in flight since before the switch may still look up what is cleaned up. Without a
        // switch nothing has changed for them.
        if let Some(first) = self.clean.first_mut() {
            first.waits = !self.switch.is_empty();
        }
        self.switch.append(&mut self.clean);
        self.switch
    }
}

/// The number of elements of a set, and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SetCapacity {
    count: usize,
    size: u32,
}

impl SetCapacity {
    /// Reports whether so many more elements leave a quarter of it free.
    fn fits(self, more: usize) -> bool {
        // The table is replaced while there is still room: the kernel must never have to refuse an
        // element.
        let most = self.size as usize / 4 * 3;
        more == 0 || self.count + more <= most
    }
}

/// The number of chains or sets, and the most that there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Quota {
    count: usize,
    most: usize,
}

impl Quota {
    /// Makes a quota with room for as many again.
    fn of(count: usize, at_least: usize) -> Quota {
        Quota {
            count,
            most: count.saturating_mul(2).max(at_least),
        }
    }
}

/// The number of chains, and below that of sets, that are always allowed. Twice as many as at the
/// creation of the table are allowed as well.
// The kernel walks all chains at every commit, and finds sets in a list.
const MOST_CHAINS: usize = 4096;
const MOST_SETS: usize = 1024;

/// Why the whole table must be replaced: by the ruleset of a new [`TableUpdater`], for the plan
/// after the change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateError {
    /// A set would be more than three quarters full. The new one has room for twice its elements.
    Full(Name),
    /// There would be more than twice as many chains as at the creation of the table.
    Chains,
    /// There would be more than twice as many sets.
    Sets,
    /// The change names a group or rule chain that the table does not have.
    Unknown,
}

impl fmt::Display for UpdateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UpdateError::Full(set) => {
                write!(f, "the set `{set}` would be more than three quarters full")
            }
            UpdateError::Chains => f.write_str("the table would have too many chains"),
            UpdateError::Sets => f.write_str("the table would have too many sets"),
            UpdateError::Unknown => f.write_str("the change names an unknown group or rule chain"),
        }
    }
}

impl TableUpdater {
    /// Makes the state of a table that is created for a plan, and the ruleset to create it with.
    pub fn new(plan: &Plan, settings: &Settings) -> (TableUpdater, Ruleset) {
        let ruleset = node::ruleset(plan, settings);
        let mut installed: BTreeMap<RuleChainId, ChainState> = BTreeMap::new();
        let mut group_users = GroupUsers::default();
        for (id, rule_chain) in &plan.chains {
            group_users.add(rule_chain);
            let rule_chain = Arc::clone(rule_chain);
            let users = [0; 2];
            installed.insert(
                *id,
                ChainState {
                    chain: rule_chain,
                    users,
                },
            );
        }
        for (address, chains) in &plan.pods {
            for id in [chains.egress, chains.ingress].into_iter().flatten() {
                if let Some(state) = installed.get_mut(&id) {
                    *of_family(&mut state.users, Family::of(*address)) += 1;
                }
            }
        }
        let mut rooms = BTreeMap::new();
        for set in &ruleset.sets {
            if !node::unions::is_of_a_chain(&set.name) {
                let (count, size) = (set.len(), set.size);
                rooms.insert(set.name.clone(), SetCapacity { count, size });
            }
        }
        let kinds = plan.groups.iter().map(|(id, group)| (*id, group.kind));
        let updater = TableUpdater {
            settings: settings.clone(),
            elsewhere: None,
            kinds: kinds.collect(),
            installed,
            group_users,
            pods: plan.pods.clone(),
            rooms,
            chains: Quota::of(ruleset.chains.len(), MOST_CHAINS),
            sets: Quota::of(ruleset.sets.len(), MOST_SETS),
            piece: PIECE,
        };
        (updater, ruleset)
    }

    /// Sets the most elements and rules of a transaction that can be carried out in pieces.
    pub fn in_pieces_of(mut self, piece: usize) -> TableUpdater {
        self.piece = piece;
        self
    }

    /// Returns the settings of the table, with its current generation.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the expected contents of the table for the current plan, for an audit.
    pub fn expected(&self, plan: Plan) -> ExpectedTable {
        let sizes = self.rooms.iter();
        ExpectedTable {
            plan,
            settings: self.settings.clone(),
            sizes: sizes.map(|(set, room)| (set.clone(), room.size)).collect(),
        }
    }

    /// Sets all interfaces that do not lead to pods of the node, from the next change on. It has no
    /// effect where source addresses are not checked.
    pub fn set_elsewhere(&mut self, elsewhere: BTreeSet<Interface>) {
        if let SenderChecks::Checked {
            elsewhere: installed,
            ..
        } = &self.settings.senders
        {
            self.elsewhere = (*installed != elsewhere).then_some(elsewhere);
        }
    }

    /// Reports whether a change is due even if the plan stays the same.
    pub fn is_due(&self) -> bool {
        self.elsewhere.is_some()
    }

    /// Returns the transactions of a change of the plan. Each may begin when the one before has
    /// succeeded. If connections must be evaluated again, `generation` is one that no connection
    /// has.
    ///
    /// If a transaction fails or the whole table must be replaced, this value is of no use any
    /// more. Make a new one for the plan at that time.
    pub fn change(
        &mut self,
        change: &PlanChange,
        generation: Option<Generation>,
    ) -> Result<Vec<Transaction>, UpdateError> {
        let mut steps = match &change.split {
            None => ChangeTransactions::default(),
            Some(split) => self.steps(split, None)?,
        };
        let rest = self.steps(change, generation)?;
        // Both clean-ups come last: the switch of the rest must not wait for the grace period of
        // the split.
        steps.switch.extend(rest.switch);
        steps.clean.extend(rest.clean);
        Ok(steps.transactions())
    }

    /// Returns the transactions of a change without its split.
    fn steps(
        &mut self,
        change: &PlanChange,
        generation: Option<Generation>,
    ) -> Result<ChangeTransactions, UpdateError> {
        let mut next = self.settings.clone();
        if let (Some(new), SenderChecks::Checked { elsewhere, .. }) =
            (self.elsewhere.take(), &mut next.senders)
        {
            *elsewhere = new;
        }
        next.generation = generation.unwrap_or(next.generation);
        let draft = FinishedDraft::new(self, change, &next);
        // Also after an error: the whole table is then installed with these settings.
        self.settings = next;
        let FinishedDraft {
            phases,
            pods,
            users,
        } = draft?;
        self.admit(&phases)?;

        // Everything fits: from here on the state is that after the transactions.
        self.kinds.extend(change.groups.iter().copied());
        for id in &change.ended_groups {
            self.kinds.remove(id);
        }
        for (id, rule_chain) in &change.chains {
            self.group_users.add(rule_chain);
            let rule_chain = Arc::clone(rule_chain);
            let users = [0; 2];
            self.installed.insert(
                *id,
                ChainState {
                    chain: rule_chain,
                    users,
                },
            );
        }
        for ((id, family), count) in users {
            if let Some(state) = self.installed.get_mut(&id) {
                *of_family(&mut state.users, family) = count;
            }
        }
        for id in &change.ended_chains {
            if let Some(state) = self.installed.remove(id) {
                self.group_users.remove(&state.chain);
            }
        }
        for (address, (_, after)) in pods {
            match after {
                Some(chains) => self.pods.insert(address, chains),
                None => self.pods.remove(&address),
            };
        }
        Ok(ChangeTransactions::new(phases, self.piece))
    }

    /// Counts the elements, chains and sets of a change, or fails if there is too little room.
    fn admit(&mut self, phases: &[draft::Phase; 4]) -> Result<(), UpdateError> {
        // Additions only: until the clean-up, old and new elements exist side by side.
        let mut added: BTreeMap<&Name, usize> = BTreeMap::new();
        for set in phases.iter().flat_map(draft::Phase::added) {
            *added.entry(&set.name).or_default() += set.len();
        }
        for (name, more) in added {
            let room = self.rooms.get(name).ok_or(UpdateError::Unknown)?;
            if !room.fits(more) {
                return Err(UpdateError::Full(name.clone()));
            }
        }
        let new = |count: fn(&draft::Phase) -> (usize, usize)| {
            let counts = phases.iter().map(count);
            counts.fold((0, 0), |(more, less), (new, old)| (more + new, less + old))
        };
        let (more_chains, fewer_chains) = new(draft::Phase::chains);
        let (more_sets, fewer_sets) = new(draft::Phase::sets);
        if more_chains > 0 && self.chains.count + more_chains > self.chains.most {
            return Err(UpdateError::Chains);
        }
        if more_sets > 0 && self.sets.count + more_sets > self.sets.most {
            return Err(UpdateError::Sets);
        }
        self.chains.count = (self.chains.count + more_chains).saturating_sub(fewer_chains);
        self.sets.count = (self.sets.count + more_sets).saturating_sub(fewer_sets);
        for phase in phases {
            phase.count(&mut self.rooms);
        }
        Ok(())
    }
}

fn of_family<T>(pair: &mut [T; 2], family: Family) -> &mut T {
    let [v4, v6] = pair;
    match family {
        Family::V4 => v4,
        Family::V6 => v6,
    }
}
