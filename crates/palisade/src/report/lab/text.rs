//! The text report of a lab: the matrix, and the differences between predictions and packets.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use palisade_core::answer::FlowVerdict;

use super::{Probe, Round, RoundChange};
use crate::draw::{clean, counted};
use crate::report::flow::NamedFlow;

/// A matrix with more rows or columns is not drawn.
const MOST_DRAWN: usize = 60;
/// The most differences that are listed.
const MOST_LISTED: usize = 20;

/// The results of all probes from one endpoint to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cell {
    allowed: usize,
    others: usize,
    differences: usize,
    /// Whether it changed since the previous round.
    changed: bool,
}

/// The mark of a change, also without colours.
const CHANGED: &str = "*";

impl Cell {
    /// Returns the sign, after room for the mark of a change.
    fn drawn(self) -> String {
        let style = anstyle::Style::new().bold();
        match (self.changed, self.sign()) {
            (true, sign) => format!("{style}{CHANGED}{sign}{style:#}"),
            (false, sign) => format!(" {sign}"),
        }
    }

    fn sign(self) -> char {
        match self {
            Cell {
                differences: 1.., ..
            } => '!',
            Cell {
                allowed: 0,
                others: 0,
                ..
            } => ' ',
            Cell { others: 0, .. } => '+',
            Cell { allowed: 0, .. } => '-',
            Cell { .. } => 'o',
        }
    }
}

/// Formats the report, after the change since the previous round.
pub(crate) fn text(
    round: &Round,
    change: Option<&RoundChange>,
    every_flow: bool,
    quiet: bool,
) -> String {
    let mut text = String::new();
    let probes = &round.probes;
    if let Some(change) = change {
        let _ = writeln!(text, "{}\n", change.headline(round));
    }
    if every_flow {
        lines(&mut text, probes);
    } else {
        drawing(&mut text, probes);
        differences(&mut text, probes);
        unmeasured(&mut text, probes);
    }
    if !quiet {
        summary(&mut text, round);
    }
    text
}

fn lines(text: &mut String, probes: &[Probe]) {
    let _ = writeln!(text, "{:<9}  {:<9}  FLOW", "PREDICTED", "MEASURED");
    for probe in probes {
        let measured = probe.measured.map_or("-", FlowVerdict::name);
        let mark = match (probe.differs, probe.unanswered) {
            (true, true) => "   <- differs: the packet arrived, but its reply did not",
            (true, false) => "   <- differs",
            (false, _) => "",
        };
        let was = probe
            .was
            .map(|was| format!("   {CHANGED} was {}", was.name()));
        let was = was.unwrap_or_default();
        let _ = writeln!(
            text,
            "{:<9}  {measured:<9}  {}{mark}{was}",
            probe.predicted.name(),
            probe.flow.query_text()
        );
        if let Some(error) = &probe.error {
            let _ = writeln!(text, "{:22} not measured: {}", "", clean(error));
        }
    }
    text.push('\n');
}

fn drawing(text: &mut String, probes: &[Probe]) {
    let shown = || probes.iter().filter(|it| it.measured.is_some());
    let columns = distinct(shown().map(|probe| probe.flow.destination.as_str()));
    let sources = distinct(shown().map(|probe| probe.flow.source.as_str()));
    if columns.len() > MOST_DRAWN || sources.len() > MOST_DRAWN {
        return;
    }
    // An endpoint that is both a source and a destination has the same position in both.
    let in_both = columns.iter().copied().filter(|it| sources.contains(it));
    let others = sources.iter().copied().filter(|it| !columns.contains(it));
    let rows: Vec<&str> = in_both.chain(others).collect();
    let mut cells: HashMap<(&str, &str), Cell> = HashMap::new();
    for probe in shown() {
        let key = (probe.flow.source.as_str(), probe.flow.destination.as_str());
        let cell = cells.entry(key).or_default();
        cell.differences += usize::from(probe.differs);
        cell.changed |= probe.was.is_some();
        match probe.measured {
            Some(FlowVerdict::Allow) => cell.allowed += 1,
            Some(FlowVerdict::Mixed) => {
                cell.allowed += 1;
                cell.others += 1;
            }
            Some(FlowVerdict::Deny | FlowVerdict::Unknown) | None => cell.others += 1,
        }
    }
    let width = rows.iter().map(|name| clean(name).chars().count());
    let width = width.max().unwrap_or(0);
    let legend = "from \\ to: + all allowed   - all denied   o some   ! prediction differs";
    let changed = if cells.values().any(|it| it.changed) {
        format!("   {CHANGED} changed")
    } else {
        String::new()
    };
    let _ = writeln!(text, "{legend}{changed}\n");
    for (number, name) in columns.iter().enumerate() {
        let bars = " |".repeat(number);
        let _ = writeln!(text, "{:width$}{bars} {}", "", clean(name));
    }
    for row in rows {
        let signs = columns.iter().map(|column| {
            let cell = cells.get(&(row, *column)).copied().unwrap_or_default();
            cell.drawn()
        });
        let signs: String = signs.collect();
        let _ = writeln!(text, "{:<width$}{}", clean(row), signs.trim_end());
    }
    text.push('\n');
}

/// Returns each name once, in the order of first occurrence.
fn distinct<'p>(names: impl Iterator<Item = &'p str>) -> Vec<&'p str> {
    let mut names_so_far = HashSet::new();
    names.filter(|name| names_so_far.insert(*name)).collect()
}

fn differences(text: &mut String, probes: &[Probe]) {
    let different: Vec<&Probe> = probes.iter().filter(|probe| probe.differs).collect();
    for probe in different.iter().take(MOST_LISTED) {
        let measured = probe.measured.map_or("-", FlowVerdict::name);
        let note = if probe.unanswered {
            " (the packet arrived, but its reply did not)"
        } else {
            ""
        };
        let _ = writeln!(
            text,
            "differs: {}: predicted {}, measured {measured}{note}",
            probe.flow.query_text(),
            probe.predicted.name()
        );
    }
    if different.len() > MOST_LISTED {
        let _ = writeln!(
            text,
            "and {} more; -o wide shows all",
            different.len() - MOST_LISTED
        );
    }
    if !different.is_empty() {
        text.push('\n');
    }
}

/// Lists the flows without a measurement, once for each reason.
fn unmeasured(text: &mut String, probes: &[Probe]) {
    let mut reasons: Vec<(&str, Vec<&NamedFlow>)> = Vec::new();
    for probe in probes.iter().filter(|it| it.measured.is_none()) {
        let reason = probe
            .error
            .as_deref()
            .unwrap_or("not measurable with packets");
        match reasons.iter_mut().find(|(it, _)| *it == reason) {
            Some((_, flows)) => flows.push(&probe.flow),
            None => reasons.push((reason, vec![&probe.flow])),
        }
    }
    for (reason, flows) in reasons.iter().take(MOST_LISTED) {
        let Some(first) = flows.first() else { continue };
        let more = match flows.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let (flow, reason) = (first.query_text(), clean(reason));
        let _ = writeln!(text, "not measured: {flow}{more}: {reason}");
    }
    if reasons.len() > MOST_LISTED {
        let more = reasons.len() - MOST_LISTED;
        let _ = writeln!(text, "and {more} more reasons; -o wide shows all");
    }
    if !reasons.is_empty() {
        text.push('\n');
    }
}

fn summary(text: &mut String, round: &Round) {
    let probes = &round.probes;
    let took = round.built.as_secs_f64();
    let made = if round.is_built {
        format!("built in {took:.1} s")
    } else {
        format!("policies changed in {took:.2} s")
    };
    let count = |verdict: FlowVerdict| {
        probes
            .iter()
            .filter(|it| it.measured == Some(verdict))
            .count()
    };
    let unmeasured = probes.iter().filter(|it| it.measured.is_none()).count();
    let different = round.n_differences();
    let measured = probes.len() - unmeasured;
    let _ = writeln!(
        text,
        "{} on {}, {made}; {} measured with packets in {:.1} s",
        counted(round.n_pods, "pod"),
        counted(round.n_nodes, "node"),
        counted(measured, "flow"),
        round.probed.as_secs_f64(),
    );
    let mut parts = vec![
        format!("{} allowed", count(FlowVerdict::Allow)),
        format!("{} denied", count(FlowVerdict::Deny)),
    ];
    if count(FlowVerdict::Mixed) > 0 {
        parts.push(format!("{} mixed", count(FlowVerdict::Mixed)));
    }
    if unmeasured > 0 {
        parts.push(format!("{unmeasured} not measured"));
    }
    let verdict = match different {
        0 if measured > 0 => "all predictions match the packets".to_owned(),
        0 => "no flow was measured".to_owned(),
        1 => "1 prediction does not match the packets".to_owned(),
        n => format!("{n} predictions do not match the packets"),
    };
    let _ = writeln!(text, "{}; {verdict}", parts.join(", "));
}
