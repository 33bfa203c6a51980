//! Engine and kernel agree on 100,000 packets through random clusters, and rulesets that are wrong on
//! purpose are found.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

use std::cell::Cell;
use std::process::ExitCode;

use palisade_bench::packets::wrong::{Mistake, NO_SENDER_CHECKS, mistakes};
use palisade_bench::packets::{Compared, compare, settings};
use palisade_nft::ruleset::Ruleset;

/// So many packets must agree.
const PROBES: u64 = 100_000;
/// A mistake must show in one of so many clusters.
const CLUSTERS: std::ops::Range<u64> = 0..40;

/// So many clusters show that a mistake changes no ruleset.
const UNCHANGED: std::ops::Range<u64> = 0..3;

const TESTS: [(&str, fn()); 3] = [
    ("engine_and_kernel_agree", engine_and_kernel_agree),
    ("every_wrong_ruleset_is_found", every_wrong_ruleset_is_found),
    (
        "what_is_not_looked_for_changes_nothing",
        what_is_not_looked_for_changes_nothing,
    ),
];

fn main() -> ExitCode {
    palisade_need::run_inside(TESTS)
}

fn engine_and_kernel_agree() {
    let mut all = Compared::default();
    let mut seed = 0;
    while all.probes < PROBES {
        all.add(compare(seed, None).unwrap());
        seed += 1;
    }
    let differences = all.differences.iter();
    let differences: Vec<String> = differences
        .map(|it| format!("seed {}: {}", it.seed, it.words))
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    let Compared {
        clusters,
        probes,
        denied,
        ..
    } = all;
    println!("{clusters} clusters, {probes} packets, {denied} denied");
    // Neither everything nor nothing is denied, or the comparison would say little.
    assert!((probes / 5..probes * 4 / 5).contains(&denied));
}

fn every_wrong_ruleset_is_found() {
    let is_found = |make: fn(&mut _)| {
        let mut seeds = CLUSTERS;
        seeds.any(|seed| !compare(seed, Some(&make)).unwrap().differences.is_empty())
    };
    let (wanted, apart) = mistakes(&settings());
    let missed = wanted.iter().filter(|it| !is_found(it.make));
    let missed: Vec<&str> = missed.map(|it| it.name).collect();
    println!("{} mistakes", wanted.len());
    if !apart.is_empty() {
        println!("not looked for: {}: {NO_SENDER_CHECKS}", names(&apart));
    }
    assert!(missed.is_empty(), "not found: {}", missed.join("; "));
}

/// A mistake that changes a ruleset could be found, and would have to be.
fn what_is_not_looked_for_changes_nothing() {
    let (wanted, apart) = mistakes(&settings());
    let changes = |mistake: &&Mistake| {
        let is_changed = Cell::new(false);
        let make = |ruleset: &mut Ruleset| {
            let before = ruleset.clone();
            (mistake.make)(ruleset);
            is_changed.set(is_changed.get() || *ruleset != before);
        };
        for seed in UNCHANGED {
            compare(seed, Some(&make)).unwrap();
        }
        is_changed.get()
    };
    let changing: Vec<Mistake> = apart.iter().filter(changes).copied().collect();
    assert!(changing.is_empty(), "{}", names(&changing));
    // The question can be answered with yes.
    assert!(changes(&&wanted[0]), "{}", wanted[0].name);
}

fn names(mistakes: &[Mistake]) -> String {
    let names: Vec<&str> = mistakes.iter().map(|it| it.name).collect();
    names.join("; ")
}
