//! `deploy/helm/palisade`: the objects of the plain manifest, and what values change about them.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::manifest::{flags, plain};
use crate::objects::{Objects, differences, documents, objects};
use crate::{Test, agent_help, read, root};

pub(crate) const TESTS: [Test; 9] = [
    ("chart_closes_first_with_the_option", closes_first),
    ("chart_makes_the_plain_manifest", makes_the_plain_manifest),
    ("chart_changes_what_values_say", changes_what_values_say),
    (
        "chart_makes_objects_for_prometheus",
        makes_objects_for_prometheus,
    ),
    ("chart_installs_crds_and_keeps_them", installs_crds),
    ("chart_refuses_bad_values", refuses_bad_values),
    ("chart_passes_flags_that_exist", passes_flags_that_exist),
    ("chart_is_sound_for_helm", is_sound_for_helm),
    ("chart_has_its_copies", has_its_copies),
];

/// Helm, or why there is none.
pub(crate) fn find_helm() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("HELM") {
        let path = PathBuf::from(path);
        return if path.exists() {
            Ok(path)
        } else {
            Err(format!(
                "HELM names {}, which does not exist",
                path.display()
            ))
        };
    }
    let output = Command::new("bash")
        .arg(root().join("deploy/helm/build-helm"))
        .arg("--where")
        .output()
        .map_err(|error| error.to_string())?;
    let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let path = PathBuf::from(path);
    if path.exists() {
        Ok(path)
    } else {
        Err("there is no helm; deploy/helm/build-helm builds it".to_owned())
    }
}

fn helm(words: &[&str]) -> Output {
    Command::new(find_helm().unwrap())
        .args(words)
        .current_dir(root())
        // The environment of the user who runs the tests does not count.
        .env("HELM_CONFIG_HOME", "/nonexistent")
        .env("KUBECONFIG", "/nonexistent")
        .output()
        .unwrap()
}

/// `helm template` with values in the form of `--set-json`.
fn template(values: &[&str]) -> Output {
    let mut words = vec!["template", "palisade", "deploy/helm/palisade"];
    words.extend(["--namespace", "palisade-system"]);
    for value in values {
        words.extend(["--set-json", value]);
    }
    helm(&words)
}

#[track_caller]
fn rendered(values: &[&str]) -> Objects {
    let output = template(values);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{values:?}: {printed}");
    objects(&String::from_utf8(output.stdout).unwrap())
}

fn makes_the_plain_manifest() {
    // Helm needs the namespace before it installs anything, and so cannot make it.
    let expected = ["- Namespace/palisade-system"];
    assert_eq!(differences(&plain(), &rendered(&[])), expected);
    let all = rendered(&["namespace.create=true"]);
    assert_eq!(differences(&plain(), &all), [""; 0]);
}

/// Values, and how what they make differs from the plain manifest.
#[track_caller]
fn changes(values: &[&str], expected: &[&str]) {
    let mut all = vec!["namespace.create=true"];
    all.extend(values);
    let pod = "DaemonSet/palisade-agent spec template spec";
    let expected: Vec<String> = expected
        .iter()
        .map(|it| {
            it.replace("CONTAINER", "POD containers 00")
                .replace("POD", pod)
        })
        .collect();
    assert_eq!(
        differences(&plain(), &rendered(&all)),
        expected,
        "{values:?}"
    );
}

fn changes_what_values_say() {
    changes(
        &[r#"established="keep""#, r#"unknownPod="allow""#],
        &[
            r#"+ CONTAINER args 03 = "--established=keep""#,
            r#"+ CONTAINER args 04 = "--unknown-pod=allow""#,
        ],
    );
    changes(
        &[
            r#"falseSender="drop-every""#,
            r#"ownNodeEgress="allow""#,
            "verbose=true",
        ],
        &[
            r#"+ CONTAINER args 03 = "--false-sender=drop-every""#,
            r#"+ CONTAINER args 04 = "--own-node-egress=allow""#,
            r#"+ CONTAINER args 05 = "--verbose""#,
        ],
    );
    changes(
        &[r#"podCidrs=["10.1.1.0/24", "fd00:1::/64"]"#],
        &[
            r#"+ CONTAINER args 03 = "--pod-cidr=10.1.1.0/24""#,
            r#"+ CONTAINER args 04 = "--pod-cidr=fd00:1::/64""#,
        ],
    );
    changes(
        &[r#"bootPolicy="open""#, r#"bpf="allow""#],
        &[
            r#"+ CONTAINER args 03 = "--boot-policy=open""#,
            r#"+ CONTAINER args 04 = "--bpf=allow""#,
        ],
    );
    changes(
        &["namespaceBudget=0"],
        &[r#"+ CONTAINER args 03 = "--namespace-budget=0""#],
    );
    // As with values that were kept of a chart without it.
    changes(&["namespaceBudget=null"], &[]);
    changes(
        &["checkTcx=true"],
        &[r#"+ CONTAINER securityContext capabilities add 01 = "BPF""#],
    );
    let rule = |verbs: &str| {
        format!(
            r#"{{"apiGroups":["networking.k8s.io"],"resources":["clusternetworkpolicies","defaultnetworkpolicies"],"verbs":[{verbs}]}}"#
        )
    };
    let all = r#""create","delete","deletecollection","get","list","patch","update","watch""#;
    changes(
        &["legacyApis=true"],
        &[
            &format!(
                "+ ClusterRole/palisade-agent rules 03 = {}",
                rule(r#""list","watch""#)
            ),
            &format!(
                "+ ClusterRole/palisade-policy-admin rules 01 = {}",
                rule(all)
            ),
            &format!(
                "+ ClusterRole/palisade-policy-viewer rules 01 = {}",
                rule(r#""get","list","watch""#)
            ),
            r#"+ CONTAINER args 03 = "--legacy-apis""#,
        ],
    );
    changes(
        &[
            r#"image={"repository": "registry.example/palisade", "tag": "edge", "pullPolicy": "Always"}"#,
        ],
        &[
            r#"~ CONTAINER image = "localhost/palisade:0.1.0" -> "registry.example/palisade:edge""#,
            r#"~ CONTAINER imagePullPolicy = "IfNotPresent" -> "Always""#,
        ],
    );
    let digest = "0123456789abcdef".repeat(4);
    changes(
        &[
            &format!(r#"image.digest="sha256:{digest}""#),
            r#"image.tag="edge""#,
            r#"imagePullSecrets=[{"name": "pull"}]"#,
        ],
        &[
            &format!(
                r#"~ CONTAINER image = "localhost/palisade:0.1.0" -> "localhost/palisade@sha256:{digest}""#
            ),
            r#"+ POD imagePullSecrets = [{"name":"pull"}]"#,
        ],
    );
    changes(
        &[
            r#"resources={"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}"#,
            r#"tolerations=[{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]"#,
            r#"nodeSelector={"pool": "a"}"#,
            "maxUnavailable=1",
        ],
        &[
            r#"~ CONTAINER resources limits memory = "512Mi" -> "1Gi""#,
            r#"~ CONTAINER resources requests cpu = "20m" -> "1""#,
            r#"+ POD nodeSelector pool = "a""#,
            r#"+ POD tolerations 00 effect = "NoSchedule""#,
            r#"+ POD tolerations 00 key = "gpu""#,
            r#"~ DaemonSet/palisade-agent spec updateStrategy rollingUpdate maxUnavailable = "10%" -> 1"#,
        ],
    );
    changes(
        &[r#"apiServer={"host": "192.0.2.1", "port": 6443}"#],
        &[
            r#"+ CONTAINER env 01 = {"name":"KUBERNETES_SERVICE_HOST","value":"192.0.2.1"}"#,
            r#"+ CONTAINER env 02 = {"name":"KUBERNETES_SERVICE_PORT","value":"6443"}"#,
        ],
    );
    // With any listening address, the kubelet probes an address that responds.
    changes(
        &[r#"metrics.address="[::]""#, "metrics.port=19477"],
        &[
            r#"~ CONTAINER args 02 = "--listen=127.0.0.1:9477" -> "--listen=[::]:19477""#,
            "~ CONTAINER ports 00 containerPort = 9477 -> 19477",
        ],
    );
    changes(
        &[r#"metrics.address="[fd00::1]""#],
        &[
            r#"~ CONTAINER args 02 = "--listen=127.0.0.1:9477" -> "--listen=[fd00::1]:9477""#,
            r#"~ CONTAINER livenessProbe httpGet host = "127.0.0.1" -> "fd00::1""#,
            r#"~ CONTAINER readinessProbe httpGet host = "127.0.0.1" -> "fd00::1""#,
        ],
    );
    changes(
        &[
            "rbac.create=false",
            r#"serviceAccount={"create": false, "name": "mine"}"#,
        ],
        &[
            "- ClusterRole/palisade-agent",
            "- ClusterRole/palisade-policy-admin",
            "- ClusterRole/palisade-policy-viewer",
            "- ClusterRoleBinding/palisade-agent",
            r#"~ POD serviceAccountName = "palisade-agent" -> "mine""#,
            "- Role/palisade-agent-events",
            "- RoleBinding/palisade-agent-events",
            "- ServiceAccount/palisade-agent",
        ],
    );
}

/// An init container closes the same blocks that the agent gets, with the agent's image and rights.
fn closes_first() {
    let blocks = r#"podCidrs=["10.1.1.0/24", "fd00:1::/64"]"#;
    let all = rendered(&["closeFirst=true", blocks]);
    let pod = &all["DaemonSet/palisade-agent"]["spec"]["template"]["spec"];
    let (first, agent) = (&pod["initContainers"][0], &pod["containers"][0]);
    let expected = json!([
        "agent",
        "--close-only",
        "--pod-cidr=10.1.1.0/24",
        "--pod-cidr=fd00:1::/64"
    ]);
    assert_eq!(first["args"], expected);
    for key in ["image", "imagePullPolicy", "securityContext", "resources"] {
        assert_eq!(first[key], agent[key], "{key}");
    }
    let output = template(&["closeFirst=true"]);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(printed.contains("closeFirst needs podCidrs"), "{printed}");
}

fn makes_objects_for_prometheus() {
    let open = r#"metrics.address="0.0.0.0""#;
    let all = rendered(&[
        open,
        r#"metrics.serviceMonitor={"enabled": true, "labels": {"release": "prometheus"}}"#,
        "metrics.prometheusRule.enabled=true",
        "metrics.dashboard.enabled=true",
    ]);
    let pods = all["DaemonSet/palisade-agent"]["spec"]["template"]["metadata"]["labels"].clone();
    let is_part = |selector: &Value, labels: &Value| {
        let selector = selector.as_object().unwrap();
        !selector.is_empty() && selector.iter().all(|(key, value)| &labels[key] == value)
    };
    let service = &all["Service/palisade-agent-metrics"];
    assert!(is_part(&service["spec"]["selector"], &pods));
    let monitor = &all["ServiceMonitor/palisade-agent"];
    let selector = &monitor["spec"]["selector"]["matchLabels"];
    assert!(is_part(selector, &service["metadata"]["labels"]));
    assert_eq!(monitor["metadata"]["labels"]["release"], "prometheus");
    assert_eq!(
        monitor["spec"]["endpoints"][0]["port"],
        service["spec"]["ports"][0]["name"]
    );
    let rules = documents(&read("deploy/monitoring/alerts.yaml"));
    assert_eq!(all["PrometheusRule/palisade"]["spec"], rules[0]);
    let dashboard = &all["ConfigMap/palisade-dashboard"]["data"]["palisade.json"];
    let dashboard: Value = serde_json::from_str(dashboard.as_str().unwrap()).unwrap();
    let original: Value = serde_json::from_str(&read("deploy/monitoring/dashboard.json")).unwrap();
    assert_eq!(dashboard, original);

    // A monitor that cannot reach the agents is a mistake.
    let output = template(&["metrics.serviceMonitor.enabled=true"]);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        printed.contains("Prometheus cannot reach metrics.address"),
        "{printed}"
    );
}

fn installs_crds() {
    let output = template(&["crds.install=true"]);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}");
    let all = objects(&String::from_utf8(output.stdout).unwrap());
    let originals = objects(&read("deploy/crds/palisade.yaml"));
    assert!(!originals.is_empty());
    for (name, mut original) in originals {
        let kept = json!("keep");
        original["metadata"]["annotations"]["helm.sh/resource-policy"] = kept;
        let (old, new) = (
            Objects::from([(name.clone(), original)]),
            all[&name].clone(),
        );
        let new = Objects::from([(name, new)]);
        assert_eq!(differences(&old, &new), [""; 0]);
    }
}

fn refuses_bad_values() {
    for value in [
        r#"established="cut""#,
        r#"unknownPod="Drop""#,
        r#"falseSender="keep""#,
        r#"bootPolicy="shut""#,
        r#"bpf=true"#,
        r#"checkTcx="BPF""#,
        r#"closeFirst="yes""#,
        r#"ownNodeEgress=true"#,
        r#"podCidrs="10.0.0.0/24""#,
        r#"podCidrs=["10.0.0.0"]"#,
        r#"podCidrs=["10.0.0.0/24 --cleanup"]"#,
        r#"legacyApis="yes""#,
        r#"metrics.port=0"#,
        r#"metrics.port=70000"#,
        r#"metrics.address="localhost""#,
        r#"metrics.address="::""#,
        r#"metrics.serviceMonitor.interval="often""#,
        r#"image.digest="sha256:12""#,
        r#"image.tag="a b""#,
        r#"image.pullPolicy="Sometimes""#,
        r#"maxUnavailable=0"#,
        r#"maxUnavailable="0%""#,
        r#"tolerations=[{"operator": "Any"}]"#,
        r#"resources={"cpu": "1"}"#,
        r#"extraArgs=["--cleanup"]"#,
        r#"metrics.adress="0.0.0.0""#,
        r#"crds.install="true""#,
    ] {
        let output = template(&[value]);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{value} was taken");
        assert!(
            printed.contains("values don't meet the specifications"),
            "{value}: {printed}"
        );
    }
}

fn passes_flags_that_exist() {
    let help = agent_help();
    let template = read("deploy/helm/palisade/templates/daemonset.yaml");
    let used = flags(&template);
    assert!(used.len() >= 8, "{used:?}");
    for flag in used {
        assert!(help.contains(flag), "{flag} is no flag of the agent");
    }
}

fn is_sound_for_helm() {
    let output = helm(&["lint", "--strict", "deploy/helm/palisade"]);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}");
}

fn has_its_copies() {
    for (original, copy) in [
        ("deploy/monitoring/alerts.yaml", "alerts.yaml"),
        ("deploy/monitoring/dashboard.json", "dashboard.json"),
        ("deploy/crds/palisade.yaml", "crds.yaml"),
    ] {
        let original = root().join(original);
        let copy = root().join("deploy/helm/palisade/files").join(copy);
        let (original, copy) = (std::fs::read(original).ok(), std::fs::read(copy).ok());
        assert!(original == copy, "run deploy/helm/sync");
    }
}
