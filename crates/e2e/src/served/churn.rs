//! A hundred pods a second change, all over the cluster.

#![allow(
    clippy::indexing_slicing,
    reason = "a missing field of a value is null"
)]

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::fill::Filled;
use super::process::Agent;
use crate::writer::{Writer, place};
use palisade_generate::Rng;

/// The number of changes of pods.
const EVERY: Duration = Duration::from_millis(10);
/// Concurrent requests.
const AT_ONCE: usize = 32;

/// The cost.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Churn {
    /// The duration, in seconds.
    pub(super) seconds: f64,
    /// Changes refused by the server: two of one pod collided.
    pub(super) refused: u64,
    /// Events of pods received by the agent.
    pub(super) events: u64,
    /// The processor time of the agent, in seconds.
    pub(super) cpu: f64,
    /// From the arrival of a change to the kernel's commit: upper limits that half and 99 of 100
    /// keep, in seconds.
    pub(super) p50: f64,
    pub(super) p99: f64,
    /// The number of changes.
    pub(super) programmed: u64,
}

/// Changes pods and returns the cost for the agent.
pub(super) fn churn(
    runtime: &Runtime,
    writer: &Writer,
    agent: &Agent,
    filled: &Filled,
    seconds: u64,
    seed: u64,
) -> Result<Churn> {
    let before = agent.metrics()?;
    let (cpu, started) = (agent.cpu()?, Instant::now());
    let time = Duration::from_secs(seconds);
    let refused = runtime.block_on(change(writer, filled, time, seed))?;
    let (cpu, elapsed) = (agent.cpu()? - cpu, started.elapsed());
    let after = agent.metrics()?;
    let events = |text: &str| sum(text, "palisade_watch_events_total", "kind=\"pod\"");
    let waits = Waits::between(&before, &after);
    Ok(Churn {
        seconds: elapsed.as_secs_f64(),
        refused,
        events: events(&after).saturating_sub(events(&before)),
        cpu,
        p50: waits.quantile(50),
        p99: waits.quantile(99),
        programmed: waits.all(),
    })
}

async fn change(writer: &Writer, filled: &Filled, time: Duration, seed: u64) -> Result<u64> {
    let mut refused = 0;
    let mut rng = Rng::new(seed);
    let started = Instant::now();
    let mut running: JoinSet<Result<()>> = JoinSet::new();
    let mut number = 0_u32;
    while started.elapsed() < time {
        let due = EVERY * number;
        tokio::time::sleep(due.saturating_sub(started.elapsed())).await;
        while running.len() >= AT_ONCE
            && let Some(done) = running.join_next().await
        {
            refused += u64::from(done.context("a task was lost")?.is_err());
        }
        // Each pod has its turn: two requests for one pod never run at a time.
        let pods = &filled.elsewhere;
        let Some(pod) = pods.get(number as usize % pods.len().max(1)) else {
            break;
        };
        let what = rng.below(4);
        running.spawn(one(writer.clone(), pod.clone(), what, number));
        number += 1;
    }
    while let Some(done) = running.join_next().await {
        refused += u64::from(done.context("a task was lost")?.is_err());
    }
    Ok(refused)
}

/// Half of all changes are such that policies cannot see; a quarter are of labels, and a quarter
/// replace the pod.
async fn one(writer: Writer, pod: Value, what: u64, number: u32) -> Result<()> {
    let place = place(&pod).context("servers have no such object")?;
    let status = format!("{}/status", place.own);
    let label = json!({"metadata": {"labels": {"version": format!("v{}", number % 7)}}});
    let restarts = json!({"status": {"message": format!("restarted {number} times")}});
    match what {
        0 => {
            writer.delete(&place.own).await?;
            writer.create(&pod).await
        }
        1 => writer
            .request("PATCH", &place.own, &label)
            .await
            .map(|_| ()),
        _ => writer
            .request("PATCH", &status, &restarts)
            .await
            .map(|_| ()),
    }
}

/// The waiting times of changes, as a histogram by upper limits.
struct Waits(Vec<(f64, u64)>);

impl Waits {
    fn between(before: &str, after: &str) -> Waits {
        let (before, after) = (buckets(before), buckets(after));
        let added = after.iter().map(|(limit, count)| {
            let old = before.iter().find(|(it, _)| it == limit);
            (*limit, count.saturating_sub(old.map_or(0, |it| it.1)))
        });
        Waits(added.collect())
    }

    fn all(&self) -> u64 {
        self.0.last().map_or(0, |it| it.1)
    }

    fn quantile(&self, percent: u64) -> f64 {
        let wanted = (self.all() * percent).div_ceil(100);
        let limit = self.0.iter().find(|it| it.1 >= wanted);
        limit.map_or(f64::INFINITY, |it| it.0)
    }
}

/// The buckets of the time from arrival to commit, each with all that are below its limit.
fn buckets(text: &str) -> Vec<(f64, u64)> {
    let mut buckets = Vec::new();
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("palisade_policy_programming_duration_seconds_bucket")
        else {
            continue;
        };
        if rest.contains("stage=") && !rest.contains("stage=\"arrived\"") {
            continue;
        }
        let limit = rest.split("le=\"").nth(1);
        let limit = limit.and_then(|it| it.split('"').next());
        let limit = limit.map(|it| it.parse().unwrap_or(f64::INFINITY));
        let count = rest.rsplit(' ').next().and_then(|it| it.parse().ok());
        buckets.extend(limit.zip(count));
    }
    buckets
}

/// A counter, with a label.
fn sum(text: &str, name: &str, label: &str) -> u64 {
    let lines = text.lines();
    let lines = lines.filter(|it| it.starts_with(name) && it.contains(label));
    lines
        .filter_map(|it| it.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
}
