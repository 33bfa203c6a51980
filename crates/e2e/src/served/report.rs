//! The figures of one run with a server full of objects.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::churn::Churn;
use super::fill::Filled;
use super::process::{Memory, Settled};
use super::programming::{Time, WrittenKind};
use palisade_generate::point::Plan;

/// All that is reported.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServedReport {
    seed: u64,
    /// The number of objects on the server.
    counts: BTreeMap<String, usize>,
    /// The number of pods of the node.
    local_pods: usize,
    /// The time to write them, in seconds.
    filled_after: f64,
    /// An agent with an empty server: the runtime and the process itself.
    bare: Settled,
    /// An agent at the full one.
    started: Settled,
    programmed: Vec<Programmed>,
    churn: Option<Churn>,
    /// After the changes of pods, and at the end.
    after_churn: Option<Memory>,
    end: Memory,
}

/// The times of one run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Programmed {
    run: usize,
    kind: WrittenKind,
    writes: usize,
    first: Quantiles,
    last: Quantiles,
    answered: Quantiles,
}

/// In microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
struct Quantiles {
    p50: u64,
    p99: u64,
    max: u64,
}

impl Quantiles {
    fn of(times: impl Iterator<Item = u64>) -> Quantiles {
        let mut times: Vec<u64> = times.collect();
        times.sort_unstable();
        // The smallest value that the percentage does not exceed.
        let at = |percent: usize| {
            let place = (times.len() * percent).div_ceil(100).saturating_sub(1);
            times.get(place).copied().unwrap_or(0)
        };
        Quantiles {
            p50: at(50),
            p99: at(99),
            max: at(100),
        }
    }
}

impl fmt::Display for Quantiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |it: u64| it as f64 / 1_000.0;
        write!(
            f,
            "p50 {:5.1}, p99 {:5.1}, max {:5.1} ms",
            ms(self.p50),
            ms(self.p99),
            ms(self.max)
        )
    }
}

impl ServedReport {
    pub(super) fn new(
        plan: &Plan,
        filled: &Filled,
        bare: Settled,
        started: Settled,
    ) -> ServedReport {
        ServedReport {
            seed: plan.seed,
            counts: filled.counts.clone(),
            local_pods: filled.local.len(),
            filled_after: filled.took.as_secs_f64(),
            bare,
            started,
            programmed: Vec::new(),
            churn: None,
            after_churn: None,
            end: Memory::default(),
        }
    }

    pub(super) fn programmed(&mut self, run: usize, kind: WrittenKind, times: &[Time]) {
        self.programmed.push(Programmed {
            run,
            kind,
            writes: times.len(),
            first: Quantiles::of(times.iter().map(|it| it.first)),
            last: Quantiles::of(times.iter().map(|it| it.last)),
            answered: Quantiles::of(times.iter().map(|it| it.answered)),
        });
    }

    pub(super) fn churned(&mut self, churn: Churn, memory: Memory) {
        self.churn = Some(churn);
        self.after_churn = Some(memory);
    }

    pub(super) fn ended(&mut self, memory: Memory) {
        self.end = memory;
    }

    /// Memory above that of an agent without objects, in megabytes.
    fn over(&self, memory: Memory) -> f64 {
        let kilobytes = memory.resident.saturating_sub(self.bare.memory.resident);
        kilobytes as f64 * 1_024.0 / 1e6
    }
}

impl fmt::Display for ServedReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts: Vec<String> = self
            .counts
            .iter()
            .map(|(k, n)| format!("{n} {k}"))
            .collect();
        writeln!(
            f,
            "seed {}: {}; {} pods on the node; written in {:.0} s",
            self.seed,
            counts.join(", "),
            self.local_pods,
            self.filled_after
        )?;
        let mb = |kilobytes: u64| kilobytes as f64 * 1_024.0 / 1e6;
        for (name, it) in [("empty server", self.bare), ("full server", self.started)] {
            writeln!(
                f,
                "{name}: ready after {:.2} s, {:.2} s of a processor; {:.1} MB ({:.1} not of files), at most {:.1} MB",
                it.ready_after,
                it.cpu,
                mb(it.memory.resident),
                mb(it.memory.anonymous),
                mb(it.memory.peak)
            )?;
        }
        writeln!(
            f,
            "over the runtime: {:.1} MB",
            self.over(self.started.memory)
        )?;
        for it in &self.programmed {
            writeln!(
                f,
                "run {} {:<14} {} writes: answered {}; first transaction {}; last {}",
                it.run + 1,
                format!("{:?}", it.kind),
                it.writes,
                it.answered,
                it.first,
                it.last
            )?;
        }
        if let (Some(churn), Some(memory)) = (&self.churn, self.after_churn) {
            writeln!(
                f,
                "{:.0} s of changes ({} refused): {:.0} events of pods a second, {:.1} % of a processor; from arrival to the kernel p50 <= {:.1}, p99 <= {:.1} ms of {}; {:.1} MB over the runtime",
                churn.seconds,
                churn.refused,
                churn.events as f64 / churn.seconds,
                churn.cpu / churn.seconds * 100.0,
                churn.p50 * 1_000.0,
                churn.p99 * 1_000.0,
                churn.programmed,
                self.over(memory)
            )?;
        }
        write!(
            f,
            "at the end {:.1} MB over the runtime",
            self.over(self.end)
        )
    }
}
