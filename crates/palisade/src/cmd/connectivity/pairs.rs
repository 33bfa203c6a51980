//! Prints every pair of endpoints as it is found: there may be more than fit into memory.

use std::borrow::Cow;
use std::io::Write;

use crate::args::format::OutputFormat;
use crate::connectivity::engine::ConnectivityQuery;
use crate::connectivity::lines::{csv_line, md_head, md_line, md_ports};
use crate::connectivity::ports::Ports;
use crate::draw::clean;
use crate::view::connectivity::{PairView, pairs_head};
use crate::view::{AnswerLimits, DocumentFormat, json};

/// The width of names: rows are printed before the longest name is known.
const WIDTH: usize = 32;

/// A format for pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PairFormat {
    /// A table with at most this many ports a line.
    Table(usize),
    Csv,
    Md,
    Document(DocumentFormat),
    Jsonl,
}

impl PairFormat {
    fn of(output: OutputFormat) -> anyhow::Result<PairFormat> {
        Ok(match output {
            OutputFormat::Table => PairFormat::Table(8),
            OutputFormat::Wide => PairFormat::Table(usize::MAX),
            OutputFormat::Csv => PairFormat::Csv,
            OutputFormat::Md => PairFormat::Md,
            OutputFormat::Document(form) => PairFormat::Document(form),
            OutputFormat::Jsonl => PairFormat::Jsonl,
            OutputFormat::Matrix
            | OutputFormat::Sarif
            | OutputFormat::Dot
            | OutputFormat::Svg
            | OutputFormat::Html => return Err(output.unsupported()),
        })
    }
}

/// Prints the pairs for which something is allowed.
pub(super) fn print(
    output: OutputFormat,
    query: &ConnectivityQuery<'_>,
    limits: AnswerLimits<'_>,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let format = PairFormat::of(output)?;
    head(format, out)?;
    let mut count: u64 = 0;
    let is_for_people = matches!(format, PairFormat::Table(_) | PairFormat::Md);
    query.pairs(&mut |ends, pair_of, ports| {
        let is_governed = pair_of.iter().any(|id| ends.is_governed(*id));
        if is_for_people && query.governed_only && !is_governed {
            return Ok(());
        }
        let [source, destination] = pair_of.map(|id| match ends.get(id) {
            Some(end) if is_for_people => Cow::Borrowed(end.label.as_str()),
            Some(end) => end.name(),
            None => Cow::Borrowed(""),
        });
        pair(format, out, count, &(&source, &destination, ports))?;
        count += 1;
        Ok(())
    })?;
    match format {
        PairFormat::Document(DocumentFormat::Json) => {
            write!(out, "{}", if count == 0 { "]" } else { "\n  ]" })?;
            limits.write_end(out, DocumentFormat::Json)?;
            writeln!(out, "\n}}")?;
        }
        PairFormat::Document(DocumentFormat::Yaml) => {
            write!(out, "{}", if count == 0 { " []\n" } else { "" })?;
            limits.write_end(out, DocumentFormat::Yaml)?;
        }
        PairFormat::Table(_) | PairFormat::Csv | PairFormat::Md | PairFormat::Jsonl => {}
    }
    Ok(())
}

fn head(format: PairFormat, out: &mut impl Write) -> anyhow::Result<()> {
    match format {
        PairFormat::Csv => csv_line(out, &["source", "destination", "ports"])?,
        PairFormat::Md => md_head(out, &["Source", "Destination", "Ports"])?,
        PairFormat::Document(DocumentFormat::Json) => write!(out, "{}", pairs_head())?,
        PairFormat::Document(DocumentFormat::Yaml) => write!(
            out,
            "apiVersion: palisade.dev/v1alpha1\nkind: ConnectivityPairs\npairs:"
        )?,
        PairFormat::Jsonl => {}
        PairFormat::Table(_) => {
            writeln!(
                out,
                "{:WIDTH$}    {:WIDTH$}  PORTS",
                "SOURCE", "DESTINATION"
            )?;
        }
    }
    Ok(())
}

fn pair(
    format: PairFormat,
    out: &mut impl Write,
    count: u64,
    pair: &(&str, &str, &Ports),
) -> anyhow::Result<()> {
    let (source, destination, ports) = *pair;
    let view = || PairView::new(source, destination, ports);
    match format {
        PairFormat::Csv => csv_line(out, &[source, destination, &ports.marked])?,
        PairFormat::Md => md_line(out, &[source, destination, &md_ports(ports)])?,
        PairFormat::Jsonl => {
            json::write(out, &view())?;
            writeln!(out)?;
        }
        PairFormat::Document(DocumentFormat::Json) => {
            let comma = if count == 0 { "\n    " } else { ",\n    " };
            write!(out, "{comma}")?;
            json::write(out, &view())?;
        }
        PairFormat::Document(DocumentFormat::Yaml) => {
            // JSON is YAML, and stays on one line.
            write!(out, "{}- ", if count == 0 { "\n" } else { "" })?;
            json::write(out, &view())?;
            writeln!(out)?;
        }
        PairFormat::Table(most) => {
            let (source, destination) = (clean(source), clean(destination));
            let ports = ports.text(most);
            writeln!(out, "{source:WIDTH$} -> {destination:WIDTH$}  {ports}")?;
        }
    }
    Ok(())
}
