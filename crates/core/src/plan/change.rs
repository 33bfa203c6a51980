//! The difference between two plans of one node.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use super::{Group, GroupId, GroupKind, Plan, PodChains, RuleChain, RuleChainId};

/// The difference between two plans. A number that stays has the same meaning: a rule chain with
/// other rules has another number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanChange {
    /// A change to apply before the rest, which alters no verdict. Where groups that share a number
    /// come to differ, some of them get new numbers, and so do the rule chains that name them. The
    /// previous rule chains end with the rest.
    pub split: Option<Box<PlanChange>>,
    /// New groups. Their members are in `joined`.
    pub groups: Vec<(GroupId, GroupKind)>,
    /// Addresses that join new groups or groups that stay.
    pub joined: Vec<(GroupId, IpAddr)>,
    /// Addresses that leave groups that stay.
    pub left: Vec<(GroupId, IpAddr)>,
    /// The groups with other members that a step with Deny or Pass or an exception names. An
    /// address that joins one may lose access, and an address that leaves one may gain it.
    pub narrowing: BTreeSet<GroupId>,
    /// Groups that no rule chain names any more.
    pub ended_groups: Vec<GroupId>,
    /// The members of the groups in `ended_groups`.
    pub ended_members: Vec<(GroupId, IpAddr)>,
    /// New rule chains.
    pub chains: Vec<(RuleChainId, Arc<RuleChain>)>,
    /// Rule chains that no pod of the node uses any more.
    pub ended_chains: Vec<RuleChainId>,
    /// Addresses of pods that are new or use other rule chains.
    pub pods: Vec<(IpAddr, PodChains)>,
    /// Addresses that no pod of the node has any more.
    pub ended_pods: Vec<IpAddr>,
    /// Whether open connections must be evaluated again: something was removed or denied, or an
    /// address has another owner.
    pub reevaluate: bool,
    /// Addresses that another object owns now, or none. They change nothing in the plan. A
    /// dataplane that keeps open connections must not keep those of these addresses.
    pub changed_hands: Vec<IpAddr>,
}

impl PlanChange {
    /// Whether the plan stays the same and no connection must be evaluated again.
    pub fn is_empty(&self) -> bool {
        // All fields are named, so a new one must be considered here. Two change nothing by
        // themselves: groups in `narrowing` have members in `joined` or `left`, and `changed_hands`
        // concerns open connections, not the plan.
        let PlanChange {
            split,
            groups,
            joined,
            left,
            narrowing: _,
            ended_groups,
            ended_members,
            chains,
            ended_chains,
            pods,
            ended_pods,
            reevaluate: rejudge,
            changed_hands: _,
        } = self;
        let no_groups = groups.is_empty() && ended_groups.is_empty();
        let no_members = joined.is_empty() && left.is_empty() && ended_members.is_empty();
        let no_chains = chains.is_empty() && ended_chains.is_empty();
        let no_pods = pods.is_empty() && ended_pods.is_empty();
        split.is_none() && no_groups && no_members && no_chains && no_pods && !rejudge
    }
}

impl Plan {
    /// Applies a change: the plan becomes the one after it.
    pub fn apply(&mut self, change: &PlanChange) {
        // The rest uses the numbers that the split introduces.
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
        // Groups stay sorted. An address that is a member already, or is none, changes nothing.
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
        // Members of ended groups need no step of their own here: they go with the group.
        for id in &change.ended_groups {
            self.groups.remove(id);
        }
        for (id, chain) in &change.chains {
            self.chains.insert(*id, Arc::clone(chain));
        }
        for id in &change.ended_chains {
            self.chains.remove(id);
        }
        self.pods.extend(change.pods.iter().copied());
        for address in &change.ended_pods {
            self.pods.remove(address);
        }
    }
}
