//! `palisade connectivity`: which endpoints reach which, and on which ports?

mod pairs;

use std::io::Write;

use anyhow::bail;
use palisade_core::text::ticked;

use crate::Outcome;
use crate::args::Cli;
use crate::args::connectivity::ConnectivityArgs;
use crate::args::format::OutputFormat;
use crate::cluster::{print_unread, reported_other_policies};
use crate::connectivity::engine::{ConnectivityQuery, refuse};
use crate::connectivity::filter::{EndKinds, Filter, Finder, port, selector};
use crate::connectivity::nothing::{require_labelled, require_port_names};
use crate::connectivity::{NODE_LOCAL, dot, html, lines, svg, table};
use crate::live::{RelevantKinds, Scope};
use crate::view::connectivity::{BlockLineView, ConnectivityView, SummaryView};
use crate::view::{AnswerLimits, json, write_limited};

/// The most classes of endpoints in a matrix, and in a graph.
const MOST_KINDS: usize = 5000;
const MOST_IN_GRAPH: usize = 2000;

/// Answers for the whole cluster, or for the selected flows.
pub(crate) fn run(args: &ConnectivityArgs, cli: &Cli) -> anyhow::Result<Outcome> {
    check_form(args)?;
    let ports = args.port.iter().map(|text| port(text));
    let ports = ports.collect::<anyhow::Result<Vec<_>>>()?;
    let labels = args.selector.as_deref();
    let labels = labels.map(|text| selector(text).map(|it| (text, it)));
    let labels = labels.transpose()?;
    let (scope, relevant) = (Scope::Everything, RelevantKinds::everything());
    let namespaces = &args.namespace;
    let inputs = crate::cluster::inputs(&args.cluster, cli, scope, &relevant, namespaces)?;
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
            bail!("--from {text}: a Service cannot be a source");
        }
    }
    let to = filters(&args.to)?;
    require_port_names(cluster, &ports, &to)?;
    let namespaces = args.namespace.iter().map(|name| finder.namespace(name));
    let namespaces = namespaces.collect::<anyhow::Result<Vec<Filter>>>()?;
    if let Some((text, selector)) = &labels {
        require_labelled(cluster, (text, selector), &namespaces)?;
    }
    // With both --from and --to, flows that no policy applies to are shown as well.
    let governed_only = args.from.is_empty() || args.to.is_empty();
    let query = ConnectivityQuery {
        cluster,
        program: &program,
        from,
        to,
        namespaces,
        labels: labels.map(|(_, selector)| Filter::Labelled(selector)),
        ports,
        governed_only,
        show_progress: !cli.quiet,
    };
    let unread = crate::cluster::unread(&inputs, &manifests);
    let limits = AnswerLimits {
        missing: &inputs.missing,
        unread: &unread,
        other_policies: &reported_other_policies(cli, &inputs, &manifests),
    };
    let mut out = std::io::BufWriter::with_capacity(1 << 16, stream(args.output));
    if args.summary {
        summary(args.output, &query, limits, &mut out)?;
    } else if args.pairs {
        pairs::print(args.output, &query, limits, &mut out)?;
    } else {
        print(args, cli, &query, limits, &mut out)?;
    }
    print_unread(&mut out, args.output, limits.unread)?;
    out.flush()?;
    Ok(Outcome::Clean)
}

/// Rejects formats that cannot represent the requested output.
fn check_form(args: &ConnectivityArgs) -> anyhow::Result<()> {
    use OutputFormat as Form;
    let fits = match args.output {
        Form::Table | Form::Wide | Form::Document(_) | Form::Jsonl => true,
        Form::Csv | Form::Md => !args.summary,
        Form::Matrix | Form::Dot | Form::Svg | Form::Html => !args.summary && !args.pairs,
        Form::Sarif => return Err(args.output.unsupported()),
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

/// Returns the output stream. Only text for people has colours.
fn stream(output: OutputFormat) -> Box<dyn Write> {
    if output.is_text() {
        Box::new(anstream::stdout())
    } else {
        Box::new(std::io::stdout().lock())
    }
}

fn summary(
    output: OutputFormat,
    query: &ConnectivityQuery<'_>,
    limits: AnswerLimits<'_>,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let totals = query.totals();
    let view = SummaryView::new(&totals);
    if let Some(form) = output.document() {
        write_limited(out, form, &view, limits)?;
    } else if output == OutputFormat::Jsonl {
        json::write(out, &view)?;
        writeln!(out)?;
    } else {
        writeln!(out, "{}", table::totals(&totals))?;
    }
    Ok(())
}

/// Prints blocks of groups, or the matrix of classes.
fn print(
    args: &ConnectivityArgs,
    cli: &Cli,
    query: &ConnectivityQuery<'_>,
    limits: AnswerLimits<'_>,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let max = args.max_blocks;
    match args.output {
        OutputFormat::Table | OutputFormat::Wide => {
            let wide = cli.verbose || args.output == OutputFormat::Wide;
            table::blocks(out, &query.blocks(max)?, wide, query.governed_only)?;
            foot(out, cli, query)?;
        }
        OutputFormat::Csv => lines::csv_blocks(out, &query.blocks(max)?)?,
        OutputFormat::Md => lines::md_blocks(out, &query.blocks(max)?, query.governed_only)?,
        OutputFormat::Document(form) => {
            let blocks = query.blocks(max)?;
            write_limited(out, form, &ConnectivityView::new(&blocks), limits)?;
        }
        OutputFormat::Jsonl => {
            let answer = query.blocks(max)?;
            for block in &answer.blocks {
                json::write(out, &BlockLineView::new(&answer, block))?;
                writeln!(out)?;
            }
        }
        OutputFormat::Matrix => {
            let kinds = query.table(MOST_KINDS)?;
            if let Some(units) = table::too_many(&kinds) {
                refuse("a matrix", units)?;
            }
            table::matrix(out, &kinds)?;
            if kinds.without_node_local && !cli.quiet {
                writeln!(out, "\n{NODE_LOCAL}")?;
            }
            foot(out, cli, query)?;
        }
        OutputFormat::Dot => dot::graph(out, &query.table(MOST_IN_GRAPH)?)?,
        OutputFormat::Svg => {
            let drawing = svg::layers(&query.blocks(max)?, query.governed_only);
            if let Some(drawing) = drawing {
                write!(out, "{drawing}")?;
            } else {
                match svg::heat(&query.table(MOST_KINDS)?) {
                    Ok(drawing) => write!(out, "{drawing}")?,
                    Err(units) => refuse("a drawing", units)?,
                }
            }
        }
        OutputFormat::Html => html::page(out, &query.table(MOST_KINDS)?, &query.totals())?,
        OutputFormat::Sarif => return Err(args.output.unsupported()),
    }
    Ok(())
}

/// Prints the totals below a table, if it covers pairs of pods.
fn foot(out: &mut impl Write, cli: &Cli, query: &ConnectivityQuery<'_>) -> anyhow::Result<()> {
    if cli.quiet {
        return Ok(());
    }
    let totals = query.totals();
    if totals.allowed + totals.denied + totals.mixed + totals.unknown > 0 {
        writeln!(out, "\n{}", table::totals(&totals))?;
    }
    Ok(())
}
