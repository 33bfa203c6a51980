//! The whole-cluster answer that is timed.

use palisade_core::analysis::connect::{Connectivity, Selection, Summary};
use palisade_core::model::Cluster;
use palisade_core::program::Program;

/// Computes `palisade connectivity --summary` on the threads of the current pool, and the numbers
/// of classes of sources and of destinations.
pub(crate) fn fold<'c>(
    cluster: &'c Cluster<'c>,
    program: &'c Program,
) -> (Summary, (usize, usize)) {
    let connectivity = Connectivity::new(cluster, program, &Selection::ALL);
    (connectivity.summary(&|_, _| {}), connectivity.size())
}
