//! The steps of a simulation. Every step is valid after any others, which allows shrinking a
//! failing list.

use palisade_agent::{Config, Established, Nft, UnknownPods};
use palisade_core::budget::Budget;
use palisade_core::incremental::HashKey;
use palisade_core::net::CidrText;
use palisade_nft::node::MarkBits;

use super::catalog::Catalog;
use super::expected::{NODE, PodBlocks};
use palisade_generate::Rng;

/// The parameters of a simulation.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) config: Config,
    pub(super) nft: Nft,
    pub(super) blocks: PodBlocks,
    /// Whether a process owns its tables.
    pub(super) owns: bool,
    /// Whether the kernel accepts only small transactions.
    pub(super) is_small: bool,
    /// The generation of a table of an earlier process.
    pub(super) left: Option<u16>,
}

impl Setting {
    pub(super) fn new(rng: &mut Rng) -> Setting {
        let mut config = Config::new(NODE);
        let mut nft = Nft::default();
        config.hash_key = HashKey::new(1, 2);
        // The groups of a simulation are small.
        config.share_from = 1;
        if rng.chance(50) {
            let mask = rng.pick(&[0xf0, 0x1f00, 0xfc00_0000, 0x3f_0000]);
            nft.mark = MarkBits::new(mask).unwrap_or(MarkBits::DEFAULT);
        }
        if rng.chance(20) {
            config.established = Established::Keep;
        }
        let block = |text: &str| CidrText::parse(text).ok().map(|it| it.cidr);
        let blocks = match rng.below(4) {
            0 => PodBlocks::Open,
            1 => {
                let blocks = ["10.0.0.0/29", "fd00::/120"];
                PodBlocks::Given(blocks.into_iter().filter_map(block).collect())
            }
            _ => PodBlocks::OfNode,
        };
        match &blocks {
            PodBlocks::Open => config.unknown_pods = UnknownPods::Allow,
            PodBlocks::OfNode => {}
            PodBlocks::Given(blocks) => config.pod_blocks.clone_from(blocks),
        }
        let last = nft.mark.last_generation();
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
            nft.piece = 2 + rng.below(6) as usize;
        }
        Setting {
            config,
            nft,
            blocks,
            owns,
            is_small,
            left,
        }
    }
}

/// A budget that policies exceed (D148).
pub(super) fn small_budget(number: u64) -> Budget {
    Budget::new(1 + number % 13)
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Creates an object, or updates it to a version.
    Set(usize, usize),
    /// Deletes an object.
    Remove(usize),
    /// Delivers an object again.
    Repeat(usize),
    /// Delivers all objects again, beginning with one.
    Relist(usize),
    /// Delivers a number of objects that the running agent has not received.
    Deliver(usize),
    /// Delivers the remaining objects, and marks the sources as synced.
    Sync,
    /// Takes the agent's next command, or executes its next operation.
    Advance,
    /// Advances the clock by milliseconds.
    Pass(u64),
    /// Requests a resync.
    Resync,
    /// The kernel will refuse the next operation.
    Refuse,
    /// The kernel will execute the next operation, and its response will be lost.
    LoseResponse,
    /// Kills the agent.
    Kill,
    /// Starts the agent, if it is not running.
    Start,
    /// Another program changes the table.
    ForeignChange(ForeignChange, usize),
    /// Delivers the notices of that.
    Notice(NoticeArrival),
    /// Sends a packet of a flow, or a reply.
    Send(usize, bool),
    /// Runs the agent until it is idle.
    Converge {
        /// Whether the notices of other programs' changes are lost.
        lose_notices: bool,
        /// Whether an audit follows.
        with_audit: bool,
    },
}

/// A change by another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ForeignChange {
    DeleteTable,
    FlushChain,
    DeleteElement,
    AddElement,
}

/// How notices arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoticeArrival {
    Once,
    Twice,
    Lost,
}

/// The rates of unusual steps, per thousand.
struct Rates {
    refuse: u64,
    lose: u64,
    kill: u64,
    foreign: u64,
    relist: u64,
}

/// The steps of a seed.
pub(super) fn steps(rng: &mut Rng, catalog: &Catalog<'_>, flows: usize) -> Vec<Step> {
    let mut often = |percent, upper| {
        if rng.chance(percent) {
            5 + rng.below(upper)
        } else {
            0
        }
    };
    let rates = Rates {
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
        steps.push(Step::Converge {
            lose_notices: false,
            with_audit: false,
        });
    }
    for _ in 0..20 + rng.below(60) {
        steps.push(step(rng, catalog, flows as u64, &rates));
        if steps.last() == Some(&Step::Kill) && rng.chance(80) {
            steps.push(Step::Start);
            steps.push(Step::Sync);
        }
    }
    steps.push(Step::Converge {
        lose_notices: rng.chance(30),
        with_audit: true,
    });
    steps
}

fn step(rng: &mut Rng, catalog: &Catalog<'_>, flows: u64, rates: &Rates) -> Step {
    let mut roll = rng.below(1000);
    let mut take = |weight: u64| {
        let is_match = roll < weight;
        roll = roll.saturating_sub(weight);
        is_match
    };
    let kinds = [
        take(rates.refuse),
        take(rates.lose),
        take(rates.kill),
        take(rates.foreign),
        take(rates.relist),
        take(40),
        take(10),
        take(8),
        take(25),
        take(60),
        take(30),
        take(220),
        take(70),
    ];
    let kind = kinds.iter().position(|it| *it);
    // The first match counts: the roll is consumed after it.
    let key = rng.below(catalog.keys.len() as u64) as usize;
    match kind {
        Some(0) => Step::Refuse,
        Some(1) => Step::LoseResponse,
        Some(2) => Step::Kill,
        Some(3) => {
            let how = match rng.below(4) {
                0 => ForeignChange::DeleteTable,
                1 => ForeignChange::FlushChain,
                2 => ForeignChange::DeleteElement,
                _ => ForeignChange::AddElement,
            };
            Step::ForeignChange(how, rng.below(1000) as usize)
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
            0 => NoticeArrival::Twice,
            1 => NoticeArrival::Lost,
            _ => NoticeArrival::Once,
        }),
        Some(9) => Step::Send(rng.below(flows) as usize, rng.chance(30)),
        Some(10) => Step::Converge {
            lose_notices: rng.chance(20),
            with_audit: rng.chance(20),
        },
        Some(11) => {
            let version = rng.below(catalog.versions(key) as u64);
            Step::Set(key, version as usize)
        }
        Some(12) => Step::Remove(key),
        _ => match rng.below(12) {
            0 => Step::Deliver(1 + rng.below(4) as usize),
            1 => Step::Sync,
            _ => Step::Advance,
        },
    }
}
