//! Which bodies ask who is in a group: those of packets that come in, those of packets that go out, or both.
//!
//! A flow is allowed if both of its sides allow it. As long as only one side asks for the groups that addresses move between, somebody
//! who is in the old and in the new one for a moment is allowed what one of them allows, and no more. If both sides ask, one could
//! say yes for the old and the other one for the new.

use std::collections::BTreeMap;

use palisade_core::plan::{GroupId, PeerScope, RuleChain};
use palisade_core::policy::Direction;

/// How many bodies of each direction ask for a group.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupUsers(BTreeMap<GroupId, [u32; 2]>);

impl GroupUsers {
    /// A body is there.
    pub(super) fn add(&mut self, body: &RuleChain) {
        each(body, &mut |group, direction| {
            *of(self.0.entry(group).or_default(), direction) += 1;
        });
    }

    /// A body is gone.
    pub(super) fn remove(&mut self, body: &RuleChain) {
        each(body, &mut |group, direction| {
            if let Some(counts) = self.0.get_mut(&group) {
                let count = of(counts, direction);
                *count = count.saturating_sub(1);
                if *counts == [0; 2] {
                    self.0.remove(&group);
                }
            }
        });
    }

    /// Whether at most one side of a flow asks for any of some groups.
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

fn each(body: &RuleChain, take: &mut dyn FnMut(GroupId, Direction)) {
    for step in body.admin.iter().chain(&body.rest) {
        for port in step.ports.iter().flatten() {
            if let Some(group) = port.at {
                // It is asked beside the peer's groups, about the destination, whichever side that is.
                for direction in Direction::BOTH {
                    take(group, direction);
                }
            }
        }
        for peer in step.peers.iter().flatten() {
            if let PeerScope::Group(group) = peer.within {
                take(group, body.direction);
            }
            for group in &peer.except {
                take(*group, body.direction);
            }
        }
    }
    for group in body.merged.groups() {
        take(group, body.direction);
    }
}
