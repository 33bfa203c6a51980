//! Network policy as plain data: what all API versions have in common, without Kubernetes.
//!
//! This crate has no access to the outside world: no files, no clock, no API server, no kernel.
//! The path of data is
//!
//! ```text
//! Cluster --compile--> Program --decide--> Decision --explain--> Explanation
//! ```
//!
//! * [`policy`], [`labels`], [`net`], [`domain`], [`time`]: shared types and their text forms;
//! * [`model`]: the [`Cluster`](model::Cluster), to which every API version is lowered;
//! * [`budget`]: how many entries the NetworkPolicies of a namespace may have;
//! * [`mod@compile`]: from a cluster to its [`Program`](program::Program);
//! * [`decide`]: one verdict with its cause; [`explain`]: the rules behind it;
//! * [`query`], [`name_index`], [`answer`]: from a flow query to its flows, and from their
//!   decisions to one answer;
//! * [`mod@plan`]: the rules that one node must enforce, for dataplanes;
//! * [`incremental`]: the same while objects change;
//! * [`analysis`]: connectivity, differences, overridden rules, findings and advice.

mod address_space;
pub mod analysis;
pub mod answer;
pub mod budget;
pub mod compile;
pub mod decide;
pub mod domain;
pub mod explain;
#[cfg(test)]
mod fixture;
mod flow_end;
mod id_set;
pub mod incremental;
pub mod labels;
pub mod model;
pub mod name_index;
pub mod net;
pub mod owners;
pub mod plan;
pub mod policy;
mod policy_index;
mod portset;
pub mod program;
pub mod query;
mod set_hash;
pub mod text;
pub mod time;

pub use flow_end::EndName;
