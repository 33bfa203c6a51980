//! Compares the engine with packets: from every pod to every other one, at each port, in a new and
//! in an established connection.

use std::net::IpAddr;

use anyhow::{Context as _, Result};
use palisade_core::answer::{FlowEvaluator, FlowVerdict};
use palisade_core::compile::compile;
use palisade_core::net::Family;
use palisade_core::plan::plan;
use palisade_core::query::FlowQuery;
use palisade_lab::packet::ProbePayload;
use palisade_lab::topology::Location;
use palisade_lab::wire::{Probe, Wire};
use palisade_nft::Kernel;
use palisade_nft::ruleset::{Chain, Hook, Name, Point, Rule, Ruleset, Statement, Verdict};

use super::churn::{EGRESS_DENIED, OPEN, TOGGLED};
use super::objects::{NODE, Objects, pod_address};
use super::outcome::Outcome;
use super::programmer::with_cluster;
use super::test_node::{PLACES, TestNode};

/// The ports.
const PORTS: [u16; 3] = [OPEN, TOGGLED, EGRESS_DENIED];
/// The source port of established connections.
const ESTABLISHED_PORT: u16 = 20_000;

/// The probes, and the sockets that send them.
#[derive(Debug)]
pub struct Matrix {
    wire: Wire,
    probes: Vec<Probe>,
}

/// Whether each probe passes.
pub type Verdicts = Vec<bool>;

impl Matrix {
    /// Opens the sockets, and mutes the pods.
    pub fn open(node: &TestNode) -> Result<Matrix> {
        for pod in 0..PLACES {
            mute(node, pod)?;
        }
        let mut probes = Vec::new();
        for family in Family::BOTH {
            for (from, to) in pairs() {
                for port in PORTS {
                    for source_port in [Some(ESTABLISHED_PORT), None] {
                        probes.push(Probe {
                            from: Location::Pod(from),
                            source: pod_address(from, family),
                            destination: pod_address(to, family),
                            carried: ProbePayload::Udp { port },
                            source_port,
                        });
                    }
                }
            }
        }
        Ok(Matrix {
            wire: Wire::open(&node.world)?,
            probes,
        })
    }

    /// The engine's verdicts. Addresses of the node's block without a pod are denied (D84),
    /// regardless of policies.
    pub fn predicted(&self, objects: &Objects) -> Result<Verdicts> {
        with_cluster(objects, |cluster| {
            let program = compile(cluster);
            let plan = plan(cluster, &program, NODE);
            let evaluator = FlowEvaluator::new(cluster, &program);
            let is_known = |address: IpAddr| plan.pods.contains_key(&address);
            let verdict = |probe: &Probe| -> Result<bool> {
                if !is_known(probe.source) || !is_known(probe.destination) {
                    return Ok(false);
                }
                let port = probe.carried.port().unwrap_or_default();
                let flow = format!("{} {} udp/{port}", probe.source, probe.destination);
                let answer = evaluator.answer(&FlowQuery::parse(&flow)?)?;
                Ok(answer.outcome.verdict == FlowVerdict::Allow)
            };
            self.probes.iter().map(verdict).collect()
        })?
    }

    /// Sends the probes, and returns which arrived.
    pub fn measured(&mut self) -> Result<Verdicts> {
        let mut measured = self.wire.probe(&self.probes, &|_| {})?;
        self.wire.probe_again(&self.probes, &mut measured)?;
        Ok(measured.iter().map(|it| it.arrived.is_some()).collect())
    }

    /// The sockets.
    pub fn wire(&mut self) -> &mut Wire {
        &mut self.wire
    }

    /// The packets.
    pub fn probes(&self) -> &[Probe] {
        &self.probes
    }

    /// Compares packets with the engine's verdicts.
    pub fn compare(&mut self, outcome: &mut Outcome, objects: &Objects, when: &str) -> Result<()> {
        let predicted = self.predicted(objects)?;
        self.compare_with(outcome, &[&predicted], when)
    }

    /// Compares packets with several predictions, one of which must hold for all packets.
    pub fn compare_with(
        &mut self,
        outcome: &mut Outcome,
        any_of: &[&Verdicts],
        when: &str,
    ) -> Result<()> {
        let measured = self.measured()?;
        outcome.count("packets compared", measured.len() as u64);
        if any_of.iter().any(|it| **it == measured) {
            return Ok(());
        }
        let first = any_of.first().context("nothing is predicted")?;
        for ((probe, measured), predicted) in self.probes.iter().zip(&measured).zip(*first) {
            if measured != predicted {
                let what = if *measured { "leaked" } else { "lost" };
                outcome.count(what, 1);
                outcome.check(false, || format!("{what} {when}: {probe:?}"));
            }
        }
        Ok(())
    }
}

/// Every pod with every other.
fn pairs() -> impl Iterator<Item = (usize, usize)> {
    let all = (0..PLACES).flat_map(|from| (0..PLACES).map(move |to| (from, to)));
    all.filter(|(from, to)| from != to)
}

/// Mutes a pod's own stack: it sends no replies to probes.
pub fn mute(node: &TestNode, pod: usize) -> Result<()> {
    let drop_all = Ruleset {
        table: Name::word("mute"),
        sets: Vec::new(),
        chains: vec![Chain {
            name: Name::word("input"),
            hook: Some(Hook {
                point: Point::Input,
                priority: 0,
                nat: false,
            }),
            rules: vec![Rule {
                statements: vec![Statement::Verdict(Verdict::Drop)],
                ..Rule::default()
            }],
        }],
    };
    let muted = node
        .world
        .in_pod(pod, || Kernel::open()?.install_plain(&drop_all))?;
    muted.context("cannot mute a pod")
}
