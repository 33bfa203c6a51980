//! Loading the ruleset of a full node into the kernel.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use palisade_core::plan::Plan;
use palisade_nft::node::Generation;
use palisade_nft::ruleset::Ruleset;
use palisade_nft::{Kernel, LoadStats};
use serde::Serialize;

use super::cluster::{Load, PODS, Stack, node_plan, node_ruleset};
use super::memory::Memory;
use super::traffic::percentile;
use super::variant::empty_kernel;
use crate::clock::own_cpu;

/// The kernel removes a namespace some time after its last use; this is ample.
const SETTLING: Duration = Duration::from_millis(1_000);

/// What loading took, the quietest of some tries.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LoadReport {
    pub(super) name: &'static str,
    pub(super) pods: usize,
    pub(super) policies: usize,
    pub(super) tries: u32,
    pub(super) size: Size,
    pub(super) bytes: usize,
    pub(super) transactions: usize,
    /// From the plan to the ruleset as a value.
    pub(super) lower_seconds: f64,
    /// Into an empty namespace.
    pub(super) first: Took,
    /// In place of one that enforces.
    pub(super) swap: Took,
    /// The median of the kernel's additional memory after the first load.
    pub(super) memory_bytes: f64,
}

/// The size of a ruleset.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Size {
    pub(super) rules: usize,
    pub(super) chains: usize,
    pub(super) sets: usize,
    pub(super) elements: usize,
}

impl Size {
    pub(super) fn of(ruleset: &Ruleset) -> Size {
        Size {
            rules: ruleset.chains.iter().map(|chain| chain.rules.len()).sum(),
            chains: ruleset.chains.len(),
            sets: ruleset.sets.len(),
            elements: ruleset.sets.iter().map(|set| set.len()).sum(),
        }
    }
}

/// What one installation took.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Took {
    pub(super) wall_seconds: f64,
    /// The processor time that was spent in the kernel.
    pub(super) kernel_seconds: f64,
    /// And outside of it: making the messages.
    pub(super) encode_seconds: f64,
}

/// Several installations of one kind.
#[derive(Default)]
pub(super) struct Tries {
    wall: Vec<f64>,
    cpu: Vec<f64>,
    user: f64,
    system: f64,
}

impl Tries {
    pub(super) fn time<T>(&mut self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let before = getrusage(UsageWho::RUSAGE_THREAD)?;
        let (wall, cpu) = (Instant::now(), own_cpu()?);
        let outcome = work()?;
        self.wall.push(wall.elapsed().as_secs_f64());
        self.cpu.push(own_cpu()? - cpu);
        let after = getrusage(UsageWho::RUSAGE_THREAD)?;
        self.user += seconds(after.user_time()) - seconds(before.user_time());
        self.system += seconds(after.system_time()) - seconds(before.system_time());
        Ok(outcome)
    }

    /// The share of time in the kernel is sampled, and rough for one run: the share of all runs is
    /// used. The running time of a thread is exact.
    fn quietest(&self) -> Took {
        self.at(0)
    }

    /// The same for another percentile.
    pub(super) fn at(&self, percent: usize) -> Took {
        let pick = |values: &[f64]| percentile(values.to_vec(), percent);
        let in_kernel = self.system / (self.user + self.system);
        let cpu = pick(&self.cpu);
        Took {
            wall_seconds: pick(&self.wall),
            kernel_seconds: cpu * in_kernel,
            encode_seconds: cpu * (1.0 - in_kernel),
        }
    }
}

/// Ensures that the kernel holds a ruleset.
pub(super) fn check_table(kernel: &mut Kernel, ruleset: &Ruleset) -> Result<()> {
    let differences = kernel.audit(ruleset)?;
    if let Some(first) = differences.first() {
        bail!("the kernel's table differs from the installed ruleset: {first}");
    }
    Ok(())
}

fn seconds(time: TimeVal) -> f64 {
    time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6
}

/// A ruleset to load.
pub(super) struct Loading {
    name: &'static str,
    load: Load,
    plan: Plan,
}

impl Loading {
    pub(super) fn new(name: &'static str, policies: usize, stack: Stack) -> Result<Loading> {
        let load = Load { policies, stack };
        let plan = node_plan(load)?;
        Ok(Loading { name, load, plan })
    }

    /// Loads it several times, each time into a namespace of its own.
    pub(super) fn measure(&self, tries: u32, memory: &Memory) -> Result<LoadReport> {
        let second = Generation::new(2).context("not a generation")?;
        let start = own_cpu()?;
        let ruleset = node_ruleset(&self.plan, Generation::FIRST)?;
        let lower_seconds = own_cpu()? - start;
        let next = node_ruleset(&self.plan, second)?;
        let (mut first, mut swap) = (Tries::default(), Tries::default());
        let mut more = Vec::new();
        let mut last = None;
        let mut is_checked = false;
        for _ in 0..tries {
            let (_world, mut kernel) = empty_kernel()?;
            sleep(SETTLING);
            let before = memory.bytes();
            last = Some(first.time(|| Ok(kernel.install(&ruleset)?))?);
            sleep(SETTLING);
            if let (Some(before), Some(after)) = (before, memory.bytes()) {
                more.push(after as f64 - before as f64);
            }
            swap.time(|| Ok(kernel.install(&next)?))?;
            if !is_checked {
                is_checked = true;
                check_table(&mut kernel, &next)?;
            }
        }
        let LoadStats {
            transactions,
            bytes,
            ..
        } = last.context("it was not loaded at all")?;
        Ok(LoadReport {
            name: self.name,
            pods: PODS,
            policies: self.load.policies,
            tries,
            size: Size::of(&ruleset),
            bytes,
            transactions,
            lower_seconds,
            first: first.quietest(),
            swap: swap.quietest(),
            memory_bytes: percentile(more, 50),
        })
    }
}
