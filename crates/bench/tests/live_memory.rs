//! Objects that are created and deleted leave no memory allocated.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

use palisade_api::{Options, Source, key, lower_one, read};
use palisade_core::incremental::{HashKey, IncrementalPlanner};
use peak_alloc::PeakAlloc;
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const ROUNDS: usize = 10;
const PODS: usize = 1_500;

fn object(kind: &str, version: &str, namespace: &str, name: &str) -> Value {
    let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

/// Objects with names, labels and addresses of their own in every round.
fn round(number: usize) -> Vec<Value> {
    let mut objects = Vec::new();
    for i in 0..20 {
        let mut namespace = object("Namespace", "v1", "", &format!("space-{number:02}-{i:02}"));
        namespace["metadata"]["labels"] = json!({"team": format!("team-{number:02}-{i:02}")});
        objects.push(namespace);
    }
    for i in 0..PODS {
        let namespace = format!("space-{number:02}-{:02}", i % 20);
        let mut pod = object("Pod", "v1", &namespace, &format!("pod-{number:02}-{i:04}"));
        pod["metadata"]["labels"] = json!({"app": format!("app-{number:02}-{:04}", i / 3)});
        pod["metadata"]["creationTimestamp"] = json!("2024-01-01T00:00:00Z");
        pod["spec"] = json!({"nodeName": format!("node-{:02}", i % 31), "containers": [
            {"name": "c", "image": "i", "ports": [{"name": format!("p{number:02}"), "containerPort": 80}]}]});
        let address = format!("10.{number}.{}.{}", i / 250, 1 + i % 250);
        pod["status"] = json!({"phase": "Running", "podIPs": [{"ip": address}]});
        objects.push(pod);
    }
    for i in 0..60 {
        let namespace = format!("space-{number:02}-{:02}", i % 20);
        let name = format!("policy-{number:02}-{i:02}");
        let mut policy = object("NetworkPolicy", "networking.k8s.io/v1", &namespace, &name);
        policy["spec"] = json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"team": format!("team-{number:02}-{i:02}")}}}]}],
            "egress": [{"ports": [{"port": format!("p{number:02}")}]}]});
        objects.push(policy);
    }
    objects
}

#[test]
fn churn_leaves_nothing_behind() {
    let mut live = IncrementalPlanner::new("node-01", HashKey::new(1, 2));
    let mut kept = Vec::with_capacity(ROUNDS);
    for number in 0..ROUNDS {
        let text = serde_json::to_vec(&round(number)).unwrap();
        let sources = [Source::new("objects.json", text)];
        let manifests = read(&sources, Options::default(), &|_| {});
        let mut seen = 0;
        for (at, object) in manifests.objects.iter().enumerate() {
            assert!(live.set(key(object).unwrap(), &lower_one(object)));
            if at % 100 == 0 {
                seen += live.commit().chains.len();
            }
        }
        seen += live.commit().chains.len();
        assert!(seen > 20, "{seen}");
        for object in &manifests.objects {
            assert!(live.remove(key(object).unwrap()));
        }
        drop(live.commit());
        assert!(live.plan().pods.is_empty() && live.plan().groups.is_empty());
        drop(manifests);
        drop(sources);
        kept.push(ALLOCATOR.current_usage());
    }
    println!("{kept:?}");
    // The key is fixed: every run has the same figures. Each round has other names, whose places in
    // memory make half a percent of difference; a leak adds up round by round.
    let (early, late) = kept[1..].split_at(ROUNDS / 2);
    let (early, late) = (early.iter().max().unwrap(), late.iter().min().unwrap());
    assert!(late <= early, "{kept:?}");
}
