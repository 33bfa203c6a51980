//! A tenant writes large policies all the time: how long a policy of another waits, and what the agent takes meanwhile.
//!
//! Two pods of a victim are network namespaces behind the node's, so that packets show when a policy is in force.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::gettid;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::ServedArgs;
use super::process::Agent;
use crate::attack::load::{Beside, Pace, Phase, Scene, measured};
use crate::live::NODE;
use crate::whole::pods::Pod;
use crate::writer::Writer;

/// The gateway of the victim's pods.
const GATEWAY: &str = "10.251.0.254";
/// The victim's pods, and the tenant's, which only its address is known of.
const PODS: [(&str, &str, &str); 3] = [
    ("victim", "db", "10.251.0.1"),
    ("victim", "client", "10.251.0.2"),
    ("tenant", "db", "10.251.0.3"),
];
/// Between two questions whether the agent is well.
const PAUSE: Duration = Duration::from_millis(100);
/// So long a load lasts before anything is timed.
const WARM: u64 = 10;

/// What was measured.
#[derive(Debug, Default)]
pub(super) struct Loads {
    phases: Vec<String>,
    /// Whether the victim never waited too long and the agent was always well.
    pub(super) are_borne: bool,
}

impl fmt::Display for Loads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for phase in &self.phases {
            writeln!(f, "{phase}")?;
        }
        Ok(())
    }
}

/// Measures beside each kind of large policies; for each the agent is a new one, and after it another starts beside what is
/// left.
pub(super) fn large(
    palisade: &Path,
    kubeconfig: &Path,
    runtime: &Runtime,
    writer: &Writer,
    args: &ServedArgs,
) -> Result<Loads> {
    let pods = victims()?;
    let [from, to] = pods.as_slice() else {
        return Err(anyhow!("the victim has two pods"));
    };
    runtime.block_on(write_pods(writer))?;
    let scene = Scene {
        from,
        to,
        network: Path::new("/proc/self/ns/net"),
        victim: kubeconfig,
        tenant: kubeconfig,
    };
    let pace = Pace {
        writes: usize::try_from(args.writes)?,
        rate: args.large,
        warm: WARM,
    };
    let mut loads = Loads {
        phases: Vec::new(),
        are_borne: true,
    };
    for beside in Beside::ALL {
        let agent = Agent::start(palisade, kubeconfig, NODE)?;
        agent.settled()?;
        let (phase, well): (Result<Phase>, Wellness) =
            watched(&agent, || measured(scene, pace, beside));
        let phase = phase?;
        let peak = agent.memory()?.peak;
        drop(agent);
        let agent = Agent::start(palisade, kubeconfig, NODE)?;
        let started = agent.settled()?;
        loads.are_borne &= !phase.is_late() && well.unready + well.unhealthy == 0;
        loads.phases.push(format!(
            "{phase}; the agent took at most {} MiB, and one that started beside them {} MiB, ready after {:.1} s; of {} probes {} were not ready and {} not healthy",
            peak >> 10,
            started.memory.peak >> 10,
            started.ready_after,
            well.asked,
            well.unready,
            well.unhealthy
        ));
        let all = "/apis/networking.k8s.io/v1/namespaces/tenant/networkpolicies";
        runtime.block_on(writer.ask("DELETE", all, &json!({})))?;
    }
    Ok(loads)
}

/// What the agent said of itself.
#[derive(Debug, Default)]
struct Wellness {
    asked: u64,
    unready: u64,
    unhealthy: u64,
}

fn watched<T>(agent: &Agent, work: impl FnOnce() -> T) -> (T, Wellness) {
    let is_over = AtomicBool::new(false);
    let (asked, unready, unhealthy) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let result = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                asked.fetch_add(2, Ordering::Relaxed);
                unready.fetch_add(u64::from(!agent.is_ready()), Ordering::Relaxed);
                unhealthy.fetch_add(u64::from(!agent.is_healthy()), Ordering::Relaxed);
                thread::sleep(PAUSE);
            }
        });
        let result = work();
        is_over.store(true, Ordering::Release);
        result
    });
    let wellness = Wellness {
        asked: asked.into_inner(),
        unready: unready.into_inner(),
        unhealthy: unhealthy.into_inner(),
    };
    (result, wellness)
}

/// The network namespaces of the victim's pods, each on a link of its own. They end with this process.
fn victims() -> Result<Vec<Pod>> {
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("cannot forward packets")?;
    let mut pods = Vec::new();
    for (namespace, app, address) in PODS.into_iter().take(2) {
        let network = apart()?;
        let (link, path) = (format!("pod-{app}"), network.to_string_lossy());
        let inside = |words: &str| ip(Some(&network), words);
        ip(
            None,
            &format!("link add {link} type veth peer name eth0 netns {path}"),
        )?;
        ip(None, &format!("link set {link} up"))?;
        ip(None, &format!("addr add {GATEWAY}/32 dev {link}"))?;
        ip(None, &format!("route add {address}/32 dev {link}"))?;
        inside("link set lo up")?;
        inside("link set eth0 up")?;
        inside(&format!("addr add {address}/32 dev eth0"))?;
        inside(&format!("route add {GATEWAY} dev eth0"))?;
        inside(&format!("route add default via {GATEWAY}"))?;
        pods.push(Pod {
            namespace: namespace.to_owned(),
            name: format!("{namespace}-{app}"),
            address: address.parse()?,
            network,
        });
    }
    Ok(pods)
}

/// A network namespace of a thread that does nothing else.
fn apart() -> Result<PathBuf> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let made = unshare(CloneFlags::CLONE_NEWNET).map(|()| gettid());
        if sender.send(made).is_ok() {
            loop {
                thread::park();
            }
        }
    });
    let thread = receiver.recv()?.context("no network namespace")?;
    let process = std::process::id();
    Ok(PathBuf::from(format!(
        "/proc/{process}/task/{thread}/ns/net"
    )))
}

/// Runs `ip`, here or in a network namespace; words are divided by spaces.
fn ip(network: Option<&Path>, words: &str) -> Result<()> {
    let mut command = match network {
        Some(network) => {
            let mut command = Command::new("nsenter");
            command
                .arg(format!("--net={}", network.display()))
                .arg("ip");
            command
        }
        None => Command::new("ip"),
    };
    let output = command.args(words.split(' ')).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {words}: {}", said.trim());
    Ok(())
}

async fn write_pods(writer: &Writer) -> Result<()> {
    for namespace in ["victim", "tenant"] {
        let object =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        writer.create(&object).await?;
    }
    for (namespace, app, address) in PODS {
        writer.create(&pod(namespace, app, address)).await?;
    }
    Ok(())
}

fn pod(namespace: &str, app: &str, address: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": format!("{namespace}-{app}"), "labels": {"app": app}},
        "spec": {"nodeName": NODE, "containers": [{"name": "main", "image": "none"}]},
        "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]},
    })
}
