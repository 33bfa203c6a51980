//! `palisade diff`, by running it: answers read off the specification, every form, every kind of
//! side.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "diff/forged.rs"]
mod forged;
#[path = "diff/unseen.rs"]
mod unseen;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

struct Ran {
    code: i32,
    out: String,
    err: String,
}

fn palisade(directory: &Path, args: &[&str]) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_palisade"))
        .arg("diff")
        .args(args)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    Ran {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Writes `old.yaml` and `new.yaml`, and compares them.
fn diff(old: &str, new: &str, args: &[&str]) -> Ran {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("old.yaml"), old).unwrap();
    std::fs::write(directory.path().join("new.yaml"), new).unwrap();
    palisade(
        directory.path(),
        &[&["old.yaml", "new.yaml"], args].concat(),
    )
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {}{}", ran.out, ran.err))
}

/// Every pair of a list of blocks, as `from -> to ports`.
fn pairs(document: &Value, list: &str) -> BTreeSet<String> {
    let names = |group: &Value| -> Vec<String> {
        let names = document["groups"][group.as_str().unwrap()].as_array();
        let names = names.unwrap().iter();
        names.map(|it| it.as_str().unwrap().to_owned()).collect()
    };
    let mut pairs = BTreeSet::new();
    for block in document[list].as_array().unwrap() {
        let ports = block["ports"].as_array().unwrap().iter();
        let ports: Vec<&str> = ports.map(|it| it.as_str().unwrap()).collect();
        for from in names(&block["from"]) {
            for to in names(&block["to"]) {
                if from != to {
                    pairs.insert(format!("{from} -> {to} {}", ports.join(" ")));
                }
            }
        }
    }
    pairs
}

fn set(pairs: &[&str]) -> BTreeSet<String> {
    pairs.iter().map(|it| (*it).to_owned()).collect()
}

/// Three pods of two namespaces, with addresses.
const PODS: &str = "
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: x, labels: {app: a}}
spec: {containers: [{name: c, ports: [{containerPort: 80, name: http}]}]}
status: {phase: Running, podIP: 10.0.0.1}
---
apiVersion: v1
kind: Pod
metadata: {name: b, namespace: x, labels: {app: b}}
spec: {containers: [{name: c}]}
status: {phase: Running, podIP: 10.0.0.2}
---
apiVersion: v1
kind: Pod
metadata: {name: c, namespace: v, labels: {app: c}}
spec: {containers: [{name: c}]}
status: {phase: Running, podIP: 10.0.0.3}
---
";

fn policy(ingress: &str) -> String {
    format!(
        "{PODS}apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: p, namespace: x}}\n\
         spec:\n  podSelector: {{matchLabels: {{app: a}}}}\n  ingress: {ingress}\n"
    )
}

#[test]
fn the_same_is_the_same() {
    let ran = diff(&policy("[]"), &policy("[]"), &[]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "no object differs\n"));
    // The order of objects and fields says nothing, nor does a name of a rule's peers in another
    // order of labels.
    let swapped = policy("[]").replace("name: p, namespace: x", "namespace: x, name: p");
    assert_eq!(diff(&policy("[]"), &swapped, &[]).code, 0);
}

#[test]
fn a_policy_that_changes_no_flow_is_named_and_is_no_difference() {
    // A second rule that allows what the first allows.
    let once = policy("[{from: [{podSelector: {}}]}]");
    let twice = policy("[{from: [{podSelector: {}}]}, {from: [{podSelector: {}}]}]");
    let ran = diff(&once, &twice, &["-v"]);
    assert_eq!(ran.code, 0, "{}", ran.out);
    assert!(
        ran.out
            .contains("1 object changed; no flow changed\n  netpol/x/p changed"),
        "{}",
        ran.out
    );
}

/// What decides otherwise is a change, also where its rules are the same.
#[test]
fn enforcement_and_labels_of_nodes_are_changes() {
    let closed = policy("[]");
    let audited = closed.replace(
        "metadata: {name: p, ",
        "metadata: {name: p, annotations: {palisade.dev/enforcement: audit}, ",
    );
    assert_ne!(audited, closed);
    let ran = diff(&audited, &closed, &["-o", "json"]);
    let changed = &json(&ran)["changed"];
    assert_eq!(changed[0]["object"], "netpol/x/p", "{}", ran.out);
    assert_eq!(changed[0]["change"], "changed");
    let node = |role: &str| {
        format!(
            "{PODS}apiVersion: v1\nkind: Node\nmetadata: {{name: n1, labels: {{role: {role}}}}}\n\
             status: {{addresses: [{{type: InternalIP, address: 192.0.2.1}}]}}\n"
        )
    };
    let ran = diff(&node("edge"), &node("core"), &["-o", "json"]);
    let changed = &json(&ran)["changed"];
    assert_eq!(changed[0]["object"], "node/n1", "{}", ran.out);
    assert_eq!(changed[0]["change"], "changed");
}

#[test]
fn isolation_takes_and_a_rule_gives() {
    let ran = diff(PODS, &policy("[]"), &["-o", "json"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    let taken = json(&ran);
    assert_eq!(taken["kind"], "Diff");
    let everything = "tcp/* udp/* sctp/* icmp ip/*";
    let lost = pairs(&taken, "lost");
    assert!(
        lost.contains(&format!("x/b -> x/a {everything}")),
        "{lost:?}"
    );
    assert!(
        lost.contains(&format!("v/c -> x/a {everything}")),
        "{lost:?}"
    );
    assert!(lost.iter().all(|it| it.contains("-> x/a")), "{lost:?}");
    assert!(pairs(&taken, "gained").is_empty());
    let block = &taken["lost"][0];
    assert_eq!(block["causedBy"], "netpol/x/p");
    assert_eq!(block["oldReason"], "Default");
    assert_eq!(block["oldRule"], Value::Null);
    assert_eq!(block["newReason"], "Isolation");
    assert_eq!(block["newPolicies"][0], "netpol/x/p");
    assert_eq!(taken["changed"][0]["change"], "added");

    let given = policy("[{from: [{podSelector: {}}], ports: [{port: http}]}]");
    let given = json(&diff(&policy("[]"), &given, &["-o", "json"]));
    assert_eq!(pairs(&given, "gained"), set(&["x/b -> x/a tcp/80"]));
    assert!(pairs(&given, "lost").is_empty());
    let block = &given["gained"][0];
    assert_eq!(block["oldReason"], "Isolation");
    assert_eq!(block["newRule"], "netpol/x/p#ingress[0]");
    assert_eq!(block["direction"], "Ingress");
    assert_eq!(given["pairs"]["gained"], 1);
}

#[test]
fn fail_on_wider_fails_only_for_wider_changes() {
    let (open, closed) = (PODS.to_owned(), policy("[]"));
    assert_eq!(diff(&open, &closed, &["--fail-on-wider"]).code, 0);
    assert_eq!(diff(&closed, &open, &["--fail-on-wider"]).code, 1);
    assert_eq!(diff(&closed, &open, &["--exit-zero"]).code, 0);
    // A new pod is allowed things, and that is no wider rule.
    let more = format!(
        "{PODS}apiVersion: v1\nkind: Pod\nmetadata: {{name: d, namespace: v}}\n\
         spec: {{containers: [{{name: c}}]}}\nstatus: {{phase: Running, podIP: 10.0.0.4}}\n"
    );
    let ran = diff(&open, &more, &["--fail-on-wider", "-o", "json"]);
    assert_eq!(ran.code, 0);
    let document = json(&ran);
    assert_eq!(document["endpoints"]["added"][0], "v/d");
    let blocks = document["gained"].as_array().unwrap();
    assert!(
        blocks.iter().all(|it| it["newEndpoint"] == true),
        "{blocks:?}"
    );
    assert!(
        blocks.iter().all(|it| it["causedBy"] == "v/d"),
        "{blocks:?}"
    );
    let ran = diff(&open, &more, &["--fail-on-wider", "--include-new"]);
    assert_eq!(ran.code, 1);
    let gone = json(&diff(&more, &open, &["-o", "json"]));
    assert_eq!(gone["endpoints"]["removed"][0], "v/d");
    let blocks = gone["lost"].as_array().unwrap();
    assert!(
        blocks.iter().all(|it| it["goneEndpoint"] == true),
        "{blocks:?}"
    );
}

#[test]
fn labels_of_a_namespace_are_a_change_and_the_cause() {
    let rule = "[{from: [{namespaceSelector: {matchLabels: {team: red}}}]}]";
    let namespace = |team: &str| {
        format!(
            "{}---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: v, labels: {{team: {team}}}}}\n",
            policy(rule)
        )
    };
    let document = json(&diff(
        &namespace("blue"),
        &namespace("red"),
        &["-o", "json"],
    ));
    let everything = "tcp/* udp/* sctp/* icmp ip/*";
    assert_eq!(
        pairs(&document, "gained"),
        set(&[&format!("v/c -> x/a {everything}")])
    );
    assert_eq!(document["gained"][0]["causedBy"], "namespace/v");
}

#[test]
fn what_an_unknown_address_decides_is_undecided() {
    // No pod has an address yet, and the rule matches by address (D83).
    let pods = PODS.replace(
        "status: {phase: Running, podIP: 10.0.0",
        "status: {phase: Running, x: 10",
    );
    let pods = pods
        .lines()
        .filter(|line| !line.starts_with("status:"))
        .collect::<Vec<_>>()
        .join("\n");
    let new =
        policy("[{from: [{ipBlock: {cidr: 10.0.0.0/8}}]}]").replace(PODS, &format!("{pods}\n"));
    let document = json(&diff(&format!("{pods}\n"), &new, &["-o", "json"]));
    let undecided = pairs(&document, "undecided");
    assert!(
        undecided
            .iter()
            .any(|it| it.starts_with("x/b -> x/a tcp/*")),
        "{undecided:?}"
    );
    // ICMPv6 is of the other family, whatever the addresses are.
    let lost = pairs(&document, "lost");
    let mut lost = lost.iter().filter(|it| it.starts_with("x/b"));
    assert!(lost.all(|it| it == "x/b -> x/a icmpv6"));
    // Nothing is undecided where the rule stays the same.
    let more = new.replace(
        "{matchLabels: {app: a}}",
        "{matchExpressions: [{key: app, operator: In, values: [a]}]}",
    );
    let ran = diff(&new, &more, &[]);
    assert_eq!(ran.code, 0, "{}", ran.out);
}

#[test]
fn one_family_alone_is_named() {
    // E22: a block of one family leaves the other open.
    let dual = |name: &str, last: u32| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: x, labels: {{app: {name}}}}}\n\
             spec: {{containers: [{{name: c}}]}}\n\
             status: {{phase: Running, podIPs: [{{ip: 10.0.0.{last}}}, {{ip: 'fd00::{last}'}}]}}\n---\n"
        )
    };
    let pods = format!("{}{}", dual("a", 1), dual("b", 2));
    let guard = "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {name: g}\n\
                 spec:\n  tier: Admin\n  priority: 10\n  subject: {namespaces: {}}\n  egress:\n  \
                 - {action: Deny, to: [{networks: [0.0.0.0/0]}]}\n";
    let document = json(&diff(&pods, &format!("{pods}{guard}"), &["-o", "json"]));
    let lost = document["lost"].as_array().unwrap();
    let between = lost
        .iter()
        .filter(|it| it["ports"].as_array().unwrap().len() > 1);
    let between: Vec<&Value> = between.collect();
    assert!(!between.is_empty());
    for block in between {
        let names = document["groups"][block["to"].as_str().unwrap()].to_string();
        // Networks have one family: there is no difference in the other.
        if names.contains("x/") {
            assert_eq!(block["family"], "IPv4", "{block}");
        }
    }
}

#[test]
fn every_form_has_the_same_content() {
    let (old, new) = (policy("[]"), policy("[{ports: [{port: http}]}]"));
    let table = diff(&old, &new, &[]);
    assert_eq!(table.code, 1);
    assert!(
        table.out.starts_with("netpol/x/p changed\n  + "),
        "{}",
        table.out
    );
    assert!(
        table
            .out
            .contains("ingress: was isolated by netpol/x/p, now netpol/x/p#ingress[0]"),
        "{}",
        table.out
    );
    let csv = diff(&old, &new, &["-o", "csv"]).out;
    let mut lines = csv.lines();
    assert_eq!(
        lines.next().unwrap().trim(),
        "change,from,to,ports,family,endpoint,direction,old,new,caused by"
    );
    assert!(lines.next().unwrap().starts_with("gained,"), "{csv}");
    let yaml = diff(&old, &new, &["-o", "yaml"]).out;
    assert!(yaml.contains("kind: Diff"), "{yaml}");
    let jsonl = diff(&old, &new, &["-o", "jsonl"]).out;
    let line: Value = serde_json::from_str(jsonl.lines().next().unwrap()).unwrap();
    assert_eq!(line["change"], "gained");
    assert_eq!(line["to"][0], "x/a");
    let md = diff(&old, &new, &["-o", "md"]).out;
    assert!(md.starts_with("### "), "{md}");
    assert!(
        md.contains("<details><summary>Allowed now, denied before: 1 block</summary>"),
        "{md}"
    );
}

/// Names that would be markup, formulas or commands to a terminal without escaping. `--lenient`
/// goes on past them.
const HOSTILE: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: "<script>alert(1)</script>", namespace: x, labels: {app: a}}
spec: {containers: [{name: c}]}
status: {phase: Running, podIP: 10.0.0.1}
---
apiVersion: v1
kind: Pod
metadata: {name: "a|b\"\e[31m\\", namespace: "=1+1,2", labels: {app: b}}
spec: {containers: [{name: c}]}
status: {phase: Running, podIP: 10.0.0.2}
---
apiVersion: v1
kind: Pod
metadata: {name: "ONE-SIDED", namespace: x}
spec: {containers: [{name: c}]}
status: {phase: Running, podIP: 10.0.0.3}
"#;

/// A policy with such a name.
const HOSTILE_POLICY: &str = r#"
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: "<img src=x>\u009b31m", namespace: x}
spec: {podSelector: {matchLabels: {app: a}}, ingress: []}
"#;

#[test]
fn text_of_objects_is_no_markup() {
    let old = HOSTILE.replace("ONE-SIDED", "<b>gone");
    let new = HOSTILE.replace("ONE-SIDED", r"<i>new\e[1m") + HOSTILE_POLICY;
    let show = |form: &str| {
        let ran = diff(&old, &new, &["--lenient", "-v", "-o", form]);
        assert_eq!(ran.code, 1, "{}", ran.err);
        ran.out
    };
    let contains = |text: &str, all: &[&str]| {
        for words in all {
            assert!(text.contains(words), "{words}\n{text}");
        }
    };

    // Markdown: a backslash before every sign that could be markup, wherever names occur.
    let md = show("md");
    contains(
        &md,
        &[
            "| x/\\<script\\>alert(1)\\</script\\> |",
            "=1+1,2/a\\|b\"\u{241b}\\[31m\\\\",
            "| netpol/x/\\<img src=x\\>\u{b7}31m (added) |",
            "now isolated by netpol/x/\\<img src=x\\>\u{b7}31m |",
            "\n- x/\\<i\\>new\u{241b}\\[1m\n",
            "\n- x/\\<b\\>gone\n",
        ],
    );
    let names = ["<details><summary>", "</summary>", "</details>", "->"];
    let names = names.iter().fold(md.clone(), |md, own| md.replace(own, ""));
    for (at, _) in names.match_indices(['<', '>']) {
        assert!(names[..at].ends_with('\\'), "{}", &names[at..]);
    }

    // CSV: quoted where it has to be, and no formula at the start of a field.
    contains(
        &show("csv"),
        &[
            "\"'=1+1,2/a|b\"\"\u{241b}[31m\\",
            ",x/<script>alert(1)</script>,",
            ",isolated by netpol/x/<img src=x>\u{b7}31m,",
        ],
    );

    // JSON and YAML: every text comes back as it was written.
    let culprit = "netpol/x/<img src=x>\u{9b}31m";
    let json = serde_json::from_str(&show("json")).unwrap();
    let yaml = serde_saphyr::from_str(&show("yaml")).unwrap();
    let documents: [Value; 2] = [json, yaml];
    for document in documents {
        let lost = pairs(&document, "lost");
        let ends = "=1+1,2/a|b\"\u{1b}[31m\\ -> x/<script>alert(1)</script>";
        assert!(lost.iter().any(|it| it.starts_with(ends)), "{lost:?}");
        assert_eq!(document["changed"][0]["object"], culprit);
        assert_eq!(document["lost"][0]["causedBy"], culprit);
        assert_eq!(document["endpoints"]["added"][0], "x/<i>new\u{1b}[1m");
        assert_eq!(document["endpoints"]["removed"][0], "x/<b>gone");
    }
    let jsonl = show("jsonl");
    let line = jsonl.lines().find(|it| it.contains("<img")).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!(line["causedBy"], culprit);

    // Tables are text.
    for form in ["table", "wide"] {
        contains(
            &show(form),
            &[
                "netpol/x/<img src=x>\u{b7}31m added\n",
                "=1+1,2/a|b\"\u{241b}[31m\\",
                " -> x/<script>alert(1)</script>  any\n",
                "now isolated by netpol/x/<img src=x>\u{b7}31m\n",
                "new endpoints: x/<i>new\u{241b}[1m\n",
                "removed endpoints: x/<b>gone\n",
            ],
        );
    }

    // Whatever the form: nothing of an object is a command to a terminal.
    for form in ["table", "wide", "md", "csv", "json", "jsonl", "yaml"] {
        let text = show(form);
        assert!(!text.contains(['\u{1b}', '\u{9b}']), "{form}: {text:?}");
    }
}

fn git(directory: &Path, args: &[&str]) {
    let status = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@example.com"])
        .args(args)
        .current_dir(directory)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "git {args:?}");
}

#[test]
fn revisions_are_read_without_touching_the_tree() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    git(directory.path(), &["init", "-q", "-b", "main"]);
    std::fs::create_dir_all(at("deploy/below")).unwrap();
    std::fs::write(at("deploy/policy.yaml"), policy("[]")).unwrap();
    std::fs::write(at("deploy/README.md"), "no manifest").unwrap();
    std::fs::write(
        at("deploy/below/more.yaml"),
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: z}\n",
    )
    .unwrap();
    std::fs::create_dir_all(at(".hidden")).unwrap();
    std::fs::write(
        at(".hidden/policy.yaml"),
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: h}\n",
    )
    .unwrap();
    std::fs::write(
        at("here.yaml"),
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: q}\n",
    )
    .unwrap();
    git(directory.path(), &["add", "."]);
    git(directory.path(), &["commit", "-q", "-m", "first"]);
    std::fs::write(at("deploy/policy.yaml"), policy("[{}]")).unwrap();
    let ran = palisade(
        directory.path(),
        &["git:main:deploy", "deploy/", "-o", "json"],
    );
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert_eq!(json(&ran)["gained"][0]["causedBy"], "netpol/x/p");
    git(directory.path(), &["commit", "-q", "-am", "second"]);
    for (args, code) in [
        (["git:HEAD:deploy/", "deploy/"], 0),
        (["git:HEAD~1:deploy", "git:HEAD:deploy"], 1),
        (["git:HEAD:deploy/policy.yaml", "deploy/policy.yaml"], 0),
        (["git:HEAD:./deploy", "deploy"], 0),
        (["git:HEAD:deploy/below/../", "deploy"], 0),
        // Hidden directories are skipped on both sides.
        (["git:HEAD:", "."], 0),
    ] {
        let ran = palisade(directory.path(), &args);
        assert_eq!(ran.code, code, "{args:?}: {}{}", ran.out, ran.err);
        let ran = palisade(directory.path(), &[&args[..], &["-R"]].concat());
        assert_eq!(ran.code, code, "{args:?} -R: {}{}", ran.out, ran.err);
    }
    // From a directory below, paths are those of that directory.
    let ran = palisade(&at("deploy"), &["git:HEAD:.", "."]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for (side, words) in [
        ("git:nowhere:deploy", "revision nowhere not found"),
        ("git:--help:deploy", "revision --help not found"),
        ("git:HEAD:absent", "absent not found"),
        ("git:HEAD", "is not git:REV:PATH"),
        ("git:HEAD:deploy/README.md", "deploy/README.md"),
    ] {
        let ran = palisade(directory.path(), &[side, "deploy"]);
        if side != "git:HEAD:deploy/README.md" {
            assert_eq!(ran.code, 2, "{side}");
            assert!(ran.err.contains(words), "{side}: {}", ran.err);
        }
    }
    // What a name has of a shell's language does nothing.
    let name = "deploy/$(touch owned) ;'\".yaml";
    std::fs::write(
        at(name),
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: w}\n",
    )
    .unwrap();
    git(directory.path(), &["add", "."]);
    git(directory.path(), &["commit", "-q", "-m", "odd"]);
    let ran = palisade(directory.path(), &["git:HEAD:deploy", "deploy"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(!at("owned").exists());
}

#[test]
fn files_are_laid_over_a_base() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("base.yaml"), policy("[]")).unwrap();
    let over = policy("[{}]").replace(PODS, "");
    std::fs::write(at("over.yaml"), over).unwrap();
    let ran = palisade(
        directory.path(),
        &["base.yaml", "-f", "over.yaml", "-o", "json"],
    );
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert_eq!(json(&ran)["changed"][0]["change"], "changed");
    let ran = palisade(directory.path(), &["base.yaml", "-f", "base.yaml"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
}

#[test]
fn errors_of_a_comparison_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("a.yaml"), PODS).unwrap();
    std::fs::write(at("bad.yaml"), policy("[{from: 3}]")).unwrap();
    for (args, words) in [
        (&["a.yaml"][..], "a.yaml has no second side"),
        (&["a.yaml", "a.yaml", "-f", "a.yaml"], "name one side only"),
        (&["a.yaml", "absent.yaml"], "absent.yaml"),
        (&["-", "-"], "only one argument can be `-`"),
        (
            &["a.yaml", "a.yaml", "--context", "x"],
            "neither side is `cluster`",
        ),
        (&["a.yaml", "bad.yaml"], "the input has"),
        (&["a.yaml", "a.yaml", "--include-new"], "--fail-on-wider"),
    ] {
        let ran = palisade(directory.path(), args);
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.out);
        assert!(ran.err.contains(words), "{args:?}: {}", ran.err);
    }
    let ran = palisade(directory.path(), &["a.yaml", "bad.yaml", "--lenient"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
}
