//! `palisade completion`: prints a completion script for a shell.

use std::io::Write;

use clap::CommandFactory;

use crate::Outcome;
use crate::args::{Cli, CompletionArgs};

/// Prints the script.
pub(crate) fn run(args: &CompletionArgs) -> anyhow::Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "palisade", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(Outcome::Clean)
}
