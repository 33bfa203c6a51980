//! Runs the agent's program on the nodes of a cluster of network namespaces.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use palisade_lab::network::LabNetwork;

use crate::health::{AGENT, ready};

/// The time within which an agent must be ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// The program to run: the chosen one, or the one beside this program.
pub(crate) fn program(chosen: Option<&Path>) -> Result<PathBuf> {
    Ok(match chosen {
        Some(path) => path.to_owned(),
        None => std::env::current_exe()?.with_file_name("palisade"),
    })
}

/// Runs the agent on a node until it exits, as it does with `--close-only`.
pub(crate) fn run_to_end(
    palisade: &Path,
    network: &LabNetwork,
    node: usize,
    args: &[String],
) -> Result<()> {
    let mut command = Command::new(palisade);
    command.arg("agent").args(args);
    let output = network.in_node(node, || command.output())?;
    let output = output.with_context(|| format!("cannot run {}", palisade.display()))?;
    if !output.status.success() {
        let response = String::from_utf8_lossy(&output.stderr);
        bail!("palisade agent {}: {}", args.join(" "), response.trim());
    }
    Ok(())
}

/// An agent on a node, killed on drop.
#[derive(Debug)]
pub(crate) struct Agent {
    child: Child,
    log: PathBuf,
}

impl Agent {
    /// Starts an agent that serves its health at [`AGENT`].
    pub(crate) fn start(
        palisade: &Path,
        network: &LabNetwork,
        node: usize,
        args: &[String],
        log: PathBuf,
    ) -> Result<Agent> {
        let mut command = Command::new(palisade);
        command
            .args(["agent", "--listen", AGENT])
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?);
        let child = network.in_node(node, || command.spawn())?;
        let child = child.with_context(|| format!("cannot run {}", palisade.display()))?;
        Ok(Agent { child, log })
    }

    /// Whether its log contains a text.
    pub(crate) fn log_contains(&self, args: &str) -> bool {
        let text = fs::read_to_string(&self.log);
        text.is_ok_and(|it| it.contains(args))
    }

    /// The last lines of its log.
    pub(crate) fn log_tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(10).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Waits until it is ready.
    pub(crate) fn wait(&self, network: &LabNetwork, node: usize) -> Result<()> {
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            let response = network.in_node(node, ready)?;
            match response {
                Ok((200, _)) => return Ok(()),
                _ if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
                other => bail!("the agent is not ready: {other:?}\n{}", self.log_tail()),
            }
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It may have exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
