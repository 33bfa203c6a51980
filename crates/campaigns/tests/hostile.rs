//! The agent with an API server that sends malformed responses.

#![allow(clippy::panic, reason = "a test fails by panicking")]

use palisade_campaigns::simulate::hostile::{KernelMode, run};

/// Seeds of this test; `palisade-campaigns hostile` runs more.
const SEEDS: std::ops::Range<u64> = 0..300;

#[test]
fn no_malformed_response_opens_a_denied_flow() {
    let (counts, mistake) = run(SEEDS, KernelMode::Model);
    println!("{counts:?}");
    if let Some(mistake) = mistake {
        panic!("{mistake}");
    }
    // A rare event is hardly tested: every fault of a response, and denied flows.
    assert_eq!(counts.faults.len(), 20, "{counts:?}");
    assert!(
        counts.faults.values().all(|count| *count >= 10),
        "{counts:?}"
    );
    assert!(counts.denied > 100_000, "{counts:?}");
    assert!(counts.over_budget > 1_000, "{counts:?}");
}
