//! Palisade next to netpol-analyzer: the same manifests, the same query, and every answer compared.

mod answers;
mod cluster;
mod differences;
mod report;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use self::answers::{Answers, Sets};
use self::cluster::{Cluster, write};
use self::differences::differences;
use self::report::{PeersReport, Round};
use crate::compare::{Programs, progress};
use crate::measure::{Output, Run, measure};
use crate::report::Summary;
use crate::scale::has_command;

/// The arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  palisade-bench peers --netpol-analyzer ./netpol-analyzer
  palisade-bench peers --netpol-analyzer ./netpol-analyzer --workloads 100 --admin-policies 20 --runs 1

netpol-analyzer is built from its public source:
  git clone https://github.com/np-guard/netpol-analyzer && cd netpol-analyzer
  go build -o netpol-analyzer ./cmd/netpolicy

It takes 80 s for 1,000 workloads on a quiet machine.")]
pub(crate) struct PeersArgs {
    /// The netpol-analyzer program
    #[arg(long, value_name = "PATH")]
    netpol_analyzer: PathBuf,
    /// The numbers of workloads, one pod each; half as many NetworkPolicies, a tenth as many
    /// namespaces
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "100,300,1000",
        value_name = "N"
    )]
    workloads: Vec<u64>,
    /// The number of AdminNetworkPolicies
    #[arg(long, default_value_t = 0)]
    admin_policies: u64,
    /// The number of runs of each program on each input
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// The program to measure [default: palisade next to this one]
    #[arg(long, value_name = "PATH")]
    palisade: Option<PathBuf>,
    /// The seed of the inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of printed differences of each class
    #[arg(long, default_value_t = 5)]
    show: usize,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the table of docs/operations/performance.md
    #[arg(long, conflicts_with = "json")]
    pub(crate) markdown: bool,
}

/// Measures both programs and compares their answers.
pub(crate) fn peers(args: &PeersArgs) -> Result<PeersReport> {
    ensure!(
        args.netpol_analyzer.is_file(),
        "`{}` does not exist",
        args.netpol_analyzer.display()
    );
    let temporary = tempfile::tempdir().context("cannot create a temporary directory")?;
    let programs = Programs::find(args.palisade.as_deref(), temporary.path())?;
    let can_answer = has_command(&programs.palisade, "connectivity");
    let mut rounds = Vec::new();
    for &workloads in &args.workloads {
        let dir = temporary.path().join(format!("cluster-{workloads}"));
        progress(&format!("writing {workloads} workloads"))?;
        let cluster = write(&dir, args.seed, workloads, args.admin_policies)?;
        rounds.push(round(args, &programs, (&dir, &cluster), can_answer)?);
    }
    Ok(PeersReport {
        seed: args.seed,
        rounds,
    })
}

fn round(
    args: &PeersArgs,
    programs: &Programs,
    (dir, cluster): (&Path, &Cluster),
    can_answer: bool,
) -> Result<Round> {
    let workloads = cluster.pods.len() as u64;
    let peer_args = ["list", "--dirpath"].map(OsString::from).into_iter();
    let peer_args: Vec<OsString> = peer_args
        .chain([dir.into()])
        .chain(["-q", "-o", "csv"].map(OsString::from))
        .collect();
    let own_args: Vec<OsString> = ["connectivity", "-f"]
        .map(OsString::from)
        .into_iter()
        .chain([dir.into()])
        .chain(["--pairs", "-o", "csv", "-q"].map(OsString::from))
        .collect();
    let block_args: Vec<OsString> = ["connectivity", "-f"]
        .map(OsString::from)
        .into_iter()
        .chain([dir.into()])
        .chain(["-o", "json", "-q"].map(OsString::from))
        .collect();
    let (mut peer, mut own): (Vec<Run>, Vec<Run>) = (Vec::new(), Vec::new());
    let mut blocks: Vec<Run> = Vec::new();
    let mut sets = Sets::default();
    let mut found = Vec::new();
    let mut compared = 0;
    for index in 1..=args.runs {
        progress(&format!(
            "{workloads} workloads: run {index} of {}",
            args.runs
        ))?;
        let own_text = if can_answer {
            let (run, text) =
                measure(&programs.palisade, &own_args, &programs.log, Output::Logged)?;
            own.push(run);
            let palisade = &programs.palisade;
            let (run, _) = measure(palisade, &block_args, &programs.log, Output::Logged)?;
            blocks.push(run);
            Some(text)
        } else {
            None
        };
        let analyzer = &args.netpol_analyzer;
        let (run, peer_text) = measure(analyzer, &peer_args, &programs.log, Output::Logged)?;
        peer.push(run);
        // All runs print the same.
        if let (1, Some(own_text)) = (index, own_text) {
            progress("comparing the answers")?;
            let ours = Answers::ours(&own_text, cluster, &mut sets)?;
            let theirs = Answers::theirs(&peer_text, cluster, &mut sets)?;
            (compared, found) = differences(cluster, &ours, &theirs, &sets);
        }
    }
    Ok(Round {
        workloads,
        network_policies: cluster.network_policies,
        admin_policies: cluster.admin_policies,
        bytes: cluster.bytes,
        netpol_analyzer: Summary::new(peer).context("no runs")?,
        palisade: Summary::new(own),
        blocks: Summary::new(blocks),
        compared,
        differences: report::by_class(&found, args.show),
    })
}
