//! `palisade connectivity`: who reaches whom, and on which ports?

mod pairs;

use std::io::Write;

use anyhow::bail;
use palisade_core::text::ticked;

use crate::Outcome;
use crate::args::Cli;
use crate::args::connectivity::{ConnectivityArgs, ConnectivityOutput};
use crate::connectivity::engine::{ConnectivityQuery, refuse};
use crate::connectivity::filter::{EndKinds, Filter, Finder, port, selector};
use crate::connectivity::{NODE_LOCAL, dot, html, lines, svg, table};
use crate::live::{RelevantKinds, Scope, UnreadKind};
use crate::view::connectivity::{BlockLineView, ConnectivityView, SummaryView};
use crate::view::{DocumentFormat, json, write_limited};

/// A matrix of more kinds than these is not made, nor a graph of more than these.
const MOST_KINDS: usize = 5000;
const MOST_IN_GRAPH: usize = 2000;

/// Answers for the whole cluster, or for what was chosen of it.
pub(crate) fn run(args: &ConnectivityArgs, cli: &Cli) -> anyhow::Result<Outcome> {
    check_form(args)?;
    let ports = args.port.iter().map(|text| port(text));
    let ports = ports.collect::<anyhow::Result<Vec<_>>>()?;
    let labels = args.selector.as_deref().map(selector).transpose()?;
    let labels = labels.map(Filter::Labelled);
    let (scope, matters) = (Scope::Everything, RelevantKinds::everything());
    let namespaces = &args.namespace;
    let inputs = crate::cluster::inputs(&args.cluster, cli, scope, &matters, namespaces)?;
    let Some(manifests) = crate::cluster::objects(&args.cluster, cli, &inputs) else {
        return Ok(Outcome::Unanswered);
    };
    let lowered = crate::cluster::lowered(&args.cluster, cli, &inputs, &manifests)?;
    let cluster = &lowered.cluster;
    let program = crate::cluster::compiled(cli, cluster);
    let finder = Finder::new(cluster, &program);
    let filters = |texts: &[String]| {
        let filters = texts.iter().map(|text| finder.filter(text));
        filters.collect::<anyhow::Result<Vec<Filter>>>()
    };
    let from = filters(&args.from)?;
    for (filter, text) in from.iter().zip(&args.from) {
        if matches!(
            filter,
            Filter::Service(_) | Filter::Sort(EndKinds::Services)
        ) {
            let text = ticked(text);
            bail!("flows lead to Services and do not start there, so that --from {text} is nobody");
        }
    }
    let namespaces = args.namespace.iter().map(|name| finder.namespace(name));
    // Whoever names both ends wants to see them, whether policies govern them or not.
    let governed_only = args.from.is_empty() || args.to.is_empty();
    let asked = ConnectivityQuery {
        cluster,
        program: &program,
        from,
        to: filters(&args.to)?,
        namespaces: namespaces.collect::<anyhow::Result<Vec<Filter>>>()?,
        labels,
        ports,
        governed_only,
        show_progress: !cli.quiet,
    };
    let mut out = std::io::BufWriter::with_capacity(1 << 16, stream(args.output));
    if args.summary {
        summary(args.output, &asked, &inputs.missing, &mut out)?;
    } else if args.pairs {
        pairs::print(args.output, &asked, &mut out)?;
    } else {
        print(args, cli, &asked, &inputs.missing, &mut out)?;
    }
    out.flush()?;
    Ok(Outcome::Clean)
}

/// Not every form can say everything.
fn check_form(args: &ConnectivityArgs) -> anyhow::Result<()> {
    use ConnectivityOutput as Form;
    let fits = match args.output {
        Form::Table | Form::Wide | Form::Json | Form::Jsonl | Form::Yaml => true,
        Form::Csv | Form::Md => !args.summary,
        Form::Matrix | Form::Dot | Form::Svg | Form::Html => !args.summary && !args.pairs,
    };
    if fits {
        return Ok(());
    }
    let (what, forms) = if args.summary {
        ("--summary", "table, json, jsonl or yaml")
    } else {
        ("--pairs", "table, csv, md, json, jsonl or yaml")
    };
    bail!("{what} is printed as {forms}");
}

/// Where the answer goes. Colours stand only in text for people.
fn stream(output: ConnectivityOutput) -> Box<dyn Write> {
    use ConnectivityOutput as Form;
    match output {
        Form::Table | Form::Wide | Form::Matrix => Box::new(anstream::stdout()),
        Form::Csv
        | Form::Md
        | Form::Json
        | Form::Jsonl
        | Form::Yaml
        | Form::Dot
        | Form::Svg
        | Form::Html => Box::new(std::io::stdout().lock()),
    }
}

fn summary(
    output: ConnectivityOutput,
    asked: &ConnectivityQuery<'_>,
    missing: &[UnreadKind],
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let totals = asked.totals();
    let view = SummaryView::new(&totals);
    match output {
        ConnectivityOutput::Json => write_limited(out, DocumentFormat::Json, &view, missing)?,
        ConnectivityOutput::Yaml => write_limited(out, DocumentFormat::Yaml, &view, missing)?,
        ConnectivityOutput::Jsonl => {
            json::write(out, &view)?;
            writeln!(out)?;
        }
        ConnectivityOutput::Table
        | ConnectivityOutput::Wide
        | ConnectivityOutput::Matrix
        | ConnectivityOutput::Csv
        | ConnectivityOutput::Md
        | ConnectivityOutput::Dot
        | ConnectivityOutput::Svg
        | ConnectivityOutput::Html => writeln!(out, "{}", table::totals(&totals))?,
    }
    Ok(())
}

/// Blocks of groups, or the matrix of kinds.
fn print(
    args: &ConnectivityArgs,
    cli: &Cli,
    asked: &ConnectivityQuery<'_>,
    missing: &[UnreadKind],
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let max = args.max_blocks;
    match args.output {
        ConnectivityOutput::Table | ConnectivityOutput::Wide => {
            let wide = cli.verbose || args.output == ConnectivityOutput::Wide;
            table::blocks(out, &asked.blocks(max)?, wide, asked.governed_only)?;
            foot(out, cli, asked)?;
        }
        ConnectivityOutput::Csv => lines::csv_blocks(out, &asked.blocks(max)?)?,
        ConnectivityOutput::Md => lines::md_blocks(out, &asked.blocks(max)?, asked.governed_only)?,
        ConnectivityOutput::Json => {
            let blocks = asked.blocks(max)?;
            write_limited(
                out,
                DocumentFormat::Json,
                &ConnectivityView::new(&blocks),
                missing,
            )?;
        }
        ConnectivityOutput::Yaml => {
            let blocks = asked.blocks(max)?;
            write_limited(
                out,
                DocumentFormat::Yaml,
                &ConnectivityView::new(&blocks),
                missing,
            )?;
        }
        ConnectivityOutput::Jsonl => {
            let answer = asked.blocks(max)?;
            for block in &answer.blocks {
                json::write(out, &BlockLineView::new(&answer, block))?;
                writeln!(out)?;
            }
        }
        ConnectivityOutput::Matrix => {
            let kinds = asked.table(MOST_KINDS)?;
            if let Some(units) = table::too_many(&kinds) {
                refuse("a matrix", units)?;
            }
            table::matrix(out, &kinds)?;
            if kinds.without_node_local && !cli.quiet {
                writeln!(out, "\n{NODE_LOCAL}")?;
            }
            foot(out, cli, asked)?;
        }
        ConnectivityOutput::Dot => dot::graph(out, &asked.table(MOST_IN_GRAPH)?)?,
        ConnectivityOutput::Svg => {
            let drawing = svg::layers(&asked.blocks(max)?, asked.governed_only);
            if let Some(drawing) = drawing {
                write!(out, "{drawing}")?;
            } else {
                match svg::heat(&asked.table(MOST_KINDS)?) {
                    Ok(drawing) => write!(out, "{drawing}")?,
                    Err(units) => refuse("a drawing", units)?,
                }
            }
        }
        ConnectivityOutput::Html => html::page(out, &asked.table(MOST_KINDS)?, &asked.totals())?,
    }
    Ok(())
}

/// The totals under a table, if pairs of pods were asked about.
fn foot(out: &mut impl Write, cli: &Cli, asked: &ConnectivityQuery<'_>) -> anyhow::Result<()> {
    if cli.quiet {
        return Ok(());
    }
    let totals = asked.totals();
    if totals.allowed + totals.denied + totals.mixed + totals.unknown > 0 {
        writeln!(out, "\n{}", table::totals(&totals))?;
    }
    Ok(())
}
