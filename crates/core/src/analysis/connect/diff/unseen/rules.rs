//! The rules of a policy for one direction, in a form in which a reordering that changes no verdict
//! leaves an equal value.

use std::collections::{BTreeMap, BTreeSet};

use super::sets::SelectedSet;
use crate::compile::count;
use crate::model::{Cluster, Policy, PolicyRank, PortMatch};
use crate::policy::{Action, Direction};

/// Sets of peers, each with the indexes of the rules that select it.
pub(super) type ByRule<'c> = BTreeMap<SelectedSet<'c>, BTreeSet<u32>>;

/// Rules of one action that follow each other: a union, whatever their order.
#[derive(Debug)]
pub(super) struct Run<'c> {
    action: Action,
    peers: BTreeMap<SelectedSet<'c>, Matched<'c>>,
}

/// The ports at which a peer matches, and the rules by which it does.
#[derive(Debug, Default)]
struct Matched<'c> {
    /// `None` is every port, and stands alone.
    ports: BTreeSet<Option<PortMatch<'c>>>,
    rules: BTreeSet<u32>,
}

impl Run<'_> {
    /// Returns whether two runs match the same, whatever their rules are.
    fn is_like(&self, other: &Run<'_>) -> bool {
        let mut pairs = self.peers.iter().zip(&other.peers);
        self.action == other.action
            && self.peers.len() == other.peers.len()
            && pairs
                .all(|((set, it), (other_set, other))| set == other_set && it.ports == other.ports)
    }

    fn has_like(&self, set: &SelectedSet<'_>, matched: &Matched<'_>) -> bool {
        let own = self.peers.get(set);
        own.is_some_and(|own| own.ports == matched.ports)
    }
}

/// Returns the runs of a policy.
pub(super) fn runs<'c>(
    cluster: &'c Cluster<'c>,
    policy: &'c Policy<'c>,
    direction: Direction,
) -> Vec<Run<'c>> {
    let list = policy.rules(direction).list.iter().enumerate();
    let effects = list.filter_map(|(index, rule)| Some((count(index), rule.effect.as_ref()?)));
    let mut effects: Vec<_> = effects.collect();
    if policy.rank == PolicyRank::EarlyAdmin {
        // Every Deny takes precedence over every Allow (D61), so the order between them is none.
        effects.sort_by_key(|(_, effect)| effect.action != Action::Deny);
    }
    let mut runs: Vec<Run<'c>> = Vec::new();
    for (index, effect) in effects {
        let sets = match &effect.peers {
            Some(peers) => {
                let of = |peer| SelectedSet::of_peer(cluster, policy.namespace, peer);
                peers.iter().flat_map(of).collect()
            }
            None => vec![SelectedSet::Everything],
        };
        let ports: BTreeSet<Option<PortMatch<'c>>> = match &effect.ports {
            Some(ports) => ports.iter().cloned().map(Some).collect(),
            None => [None].into(),
        };
        // A rule without peers or ports matches nothing, and separates no runs.
        if sets.is_empty() || ports.is_empty() {
            continue;
        }
        if runs.last().is_none_or(|last| last.action != effect.action) {
            runs.push(Run {
                action: effect.action,
                peers: BTreeMap::new(),
            });
        }
        let Some(run) = runs.last_mut() else { continue };
        for set in sets {
            let matched = run.peers.entry(set).or_default();
            matched.rules.insert(index);
            matched.ports.extend(ports.iter().cloned());
            if matched.ports.contains(&None) {
                matched.ports = [None].into();
            }
        }
    }
    runs
}

/// Returns whether some rule names a port.
pub(super) fn names_ports(runs: &[Run<'_>]) -> bool {
    let matched = runs.iter().flat_map(|run| run.peers.values());
    let mut ports = matched.flat_map(|it| &it.ports);
    ports.any(|it| matches!(it, Some(PortMatch::Named(..))))
}

/// Returns all sets of peers.
pub(super) fn all<'c>(runs: &[Run<'c>]) -> ByRule<'c> {
    let mut sets = ByRule::new();
    for (set, matched) in runs.iter().flat_map(|run| &run.peers) {
        let rules = sets.entry(set.clone()).or_default();
        rules.extend(&matched.rules);
    }
    sets
}

/// Returns the sets of peers that two lists of rules may evaluate differently, from each list.
///
/// The first rule that matches decides. So a flow that matches only runs that both lists begin or
/// end with has the same verdict from both.
pub(super) fn differing<'c>(old: &[Run<'c>], new: &[Run<'c>]) -> [ByRule<'c>; 2] {
    let pairs = old.iter().zip(new);
    let start = pairs.take_while(|(old, new)| old.is_like(new)).count();
    let old = old.get(start..).unwrap_or_default();
    let new = new.get(start..).unwrap_or_default();
    let pairs = old.iter().rev().zip(new.iter().rev());
    let end = pairs.take_while(|(old, new)| old.is_like(new)).count();
    let old = old.get(..old.len() - end).unwrap_or_default();
    let new = new.get(..new.len() - end).unwrap_or_default();
    // Within one action the rules are a union: only what one side lacks can differ. Between several
    // actions the order counts, and everything that moved can.
    let ([of_old], [of_new]) = (old, new) else {
        return [all(old), all(new)];
    };
    if of_old.action != of_new.action {
        return [all(old), all(new)];
    }
    [(of_old, of_new), (of_new, of_old)].map(|(run, other)| {
        let peers = run.peers.iter();
        let own = peers.filter(|(set, matched)| !other.has_like(set, matched));
        own.map(|(set, matched)| (set.clone(), matched.rules.clone()))
            .collect()
    })
}
