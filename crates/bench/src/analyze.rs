//! The benchmark of reviewing a change: `palisade diff` and `palisade lint` in a cluster of stated
//! size, next to a bare parse of the same bytes in the same run.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use palisade_generate::point::{Plan, each_object};
use serde::Serialize;
use serde_json::{Value, json};

use crate::compare::{Programs, progress};
use crate::measure::{Output, Run, measure, measure_on};
use crate::produce::named;
use crate::scale::has_command;

/// The arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "\
One NetworkPolicy: the one in the middle of the list lets everyone in on one more port. One cluster-wide policy:
a new one before all others, which denies everyone a port of everyone. Each is compared with the cluster as it
was, both as lists of all objects.

Examples:
  palisade-bench analyze
  palisade-bench analyze --point S20 --runs 3")]
pub(crate) struct AnalyzeArgs {
    /// The cluster, by name as in `palisade-bench generate`
    #[arg(long, default_value = "L")]
    point: String,
    /// The number of measurements
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// The seed of the cluster
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of threads of the program
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Write the clusters to this directory, and remove them again [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The program to measure [default: palisade next to this one]
    #[arg(long, value_name = "PATH")]
    palisade: Option<PathBuf>,
    /// Print JSON, with every single run
    #[arg(long)]
    pub(crate) json: bool,
}

/// The measurements.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AnalyzeReport {
    point: String,
    runs: u32,
    threads: usize,
    /// The bare parse of one file, on one thread.
    bare: Vec<Run>,
    measured: Vec<Measured>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Measured {
    what: &'static str,
    /// The bare parses that it is compared with.
    bare_parses: u32,
    /// The maximum factor of its time.
    bar: f64,
    runs: Vec<Run>,
}

fn quietest(runs: &[Run]) -> f64 {
    let walls = runs.iter().map(|run| run.wall_seconds);
    walls.fold(f64::INFINITY, f64::min)
}

impl fmt::Display for AnalyzeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bare = quietest(&self.bare);
        writeln!(
            f,
            "{}: the quietest of {} runs, on {} threads; the bare parse of one input takes {:.3} s on one thread",
            self.point, self.runs, self.threads, bare
        )?;
        for it in &self.measured {
            let wall = quietest(&it.runs);
            let ratio = wall / (bare * f64::from(it.bare_parses));
            let peaks = it.runs.iter().map(|run| run.peak_bytes);
            writeln!(
                f,
                "  {:<34} {wall:>8.3} s  {ratio:>5.2} of the bare parse of {} (bar {:.1}: {})  {} MB",
                it.what,
                if it.bare_parses == 1 { "it" } else { "both" },
                it.bar,
                if ratio <= it.bar { "met" } else { "missed" },
                peaks.max().unwrap_or(0) / 1_000_000
            )?;
        }
        Ok(())
    }
}

/// Writes the clusters and measures.
pub(crate) fn analyze(args: &AnalyzeArgs) -> Result<AnalyzeReport> {
    let temporary = match &args.dir {
        Some(dir) => tempfile::tempdir_in(dir),
        None => tempfile::tempdir(),
    };
    let temporary = temporary.context("cannot create a temporary directory")?;
    let programs = Programs::find(args.palisade.as_deref(), temporary.path())?;
    let plan = Plan {
        seed: args.seed,
        ..named(&args.point)?
    };
    progress("writing the clusters")?;
    let [old, one, wide] = write(&plan, temporary.path())?;
    let diff = |new: &Path| -> Vec<OsString> {
        let mut it = vec!["diff".into(), old.clone().into(), new.into()];
        it.extend(["--exit-zero", "-o", "json"].map(Into::into));
        it
    };
    let mut measured = vec![
        Measured::new("diff, one NetworkPolicy", 2, 1.3),
        Measured::new("diff, one cluster-wide policy", 2, 8.0),
    ];
    let mut commands = vec![diff(&one), diff(&wide)];
    if has_command(&programs.palisade, "lint") {
        measured.push(Measured::new("lint", 1, 4.0));
        let mut lint: Vec<OsString> = vec!["lint".into(), "-f".into(), old.clone().into()];
        lint.extend(["--exit-zero", "-o", "json"].map(Into::into));
        commands.push(lint);
    }
    let mut bare = Vec::new();
    for index in 1..=args.runs {
        progress(&format!("run {index} of {}", args.runs))?;
        let parse: [OsString; 2] = ["bare-json".into(), old.clone().into()];
        bare.push(measure(&programs.own, &parse, &programs.log, Output::Logged)?.0);
        for (command, measured) in commands.iter().zip(&mut measured) {
            let threads = Some(args.threads);
            let Programs { palisade, log, .. } = &programs;
            let (run, _) = measure_on(threads, palisade, command, log, Output::Discarded)?;
            measured.runs.push(run);
        }
    }
    Ok(AnalyzeReport {
        point: args.point.clone(),
        runs: args.runs,
        threads: args.threads,
        bare,
        measured,
    })
}

impl Measured {
    fn new(what: &'static str, bare_parses: u32, bar: f64) -> Measured {
        Measured {
            what,
            bare_parses,
            bar,
            runs: Vec::new(),
        }
    }
}

/// A list of objects under construction.
struct List {
    path: PathBuf,
    out: BufWriter<File>,
    is_first: bool,
}

impl List {
    fn new(dir: &Path, name: &str) -> Result<List> {
        let path = dir.join(name);
        let file = File::create(&path);
        let file = file.with_context(|| format!("cannot write `{}`", path.display()))?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        out.write_all(br#"{"apiVersion":"v1","items":["#)?;
        Ok(List {
            path,
            out,
            is_first: true,
        })
    }

    fn add(&mut self, object: &[u8]) -> Result<()> {
        if !self.is_first {
            self.out.write_all(b",")?;
        }
        self.is_first = false;
        Ok(self.out.write_all(object)?)
    }

    fn end(mut self) -> Result<PathBuf> {
        self.out
            .write_all(b"],\"kind\":\"List\",\"metadata\":{\"resourceVersion\":\"\"}}\n")?;
        self.out.flush()?;
        Ok(self.path)
    }
}

/// The cluster, and the same with each of the two changes.
fn write(plan: &Plan, dir: &Path) -> Result<[PathBuf; 3]> {
    let mut lists = [
        List::new(dir, "old.json")?,
        List::new(dir, "one.json")?,
        List::new(dir, "wide.json")?,
    ];
    let middle = plan.network_policies / 2;
    let mut n_policies = 0;
    each_object(plan, &mut |object| {
        let bytes = serde_json::to_vec(object)?;
        let mut changed = None;
        if object.get("kind").and_then(Value::as_str) == Some("NetworkPolicy") {
            n_policies += 1;
            if n_policies == middle.max(1) {
                changed = Some(serde_json::to_vec(&opened(object))?);
            }
        }
        let [old, one, wide] = &mut lists;
        old.add(&bytes)?;
        one.add(changed.as_deref().unwrap_or(&bytes))?;
        wide.add(&bytes)
    })?;
    let [_, _, wide] = &mut lists;
    wide.add(&serde_json::to_vec(&guardrail())?)?;
    let [old, one, wide] = lists;
    Ok([old.end()?, one.end()?, wide.end()?])
}

/// A NetworkPolicy that also allows all peers on one port.
fn opened(policy: &Value) -> Value {
    let mut policy = policy.clone();
    let spec = policy.get_mut("spec").and_then(Value::as_object_mut);
    if let Some(spec) = spec {
        let types = json!(["Ingress", "Egress"]);
        spec.insert("policyTypes".to_owned(), types);
        let rules = spec.entry("ingress").or_insert_with(|| json!([]));
        if let Some(rules) = rules.as_array_mut() {
            rules.push(json!({"ports": [{"protocol": "TCP", "port": 9999}]}));
        }
    }
    policy
}

/// A policy that denies all peers one port of all pods.
fn guardrail() -> Value {
    json!({
        "apiVersion": "policy.networking.k8s.io/v1alpha2",
        "kind": "ClusterNetworkPolicy",
        "metadata": {"name": "no-ssh"},
        "spec": {
            "tier": "Admin",
            "priority": 0,
            "subject": {"namespaces": {}},
            "ingress": [{
                "action": "Deny",
                "from": [{"namespaces": {}}],
                "protocols": [{"tcp": {"destinationPort": {"number": 22}}}],
            }],
        },
    })
}
