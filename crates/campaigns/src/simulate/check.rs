//! The checks: during every transaction, after it, and while the agent is idle.

use std::rc::Rc;

use palisade_agent::{Established, Next};
use palisade_core::plan::plan;

use super::evaluation::{Hooks, Packet};
use super::expected::{ExpectedVerdicts, NODE};
use super::plan_text::plan_text;
use super::simulator::Simulator;
use super::{Failure, InFlight, Invariant};

/// Flows checked during each transaction.
const SAMPLE: usize = 16;
/// Commands until the agent must be idle.
const MAX_COMMANDS: usize = 16;
/// Calls of `next` until the agent must be idle.
const MAX_CALLS: usize = 200;

/// The flow and the mark of a connection that a packet opened or continued during a commit.
pub(super) type TornConnection = (usize, u32);

impl Simulator<'_> {
    /// Whether a connection with this mark passes regardless of policies.
    fn is_kept(&self, mark: u32) -> bool {
        let keeps = self.setting.config.established == Established::Keep;
        keeps && mark & self.bits().full_bit() != 0
    }

    /// The packets to check: first packets of flows, and packets of connections.
    fn packets(&mut self) -> Vec<(usize, Packet)> {
        let count = self.flows.len();
        let first = self.rng.below(count as u64) as usize;
        let around = (first..count).chain(0..first);
        let chosen = around.filter(|flow| !self.upper.allows(*flow) || self.lower.allows(*flow));
        let new = chosen.take(SAMPLE);
        let new = new.filter_map(|flow| Some((flow, *self.flows.get(flow)?)));
        let mut packets: Vec<(usize, Packet)> = new.collect();
        for (flow, mark) in &self.model.connections {
            if let Ok(place) = self.flows.binary_search(flow) {
                let packet = Packet {
                    established: true,
                    mark: *mark,
                    ..*flow
                };
                packets.push((place, packet));
            }
        }
        packets
    }

    /// Checks packets during the transaction that was just committed, and until the next one if
    /// there are several. Returns the connections that such packets open or continue, with their
    /// marks.
    pub(super) fn check_commit(
        &mut self,
        is_between: bool,
    ) -> Result<Vec<TornConnection>, Failure> {
        let mut left = Vec::new();
        if self.is_foreign {
            return Ok(left);
        }
        for (flow, packet) in self.packets() {
            let hooks = self.model.hooks();
            self.counts.packets += 1;
            let (upper, lower) = (self.upper.allows(flow), self.lower.allows(flow));
            let kept = packet.established && self.is_kept(packet.mark);
            let outcome = hooks.after(packet);
            if outcome.passed && !upper && !kept {
                let invariant = if packet.established {
                    Invariant::Established
                } else {
                    Invariant::NoLeak
                };
                return Err(self.failure(invariant, &packet, "passes"));
            }
            if !outcome.passed && (lower || kept) {
                if !is_between || self.in_flight == InFlight::Fail {
                    return Err(self.failure(Invariant::NoLoss, &packet, "is dropped"));
                }
                self.counts.lost += 1;
            }
            for outcome in hooks.torn(packet) {
                self.counts.torn += 1;
                if outcome.passed && !upper && !kept {
                    if self.in_flight == InFlight::Count {
                        self.counts.torn_leaked += 1;
                        continue;
                    }
                    return Err(self.failure(
                        Invariant::NoTornLeak,
                        &packet,
                        "passes during the commit",
                    ));
                }
                if !outcome.passed && (lower || kept) {
                    self.counts.torn_lost += 1;
                }
                if outcome.passed {
                    left.push((flow, outcome.mark));
                }
            }
        }
        Ok(left)
    }

    /// Checks connections that packets opened during the transaction.
    pub(super) fn check_torn(&mut self, torn: &[TornConnection]) -> Result<(), Failure> {
        for (flow, mark) in torn {
            let Some(packet) = self.flows.get(*flow).copied() else {
                continue;
            };
            let continued = Packet {
                established: true,
                mark: *mark,
                ..packet
            };
            let outcome = self.model.hooks().after(continued);
            if outcome.passed && !self.upper.allows(*flow) && !self.is_kept(*mark) {
                let how = "passes by a mark set during the commit";
                return Err(self.failure(Invariant::NoTornMark, &continued, how));
            }
            if self.rng.chance(5) {
                self.model.connections.insert(packet, *mark);
                self.origins.remove(&packet);
                self.note(&packet, *mark);
            }
        }
        Ok(())
    }

    fn failure(&self, invariant: Invariant, packet: &Packet, how: &str) -> Failure {
        let which = if packet.established {
            let number = self.bits().number_in(packet.mark);
            format!("a connection of generation {number}")
        } else {
            "a new connection".to_owned()
        };
        Failure::new(invariant, format!("{which} from {packet}, {how}"))
    }

    /// Runs the agent until it is idle, and checks every flow.
    pub(super) fn converge(&mut self, lose_notices: bool, with_audit: bool) -> Result<(), Failure> {
        self.clear_fault();
        self.start();
        if self.agent.as_ref().is_some_and(|agent| !agent.is_synced()) {
            self.step(super::script::Step::Sync)?;
        }
        self.deliver_notices(lose_notices);
        self.run_until_idle()?;
        self.check_idle()?;
        if with_audit {
            let installs = self.counts.installs;
            self.commands = 0;
            self.wait_for_audit()?;
            self.run_until_idle()?;
            if self.counts.installs > installs {
                return Err(Failure::new(
                    Invariant::Idle,
                    "an audit while idle led to an installation".to_owned(),
                ));
            }
            self.check_idle()?;
        }
        Ok(())
    }

    fn run_until_idle(&mut self) -> Result<(), Failure> {
        for _ in 0..MAX_CALLS {
            if self.commands > MAX_COMMANDS {
                break;
            }
            if self.running.is_some() {
                self.advance()?;
                continue;
            }
            let is_foreign = self.is_foreign;
            let Some(agent) = &mut self.agent else {
                return Ok(());
            };
            let next = agent.next(self.now);
            let is_current = agent.is_current();
            match next {
                Next::Do(command) => self.begin(command)?,
                Next::Spawn(task) => self.spawn(task)?,
                Next::Wait(_) if !self.background.is_empty() => self.finish_task()?,
                Next::Wait(None) => {
                    return Err(Failure::new(
                        Invariant::Idle,
                        "the agent waits without a deadline".to_owned(),
                    ));
                }
                Next::Wait(Some(until)) if until <= self.now => {
                    let message = format!("the agent waits until {until:?} at {:?}", self.now);
                    return Err(Failure::new(Invariant::Idle, message));
                }
                Next::Wait(Some(_)) if is_current && !is_foreign => return Ok(()),
                Next::Wait(Some(until)) => self.now = until,
            }
        }
        let message = format!("the agent is not idle after {} commands", self.commands);
        Err(Failure::new(Invariant::Idle, message))
    }

    /// Advances the clock to the next audit, and runs it.
    fn wait_for_audit(&mut self) -> Result<(), Failure> {
        let Some(agent) = &mut self.agent else {
            return Ok(());
        };
        let Next::Wait(Some(until)) = agent.next(self.now) else {
            return Err(Failure::new(
                Invariant::Idle,
                "the agent is not idle".to_owned(),
            ));
        };
        self.now = until;
        self.advance()?;
        while !self.background.is_empty() {
            self.finish_task()?;
        }
        Ok(())
    }

    /// Checks that kept connections end when an address has a new owner.
    fn check_owners(&self, expected: &ExpectedVerdicts) -> Result<(), Failure> {
        for (flow, mark) in &self.model.connections {
            let Some((life, before)) = self.origins.get(flow).filter(|_| self.is_kept(*mark))
            else {
                continue;
            };
            // Changes while no agent ran are unknown to the next one.
            let mut ends = before.iter().zip(expected.owners(flow));
            let has_lost = ends.any(|(before, now)| before.is_some() && *before != now);
            if *life == self.process.id && has_lost {
                let packet = Packet {
                    established: true,
                    mark: *mark,
                    ..*flow
                };
                let how = "is kept although one of its addresses has another owner";
                return Err(self.failure(Invariant::Established, &packet, how));
            }
        }
        Ok(())
    }

    /// Checks every flow against the engine, and that the kernel has one table.
    fn check_idle(&mut self) -> Result<(), Failure> {
        self.counts.idle += 1;
        let objects = self.objects.clone();
        let expected = self.expected(&objects);
        self.upper = Rc::clone(&expected);
        self.lower = Rc::clone(&expected);
        for (flow, packet) in self.flows.iter().enumerate() {
            self.counts.verdicts += 1;
            let outcome = Hooks::quiet(&self.model.tables).after(*packet);
            if outcome.passed != expected.allows(flow) {
                let how = if outcome.passed {
                    "passes"
                } else {
                    "is dropped"
                };
                return Err(self.failure(Invariant::Verdicts, packet, how));
            }
        }
        for (flow, mark) in &self.model.connections {
            let packet = Packet {
                established: true,
                mark: *mark,
                ..*flow
            };
            let Ok(place) = self.flows.binary_search(flow) else {
                continue;
            };
            let outcome = Hooks::quiet(&self.model.tables).after(packet);
            if outcome.passed != (expected.allows(place) || self.is_kept(*mark)) {
                let how = if outcome.passed {
                    "passes"
                } else {
                    "is dropped"
                };
                return Err(self.failure(Invariant::Established, &packet, how));
            }
        }
        self.check_owners(&expected)?;
        if self.model.tables.len() != 1 {
            let message = format!("the kernel has {} tables", self.model.tables.len());
            return Err(Failure::new(Invariant::Verdicts, message));
        }
        let Some(agent) = &self.agent else {
            return Ok(());
        };
        let budget = self.setting.config.budget;
        let fresh = self
            .catalog
            .with_cluster(budget, &objects, |cluster, program| {
                plan_text(&plan(cluster, program, NODE))
            });
        let counts = agent.planner().counts();
        self.counts.over_budget += counts.over_budget as u64;
        self.counts.shared += (counts.groups - counts.sets) as u64;
        let kept = plan_text(&agent.planner().plan());
        if fresh != kept {
            let message = format!("the plan is\n{kept}\ninstead of\n{fresh}");
            return Err(Failure::new(Invariant::Plan, message));
        }
        Ok(())
    }
}
