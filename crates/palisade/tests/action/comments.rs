//! The comment on the pull request: one, ours, with a token that is not visible, and not too long.

use serde_json::Value;

use crate::repository::Repository;
use crate::runner::Workflow;
use crate::service::{self, Author, Service};
use crate::{CLOSED, GAINED, MISTAKE, shop, yaml};

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
            second.log.contains("The comment was updated."),
            "{}",
            second.log
        );
        let comments = service.comments();
        assert_eq!(comments.len(), 2, "{comments:?}");
        assert!(
            comments[1].body.contains("1 pair gained; 1 object changed"),
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
        assert!(run.log.contains("comment was updated"), "{}", run.log);
    }
    assert_eq!(service.comments().len(), 151);
}

#[test]
fn a_mark_of_another_author_is_ignored() {
    let repository = shop(MISTAKE);
    let service = Service::start();
    let workflow = Workflow::of_pull_request(&repository, &service);
    workflow.run(&[("path", "policies")]);
    let ours = service.comments()[0].body.clone();
    let forged = ours.replace("4 pairs gained", "nothing at all");
    let service = Service::start();
    service.add(Author::person("mallory"), &forged);
    // A bot that repeats what people write.
    service.add(Author::bot(), &format!("I quote:\n{ours}"));
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
        "The report is cut here: it is longer than a comment may be. [The summary of the run](https://github.example/acme/cluster/actions/runs/42) has all of it."
    ));
    assert_eq!(
        comment.matches("<details>").count(),
        comment.matches("</details>").count()
    );
    assert!(run.summary.contains(report.trim()));
}
