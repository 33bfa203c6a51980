//! The difference of two clusters equals single answers about both, for every pair and port.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use palisade_campaigns::differ::unseen::{self, Unseen};
use palisade_campaigns::differ::{Compared, compare};

/// Random changes of this test; `palisade-campaigns differ` runs more.
const SEEDS: u64 = 200;

/// Changes that have shown a mistake.
const FOUND: [u64; 11] = [26, 50, 61, 84, 91, 295, 386, 724, 798, 845, 105_102];

#[test]
fn a_difference_equals_single_answers_about_both_clusters() {
    let run = |seeds: &mut dyn Iterator<Item = u64>| {
        let mut all = Compared::default();
        for seed in seeds {
            let compared = compare(seed);
            all.flows += compared.flows;
            all.different += compared.different;
            all.reasons += compared.reasons;
            all.mistakes.extend(compared.mistakes);
        }
        all
    };
    let (left, right) = std::thread::scope(|scope| {
        let left = scope.spawn(|| run(&mut (0..SEEDS / 2).chain(FOUND)));
        let right = run(&mut (SEEDS / 2..SEEDS));
        (left.join().unwrap(), right)
    });
    let mistakes = [left.mistakes, right.mistakes].concat();
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    let flows = left.flows + right.flows;
    println!("{flows} flows before and after a change agree");
    assert!(flows >= 300_000, "{flows}");
    assert!(left.different + right.different >= 50_000);
}

/// Pairs without pods of this test; `palisade-campaigns differ --without-pods` runs more.
const PAIRS: u64 = 300;

#[test]
fn what_pods_that_could_exist_gain_is_never_as_before() {
    let run = |seeds: std::ops::Range<u64>| {
        let mut all = Unseen::default();
        for seed in seeds {
            all.add(unseen::compare(seed));
        }
        all
    };
    let all = std::thread::scope(|scope| {
        let left = scope.spawn(|| run(0..PAIRS / 2));
        let mut right = run(PAIRS / 2..PAIRS);
        right.add(left.join().unwrap());
        right
    });
    assert!(all.mistakes.is_empty(), "{}", all.mistakes.join("\n"));
    println!("{all:?}");
    assert_eq!(all.pairs, PAIRS);
    // A comparison in which nothing is gained, or nothing is as before, would show little.
    assert!(all.gaining >= PAIRS / 6, "{all:?}");
    assert!(all.same >= PAIRS / 12, "{all:?}");
}
