//! `palisade-campaigns reboot`: restarts nodes, several in parallel, as they mostly wait.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use palisade_lab::network::LabNetwork;
use palisade_lab::privilege::RequiredPrivilege;
use tempfile::TempDir;

use super::flows::Flows;
use super::node::{self, BLOCKS, NAME};
use super::report::{Report, Restart, Setup};
use super::server::{OUTAGES, Outage, Server};
use super::tally::{Tally, Times};
use crate::agents::{Agent, program, run_to_end};
use crate::faults::traffic::Clock;
use crate::health::ready;
use crate::seeds::over_seeds;
use palisade_generate::Rng;
use palisade_lab::privilege::stay_inside;

/// The interval between two rounds of packets, and during the wait for the first table.
const ROUND_INTERVAL: Duration = Duration::from_millis(10);
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// The time for which pods send before the agent starts.
const BEFORE_START: Duration = Duration::from_millis(200);
/// The time for which they send after the agent is ready.
const AFTER_READY: Duration = Duration::from_millis(1_000);
/// The maximum time of the last packets and replies.
const DRAIN_TIME: Duration = Duration::from_millis(300);
/// The time within which an agent must install its first table, and be ready.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The log message of the first table.
const FIRST_TABLE_LOG: &str = "pods of this node are closed until all objects are synced";

/// Arguments of `reboot`.
#[derive(Args, Clone, Debug)]
pub struct RebootArgs {
    /// The number of restarts
    #[arg(long, default_value_t = 100)]
    restarts: u64,
    /// The length of the API server's outage, in seconds
    #[arg(long, default_value_t = 30)]
    outage: u64,
    /// The number of parallel restarts
    #[arg(long, default_value_t = 10)]
    parallel: usize,
    /// The seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The program to run [default: the one beside this]
    #[arg(long, value_name = "PATH")]
    palisade: Option<PathBuf>,
}

/// Restarts nodes: closed in several ways, and once each for the control and for the documented
/// limit.
pub fn reboot(args: &RebootArgs) -> Result<Report> {
    stay_inside(RequiredPrivilege::Any)?;
    let palisade = program(args.palisade.as_deref())?;
    let summary = over_seeds(
        (0, args.restarts + 2),
        args.parallel,
        |number| {
            let plan = Plan::new(args, number);
            let restart = restart(&palisade, &plan);
            restart.map_err(|error| format!("restart {number}, {plan:?}: {error:#}"))
        },
        |report: &mut Report, _, restart| {
            match restart {
                Ok(restart) => report.restarts.push(restart),
                Err(message) => report.failures.push(message),
            }
            false
        },
    );
    let mut report = summary.total;
    report.seconds = summary.seconds;
    Ok(report)
}

/// The plan of a restart.
#[derive(Clone, Copy, Debug)]
struct Plan {
    setup: Setup,
    outage: Outage,
    outage_time: Duration,
    /// The time after which the agent is killed and restarted.
    killed_after: Option<Duration>,
}

impl Plan {
    fn new(args: &RebootArgs, number: u64) -> Plan {
        let outage_time = Duration::from_secs(args.outage);
        let plan = Plan {
            setup: Setup::Open,
            outage: Outage::Refuses,
            outage_time,
            killed_after: None,
        };
        if let Some(control) = number.checked_sub(args.restarts) {
            return match control {
                0 => plan,
                _ => Plan {
                    setup: Setup::Bare,
                    ..plan
                },
            };
        }
        let mut rng = Rng::new(args.seed.wrapping_add(number));
        let way = OUTAGES.get((number / 4) as usize % OUTAGES.len()).copied();
        let part = rng.between(30, 80) as u32;
        Plan {
            setup: match number % 4 {
                0 | 2 => Setup::Unit,
                1 => Setup::Blocks,
                _ => Setup::Untracked,
            },
            outage: way.unwrap_or(Outage::Refuses),
            killed_after: rng.chance(50).then_some(outage_time * part / 100),
            ..plan
        }
    }

    fn args(&self, kubeconfig: &Path) -> Vec<String> {
        let mut args = vec![
            format!("--node={NAME}"),
            format!("--kubeconfig={}", kubeconfig.display()),
        ];
        if matches!(self.setup, Setup::Blocks | Setup::Untracked | Setup::Open) {
            args.extend(blocks());
        }
        if self.setup == Setup::Open {
            args.push("--boot-policy=open".to_owned());
        }
        args
    }

    /// The outcomes that violate the plan.
    fn mistakes(&self, tally: &Tally) -> Vec<String> {
        let mut mistakes = Vec::new();
        let passes = tally.leaked > 0;
        if passes == self.setup.is_closed() {
            mistakes.push(format!("{self:?}: {} denied packets passed", tally.leaked));
        }
        let is_closed = u64::from(self.setup.is_closed());
        let answers_all = u64::from(self.setup.answers_all());
        for (count, message) in [
            (
                tally.early * is_closed,
                "packets passed before the agent had the policies",
            ),
            (
                tally.unanswered * answers_all,
                "probes of the node were unanswered",
            ),
            (tally.lost, "allowed packets were lost"),
        ] {
            if count > 0 {
                mistakes.push(format!("{self:?}: {count} {message}"));
            }
        }
        mistakes
    }
}

fn blocks() -> impl Iterator<Item = String> {
    BLOCKS.iter().map(|it| format!("--pod-cidr={it}"))
}

/// A restarted node, and its flows.
struct Node {
    network: LabNetwork,
    clock: Clock,
    flows: Flows,
}

impl Node {
    fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Sends packets until a condition holds. Fails after a timeout.
    fn until(
        &mut self,
        what: &str,
        pace: Duration,
        mut condition: impl FnMut(&mut Node) -> Result<bool>,
    ) -> Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        while !condition(self)? {
            ensure!(Instant::now() < deadline, "{what} takes too long");
            self.flows.round()?;
            thread::sleep(pace);
        }
        Ok(())
    }

    /// Sends packets for a time.
    fn during(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.flows.round()?;
            thread::sleep(ROUND_INTERVAL);
        }
        Ok(())
    }

    fn is_ready(&self) -> Result<bool> {
        let response = self.network.in_node(0, ready)?;
        Ok(response.is_ok_and(|(code, _)| code == 200))
    }
}

/// Restarts a node.
fn restart(palisade: &Path, plan: &Plan) -> Result<Restart> {
    let network = node::build()?;
    let clock = Clock::start();
    let files = TempDir::new()?;
    let kubeconfig = files.path().join("kubeconfig");
    std::fs::write(&kubeconfig, Server::kubeconfig())?;
    let server = Server::start(&network, plan.outage)?;
    let mut node = Node {
        flows: Flows::open(&network, clock)?,
        network,
        clock,
    };
    let mut mistakes = Vec::new();
    node.flows.warm_up()?;
    if plan.setup != Setup::Untracked {
        node::track(&node.network)?;
    }
    if plan.setup == Setup::Unit {
        let mut args = vec!["--close-only".to_owned()];
        args.extend(blocks());
        run_to_end(palisade, &node.network, 0, &args)?;
    }
    // The pods send from here on. With the unit, the node is closed from the first packet on.
    let mut times = Times::default();
    node.during(BEFORE_START)?;

    times.started = node.now();
    let args = plan.args(&kubeconfig);
    let log = files.path().join("first");
    let mut agent = Agent::start(palisade, &node.network, 0, &args, log)?;
    let started = Instant::now();
    match plan.setup {
        Setup::Unit => {}
        Setup::Blocks | Setup::Untracked => {
            // The kernel shows a table before its hooks are active; the agent logs this after both.
            node.until("the first table", POLL_INTERVAL, |_| {
                Ok(agent.log_contains(FIRST_TABLE_LOG))
            })
            .with_context(|| agent.log_tail())?;
            times.table = node.now();
        }
        // Nothing closes the node: these packets would be dropped on a closed one.
        Setup::Open | Setup::Bare => times.table = times.started,
    }
    if let Some(after) = plan.killed_after {
        node.during(after.saturating_sub(started.elapsed()))?;
        drop(agent);
        let log = files.path().join("second");
        agent = Agent::start(palisade, &node.network, 0, &args, log)?;
    }
    node.during(plan.outage_time.saturating_sub(started.elapsed()))?;
    if node.is_ready()? {
        mistakes.push("an agent is ready before it has synced".to_owned());
    }

    times.server_back = node.now();
    server.recover();
    node.until("the agent", ROUND_INTERVAL, |it| it.is_ready())
        .with_context(|| agent.log_tail())?;
    times.ready = node.now();
    node.during(AFTER_READY)?;
    let end = Instant::now() + DRAIN_TIME;
    while Instant::now() < end {
        node.flows.receive();
        thread::sleep(POLL_INTERVAL);
    }

    let tally = node.flows.tally(times);
    mistakes.extend(plan.mistakes(&tally));
    if !mistakes.is_empty() && plan.setup.is_closed() {
        mistakes.extend(node.flows.examples(times));
    }
    Ok(Restart {
        setup: plan.setup,
        outage: plan.outage,
        tally,
        gap: times.table.saturating_sub(times.started),
        ready: times.ready - times.server_back,
        mistakes,
    })
}
