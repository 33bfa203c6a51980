//! The benchmark of the dataplane: the cost of policies per packet, per connection, and to load.
//!
//! Every variant has namespaces of its own, all exist at the same time, and the same traffic passes
//! them in turn. Other load of the machine then affects all of them equally.

mod change;
mod cluster;
mod denied;
mod load;
mod machine;
mod memory;
mod parts;
mod path;
mod report;
mod same;
mod traffic;
mod variant;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use palisade_core::net::Family;
use palisade_generate::Rng;
use palisade_nft::node::Generation;

use self::cluster::{Load, Stack, node_plan, node_ruleset, node_settings};
use self::load::{LoadReport, Loading};
use self::machine::RealTime;
use self::memory::Memory;
use self::parts::Part;
use self::path::Path;
use self::report::{DataplaneReport, costs, flatness};
use self::same::Same;
use self::traffic::Run;
use self::variant::{Kind, Variant};
use crate::compare::progress;

/// The arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  palisade-bench dataplane
  palisade-bench dataplane --runs 1 --seconds 5 --policies 10,1000
  palisade-bench dataplane --runs 0 --loads 20
  palisade-bench dataplane --runs 0 --loads 0 --changes
  palisade-bench dataplane --runs 0 --loads 0 --denied 10000
  palisade-bench dataplane --runs 0 --loads 0 --same-members 800,5000
  palisade-bench dataplane --runs 1 --seconds 1 --policies 10 --loads 1 --changes   # does it work?")]
pub(crate) struct DataplaneArgs {
    /// The number of runs with traffic; 0 skips them
    #[arg(long, default_value_t = 6)]
    runs: u32,
    /// The length of a run, in seconds
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// Numbers of NetworkPolicies
    #[arg(long, value_delimiter = ',', default_values_t = [10, 1_000, 10_000])]
    policies: Vec<usize>,
    /// The number of loads of the most policies; 0 skips them
    #[arg(long, default_value_t = 10)]
    loads: u32,
    /// Measure what single changes of the most policies take
    #[arg(long)]
    changes: bool,
    /// Measure the cost of a denied packet, with policies of this number of rules, ranges, blocks
    /// and pods
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(100..=20_000))]
    denied: Option<u32>,
    /// Measure the kernel's memory for policies with different selectors of the same pods
    #[arg(long, value_name = "POLICIES,PODS")]
    same_members: Option<Same>,
    /// The seed of the order of visits
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Measure the most policies also with parts of their ruleset left out
    #[arg(long)]
    parts: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Builds the variants and measures.
pub(crate) fn dataplane(args: &DataplaneArgs) -> Result<DataplaneReport> {
    for count in &args.policies {
        ensure!(
            (10..=10_000).contains(count) && count.is_multiple_of(10),
            "{count} policies cannot be spread evenly: it takes a multiple of 10, from 10 to 10000"
        );
    }
    let mut notes = Vec::new();
    machine::prepare(&mut notes)?;
    let most = args.policies.iter().copied().max();
    let most = most.context("at least one number of policies is needed")?;
    let mut variants = if args.runs > 0 {
        variants(&args.policies, args.parts.then_some(most))?
    } else {
        Vec::new()
    };
    let loadings = if args.loads > 0 {
        progress("planning the loads")?;
        let ipv4 = Loading::new("IPv4 only", most, Stack::Ipv4)?;
        vec![ipv4, Loading::new("both families", most, Stack::Dual)?]
    } else {
        Vec::new()
    };
    // A thread inherits the core of the thread that starts it; the threads for planning start
    // first.
    let core = machine::pin()?;
    let before = machine::load_average();
    let (runs, real_time, checked) = traffic(args, &mut variants, &mut notes)?;
    let after = machine::load_average();
    let kinds: Vec<Kind> = variants.iter().map(|variant| variant.kind).collect();
    // The kernel takes them down meanwhile.
    drop(variants);
    let memory = Memory::find();
    let loads = loadings.iter().map(|loading| -> Result<LoadReport> {
        progress("loading")?;
        loading.measure(args.loads, &memory)
    });
    let report = DataplaneReport {
        kernel: machine::kernel(),
        busy: [before, after],
        core,
        real_time,
        notes,
        runs: runs.len(),
        slices: runs.iter().map(|run| run.slices).min().unwrap_or(0),
        checked,
        charged: runs.iter().map(|run| run.charged).fold(1.0, f64::min),
        traffic: if runs.is_empty() {
            Vec::new()
        } else {
            costs(&runs, &kinds)
        },
        flatness: if runs.is_empty() {
            Vec::new()
        } else {
            flatness(&runs, &kinds)
        },
        loads: loads.collect::<Result<_>>()?,
        changes: if args.changes {
            change::changes(most)?
        } else {
            Vec::new()
        },
        denied: match args.denied {
            Some(count) => denied::denied(count)?,
            None => Vec::new(),
        },
        same: match args.same_members {
            Some(same) => same::same(same, &memory)?,
            None => Vec::new(),
        },
        memory_source: memory.source(),
    };
    report.check()?;
    Ok(report)
}

/// Forwarding, connection tracking, each number of policies, and one of them without its parts.
fn variants(policies: &[usize], in_parts: Option<usize>) -> Result<Vec<Variant>> {
    progress("building namespaces")?;
    let mut variants = vec![
        Variant::build(Kind::Forwarding, None)?,
        Variant::build(Kind::Conntrack, None)?,
    ];
    for count in policies {
        progress(&format!("planning {count} policies"))?;
        let load = Load {
            policies: *count,
            stack: Stack::Dual,
        };
        let plan = node_plan(load)?;
        let ruleset = node_ruleset(&plan, Generation::FIRST)?;
        let variant = Variant::build(Kind::Policies(*count), Some(&ruleset))?;
        let [ipv4, ipv6] = Family::BOTH.map(|family| Path::of(&plan, load, family));
        variants.push(variant.checked_by([ipv4?, ipv6?])?);
        if in_parts != Some(*count) {
            continue;
        }
        for part in Part::of(&node_settings(Generation::FIRST)?) {
            let mut plan = plan.clone();
            part.leave_out_of_plan(&mut plan);
            let mut ruleset = node_ruleset(&plan, Generation::FIRST)?;
            part.leave_out(&mut ruleset);
            variants.push(Variant::build(Kind::Without(part), Some(&ruleset))?);
        }
    }
    Ok(variants)
}

/// All runs, whether they had real-time scheduling, and the number of flows whose rules' counters
/// were checked.
fn traffic(
    args: &DataplaneArgs,
    variants: &mut [Variant],
    notes: &mut Vec<String>,
) -> Result<(Vec<Run>, bool, u64)> {
    let mut runs = Vec::new();
    if args.runs == 0 {
        return Ok((runs, false, 0));
    }
    let real_time = RealTime::begin();
    if let Err(error) = &real_time {
        notes.push(format!("no real-time scheduling, so more noise: {error:#}"));
    }
    let mut rng = Rng::new(args.seed);
    for index in 1..=args.runs {
        progress(&format!("traffic: run {index} of {}", args.runs))?;
        let length = Duration::from_secs(args.seconds);
        runs.push(traffic::run(variants, &mut rng, length)?);
    }
    let mut checked = 0;
    for variant in variants {
        checked += variant.check()?;
    }
    Ok((runs, real_time.is_ok(), checked))
}
