//! The seeded mistakes match the sources: they apply, have a description, and name tests that
//! exist.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use palisade_campaigns::mutants::{Mutant, PATCHES, all};

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().unwrap()
}

fn mutants() -> Vec<Mutant> {
    let mutants = all(&root()).unwrap();
    assert!(mutants.len() > 150, "{} in {PATCHES}", mutants.len());
    mutants
}

/// The sources may be a checkout or a copy of one, with or without a history, inside another
/// repository or not.
fn applies(patch: &Path) -> Result<(), String> {
    let root = root();
    let output = Command::new("git")
        .args(["apply", "--check", "-p1"])
        .arg(patch)
        .current_dir(&root)
        .env("GIT_CEILING_DIRECTORIES", root.parent().unwrap())
        .output()
        .unwrap();
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn every_patch_applies() {
    let stale: Vec<String> = mutants()
        .iter()
        .filter_map(|it| Some(format!("{}: {}", it.name, applies(&it.path).err()?)))
        .collect();
    assert!(
        stale.is_empty(),
        "update these patches:\n{}",
        stale.join("\n")
    );
}

/// The check for stale patches detects one.
#[test]
fn a_patch_of_something_else_does_not_apply() {
    let directory = tempfile::tempdir().unwrap();
    let patch = directory.path().join("stale.patch");
    for (file, line) in [
        ("crates/bench/src/lib.rs", "nothing like this"),
        ("no/such/file", "x"),
    ] {
        let text = format!("# Stale.\n--- a/{file}\n+++ b/{file}\n@@ -1,1 +1,1 @@\n-{line}\n+y\n");
        fs::write(&patch, text).unwrap();
        assert!(applies(&patch).is_err(), "{file}");
    }
}

#[test]
fn numbers_are_unique_and_descriptions_are_sentences() {
    let mut names: BTreeMap<u32, String> = BTreeMap::new();
    for mutant in mutants() {
        let Mutant { name, what, .. } = &mutant;
        assert!(what.ends_with('.') && what.len() > 20, "{name}: {what}");
        let other = names.insert(mutant.number, name.clone());
        assert_eq!(other, None, "{name} has the number of another");
    }
}

#[test]
fn the_table_of_the_documentation_has_every_mistake() {
    let text = fs::read_to_string(root().join("docs/internals/testing.md")).unwrap();
    for Mutant { name, what, .. } in mutants() {
        let row = format!("| {name} | {what} | ");
        let is_there = text.lines().any(|line| line.starts_with(&row));
        assert!(
            is_there,
            "docs/internals/testing.md has no line that starts with {row}"
        );
    }
}

/// The last column of the table names packages and modules as the command prints them. A renamed
/// module would stay there.
#[test]
fn the_table_names_tests_that_exist() {
    let packages = packages();
    let text = fs::read_to_string(root().join("docs/internals/testing.md")).unwrap();
    let mut n_checked = 0;
    for Mutant { name, .. } in mutants() {
        let start = format!("| {name} | ");
        let row = text.lines().find(|it| it.starts_with(&start)).unwrap();
        let caught = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let Some((package, test)) = caught.split_once(": ") else {
            continue;
        };
        if test.contains([' ', '/']) {
            continue;
        }
        let library = package.replace('_', "-");
        let builds: Vec<Vec<&str>> = if packages.contains_key(&library) {
            vec![vec!["-p", &library, "--lib"]]
        } else {
            let names = packages.keys();
            names.map(|it| vec!["-p", it, "--test", package]).collect()
        };
        let filter = [test.to_owned()];
        let errors = builds.iter().filter_map(|it| {
            let build: Vec<String> = it.iter().map(|it| (*it).to_owned()).collect();
            error_in(&packages, &build, &filter)
        });
        // A test target may have its name in several packages, and no target has it in others.
        let errors: Vec<String> = errors.collect();
        assert!(errors.len() < builds.len(), "{row}\n{errors:?}");
        n_checked += 1;
    }
    assert!(n_checked > 80, "{n_checked}");
}

/// The packages of the workspace, with their directories.
fn packages() -> BTreeMap<String, PathBuf> {
    let directories = fs::read_dir(root().join("crates")).unwrap();
    let directories = directories.map(|it| it.unwrap().path());
    directories
        .filter_map(|directory| {
            let manifest = fs::read_to_string(directory.join("Cargo.toml")).ok()?;
            let name = manifest.lines().find_map(|it| it.strip_prefix("name = "))?;
            Some((name.trim_matches('"').to_owned(), directory))
        })
        .collect()
}

/// The text of all Rust files below a directory.
fn sources(directory: &Path) -> String {
    let mut text = String::new();
    let Ok(entries) = fs::read_dir(directory) else {
        return text;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            text += &sources(&path);
        } else if path.extension().is_some_and(|it| it == "rs") {
            text += &fs::read_to_string(path).unwrap();
        }
    }
    text
}

/// The error in arguments of `cargo test`, if any.
fn error_in(
    packages: &BTreeMap<String, PathBuf>,
    build: &[String],
    run: &[String],
) -> Option<String> {
    let mut directories: Vec<&PathBuf> = Vec::new();
    let mut n_targets = 0;
    let mut args = build.iter().map(String::as_str);
    while let Some(arg) = args.next() {
        let exists = |file: &str| directories.iter().any(|it| it.join(file).is_file());
        match arg {
            "-p" => match args.next().and_then(|name| packages.get(name)) {
                Some(directory) => directories.push(directory),
                None => return Some("no such package".to_owned()),
            },
            "--test" => {
                let name = args.next().unwrap_or_default();
                if !exists(&format!("tests/{name}.rs")) && !exists(&format!("tests/{name}/main.rs"))
                {
                    return Some(format!("no test {name}"));
                }
                n_targets += 1;
            }
            "--lib" => {
                if !exists("src/lib.rs") {
                    return Some("no library".to_owned());
                }
                n_targets += 1;
            }
            "--bins" => {
                if !exists("src/main.rs") {
                    return Some("no program".to_owned());
                }
                n_targets += 1;
            }
            other => return Some(format!("unknown argument {other}")),
        }
    }
    if n_targets == 0 {
        return Some("no tests".to_owned());
    }
    // The name of a renamed test or module would select no test.
    let text: String = directories.iter().map(|it| sources(it)).collect();
    let is_module = |name: &str| {
        text.contains(&format!("mod {name};")) || text.contains(&format!("mod {name} {{"))
    };
    let mut filters = run.iter().filter(|it| !it.starts_with("--"));
    filters.find_map(|filter| {
        let (modules, name) = filter.rsplit_once("::").unwrap_or(("", filter));
        let mut modules = modules.split("::").filter(|it| !it.is_empty());
        if let Some(missing) = modules.find(|it| !is_module(it)) {
            return Some(format!("no module {missing}"));
        }
        (!text.contains(name)).then(|| format!("no test {name}"))
    })
}

#[test]
fn the_tests_of_a_mistake_exist() {
    let packages = packages();
    for mutant in mutants() {
        for tests in &mutant.found_by {
            let error_in = error_in(&packages, &tests.build, &tests.run);
            assert_eq!(error_in, None, "{}: {tests:?}", mutant.name);
        }
    }
    let args = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
    for build in [
        "-p palisade-nowhere --lib",
        "-p palisade-nft --test nowhere",
        "-p palisade-nft --bins",
        "-p palisade-nft",
        "-p palisade-nft --lib --release",
    ] {
        assert!(error_in(&packages, &args(build), &[]).is_some(), "{build}");
    }
    let unknown = format!("no_test_is_{}", "called_so");
    let build = args("-p palisade-nft --test kernel");
    assert!(error_in(&packages, &build, &[unknown]).is_some());
    assert!(error_in(&packages, &build, &["no_module::".into()]).is_some());
    assert_eq!(error_in(&packages, &build, &["forms::".into()]), None);
}
