//! Every form of output, on clusters whose connectivity is plain to see.

use std::path::Path;

use crate::{CLUSTER, json, run};

/// Two web pods of a Deployment and a database; who may call it, and nothing else.
const SHOP: &str = r"
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: shop, labels: {app: web}}
spec: {containers: [{name: c, image: i}]}
status: {phase: Running, podIPs: [{ip: 10.0.0.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: shop, labels: {app: web}}
spec: {containers: [{name: c, image: i}]}
status: {phase: Running, podIPs: [{ip: 10.0.0.2}]}
---
apiVersion: v1
kind: Pod
metadata: {name: db-0, namespace: shop, labels: {app: db}}
spec: {containers: [{name: c, image: i}]}
status: {phase: Running, podIPs: [{ip: 10.0.0.3}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: all, namespace: shop}
spec: {podSelector: {}, policyTypes: [Ingress, Egress]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec:
  podSelector: {matchLabels: {app: db}}
  ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 5432}]}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: shop}
spec:
  podSelector: {matchLabels: {app: web}}
  policyTypes: [Egress]
  egress: [{to: [{podSelector: {matchLabels: {app: db}}}]}]
";

fn printed(args: &[&str]) -> String {
    let ran = run(SHOP, args);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{args:?}");
    ran.out
}

#[test]
fn tables_name_groups_by_what_they_are() {
    assert_eq!(
        printed(&[]),
        "\
FROM                        TO         PORTS
shop/deploy/web (2 pods) -> shop/db-0  tcp/5432

3 pods, 6 pairs: 2 in part, 4 closed
"
    );
    assert_eq!(
        printed(&["-q", "-o", "wide"]),
        "\
FROM                      TO         PORTS
shop/web-0, shop/web-1 -> shop/db-0  tcp/5432
"
    );
    assert_eq!(
        printed(&["-o", "matrix", "--from", "pods", "--to", "pods"]),
        "\
from \\ to: + every port   o some ports   - none   ? mixed or unknown

                         shop/db-0
                         | shop/deploy/web (2 pods)
shop/db-0                  -
shop/deploy/web (2 pods) o -

3 pods, 6 pairs: 2 in part, 4 closed
"
    );
    assert_eq!(
        printed(&["--pairs"]),
        "\
SOURCE                              DESTINATION                       PORTS
shop/web-0                       -> shop/db-0                         tcp/5432
shop/web-1                       -> shop/db-0                         tcp/5432
"
    );
    assert_eq!(
        printed(&["--summary"]),
        "3 pods, 6 pairs: 2 in part, 4 closed\n"
    );
}

#[test]
fn lines_are_csv_markdown_and_json() {
    assert_eq!(
        printed(&["-o", "csv", "--to", "pods"]),
        "from,to,ports\r\nshop/web-0 shop/web-1,shop/db-0,tcp/5432\r\n"
    );
    assert_eq!(
        printed(&["--pairs", "-o", "csv"]),
        "source,destination,ports\r\nshop/web-0,shop/db-0,tcp/5432\r\nshop/web-1,shop/db-0,tcp/5432\r\n"
    );
    assert_eq!(
        printed(&["-o", "md"]),
        "| From | To | Ports |\n|---|---|---|\n| shop/deploy/web (2 pods) | shop/db-0 | tcp/5432 |\n"
    );
    assert_eq!(
        printed(&["-o", "jsonl", "--to", "pods"]),
        "{\"from\":[\"shop/web-0\",\"shop/web-1\"],\"to\":[\"shop/db-0\"],\"ports\":[\"tcp/5432\"]}\n"
    );
    let document = json(&run(SHOP, &["-o", "json", "--to", "pods"]));
    let expected = serde_json::json!({
        "apiVersion": "palisade.dev/v1alpha1",
        "kind": "Connectivity",
        "groups": {"g1": ["shop/web-0", "shop/web-1"], "g2": ["shop/db-0"]},
        "blocks": [{"from": "g1", "to": "g2", "ports": ["tcp/5432"]}],
    });
    assert_eq!(document, expected);
    let pairs = json(&run(SHOP, &["--pairs", "-o", "json"]));
    assert_eq!(pairs["kind"], "ConnectivityPairs");
    assert_eq!(
        pairs["pairs"],
        serde_json::json!([
            {"source": "shop/web-0", "destination": "shop/db-0", "ports": ["tcp/5432"]},
            {"source": "shop/web-1", "destination": "shop/db-0", "ports": ["tcp/5432"]},
        ])
    );
    // Nothing is a document too.
    let none = ["--from", "shop/db-0", "--pairs", "-o"];
    let empty = json(&run(SHOP, &[&none[..], &["json"]].concat()));
    assert_eq!(empty["pairs"], serde_json::json!([]));
    let yaml = printed(&[&none[..], &["yaml"]].concat());
    assert!(yaml.ends_with("pairs: []\n"), "{yaml}");
    let yaml = printed(&["-o", "yaml"]);
    assert!(yaml.contains("kind: Connectivity\n"), "{yaml}");
}

#[test]
fn a_graph_has_clusters_and_quoted_names() {
    let graph = printed(&["-o", "dot", "--from", "pods", "--to", "pods"]);
    assert_eq!(
        graph,
        "\
digraph connectivity {
  rankdir=LR;
  node [shape=box, style=rounded, fontname=\"sans-serif\"];
  edge [fontname=\"sans-serif\", fontsize=10];
  subgraph cluster_0 {
    label=\"shop\";
    k0 [label=\"shop/db-0\"];
    k1 [label=\"shop/deploy/web (2 pods)\"];
  }
  k1 -> k0 [label=\"tcp/5432\"];
}
"
    );
}

#[test]
fn drawings_and_pages_need_nothing_else() {
    let drawing = printed(&["-o", "svg"]);
    assert!(drawing.starts_with("<svg xmlns="), "{drawing}");
    assert!(drawing.ends_with("</svg>\n"));
    for word in [
        "shop/deploy/web (2 pods)",
        "tcp/5432",
        "prefers-color-scheme: dark",
    ] {
        assert!(drawing.contains(word), "{word}");
    }
    let page = printed(&["-o", "html"]);
    assert!(page.starts_with("<!doctype html>"));
    for word in [
        "default-src 'none'",
        "script-src 'sha256-",
        "style-src 'sha256-",
        "prefers-color-scheme: dark",
        "shop/deploy/web (2 pods)",
    ] {
        assert!(page.contains(word), "{word}");
    }
    assert!(!page.contains("{{"), "a place is left empty");
    // Without its script it is blank, and a browser is not everywhere.
    let parts = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/connectivity/page");
    for part in ["data.js", "start.js", "page.css"] {
        let text = std::fs::read_to_string(parts.join(part)).unwrap();
        assert!(page.contains(&text), "{part}");
    }
    for text in [&drawing, &page] {
        let rest = text.replace("http://www.w3.org/2000/svg", "");
        for word in [
            "http:",
            "https:",
            "src=\"",
            "@import",
            "url(http",
            "javascript:",
        ] {
            assert!(!rest.contains(word), "{word}");
        }
    }
}

/// Names that would be markup, formulas or commands without escaping. A policy distinguishes the
/// pods: every form has to name them.
const HOSTILE: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: "</script><img src=x onerror=alert(1)>", namespace: x, labels: {app: a}}
spec: {containers: [{name: c, image: i}]}
status: {podIPs: [{ip: 10.0.0.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: "a|b\"\e[31m\\\u009b2J", namespace: "=1+1,2"}
spec: {containers: [{name: c, image: i}]}
status: {podIPs: [{ip: 10.0.0.2}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: p, namespace: x}
spec: {podSelector: {matchLabels: {app: a}}, ingress: [{ports: [{port: 80}]}]}
"#;

#[test]
fn names_of_users_are_text_and_nothing_else() {
    let hostile = |args: &[&str]| {
        let args = [&["-q", "--lenient", "--from", "pods", "--to", "pods"], args].concat();
        let ran = run(HOSTILE, &args);
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.out
    };
    let page = hostile(&["-o", "html"]);
    assert_eq!(
        page.matches("</script>").count(),
        2,
        "the data and the script"
    );
    assert!(!page.contains("<img"));
    let data = page.split("id=\"data\">").nth(1).unwrap();
    let data = data.split("</script>").next().unwrap();
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    let name = data["members"][1].as_str().unwrap();
    assert_eq!(name, "x/</script><img src=x onerror=alert(1)>");
    let drawing = hostile(&["-o", "svg"]);
    assert!(!drawing.contains("<img"), "{drawing}");
    let table = hostile(&["-o", "md", "--pairs"]);
    // A backslash before the sign: text, and not markup.
    assert_eq!(
        table.matches("<img").count(),
        table.matches("\\<img").count()
    );
    assert!(table.contains(r#"| =1+1,2/a\|b"␛\[31m\\·2J |"#), "{table}");
    let csv = hostile(&["-o", "csv", "--pairs"]);
    assert!(
        csv.contains(
            "\r\n\"'=1+1,2/a|b\"\"\u{241b}[31m\\\u{b7}2J\",x/</script><img src=x onerror=alert(1)>,"
        ),
        "{csv:?}"
    );
    // The names are in every form, and in none of them are they commands to a terminal.
    let check = |args: &[&str]| {
        let text = hostile(args);
        assert!(text.contains("31m"), "{args:?}: {text}");
        assert!(!text.contains(['\u{1b}', '\u{9b}']), "{args:?}: {text:?}");
    };
    for form in ["table", "wide", "matrix", "dot", "svg", "html"] {
        check(&["-o", form]);
    }
    for form in ["table", "md", "csv", "json", "jsonl", "yaml"] {
        check(&["-o", form]);
        check(&["-o", form, "--pairs"]);
    }
    let graph = hostile(&["-o", "dot"]);
    assert!(graph.contains(r#"a|b\"#), "{graph}");
    assert!(!graph.contains(r#"b"␛"#), "{graph}");
}

#[test]
fn the_same_objects_print_the_same() {
    for form in ["table", "json", "csv", "html", "svg", "dot", "matrix"] {
        let once = run(CLUSTER, &["-o", form]).out;
        assert_eq!(once, run(CLUSTER, &["-o", form]).out, "{form}");
    }
}

#[test]
fn help_has_examples_and_the_manual_has_the_command() {
    let palisade = |args: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_palisade"))
            .args(args)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let help = palisade(&["connectivity", "--help"]);
    assert!(
        help.contains("Examples:") && help.contains("--max-blocks"),
        "{help}"
    );
    assert!(palisade(&["man"]).contains("palisade\\-connectivity"));
    assert!(palisade(&["completion", "bash"]).contains("palisade__subcmd__connectivity"));
}
