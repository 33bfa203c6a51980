//! `palisade-campaigns packets`: compares many clusters in order.

use std::fmt;
use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use palisade_lab::privilege::RequiredPrivilege;

use super::{Compared, compare};

use palisade_lab::privilege::stay_inside;

/// Arguments of `packets`.
#[derive(Args, Clone, Debug)]
pub struct PacketsArgs {
    /// The number of packets to send
    #[arg(long, default_value_t = 1_000_000)]
    probes: u64,
    /// The seed of the first cluster
    #[arg(long, default_value_t = 1_000)]
    seed: u64,
    /// Compare the cluster of one seed, and stop
    #[arg(long, conflicts_with_all = ["probes", "seed"])]
    replay: Option<u64>,
}

/// The result of a campaign.
#[derive(Clone, Debug)]
pub struct Report {
    /// The comparison of all clusters.
    pub compared: Compared,
    seeds: (u64, u64),
    duration: Duration,
}

/// A campaign stops after this number of differences.
const MAX_DIFFERENCES: usize = 20;

/// Compares engine and kernel on clusters in order.
pub fn packets(args: &PacketsArgs) -> anyhow::Result<Report> {
    stay_inside(RequiredPrivilege::Any)?;
    let started = Instant::now();
    let first = args.replay.unwrap_or(args.seed);
    let mut all = Compared::default();
    let mut seed = first;
    let mut last_report = Instant::now();
    while all.probes < args.probes && all.differences.len() < MAX_DIFFERENCES {
        let compared = compare(seed, None).with_context(|| format!("seed {seed}"))?;
        all.add(compared);
        seed += 1;
        if args.replay.is_some() {
            break;
        }
        if last_report.elapsed() > Duration::from_secs(10) {
            last_report = Instant::now();
            let (probes, differences) = (all.probes, all.differences.len());
            // Progress only: a closed standard error is no failure.
            let _ = writeln!(
                std::io::stderr(),
                "seed {seed}: {probes} packets, {differences} differences"
            );
        }
    }
    Ok(Report {
        compared: all,
        seeds: (first, seed - 1),
        duration: started.elapsed(),
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Compared {
            clusters,
            probes,
            denied,
            unmeasured,
            differences,
        } = &self.compared;
        for difference in differences {
            writeln!(f, "seed {}: {}", difference.seed, difference.message)?;
        }
        let (first, last) = self.seeds;
        writeln!(
            f,
            "{clusters} clusters (seeds {first} to {last}) in {:.0} s",
            self.duration.as_secs_f64()
        )?;
        writeln!(
            f,
            "{probes} packets compared, {denied} of them predicted to be denied"
        )?;
        writeln!(f, "{unmeasured} flows that packets cannot measure")?;
        write!(f, "{} differences", differences.len())
    }
}
