//! The agent itself, told of objects one by one, on the kernel of a node. Time is what it is told, so that
//! no pause of the agent's is waited for.

use std::time::Duration;

use anyhow::{Result, bail};
use palisade_agent::{
    Agent, AuditOutcome, Command, CommandError, Config, MarksToClear, Next, SyncOutcome, Task,
    TaskOutcome,
};
use palisade_api::{Options, Source, lower_one, read};
use palisade_core::incremental::{ObjectKey, ObjectKind};
use palisade_core::policy::PolicyApi;
use palisade_nft::node::{Established, Generation, MarkBits};
use palisade_nft::watch::Notice;
use palisade_nft::{Conntrack, Kernel};

use super::objects::{Key, NAMESPACE, NODE, Objects};
use super::programming::Programming;

/// The agent on a kernel.
#[derive(Debug)]
pub struct Deltas {
    agent: Agent,
    /// The node's kernel.
    pub kernel: Kernel,
    conntrack: Conntrack,
    told: Objects,
    now: Duration,
    /// What it did since it was last asked.
    pub happened: Vec<SyncOutcome>,
}

/// Whether running connections are judged anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Running {
    /// They are.
    Judged,
    /// They go on.
    Kept,
}

impl Deltas {
    /// Goes on from what a kernel has. The calling thread is in the node's namespace.
    pub fn with(mut kernel: Kernel, running: Running) -> Result<Deltas> {
        let found = match kernel.adopt()? {
            true => kernel.generation()?,
            false => None,
        };
        let found = found.and_then(|it| Generation::new(u16::try_from(it).ok()?));
        let mut config = Config::new(NODE);
        config.established = match running {
            Running::Judged => Established::Judge,
            Running::Kept => Established::Keep,
        };
        Ok(Deltas {
            agent: Agent::new(config, found),
            kernel,
            conntrack: Conntrack::open()?,
            told: Objects::default(),
            now: Duration::ZERO,
            happened: Vec::new(),
        })
    }

    /// Tells the agent what is different.
    pub fn tell(&mut self, objects: &Objects) -> Result<()> {
        let gone: Vec<Key> = self.told.iter().map(|(key, _)| key.clone()).collect();
        for key in gone.iter().filter(|it| objects.get(it).is_none()) {
            self.agent.remove(self.now, object_key(key));
        }
        for (key, object) in objects.iter() {
            if self.told.get(key) == Some(object) {
                continue;
            }
            let sources = [Source::new("object.json", serde_json::to_vec(object)?)];
            let manifests = read(&sources, Options::default(), &|_| {});
            for object in &manifests.objects {
                self.agent
                    .set(self.now, object_key(key), &lower_one(object));
            }
        }
        self.told = objects.clone();
        self.agent.synced(self.now);
        Ok(())
    }

    /// Lets time go by.
    pub fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    /// Says that somebody else changed something.
    pub fn notice(&mut self, notice: &Notice) {
        self.agent.noticed(self.now, notice);
    }

    /// Does what is to be done until the kernel holds what was told, or something fails.
    pub fn settle(&mut self) -> Result<()> {
        for _ in 0..MOST_TURNS {
            let next = self.agent.next(self.now);
            let is_current = self.agent.is_current();
            let failed = match next {
                Next::Do(command) => {
                    let outcome = self.carry_out(command);
                    self.agent.finished(self.now, outcome.clone());
                    outcome.err()
                }
                Next::Spawn(task) => {
                    let outcome = self.carry_out_task(task);
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
                Next::Wait(None) => bail!("the agent waits for nothing"),
            };
            self.happened.extend(self.agent.outcomes());
            if let Some(CommandError(why)) = failed {
                bail!("the agent was refused: {why}");
            }
        }
        bail!("the agent does not come to rest");
    }

    fn carry_out(&mut self, command: Command) -> Result<(), CommandError> {
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

    /// Does at once what the real one does in the background.
    fn carry_out_task(&mut self, task: Task) -> TaskOutcome {
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

/// More than any change takes.
const MOST_TURNS: usize = 50;

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

impl Programming for Deltas {
    fn apply(&mut self, objects: &Objects) -> Result<()> {
        // A second goes by between changes, so that none has to wait for its turn.
        self.now += Duration::from_secs(1);
        self.tell(objects)?;
        self.settle()
    }

    fn differences(&mut self, _: &Objects) -> Result<Vec<String>> {
        self.happened.clear();
        // Whoever may have missed something compares.
        self.notice(&Notice::Lost);
        self.settle()?;
        let words = self.happened.drain(..).filter_map(|it| {
            if let SyncOutcome::Drifted(words) = it {
                Some(words)
            } else {
                None
            }
        });
        Ok(words.flatten().collect())
    }
}
