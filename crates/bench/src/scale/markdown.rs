//! The figures as tables for docs/operations/performance.md.

use std::fmt::Write as _;

use super::report::{Point, Process, ScaleReport, fold_name, megabytes};

/// All tables, each under the name of its section.
pub(crate) fn markdown(report: &ScaleReport) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "Seed {}, quietest of {} runs.\n",
        report.seed, report.runs
    );
    text.push_str("## Goals\n\n");
    goals(&mut text, report);
    text.push_str("## How cost grows\n\n");
    times(&mut text, &report.points);
    verdicts(&mut text, &report.points);
    text.push_str("## Memory\n\n");
    memory(&mut text, &report.points);
    if !report.adversaries.is_empty() {
        text.push_str("## Expensive policies\n\n");
        adversaries(&mut text, &report.adversaries);
    }
    text
}

fn goals(text: &mut String, report: &ScaleReport) {
    head(text, &["", "bar", "reached", ""]);
    for goal in &report.goals {
        let met = match goal.met {
            Some(true) => "met",
            Some(false) => "**missed**",
            None => "not measured here",
        };
        row(
            text,
            &[goal.id, goal.bar, &goal.measured, met].map(str::to_owned),
        );
    }
    text.push('\n');
}

fn times(text: &mut String, points: &[Point]) {
    head(
        text,
        &[
            "",
            "MB of JSON",
            "bare parse",
            "read",
            "lower",
            "compile",
            "whole cluster, 1 thread",
            "2 threads",
            "`explain`",
            "2 threads",
            "`connectivity --summary`",
            "YAML, MB/s",
        ],
    );
    for point in points {
        let mut cells = vec![
            point.name.clone(),
            format!("{:.1}", megabytes(point.bytes)),
            format!("{:.1} ms", point.bare_parse.wall_seconds * 1e3),
        ];
        for step in ["read", "lower", "compile", &fold_name(1), &fold_name(2)] {
            let step = point.step(step);
            cells.push(cell(step, |it| format!("{:.2}", it.ratio)));
        }
        let of_bare = |it: &Process| {
            format!(
                "{:.2}",
                it.spent.wall_seconds / point.bare.spent.wall_seconds
            )
        };
        cells.push(cell(point.explain.as_ref(), of_bare));
        cells.push(cell(point.explain_on_two.as_ref(), of_bare));
        cells.push(cell(point.connectivity.as_ref(), of_bare));
        cells.push(cell(point.yaml.as_ref(), |it| {
            format!("{:.0}", it.megabytes_per_second())
        }));
        row(text, &cells);
    }
    text.push('\n');
}

fn verdicts(text: &mut String, points: &[Point]) {
    head(
        text,
        &[
            "",
            "classes",
            "address atoms",
            "port atoms",
            "kinds of sources",
            "of destinations",
            "p50 ns",
            "p99 ns",
            "million/s",
            "bytes allocated",
        ],
    );
    for point in points {
        row(
            text,
            &[
                point.name.clone(),
                point.classes.to_string(),
                point.address_atoms.to_string(),
                point.port_atoms.to_string(),
                point.keys.0.to_string(),
                point.keys.1.to_string(),
                point.latency.p50.to_string(),
                point.latency.p99.to_string(),
                format!("{:.2}", point.verdicts_per_second / 1e6),
                point.kept.verdicts.to_string(),
            ],
        );
    }
    text.push('\n');
}

fn memory(text: &mut String, points: &[Point]) {
    head(
        text,
        &[
            "MB",
            "text",
            "objects",
            "cluster",
            "program",
            "peak of the bare parse",
            "peak of `explain`",
            "peak of `connectivity --summary`",
        ],
    );
    for point in points {
        let kept = point.kept;
        let mut cells = vec![point.name.clone()];
        for bytes in [kept.text, kept.objects, kept.cluster, kept.program] {
            cells.push(format!("{:.1}", megabytes(bytes)));
        }
        let processes = [
            Some(&point.bare),
            point.explain.as_ref(),
            point.connectivity.as_ref(),
        ];
        for process in processes {
            cells.push(cell(process, |it| {
                format!("{:.0}", megabytes(it.peak_bytes))
            }));
        }
        row(text, &cells);
    }
    text.push('\n');
}

fn adversaries(text: &mut String, pairs: &[(Point, Point)]) {
    head(
        text,
        &[
            "",
            "classes",
            "twin",
            "compile",
            "twin",
            "whole cluster",
            "twin",
            "p50 ns",
            "twin",
            "program MB",
            "twin",
        ],
    );
    for (hostile, twin) in pairs {
        let mut cells = vec![hostile.name.clone()];
        let mut both = |of: &dyn Fn(&Point) -> String| cells.extend([of(hostile), of(twin)]);
        both(&|point| point.classes.to_string());
        for step in ["compile", &fold_name(1)] {
            both(&|point| cell(point.step(step), |it| format!("{:.2}", it.ratio)));
        }
        both(&|point| point.latency.p50.to_string());
        both(&|point| format!("{:.1}", megabytes(point.kept.program)));
        row(text, &cells);
    }
    text.push('\n');
}

fn cell<T>(value: Option<T>, words: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), words)
}

/// The head of a table.
pub(crate) fn head(text: &mut String, cells: &[&str]) {
    let _ = writeln!(text, "| {} |", cells.join(" | "));
    let _ = writeln!(text, "|{}", "---|".repeat(cells.len()));
}

/// A row of a table.
pub(crate) fn row(text: &mut String, cells: &[String]) {
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}
