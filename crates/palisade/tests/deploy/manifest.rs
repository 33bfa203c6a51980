//! `deploy/palisade.yaml`: what the agent is started with, and that it may do what it must and
//! nothing more.

use std::process::Command;

use serde_json::{Value, json};

use crate::objects::{Objects, objects};
use crate::{Test, agent_help, read, root};

pub(crate) const TESTS: [Test; 7] = [
    ("manifest_has_the_objects", has_the_objects),
    ("manifest_starts_the_agent_with_its_flags", starts_the_agent),
    ("manifest_gives_one_capability", gives_one_capability),
    (
        "manifest_lets_the_agent_read_and_nothing_else",
        lets_the_agent_read,
    ),
    ("manifest_has_roles_for_people", has_roles_for_people),
    ("cleanup_goes_to_every_node", cleanup_goes_to_every_node),
    ("versions_agree", versions_agree),
];

/// The objects of the plain manifest.
pub(crate) fn plain() -> Objects {
    objects(&read("deploy/palisade.yaml"))
}

fn agent_pod() -> Value {
    plain()["DaemonSet/palisade-agent"]["spec"]["template"]["spec"].clone()
}

/// The flags among words, without their values.
pub(crate) fn flags(words: &str) -> Vec<&str> {
    let words = words.split(|c: char| !(c.is_ascii_lowercase() || c == '-'));
    words
        .filter(|it| it.starts_with("--") && it.len() > 3)
        .collect()
}

fn has_the_objects() {
    let names: Vec<String> = plain().into_keys().collect();
    let expected = [
        "ClusterRole/palisade-agent",
        "ClusterRole/palisade-policy-admin",
        "ClusterRole/palisade-policy-viewer",
        "ClusterRoleBinding/palisade-agent",
        "DaemonSet/palisade-agent",
        "Namespace/palisade-system",
        "Role/palisade-agent-events",
        "RoleBinding/palisade-agent-events",
        "ServiceAccount/palisade-agent",
    ];
    assert_eq!(names, expected);
    // Our own reading of Namespaces and DaemonSets has nothing against them.
    let output = Command::new(env!("CARGO_BIN_EXE_palisade"))
        .args(["check", "-f", "deploy/palisade.yaml"])
        .current_dir(root())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}");
}

fn starts_the_agent() {
    let pod = agent_pod();
    let container = &pod["containers"][0];
    let arguments = json!(["agent", "--node=$(NODE_NAME)", "--listen=127.0.0.1:9477"]);
    assert_eq!(container["args"], arguments);
    let help = agent_help();
    for flag in flags(&arguments.to_string()) {
        assert!(help.contains(flag), "{flag} is no flag of the agent");
    }
    let name = json!([{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}}]);
    assert_eq!(container["env"], name);
    // Both probes ask where the agent listens, and the kubelet is on the node.
    assert_eq!(container["ports"][0]["containerPort"], 9477);
    for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
        let get = json!({"host": "127.0.0.1", "path": path, "port": "metrics", "scheme": "HTTP"});
        assert_eq!(container[probe]["httpGet"], get);
    }
    assert_eq!(pod["hostNetwork"], true);
    assert_eq!(pod["dnsPolicy"], "Default");
    assert_eq!(pod["tolerations"], json!([{"operator": "Exists"}]));
    assert_eq!(pod["priorityClassName"], "system-node-critical");
}

fn gives_one_capability() {
    let pod = agent_pod();
    let expected = json!({
        "privileged": false,
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]},
    });
    assert_eq!(pod["containers"][0]["securityContext"], expected);
    assert_eq!(
        pod["securityContext"]["seccompProfile"]["type"],
        "RuntimeDefault"
    );
    assert_eq!(pod["containers"].as_array().unwrap().len(), 1);
    // Nothing of the node but its network.
    for field in ["volumes", "hostPID", "hostIPC", "initContainers"] {
        assert!(pod.get(field).is_none(), "{field}");
    }
}

fn lets_the_agent_read() {
    let role = &plain()["ClusterRole/palisade-agent"];
    let expected = json!([
        {"apiGroups": [""], "resources": ["namespaces", "nodes", "pods"], "verbs": ["list", "watch"]},
        {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["list", "watch"]},
        {
            "apiGroups": ["policy.networking.k8s.io"],
            "resources": ["adminnetworkpolicies", "baselineadminnetworkpolicies", "clusternetworkpolicies"],
            "verbs": ["list", "watch"],
        },
    ]);
    assert_eq!(role["rules"], expected);
    // It cannot write false Events in other namespaces.
    let events = &plain()["Role/palisade-agent-events"];
    let expected =
        json!([{"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]}]);
    assert_eq!(events["rules"], expected);
    assert_eq!(events["metadata"]["namespace"], "default");
    let binding = &plain()["RoleBinding/palisade-agent-events"];
    assert_eq!(binding["metadata"]["namespace"], "default");
    assert_eq!(binding["roleRef"]["name"], "palisade-agent-events");
    assert_eq!(binding["subjects"][0]["name"], "palisade-agent");
    let binding = &plain()["ClusterRoleBinding/palisade-agent"];
    let account = json!([{"kind": "ServiceAccount", "name": "palisade-agent", "namespace": "palisade-system"}]);
    assert_eq!(binding["subjects"], account);
    assert_eq!(binding["roleRef"]["name"], "palisade-agent");
    assert_eq!(agent_pod()["serviceAccountName"], "palisade-agent");
}

fn has_roles_for_people() {
    let all = plain();
    let viewer = &all["ClusterRole/palisade-policy-viewer"];
    assert_eq!(viewer["rules"][0]["verbs"], json!(["get", "list", "watch"]));
    let labels = viewer["metadata"]["labels"].as_object().unwrap();
    assert_eq!(
        labels["rbac.authorization.k8s.io/aggregate-to-view"],
        "true"
    );
    // Cluster-wide policies are for those who are given them by name.
    let admin = &all["ClusterRole/palisade-policy-admin"];
    let labels = admin["metadata"]["labels"].as_object().unwrap();
    assert!(
        !labels.keys().any(|it| it.contains("aggregate")),
        "{labels:?}"
    );
    for role in [viewer, admin] {
        assert_eq!(
            role["rules"][0]["apiGroups"],
            json!(["policy.networking.k8s.io"])
        );
        assert_eq!(role["rules"].as_array().unwrap().len(), 1);
    }
}

/// A replacement of kubectl: logs its arguments and its input.
const KUBECTL: &str = r#"#!/bin/bash
echo "$*" >> "$LOG/calls"
case "$*" in
  *"get daemonset"*) echo -n registry.example/palisade:1 ;;
  *"get nodes"*) printf 'n1\nn2\n' ;;
  *" create "*) cat > "$LOG/pod.$(ls "$LOG" | wc -l)" ;;
  *" wait "*palisade-cleanup-1*) exit 1 ;;
  *logs*) echo "removed" ;;
esac
"#;

fn cleanup_goes_to_every_node() {
    use std::os::unix::fs::PermissionsExt as _;

    let directory = tempfile::tempdir().unwrap();
    let (tools, log) = (directory.path().join("tools"), directory.path().join("log"));
    std::fs::create_dir(&tools).unwrap();
    std::fs::create_dir(&log).unwrap();
    let kubectl = tools.join("kubectl");
    std::fs::write(&kubectl, KUBECTL).unwrap();
    std::fs::set_permissions(&kubectl, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let output = Command::new("bash")
        .arg(root().join("deploy/cleanup"))
        .env("PATH", format!("{}:{path}", tools.display()))
        .env("LOG", &log)
        .output()
        .unwrap();
    let calls = std::fs::read_to_string(log.join("calls")).unwrap();
    let printed = String::from_utf8(output.stderr).unwrap();
    // One node is cleaned up; the other is reported as not cleaned up.
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "n1: removed\n");
    assert!(printed.contains("not done on: n2"), "{printed}");
    // The agents end before: they would put the table back.
    let place = |word: &str| {
        calls
            .find(word)
            .unwrap_or_else(|| panic!("{word}: {calls}"))
    };
    assert!(place("delete daemonset palisade-agent") < place("create -f -"));

    let mut nodes = Vec::new();
    for entry in log.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with("calls") {
            continue;
        }
        let pod: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let spec = &pod["spec"];
        nodes.push(spec["nodeName"].as_str().unwrap().to_owned());
        let (cleaner, agent) = (&spec["containers"][0], agent_pod());
        assert_eq!(cleaner["image"], "registry.example/palisade:1");
        assert_eq!(cleaner["args"], json!(["agent", "--cleanup"]));
        // It has the agent's rights on the node, and none at the API server.
        assert_eq!(
            cleaner["securityContext"],
            agent["containers"][0]["securityContext"]
        );
        assert_eq!(spec["securityContext"], agent["securityContext"]);
        assert_eq!(spec["hostNetwork"], true);
        assert_eq!(spec["automountServiceAccountToken"], false);
    }
    nodes.sort();
    assert_eq!(nodes, ["n1", "n2"]);
    assert!(agent_help().contains("--cleanup"));
}

fn versions_agree() {
    let version = env!("CARGO_PKG_VERSION");
    let image = agent_pod()["containers"][0]["image"].clone();
    assert_eq!(image, format!("localhost/palisade:{version}"));
    let chart = read("deploy/helm/palisade/Chart.yaml");
    assert!(
        chart.contains(&format!("\nversion: {version}\n")),
        "{chart}"
    );
    assert!(
        chart.contains(&format!("\nappVersion: {version}\n")),
        "{chart}"
    );
    let dockerfile = read("deploy/image/Dockerfile");
    assert!(
        dockerfile.contains(&format!("image.version=\"{version}\"")),
        "{dockerfile}"
    );
}
