//! The samples of the documents that Palisade implements: as their authors wrote them they have the
//! problems in `expect.txt`, and corrected they have no error.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::fmt::Write;
use std::path::{Path, PathBuf};

use palisade_api::{Lines, Options, Problem, Source, read};

fn samples() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples");
    let mut samples: Vec<PathBuf> = root
        .read_dir()
        .unwrap()
        .map(|it| it.unwrap().path())
        .filter(|it| it.is_dir())
        .collect();
    samples.sort();
    samples
}

fn problems(file: &Path) -> (Vec<Problem>, String) {
    let sources = [Source::new("sample.yaml", std::fs::read(file).unwrap())];
    let manifests = read(&sources, Options::default(), &|_| {});
    (manifests.problems, sources[0].text().to_owned())
}

/// One expectation: `severity CODE LINE PATH | text of the help`.
fn expectations(sample: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(sample.join("expect.txt")).unwrap();
    text.lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (place, help) = line.split_once('|').unwrap_or((line, ""));
            (place.trim().to_owned(), help.trim().to_owned())
        })
        .collect()
}

#[test]
fn as_written_they_have_the_expected_problems() {
    let mut wrong = String::new();
    for sample in samples() {
        let (found, text) = problems(&sample.join("as-written.yaml"));
        let lines = Lines::new(&text);
        let found: Vec<(String, String)> = found
            .iter()
            .map(|it| {
                let line = lines.position(it.span.start as usize).0;
                let path = it.path.as_deref().unwrap_or("-");
                let place = format!("{} {} {line} {path}", it.severity(), it.code);
                (
                    place,
                    format!("{} {}", it.message, it.help.clone().unwrap_or_default()),
                )
            })
            .collect();
        let expected = expectations(&sample);
        let matches = found.len() == expected.len()
            && found
                .iter()
                .zip(&expected)
                .all(|((place, help), (want, want_help))| {
                    place == want && help.contains(want_help.as_str())
                });
        if !matches {
            writeln!(
                wrong,
                "{}\n  expected {expected:#?}\n  found {found:#?}",
                sample.display()
            )
            .unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn corrected_they_are_valid() {
    for sample in samples() {
        let (found, _) = problems(&sample.join("corrected.yaml"));
        let errors: Vec<&Problem> = found.iter().filter(|it| it.is_error()).collect();
        assert!(errors.is_empty(), "{}: {errors:#?}", sample.display());
    }
}
