//! Palisade in whole clusters: installed, attacked, and measured at a real API server

use std::fmt::Display;
use std::io::{Write as _, stderr, stdout};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use palisade_e2e::attack::sender::sender;
use palisade_e2e::attack::{self, AttackArgs};
use palisade_e2e::cluster::campaign::{self as whole, WholeArgs};
use palisade_e2e::facts::{FactsArgs, facts};
use palisade_e2e::served::{ServedArgs, served};
use serde::Serialize;

/// Palisade in whole clusters: installed, attacked, and measured at a real API server
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// A tenant with the rights of `edit` attacks the agents of a real cluster: none may succeed
    Attack(AttackArgs),
    /// Install in a whole cluster of the testbed and compare packets of pods with `explain`, while
    /// everything changes
    Whole(WholeArgs),
    /// An agent at a real API server full of objects: start, memory, cost of events, time until the
    /// kernel has it
    Served(ServedArgs),
    /// Send packets that are read from standard input, as a program in a container could
    #[command(hide = true)]
    AttackSender,
    /// Facts of a cluster that the documents state: frames of bridges (D103), pods that reach
    /// themselves through a Service (D77, D80), packets of a pod to its own node (D75)
    Facts(FactsArgs),
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            // With standard error closed there is no other place for the message.
            let _ = writeln!(stderr(), "palisade-e2e: {err:#}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<()> {
    let answer = match Args::parse().command {
        Command::Attack(args) => {
            let report = attack::run(&args)?;
            anyhow::ensure!(report.holds(), "an attack succeeded\n{report}");
            report.to_string()
        }
        Command::Whole(args) => {
            let report = whole::run(&args)?;
            anyhow::ensure!(report.is_right(), "an invariant was violated\n{report}");
            report.to_string()
        }
        Command::Served(args) => shown(&served(&args)?, args.json)?,
        Command::AttackSender => return sender(),
        Command::Facts(args) => {
            anyhow::ensure!(facts(&args)?, "a fact differs from the documentation");
            return Ok(());
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
