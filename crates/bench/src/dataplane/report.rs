//! The figures of the benchmark of the dataplane, each beside the bar that it has to meet.

use std::fmt;

use anyhow::{Result, ensure};
use serde::Serialize;

use super::change::ChangeReport;
use super::denied::{self, DeniedReport};
use super::load::{LoadReport, Took};
use super::same::SameReport;
use super::traffic::{Measure, Run, percentile};
use super::variant::Kind;

/// All that is reported.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DataplaneReport {
    pub(super) kernel: String,
    /// The load averages of the machine before the traffic and after it.
    pub(super) busy: [String; 2],
    pub(super) core: usize,
    pub(super) real_time: bool,
    /// A missing capability, and its consequence.
    pub(super) notes: Vec<String>,
    pub(super) runs: usize,
    pub(super) slices: usize,
    /// The number of flows counted by the rules that allow them.
    pub(super) checked: u64,
    /// The least of all runs.
    pub(super) charged: f64,
    pub(super) traffic: Vec<Costs>,
    pub(super) flatness: Vec<Flatness>,
    pub(super) loads: Vec<LoadReport>,
    pub(super) changes: Vec<ChangeReport>,
    pub(super) denied: Vec<DeniedReport>,
    pub(super) same: Vec<SameReport>,
    pub(super) memory_source: &'static str,
}

/// What one measure costs in all variants.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Costs {
    measure: Measure,
    variants: Vec<Cost>,
}

/// What one measure costs in one variant.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cost {
    kind: Kind,
    /// The median of the runs.
    nanoseconds: f64,
    to_forwarding: Ratio,
    to_conntrack: Ratio,
    bar: Option<f64>,
}

/// How two variants compare in the same run.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ratio {
    median: f64,
    least: f64,
    most: f64,
}

/// The most policies next to the fewest.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Flatness {
    measure: Measure,
    fewest: Kind,
    most: Kind,
    ratio: Ratio,
    bar: Option<f64>,
}

const FLAT: f64 = 1.03;
const LOAD_SECONDS: f64 = 0.3;

/// The limit of a cost, relative to connection tracking alone.
fn bar(measure: Measure, kind: Kind) -> Option<f64> {
    match (measure, kind) {
        (Measure::Established(_), Kind::Policies(_)) => Some(1.05),
        (Measure::Connection(_), Kind::Policies(_)) => Some(1.08),
        (_, Kind::Forwarding | Kind::Conntrack | Kind::Without(_)) | (Measure::NewFlow, _) => None,
    }
}

/// What one variant took for a measure in each run.
fn values(runs: &[Run], measure: usize, variant: usize) -> Vec<f64> {
    let runs = runs.iter();
    let values = runs.filter_map(|run| run.nanoseconds.get(measure)?.get(variant));
    values.copied().collect()
}

impl Ratio {
    fn new(runs: &[Run], measure: usize, [of, to]: [usize; 2]) -> Ratio {
        let pairs = values(runs, measure, of).into_iter();
        let ratios = pairs.zip(values(runs, measure, to)).map(|(a, b)| a / b);
        let ratios: Vec<f64> = ratios.collect();
        Ratio {
            median: median(&ratios),
            least: percentile(ratios.clone(), 0),
            most: percentile(ratios, 100),
        }
    }
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    let at = |place: usize| values.get(place).copied().unwrap_or(0.0);
    if values.len().is_multiple_of(2) {
        (at(middle.saturating_sub(1)) + at(middle)) / 2.0
    } else {
        at(middle)
    }
}

/// What everything costs. The first variant is forwarding, the second connection tracking.
pub(super) fn costs(runs: &[Run], kinds: &[Kind]) -> Vec<Costs> {
    let measures = Measure::ALL.into_iter().enumerate();
    let costs = measures.map(|(place, measure)| {
        let variants = kinds.iter().enumerate().map(|(variant, kind)| Cost {
            kind: *kind,
            nanoseconds: median(&values(runs, place, variant)),
            to_forwarding: Ratio::new(runs, place, [variant, 0]),
            to_conntrack: Ratio::new(runs, place, [variant, 1]),
            bar: bar(measure, *kind),
        });
        Costs {
            measure,
            variants: variants.collect(),
        }
    });
    costs.collect()
}

/// How the most policies compare with the fewest.
pub(super) fn flatness(runs: &[Run], kinds: &[Kind]) -> Vec<Flatness> {
    let policies = kinds
        .iter()
        .enumerate()
        .filter_map(|(at, kind)| match kind {
            Kind::Policies(count) => Some((*count, at, *kind)),
            Kind::Forwarding | Kind::Conntrack | Kind::Without(_) => None,
        });
    let policies: Vec<(usize, usize, Kind)> = policies.collect();
    let fewest = policies.iter().min_by_key(|(count, ..)| *count);
    let most = policies.iter().max_by_key(|(count, ..)| *count);
    let (Some((_, few, fewest)), Some((_, many, most))) = (fewest, most) else {
        return Vec::new();
    };
    if few == many {
        return Vec::new();
    }
    let measures = Measure::ALL.into_iter().enumerate();
    let flatness = measures.map(|(place, measure)| Flatness {
        measure,
        fewest: *fewest,
        most: *most,
        ratio: Ratio::new(runs, place, [*many, *few]),
        bar: (measure != Measure::NewFlow).then_some(FLAT),
    });
    flatness.collect()
}

impl DataplaneReport {
    /// Ensures that every reported figure was measured: a time is positive.
    pub(super) fn check(&self) -> Result<()> {
        let is_time = |it: f64| it.is_finite() && it > 0.0;
        for costs in &self.traffic {
            for cost in &costs.variants {
                let figures = [
                    cost.nanoseconds,
                    cost.to_forwarding.median,
                    cost.to_conntrack.median,
                ];
                ensure!(
                    figures.into_iter().all(is_time),
                    "not measured: {} through {}",
                    costs.measure,
                    cost.kind
                );
            }
        }
        ensure!(
            self.runs == 0 || (self.slices > 0 && self.checked > 0),
            "no flow was checked"
        );
        let loads = self
            .loads
            .iter()
            .flat_map(|it| [(it.name, it.first), (it.name, it.swap)]);
        let changes = self.changes.iter().map(|it| (it.name, it.took));
        for (name, took) in loads.chain(changes) {
            let whole = took.kernel_seconds + took.encode_seconds;
            let is_measured = is_time(took.wall_seconds) && is_time(whole);
            ensure!(is_measured, "not measured: {name}");
        }
        let no_tables = self.loads.is_empty() && self.changes.is_empty() && self.same.is_empty();
        let no_packets = self.runs == 0 && self.denied.is_empty();
        ensure!(!(no_tables && no_packets), "no measurement is selected");
        Ok(())
    }
}

/// The bar, and whether a figure meets it.
fn against_bar(value: f64, bar: Option<f64>, digits: usize) -> String {
    match bar {
        Some(bar) if value <= bar => format!("<= {bar:.digits$}  met"),
        Some(bar) => format!("<= {bar:.digits$}  MISSED"),
        None => "none".to_owned(),
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ratio {
            median,
            least,
            most,
        } = self;
        write!(f, "{median:.3} ({least:.3} to {most:.3})")
    }
}

impl fmt::Display for DataplaneReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [before, after] = &self.busy;
        let scheduling = if self.real_time {
            "SCHED_FIFO"
        } else {
            "normal scheduling"
        };
        writeln!(
            f,
            "kernel {}, core {}, {scheduling}; load average {before} before, {after} after",
            self.kernel, self.core
        )?;
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        if self.runs > 0 {
            writeln!(
                f,
                "processor time, 10th percentile of {} slices, ratios within a run, median (least to \
                 most) of {} runs; at least {:.1} % of the time that passed was charged",
                self.slices,
                self.runs,
                self.charged * 100.0
            )?;
            writeln!(
                f,
                "{} flows through policies, each counted once by the last rule of each direction and by \
                 no other",
                self.checked
            )?;
        }
        for costs in &self.traffic {
            writeln!(f, "{}", costs.measure)?;
            let (a, b, c, d, e) = ("", "ns", "x forwarding", "x conntrack", "bar (conntrack)");
            writeln!(f, "  {a:<16}{b:>8}  {c:<24}{d:<24}{e}")?;
            for cost in &costs.variants {
                writeln!(
                    f,
                    "  {:<16}{:>8.0}  {:<24}{:<24}{}",
                    cost.kind.to_string(),
                    cost.nanoseconds,
                    cost.to_forwarding.to_string(),
                    cost.to_conntrack.to_string(),
                    against_bar(cost.to_conntrack.median, cost.bar, 2)
                )?;
            }
        }
        if let Some(first) = self.flatness.first() {
            writeln!(f, "{} next to {}", first.most, first.fewest)?;
        }
        for flat in &self.flatness {
            writeln!(
                f,
                "  {:<48}{:<24}{}",
                flat.measure.to_string(),
                flat.ratio.to_string(),
                against_bar(flat.ratio.median, flat.bar, 2)
            )?;
        }
        for load in &self.loads {
            show_load(load, f)?;
        }
        for same in &self.same {
            writeln!(f, "{same}")?;
        }
        if !self.loads.is_empty() || !self.same.is_empty() {
            writeln!(f, "kernel memory is {}", self.memory_source)?;
        }
        if !self.changes.is_empty() {
            show_changes(&self.changes, f)?;
        }
        if !self.denied.is_empty() {
            denied::show(&self.denied, f)?;
        }
        Ok(())
    }
}

fn show_changes(changes: &[ChangeReport], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let [a, b, c, d, e, g, h] = [
        "changes, 10th percentile",
        "rules",
        "commits",
        "kernel us",
        "encode us",
        "wall us",
        "bar (kernel us)",
    ];
    writeln!(f, "{a:<40}{b:>7}{c:>9}{d:>11}{e:>11}{g:>10}  {h}")?;
    for change in changes {
        let micros = |seconds: f64| seconds * 1e6;
        let Took {
            wall_seconds,
            kernel_seconds,
            encode_seconds,
        } = change.took;
        writeln!(
            f,
            "  {:<38}{:>7}{:>9}{:>11.1}{:>11.1}{:>10.1}  {}",
            change.name,
            change.rules,
            change.transactions,
            micros(kernel_seconds),
            micros(encode_seconds),
            micros(wall_seconds),
            against_bar(micros(kernel_seconds), change.bar_seconds.map(micros), 0)
        )?;
    }
    Ok(())
}

fn show_load(load: &LoadReport, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(
        f,
        "loading {} pods x {} policies, {}; quietest of {}",
        load.pods, load.policies, load.name, load.tries
    )?;
    writeln!(
        f,
        "  {:.2} MB in {} transactions; rules {}, chains {}, sets {}, elements {}; from the plan to \
         the ruleset {:.0} ms; kernel memory {:.1} MB",
        load.bytes as f64 / 1e6,
        load.transactions,
        load.size.rules,
        load.size.chains,
        load.size.sets,
        load.size.elements,
        load.lower_seconds * 1e3,
        load.memory_bytes / 1e6
    )?;
    let (a, b, c, d, e) = ("", "kernel ms", "encode ms", "wall ms", "bar (kernel ms)");
    writeln!(f, "  {a:<24}{b:>10}{c:>10}{d:>10}  {e}")?;
    let bar = Some(LOAD_SECONDS * 1e3);
    let lines = [
        ("into an empty namespace", load.first, bar),
        ("in place of another", load.swap, None),
    ];
    for (label, took, bar) in lines {
        let Took {
            wall_seconds,
            kernel_seconds,
            encode_seconds,
        } = took;
        writeln!(
            f,
            "  {label:<24}{:>10.1}{:>10.1}{:>10.1}  {}",
            kernel_seconds * 1e3,
            encode_seconds * 1e3,
            wall_seconds * 1e3,
            against_bar(kernel_seconds * 1e3, bar, 0)
        )?;
    }
    Ok(())
}
