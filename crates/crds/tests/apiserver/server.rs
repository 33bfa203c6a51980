//! An API server with CRDs, and its responses to many documents at once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use palisade_testbed::{Api, Options};
use serde_json::{Value, json};

/// An API server, and a directory for what is sent to it.
pub(crate) struct Server {
    api: Api,
    files: tempfile::TempDir,
}

impl Server {
    pub(crate) fn start() -> Server {
        Server {
            api: Api::start(&Options::default()).unwrap_or_else(|error| panic!("{error}")),
            files: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn kubectl(&self, words: &[&str]) -> Output {
        let mut command: Command = self.api.kubectl();
        command.args(words).output().unwrap()
    }

    /// Installs CRDs and waits until they are established, and served if `are_served`.
    pub(crate) fn install(&self, crds: &[Value], are_served: bool) {
        let path = self.files.path().join("crds.json");
        let list = json!({"apiVersion": "v1", "kind": "List", "items": crds});
        std::fs::write(&path, list.to_string()).unwrap();
        let path = path.to_str().unwrap();
        let output = self.kubectl(&["create", "--validate=strict", "-f", path]);
        assert!(output.status.success(), "{}", errors(&output));
        let wait = [
            "wait",
            "--for=condition=Established",
            "--timeout=60s",
            "-f",
            path,
        ];
        let output = self.kubectl(&wait);
        assert!(output.status.success(), "{}", errors(&output));
        for crd in crds {
            let name = crd["metadata"]["name"].as_str().unwrap();
            let violations = "jsonpath={.status.conditions[?(@.type==\"NonStructuralSchema\")]}";
            let output = self.kubectl(&["get", "crd", name, "-o", violations]);
            assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{name}");
            let end = Instant::now() + Duration::from_secs(30);
            while are_served && !self.kubectl(&["get", name]).status.success() {
                assert!(Instant::now() < end, "{name} is not served");
                std::thread::sleep(Duration::from_millis(200));
            }
        }
    }

    /// The documents that the server rejects, with its messages. Nothing is stored.
    pub(crate) fn refused(&self, documents: &[&str], validate: &str) -> BTreeMap<usize, String> {
        let directory = self.files.path().join("documents");
        std::fs::create_dir_all(&directory).unwrap();
        for (index, document) in documents.iter().enumerate() {
            std::fs::write(directory.join(format!("{index:05}.yaml")), document).unwrap();
        }
        let validate = format!("--validate={validate}");
        let words = [
            "create",
            "--dry-run=server",
            &validate,
            "-o",
            "name",
            "-f",
            directory.to_str().unwrap(),
        ];
        let output = self.kubectl(&words);
        std::fs::remove_dir_all(&directory).unwrap();
        let refused = by_document(&directory, &errors(&output));
        let accepted = String::from_utf8_lossy(&output.stdout).lines().count();
        // Every document has a response, or the comparison would prove nothing.
        assert_eq!(
            accepted + refused.len(),
            documents.len(),
            "{}",
            errors(&output)
        );
        refused
    }

    fn one(&self, document: &str, words: &[&str]) -> Output {
        let path = self.files.path().join("one.yaml");
        std::fs::write(&path, document).unwrap();
        let mut all = vec!["create", "--dry-run=server", "--validate=strict", "-f"];
        all.push(path.to_str().unwrap());
        all.extend(words);
        self.kubectl(&all)
    }

    /// Whether a document is accepted.
    pub(crate) fn accepts(&self, document: &str) -> bool {
        self.one(document, &[]).status.success()
    }

    /// The message for a document that is rejected.
    pub(crate) fn refusal(&self, document: &str) -> String {
        let output = self.one(document, &[]);
        assert!(!output.status.success());
        errors(&output)
    }

    /// A field of a document as it would be stored.
    pub(crate) fn stored(&self, document: &str, path: &str) -> String {
        let output = self.one(document, &["-o", &format!("jsonpath={path}")]);
        assert!(output.status.success(), "{}", errors(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Creates the namespaces of objects.
    pub(crate) fn namespaces(&self, names: &BTreeSet<String>) {
        let namespace = |name: &String| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let items: Vec<Value> = names.iter().map(namespace).collect();
        let path = self.files.path().join("namespaces.json");
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        std::fs::write(&path, list.to_string()).unwrap();
        // Those that exist already are ignored.
        self.kubectl(&["create", "-f", path.to_str().unwrap()]);
    }
}

/// The messages for each file.
fn by_document(directory: &Path, output: &str) -> BTreeMap<usize, String> {
    let prefix = format!("{}/", directory.display());
    let mut by_document: BTreeMap<usize, String> = BTreeMap::new();
    let mut current = None;
    for line in output.lines().filter(|line| !line.starts_with("Warning:")) {
        if let Some((_, rest)) = line.split_once(&prefix) {
            current = rest.get(..5).and_then(|it| it.parse().ok());
        }
        if let Some(current) = current {
            let text = by_document.entry(current).or_default();
            text.push_str(line);
            text.push('\n');
        }
    }
    by_document
}

/// The standard error of a command.
pub(crate) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
