//! What is wrong, missing or meant badly: inputs, names, manifests, clones.

use crate::repository::Repository;
use crate::runner::{self, Workflow};
use crate::service::Service;
use crate::{CLOSED, MISTAKE, pod, shop};

#[test]
fn a_shallow_clone_fails_whatever_the_inputs_say_and_gets_help() {
    let repository = shop(MISTAKE);
    let shallow = repository.shallow_clone();
    let service = Service::start();
    let mut workflow = Workflow::of_pull_request(&repository, &service);
    workflow.workspace = shallow.path().to_owned();
    for fail_on in ["never", "wider"] {
        let run = workflow.run(&[("path", "policies"), ("fail-on", fail_on)]);
        assert_eq!((run.code, run.outputs["result"].as_str()), (2, "error"));
        for text in [&run.log, &run.summary, &service.comments()[0].body] {
            assert!(text.contains("fetch-depth: 0"), "{text}");
        }
    }
}

#[test]
fn invalid_manifests_fail_and_are_shown_but_not_in_the_comment() {
    let repository = shop(MISTAKE);
    repository.write(
        "policies/broken.yaml",
        "apiVersion: v1\nkind: Namespace\nmetadata: {nam: hush}\n",
    );
    repository.commit("broken");
    let service = Service::start();
    let run = Workflow::of_pull_request(&repository, &service)
        .run(&[("path", "policies"), ("fail-on", "never")]);
    assert_eq!((run.code, run.outputs["result"].as_str()), (2, "error"));
    for text in [&run.log, &run.summary] {
        assert!(
            text.contains("broken.yaml:3") && text.contains("nam: hush"),
            "{text}"
        );
    }
    let comment = &service.comments()[0].body;
    assert!(
        comment.contains("Cannot compare the manifests") && !comment.contains("hush"),
        "{comment}"
    );
}

#[test]
fn wrong_inputs_are_named() {
    let repository = shop(MISTAKE);
    let service = Service::start();
    let workflow = Workflow::of_pull_request(&repository, &service);
    for (input, value, words) in [
        (
            "fail-on",
            "widest",
            "The input fail-on is 'widest'. It must be one of: never different wider.",
        ),
        ("recursive", "yes", "The input recursive is 'yes'."),
        ("lint-fail-on", "all", "The input lint-fail-on is 'all'."),
        ("version", "1.2.3", "The input version is '1.2.3'."),
        (
            "version",
            "./nowhere/palisade",
            "Program ./nowhere/palisade not found.",
        ),
        ("path", "/etc", "The input path is /etc."),
        (
            "path",
            "polices",
            "polices not found, neither here nor in the revision HEAD^1.",
        ),
        (
            "working-directory",
            "elsewhere",
            "Directory elsewhere not found.",
        ),
        ("base", "v9", "Revision v9 not found."),
    ] {
        let run = workflow.run(&[("path", "policies"), (input, value)]);
        assert_eq!(
            (run.code, run.outputs["result"].as_str()),
            (2, "error"),
            "{input}: {run:?}"
        );
        assert!(run.log.contains(words), "{input}: {}", run.log);
    }
    let binary = env!("CARGO_BIN_EXE_palisade");
    let run = workflow.run(&[("path", "policies"), ("version", binary)]);
    assert_eq!(run.outputs["result"], "wider");
}

#[test]
fn names_are_never_commands() {
    let service = Service::start();
    let hostile = [
        "a b",
        "$(touch pwned)",
        "`touch pwned`",
        "\"; touch pwned; \"",
        "'; touch pwned; '",
        "-rf",
        "*",
        "cluster",
        "git:HEAD:x",
        ":(glob)**",
        "new\nline",
        "::error::x",
        "a&b|c>pwned",
        "%0A::warning::x",
        "\\n",
        "<!-- x --><script>@team #1",
    ];
    for name in hostile {
        let repository = Repository::new();
        let inside = format!("{name}/{name}.yaml");
        repository.write(
            &format!("{name}/namespace.yaml"),
            "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n",
        );
        repository.write(
            &inside,
            &format!("{}---\n{}", pod("a", "one"), pod("a", "two")),
        );
        repository.commit("two pods");
        repository.git(&["checkout", "--quiet", "-b", "change"]);
        repository.write(
            &inside,
            &format!("{}---\n{}---\n{}", pod("a", "one"), pod("a", "two"), CLOSED),
        );
        repository.commit("closed");
        let workflow = Workflow::of_pull_request(&repository, &service);
        let run = workflow.run(&[("path", name)]);
        assert_eq!(
            (run.code, run.outputs["result"].as_str()),
            (0, "different"),
            "{name}: {run:?}"
        );
        assert!(run.summary.contains("4 pairs lost"), "{name}: {run:?}");
        let run = workflow.run(&[("path", &inside)]);
        assert_eq!(
            (run.code, run.outputs["result"].as_str()),
            (0, "different"),
            "{name}: {run:?}"
        );
        assert!(
            !run.summary.contains("<script>") && !run.summary.contains("@team"),
            "{run:?}"
        );
        let run = workflow.run(&[("path", "."), ("base", name)]);
        assert_eq!(
            (run.code, run.outputs["result"].as_str()),
            (2, "error"),
            "{name}: {run:?}"
        );
        let run = workflow.run(&[("path", "."), ("working-directory", name)]);
        assert_eq!(run.outputs["result"], "different", "{name}: {run:?}");
        assert!(
            !repository.has("pwned") && !repository.has(&format!("{name}/pwned")),
            "{name}"
        );
        // What the runner would take for a command is only what the scripts say themselves.
        for command in runner::commands(&run.log) {
            assert!(
                command.contains("title=Network policy"),
                "{name}: {command}"
            );
        }
    }
}

#[test]
fn branches_may_have_any_name() {
    for name in ["$(touch${IFS}pwned)", "a'b", "a\"b", "a;b&c|d", "<b>"] {
        let repository = shop(MISTAKE);
        repository.git(&["branch", "--quiet", "-m", "main", name]);
        let service = Service::start();
        let workflow = Workflow::of_pull_request(&repository, &service);
        let run = workflow.run(&[("path", "policies"), ("base", name)]);
        assert_eq!(
            (run.code, run.outputs["result"].as_str()),
            (1, "wider"),
            "{name}: {run:?}"
        );
        assert!(!repository.has("pwned"), "{name}");
    }
}
