//! Facts about rules over all flows. Each fact states that some flow exists, and keeps the first
//! flow class as evidence.

use rustc_hash::FxHashMap;

use super::partitions::FlowPartition;
use crate::model::{Cluster, PolicyId, PolicyRank};
use crate::net::Family;
use crate::policy::{Action, Direction, PolicyApi};
use crate::program::{AddressAtom, Program, RuleId};

/// A class of flows of one direction that no policy distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    /// The groups whose pods are the subjects: the first, and the one after the last.
    pub(super) groups: (u32, u32),
    pub(super) family: Family,
    pub(super) map: u32,
    pub(super) assumed: Option<AddressAtom>,
    pub(super) column: u32,
    pub(super) key: u32,
}

impl Cell {
    pub(super) fn new(
        groups: (u32, u32),
        partition: &FlowPartition<'_>,
        column: u32,
        key: u32,
    ) -> Cell {
        Cell {
            groups,
            family: partition.family,
            map: partition.map,
            assumed: partition.assumed,
            column,
            key,
        }
    }
}

/// The facts about a rule.
#[derive(Clone, Debug, Default)]
pub(super) struct RuleFacts {
    /// A flow that the rule matches.
    pub(super) matched: Option<Cell>,
    /// In an ordered tier: a flow that no earlier rule of the tier matches, whether or not it
    /// reaches the tier.
    pub(super) first: Option<Cell>,
    /// In an ordered tier: a flow that reaches the tier and that the rule decides or passes.
    pub(super) decides: Option<Cell>,
    /// For Pass: whether some flow would get another verdict without the rule.
    pub(super) has_effect: bool,
    /// In a union: whether it alone matches some flow.
    pub(super) is_alone: bool,
    /// In a union: whether the Admin tier leaves it a flow that it matches.
    pub(super) is_reached: bool,
    /// In a union: a flow that it matches and the Admin tier denies.
    pub(super) denied: Option<Cell>,
    /// In a union: the number of flow classes that it matches and the Admin tier denies, and of all
    /// that it matches.
    pub(super) share: (u64, u64),
}

/// Two policies of one tier and priority.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tie {
    /// A flow that they decide differently, and its direction.
    pub(super) conflict: Option<(Direction, Cell)>,
    /// Whether the actions of their rules differ at all, for each direction.
    can_disagree: [bool; 2],
}

impl Tie {
    /// Whether a conflict is possible in a direction and none is known.
    pub(super) fn is_open(&self, direction: Direction) -> bool {
        let [ingress, egress] = self.can_disagree;
        let can = match direction {
            Direction::Ingress => ingress,
            Direction::Egress => egress,
        };
        can && self.conflict.is_none()
    }
}

/// All facts that one walk over the flows finds.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) rules: Vec<RuleFacts>,
    /// For each policy, whether some flow would get another verdict without it; for
    /// NetworkPolicies.
    pub(super) is_needed: Vec<bool>,
    pub(super) ties: Vec<Tie>,
    /// The index in `ties` of each pair, in order of precedence.
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
                    // Only unequal actions can lead to a conflict. This spares most pairs the folds
                    // of the walk.
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

    /// Adds the facts of another walk. Evidence that is already known stays.
    pub(super) fn add(&mut self, other: Facts) {
        // The known evidence wins, so the result does not depend on which walk ends first.
        for (mine, its) in self.rules.iter_mut().zip(other.rules) {
            mine.matched = mine.matched.or(its.matched);
            mine.first = mine.first.or(its.first);
            mine.decides = mine.decides.or(its.decides);
            mine.denied = mine.denied.or(its.denied);
            mine.has_effect |= its.has_effect;
            mine.is_alone |= its.is_alone;
            mine.is_reached |= its.is_reached;
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

/// Returns the groups of two or more enforced policies with the same tier and priority, in order of
/// precedence. Policies without priorities do not tie (D7, D61, D62).
pub(super) fn tied(cluster: &Cluster<'_>) -> Vec<Vec<PolicyId>> {
    let mut groups: FxHashMap<PolicyRank, Vec<PolicyId>> = FxHashMap::default();
    for (id, policy) in (0..).zip(&cluster.policies) {
        let has_priority = match policy.api {
            PolicyApi::Cluster | PolicyApi::Admin => true,
            PolicyApi::BaselineAdmin
            | PolicyApi::NetworkPolicy
            | PolicyApi::NetworkPolicy2016
            | PolicyApi::IsolationAnnotation
            | PolicyApi::EarlyCluster
            | PolicyApi::Default => false,
        };
        if has_priority && !policy.audited && policy.subject.is_some() {
            groups.entry(policy.rank).or_default().push(PolicyId(id));
        }
    }
    let mut groups: Vec<(PolicyRank, Vec<PolicyId>)> = groups.into_iter().collect();
    groups.retain(|it| it.1.len() > 1);
    // The map has no order; findings need one.
    groups.sort_unstable();
    let precedence = |id: &PolicyId| {
        let policy = cluster.policies.get(id.0 as usize);
        policy.map(crate::analysis::affect::precedence)
    };
    let sorted = groups.into_iter().map(|(_, mut group)| {
        group.sort_by_key(precedence);
        group
    });
    sorted.collect()
}

/// Whether two policies have rules of a direction with different actions.
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
