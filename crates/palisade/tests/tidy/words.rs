//! Words that sources and documents do not have: another one is the word of the field, or a plain one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::root;

/// A word or phrase, and what to write instead. A space also matches an underscore, a line break and the border
/// between the words of an identifier.
const WORDS: &[(&str, &str)] = &[
    ("told", "reported, listed, sent"),
    ("somebody", "the actor: another program, a user"),
    ("nobody", "the actor: no pod, no object"),
    ("whoever", "the actor: a caller, a user"),
    ("asked", "evaluated, requested, queried"),
    ("said", "message, output, reported"),
    ("is about", "selects, applies to, matches"),
    ("put right", "restored"),
    ("passes over", "skips"),
    ("passed over", "skipped"),
    ("passing over", "skipping"),
    ("keep back", "suppress"),
    ("keeps back", "suppresses"),
    ("kept back", "suppressed"),
    ("put in place", "installed, updated"),
    ("puts in place", "installs, updates"),
    ("upkeep", "update"),
    ("let go", "cleared"),
    ("lets go", "clears"),
    ("judge", "evaluate, validate"),
    ("judges", "evaluates, validates"),
    ("judged", "evaluated, validated"),
    ("judging", "evaluating, validating"),
    ("so that", "two sentences, or a colon"),
];

/// Texts with such a word that may stay: below which path, the text, and why.
const ALLOWED: &[(&str, &str, &str)] = &[
    ("", "judged-", "sets of nftables have these names"),
    (
        "",
        "\"judge\"",
        "a value of --established and --own-node-egress",
    ),
    ("docs/operations", "`judge`", "the same value"),
    ("docs/operations", "judge\\|", "the same value"),
    ("docs/internals/dataplane.md", "`judge`", "the same value"),
    (
        "docs/internals/dataplane.md",
        "`judged`",
        "sets of nftables have this prefix",
    ),
    (
        "deploy/helm/palisade/values.yaml",
        "judge",
        "the same value",
    ),
    ("crates", "passedOver", "a key of JSON"),
    ("", "notJudged", "a key of JSON"),
    (
        "",
        "kinds that are not judged",
        "the message with that key, which scripts search for",
    ),
    (
        "crates/agent/src/metrics.rs",
        "\"asked\"",
        "a label of a metric",
    ),
    ("deploy", "start and asked (SIGHUP)", "a label of a metric"),
    ("docs/operations/agent.md", "`asked`", "a label of a metric"),
];

/// Paths with texts of other authors, or with this list.
const FOREIGN: &[&str] = &[
    "crates/api/tests/samples",
    "crates/palisade/tests/tidy/words.rs",
    "fuzz/corpus",
    "fuzz/target",
];

/// Every text of the repository that people read, with its path.
fn texts() -> Vec<(PathBuf, String)> {
    let mut texts = Vec::new();
    let mut open: Vec<PathBuf> = [
        "crates",
        "fuzz",
        "docs",
        "deploy",
        "examples",
        "cases",
        ".ci/run",
        ".pre-commit-hooks.yaml",
        "action.yml",
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CHANGELOG.md",
    ]
    .map(PathBuf::from)
    .into();
    while let Some(path) = open.pop() {
        if FOREIGN.iter().any(|it| path.starts_with(it)) {
            continue;
        }
        let full = root().join(&path);
        if full.is_dir() {
            let entries = full.read_dir().unwrap();
            open.extend(entries.map(|it| path.join(it.unwrap().file_name())));
        } else if let Ok(text) = std::fs::read_to_string(&full) {
            texts.push((path, text));
        }
    }
    texts.sort();
    texts
}

/// The words of a text in lower case, each with its line. A sign between two words is a word of its own, except an
/// underscore and the signs that start a line of a comment, a list or a patch.
fn words(text: &str) -> Vec<(String, usize)> {
    let mut words: Vec<(String, usize)> = Vec::new();
    for (line, text) in text.lines().enumerate() {
        let text = text.trim_start_matches(|it: char| " \t/!#*+->".contains(it));
        let mut is_new = true;
        let mut was_lower = false;
        for c in text.chars() {
            if !c.is_ascii_alphabetic() {
                if !c.is_whitespace() && c != '_' {
                    words.push((c.to_string(), line));
                }
                is_new = true;
                continue;
            }
            if is_new || (was_lower && c.is_ascii_uppercase()) {
                words.push((String::new(), line));
            }
            if let Some((word, _)) = words.last_mut() {
                word.push(c.to_ascii_lowercase());
            }
            is_new = false;
            was_lower = c.is_ascii_lowercase();
        }
    }
    words
}

/// The places of each word in a text: the word, what to write instead, and the lines.
fn found(text: &str) -> BTreeMap<(&'static str, &'static str), Vec<usize>> {
    let words = words(text);
    let mut found: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (phrase, instead) in WORDS {
        let phrase_words: Vec<&str> = phrase.split(' ').collect();
        for window in words.windows(phrase_words.len()) {
            if window.iter().map(|it| &it.0).eq(phrase_words.iter()) {
                let lines = found.entry((*phrase, *instead)).or_default();
                lines.push(window[0].1 + 1);
            }
        }
    }
    found
}

/// A text without what may stay in it, and which entries of [`ALLOWED`] it has.
fn without_allowed(path: &Path, text: &str, used: &mut [bool]) -> String {
    let mut text = text.to_owned();
    for ((below, allowed, _), used) in ALLOWED.iter().zip(used) {
        if (below.is_empty() || path.starts_with(below)) && text.contains(allowed) {
            text = text.replace(allowed, ".");
            *used = true;
        }
    }
    text
}

#[test]
fn texts_have_the_words_of_the_field() {
    let mut used = vec![false; ALLOWED.len()];
    let mut wrong: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for (path, text) in texts() {
        let text = without_allowed(&path, &text, &mut used);
        for (word, lines) in found(&text) {
            let places = lines.iter().map(|it| format!("{}:{it}", path.display()));
            wrong.entry(word).or_default().extend(places);
        }
    }
    let report = wrong.iter().map(|((word, instead), places)| {
        let n_places = places.len();
        format!(
            "`{word}` {n_places} times (write: {instead})\n  {}\n",
            places.join("\n  ")
        )
    });
    let report: String = report.collect();
    assert!(report.is_empty(), "\n{report}");
    for ((below, allowed, reason), used) in ALLOWED.iter().zip(used) {
        assert!(
            used,
            "no text below `{below}` has {allowed} ({reason}): remove it from ALLOWED"
        );
    }
}

#[test]
fn a_word_is_found_in_comments_identifiers_and_across_lines() {
    let text = "/// Nothing said,\n// so\n// that it\nlet is_about = Told::new();";
    let found: Vec<(&str, Vec<usize>)> = found(text)
        .into_iter()
        .map(|((word, _), lines)| (word, lines))
        .collect();
    let expected = [
        ("is about", vec![4]),
        ("said", vec![1]),
        ("so that", vec![2]),
        ("told", vec![4]),
    ];
    assert_eq!(found, expected);
    // A sign divides two words, and a longer word is another one.
    assert!(self::found("it is: about; untold").is_empty());
}
