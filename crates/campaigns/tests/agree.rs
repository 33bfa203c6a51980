//! Engine and oracle agree on a million answers, on clusters with every combination of peer, tier,
//! action, API version, direction, port and defect.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeSet;

use palisade_campaigns::agree::{Compared, compare};
use palisade_oracle::generate::{Mark, marks_required};

/// The number of seeds, which contain every combination.
const SEEDS: u64 = 4_000;
const QUESTIONS: usize = 280;

#[test]
fn a_million_answers_agree_and_every_combination_occurs() {
    let run = |seeds: std::ops::Range<u64>| {
        let mut all = Compared::default();
        let mut marks: BTreeSet<Mark> = BTreeSet::new();
        for seed in seeds {
            let compared = compare(seed, QUESTIONS);
            all.verdicts += compared.verdicts;
            all.unanswered += compared.unanswered;
            all.over_budget += compared.over_budget;
            all.differences.extend(compared.differences);
            marks.extend(compared.marks);
            if all.differences.len() > 20 {
                break;
            }
        }
        (all, marks)
    };
    let ((left, mut marks), (right, more)) = std::thread::scope(|scope| {
        let left = scope.spawn(|| run(0..SEEDS / 2));
        let right = run(SEEDS / 2..SEEDS);
        (left.join().unwrap(), right)
    });
    marks.extend(more);
    let differences: Vec<String> = left
        .differences
        .iter()
        .chain(&right.differences)
        .map(ToString::to_string)
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    let verdicts = left.verdicts + right.verdicts;
    println!(
        "{verdicts} answers agree; {} queries have no answer",
        left.unanswered + right.unanswered
    );
    assert!(verdicts >= 1_000_000, "{verdicts}");
    let over_budget = left.over_budget + right.over_budget;
    assert!(
        over_budget >= 500,
        "{over_budget} policies are over the budget"
    );
    let missing: Vec<Mark> = marks_required()
        .into_iter()
        .filter(|mark| !marks.contains(mark))
        .collect();
    assert!(
        missing.is_empty(),
        "{} never occur: {:?}",
        missing.len(),
        &missing[..5.min(missing.len())]
    );
}
