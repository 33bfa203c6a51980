//! The action of `action.yml` and the hooks of `.pre-commit-hooks.yaml`, run as their runners run them: on a real repository
//! of git, with a service of comments on the loopback interface.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking, and says what it left out"
)]

#[path = "action/comments.rs"]
mod comments;
#[path = "action/files.rs"]
mod files;
#[path = "action/hooks.rs"]
mod hooks;
#[path = "action/hostile.rs"]
mod hostile;
#[path = "action/repository.rs"]
mod repository;
#[path = "action/runner.rs"]
mod runner;
#[path = "action/service.rs"]
mod service;

use std::path::{Path, PathBuf};

use serde_json::Value;

use self::repository::Repository;
use self::runner::Workflow;
use self::service::Service;

/// The root of this repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// A file of this repository.
#[track_caller]
fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The repository of the tutorial, with a branch that has the change of its pull request checked out.
fn shop(change: &str) -> Repository {
    let repository = Repository::new();
    repository.copy("examples/shop-with-tenants", "policies");
    repository.commit("the shop and its neighbours");
    repository.git(&["checkout", "--quiet", "-b", "change"]);
    repository.copy(change, "policies/shop-db.yaml");
    repository.commit("scrape the database");
    repository
}

const MISTAKE: &str = "docs/pull-request/shop-db.yaml";
const GUARD: &str = "docs/pull-request/guard-platform.yaml";

/// Who gains by the mistake of the tutorial: the platform's pods, on the exporter's port.
const GAINED: &str = "| gateway/deploy/envoy, kube-system/deploy/coredns, namespace monitoring (2 pods) \
                      | shop/sts/db | tcp/9187 |";

/// A policy that closes all pods of the namespace.
const CLOSED: &str = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: closed, namespace: a}\nspec: {podSelector: {}}\n";

#[test]
fn a_change_that_allows_more_fails_and_says_who_gains() {
    let repository = shop(MISTAKE);
    let service = Service::start();
    let run = Workflow::of_pull_request(&repository, &service).run(&[("path", "policies")]);
    assert_eq!(run.code, 1, "{run:?}");
    assert_eq!(run.outputs["result"], "wider");
    assert!(run.log.contains(
        "::error title=Network policy::The change allows a flow that was denied, or affects pods"
    ));
    let comments = service.comments();
    assert_eq!(comments.len(), 1, "{comments:?}");
    let report = std::fs::read_to_string(&run.outputs["report"]).unwrap();
    for text in [&run.summary, &comments[0].body, &report] {
        assert!(
            text.contains("4 pairs gained, 1 object undecided; 1 object changed"),
            "{text}"
        );
        assert!(text.contains(GAINED), "{text}");
        let why =
            r"was isolated by netpol/shop/db, now netpol/shop/db#ingress\[1\] | netpol/shop/db |";
        assert!(text.contains(why), "{text}");
        let base = repository.git(&["rev-parse", "--short=12", "main"]);
        assert!(
            text.contains(&format!("<sub>policies, compared with {base}</sub>")),
            "{text}"
        );
    }
    assert!(
        comments[0].body.starts_with("<!-- palisade diff "),
        "{comments:?}"
    );
    assert_eq!(run.outputs["sarif"], "");
}

#[test]
fn the_exit_code_is_what_fail_on_says() {
    let service = Service::start();
    let same = shop(MISTAKE);
    same.copy(
        "examples/shop-with-tenants/shop-db.yaml",
        "policies/shop-db.yaml",
    );
    same.commit("never mind");
    let narrower = Repository::new();
    narrower.copy("examples/shop-with-tenants", "policies");
    narrower.commit("the shop");
    narrower.git(&["checkout", "--quiet", "-b", "change"]);
    narrower.copy(GUARD, "policies/guard.yaml");
    narrower.commit("a guardrail");
    let wider = shop(MISTAKE);
    for (repository, result, codes) in [
        (&same, "same", [0, 0, 0]),
        (&narrower, "different", [0, 1, 0]),
        (&wider, "wider", [0, 1, 1]),
    ] {
        for (fail_on, code) in ["never", "different", "wider"].into_iter().zip(codes) {
            let workflow = Workflow::of_pull_request(repository, &service);
            let run = workflow.run(&[("path", "policies"), ("fail-on", fail_on)]);
            assert_eq!(run.outputs["result"], result, "{run:?}");
            assert_eq!(run.code, code, "{result} {fail_on}: {run:?}");
        }
    }
    let words =
        "kube-system/deploy/coredns, monitoring/deploy/grafana | games/deploy/arena | udp/7777";
    let workflow = Workflow::of_pull_request(&narrower, &service);
    assert!(
        workflow
            .run(&[("path", "policies")])
            .summary
            .contains(words)
    );
}

#[test]
fn flows_of_new_pods_count_with_include_new() {
    let repository = Repository::new();
    repository.write(
        "a/namespace.yaml",
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n",
    );
    repository.write("a/one.yaml", &pod("a", "one"));
    repository.commit("one pod");
    repository.git(&["checkout", "--quiet", "-b", "change"]);
    repository.write("a/two.yaml", &pod("a", "two"));
    repository.commit("another pod");
    let service = Service::start();
    let workflow = Workflow::of_pull_request(&repository, &service);
    let run = workflow.run(&[("path", "a")]);
    assert_eq!((run.code, run.outputs["result"].as_str()), (0, "different"));
    let run = workflow.run(&[("path", "a"), ("include-new", "true")]);
    assert_eq!((run.code, run.outputs["result"].as_str()), (1, "wider"));
    // The first manifests of a directory, and the last.
    let run = workflow.run(&[("path", "a/two.yaml")]);
    assert_eq!(run.outputs["result"], "different", "{run:?}");
    assert!(
        run.summary.contains("which has no manifests there"),
        "{}",
        run.summary
    );
    repository.git(&["rm", "--quiet", "-r", "a"]);
    repository.commit("nothing is left");
    let run = Workflow::of_pull_request(&repository, &service).run(&[("path", "a")]);
    assert_eq!((run.code, run.outputs["result"].as_str()), (0, "different"));
    assert!(
        run.summary.contains("there are none now"),
        "{}",
        run.summary
    );
}

fn pod(namespace: &str, name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec:\n  containers:\n  - {{name: c, image: i}}\n"
    )
}

#[test]
fn the_base_is_what_the_pull_request_is_merged_into() {
    let repository = shop(MISTAKE);
    let service = Service::start();
    // The base moves on, and what the event says of it is old: the change of others is not the pull request's.
    let mut workflow = Workflow::of_pull_request(&repository, &service);
    repository.git(&["checkout", "--quiet", "main"]);
    repository.copy(GUARD, "policies/guard.yaml");
    repository.commit("a guardrail");
    let head = workflow.event["pull_request"]["head"]["sha"]
        .as_str()
        .unwrap()
        .to_owned();
    repository.git(&["checkout", "--quiet", "--detach", "main"]);
    repository.git(&["merge", "--quiet", "--no-edit", "--no-ff", &head]);
    let run = workflow.run(&[("path", "policies")]);
    assert!(
        run.summary
            .contains("2 pairs gained, 1 object undecided; 1 object changed"),
        "{}",
        run.summary
    );
    // Without the merge it is the commit that the branch left.
    repository.git(&["checkout", "--quiet", "change"]);
    workflow.event["pull_request"]["base"]["sha"] = repository.git(&["rev-parse", "main"]).into();
    let run = workflow.run(&[("path", "policies")]);
    assert!(
        run.summary
            .contains("4 pairs gained, 1 object undecided; 1 object changed"),
        "{}",
        run.summary
    );
    // A push is compared with the commit before, and has no comment.
    let n_comments = service.comments().len();
    workflow.event = serde_json::json!({});
    let run = workflow.run(&[("path", "policies")]);
    assert!(
        run.summary
            .contains("4 pairs gained, 1 object undecided; 1 object changed"),
        "{}",
        run.summary
    );
    assert!(
        run.log.contains("no pull request to comment on"),
        "{}",
        run.log
    );
    assert_eq!(service.comments().len(), n_comments);
    // A revision that was named is taken as it is.
    let run = workflow.run(&[("path", "policies"), ("base", "main")]);
    assert!(run.summary.contains("2 objects changed"), "{}", run.summary);
}

#[test]
fn a_working_directory_is_worked_in() {
    let repository = Repository::new();
    repository.copy("examples/shop-with-tenants", "west/policies");
    repository.commit("the shop");
    repository.git(&["checkout", "--quiet", "-b", "change"]);
    repository.copy(MISTAKE, "west/policies/shop-db.yaml");
    repository.commit("scrape the database");
    let service = Service::start();
    let workflow = Workflow::of_pull_request(&repository, &service);
    let run = workflow.run(&[("path", "./policies/"), ("working-directory", "west")]);
    assert!(run.summary.contains(GAINED), "{run:?}");
}

#[test]
fn lint_has_its_findings_in_the_report_and_in_a_file_for_code_scanning() {
    let repository = shop(MISTAKE);
    let service = Service::start();
    let workflow = Workflow::of_pull_request(&repository, &service);
    let inputs = [("path", "policies"), ("fail-on", "never"), ("lint", "true")];
    let run = workflow.run(&inputs);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(
        run.log.contains("palisade lint has findings"),
        "{}",
        run.log
    );
    for text in [&run.summary, &service.comments()[0].body] {
        // The dash that is too many.
        assert!(text.contains("Lint: 3 findings<"), "{text}");
        assert!(
            text.contains("policies/shop-db.yaml:24:7: warning[PEER-OR]"),
            "{text}"
        );
    }
    let sarif = std::fs::read_to_string(&run.outputs["sarif"]).unwrap();
    let sarif: Value = serde_json::from_str(&sarif).unwrap();
    assert_eq!(sarif["version"], "2.1.0");
    let results = sarif["runs"][0]["results"].as_array().unwrap();
    assert!(
        results.iter().any(|it| it["ruleId"] == "PEER-OR"),
        "{results:?}"
    );
    for severity in ["error", "never"] {
        let run = workflow.run(&[inputs.as_slice(), &[("lint-fail-on", severity)]].concat());
        assert_eq!(run.code, 0, "{run:?}");
        assert!(run.summary.contains("PEER-OR"), "{run:?}");
    }
}

#[test]
fn a_palisade_without_lint_says_so() {
    let repository = shop(MISTAKE);
    // It knows `diff` only.
    let program = repository.write(
        "old/palisade",
        &format!("#!/bin/sh\n[ \"$1\" = diff ] || {{ echo no such command >&2; exit 2; }}\nexec '{}' \"$@\"\n", env!("CARGO_BIN_EXE_palisade")),
    );
    repository::make_executable(&program);
    let service = Service::start();
    let workflow = Workflow::of_pull_request(&repository, &service);
    let run = workflow.run(&[
        ("path", "policies"),
        ("version", "old/palisade"),
        ("lint", "true"),
        ("fail-on", "never"),
    ]);
    assert_eq!(
        (run.code, run.outputs["result"].as_str()),
        (2, "wider"),
        "{run:?}"
    );
    assert!(
        run.log.contains("no such command") && run.summary.contains("no such command"),
        "{run:?}"
    );
    assert!(
        run.summary.contains(GAINED) && run.summary.contains("Lint failed"),
        "{run:?}"
    );
}
