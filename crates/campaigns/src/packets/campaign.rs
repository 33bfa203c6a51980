//! Many clusters, one after the other: `palisade-campaigns packets`.

use std::fmt;
use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use palisade_lab::privilege::RequiredPrivilege;

use super::{Compared, compare};

use palisade_lab::privilege::stay_inside;

/// What to compare.
#[derive(Args, Clone, Debug)]
pub struct PacketsArgs {
    /// Go on until so many packets were sent
    #[arg(long, default_value_t = 1_000_000)]
    probes: u64,
    /// The seed of the first cluster
    #[arg(long, default_value_t = 1_000)]
    seed: u64,
    /// Compare the cluster of one seed, and stop
    #[arg(long, conflicts_with_all = ["probes", "seed"])]
    replay: Option<u64>,
}

/// What a campaign came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// Everything that was compared.
    pub compared: Compared,
    seeds: (u64, u64),
    took: Duration,
}

/// A campaign that finds so many differences stops.
const ENOUGH: usize = 20;

/// Compares engine and kernel on one cluster after the other.
pub fn packets(args: &PacketsArgs) -> anyhow::Result<Report> {
    stay_inside(RequiredPrivilege::Any)?;
    let started = Instant::now();
    let first = args.replay.unwrap_or(args.seed);
    let mut all = Compared::default();
    let mut seed = first;
    let mut told = Instant::now();
    while all.probes < args.probes && all.differences.len() < ENOUGH {
        let compared = compare(seed, None).with_context(|| format!("seed {seed}"))?;
        all.add(compared);
        seed += 1;
        if args.replay.is_some() {
            break;
        }
        if told.elapsed() > Duration::from_secs(10) {
            told = Instant::now();
            let (probes, differences) = (all.probes, all.differences.len());
            // With standard error closed there is nobody to tell.
            let _ = writeln!(
                std::io::stderr(),
                "seed {seed}: {probes} packets, {differences} differences"
            );
        }
    }
    Ok(Report {
        compared: all,
        seeds: (first, seed - 1),
        took: started.elapsed(),
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Compared {
            clusters,
            probes,
            denied,
            unshown,
            differences,
        } = &self.compared;
        for difference in differences {
            writeln!(f, "seed {}: {}", difference.seed, difference.words)?;
        }
        let (first, last) = self.seeds;
        writeln!(
            f,
            "{clusters} clusters (seeds {first} to {last}) in {:.0} s",
            self.took.as_secs_f64()
        )?;
        writeln!(
            f,
            "{probes} packets compared, {denied} of them to be denied"
        )?;
        writeln!(f, "{unshown} flows that packets cannot show")?;
        write!(f, "{} differences", differences.len())
    }
}
