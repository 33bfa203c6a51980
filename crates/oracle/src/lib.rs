//! The independent oracle: a slow, literal implementation of the semantics, to compare the engine
//! with.
//!
//! It shares no code with the engine. It takes Kubernetes objects as raw JSON, finds every defect
//! by itself, and answers one line of a flows file at a time by walking section 1.1 rule by rule:
//! no bit sets, no classes, no cache between answers. D numbers in the comments are the decisions
//! of the specification that are applied there. It always works leniently, by the fail-closed rules
//! of section 1.6.
//!
//! The module [`generate`] makes small random clusters, dense in conflicts and defects, and flow
//! queries.
//!
//! ```text
//! use palisade_oracle::{Oracle, Verdict};
//! let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod",
//!     "metadata": {"name": "a", "namespace": "x"},
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
mod budget;
mod cidr;
mod early;
mod eval;
mod flow;
pub mod generate;
mod json;
mod netpol;
mod query;
mod rule;
mod select;
mod service;
mod world;

pub use eval::Oracle;

/// The verdict of a flow query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The connection is allowed.
    Allow,
    /// One direction denies it.
    Deny,
    /// The single flows of the query differ.
    Mixed,
    /// It depends on an unknown address, or the query is an error.
    Unknown,
}

/// The verdict of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SideVerdict {
    /// Allowed.
    Allow,
    /// Denied.
    Deny,
    /// The single flows differ.
    Mixed,
    /// Depends on an unknown address.
    Unknown,
    /// Not subject to policy.
    Exempt,
    /// This endpoint is not a pod.
    NotApplicable,
}

/// The reason for the verdict of a direction (D4).
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

/// The exemption, or the kind of endpoint that policy does not apply to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// From the host network namespace of the pod's own node (D74).
    NodeLocal,
    /// A pod to itself (D76).
    SelfAddress,
    /// ICMPv6 control messages (D89); no query has them.
    NeighborDiscovery,
    /// Replies (D97); no query has them.
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
    /// Its verdict.
    pub verdict: SideVerdict,
    /// The reason; absent if the combined flows differ in it.
    pub reason: Option<Reason>,
    /// For exempt and not applicable.
    pub detail: Option<Detail>,
    /// Id of the deciding rule.
    pub rule: Option<String>,
    /// With isolation every policy that isolates, sorted; with a rule its policy.
    pub policies: Vec<String>,
}

/// The answer to one flow query.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Answer {
    /// Its verdict.
    pub verdict: Verdict,
    /// Whether the query is an error; then the verdict is `Unknown` and nothing else is set.
    pub error: bool,
    /// Absent if there are several, or an endpoint has no address.
    pub family: Option<Family>,
    /// The source: as in the query for a combined answer, else the endpoint.
    pub source: String,
    /// The destination.
    pub destination: String,
    /// The source's side.
    pub egress: Option<Side>,
    /// The destination's side.
    pub ingress: Option<Side>,
    /// The single flows, if there are several and they differ.
    pub answers: Vec<Answer>,
}

impl Answer {
    /// The query is an error.
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
