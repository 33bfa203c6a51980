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
    /// Both.
    pub const BOTH: [Direction; 2] = [Direction::Ingress, Direction::Egress];

    /// The key of the rule list, as every generation writes it.
    pub fn key(self) -> &'static str {
        match self {
            Direction::Ingress => "ingress",
            Direction::Egress => "egress",
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())
    }
}

/// The generations of the API, by the kinds of their policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyApi {
    /// ClusterNetworkPolicy. It goes before AdminNetworkPolicy at one priority.
    Cluster,
    /// AdminNetworkPolicy.
    Admin,
    /// BaselineAdminNetworkPolicy.
    BaselineAdmin,
    /// NetworkPolicy.
    NetworkPolicy,
    /// NetworkPolicy of 2016.
    NetworkPolicy2016,
    /// ClusterNetworkPolicy of 2021.
    EarlyCluster,
    /// DefaultNetworkPolicy of 2021.
    Default,
}

impl PolicyApi {
    /// The word that identifiers of its policies start with.
    pub fn short(self) -> &'static str {
        match self {
            PolicyApi::Cluster => "cnp",
            PolicyApi::Admin => "anp",
            PolicyApi::BaselineAdmin => "banp",
            PolicyApi::NetworkPolicy => "netpol",
            PolicyApi::NetworkPolicy2016 => "np0",
            PolicyApi::EarlyCluster => "cnp0",
            PolicyApi::Default => "dnp",
        }
    }

    /// The kind of its policies.
    pub fn kind(self) -> &'static str {
        match self {
            PolicyApi::Cluster | PolicyApi::EarlyCluster => "ClusterNetworkPolicy",
            PolicyApi::Admin => "AdminNetworkPolicy",
            PolicyApi::BaselineAdmin => "BaselineAdminNetworkPolicy",
            PolicyApi::NetworkPolicy | PolicyApi::NetworkPolicy2016 => "NetworkPolicy",
            PolicyApi::Default => "DefaultNetworkPolicy",
        }
    }
}

/// What becomes of a flow, or of one direction of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// It is let through.
    Allow,
    /// It is dropped, silently (D5).
    Deny,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Allow => "Allow",
            Verdict::Deny => "Deny",
        })
    }
}
