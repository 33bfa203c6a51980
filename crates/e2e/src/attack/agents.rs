//! The agents of a cluster: their pods, their processes and their health.

#![allow(
    clippy::indexing_slicing,
    reason = "a missing field of a value is null"
)]

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use serde_json::Value;

use crate::cluster::E2eCluster;
use crate::cluster::pods::enter;
use palisade_campaigns::health::{RESPONSE_TIMEOUT, get, is_ok};

/// The port that the manifests name.
const PORT: u16 = 9_477;
/// Between two requests.
const PAUSE: Duration = Duration::from_millis(200);

/// The pod of an agent.
#[derive(Clone, Debug)]
pub struct AgentPod {
    /// Its name.
    pub name: String,
    /// The number of its node.
    pub node: u8,
    /// Whether it is ready and not going.
    pub is_ready: bool,
    /// The number of restarts of its container.
    pub restarts: u64,
    /// Why the container before this one ended.
    pub ended: Option<String>,
}

/// The pods of all agents.
pub fn pods(whole: &E2eCluster) -> Result<Vec<AgentPod>> {
    let words = ["-n", "palisade-system", "get", "pods", "-o", "json", "-l"];
    let selector = ["app.kubernetes.io/component=agent"];
    let text = whole.kubectl(&[&words[..], &selector].concat())?;
    let list: Value = serde_json::from_str(&text)?;
    let items = list["items"].as_array().into_iter().flatten();
    Ok(items.map(pod).collect())
}

fn pod(item: &Value) -> AgentPod {
    let node = item["spec"]["nodeName"].as_str().unwrap_or_default();
    let status = &item["status"]["containerStatuses"][0];
    let is_going = item["metadata"]["deletionTimestamp"].is_string();
    let ended = &status["lastState"]["terminated"]["reason"];
    AgentPod {
        name: item["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        node: node.trim_start_matches('n').parse().unwrap_or(0),
        is_ready: status["ready"] == true && !is_going,
        restarts: status["restartCount"].as_u64().unwrap_or(0),
        ended: ended.as_str().map(str::to_owned),
    }
}

/// What an agent's process takes, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peak {
    /// The most memory that the process had.
    pub resident: u64,
    /// The most that counted for its limit: the kernel counts the table as well.
    pub counted: u64,
    /// Its limit; 0: not known.
    pub limit: u64,
}

impl Peak {
    /// The larger of both, one by one.
    pub fn or(self, other: Peak) -> Peak {
        Peak {
            resident: self.resident.max(other.resident),
            counted: self.counted.max(other.counted),
            limit: self.limit.max(other.limit),
        }
    }
}

/// The most that an agent of a node has taken so far.
pub fn peak(node: u8) -> Result<Peak> {
    let process = process(node)?;
    let status = fs::read_to_string(process.join("status"))?;
    let line = status.lines().find_map(|it| it.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|it| it.split_whitespace().next()?.parse::<u64>().ok());
    let group = memory_group(&process);
    let of = |names: [&str; 2]| {
        let group = group.as_deref()?;
        let text = names
            .iter()
            .find_map(|it| fs::read_to_string(group.join(it)).ok());
        text.and_then(|it| it.trim().parse().ok())
    };
    Ok(Peak {
        resident: kilobytes.context("no VmHWM in the process status")? * 1_024,
        counted: of(["memory.max_usage_in_bytes", "memory.peak"]).unwrap_or(0),
        limit: of(["memory.limit_in_bytes", "memory.max"]).unwrap_or(0),
    })
}

/// The number of changes that an agent has sent to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Programmed {
    /// All of them.
    pub changes: u64,
    /// Of those, changes whose oldest part waited more than 1.024 s after its arrival at the agent.
    pub late: u64,
}

impl Programmed {
    /// The changes programmed since then; a restarted agent counts from zero.
    pub fn since(self, before: Programmed) -> Programmed {
        Programmed {
            changes: self.changes.saturating_sub(before.changes),
            late: self.late.saturating_sub(before.late),
        }
    }

    /// The metrics of an agent.
    fn read(metrics: &str) -> Option<Programmed> {
        let name = "palisade_policy_programming_duration_seconds";
        let value = |line: &str| {
            let line = format!("{name}_{line} ");
            let mut values = metrics.lines().filter_map(|it| it.strip_prefix(&line));
            values.next()?.parse::<u64>().ok()
        };
        let changes = value(r#"count{stage="arrived"}"#)?;
        let in_time = value(r#"bucket{le="1.024",stage="arrived"}"#)?;
        Some(Programmed {
            changes,
            late: changes.saturating_sub(in_time),
        })
    }
}

/// What the agents of some nodes have programmed together.
pub fn programmed(networks: &[PathBuf]) -> Result<Programmed> {
    let mut all = Programmed::default();
    for network in networks {
        let metrics = thread::scope(|scope| {
            let request = scope.spawn(|| {
                enter(network)?;
                let address = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
                get(address, "/metrics", RESPONSE_TIMEOUT)
            });
            let answer = request.join();
            answer.map_err(|_| anyhow!("a thread panicked"))?
        });
        let one = Programmed::read(&metrics?).context("an agent does not count its changes")?;
        all.changes += one.changes;
        all.late += one.late;
    }
    Ok(all)
}

/// The directory of the agent's process of a node.
fn process(node: u8) -> Result<PathBuf> {
    let wanted = format!("\0agent\0--node=n{node}\0");
    for entry in fs::read_dir("/proc")?.flatten() {
        let path = entry.path();
        let command = fs::read(path.join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).into_owned();
        if command.contains(&wanted) {
            return Ok(path);
        }
    }
    Err(anyhow!("no agent runs for n{node}"))
}

/// The directory of the control group that counts a process's memory, in either version.
fn memory_group(process: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(process.join("cgroup")).ok()?;
    let of = |controller: &str| {
        text.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (name, path) = (parts.next()?, parts.next()?);
            (name == controller).then(|| path.trim_start_matches('/').to_owned())
        })
    };
    let first = of("memory").map(|it| Path::new("/sys/fs/cgroup/memory").join(it));
    let second = of("").map(|it| Path::new("/sys/fs/cgroup").join(it));
    first.or(second).filter(|it| it.is_dir())
}

/// The answers of agents to health requests.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// The number of requests.
    pub requests: u64,
    /// Responses of /readyz other than 200, except during replacements.
    pub unready: u64,
    /// Responses of /healthz other than 200.
    pub unhealthy: u64,
    /// Requests without a response within the timeout, except during replacements.
    pub silent: u64,
    /// Some of the answers that were not 200.
    pub failures: Vec<String>,
}

impl Health {
    fn add(&mut self, other: Health) {
        self.requests += other.requests;
        self.unready += other.unready;
        self.unhealthy += other.unhealthy;
        self.silent += other.silent;
        self.failures.extend(other.failures);
        self.failures.dedup();
        self.failures.truncate(5);
    }

    /// Takes in an answer, or that there was none.
    fn take(&mut self, path: &str, answer: &Result<String>, is_replaced: bool) {
        self.requests += 1;
        match answer {
            _ if is_ok(answer) => return,
            Ok(_) if path == "/healthz" => self.unhealthy += 1,
            Ok(_) if !is_replaced => self.unready += 1,
            Err(_) if !is_replaced => self.silent += 1,
            Ok(_) | Err(_) => return,
        }
        if self.failures.len() < 5 {
            let text = match answer {
                Ok(text) => text.rsplit("\r\n").next().unwrap_or_default().to_owned(),
                Err(error) => format!("{error:#}"),
            };
            let text: String = text.trim().chars().take(300).collect();
            self.failures.push(format!("{path}: {text}"));
        }
    }
}

/// Requests the health of the agents of all nodes while the work runs. While `is_replaced`, agents
/// start and stop.
pub fn watched<T>(
    networks: &[PathBuf],
    is_replaced: &AtomicBool,
    work: impl FnOnce() -> Result<T>,
) -> (Result<T>, Health) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let workers: Vec<_> = networks
            .iter()
            .map(|network| scope.spawn(|| request(network, is_replaced, &is_over)))
            .collect();
        let result = work();
        is_over.store(true, Ordering::Release);
        let mut health = Health::default();
        for worker in workers {
            match worker.join() {
                Ok(Ok(seen)) => health.add(seen),
                Ok(Err(error)) => return (Err(error), health),
                Err(_) => return (Err(anyhow!("a thread panicked")), health),
            }
        }
        (result, health)
    })
}

fn request(network: &Path, is_replaced: &AtomicBool, is_over: &AtomicBool) -> Result<Health> {
    enter(network)?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
    let mut health = Health::default();
    while !is_over.load(Ordering::Acquire) {
        for path in ["/healthz", "/readyz"] {
            let before = is_replaced.load(Ordering::Acquire);
            let answer = get(address, path, RESPONSE_TIMEOUT);
            let after = is_replaced.load(Ordering::Acquire);
            health.take(path, &answer, before || after);
        }
        thread::sleep(PAUSE);
    }
    Ok(health)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: &str) -> Result<String> {
        Ok(format!("HTTP/1.1 {code}\r\n\r\nwords\n"))
    }

    #[test]
    fn late_changes_are_counted() {
        let name = "palisade_policy_programming_duration_seconds";
        let metrics = format!(
            "{name}_count{{stage=\"written\"}} 9\n{name}_count{{stage=\"arrived\"}} 7\n\
             {name}_bucket{{le=\"0.512\",stage=\"arrived\"}} 3\n\
             {name}_bucket{{le=\"1.024\",stage=\"arrived\"}} 5\n"
        );
        let (changes, late) = (7, 2);
        let found = Programmed::read(&metrics).unwrap();
        assert_eq!(found, Programmed { changes, late });
        assert_eq!(found.since(found), Programmed::default());
        assert_eq!(Programmed::read(""), None);
    }

    #[test]
    fn only_what_a_running_agent_says_counts() {
        let mut health = Health::default();
        health.take("/readyz", &answer("200 OK"), false);
        health.take("/readyz", &answer("503 No"), true);
        health.take("/readyz", &Err(anyhow!("refused")), true);
        assert_eq!((health.unready, health.unhealthy, health.silent), (0, 0, 0));
        health.take("/readyz", &answer("503 No"), false);
        health.take("/healthz", &answer("503 No"), true);
        health.take("/healthz", &Err(anyhow!("late")), false);
        assert_eq!((health.unready, health.unhealthy, health.silent), (1, 1, 1));
        assert_eq!(health.requests, 6);
        assert_eq!(health.failures.first().unwrap(), "/readyz: words");
    }
}
