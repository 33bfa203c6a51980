//! What is looked at: during every transaction, after it, and when everything has come to rest.

use std::rc::Rc;

use palisade_agent::Next;
use palisade_core::plan::plan;
use palisade_nft::node::Established;

use super::play::Play;
use super::spell::spell;
use super::truth::{NODE, Truth};
use super::walk::{Hooks, Packet};
use super::{During, Failure, Kind};

/// So many flows are looked at during each transaction, those that may go wrong.
const SAMPLE: usize = 16;
/// So many commands bring everything to rest.
const MOST_COMMANDS: usize = 16;
/// And so many questions.
const MOST_QUESTIONS: usize = 200;

/// A connection that a packet opened, or went on with, while a transaction was committed.
pub(super) type Torn = (usize, u32);

impl Play<'_> {
    /// Whether a connection with this mark is to pass whatever the policies say.
    fn is_kept(&self, mark: u32) -> bool {
        let keeps = self.setting.config.established == Established::Keep;
        keeps && mark & self.bits().full_bit() != 0
    }

    /// The packets that are looked at: first ones of flows, and those of connections.
    fn packets(&mut self) -> Vec<(usize, Packet)> {
        let count = self.flows.len();
        let first = self.rng.below(count as u64) as usize;
        let around = (first..count).chain(0..first);
        let chosen = around.filter(|flow| !self.most.allows(*flow) || self.least.allows(*flow));
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

    /// What may become of packets during the transaction that was just committed, and until the next one if it is one of
    /// several. Says which connections it left with which marks.
    pub(super) fn look_during(&mut self, is_between: bool) -> Result<Vec<Torn>, Failure> {
        let mut left = Vec::new();
        if self.is_foreign {
            return Ok(left);
        }
        for (flow, packet) in self.packets() {
            let hooks = self.model.hooks();
            self.counts.packets += 1;
            let (most, least) = (self.most.allows(flow), self.least.allows(flow));
            let kept = packet.established && self.is_kept(packet.mark);
            let fate = hooks.after(packet);
            if fate.passed && !most && !kept {
                let kind = if packet.established {
                    Kind::Established
                } else {
                    Kind::Wide
                };
                return Err(self.wrong(kind, &packet, "passes"));
            }
            if !fate.passed && (least || kept) {
                if !is_between || self.during == During::Mistakes {
                    return Err(self.wrong(Kind::Narrow, &packet, "is dropped"));
                }
                self.counts.narrow += 1;
            }
            for fate in hooks.torn(packet) {
                self.counts.torn += 1;
                if fate.passed && !most && !kept {
                    if self.during == During::Counted {
                        self.counts.torn_wide += 1;
                        continue;
                    }
                    return Err(self.wrong(Kind::Torn, &packet, "passes during the commit"));
                }
                if !fate.passed && (least || kept) {
                    self.counts.torn_lost += 1;
                }
                if fate.passed {
                    left.push((flow, fate.mark));
                }
            }
        }
        Ok(left)
    }

    /// What becomes of connections that packets opened during the transaction.
    pub(super) fn look_after(&mut self, torn: &[Torn]) -> Result<(), Failure> {
        for (flow, mark) in torn {
            let Some(packet) = self.flows.get(*flow).copied() else {
                continue;
            };
            let going_on = Packet {
                established: true,
                mark: *mark,
                ..packet
            };
            let fate = self.model.hooks().after(going_on);
            if fate.passed && !self.most.allows(*flow) && !self.is_kept(*mark) {
                let how = "passes by a mark of during the commit";
                return Err(self.wrong(Kind::TornMark, &going_on, how));
            }
            if self.rng.chance(5) {
                self.model.connections.insert(packet, *mark);
                self.let_in.remove(&packet);
                self.note(&packet, *mark);
            }
        }
        Ok(())
    }

    fn wrong(&self, kind: Kind, packet: &Packet, how: &str) -> Failure {
        let which = if packet.established {
            let number = self.bits().number_in(packet.mark);
            format!("a connection of generation {number}")
        } else {
            "a new connection".to_owned()
        };
        Failure::new(kind, format!("{which} from {packet}, {how}"))
    }

    /// Lets everything come to rest, and looks at all of it.
    pub(super) fn rest(&mut self, deaf: bool, long: bool) -> Result<(), Failure> {
        self.disarm();
        self.start();
        if self.agent.as_ref().is_some_and(|agent| !agent.is_synced()) {
            self.step(super::script::Step::Sync)?;
        }
        self.deliver(deaf);
        self.settle()?;
        self.look_at_all()?;
        if long {
            let installs = self.counts.installs;
            self.commands = 0;
            self.wait_for_audit()?;
            self.settle()?;
            if self.counts.installs > installs {
                return Err(Failure::new(
                    Kind::Busy,
                    "an audit at rest led to more".to_owned(),
                ));
            }
            self.look_at_all()?;
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), Failure> {
        for _ in 0..MOST_QUESTIONS {
            if self.commands > MOST_COMMANDS {
                break;
            }
            if self.pending.is_some() {
                self.act()?;
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
                Next::Wait(_) if !self.background.is_empty() => self.finish_a_task()?,
                Next::Wait(None) => {
                    return Err(Failure::new(Kind::Busy, "waits for ever".to_owned()));
                }
                Next::Wait(Some(until)) if until <= self.now => {
                    let words = format!("told to wait until {until:?} at {:?}", self.now);
                    return Err(Failure::new(Kind::Busy, words));
                }
                Next::Wait(Some(_)) if is_current && !is_foreign => return Ok(()),
                Next::Wait(Some(until)) => self.now = until,
            }
        }
        let words = format!("does not come to rest in {} commands", self.commands);
        Err(Failure::new(Kind::Busy, words))
    }

    /// Time goes by until there is something to do.
    fn wait_for_audit(&mut self) -> Result<(), Failure> {
        let Some(agent) = &mut self.agent else {
            return Ok(());
        };
        let Next::Wait(Some(until)) = agent.next(self.now) else {
            return Err(Failure::new(Kind::Busy, "is not at rest".to_owned()));
        };
        self.now = until;
        self.act()?;
        while !self.background.is_empty() {
            self.finish_a_task()?;
        }
        Ok(())
    }

    /// Connections that are kept are kept for those who opened them.
    fn look_at_owners(&self, truth: &Truth) -> Result<(), Failure> {
        for (flow, mark) in &self.model.connections {
            let Some((life, before)) = self.let_in.get(flow).filter(|_| self.is_kept(*mark)) else {
                continue;
            };
            // What happened while no agent lived, nobody can know.
            let mut ends = before.iter().zip(truth.owners(flow));
            let is_lost = ends.any(|(before, now)| before.is_some() && *before != now);
            if *life == self.process.id && is_lost {
                let packet = Packet {
                    established: true,
                    mark: *mark,
                    ..*flow
                };
                let how = "is kept although an address of it has changed hands";
                return Err(self.wrong(Kind::Established, &packet, how));
            }
        }
        Ok(())
    }

    /// At rest the kernel does what the engine says, for every flow; and there is nothing else in it.
    fn look_at_all(&mut self) -> Result<(), Failure> {
        self.counts.rests += 1;
        let world = self.world.clone();
        let truth = self.truth(&world);
        self.most = Rc::clone(&truth);
        self.least = Rc::clone(&truth);
        for (flow, packet) in self.flows.iter().enumerate() {
            self.counts.verdicts += 1;
            let fate = Hooks::quiet(&self.model.tables).after(*packet);
            if fate.passed != truth.allows(flow) {
                let how = if fate.passed { "passes" } else { "is dropped" };
                return Err(self.wrong(Kind::Diverged, packet, how));
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
            let fate = Hooks::quiet(&self.model.tables).after(packet);
            if fate.passed != (truth.allows(place) || self.is_kept(*mark)) {
                let how = if fate.passed { "passes" } else { "is dropped" };
                return Err(self.wrong(Kind::Established, &packet, how));
            }
        }
        self.look_at_owners(&truth)?;
        if self.model.tables.len() != 1 {
            let words = format!("{} tables are left", self.model.tables.len());
            return Err(Failure::new(Kind::Diverged, words));
        }
        let Some(agent) = &self.agent else {
            return Ok(());
        };
        let budget = self.setting.config.budget;
        let fresh = self
            .catalog
            .with_cluster(budget, &world, |cluster, program| {
                spell(&plan(cluster, program, NODE))
            });
        let counts = agent.planner().counts();
        self.counts.over_budget += counts.over_budget as u64;
        self.counts.saved += (counts.groups - counts.sets) as u64;
        let kept = spell(&agent.planner().plan());
        if fresh != kept {
            let words = format!("the plan is\n{kept}\nand should be\n{fresh}");
            return Err(Failure::new(Kind::Plan, words));
        }
        Ok(())
    }
}
