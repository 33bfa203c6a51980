//! What documents name of the sources exists: tests, options of the unshipped programs, and items
//! of types.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::claims::{documents, word};
use super::{read, root};

/// The text of all Rust files below a directory.
fn text_below(directory: &Path) -> String {
    let mut text = String::new();
    for entry in directory.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            text += &text_below(&path);
        } else if path.extension().is_some_and(|it| it == "rs") {
            text += &std::fs::read_to_string(path).unwrap();
        }
    }
    text
}

fn crate_directory(package: &str) -> PathBuf {
    let name = match package {
        "palisade" => package,
        other => other.strip_prefix("palisade-").unwrap_or(other),
    };
    root().join("crates").join(name)
}

fn is_name(sign: char) -> bool {
    sign.is_ascii_alphanumeric() || sign == '_'
}

/// Whether a text has a name after one of these words.
fn defines(text: &str, words: &[&str], name: &str) -> bool {
    words.iter().any(|word| {
        let definition = format!("{word} {name}");
        text.match_indices(&definition).any(|(at, _)| {
            let next = text[at + definition.len()..].chars().next();
            !next.is_some_and(is_name)
        })
    })
}

/// The error in the arguments of `cargo test`, if any.
fn error_in(arguments: &str) -> Option<String> {
    let mut directories = Vec::new();
    let mut arguments = arguments.split(' ');
    while let Some(argument) = arguments.next() {
        match argument {
            "-p" => {
                let name = arguments.next().unwrap_or_default();
                let directory = crate_directory(name);
                if !directory.is_dir() {
                    return Some(format!("no package {name}"));
                }
                directories.push(directory);
            }
            "--test" if directories.is_empty() => drop(arguments.next()),
            "--test" => {
                let name = arguments.next().unwrap_or_default();
                let files = [format!("tests/{name}.rs"), format!("tests/{name}/main.rs")];
                let exists = |it: &PathBuf| files.iter().any(|file| it.join(file).is_file());
                if !directories.iter().any(exists) {
                    return Some(format!("no test {name}"));
                }
            }
            "--" => return None,
            option if option.starts_with('-') => {}
            // The name of a renamed test or module would select no test.
            filter => {
                let text: String = directories.iter().map(|it| text_below(it)).collect();
                let mut names = filter.split("::").filter(|it| !it.is_empty());
                let missing = names.find(|it| !defines(&text, &["mod", "fn"], it));
                return missing.map(|it| format!("no module and no test {it}"));
            }
        }
    }
    None
}

#[test]
fn tests_that_documents_name_exist() {
    let mut named = 0;
    for document in documents().iter().filter(|it| *it != "CHANGELOG.md") {
        for rest in read(document).split("`cargo test ").skip(1) {
            let arguments = rest.split('`').next().unwrap();
            let arguments = arguments.split_whitespace().collect::<Vec<_>>().join(" ");
            let error = error_in(&arguments);
            assert_eq!(error, None, "{document}: cargo test {arguments}");
            named += 1;
        }
    }
    assert!(named > 50, "{named}");
}

#[test]
fn a_test_that_does_not_exist_is_seen() {
    for arguments in [
        "-p palisade-nowhere",
        "-p palisade-kube --test nowhere",
        "-p palisade-kube nowhere",
        "-p palisade-kube reflector::nowhere",
    ] {
        assert!(error_in(arguments).is_some(), "{arguments}");
    }
    assert_eq!(error_in("-p palisade-kube reflector::tests"), None);
}

/// The options of a program: the fields with `#[arg(...)]` in the sources of its crate.
fn options(package: &str) -> BTreeSet<String> {
    let text = text_below(&crate_directory(package).join("src"));
    let fields = text.split("#[arg(").skip(1).filter_map(|it| {
        let (_, field) = it.split_once(")]\n")?;
        let field = field.trim_start();
        let field = field.strip_prefix("pub ").unwrap_or(field);
        let field = field.strip_prefix("pub(crate) ").unwrap_or(field);
        let field = field.strip_prefix("pub(super) ").unwrap_or(field);
        let end = field.find(|it| !is_name(it))?;
        Some(format!("--{}", field[..end].replace('_', "-")))
    });
    fields.collect()
}

#[test]
fn options_of_unshipped_programs_exist() {
    let mut named = 0;
    for package in ["palisade-campaigns", "palisade-e2e", "palisade-bench"] {
        let options = options(package);
        for document in documents().iter().filter(|it| *it != "CHANGELOG.md") {
            let text = read(document);
            let starts = ["`", "\n"].map(|it| format!("{it}{package} "));
            for rest in starts.iter().flat_map(|it| text.split(it).skip(1)) {
                // A call ends with its quotation or line, or where another one begins.
                let call = rest.split(['`', '\n', '|', '#']).next().unwrap();
                for part in call.split(' ').filter(|it| it.starts_with("--")) {
                    let option = word(part, "-");
                    assert!(
                        option == "--" || options.contains(option),
                        "{document}: {package} has no option {option}"
                    );
                    named += 1;
                }
            }
        }
    }
    assert!(named > 30, "{named}");
}

/// `Type::name` in backticks: some crate defines the type, and a function or variant of the name.
#[test]
fn items_that_documents_name_exist() {
    let sources = text_below(&root().join("crates"));
    let mut named = 0;
    for document in documents().iter().filter(|it| *it != "CHANGELOG.md") {
        for part in read(document).split('`').skip(1).step_by(2) {
            let Some((owner, item)) = part.split_once("::") else {
                continue;
            };
            let is_type = owner.starts_with(|it: char| it.is_ascii_uppercase());
            if !is_type || !part.replace("::", "").chars().all(is_name) {
                continue;
            }
            let is_defined = defines(&sources, &["struct", "enum", "trait"], owner)
                && (defines(&sources, &["fn", "const"], item)
                    || defines(&sources, &["pub", "pub(crate)"], item)
                    || defines(&sources, &["   "], item));
            assert!(is_defined, "{document}: {part}");
            named += 1;
        }
    }
    assert!(named > 10, "{named}");
}
