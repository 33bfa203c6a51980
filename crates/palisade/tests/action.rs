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

#[path = "action/files.rs"]
mod files;
#[path = "action/hooks.rs"]
mod hooks;
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
use self::service::{Author, Service};

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

/// Whether this binary has the command.
fn has_command(name: &str) -> bool {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_palisade"))
        .args([name, "--help"])
        .output()
        .unwrap();
    output.status.success()
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

#[test]
fn a_change_that_allows_more_fails_and_says_who_gains() {
    let repository = shop(MISTAKE);
    let service = Service::start();
    let run = Workflow::of_pull_request(&repository, &service).run(&[("path", "policies")]);
    assert_eq!(run.code, 1, "{run:?}");
    assert_eq!(run.outputs["result"], "wider");
    assert!(
        run.log
            .contains("::error title=Network policy::Something is allowed that was not.")
    );
    let comments = service.comments();
    assert_eq!(comments.len(), 1, "{comments:?}");
    let report = std::fs::read_to_string(&run.outputs["report"]).unwrap();
    for text in [&run.summary, &comments[0].body, &report] {
        assert!(
            text.contains("4 pairs gained; 1 object is different"),
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
fn a_second_run_changes_the_comment_of_the_first() {
    let repository = shop(MISTAKE);
    let service = Service::start();
    service.add(
        Author::person("reviewer"),
        "Looks good to \"me\" \\ {[}] <!-- palisade diff -->",
    );
    let workflow = Workflow::of_pull_request(&repository, &service);
    let first = workflow.run(&[("path", "policies")]);
    assert!(
        first.log.contains("A comment was written."),
        "{}",
        first.log
    );
    assert!(service.comments()[1].body.contains(GAINED));
    repository.copy(
        "docs/pull-request/shop-db-fixed.yaml",
        "policies/shop-db.yaml",
    );
    repository.commit("without the dash");
    let workflow = Workflow::of_pull_request(&repository, &service);
    for _ in 0..2 {
        let second = workflow.run(&[("path", "policies")]);
        assert!(
            second.log.contains("The comment was brought up to date."),
            "{}",
            second.log
        );
        let comments = service.comments();
        assert_eq!(comments.len(), 2, "{comments:?}");
        assert!(
            comments[1]
                .body
                .contains("1 pair gained; 1 object is different"),
            "{comments:?}"
        );
        assert!(!comments[1].body.contains("coredns"), "{comments:?}");
        assert!(comments[0].body.starts_with("Looks good"), "{comments:?}");
    }
    // Another directory of the same repository has a comment of its own.
    workflow.run(&[("path", "policies/shop-db.yaml")]);
    assert_eq!(service.comments().len(), 3);
}

#[test]
fn the_own_comment_is_found_on_later_pages_and_however_it_is_written() {
    let repository = shop(MISTAKE);
    let service = Service::start();
    let workflow = Workflow::of_pull_request(&repository, &service);
    for number in 0..150 {
        service.add(
            Author::person("talker"),
            &format!("{number}: \\\\\" }} ] , \"id\": 7"),
        );
    }
    workflow.run(&[("path", "policies")]);
    assert_eq!(service.comments().len(), 151);
    for escaped in [false, true] {
        service.escape_angles(escaped);
        let run = workflow.run(&[("path", "policies")]);
        assert!(run.log.contains("brought up to date"), "{}", run.log);
    }
    assert_eq!(service.comments().len(), 151);
}

#[test]
fn somebody_else_who_writes_the_mark_is_not_believed() {
    let repository = shop(MISTAKE);
    let service = Service::start();
    let workflow = Workflow::of_pull_request(&repository, &service);
    workflow.run(&[("path", "policies")]);
    let ours = service.comments()[0].body.clone();
    let forged = ours.replace("4 pairs gained", "nothing at all");
    let service = Service::start();
    service.add(Author::person("mallory"), &forged);
    service.add(Author::person("mallory"), &format!("I quote:\n{ours}"));
    let workflow = Workflow::of_pull_request(&repository, &service);
    workflow.run(&[("path", "policies")]);
    let comments = service.comments();
    assert_eq!(comments.len(), 3, "{comments:?}");
    assert_eq!(comments[0].body, forged);
    // A token of a person knows the person's own comment again.
    service.token_of("mallory");
    workflow.run(&[("path", "policies")]);
    let comments = service.comments();
    assert_eq!(comments.len(), 3, "{comments:?}");
    assert_eq!(comments[0].body, ours);
}

#[test]
fn the_token_is_a_header_and_nothing_else_is_sent() {
    let repository = shop(MISTAKE);
    let service = Service::start();
    let run = Workflow::of_pull_request(&repository, &service).run(&[("path", "policies")]);
    assert!(!run.log.contains(service::TOKEN) && !run.summary.contains(service::TOKEN));
    let requests = service.requests();
    let lines: Vec<&str> = requests.iter().map(|it| it.line.as_str()).collect();
    assert_eq!(
        lines,
        [
            "GET /repos/acme/cluster/issues/7/comments?per_page=100&page=1 HTTP/1.1",
            "POST /repos/acme/cluster/issues/7/comments HTTP/1.1",
        ]
    );
    for request in &requests {
        let token = format!("Authorization: Bearer {}\r\n", service::TOKEN);
        assert!(request.headers.contains(&token), "{request:?}");
    }
    let sent: Value = serde_json::from_str(&requests[1].body).unwrap();
    let keys: Vec<&String> = sent.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["body"]);
    // Who reads manifests has no token.
    let steps = yaml("action.yml");
    let compare = steps["runs"]["steps"][0].to_string();
    assert!(!compare.contains("token"), "{compare}");
}

#[test]
fn without_the_right_to_comment_there_is_a_warning_and_the_same_verdict() {
    let repository = shop(MISTAKE);
    let service = Service::start();
    service.refuse_to_write();
    let run = Workflow::of_pull_request(&repository, &service).run(&[("path", "policies")]);
    assert_eq!((run.code, run.outputs["result"].as_str()), (1, "wider"));
    let words =
        "::warning title=Network policy::No comment was written: the token may not (status 403)";
    assert!(run.log.contains(words), "{}", run.log);
    assert!(run.summary.contains(GAINED));
    // A service that is away is the same.
    let mut workflow = Workflow::of_pull_request(&repository, &service);
    workflow.api = "http://127.0.0.1:1".to_owned();
    let run = workflow.run(&[("path", "policies")]);
    assert_eq!(run.code, 1);
    assert!(run.log.contains("No comment was written"), "{}", run.log);
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
fn what_new_pods_may_do_counts_if_it_is_asked_for() {
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
        comment.contains("could not be compared") && !comment.contains("hush"),
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
            "The input fail-on is 'widest'. It is one of: never different wider.",
        ),
        ("recursive", "yes", "The input recursive is 'yes'."),
        ("lint-fail-on", "all", "The input lint-fail-on is 'all'."),
        ("version", "1.2.3", "The input version is '1.2.3'."),
        (
            "version",
            "./nowhere/palisade",
            "There is no program ./nowhere/palisade.",
        ),
        ("path", "/etc", "The input path is /etc."),
        (
            "path",
            "polices",
            "There is no polices, neither here nor in the revision HEAD^1.",
        ),
        (
            "working-directory",
            "elsewhere",
            "There is no directory elsewhere.",
        ),
        ("base", "v9", "There is no revision v9 here."),
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
            .contains("2 pairs gained; 1 object is different"),
        "{}",
        run.summary
    );
    // Without the merge it is the commit that the branch left.
    repository.git(&["checkout", "--quiet", "change"]);
    workflow.event["pull_request"]["base"]["sha"] = repository.git(&["rev-parse", "main"]).into();
    let run = workflow.run(&[("path", "policies")]);
    assert!(
        run.summary
            .contains("4 pairs gained; 1 object is different"),
        "{}",
        run.summary
    );
    // A push is compared with the commit before, and has no comment.
    let n_comments = service.comments().len();
    workflow.event = serde_json::json!({});
    let run = workflow.run(&[("path", "policies")]);
    assert!(
        run.summary
            .contains("4 pairs gained; 1 object is different"),
        "{}",
        run.summary
    );
    assert!(
        run.log.contains("There is no pull request here"),
        "{}",
        run.log
    );
    assert_eq!(service.comments().len(), n_comments);
    // A revision that was named is taken as it is.
    let run = workflow.run(&[("path", "policies"), ("base", "main")]);
    assert!(
        run.summary.contains("2 objects are different"),
        "{}",
        run.summary
    );
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

/// A policy that closes all pods of the namespace.
const CLOSED: &str = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: closed, namespace: a}\nspec: {podSelector: {}}\n";

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

#[test]
fn a_report_that_is_too_long_is_cut_between_lines() {
    let repository = Repository::new();
    repository.write(
        "a/namespace.yaml",
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n",
    );
    // Each pod is allowed one other port: as many blocks as pods, with long names.
    let long = "x".repeat(200);
    let pods = (0..150).map(|n| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {long}-{n}, namespace: a, labels: {{n: n{n}}}}}\nspec:\n  containers:\n  - {{name: c, image: i}}\n---\n"
        )
    });
    repository.write("a/pods.yaml", &pods.collect::<String>());
    repository.write("a/closed.yaml", CLOSED);
    repository.commit("closed");
    repository.git(&["checkout", "--quiet", "-b", "change"]);
    let policies = (0..150).map(|n| {
        format!(
            "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: p{n}-{long}, namespace: a}}\nspec:\n  podSelector: {{matchLabels: {{n: n{n}}}}}\n  ingress:\n  - ports: [{{port: {}}}]\n---\n",
            1000 + n
        )
    });
    repository.write("a/open.yaml", &policies.collect::<String>());
    repository.commit("open");
    let service = Service::start();
    let run = Workflow::of_pull_request(&repository, &service).run(&[("path", "a")]);
    assert_eq!(run.outputs["result"], "wider");
    let report = std::fs::read_to_string(&run.outputs["report"]).unwrap();
    assert!(report.len() > 65_536, "{}", report.len());
    let comment = &service.comments()[0].body;
    assert!(
        comment.len() > 60_000 && comment.chars().count() <= 65_536,
        "{}",
        comment.len()
    );
    assert!(comment.trim_end().ends_with(
        "The report was cut here: it is longer than a comment may be. [The summary of the run](https://github.example/acme/cluster/actions/runs/42) has all of it."
    ));
    assert_eq!(
        comment.matches("<details>").count(),
        comment.matches("</details>").count()
    );
    assert!(run.summary.contains(report.trim()));
}

#[test]
fn lint_has_its_findings_in_the_report_and_in_a_file_for_code_scanning() {
    if !has_command("lint") {
        println!("not tested: this palisade has no lint");
        return;
    }
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
        assert!(text.contains("Lint: 1 finding<"), "{text}");
        assert!(
            text.contains("policies/shop-db.yaml:24:7: warning[PEER-OR]"),
            "{text}"
        );
    }
    let sarif = std::fs::read_to_string(&run.outputs["sarif"]).unwrap();
    let sarif: Value = serde_json::from_str(&sarif).unwrap();
    assert_eq!(sarif["version"], "2.1.0");
    assert_eq!(sarif["runs"][0]["results"][0]["ruleId"], "PEER-OR");
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
        run.summary.contains(GAINED) && run.summary.contains("Lint could not answer"),
        "{run:?}"
    );
}
