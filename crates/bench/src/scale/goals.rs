//! The goals, and whether they are met.

use std::fmt;

use serde::Serialize;

use super::report::{Point, Process, fold_name, megabytes};

/// The cluster of the goals.
const TARGET: &str = "L";

/// A goal, and its measurement.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Goal {
    pub(super) id: &'static str,
    pub(super) bar: &'static str,
    pub(super) measured: String,
    /// Absent if it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) met: Option<bool>,
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let met = match self.met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "not measured",
        };
        write!(
            f,
            "{:<4}{met:<14}{} (bar: {})",
            self.id, self.measured, self.bar
        )
    }
}

/// All goals, at their cluster or, without it, at the largest that was measured.
pub(super) fn goals(points: &[Point]) -> Vec<Goal> {
    let at = points.iter().find(|it| it.name == TARGET);
    let Some(at) = at.or_else(|| points.iter().max_by_key(|it| it.bytes)) else {
        return Vec::new();
    };
    let ratio_of = |process: &Process| process.spent.wall_seconds / at.bare.spent.wall_seconds;
    let compile = at.step("compile").map(|it| it.ratio);
    let fold = at.step(&fold_name(1)).map(|it| it.ratio);
    let (p50, p99, bytes) = (at.latency.p50, at.latency.p99, at.kept.verdicts);
    let speed = at.yaml.map(|yaml| yaml.megabytes_per_second());
    let engine = megabytes(at.kept.cluster + at.kept.program);
    let name = &at.name;
    vec![
        goal(
            "G1",
            "`palisade explain` <= 1.3 of the bare parse on one thread",
            at.explain_on_two.as_ref().map(ratio_of),
            |ratio| {
                let on_one = at.explain.as_ref().map_or(0.0, ratio_of);
                let measured = format!("{ratio:.2} on two threads, {on_one:.2} on one, at {name}");
                (measured, ratio <= 1.3)
            },
            "no run",
        ),
        goal(
            "G2",
            "compile <= 0.25 of the bare parse",
            compile,
            |ratio| (format!("{ratio:.2} at {name}"), ratio <= 0.25),
            "no run",
        ),
        goal(
            "G3",
            "a verdict p50 <= 100 ns, p99 <= 1 us, no allocation",
            Some(()),
            |()| {
                (
                    format!("p50 {p50} ns, p99 {p99} ns, {bytes} bytes at {name}"),
                    p50 <= 100 && p99 <= 1_000 && bytes == 0,
                )
            },
            "no run",
        ),
        goal(
            "G4",
            "the whole cluster <= 4 of the bare parse on one thread",
            fold,
            |ratio| (format!("{ratio:.2} at {name}"), ratio <= 4.0),
            "not measured with one thread",
        ),
        goal(
            "G5",
            "block YAML >= 400 MB/s on one thread",
            speed,
            |speed| (format!("{speed:.0} MB/s at {name}"), speed >= 400.0),
            "no run",
        ),
        goal(
            "G6",
            "a pod event p50 <= 1 us, a policy event p50 <= 100 us",
            None::<()>,
            |()| (String::new(), false),
            "`palisade-bench live` measures it",
        ),
        goal(
            "G7",
            "cluster and program <= 64 MB",
            Some(engine),
            |engine| (format!("{engine:.1} MB at {name}"), engine <= 64.0),
            "no run",
        ),
        goal(
            "G8",
            ">= 1,000 times as fast as netpol-analyzer at 1,000 workloads",
            None::<()>,
            |()| (String::new(), false),
            "`palisade-bench peers` measures it",
        ),
    ]
}

fn goal<T>(
    id: &'static str,
    bar: &'static str,
    found: Option<T>,
    compare: impl FnOnce(T) -> (String, bool),
    absent: &str,
) -> Goal {
    let (measured, met) = match found.map(compare) {
        Some((measured, met)) => (measured, Some(met)),
        None => (absent.to_owned(), None),
    };
    Goal {
        id,
        bar,
        measured,
        met,
    }
}
