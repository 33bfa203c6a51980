//! Measurements that tests and both programs of this crate share.

pub mod allocated;
pub mod large;
pub mod live;
