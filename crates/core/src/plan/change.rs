//! The difference between two plans of one node.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use super::{Group, GroupId, GroupKind, Plan, PodChains, RuleChain, RuleChainId};

/// What is different. Numbers that stay mean the same; a body that says something else has another
/// number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanChange {
    /// What comes before the rest, and means nothing else for anybody: groups that were told as one, and are not
    /// alike after the rest, become several, and bodies that name them have other numbers. Those of before end with the rest.
    pub split: Option<Box<PlanChange>>,
    /// New groups, still without members.
    pub groups: Vec<(GroupId, GroupKind)>,
    /// Addresses that join new groups and groups that stay.
    pub joined: Vec<(GroupId, IpAddr)>,
    /// Addresses that leave groups that stay.
    pub left: Vec<(GroupId, IpAddr)>,
    /// Those of the groups with other members that steps name which deny or pass on: who joins them may lose something,
    /// and who leaves them may gain.
    pub narrowing: BTreeSet<GroupId>,
    /// Groups that nothing names any more.
    pub ended_groups: Vec<GroupId>,
    /// The members that those had.
    pub ended_members: Vec<(GroupId, IpAddr)>,
    /// New bodies.
    pub chains: Vec<(RuleChainId, Arc<RuleChain>)>,
    /// Bodies that nobody faces any more.
    pub ended_bodies: Vec<RuleChainId>,
    /// Addresses of pods that are new, or that face something else.
    pub pods: Vec<(IpAddr, PodChains)>,
    /// Addresses that no pod of the node has any more.
    pub ended_pods: Vec<IpAddr>,
    /// Whether something was taken away or denied, or an address changed hands, so that connections
    /// have to be judged anew.
    pub rejudge: bool,
    /// Addresses that somebody else has now, or nobody: what was theirs is nobody's any more. They change nothing by
    /// themselves; whoever keeps connections must not keep those of these addresses.
    pub changed_hands: Vec<IpAddr>,
}

impl PlanChange {
    /// Whether the plan is the same, and connections need not be judged anew.
    pub fn is_empty(&self) -> bool {
        let PlanChange {
            split,
            groups,
            joined,
            left,
            narrowing: _,
            ended_groups,
            ended_members,
            chains: bodies,
            ended_bodies,
            pods,
            ended_pods,
            rejudge,
            changed_hands: _,
        } = self;
        let no_groups = groups.is_empty() && ended_groups.is_empty();
        let no_members = joined.is_empty() && left.is_empty() && ended_members.is_empty();
        let no_bodies = bodies.is_empty() && ended_bodies.is_empty();
        let no_pods = pods.is_empty() && ended_pods.is_empty();
        split.is_none() && no_groups && no_members && no_bodies && no_pods && !rejudge
    }
}

impl Plan {
    /// Becomes the plan that it is different from.
    pub fn apply(&mut self, change: &PlanChange) {
        if let Some(split) = &change.split {
            self.apply(split);
        }
        for (id, kind) in &change.groups {
            let group = Group {
                kind: *kind,
                addresses: Vec::new(),
            };
            self.groups.insert(*id, group);
        }
        for (id, address) in &change.joined {
            if let Some(group) = self.groups.get_mut(id)
                && let Err(place) = group.addresses.binary_search(address)
            {
                group.addresses.insert(place, *address);
            }
        }
        for (id, address) in &change.left {
            if let Some(group) = self.groups.get_mut(id)
                && let Ok(place) = group.addresses.binary_search(address)
            {
                group.addresses.remove(place);
            }
        }
        for id in &change.ended_groups {
            self.groups.remove(id);
        }
        for (id, body) in &change.chains {
            self.chains.insert(*id, Arc::clone(body));
        }
        for id in &change.ended_bodies {
            self.chains.remove(id);
        }
        self.pods.extend(change.pods.iter().copied());
        for address in &change.ended_pods {
            self.pods.remove(address);
        }
    }
}
