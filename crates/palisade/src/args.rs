//! What was typed. Building these values opens no file and calls no server.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use palisade_api::Severity;

/// Network policy for Kubernetes as one system. This version reads and checks policies of every generation.
#[derive(Debug, Parser)]
#[command(
    name = "palisade",
    version,
    max_term_width = 100,
    disable_help_subcommand = true
)]
#[command(after_help = "Exit codes: 0 clean, 1 findings, 2 could not answer.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// When to use colours
    #[arg(long, global = true, default_value = "auto", value_name = "WHEN")]
    pub(crate) color: Color,

    /// Say only what was asked for: no summary, no progress
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// Say more
    #[arg(long, short, global = true)]
    pub(crate) verbose: bool,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

impl Color {
    /// Sets the choice for everything that is printed.
    pub(crate) fn write_global(self) {
        let choice = match self {
            Color::Auto => anstream::ColorChoice::Auto,
            Color::Always => anstream::ColorChoice::Always,
            Color::Never => anstream::ColorChoice::Never,
        };
        choice.write_global();
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Read manifests and say everything that is wrong with them
    Check(CheckArgs),
    /// Print a completion script for a shell
    Completion(CompletionArgs),
    /// Print the manual page
    Man,
    /// Print the version
    Version,
}

/// Which objects to read.
#[derive(Args, Debug)]
pub(crate) struct InputArgs {
    /// Manifests: a file, a directory, or `-` for standard input; repeatable. YAML or JSON,
    /// several documents or lists, each also gzipped
    #[arg(long, short = 'f', value_name = "PATH")]
    pub(crate) filename: Vec<PathBuf>,

    /// Descend into directories
    #[arg(long, short = 'R')]
    pub(crate) recursive: bool,

    /// Read objects as an API server stores them: unknown fields are dropped silently
    #[arg(long)]
    pub(crate) as_pruned: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Every problem is shown with its place, the line, and what to do. All problems of all files are
reported; a broken document does not keep the others from being read. Objects of other kinds are
passed over; -v lists them.

Examples:
  palisade check -f policies/                     # the files of a directory
  palisade check -R -f .                          # and of those below it
  helm template chart/ | palisade check -f -      # what Helm renders
  kubectl get netpol -A -o json | palisade check -f -
  palisade check -f policies/ -o sarif > palisade.sarif

Exit codes: 0 no errors, 1 errors, 2 a file could not be opened, or wrong usage.")]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,

    /// How to print the problems
    #[arg(long, short, default_value = "table", value_name = "FORMAT")]
    pub(crate) output: CheckOutput,

    /// The least severity that makes the exit code 1
    #[arg(long, default_value = "error", value_name = "SEVERITY")]
    pub(crate) fail_on: FailOn,

    /// Exit with 0 also when there are problems
    #[arg(long)]
    pub(crate) exit_zero: bool,
}

/// How `check` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CheckOutput {
    /// For people: the line, the place and the help
    Table,
    /// One line a problem
    Wide,
    /// One document
    Json,
    /// One problem a line
    Jsonl,
    /// The same document as json
    Yaml,
    /// SARIF 2.1.0, for code scanning
    Sarif,
}

/// The least severity that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    Error,
    Warning,
    Info,
}

impl FailOn {
    /// The severity that is meant.
    pub(crate) fn severity(self) -> Severity {
        match self {
            FailOn::Error => Severity::Error,
            FailOn::Warning => Severity::Warning,
            FailOn::Info => Severity::Info,
        }
    }
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  source <(palisade completion bash)
  palisade completion zsh > \"${fpath[1]}/_palisade\"
  palisade completion fish > ~/.config/fish/completions/palisade.fish")]
pub(crate) struct CompletionArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}
