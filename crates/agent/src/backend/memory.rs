//! A backend in memory, for unit tests. Its rules are plans, and its faults are chosen.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use palisade_core::plan::{Generation, Plan, PlanChange};
use palisade_route::Flowtable;

use super::{
    AdoptError, Auditor, Backend, Connect, Enforcer, Failure, Handles, Leftover, MarkClearer,
    NodeSettings, NotInPlace, Notice, Removed, RulesChange, Senders, Watcher,
};
use crate::command::{AuditOutcome, MarksToClear};

/// A handle to the memory of one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory(Arc<Mutex<Node>>);

/// What enforces, and the faults to come.
#[derive(Debug, Default)]
pub(crate) struct Node {
    /// The rules that enforce.
    pub(crate) rules: Option<MemoryRules>,
    /// The number of commands to refuse.
    pub(crate) refusals: u32,
    /// The number of commands to carry out without an answer.
    pub(crate) lost_answers: u32,
    /// The pods that rules have room for; `None`: for all.
    pub(crate) room: Option<usize>,
    /// Whether another process has the rules.
    pub(crate) is_busy: bool,
    /// Changes by other programs, not reported yet.
    pub(crate) notices: VecDeque<Notice>,
    /// The marks that were cleared.
    pub(crate) cleared: Vec<MarksToClear>,
    /// The number of installations.
    pub(crate) installs: u32,
    /// The number of steps.
    pub(crate) steps: u32,
}

/// The rules of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemoryRules {
    /// The plan; `None`: the pods are closed.
    pub(crate) plan: Option<Plan>,
    pub(crate) settings: NodeSettings,
    pub(crate) generation: Option<Generation>,
}

/// A step of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemoryStep {
    plan: PlanChange,
    elsewhere: Option<BTreeSet<String>>,
    generation: Option<Generation>,
}

impl PartialEq for Memory {
    fn eq(&self, other: &Memory) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Memory {}

impl Memory {
    pub(crate) fn node(&self) -> MutexGuard<'_, Node> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryRules {
    fn apply(&mut self, step: &MemoryStep) {
        if let Some(plan) = &mut self.plan {
            plan.apply(&step.plan);
        }
        if let (Some(new), Senders::Checked { elsewhere, .. }) =
            (&step.elsewhere, &mut self.settings.senders)
        {
            elsewhere.clone_from(new);
        }
        self.generation = step.generation.or(self.generation);
    }
}

impl Backend for Memory {
    type Rules = MemoryRules;
    type Step = MemoryStep;
    type Expected = MemoryRules;
    type Installed = MemoryRules;

    fn last_generation(&self) -> u16 {
        31
    }

    fn closed(&self, settings: &NodeSettings) -> MemoryRules {
        MemoryRules {
            plan: None,
            settings: settings.clone(),
            generation: None,
        }
    }

    fn rules(
        &self,
        plan: &Plan,
        settings: &NodeSettings,
        generation: Generation,
    ) -> (MemoryRules, MemoryRules) {
        let rules = MemoryRules {
            plan: Some(plan.clone()),
            settings: settings.clone(),
            generation: Some(generation),
        };
        (rules.clone(), rules)
    }

    fn change(
        &self,
        installed: &mut MemoryRules,
        change: RulesChange<'_>,
    ) -> Result<Vec<MemoryStep>, NotInPlace> {
        let step = MemoryStep {
            plan: change.plan.clone(),
            elsewhere: change.elsewhere.cloned(),
            generation: change.generation,
        };
        installed.apply(&step);
        let pods = installed.plan.as_ref().map_or(0, |it| it.pods.len());
        match self.node().room {
            Some(room) if pods > room => Err(NotInPlace),
            _ => Ok(vec![step]),
        }
    }

    fn expected(&self, installed: &MemoryRules, plan: Plan) -> MemoryRules {
        MemoryRules {
            plan: Some(plan),
            ..installed.clone()
        }
    }
}

impl Connect for Memory {
    fn open(&self) -> Result<Box<dyn Enforcer<Memory>>, Failure> {
        Ok(Box::new(self.clone()))
    }

    fn connect(&self) -> Result<Handles<Memory>, Failure> {
        Ok(Handles {
            enforcer: Box::new(self.clone()),
            watcher: Box::new(self.clone()),
            auditor: Box::new(self.clone()),
            clearer: Box::new(self.clone()),
        })
    }

    fn clean_up(&self) -> Result<Removed, Failure> {
        let tables = usize::from(self.node().rules.take().is_some());
        Ok(Removed {
            tables,
            connections: 0,
        })
    }
}

/// Carries out a command, unless it is to be refused.
fn carry_out(node: &mut Node, command: impl FnOnce(&mut Node)) -> Result<(), Failure> {
    if node.refusals > 0 {
        node.refusals -= 1;
        return Err("refused".into());
    }
    command(node);
    if node.lost_answers > 0 {
        node.lost_answers -= 1;
        return Err("no answer".into());
    }
    Ok(())
}

impl Enforcer<Memory> for Memory {
    fn adopt(&mut self) -> Result<Leftover, AdoptError> {
        let node = self.node();
        if node.is_busy {
            return Err(AdoptError::Busy("another process has them".into()));
        }
        Ok(match &node.rules {
            None => Leftover::Nothing,
            Some(MemoryRules { plan: None, .. }) => Leftover::Closed,
            Some(rules) => Leftover::Rules(rules.generation),
        })
    }

    fn install(&mut self, rules: &MemoryRules) -> Result<(), Failure> {
        carry_out(&mut self.node(), |node| {
            node.rules = Some(rules.clone());
            node.installs += 1;
        })
    }

    fn commit(&mut self, step: &MemoryStep) -> Result<(), Failure> {
        let mut node = self.node();
        if node.rules.is_none() {
            return Err("there are no rules".into());
        }
        carry_out(&mut node, |node| {
            node.rules.iter_mut().for_each(|it| it.apply(step));
            node.steps += 1;
        })
    }

    fn place(&self) -> Option<String> {
        None
    }

    fn connections(&mut self) -> Option<(u32, u32)> {
        None
    }

    fn flowtables(&self) -> Result<Vec<Flowtable>, Failure> {
        Ok(Vec::new())
    }
}

impl Watcher for Memory {
    fn next(&mut self, timeout: Duration) -> Result<Option<Notice>, Failure> {
        let notice = self.node().notices.pop_front();
        if notice.is_none() {
            std::thread::sleep(timeout.min(Duration::from_millis(5)));
        }
        Ok(notice)
    }
}

impl Auditor<Memory> for Memory {
    fn audit(
        &mut self,
        _place: Option<&str>,
        expected: &MemoryRules,
        _from: Option<&str>,
        _go_on: &dyn Fn() -> bool,
    ) -> Result<AuditOutcome, Failure> {
        let differences = match &self.node().rules {
            Some(rules) if rules == expected => Vec::new(),
            Some(_) => vec!["the rules differ".to_owned()],
            None => vec!["the rules are gone".to_owned()],
        };
        Ok(AuditOutcome {
            differences,
            stopped_at: None,
        })
    }
}

impl MarkClearer for Memory {
    fn clear(&mut self, marks: &MarksToClear) -> Result<(), Failure> {
        carry_out(&mut self.node(), |node| node.cleared.push(marks.clone()))
    }
}
