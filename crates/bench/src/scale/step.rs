//! The parts of one measurement that run in processes of their own, and none finds memory warm that
//! another has used.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Subcommand;
use palisade_api::{Manifests, Options, Source, lower, read};
use palisade_core::analysis::connect::Summary;
use palisade_core::compile::compile;
use palisade_core::decide::Identity;
use palisade_generate::flows::flows;
use rayon::{ThreadPool, ThreadPoolBuilder};
use serde::{Deserialize, Serialize};

use super::fold::fold;
use crate::bare;
use crate::clock::all_cpu;
use crate::verdict::{Latency, Spent, all, latency};

/// A part of a measurement.
#[derive(Debug, Subcommand)]
pub(crate) enum Step {
    /// Only decode a JSON list
    Bare { file: PathBuf },
    /// Read, lower, compile, decide and fold a cluster
    Engine {
        file: PathBuf,
        #[arg(long)]
        seed: u64,
        #[arg(long)]
        flows: usize,
        /// The number of threads for folding
        #[arg(long, value_delimiter = ',')]
        threads: Vec<usize>,
    },
    /// Read a cluster
    Read {
        file: PathBuf,
        #[arg(long)]
        threads: usize,
    },
}

/// The cost of a bare parse.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Bare {
    /// Without reading the file.
    pub(crate) spent: Spent,
    pub(crate) items: u64,
}

/// What reading took.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Reading {
    /// Without reading the file, but with checking its bytes.
    pub(crate) spent: Spent,
    pub(crate) bytes: u64,
    pub(crate) objects: u64,
}

/// The cost and the result of the engine.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Engine {
    /// With checking the bytes of the file.
    pub(crate) read: Spent,
    pub(crate) lower: Spent,
    pub(crate) compile: Spent,
    /// The number of threads.
    pub(crate) folds: Vec<Fold>,
    pub(crate) latency: Latency,
    pub(crate) verdicts_per_second: f64,
    pub(crate) classes: u64,
    pub(crate) address_atoms: u64,
    pub(crate) port_atoms: u64,
    /// Kinds of sources and of destinations.
    pub(crate) keys: (usize, usize),
    /// Ordered pairs of pods with everything allowed, everything denied, and neither.
    pub(crate) pairs: [u64; 3],
    /// A flow query for `palisade explain`.
    pub(crate) query: Vec<String>,
}

/// What the whole-cluster answer took.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Fold {
    pub(crate) threads: usize,
    pub(crate) spent: Spent,
}

/// Runs the step and returns its cost as JSON.
pub(crate) fn step(step: &Step) -> Result<String> {
    Ok(match step {
        Step::Bare { file } => serde_json::to_string(&bare_parse(file)?)?,
        Step::Engine {
            file,
            seed,
            flows,
            threads,
        } => serde_json::to_string(&engine(file, *seed, *flows, threads)?)?,
        Step::Read { file, threads } => serde_json::to_string(&reading(file, *threads)?)?,
    })
}

fn bare_parse(file: &Path) -> Result<Bare> {
    let bytes = fs::read(file).with_context(|| format!("cannot read `{}`", file.display()))?;
    let (items, spent) = timed(|| bare::items(&bytes))?;
    Ok(Bare {
        spent,
        items: items?,
    })
}

fn reading(file: &Path, threads: usize) -> Result<Reading> {
    let bytes = fs::read(file).with_context(|| format!("cannot read `{}`", file.display()))?;
    let n_bytes = bytes.len() as u64;
    let pool = pool(threads)?;
    let (sources, checked) = timed(|| [Source::new(file.to_string_lossy(), bytes)])?;
    let (manifests, read) = timed(|| pool.install(|| parse(&sources)))?;
    ensure_sound(&manifests)?;
    Ok(Reading {
        spent: sum(checked, read),
        bytes: n_bytes,
        objects: manifests.objects.len() as u64,
    })
}

fn engine(file: &Path, seed: u64, n_flows: usize, threads: &[usize]) -> Result<Engine> {
    let bytes = fs::read(file).with_context(|| format!("cannot read `{}`", file.display()))?;
    let (sources, checked) = timed(|| [Source::new(file.to_string_lossy(), bytes)])?;
    let one = pool(1)?;

    let (manifests, read) = timed(|| one.install(|| parse(&sources)))?;
    ensure_sound(&manifests)?;
    let (lowered, lower) = timed(|| one.install(|| lower(&manifests.objects, Vec::new())))?;
    let cluster = &lowered.cluster;
    let (program, compile) = timed(|| one.install(|| compile(cluster)))?;

    let (mut keys, mut pairs) = ((0, 0), Summary::default());
    let mut folds = Vec::new();
    for &threads in threads {
        let pool = pool(threads)?;
        let (found, spent) = timed(|| pool.install(|| fold(cluster, &program)))?;
        (pairs, keys) = found;
        folds.push(Fold { threads, spent });
    }

    let drawn = flows(cluster, &program, seed, n_flows);
    ensure!(!drawn.is_empty(), "the cluster has no pods for flows");
    let first = drawn
        .first()
        .map(|it| (it.source.identity, it.destination.identity));
    let query = match first {
        Some((Identity::Pod(a), Identity::Pod(b))) => {
            vec![cluster.pod_name(a), cluster.pod_name(b)]
        }
        Some(_) | None => Vec::new(),
    };
    let (classes, address_atoms, port_atoms) = program.size();
    Ok(Engine {
        read: sum(checked, read),
        lower,
        compile,
        folds,
        latency: latency(&program, &drawn),
        verdicts_per_second: drawn.len() as f64 / all(&program, &drawn),
        classes: classes as u64,
        address_atoms: address_atoms as u64,
        port_atoms: port_atoms as u64,
        keys,
        pairs: [pairs.allowed, pairs.denied, pairs.mixed],
        query,
    })
}

/// The cost of a value.
fn timed<T>(make: impl FnOnce() -> T) -> Result<(T, Spent)> {
    let (wall, cpu) = (Instant::now(), all_cpu()?);
    let made = make();
    let spent = Spent {
        wall_seconds: wall.elapsed().as_secs_f64(),
        cpu_seconds: all_cpu()? - cpu,
    };
    Ok((made, spent))
}

fn sum(a: Spent, b: Spent) -> Spent {
    Spent {
        wall_seconds: a.wall_seconds + b.wall_seconds,
        cpu_seconds: a.cpu_seconds + b.cpu_seconds,
    }
}

fn parse(sources: &[Source]) -> Manifests<'_> {
    read(sources, Options::default(), &|_| {})
}

fn pool(threads: usize) -> Result<ThreadPool> {
    Ok(ThreadPoolBuilder::new().num_threads(threads).build()?)
}

fn ensure_sound(manifests: &Manifests<'_>) -> Result<()> {
    if let Some(problem) = manifests.problems.iter().find(|it| it.is_error()) {
        bail!("the cluster is not valid: {}", problem.message);
    }
    Ok(())
}
