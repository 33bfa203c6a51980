//! The benchmark at scale: for each cluster every step from bytes to answers, next to a bare parse
//! of the same bytes in the same run.

mod fold;
mod goals;
mod markdown;
mod plot;
mod report;
mod step;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use palisade_bench::allocated::Kept;
use palisade_generate::Written;
use palisade_generate::point::{Format, Plan, write};
use serde::de::DeserializeOwned;

use self::report::{Point, Process, ScaleReport, Yaml};
use self::step::{Bare, Engine, Reading};
use crate::compare::{Programs, progress};
use crate::measure::{Output, Run, measure, measure_on};
use crate::produce::named;
use crate::verdict::Spent;

pub(crate) use self::fold::fold;
pub(crate) use self::markdown::{head, markdown, row};
pub(crate) use self::step::{Step, step};

/// Reading YAML is slow enough that the quietest of few runs is near the truth.
const MOST_YAML_RUNS: u32 = 3;

/// The arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  palisade-bench scale
  palisade-bench scale --points S,S20,R --runs 3
  palisade-bench scale --points S20,R,L,X --runs 10 --plot docs/performance/scale.svg
  palisade-bench scale --points L --adversarial --json > scale.json
  palisade-bench scale --adversarial --markdown --plot docs/performance/scale.svg > tables.md

Clusters are those of `palisade-bench generate`; they are written to a temporary directory, one at a
time, the largest with 2 GB.")]
pub(crate) struct ScaleArgs {
    /// The clusters, by name
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "S,S20,R,L,L1,A,X",
        value_name = "NAME"
    )]
    points: Vec<String>,
    /// The number of measurements
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// The number of threads of the whole-cluster answer
    #[arg(long, value_delimiter = ',', default_value = "1,2", value_name = "N")]
    threads: Vec<usize>,
    /// Measure the clusters that are made to be expensive as well, each next to its twin
    #[arg(long)]
    adversarial: bool,
    /// The seed of the clusters and of the flows
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of flows that are decided
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    flows: u64,
    /// Write the clusters to this directory, and remove them again [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The program to measure [default: palisade next to this one]
    #[arg(long, value_name = "PATH")]
    palisade: Option<PathBuf>,
    /// Draw how the time grows with the number of pods
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the tables of docs/operations/performance.md
    #[arg(long, conflicts_with = "json")]
    pub(crate) markdown: bool,
}

/// Measures all clusters of the arguments.
pub(crate) fn scale(args: &ScaleArgs) -> Result<ScaleReport> {
    let temporary = match &args.dir {
        Some(dir) => tempfile::tempdir_in(dir),
        None => tempfile::tempdir(),
    };
    let temporary = temporary.context("cannot create a temporary directory")?;
    let dir = temporary.path();
    let programs = Programs::find(args.palisade.as_deref(), dir)?;
    // An unknown name must fail before hours of work.
    for name in &args.points {
        named(name)?;
    }
    let bench = Bench {
        args,
        dir,
        has_connectivity: has_command(&programs.palisade, "connectivity"),
        programs: &programs,
    };
    let (mut points, mut adversaries) = (Vec::new(), Vec::new());
    for name in &args.points {
        points.push(bench.point(name, Extent::All)?);
    }
    if args.adversarial {
        for (name, _) in Plan::adversaries() {
            let hostile = bench.point(name, Extent::Engine)?;
            adversaries.push((
                hostile,
                bench.point(&format!("{name}-twin"), Extent::Engine)?,
            ));
        }
    }
    let report = ScaleReport {
        seed: args.seed,
        runs: args.runs,
        goals: goals::goals(&points),
        points,
        adversaries,
    };
    if let Some(path) = &args.plot {
        let drawn = plot::plot(&report.points);
        fs::write(path, drawn).with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    Ok(report)
}

/// The extent of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// Everything.
    All,
    /// What depends on the policies: no YAML, no processes of the program.
    Engine,
}

struct Bench<'a> {
    args: &'a ScaleArgs,
    dir: &'a Path,
    has_connectivity: bool,
    programs: &'a Programs,
}

impl Bench<'_> {
    fn point(&self, name: &str, extent: Extent) -> Result<Point> {
        let plan = Plan {
            seed: self.args.seed,
            ..named(name)?
        };
        let (json, written) = self.write(name, &plan, Format::Json)?;
        let (mut bare, mut engine, mut explain) = (Vec::new(), Vec::new(), Vec::new());
        let (mut connectivity, mut read): (Vec<Run>, Vec<Reading>) = (Vec::new(), Vec::new());
        let mut explain_on_two = Vec::new();
        for index in 1..=self.args.runs {
            progress(&format!("{name}: run {index} of {}", self.args.runs))?;
            let parsed: (Run, Bare) = self.step(&["bare".into(), json.clone().into()])?;
            ensure!(
                parsed.1.items == written.objects,
                "the bare parse counted {}, not {}",
                parsed.1.items,
                written.objects
            );
            bare.push(parsed);
            let ran: Engine = self.step(&self.engine_args(&json))?.1;
            if extent == Extent::All {
                read.push(self.read(&json, 2)?);
                let mut args = vec!["explain".into(), "-f".into(), json.clone().into()];
                args.extend(ran.query.iter().map(Into::into));
                args.extend(["tcp/80", "--exit-zero"].map(Into::into));
                explain.push(self.palisade(&args, 1)?);
                explain_on_two.push(self.palisade(&args, 2)?);
                if self.has_connectivity {
                    let mut args = vec!["connectivity".into(), "-f".into(), json.clone().into()];
                    args.push("--summary".into());
                    connectivity.push(self.palisade(&args, 1)?);
                }
            }
            engine.push(ran);
        }
        let kept = self.kept(&json)?;
        fs::remove_file(&json)?;
        let yaml = match extent {
            Extent::All => Some(self.yaml(name, &plan)?),
            Extent::Engine => None,
        };
        let bare_processes: Vec<Run> = bare.iter().map(|(run, _)| *run).collect();
        let point = Point::new(report::Measured {
            name,
            plan: &plan,
            written,
            bare_parse: bare.iter().map(|(_, bare)| bare.spent).collect(),
            bare: Process::new(&bare_processes).context("no runs")?,
            engine,
            read_on_two: read.iter().map(|it| it.spent).collect(),
            explain: Process::new(&explain),
            explain_on_two: Process::new(&explain_on_two),
            connectivity: Process::new(&connectivity),
            yaml,
            kept,
        })
        .context("no runs")?;
        // An interrupted run keeps the clusters that it has measured.
        progress(&point.to_string())?;
        Ok(point)
    }

    fn write(&self, name: &str, plan: &Plan, format: Format) -> Result<(PathBuf, Written)> {
        let ending = match format {
            Format::Json => "json",
            Format::Yaml => "yaml",
        };
        progress(&format!("{name}: writing it as {ending}"))?;
        let path = self.dir.join(format!("{name}.{ending}"));
        let file = File::create(&path);
        let file = file.with_context(|| format!("cannot write `{}`", path.display()))?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        let written = write(plan, format, &mut out)?;
        Ok((path, written))
    }

    fn engine_args(&self, json: &Path) -> Vec<OsString> {
        let threads: Vec<String> = self.args.threads.iter().map(usize::to_string).collect();
        let mut args: Vec<OsString> = vec!["engine".into(), json.into()];
        args.extend(["--seed".into(), self.args.seed.to_string().into()]);
        args.extend(["--flows".into(), self.args.flows.to_string().into()]);
        args.extend(["--threads".into(), threads.join(",").into()]);
        args
    }

    fn read(&self, file: &Path, threads: usize) -> Result<Reading> {
        let mut args: Vec<OsString> = vec!["read".into(), file.into()];
        args.extend(["--threads".into(), threads.to_string().into()]);
        Ok(self.step(&args)?.1)
    }

    /// A part of this program in a process of its own.
    fn step<T: DeserializeOwned>(&self, args: &[OsString]) -> Result<(Run, T)> {
        let args: Vec<OsString> = ["step".into()].iter().chain(args).cloned().collect();
        let Programs { own, log, .. } = self.programs;
        let (run, printed) = measure(own, &args, log, Output::Logged)?;
        let what = || format!("unexpected output of a step: {printed}");
        Ok((run, serde_json::from_str(&printed).with_context(what)?))
    }

    /// The program, on a number of threads.
    fn palisade(&self, args: &[OsString], threads: usize) -> Result<Run> {
        let Programs { palisade, log, .. } = self.programs;
        Ok(measure_on(Some(threads), palisade, args, log, Output::Logged)?.0)
    }

    fn yaml(&self, name: &str, plan: &Plan) -> Result<Yaml> {
        let (path, written) = self.write(name, plan, Format::Yaml)?;
        let mut spent = Vec::new();
        for index in 1..=self.args.runs.min(MOST_YAML_RUNS) {
            progress(&format!("{name}: reading YAML, run {index}"))?;
            let reading = self.read(&path, 1)?;
            ensure!(
                reading.objects == written.objects,
                "{} objects were read, not {}",
                reading.objects,
                written.objects
            );
            spent.push(reading.spent);
        }
        fs::remove_file(&path)?;
        Ok(Yaml {
            bytes: written.bytes,
            spent: Spent::quietest(spent.into_iter()).context("no runs")?,
        })
    }

    /// The memory that each part keeps allocated, and the allocations of verdicts. Counting slows
    /// every allocation down: another program with the same code does it.
    fn kept(&self, json: &Path) -> Result<Kept> {
        progress("counting allocations")?;
        let program = self
            .programs
            .own
            .with_file_name("palisade-bench-allocations");
        let mut args: Vec<OsString> = vec!["keep".into(), json.into()];
        args.push(self.args.seed.to_string().into());
        args.push(self.args.flows.min(100_000).to_string().into());
        let (_, printed) = measure(&program, &args, &self.programs.log, Output::Logged)?;
        serde_json::from_str(&printed).context("no count was printed")
    }
}

/// Whether a program has a command.
pub(crate) fn has_command(program: &Path, command: &str) -> bool {
    let mut help = Command::new(program);
    help.args([command, "--help"]);
    help.stdout(Stdio::null()).stderr(Stdio::null());
    help.status().is_ok_and(|status| status.success())
}
