//! The independent oracle: a slow, literal walk through the semantics, to compare the engine with.
//!
//! It shares no code with the engine. It takes Kubernetes objects as raw JSON, finds every defect by itself, and
//! answers one line of a flows file at a time by walking section 1.1 rule by rule: no bit sets, no classes, nothing
//! remembered between answers. D numbers in the comments are the decisions of the specification that are applied there.
//! It always works leniently, by the fail-closed rules of section 1.6.
//!
//! The module [`generate`] makes small random clusters, dense in conflicts and defects, and questions about them.
//!
//! ```text
//! use palisade_oracle::{Oracle, Verdict};
//! let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "x"},
//!     "status": {"podIPs": [{"ip": "10.0.0.1"}]}});
//! assert_eq!(Oracle::new(&[pod], &[]).answer("203.0.113.7 x/a tcp/80").verdict, Verdict::Allow);
//! ```
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test tool fails by panicking"
)]

mod admin;
mod ask;
mod budget;
mod cidr;
mod early;
mod eval;
mod flow;
pub mod generate;
mod json;
mod netpol;
mod rule;
mod select;
mod service;
mod world;

pub use eval::Oracle;

/// What a question comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The connection is let through.
    Allow,
    /// One direction drops it.
    Deny,
    /// The single flows of the question do not agree.
    Mixed,
    /// It depends on an address that is not known, or the question cannot be asked.
    Unknown,
}

/// What one direction comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SideVerdict {
    /// Let through.
    Allow,
    /// Dropped.
    Deny,
    /// The single flows do not agree.
    Mixed,
    /// Depends on an address that is not known.
    Unknown,
    /// Not subject to policy.
    Exempt,
    /// This end is not a pod.
    NotApplicable,
}

/// Why a direction has its verdict (D4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// A rule of the Admin tier.
    AdminRule,
    /// A rule of a NetworkPolicy, or of its 2016 form.
    NetworkPolicyRule,
    /// Isolated by NetworkPolicies, and no rule matched.
    Isolation,
    /// A rule of the Baseline tier.
    BaselineRule,
    /// Isolated by DefaultNetworkPolicies, and no rule matched.
    DefaultIsolation,
    /// Nothing decided.
    Default,
    /// See the detail.
    Exempt,
    /// See the detail.
    NotApplicable,
}

/// Which exemption, or which kind of end that policy does not apply to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// From the host network namespace of the pod's own node (D74).
    NodeLocal,
    /// A pod to itself (D76).
    SelfAddress,
    /// ICMPv6 control messages (D89); no question can ask for them.
    NeighborDiscovery,
    /// Replies (D97); no question can ask for them.
    Reply,
    /// A host-network pod by name (D138).
    HostNetwork,
    /// A node.
    Node,
    /// Outside the cluster.
    External,
}

/// Address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// One direction of an answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Side {
    /// What it comes to.
    pub verdict: SideVerdict,
    /// Why; absent if the folded flows differ in it.
    pub reason: Option<Reason>,
    /// For exempt and not applicable.
    pub detail: Option<Detail>,
    /// Id of the deciding rule.
    pub rule: Option<String>,
    /// With isolation every policy that isolates, sorted; with a rule its policy.
    pub policies: Vec<String>,
}

/// The answer to one question.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Answer {
    /// What it comes to.
    pub verdict: Verdict,
    /// The question cannot be asked; then the verdict is `Unknown` and nothing else is set.
    pub error: bool,
    /// Absent if there are several, or an end has no address.
    pub family: Option<Family>,
    /// Where from: as asked for a folded answer, else the party.
    pub source: String,
    /// Where to.
    pub destination: String,
    /// The source's side.
    pub egress: Option<Side>,
    /// The destination's side.
    pub ingress: Option<Side>,
    /// The single flows, if there are several and they are not all alike.
    pub answers: Vec<Answer>,
}

impl Answer {
    /// The question cannot be asked.
    fn error() -> Self {
        Self {
            verdict: Verdict::Unknown,
            error: true,
            family: None,
            source: String::new(),
            destination: String::new(),
            egress: None,
            ingress: None,
            answers: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
