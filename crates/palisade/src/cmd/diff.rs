//! `palisade diff`: which flows does a change allow, and which does it deny?

mod sides;

use std::io::Write;

use anyhow::bail;
use palisade_core::compile::compile;
use palisade_core::connect::diff::{ChangeKind, Limits, Version, diff};

use self::sides::{DiffInput, both};
use crate::Outcome;
use crate::args::diff::{DiffArgs, DiffOutput};
use crate::args::{Cli, ClusterArgs};
use crate::cluster::{learned, lowered_reporting_to, objects_counting};
use crate::diff_report::table::{TableExtent, totals};
use crate::diff_report::{DiffReport, lines, table};
use crate::draw::clean;
use crate::live::UnreadKind;
use crate::progress::Progress;
use crate::view::diff::{BlockLineView, DiffView};
use crate::view::{DocumentFormat, json, write_limited};

/// Compares two clusters, prints what is different, and answers whether anything is.
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
    // Each side by itself, and what there is to tell of it in order.
    let progress = Progress::new(old_inputs.bytes() + new_inputs.bytes(), !cli.quiet);
    let read = |inputs| {
        let mut words: Vec<u8> = Vec::new();
        let manifests = objects_counting(&reading, cli, inputs, &mut words, &progress);
        (manifests, words)
    };
    let ((old, old_words), (new, new_words)) =
        rayon::join(|| read(&old_inputs), || read(&new_inputs));
    write_stderr([&old_words, &new_words])?;
    let (Some(old), Some(new)) = (old, new) else {
        return Ok(Outcome::Unanswered);
    };
    let learned = learned(&reading)?;
    let lowered = |inputs, manifests| {
        let mut words: Vec<u8> = Vec::new();
        let lowered = lowered_reporting_to(
            &reading,
            learned.clone(),
            cli,
            inputs,
            manifests,
            &mut words,
        );
        (lowered, words)
    };
    let ((old, old_words), (new, new_words)) =
        rayon::join(|| lowered(&old_inputs, &old), || lowered(&new_inputs, &new));
    write_stderr([&old_words, &new_words])?;
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
    let told = DiffReport::new(&difference);
    // Files over a base miss what the base misses.
    let missing = if old_inputs.missing.is_empty() {
        &new_inputs.missing
    } else {
        &old_inputs.missing
    };
    print(args, cli, &told, missing)?;
    Ok(outcome(args, cli, &told))
}

/// Hands on what was told about both sides.
fn write_stderr(words: [&[u8]; 2]) -> anyhow::Result<()> {
    for words in words {
        anstream::stderr().write_all(words)?;
    }
    Ok(())
}

fn outcome(args: &DiffArgs, cli: &Cli, told: &DiffReport<'_>) -> Outcome {
    if args.fail_on_wider {
        if told.is_wider(args.include_new) {
            return Outcome::Findings;
        }
        if !cli.quiet && told.blocks(ChangeKind::Undecided, false).next().is_some() {
            anstream::eprintln!(
                "palisade: some flows depend on addresses that are not known; they may be allowed now"
            );
        }
        return Outcome::Clean;
    }
    if told.difference.blocks.is_empty() || args.exit_zero {
        Outcome::Clean
    } else {
        Outcome::Findings
    }
}

fn print(
    args: &DiffArgs,
    cli: &Cli,
    told: &DiffReport<'_>,
    missing: &[UnreadKind],
) -> anyhow::Result<()> {
    let stream: Box<dyn Write> = match args.output {
        DiffOutput::Table | DiffOutput::Wide => Box::new(anstream::stdout()),
        DiffOutput::Json
        | DiffOutput::Jsonl
        | DiffOutput::Yaml
        | DiffOutput::Csv
        | DiffOutput::Md => Box::new(std::io::stdout().lock()),
    };
    let mut out = std::io::BufWriter::with_capacity(1 << 16, stream);
    match args.output {
        DiffOutput::Table => people(&mut out, cli, told, TableExtent::SOME)?,
        DiffOutput::Wide => people(&mut out, cli, told, TableExtent::ALL)?,
        DiffOutput::Json => write_limited(
            &mut out,
            DocumentFormat::Json,
            &DiffView::new(told),
            missing,
        )?,
        DiffOutput::Yaml => write_limited(
            &mut out,
            DocumentFormat::Yaml,
            &DiffView::new(told),
            missing,
        )?,
        DiffOutput::Jsonl => {
            for block in &told.difference.blocks {
                json::write(&mut out, &BlockLineView::new(told, block))?;
                writeln!(out)?;
            }
        }
        DiffOutput::Csv => lines::csv(&mut out, told)?,
        DiffOutput::Md => lines::md(&mut out, told, args.include_new)?,
    }
    out.flush()?;
    Ok(())
}

fn people(
    out: &mut impl Write,
    cli: &Cli,
    told: &DiffReport<'_>,
    much: TableExtent,
) -> anyhow::Result<()> {
    table::print(out, told, much)?;
    if cli.quiet {
        return Ok(());
    }
    if !told.difference.blocks.is_empty() {
        writeln!(out)?;
    }
    let [added, removed] = told.one_sided();
    for (words, names) in [("new", added), ("gone", removed)] {
        if !names.is_empty() {
            let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
            let most = if cli.verbose { usize::MAX } else { much.words };
            writeln!(out, "{words} endpoints: {}", table::few(&names, most))?;
        }
    }
    writeln!(out, "{}", totals(told))?;
    if cli.verbose {
        for changed in told.all_changed() {
            writeln!(out, "  {} {}", clean(&changed.name), changed.change)?;
        }
    }
    Ok(())
}
