//! `palisade diff`: which flows does a change newly allow or deny?

mod sides;

use std::io::Write;

use anyhow::bail;
use palisade_api::{Manifests, OtherPolicies};
use palisade_core::analysis::connect::diff::{ChangeKind, Limits, Version, diff};
use palisade_core::compile::compile;

use self::sides::{DiffInput, both};
use crate::Outcome;
use crate::args::diff::DiffArgs;
use crate::args::format::OutputFormat;
use crate::args::{Cli, ClusterArgs};
use crate::cluster::{
    learned, lowered_reporting_to, objects_counting, other_policies, print_unread,
    report_other_policies, unread,
};
use crate::diff_report::table::{TableExtent, totals};
use crate::diff_report::{DiffReport, lines, table};
use crate::draw::{clean, counted};
use crate::progress::Progress;
use crate::report::unread::UnreadObject;
use crate::source::Inputs;
use crate::view::diff::{BlockLineView, DiffView, UnseenLineView};
use crate::view::{AnswerLimits, json, write_limited};

/// Compares two clusters, prints the difference, and returns whether there is one.
pub(crate) fn run(args: &DiffArgs, cli: &Cli) -> anyhow::Result<Outcome> {
    let sides = DiffInput::both(args)?;
    let reading = ClusterArgs {
        lenient: args.lenient,
        dns: args.dns.clone(),
        namespace_budget: args.namespace_budget,
        input: crate::args::InputArgs {
            as_pruned: args.as_pruned,
            ..Default::default()
        },
    };
    let [old_inputs, new_inputs] = both(&sides, args, cli)?;
    // The sides are read in parallel; their messages are printed in order.
    let progress = Progress::new(old_inputs.bytes() + new_inputs.bytes(), !cli.quiet);
    let read = |inputs| {
        let mut messages: Vec<u8> = Vec::new();
        let manifests = objects_counting(&reading, cli, inputs, &mut messages, &progress);
        (manifests, messages)
    };
    let ((old, old_messages), (new, new_messages)) =
        rayon::join(|| read(&old_inputs), || read(&new_inputs));
    write_stderr([&old_messages, &new_messages])?;
    let (Some(old), Some(new)) = (old, new) else {
        return Ok(Outcome::Unanswered);
    };
    let sides = [(&old_inputs, &old), (&new_inputs, &new)];
    let unread = unread_of_both(sides);
    let other_policies = other_policies_of_both(cli, sides);
    let learned = learned(&reading)?;
    let lowered = |inputs, manifests| {
        let mut messages: Vec<u8> = Vec::new();
        let lowered = lowered_reporting_to(
            &reading,
            learned.clone(),
            cli,
            inputs,
            manifests,
            &mut messages,
        );
        (lowered, messages)
    };
    let ((old, old_messages), (new, new_messages)) =
        rayon::join(|| lowered(&old_inputs, &old), || lowered(&new_inputs, &new));
    write_stderr([&old_messages, &new_messages])?;
    let (old_program, new_program) =
        rayon::join(|| compile(&old.cluster), || compile(&new.cluster));
    let version = |cluster, program| Version { cluster, program };
    let progress = Progress::counting("comparing", 0, !cli.quiet);
    let limits = Limits {
        blocks: args.max_blocks,
        ..Limits::default()
    };
    let difference = diff(
        version(&old.cluster, &old_program),
        version(&new.cluster, &new_program),
        limits,
        &|done, total| progress.reach_of(done, total),
    );
    progress.finish();
    let difference = match difference {
        Ok(difference) => difference,
        Err(too_many) => {
            bail!("{too_many}; compare fewer objects, or allow more with --max-blocks")
        }
    };
    let report = DiffReport::new(&difference);
    // With -f, the new side has the unread kinds of its base.
    let missing = if old_inputs.missing.is_empty() {
        &new_inputs.missing
    } else {
        &old_inputs.missing
    };
    let limits = AnswerLimits {
        missing,
        unread: &unread,
        other_policies: &other_policies,
    };
    print(args, cli, &report, limits)?;
    Ok(outcome(args, cli, &report))
}

/// Returns the unreadable policies of both sides, each once.
fn unread_of_both(sides: [(&Inputs, &Manifests<'_>); 2]) -> Vec<UnreadObject> {
    let [old, new] = sides.map(|(inputs, manifests)| unread(inputs, manifests));
    let mut both = old;
    for it in new {
        // With -f, both sides have the base.
        let is_same = |its: &UnreadObject| {
            let place = |it: &UnreadObject| (it.line, it.unread.problem.code);
            its.file == it.file && place(its) == place(&it) && its.unread.object == it.unread.object
        };
        if !both.iter().any(is_same) {
            both.push(it);
        }
    }
    both
}

/// Returns the policies of other vendors, of the side that has more of a kind, and reports them.
fn other_policies_of_both(cli: &Cli, sides: [(&Inputs, &Manifests<'_>); 2]) -> OtherPolicies {
    let [mut most, new] = sides.map(|(inputs, manifests)| other_policies(inputs, manifests));
    for (kind, count) in new {
        let known = most.entry(kind).or_default();
        *known = count.max(*known);
    }
    report_other_policies(cli, &most, &mut anstream::stderr());
    most
}

/// Prints the messages of both sides.
fn write_stderr(messages: [&[u8]; 2]) -> anyhow::Result<()> {
    for messages in messages {
        anstream::stderr().write_all(messages)?;
    }
    Ok(())
}

fn outcome(args: &DiffArgs, cli: &Cli, report: &DiffReport<'_>) -> Outcome {
    if args.fail_on_wider {
        let n_undecided = report.undecided_objects();
        if n_undecided > 0 && !cli.quiet {
            // Silence would look like success: what the input lacks may gain any flow.
            anstream::eprintln!(
                "palisade: {} may allow more flows of pods that are not in the input; compare with the cluster: `palisade diff cluster -f PATH`",
                counted(n_undecided, "changed object")
            );
        }
        if n_undecided > 0 || report.is_wider(args.include_new) {
            return Outcome::Findings;
        }
        if !cli.quiet && report.blocks(ChangeKind::Undecided, false).next().is_some() {
            anstream::eprintln!(
                "palisade: some flows depend on unknown addresses; the change may allow them"
            );
        }
        return Outcome::Clean;
    }
    if report.is_same() || args.exit_zero {
        Outcome::Clean
    } else {
        Outcome::Findings
    }
}

fn print(
    args: &DiffArgs,
    cli: &Cli,
    report: &DiffReport<'_>,
    limits: AnswerLimits<'_>,
) -> anyhow::Result<()> {
    let stream: Box<dyn Write> = if args.output.is_text() {
        Box::new(anstream::stdout())
    } else {
        Box::new(std::io::stdout().lock())
    };
    let mut out = std::io::BufWriter::with_capacity(1 << 16, stream);
    match args.output {
        OutputFormat::Table => people(&mut out, cli, report, TableExtent::SOME)?,
        OutputFormat::Wide => people(&mut out, cli, report, TableExtent::ALL)?,
        OutputFormat::Document(form) => {
            write_limited(&mut out, form, &DiffView::new(report), limits)?;
        }
        OutputFormat::Jsonl => {
            for block in &report.difference.blocks {
                json::write(&mut out, &BlockLineView::new(report, block))?;
                writeln!(out)?;
            }
            for unseen in report.unseen() {
                json::write(&mut out, &UnseenLineView::new(report, unseen))?;
                writeln!(out)?;
            }
        }
        OutputFormat::Csv => lines::csv(&mut out, report)?,
        OutputFormat::Md => lines::md(&mut out, report, args.include_new)?,
        OutputFormat::Matrix
        | OutputFormat::Sarif
        | OutputFormat::Dot
        | OutputFormat::Svg
        | OutputFormat::Html => return Err(args.output.unsupported()),
    }
    print_unread(&mut out, args.output, limits.unread)?;
    out.flush()?;
    Ok(())
}

fn people(
    out: &mut impl Write,
    cli: &Cli,
    report: &DiffReport<'_>,
    extent: TableExtent,
) -> anyhow::Result<()> {
    table::print(out, report, extent)?;
    if cli.quiet {
        return Ok(());
    }
    if !report.is_same() {
        writeln!(out)?;
    }
    let [added, removed] = report.one_sided();
    for (label, names) in [("new", added), ("removed", removed)] {
        if !names.is_empty() {
            let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
            let most = if cli.verbose {
                usize::MAX
            } else {
                extent.words
            };
            writeln!(out, "{label} endpoints: {}", table::few(&names, most))?;
        }
    }
    writeln!(out, "{}", totals(report))?;
    if cli.verbose {
        for changed in report.all_changed() {
            writeln!(out, "  {} {}", clean(&changed.name), changed.change)?;
        }
    }
    Ok(())
}
