//! One agent with a real API server full of objects: the time to start, its memory, the cost of
//! events, and the time from a write to the kernel.
//!
//! There are no kubelets: pods are only objects. Server, agent and writer share one isolated
//! network namespace.

mod churn;
mod fill;
mod process;
mod programming;
mod report;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use palisade_lab::privilege::RequiredPrivilege;
use palisade_testbed::{Api, Options};

use self::churn::churn;
use self::fill::fill;
use self::process::Agent;
use self::programming::{WrittenKind, programmed};
pub use self::report::ServedReport;
use crate::writer::Writer;
use palisade_generate::point::NODE;
use palisade_generate::point::Plan;
use palisade_lab::privilege::stay_inside;

/// The size of a measurement.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  palisade-e2e served
  palisade-e2e served --pods 10000 --policies 2000 --runs 10 --seconds 0

Needs root and the programs of the testbed (`palisade-testbed build`).")]
pub struct ServedArgs {
    /// The program to measure [default: the one beside this]
    #[arg(long, value_name = "PATH")]
    pub palisade: Option<PathBuf>,
    /// The number of pods
    #[arg(long, default_value_t = 100_000)]
    pub pods: u64,
    /// The number of NetworkPolicies; a twentieth as many cluster-wide policies are added
    #[arg(long, default_value_t = 20_000)]
    pub policies: u64,
    /// The average number of pods of a node
    #[arg(long, default_value_t = 110, value_parser = clap::value_parser!(u64).range(1..))]
    pub pods_per_node: u64,
    /// So long a hundred pods a second change
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
    /// The number of measurements of the time to the kernel
    #[arg(long, default_value_t = 1)]
    pub runs: usize,
    /// The number of objects of each kind that a run writes
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    pub writes: u64,
    /// The seed of the cluster and of the written objects
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Measures everything.
pub fn served(args: &ServedArgs) -> Result<ServedReport> {
    stay_inside(RequiredPrivilege::Root)?;
    let palisade = match &args.palisade {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("palisade"),
    };
    let mut plan = Plan::new(
        args.pods,
        (args.pods / 10).max(1),
        args.policies,
        args.policies / 20,
    );
    plan.seed = args.seed;
    plan.spread.pods_per_node = Some(args.pods_per_node);
    plan.spread.service_percent = 0;

    let options = Options {
        server: vec![
            // Half a million requests need not be written down.
            "--audit-log-path=".to_owned(),
            // These pods never run.
            "--disable-admission-plugins=ServiceAccount,PodSecurity".to_owned(),
        ],
    };
    let api = Api::start(&options)?;
    define_kinds(&api, &palisade)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let writer = runtime.block_on(Writer::new(&api.kubeconfig()))?;

    let bare = {
        let agent = Agent::start(&palisade, &api.kubeconfig(), NODE)?;
        agent.settled()?
    };
    let filled = runtime.block_on(fill(&writer, &plan))?;
    let agent = Agent::start(&palisade, &api.kubeconfig(), NODE)?;
    let started = agent.settled()?;
    let mut report = ServedReport::new(&plan, &filled, bare, started);
    for run in 0..args.runs {
        for kind in WrittenKind::ALL {
            let seed = args.seed.wrapping_add(run as u64);
            let times = runtime.block_on(programmed(&writer, &filled, kind, args.writes, seed))?;
            report.programmed(run, kind, &times);
        }
    }
    if args.seconds > 0 {
        let churn = churn(&runtime, &writer, &agent, &filled, args.seconds, args.seed)?;
        report.churned(churn, agent.memory()?);
    }
    ensure!(agent.is_ready(), "the agent is not ready at the end");
    report.ended(agent.memory()?);
    Ok(report)
}

/// Installs the CRDs of the cluster's policies at the server.
fn define_kinds(api: &Api, palisade: &Path) -> Result<()> {
    let crds = Command::new(palisade)
        .arg("crds")
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run `{}`", palisade.display()))?;
    ensure!(
        crds.status.success(),
        "`palisade crds` failed: {}",
        String::from_utf8_lossy(&crds.stderr)
    );
    let file = api.directory().join("crds.yaml");
    std::fs::write(&file, &crds.stdout)?;
    for words in [
        &["apply", "--server-side", "-f"][..],
        &["wait", "--for=condition=Established", "--timeout=60s", "-f"],
    ] {
        let done = api.kubectl().args(words).arg(&file).output()?;
        let stderr = String::from_utf8_lossy(&done.stderr);
        ensure!(
            done.status.success(),
            "kubectl {}: {stderr}",
            words.join(" ")
        );
    }
    Ok(())
}
