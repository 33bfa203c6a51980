//! A matrix: rows are sources, columns are destinations, and the area of a square is the share of
//! pairs.

use std::fmt::Write as _;

use super::super::ports::State;
use super::super::{NODE_LOCAL, Table};
use super::{document, escaped};
use crate::draw::clean;

/// More classes than these are drawn by namespace.
const MOST_KINDS: usize = 120;
/// More namespaces than these are not drawn.
const MOST_SPACES: usize = 400;
const MOST_SIGNS: usize = 36;

/// Returns the drawing, or the number of units if there are too many.
pub(super) fn drawing(table: &Table) -> Result<String, usize> {
    let units = table.kinds.units(&table.ends, MOST_KINDS);
    if units.len() > MOST_SPACES {
        return Err(units.len());
    }
    let cell = if units.len() > 60 { 14.0 } else { 22.0 };
    let label = |text: &str| {
        let text = clean(text);
        if text.chars().count() > MOST_SIGNS {
            let cut: String = text.chars().take(MOST_SIGNS - 1).collect();
            format!("{cut}…")
        } else {
            text
        }
    };
    let labels: Vec<String> = units.iter().map(|unit| label(&unit.label)).collect();
    let longest = labels
        .iter()
        .map(|it| it.chars().count())
        .max()
        .unwrap_or(0) as f64;
    let (left, top) = (longest * 6.8 + 28.0, longest * 5.6 + 70.0);
    let side = units.len() as f64 * cell;
    let mut body = String::new();
    legend(&mut body, table.without_node_local);
    for (row, (unit, name)) in units.iter().zip(&labels).enumerate() {
        let at = row as f64 * cell + cell / 2.0;
        let name = escaped(name);
        writeln!(
            body,
            "<text class=\"faint\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>\n\
             <text class=\"faint\" transform=\"translate({:.1} {:.1}) rotate(-60)\">{name}</text>",
            left - 8.0,
            top + at + 4.0,
            left + at + 3.0,
            top - 8.0,
        )
        .unwrap_or_default();
        for (column, other) in units.iter().enumerate() {
            let share = table.kinds.between(&table.reaches, unit, other);
            let part = share.allowed as f64 / share.pairs.max(1) as f64;
            // The area shows the share of pairs; a small share stays visible.
            let (look, size) = match share.state {
                State::NotEvaluated => continue,
                State::Closed => ("none", 3.0),
                State::Mixed => ("mixed", (cell - 4.0) * part.sqrt().max(0.35)),
                State::Some => ("some", (cell - 4.0) * 0.75 * part.sqrt().max(0.35)),
                State::Open => ("open", (cell - 4.0) * part.sqrt().max(0.35)),
            };
            let x = left + column as f64 * cell + (cell - size) / 2.0;
            let y = top + row as f64 * cell + (cell - size) / 2.0;
            write!(
                body,
                "<rect class=\"cell {look}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{size:.1}\" height=\"{size:.1}\">"
            )
            .unwrap_or_default();
            let (from, to) = (escaped(&unit.label), escaped(&other.label));
            writeln!(body, "<title>{from} to {to}</title></rect>").unwrap_or_default();
        }
    }
    let (width, height) = (left + side + top * 0.6, top + side + 24.0);
    Ok(document(
        width,
        height,
        "Connectivity between endpoints",
        &body,
    ))
}

fn legend(body: &mut String, without_node_local: bool) {
    let entries = [
        ("open", "every port"),
        ("some", "some ports"),
        ("mixed", "mixed or unknown"),
        ("none", "denied"),
    ];
    let mut x = 20.0;
    for (look, words) in entries {
        writeln!(
            body,
            "<rect class=\"cell {look}\" x=\"{x:.0}\" y=\"16\" width=\"12\" height=\"12\"/>\
             <text class=\"faint\" x=\"{:.0}\" y=\"26\">{words}</text>",
            x + 18.0
        )
        .unwrap_or_default();
        x += 34.0 + words.len() as f64 * 6.6;
    }
    let note = if without_node_local {
        format!("; {NODE_LOCAL}")
    } else {
        String::new()
    };
    writeln!(
        body,
        "<text class=\"faint\" x=\"20\" y=\"46\">rows send, columns receive{note}</text>"
    )
    .unwrap_or_default();
}
