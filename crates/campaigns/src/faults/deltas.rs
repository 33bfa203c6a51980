//! The agent's loop on the kernel of a node, with objects delivered one by one. Its clock is a
//! parameter: no test waits for a pause of the agent.

use std::time::Duration;

use anyhow::{Result, bail};
use palisade_agent::{
    Agent, AuditOutcome, Command, CommandError, Config, Established, MarksToClear, Next, Nft,
    SyncOutcome, Task, TaskOutcome,
};
use palisade_api::{Options, Source, lower_one, read};
use palisade_core::incremental::{ObjectKey, ObjectKind};
use palisade_core::policy::PolicyApi;
use palisade_nft::node::{Generation, MarkBits};
use palisade_nft::watch::TableNotice;
use palisade_nft::{Conntrack, Kernel};

use super::objects::{Key, NAMESPACE, NODE, Objects};
use super::programmer::Programmer;

/// The agent on a kernel.
#[derive(Debug)]
pub struct Deltas {
    agent: Agent,
    /// The node's kernel.
    pub kernel: Kernel,
    conntrack: Conntrack,
    delivered: Objects,
    now: Duration,
    /// The outcomes since the last comparison.
    pub outcomes: Vec<SyncOutcome>,
}

impl Deltas {
    /// Starts from the table of a kernel. The calling thread is in the node's namespace.
    pub fn with(mut kernel: Kernel, established: Established) -> Result<Deltas> {
        let found = match kernel.adopt()? {
            true => kernel.generation()?,
            false => None,
        };
        let found = found.and_then(|it| Generation::new(u16::try_from(it).ok()?));
        let mut config = Config::new(NODE);
        config.established = established;
        Ok(Deltas {
            agent: Agent::new(Nft::default(), config, found),
            kernel,
            conntrack: Conntrack::open()?,
            delivered: Objects::default(),
            now: Duration::ZERO,
            outcomes: Vec::new(),
        })
    }

    /// Delivers the changed objects to the agent.
    pub fn deliver(&mut self, objects: &Objects) -> Result<()> {
        let keys: Vec<Key> = self.delivered.iter().map(|(key, _)| key.clone()).collect();
        for key in keys.iter().filter(|it| objects.get(it).is_none()) {
            self.agent.remove(self.now, object_key(key));
        }
        for (key, object) in objects.iter() {
            if self.delivered.get(key) == Some(object) {
                continue;
            }
            let sources = [Source::new("object.json", serde_json::to_vec(object)?)];
            let manifests = read(&sources, Options::default(), &|_| {});
            for object in &manifests.objects {
                self.agent
                    .set(self.now, object_key(key), &lower_one(object));
            }
        }
        self.delivered = objects.clone();
        self.agent.synced(self.now);
        Ok(())
    }

    /// Advances the agent's clock.
    pub fn advance_clock(&mut self, time: Duration) {
        self.now += time;
    }

    /// Delivers a notice of the kernel.
    pub fn notice(&mut self, notice: &TableNotice) {
        self.agent.noticed(self.now, &notice.clone().into());
    }

    /// Runs the agent until the kernel enforces the delivered objects, or a command fails.
    pub fn run_until_current(&mut self) -> Result<()> {
        for _ in 0..MAX_STEPS {
            let next = self.agent.next(self.now);
            let is_current = self.agent.is_current();
            let failed = match next {
                Next::Do(command) => {
                    let outcome = self.execute(command);
                    self.agent.finished(self.now, outcome.clone());
                    outcome.err()
                }
                Next::Spawn(task) => {
                    let outcome = self.execute_task(task);
                    let failed = match &outcome {
                        TaskOutcome::ClearMarks(outcome) => outcome.clone().err(),
                        TaskOutcome::Audit(outcome) => outcome.clone().err(),
                    };
                    self.agent.task_finished(self.now, outcome);
                    failed
                }
                Next::Wait(_) if is_current => return Ok(()),
                Next::Wait(Some(until)) => {
                    self.now = self.now.max(until);
                    continue;
                }
                Next::Wait(None) => bail!("the agent waits without a deadline"),
            };
            self.outcomes.extend(self.agent.outcomes());
            if let Some(CommandError(why)) = failed {
                bail!("the kernel refused a command: {why}");
            }
        }
        bail!("the agent does not become idle");
    }

    fn execute(&mut self, command: Command) -> Result<(), CommandError> {
        let failed = |error: palisade_nft::Error| CommandError(error.to_string());
        match command {
            Command::Install(ruleset) => {
                self.kernel.install(&ruleset).map_err(failed)?;
            }
            Command::Commit(transactions) => {
                for transaction in &transactions {
                    self.kernel.commit(transaction).map_err(failed)?;
                }
            }
        }
        Ok(())
    }

    /// Runs a background task synchronously.
    fn execute_task(&mut self, task: Task) -> TaskOutcome {
        let failed = |error: palisade_nft::Error| CommandError(error.to_string());
        let bits = MarkBits::DEFAULT;
        match task {
            Task::ClearMarks(MarksToClear::Generations(range)) => {
                let cleared = self.conntrack.clear_marks(bits, &range);
                TaskOutcome::ClearMarks(cleared.map(drop).map_err(failed))
            }
            Task::ClearMarks(MarksToClear::Addresses(addresses)) => {
                let cleared = self.conntrack.clear_addresses(bits, &addresses);
                TaskOutcome::ClearMarks(cleared.map(drop).map_err(failed))
            }
            Task::Audit { expected, .. } => {
                let differences = self.kernel.audit(&expected.ruleset());
                let compared = differences.map(|differences| AuditOutcome {
                    differences: differences.iter().map(ToString::to_string).collect(),
                    stopped_at: None,
                });
                TaskOutcome::Audit(compared.map_err(failed))
            }
        }
    }
}

/// Steps within which the agent must be idle.
const MAX_STEPS: usize = 50;

fn object_key(key: &Key) -> ObjectKey<'_> {
    let (kind, namespace) = match key.kind {
        "Node" => (ObjectKind::Node, ""),
        "Namespace" => (ObjectKind::Namespace, ""),
        "Pod" => (ObjectKind::Pod, NAMESPACE),
        "ClusterNetworkPolicy" => (ObjectKind::Policy(PolicyApi::Cluster), ""),
        _ => (ObjectKind::Policy(PolicyApi::NetworkPolicy), NAMESPACE),
    };
    ObjectKey {
        kind,
        namespace,
        name: &key.name,
    }
}

impl Programmer for Deltas {
    fn apply(&mut self, objects: &Objects) -> Result<()> {
        // One second per change: no change waits for the rate limit.
        self.now += Duration::from_secs(1);
        self.deliver(objects)?;
        self.run_until_current()
    }

    fn differences(&mut self, _: &Objects) -> Result<Vec<String>> {
        self.outcomes.clear();
        // A lost notice makes the agent audit the table.
        self.notice(&TableNotice::Lost);
        self.run_until_current()?;
        let message = self.outcomes.drain(..).filter_map(|it| {
            if let SyncOutcome::Drifted(message) = it {
                Some(message)
            } else {
                None
            }
        });
        Ok(message.flatten().collect())
    }
}
