//! Writes a whole cluster to a server, and remembers what the measurements need of it.

#![allow(
    clippy::indexing_slicing,
    reason = "a missing field of a value is null"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::writer::Writer;
use palisade_generate::point::NODE;
use palisade_generate::point::{Plan, each_object};

/// Concurrent requests.
const AT_ONCE: usize = 48;
/// One of this number of pods on other nodes is kept for later.
const SAMPLED: usize = 20;

/// What the server holds now.
#[derive(Debug, Default)]
pub(super) struct Filled {
    /// The numbers of objects by kind.
    pub(super) counts: BTreeMap<String, usize>,
    /// Pods of the node.
    pub(super) local: Vec<Value>,
    /// Some pods of other nodes.
    pub(super) elsewhere: Vec<Value>,
    /// The time.
    pub(super) took: Duration,
}

/// Writes all objects of a plan.
pub(super) async fn fill(writer: &Writer, plan: &Plan) -> Result<Filled> {
    let started = Instant::now();
    // Everything as text first: as values it would take several times as much.
    let mut all: BTreeMap<u8, Vec<Vec<u8>>> = BTreeMap::new();
    let mut namespaces = BTreeSet::new();
    let mut filled = Filled::default();
    let mut seen = 0_usize;
    each_object(plan, &mut |object| {
        let kind = object["kind"].as_str().unwrap_or_default();
        *filled.counts.entry(kind.to_owned()).or_default() += 1;
        let turn = match kind {
            "Namespace" => 0,
            "Node" => 1,
            "Pod" => 2,
            _ => 3,
        };
        if kind == "Namespace" {
            namespaces.insert(object["metadata"]["name"].to_string());
        }
        if kind == "Pod" {
            seen += 1;
            if object["spec"]["nodeName"] == NODE {
                filled.local.push(object.clone());
            } else if seen.is_multiple_of(SAMPLED) {
                filled.elsewhere.push(object.clone());
            }
        }
        all.entry(turn)
            .or_default()
            .push(serde_json::to_vec(object)?);
        Ok(())
    })?;
    let total: usize = all.values().map(Vec::len).sum();
    let mut written = 0;
    for objects in all.into_values() {
        let mut running = JoinSet::new();
        for text in objects {
            if running.len() >= AT_ONCE
                && let Some(done) = running.join_next().await
            {
                done.context("a task was lost")??;
            }
            let writer = writer.clone();
            running.spawn(async move {
                let object: Value = serde_json::from_slice(&text)?;
                writer.create(&object).await
            });
            written += 1;
            if written % 1_000 == 0 {
                progress(written, total, started);
            }
        }
        while let Some(done) = running.join_next().await {
            done.context("a task was lost")??;
        }
    }
    progress(total, total, started);
    let _ = writeln!(std::io::stderr());
    ensure!(!filled.local.is_empty(), "{NODE} has no pods");
    filled.took = started.elapsed();
    Ok(filled)
}

fn progress(written: usize, total: usize, started: Instant) {
    let seconds = started.elapsed().as_secs();
    // Its output is not needed.
    let _ = write!(
        std::io::stderr(),
        "\r{written} of {total} objects written, {seconds} s"
    );
}
