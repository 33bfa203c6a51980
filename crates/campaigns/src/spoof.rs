//! Pods that send with addresses which are not theirs, through the agent's binary (D147): routed and bridged pods, both
//! families, new flows and the connections of others.

mod bytes;
pub mod campaign;
mod claims;
mod cluster;
mod connections;
mod generate;
mod report;
