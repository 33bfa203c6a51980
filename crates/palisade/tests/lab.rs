//! `palisade lab` and `palisade compile` as people and scripts use them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

use palisade_need::{Need, run, tests};
use serde_json::Value;

fn main() -> ExitCode {
    let plain = tests![
        a_node_is_compiled,
        compile_wants_to_know_the_node,
        words_of_authors_stay_in_comments,
    ];
    let labs = tests![
        needs [Need::NAMESPACES]:
        the_examples_are_as_predicted,
        flows_are_measured_in_their_order,
        a_block_with_exceptions_of_many_lengths_is_enforced,
        every_form_says_the_same,
        an_interrupted_lab_is_gone_at_once,
        queries_with_errors_are_in_the_matrix_too,
        a_lab_that_measures_nothing_has_not_answered,
    ];
    run(plain.into_iter().chain(labs))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

fn palisade(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_palisade"));
    command.args(args).current_dir(root()).output().unwrap()
}

/// What the lab prints.
fn lab(args: &[&str]) -> Output {
    palisade(&[&["lab"], args].concat())
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

fn the_examples_are_as_predicted() {
    for example in ["examples/shop", "examples/tenants"] {
        let output = lab(&["-f", example, "-o", "json"]);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{printed}");
        let report = json(&output);
        assert_eq!(report["apiVersion"], "palisade.dev/v1alpha1");
        assert_eq!(report["kind"], "LabReport");
        assert_eq!(report["differences"], 0);
        let probes = report["probes"].as_array().unwrap();
        assert!(probes.len() > 300, "{}", probes.len());
        for word in ["Allow", "Deny"] {
            let n = probes.iter().filter(|it| it["measured"] == word).count();
            assert!(n > 50, "{n} {word}");
        }
        for probe in probes {
            assert_eq!(probe["predicted"], probe["measured"], "{probe}");
        }
    }
}

fn flows_are_measured_in_their_order() {
    let directory = tempfile::tempdir().unwrap();
    let flows = directory.path().join("flows.txt");
    // Read off the policies: web may call api's http port, and only api the database.
    let text = "\
        shop/web-0 shop/api-0 tcp/9000   # web-to-api, api-from-web\n\
        shop/web-0 shop/db-0 tcp/5432\n\
        shop/api-0 shop/db-0 tcp/5432\n\
        shop/web-0 shop/missing tcp/80\n\
        node/n1 shop/api-0 tcp/1\n\
        shop/web-0 shop/web-0 udp/9\n\
        203.0.113.9 shop/web-0 tcp/8080\n\
        shop/web-0 shop/api-0 any        # one port of all\n\
        shop/db-0 shop/web-0 any\n\
        what is this\n";
    std::fs::write(&flows, text).unwrap();
    let flows = flows.to_str().unwrap();
    let output = lab(&["-f", "examples/shop", "--flows", flows, "-o", "json"]);
    // Two of them are errors.
    assert_eq!(output.status.code(), Some(2));
    let report = json(&output);
    let measured: Vec<&str> = report["probes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["measured"].as_str().unwrap_or("-"))
        .collect();
    assert_eq!(
        measured,
        [
            "Allow", "Deny", "Allow", "-", "Allow", "Allow", "Allow", "Mixed", "Deny", "-"
        ]
    );
    let unknown = &report["probes"][3];
    assert_eq!(unknown["predicted"], "Unknown");
    assert!(unknown["error"].as_str().unwrap().contains("missing"));
}

/// The kernel has room for so many questions in one rule.
fn a_block_with_exceptions_of_many_lengths_is_enforced() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("objects.yaml");
    let except: Vec<String> = (60..=110)
        .map(|it| format!("'fd00:9:0:0::/{it}'"))
        .collect();
    let text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: a, namespace: x}}\n\
         spec: {{nodeName: n1, containers: [{{name: c, image: i}}]}}\n\
         status: {{podIPs: [{{ip: 'fd00::1'}}]}}\n---\n\
         apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: p, namespace: x}}\n\
         spec: {{podSelector: {{}}, ingress: [{{from: [{{ipBlock: {{cidr: 'fd00:9::/32', except: [{}]}}}}], \
         ports: [{{port: 80, endPort: 90}}]}}]}}\n",
        except.join(", ")
    );
    std::fs::write(&file, text).unwrap();
    let flows = directory.path().join("flows.txt");
    std::fs::write(&flows, "fd00:9:1::1 x/a tcp/80\nfd00:9::1 x/a tcp/80\n").unwrap();
    let (file, flows) = (file.to_str().unwrap(), flows.to_str().unwrap());
    let output = lab(&["-f", file, "--flows", flows, "-o", "json"]);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{printed}");
    let report = json(&output);
    assert_eq!(report["probes"][0]["measured"], "Allow");
    assert_eq!(report["probes"][1]["measured"], "Deny");
}

fn every_form_says_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let flows = directory.path().join("flows.txt");
    std::fs::write(&flows, "shop/web-0 shop/api-0 tcp/9000\n").unwrap();
    let flows = flows.to_str().unwrap();
    for form in ["table", "wide", "json", "jsonl", "yaml"] {
        let args = ["-f", "examples/shop", "--flows", flows, "-o", form];
        let output = lab(&args);
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{form}");
        assert!(text.contains("shop/api-0"), "{form}: {text}");
        assert!(text.contains("Allow"), "{form}: {text}");
    }
}

fn an_interrupted_lab_is_gone_at_once() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_palisade"))
        .args(["lab", "-f", "examples/shop", "-o", "json"])
        .current_dir(root())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(60));
    let id = child.id().to_string();
    // It may have ended by itself already.
    let _ = Command::new("kill").args(["-INT", &id]).status();
    let deadline = Instant::now() + Duration::from_secs(20);
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "it is still there");
        std::thread::sleep(Duration::from_millis(10));
    }
    // Namespaces exist in its open files only: nothing can be left of them.
    assert!(!Path::new("/proc").join(id).join("ns/net").exists());
}

fn a_node_is_compiled() {
    let args = ["compile", "-f", "examples/shop", "--node", "n1"];
    let output = palisade(&args);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    // api-0 runs there, and its ingress is what web may call.
    assert!(text.contains("10.20.1.11 : jump to-10.20.1.11"), "{text}");
    assert!(text.contains("# netpol/shop/api-from-web#ingress[0]"));
    // db-0 does not exist yet, and web-1 runs on n2.
    assert!(!text.contains("jump to-10.20.2.10"), "{text}");
    // The same objects give the same text.
    assert_eq!(palisade(&args).stdout, text.as_bytes());
}

fn compile_wants_to_know_the_node() {
    let output = palisade(&["compile", "-f", "examples/shop"]);
    assert_eq!(output.status.code(), Some(2));
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(printed.contains("`n1`, `n2`"), "{printed}");
    let output = palisade(&["compile", "-f", "examples/shop", "--node", "n3"]);
    assert_eq!(output.status.code(), Some(2));
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        printed.contains("node `n3` not found; did you mean"),
        "{printed}"
    );
}

fn words_of_authors_stay_in_comments() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("objects.yaml");
    let name = r#""x\n\t\taccept\" } # \e[31m""#;
    let text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: a, namespace: x, labels: {{app: a}}}}\n\
         spec: {{nodeName: n1, containers: [{{name: c, image: i}}]}}\nstatus: {{podIP: 10.0.0.1}}\n---\n\
         apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n\
         metadata: {{name: {name}, namespace: x}}\n\
         spec: {{podSelector: {{}}, ingress: [{{ports: [{{port: 80}}]}}]}}\n"
    );
    std::fs::write(&file, text).unwrap();
    let output = palisade(&["compile", "-q", "--lenient", "-f", file.to_str().unwrap()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("# netpol/x/"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
    let written = |line: &str| line.split(" # ").next().unwrap().contains("accept\"");
    assert!(!text.lines().any(written), "{text}");
    assert!(
        !text.lines().any(|line| line.trim() == "accept\" } #"),
        "{text}"
    );
}

/// The node is only a name, and names have no address to send to.
const POD_ON_A_NAME: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: x, labels: {app: a}}
spec: {nodeName: n1, containers: [{name: c, image: i}]}
status: {phase: Running, podIPs: [{ip: 10.0.0.1}]}
";

fn queries_with_errors_are_in_the_matrix_too() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("objects.yaml");
    std::fs::write(&file, POD_ON_A_NAME).unwrap();
    let file = file.to_str().unwrap();
    let output = lab(&["-f", file]);
    // The user did not write it: it is no mistake.
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    let printed = "the node `n1` has no Node object in the input; add it";
    let line = text.lines().find(|line| line.contains(printed));
    let line = line.unwrap_or_else(|| panic!("{text}"));
    assert!(line.starts_with("not measured: x/a -> node/n1"), "{line}");
    // No pod here has an address of IPv6, which needs no word.
    assert!(!text.contains("share no address family"), "{text}");
}

fn a_lab_that_measures_nothing_has_not_answered() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("objects.yaml");
    std::fs::write(
        &file,
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n",
    )
    .unwrap();
    let output = lab(&["-f", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(printed.contains("no flow could be measured"), "{printed}");
}
