//! Users who may not read everything, and servers that cannot be reached.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::bed::Bed;

/// A user with some rights: API groups and resources, in a namespace or everywhere.
fn user(bed: &Bed, name: &str, within: Option<&str>, rights: &[(&str, &[&str])]) -> PathBuf {
    let rules: Vec<Value> = rights
        .iter()
        .map(|(group, resources)| json!({"apiGroups": [group], "resources": resources, "verbs": ["get", "list"]}))
        .collect();
    let (role, binding) = match within {
        None => ("ClusterRole", "ClusterRoleBinding"),
        Some(_) => ("Role", "RoleBinding"),
    };
    let api = "rbac.authorization.k8s.io";
    let mut metadata = json!({"name": name});
    if let Some(namespace) = within {
        metadata["namespace"] = json!(namespace);
    }
    bed.apply(&json!({"apiVersion": format!("{api}/v1"), "kind": role, "metadata": metadata, "rules": rules}));
    bed.apply(&json!({
        "apiVersion": format!("{api}/v1"), "kind": binding, "metadata": metadata,
        "roleRef": {"apiGroup": api, "kind": role, "name": name},
        "subjects": [{"apiGroup": api, "kind": "User", "name": name}]
    }));
    let kubeconfig = bed.api.kubeconfig_for(name, &[]).unwrap();
    // Rights need a moment to be known.
    for _ in 0..100 {
        let (group, resources) = rights[0];
        let what = match group {
            "" => resources[0].to_owned(),
            group => format!("{}.{group}", resources[0]),
        };
        let mut ask = std::process::Command::new(bed.api.kubectl().get_program());
        ask.arg("--kubeconfig").arg(&kubeconfig);
        ask.args(["get", &what]);
        if let Some(namespace) = within {
            ask.args(["-n", namespace]);
        }
        if ask.output().unwrap().status.success() {
            return kubeconfig;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("{name} never got its rights");
}

const FLOW: [&str; 4] = ["explain", "shop/web-0", "shop/api-0", "tcp/9000"];
const CORE: (&str, &[&str]) = ("", &["pods", "namespaces", "nodes"]);
const NETWORK_POLICIES: (&str, &[&str]) = ("networking.k8s.io", &["networkpolicies"]);
const ADMIN: (&str, &[&str]) = ("policy.networking.k8s.io", &["clusternetworkpolicies"]);

pub(crate) fn no_rights(bed: &Bed) {
    let kubeconfig = bed.api.kubeconfig_for("jane", &[]).unwrap();
    let ran = bed.palisade_as(&kubeconfig, &FLOW);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    let expected = "palisade: cannot answer: the server refuses to list pods: pods is forbidden: User \"jane\" cannot list";
    assert!(ran.err.starts_with(expected), "{}", ran.err);
    // Not even who is willing to accept a wrong answer gets one.
    let ran = bed.palisade_as(&kubeconfig, &[FLOW.as_slice(), &["--lenient"]].concat());
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    let ran = bed.palisade_as(&kubeconfig, &["check"]);
    assert_eq!(ran.code, 2);
    assert!(
        ran.err
            .contains("palisade: cannot read networkpolicies.networking.k8s.io of the cluster"),
        "{}",
        ran.err
    );
}

pub(crate) fn without_admin_policies(bed: &Bed) {
    let kubeconfig = user(bed, "developer", None, &[CORE, NETWORK_POLICIES]);
    let ran = bed.palisade_as(&kubeconfig, &FLOW);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{}", ran.err);
    let expected = "palisade: cannot read ClusterNetworkPolicies; the verdicts ignore them: ";
    assert!(ran.err.contains(expected), "{}", ran.err);
    assert!(ran.err.contains("--lenient"), "{}", ran.err);
    let lenient = bed.palisade_as(&kubeconfig, &[FLOW.as_slice(), &["--lenient"]].concat());
    assert_eq!(lenient.code, 0, "{}", lenient.err);
    assert!(lenient.err.contains(expected), "{}", lenient.err);
    assert_eq!(lenient.out, bed.palisade(&FLOW).out);
    let form = ["--lenient", "-o", "json"];
    let ran = bed.palisade_as(&kubeconfig, &[FLOW.as_slice(), &form].concat());
    let answer: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(answer["verdict"], "Allow");
    let unread = answer["unread"].as_array().unwrap();
    let resource = "clusternetworkpolicies.policy.networking.k8s.io";
    let entry = unread.iter().find(|it| it["resource"] == resource).unwrap();
    assert!(
        entry["reason"].as_str().unwrap().contains("developer"),
        "{entry}"
    );
}

pub(crate) fn one_namespace(bed: &Bed) {
    let rights: [(&str, &[&str]); 2] = [("", &["pods", "services"]), NETWORK_POLICIES];
    let kubeconfig = user(bed, "shopkeeper", Some("shop"), &rights);
    let ran = bed.palisade_as(&kubeconfig, &FLOW);
    assert_eq!(ran.code, 2);
    assert!(
        ran.err.contains("to read one namespace, add -n NS"),
        "{}",
        ran.err
    );
    let within = ["-n", "shop", "--lenient"];
    let ran = bed.palisade_as(&kubeconfig, &[FLOW.as_slice(), &within].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(
        ran.err
            .contains("the server lists Pods, NetworkPolicies, Services in `shop` only"),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("cannot read Namespaces"), "{}", ran.err);
    // Who may get the one namespace does not need to list all.
    let ran = bed.palisade_as(&kubeconfig, &["check", "-n", "shop"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
}

pub(crate) fn without_services(bed: &Bed) {
    let kubeconfig = user(bed, "auditor", None, &[CORE, NETWORK_POLICIES, ADMIN]);
    let ran = bed.palisade_as(&kubeconfig, &FLOW);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    let ran = bed.palisade_as(
        &kubeconfig,
        &["explain", "shop/web-0", "shop/svc/api", "tcp/80"],
    );
    assert_eq!(ran.code, 2);
    assert!(
        ran.err.contains("palisade: cannot read Services"),
        "{}",
        ran.err
    );
    let ran = bed.palisade_as(&kubeconfig, &["connectivity", "--summary"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(
        ran.err.contains("palisade: cannot read Services"),
        "{}",
        ran.err
    );
}

pub(crate) fn impersonation(bed: &Bed) {
    let _ = user(bed, "auditor", None, &[CORE, NETWORK_POLICIES, ADMIN]);
    let ran = bed.palisade(&[FLOW.as_slice(), &["--as", "auditor"]].concat());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    let ran = bed.palisade(&[FLOW.as_slice(), &["--as", "stranger"]].concat());
    assert_eq!(ran.code, 2);
    assert!(
        ran.err.contains("User \"stranger\" cannot list"),
        "{}",
        ran.err
    );
    let masters = ["--as", "stranger", "--as-group", "system:masters"];
    let ran = bed.palisade(&[FLOW.as_slice(), &masters].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
}

fn changed(bed: &Bed, name: &str, from: &str, to: &str) -> String {
    let text = std::fs::read_to_string(bed.api.kubeconfig()).unwrap();
    assert!(text.contains(from), "{text}");
    bed.write(name, &text.replace(from, to))
}

#[track_caller]
fn fails(bed: &Bed, more: &[&str], expected: &[&str]) {
    let ran = bed.palisade(&[FLOW.as_slice(), more].concat());
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    for expected in expected {
        assert!(ran.err.contains(expected), "{expected}: {}", ran.err);
    }
}

pub(crate) fn broken(bed: &Bed) {
    let url = bed.api.url();
    let away = changed(bed, "away.kubeconfig", &url, "https://127.0.0.1:1");
    fails(
        bed,
        &["--kubeconfig", &away],
        &[
            "Connection refused",
            "https://127.0.0.1:1",
            "is the right one and runs",
        ],
    );
    fails(
        bed,
        &["--context", "elsewhere"],
        &["elsewhere", "kubectl config get-contexts"],
    );
    fails(bed, &["--cluster", "elsewhere"], &["elsewhere"]);
    fails(bed, &["--user", "unknown"], &["unknown"]);
    fails(bed, &["--kubeconfig", "no-such-file"], &["no-such-file"]);
    let nonsense = bed.write("nonsense.kubeconfig", "a: [");
    fails(bed, &["--kubeconfig", &nonsense], &["kubeconfig"]);
    // A server that another authority has signed.
    let text = std::fs::read_to_string(bed.api.kubeconfig()).unwrap();
    let without: Vec<&str> = text
        .lines()
        .filter(|it| !it.contains("certificate-authority"))
        .collect();
    let stranger = bed.write("stranger.kubeconfig", &without.join("\n"));
    fails(
        bed,
        &["--kubeconfig", &stranger],
        &["certificate", "certificate authority of the kubeconfig"],
    );
    // A token that has expired, or never was one.
    let expired: Vec<&str> = text
        .lines()
        .filter(|it| !it.contains("client-key"))
        .map(|it| {
            if it.contains("client-certificate") {
                "    token: expired"
            } else {
                it
            }
        })
        .collect();
    let expired = bed.write("expired.kubeconfig", &expired.join("\n"));
    fails(
        bed,
        &["--kubeconfig", &expired],
        &["rejected the credentials", "log in again"],
    );
    // A server that says nothing.
    bed.api.pause();
    let started = std::time::Instant::now();
    let ran = bed.palisade(&[FLOW.as_slice(), &["--request-timeout", "500ms"]].concat());
    bed.api.resume();
    assert_eq!(ran.code, 2);
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
    assert!(ran.err.contains("no response from"), "{}", ran.err);
    let ran = bed.palisade_as(Path::new("/dev/null"), &FLOW);
    assert_eq!(ran.code, 2, "{}", ran.err);
}
