//! The benchmark of `palisade check`: two inputs, each also parsed bare, the runs taking turns.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use palisade_generate::{self, List, Manifests};

use crate::compare::{Case, Programs, compare, progress};
use crate::measure::Output;
use crate::report::Report;

/// The arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  palisade-bench check
  palisade-bench check --runs 3 --files 1000 --list-size 10
  palisade-bench check --json > check.json")]
pub(crate) struct CheckArgs {
    /// The number of runs of each program on each input
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Keep the inputs in this directory, which must not have them yet [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The program to measure [default: palisade next to this one]
    #[arg(long, value_name = "PATH")]
    palisade: Option<PathBuf>,
    /// The seed of the inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of manifests, 5 kB each on average
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    files: u64,
    /// The size of the JSON list, in MB
    #[arg(long, default_value_t = 100, value_name = "MB")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    list_size: u64,
    /// Print JSON, with every single run
    #[arg(long)]
    pub(crate) json: bool,
}

/// Writes the inputs and measures both programs on them.
pub(crate) fn check(args: &CheckArgs) -> Result<Report> {
    let temporary;
    let dir = match &args.dir {
        Some(dir) => dir.as_path(),
        None => {
            temporary = tempfile::tempdir().context("cannot create a temporary directory")?;
            temporary.path()
        }
    };
    let programs = Programs::find(args.palisade.as_deref(), dir)?;
    let cases = [write_manifests(args, dir)?, write_list(args, dir)?];
    let mut inputs = Vec::new();
    for case in &cases {
        inputs.push(compare(case, args.runs, &programs)?);
    }
    Ok(Report {
        seed: args.seed,
        inputs,
    })
}

fn write_manifests(args: &CheckArgs, dir: &Path) -> Result<Case> {
    let path = dir.join("manifests");
    // Files of another run would be measured too.
    ensure!(!path.exists(), "`{}` already exists", path.display());
    progress(&format!("writing {} manifests", args.files))?;
    let plan = Manifests {
        seed: args.seed,
        files: args.files,
        bytes: args.files * 5_000,
    };
    let written = palisade_generate::manifests(&path, &plan)?;
    let count = written.documents;
    Ok(Case {
        name: "manifests (YAML)",
        bare_command: "bare-yaml",
        bare_path: path.clone(),
        count,
        command: "palisade check",
        args: vec!["check".into(), "-f".into(), path.into()],
        output: Output::Logged,
        written,
    })
}

fn write_list(args: &CheckArgs, dir: &Path) -> Result<Case> {
    let path = dir.join("list.json");
    ensure!(!path.exists(), "`{}` already exists", path.display());
    progress(&format!("writing a list of {} MB", args.list_size))?;
    let plan = List {
        seed: args.seed,
        bytes: args.list_size * 1_000_000,
    };
    let written = palisade_generate::list(&path, &plan)?;
    let count = written.objects;
    Ok(Case {
        name: "list (JSON)",
        bare_command: "bare-json",
        bare_path: path.clone(),
        count,
        command: "palisade check",
        args: vec!["check".into(), "-f".into(), path.into()],
        output: Output::Logged,
        written,
    })
}
