//! The fuzz corpus, replayed on the stable toolchain: no panic, no hang, memory in proportion.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

use std::path::Path;
use std::time::{Duration, Instant};

use palisade_bench::fuzz::{TARGETS, block, json, kind, within_memory, yaml};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Replays `fuzz/corpus/TARGET`. One input may not take longer than a hang would.
fn replay(target: &str, run: impl Fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut files: Vec<_> = directory
        .read_dir()
        .unwrap()
        .map(|it| it.unwrap().path())
        .collect();
    files.sort();
    assert!(
        files.len() >= 50,
        "{target} has only {} inputs",
        files.len()
    );
    for file in &files {
        let bytes = std::fs::read(file).unwrap();
        let started = Instant::now();
        run(&bytes);
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "{} hangs",
            file.display()
        );
    }
    println!("{target}: {} inputs", files.len());
}

/// One test, because the allocator counts for the whole process.
#[test]
fn every_target_holds_on_its_corpus() {
    let within = |bytes: &[u8], target: fn(&[u8])| {
        within_memory(&ALLOCATOR, bytes, target);
    };
    replay("yaml", |bytes| within(bytes, yaml));
    replay("yaml", |bytes| within(bytes, block));
    replay("json", |bytes| within(bytes, block));
    replay("json", |bytes| within(bytes, json));
    // Here the bytes are decisions: the object that they make may be much larger.
    for target in TARGETS {
        replay(target.name, |bytes| kind(target.kind, bytes));
    }
}
