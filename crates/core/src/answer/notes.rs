//! What a verdict alone does not show: flows that no client can send, and flows that other network
//! plugins treat differently.

use super::{Outcome, Reason, Transport};

/// A remark on a flow that changes no verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Note {
    /// The source is outside the cluster and dials a cluster address (D142).
    ClusterAddressFromOutside,
    /// A pod dials its own node (D75).
    OwnNode,
    /// A Service leads a pod back to itself (D77).
    SelfThroughService,
    /// Policies decided on ICMP or another protocol without ports (D14).
    WithoutPorts,
}

impl Note {
    /// Returns the name in every output.
    pub fn name(self) -> &'static str {
        match self {
            Note::ClusterAddressFromOutside => "ClusterAddressFromOutside",
            Note::OwnNode => "OwnNode",
            Note::SelfThroughService => "SelfThroughService",
            Note::WithoutPorts => "WithoutPorts",
        }
    }

    /// Returns the sentence for people.
    pub fn message(self) -> &'static str {
        match self {
            Note::ClusterAddressFromOutside => {
                "a cluster address is not reachable from outside the cluster"
            }
            Note::OwnNode => {
                "policies apply to a pod's traffic to its own node; some network plugins always allow it"
            }
            Note::SelfThroughService => {
                "policies apply to a pod that reaches itself through a Service; some network plugins \
                 always allow it"
            }
            Note::WithoutPorts => {
                "the NetworkPolicy API does not define traffic without ports, such as ICMP; other \
                 network plugins may allow or deny it"
            }
        }
    }
}

/// Returns whether policies decided on a transport that the NetworkPolicy API does not define.
pub(super) fn is_undefined(transport: Transport, outcome: &Outcome) -> bool {
    let is_decided = |reason: Option<Reason>| match reason {
        Some(
            Reason::AdminRule
            | Reason::NetworkPolicyRule
            | Reason::Isolation
            | Reason::BaselineRule
            | Reason::DefaultIsolation,
        ) => true,
        Some(Reason::Default | Reason::Exempt | Reason::NotApplicable) | None => false,
    };
    let has_ports = match transport {
        Transport::Port(..) => true,
        Transport::Icmp | Transport::Icmp6(_) | Transport::Ip(_) => false,
    };
    !has_ports && (is_decided(outcome.egress.reason) || is_decided(outcome.ingress.reason))
}
