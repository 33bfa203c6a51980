//! Connectivity as a graph for Graphviz: classes of endpoints, in clusters by namespace.

use std::io::Write;

use super::ports::State;
use super::{NODE_LOCAL, Table};
use crate::draw::clean;

/// The most ports on an edge.
const MOST_PORTS: usize = 4;

/// Quotes a name: no character in it ends the quotes or is an escape of Graphviz.
fn quoted(text: &str) -> String {
    format!(
        "\"{}\"",
        clean(text).replace('\\', "\\\\").replace('"', "\\\"")
    )
}

/// Writes the graph.
pub(crate) fn graph(out: &mut impl Write, table: &Table) -> std::io::Result<()> {
    writeln!(out, "digraph connectivity {{")?;
    if table.without_node_local {
        writeln!(out, "  // {NODE_LOCAL}")?;
    }
    writeln!(out, "  rankdir=LR;")?;
    writeln!(
        out,
        "  node [shape=box, style=rounded, fontname=\"sans-serif\"];"
    )?;
    writeln!(out, "  edge [fontname=\"sans-serif\", fontsize=10];")?;
    let mut open = None;
    for (at, kind) in table.kinds.list.iter().enumerate() {
        if open != Some(kind.space) {
            if open.is_some() {
                writeln!(out, "  }}")?;
            }
            let label = quoted(table.ends.space(kind.space));
            writeln!(out, "  subgraph cluster_{} {{", kind.space)?;
            writeln!(out, "    label={label};")?;
            open = Some(kind.space);
        }
        writeln!(out, "    k{at} [label={}];", quoted(&kind.label))?;
    }
    if open.is_some() {
        writeln!(out, "  }}")?;
    }
    for from in 0..table.kinds.list.len() {
        for to in 0..table.kinds.list.len() {
            let Some(cell) = table.kinds.cell(from, to) else {
                continue;
            };
            let ports = table.reaches.get(cell);
            let look = match ports.state() {
                State::NotEvaluated | State::Closed => continue,
                State::Mixed => ", style=dashed",
                State::Some => "",
                State::Open => ", penwidth=2",
            };
            let label = quoted(&ports.text(MOST_PORTS));
            writeln!(out, "  k{from} -> k{to} [label={label}{look}];")?;
        }
    }
    writeln!(out, "}}")
}
