//! Palisade on a whole cluster: installed by our manifests, with real kubelets, pods and packets. Needs the programs of the
//! testbed, containerd and root; says so where they are not. As long as one likes: `palisade-bench whole`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    dead_code,
    reason = "a test fails by panicking, and shares what it needs with others"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use palisade_bench::whole::campaign::{Report, change, clear, closed, of, one_way, replace_agents};
use palisade_bench::whole::packets::{Echoes, differences, measured};
use palisade_bench::whole::pods::{Pod, object};
use palisade_bench::whole::policies::{APPS, Changes, NAMESPACES};
use palisade_bench::whole::traffic::during;
use palisade_bench::whole::{Whole, until};
use palisade_testbed::{cluster_available, group};
use serde_json::{Value, json};

fn main() -> ExitCode {
    group(
        "cluster",
        &cluster_available(),
        vec![("a cluster from installing to uninstalling", life)],
    )
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The program that is installed, built if it is not there.
fn palisade() -> PathBuf {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--locked", "-p", "palisade"]);
    assert!(build.current_dir(root()).status().unwrap().success());
    let own = PathBuf::from(env!("CARGO_BIN_EXE_palisade-bench"));
    own.with_file_name("palisade")
}

fn life() {
    let mut whole = Whole::install(&palisade(), &root().join("deploy"), 2).unwrap();
    let pods = whole.start_pods(&NAMESPACES, &APPS, 2).unwrap();
    let echoes = Echoes::start(&pods).unwrap();

    random_changes(&whole, &pods);
    replaced_agents(&whole, &pods);
    probes(&whole);
    audited(&whole);
    outage(&mut whole, &pods);
    drop(echoes);
    drained(&whole, &pods);
    uninstalled(&whole);
}

/// Packets do what is explained.
fn random_changes(whole: &Whole, pods: &[Pod]) {
    let seed = std::env::var("CLUSTER_SEED").ok();
    let seed = seed.map_or(1, |it| it.parse().expect("a number"));
    println!("CLUSTER_SEED={seed}");
    let mut report = Report::default();
    let mut changes = Changes::new(seed);
    change(whole, pods, &mut changes, 12, &mut report).unwrap();
    clear(whole, &mut changes).unwrap();
    println!("{report}");
    assert!(report.is_right(), "{report}");
}

/// Agents are replaced, and no packet notices.
fn replaced_agents(whole: &Whole, pods: &[Pod]) {
    let mut report = Report::default();
    replace_agents(whole, pods, 2, &mut report).unwrap();
    println!("{report}");
    assert!(report.is_right(), "{report}");
    assert!(report.allowed.sent > 100 && report.denied.sent > 100);
}

/// A kubelet reaches the pods of its node whatever policies say (D74).
fn probes(whole: &Whole) {
    let closed = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"namespace": "x", "name": "closed"},
        "spec": {"podSelector": {"matchLabels": {"app": "probed"}}, "policyTypes": ["Ingress", "Egress"]},
    });
    whole.apply(&closed).unwrap();
    let mut pod = object("x", "x-probed", "probed", 1);
    let container = &mut pod["spec"]["containers"][0];
    container["args"] = json!(["netexec", "--http-port=8080"]);
    container["readinessProbe"] =
        json!({"httpGet": {"port": 8080, "path": "/"}, "periodSeconds": 1, "failureThreshold": 1});
    whole.apply(&pod).unwrap();
    let words = ["-n", "x", "wait", "--for=condition=Ready", "--timeout=120s"];
    whole
        .kubectl(&[&words[..], &["pod/x-probed"]].concat())
        .unwrap();
    whole.delete(&pod).unwrap();
    whole.delete(&closed).unwrap();
}

/// While the API server is away, what is known is enforced; what was written meanwhile is caught up with.
fn outage(whole: &mut Whole, pods: &[Pod]) {
    let policy = one_way("x");
    whole.apply(&policy).unwrap();
    closed(pods).unwrap();
    let [web, db, client] = ["web", "db", "client"].map(|app| of(pods, "x", app).unwrap().clone());
    let api = whole.cluster.api_mut();
    let ((), streams) = during(&[(&db, &web), (&client, &web)], || {
        api.stop_server();
        std::thread::sleep(Duration::from_secs(10));
        Ok(api.start_server()?)
    })
    .unwrap();
    assert_eq!(
        streams[0].sent, streams[0].arrived,
        "allowed packets were lost"
    );
    assert_eq!(streams[1].arrived, 0, "denied packets leaked");
    whole.delete(&policy).unwrap();
    until("the change is caught up with", || {
        let explained = whole.explained(pods)?;
        Ok(differences(&explained, &measured(pods)?).is_empty())
    })
    .unwrap();
}

/// Pods that leave a node and come back, under other addresses, find their policies there.
fn drained(whole: &Whole, pods: &[Pod]) {
    let policy = one_way("x");
    whole.apply(&policy).unwrap();
    closed(pods).unwrap();
    let words = [
        "drain",
        "n1",
        "--ignore-daemonsets",
        "--force",
        "--timeout=120s",
    ];
    whole
        .kubectl(&[&words[..], &["--delete-emptydir-data"]].concat())
        .unwrap();
    whole.kubectl(&["uncordon", "n1"]).unwrap();
    let gone: Vec<&Pod> = pods
        .iter()
        .filter(|it| it.address.to_string().starts_with("10.200.1."))
        .collect();
    assert!(!gone.is_empty());
    for pod in &gone {
        let app = pod.name.rsplit('-').next().unwrap();
        whole
            .apply(&object(&pod.namespace, &pod.name, app, 1))
            .unwrap();
    }
    let pods = whole.running(pods.len()).unwrap();
    let _echoes = Echoes::start(&pods).unwrap();
    until("packets of the new pods do what is explained", || {
        let explained = whole.explained(&pods)?;
        Ok(differences(&explained, &measured(&pods)?).is_empty())
    })
    .unwrap();
    whole.delete(&policy).unwrap();
}

/// The agent used every right that it has, and none that it has not.
fn audited(whole: &Whole) {
    let log = whole.cluster.api().audit_log();
    let text = std::fs::read_to_string(log).unwrap();
    let mut used = BTreeSet::new();
    for line in text.lines() {
        let Ok(event) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        if event["user"]["username"] != "system:serviceaccount:palisade-system:palisade-agent" {
            continue;
        }
        let code = event["responseStatus"]["code"].as_u64().unwrap_or(0);
        assert!(code != 401 && code != 403, "refused: {line}");
        let resource = event["objectRef"]["resource"].as_str();
        if let Some(resource) = resource {
            let group = event["objectRef"]["apiGroup"].as_str().unwrap_or_default();
            let verb = event["verb"].as_str().unwrap();
            used.insert(format!("{verb} {resource}.{group}"));
        }
    }
    let role = whole
        .kubectl(&["get", "clusterrole", "palisade-agent", "-o", "json"])
        .unwrap();
    let role: Value = serde_json::from_str(&role).unwrap();
    let list = |value: &Value| -> Vec<String> {
        let items = value.as_array().into_iter().flatten();
        items.map(|it| it.as_str().unwrap().to_owned()).collect()
    };
    let mut granted = BTreeSet::new();
    for rule in role["rules"].as_array().unwrap() {
        for group in list(&rule["apiGroups"]) {
            for resource in list(&rule["resources"]) {
                for verb in list(&rule["verbs"]) {
                    granted.insert(format!("{verb} {resource}.{group}"));
                }
            }
        }
    }
    assert_eq!(used, granted, "used, and granted");
}

/// What was installed is gone from the kernels and from the API.
fn uninstalled(whole: &Whole) {
    for node in [1, 2] {
        assert!(whole.tables(node).unwrap().contains("palisade"));
    }
    println!("{}", whole.clean_up().unwrap());
    for node in [1, 2] {
        let left = whole.tables(node).unwrap();
        assert!(!left.contains("palisade"), "{left}");
    }
    whole.uninstall().unwrap();
    for kind in ["clusterroles", "clusterrolebindings", "crds", "namespaces"] {
        let left = whole.kubectl(&["get", kind, "-o", "name"]).unwrap();
        let ours = |line: &&str| line.contains("palisade") || line.contains("policy.networking");
        let left: Vec<&str> = left.lines().filter(ours).collect();
        assert_eq!(left, Vec::<&str>::new(), "{kind}");
    }
}
