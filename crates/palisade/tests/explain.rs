//! `palisade explain`, by running it: exit codes, every form of output, and what it says when it
//! cannot answer.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

const CLUSTER: &str = r"
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {team: sales}}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
spec: {nodeName: n1, containers: [{name: web, image: i, ports: [{name: http, containerPort: 8080}]}]}
status: {phase: Running, podIPs: [{ip: 10.0.0.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: db, namespace: shop, labels: {app: db}}
spec: {nodeName: n1, containers: [{name: db, image: i, ports: [{name: sql, containerPort: 5432}]}]}
status: {phase: Running, podIPs: [{ip: 10.0.0.2}]}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {clusterIP: 10.96.0.1, selector: {app: db}, ports: [{port: 80, targetPort: sql}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec:
  podSelector: {matchLabels: {app: db}}
  ingress:
  - from:
    - podSelector: {matchLabels: {app: api}}
    ports:
    - port: sql
";

struct Ran {
    code: i32,
    out: String,
    err: String,
}

fn run(manifests: &str, args: &[&str], input: &str) -> Ran {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write("c.yaml", manifests);
    write("flows.txt", input);
    write("dns.txt", input);
    let mut child = Command::new(env!("CARGO_BIN_EXE_palisade"))
        .args(["explain", "-f", "c.yaml"])
        .args(args)
        .current_dir(directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The program may end before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {}", ran.out))
}

#[test]
fn a_denied_flow_names_the_policy_the_near_miss_and_the_change() {
    let ran = run(CLUSTER, &["shop/web", "shop/db", "tcp/5432"], "");
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert_eq!(
        ran.out,
        "\
Deny  shop/web -> shop/db tcp/5432
  egress of shop/web  Allow  no policy applies to its egress
  ingress of shop/db  Deny   isolated by netpol/shop/db; its one rule does not match
                             at c.yaml:25
                             nearest: netpol/shop/db#ingress[0] would allow app=api; shop/web has app=web
                             at c.yaml:29
                             | - from:
                             |   - podSelector: {matchLabels: {app: api}}
                             |   ports:
                             |   - port: sql
  to allow it: add this ingress rule to netpol/shop/db:
      - from:
        - podSelector:
            matchLabels:
              app: web
        ports:
        - port: 5432
    changes nothing else
"
    );
}

#[test]
fn json_has_the_keys_of_the_contract() {
    let ran = run(
        CLUSTER,
        &["shop/web", "shop/db", "tcp/5432", "-o", "json"],
        "",
    );
    let answer = json(&ran);
    assert_eq!(answer["apiVersion"], "palisade.dev/v1alpha1");
    assert_eq!(answer["kind"], "Explanation");
    assert_eq!(
        answer["flow"],
        serde_json::json!({"source": "shop/web", "destination": "shop/db", "protocol": "TCP", "port": 5432, "family": "IPv4"})
    );
    assert_eq!(answer["verdict"], "Deny");
    assert_eq!(
        answer["egress"],
        serde_json::json!({"verdict": "Allow", "reason": "Default", "tier": "Default"})
    );
    assert_eq!(answer["ingress"]["reason"], "Isolation");
    assert_eq!(answer["ingress"]["tier"], "NetworkPolicy");
    assert_eq!(
        answer["ingress"]["policies"],
        serde_json::json!(["netpol/shop/db"])
    );
    assert_eq!(
        answer["ingress"]["nearestMiss"]["rule"],
        "netpol/shop/db#ingress[0]"
    );
    assert_eq!(
        answer["changes"],
        serde_json::json!([
            "add this ingress rule to netpol/shop/db:\n- from:\n  - podSelector:\n      matchLabels:\n        app: web\n  ports:\n  - port: 5432"
        ])
    );
}

#[test]
fn a_service_is_its_backends_at_their_port() {
    for destination in ["shop/svc/db", "10.96.0.1"] {
        let ran = run(
            CLUSTER,
            &["shop/web", destination, "tcp/80", "-o", "json"],
            "",
        );
        let answer = json(&ran);
        assert_eq!(answer["flow"]["destination"], "shop/db");
        assert_eq!(answer["flow"]["port"], 5432);
        assert_eq!(answer["flow"]["via"], "shop/svc/db");
        assert_eq!((ran.code, &answer["verdict"]), (1, &"Deny".into()));
    }
}

#[test]
fn without_a_port_every_port_set_is_answered() {
    let ran = run(CLUSTER, &["shop/web", "shop/db", "-o", "json"], "");
    let answer = json(&ran);
    assert_eq!(answer["kind"], "ExplanationSet");
    let sets = answer["explanations"].as_array().unwrap();
    let ports = sets[0]["flow"]["ports"].as_array().unwrap();
    assert_eq!(sets.len(), 1, "{sets:#?}");
    assert!(
        ports.contains(&"tcp/*".into()) && ports.contains(&"icmp".into()),
        "{ports:?}"
    );
    let ran = run(CLUSTER, &["shop/web", "shop/db"], "");
    assert!(
        ran.out
            .starts_with("every port and protocol\n  Deny  shop/web -> shop/db\n"),
        "{}",
        ran.out
    );
}

#[test]
fn flows_are_answered_in_order_and_errors_do_not_stop_them() {
    let flows = "# comment\nshop/web shop/db tcp/5432\nshop/web shop/missing tcp/1  # another\n\nshop/db shop/web tcp/http\nshop/web\n";
    let ran = run(CLUSTER, &["--flows", "flows.txt", "-o", "jsonl"], flows);
    assert_eq!(ran.code, 2, "{}", ran.err);
    let answers: Vec<Value> = ran
        .out
        .lines()
        .map(|it| serde_json::from_str(it).unwrap())
        .collect();
    let verdicts: Vec<&str> = answers
        .iter()
        .map(|it| it["verdict"].as_str().unwrap())
        .collect();
    assert_eq!(verdicts, ["Deny", "Unknown", "Allow", "Unknown"]);
    assert_eq!(
        answers[1]["error"],
        "flows.txt:3: pod `shop/missing` not found"
    );
    assert_eq!(answers[2]["flow"]["port"], 8080);
    assert!(
        answers[3]["error"]
            .as_str()
            .unwrap()
            .contains("SRC DST PORT")
    );
    let ran = run(
        CLUSTER,
        &["--flows", "-", "-o", "jsonl"],
        "shop/db shop/web tcp/1\n",
    );
    assert_eq!((ran.code, ran.out.lines().count()), (0, 1));
    // The worst answer counts, at any position.
    let allowed = "shop/db shop/web tcp/1\n";
    for (worst, code) in [("shop/db tcp/5432", 1), ("shop/missing tcp/1", 2)] {
        let flows = format!("{allowed}shop/web {worst}\n{allowed}");
        let ran = run(CLUSTER, &["--flows", "flows.txt"], &flows);
        assert_eq!(ran.code, code, "{worst}: {}", ran.err);
    }
}

#[test]
fn a_query_with_an_error_gets_a_suggestion_and_exit_code_2() {
    for (args, error) in [
        (
            &["shop/wbe", "shop/db", "tcp/1"][..],
            "palisade: pod `shop/wbe` not found; did you mean `shop/web`?\n",
        ),
        (
            &["shop/web", "shop/svc/bd", "tcp/1"],
            "palisade: Service `shop/svc/bd` not found; did you mean `shop/svc/db`?\n",
        ),
        (
            &["shop/web", "shop/dpeloy/db", "tcp/1"],
            "palisade: `dpeloy` is not a kind of endpoint; did you mean `deploy`?\n",
        ),
        (
            &["shop/web", "shop/db", "tcp/sq"],
            "palisade: the destination has no TCP port named `sq`; did you mean `sql`?\n",
        ),
        (
            &["shop/web", "shop/svc/db", "tcp/81"],
            "palisade: `shop/svc/db` does not offer this port; it offers tcp/80\n",
        ),
        (
            &["shop/web", "shop/svc/db", "icmp"],
            "palisade: `shop/svc/db` is a Service; it translates TCP, UDP and SCTP only\n",
        ),
        (
            &["shop/web", "shop/db", "icmpv6"],
            "palisade: `icmpv6` exists only in IPv6; source and destination do not share that family\n",
        ),
        (
            &["shop/web", "shop/db", "ip/6"],
            "palisade: `ip/6` has ports; write `tcp/PORT`\n",
        ),
        (
            &["203.0.113.7", "127.0.0.1", "tcp/1"],
            "palisade: 127.0.0.1 is a loopback address; only the pod or node itself reaches it\n",
        ),
        (
            &["node/n2", "shop/db", "tcp/1"],
            "palisade: node `node/n2` not found; did you mean `node/n1`?\n",
        ),
    ] {
        let ran = run(CLUSTER, args, "");
        assert_eq!(
            (ran.code, ran.out.as_str(), ran.err.as_str()),
            (2, "", error),
            "{args:?}"
        );
    }
}

#[test]
fn input_with_errors_is_not_answered_about_unless_lenient() {
    let broken = CLUSTER.replace("port: sql", "port: \"80\"");
    let ran = run(&broken, &["shop/web", "shop/db", "tcp/80"], "");
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    assert!(
        ran.err.contains("error[PORT-NAME]") && ran.err.contains("--lenient"),
        "{}",
        ran.err
    );
    let ran = run(
        &broken,
        &["shop/web", "shop/db", "tcp/80", "--lenient", "-o", "json"],
        "",
    );
    assert_eq!((ran.code, &json(&ran)["verdict"]), (1, &"Deny".into()));
}

#[test]
fn names_count_only_once_they_are_learned() {
    let policy = "
---
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: names}
spec:
  tier: Admin
  priority: 1
  subject: {namespaces: {}}
  egress:
  - {action: Accept, to: [{domainNames: ['*.example.com']}]}
  - {action: Deny, to: [{networks: [0.0.0.0/0]}]}
";
    let manifests = format!("{CLUSTER}{policy}");
    let args = ["shop/web", "198.51.100.4", "tcp/443", "-o", "json"];
    assert_eq!(
        json(&run(&manifests, &args, ""))["egress"]["rule"]["id"],
        "cnp/names#egress[1]"
    );
    let learned = [&args[..], &["--dns", "dns.txt"]].concat();
    let ran = run(&manifests, &learned, "a.b.example.com 198.51.100.4\n");
    assert_eq!(json(&ran)["egress"]["rule"]["id"], "cnp/names#egress[0]");
    let ran = run(&manifests, &learned, "a.b.example.com 198.51.100\n");
    assert_eq!(ran.code, 2);
    assert!(
        ran.err
            .contains("dns.txt:1: `198.51.100` is not an IP address"),
        "{}",
        ran.err
    );
}

#[test]
fn an_audited_policy_decides_nothing_and_says_what_it_would() {
    let audited = CLUSTER.replace(
        "metadata: {name: db, namespace: shop}\nspec:\n",
        "metadata: {name: db, namespace: shop, annotations: {palisade.dev/enforcement: audit}}\nspec:\n",
    );
    let ran = run(
        &audited,
        &["shop/web", "shop/db", "tcp/5432", "-o", "json"],
        "",
    );
    let answer = json(&ran);
    assert_eq!(answer["verdict"], "Allow");
    assert_eq!(
        answer["dryRun"],
        serde_json::json!([{"policy": "netpol/shop/db", "verdict": "Deny"}])
    );
}

#[test]
fn exit_zero_and_quiet_and_colours() {
    let ran = run(
        CLUSTER,
        &["shop/web", "shop/db", "tcp/5432", "--exit-zero"],
        "",
    );
    assert_eq!(ran.code, 0);
    let ran = run(
        CLUSTER,
        &["shop/web", "shop/db", "tcp/5432", "--color", "always"],
        "",
    );
    assert!(ran.out.contains("\u{1b}[1m\u{1b}[31mDeny"), "{:?}", ran.out);
    let yaml = run(
        CLUSTER,
        &["shop/web", "shop/db", "tcp/5432", "-o", "yaml"],
        "",
    );
    assert!(yaml.out.contains("verdict: Deny"), "{}", yaml.out);
}

#[test]
fn hostile_names_do_not_reach_the_terminal() {
    let hostile = CLUSTER.replace(
        "app: db}}\nspec: {nodeName",
        "app: \"\\e[31mdb\"}}\nspec: {nodeName",
    );
    let ran = run(
        &hostile,
        &["shop/web", "shop/\u{1b}[31mx", "tcp/1", "--lenient"],
        "",
    );
    assert_eq!(ran.code, 2);
    assert!(!ran.err.contains('\u{1b}'), "{:?}", ran.err);
    // Where colours are wanted nothing is taken out on the way, and only colours are ours.
    let flows = "shop/\u{1b}[2Jx shop/\u{1b}]0;x\u{7} tcp/1\n";
    let ran = run(
        CLUSTER,
        &["--flows", "flows.txt", "--color", "always"],
        flows,
    );
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.out.contains("0;x"), "{:?}", ran.out);
    for command in ["\u{1b}[2J", "\u{1b}]", "\u{7}"] {
        assert!(!ran.out.contains(command), "{:?}", ran.out);
    }
    assert!(Path::new(env!("CARGO_BIN_EXE_palisade")).exists());
}

/// Answers one flow, as JSON.
fn explained(args: &[&str]) -> Value {
    let ran = run(CLUSTER, &[args, &["-o", "json"]].concat(), "");
    serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}", ran.err))
}

#[test]
fn endpoints_without_a_namespace_are_in_that_of_n() {
    let full = explained(&["shop/web", "shop/db", "tcp/5432"]);
    assert_eq!(full["verdict"], "Deny");
    for [source, destination, port] in [
        ["web", "db", "tcp/5432"],
        ["pod/web", "pod/db", "5432"],
        ["web", "svc/db", "80"],
        ["web", "db.shop", "tcp/80"],
        ["web", "db.shop.svc.cluster.local", "tcp/80"],
    ] {
        let answer = explained(&["-n", "shop", source, destination, port]);
        let policies = &answer["ingress"]["policies"];
        let name = format!("{source} {destination} {port}: {answer}");
        assert_eq!(policies, &full["ingress"]["policies"], "{name}");
    }
    // Without -n it is the namespace `default`, which has no pods here.
    let ran = run(CLUSTER, &["web", "shop/db", "tcp/5432"], "");
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("`default/web` not found"), "{}", ran.err);
}

#[test]
fn a_namespace_that_does_not_exist_is_an_error_with_a_suggestion() {
    let ran = run(
        CLUSTER,
        &["-n", "shpo", "shop/web", "shop/db", "tcp/80"],
        "",
    );
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    let expected = "palisade: namespace `shpo` not found; did you mean `shop`?\n";
    assert_eq!(ran.err, expected);
}

#[test]
fn a_block_of_addresses_is_mixed_where_its_addresses_differ() {
    let policy = "
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: shop}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress:
  - from:
    - ipBlock: {cidr: 198.51.100.0/25}
";
    let manifests = format!("{CLUSTER}{policy}");
    let verdict = |source: &str| {
        let ran = run(&manifests, &[source, "shop/web", "8080", "-o", "json"], "");
        let answer: Value = serde_json::from_str(&ran.out).unwrap();
        (answer["verdict"].as_str().unwrap().to_owned(), answer)
    };
    assert_eq!(verdict("198.51.100.0/25").0, "Allow");
    assert_eq!(verdict("198.51.100.128/25").0, "Deny");
    let (mixed, answer) = verdict("198.51.100.0/24");
    assert_eq!(mixed, "Mixed");
    let parts = answer["answers"].as_array().unwrap();
    let parts = parts
        .iter()
        .map(|it| [&it["flow"]["source"], &it["verdict"]]);
    assert_eq!(
        parts.collect::<Vec<_>>(),
        [["198.51.100.0/25", "Allow"], ["198.51.100.128/25", "Deny"]]
    );
}

#[test]
fn verdicts_that_need_a_remark_have_one() {
    let codes = |flow: [&str; 3]| {
        let answer = explained(&flow);
        let notes = answer["notes"].as_array().cloned().unwrap_or_default();
        notes
            .iter()
            .map(|it| it["code"].to_string())
            .collect::<Vec<_>>()
    };
    let outside = "\"ClusterAddressFromOutside\"";
    assert_eq!(codes(["203.0.113.7", "10.96.0.1", "tcp/80"]), [outside]);
    assert_eq!(
        codes(["shop/db", "shop/svc/db", "tcp/80"]),
        ["\"SelfThroughService\""]
    );
    assert_eq!(codes(["shop/web", "shop/db", "icmp"]), ["\"WithoutPorts\""]);
    assert!(codes(["shop/web", "shop/db", "tcp/5432"]).is_empty());
    let ran = run(CLUSTER, &["203.0.113.7", "10.96.0.1", "tcp/80"], "");
    let note = "note: a cluster address is not reachable from outside the cluster\n";
    assert!(ran.out.contains(note), "{}", ran.out);
}

#[test]
fn numbers_out_of_range_are_reported_with_the_range() {
    for (port, expected) in [
        (
            "tcp/70000",
            "`70000` is not a port number; ports are 1 to 65535",
        ),
        (
            "70000",
            "`70000` is not a port number; ports are 1 to 65535",
        ),
        (
            "ip/256",
            "`256` is not an IP protocol number; these are 0 to 255",
        ),
    ] {
        let ran = run(CLUSTER, &["shop/web", "shop/db", port], "");
        assert_eq!(ran.code, 2);
        assert!(ran.err.contains(expected), "{}", ran.err);
    }
}

#[test]
fn a_line_without_a_port_is_answered_for_every_port() {
    let ran = run(
        CLUSTER,
        &["--flows", "-", "-o", "jsonl"],
        "shop/db shop/web\n",
    );
    assert_eq!(ran.code, 0, "{}", ran.err);
    let answer: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(answer["verdict"], "Allow");
    let ran = run(
        CLUSTER,
        &["--flows", "flows.txt", "-o", "jsonl"],
        "\nshop/db\n",
    );
    let answer: Value = serde_json::from_str(&ran.out).unwrap();
    let error = answer["error"].as_str().unwrap();
    assert!(
        error.starts_with("flows.txt:2: a flow query must be"),
        "{error}"
    );
}
