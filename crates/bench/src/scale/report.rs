//! The figures of one run of the benchmark at scale.

use std::fmt;

use palisade_bench::allocated::Kept;
use palisade_generate::Written;
use palisade_generate::point::Plan;
use serde::Serialize;

use super::goals::Goal;
use super::step::{Engine, Fold};
use crate::measure::Run;
use crate::verdict::{Latency, Spent};

/// All that is reported.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ScaleReport {
    pub(super) seed: u64,
    pub(super) runs: u32,
    pub(super) points: Vec<Point>,
    /// Each with its twin.
    pub(super) adversaries: Vec<(Point, Point)>,
    pub(super) goals: Vec<Goal>,
}

/// One cluster; times are those of the quietest run of each step, in seconds.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Point {
    pub(super) name: String,
    pub(super) pods: u64,
    pub(super) namespaces: u64,
    pub(super) network_policies: u64,
    pub(super) admin_policies: u64,
    pub(super) objects: u64,
    pub(super) bytes: u64,
    pub(super) classes: u64,
    pub(super) address_atoms: u64,
    pub(super) port_atoms: u64,
    /// Kinds of sources and of destinations.
    pub(super) keys: (usize, usize),
    /// Ordered pairs of pods with everything allowed, everything denied, and neither.
    pub(super) pairs: [u64; 3],
    /// The bare parse in memory: what steps are compared with.
    pub(super) bare_parse: Spent,
    /// The bare parse as a process: what processes are compared with.
    pub(super) bare: Process,
    pub(super) steps: Vec<Step>,
    pub(super) latency: Latency,
    pub(super) verdicts_per_second: f64,
    pub(super) explain: Option<Process>,
    pub(super) explain_on_two: Option<Process>,
    pub(super) connectivity: Option<Process>,
    pub(super) yaml: Option<Yaml>,
    pub(super) kept: Kept,
}

/// One step of the engine.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Step {
    pub(super) name: String,
    pub(super) spent: Spent,
    /// To the bare parse, by the wall.
    pub(super) ratio: f64,
    /// To the bare parse, by processor time of all threads.
    pub(super) cpu_ratio: f64,
}

/// A process, on one thread.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Process {
    pub(super) spent: Spent,
    /// The largest of all runs.
    pub(super) peak_bytes: u64,
}

impl Process {
    /// `None` without runs.
    pub(super) fn new(runs: &[Run]) -> Option<Process> {
        let spent = runs.iter().map(|run| Spent {
            wall_seconds: run.wall_seconds,
            cpu_seconds: run.user_seconds + run.system_seconds,
        });
        Some(Process {
            spent: Spent::quietest(spent)?,
            peak_bytes: runs.iter().map(|run| run.peak_bytes).max()?,
        })
    }
}

/// Reading the cluster as block YAML, on one thread.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Yaml {
    pub(super) bytes: u64,
    pub(super) spent: Spent,
}

impl Yaml {
    pub(super) fn megabytes_per_second(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.spent.wall_seconds
    }
}

/// All runs of one cluster.
pub(super) struct Measured<'m> {
    pub(super) name: &'m str,
    pub(super) plan: &'m Plan,
    pub(super) written: Written,
    pub(super) bare_parse: Vec<Spent>,
    pub(super) bare: Process,
    pub(super) engine: Vec<Engine>,
    pub(super) read_on_two: Vec<Spent>,
    pub(super) explain: Option<Process>,
    pub(super) explain_on_two: Option<Process>,
    pub(super) connectivity: Option<Process>,
    pub(super) yaml: Option<Yaml>,
    pub(super) kept: Kept,
}

impl Point {
    /// `None` without runs.
    pub(super) fn new(measured: Measured<'_>) -> Option<Point> {
        let Measured {
            name, plan, engine, ..
        } = measured;
        let last = engine.last()?;
        let bare = Spent::quietest(measured.bare_parse.into_iter())?;
        let mut steps = Vec::new();
        let mut add = |name: &str, spent: &mut dyn Iterator<Item = Spent>| {
            steps.extend(Spent::quietest(spent).map(|spent| Step {
                name: name.to_owned(),
                spent,
                ratio: spent.wall_seconds / bare.wall_seconds,
                cpu_ratio: spent.cpu_seconds / bare.cpu_seconds,
            }));
        };
        add("read", &mut engine.iter().map(|it| it.read));
        add("read, 2 threads", &mut measured.read_on_two.into_iter());
        add("lower", &mut engine.iter().map(|it| it.lower));
        add("compile", &mut engine.iter().map(|it| it.compile));
        for Fold { threads, .. } in &last.folds {
            let folds = engine.iter().flat_map(|it| &it.folds);
            let folds = folds.filter(|it| it.threads == *threads);
            add(&fold_name(*threads), &mut folds.map(|it| it.spent));
        }
        let speeds = engine.iter().map(|it| it.verdicts_per_second);
        Some(Point {
            name: name.to_owned(),
            pods: plan.pods,
            namespaces: plan.namespaces,
            network_policies: plan.network_policies,
            admin_policies: plan.admin_policies,
            objects: measured.written.objects,
            bytes: measured.written.bytes,
            classes: last.classes,
            address_atoms: last.address_atoms,
            port_atoms: last.port_atoms,
            keys: last.keys,
            pairs: last.pairs,
            bare_parse: bare,
            bare: measured.bare,
            steps,
            latency: Latency::quietest(engine.iter().map(|it| it.latency).collect())?,
            verdicts_per_second: speeds.max_by(f64::total_cmp)?,
            explain: measured.explain,
            explain_on_two: measured.explain_on_two,
            connectivity: measured.connectivity,
            yaml: measured.yaml,
            kept: measured.kept,
        })
    }

    pub(super) fn step(&self, name: &str) -> Option<&Step> {
        self.steps.iter().find(|it| it.name == name)
    }
}

/// What the whole-cluster answer is called in reports.
pub(super) fn fold_name(threads: usize) -> String {
    match threads {
        1 => "fold, 1 thread".to_owned(),
        threads => format!("fold, {threads} threads"),
    }
}

impl fmt::Display for ScaleReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, quietest of {} runs\n", self.seed, self.runs)?;
        for point in &self.points {
            writeln!(f, "{point}")?;
        }
        if !self.adversaries.is_empty() {
            adversaries(f, &self.adversaries)?;
        }
        writeln!(f, "goals")?;
        for goal in &self.goals {
            writeln!(f, "  {goal}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {:.1} MB of JSON, objects {}, pods {}, namespaces {}, NetworkPolicies {}, \
             cluster-wide {}; classes {}, address atoms {}, port atoms {}",
            self.name,
            megabytes(self.bytes),
            self.objects,
            self.pods,
            self.namespaces,
            self.network_policies,
            self.admin_policies,
            self.classes,
            self.address_atoms,
            self.port_atoms
        )?;
        let heads = ["", "wall ms", "ratio", "cpu ms", "ratio", "peak MB"];
        let [a, b, c, d, e, g] = heads;
        writeln!(f, "  {a:<24}{b:>11}{c:>8}{d:>11}{e:>8}{g:>9}")?;
        line(f, "bare parse", self.bare_parse, self.bare_parse)?;
        writeln!(f)?;
        for step in &self.steps {
            line(f, &step.name, step.spent, self.bare_parse)?;
            writeln!(f)?;
        }
        for (name, process) in [
            ("bare process", Some(self.bare)),
            ("palisade explain", self.explain),
            ("the same, 2 threads", self.explain_on_two),
            ("palisade connectivity", self.connectivity),
        ] {
            let Some(process) = process else { continue };
            line(f, name, process.spent, self.bare.spent)?;
            writeln!(f, "{:>9.1}", megabytes(process.peak_bytes))?;
        }
        if let Some(yaml) = self.yaml {
            line(f, "read YAML, 1 thread", yaml.spent, self.bare_parse)?;
            let (size, speed) = (megabytes(yaml.bytes), yaml.megabytes_per_second());
            writeln!(f, "  ({size:.1} MB, {speed:.0} MB/s)")?;
        }
        let ([allowed, denied, mixed], (sources, destinations)) = (self.pairs, self.keys);
        writeln!(
            f,
            "  whole cluster: {allowed} pairs of pods allowed, {denied} denied, {mixed} in part; \
             {sources} kinds of sources, {destinations} of destinations"
        )?;
        let Latency { p50, p99, clock } = self.latency;
        let speed = self.verdicts_per_second / 1e6;
        writeln!(
            f,
            "  verdicts: p50 {p50} ns, p99 {p99} ns (the clock alone {clock} ns), \
             {speed:.2} million/s, {} bytes allocated",
            self.kept.verdicts
        )?;
        let Kept {
            text,
            objects,
            cluster,
            program,
            ..
        } = self.kept;
        writeln!(
            f,
            "  allocated, MB: text {:.1}, objects {:.1}, cluster {:.1}, program {:.1}",
            megabytes(text),
            megabytes(objects),
            megabytes(cluster),
            megabytes(program)
        )
    }
}

/// A line without its end.
fn line(f: &mut fmt::Formatter<'_>, name: &str, spent: Spent, bare: Spent) -> fmt::Result {
    let Spent {
        wall_seconds: wall,
        cpu_seconds: cpu,
    } = spent;
    write!(
        f,
        "  {name:<24}{:>11.2}{:>8.3}{:>11.2}{:>8.3}",
        wall * 1e3,
        wall / bare.wall_seconds,
        cpu * 1e3,
        cpu / bare.cpu_seconds
    )
}

fn adversaries(f: &mut fmt::Formatter<'_>, pairs: &[(Point, Point)]) -> fmt::Result {
    writeln!(
        f,
        "adversaries next to twins of the same size: times as ratios to the bare parse, and adversary / twin"
    )?;
    let heads = ["compile", "fold, 1 thread"];
    write!(f, "  {:<22}{:>8}{:>8}", "", "classes", "twin")?;
    for head in heads {
        write!(f, "{head:>16}{:>9}{:>8}", "twin", "ratio")?;
    }
    writeln!(
        f,
        "{:>8}{:>8}{:>10}{:>8}",
        "p50 ns", "twin", "program", "twin"
    )?;
    for (hostile, twin) in pairs {
        write!(
            f,
            "  {:<22}{:>8}{:>8}",
            hostile.name, hostile.classes, twin.classes
        )?;
        for head in heads {
            match (hostile.step(head), twin.step(head)) {
                (Some(a), Some(b)) => {
                    let ratio = a.spent.wall_seconds / b.spent.wall_seconds;
                    write!(f, "{:>16.3}{:>9.3}{ratio:>8.1}", a.ratio, b.ratio)?;
                }
                (_, _) => write!(f, "{:>16}{:>9}{:>8}", "-", "-", "-")?,
            }
        }
        let program = |point: &Point| megabytes(point.kept.program);
        writeln!(
            f,
            "{:>8}{:>8}{:>7.1} MB{:>5.1} MB",
            hostile.latency.p50,
            twin.latency.p50,
            program(hostile),
            program(twin)
        )?;
    }
    writeln!(f)
}

pub(super) fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
