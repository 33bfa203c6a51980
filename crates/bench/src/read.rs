//! How fast texts become trees and objects: reading alone, without a process around it.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use palisade_api::reference::follow;
use palisade_api::{Options, Source, read as read_sources};

/// The arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  palisade-bench check --dir DIR     # writes manifests, and keeps them
  palisade-bench read DIR
  palisade-bench read examples --runs 1")]
pub(crate) struct ReadArgs {
    /// A directory of manifests
    dir: PathBuf,
    /// The number of reads
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
}

/// Reads the files of a directory, and prints how fast.
pub(crate) fn read(args: &ReadArgs) -> Result<String> {
    let mut report = String::new();
    for extension in ["yaml", "json"] {
        let mut files = Vec::new();
        find(&args.dir, extension, &mut files)?;
        if files.is_empty() {
            continue;
        }
        files.sort();
        let n_bytes: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
        let mut report = |what: &str, time: Duration| {
            let speed = n_bytes as f64 / 1e6 / time.as_secs_f64();
            // Writing to a string cannot fail.
            let _ = writeln!(
                report,
                "{extension}: {n_bytes} bytes to {what}: {time:?}, {speed:.0} MB/s"
            );
        };
        if extension == "yaml" {
            let sources = sources(&files);
            let trees = quietest(args.runs, || {
                let started = Instant::now();
                let n_followed: usize = sources.iter().map(|it| follow(it.text())).sum();
                ensure!(n_followed > 0, "no document is followed");
                Ok(started.elapsed())
            });
            report("trees", trees?);
        }
        for threads in [1, 2] {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()?;
            let objects = quietest(args.runs, || {
                let sources = sources(&files);
                let started = Instant::now();
                let found = pool.install(|| read_sources(&sources, Options::default(), &|_| {}));
                let time = started.elapsed();
                ensure!(!found.objects.is_empty(), "no object is read");
                Ok(time)
            });
            report(&format!("objects, {threads} threads"), objects?);
        }
    }
    ensure!(
        !report.is_empty(),
        "{} has no manifests",
        args.dir.display()
    );
    Ok(report)
}

fn sources(files: &[(PathBuf, Vec<u8>)]) -> Vec<Source> {
    let source =
        |(path, bytes): &(PathBuf, Vec<u8>)| Source::new(path.display().to_string(), bytes.clone());
    files.iter().map(source).collect()
}

/// Files with an ending, also those further down, and their bytes.
fn find(path: &Path, extension: &str, files: &mut Vec<(PathBuf, Vec<u8>)>) -> Result<()> {
    let failed = || format!("cannot read {}", path.display());
    if path.is_dir() {
        for entry in fs::read_dir(path).with_context(failed)? {
            find(&entry.with_context(failed)?.path(), extension, files)?;
        }
    } else if path.extension().is_some_and(|it| it == extension) {
        files.push((path.to_owned(), fs::read(path).with_context(failed)?));
    }
    Ok(())
}

fn quietest(runs: u32, mut run: impl FnMut() -> Result<Duration>) -> Result<Duration> {
    let times = (0..runs)
        .map(|_| run())
        .collect::<Result<Vec<Duration>>>()?;
    times.into_iter().min().context("no runs")
}
