//! Network policy as plain data: what every generation of the API speaks of, without Kubernetes.
//!
//! This crate knows nothing of the outside world: no files, no clock, no API server, no kernel.
//! The path of data is
//!
//! ```text
//! Cluster --compile--> Program --decide--> Decision --explain--> Explanation
//! ```
//!
//! * [`policy`], [`labels`], [`net`], [`domain`]: the words that everything shares;
//! * [`model`]: the [`Cluster`](model::Cluster), which every generation of the API is lowered to;
//! * [`budget`]: which NetworkPolicies a namespace may have;
//! * [`mod@compile`]: from a cluster to its [`Program`](program::Program);
//! * [`decide`]: one verdict with its cause;
//! * [`question`], [`directory`], [`answer`]: from what people ask to flows, and from their
//!   decisions to one answer;
//! * [`connect`]: the whole cluster at once, who reaches whom;
//! * [`mod@plan`]: what one node has to enforce, for dataplanes;
//! * [`live`]: the same while everything changes;
//! * [`affect`]: which policies are on a pod, and which of them are overridden;
//! * [`lint`]: what is valid and probably not what was meant.

pub mod affect;
pub mod answer;
pub mod budget;
pub mod compile;
pub mod connect;
pub mod decide;
pub mod domain;
pub mod explain;
mod flow_end;
mod id_set;
pub mod incremental;
pub mod labels;
pub mod lint;
pub mod model;
pub mod name_index;
pub mod nearest;
pub mod net;
pub mod plan;
pub mod policy;
mod policy_index;
mod portset;
pub mod program;
pub mod query;
pub mod remedy;
mod set_hash;
pub mod text;
pub mod time;

pub use flow_end::EndName;
