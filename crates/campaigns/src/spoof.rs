//! Pods that send with addresses of others, on nodes with the agent's program (D147): routed and
//! bridged pods, both families, new flows and established connections of others.

mod bytes;
pub mod campaign;
mod claims;
mod cluster;
mod connections;
mod generate;
mod report;
