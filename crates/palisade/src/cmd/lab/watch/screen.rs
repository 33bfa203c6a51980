//! Shows the rounds of a lab: in place on a terminal, one after the other elsewhere.

use std::io::{IsTerminal, Write};

use super::super::has_lines;
use crate::args::format::OutputFormat;
use crate::args::{Cli, LabArgs};
use crate::report::lab::{self, Round, RoundChange};
use crate::view::lab::LabReportView;
use crate::view::{DocumentFormat, json, write_document};

/// The output of a lab that follows its files.
pub(super) struct Screen {
    output: OutputFormat,
    has_lines: bool,
    quiet: bool,
    /// Whether it can be drawn in place.
    is_live: bool,
    /// The text of the last report; `None` before the first.
    shown: Option<String>,
}

/// Moves to the first line and clears the screen. The scrollback stays.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

impl Screen {
    pub(super) fn new(args: &LabArgs, cli: &Cli) -> Screen {
        let is_dumb = std::env::var_os("TERM").is_none_or(|it| it == "dumb");
        Screen {
            output: args.output,
            has_lines: has_lines(args),
            quiet: cli.quiet,
            is_live: args.output.is_text() && !is_dumb && std::io::stdout().is_terminal(),
            shown: None,
        }
    }

    /// Shows a round, and messages below it.
    pub(super) fn show(
        &mut self,
        round: &Round,
        change: Option<&RoundChange>,
        messages: &[u8],
    ) -> anyhow::Result<()> {
        let is_first = self.shown.is_none();
        let report = || LabReportView::new(round, change);
        let mut text = String::new();
        if let Some(form) = self.output.document() {
            if form == DocumentFormat::Yaml && !is_first {
                writeln!(std::io::stdout(), "---")?;
            }
            write_document(&mut std::io::stdout(), form, &report())?;
        } else if self.output == OutputFormat::Jsonl {
            let mut line = Vec::new();
            json::write(&mut line, &report())?;
            line.push(b'\n');
            std::io::stdout().write_all(&line)?;
        } else {
            text = lab::text(round, change, self.has_lines, self.quiet);
            self.draw(&text)?;
        }
        std::io::stdout().flush()?;
        self.shown = Some(text);
        self.below(messages)?;
        if (is_first || self.is_live) && !self.quiet {
            self.below(b"palisade: following the files until Ctrl-C\n")?;
        }
        Ok(())
    }

    /// Keeps the last report, and prints the reason below it.
    pub(super) fn keep(&self, messages: &[u8], is_in_force: bool) -> anyhow::Result<()> {
        if let (true, Some(shown)) = (self.is_live, &self.shown) {
            self.draw(shown)?;
        }
        self.below(messages)?;
        let stays: &[u8] = if is_in_force {
            b"palisade: the lab stays unchanged until the files are valid\n"
        } else {
            b"palisade: waiting until the files are valid\n"
        };
        self.below(stays)
    }

    /// Prints a message below the report.
    pub(super) fn print(&self, messages: &str) -> anyhow::Result<()> {
        self.below(messages.as_bytes())
    }

    fn draw(&self, text: &str) -> anyhow::Result<()> {
        if self.is_live {
            // Written to the plain stream: anstream would strip the sequence where it strips
            // colours.
            std::io::stdout().write_all(CLEAR.as_bytes())?;
        } else if self.shown.is_some() {
            writeln!(std::io::stdout())?;
        }
        let mut out = anstream::stdout();
        write!(out, "{text}")?;
        out.flush()?;
        Ok(())
    }

    fn below(&self, messages: &[u8]) -> anyhow::Result<()> {
        anstream::stderr().write_all(messages)?;
        Ok(())
    }
}
