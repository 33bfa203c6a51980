//! Nodes that restart while their pods send and the API server is unavailable (D146): no denied
//! packet passes after the agent's first table, and probes of the node to its own pods are always
//! answered.

pub mod campaign;
mod flows;
mod node;
mod report;
mod server;
mod tally;
