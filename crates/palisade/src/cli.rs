//! The command line: parses arguments, runs one command, and returns its exit code.

use std::process::ExitCode;

use crate::args::{self, Command};
use crate::cmd;

/// The result of a command, which determines the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Clean, allowed, the same.
    Clean,
    /// Findings, denied, different.
    Findings,
    /// A part could not be answered; the reason has been printed.
    Unanswered,
    /// Another process did the work and exited with this code.
    Ended(u8),
}

impl Outcome {
    /// Returns the exit code. A worse result has a higher code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Outcome::Clean => 0,
            Outcome::Findings => 1,
            Outcome::Unanswered => 2,
            Outcome::Ended(code) => code,
        }
    }
}

/// Parses the arguments of the process, runs one command, and returns its exit code.
pub fn main() -> ExitCode {
    let cli = args::program_name::parse();
    cli.color.write_global();
    let outcome = match &cli.command {
        Command::Check(args) => cmd::check::run(args, &cli),
        Command::Explain(args) => cmd::explain::run(args, &cli),
        Command::Affecting(args) => cmd::affecting::run(args, &cli),
        Command::Connectivity(args) => cmd::connectivity::run(args, &cli),
        Command::Diff(args) => cmd::diff::run(args, &cli),
        Command::Lint(args) => cmd::lint::run(args, &cli),
        Command::Compile(args) => cmd::compile::run(args, &cli),
        Command::Lab(args) => cmd::lab::run(args, &cli),
        Command::Agent(args) => cmd::agent::run(args, &cli),
        Command::Crds(args) => cmd::crds::run(args),
        Command::Completion(args) => cmd::completion::run(args),
        Command::Man => cmd::man::run(),
        Command::Version => cmd::version::run(),
    };
    match outcome {
        Ok(outcome) => ExitCode::from(outcome.code()),
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            anstream::eprintln!("palisade: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Reports whether the reader of the output closed the pipe, as in `palisade ... | head`. That is
/// no error.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause
            .downcast_ref::<std::io::Error>()
            .map(std::io::Error::kind);
        let json = cause
            .downcast_ref::<serde_json::Error>()
            .and_then(serde_json::Error::io_error_kind);
        io.or(json) == Some(std::io::ErrorKind::BrokenPipe)
    })
}
