//! Instructions instead of time: they hardly depend on other load of the machine, and CI can limit
//! them.
//!
//! Each part is a process under valgrind that does one step more than the part before; its count is
//! the difference. Valgrind counts the instructions of the program, not what the processor executes
//! of them in parallel.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use palisade_api::{Options, Source, lower, read};
use palisade_core::compile::compile;
use palisade_generate::flows::flows;
use palisade_generate::point::{Format, write};
use rayon::ThreadPoolBuilder;
use serde::Serialize;

use crate::compare::progress;
use crate::produce::named;
use crate::scale::fold;

/// The cluster that is counted: small, since valgrind is fifty times as slow as the processor.
const POINT: &str = "S20";

/// The number of flows.
const FLOWS: usize = 10_000;

/// The arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  palisade-bench count                       print the counts
  palisade-bench count --expect FILE         compare them with a file, and fail if one is too far off
  palisade-bench count --accept FILE         write them to the file

Needs valgrind. CI runs it with crates/bench/counts.json.")]
pub(crate) struct CountArgs {
    /// Compare with the counts in this file
    #[arg(long, value_name = "FILE", conflicts_with = "accept")]
    expect: Option<PathBuf>,
    /// Write the counts to this file
    #[arg(long, value_name = "FILE")]
    accept: Option<PathBuf>,
    /// The tolerance of a count, in percent
    #[arg(long, default_value_t = 10.0, value_name = "PERCENT")]
    tolerance: f64,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The last step of a process. Each part also does the steps of the parts before it, in the order
/// of the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Only reads the bytes of the file.
    Open,
    /// Read the objects.
    Read,
    /// Lower them.
    Lower,
    /// Compile the policies.
    Compile,
    /// Draw flows.
    Draw,
    /// Draw flows, and decide them.
    Decide,
    /// Compile, and answer for the whole cluster.
    Fold,
}

/// The counts: a name, the form of the cluster, a part, and the part before it.
const COUNTS: [(&str, Format, Part, Part); 6] = [
    ("read JSON", Format::Json, Part::Read, Part::Open),
    ("read YAML", Format::Yaml, Part::Read, Part::Open),
    ("lower", Format::Json, Part::Lower, Part::Read),
    ("compile", Format::Json, Part::Compile, Part::Lower),
    ("10,000 verdicts", Format::Json, Part::Decide, Part::Draw),
    ("whole cluster", Format::Json, Part::Fold, Part::Compile),
];

/// The counts, in instructions.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CountReport {
    point: &'static str,
    counts: BTreeMap<String, u64>,
    /// The expected counts, if a file is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<BTreeMap<String, u64>>,
}

/// Counts, and compares with or writes the file of an option.
pub(crate) fn count(args: &CountArgs) -> Result<CountReport> {
    let counts = counts()?;
    if let Some(path) = &args.accept {
        let text = serde_json::to_string_pretty(&counts)? + "\n";
        fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    let expected = args.expect.as_deref().map(expected).transpose()?;
    let report = CountReport {
        point: POINT,
        counts,
        expected,
    };
    let off = report.off(args.tolerance);
    if let (false, Some(path)) = (off.is_empty(), &args.expect) {
        let (path, list) = (path.display(), off.join(", "));
        bail!(
            "instruction counts are more than {} % above those of `{path}`: {list}\n{report}\n\
             If the change is intended, accept the new counts and state the reason in the commit:\n  \
             palisade-bench count --accept {path}",
            args.tolerance
        );
    }
    Ok(report)
}

fn expected(path: &Path) -> Result<BTreeMap<String, u64>> {
    let name = || format!("cannot read `{}`", path.display());
    let text = fs::read_to_string(path).with_context(name)?;
    serde_json::from_str(&text).with_context(name)
}

impl CountReport {
    /// The names of the counts that are too high, or missing on one side. Fewer instructions are no
    /// regression, and the count of a library varies a little with the machine.
    fn off(&self, tolerance: f64) -> Vec<&str> {
        let Some(expected) = &self.expected else {
            return Vec::new();
        };
        let mut names: Vec<&str> = Vec::new();
        for (name, count) in &self.counts {
            let near = expected
                .get(name)
                .is_some_and(|expected| percent(*count, *expected) <= tolerance);
            if !near {
                names.push(name);
            }
        }
        let missing = expected
            .keys()
            .filter(|name| !self.counts.contains_key(*name));
        names.extend(missing.map(String::as_str));
        names
    }
}

fn percent(count: u64, expected: u64) -> f64 {
    (count as f64 / expected as f64 - 1.0) * 100.0
}

impl fmt::Display for CountReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "instructions at {}", self.point)?;
        for (name, count) in &self.counts {
            write!(f, "  {name:<18}{count:>14}")?;
            let expected = self.expected.as_ref().and_then(|it| it.get(name));
            match expected {
                Some(expected) => {
                    let change = percent(*count, *expected);
                    writeln!(f, "{expected:>14} expected{change:>+9.2} %")?;
                }
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}

fn counts() -> Result<BTreeMap<String, u64>> {
    let dir = tempfile::tempdir().context("cannot create a temporary directory")?;
    let mut totals: Vec<((Format, Part), u64)> = Vec::new();
    let mut total = |format: Format, part: Part| -> Result<u64> {
        let key = (format, part);
        if let Some((_, total)) = totals.iter().find(|(known, _)| *known == key) {
            return Ok(*total);
        }
        let total = instructions(&input(dir.path(), format)?, part)?;
        totals.push((key, total));
        Ok(total)
    };
    let mut counts = BTreeMap::new();
    for (name, format, part, before) in COUNTS {
        progress(name)?;
        let count = total(format, part)?.saturating_sub(total(format, before)?);
        counts.insert(name.to_owned(), count);
    }
    Ok(counts)
}

/// The file of the cluster, written if it is not there yet.
fn input(dir: &Path, format: Format) -> Result<PathBuf> {
    let path = dir.join(match format {
        Format::Json => "cluster.json",
        Format::Yaml => "cluster.yaml",
    });
    if !path.exists() {
        let mut out = BufWriter::new(File::create(&path)?);
        write(&named(POINT)?, format, &mut out)?;
    }
    Ok(path)
}

/// The instructions of one process.
fn instructions(file: &Path, part: Part) -> Result<u64> {
    let own = std::env::current_exe().context("cannot find this program")?;
    let part = part.to_possible_value().context("a part without a name")?;
    let output = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=no", "--branch-sim=no"])
        .arg("--cachegrind-out-file=/dev/null")
        .arg(own)
        .arg("counted")
        .arg(file)
        .arg(part.get_name())
        .output()
        .context("cannot start valgrind")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("valgrind failed with {}:\n{stderr}", output.status);
    }
    parsed(&stderr).with_context(|| format!("valgrind printed no count:\n{stderr}"))
}

/// The number after `I refs:` or, in newer versions, `I refs:`.
fn parsed(stderr: &str) -> Option<u64> {
    let line = stderr.lines().find(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.windows(2).any(|pair| pair == ["I", "refs:"])
    })?;
    let number = line.rsplit(':').next()?.trim().replace(',', "");
    number.parse().ok()
}

/// The process that is counted. It frees no memory before its end: freeing belongs to none of the
/// counted parts.
pub(crate) fn counted(file: &Path, part: Part) -> Result<()> {
    let bytes = fs::read(file).with_context(|| format!("cannot read `{}`", file.display()))?;
    let sources = [Source::new("cluster", bytes)];
    // A second thread would spin while it waits, not always as often.
    let pool = ThreadPoolBuilder::new().num_threads(1);
    let pool = pool.use_current_thread().build()?;
    pool.install(|| {
        if part == Part::Open {
            return;
        }
        let manifests = read(&sources, Options::default(), &|_| {});
        if part != Part::Read {
            let lowered = lower(&manifests.objects, Vec::new());
            if part != Part::Lower {
                let program = compile(&lowered.cluster);
                match part {
                    Part::Draw | Part::Decide => {
                        let drawn = flows(&lowered.cluster, &program, 1, FLOWS);
                        if part == Part::Decide {
                            for flow in &drawn {
                                std::hint::black_box(program.decide(flow));
                            }
                        }
                        std::mem::forget(drawn);
                    }
                    Part::Fold => {
                        std::hint::black_box(fold(&lowered.cluster, &program));
                    }
                    Part::Open | Part::Read | Part::Lower | Part::Compile => {}
                }
                std::mem::forget(program);
            }
            std::mem::forget(lowered);
        }
        std::mem::forget(manifests);
    });
    std::mem::forget(sources);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_valgrinds_answer_are_read() {
        let older = "==7== Cachegrind, a cache profiler\n==7== I   refs:      1,234,567\n";
        assert_eq!(parsed(older), Some(1_234_567));
        assert_eq!(parsed("==7== I refs:        89,012"), Some(89_012));
        assert_eq!(parsed("==7== D refs: 1"), None);
    }

    #[test]
    fn a_count_may_be_higher_by_the_tolerance_only() {
        let map = |pairs: &[(&str, u64)]| {
            let pairs = pairs
                .iter()
                .map(|(name, count)| ((*name).to_owned(), *count));
            pairs.collect::<BTreeMap<String, u64>>()
        };
        let report = CountReport {
            point: POINT,
            counts: map(&[("near", 104), ("more", 106), ("fewer", 94), ("new", 1)]),
            expected: Some(map(&[
                ("near", 100),
                ("more", 100),
                ("fewer", 100),
                ("deleted", 1),
            ])),
        };
        assert_eq!(report.off(5.0), ["more", "new", "deleted"]);
    }
}
