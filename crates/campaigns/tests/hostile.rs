//! The agent before a server whose answers are broken on purpose.

#![allow(clippy::panic, reason = "a test fails by panicking")]

use palisade_campaigns::simulate::hostile::{Enforced, run};

/// So many are run here; `palisade-campaigns hostile` goes on from there.
const SEEDS: std::ops::Range<u64> = 0..300;

#[test]
fn no_answer_makes_less_be_denied() {
    let (counts, mistake) = run(SEEDS, Enforced::ByModel);
    println!("{counts:?}");
    if let Some(mistake) = mistake {
        panic!("{mistake}");
    }
    // Nothing is worth much that hardly happened: every way to break an answer, and flows that are denied.
    assert_eq!(counts.broken.len(), 20, "{counts:?}");
    assert!(
        counts.broken.values().all(|count| *count >= 10),
        "{counts:?}"
    );
    assert!(counts.denied > 100_000, "{counts:?}");
    assert!(counts.over_budget > 1_000, "{counts:?}");
}
