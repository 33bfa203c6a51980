//! The benchmark of `palisade explain`: one cluster, many flows, next to a bare parse.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use palisade_api::{Options, Source, lower, read};
use palisade_generate::flows::queries;
use palisade_generate::{Style, World, Written, to_yaml, world};

use crate::compare::{Case, Programs, compare, progress};
use crate::measure::Output;
use crate::report::Report;

/// The arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  palisade-bench explain
  palisade-bench explain --pods 5000 --flows 100000 --runs 3")]
pub(crate) struct ExplainArgs {
    /// The number of runs of each program
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Keep the input in this directory, which must not have it yet [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The program to measure [default: palisade next to this one]
    #[arg(long, value_name = "PATH")]
    palisade: Option<PathBuf>,
    /// The seed of the input
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of pods
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    pods: u64,
    /// The number of policies, a tenth of them cluster-wide
    #[arg(long, default_value_t = 500)]
    policies: u64,
    /// The number of flows
    #[arg(long, default_value_t = 10_000)]
    flows: usize,
    /// Print JSON, with every single run
    #[arg(long)]
    pub(crate) json: bool,
}

/// Writes the input and measures both programs on it.
pub(crate) fn explain(args: &ExplainArgs) -> Result<Report> {
    let temporary;
    let dir = match &args.dir {
        Some(dir) => dir.as_path(),
        None => {
            temporary = tempfile::tempdir().context("cannot create a temporary directory")?;
            temporary.path()
        }
    };
    let programs = Programs::find(args.palisade.as_deref(), dir)?;
    let case = write(args, dir)?;
    Ok(Report {
        seed: args.seed,
        inputs: vec![compare(&case, args.runs, &programs)?],
    })
}

fn write(args: &ExplainArgs, dir: &Path) -> Result<Case> {
    // The bare parse takes a directory, which has this one file.
    let cluster_dir = dir.join("cluster");
    ensure!(
        !cluster_dir.exists(),
        "`{}` already exists",
        cluster_dir.display()
    );
    let (pods, policies, flows) = (args.pods, args.policies, args.flows);
    progress(&format!(
        "writing {pods} pods, {policies} policies and {flows} flows"
    ))?;
    let objects = world(&World::new(args.seed, pods, policies));
    let mut text = String::new();
    for object in &objects {
        text.push_str("---\n");
        to_yaml(&mut text, object, Style::Kubectl);
    }
    fs::create_dir_all(&cluster_dir)
        .with_context(|| format!("cannot create `{}`", cluster_dir.display()))?;
    let cluster = cluster_dir.join("cluster.yaml");
    fs::write(&cluster, &text).with_context(|| format!("cannot write `{}`", cluster.display()))?;
    let count = objects.len() as u64;
    let written = Written {
        files: 1,
        documents: count,
        objects: count,
        bytes: text.len() as u64,
    };
    let flows_file = dir.join("flows.txt");
    let queries = draw(text, args)?;
    fs::write(&flows_file, queries)
        .with_context(|| format!("cannot write `{}`", flows_file.display()))?;
    let mut command = vec!["explain".into(), "-f".into(), cluster.into()];
    command.extend(["--flows".into(), flows_file.into()]);
    // Some flows are denied (exit code 1); this benchmark only counts time.
    command.extend(["-o", "jsonl", "--exit-zero"].map(Into::into));
    Ok(Case {
        name: "cluster (YAML)",
        bare_command: "bare-yaml",
        bare_path: cluster_dir,
        count,
        command: "palisade explain",
        args: command,
        output: Output::Discarded,
        written,
    })
}

/// Flows between the pods of the manifests.
fn draw(text: String, args: &ExplainArgs) -> Result<String> {
    let sources = [Source::new("cluster.yaml", text.into_bytes())];
    let manifests = read(&sources, Options::default(), &|_| {});
    let mut problems = manifests.problems.iter();
    if let Some(problem) = problems.find(|it| it.is_error()) {
        anyhow::bail!("the generated cluster is not valid: {}", problem.message);
    }
    let lowered = lower(&manifests.objects, Vec::new());
    Ok(queries(&lowered.cluster, args.seed, args.flows))
}
