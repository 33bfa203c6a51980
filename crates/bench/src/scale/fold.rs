//! The whole-cluster answer that is timed.

use palisade_core::model::Cluster;
use palisade_core::program::Program;

/// Totals over all ordered pairs of pods and all ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) endpoints: u64,
    pub(crate) allowed_pairs: u64,
    pub(crate) denied_pairs: u64,
    pub(crate) mixed_pairs: u64,
}

/// What `palisade connectivity --summary` computes, on the threads of the pool that it is called in.
/// `None` as long as the engine cannot.
pub(crate) fn fold(_cluster: &Cluster<'_>, _program: &Program) -> Option<Totals> {
    None
}
