//! Prints findings, for people and for scripts.

use std::io::Write;

use palisade_api::{Severity, Source};

use super::Report;
use crate::args::Cli;
use crate::args::format::OutputFormat;
use crate::args::lint::LintArgs;
use crate::cluster::print_unread;
use crate::draw::{Drawing, DrawnProblem, DrawnSpan, clean, counted};
use crate::findings::LocatedFinding;
use crate::sarif;
use crate::source::Inputs;
use crate::view::lint::{FindingView, FindingViews, LintView};
use crate::view::{AnswerLimits, Placer, json, write_limited};

pub(super) fn print<'r>(
    args: &LintArgs,
    cli: &Cli,
    inputs: &'r Inputs,
    report: &'r Report,
) -> anyhow::Result<()> {
    let mut out = std::io::BufWriter::new(anstream::stdout());
    let mut views = FindingViews::new(&inputs.sources);
    match args.output {
        OutputFormat::Table => table(&mut out, cli, inputs, report)?,
        OutputFormat::Wide => wide(&mut out, cli, inputs, report)?,
        OutputFormat::Document(form) => {
            let findings = found(&mut views, report);
            let suppressed = report.suppressed.iter();
            let suppressed =
                suppressed.map(|it| views.view(&it.finding, false, Some(&it.justification)));
            let view = LintView::new(findings, suppressed.collect());
            let limits = AnswerLimits {
                missing: &inputs.missing,
                unread: &report.unread,
                other_policies: &report.other_policies,
            };
            write_limited(&mut out, form, &view, limits)?;
        }
        OutputFormat::Jsonl => {
            for view in found(&mut views, report) {
                json::write(&mut out, &view)?;
                writeln!(out)?;
            }
        }
        OutputFormat::Sarif => {
            let log = sarif::lint_log(&inputs.sources, &report_results(report));
            json::write_pretty(&mut out, &log)?;
            writeln!(out)?;
        }
        OutputFormat::Matrix
        | OutputFormat::Csv
        | OutputFormat::Md
        | OutputFormat::Dot
        | OutputFormat::Svg
        | OutputFormat::Html => return Err(args.output.unsupported()),
    }
    print_unread(&mut out, args.output, &report.unread)?;
    out.flush()?;
    Ok(())
}

fn found<'r>(builder: &mut FindingViews<'r>, report: &'r Report) -> Vec<FindingView<'r>> {
    let findings = report.findings.iter().zip(&report.plan.edits);
    let views = findings.map(|(finding, edits)| builder.view(finding, !edits.is_empty(), None));
    views.collect()
}

/// Converts findings to the results of a SARIF log.
fn report_results(report: &Report) -> Vec<sarif::LintResult<'_>> {
    let found = report.findings.iter().zip(&report.plan.edits);
    let found = found.map(|(finding, edits)| sarif::LintResult {
        finding,
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
    let mut printer = FindingPrinter::new(&inputs.sources);
    for finding in &report.findings {
        writeln!(out, "{}\n", printer.draw(finding))?;
    }
    if cli.verbose {
        for it in &report.suppressed {
            let drawn = printer.draw(&it.finding);
            writeln!(
                out,
                "{drawn}\n  = suppressed: {}\n",
                clean(&it.justification)
            )?;
        }
    }
    summary(out, cli, inputs, report)
}

fn wide(out: &mut impl Write, cli: &Cli, inputs: &Inputs, report: &Report) -> anyhow::Result<()> {
    let mut placer = Placer::new(&inputs.sources);
    for finding in &report.findings {
        writeln!(out, "{}", line(&mut placer, finding))?;
    }
    if cli.verbose {
        for it in &report.suppressed {
            let line = line(&mut placer, &it.finding);
            writeln!(out, "{line} suppressed: {}", clean(&it.justification))?;
        }
    }
    summary(out, cli, inputs, report)
}

/// Formats a finding in one line.
fn line(placer: &mut Placer<'_>, finding: &LocatedFinding) -> String {
    let place = match finding.place {
        Some((source, span)) => {
            let (file, (line, column), _) = placer.place(source, span.start);
            format!("{file}:{line}:{column}: ")
        }
        None => String::new(),
    };
    let help = finding.help.as_ref().map(|help| format!(" ({help})"));
    let context = finding.context().map(|context| format!(" [{context}]"));
    clean(&format!(
        "{place}{}[{}]: {}{}{}",
        finding.severity(),
        finding.code.name(),
        finding.message,
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

    fn draw(&mut self, finding: &LocatedFinding) -> String {
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
            severity: finding.severity(),
            code: finding.code.name(),
            message: &finding.message,
            help: finding.help.as_deref(),
            context: finding.context(),
            spot: finding.place.map(|(source, span)| spot(source, span)),
            related: finding
                .related
                .as_ref()
                .map(|it| (spot(it.source, it.span), it.label)),
        };
        self.drawing.draw_spotted(&spotted)
    }
}

/// Prints the totals in one line.
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
        "no findings".to_owned()
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
        write!(out, "; {} suppressed{more}", report.suppressed.len())?;
    }
    let fixable = report.plan.edits.iter().filter(|it| !it.is_empty()).count();
    if fixable > 0 {
        write!(out, "; {fixable} fixable with --fix")?;
    }
    writeln!(out)?;
    Ok(())
}
