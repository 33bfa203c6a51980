//! Measures Palisade next to the least work that the same input asks of any program.

mod bare;
mod check;
mod clock;
mod compare;
mod count;
mod dataplane;
mod explain;
mod judge;
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
use palisade_bench::agree::campaign::{AgreeArgs, agree};
use palisade_bench::attack::sender::sender;
use palisade_bench::attack::{self, AttackArgs};
use palisade_bench::cells::campaign::{CellsArgs, cells};
use palisade_bench::differ::campaign::{DifferArgs, differ};
use palisade_bench::e2e::campaign::{self as whole, WholeArgs};
use palisade_bench::faults::campaign::{FaultsArgs, faults};
use palisade_bench::faults::kill::{VictimArgs, victim};
use palisade_bench::kernel_facts::{FactsArgs, facts};
use palisade_bench::lint::campaign::{self as linting, LintArgs};
use palisade_bench::live::{LiveArgs, live};
use palisade_bench::packets::campaign::{PacketsArgs, packets};
use palisade_bench::reboot::campaign::{RebootArgs, reboot};
use palisade_bench::served::{ServedArgs, served};
use palisade_bench::simulate::campaign::{self as simulation, SimulateArgs};
use palisade_bench::simulate::hostile::campaign::{HostileArgs, hostile};
use palisade_bench::spoof::campaign::{SpoofArgs, spoof};
use serde::Serialize;

use crate::check::{CheckArgs, check};
use crate::count::{CountArgs, Part, count, counted};
use crate::dataplane::{DataplaneArgs, dataplane};
use crate::explain::{ExplainArgs, explain};
use crate::judge::{JudgeArgs, judge};
use crate::measure::Output;
use crate::other_tools::{PeersArgs, peers};
use crate::produce::{ProduceArgs, produce};
use crate::read::{ReadArgs, read};
use crate::scale::{ScaleArgs, Step, markdown, scale, step};
use crate::verdict::{VerdictArgs, verdict};

/// Measures Palisade next to the least work that the same input asks of any program
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compare the engine's answers with the oracle's on random clusters
    Agree(AgreeArgs),
    /// A tenant with the rights of `edit` attacks the agents of a real cluster: none may succeed
    Attack(AttackArgs),
    /// Time and peak memory of `palisade check`, next to a bare parse of the same bytes
    Check(CheckArgs),
    /// Time and allocations of verdicts in a large cluster, and of compiling it
    Verdict(VerdictArgs),
    /// Time of `palisade explain` with many flows, next to a bare parse of the same cluster
    Explain(ExplainArgs),
    /// Cost of policies per packet and per connection in the kernel, next to plain forwarding
    Dataplane(DataplaneArgs),
    /// Compare whole clusters at once with single answers and the oracle
    Cells(CellsArgs),
    /// Compare the difference of two clusters with single answers about both
    Differ(DifferArgs),
    /// What was open until a real kernel and a real cluster could be asked
    Facts(FactsArgs),
    /// Faults on the real kernel while packets flow: nothing may leak, nothing may be lost
    Faults(FaultsArgs),
    /// Compare the engine's verdicts with what packets do in random clusters
    Packets(PacketsArgs),
    /// Compare the findings of lint with every flow of small random clusters
    Lint(LintArgs),
    /// Time of single events and memory where a large cluster is kept up to date for one node
    Live(LiveArgs),
    /// The agent's loop on a model of the kernel, with everything that can go wrong, decided by seeds
    Simulate(SimulateArgs),
    /// The agent before a server whose answers are broken on purpose: nothing that was denied may pass
    Hostile(HostileArgs),
    /// Nodes that restart while the API server is away: what policies deny may not pass
    Reboot(RebootArgs),
    /// Packets of pods with the addresses of others, through the agent: none may arrive
    Spoof(SpoofArgs),
    /// Install in a whole cluster of the testbed and compare packets of pods with `explain`, while everything changes
    Whole(WholeArgs),
    /// An agent at a real API server full of objects: start, memory, cost of events, time until the kernel knows
    Served(ServedArgs),
    /// Time of `palisade diff` and `palisade lint` in a large cluster, next to a bare parse of the same bytes
    Judge(JudgeArgs),
    /// How fast the manifests of a directory become trees and objects
    Read(ReadArgs),
    /// Every step from bytes to answers in clusters of stated size, next to a bare parse
    Scale(ScaleArgs),
    /// Time and answers of whole-cluster connectivity, next to netpol-analyzer
    Peers(PeersArgs),
    /// Instructions of each step in a small cluster, compared with those of a file; needs valgrind
    Count(CountArgs),
    /// Write one of the clusters that measurements speak of, as JSON or YAML
    Generate(ProduceArgs),
    /// Send packets that are read from standard input, as a program in a container could
    #[command(hide = true)]
    AttackSender,
    /// Program the kernel until somebody kills it
    #[command(hide = true)]
    FaultsVictim(VictimArgs),
    /// Parse a directory and do nothing with it
    #[command(hide = true)]
    BareYaml { dir: PathBuf },
    /// Decode a list and do nothing with it
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
    /// Run a program and print what it took
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
            // With standard error closed there is nobody left to tell.
            let _ = writeln!(stderr(), "palisade-bench: {err:#}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<()> {
    let answer = match Args::parse().command {
        Command::Agree(args) => {
            let agreement = agree(&args);
            if !agreement.differences.is_empty() {
                anyhow::bail!("the engine and the oracle differ\n{agreement}");
            }
            agreement.to_string()
        }
        Command::Attack(args) => {
            let report = attack::run(&args)?;
            anyhow::ensure!(report.holds(), "an attack succeeded\n{report}");
            report.to_string()
        }
        Command::AttackSender => return sender(),
        Command::Cells(args) => {
            let report = cells(&args);
            if !report.compared.differences.is_empty() {
                anyhow::bail!("connectivity and single answers differ\n{report}");
            }
            report.to_string()
        }
        Command::Differ(args) => {
            let report = differ(&args);
            if !report.compared.mistakes.is_empty() {
                anyhow::bail!("the difference and single answers disagree\n{report}");
            }
            report.to_string()
        }
        Command::Check(args) => shown(&check(&args)?, args.json)?,
        Command::Verdict(args) => shown(&verdict(&args)?, args.json)?,
        Command::Explain(args) => shown(&explain(&args)?, args.json)?,
        Command::Judge(args) => shown(&judge(&args)?, args.json)?,
        Command::Dataplane(args) => shown(&dataplane(&args)?, args.json)?,
        Command::Served(args) => shown(&served(&args)?, args.json)?,
        Command::Live(args) => shown(&live(&args)?, args.json)?,
        Command::Facts(args) => {
            anyhow::ensure!(facts(&args)?, "something is not as it was decided");
            return Ok(());
        }
        Command::Faults(args) => {
            anyhow::ensure!(faults(&args)?, "something was not as it must be");
            return Ok(());
        }
        Command::FaultsVictim(args) => return victim(&args),
        Command::Packets(args) => {
            let report = packets(&args)?;
            if !report.compared.differences.is_empty() {
                anyhow::bail!("the engine and the kernel differ\n{report}");
            }
            report.to_string()
        }
        Command::Whole(args) => {
            let report = whole::run(&args)?;
            anyhow::ensure!(
                report.is_right(),
                "something was not as it must be\n{report}"
            );
            report.to_string()
        }
        Command::Reboot(args) => {
            let report = reboot(&args)?;
            anyhow::ensure!(
                report.mistakes().is_empty(),
                "something is not as it must be\n{report}"
            );
            report.to_string()
        }
        Command::Spoof(args) => {
            let report = spoof(&args)?;
            anyhow::ensure!(
                report.mistakes().is_empty(),
                "something is not as documented\n{report}"
            );
            report.to_string()
        }
        Command::Hostile(args) => {
            let report = hostile(&args)?;
            if report.mistake.is_some() {
                anyhow::bail!("a broken answer made less be denied\n{report}");
            }
            report.to_string()
        }
        Command::Simulate(args) => {
            let report = simulation::run(&args);
            if !report.shown.is_empty() {
                anyhow::bail!("the simulation found mistakes\n{report}");
            }
            report.to_string()
        }
        Command::Lint(args) => {
            let report = linting::run(&args);
            if !report.shown.is_empty() {
                anyhow::bail!("lint finds too much or too little\n{report}");
            }
            report.to_string()
        }
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
