//! The benchmark of incremental plans: it applies a cluster object by object, then events of every
//! kind.

mod events;
mod report;

use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use palisade_api::{Options, Source, key, lower_one, read};
use palisade_core::incremental::{HashKey, IncrementalPlanner};
use serde_json::Value;

use self::events::{Sample, measure};
pub use self::report::LiveReport;
use palisade_generate::point::{NODE, Plan, each_object};

/// The arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  palisade-bench live
  palisade-bench live --point S20 --events 500 --json

Times are those of taking in what an object means and of the commit that ends the batch; reading is
not part of them.")]
pub struct LiveArgs {
    /// The cluster, by its name in `palisade-bench generate`
    #[arg(long, default_value = "L")]
    point: String,
    /// The seed of the cluster and of the events
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The average number of pods of a node
    #[arg(long, default_value_t = 110, value_parser = clap::value_parser!(u64).range(1..))]
    pods_per_node: u64,
    /// The number of events of each kind
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..))]
    events: u64,
    /// Measure only the kinds of events that have this in their name
    #[arg(long, value_name = "WORDS")]
    only: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The plan of a point with another number of pods for each node.
pub fn plan(point: &str, seed: u64, pods_per_node: u64) -> Result<Plan> {
    let mut plan = Plan::named(point).with_context(|| format!("no cluster is named `{point}`"))?;
    plan.seed = seed;
    plan.spread.pods_per_node = Some(pods_per_node);
    plan.spread.service_percent = 0;
    Ok(plan)
}

/// The key of its hashes: a run is like the next.
pub const KEY: HashKey = HashKey::new(1, 2);

/// Applies one object; returns whether policies can see a difference.
pub fn apply(live: &mut IncrementalPlanner, object: &Value) -> Result<bool> {
    let sources = [Source::new("object.json", serde_json::to_vec(object)?)];
    let manifests = read(&sources, Options::default(), &|_| {});
    let object = manifests
        .objects
        .first()
        .context("an object of the cluster cannot be read")?;
    Ok(key(object).is_some_and(|key| live.set(key, &lower_one(object))))
}

/// Measures all kinds of events.
pub fn live(args: &LiveArgs) -> Result<LiveReport> {
    let plan = plan(&args.point, args.seed, args.pods_per_node)?;
    let mut live = IncrementalPlanner::new(NODE, KEY);
    let mut sample = Sample::new(args.seed, NODE);
    each_object(&plan, &mut |object| {
        sample.consider(object);
        apply(&mut live, object)?;
        Ok(())
    })?;
    let started = Instant::now();
    let whole = live.commit();
    let first_commit = started.elapsed();
    let members = whole.joined.len();
    drop(whole);
    let kinds = measure(&mut live, &mut sample, args.events, args.only.as_deref())?;
    Ok(LiveReport {
        point: args.point.clone(),
        seed: args.seed,
        node: NODE.to_owned(),
        counts: live.counts().into(),
        members: members as u64,
        kept_bytes: kept_bytes(args)?,
        first_commit_seconds: first_commit.as_secs_f64(),
        kinds,
    })
}

/// The allocated memory, measured by a program that counts.
fn kept_bytes(args: &LiveArgs) -> Result<u64> {
    let own = std::env::current_exe().context("cannot find out where this program is")?;
    let program = own.with_file_name("palisade-bench-allocations");
    let output = Command::new(&program)
        .args(["live", &args.point])
        .args([args.seed.to_string(), args.pods_per_node.to_string()])
        .output()
        .with_context(|| format!("cannot run `{}`", program.display()))?;
    let words = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "`{}` failed: {}",
        program.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    let bytes = words.trim().parse();
    bytes.with_context(|| format!("`{}` printed `{words}`", program.display()))
}
