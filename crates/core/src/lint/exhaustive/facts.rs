//! What is true of rules over all flows: each fact is that there is a flow, and keeps the first.

use rustc_hash::FxHashMap;

use super::partitions::FlowPartition;
use crate::model::{Cluster, PolicyId, PolicyRank};
use crate::net::Family;
use crate::policy::{Action, Direction, PolicyApi};
use crate::program::{AddressAtom, Program, RuleId};

/// Flows that no policy tells apart, of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    /// The first of the groups whose pods are the subjects, and the one after the last.
    pub(super) groups: (u32, u32),
    pub(super) family: Family,
    pub(super) map: u32,
    pub(super) assumed: Option<AddressAtom>,
    pub(super) column: u32,
    pub(super) key: u32,
}

impl Cell {
    pub(super) fn new(groups: (u32, u32), lane: &FlowPartition<'_>, column: u32, key: u32) -> Cell {
        Cell {
            groups,
            family: lane.family,
            map: lane.map,
            assumed: lane.assumed,
            column,
            key,
        }
    }
}

/// What is known of a rule.
#[derive(Clone, Debug, Default)]
pub(super) struct RuleFacts {
    /// It matches a flow of a pod that it is for.
    pub(super) matched: Option<Cell>,
    /// In an ordered tier: it is the first of its tier to match a flow.
    pub(super) first: Option<Cell>,
    /// In an ordered tier: it is asked about a flow, and decides it or passes it on.
    pub(super) decides: Option<Cell>,
    /// If it passes: without it, a flow would get another verdict.
    pub(super) has_effect: bool,
    /// In a union: no other rule matches some flow.
    pub(super) is_alone: bool,
    /// In a union: the Admin tier leaves a flow to it.
    pub(super) is_asked: bool,
    /// In a union: the Admin tier denies a flow.
    pub(super) denied: Option<Cell>,
    /// In a union: how many sorts of flows that it matches the Admin tier denies, and how many there are.
    pub(super) share: (u64, u64),
}

/// Two policies of one tier and priority.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tie {
    /// A flow that they disagree about, and its direction.
    pub(super) conflict: Option<(Direction, Cell)>,
    /// Whether rules of the two for a direction can disagree at all.
    can_disagree: [bool; 2],
}

impl Tie {
    /// Whether it is still to be found out if the two disagree.
    pub(super) fn is_open(&self, direction: Direction) -> bool {
        let [ingress, egress] = self.can_disagree;
        let can = match direction {
            Direction::Ingress => ingress,
            Direction::Egress => egress,
        };
        can && self.conflict.is_none()
    }
}

/// Everything that is found out in one walk over all flows.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) rules: Vec<RuleFacts>,
    /// The NetworkPolicies without which some flow would get another verdict.
    pub(super) is_needed: Vec<bool>,
    pub(super) ties: Vec<Tie>,
    /// The place of each pair in `ties`.
    pub(super) tie_of: FxHashMap<(PolicyId, PolicyId), usize>,
}

impl Facts {
    pub(super) fn new(cluster: &Cluster<'_>, program: &Program) -> Facts {
        let mut facts = Facts {
            rules: vec![RuleFacts::default(); program.rules.len()],
            is_needed: vec![false; cluster.policies.len()],
            ties: Vec::new(),
            tie_of: FxHashMap::default(),
        };
        for group in tied(cluster) {
            for (at, first) in group.iter().enumerate() {
                for second in group.iter().skip(at + 1) {
                    let can = |direction| can_disagree(cluster, *first, *second, direction);
                    facts.tie_of.insert((*first, *second), facts.ties.len());
                    facts.ties.push(Tie {
                        conflict: None,
                        can_disagree: Direction::BOTH.map(can),
                    });
                }
            }
        }
        facts
    }

    pub(super) fn rule(&mut self, id: RuleId) -> Option<&mut RuleFacts> {
        self.rules.get_mut(id.0 as usize)
    }

    pub(super) fn of(&self, id: RuleId) -> Option<&RuleFacts> {
        self.rules.get(id.0 as usize)
    }

    /// Adds what was found out elsewhere; what is known already stays.
    pub(super) fn add(&mut self, other: Facts) {
        for (mine, its) in self.rules.iter_mut().zip(other.rules) {
            mine.matched = mine.matched.or(its.matched);
            mine.first = mine.first.or(its.first);
            mine.decides = mine.decides.or(its.decides);
            mine.denied = mine.denied.or(its.denied);
            mine.has_effect |= its.has_effect;
            mine.is_alone |= its.is_alone;
            mine.is_asked |= its.is_asked;
            mine.share.0 += its.share.0;
            mine.share.1 += its.share.1;
        }
        for (mine, its) in self.is_needed.iter_mut().zip(other.is_needed) {
            *mine |= its;
        }
        for (mine, its) in self.ties.iter_mut().zip(other.ties) {
            mine.conflict = mine.conflict.or(its.conflict);
        }
    }
}

/// The enforced policies that share tier and priority, in order of precedence, at least two each.
/// Policies without priorities are not tied (D7, D61, D62).
pub(super) fn tied(cluster: &Cluster<'_>) -> Vec<Vec<PolicyId>> {
    let mut groups: FxHashMap<PolicyRank, Vec<PolicyId>> = FxHashMap::default();
    for (id, policy) in (0..).zip(&cluster.policies) {
        let has_priority = match policy.generation {
            PolicyApi::Cluster | PolicyApi::Admin => true,
            PolicyApi::BaselineAdmin
            | PolicyApi::NetworkPolicy
            | PolicyApi::NetworkPolicy2016
            | PolicyApi::EarlyCluster
            | PolicyApi::Default => false,
        };
        if has_priority && !policy.audited && policy.subject.is_some() {
            groups.entry(policy.rank).or_default().push(PolicyId(id));
        }
    }
    let mut groups: Vec<(PolicyRank, Vec<PolicyId>)> = groups.into_iter().collect();
    groups.retain(|it| it.1.len() > 1);
    groups.sort_unstable();
    let precedence = |id: &PolicyId| {
        let policy = cluster.policies.get(id.0 as usize);
        policy.map(crate::affect::precedence)
    };
    let sorted = groups.into_iter().map(|(_, mut group)| {
        group.sort_by_key(precedence);
        group
    });
    sorted.collect()
}

/// Whether some rules of two policies for a direction do different things.
fn can_disagree(
    cluster: &Cluster<'_>,
    first: PolicyId,
    second: PolicyId,
    direction: Direction,
) -> bool {
    let actions = |id: PolicyId| -> Vec<Action> {
        let policy = cluster.policies.get(id.0 as usize);
        let rules = policy.into_iter().flat_map(|it| &it.rules(direction).list);
        rules
            .filter_map(|it| Some(it.effect.as_ref()?.action))
            .collect()
    };
    let second = actions(second);
    actions(first)
        .iter()
        .any(|it| second.iter().any(|other| it != other))
}
