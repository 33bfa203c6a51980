//! Engine and kernel agree on 100,000 packets through random clusters, and wrong rulesets are
//! detected. Malformed responses of an API server open no denied flow in the kernel.

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
use palisade_campaigns::simulate::hostile::{self, KernelMode};

/// Packets that must agree.
const PROBES: u64 = 100_000;
/// Clusters in which a wrong ruleset must show.
const CLUSTERS: std::ops::Range<u64> = 0..40;

/// Seeds of malformed responses in this test; `palisade-campaigns hostile --kernel` runs more.
const HOSTILE: std::ops::Range<u64> = 0..10;

const TESTS: [(&str, fn()); 4] = [
    ("engine_and_kernel_agree", engine_and_kernel_agree),
    (
        "every_wrong_ruleset_is_detected",
        every_wrong_ruleset_is_detected,
    ),
    (
        "no_malformed_response_opens_a_denied_flow",
        no_malformed_response_opens_a_denied_flow,
    ),
    (
        "a_kernel_without_rules_is_detected",
        a_kernel_without_rules_is_detected,
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
        .map(|it| format!("seed {}: {}", it.seed, it.message))
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    let Compared {
        clusters,
        probes,
        denied,
        ..
    } = all;
    println!("{clusters} clusters, {probes} packets, {denied} denied");
    // The comparison needs both allowed and denied packets.
    assert!((probes / 5..probes * 4 / 5).contains(&denied));
}

fn every_wrong_ruleset_is_detected() {
    let is_detected = |make: fn(&mut _)| {
        let mut seeds = CLUSTERS;
        seeds.any(|seed| !compare(seed, Some(&make)).unwrap().differences.is_empty())
    };
    let missed = MISTAKES.iter().filter(|it| !is_detected(it.make));
    let missed: Vec<&str> = missed.map(|it| it.name).collect();
    println!("{} mistakes", MISTAKES.len());
    assert!(missed.is_empty(), "not detected: {}", missed.join("; "));
}

fn no_malformed_response_opens_a_denied_flow() {
    let (counts, mistake) = hostile::run(HOSTILE, KernelMode::Real);
    println!("{counts:?}");
    if let Some(mistake) = mistake {
        panic!("{mistake}");
    }
    assert!(counts.n_faulty() > 300, "{counts:?}");
    assert!(counts.denied > 10_000, "{counts:?}");
}

fn a_kernel_without_rules_is_detected() {
    let (_, mistake) = hostile::run(HOSTILE, KernelMode::Unreached);
    let mistake = mistake.expect("passing packets are detected");
    assert!(mistake.message.ends_with("passes"), "{mistake}");
}
