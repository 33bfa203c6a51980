//! The figures that documents state are those of the repository: each is counted, and compared with
//! the sentence.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "figures/claims.rs"]
mod claims;
#[path = "figures/counts.rs"]
mod counts;
#[path = "figures/sources.rs"]
mod sources;

use std::path::{Path, PathBuf};

use self::counts::{
    answers_of_a_run, array, breakages, case_directories, case_questions, case_steps,
    codes_of_lint, codes_of_problems, constant, decisions, found_by_oracle_alone, fuzz_targets,
    kinds_of_agents, largest_case, mistakes_in_rulesets, patches, range, response_faults,
    rows_of_table, table_of_mistakes, tests_of_group, text_constant,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

fn read(path: &str) -> String {
    let text = std::fs::read_to_string(root().join(path));
    text.unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A figure in a document: the words around it, with `{}` in its place, and what it should be.
struct Figure {
    document: &'static str,
    words: &'static str,
    is: fn() -> String,
}

const fn figure(document: &'static str, words: &'static str, is: fn() -> String) -> Figure {
    Figure {
        document,
        words,
        is,
    }
}

const README: &str = "README.md";
const TESTING: &str = "docs/internals/testing.md";
const THREATS: &str = "docs/operations/threats.md";
const CASES: &str = "cases/README.md";
const CRDS: &str = "docs/reference/apis/crds.md";
const DESIGN: &str = "docs/internals/design.md";

const AGREE: &str = "crates/campaigns/tests/agree.rs";
const CELLS: &str = "crates/campaigns/tests/cells.rs";
const DIFFER: &str = "crates/campaigns/tests/differ.rs";
const LIMITS: &str = "crates/api/tests/limits.rs";
const PACKETS: &str = "crates/campaigns/tests/packets.rs";

/// Digits in groups of three.
fn number(value: usize) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// How else a figure may be written.
const WORDS: [(&str, &str); 17] = [
    ("2", "two"),
    ("3", "three"),
    ("4", "four"),
    ("5", "five"),
    ("6", "six"),
    ("7", "seven"),
    ("8", "eight"),
    ("9", "nine"),
    ("10", "ten"),
    ("11", "eleven"),
    ("12", "twelve"),
    ("16", "sixteen"),
    ("19", "nineteen"),
    ("100", "a hundred"),
    ("1,000", "a thousand"),
    ("1,000,000", "a million"),
    ("1,000,000,000", "a billion"),
];

const FIGURES: &[Figure] = &[
    figure(README, "Linux and a Rust toolchain ({} or newer)", || {
        let manifest = read("Cargo.toml");
        let version = manifest.split("rust-version = \"").nth(1).unwrap();
        version.split('"').next().unwrap().to_owned()
    }),
    figure(
        "docs/operations/operate.md",
        "one list and one watch for each kind ({}, with CRDs)",
        || number(kinds_of_agents()),
    ),
    figure(
        "docs/operations/agent.md",
        "and `dropped` since {} waited already",
        || number(constant("crates/agent/src/drive/source.rs", "MOST_EVENTS")),
    ),
    figure(
        "docs/operations/agent.md",
        "At most {} wait to be written",
        || number(constant("crates/agent/src/drive/source.rs", "MOST_EVENTS")),
    ),
    figure(
        "docs/reference/live.md",
        "Lists come in pages of {}, ",
        || number(constant("crates/kube/src/get.rs", "PAGE")),
    ),
    figure(
        "docs/reference/live.md",
        "in pages of 500, {} at a time",
        || number(constant("crates/kube/src/list_many.rs", "AT_ONCE")),
    ),
    figure(
        README,
        "random clusters of all API versions: {} answers in every run of the tests",
        || number(answers_of_a_run()),
    ),
    figure(
        README,
        "compared with the answers: {} packets through random clusters in every run",
        || number(constant(PACKETS, "PROBES")),
    ),
    figure(
        CASES,
        "the worked examples of the specification, E1 to E{} |",
        || number(largest_case("worked", 'e')),
    ),
    figure(
        CASES,
        "one decision of the specification each (D1 to D{})",
        || number(decisions()),
    ),
    figure(
        CASES,
        "the upstream network-policy-api suite (T1 to T{}), in both APIs",
        || {
            let new = largest_case("conformance", 't');
            assert_eq!(new, largest_case("conformance-v1alpha1", 't'));
            number(new)
        },
    ),
    figure(TESTING, "| {} directories, ", || number(case_directories())),
    figure(TESTING, " directories, {} steps, ", || number(case_steps())),
    figure(
        TESTING,
        " steps, {} questions with reasons and deciding rules",
        || number(case_questions()),
    ),
    figure(TESTING, " of the {} verdicts can be measured", || {
        number(case_questions())
    }),
    figure(TESTING, "Of the {} verdicts ", || number(case_questions())),
    figure(
        TESTING,
        "| {} of the 2,642 verdicts can be measured",
        || number(constant("crates/palisade/tests/cases.rs", "LEAST_MEASURED")),
    ),
    figure(TESTING, " verdicts {} are measured, and all are as", || {
        number(constant("crates/palisade/tests/cases.rs", "LEAST_MEASURED"))
    }),
    figure(TESTING, "--test live` | {} random histories of", || {
        number(range("crates/campaigns/tests/live.rs", "SEEDS"))
    }),
    figure(TESTING, " random histories of {} batches each", || {
        number(constant("crates/campaigns/tests/live.rs", "BATCHES"))
    }),
    figure(
        CRDS,
        "are the same as upstream's files: {} leaves of six documents",
        || {
            let test = read("crates/crds/tests/upstream.rs");
            let leaves = test.split("assert_eq!(n_leaves, ").nth(1).unwrap();
            leaves.split(')').next().unwrap().replace('_', ",")
        },
    ),
    figure(TESTING, "--test agree` | {} random clusters, ", || {
        number(constant(AGREE, "SEEDS"))
    }),
    figure(TESTING, " random clusters, {} answers in every run", || {
        number(answers_of_a_run())
    }),
    figure(TESTING, "by only five of its {} clusters", || {
        number(constant(AGREE, "SEEDS"))
    }),
    figure(
        TESTING,
        "blocks, matrix and totals of {} random clusters",
        || number(constant(CELLS, "SEEDS") + array(CELLS, "FOUND")),
    ),
    figure(
        TESTING,
        "--test differ` | {} random changes of random clusters",
        || number(constant(DIFFER, "SEEDS") + array(DIFFER, "FOUND")),
    ),
    figure(TESTING, "--test lint` | {} random clusters", || {
        let test = read("crates/campaigns/tests/lint.rs");
        let seeds = test.split("seeds: ").nth(1).unwrap();
        number(seeds.split(',').next().unwrap().parse().unwrap())
    }),
    figure(TESTING, "--test plan` | {} random clusters", || {
        number(range("crates/campaigns/tests/plan.rs", "SEEDS"))
    }),
    figure(TESTING, "| at least {} packets in every run", || {
        number(constant(PACKETS, "PROBES"))
    }),
    figure(
        TESTING,
        "packets in every run, and {} rulesets that are wrong on purpose",
        || number(mistakes_in_rulesets()),
    ),
    figure(TESTING, "what packets do, until {} were sent", || {
        number(constant(PACKETS, "PROBES"))
    }),
    figure(
        TESTING,
        "`crates/campaigns/src/packets/wrong.rs` has {} mistakes in rulesets",
        || number(mistakes_in_rulesets()),
    ),
    figure(
        TESTING,
        "Each must show as a difference in one of {} clusters",
        || number(range(PACKETS, "CLUSTERS")),
    ),
    figure(
        TESTING,
        "every update in three ways, and {} that are wrong on purpose",
        || number(array("crates/campaigns/src/faults/mistakes.rs", "CASES")),
    ),
    figure(
        TESTING,
        "| `harness` | {} updates that are wrong on purpose",
        || number(array("crates/campaigns/src/faults/mistakes.rs", "CASES")),
    ),
    figure(
        TESTING,
        "| `errno` (F05) | {} errors, and answers that are lost",
        || number(array("crates/campaigns/src/faults/script.rs", "ERRORS")),
    ),
    figure(TESTING, "--test simulate` | {} seeds in every run", || {
        number(range("crates/campaigns/tests/simulate.rs", "SEEDS"))
    }),
    figure(TESTING, "--test limits` | {} limits, ", || {
        number(constant(LIMITS, "LIMITS"))
    }),
    figure(TESTING, " limits, {} documents |", || {
        number(constant(LIMITS, "FITTING") + constant(LIMITS, "VIOLATING"))
    }),
    figure(TESTING, "--test problems` | {} codes, ", || {
        number(codes_of_problems())
    }),
    figure(
        TESTING,
        "| a directory for each of the {} codes in `crates/palisade/tests/lint/`",
        || number(codes_of_lint()),
    ),
    figure(TESTING, "see below | {} tests with an API server", || {
        number(tests_of_group("crates/testbed/tests/api.rs"))
    }),
    figure(
        TESTING,
        " tests with an API server, {} with a cluster",
        || number(tests_of_group("crates/testbed/tests/cluster.rs")),
    ),
    figure(TESTING, "one pinned release ({}), with", || {
        text_constant("crates/testbed/src/binaries.rs", "KUBERNETES")
    }),
    figure(
        TESTING,
        "`crates/campaigns/mutants/` has {} small, plausible mistakes",
        || number(patches().len()),
    ),
    figure(
        TESTING,
        "as patches; {} of them remove a whole capability",
        || number(breakages()),
    ),
    figure(TESTING, "--test corpus` | {} targets;", || {
        number(fuzz_targets())
    }),
    figure(TESTING, "responses are malformed in {} ways", || {
        number(response_faults())
    }),
    figure(THREATS, "responses that are broken in {} ways", || {
        number(response_faults())
    }),
    figure(
        TESTING,
        "says for each of the {} which test catches it",
        || number(table_of_mistakes().len()),
    ),
    figure(
        TESTING,
        "not caught. {} mistakes are detected by no case but by the comparison with the oracle",
        || number(found_by_oracle_alone()),
    ),
    figure(
        CRDS,
        "and the {} of this table, which upstream's CRDs do not have",
        || number(rows_of_table(&read(CRDS), "| code | what is refused |")),
    ),
    figure(CRDS, "the test's table of {} kinds of difference", || {
        number(array("crates/crds/tests/apiserver.rs", "EXPLAINED"))
    }),
    figure(CRDS, "on a real API server (Kubernetes {}), sends", || {
        text_constant("crates/testbed/src/binaries.rs", "KUBERNETES")
            .trim_start_matches('v')
            .to_owned()
    }),
    figure(
        DESIGN,
        "Aliases expand to at most {} nodes and four times",
        || {
            number(constant(
                "crates/api/src/input/yaml/alias.rs",
                "ALIAS_BUDGET",
            ))
        },
    ),
    figure(DESIGN, " nodes and {} times the document's own", || {
        number(constant(
            "crates/api/src/input/yaml/alias.rs",
            "ALIAS_BUDGET_PER_NODE",
        ))
    }),
    figure(DESIGN, "nesting stops at {} levels", || {
        number(constant("crates/api/src/input.rs", "MAX_DEPTH"))
    }),
    figure(DESIGN, "a collection in brackets at {} signs", || {
        number(constant(
            "crates/api/src/input/yaml/build.rs",
            "FLOW_BUDGET",
        ))
    }),
    figure(DESIGN, "a document keeps at most {} problems", || {
        number(constant("crates/api/src/problem.rs", "MAX_PROBLEMS"))
    }),
    figure(DESIGN, "Where a list has more than {} rules", || {
        number(constant(
            "crates/core/src/compile/policy_index.rs",
            "FEW_RULES",
        ))
    }),
    figure(DESIGN, "In tables of more than {} rules each row", || {
        number(64 * constant("crates/core/src/program.rs", "LONG_ROW"))
    }),
];

/// A text in one line, with single blanks.
fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<&str>>().join(" ")
}

/// The text at the place of the figure, wherever the words around it occur.
fn stated(text: &str, words: &str) -> Vec<String> {
    let (before, after) = words.split_once("{}").expect("a place for the figure");
    let mut found = Vec::new();
    for (at, _) in text.match_indices(before) {
        let rest = &text[at + before.len()..];
        // A figure is one word, or two: `a million`.
        let Some(end) = rest.find(after) else {
            continue;
        };
        let middle = &rest[..end];
        if !middle.is_empty() && middle.split(' ').count() <= 2 {
            found.push(middle.to_owned());
        }
    }
    found
}

fn is_stated(stated: &str, figure: &str) -> bool {
    let stated = stated.to_lowercase();
    let mut words = WORDS.iter().filter(|it| it.0 == figure);
    stated == figure || words.any(|it| it.1 == stated)
}

#[test]
fn documents_state_the_figures_of_the_repository() {
    let mut wrong = Vec::new();
    for Figure {
        document,
        words,
        is,
    } in FIGURES
    {
        let text = in_one_line(&read(document));
        let figure = is();
        let found = stated(&text, words);
        if found.is_empty() {
            wrong.push(format!(
                "{document} does not say any more: {words} ({figure})"
            ));
        }
        for found in found.iter().filter(|it| !is_stated(it, &figure)) {
            wrong.push(format!("{document}: {words}: {found}, but it is {figure}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn a_wrong_figure_is_seen() {
    let text = "All 84 are found, in a million answers.";
    assert_eq!(stated(text, "All {} are found"), ["84"]);
    assert_eq!(stated(text, "in {} answers"), ["a million"]);
    assert!(stated(text, "None of {} is found").is_empty());
    assert!(is_stated("84", &number(84)) && !is_stated("84", &number(97)));
    assert!(is_stated("a million", &number(1_000_000)) && !is_stated("a million", "1,000"));
    assert_eq!(number(1_234_567), "1,234,567");
    assert_eq!(number(100), "100");
}

#[test]
fn every_seeded_mistake_has_a_row_with_its_own_words() {
    let rows = table_of_mistakes();
    let patches = patches();
    for (name, words) in &patches {
        let row = rows.iter().find(|it| it.0 == *name);
        let row = row.unwrap_or_else(|| panic!("docs/internals/testing.md has no row for {name}"));
        assert_eq!(&row.1, words, "{name}");
        assert!(!row.2.is_empty(), "{name}: nothing has caught it");
    }
    for (name, ..) in &rows {
        assert!(
            patches.iter().any(|it| it.0 == *name),
            "there is no patch {name}"
        );
    }
    assert_eq!(rows.len(), patches.len(), "a duplicate row");
}

#[test]
fn decisions_are_numbered_without_a_gap() {
    // The number of decisions is the largest number.
    let model = read("docs/reference/model.md");
    for number in 1..=decisions() {
        let stated = model.matches(&format!("- **D{number}** ")).count();
        assert_eq!(stated, 1, "D{number}");
    }
}

#[test]
fn seeds_that_showed_mistakes_are_listed() {
    // Those of the simulation stand in its table.
    let page = read(TESTING);
    let table = page.split("| seed | what was wrong |").nth(1).unwrap();
    let table = table.split("\n\n").next().unwrap();
    let test = read("crates/campaigns/tests/simulate.rs");
    let found = test.split("const FOUND").nth(1).unwrap();
    let found = found.split('[').nth(2).unwrap().split(']').next().unwrap();
    for seed in found.split(',').map(|it| it.trim().replace('_', "")) {
        assert!(table.contains(&seed), "{seed} is not in the table");
    }
}
