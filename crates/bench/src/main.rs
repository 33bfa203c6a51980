//! Measures Palisade next to the least work that any program must do for the same input.

mod analyze;
mod bare;
mod check;
mod clock;
mod compare;
mod count;
mod dataplane;
mod explain;
mod measure;
mod other_tools;
mod produce;
mod read;
mod report;
mod scale;
mod verdict;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{Write as _, stderr, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use palisade_bench::live::{LiveArgs, live};
use serde::Serialize;

use crate::analyze::{AnalyzeArgs, analyze};
use crate::check::{CheckArgs, check};
use crate::count::{CountArgs, Part, count, counted};
use crate::dataplane::{DataplaneArgs, dataplane};
use crate::explain::{ExplainArgs, explain};
use crate::measure::Output;
use crate::other_tools::{PeersArgs, peers};
use crate::produce::{ProduceArgs, produce};
use crate::read::{ReadArgs, read};
use crate::scale::{ScaleArgs, Step, markdown, scale, step};
use crate::verdict::{VerdictArgs, verdict};

/// Measures Palisade next to the least work that any program must do for the same input
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Time and peak memory of `palisade check`, next to a bare parse of the same bytes
    Check(CheckArgs),
    /// Time and allocations of verdicts in a large cluster, and of compiling it
    Verdict(VerdictArgs),
    /// Time of `palisade explain` with many flows, next to a bare parse of the same cluster
    Explain(ExplainArgs),
    /// Cost of policies per packet and per connection in the kernel, next to plain forwarding
    Dataplane(DataplaneArgs),
    /// Time of single events and memory where a large cluster is kept up to date for one node
    Live(LiveArgs),
    /// Time of `palisade diff` and `palisade lint` in a large cluster, next to a bare parse of the
    /// same bytes
    Analyze(AnalyzeArgs),
    /// How fast the manifests of a directory become trees and objects
    Read(ReadArgs),
    /// Every step from bytes to answers in clusters of stated size, next to a bare parse
    Scale(ScaleArgs),
    /// Time and answers of whole-cluster connectivity, next to netpol-analyzer
    Peers(PeersArgs),
    /// Instructions of each step in a small cluster, compared with those of a file; needs valgrind
    Count(CountArgs),
    /// Write one of the clusters that benchmarks use, as JSON or YAML
    Generate(ProduceArgs),
    /// Only parse a directory
    #[command(hide = true)]
    BareYaml { dir: PathBuf },
    /// Only decode a list
    #[command(hide = true)]
    BareJson { file: PathBuf },
    /// Take a cluster so far and no further
    #[command(hide = true)]
    Counted { file: PathBuf, part: Part },
    /// One part of a measurement at scale
    #[command(hide = true)]
    Step {
        #[command(subcommand)]
        part: Step,
    },
    /// Run a program and print its time and memory
    #[command(hide = true)]
    Measure {
        #[arg(long)]
        discard: bool,
        log: PathBuf,
        program: OsString,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            // With standard error closed there is no other place for the message.
            let _ = writeln!(stderr(), "palisade-bench: {err:#}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<()> {
    let answer = match Args::parse().command {
        Command::Check(args) => shown(&check(&args)?, args.json)?,
        Command::Verdict(args) => shown(&verdict(&args)?, args.json)?,
        Command::Explain(args) => shown(&explain(&args)?, args.json)?,
        Command::Analyze(args) => shown(&analyze(&args)?, args.json)?,
        Command::Dataplane(args) => shown(&dataplane(&args)?, args.json)?,
        Command::Live(args) => shown(&live(&args)?, args.json)?,
        Command::Read(args) => read(&args)?,
        Command::Scale(args) => {
            let report = scale(&args)?;
            if args.markdown {
                markdown(&report)
            } else {
                shown(&report, args.json)?
            }
        }
        Command::Peers(args) => {
            let report = peers(&args)?;
            if args.markdown {
                report.markdown()
            } else {
                shown(&report, args.json)?
            }
        }
        Command::Count(args) => shown(&count(&args)?, args.json)?,
        Command::Counted { file, part } => return counted(&file, part),
        Command::Step { part } => step(&part)?,
        Command::Generate(args) => return produce(&args),
        Command::BareYaml { dir } => bare::yaml(&dir)?.to_string(),
        Command::BareJson { file } => bare::json(&file)?.to_string(),
        Command::Measure {
            discard,
            log,
            program,
            args,
        } => {
            let output = if discard {
                Output::Discarded
            } else {
                Output::Logged
            };
            measure::run(&log, &program, &args, output)?
        }
    };
    writeln!(stdout(), "{}", answer.trim_end())?;
    Ok(())
}

fn shown<R: Display + Serialize>(report: &R, as_json: bool) -> Result<String> {
    Ok(if as_json {
        serde_json::to_string_pretty(report)?
    } else {
        report.to_string()
    })
}
