//! Replays the fuzz corpus on the stable toolchain: no panic, no hang, bounded memory. Inputs of an
//! agent are also mutated at random in every run.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use palisade_campaigns::fuzz::{
    TARGETS, block, cluster, conntrack, json, kind, list, netfilter, route, watch, within_memory,
    yaml,
};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// The inputs in `fuzz/corpus/TARGET`, which must be at least `least`.
fn corpus(target: &str, least: usize) -> Vec<(PathBuf, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut files: Vec<_> = directory
        .read_dir()
        .unwrap()
        .map(|it| it.unwrap().path())
        .collect();
    files.sort();
    let count = files.len();
    assert!(count >= least, "{target} has only {count} inputs");
    let read = |path: PathBuf| (path.clone(), std::fs::read(path).unwrap());
    files.into_iter().map(read).collect()
}

/// Replays the corpus of a target, with a time limit for each input.
fn replay(target: &str, least: usize, run: impl Fn(&[u8])) {
    let inputs = corpus(target, least);
    for (file, bytes) in &inputs {
        let started = Instant::now();
        let _print = PrintOnPanic(format!("{}", file.display()));
        run(bytes);
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "{} hangs",
            file.display()
        );
    }
    println!("{target}: {} inputs", inputs.len());
}

/// Prints the current input when a test panics.
struct PrintOnPanic(String);

impl Drop for PrintOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("with {}", self.0);
        }
    }
}

/// The first seed. `PALISADE_FUZZ_SEED` overrides it, and `PALISADE_FUZZ_INPUTS` the number of
/// inputs.
const SEED: u64 = 1;

fn number(variable: &str, default: u64) -> u64 {
    let text = std::env::var(variable).ok();
    text.map_or(default, |it| it.parse().expect("a number"))
}

/// Replays the corpus of a target, and a number of mutations of it.
fn replay_and_mutate(target: &str, count: u64, run: fn(&[u8])) {
    let least = 14;
    replay(target, least, |bytes| {
        within_memory(&ALLOCATOR, bytes, run);
    });
    let inputs = corpus(target, least);
    let first = number("PALISADE_FUZZ_SEED", SEED);
    let started = Instant::now();
    for seed in first..first + number("PALISADE_FUZZ_INPUTS", count) {
        let bytes = mutated(&inputs, seed);
        let _print = PrintOnPanic(format!(
            "{target}: PALISADE_FUZZ_SEED={seed} PALISADE_FUZZ_INPUTS=1, {:?}",
            String::from_utf8_lossy(&bytes)
        ));
        within_memory(&ALLOCATOR, &bytes, run);
    }
    let seconds = started.elapsed().as_secs_f64();
    println!("{target}: mutations from seed {first} on, {seconds:.1} s");
}

/// An input with a few changes: bytes, lengths, and parts that are deleted, doubled or another
/// input's.
fn mutated(inputs: &[(PathBuf, Vec<u8>)], seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as usize % below.max(1)
    };
    let mut bytes = inputs[random(inputs.len())].1.clone();
    for _ in 0..=random(4) {
        let at = random(bytes.len());
        let end = (at + 1 + random(24)).min(bytes.len());
        match random(8) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => bytes.insert(at, random(256) as u8),
            3 => {
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            4 => {
                let other = &inputs[random(inputs.len())].1;
                let from = random(other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            // A length, in the order of this machine or of the network.
            5 if bytes.len() >= at + 2 => {
                let length = [0, 1, 4, 5, 8, 0xffff, bytes.len() as u16][random(7)];
                bytes[at..at + 2].copy_from_slice(&length.to_ne_bytes());
            }
            6 if at < bytes.len() => bytes[at] ^= 1 << random(8),
            _ if at < bytes.len() => bytes[at] = random(256) as u8,
            _ => {}
        }
    }
    bytes
}

/// One test, because the allocator counts for the whole process.
#[test]
fn every_target_passes_its_corpus() {
    let within = |bytes: &[u8], target: fn(&[u8])| {
        within_memory(&ALLOCATOR, bytes, target);
    };
    replay("yaml", 50, |bytes| within(bytes, yaml));
    replay("yaml", 50, |bytes| within(bytes, block));
    replay("json", 50, |bytes| within(bytes, block));
    replay("json", 50, |bytes| within(bytes, json));
    // These bytes are decisions: the resulting object may be much larger.
    for target in TARGETS {
        replay(target.name, 50, |bytes| kind(target.kind, bytes));
    }
    // Counts that take a second or two.
    replay_and_mutate("list", 5_000, list);
    replay_and_mutate("watch", 5_000, watch);
    replay_and_mutate("cluster", 120, cluster);
    replay_and_mutate("netfilter", 10_000, netfilter);
    replay_and_mutate("conntrack", 10_000, conntrack);
    replay_and_mutate("route", 10_000, route);
}
