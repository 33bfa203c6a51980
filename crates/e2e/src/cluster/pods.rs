//! Real pods and their network namespaces.

#![allow(
    clippy::indexing_slicing,
    reason = "a missing field of a value is null"
)]

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context as _, Result, anyhow};
use nix::sched::{CloneFlags, setns};
use serde_json::{Value, json};

use super::{E2eCluster, until};

/// What tests of networks are usually run with, of which only the waiting is used.
pub(crate) const AGNHOST: &str = "registry.k8s.io/e2e-test-images/agnhost:2.55";

/// A pod that runs.
#[derive(Clone, Debug)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: IpAddr,
    /// Its network namespace.
    pub network: PathBuf,
}

impl Pod {
    /// Its name in flow queries.
    pub fn called(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Runs some work in its network.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        thread::scope(|scope| {
            let worker = scope.spawn(|| {
                self.enter()?;
                work()
            });
            let result = worker.join();
            result.map_err(|_| anyhow!("a thread in {} panicked", self.name))?
        })
    }

    /// Moves the calling thread into its network namespace, permanently.
    pub fn enter(&self) -> Result<()> {
        enter(&self.network).with_context(|| format!("the network of {}", self.name))
    }
}

/// Moves the calling thread into a network namespace, permanently.
pub fn enter(network: &Path) -> Result<()> {
    let file = fs::File::open(network)
        .with_context(|| format!("the network namespace {}", network.display()))?;
    Ok(setns(file, CloneFlags::CLONE_NEWNET)?)
}

/// A pod of an app on a node.
pub fn object(namespace: &str, name: &str, app: &str, node: u8) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "labels": {"app": app}},
        "spec": {
            "nodeName": format!("n{node}"),
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "main",
                "image": AGNHOST,
                "imagePullPolicy": "Never",
                "ports": [{"name": "http", "containerPort": 80}, {"name": "dns", "containerPort": 53, "protocol": "UDP"}],
            }],
        },
    })
}

impl E2eCluster {
    /// Starts two pods of every app in every namespace, spread over the nodes, and waits until they
    /// run.
    pub fn start_pods(&self, namespaces: &[&str], apps: &[&str], nodes: u8) -> Result<Vec<Pod>> {
        let mut wanted = Vec::new();
        let mut node = 0;
        for namespace in namespaces {
            self.apply(&json!({
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": namespace, "labels": {"team": "red", "tenant": "t1"}},
            }))?;
            for app in apps {
                node = node % nodes + 1;
                let name = format!("{namespace}-{app}");
                wanted.push(object(namespace, &name, app, node));
            }
        }
        let list = json!({"apiVersion": "v1", "kind": "List", "items": wanted});
        until("pods were made", || self.apply(&list).map(|()| true))?;
        self.running(wanted.len())
    }

    /// The pods of tests, when all of them run.
    pub fn running(&self, count: usize) -> Result<Vec<Pod>> {
        let mut pods = Vec::new();
        until("pods run", || {
            pods = self.look()?;
            Ok(pods.len() == count)
        })?;
        Ok(pods)
    }

    /// The pods of tests that run now.
    pub(crate) fn look(&self) -> Result<Vec<Pod>> {
        let text = self.kubectl(&["get", "pods", "-A", "-o", "json"])?;
        let list: Value = serde_json::from_str(&text)?;
        let networks = networks();
        let mut pods = Vec::new();
        for item in list["items"].as_array().into_iter().flatten() {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let is_running = item["status"]["phase"] == "Running";
            let is_ours = item["spec"]["containers"][0]["image"] == AGNHOST;
            let is_going = item["metadata"]["deletionTimestamp"].is_string();
            let address = text(&item["status"]["podIP"]).parse();
            let name = text(&item["metadata"]["name"]);
            if let (true, true, false, Ok(address), Some(network)) =
                (is_running, is_ours, is_going, address, networks.get(&name))
            {
                pods.push(Pod {
                    namespace: text(&item["metadata"]["namespace"]),
                    name,
                    address,
                    network: network.clone(),
                });
            }
        }
        Ok(pods)
    }
}

/// The networks of the processes that wait in pods, by the names of the pods.
fn networks() -> BTreeMap<String, PathBuf> {
    let mut networks = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let path = entry.path();
        let command = fs::read(path.join("cmdline")).unwrap_or_default();
        if !command.starts_with(b"/agnhost\0") {
            continue;
        }
        let environment = fs::read(path.join("environ")).unwrap_or_default();
        let name = environment
            .split(|it| *it == 0)
            .find_map(|it| it.strip_prefix(b"HOSTNAME="));
        if let Some(name) = name {
            let name = String::from_utf8_lossy(name).into_owned();
            networks.insert(name, path.join("ns/net"));
        }
    }
    networks
}
