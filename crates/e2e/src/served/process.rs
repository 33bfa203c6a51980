//! An agent as a process: whether it is ready, its memory and its processor time, by the kernel.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde::Serialize;

use palisade_campaigns::health::{RESPONSE_TIMEOUT, get, is_ok};

/// So long an agent may take until it is ready.
const PATIENCE: Duration = Duration::from_secs(600);

/// The allocator returns free memory to the system within ten seconds.
const REST: Duration = Duration::from_secs(15);

/// An agent that runs; it ends when this is dropped.
pub(super) struct Agent {
    child: Child,
    address: SocketAddr,
    log: PathBuf,
    started: Instant,
}

/// The resident memory of a process, in kilobytes.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Memory {
    /// All of it.
    pub(super) resident: u64,
    /// Anonymous memory.
    pub(super) anonymous: u64,
    /// The most that ever was there.
    pub(super) peak: u64,
}

/// How an agent was when it had become ready.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Settled {
    /// From its start until it was ready, in seconds.
    pub(super) ready_after: f64,
    /// The processor time until then, in seconds.
    pub(super) cpu: f64,
    /// When it had come to rest.
    pub(super) memory: Memory,
}

impl Agent {
    /// Starts one.
    pub(super) fn start(palisade: &Path, kubeconfig: &Path, node: &str) -> Result<Agent> {
        let log = kubeconfig.with_extension("agent.log");
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = free.local_addr()?;
        drop(free);
        let child = Command::new(palisade)
            // Its nodes have no blocks of addresses, and no packets.
            .args(["agent", "--node", node, "--unknown-pod=allow"])
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--listen", &address.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()
            .with_context(|| format!("cannot run `{}`", palisade.display()))?;
        Ok(Agent {
            child,
            address,
            log,
            started: Instant::now(),
        })
    }

    /// Waits until it is ready and has come to rest.
    pub(super) fn settled(&self) -> Result<Settled> {
        while !self.is_ready() {
            if self.started.elapsed() > PATIENCE {
                let log = fs::read_to_string(&self.log).unwrap_or_default();
                let end = log.len().saturating_sub(2_000);
                let end = log.get(end..).unwrap_or(&log);
                bail!("not ready after {} s: {end}", PATIENCE.as_secs());
            }
            sleep(Duration::from_millis(10));
        }
        let ready_after = self.started.elapsed().as_secs_f64();
        let cpu = self.cpu()?;
        sleep(REST);
        Ok(Settled {
            ready_after,
            cpu,
            memory: self.memory()?,
        })
    }

    pub(super) fn is_ready(&self) -> bool {
        is_ok(&self.get("/readyz"))
    }

    /// Its metrics.
    pub(super) fn metrics(&self) -> Result<String> {
        self.get("/metrics")
    }

    fn get(&self, path: &str) -> Result<String> {
        get(self.address, path, RESPONSE_TIMEOUT)
    }

    pub(super) fn memory(&self) -> Result<Memory> {
        let text = fs::read_to_string(self.file("status"))?;
        let of = |name: &str| {
            let line = text.lines().find_map(|it| it.strip_prefix(name));
            let number = line.and_then(|it| it.split_whitespace().next());
            number.and_then(|it| it.parse().ok()).unwrap_or(0)
        };
        Ok(Memory {
            resident: of("VmRSS:"),
            anonymous: of("RssAnon:"),
            peak: of("VmHWM:"),
        })
    }

    /// The processor time that it has used, in seconds.
    pub(super) fn cpu(&self) -> Result<f64> {
        let mut nanoseconds = 0_u64;
        for task in fs::read_dir(self.file("task"))? {
            let file = task?.path().join("schedstat");
            // A thread may end meanwhile.
            let text = fs::read_to_string(file).unwrap_or_default();
            let first = text.split_whitespace().next();
            nanoseconds += first.and_then(|it| it.parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(Duration::from_nanos(nanoseconds).as_secs_f64())
    }

    fn file(&self, name: &str) -> String {
        format!("/proc/{}/{name}", self.child.id())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Its table is deleted with the network namespace.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
