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

mod asked;
mod draft;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use palisade_core::net::Family;
use palisade_core::plan::{Body, BodyId, Faced, GroupId, GroupKind, Plan, PlanChange};

use self::asked::Asked;
use self::draft::Drafted;
use crate::node::{self, Generation, Senders, Settings};
use crate::ruleset::{Interface, Name, Ruleset};
use crate::transaction::{Transaction, in_pieces};

/// What has to be known of a table that enforces to change it: everything but who is in the groups.
#[derive(Clone, Debug)]
pub struct Upkeep {
    settings: Settings,
    /// The interfaces that lead elsewhere from the next change on, if that changes.
    elsewhere: Option<BTreeSet<Interface>>,
    kinds: BTreeMap<GroupId, GroupKind>,
    bodies: BTreeMap<BodyId, Held>,
    /// Which of them ask for each group.
    asked: Asked,
    pods: BTreeMap<IpAddr, Faced>,
    /// The sets that can change, those of single bodies left out.
    rooms: BTreeMap<Name, Room>,
    chains: Stock,
    sets: Stock,
    /// How many elements and rules a transaction has at most, if it can be carried out in pieces.
    piece: usize,
}

/// How many elements and rules a transaction has at most, unless something else is said, if it can be carried out in pieces:
/// about two megabytes, for which the kernel takes some tens of milliseconds.
pub const PIECE: usize = 32_768;

/// What a table has to hold. The ruleset is made of it only where it is needed, since it may be large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    plan: Plan,
    settings: Settings,
    /// The sizes of the sets that can change: they are as large as they were made.
    sizes: BTreeMap<Name, u32>,
}

impl Expected {
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
struct Held {
    body: Arc<Body>,
    /// How many addresses of each family face it. It has chains for those that do.
    faced: [usize; 2],
}

/// The transactions of a change.
#[derive(Debug, Default)]
struct Steps {
    /// Up to the moment of the change.
    switch: Vec<Transaction>,
    /// What is cleaned up after it.
    clean: Vec<Transaction>,
}

impl Steps {
    fn new(phases: [draft::Phase; 4], piece: usize) -> Steps {
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
        Steps {
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
struct Room {
    count: usize,
    size: u32,
}

impl Room {
    /// Whether so many more elements leave a quarter of it free.
    fn has_room_for(self, more: usize) -> bool {
        let most = self.size as usize / 4 * 3;
        more == 0 || self.count + more <= most
    }
}

/// How many there are of something, and may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stock {
    count: usize,
    most: usize,
}

impl Stock {
    /// As many again may come.
    fn of(count: usize, at_least: usize) -> Stock {
        Stock {
            count,
            most: count.saturating_mul(2).max(at_least),
        }
    }
}

/// The kernel walks all chains at every commit, and looks sets up in a list: there may be so many, or twice as many as there were when
/// the table was made.
const MOST_CHAINS: usize = 4096;
const MOST_SETS: usize = 1024;

/// Why the whole table has to be replaced: by the ruleset of a new [`Upkeep`], for the plan after the change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whole {
    /// A set would be more than three quarters full. It is given room for as many again when it is made anew.
    Full(Name),
    /// There would be more than twice as many chains as the table was made with.
    Chains,
    /// There would be more than twice as many sets.
    Sets,
    /// The change speaks of a group or a body that the table does not have.
    Unknown,
}

impl fmt::Display for Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Whole::Full(set) => write!(f, "the set `{set}` has too little room"),
            Whole::Chains => f.write_str("there are too many chains"),
            Whole::Sets => f.write_str("there are too many sets"),
            Whole::Unknown => f.write_str("the change does not fit to what is held"),
        }
    }
}

impl Upkeep {
    /// The upkeep of a table that is made for a plan, and the ruleset to make it of.
    pub fn new(plan: &Plan, settings: &Settings) -> (Upkeep, Ruleset) {
        let ruleset = node::ruleset(plan, settings);
        let mut bodies: BTreeMap<BodyId, Held> = BTreeMap::new();
        let mut asked = Asked::default();
        for (id, body) in &plan.bodies {
            asked.add(body);
            let body = Arc::clone(body);
            let faced = [0; 2];
            bodies.insert(*id, Held { body, faced });
        }
        for (address, faced) in &plan.pods {
            for id in [faced.egress, faced.ingress].into_iter().flatten() {
                if let Some(held) = bodies.get_mut(&id) {
                    *of_family(&mut held.faced, Family::of(*address)) += 1;
                }
            }
        }
        let mut rooms = BTreeMap::new();
        for set in &ruleset.sets {
            if !node::unions::is_of_a_body(&set.name) {
                let (count, size) = (set.len(), set.size);
                rooms.insert(set.name.clone(), Room { count, size });
            }
        }
        let kinds = plan.groups.iter().map(|(id, group)| (*id, group.kind));
        let upkeep = Upkeep {
            settings: settings.clone(),
            elsewhere: None,
            kinds: kinds.collect(),
            bodies,
            asked,
            pods: plan.pods.clone(),
            rooms,
            chains: Stock::of(ruleset.chains.len(), MOST_CHAINS),
            sets: Stock::of(ruleset.sets.len(), MOST_SETS),
            piece: PIECE,
        };
        (upkeep, ruleset)
    }

    /// Carries out in pieces of so many elements and rules what can be.
    pub fn in_pieces_of(mut self, piece: usize) -> Upkeep {
        self.piece = piece;
        self
    }

    /// What the table is made with, and its generation of now.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What the table has to hold for the plan of now, to compare it with what it holds.
    pub fn expected(&self, plan: Plan) -> Expected {
        let sizes = self.rooms.iter();
        Expected {
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
    ) -> Result<Vec<Transaction>, Whole> {
        let mut steps = match &change.split {
            None => Steps::default(),
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
    ) -> Result<Steps, Whole> {
        let mut next = self.settings.clone();
        if let (Some(new), Senders::Checked { elsewhere, .. }) =
            (self.elsewhere.take(), &mut next.senders)
        {
            *elsewhere = new;
        }
        next.generation = generation.unwrap_or(next.generation);
        let draft = Drafted::new(self, change, &next);
        // Also if the whole table is to be replaced, which is then done with these settings.
        self.settings = next;
        let Drafted {
            phases,
            pods,
            faced,
        } = draft?;
        self.admit(&phases)?;

        self.kinds.extend(change.groups.iter().copied());
        for id in &change.ended_groups {
            self.kinds.remove(id);
        }
        for (id, body) in &change.bodies {
            self.asked.add(body);
            let body = Arc::clone(body);
            let faced = [0; 2];
            self.bodies.insert(*id, Held { body, faced });
        }
        for ((id, family), count) in faced {
            if let Some(held) = self.bodies.get_mut(&id) {
                *of_family(&mut held.faced, family) = count;
            }
        }
        for id in &change.ended_bodies {
            if let Some(held) = self.bodies.remove(id) {
                self.asked.remove(&held.body);
            }
        }
        for (address, (_, faced)) in pods {
            match faced {
                Some(faced) => self.pods.insert(address, faced),
                None => self.pods.remove(&address),
            };
        }
        Ok(Steps::new(phases, self.piece))
    }

    /// Counts what comes and goes, unless there is too little room for it.
    fn admit(&mut self, phases: &[draft::Phase; 4]) -> Result<(), Whole> {
        let mut added: BTreeMap<&Name, usize> = BTreeMap::new();
        for set in phases.iter().flat_map(draft::Phase::added) {
            *added.entry(&set.name).or_default() += set.len();
        }
        for (name, more) in added {
            let room = self.rooms.get(name).ok_or(Whole::Unknown)?;
            if !room.has_room_for(more) {
                return Err(Whole::Full(name.clone()));
            }
        }
        let new = |count: fn(&draft::Phase) -> (usize, usize)| {
            let counts = phases.iter().map(count);
            counts.fold((0, 0), |(more, less), (new, old)| (more + new, less + old))
        };
        let (more_chains, fewer_chains) = new(draft::Phase::chains);
        let (more_sets, fewer_sets) = new(draft::Phase::sets);
        if more_chains > 0 && self.chains.count + more_chains > self.chains.most {
            return Err(Whole::Chains);
        }
        if more_sets > 0 && self.sets.count + more_sets > self.sets.most {
            return Err(Whole::Sets);
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
