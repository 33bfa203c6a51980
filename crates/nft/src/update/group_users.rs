//! Counts the rule chains that use each group: those for ingress, those for egress, or both.
//!
//! A flow is allowed if both sides allow it. While only one side uses the groups between which
//! addresses move, an address that is in its old and its new group for a moment is allowed what one
//! of them allows, and no more. If both sides use them, one could accept by the old group and the
//! other one by the new.

use std::collections::BTreeMap;

use palisade_core::plan::{GroupId, PeerScope, RuleChain};
use palisade_core::policy::Direction;

/// The number of rule chains of each direction that use a group.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupUsers(BTreeMap<GroupId, [u32; 2]>);

impl GroupUsers {
    /// Counts a rule chain.
    pub(super) fn add(&mut self, chain: &RuleChain) {
        each(chain, &mut |group, direction| {
            *of(self.0.entry(group).or_default(), direction) += 1;
        });
    }

    /// Removes a rule chain from the counts.
    pub(super) fn remove(&mut self, chain: &RuleChain) {
        each(chain, &mut |group, direction| {
            if let Some(counts) = self.0.get_mut(&group) {
                let count = of(counts, direction);
                *count = count.saturating_sub(1);
                if *counts == [0; 2] {
                    self.0.remove(&group);
                }
            }
        });
    }

    /// Reports whether at most one side of a flow uses any of some groups.
    pub(super) fn is_one_sided(&self, groups: impl Iterator<Item = GroupId>) -> bool {
        let mut sides = [false; 2];
        for group in groups {
            let counts = self.0.get(&group).copied().unwrap_or_default();
            for (side, count) in sides.iter_mut().zip(counts) {
                *side |= count > 0;
            }
        }
        sides != [true; 2]
    }
}

fn of(pair: &mut [u32; 2], direction: Direction) -> &mut u32 {
    let [ingress, egress] = pair;
    match direction {
        Direction::Ingress => ingress,
        Direction::Egress => egress,
    }
}

fn each(chain: &RuleChain, take: &mut dyn FnMut(GroupId, Direction)) {
    for step in chain.admin.iter().chain(&chain.rest) {
        for port in step.ports.iter().flatten() {
            if let Some(group) = port.at {
                // As if both sides used it: the rule looks up this group and one of the peer. An
                // address could be in the one by its old labels, and in the other by its new ones.
                for direction in Direction::BOTH {
                    take(group, direction);
                }
            }
        }
        for peer in step.peers.iter().flatten() {
            if let PeerScope::Group(group) = peer.within {
                take(group, chain.direction);
            }
            for group in &peer.except {
                take(*group, chain.direction);
            }
        }
    }
    for group in chain.merged.groups() {
        take(group, chain.direction);
    }
}
