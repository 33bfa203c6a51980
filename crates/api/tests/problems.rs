//! Every problem code has a bad example with the problem, and a good one without any;
//! `docs/reference/problems.md` is made from them. `UPDATE_DOCS=1` writes it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use palisade_api::{Code, Lines, Options, Problem, Source, lower, read};

/// Domain names are not in every channel of the API, which is reported as well.
const ABOUT_DOMAINS: [Code; 3] = [Code::DomainInvalid, Code::DomainAction, Code::DomainOdd];

/// The codes that no single object shows.
const ABOUT_CLUSTERS: [Code; 3] = [Code::NamespaceUnknown, Code::IpConflict, Code::OverBudget];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/problems")
}

/// The bad example: its file name, its bytes, and the text to show in the documentation.
fn bad(code: Code) -> (String, Vec<u8>, Option<String>) {
    let directory = root().join(code.name());
    for name in ["bad.yaml", "bad.json"] {
        if let Ok(bytes) = std::fs::read(directory.join(name)) {
            let text = String::from_utf8(bytes.clone()).unwrap();
            return (name.to_owned(), bytes, Some(text));
        }
    }
    let (name, bytes) = made_bad(code);
    (name.to_owned(), bytes, None)
}

/// Bad examples that cannot be text files of a reasonable size.
fn made_bad(code: Code) -> (&'static str, Vec<u8>) {
    let policy = |spec: &str| {
        format!(
            "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: a}}\nspec:\n{spec}"
        )
    };
    if code == Code::NotUtf8 {
        let mut bytes = policy("  podSelector: {matchLabels: {app: ").into_bytes();
        bytes.extend(b"caf\xe9}}\n");
        ("bad.yaml", bytes)
    } else if code == Code::BrokenGzip {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(policy("  podSelector: {}\n").as_bytes())
            .unwrap();
        let bytes = gzip.finish().unwrap();
        ("bad.yaml.gz", bytes[..bytes.len() / 2].to_vec())
    } else if code == Code::FileTooLarge {
        ("bad.yaml", b"# more than the limit of this test\n".to_vec())
    } else if code == Code::MoreProblems {
        let entries = "  - from: 1\n".repeat(10_001);
        (
            "bad.yaml",
            policy(&format!("  podSelector: {{}}\n  ingress:\n{entries}")).into_bytes(),
        )
    } else if code == Code::FlowTooLarge {
        (
            "bad.yaml",
            format!("[{}]\n", "192.0.2.0/24, ".repeat(250_001)).into_bytes(),
        )
    } else if code == Code::AliasBudget {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..8 {
            let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
            writeln!(text, "a{level}: &a{level} [{aliases}]").unwrap();
        }
        ("bad.yaml", text.into_bytes())
    } else {
        panic!("{code} has no bad example")
    }
}

fn problems(name: &str, bytes: Vec<u8>, code: Code) -> (Vec<Problem>, String) {
    let limit = if code == Code::FileTooLarge && name.starts_with("bad") {
        30
    } else {
        usize::MAX >> 1
    };
    let sources = [Source::with_limit(name, bytes, limit)];
    let mut manifests = read(&sources, Options::default(), &|_| {});
    if ABOUT_CLUSTERS.contains(&code) {
        let lowered = lower(&manifests.objects, Vec::new());
        manifests.problems.extend(lowered.problems);
    }
    (manifests.problems, sources[0].text().to_owned())
}

#[test]
fn every_code_has_a_bad_example_with_only_this_problem() {
    for code in Code::ALL {
        let (name, bytes, _) = bad(*code);
        let (found, _) = problems(&name, bytes, *code);
        let mut codes: Vec<Code> = found.iter().map(|problem| problem.code).collect();
        codes.sort();
        codes.dedup();
        let mut expected = vec![*code];
        if *code == Code::MoreProblems {
            expected.push(Code::WrongType);
        }
        if ABOUT_DOMAINS.contains(code) {
            expected.push(Code::Channel);
        }
        expected.sort();
        assert_eq!(codes, expected, "{code}: {found:#?}");
        assert!(
            found.iter().all(|problem| !problem.message.is_empty()),
            "{code}"
        );
    }
}

#[test]
fn every_code_has_a_good_example_without_any_problem() {
    for code in Code::ALL {
        let file = root().join(code.name()).join("good.yaml");
        let bytes =
            std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let (found, _) = problems("good.yaml", bytes, *code);
        let about_channels = ABOUT_DOMAINS.contains(code);
        let found: Vec<Problem> = found
            .into_iter()
            .filter(|it| !(about_channels && it.code == Code::Channel))
            .collect();
        assert_eq!(found, [], "{}", file.display());
    }
}

#[test]
fn there_are_no_examples_of_codes_that_do_not_exist() {
    for entry in root().read_dir().unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(Code::ALL.iter().any(|code| code.name() == name), "{name}");
    }
}

#[test]
fn the_documentation_has_the_examples() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/problems.md");
    let made = documentation();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, &made).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == made,
        "docs/reference/problems.md is stale: run with UPDATE_DOCS=1 and read the difference"
    );
}

fn documentation() -> String {
    let mut page = "# Problems\n\n\
        What `palisade` reports about its input, by code. The names of the codes are stable. This page is\n\
        made from the examples in `crates/api/tests/problems/`, which the tests run.\n\n\
        | code | severity | |\n|---|---|---|\n"
        .to_owned();
    for code in Code::ALL {
        let anchor = code.name().to_lowercase();
        writeln!(
            page,
            "| [{code}](#{anchor}) | {} | {} |",
            code.severity(),
            code.summary()
        )
        .unwrap();
    }
    for code in Code::ALL {
        let why = std::fs::read_to_string(root().join(code.name()).join("why.md")).unwrap();
        let good = std::fs::read_to_string(root().join(code.name()).join("good.yaml")).unwrap();
        let (name, bytes, shown) = bad(*code);
        let (found, text) = problems(&name, bytes, *code);
        writeln!(
            page,
            "\n## {code}\n\n{}\n\n{}",
            wrapped(&format!("{} ({})", code.summary(), code.severity())),
            why.trim()
        )
        .unwrap();
        if let Some(shown) = shown {
            let language = if name.ends_with("json") {
                "json"
            } else {
                "yaml"
            };
            let shown = shown.replace('\u{7}', "\u{2407}");
            writeln!(page, "\nBad:\n\n```{language}\n{}\n```", shown.trim_end()).unwrap();
        }
        if let Some(problem) = found.iter().find(|problem| problem.code == *code) {
            let (line, column) = Lines::new(&text).position(problem.span.start as usize);
            writeln!(
                page,
                "\n```text\n{name}:{line}:{column}: {}",
                problem.message
            )
            .unwrap();
            if let Some(help) = &problem.help {
                writeln!(page, "help: {help}").unwrap();
            }
            writeln!(page, "```").unwrap();
        }
        writeln!(page, "\nGood:\n\n```yaml\n{}\n```", good.trim_end()).unwrap();
    }
    page
}

/// A sentence in lines of at most 100 columns.
fn wrapped(sentence: &str) -> String {
    let mut text = String::new();
    let mut column = 0;
    for word in sentence.split(' ') {
        let length = word.chars().count();
        if column + 1 + length > 100 {
            text.push('\n');
            column = 0;
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        text += word;
        column += length;
    }
    text
}
