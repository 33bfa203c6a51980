//! Where attacks take place: a cluster of two nodes with a victim and a tenant, each with pods on
//! both nodes.

#![allow(
    clippy::indexing_slicing,
    reason = "a missing field of a value is null"
)]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::Findings;
use super::agents::{self, Peak};
use super::objects::TENANT;
use crate::cluster::campaign::{of, one_way};
use crate::cluster::packets::{Answers, Echoes, measured};
use crate::cluster::pods::Pod;
use crate::cluster::{E2eCluster, Installed, until};

/// The namespace of the victim.
pub const VICTIM: &str = "victim";
const APPS: [&str; 3] = ["web", "db", "client"];
const NODES: u8 = 2;
/// The time for an agent to end after SIGTERM; then it is killed.
const GRACE: Duration = Duration::from_secs(10);
/// The maximum delay of an allowed packet on a busy machine.
const LATE: Duration = Duration::from_secs(15);

/// Where NetworkPolicies of the tenant are.
pub const POLICIES: &str = "/apis/networking.k8s.io/v1/namespaces/tenant/networkpolicies";
/// Where pods of the tenant are.
pub const PODS: &str = "/api/v1/namespaces/tenant/pods";

/// A cluster with a victim and a tenant.
#[derive(Debug)]
pub struct Ground {
    /// The cluster.
    pub whole: E2eCluster,
    /// The pods of both.
    pub pods: Vec<Pod>,
    /// The credentials of the tenant.
    pub tenant: PathBuf,
    /// Whether agents are being replaced.
    pub is_replaced: AtomicBool,
    _echoes: Echoes,
}

impl Ground {
    /// Starts a cluster with pods, and no agents yet.
    pub fn start(installed: &Installed) -> Result<Ground> {
        let whole = E2eCluster::start(installed, NODES)?;
        let pods = whole.start_pods(&[VICTIM, TENANT], &APPS, NODES)?;
        let tenant = whole.cluster.api().kubeconfig_for("tenant", &[])?;
        let binding = ["create", "rolebinding", "tenant", "-n", TENANT];
        let user = ["--clusterrole=edit", "--user=tenant"];
        whole.kubectl(&[&binding[..], &user].concat())?;
        Ok(Ground {
            _echoes: Echoes::start(&pods)?,
            whole,
            pods,
            tenant,
            is_replaced: AtomicBool::new(true),
        })
    }

    /// Installs the agents and the victim's policies, and waits until those are enforced.
    pub fn install(&self) -> Result<()> {
        self.whole.apply_file("crds/palisade.yaml")?;
        self.whole.apply_file("palisade.yaml")?;
        self.whole.wait_for_agents()?;
        self.is_replaced.store(false, Ordering::Release);
        self.whole.apply(&one_way(VICTIM))?;
        self.whole.apply(&back(VICTIM))?;
        until("the victim's policies are enforced", || {
            Ok(self.wrong(&measured(&self.pods)?).is_empty())
        })
    }

    /// A pod by its namespace and app.
    pub fn pod(&self, namespace: &str, app: &str) -> Result<&Pod> {
        of(&self.pods, namespace, app)
    }

    /// The network namespaces of the nodes.
    pub fn networks(&self) -> Vec<PathBuf> {
        (1..=NODES).map(|it| self.network(it)).collect()
    }

    /// The network namespace of a node; 0 is the control plane.
    pub fn network(&self, node: u8) -> PathBuf {
        let name = match node {
            0 => "net-plane".to_owned(),
            _ => format!("net-n{node}"),
        };
        self.whole.cluster.directory().join(name)
    }

    /// What kubectl answers to the tenant.
    pub fn as_tenant(&self, words: &[&str]) -> Result<String> {
        let kubeconfig = self.tenant.to_string_lossy();
        self.whole
            .kubectl(&[&["--kubeconfig", kubeconfig.as_ref()], words].concat())
    }

    /// Writes an object as the tenant, byte by byte.
    pub fn write(&self, path: &str, object: &[u8]) -> Result<()> {
        let file = self.whole.cluster.directory().join("object.json");
        std::fs::write(&file, object)?;
        let file = file.to_string_lossy();
        self.as_tenant(&["create", "--raw", path, "-f", &file])
            .map(|_| ())
    }

    /// Deletes all NetworkPolicies of the tenant.
    pub fn delete_policies(&self) -> Result<()> {
        self.as_tenant(&["delete", "--raw", POLICIES]).map(|_| ())
    }

    /// Checks the victim's flows against its policies: no other flow is allowed now, and all
    /// allowed ones pass after a while.
    pub fn holds(&self, when: &str, findings: &mut Findings) -> Result<()> {
        let began = Instant::now();
        loop {
            let answers = measured(&self.pods)?;
            let wrong = self.wrong(&answers);
            findings.probes += answers.len();
            let opened: Vec<&String> = wrong.iter().filter(|it| it.contains("passes")).collect();
            if !opened.is_empty() {
                bail!("{when}: {opened:?}");
            }
            if wrong.is_empty() {
                return Ok(());
            }
            ensure!(began.elapsed() < LATE, "{when}: {wrong:?}");
        }
    }

    /// The flows to the victim's pods that differ from its policies.
    fn wrong(&self, answers: &Answers) -> Vec<String> {
        let to_victim = answers
            .iter()
            .filter(|((_, to, _), _)| to.starts_with("victim/"));
        let wrong = to_victim.filter(|((from, to, _), is_allowed)| {
            let is_one_way = from == "victim/victim-db" && to == "victim/victim-web";
            let is_back = from == "victim/victim-web" && to == "victim/victim-db";
            let may = is_one_way || is_back || to == "victim/victim-client";
            **is_allowed != may
        });
        wrong
            .map(|((from, to, port), is_allowed)| {
                let does = if *is_allowed { "passes" } else { "is dropped" };
                format!("{from} -> {to} {port} {does}")
            })
            .collect()
    }

    /// Writes a policy of the victim that denies an allowed flow, waits until packets are dropped,
    /// and deletes it.
    pub fn new_deny(&self, findings: &mut Findings) -> Result<()> {
        let policy = closed(VICTIM, "client");
        let pods = [
            self.pod(VICTIM, "client")?.clone(),
            self.pod(TENANT, "web")?.clone(),
            self.pod(VICTIM, "db")?.clone(),
        ];
        for is_closed in [true, false] {
            let began = Instant::now();
            match is_closed {
                true => self.whole.apply(&policy)?,
                false => self.whole.delete(&policy)?,
            }
            until("a new policy of the victim is enforced", || {
                let answers = measured(&pods)?;
                let mut to_client = answers
                    .iter()
                    .filter(|((_, to, _), _)| to == "victim/victim-client");
                Ok(to_client.all(|(_, is_allowed)| *is_allowed != is_closed))
            })?;
            findings.settled = findings.settled.max(began.elapsed());
        }
        Ok(())
    }

    /// Terminates all agents, and waits until others are ready in their place.
    pub fn restart(&self, findings: &mut Findings) -> Result<()> {
        self.look_at_agents(findings)?;
        let old = agents::pods(&self.whole)?;
        self.is_replaced.store(true, Ordering::Release);
        let began = Instant::now();
        let words = ["-n", "palisade-system", "delete", "pods", "--wait=true"];
        let selector = ["-l", "app.kubernetes.io/component=agent"];
        self.whole.kubectl(&[&words[..], &selector].concat())?;
        let ended = began.elapsed();
        let began = Instant::now();
        until("other agents are ready", || {
            let new = agents::pods(&self.whole)?;
            let is_new = |name: &str| old.iter().all(|it| it.name != name);
            let ready = new.iter().filter(|it| it.is_ready && is_new(&it.name));
            Ok(ready.count() == usize::from(NODES))
        })?;
        self.is_replaced.store(false, Ordering::Release);
        findings.restarts += 1;
        findings.ended = findings.ended.max(ended);
        findings.ready = findings.ready.max(began.elapsed());
        ensure!(
            ended < GRACE,
            "agents did not end after SIGTERM, within {ended:.1?}"
        );
        Ok(())
    }

    /// Checks whether a kubelet restarted agents, and their peak memory.
    pub fn look_at_agents(&self, findings: &mut Findings) -> Result<()> {
        let all = agents::pods(&self.whole)?;
        ensure!(
            all.len() == usize::from(NODES),
            "there are {} agents",
            all.len()
        );
        for pod in all {
            let why = pod.ended.as_deref().unwrap_or("no reason");
            ensure!(
                pod.restarts == 0,
                "the agent of n{} was started again {} times: {why}",
                pod.node,
                pod.restarts
            );
            let peak: Peak = agents::peak(pod.node)?;
            findings.peak = findings.peak.or(peak);
        }
        Ok(())
    }

    /// The file in which a node's allocator of addresses keeps the last one.
    pub fn last_address(&self, node: u8) -> PathBuf {
        let directory = self.whole.cluster.directory();
        directory.join(format!("n{node}/ipam/testbed/last_reserved_ip.0"))
    }
}

/// The last number of an address of a file, one less.
pub fn one_before(address: std::net::IpAddr) -> Result<String> {
    let std::net::IpAddr::V4(address) = address else {
        bail!("{address} is not an IPv4 address");
    };
    let before = u32::from(address).checked_sub(1);
    let before = before.context("there is no address before the first")?;
    Ok(std::net::Ipv4Addr::from(before).to_string())
}

/// Writes to an existing file.
pub fn replace(file: &Path, text: &str) -> Result<()> {
    ensure!(file.is_file(), "there is no {}", file.display());
    Ok(std::fs::write(file, text)?)
}

/// A policy under which only the web may reach the database.
fn back(namespace: &str) -> Value {
    let mut policy = one_way(namespace);
    policy["metadata"]["name"] = json!("back");
    policy["spec"]["podSelector"] = json!({"matchLabels": {"app": "db"}});
    policy["spec"]["ingress"] =
        json!([{"from": [{"podSelector": {"matchLabels": {"app": "web"}}}]}]);
    policy
}

/// A policy that closes an app.
pub fn closed(namespace: &str, app: &str) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"namespace": namespace, "name": format!("closed-{app}")},
        "spec": {"podSelector": {"matchLabels": {"app": app}}, "policyTypes": ["Ingress"]},
    })
}
