//! `palisade man`: the manual page, with every command.

use std::io::Write;

use clap::CommandFactory;

use crate::Outcome;
use crate::args::Cli;

/// Prints the page.
pub(crate) fn run() -> anyhow::Result<Outcome> {
    let mut page = Vec::new();
    let command = Cli::command();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    for sub in command.get_subcommands() {
        let title = format!("palisade-{}", sub.get_name());
        clap_mangen::Man::new(sub.clone())
            .title(title)
            .render(&mut page)?;
    }
    std::io::stdout().write_all(&page)?;
    Ok(Outcome::Clean)
}
