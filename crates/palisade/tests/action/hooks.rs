//! The hooks, called as pre-commit and git call them.

use std::process::Output;

use serde_json::Value;

use crate::repository::{Repository, make_executable, program};
use crate::{MISTAKE, root, shop, yaml};

/// Calls a hook as pre-commit does: its entry, its arguments, and the names of files if it wants them.
fn call(repository: &Repository, id: &str, args: Option<&[&str]>, files: &[&str]) -> Output {
    let hooks = yaml(".pre-commit-hooks.yaml");
    let hook = hooks
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["id"] == id)
        .unwrap();
    let entry = root().join(hook["entry"].as_str().unwrap());
    let mut command = program(entry.to_str().unwrap(), repository.path());
    match args {
        Some(args) => command.args(args),
        None => command.args(
            hook["args"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|it| it.as_str().unwrap()),
        ),
    };
    if hook["pass_filenames"] != Value::Bool(false) {
        command.args(files);
    }
    command.output().unwrap()
}

fn printed(output: &Output) -> (Option<i32>, String) {
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

const GAINED: &str = "4 pairs gained, 1 object undecided; 1 object changed";

#[test]
fn check_reads_the_files_that_are_named() {
    let repository = shop(MISTAKE);
    let (code, text) = printed(&call(
        &repository,
        "palisade-check",
        None,
        &["policies/shop-db.yaml", "policies/shop.yaml"],
    ));
    assert_eq!(
        (code, text.as_str()),
        (Some(0), "4 objects in 2 files: no problems\n")
    );
    let bad = "apiVersion: v1\nkind: Namespace\nmetadata: {nam: x}\n";
    for name in [
        "bad.yaml",
        "-q.yaml",
        "a b.yaml",
        "$(touch pwned).yaml",
        "new\nline.yaml",
        "-f",
    ] {
        repository.write(name, bad);
        let (code, text) = printed(&call(
            &repository,
            "palisade-check",
            None,
            &[name, "policies/shop.yaml"],
        ));
        assert_eq!(code, Some(1), "{name}: {text}");
        assert!(text.contains("4 objects in 2 files"), "{name}: {text}");
    }
    assert!(!repository.has("pwned"));
    let (code, text) = printed(&call(
        &repository,
        "palisade-check",
        Some(&["--exit-zero"]),
        &["bad.yaml"],
    ));
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(
        printed(&call(&repository, "palisade-check", None, &[])).0,
        Some(0)
    );
}

#[test]
fn diff_compares_what_is_staged() {
    let repository = Repository::new();
    repository.copy("examples/shop-with-tenants", "policies");
    // Before the first commit there is nothing to compare with.
    repository.git(&["add", "--all"]);
    let (code, text) = printed(&call(&repository, "palisade-diff", None, &[]));
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("new endpoints: "), "{text}");
    repository.commit("the shop");
    let (code, text) = printed(&call(&repository, "palisade-diff", None, &[]));
    assert_eq!((code, text.as_str()), (Some(0), "no object differs\n"));
    // What is not staged does not count, and what is staged counts whatever became of the file.
    repository.copy(MISTAKE, "policies/shop-db.yaml");
    let (code, text) = printed(&call(&repository, "palisade-diff", None, &[]));
    assert_eq!((code, text.as_str()), (Some(0), "no object differs\n"));
    repository.git(&["add", "--all"]);
    repository.copy(
        "examples/shop-with-tenants/shop-db.yaml",
        "policies/shop-db.yaml",
    );
    for args in [
        None,
        Some(["policies", "--fail-on-wider"].as_slice()),
        Some(&["./policies/"]),
    ] {
        let (code, text) = printed(&call(&repository, "palisade-diff", args, &[]));
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains(GAINED), "{text}");
    }
    let (code, text) = printed(&call(
        &repository,
        "palisade-diff",
        Some(&["policies", "--exit-zero"]),
        &[],
    ));
    assert_eq!(code, Some(0), "{text}");
    // A directory that goes, and one that is not there at all.
    repository.git(&["rm", "--quiet", "-r", "-f", "--cached", "policies"]);
    let (code, text) = printed(&call(
        &repository,
        "palisade-diff",
        Some(&["policies"]),
        &[],
    ));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("removed endpoints: "), "{text}");
    let (code, text) = printed(&call(&repository, "palisade-diff", Some(&["/etc"]), &[]));
    assert_eq!(code, Some(2), "{text}");
}

#[test]
fn diff_takes_names_as_they_are_and_names_files_as_the_repository_does() {
    for name in ["a b", "$(touch pwned)", "-x", "cluster", "new\nline", "'"] {
        let repository = Repository::new();
        let pods = "apiVersion: v1\nkind: Pod\nmetadata: {name: NAME}\nspec: {containers: [{name: c, image: i}]}\n";
        repository.write(&format!("{name}/one.yaml"), &pods.replace("NAME", "one"));
        repository.commit("one");
        repository.write(&format!("{name}/two.yaml"), &pods.replace("NAME", "two"));
        repository.git(&["add", "--all"]);
        let (code, text) = printed(&call(&repository, "palisade-diff", Some(&[name]), &[]));
        assert_eq!(code, Some(1), "{name}: {text}");
        assert!(
            text.contains("new endpoints: default/two"),
            "{name}: {text}"
        );
        assert!(!repository.has("pwned"), "{name}");
    }
    let repository = shop(MISTAKE);
    repository.write(
        "policies/bad.yaml",
        "apiVersion: v1\nkind: Namespace\nmetadata: {nam: x}\n",
    );
    repository.git(&["add", "--all"]);
    let (code, text) = printed(&call(
        &repository,
        "palisade-diff",
        Some(&["policies"]),
        &[],
    ));
    assert_eq!(code, Some(2), "{text}");
    assert!(
        text.contains("--> ./policies/bad.yaml:3") || text.contains("--> policies/bad.yaml:3"),
        "{text}"
    );
}

#[test]
fn a_hook_of_git_refuses_a_commit_that_allows_more() {
    let repository = Repository::new();
    repository.copy("examples/shop-with-tenants", "policies");
    repository.commit("the shop");
    // As docs/reference/diff.md has it, with the place of the script.
    let page = crate::read("docs/reference/diff.md");
    let block = page
        .split("```sh\n#!/bin/sh\n")
        .nth(1)
        .expect("a hook in docs/reference/diff.md");
    let block = block.split("```").next().unwrap();
    let hook = repository.write(".git/hooks/pre-commit", &format!("#!/bin/sh\n{block}"));
    make_executable(&hook);
    let try_commit = |args: &[&str]| {
        let output = program("git", repository.path())
            .env("PALISADE", root())
            .args(["commit", "--quiet", "-m", "scrape"])
            .args(args)
            .output()
            .unwrap();
        printed(&output)
    };
    repository.copy(MISTAKE, "policies/shop-db.yaml");
    for args in [&["-a"], &["policies/shop-db.yaml"]] {
        let (code, text) = try_commit(args);
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains(GAINED), "{text}");
    }
    repository.git(&["checkout", "--quiet", "."]);
    repository.copy(crate::GUARD, "policies/guard.yaml");
    repository.git(&["add", "--all"]);
    let (code, text) = try_commit(&[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("2 pairs lost; 1 object changed"), "{text}");
}

#[test]
fn lint_reads_the_directory() {
    let repository = shop(MISTAKE);
    for (args, code) in [
        (None, Some(1)),
        (Some(["policies"].as_slice()), Some(1)),
        (Some(&["policies", "--fail-on=error"]), Some(0)),
    ] {
        let output = call(&repository, "palisade-lint", args, &["policies/shop.yaml"]);
        let (found, text) = printed(&output);
        assert_eq!(found, code, "{text}");
        assert!(text.contains("PEER-OR"), "{text}");
    }
}
