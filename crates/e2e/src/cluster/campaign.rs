//! Changes of a whole cluster, and the invariants during them.

#![allow(
    clippy::indexing_slicing,
    reason = "a missing field of a value is null"
)]

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde_json::{Value, json};

use super::outage::{Outage, outage};
use super::packets::{Echoes, differences, measured};
use super::pods::Pod;
use super::policies::{APPS, Change, Changes, NAMESPACES};
use super::traffic::{Stream, during};
use super::{E2eCluster, Installed, until};

/// How a campaign is to be.
#[derive(Args, Debug)]
pub struct WholeArgs {
    /// The program to install [default: the one beside this]
    #[arg(long, value_name = "PATH")]
    pub palisade: Option<PathBuf>,
    /// The archive of the image, as deploy/image/build makes it [default: one is made of the
    /// program]
    #[arg(long, value_name = "PATH")]
    pub image: Option<PathBuf>,
    /// The directory of the manifests
    #[arg(long, value_name = "DIR", default_value = "deploy")]
    pub deploy: PathBuf,
    /// The number of random changes of policies
    #[arg(long, default_value_t = 1_000)]
    pub changes: usize,
    /// The number of replacements of agents under traffic
    #[arg(long, default_value_t = 50)]
    pub restarts: usize,
    /// So long the API server is away, under traffic; 0: never
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub outage: u64,
    /// What the changes are made from
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Report {
    /// Changes that the server took, and that it refused.
    pub changes: usize,
    /// Refused changes.
    pub refused: usize,
    /// Flows that were compared.
    pub flows: usize,
    /// Flows whose packets differ from `explain`.
    pub differences: Vec<String>,
    /// From the write of a change until packets follow it; a round of packets is part of it.
    pub settled: Vec<Duration>,
    /// Replacements of agents.
    pub restarts: usize,
    /// What became of packets that are allowed all along, and of such that are denied.
    pub allowed: Stream,
    /// The denied ones.
    pub denied: Stream,
    /// What came of the API server's being away.
    pub outage: Option<Outage>,
}

impl Report {
    /// Whether everything was as it must be.
    pub fn is_right(&self) -> bool {
        self.differences.is_empty()
            && self.allowed.sent == self.allowed.arrived
            && self.denied.arrived == 0
            && self.outage.is_none_or(|it| it.is_right())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for difference in self.differences.iter().take(20) {
            writeln!(f, "{difference}")?;
        }
        let mut settled = self.settled.clone();
        settled.sort_unstable();
        let at = |percent: usize| {
            let place = settled.len() * percent / 100;
            settled.get(place).copied().unwrap_or_default()
        };
        writeln!(
            f,
            "{} changes ({} more were refused), {} flows compared, {} differ; packets followed after p50 {:.0?}, p99 {:.0?}",
            self.changes,
            self.refused,
            self.flows,
            self.differences.len(),
            at(50),
            at(99)
        )?;
        write!(
            f,
            "{} replacements of agents: {} of {} allowed packets lost, {} of {} denied packets leaked",
            self.restarts,
            self.allowed.sent.saturating_sub(self.allowed.arrived),
            self.allowed.sent,
            self.denied.arrived,
            self.denied.sent
        )?;
        match &self.outage {
            Some(outage) => write!(f, "\n{outage}"),
            None => Ok(()),
        }
    }
}

/// The whole of it.
pub fn run(args: &WholeArgs) -> Result<Report> {
    let palisade = match &args.palisade {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("palisade"),
    };
    let installed = Installed {
        palisade,
        image: args.image.clone(),
        deploy: args.deploy.clone(),
    };
    let mut whole = E2eCluster::install(&installed, 2)?;
    let pods = whole.start_pods(&NAMESPACES, &APPS, 2)?;
    let echoes = Echoes::start(&pods)?;
    let mut report = Report::default();
    let mut changes = Changes::new(args.seed);
    change(&whole, &pods, &mut changes, args.changes, &mut report)?;
    clear(&whole, &mut changes)?;
    replace_agents(&whole, &pods, args.restarts, &mut report)?;
    if args.outage > 0 {
        let length = Duration::from_secs(args.outage);
        report.outage = Some(outage(&mut whole, &pods, length)?);
    }
    drop(echoes);
    Ok(report)
}

/// The time within which packets must follow a change.
const SETTLED: Duration = Duration::from_secs(10);

/// Changes policies at random, and compares packets with `explain` after each change.
pub fn change(
    whole: &E2eCluster,
    pods: &[Pod],
    changes: &mut Changes,
    wanted: usize,
    report: &mut Report,
) -> Result<()> {
    let before = report.changes;
    while report.changes < before + wanted {
        let change = changes.draw();
        match &change {
            Change::Set(object) => {
                if whole.apply(object).is_err() {
                    report.refused += 1;
                    continue;
                }
                if object["kind"] != "Namespace" {
                    let id = |it: &Value| (it["kind"].clone(), it["metadata"]["name"].clone());
                    changes.held.retain(|it| id(it) != id(object));
                    changes.held.push(object.clone());
                }
            }
            Change::Deleted(object) => whole.delete(object)?,
        }
        report.changes += 1;
        let written = Instant::now();
        let explained = whole.explained(pods)?;
        ensure!(!explained.is_empty(), "`explain` printed no verdicts");
        let found = loop {
            let found = differences(&explained, &measured(pods)?);
            if found.is_empty() || written.elapsed() > SETTLED {
                break found;
            }
        };
        report.settled.push(written.elapsed());
        report.flows += explained.len();
        let number = report.changes;
        let found = found.into_iter();
        report
            .differences
            .extend(found.map(|it| format!("after change {number}, {change:?}: {it}")));
    }
    Ok(())
}

/// Deletes all policies.
pub fn clear(whole: &E2eCluster, changes: &mut Changes) -> Result<()> {
    for object in changes.held.drain(..) {
        whole.delete(&object)?;
    }
    Ok(())
}

/// A policy that allows one pod to send to another, and no other flow.
pub fn one_way(namespace: &str) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"namespace": namespace, "name": "one-way"},
        "spec": {
            "podSelector": {"matchLabels": {"app": "web"}},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "db"}}}]}],
        },
    })
}

/// A pod by its app.
pub fn of<'p>(pods: &'p [Pod], namespace: &str, app: &str) -> Result<&'p Pod> {
    let name = format!("{namespace}-{app}");
    let pod = pods.iter().find(|it| it.name == name);
    pod.with_context(|| format!("there is no pod {name}"))
}

/// Waits until packets of the client do not arrive and those of the database do.
pub fn closed(pods: &[Pod]) -> Result<()> {
    let [web, db, client] = ["web", "db", "client"].map(|app| of(pods, "x", app));
    let (web, db, client) = (web?.clone(), db?.clone(), client?.clone());
    let all = [web, db, client];
    until("the policy is enforced", || {
        let answers = measured(&all)?;
        let of = |from: &str| {
            let key = (from.to_owned(), "x/x-web".to_owned(), "tcp/80".to_owned());
            answers.get(&key).copied()
        };
        Ok(of("x/x-db") == Some(true) && of("x/x-client") == Some(false))
    })
}

/// Replaces agents, by deleting them and by new versions in turn, while packets flow.
pub fn replace_agents(
    whole: &E2eCluster,
    pods: &[Pod],
    times: usize,
    report: &mut Report,
) -> Result<()> {
    let policy = one_way("x");
    whole.apply(&policy)?;
    closed(pods)?;
    let [web, db, client] = ["web", "db", "client"].map(|app| of(pods, "x", app));
    let (web, db, client) = (web?, db?, client?);
    for time in 0..times {
        let ((), streams) = during(&[(db, web), (client, web)], || match time % 2 {
            0 => upgrade(whole, time),
            _ => restart(whole),
        })?;
        report.restarts += 1;
        if let [allowed, denied] = streams.as_slice() {
            report.allowed.sent += allowed.sent;
            report.allowed.arrived += allowed.arrived;
            report.denied.sent += denied.sent;
            report.denied.arrived += denied.arrived;
        }
    }
    whole.delete(&policy)
}

/// Another version of the DaemonSet: each node's agent is replaced.
fn upgrade(whole: &E2eCluster, time: usize) -> Result<()> {
    let patch = json!({"spec": {"template": {"metadata": {"annotations": {
        "palisade.dev/test": time.to_string(),
    }}}}});
    let patch = patch.to_string();
    let words = ["-n", "palisade-system", "patch", "daemonset"];
    let mut all = words.to_vec();
    all.extend(["palisade-agent", "--type=merge", "-p", &patch]);
    whole.kubectl(&all)?;
    whole.wait_for_agents()
}

/// All agents end at once, and are started again.
fn restart(whole: &E2eCluster) -> Result<()> {
    end_agents(whole)?;
    whole.wait_for_agents()
}

/// Ends all agents at once, without waiting for their replacements.
pub fn end_agents(whole: &E2eCluster) -> Result<()> {
    let selector = "app.kubernetes.io/component=agent";
    let words = ["-n", "palisade-system", "delete", "pods", "--wait=true"];
    let mut all = words.to_vec();
    all.extend(["--grace-period=1", "-l", selector]);
    whole.kubectl(&all).map(|_| ())
}
