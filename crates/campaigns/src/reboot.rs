//! Nodes that restart with pods which send all the time, while the API server is away (D146): what the policies deny never
//! passes once the agent's first table is there, and what the node asks its own pods is always answered.

pub mod campaign;
mod flows;
mod judge;
mod node;
mod report;
mod server;
