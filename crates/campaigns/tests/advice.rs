//! Proposals of `explain` on random clusters: applied, each allows its query, and changes no other
//! flow than it states.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use palisade_campaigns::advice::campaign::{AdviceArgs, advice};

#[test]
fn proposals_allow_their_query_and_state_what_else_they_change() {
    let report = advice(&AdviceArgs {
        denied: 150,
        seed: 0,
        queries: 12,
        threads: 2,
        replay: None,
    });
    println!("{report}");
    let compared = &report.compared;
    assert!(compared.mistakes.is_empty(), "{report}");
    assert!(compared.answered >= 150, "{report}");
    assert!(compared.proposals >= 300, "{report}");
    assert!(compared.wider >= 20, "{report}");
    assert!(compared.must_act >= 5, "{report}");
    assert!(compared.flows >= 10_000, "{report}");
}
