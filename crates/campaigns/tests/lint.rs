//! The exact findings of lint equal their definitions, flow by flow.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use palisade_campaigns::lint::campaign::{LintArgs, run};

#[test]
fn findings_are_right_and_complete() {
    let report = run(&LintArgs {
        seeds: 400,
        seed: 0,
        threads: 2,
    });
    assert!(report.examples.is_empty(), "{report}");
    let codes: Vec<&str> = report.right.keys().copied().collect();
    let expected = [
        "NEVER-MATCHES",
        "OVERRIDDEN",
        "OVERRIDDEN-PARTLY",
        "PASS-NO-EFFECT",
        "PEER-MATCHES-NOTHING",
        "REDUNDANT-POLICY",
        "REDUNDANT-RULE",
        "SELECTS-NOTHING",
        "SHADOWED",
        "TIE",
        "TIE-CONFLICT",
        "TIE-OVERLAP",
        "UNREACHABLE",
    ];
    assert_eq!(codes, expected, "every code occurs");
}
