//! Campaigns: the engine, the oracle and the kernel compared on random clusters and under faults

use std::io::{Write as _, stderr, stdout};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use palisade_campaigns::advice::campaign::{AdviceArgs, advice};
use palisade_campaigns::agree::campaign::{AgreeArgs, agree};
use palisade_campaigns::cells::campaign::{CellsArgs, cells};
use palisade_campaigns::differ::campaign::{DifferArgs, differ, without_pods};
use palisade_campaigns::faults::campaign::{FaultsArgs, faults};
use palisade_campaigns::faults::kill::{VictimArgs, victim};
use palisade_campaigns::kernel_facts::{FactsArgs, facts};
use palisade_campaigns::lint::campaign::{self as linting, LintArgs};
use palisade_campaigns::packets::campaign::{PacketsArgs, packets};
use palisade_campaigns::reboot::campaign::{RebootArgs, reboot};
use palisade_campaigns::simulate::campaign::{self as simulation, SimulateArgs};
use palisade_campaigns::simulate::hostile::campaign::{HostileArgs, hostile};
use palisade_campaigns::spoof::campaign::{SpoofArgs, spoof};

/// Campaigns: the engine, the oracle and the kernel compared on random clusters and under faults
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Try the proposals of explain on random clusters, and compare all flows before and after them
    Advice(AdviceArgs),
    /// Compare the engine's answers with the oracle's on random clusters
    Agree(AgreeArgs),
    /// Compare the connectivity of whole clusters with single answers and the oracle
    Cells(CellsArgs),
    /// Compare the difference of two clusters with single answers about both
    Differ(DifferArgs),
    /// Measure documented facts of the kernel
    Facts(FactsArgs),
    /// Inject faults on the real kernel while packets flow: no packet may leak or be lost
    Faults(FaultsArgs),
    /// Compare the engine's verdicts with packets in random clusters
    Packets(PacketsArgs),
    /// Compare the findings of lint with every flow of small random clusters
    Lint(LintArgs),
    /// Simulate the agent's loop on a model of the kernel, with faults that seeds choose
    Simulate(SimulateArgs),
    /// Run the agent with an API server that sends malformed responses: no denied flow may pass
    Hostile(HostileArgs),
    /// Restart nodes while the API server is unavailable: no denied packet may pass
    Reboot(RebootArgs),
    /// Send packets with addresses of others from pods of nodes with the agent: none may arrive
    Spoof(SpoofArgs),
    /// Program the kernel until killed
    #[command(hide = true)]
    FaultsVictim(VictimArgs),
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            // With standard error closed there is no other place for the message.
            let _ = writeln!(stderr(), "palisade-campaigns: {err:#}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<()> {
    let answer = match Args::parse().command {
        Command::Advice(args) => {
            let report = advice(&args);
            if !report.compared.mistakes.is_empty() {
                anyhow::bail!("a proposal is wrong\n{report}");
            }
            report.to_string()
        }
        Command::Agree(args) => {
            let agreement = agree(&args);
            if !agreement.differences.is_empty() {
                anyhow::bail!("the engine and the oracle differ\n{agreement}");
            }
            agreement.to_string()
        }
        Command::Cells(args) => {
            let report = cells(&args);
            if !report.compared.differences.is_empty() {
                anyhow::bail!("connectivity and single answers differ\n{report}");
            }
            report.to_string()
        }
        Command::Differ(args) if args.without_pods => {
            let report = without_pods(&args);
            if !report.unseen.mistakes.is_empty() {
                anyhow::bail!("a gained flow is not reported\n{report}");
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
        Command::Facts(args) => {
            anyhow::ensure!(facts(&args)?, "a fact differs from the documentation");
            return Ok(());
        }
        Command::Faults(args) => {
            anyhow::ensure!(faults(&args)?, "a fault violated an invariant");
            return Ok(());
        }
        Command::Packets(args) => {
            let report = packets(&args)?;
            if !report.compared.differences.is_empty() {
                anyhow::bail!("the engine and the kernel differ\n{report}");
            }
            report.to_string()
        }
        Command::Lint(args) => {
            let report = linting::run(&args);
            if !report.examples.is_empty() {
                anyhow::bail!("lint finds too much or too little\n{report}");
            }
            report.to_string()
        }
        Command::Simulate(args) => {
            let report = simulation::run(&args);
            if !report.failing.is_empty() {
                anyhow::bail!("the simulation found mistakes\n{report}");
            }
            report.to_string()
        }
        Command::Hostile(args) => {
            let report = hostile(&args)?;
            if report.mistake.is_some() {
                anyhow::bail!("a malformed response opened a denied flow\n{report}");
            }
            report.to_string()
        }
        Command::Reboot(args) => {
            let report = reboot(&args)?;
            anyhow::ensure!(
                report.mistakes().is_empty(),
                "a restart violated an invariant\n{report}"
            );
            report.to_string()
        }
        Command::Spoof(args) => {
            let report = spoof(&args)?;
            anyhow::ensure!(
                report.mistakes().is_empty(),
                "the check of senders differs from the documentation\n{report}"
            );
            report.to_string()
        }
        Command::FaultsVictim(args) => return victim(&args),
    };
    writeln!(stdout(), "{}", answer.trim_end())?;
    Ok(())
}
