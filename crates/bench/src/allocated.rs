//! What verdicts allocate, for programs whose allocator counts.

use std::hint::black_box;

use palisade_core::decide::Flow;
use palisade_core::policy::Direction;
use palisade_core::program::Program;
use peak_alloc::PeakAlloc;
use serde::{Deserialize, Serialize};

/// The bytes that each part of a loaded cluster keeps allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
    /// The text of the input.
    pub text: u64,
    /// The objects as they were read; their strings are in the text.
    pub objects: u64,
    /// The cluster as policies see it.
    pub cluster: u64,
    /// The compiled policies.
    pub program: u64,
    /// What all verdicts together added at most.
    pub verdicts: u64,
}

/// The number of rounds of the flows.
const PASSES: usize = 3;

/// The maximum growth of the allocated memory, in bytes, while the flows are evaluated. It shows
/// even a single allocation, as no memory is freed before. The allocator must be the program's.
///
/// Other threads may allocate meanwhile, but verdicts would allocate in every pass: the smallest
/// growth counts.
pub fn allocated(allocator: &PeakAlloc, program: &Program, flows: &[Flow]) -> usize {
    let passes = (0..PASSES).map(|_| {
        allocator.reset_peak_usage();
        let before = allocator.current_usage();
        for flow in flows {
            black_box(program.decide(black_box(flow)));
            for direction in Direction::BOTH {
                black_box(program.direction(black_box(flow), direction));
            }
        }
        allocator.peak_usage().saturating_sub(before)
    });
    passes.min().unwrap_or(usize::MAX)
}
