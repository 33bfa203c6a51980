//! An API server with fixed documents, for one test.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};

use serde_json::{Value, json};

use crate::{Ran, run_in};

/// Serves documents by path. A kind of Kubernetes without a document has an empty list, everything
/// else is not found.
pub(crate) struct Server {
    directory: tempfile::TempDir,
}

/// The kinds that every server has.
const BUILT_IN: [(&str, &str); 13] = [
    ("/api/v1/pods", "Pod"),
    ("/api/v1/namespaces", "Namespace"),
    ("/api/v1/nodes", "Node"),
    ("/api/v1/services", "Service"),
    ("/api/v1/replicationcontrollers", "ReplicationController"),
    ("/apis/apps/v1/deployments", "Deployment"),
    ("/apis/apps/v1/statefulsets", "StatefulSet"),
    ("/apis/apps/v1/daemonsets", "DaemonSet"),
    ("/apis/apps/v1/replicasets", "ReplicaSet"),
    ("/apis/batch/v1/jobs", "Job"),
    ("/apis/batch/v1/cronjobs", "CronJob"),
    ("/apis/discovery.k8s.io/v1/endpointslices", "EndpointSlice"),
    (
        "/apis/networking.k8s.io/v1/networkpolicies",
        "NetworkPolicy",
    ),
];

impl Server {
    /// Starts a server with these documents.
    pub(crate) fn start(documents: &[(&str, Value)]) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let documents: Vec<(String, Value)> = documents
            .iter()
            .map(|(path, document)| ((*path).to_owned(), document.clone()))
            .collect();
        // The thread ends with the process of the test.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let documents = documents.clone();
                std::thread::spawn(move || serve(&stream.unwrap(), &documents));
            }
        });
        let directory = tempfile::tempdir().unwrap();
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: \"http://127.0.0.1:{port}\"}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {{}}}}]\n"
        );
        std::fs::write(directory.path().join("config"), kubeconfig).unwrap();
        Server { directory }
    }

    /// Runs a command on this server.
    pub(crate) fn palisade(&self, args: &[&str]) -> Ran {
        let args = [args, &["--kubeconfig", "config"]].concat();
        run_in(self.directory.path(), &args, "")
    }

    /// Writes a file into the directory of the commands.
    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.directory.path().join(name), text).unwrap();
    }
}

fn serve(stream: &TcpStream, documents: &[(String, Value)]) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|it| it > 0) {
        let path = line.split(' ').nth(1).unwrap().to_owned();
        loop {
            let mut header = String::new();
            if reader.read_line(&mut header).unwrap_or_default() == 0 || header == "\r\n" {
                break;
            }
        }
        let (status, body) = response(path.split('?').next().unwrap(), documents);
        let body = body.to_string();
        let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/json");
        let text = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        if (&*stream).write_all(text.as_bytes()).is_err() {
            return;
        }
        line.clear();
    }
}

fn response(path: &str, documents: &[(String, Value)]) -> (&'static str, Value) {
    if let Some((_, document)) = documents.iter().find(|(its, _)| its == path) {
        return match document["kind"].as_str() {
            Some("Status") => ("403 Forbidden", document.clone()),
            _ => ("200 OK", document.clone()),
        };
    }
    if path == "/apis" {
        let apps =
            json!({"name": "apps", "versions": [{"groupVersion": "apps/v1", "version": "v1"}]});
        let groups = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [apps]});
        return ("200 OK", groups);
    }
    if let Some(name) = path.strip_prefix("/api/v1/namespaces/") {
        return named(name, documents);
    }
    // The list of one namespace is at `.../namespaces/NS/PLURAL`.
    let path = match path.split_once("/namespaces/") {
        Some((front, rest)) => format!("{front}/{}", rest.split('/').nth(1).unwrap_or_default()),
        None => path.to_owned(),
    };
    match BUILT_IN.iter().find(|(its, _)| *its == path) {
        Some((_, kind)) => {
            let list = json!({"kind": format!("{kind}List"), "apiVersion": "v1",
                "metadata": {"resourceVersion": "1"}, "items": []});
            ("200 OK", list)
        }
        None => not_found(&path),
    }
}

/// A namespace, if the document of all namespaces has it.
fn named(name: &str, documents: &[(String, Value)]) -> (&'static str, Value) {
    let (_, all) = response("/api/v1/namespaces", documents);
    let mut items = all["items"].as_array().unwrap().iter();
    match items.find(|it| it["metadata"]["name"] == name) {
        Some(found) => ("200 OK", found.clone()),
        None => not_found(name),
    }
}

fn not_found(what: &str) -> (&'static str, Value) {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
        "reason": "NotFound", "message": format!("{what} not found"), "code": 404});
    ("404 Not Found", status)
}
