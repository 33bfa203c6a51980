//! The whole-cluster answer that is timed.

use palisade_core::analysis::connect::{Connectivity, Selection, Summary};
use palisade_core::model::Cluster;
use palisade_core::program::Program;

/// What `palisade connectivity --summary` computes, on the threads of the pool that it is called in;
/// and how many classes of sources and of destinations policies distinguish.
pub(crate) fn fold<'c>(
    cluster: &'c Cluster<'c>,
    program: &'c Program,
) -> (Summary, (usize, usize)) {
    let connectivity = Connectivity::new(cluster, program, &Selection::ALL);
    (connectivity.summary(&|_, _| {}), connectivity.size())
}
