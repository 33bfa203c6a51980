//! How fast texts become trees and objects, on one thread. Not a test: nothing is asserted of the time.
//!
//! ```text
//! palisade-bench check --dir DIR
//! MANIFESTS=DIR cargo test --release -p palisade-api --test reading_speed -- --ignored --nocapture
//! ```

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

use palisade_api::reference::follow;
use palisade_api::{Options, Source, read};

const RUNS: usize = 10;

/// The files of a directory, also those further down, and their bytes.
fn files(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut open = vec![path.to_owned()];
    let mut files = Vec::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).unwrap();
            open.extend(entries.map(|it| it.unwrap().path()));
        } else if path
            .extension()
            .is_some_and(|it| it == "yaml" || it == "json")
        {
            let bytes = std::fs::read(&path).unwrap();
            files.push((path, bytes));
        }
    }
    files.sort();
    files
}

/// The quietest of several runs.
fn quietest(mut run: impl FnMut() -> Duration) -> Duration {
    (0..RUNS).map(|_| run()).min().unwrap()
}

#[test]
#[ignore = "measures, for people to read"]
fn speed() {
    let path = std::env::var_os("MANIFESTS").expect("MANIFESTS names files or a directory");
    let files = files(Path::new(&path));
    for extension in ["yaml", "json"] {
        let named: Vec<&(PathBuf, Vec<u8>)> = files
            .iter()
            .filter(|(path, _)| path.extension().is_some_and(|it| it == extension))
            .collect();
        let sources = || -> Vec<Source> {
            let source = |(path, bytes): &&(PathBuf, Vec<u8>)| {
                Source::new(path.display().to_string(), bytes.clone())
            };
            named.iter().map(source).collect()
        };
        let n_bytes: usize = named.iter().map(|(_, bytes)| bytes.len()).sum();
        let told = |what: &str, time: Duration| {
            let speed = n_bytes as f64 / 1e6 / time.as_secs_f64();
            println!("{extension}: {n_bytes} bytes to {what}: {time:?}, {speed:.0} MB/s");
        };
        if extension == "yaml" {
            let sources = sources();
            told(
                "trees",
                quietest(|| {
                    let started = Instant::now();
                    let n_followed: usize = sources.iter().map(|it| follow(it.text())).sum();
                    assert!(n_followed > 0, "no document is followed");
                    started.elapsed()
                }),
            );
        }
        for threads in [1, 2] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
            let pool = pool.build().unwrap();
            let time = quietest(|| {
                let sources = sources();
                let started = Instant::now();
                let found = pool.install(|| read(&sources, Options::default(), &|_| {}));
                let time = started.elapsed();
                assert!(!found.objects.is_empty(), "nothing is read");
                time
            });
            told(&format!("objects, {threads} threads"), time);
        }
    }
}
