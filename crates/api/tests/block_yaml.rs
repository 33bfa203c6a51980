//! The reader of block-style YAML against the full parser: whatever it does not give up, it reads
//! the same, to the byte.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::path::{Path, PathBuf};

use palisade_api::reference::compare_documents;

/// All files of the repository that may be YAML, and their texts.
fn repository() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut open = ["cases", "crates", "docs", "examples", "fuzz/corpus"].map(|it| root.join(it)).to_vec();
    let mut files = Vec::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(std::fs::read_dir(&path).unwrap().map(|it| it.unwrap().path()));
        } else if let Ok(text) = String::from_utf8(std::fs::read(&path).unwrap()) {
            files.push((path, text));
        }
    }
    files.sort();
    files
}

#[test]
fn every_file_of_the_repository_is_read_the_same() {
    let (mut all, mut followed) = (0, 0);
    for (path, text) in repository() {
        let found = compare_documents(&text);
        assert_eq!(found.difference, None, "{}", path.display());
        if path.extension().is_some_and(|it| it == "yaml") {
            all += found.all;
            followed += found.followed;
            if std::env::var_os("SHOW_GIVEN_UP").is_some() {
                for range in found.given_up {
                    eprintln!("{} {:?}", path.display(), &text[range]);
                }
            }
        }
    }
    println!("{followed} of {all} documents are followed");
}
