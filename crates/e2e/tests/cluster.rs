//! Palisade on a whole cluster: installed by our manifests, with real kubelets, pods and packets.
//! Needs the programs of the testbed, containerd and root. As long as one likes: `palisade-e2e
//! whole`. With PALISADE_IMAGE an archive of `deploy/image/build` is installed instead of the
//! program that was just built.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    dead_code,
    reason = "a test fails by panicking, and shares a cluster with others"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use palisade_e2e::attack::objects::{deep, not_text, policy_with_fields};
use palisade_e2e::attack::sent::spoofed;
use palisade_e2e::cluster::campaign::{
    Report, change, clear, closed, end_agents, of, one_way, replace_agents,
};
use palisade_e2e::cluster::console::block;
use palisade_e2e::cluster::outage::outage;
use palisade_e2e::cluster::packets::{Echoes, differences, measured};
use palisade_e2e::cluster::pods::{Pod, object};
use palisade_e2e::cluster::policies::{APPS, Changes, NAMESPACES};
use palisade_e2e::cluster::{E2eCluster, Installed, until};
use palisade_need::smallest::palisade;
use palisade_testbed::{CLUSTER, group};
use serde_json::{Value, json};

fn main() -> ExitCode {
    group(
        "cluster",
        CLUSTER,
        vec![("a cluster from installing to uninstalling", life)],
    )
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn life() {
    let installed = Installed {
        palisade: palisade(env!("CARGO_BIN_EXE_palisade-e2e")),
        image: std::env::var_os("PALISADE_IMAGE").map(PathBuf::from),
        deploy: root().join("deploy"),
    };
    let mut whole = E2eCluster::start(&installed, 2).unwrap();
    quick_start(&whole);
    let pods = whole.start_pods(&NAMESPACES, &APPS, 2).unwrap();
    let echoes = Echoes::start(&pods).unwrap();

    random_changes(&whole, &pods);
    attacked(&whole);
    replaced_agents(&whole, &pods);
    in_the_name_of_others(&whole, &pods);
    probes(&whole);
    assert_eq!(refused(&whole), Vec::<String>::new());
    forbidden(&whole, &pods);
    audited(&whole);
    away(&mut whole, &pods);
    drop(echoes);
    drained(&whole, &pods);
    uninstalled(&whole);
}

/// The commands of the page print what the page shows. They install Palisade, too.
fn quick_start(whole: &E2eCluster) {
    let page = std::fs::read_to_string(root().join("docs/operations/install.md")).unwrap();
    let shown = block(&page, "## Demonstration").unwrap();
    let began = Instant::now();
    whole.replay(&shown).unwrap();
    println!("the quick start took {:.1?}", began.elapsed());
}

/// Packets follow `explain`.
fn random_changes(whole: &E2eCluster, pods: &[Pod]) {
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

/// Agents are replaced while a tenant's objects exist: deeply nested ones, and bytes that are not
/// UTF-8. `palisade-e2e attack` runs longer, with more attacks.
fn attacked(whole: &E2eCluster) {
    whole.kubectl(&["create", "namespace", "tenant"]).unwrap();
    let binding = ["create", "rolebinding", "tenant", "-n", "tenant"];
    let user = ["--clusterrole=edit", "--user=tenant"];
    whole.kubectl(&[&binding[..], &user].concat()).unwrap();
    let tenant = whole.cluster.api().kubeconfig_for("tenant", &[]).unwrap();
    let path = "/apis/networking.k8s.io/v1/namespaces/tenant/networkpolicies";
    for (name, fields) in [("deep", deep(5_000)), ("bytes", not_text())] {
        let file = whole.cluster.directory().join(name);
        std::fs::write(&file, policy_with_fields(name, &fields)).unwrap();
        let (tenant, file) = (tenant.to_str().unwrap(), file.to_str().unwrap());
        let words = ["--kubeconfig", tenant, "create", "--raw", path, "-f", file];
        // A controller aggregates the role `edit`, with a delay.
        until("the tenant may write", || {
            whole.kubectl(&words).map(|_| true)
        })
        .unwrap();
    }
}

/// Packets of a pod in the name of an allowed client are dropped, on the same node and on another
/// one. Then what the tenant wrote is deleted.
fn in_the_name_of_others(whole: &E2eCluster, pods: &[Pod]) {
    let policy = one_way("x");
    whole.apply(&policy).unwrap();
    closed(pods).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_palisade-e2e"));
    let pod = |namespace, app| of(pods, namespace, app).unwrap();
    let (web, db) = (pod("x", "web"), pod("x", "db"));
    for (from, arrives) in [
        (db, true),
        (pod("y", "db"), false),
        (pod("y", "web"), false),
    ] {
        let stream = spoofed(program, from, db.address, web, 10).unwrap();
        let wanted = if arrives { stream.sent } else { 0 };
        assert_eq!(stream.arrived, wanted, "{}: {stream:?}", from.name);
    }
    whole.delete(&policy).unwrap();
    let words = ["delete", "namespace", "tenant", "--wait=false"];
    whole.kubectl(&words).unwrap();
}

/// Agents are replaced, and no packet notices.
fn replaced_agents(whole: &E2eCluster, pods: &[Pod]) {
    let mut report = Report::default();
    replace_agents(whole, pods, 2, &mut report).unwrap();
    println!("{report}");
    assert!(report.is_right(), "{report}");
    assert!(report.allowed.sent > 100 && report.denied.sent > 100);
}

/// A kubelet reaches the pods of its node regardless of policies (D74).
fn probes(whole: &E2eCluster) {
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

/// Without permission to read a kind, starting agents keep the installed table, and users see the
/// reason.
fn forbidden(whole: &E2eCluster, pods: &[Pod]) {
    let policy = one_way("x");
    whole.apply(&policy).unwrap();
    closed(pods).unwrap();
    let patch = r#"[{"op": "test", "path": "/rules/1/apiGroups/0", "value": "networking.k8s.io"}, {"op": "remove", "path": "/rules/1"}]"#;
    let words = ["patch", "clusterrole", "palisade-agent", "--type=json"];
    whole
        .kubectl(&[&words[..], &["-p", patch]].concat())
        .unwrap();
    end_agents(whole).unwrap();
    let began = Instant::now();
    for node in ["n1", "n2"] {
        until("the Event exists", || {
            let described = whole.kubectl(&["describe", "node", node])?;
            let line = described.lines().find(|it| it.contains("WatchForbidden"));
            Ok(line.is_some_and(|it| it.contains("Cannot read networkpolicies.networking.k8s.io")))
        })
        .unwrap();
    }
    println!("the Event came after {:.1?}", began.elapsed());
    closed(pods).unwrap();
    whole.apply_file("palisade.yaml").unwrap();
    whole.wait_for_agents().unwrap();
    whole.delete(&policy).unwrap();
}

/// During an outage of the API server the last objects are enforced; later changes take effect
/// after it.
fn away(whole: &mut E2eCluster, pods: &[Pod]) {
    let outage = outage(whole, pods, Duration::from_secs(10)).unwrap();
    println!("{outage}");
    assert!(outage.is_right(), "{outage}");
}

/// Pods that leave a node and come back, under other addresses, find their policies there.
fn drained(whole: &E2eCluster, pods: &[Pod]) {
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
    let deleted: Vec<&Pod> = pods
        .iter()
        .filter(|it| it.address.to_string().starts_with("10.200.1."))
        .collect();
    assert!(!deleted.is_empty());
    for pod in &deleted {
        let app = pod.name.rsplit('-').next().unwrap();
        whole
            .apply(&object(&pod.namespace, &pod.name, app, 1))
            .unwrap();
    }
    let pods = whole.running(pods.len()).unwrap();
    let _echoes = Echoes::start(&pods).unwrap();
    until("packets of the new pods follow explain", || {
        let explained = whole.explained(&pods)?;
        Ok(differences(&explained, &measured(&pods)?).is_empty())
    })
    .unwrap();
    whole.delete(&policy).unwrap();
}

/// The requests of the agents, from the server's audit log.
fn requests(whole: &E2eCluster) -> Vec<Value> {
    let text = std::fs::read_to_string(whole.cluster.api().audit_log()).unwrap();
    let events = text.lines().map(serde_json::from_str::<Value>);
    let account = "system:serviceaccount:palisade-system:palisade-agent";
    let is_agent = |it: &Value| it["user"]["username"] == account;
    events.filter_map(Result::ok).filter(is_agent).collect()
}

/// The requests of the agents that the server refused.
fn refused(whole: &E2eCluster) -> Vec<String> {
    let is_refused = |it: &&Value| {
        let code = &it["responseStatus"]["code"];
        code == 401 || code == 403
    };
    let all = requests(whole);
    all.iter()
        .filter(is_refused)
        .map(Value::to_string)
        .collect()
}

/// The agents used every right that they have, and none that they have not.
fn audited(whole: &E2eCluster) {
    let mut used = BTreeSet::new();
    for event in requests(whole) {
        let resource = event["objectRef"]["resource"].as_str();
        if let Some(resource) = resource {
            let group = event["objectRef"]["apiGroup"].as_str().unwrap_or_default();
            let namespace = event["objectRef"]["namespace"].as_str().unwrap_or_default();
            let verb = event["verb"].as_str().unwrap();
            used.insert(format!("{verb} {resource}.{group} {namespace}"));
        }
    }
    let mut granted = BTreeSet::new();
    for (namespace, words) in [
        ("", ["get", "clusterrole", "palisade-agent"].as_slice()),
        (
            "default",
            &["-n", "default", "get", "role", "palisade-agent-events"],
        ),
    ] {
        let role = whole.kubectl(&[words, &["-o", "json"]].concat()).unwrap();
        grants(
            &serde_json::from_str(&role).unwrap(),
            namespace,
            &mut granted,
        );
    }
    assert_eq!(used, granted, "used, and granted");
}

/// The permissions of a role.
fn grants(role: &Value, namespace: &str, granted: &mut BTreeSet<String>) {
    let list = |value: &Value| -> Vec<String> {
        let items = value.as_array().into_iter().flatten();
        items.map(|it| it.as_str().unwrap().to_owned()).collect()
    };
    for rule in role["rules"].as_array().unwrap() {
        for group in list(&rule["apiGroups"]) {
            for resource in list(&rule["resources"]) {
                for verb in list(&rule["verbs"]) {
                    granted.insert(format!("{verb} {resource}.{group} {namespace}"));
                }
            }
        }
    }
}

/// The installation is removed from the kernels and from the API.
fn uninstalled(whole: &E2eCluster) {
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
