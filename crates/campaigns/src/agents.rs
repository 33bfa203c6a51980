//! The agent's binary on the nodes of a cluster of network namespaces.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use palisade_lab::network::LabNetwork;

use crate::health::{AGENT, ready};

/// How long an agent may take until it is ready.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program to run: the one that was chosen, or the one beside this.
pub(crate) fn program(chosen: Option<&Path>) -> Result<PathBuf> {
    Ok(match chosen {
        Some(path) => path.to_owned(),
        None => std::env::current_exe()?.with_file_name("palisade"),
    })
}

/// Runs the agent on a node with `words` and waits until it has ended, as `--close-only` does by itself.
pub(crate) fn run_to_end(
    palisade: &Path,
    world: &LabNetwork,
    node: usize,
    words: &[String],
) -> Result<()> {
    let mut command = Command::new(palisade);
    command.arg("agent").args(words);
    let output = world.in_node(node, || command.output())?;
    let output = output.with_context(|| format!("cannot run {}", palisade.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("palisade agent {}: {}", words.join(" "), said.trim());
    }
    Ok(())
}

/// An agent that runs on a node; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Agent {
    child: Child,
    log: PathBuf,
}

impl Agent {
    /// Starts one. Health is at [`AGENT`] of the node's network.
    pub(crate) fn start(
        palisade: &Path,
        world: &LabNetwork,
        node: usize,
        words: &[String],
        log: PathBuf,
    ) -> Result<Agent> {
        let mut command = Command::new(palisade);
        command
            .args(["agent", "--listen", AGENT])
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?);
        let child = world.in_node(node, || command.spawn())?;
        let child = child.with_context(|| format!("cannot run {}", palisade.display()))?;
        Ok(Agent { child, log })
    }

    /// Whether its log has some words.
    pub(crate) fn has_said(&self, words: &str) -> bool {
        let text = fs::read_to_string(&self.log);
        text.is_ok_and(|it| it.contains(words))
    }

    /// The last lines of its log.
    pub(crate) fn last_words(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(10).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Waits until it is ready.
    pub(crate) fn wait(&self, world: &LabNetwork, node: usize) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let said = world.in_node(node, ready)?;
            match said {
                Ok((200, _)) => return Ok(()),
                _ if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
                other => bail!("the agent is not ready: {other:?}\n{}", self.last_words()),
            }
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
