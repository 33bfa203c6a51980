//! Analyses of one Program, and of two: what its rules amount to for all flows at once.
//!
//! A verdict needs none of them. They read the Program that [`crate::decide`] reads, and each
//! agrees with it on every flow; their tests compare the two.
//!
//! * [`connect`]: connectivity of the whole cluster, and the difference between two clusters;
//! * [`affect`]: which policies select a pod, and which of them are overridden;
//! * [`lint`]: valid policies with a likely mistake;
//! * [`nearest`]: the rule that nearly matched; [`proposals`]: changes that could allow a flow.

pub mod affect;
pub mod connect;
pub mod lint;
pub mod nearest;
pub mod proposals;
