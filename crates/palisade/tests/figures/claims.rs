//! What documents name exists: commands, options, codes, files, and where their links lead.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{read, root};

/// Every page for readers, by its path.
pub(crate) fn documents() -> Vec<String> {
    let mut pages = vec![root().join("docs")];
    let mut found: Vec<String> = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CHANGELOG.md",
        "cases/README.md",
        "cases/conformance/README.md",
    ]
    .map(str::to_owned)
    .into();
    while let Some(directory) = pages.pop() {
        for entry in directory.read_dir().unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pages.push(path);
            } else if path.extension().is_some_and(|it| it == "md") {
                let path = path.strip_prefix(root()).unwrap();
                found.push(path.to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    assert!(found.len() > 20, "{found:?}");
    found
}

fn help(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_palisade"))
        .args(args)
        .arg("--help")
        .output()
        .unwrap();
    assert!(output.status.success(), "{args:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The names under `Commands:` of a help text.
fn commands_of(help: &str) -> BTreeSet<String> {
    let list = help.split("Commands:\n").nth(1).unwrap_or_default();
    let list = list.lines().take_while(|it| !it.is_empty());
    // Further lines of a description are indented further.
    let names = list.filter_map(|it| it.strip_prefix("  "));
    let names = names.map(|it| word(it, "-")).filter(|it| !it.is_empty());
    names.map(str::to_owned).collect()
}

/// The word at the start of a text, of these signs and lower-case letters.
pub(crate) fn word<'t>(text: &'t str, signs: &str) -> &'t str {
    let is_part = |it: char| it.is_ascii_lowercase() || signs.contains(it);
    let end = text.find(|it: char| !is_part(it));
    &text[..end.unwrap_or(text.len())]
}

/// The texts between single backticks.
fn quoted(text: &str) -> Vec<&str> {
    let lines = text.lines().filter(|it| !it.starts_with("```"));
    let parts = lines.flat_map(|it| it.split('`').skip(1).step_by(2));
    parts.collect()
}

#[test]
fn commands_that_documents_name_exist() {
    let commands = commands_of(&help(&[]));
    assert!(commands.contains("explain"), "{commands:?}");
    let mut named = BTreeSet::new();
    for document in documents() {
        let text = read(&document);
        for before in ["`palisade ", "$ palisade ", "\npalisade "] {
            for rest in text.split(before).skip(1) {
                let command = word(rest, "");
                assert!(
                    command.is_empty() || commands.contains(command),
                    "{document} names `palisade {command}`"
                );
                named.insert(command.to_owned());
            }
        }
    }
    assert!(named.len() > 8, "{named:?}");
}

/// Options of other programs, which documents name by themselves.
const FOREIGN: [&str; 8] = [
    "--run-firewall", // kube-router
    "--overrides",    // kubectl run
    "--binary",       // deploy/image/build
    "--target",       // the same
    "--connections",  // palisade-campaigns facts
    "--changes",      // the same, and palisade-e2e whole
    "--parts",        // palisade-bench
    "--strict",       // palisade-campaigns simulate
];

#[test]
fn options_that_documents_name_exist() {
    let mut options: BTreeSet<String> = FOREIGN.map(str::to_owned).into();
    let mut texts = vec![help(&[])];
    for command in commands_of(&help(&[])) {
        let text = help(&[&command]);
        for inner in commands_of(&text).iter().filter(|it| *it != "help") {
            texts.push(help(&[&command, inner]));
        }
        texts.push(text);
    }
    for text in texts {
        let found = text.split("--").skip(1).map(|it| word(it, "-"));
        options.extend(found.map(|it| format!("--{it}")));
    }
    let mut named = 0;
    for document in documents().iter().filter(|it| *it != "CHANGELOG.md") {
        for part in quoted(&read(document)) {
            let option = word(part, "-");
            if option.starts_with("--") && option.chars().any(char::is_alphabetic) {
                assert!(
                    options.contains(option),
                    "{document} names the option {option}"
                );
                named += 1;
            }
        }
    }
    assert!(named > 50, "{named}");
}

#[test]
fn codes_that_documents_name_exist() {
    let mut codes = BTreeSet::new();
    for directory in ["crates/api/tests/problems", "crates/palisade/tests/lint"] {
        for entry in root().join(directory).read_dir().unwrap() {
            let name = entry.unwrap().file_name();
            codes.insert(name.into_string().unwrap());
        }
    }
    // An example of a code that does not exist.
    codes.insert("CIDR-HOSTBIT".to_owned());
    let mut named = 0;
    for document in documents().iter().filter(|it| *it != "CHANGELOG.md") {
        for part in quoted(&read(document)) {
            let is_sign = |it: char| it.is_ascii_uppercase() || it.is_ascii_digit() || it == '-';
            if part.chars().all(is_sign) && part.contains('-') && part.len() > 3 {
                assert!(codes.contains(part), "{document} names the code {part}");
                named += 1;
            }
        }
    }
    assert!(named > 30, "{named}");
}

#[test]
fn files_that_documents_name_exist() {
    let directories = [
        "crates/",
        "docs/",
        "cases/",
        "deploy/",
        "examples/",
        "fuzz/",
        ".ci/",
    ];
    let mut named = 0;
    for document in documents().iter().filter(|it| *it != "CHANGELOG.md") {
        for part in quoted(&read(document)) {
            let path = part.split([' ', ':', '#']).next().unwrap();
            let is_path = directories.iter().any(|it| path.starts_with(it));
            // `CODE` and `GROUP` stand for many.
            let is_plain = !path.contains(|it: char| it.is_ascii_uppercase() || it == '*')
                || path.contains("README.md")
                || path.contains("Dockerfile");
            // The case that the page asks a reader to write.
            let is_example = path.contains("/my-idea");
            if is_path && is_plain && !is_example {
                let exists = root().join(path).exists();
                assert!(exists, "{document} names {path}");
                named += 1;
            }
        }
    }
    assert!(named > 100, "{named}");
}

/// The names by which a page's headings can be linked to.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut is_code = false;
    let mut anchors = BTreeSet::new();
    for line in text.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
        }
        let heading = line.trim_start_matches('#');
        if is_code || heading == line || !heading.starts_with(' ') {
            continue;
        }
        let kept = heading.trim().to_lowercase();
        let kept = kept.chars().filter_map(|it| match it {
            ' ' => Some('-'),
            '-' | '_' => Some(it),
            it if it.is_alphanumeric() => Some(it),
            _ => None,
        });
        anchors.insert(kept.collect());
    }
    anchors
}

/// A path without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part == std::path::Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}

#[test]
fn links_lead_to_pages_and_headings_that_exist() {
    let mut followed = 0;
    for document in documents() {
        let text = read(&document);
        let home = Path::new(&document).parent().unwrap();
        for rest in text.split("](").skip(1) {
            let link = rest.split(')').next().unwrap();
            if link.contains("://") || link.contains(char::is_whitespace) {
                continue;
            }
            let (page, anchor) = link.split_once('#').unwrap_or((link, ""));
            let page = if page.is_empty() {
                PathBuf::from(&document)
            } else {
                plain(&home.join(page))
            };
            let page = page.to_str().unwrap();
            assert!(root().join(page).exists(), "{document}: {link}");
            if !anchor.is_empty() {
                let exists = anchors(&read(page)).contains(anchor);
                assert!(exists, "{document}: {link} has no heading");
            }
            followed += 1;
        }
    }
    assert!(followed > 200, "{followed}");
}

/// The links of the tour are functions and types: the file that a link leads to defines the name
/// that it shows.
#[test]
fn links_of_the_tour_lead_to_what_they_name() {
    let page = read("docs/internals/tour.md");
    let mut followed = 0;
    for rest in page.split("[`").skip(1) {
        let (name, rest) = rest.split_once("`](").unwrap();
        let link = rest.split(')').next().unwrap();
        let file = plain(&Path::new("docs/internals").join(link));
        let text = read(file.to_str().unwrap());
        let defines = ["fn", "struct", "enum", "trait"].iter().any(|word| {
            let definition = format!("{word} {name}");
            text.match_indices(&definition).any(|(at, _)| {
                let next = text[at + definition.len()..].chars().next();
                next.is_some_and(|it| !it.is_alphanumeric() && it != '_')
            })
        });
        assert!(defines, "{link} does not define {name}");
        followed += 1;
    }
    assert!(followed > 30, "{followed}");
}

/// Prose wraps at 100 columns. Tables, code, headings, quoted output and lines that are one link do
/// not.
#[test]
fn prose_wraps_at_100_columns() {
    for document in documents() {
        let mut is_code = false;
        for line in read(&document).lines() {
            if line.trim_start().starts_with("```") {
                is_code = !is_code;
            }
            let text = line.trim();
            let is_one_piece = text.starts_with(['|', '#', '>']) || text.split(' ').count() < 3;
            let is_long = line.chars().count() > 100;
            assert!(is_code || is_one_piece || !is_long, "{document}: {line}");
        }
    }
}

#[test]
fn the_architecture_is_a_page() {
    let length = read("ARCHITECTURE.md").len();
    assert!(
        length <= 8 * 1024,
        "{length} bytes: decisions belong into docs/internals/design.md"
    );
}
