//! Prints what verdicts allocate in the cluster that `palisade-bench verdict` makes of the same
//! numbers, or what each part of a cluster in a file keeps allocated. It is a program of its own
//! because counting slows every allocation down.

use std::fs;
use std::io::{Write as _, stdout};

use anyhow::{Context as _, Result, bail};
use palisade_api::{Options, Source, lower, read};
use palisade_bench::allocated::{Kept, allocated};
use palisade_bench::live::{KEY, apply, plan};
use palisade_core::compile::compile;
use palisade_core::incremental::IncrementalPlanner;
use palisade_generate::flows::flows;
use palisade_generate::point::{NODE, each_object};
use palisade_generate::{World, learned, world_list};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let printed = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["keep", file, seed, n_flows] => {
            let kept = keep(file, seed.parse()?, n_flows.parse()?)?;
            serde_json::to_string(&kept)?
        }
        ["live", point, seed, pods_per_node] => {
            live(point, seed.parse()?, pods_per_node.parse()?)?.to_string()
        }
        _ => verdicts(&words)?.to_string(),
    };
    writeln!(stdout(), "{printed}")?;
    Ok(())
}

/// The state that one node keeps of a cluster.
fn live(point: &str, seed: u64, pods_per_node: u64) -> Result<usize> {
    let plan = plan(point, seed, pods_per_node)?;
    let before = ALLOCATOR.current_usage();
    let mut live = IncrementalPlanner::new(NODE, KEY);
    each_object(&plan, &mut |object| apply(&mut live, object).map(drop))?;
    drop(live.commit());
    let kept = ALLOCATOR.current_usage().saturating_sub(before);
    // It must live until it is counted.
    drop(live);
    Ok(kept)
}

fn verdicts(words: &[String]) -> Result<usize> {
    let numbers = words.iter().map(|word| word.parse::<u64>());
    let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().context("not a number")?;
    let [seed, pods, policies, n_flows] = *numbers else {
        bail!(
            "usage: palisade-bench-allocations SEED PODS POLICIES FLOWS | keep FILE SEED FLOWS | live POINT SEED PODS_PER_NODE"
        );
    };
    let bytes = world_list(&World::new(seed, pods, policies))?;
    let sources = [Source::new("cluster.json", bytes)];
    let manifests = read(&sources, Options::default(), &|_| {});
    let lowered = lower(&manifests.objects, learned());
    let program = compile(&lowered.cluster);
    let flows = flows(&lowered.cluster, &program, seed, n_flows as usize);
    Ok(allocated(&ALLOCATOR, &program, &flows))
}

/// The allocated memory after each step of loading a file.
fn keep(file: &str, seed: u64, n_flows: usize) -> Result<Kept> {
    let mut before = ALLOCATOR.current_usage();
    let mut grown = || {
        let now = ALLOCATOR.current_usage();
        let grown = now.saturating_sub(before) as u64;
        before = now;
        grown
    };
    let bytes = fs::read(file).with_context(|| format!("cannot read `{file}`"))?;
    let sources = [Source::new(file, bytes)];
    let text = grown();
    let manifests = read(&sources, Options::default(), &|_| {});
    let objects = grown();
    let lowered = lower(&manifests.objects, Vec::new());
    let cluster = grown();
    let program = compile(&lowered.cluster);
    let program_bytes = grown();
    let flows = flows(&lowered.cluster, &program, seed, n_flows);
    Ok(Kept {
        text,
        objects,
        cluster,
        program: program_bytes,
        verdicts: allocated(&ALLOCATOR, &program, &flows) as u64,
    })
}
