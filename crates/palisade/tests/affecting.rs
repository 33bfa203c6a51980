//! `palisade affecting`, as people and scripts run it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "affecting/agrees.rs"]
mod agrees;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

fn run(args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_palisade"))
        .args(args)
        .current_dir(root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A command that does not read it may have ended.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs the command on the objects; it must succeed.
fn affecting(objects: &str, what: &str, format: &str) -> String {
    let args = ["affecting", "-q", "-f", "-", "-o", format, what];
    let output = run(&args, objects);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    text(&output.stdout)
}

fn json_of(objects: &str, what: &str) -> Value {
    serde_json::from_str(&affecting(objects, what, "json")).unwrap()
}

/// Runs the command on the objects; it must fail.
fn refused(objects: &str, what: &str) -> String {
    let output = run(&["affecting", "-q", "-f", "-", what], objects);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
    assert_eq!(text(&output.stdout), "");
    text(&output.stderr)
}

fn namespace(name: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}, labels: {{team: {name}}}}}\n"
    )
}

fn pod(namespace: &str, name: &str, app: &str, address: &str) -> String {
    format!(
        "---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: {namespace}, labels: {{app: {app}}}}}
spec: {{containers: [{{name: c, image: i, ports: [{{containerPort: 8080}}]}}]}}
status: {{phase: Running, podIP: {address}}}
"
    )
}

fn network_policy(namespace: &str, name: &str, spec: &str) -> String {
    format!(
        "---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {{name: {name}, namespace: {namespace}}}
spec: {spec}
"
    )
}

fn cluster_policy(name: &str, tier: &str, priority: u32, rules: &str) -> String {
    format!(
        "---
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {{name: {name}}}
spec:
  tier: {tier}
  priority: {priority}
  subject: {{namespaces: {{}}}}
{rules}"
    )
}

/// A shop that is open to all, an administrator who is not, and a baseline behind both.
fn shop() -> String {
    [
        namespace("shop"),
        namespace("lab"),
        pod("shop", "web", "web", "10.0.0.1"),
        pod("lab", "probe", "probe", "10.0.1.1"),
        network_policy(
            "shop",
            "open",
            "{podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{port: 8080}]}]}",
        ),
        cluster_policy(
            "no-lab",
            "Admin",
            10,
            "  ingress:
  - {action: Deny, from: [{namespaces: {matchLabels: {team: lab}}}]}
",
        ),
        cluster_policy(
            "closed",
            "Baseline",
            20,
            "  ingress:
  - {action: Deny, from: [{all: {}}]}
  egress:
  - {action: Deny, to: [{networks: [203.0.113.0/24]}]}
",
        ),
    ]
    .concat()
}

#[test]
fn a_pod_has_its_policies_in_order_and_what_is_left_of_them() {
    assert_eq!(
        affecting(&shop(), "shop/web", "table"),
        "\
shop/web

EGRESS, what it sends
  TIER      PRIORITY  POLICY      RULES     STATE
  Baseline        20  cnp/closed  [0] Deny  in force
  Evaluated from top to bottom, for this direction only. A flow that none of them decides is allowed.

INGRESS, what it receives
  TIER           PRIORITY  POLICY            RULES                 STATE
  Admin                10  cnp/no-lab        [0] Deny              in force
  NetworkPolicy            netpol/shop/open  isolates; allows [0]  partly overridden
  Baseline             20  cnp/closed        [0] Deny              overridden
  Evaluated from top to bottom, for this direction only. NetworkPolicies isolate the pod: a flow that
  reaches them and that none of them allows is denied.

  netpol/shop/open is overridden by
    cnp/no-lab (ingress[0]): lab/probe -> shop/web tcp/8080 is denied, not allowed by ingress[0]

  cnp/closed is overridden by
    netpol/shop/open (ingress[0]): 198.51.100.7 -> shop/web tcp/8080 is allowed, not denied by ingress[0]
"
    );
}

#[test]
fn a_policy_has_its_pods_whom_it_overrides_and_who_overrides_it() {
    assert_eq!(
        affecting(&shop(), "netpol/shop/open", "table"),
        "\
netpol/shop/open  a NetworkPolicy, isolates for ingress
at -:24

Selects 1 pod of 1 namespace (shop)
  shop/web

Overrides
  cnp/closed
    ingress[0] of this policy allows what ingress[0] would deny: 198.51.100.7 -> shop/web tcp/8080

Overridden by
  cnp/no-lab
    ingress[0] denies what ingress[0] of this policy would allow: lab/probe -> shop/web tcp/8080
"
    );
    assert_eq!(
        affecting(&shop(), "cnp/closed", "table"),
        "\
cnp/closed  Baseline tier, priority 20
at -:39

Selects 2 pods of 2 namespaces (lab, shop)
  lab/probe, shop/web

Overrides nothing

Overridden by
  netpol/shop/open
    ingress[0] allows what ingress[0] of this policy would deny: 198.51.100.7 -> shop/web tcp/8080

Not evaluated, because a NetworkPolicy isolates the pod
  netpol/shop/open for ingress: shop/web
"
    );
}

#[test]
fn every_rule_has_its_line_with_wide() {
    let text = affecting(&shop(), "shop/web", "wide");
    assert!(
        text.contains(
            "  Admin                10  cnp/no-lab                  in force           -:29\n"
        ),
        "{text}"
    );
    assert!(
        text.contains("[0] Deny  never decides      line 45\n"),
        "{text}"
    );
}

#[test]
fn json_has_the_keys_of_the_contract() {
    let witness = json!({
        "source": "lab/probe", "destination": "shop/web", "protocol": "TCP", "port": 8080,
        "family": "IPv4",
    });
    let answer = json_of(&shop(), "shop/web");
    assert_eq!(answer["apiVersion"], "palisade.dev/v1alpha1");
    assert_eq!(answer["kind"], "Affecting");
    assert_eq!(answer["endpoint"], "shop/web");
    assert_eq!(answer["egress"].as_array().unwrap().len(), 1);
    assert_eq!(
        answer["ingress"][1],
        json!({
            "policy": "netpol/shop/open",
            "tier": "NetworkPolicy",
            "rules": ["netpol/shop/open#ingress[0]"],
            "isolates": true,
            "state": "PartlyOverridden",
            "overriddenBy": [{
                "policy": "cnp/no-lab",
                "direction": "Ingress",
                "rules": ["cnp/no-lab#ingress[0]"],
                "ownRules": ["netpol/shop/open#ingress[0]"],
                "verdict": "Deny",
                "witness": witness,
            }],
            "ruleDetails": [{"id": "netpol/shop/open#ingress[0]", "decides": true, "line": 25}],
            "file": "-",
            "line": 24,
        })
    );
    assert_eq!(answer["ingress"][0]["priority"], 10);
    assert_eq!(answer["ingress"][0]["overriddenBy"], json!([]));
    let answer = json_of(&shop(), "cnp/no-lab");
    assert_eq!(
        answer,
        json!({
            "apiVersion": "palisade.dev/v1alpha1",
            "kind": "AffectedBy",
            "policy": "cnp/no-lab",
            "tier": "Admin",
            "priority": 10,
            "isolates": [],
            "directions": ["Ingress"],
            "subjects": ["lab/probe", "shop/web"],
            "namespaces": ["lab", "shop"],
            "overrides": [{
                "policy": "netpol/shop/open",
                "direction": "Ingress",
                "rules": ["netpol/shop/open#ingress[0]"],
                "ownRules": ["cnp/no-lab#ingress[0]"],
                "verdict": "Deny",
                "witness": witness,
            }],
            "overriddenBy": [],
            "defersTo": [],
            "outOfReach": [],
            "file": "-",
            "line": 29,
        })
    );
    // The same in YAML, and in one line.
    let yaml = affecting(&shop(), "cnp/no-lab", "yaml");
    assert!(
        yaml.contains("\noverrides:\n- policy: netpol/shop/open\n"),
        "{yaml}"
    );
    let line: Value = serde_json::from_str(&affecting(&shop(), "cnp/no-lab", "jsonl")).unwrap();
    assert_eq!(line, answer);
}

#[test]
fn pass_defers_and_the_early_forms_have_their_places() {
    let objects = [
        shop(),
        cluster_policy(
            "leave-it",
            "Admin",
            5,
            "  ingress:
  - {action: Pass, from: [{namespaces: {matchLabels: {team: lab}}}]}
",
        ),
        "---
apiVersion: networking.k8s.io/v1alpha1
kind: ClusterNetworkPolicy
metadata: {name: old}
spec:
  appliedTo: {namespaceSelector: {}}
  egress: [{action: Allow}]
---
apiVersion: networking.k8s.io/v1alpha1
kind: DefaultNetworkPolicy
metadata: {name: last}
spec:
  appliedTo: {namespaceSelector: {}}
  egress: [{onlyTo: [{ipBlock: {cidr: 203.0.113.0/25}}]}]
---
apiVersion: policy.networking.k8s.io/v1alpha1
kind: BaselineAdminNetworkPolicy
metadata: {name: default}
spec:
  subject: {namespaces: {}}
  egress: [{action: Deny, to: [{networks: [203.0.113.0/24]}]}]
"
        .to_owned(),
    ]
    .concat();
    let answer = json_of(&objects, "cnp/leave-it");
    let policies = |key: &str| {
        let list = answer[key].as_array().unwrap().iter();
        let list = list.map(|it| {
            let verdict = it["verdict"].as_str().unwrap();
            format!("{} {verdict}", it["policy"].as_str().unwrap())
        });
        list.collect::<Vec<String>>()
    };
    assert_eq!(policies("overrides"), ["cnp/no-lab Allow"]);
    assert_eq!(
        policies("defersTo"),
        ["netpol/shop/open Allow", "netpol/shop/open Deny"]
    );
    assert_eq!(answer["defersTo"][1]["isolation"], true);
    assert_eq!(answer["overrides"][0]["passes"], true);
    let answer = json_of(&objects, "shop/web");
    let entries = answer["egress"].as_array().unwrap().iter();
    let states: Vec<String> = entries
        .map(|it| {
            let word = |key: &str| it[key].as_str().unwrap();
            format!("{} {} {}", word("tier"), word("policy"), word("state"))
        })
        .collect();
    // The first allows everything: only denials are overridden.
    assert_eq!(
        states,
        [
            "Admin cnp0/old InForce",
            "Baseline cnp/closed Overridden",
            "Baseline banp/default Overridden",
            "Baseline dnp/last Overridden",
        ]
    );
    assert_eq!(answer["egress"][3]["overriddenBy"][0]["ownIsolation"], true);
    for policy in ["cnp0/old", "banp/default", "dnp/last"] {
        assert_eq!(json_of(&objects, policy)["policy"], policy);
    }
    let text = affecting(&objects, "cnp/leave-it", "table");
    assert!(
        text.contains(
            "    ingress[0] of this policy passes what ingress isolation denies: lab/probe -> shop/web "
        ),
        "{text}"
    );
}

#[test]
fn pods_of_a_workload_that_differ_have_an_answer_each() {
    let workload = "---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {run: web}}
  template: {metadata: {labels: {run: web}}, spec: {containers: [{name: c, image: i}]}}
";
    let with = |labels: [&str; 3]| {
        let mut objects = namespace("shop") + workload;
        for (index, label) in labels.iter().enumerate() {
            let pod = pod(
                "shop",
                &format!("web-{index}"),
                "web",
                &format!("10.0.0.{}", index + 1),
            );
            objects += &pod.replace("app: web", &format!("run: web, track: {label}"));
        }
        objects
            + &network_policy(
                "shop",
                "canary",
                "{podSelector: {matchLabels: {track: new}}}",
            )
    };
    let same = json_of(&with(["old", "old", "old"]), "shop/deployment/web");
    assert_eq!(same["kind"], "Affecting");
    assert_eq!(same["endpoint"], "shop/deploy/web");
    assert_eq!(same["pods"].as_array().unwrap().len(), 3);
    let objects = with(["old", "new", "old"]);
    let differ = json_of(&objects, "shop/deploy/web");
    assert_eq!(differ["kind"], "AffectingSet");
    assert_eq!(
        differ["answers"][0]["pods"],
        json!(["shop/web-0", "shop/web-2"])
    );
    assert_eq!(differ["answers"][1]["pods"], json!(["shop/web-1"]));
    assert_eq!(
        differ["answers"][1]["ingress"][0]["policy"],
        "netpol/shop/canary"
    );
    assert_eq!(
        affecting(&objects, "shop/deploy/web", "jsonl")
            .lines()
            .count(),
        2
    );
    assert_eq!(
        affecting(&objects, "shop/deploy/web", "table"),
        "\
shop/deploy/web
pods: shop/web-0, shop/web-2

EGRESS, what it sends: no policy; everything is allowed

INGRESS, what it receives: no policy; everything is allowed

shop/deploy/web
pods: shop/web-1

EGRESS, what it sends: no policy; everything is allowed

INGRESS, what it receives
  TIER           PRIORITY  POLICY              RULES                     STATE
  NetworkPolicy            netpol/shop/canary  isolates; allows nothing  in force
  Evaluated from top to bottom, for this direction only. NetworkPolicies isolate the pod: a flow that
  reaches them and that none of them allows is denied.
"
    );
    // Without pods the template stands for them.
    let template = json_of(&(namespace("shop") + workload), "shop/deploy/web");
    assert_eq!(template["endpoint"], "shop/deploy/web");
    assert_eq!(template.get("pods"), None);
}

#[test]
fn dry_runs_are_listed_and_evaluated() {
    let objects = shop().replace(
        "{name: no-lab}",
        "{name: no-lab, annotations: {palisade.dev/enforcement: audit}}",
    );
    let answer = json_of(&objects, "shop/web");
    assert_eq!(answer["ingress"][0]["state"], "DryRun");
    assert_eq!(answer["ingress"][1]["state"], "InForce");
    let answer = json_of(&objects, "cnp/no-lab");
    assert_eq!(answer["dryRun"], true);
    assert_eq!(answer["overrides"][0]["policy"], "netpol/shop/open");
}

#[test]
fn host_network_pods_are_under_no_policy() {
    let host =
        pod("shop", "agent", "agent", "192.0.2.1").replace("spec: {", "spec: {hostNetwork: true, ");
    let objects = shop() + &host;
    let answer = json_of(&objects, "shop/agent");
    assert_eq!(answer["hostNetwork"], true);
    assert_eq!(answer["ingress"], json!([]));
    assert_eq!(
        affecting(&objects, "shop/agent", "table"),
        "shop/agent\nThis is a host-network pod: no policy selects it.\n"
    );
}

#[test]
fn what_does_not_exist_is_not_guessed_but_suggested() {
    for (what, expected) in [
        (
            "shop/wbe",
            "pod `shop/wbe` not found; did you mean `shop/web`?",
        ),
        (
            "cnp/no-lob",
            "policy `cnp/no-lob` not found; did you mean `cnp/no-lab`?",
        ),
        (
            "netpol/lab/open",
            "policy `netpol/lab/open` not found; did you mean `netpol/shop/open`?",
        ),
        (
            "netpol/open",
            "policy `netpol/default/open` not found; did you mean `netpol/shop/open`?",
        ),
        ("anp/x", "policy `anp/x` not found"),
        ("10.9.9.9", "no pod has the address 10.9.9.9"),
        (
            "shop/dploy/web",
            "`dploy` is not a kind of endpoint; did you mean `deploy`?",
        ),
        (
            "open",
            "`open` is neither a pod nor a policy; write `NS/POD`, `NS/KIND/NAME`, or a policy as \
             `netpol/NS/NAME` or `cnp/NAME`; did you mean `netpol/shop/open`?",
        ),
    ] {
        assert_eq!(refused(&shop(), what), format!("palisade: {expected}\n"));
    }
    let service = "---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.0.1, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
";
    assert_eq!(
        refused(&(shop() + service), "shop/svc/web"),
        "palisade: `shop/svc/web` is a Service, and policies select pods; name one of its backends, such as `shop/web`\n"
    );
    // An address and a rule stand for their pod and policy.
    assert_eq!(json_of(&shop(), "10.0.0.1")["pods"], json!(["shop/web"]));
    assert_eq!(
        json_of(&shop(), "cnp/no-lab#ingress[0]")["policy"],
        "cnp/no-lab"
    );
    // Neither a question nor objects.
    assert_eq!(run(&["affecting", "-f", "-"], "").status.code(), Some(2));
    assert_eq!(run(&["affecting", "shop/web"], "").status.code(), Some(2));
    // Objects that cannot be trusted.
    let broken = shop().replace("action: Deny", "action: Dny");
    assert!(refused(&broken, "shop/web").contains("add --lenient"));
    let args = ["affecting", "-q", "--lenient", "-f", "-", "shop/web"];
    assert_eq!(run(&args, &broken).status.code(), Some(0));
}

#[test]
fn text_of_the_input_cannot_command_the_terminal() {
    let objects = shop()
        .replace("name: no-lab", "name: \"no-lab\\e[31m\\a\"")
        .replace("name: web, namespace", "name: \"web\\e]0;x\\a\", namespace");
    for format in ["table", "wide", "json", "jsonl", "yaml"] {
        for what in ["lab/probe", "netpol/shop/open", "cnp/no-lab\u{1b}[31m\u{7}"] {
            let args = [
                "affecting",
                "--color",
                "never",
                "--lenient",
                "-f",
                "-",
                "-o",
                format,
                what,
            ];
            let output = run(&args, &objects);
            let printed = [output.stdout, output.stderr].concat();
            assert!(
                !printed.contains(&0x1b) && !printed.contains(&7),
                "{format} {what}"
            );
        }
    }
}

#[test]
fn colours_only_where_they_are_wanted() {
    let args = [
        "affecting",
        "-q",
        "-f",
        "-",
        "--color",
        "always",
        "shop/web",
    ];
    let coloured = run(&args, &shop());
    assert!(coloured.stdout.contains(&0x1b));
    let plain = String::from_utf8_lossy(&coloured.stdout).into_owned();
    let plain: String = plain
        .split('\u{1b}')
        .enumerate()
        .map(|(at, part)| {
            if at == 0 {
                part
            } else {
                part.split_once('m').unwrap().1
            }
        })
        .collect();
    assert_eq!(plain, affecting(&shop(), "shop/web", "table"));
}
