//! Tiers, actions and directions: the terms of the evaluation order.

use std::fmt;

/// The action of a rule on the traffic that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Allows the traffic in this direction, whatever later rules do.
    Accept,
    /// Denies the traffic.
    Deny,
    /// Skips the rest of the tier; the next tier decides.
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

/// The tier of a cluster-wide policy, relative to NetworkPolicies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Before every NetworkPolicy.
    Admin,
    /// After every NetworkPolicy, for pods that none of them isolates.
    Baseline,
}

/// The effective priority of a BaselineAdminNetworkPolicy in its tier: after every valid priority
/// (1.2).
pub const BASELINE_ADMIN_PRIORITY: i64 = 1001;

/// The direction of a flow, as seen by the pod that a policy selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Traffic to the pod.
    Ingress,
    /// Traffic from the pod.
    Egress,
}

impl Direction {
    /// Both directions.
    pub const BOTH: [Direction; 2] = [Direction::Ingress, Direction::Egress];

    /// Returns the key of the rule list in every API version.
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

/// The kind and API version of a policy.
// The order of the variants is part of the evaluation order: it decides between policies of the
// same priority or name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyApi {
    /// ClusterNetworkPolicy, which comes before AdminNetworkPolicy at the same priority (D7).
    Cluster,
    /// AdminNetworkPolicy.
    Admin,
    /// BaselineAdminNetworkPolicy.
    BaselineAdmin,
    /// NetworkPolicy v1.
    NetworkPolicy,
    /// NetworkPolicy of 2016.
    NetworkPolicy2016,
    /// The annotation of 2016 that isolates a namespace (D69). It is no object, so no finding and
    /// no proposal changes it.
    IsolationAnnotation,
    /// ClusterNetworkPolicy of 2021.
    EarlyCluster,
    /// DefaultNetworkPolicy of 2021.
    Default,
}

impl PolicyApi {
    /// All of them, in their order.
    pub const ALL: [PolicyApi; 8] = [
        PolicyApi::Cluster,
        PolicyApi::Admin,
        PolicyApi::BaselineAdmin,
        PolicyApi::NetworkPolicy,
        PolicyApi::NetworkPolicy2016,
        PolicyApi::IsolationAnnotation,
        PolicyApi::EarlyCluster,
        PolicyApi::Default,
    ];

    /// Returns the prefix of identifiers of its policies.
    pub fn short(self) -> &'static str {
        match self {
            PolicyApi::Cluster => "cnp",
            PolicyApi::Admin => "anp",
            PolicyApi::BaselineAdmin => "banp",
            PolicyApi::NetworkPolicy => "netpol",
            PolicyApi::NetworkPolicy2016 | PolicyApi::IsolationAnnotation => "np0",
            PolicyApi::EarlyCluster => "cnp0",
            PolicyApi::Default => "dnp",
        }
    }

    /// Returns whether its policies are of the API of 2016.
    pub fn is_of_2016(self) -> bool {
        matches!(
            self,
            PolicyApi::NetworkPolicy2016 | PolicyApi::IsolationAnnotation
        )
    }

    /// Returns the kind of its policies.
    pub fn kind(self) -> &'static str {
        match self {
            PolicyApi::Cluster | PolicyApi::EarlyCluster => "ClusterNetworkPolicy",
            PolicyApi::Admin => "AdminNetworkPolicy",
            PolicyApi::BaselineAdmin => "BaselineAdminNetworkPolicy",
            PolicyApi::NetworkPolicy
            | PolicyApi::NetworkPolicy2016
            | PolicyApi::IsolationAnnotation => "NetworkPolicy",
            PolicyApi::Default => "DefaultNetworkPolicy",
        }
    }

    /// Returns the plural of the kind, as in paths of API servers.
    pub fn plural(self) -> &'static str {
        match self {
            PolicyApi::Cluster | PolicyApi::EarlyCluster => "clusternetworkpolicies",
            PolicyApi::Admin => "adminnetworkpolicies",
            PolicyApi::BaselineAdmin => "baselineadminnetworkpolicies",
            PolicyApi::NetworkPolicy
            | PolicyApi::NetworkPolicy2016
            | PolicyApi::IsolationAnnotation => "networkpolicies",
            PolicyApi::Default => "defaultnetworkpolicies",
        }
    }

    /// Returns whether its policies are in a namespace.
    pub fn is_namespaced(self) -> bool {
        match self {
            PolicyApi::NetworkPolicy
            | PolicyApi::NetworkPolicy2016
            | PolicyApi::IsolationAnnotation => true,
            PolicyApi::Cluster
            | PolicyApi::Admin
            | PolicyApi::BaselineAdmin
            | PolicyApi::EarlyCluster
            | PolicyApi::Default => false,
        }
    }
}

/// The verdict on a flow, or on one direction of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// The flow is allowed.
    Allow,
    /// The flow is dropped silently (D5).
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
