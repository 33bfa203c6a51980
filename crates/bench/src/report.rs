//! The figures of one run of the benchmark, as a table and as JSON.

use std::fmt;

use serde::Serialize;

use crate::measure::Run;

/// All that is reported.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) inputs: Vec<Input>,
}

/// One input, and both programs on it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Input {
    pub(crate) name: &'static str,
    /// The measurement beside the bare parse.
    pub(crate) command: &'static str,
    pub(crate) files: u64,
    pub(crate) documents: u64,
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    pub(crate) bare: Summary,
    pub(crate) measured: Summary,
    /// The time of the command over that of the bare parse, each in its quietest run.
    pub(crate) ratio: f64,
}

/// The runs of one program.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Summary {
    /// The quietest run.
    pub(crate) wall_seconds: f64,
    /// User and system time of the quietest run, over all threads.
    pub(crate) cpu_seconds: f64,
    /// The largest peak of all runs.
    pub(crate) peak_bytes: u64,
    pub(crate) runs: Vec<Run>,
}

impl Summary {
    /// `None` without runs.
    pub(crate) fn new(runs: Vec<Run>) -> Option<Summary> {
        // Other work on the machine only ever adds time, so the shortest run is the nearest to it.
        let quietest = runs
            .iter()
            .min_by(|a, b| a.wall_seconds.total_cmp(&b.wall_seconds))?;
        Some(Summary {
            wall_seconds: quietest.wall_seconds,
            cpu_seconds: quietest.user_seconds + quietest.system_seconds,
            peak_bytes: runs.iter().map(|run| run.peak_bytes).max()?,
            runs,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, input) in self.inputs.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{input}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Input {
            name,
            command,
            files,
            documents,
            objects,
            ..
        } = self;
        let bytes = megabytes(self.bytes);
        writeln!(
            f,
            "{name}: {bytes:.1} MB, files {files}, documents {documents}, objects {objects}; \
             quietest of {} runs",
            self.measured.runs.len()
        )?;
        let (a, b, c, d, e) = ("", "wall s", "MB/s", "cpu s", "peak MB");
        writeln!(f, "  {a:<16}{b:>10}{c:>10}{d:>10}{e:>10}")?;
        for (label, summary) in [("bare parse", &self.bare), (command, &self.measured)] {
            let wall = summary.wall_seconds;
            let speed = bytes / wall;
            let cpu = summary.cpu_seconds;
            let peak = megabytes(summary.peak_bytes);
            writeln!(
                f,
                "  {label:<16}{wall:>10.4}{speed:>10.1}{cpu:>10.4}{peak:>10.1}"
            )?;
        }
        let ratio = self.ratio;
        let cpu = self.measured.cpu_seconds / self.bare.cpu_seconds;
        let peak = self.measured.peak_bytes as f64 / self.bare.peak_bytes as f64;
        writeln!(
            f,
            "  {:<16}{ratio:>10.3}{:>10}{cpu:>10.3}{peak:>10.3}",
            "ratio", ""
        )
    }
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
