//! What verdicts allocate, for programs whose allocator counts.

use std::hint::black_box;

use palisade_core::decide::Flow;
use palisade_core::policy::Direction;
use palisade_core::program::Program;
use peak_alloc::PeakAlloc;

/// How often the flows are decided.
const PASSES: usize = 3;

/// By how many bytes the memory in use grew at most while the flows were decided. A single
/// allocation would show, since nothing is given back first. The allocator must be the program's.
///
/// Other threads may allocate in between; verdicts would do so in every pass, so that the smallest
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
