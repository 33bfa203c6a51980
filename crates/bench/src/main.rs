//! Measures Palisade next to the least work that the same input asks of any program.

mod bare;
mod check;
mod measure;
mod report;

use std::ffi::OsString;
use std::io::{Write as _, stderr, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::check::{CheckArgs, check};

/// Measures Palisade next to the least work that the same input asks of any program
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Time and peak memory of `palisade check`, next to a bare parse of the same bytes
    Check(CheckArgs),
    /// Parse a directory and do nothing with it
    #[command(hide = true)]
    BareYaml { dir: PathBuf },
    /// Decode a list and do nothing with it
    #[command(hide = true)]
    BareJson { file: PathBuf },
    /// Run a program and print what it took
    #[command(hide = true)]
    Measure {
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
        Command::Check(args) => {
            let report = check(&args)?;
            if args.json {
                serde_json::to_string_pretty(&report)?
            } else {
                report.to_string()
            }
        }
        Command::BareYaml { dir } => bare::yaml(&dir)?.to_string(),
        Command::BareJson { file } => bare::json(&file)?.to_string(),
        Command::Measure { log, program, args } => measure::run(&log, &program, &args)?,
    };
    writeln!(stdout(), "{}", answer.trim_end())?;
    Ok(())
}
