//! What happens in a simulation, step by step. A step means something whatever steps were left out before it,
//! so that a list that shows a mistake can be made shorter.

use palisade_agent::Config;
use palisade_agent::UnknownPods;
use palisade_core::budget::Budget;
use palisade_core::incremental::HashKey;
use palisade_core::net::CidrText;
use palisade_nft::node::{Established, MarkBits};

use super::catalog::Catalog;
use super::truth::{Blocks, NODE};
use palisade_generate::Rng;

/// What does not change during a simulation.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) config: Config,
    pub(super) blocks: Blocks,
    /// Whether tables belong to the process that made them.
    pub(super) owns: bool,
    /// Whether the kernel takes only small transactions.
    pub(super) is_small: bool,
    /// The generation of a table that an earlier process has left.
    pub(super) left: Option<u16>,
}

impl Setting {
    pub(super) fn new(rng: &mut Rng) -> Setting {
        let mut config = Config::new(NODE);
        config.hash_key = HashKey::new(1, 2);
        // Groups are small here.
        config.share_from = 1;
        if rng.chance(50) {
            let mask = rng.pick(&[0xf0, 0x1f00, 0xfc00_0000, 0x3f_0000]);
            config.mark = MarkBits::new(mask).unwrap_or(MarkBits::DEFAULT);
        }
        if rng.chance(20) {
            config.established = Established::Keep;
        }
        let block = |text: &str| CidrText::parse(text).ok().map(|it| it.cidr);
        let blocks = match rng.below(4) {
            0 => Blocks::Open,
            1 => {
                let blocks = ["10.0.0.0/29", "fd00::/120"];
                Blocks::Given(blocks.into_iter().filter_map(block).collect())
            }
            _ => Blocks::OfNode,
        };
        match &blocks {
            Blocks::Open => config.unknown_pods = UnknownPods::Allow,
            Blocks::OfNode => {}
            Blocks::Given(blocks) => config.pod_blocks.clone_from(blocks),
        }
        let last = config.mark.last_generation();
        let near = last.saturating_sub(rng.below(6) as u16).max(1);
        let anywhere = 1 + rng.below(u64::from(last)) as u16;
        let left = match rng.below(4) {
            0 => None,
            1 | 2 => Some(near),
            _ => Some(anywhere.min(last)),
        };
        if anywhere.is_multiple_of(4) {
            config.budget = small_budget(anywhere.into());
        }
        let owns = rng.chance(40);
        let is_small = rng.chance(30);
        if is_small {
            config.piece = 2 + rng.below(6) as usize;
        }
        Setting {
            config,
            blocks,
            owns,
            is_small,
            left,
        }
    }
}

/// A budget so small that policies do not fit (D148).
pub(super) fn small_budget(number: u64) -> Budget {
    Budget::new(1 + number % 13)
}

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// An object is made, or becomes another version of itself.
    Set(usize, usize),
    /// An object goes.
    Remove(usize),
    /// The source says something again that it has said.
    Repeat(usize),
    /// The source says everything again, from one object on and around.
    Relist(usize),
    /// The agent is told so many of the objects that it has not been told of since it started.
    Tell(usize),
    /// The agent is told the rest, and that it is all.
    Sync,
    /// The agent is asked what to do, or the next part of that is done.
    Act,
    /// Milliseconds go by.
    Pass(u64),
    /// Somebody wants everything anew.
    Resync,
    /// The kernel will refuse the next thing.
    Refuse,
    /// It will do the next thing, but its answer will be lost.
    LoseAnswer,
    /// The agent is killed.
    Kill,
    /// The agent starts, if it does not run.
    Start,
    /// Somebody else changes the table.
    Foreign(Foreign, usize),
    /// A notice of that arrives, or several, or only that some were lost.
    Notice(Arrival),
    /// A packet of a flow, or an answer.
    Send(usize, bool),
    /// Everything comes to rest, whether or not the agent hears of what others did; and then an audit passes.
    Rest {
        /// Whether it does not hear.
        deaf: bool,
        /// Whether it lasts until the next audit.
        long: bool,
    },
}

/// What somebody else does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Foreign {
    DeleteTable,
    FlushChain,
    DeleteElement,
    AddElement,
}

/// How a notice arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    Once,
    Twice,
    Lost,
}

/// How often each of the less usual things happens, in thousandths.
struct Habits {
    refuse: u64,
    lose: u64,
    kill: u64,
    foreign: u64,
    relist: u64,
}

/// The steps of a seed.
pub(super) fn steps(rng: &mut Rng, catalog: &Catalog<'_>, flows: usize) -> Vec<Step> {
    let mut often = |percent, most| {
        if rng.chance(percent) {
            5 + rng.below(most)
        } else {
            0
        }
    };
    let habits = Habits {
        refuse: often(50, 60),
        lose: often(50, 60),
        kill: often(50, 40),
        foreign: often(35, 40),
        relist: often(50, 30),
    };
    let keys = catalog.keys.len() as u64;
    let mut steps = vec![Step::Start];
    for key in 0..keys {
        if rng.chance(60) {
            let version = rng.below(catalog.versions(key as usize) as u64);
            steps.push(Step::Set(key as usize, version as usize));
        }
    }
    steps.push(Step::Sync);
    if rng.chance(70) {
        steps.push(Step::Rest {
            deaf: false,
            long: false,
        });
    }
    for _ in 0..20 + rng.below(60) {
        steps.push(step(rng, catalog, flows as u64, &habits));
        if steps.last() == Some(&Step::Kill) && rng.chance(80) {
            steps.push(Step::Start);
            steps.push(Step::Sync);
        }
    }
    steps.push(Step::Rest {
        deaf: rng.chance(30),
        long: true,
    });
    steps
}

fn step(rng: &mut Rng, catalog: &Catalog<'_>, flows: u64, habits: &Habits) -> Step {
    let mut roll = rng.below(1000);
    let mut comes = |weight: u64| {
        let is_it = roll < weight;
        roll = roll.saturating_sub(weight);
        is_it
    };
    let kinds = [
        comes(habits.refuse),
        comes(habits.lose),
        comes(habits.kill),
        comes(habits.foreign),
        comes(habits.relist),
        comes(40),
        comes(10),
        comes(8),
        comes(25),
        comes(60),
        comes(30),
        comes(220),
        comes(70),
    ];
    let kind = kinds.iter().position(|it| *it);
    // The first is the one: those after it saw what was left of nothing.
    let key = rng.below(catalog.keys.len() as u64) as usize;
    match kind {
        Some(0) => Step::Refuse,
        Some(1) => Step::LoseAnswer,
        Some(2) => Step::Kill,
        Some(3) => {
            let how = match rng.below(4) {
                0 => Foreign::DeleteTable,
                1 => Foreign::FlushChain,
                2 => Foreign::DeleteElement,
                _ => Foreign::AddElement,
            };
            Step::Foreign(how, rng.below(1000) as usize)
        }
        Some(4) => match rng.below(2) {
            0 => Step::Relist(key),
            _ => Step::Repeat(key),
        },
        Some(5) => match rng.below(5) {
            0 => Step::Pass(70_000),
            1 => Step::Pass(1 + rng.below(5_000)),
            _ => Step::Pass(1 + rng.below(150)),
        },
        Some(6) => Step::Start,
        Some(7) => Step::Resync,
        Some(8) => Step::Notice(match rng.below(4) {
            0 => Arrival::Twice,
            1 => Arrival::Lost,
            _ => Arrival::Once,
        }),
        Some(9) => Step::Send(rng.below(flows) as usize, rng.chance(30)),
        Some(10) => Step::Rest {
            deaf: rng.chance(20),
            long: rng.chance(20),
        },
        Some(11) => {
            let version = rng.below(catalog.versions(key) as u64);
            Step::Set(key, version as usize)
        }
        Some(12) => Step::Remove(key),
        _ => match rng.below(12) {
            0 => Step::Tell(1 + rng.below(4) as usize),
            1 => Step::Sync,
            _ => Step::Act,
        },
    }
}
