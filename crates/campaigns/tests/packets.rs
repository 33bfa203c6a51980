//! Engine and kernel agree on 100,000 packets through random clusters, and rulesets that are wrong on
//! purpose are found. Answers of a server that are broken on purpose open nothing in the kernel.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

use std::process::ExitCode;

use palisade_campaigns::packets::wrong::MISTAKES;
use palisade_campaigns::packets::{Compared, compare};
use palisade_campaigns::simulate::hostile::{self, Enforced};

/// So many packets must agree.
const PROBES: u64 = 100_000;
/// A mistake must show in one of so many clusters.
const CLUSTERS: std::ops::Range<u64> = 0..40;

/// So many runs of broken answers are tried here; `palisade-campaigns hostile --kernel` goes on from there.
const HOSTILE: std::ops::Range<u64> = 0..10;

const TESTS: [(&str, fn()); 4] = [
    ("engine_and_kernel_agree", engine_and_kernel_agree),
    ("every_wrong_ruleset_is_found", every_wrong_ruleset_is_found),
    (
        "no_answer_makes_the_kernel_deny_less",
        no_answer_makes_the_kernel_deny_less,
    ),
    (
        "a_kernel_that_enforces_nothing_is_found",
        a_kernel_that_enforces_nothing_is_found,
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
    let missed = MISTAKES.iter().filter(|it| !is_found(it.make));
    let missed: Vec<&str> = missed.map(|it| it.name).collect();
    println!("{} mistakes", MISTAKES.len());
    assert!(missed.is_empty(), "not found: {}", missed.join("; "));
}

fn no_answer_makes_the_kernel_deny_less() {
    let (counts, mistake) = hostile::run(HOSTILE, Enforced::ByKernel);
    println!("{counts:?}");
    if let Some(mistake) = mistake {
        panic!("{mistake}");
    }
    assert!(counts.n_broken() > 300, "{counts:?}");
    assert!(counts.denied > 10_000, "{counts:?}");
}

fn a_kernel_that_enforces_nothing_is_found() {
    let (_, mistake) = hostile::run(HOSTILE, Enforced::ByNothing);
    let mistake = mistake.expect("packets that pass are seen");
    assert!(mistake.words.ends_with("passes"), "{mistake}");
}
