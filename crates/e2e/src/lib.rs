//! Palisade in whole clusters of the testbed: installed by the manifests, attacked by a tenant, and
//! measured at a real API server.

pub mod attack;
pub mod cluster;
pub mod facts;
pub mod served;
pub mod writer;
