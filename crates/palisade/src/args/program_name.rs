//! The name of the program: `palisade`, or `kubectl palisade` as a plugin of kubectl.

use std::ffi::OsStr;
use std::path::Path;

use clap::{Command, CommandFactory, FromArgMatches};

use super::diff::DIFF_USAGE;
use super::{Cli, EXPLAIN_USAGE};

/// Parses the command line. Wrong usage, help and the version end the program here.
pub(crate) fn parse() -> Cli {
    let program = std::env::args_os().next();
    let mut command = command(program.as_deref().is_some_and(is_plugin));
    let matches = command.get_matches_mut();
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut command).exit())
}

/// Returns the commands, with the name of the program in their usage and examples.
fn command(is_plugin: bool) -> Command {
    let command = Cli::command();
    if !is_plugin {
        return command;
    }
    let usage = as_plugin(EXPLAIN_USAGE);
    let diff_usage = as_plugin(DIFF_USAGE);
    command
        .bin_name("kubectl palisade")
        .mut_subcommands(renamed)
        .mut_subcommand("explain", |explain| explain.override_usage(usage))
        .mut_subcommand("diff", |diff| diff.override_usage(diff_usage))
}

/// Reports whether kubectl runs this program as its plugin.
fn is_plugin(program: &OsStr) -> bool {
    Path::new(program).file_stem() == Some(OsStr::new("kubectl-palisade"))
}

fn renamed(command: Command) -> Command {
    let command = command.mut_subcommands(renamed);
    match command.get_after_help().map(ToString::to_string) {
        Some(text) => command.after_help(as_plugin(&text)),
        None => command,
    }
}

/// Replaces every `palisade COMMAND` by `kubectl palisade COMMAND`.
fn as_plugin(text: &str) -> String {
    text.replace("palisade ", "kubectl palisade ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_is_known_by_the_name_that_kubectl_looks_for() {
        for (program, expected) in [
            ("palisade", false),
            ("/usr/bin/palisade", false),
            ("/usr/local/bin/kubectl-palisade", true),
            ("kubectl-palisade.exe", true),
            ("kubectl", false),
        ] {
            assert_eq!(is_plugin(OsStr::new(program)), expected, "{program}");
        }
    }

    #[test]
    fn the_help_of_a_plugin_says_how_to_call_it() {
        for name in [
            "check",
            "explain",
            "affecting",
            "connectivity",
            "lint",
            "lab",
        ] {
            let mut all = command(true);
            all.build();
            let found = all.find_subcommand_mut(name).unwrap();
            let help = found.render_long_help().to_string();
            assert!(
                help.contains(&format!("Usage: kubectl palisade {name} ")),
                "{help}"
            );
            let bare = help.matches("palisade ").count();
            assert_eq!(help.matches("kubectl palisade ").count(), bare, "{help}");
        }
    }
}
