//! The reader of block-style YAML against the full parser: it reads each document the same, to the
//! byte, or gives it up.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "block_yaml/random.rs"]
mod random;

use std::path::{Path, PathBuf};

use palisade_api::reference::compare_documents;

use random::{Random, damaged, document};

/// All files of the repository that may be YAML, and their texts.
fn repository() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut open = ["cases", "crates", "docs", "examples", "fuzz/corpus"]
        .map(|it| root.join(it))
        .to_vec();
    let mut files = Vec::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(
                std::fs::read_dir(&path)
                    .unwrap()
                    .map(|it| it.unwrap().path()),
            );
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

/// The number of random documents; the environment may set more, and another first seed.
fn seeds() -> std::ops::Range<u64> {
    let number =
        |name: &str, or: u64| std::env::var(name).map_or(or, |it| it.parse().expect("a number"));
    let first = number("BLOCK_YAML_SEED", 1);
    first..first + number("BLOCK_YAML_DOCUMENTS", 4_000)
}

#[test]
fn random_documents_are_read_the_same() {
    let (mut all, mut followed) = (0, 0);
    for seed in seeds() {
        let mut random = Random::new(seed);
        let mut text = document(&mut random);
        for _ in 0..5 {
            let found = compare_documents(&text);
            assert_eq!(
                found.difference, None,
                "BLOCK_YAML_SEED={seed} replays it:\n{text:?}"
            );
            all += found.all;
            followed += found.followed;
            text = damaged(&text, &mut random);
        }
    }
    println!("{followed} of {all} documents are followed");
    assert!(followed * 8 > all, "hardly any is followed");
}

/// Documents that are read without the full parser.
const FOLLOWED: &[&str] = &[
    "a: b\n",
    "a: b",
    "a:\n- b\n- c\n",
    "a:\n  - b\n  - c\n",
    "a:\n    - b: c\n      d: e\n",
    "- - a\n  - b\n-   c: d\n    e: f\n",
    "key:    value  # c\n",
    "a: x#y\nb: \"#\"\nc: '# d'\n",
    "a: |\n  b\n\n    c\n\n\nd: e\n",
    "a: |+\n  b\n\n\nc: d\n",
    "a: >-\n  b\n  c\n\n  d\n    e\n  f\n",
    "a: |\n  b\n  \ttab after spaces is text\n",
    "a:\nb:   \nc: # d\n",
    "---\na: b\n...\n",
    "# head\n--- # c\n# more\na: b\n",
    "\"a\": 'b'\n'c d': \"e\\n\\\"f\\\"\"\n",
    "é: ü\nключ: значение # ж\n",
    "a: null\nb: ~\nc: 0x10\nd: yes\ne: 1.5\nf: -1\n",
    "a: {}\nb: []\nc: [d, \"e\", 1]\nf: {g: h, i: [j]}\n",
    "a: b c\n  d e\n  f\ng: 'h\n  i'\nj: \"k\\\n  \\ l\"\n",
    "a:\n  long text in\n  two lines\n",
    "  a: b\n  c:\n  - d\n",
    "cidr: [10.0.0.0/8, fd00::/64, a::b]\n",
    "a: --flag=b\nc: -x\nd: http://e:80/f\n",
];

#[test]
fn styles_of_programs_are_supported() {
    for text in FOLLOWED {
        let found = compare_documents(text);
        assert_eq!(found.difference, None, "{text:?}");
        assert_eq!(found.followed, found.all, "{text:?}");
    }
}

/// Valid and broken documents that only the full parser reads.
const GIVEN_UP: &[&str] = &[
    "a: &x b\nc: *x\n",
    "a: !!str 1\n",
    "<<: {a: b}\n",
    "? a\n: b\n",
    "a: b: c\n",
    "a: b\n c: d\n",
    "a: b\n  c: d\n",
    "a: b\na: c\n",
    "\"a\": b\na: c\n",
    "a:\n\tb: c\n",
    "a: b\r\n",
    "a: |\n  b:\tc\n",
    "\u{feff}a: b\n",
    "a: \"b\n",
    "a: 'b' c\n",
    "a: \"b\"#c\n",
    "a: b # c\n  d\n",
    "a: b\n\n  c\n",
    "a: [b\n  , c]\n",
    "a: [b: c]\n",
    "a: {b}\n",
    "a: |2\n    b\n",
    "a: |\n",
    "a: .inf\n",
    "a: @b\n",
    "a: %b\n",
    "a: `b`\n",
    "0x1: a\n",
    "on: a\n",
    "null: a\n",
    "-\n",
    "- \n",
    "a: -\n",
    "a: - b\n",
    "a\n",
    "--- a\n",
    "---\na: b\n---x\n",
    "%YAML 1.1\n---\na: b\n",
    "- a\nb: c\n",
    "a: b\n- c\n",
    "{a: b}\n",
    "a: {b: c}: d\n",
    "a: \"\\q\"\n",
    "a: \"\\ud800\"\n",
];

#[test]
fn anything_else_is_left_to_the_full_parser() {
    for text in GIVEN_UP {
        let found = compare_documents(text);
        assert_eq!(found.difference, None, "{text:?}");
        assert_eq!(found.followed, 0, "{text:?}");
    }
}

#[test]
fn deep_wide_and_long_documents_are_read_the_same() {
    let deep =
        |n: usize| -> String { (0..n).map(|at| format!("{}k:\n", " ".repeat(at))).collect() };
    let dashes = |n: usize| format!("{}a\n", "- ".repeat(n));
    let brackets = |n: usize| format!("a: {}{}\n", "[".repeat(n), "]".repeat(n));
    let wide = |n: usize| -> String { (0..n).map(|at| format!("k{at}: v\n")).collect() };
    let mut texts = Vec::new();
    for n in [1, 30, 62, 63, 64, 65, 66, 199, 201] {
        texts.extend([deep(n), dashes(n), brackets(n)]);
    }
    for n in [31, 32, 33, 500] {
        texts.push(wide(n));
        texts.push(wide(n) + "k7: again\n");
    }
    for n in [500, 510, 513, 1020, 1024, 1030, 5000] {
        texts.push(format!("{}: v\n", "k".repeat(n)));
        texts.push(format!("\"{}\": v\n", "k".repeat(n)));
        texts.push(format!("k{}: v\n", " ".repeat(n)));
    }
    for n in [60_000, 70_000, 300_000] {
        texts.push(format!("a: |\n  {}\nb: c\n", "[".repeat(n)));
        texts.push(format!("a: |\n  {}\nb: c\n", "x".repeat(n)));
        texts.push(format!("a: '{}'\nb: c\n", ",".repeat(n)));
        texts.push(format!("# {}\na: b\n", ":".repeat(n)));
        texts.push(format!("a: b\n# {}\n", ":".repeat(n)));
    }
    for text in texts {
        let found = compare_documents(&text);
        let start: String = text.chars().take(80).collect();
        assert_eq!(found.difference, None, "{start:?}");
    }
}
