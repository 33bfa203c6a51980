//! What is answered on a cluster is what is answered from the same objects in files.

use std::process::Command;

use serde_json::{Value, json};

use crate::bed::{Bed, Ran, root, run};

const PORTS: [&str; 7] = [
    "tcp/9101", "tcp/8080", "tcp/9000", "tcp/9100", "tcp/5432", "udp/53", "icmp",
];

/// Every flow between two of these.
fn flows(endpoints: &[String]) -> String {
    let mut text = String::new();
    for source in endpoints.iter().filter(|it| !it.contains("/svc/")) {
        for destination in endpoints {
            for port in PORTS {
                text += &format!("{source} {destination} {port}\n");
            }
        }
    }
    text
}

/// Everyone in a file.
fn endpoints(bed: &Bed) -> Vec<String> {
    let all: Value = serde_json::from_str(&std::fs::read_to_string(&bed.file).unwrap()).unwrap();
    let mut endpoints = vec!["203.0.113.7".to_owned()];
    for item in all["items"].as_array().unwrap() {
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (
            text(&item["metadata"]["namespace"]),
            text(&item["metadata"]["name"]),
        );
        match item["kind"].as_str().unwrap() {
            "Pod" => endpoints.push(format!("{namespace}/{name}")),
            "Deployment" => endpoints.push(format!("{namespace}/deploy/{name}")),
            "Node" => endpoints.push(format!("node/{name}")),
            "Service" if namespace != "default" => {
                endpoints.push(format!("{namespace}/svc/{name}"));
                endpoints.push(text(&item["spec"]["clusterIP"]));
            }
            _ => {}
        }
    }
    endpoints
}

/// Answers without the places of rules, which differ.
fn placeless(value: &mut Value) {
    if let Value::Object(map) = value {
        // An object of a cluster is edited by a patch of its own, and a new one has no file to go
        // into.
        let places = ["file", "line", "column", "endLine", "endColumn"];
        let edits = ["newFile", "patch", "action", "changes"];
        for key in places.into_iter().chain(edits) {
            map.remove(key);
        }
        map.values_mut().for_each(placeless);
    } else if let Value::Array(items) = value {
        items.iter_mut().for_each(placeless);
    }
}

fn answers(ran: &Ran) -> Vec<Value> {
    let read = |line: &str| {
        let mut value: Value = serde_json::from_str(line).unwrap();
        placeless(&mut value);
        value
    };
    ran.out.lines().map(read).collect()
}

fn explain_same(bed: &Bed, at_least: usize) {
    let flows = bed.write("flows.txt", &flows(&endpoints(bed)));
    let form = ["--flows", &flows, "-o", "jsonl", "-v"];
    let live = bed.palisade(&[&["explain"], form.as_slice()].concat());
    let file = bed.palisade(&[&["explain", "-f", bed.file()], form.as_slice()].concat());
    assert_eq!(live.code, file.code, "{}\n{}", live.err, file.err);
    let (live, file) = (answers(&live), answers(&file));
    assert_eq!(live.len(), file.len());
    assert!(live.len() >= at_least, "{}", live.len());
    for (live, file) in live.iter().zip(&file) {
        assert_eq!(live, file);
    }
    let verdict = |what: &str| live.iter().filter(|it| it["verdict"] == what).count();
    assert!(verdict("Allow") > 50, "{}", verdict("Allow"));
    assert!(verdict("Deny") > 50, "{}", verdict("Deny"));
}

pub(crate) fn explain(bed: &Bed) {
    explain_same(bed, 500);
    // And what the example says without a server.
    let flow = ["shop/web-0", "shop/api-0", "tcp/9000", "-o", "json"];
    let live = bed.palisade(&[&["explain"], flow.as_slice()].concat());
    let example =
        bed.palisade(&[&["explain", "-R", "-f", "examples/shop"], flow.as_slice()].concat());
    assert_eq!(
        (live.code, example.code),
        (0, 0),
        "{}\n{}",
        live.err,
        example.err
    );
    let read = |ran: &Ran| {
        let mut value: Value = serde_json::from_str(&ran.out).unwrap();
        placeless(&mut value);
        value
    };
    assert_eq!(read(&live), read(&example));
}

pub(crate) fn tenants(bed: &Bed) {
    explain_same(bed, 500);
    let ran = bed.palisade(&["explain", "blue/api-0", "blue/web-0", "tcp/8080"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    let rule = "cnp/closed-by-default#egress[0] (everywhere) denies it";
    assert!(ran.out.contains(rule), "{}", ran.out);
    assert!(
        ran.out.contains("at cluster:cnp/closed-by-default:"),
        "{}",
        ran.out
    );
    assert!(ran.out.contains("| - action: Deny\n"), "{}", ran.out);
    assert!(ran.out.contains("|   name: everywhere\n"), "{}", ran.out);
}

pub(crate) fn others(bed: &Bed) {
    for arguments in [
        ["connectivity", "-o", "json"].as_slice(),
        &["connectivity", "--summary", "-o", "json"],
        &["connectivity", "--to", "shop/deploy/db", "-o", "csv"],
        &["affecting", "shop/web-0", "-o", "json"],
        &["affecting", "netpol/shop/default-deny", "-o", "json"],
        &["compile", "--node", "n1"],
    ] {
        let live = bed.palisade(arguments);
        let file = bed.palisade(&[arguments, &["-f", bed.file()]].concat());
        assert_eq!(live.code, 0, "{arguments:?}: {}", live.err);
        assert_eq!(file.code, 0, "{arguments:?}: {}", file.err);
        if arguments[0] == "affecting" {
            let read = |ran: &Ran| {
                let mut value: Value = serde_json::from_str(&ran.out).unwrap();
                placeless(&mut value);
                value
            };
            assert_eq!(read(&live), read(&file), "{arguments:?}");
        } else {
            assert_eq!(live.out, file.out, "{arguments:?}");
        }
        assert!(live.out.len() > 50, "{arguments:?}: {}", live.out);
    }
}

/// Lets everyone reach the metrics.
const OPEN: &str = r"
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: open-metrics, namespace: shop}
spec:
  podSelector: {matchLabels: {app: api}}
  ingress:
  - ports:
    - port: metrics
";

/// Both as files: those of the cluster that no file has, and the files.
fn both(bed: &Bed, gone: &[(&str, &str)]) -> String {
    let mut all: Value =
        serde_json::from_str(&std::fs::read_to_string(&bed.file).unwrap()).unwrap();
    let items = all["items"].as_array_mut().unwrap();
    let n_before = items.len();
    items.retain(|it| {
        let is =
            |(kind, name): &(&str, &str)| it["kind"] == *kind && it["metadata"]["name"] == *name;
        !gone.iter().any(is)
    });
    assert_eq!(items.len() + gone.len(), n_before);
    bed.write("rest.json", &all.to_string())
}

fn overlay_same(bed: &Bed, new: &str, gone: &[(&str, &str)]) -> (Vec<Value>, Vec<Value>) {
    let new = bed.write("new.yaml", new);
    let rest = both(bed, gone);
    let flows = bed.write("flows.txt", &flows(&endpoints(bed)));
    let form = ["--flows", &flows, "-o", "jsonl", "-v"];
    let over = ["explain", "--with-cluster", "-f", &new];
    let over = bed.palisade(&[over.as_slice(), &form].concat());
    let files = ["explain", "-f", &new, "-f", &rest];
    let files = bed.palisade(&[files.as_slice(), &form].concat());
    let before = bed.palisade(&[&["explain"], form.as_slice()].concat());
    assert_eq!(over.code, files.code, "{}\n{}", over.err, files.err);
    let (over, files) = (answers(&over), answers(&files));
    assert_eq!(over.len(), files.len());
    for (over, files) in over.iter().zip(&files) {
        assert_eq!(over, files);
    }
    (answers(&before), over)
}

fn n_changed(before: &[Value], after: &[Value]) -> usize {
    let pairs = before.iter().zip(after);
    pairs.filter(|(a, b)| a["verdict"] != b["verdict"]).count()
}

pub(crate) fn overlay(bed: &Bed) {
    let (before, after) = overlay_same(bed, OPEN, &[]);
    assert!(n_changed(&before, &after) > 0);
    // Two files that say the same object are still a mistake.
    let one = bed.write("one.yaml", OPEN);
    let other = bed.write("other.yaml", OPEN);
    let ran = bed.palisade(&[
        "explain",
        "--with-cluster",
        "-f",
        &one,
        "-f",
        &other,
        "shop/web-0",
        "shop/api-0",
        "tcp/80",
    ]);
    assert_eq!(ran.code, 2, "{}", ran.out);
    assert!(ran.err.contains("DUPLICATE-OBJECT"), "{}", ran.err);
}

pub(crate) fn replaced(bed: &Bed) {
    // The policy that closes everything opens it.
    let policy = r"
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: default-deny, namespace: shop}
spec:
  podSelector: {}
  policyTypes: [Ingress, Egress]
  ingress: [{}]
  egress: [{}]
";
    let gone = [("NetworkPolicy", "default-deny")];
    let (before, after) = overlay_same(bed, policy, &gone);
    assert!(n_changed(&before, &after) > 0);
    let new = bed.write("new.yaml", policy);
    let ran = bed.palisade(&["check", "--with-cluster", "-f", &new]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(
        ran.out.contains("in 1 file over the cluster: no problems"),
        "{}",
        ran.out
    );
}

pub(crate) fn shown(bed: &Bed) {
    let ran = bed.palisade(&["explain", "shop/web-0", "shop/api-0", "tcp/9000"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("at cluster:netpol/shop/"), "{}", ran.out);
    assert!(ran.out.contains("| - from:\n"), "{}", ran.out);
}

pub(crate) fn check(bed: &Bed) {
    let ran = bed.palisade(&["check", "-o", "json"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    let answer: Value = serde_json::from_str(&ran.out).unwrap();
    let all: Value = serde_json::from_str(&std::fs::read_to_string(&bed.file).unwrap()).unwrap();
    let items = all["items"].as_array().unwrap();
    let n_policies = items.iter().filter(|it| it["kind"] == "NetworkPolicy");
    assert_eq!(
        answer["objects"],
        json!({"NetworkPolicy": n_policies.count()})
    );
    assert_eq!(answer.get("unread"), None);
    let ran = bed.palisade(&["check", "-n", "monitoring"]);
    assert_eq!(
        ran.out, "0 objects in the cluster: no problems\n",
        "{}",
        ran.err
    );
}

pub(crate) fn lab(bed: &Bed) {
    let flows = "shop/web-0 shop/api-0 tcp/9000\nshop/api-0 shop/web-0 tcp/9000\n";
    let flows = bed.write("lab-flows.txt", flows);
    let ran = bed.palisade(&["lab", "--flows", &flows]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(
        ran.out
            .contains("1 allowed, 1 denied; all predictions match the packets"),
        "{}",
        ran.out
    );
    let ran = bed.palisade(&["lab", "--watch"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("--watch follows files"), "{}", ran.err);
}

pub(crate) fn plugin(bed: &Bed) {
    let directory = bed.directory.path().join("bin");
    std::fs::create_dir_all(&directory).unwrap();
    let link = directory.join("kubectl-palisade");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_palisade"), &link).unwrap();
    let kubectl = |arguments: &[&str]| {
        let mut command = Command::new(bed.api.kubectl().get_program());
        command.arg("palisade").args(arguments).current_dir(root());
        command.env("PATH", &directory);
        command.env("KUBECONFIG", bed.api.kubeconfig());
        run(command, "")
    };
    let flow = ["explain", "shop/web-0", "shop/api-0", "tcp/9000"];
    let (ran, own) = (kubectl(&flow), bed.palisade(&flow));
    assert_eq!((ran.code, &ran.out), (0, &own.out), "{}", ran.err);
    let ran = kubectl(&["explain", "--help"]);
    assert!(
        ran.out
            .contains("Usage: kubectl palisade explain [OPTIONS]"),
        "{}",
        ran.out
    );
    let ran = kubectl(&["explain"]);
    assert_eq!(ran.code, 2);
    assert!(
        ran.err.contains("Usage: kubectl palisade explain"),
        "{}",
        ran.err
    );
}

/// The cluster is as the files say, and what files would change in it is what they change in files.
pub(crate) fn diff(bed: &Bed) {
    let ran = bed.palisade(&["diff", "cluster", bed.file(), "-v"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert_eq!(ran.out, "no object differs\n", "{}", ran.err);
    let new = bed.write(
        "open.yaml",
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: open, namespace: shop}\n\
         spec: {podSelector: {matchLabels: {app: db}}, ingress: [{ports: [{port: 5432}]}]}\n",
    );
    let read = |ran: &Ran| {
        assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
        let value: Value = serde_json::from_str(&ran.out).unwrap();
        value
    };
    let live = bed.palisade(&["diff", "cluster", "-f", &new, "-o", "json"]);
    let file = bed.palisade(&["diff", bed.file(), "-f", &new, "-o", "json"]);
    assert_eq!(read(&live), read(&file));
    assert_eq!(read(&live)["gained"][0]["causedBy"], "netpol/shop/open");
    assert_eq!(
        read(&live)["gained"][0]["newRule"],
        "netpol/shop/open#ingress[0]"
    );
}
