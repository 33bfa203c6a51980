//! Prints what verdicts allocate in the cluster that `palisade-bench verdict` makes of the same
//! numbers. It is a program of its own because counting slows every allocation down.

use std::io::{Write as _, stdout};

use anyhow::{Context as _, Result, bail};
use palisade_api::{Options, Source, lower, read};
use palisade_bench::allocated::allocated;
use palisade_bench::flows::flows;
use palisade_bench::generate::{World, learned, world_list};
use palisade_core::compile::compile;
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

fn main() -> Result<()> {
    let numbers = std::env::args().skip(1).map(|word| word.parse::<u64>());
    let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().context("not a number")?;
    let [seed, pods, policies, n_flows] = *numbers else {
        bail!("usage: palisade-bench-allocations SEED PODS POLICIES FLOWS");
    };
    let bytes = world_list(&World::new(seed, pods, policies))?;
    let sources = [Source::new("cluster.json", bytes)];
    let manifests = read(&sources, Options::default(), &|_| {});
    let lowered = lower(&manifests.objects, learned());
    let program = compile(&lowered.cluster);
    let flows = flows(&lowered.cluster, &program, seed, n_flows as usize);
    writeln!(stdout(), "{}", allocated(&ALLOCATOR, &program, &flows))?;
    Ok(())
}
