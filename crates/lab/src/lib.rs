//! A cluster of network namespaces, and real packets through it.

pub mod enter;
pub mod furnish;
pub mod lab;
pub mod packet;
pub mod questions;
pub mod realise;
pub mod services;
pub mod topology;
pub mod trial;
pub mod visit;
pub mod wire;
pub mod world;
