//! The manifests in the documentation are valid.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::path::{Path, PathBuf};

use palisade_api::{Options, Problem, Source, read};

fn find_pages(directory: &Path, pages: &mut Vec<PathBuf>) {
    for entry in directory.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            find_pages(&path, pages);
        } else if path.extension().is_some_and(|it| it == "md") {
            pages.push(path);
        }
    }
}

#[test]
fn yaml_blocks_are_valid_objects() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut files = Vec::new();
    find_pages(&docs, &mut files);
    files.sort();
    let mut blocks = 0;
    for file in files.iter().filter(|it| !it.ends_with("problems.md")) {
        let text = std::fs::read_to_string(file).unwrap();
        for block in text.split("\n```yaml\n").skip(1) {
            let block = block.split("\n```").next().unwrap();
            let sources = [Source::new("block.yaml", block.as_bytes().to_vec())];
            let manifests = read(&sources, Options::default(), &|_| {});
            let errors: Vec<&Problem> = manifests
                .problems
                .iter()
                .filter(|it| it.is_error())
                .collect();
            assert!(
                errors.is_empty(),
                "{}: {errors:#?}\n{block}",
                file.display()
            );
            assert!(!manifests.objects.is_empty(), "{}: {block}", file.display());
            blocks += 1;
        }
    }
    assert!(blocks >= 10, "{blocks}");
}
