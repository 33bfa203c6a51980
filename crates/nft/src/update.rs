//! Keeping a node's table up with its plan, change by change.
//!
//! A change becomes a few transactions. The first prepares what nothing leads to yet: new
//! bodies, the groups that only they name, chains of addresses that become judged. The second is the change: every
//! rule and element that says who faces what, and who is in which group. The third cleans up what nothing leads to any more,
//! and the last sweeps out the members and sets that no rule asks any more.
//! The first two are one unless an element of a map leads to a chain that is new; so are the last two where they are small.
//! What no packet can meet, which is the first and the last, is carried out in pieces where it is large: the kernel takes no
//! batch of any size, and nobody else's change waits for one.
//! Chains that packets may be in are rewritten in place, and elements that stay are never touched.
//! docs/dataplane.md has the reasons.

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
use crate::node::{self, Generation, Senders, Settings};
use crate::ruleset::{Interface, Name, Ruleset};
use crate::transaction::{Transaction, in_pieces};

/// What has to be known of a table that enforces to change it: everything but who is in the groups.
#[derive(Clone, Debug)]
pub struct TableUpdater {
    settings: Settings,
    /// The interfaces that lead elsewhere from the next change on, if that changes.
    elsewhere: Option<BTreeSet<Interface>>,
    kinds: BTreeMap<GroupId, GroupKind>,
    installed: BTreeMap<RuleChainId, ChainState>,
    /// Which of them ask for each group.
    group_users: GroupUsers,
    pods: BTreeMap<IpAddr, PodChains>,
    /// The sets that can change, those of single bodies left out.
    rooms: BTreeMap<Name, SetCapacity>,
    chains: Quota,
    sets: Quota,
    /// How many elements and rules a transaction has at most, if it can be carried out in pieces.
    piece: usize,
}

/// How many elements and rules a transaction has at most, unless something else is said, if it can be carried out in pieces:
/// about two megabytes, for which the kernel takes some tens of milliseconds.
pub const PIECE: usize = 32_768;

/// What a table has to hold. The ruleset is made of it only where it is needed, since it may be large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedTable {
    plan: Plan,
    settings: Settings,
    /// The sizes of the sets that can change: they are as large as they were made.
    sizes: BTreeMap<Name, u32>,
}

impl ExpectedTable {
    /// The table as a value. It is [`node::ruleset`], but for the sizes of sets.
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

/// A body that the table has.
#[derive(Clone, Debug)]
struct ChainState {
    chain: Arc<RuleChain>,
    /// How many addresses of each family face it. It has chains for those that do.
    users: [usize; 2],
}

/// The transactions of a change.
#[derive(Debug, Default)]
struct ChangeTransactions {
    /// Up to the moment of the change.
    switch: Vec<Transaction>,
    /// What is cleaned up after it.
    clean: Vec<Transaction>,
}

impl ChangeTransactions {
    fn new(phases: [draft::Phase; 4], piece: usize) -> ChangeTransactions {
        let [prepare, switch, clean, sweep] = phases;
        let must_wait = switch.leads_anywhere();
        let mut before = in_pieces(prepare.ops(), piece);
        match before.last_mut() {
            // Rules lead to what is new at the very moment that it is there, so that it can come with them.
            Some(prepare) if !must_wait => prepare.ops.extend(switch.ops()),
            _ => before.push(Transaction::new(switch.ops())),
        }
        let mut clean = Transaction::new(clean.ops());
        let mut swept = in_pieces(sweep.ops(), piece);
        // What is small goes with the rest: every transaction costs the kernel a check of the whole table.
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
        // Who has seen what the switch ends may still ask for what is cleaned up.
        if let Some(first) = self.clean.first_mut() {
            first.waits = !self.switch.is_empty();
        }
        self.switch.append(&mut self.clean);
        self.switch
    }
}

/// How full a set is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SetCapacity {
    count: usize,
    size: u32,
}

impl SetCapacity {
    /// Whether so many more elements leave a quarter of it free.
    fn fits(self, more: usize) -> bool {
        let most = self.size as usize / 4 * 3;
        more == 0 || self.count + more <= most
    }
}

/// How many there are of something, and may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Quota {
    count: usize,
    most: usize,
}

impl Quota {
    /// As many again may come.
    fn of(count: usize, at_least: usize) -> Quota {
        Quota {
            count,
            most: count.saturating_mul(2).max(at_least),
        }
    }
}

/// The kernel walks all chains at every commit, and looks sets up in a list: there may be so many, or twice as many as there were when
/// the table was made.
const MOST_CHAINS: usize = 4096;
const MOST_SETS: usize = 1024;

/// Why the whole table has to be replaced: by the ruleset of a new [`TableUpdater`], for the plan after the change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateError {
    /// A set would be more than three quarters full. It is given room for as many again when it is made anew.
    Full(Name),
    /// There would be more than twice as many chains as the table was made with.
    Chains,
    /// There would be more than twice as many sets.
    Sets,
    /// The change speaks of a group or a body that the table does not have.
    Unknown,
}

impl fmt::Display for UpdateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UpdateError::Full(set) => write!(f, "the set `{set}` has too little room"),
            UpdateError::Chains => f.write_str("there are too many chains"),
            UpdateError::Sets => f.write_str("there are too many sets"),
            UpdateError::Unknown => f.write_str("the change does not fit to what is held"),
        }
    }
}

impl TableUpdater {
    /// The upkeep of a table that is made for a plan, and the ruleset to make it of.
    pub fn new(plan: &Plan, settings: &Settings) -> (TableUpdater, Ruleset) {
        let ruleset = node::ruleset(plan, settings);
        let mut bodies: BTreeMap<RuleChainId, ChainState> = BTreeMap::new();
        let mut asked = GroupUsers::default();
        for (id, body) in &plan.chains {
            asked.add(body);
            let body = Arc::clone(body);
            let faced = [0; 2];
            bodies.insert(
                *id,
                ChainState {
                    chain: body,
                    users: faced,
                },
            );
        }
        for (address, faced) in &plan.pods {
            for id in [faced.egress, faced.ingress].into_iter().flatten() {
                if let Some(held) = bodies.get_mut(&id) {
                    *of_family(&mut held.users, Family::of(*address)) += 1;
                }
            }
        }
        let mut rooms = BTreeMap::new();
        for set in &ruleset.sets {
            if !node::unions::is_of_a_body(&set.name) {
                let (count, size) = (set.len(), set.size);
                rooms.insert(set.name.clone(), SetCapacity { count, size });
            }
        }
        let kinds = plan.groups.iter().map(|(id, group)| (*id, group.kind));
        let upkeep = TableUpdater {
            settings: settings.clone(),
            elsewhere: None,
            kinds: kinds.collect(),
            installed: bodies,
            group_users: asked,
            pods: plan.pods.clone(),
            rooms,
            chains: Quota::of(ruleset.chains.len(), MOST_CHAINS),
            sets: Quota::of(ruleset.sets.len(), MOST_SETS),
            piece: PIECE,
        };
        (upkeep, ruleset)
    }

    /// Carries out in pieces of so many elements and rules what can be.
    pub fn in_pieces_of(mut self, piece: usize) -> TableUpdater {
        self.piece = piece;
        self
    }

    /// What the table is made with, and its generation of now.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What the table has to hold for the plan of now, to compare it with what it holds.
    pub fn expected(&self, plan: Plan) -> ExpectedTable {
        let sizes = self.rooms.iter();
        ExpectedTable {
            plan,
            settings: self.settings.clone(),
            sizes: sizes.map(|(set, room)| (set.clone(), room.size)).collect(),
        }
    }

    /// Says which interfaces do not lead to pods of the node from the next change on, all of them. Where senders are
    /// not checked, nothing comes of it.
    pub fn set_elsewhere(&mut self, elsewhere: BTreeSet<Interface>) {
        if let Senders::Checked {
            elsewhere: held, ..
        } = &self.settings.senders
        {
            self.elsewhere = (*held != elsewhere).then_some(elsewhere);
        }
    }

    /// Whether the next change has something to do for itself.
    pub fn is_due(&self) -> bool {
        self.elsewhere.is_some()
    }

    /// What has to be done for a change of the plan, in this order, each after the one before has succeeded. If
    /// connections have to be judged anew, a generation is given that no connection has.
    ///
    /// If one fails, or the whole table has to be replaced, this value is of no use any more: make a new one for the plan as
    /// it is then.
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
        // What the rest changes need not wait for the packets that the clean-up waits for.
        steps.switch.extend(rest.switch);
        steps.clean.extend(rest.clean);
        Ok(steps.transactions())
    }

    /// The same without what comes before it.
    fn steps(
        &mut self,
        change: &PlanChange,
        generation: Option<Generation>,
    ) -> Result<ChangeTransactions, UpdateError> {
        let mut next = self.settings.clone();
        if let (Some(new), Senders::Checked { elsewhere, .. }) =
            (self.elsewhere.take(), &mut next.senders)
        {
            *elsewhere = new;
        }
        next.generation = generation.unwrap_or(next.generation);
        let draft = FinishedDraft::new(self, change, &next);
        // Also if the whole table is to be replaced, which is then done with these settings.
        self.settings = next;
        let FinishedDraft {
            phases,
            pods,
            users: faced,
        } = draft?;
        self.admit(&phases)?;

        self.kinds.extend(change.groups.iter().copied());
        for id in &change.ended_groups {
            self.kinds.remove(id);
        }
        for (id, body) in &change.chains {
            self.group_users.add(body);
            let body = Arc::clone(body);
            let faced = [0; 2];
            self.installed.insert(
                *id,
                ChainState {
                    chain: body,
                    users: faced,
                },
            );
        }
        for ((id, family), count) in faced {
            if let Some(held) = self.installed.get_mut(&id) {
                *of_family(&mut held.users, family) = count;
            }
        }
        for id in &change.ended_bodies {
            if let Some(held) = self.installed.remove(id) {
                self.group_users.remove(&held.chain);
            }
        }
        for (address, (_, faced)) in pods {
            match faced {
                Some(faced) => self.pods.insert(address, faced),
                None => self.pods.remove(&address),
            };
        }
        Ok(ChangeTransactions::new(phases, self.piece))
    }

    /// Counts what comes and goes, unless there is too little room for it.
    fn admit(&mut self, phases: &[draft::Phase; 4]) -> Result<(), UpdateError> {
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
