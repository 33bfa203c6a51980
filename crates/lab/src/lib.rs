//! A cluster of network namespaces, and real packets through it.

pub mod complete;
pub mod lab;
pub mod network;
pub mod packet;
pub mod privilege;
pub mod probe_plan;
pub mod questions;
pub mod services;
pub mod topology;
pub mod trial;
pub mod visit;
pub mod wire;
