//! `palisade-campaigns reboot`: restarts of nodes, several side by side, since they mostly wait.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use palisade_lab::network::LabNetwork;
use palisade_lab::privilege::RequiredPrivilege;
use tempfile::TempDir;

use super::flows::Flows;
use super::judge::{Tally, Times};
use super::node::{self, BLOCKS, NAME};
use super::report::{Report, Restart, Setup};
use super::server::{OUTAGES, Outage, Server};
use crate::agents::{Agent, program, run_to_end};
use crate::faults::traffic::Clock;
use crate::health::ready;
use crate::seeds::over_seeds;
use palisade_generate::Rng;
use palisade_lab::privilege::stay_inside;

/// Between two rounds of packets, and while the first table is waited for.
const PACE: Duration = Duration::from_millis(10);
const CLOSELY: Duration = Duration::from_millis(1);
/// How long pods send before the agent is started.
const BEFORE: Duration = Duration::from_millis(200);
/// How long packets go on when the agent is ready.
const AFTER: Duration = Duration::from_millis(1_000);
/// How long the last packets and answers may take.
const LAST: Duration = Duration::from_millis(300);
/// How long an agent may take until its first table, and until it is ready.
const PATIENCE: Duration = Duration::from_secs(60);

/// What an agent says when its first table is in place.
const CLOSED: &str = "pods of this node are closed until all objects are synced";

/// How many, and how long.
#[derive(Args, Clone, Debug)]
pub struct RebootArgs {
    /// So many restarts
    #[arg(long, default_value_t = 100)]
    times: u64,
    /// So many seconds the API server is away
    #[arg(long, default_value_t = 30)]
    away: u64,
    /// So many at a time
    #[arg(long, default_value_t = 10)]
    together: usize,
    /// The seed of all choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The program to run [default: the one beside this]
    #[arg(long, value_name = "PATH")]
    palisade: Option<PathBuf>,
}

/// Restarts nodes: closed in two ways, and then once open and once as the limit has it.
pub fn reboot(args: &RebootArgs) -> Result<Report> {
    stay_inside(RequiredPrivilege::Any)?;
    let palisade = program(args.palisade.as_deref())?;
    let gone = over_seeds(
        (0, args.times + 2),
        args.together,
        |number| {
            let plan = Plan::new(args, number);
            let restart = restart(&palisade, &plan);
            restart.map_err(|error| format!("restart {number}, {plan:?}: {error:#}"))
        },
        |report: &mut Report, _, restart| {
            match restart {
                Ok(restart) => report.restarts.push(restart),
                Err(words) => report.failures.push(words),
            }
            false
        },
    );
    let mut report = gone.all;
    report.seconds = gone.seconds;
    Ok(report)
}

/// What happens in a restart.
#[derive(Clone, Copy, Debug)]
struct Plan {
    setup: Setup,
    away: Outage,
    for_time: Duration,
    /// When, after its start, the agent is killed and started once more.
    killed: Option<Duration>,
}

impl Plan {
    fn new(args: &RebootArgs, number: u64) -> Plan {
        let for_time = Duration::from_secs(args.away);
        let plan = Plan {
            setup: Setup::Open,
            away: Outage::Refuses,
            for_time,
            killed: None,
        };
        if let Some(control) = number.checked_sub(args.times) {
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
            away: way.unwrap_or(Outage::Refuses),
            killed: rng.chance(50).then_some(for_time * part / 100),
            ..plan
        }
    }

    fn words(&self, kubeconfig: &Path) -> Vec<String> {
        let mut words = vec![
            format!("--node={NAME}"),
            format!("--kubeconfig={}", kubeconfig.display()),
        ];
        if matches!(self.setup, Setup::Blocks | Setup::Untracked | Setup::Open) {
            words.extend(blocks());
        }
        if self.setup == Setup::Open {
            words.push("--boot-policy=open".to_owned());
        }
        words
    }

    /// What must not have become of packets.
    fn mistakes(&self, tally: &Tally) -> Vec<String> {
        let mut mistakes = Vec::new();
        let passes = tally.leaked > 0;
        if passes == self.setup.is_closed() {
            mistakes.push(format!("{self:?}: {} denied packets passed", tally.leaked));
        }
        let is_closed = u64::from(self.setup.is_closed());
        let answers_all = u64::from(self.setup.answers_all());
        for (count, words) in [
            (
                tally.early * is_closed,
                "packets passed before the policies were known",
            ),
            (
                tally.unanswered * answers_all,
                "probes of the node were not answered",
            ),
            (tally.lost, "allowed packets were lost"),
        ] {
            if count > 0 {
                mistakes.push(format!("{self:?}: {count} {words}"));
            }
        }
        mistakes
    }
}

fn blocks() -> impl Iterator<Item = String> {
    BLOCKS.iter().map(|it| format!("--pod-cidr={it}"))
}

/// A node that is up again, and what goes on there.
struct Node {
    world: LabNetwork,
    clock: Clock,
    flows: Flows,
}

impl Node {
    fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Lets packets flow until something is so; an error if that takes too long.
    fn until(
        &mut self,
        what: &str,
        pace: Duration,
        mut is_so: impl FnMut(&mut Node) -> Result<bool>,
    ) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self)? {
            ensure!(Instant::now() < deadline, "{what} takes too long");
            self.flows.round()?;
            thread::sleep(pace);
        }
        Ok(())
    }

    /// Lets packets flow for a time.
    fn during(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.flows.round()?;
            thread::sleep(PACE);
        }
        Ok(())
    }

    fn is_ready(&self) -> Result<bool> {
        let said = self.world.in_node(0, ready)?;
        Ok(said.is_ok_and(|(code, _)| code == 200))
    }
}

/// Restarts a node.
fn restart(palisade: &Path, plan: &Plan) -> Result<Restart> {
    let world = node::build()?;
    let clock = Clock::start();
    let files = TempDir::new()?;
    let kubeconfig = files.path().join("kubeconfig");
    std::fs::write(&kubeconfig, Server::kubeconfig())?;
    let server = Server::start(&world, plan.away)?;
    let mut node = Node {
        flows: Flows::open(&world, clock)?,
        world,
        clock,
    };
    let mut mistakes = Vec::new();
    node.flows.warm_up()?;
    if plan.setup != Setup::Untracked {
        node::track(&node.world)?;
    }
    if plan.setup == Setup::Unit {
        let mut words = vec!["--close-only".to_owned()];
        words.extend(blocks());
        run_to_end(palisade, &node.world, 0, &words)?;
    }
    // From here on the pods send; what the unit closed counts from the first packet on.
    let mut times = Times::default();
    node.during(BEFORE)?;

    times.started = node.now();
    let words = plan.words(&kubeconfig);
    let log = files.path().join("first");
    let mut agent = Agent::start(palisade, &node.world, 0, &words, log)?;
    let began = Instant::now();
    match plan.setup {
        Setup::Unit => {}
        Setup::Blocks | Setup::Untracked => {
            // A table is there before its hooks are; this is said behind both.
            node.until("the first table", CLOSELY, |_| Ok(agent.has_said(CLOSED)))
                .with_context(|| agent.last_words())?;
            times.table = node.now();
        }
        // Nothing closes them: what passes from here on is what a closed node would have dropped.
        Setup::Open | Setup::Bare => times.table = times.started,
    }
    if let Some(after) = plan.killed {
        node.during(after.saturating_sub(began.elapsed()))?;
        drop(agent);
        let log = files.path().join("second");
        agent = Agent::start(palisade, &node.world, 0, &words, log)?;
    }
    node.during(plan.for_time.saturating_sub(began.elapsed()))?;
    if node.is_ready()? {
        mistakes.push("an agent is ready that has not heard of all objects".to_owned());
    }

    times.back = node.now();
    server.come_back();
    node.until("the agent", PACE, |it| it.is_ready())
        .with_context(|| agent.last_words())?;
    times.ready = node.now();
    node.during(AFTER)?;
    let end = Instant::now() + LAST;
    while Instant::now() < end {
        node.flows.receive();
        thread::sleep(CLOSELY);
    }

    let tally = node.flows.judge(times);
    mistakes.extend(plan.mistakes(&tally));
    if !mistakes.is_empty() && plan.setup.is_closed() {
        mistakes.extend(node.flows.examples(times));
    }
    Ok(Restart {
        setup: plan.setup,
        outage: plan.away,
        tally,
        gap: times.table.saturating_sub(times.started),
        ready: times.ready - times.back,
        mistakes,
    })
}
