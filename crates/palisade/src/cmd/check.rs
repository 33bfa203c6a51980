//! `palisade check`: validates objects and reports every problem.

use std::io::Write;

use anyhow::bail;
use palisade_api::{Manifests, Options, OtherPolicies, Problem, Severity};

use crate::args::format::OutputFormat;
use crate::args::{CheckArgs, Cli};
use crate::draw::{Drawing, clean, counted};
use crate::live::overlay::read_over;
use crate::live::{Needs, Scope};
use crate::progress::Progress;
use crate::source::{Inputs, collect};
use crate::view::unread::{UnreadView, write_with};
use crate::view::{CheckView, Placed, json};
use crate::{Outcome, sarif};

/// Reads the input, prints the problems, and returns whether any of them counts.
pub(crate) fn run(args: &CheckArgs, cli: &Cli) -> anyhow::Result<Outcome> {
    if !args.input.is_live() && !args.namespace.is_empty() {
        bail!("-n needs the live cluster; add --with-cluster");
    }
    let needs = Needs {
        scope: Scope::Policies,
        namespaces: &args.namespace,
    };
    let inputs = collect(&args.input, cli, &needs)?;
    let progress = Progress::new(inputs.bytes(), !cli.quiet);
    let options = Options {
        as_pruned: args.input.as_pruned,
    };
    let mut manifests = read_over(&inputs.sources, inputs.n_live, options, &|bytes| {
        progress.add(bytes);
    });
    progress.finish();
    // Problems of valid objects are reported by `lint`.
    manifests.problems.retain(|it| !it.code.is_lint());
    print(args, cli, &inputs, &manifests)?;
    for (path, error) in &inputs.unreadable {
        anstream::eprintln!("palisade: cannot read {}: {error}", clean(path));
    }
    for it in &inputs.missing {
        let (what, words) = (it.resource.name(), clean(&it.words));
        anstream::eprintln!("palisade: cannot read {what} of the cluster: {words}");
    }
    let counts = |problem: &Problem| problem.severity() >= args.fail_on.severity();
    if !inputs.unreadable.is_empty() || !inputs.missing.is_empty() {
        Ok(Outcome::Unanswered)
    } else if !args.exit_zero && manifests.problems.iter().any(counts) {
        Ok(Outcome::Findings)
    } else {
        Ok(Outcome::Clean)
    }
}

fn print(
    args: &CheckArgs,
    cli: &Cli,
    inputs: &Inputs,
    manifests: &Manifests<'_>,
) -> anyhow::Result<()> {
    let placed = Placed::all(&inputs.sources, &manifests.problems);
    let mut out = std::io::BufWriter::new(anstream::stdout());
    match args.output {
        OutputFormat::Table => {
            let drawing = Drawing::new(&inputs.sources);
            for problem in &placed {
                writeln!(out, "{}\n", drawing.draw(problem))?;
            }
            summary(&mut out, cli, inputs, manifests)?;
        }
        OutputFormat::Wide => {
            for problem in &placed {
                writeln!(out, "{}", crate::draw::line(problem))?;
            }
            summary(&mut out, cli, inputs, manifests)?;
        }
        OutputFormat::Document(form) => {
            let view = CheckView::new(manifests, &placed);
            let kinds = inputs.missing.iter().map(UnreadView::kind);
            let files = inputs.unreadable.iter().map(UnreadView::file);
            let unread: Vec<UnreadView<'_>> = kinds.chain(files).collect();
            write_with(&mut out, form, &view, (&unread, &OtherPolicies::new()))?;
        }
        OutputFormat::Jsonl => {
            for problem in &placed {
                json::write(&mut out, &problem.view())?;
                writeln!(out)?;
            }
        }
        OutputFormat::Sarif => {
            json::write_pretty(&mut out, &sarif::log(&placed))?;
            writeln!(out)?;
        }
        OutputFormat::Matrix
        | OutputFormat::Csv
        | OutputFormat::Md
        | OutputFormat::Dot
        | OutputFormat::Svg
        | OutputFormat::Html => return Err(args.output.unsupported()),
    }
    out.flush()?;
    Ok(())
}

/// Prints the totals in one line; with `-v` also the skipped objects.
fn summary(
    out: &mut impl Write,
    cli: &Cli,
    inputs: &Inputs,
    manifests: &Manifests<'_>,
) -> anyhow::Result<()> {
    if cli.quiet {
        return Ok(());
    }
    let unread = unread(inputs);
    if let (true, false, Some(unread)) = (inputs.sources.is_empty(), inputs.is_live, &unread) {
        writeln!(out, "{unread}")?;
        return Ok(());
    }
    let skipped: usize = manifests.skipped.values().sum();
    let invalid: usize = manifests.invalid.values().sum();
    let valid = manifests
        .objects
        .iter()
        .filter(|object| object.valid)
        .count();
    let count = |severity| {
        manifests
            .problems
            .iter()
            .filter(|it| it.severity() == severity)
            .count()
    };
    write!(
        out,
        "{} in {}",
        counted(valid + invalid, "object"),
        read_from(inputs),
    )?;
    if skipped > 0 {
        write!(out, " ({skipped} of other kinds skipped)")?;
    }
    let (errors, warnings, infos) = (
        count(Severity::Error),
        count(Severity::Warning),
        count(Severity::Info),
    );
    if errors + warnings + infos > 0 {
        let parts = [(errors, "error"), (warnings, "warning"), (infos, "note")];
        let parts = parts.iter().filter(|(count, _)| *count > 0);
        let parts: Vec<String> = parts.map(|(count, what)| counted(*count, what)).collect();
        write!(out, ": {}", parts.join(", "))?;
    } else if unread.is_none() {
        write!(out, ": no problems")?;
    }
    match unread {
        Some(unread) => writeln!(out, "; {unread}")?,
        None => writeln!(out)?,
    }
    if cli.verbose {
        for (what, n_objects) in crate::view::counts(manifests) {
            writeln!(out, "  {n_objects:>6} {what}")?;
        }
        for ((api_version, kind), n_objects) in &manifests.skipped {
            writeln!(out, "  {n_objects:>6} {kind} ({api_version}), skipped")?;
        }
    }
    Ok(())
}

/// Counts what could not be read, whose problems are unknown.
fn unread(inputs: &Inputs) -> Option<String> {
    let parts = [
        (inputs.unreadable.len(), "file"),
        (inputs.missing.len(), "kind"),
    ];
    let parts = parts.into_iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> = parts.map(|(count, what)| counted(count, what)).collect();
    (!parts.is_empty()).then(|| format!("{} could not be read", parts.join(" and ")))
}

/// Names the source of the objects.
pub(crate) fn read_from(inputs: &Inputs) -> String {
    let n_files = inputs.sources.len() - inputs.n_live;
    match (n_files, inputs.is_live) {
        (0, true) => "the cluster".to_owned(),
        (_, true) => format!("{} over the cluster", counted(n_files, "file")),
        (_, false) => counted(n_files, "file"),
    }
}
