//! Prints every pair of endpoints as it is found: there may be more than fit into memory.

use std::borrow::Cow;
use std::io::Write;

use crate::args::connectivity::ConnectivityOutput;
use crate::connectivity::engine::ConnectivityQuery;
use crate::connectivity::lines::{csv_line, md_head, md_line, md_ports};
use crate::connectivity::ports::Ports;
use crate::draw::clean;
use crate::view::connectivity::{PairView, pairs_head};
use crate::view::json;

/// The width of names: rows are printed before the longest name is known.
const WIDTH: usize = 32;

/// Prints the pairs for which something is allowed.
pub(super) fn print(
    output: ConnectivityOutput,
    query: &ConnectivityQuery<'_>,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    head(output, out)?;
    let mut count: u64 = 0;
    let is_for_people = matches!(
        output,
        ConnectivityOutput::Table | ConnectivityOutput::Wide | ConnectivityOutput::Md
    );
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
        pair(output, out, count, &(&source, &destination, ports))?;
        count += 1;
        Ok(())
    })?;
    match output {
        ConnectivityOutput::Json if count == 0 => writeln!(out, "]\n}}")?,
        ConnectivityOutput::Json => writeln!(out, "\n  ]\n}}")?,
        ConnectivityOutput::Yaml if count == 0 => writeln!(out, " []")?,
        ConnectivityOutput::Table
        | ConnectivityOutput::Wide
        | ConnectivityOutput::Matrix
        | ConnectivityOutput::Csv
        | ConnectivityOutput::Md
        | ConnectivityOutput::Jsonl
        | ConnectivityOutput::Yaml
        | ConnectivityOutput::Dot
        | ConnectivityOutput::Svg
        | ConnectivityOutput::Html => {}
    }
    Ok(())
}

fn head(output: ConnectivityOutput, out: &mut impl Write) -> anyhow::Result<()> {
    match output {
        ConnectivityOutput::Csv => csv_line(out, &["source", "destination", "ports"])?,
        ConnectivityOutput::Md => md_head(out, &["Source", "Destination", "Ports"])?,
        ConnectivityOutput::Json => write!(out, "{}", pairs_head())?,
        ConnectivityOutput::Yaml => write!(
            out,
            "apiVersion: palisade.dev/v1alpha1\nkind: ConnectivityPairs\npairs:"
        )?,
        ConnectivityOutput::Jsonl => {}
        ConnectivityOutput::Table
        | ConnectivityOutput::Wide
        | ConnectivityOutput::Matrix
        | ConnectivityOutput::Dot
        | ConnectivityOutput::Svg
        | ConnectivityOutput::Html => {
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
    output: ConnectivityOutput,
    out: &mut impl Write,
    count: u64,
    pair: &(&str, &str, &Ports),
) -> anyhow::Result<()> {
    let (source, destination, ports) = *pair;
    let view = || PairView::new(source, destination, ports);
    match output {
        ConnectivityOutput::Csv => csv_line(out, &[source, destination, &ports.marked])?,
        ConnectivityOutput::Md => md_line(out, &[source, destination, &md_ports(ports)])?,
        ConnectivityOutput::Jsonl => {
            json::write(out, &view())?;
            writeln!(out)?;
        }
        ConnectivityOutput::Json => {
            let comma = if count == 0 { "\n    " } else { ",\n    " };
            write!(out, "{comma}")?;
            json::write(out, &view())?;
        }
        ConnectivityOutput::Yaml => {
            // JSON is YAML, and stays on one line.
            write!(out, "{}- ", if count == 0 { "\n" } else { "" })?;
            json::write(out, &view())?;
            writeln!(out)?;
        }
        ConnectivityOutput::Table
        | ConnectivityOutput::Wide
        | ConnectivityOutput::Matrix
        | ConnectivityOutput::Dot
        | ConnectivityOutput::Svg
        | ConnectivityOutput::Html => {
            let most = if output == ConnectivityOutput::Wide {
                usize::MAX
            } else {
                8
            };
            let (source, destination) = (clean(source), clean(destination));
            let ports = ports.text(most);
            writeln!(out, "{source:WIDTH$} -> {destination:WIDTH$}  {ports}")?;
        }
    }
    Ok(())
}
