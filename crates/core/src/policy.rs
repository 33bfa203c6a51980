//! Tiers, actions and directions: the words of the evaluation order.

use std::fmt;

/// What a rule does with the traffic it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// The traffic is allowed, in this direction, whatever later rules say.
    Accept,
    /// The traffic is denied.
    Deny,
    /// The rest of the tier is skipped and the next tier decides.
    Pass,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Action::Accept => "Accept",
            Action::Deny => "Deny",
            Action::Pass => "Pass",
        })
    }
}

/// Where a cluster-wide policy stands relative to the developers' NetworkPolicies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Before every NetworkPolicy.
    Admin,
    /// After every NetworkPolicy, for pods that none of them isolates.
    Baseline,
}

/// The direction of a flow as the pod that a policy selects sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Towards the pod.
    Ingress,
    /// From the pod.
    Egress,
}

impl Direction {
    /// The key of the rule list, as every generation writes it.
    pub fn key(self) -> &'static str {
        match self {
            Direction::Ingress => "ingress",
            Direction::Egress => "egress",
        }
    }
}
