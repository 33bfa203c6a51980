//! What the files of the action and of the hooks say about each other.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::{read, root, yaml};

/// The names after a word in a text, as in `inputs.NAME`.
fn named<'a>(text: &'a str, before: &str) -> Vec<&'a str> {
    let parts = text.split(before).skip(1);
    let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_';
    parts.map(|it| it.split(is_end).next().unwrap()).collect()
}

#[test]
fn every_input_is_declared_and_used() {
    let action = yaml("action.yml");
    let inputs = action["inputs"].as_object().unwrap();
    let steps = action["runs"].to_string();
    let used = named(&steps, "inputs.");
    for name in &used {
        assert!(inputs.contains_key(*name), "{name} is not declared");
    }
    for (name, input) in inputs {
        assert!(used.contains(&name.as_str()), "{name} is not used");
        assert!(
            input["description"].is_string() && input["default"].is_string(),
            "{name}"
        );
    }
    let outputs = action["outputs"].to_string();
    let compare = read("deploy/action/compare");
    for name in named(&outputs, "outputs.")
        .into_iter()
        .chain(named(&steps, "outputs."))
    {
        assert!(
            compare.contains(&format!("echo \"{name}=")),
            "{name} is not written"
        );
    }
}

#[test]
fn variables_that_are_given_are_read_and_nothing_is_part_of_a_command() {
    let action = yaml("action.yml");
    for step in action["runs"]["steps"].as_array().unwrap() {
        // What users write is never in the text of a script.
        let run = step["run"].as_str().unwrap();
        assert!(!run.contains("${{"), "{run}");
        let script = run.strip_prefix("exec \"$GITHUB_ACTION_PATH/").unwrap();
        let text = read(script.strip_suffix('"').unwrap());
        let given = step["env"].as_object().unwrap();
        for name in given.keys() {
            assert!(
                text.contains(name.as_str()),
                "{name} is not read by {script}"
            );
        }
        for name in named(&text, "PALISADE_") {
            assert!(
                given.contains_key(&format!("PALISADE_{name}")),
                "PALISADE_{name} is not given to {script}"
            );
        }
    }
}

fn scripts() -> Vec<String> {
    let mut scripts = Vec::new();
    for directory in ["deploy/action", "deploy/hooks"] {
        for file in root().join(directory).read_dir().unwrap() {
            let name = file.unwrap().file_name().into_string().unwrap();
            scripts.push(format!("{directory}/{name}"));
        }
    }
    scripts.sort();
    scripts
}

#[test]
fn scripts_are_of_the_plain_shell_and_can_be_run() {
    let scripts = scripts();
    assert!(scripts.len() >= 6, "{scripts:?}");
    for path in scripts {
        let text = read(&path);
        let is_part = Path::new(&path).extension().is_some();
        let mode = root().join(&path).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o111 != 0, !is_part, "{path}: {mode:o}");
        if path.ends_with(".awk") {
            continue;
        }
        assert!(is_part || text.starts_with("#!/bin/sh\n# "), "{path}");
        for line in text.lines() {
            let is_comment = line.trim_start().starts_with('#');
            for word in ["eval ", "[[ ", "local ", "<(", "sh -c", "source "] {
                assert!(is_comment || !line.contains(word), "{path}: {line}");
            }
        }
        let output = Command::new("sh")
            .arg("-n")
            .arg(root().join(&path))
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{path}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn hooks_name_scripts_that_exist() {
    let hooks = yaml(".pre-commit-hooks.yaml");
    let ids: Vec<&str> = hooks
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["palisade-check", "palisade-lint", "palisade-diff"]);
    for hook in hooks.as_array().unwrap() {
        assert_eq!(hook["language"], "script");
        assert!(
            hook["name"].is_string() && hook["description"].is_string(),
            "{hook}"
        );
        let entry = hook["entry"].as_str().unwrap();
        assert!(scripts().contains(&entry.to_owned()), "{entry}");
    }
}

/// The blocks of a page that start so.
fn blocks(page: &str, start: &str) -> Vec<Value> {
    let blocks = page
        .split("\n```yml\n")
        .skip(1)
        .map(|it| it.split("\n```").next().unwrap());
    let blocks = blocks.filter(|it| it.starts_with(start));
    blocks
        .map(|it| serde_saphyr::from_str(it).unwrap_or_else(|error| panic!("{error}\n{it}")))
        .collect()
}

#[test]
fn workflows_of_the_documentation_use_what_the_action_has() {
    let action = yaml("action.yml");
    let mut n_uses = 0;
    for page in ["docs/reference/diff.md", "docs/tutorials/pull-request.md"] {
        for workflow in blocks(&read(page), "name: ") {
            let jobs = workflow["jobs"].as_object().unwrap();
            for step in jobs.values().flat_map(|it| it["steps"].as_array().unwrap()) {
                let uses = step["uses"].as_str().unwrap_or_default();
                if uses.starts_with("actions/checkout") {
                    assert_eq!(step["with"]["fetch-depth"], 0, "{page}: {step}");
                }
                if uses.starts_with("palisade-dev/palisade") {
                    n_uses += 1;
                    for name in step["with"].as_object().unwrap().keys() {
                        assert!(action["inputs"][name].is_object(), "{page}: {name}");
                    }
                }
            }
        }
        for config in blocks(&read(page), "repos:") {
            let hooks = yaml(".pre-commit-hooks.yaml").to_string();
            for hook in config["repos"][0]["hooks"].as_array().unwrap() {
                assert!(
                    hooks.contains(&format!("\"id\":{}", hook["id"])),
                    "{page}: {hook}"
                );
            }
        }
    }
    assert!(n_uses >= 2, "{n_uses}");
    // And the table has every input and output.
    let page = read("docs/reference/diff.md");
    for kind in ["inputs", "outputs"] {
        for name in action[kind].as_object().unwrap().keys() {
            assert!(
                page.contains(&format!("\n| `{name}` | ")),
                "docs/reference/diff.md has no {name}"
            );
        }
    }
}
