//! The benchmark of `palisade check`: two inputs, each also parsed bare, the runs taking turns.

use std::ffi::OsString;
use std::io::{Write as _, stderr};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use palisade_bench::generate::{self, List, Manifests, Written};

use crate::measure::measure;
use crate::report::{Input, Report, Summary};

/// What was typed.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// How often each program runs on each input
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

/// One input as both programs are given it.
struct Case {
    name: &'static str,
    bare_command: &'static str,
    path: PathBuf,
    written: Written,
    /// What the bare parse must count.
    count: u64,
}

/// Writes the inputs and measures both programs on them.
pub(crate) fn check(args: &CheckArgs) -> Result<Report> {
    let own = std::env::current_exe().context("cannot find this program")?;
    let palisade = match &args.palisade {
        Some(path) => path.clone(),
        None => own.with_file_name("palisade"),
    };
    ensure!(
        palisade.is_file(),
        "`{}` does not exist; build it with the same profile, or name one with `--palisade`",
        palisade.display()
    );
    let temporary;
    let dir = match &args.dir {
        Some(dir) => dir.as_path(),
        None => {
            temporary = tempfile::tempdir().context("cannot create a temporary directory")?;
            temporary.path()
        }
    };
    let cases = [write_manifests(args, dir)?, write_list(args, dir)?];
    let log = dir.join("output.log");
    let mut inputs = Vec::new();
    for case in &cases {
        inputs.push(measure_case(case, args.runs, &own, &palisade, &log)?);
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
    let written = generate::manifests(&path, &plan)?;
    let count = written.documents;
    Ok(Case {
        name: "manifests (YAML)",
        bare_command: "bare-yaml",
        path,
        written,
        count,
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
    let written = generate::list(&path, &plan)?;
    let count = written.objects;
    Ok(Case {
        name: "list (JSON)",
        bare_command: "bare-json",
        path,
        written,
        count,
    })
}

fn measure_case(case: &Case, runs: u32, own: &Path, palisade: &Path, log: &Path) -> Result<Input> {
    let bare_args: [OsString; 2] = [case.bare_command.into(), case.path.clone().into()];
    let check_args: [OsString; 3] = ["check".into(), "-f".into(), case.path.clone().into()];
    let (mut bare, mut check) = (Vec::new(), Vec::new());
    for index in 1..=runs {
        progress(&format!("{}: run {index} of {runs}", case.name))?;
        let (run, printed) = measure(own, &bare_args, log)?;
        let count: u64 = printed
            .trim()
            .parse()
            .context("the bare parse printed no count")?;
        ensure!(
            count == case.count,
            "the bare parse counted {count}, not {}",
            case.count
        );
        bare.push(run);
        let (run, _) = measure(palisade, &check_args, log)?;
        check.push(run);
    }
    let bare = Summary::new(bare).context("no runs")?;
    let check = Summary::new(check).context("no runs")?;
    let Written {
        files,
        documents,
        objects,
        bytes,
    } = case.written;
    let ratio = check.wall_seconds / bare.wall_seconds;
    Ok(Input {
        name: case.name,
        files,
        documents,
        objects,
        bytes,
        bare,
        check,
        ratio,
    })
}

fn progress(text: &str) -> Result<()> {
    Ok(writeln!(stderr(), "{text}")?)
}
