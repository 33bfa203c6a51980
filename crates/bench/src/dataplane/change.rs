//! Changing the table of a full node, one thing at a time.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use palisade_core::net::Family;
use palisade_core::plan::{GroupId, GroupKind, Plan, PlanChange, PodChains, RuleChainId};
use palisade_lab::network::LabNetwork;
use palisade_nft::node::Generation;
use palisade_nft::{Kernel, TableUpdater, Transaction};
use serde::Serialize;

use super::cluster::{Load, SERVER, Stack, node_plan, node_settings, pod_address, unmerged_plan};
use super::load::{Took, Tries, check_table};
use super::variant::empty_node;
use crate::compare::progress;

/// What changes took, the 10th percentile of some hundred.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ChangeReport {
    pub(super) name: &'static str,
    /// The rules of the table.
    pub(super) rules: usize,
    pub(super) transactions: usize,
    pub(super) took: Took,
    pub(super) bar_seconds: Option<f64>,
}

const TIMES: u32 = 400;
const PEER_SECONDS: f64 = 10e-6;
const POLICY_SECONDS: f64 = 3e-3;

/// A table, and the state to update it.
struct Table {
    kernel: Kernel,
    updater: TableUpdater,
    rules: usize,
}

impl Table {
    fn new(plan: &Plan) -> Result<(Table, LabNetwork)> {
        let world = empty_node()?;
        let mut kernel = world.in_node(0, Kernel::open)??;
        let settings = node_settings(Generation::FIRST)?;
        let (updater, ruleset) = TableUpdater::new(plan, &settings);
        let rules = ruleset.chains.iter().map(|chain| chain.rules.len()).sum();
        kernel.install(&ruleset)?;
        let table = Table {
            kernel,
            updater,
            rules,
        };
        Ok((table, world))
    }

    /// Makes changes, and takes the time of their transactions.
    fn measure(
        &mut self,
        name: &'static str,
        bar_seconds: Option<f64>,
        mut change: impl FnMut(u32, &TableUpdater) -> (PlanChange, Option<Generation>),
    ) -> Result<ChangeReport> {
        let mut tries = Tries::default();
        let mut transactions = 0;
        for time in 0..TIMES {
            let (change, generation) = change(time, &self.updater);
            let change = self.updater.change(&change, generation);
            let mut list: Vec<Transaction> = change.ok().context("a set has no capacity left")?;
            transactions = list.len();
            // The grace period for packets in flight takes time, but no work.
            for transaction in &mut list {
                transaction.waits = false;
            }
            tries.time(|| {
                for transaction in &list {
                    self.kernel.commit(transaction)?;
                }
                Ok(())
            })?;
        }
        Ok(ChangeReport {
            name,
            rules: self.rules,
            transactions,
            took: tries.at(10),
            bar_seconds,
        })
    }

    /// Ensures that the kernel's table equals a plan after the updates that lead to it.
    fn check(&mut self, plan: &Plan) -> Result<()> {
        check_table(
            &mut self.kernel,
            &self.updater.expected(plan.clone()).ruleset(),
        )
    }
}

/// One peer, another generation, and one pod's policies.
pub(super) fn changes(policies: usize) -> Result<Vec<ChangeReport>> {
    progress("changing")?;
    let load = Load {
        policies,
        stack: Stack::Dual,
    };
    let plan = node_plan(load)?;
    let (mut table, _world) = Table::new(&plan)?;
    let peer = IpAddr::V4(Ipv4Addr::new(10, 200, 0, 1));
    let mut groups = plan.groups.iter();
    let hosts = groups.find(|(_, group)| group.kind == GroupKind::Hosts);
    let (group, _) = hosts.context("no group is a peer")?;
    let mut reports = vec![
        table.measure("a peer joins or leaves", Some(PEER_SECONDS), |time, _| {
            (of_a_peer(*group, peer, time), None)
        })?,
        table.measure("another generation", None, |_, updater| {
            (PlanChange::default(), Some(next(updater)))
        })?,
    ];
    let mut rewritten = Rewritten::new(&plan)?;
    reports.push(table.measure(
        "a pod's policies, many of them merged",
        None,
        |_, updater| (rewritten.again(), Some(next(updater))),
    )?);
    table.check(&rewritten.plan)?;
    drop(table);

    let plan = unmerged_plan(Load {
        policies,
        stack: Stack::Ipv4,
    })?;
    let (mut table, _world) = Table::new(&plan)?;
    let mut rewritten = Rewritten::new(&plan)?;
    reports.push(table.measure(
        "a pod's policies, rule by rule",
        Some(POLICY_SECONDS),
        |_, updater| (rewritten.again(), Some(next(updater))),
    )?);
    table.check(&rewritten.plan)?;
    Ok(reports)
}

fn next(updater: &TableUpdater) -> Generation {
    let settings = updater.settings();
    settings.generation.next(settings.mark.last_generation())
}

fn of_a_peer(group: GroupId, peer: IpAddr, time: u32) -> PlanChange {
    let (mut joined, mut left) = (vec![(group, peer)], Vec::new());
    if !time.is_multiple_of(2) {
        std::mem::swap(&mut joined, &mut left);
    }
    PlanChange {
        joined,
        left,
        ..PlanChange::default()
    }
}

/// A pod with equal policies in every round, under other identifiers.
struct Rewritten {
    plan: Plan,
    pods: Vec<IpAddr>,
    next: u32,
}

impl Rewritten {
    fn new(plan: &Plan) -> Result<Rewritten> {
        let last = plan.chains.keys().last().context("no pod has policies")?;
        // However few policies there are, the server has some of its own.
        let pods = Family::BOTH.map(|family| pod_address(SERVER, family));
        let server = pods.iter().filter_map(|it| plan.pods.get(it));
        let own: BTreeSet<RuleChainId> = server.filter_map(|it| it.ingress).collect();
        let others = plan.pods.iter().filter(|(it, _)| !pods.contains(it));
        let is_own =
            |(_, faced): (&IpAddr, &PodChains)| !faced.ingress.is_some_and(|it| own.contains(&it));
        ensure!(
            own.len() == 1 && others.into_iter().all(is_own),
            "the server does not have policies of its own"
        );
        Ok(Rewritten {
            plan: plan.clone(),
            pods: pods.into(),
            next: last.0 + 1,
        })
    }

    /// Both of its addresses get another rule chain for ingress.
    fn again(&mut self) -> PlanChange {
        let mut change = PlanChange::default();
        let id = RuleChainId(self.next);
        self.next += 1;
        for pod in &self.pods {
            let Some(faced) = self.plan.pods.get(pod).copied() else {
                continue;
            };
            if let Some(old) = faced.ingress
                && let Some(chain) = self.plan.chains.get(&old)
                && change.chains.is_empty()
            {
                change.chains.push((id, Arc::clone(chain)));
                change.ended_chains.push(old);
            }
            let ingress = Some(id);
            change.pods.push((*pod, PodChains { ingress, ..faced }));
        }
        self.plan.apply(&change);
        change
    }
}
