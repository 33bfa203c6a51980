//! An API server with an example in it, and words for running the commands on it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use palisade_testbed::{Api, Options};
use serde_json::{Value, json};

/// An API server with an example in it.
pub(crate) struct Bed {
    pub(crate) api: Api,
    /// The same objects in a file, as kubectl prints them.
    pub(crate) file: PathBuf,
    pub(crate) directory: tempfile::TempDir,
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// The kinds that are read.
const KINDS: &str = "namespaces,nodes,pods,services,endpointslices,networkpolicies,deployments,statefulsets,\
                     daemonsets,replicasets,replicationcontrollers,jobs,cronjobs,clusternetworkpolicies.policy.networking.k8s.io";

impl Bed {
    /// Puts an example into a new server.
    pub(crate) fn new(example: &str) -> Bed {
        let api = Api::start(&Options::default()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("all.json");
        let bed = Bed {
            api,
            file,
            directory,
        };
        bed.apply(&crd(
            "clusternetworkpolicies",
            "ClusterNetworkPolicy",
            "v1alpha2",
        ));
        bed.kubectl(&["wait", "--for=condition=established", "crd", "--all"]);
        bed.fill(&root().join("examples").join(example));
        std::fs::write(&bed.file, bed.kubectl(&["get", KINDS, "-A", "-o", "json"])).unwrap();
        bed
    }

    fn fill(&self, example: &Path) {
        let path = example.to_str().unwrap();
        let text = self.kubectl(&["create", "--dry-run=client", "-o", "json", "-f", path]);
        // One document after the other, or a list.
        let documents = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
        let documents = documents.map(Result::unwrap);
        let documents = documents.flat_map(|it| match it["items"].as_array() {
            Some(items) => items.clone(),
            None => vec![it],
        });
        let mut objects: Vec<Value> = documents.collect();
        let order = ["Namespace", "Node"];
        let place = |it: &Value| order.iter().position(|kind| it["kind"] == *kind);
        objects.sort_by_key(|it| place(it).unwrap_or(order.len()));
        for object in objects {
            self.apply(&object);
            let (kind, name) = (
                object["kind"].as_str().unwrap(),
                &object["metadata"]["name"],
            );
            let status = &object["status"];
            if matches!(kind, "Pod" | "Node") && status.is_object() {
                let mut status = status.clone();
                if let Some(first) = status["podIPs"][0]["ip"].as_str() {
                    status["podIP"] = json!(first);
                }
                let patch = json!({ "status": status }).to_string();
                let namespace = object["metadata"]["namespace"]
                    .as_str()
                    .unwrap_or("default");
                let name = name.as_str().unwrap();
                let what = [
                    "patch",
                    kind,
                    name,
                    "-n",
                    namespace,
                    "--subresource=status",
                    "--type=merge",
                    "-p",
                    &patch,
                ];
                self.kubectl(&what);
            }
        }
    }

    /// Applies an object.
    pub(crate) fn apply(&self, object: &Value) {
        let mut command = self.api.kubectl();
        command.args(["apply", "-f", "-"]);
        let ran = run(command, &object.to_string());
        assert_eq!(ran.code, 0, "{}\n{object:#}", ran.err);
    }

    /// What kubectl says.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        let mut command = self.api.kubectl();
        command.args(arguments);
        let ran = run(command, "");
        assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.err);
        ran.out
    }

    /// A command, as a user.
    pub(crate) fn palisade_as(&self, kubeconfig: &Path, arguments: &[&str]) -> Ran {
        let mut command = Command::new(env!("CARGO_BIN_EXE_palisade"));
        command.args(arguments).current_dir(root());
        command.env("KUBECONFIG", kubeconfig);
        run(command, "")
    }

    /// A command, as a cluster administrator.
    pub(crate) fn palisade(&self, arguments: &[&str]) -> Ran {
        self.palisade_as(&self.api.kubeconfig(), arguments)
    }

    /// A file with some text.
    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// The objects as a file.
    pub(crate) fn file(&self) -> &str {
        self.file.to_str().unwrap()
    }
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().unwrap()
}

/// Runs a command.
pub(crate) fn run(mut command: Command, input: &str) -> Ran {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The program may end before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A definition that takes objects of any form.
fn crd(plural: &str, kind: &str, version: &str) -> Value {
    let group = "policy.networking.k8s.io";
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{group}"),
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}
        },
        "spec": {
            "group": group, "scope": "Cluster",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{
                "name": version, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
            }]
        }
    })
}
