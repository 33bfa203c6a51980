//! The benchmark of verdicts: one large cluster, read, compiled and evaluated in this process.

mod report;

use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use palisade_api::{Options, Source, lower, read};
use palisade_core::answer::Reason;
use palisade_core::compile::compile;
use palisade_core::decide::Flow;
use palisade_core::program::Program;
use palisade_generate::flows::flows;
use palisade_generate::{World, learned, world_list};
use rayon::ThreadPoolBuilder;

use self::report::{Phases, Share, VerdictReport};
use crate::clock::own_cpu;
use crate::compare::progress;

pub(crate) use self::report::{Latency, Spent};

/// The arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  palisade-bench verdict
  palisade-bench verdict --pods 1000 --policies 500 --runs 3")]
pub(crate) struct VerdictArgs {
    /// The number of measurements
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// The seed of the cluster and of the flows
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of pods
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pods: u64,
    /// The number of policies, a tenth of them cluster-wide
    #[arg(long, default_value_t = 2_000)]
    policies: u64,
    /// The number of flows
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    flows: u64,
    /// Print JSON, with every single run
    #[arg(long)]
    pub(crate) json: bool,
}

/// Makes the cluster and measures.
pub(crate) fn verdict(args: &VerdictArgs) -> Result<VerdictReport> {
    progress(&format!(
        "making {} pods and {} policies",
        args.pods, args.policies
    ))?;
    let bytes = world_list(&World::new(args.seed, args.pods, args.policies))?;
    let n_bytes = bytes.len() as u64;
    let sources = [Source::new("cluster.json", bytes)];
    let mut phases = Vec::new();
    for index in 1..=args.runs {
        progress(&format!(
            "reading and compiling: run {index} of {}",
            args.runs
        ))?;
        phases.push(read_and_compile(&sources)?);
    }
    let manifests = read(&sources, Options::default(), &|_| {});
    if let Some(problem) = manifests.problems.iter().find(|it| it.is_error()) {
        bail!("the generated cluster is not valid: {}", problem.message);
    }
    let lowered = lower(&manifests.objects, learned());
    let program = compile(&lowered.cluster);
    let flows = flows(&lowered.cluster, &program, args.seed, args.flows as usize);
    ensure!(!flows.is_empty(), "the cluster has no pods for flows");
    let (mut latencies, mut totals) = (Vec::new(), Vec::new());
    for index in 1..=args.runs {
        progress(&format!("deciding: run {index} of {}", args.runs))?;
        latencies.push(latency(&program, &flows));
        totals.push(all(&program, &flows));
    }
    progress("counting allocations")?;
    let allocated_bytes = allocated(args)?;
    let quietest = totals.into_iter().min_by(f64::total_cmp);
    let (classes, addresses, ports) = program.size();
    Ok(VerdictReport {
        seed: args.seed,
        bytes: n_bytes,
        objects: manifests.objects.len() as u64,
        pods: lowered.cluster.pods.len() as u64,
        policies: lowered.cluster.policies.len() as u64,
        classes: classes as u64,
        address_atoms: addresses as u64,
        port_atoms: ports as u64,
        flows: flows.len() as u64,
        shares: shares(&program, &flows),
        allocated_bytes,
        verdicts_per_second: flows.len() as f64 / quietest.context("no runs")?,
        latency: Latency::quietest(latencies).context("no runs")?,
        read: Spent::quietest(phases.iter().map(|it| it.read)).context("no runs")?,
        lower: Spent::quietest(phases.iter().map(|it| it.lower)).context("no runs")?,
        compile: Spent::quietest(phases.iter().map(|it| it.compile)).context("no runs")?,
        phases,
    })
}

/// Reads the cluster on one thread, lowers and compiles it.
fn read_and_compile(sources: &[Source]) -> Result<Phases> {
    let pool = ThreadPoolBuilder::new().num_threads(1).build()?;
    pool.install(|| {
        let start = Start::now()?;
        let manifests = read(sources, Options::default(), &|_| {});
        let read = start.spent()?;
        let learned = learned();
        let start = Start::now()?;
        let lowered = lower(&manifests.objects, learned);
        let lower = start.spent()?;
        let start = Start::now()?;
        let program = compile(&lowered.cluster);
        let compile = start.spent()?;
        black_box(program);
        Ok(Phases {
            read,
            lower,
            compile,
        })
    })
}

/// The start of a phase.
struct Start {
    wall: Instant,
    cpu: f64,
}

impl Start {
    fn now() -> Result<Start> {
        Ok(Start {
            wall: Instant::now(),
            cpu: own_cpu()?,
        })
    }

    fn spent(&self) -> Result<Spent> {
        Ok(Spent {
            wall_seconds: self.wall.elapsed().as_secs_f64(),
            cpu_seconds: own_cpu()? - self.cpu,
        })
    }
}

/// The time of each verdict, and of looking at the clock alone.
pub(crate) fn latency(program: &Program, flows: &[Flow]) -> Latency {
    let mut verdicts: Vec<u32> = Vec::with_capacity(flows.len());
    let mut clock: Vec<u32> = Vec::with_capacity(flows.len());
    let nanoseconds = |start: Instant| u32::try_from(start.elapsed().as_nanos());
    for flow in flows {
        let start = Instant::now();
        black_box(program.decide(black_box(flow)));
        verdicts.push(nanoseconds(start).unwrap_or(u32::MAX));
    }
    for flow in flows {
        let start = Instant::now();
        black_box(flow);
        clock.push(nanoseconds(start).unwrap_or(u32::MAX));
    }
    Latency::new(verdicts, clock)
}

/// The time of all verdicts, in seconds.
pub(crate) fn all(program: &Program, flows: &[Flow]) -> f64 {
    let start = Instant::now();
    for flow in flows {
        black_box(program.decide(black_box(flow)));
    }
    start.elapsed().as_secs_f64()
}

/// The number of directions decided by each kind of reason.
fn shares(program: &Program, flows: &[Flow]) -> Vec<Share> {
    let mut shares: Vec<Share> = Vec::new();
    for flow in flows {
        let decision = program.decide(flow);
        for (cause, is_egress) in [(decision.egress, true), (decision.ingress, false)] {
            let reason = Reason::of(cause).name();
            let at = shares.iter().position(|share| share.reason == reason);
            let at = at.unwrap_or_else(|| {
                shares.push(Share {
                    reason,
                    egress: 0,
                    ingress: 0,
                });
                shares.len() - 1
            });
            if let Some(share) = shares.get_mut(at) {
                share.egress += u64::from(is_egress);
                share.ingress += u64::from(!is_egress);
            }
        }
    }
    shares.sort_by_key(|share| std::cmp::Reverse(share.egress + share.ingress));
    shares
}

/// The allocations of verdicts. Counting slows every allocation down: another program with the same
/// code does it.
fn allocated(args: &VerdictArgs) -> Result<u64> {
    let own = std::env::current_exe().context("cannot find this program")?;
    let program = own.with_file_name("palisade-bench-allocations");
    let numbers = [args.seed, args.pods, args.policies, args.flows];
    let output = Command::new(&program)
        .args(numbers.map(|number| number.to_string()))
        .output()
        .with_context(|| format!("cannot start `{}`", program.display()))?;
    ensure!(
        output.status.success(),
        "`{}` failed: {}",
        program.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    let printed = String::from_utf8_lossy(&output.stdout);
    printed.trim().parse().context("no count was printed")
}
