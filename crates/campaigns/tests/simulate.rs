//! The agent's loop on a model of the kernel: some thousand seeds, each with its own mishaps.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use palisade_campaigns::simulate::{During, simulate};

/// So many are simulated here; `palisade-campaigns simulate` goes on from there.
const SEEDS: std::ops::Range<u64> = 0..2_000;

#[test]
fn the_kernel_follows_whatever_happens() {
    let (counts, shown) = simulate(SEEDS, During::Counted);
    println!("{counts:?}");
    if let Some(shown) = shown {
        panic!("{shown}");
    }
    // Nothing is worth much that hardly happened.
    assert!(counts.faults > SEEDS.end / 4, "{counts:?}");
    assert!(counts.changes > SEEDS.end, "{counts:?}");
    assert!(counts.torn > SEEDS.end, "{counts:?}");
    assert!(counts.splits > SEEDS.end / 8, "{counts:?}");
    assert!(counts.saved > SEEDS.end, "{counts:?}");
    assert!(counts.over_budget > SEEDS.end / 2, "{counts:?}");
}

/// Seeds beyond those that once showed mistakes (docs/internals/testing.md says which).
const FOUND: [u64; 4] = [12_996, 22_997, 70_878, 77_610];

#[test]
fn what_was_found_stays_found() {
    for seed in FOUND {
        let (_, shown) = simulate(seed..seed + 1, During::Counted);
        if let Some(shown) = shown {
            panic!("{shown}");
        }
    }
}
