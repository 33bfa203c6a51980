//! Findings for people and for scripts.

use std::io::Write;

use palisade_api::{Severity, Source};

use super::Report;
use crate::args::Cli;
use crate::args::lint::{LintArgs, LintOutput};
use crate::draw::{Drawing, DrawnProblem, DrawnSpan, clean, counted};
use crate::findings::LocatedFinding;
use crate::sarif;
use crate::source::Inputs;
use crate::view::lint::{FindingView, FindingViews, LintView};
use crate::view::{DocumentFormat, Placer, json, write_limited};

pub(super) fn print<'r>(
    args: &LintArgs,
    cli: &Cli,
    inputs: &'r Inputs,
    report: &'r Report,
) -> anyhow::Result<()> {
    let mut out = std::io::BufWriter::new(anstream::stdout());
    let mut viewer = FindingViews::new(&inputs.sources);
    match args.output {
        LintOutput::Table => table(&mut out, cli, inputs, report)?,
        LintOutput::Wide => wide(&mut out, cli, inputs, report)?,
        LintOutput::Json | LintOutput::Yaml => {
            let form = if args.output == LintOutput::Json {
                DocumentFormat::Json
            } else {
                DocumentFormat::Yaml
            };
            let findings = found(&mut viewer, report);
            let suppressed = report.suppressed.iter();
            let suppressed =
                suppressed.map(|it| viewer.view(&it.finding, false, Some(&it.justification)));
            let view = LintView::new(findings, suppressed.collect());
            write_limited(&mut out, form, &view, &inputs.missing)?;
        }
        LintOutput::Jsonl => {
            for view in found(&mut viewer, report) {
                json::write(&mut out, &view)?;
                writeln!(out)?;
            }
        }
        LintOutput::Sarif => {
            let log = sarif::lint_log(&inputs.sources, &report_results(report));
            json::write_pretty(&mut out, &log)?;
            writeln!(out)?;
        }
    }
    out.flush()?;
    Ok(())
}

fn found<'r>(viewer: &mut FindingViews<'r>, report: &'r Report) -> Vec<FindingView<'r>> {
    let findings = report.findings.iter().zip(&report.plan.edits);
    let views = findings.map(|(told, edits)| viewer.view(told, !edits.is_empty(), None));
    views.collect()
}

/// The results of a SARIF log.
fn report_results(report: &Report) -> Vec<sarif::LintResult<'_>> {
    let found = report.findings.iter().zip(&report.plan.edits);
    let found = found.map(|(told, edits)| sarif::LintResult {
        finding: told,
        justification: None,
        edits,
    });
    let suppressed = report.suppressed.iter().map(|it| sarif::LintResult {
        finding: &it.finding,
        justification: Some(&it.justification),
        edits: &[],
    });
    found.chain(suppressed).collect()
}

fn table(out: &mut impl Write, cli: &Cli, inputs: &Inputs, report: &Report) -> anyhow::Result<()> {
    let mut spotter = FindingPrinter::new(&inputs.sources);
    for told in &report.findings {
        writeln!(out, "{}\n", spotter.draw(told))?;
    }
    if cli.verbose {
        for it in &report.suppressed {
            let drawn = spotter.draw(&it.finding);
            writeln!(
                out,
                "{drawn}\n  = kept back: {}\n",
                clean(&it.justification)
            )?;
        }
    }
    summary(out, cli, inputs, report)
}

fn wide(out: &mut impl Write, cli: &Cli, inputs: &Inputs, report: &Report) -> anyhow::Result<()> {
    let mut placer = Placer::new(&inputs.sources);
    for told in &report.findings {
        writeln!(out, "{}", line(&mut placer, told))?;
    }
    if cli.verbose {
        for it in &report.suppressed {
            let line = line(&mut placer, &it.finding);
            writeln!(out, "{line} kept back: {}", clean(&it.justification))?;
        }
    }
    summary(out, cli, inputs, report)
}

/// A finding in one line.
fn line(placer: &mut Placer<'_>, told: &LocatedFinding) -> String {
    let place = match told.place {
        Some((source, span)) => {
            let (file, (line, column), _) = placer.place(source, span.start);
            format!("{file}:{line}:{column}: ")
        }
        None => String::new(),
    };
    let help = told.help.as_ref().map(|help| format!(" ({help})"));
    let context = told.context().map(|context| format!(" [{context}]"));
    clean(&format!(
        "{place}{}[{}]: {}{}{}",
        told.severity(),
        told.code.name(),
        told.message,
        help.unwrap_or_default(),
        context.unwrap_or_default(),
    ))
}

/// Draws findings.
struct FindingPrinter<'s> {
    drawing: Drawing<'s>,
    placer: Placer<'s>,
}

impl<'s> FindingPrinter<'s> {
    fn new(sources: &'s [Source]) -> FindingPrinter<'s> {
        FindingPrinter {
            drawing: Drawing::new(sources),
            placer: Placer::new(sources),
        }
    }

    fn draw(&mut self, told: &LocatedFinding) -> String {
        let mut spot = |source, span: palisade_api::Span| {
            let (file, position, line) = self.placer.place(source, span.start);
            DrawnSpan {
                file,
                position,
                line,
                source,
                span,
            }
        };
        let spotted = DrawnProblem {
            severity: told.severity(),
            code: told.code.name(),
            message: &told.message,
            help: told.help.as_deref(),
            context: told.context(),
            spot: told.place.map(|(source, span)| spot(source, span)),
            related: told
                .related
                .as_ref()
                .map(|it| (spot(it.source, it.span), it.label)),
        };
        self.drawing.draw_spotted(&spotted)
    }
}

/// What was looked at and found, in a line.
fn summary(
    out: &mut impl Write,
    cli: &Cli,
    inputs: &Inputs,
    report: &Report,
) -> anyhow::Result<()> {
    if cli.quiet {
        return Ok(());
    }
    let count = |severity| {
        let findings = report.findings.iter();
        findings.filter(|it| it.severity() == severity).count()
    };
    let parts = [
        (count(Severity::Error), "error"),
        (count(Severity::Warning), "warning"),
        (count(Severity::Info), "note"),
    ];
    let parts = parts.iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> = parts.map(|(count, what)| counted(*count, what)).collect();
    let found = if parts.is_empty() {
        "nothing found".to_owned()
    } else {
        parts.join(", ")
    };
    let policies = match report.n_policies {
        1 => "1 policy".to_owned(),
        more => format!("{more} policies"),
    };
    let from = crate::cmd::check::read_from(inputs);
    write!(out, "{policies} in {from}: {found}")?;
    if !report.suppressed.is_empty() {
        let more = if cli.verbose { "" } else { " (-v shows them)" };
        write!(out, "; {} kept back{more}", report.suppressed.len())?;
    }
    let fixable = report.plan.edits.iter().filter(|it| !it.is_empty()).count();
    if fixable > 0 {
        write!(out, "; --fix can take {fixable} away")?;
    }
    writeln!(out)?;
    Ok(())
}
