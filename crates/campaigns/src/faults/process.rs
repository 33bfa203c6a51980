//! The agent as a process, with a directory as its source. The test writes objects to files, and
//! reads the result from the kernel.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use palisade_nft::Kernel;
use serde_json::Value;
use tempfile::TempDir;

use super::kill::start;
use super::objects::{Key, Objects, Pod, isolates};
use super::programmer::Programmer;
use super::test_node::TestNode;

/// The time within which the kernel must enforce the files.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The interval between two reads of the kernel.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A directory that an agent watches.
#[derive(Debug)]
pub struct Directory {
    directory: TempDir,
    written: Objects,
    version: u16,
    kernel: Kernel,
}

impl Directory {
    /// An empty one.
    pub fn new(node: &TestNode) -> Result<Directory> {
        Ok(Directory {
            directory: TempDir::new()?,
            written: Objects::default(),
            version: 0,
            kernel: node.on_node(|| Ok(Kernel::open()?))?,
        })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    fn file(&self, key: &Key) -> PathBuf {
        self.path().join(format!("{}-{}.json", key.kind, key.name))
    }

    /// Writes the changed objects, each into its file, and the marker of the version last.
    pub fn write(&mut self, objects: &Objects) -> Result<()> {
        let mut objects = objects.clone();
        objects.put_policy("marker", &isolates("marker"));
        // The address of the marker pod identifies the version. The sets of isolated pods are the
        // last part of a change in the kernel.
        self.version = self.version.wrapping_add(1);
        let mut marker = Objects::default();
        marker.put_pod(&Pod {
            addresses: vec![self.marker_address().into()],
            ..Pod::at("marker", "marker", 0)
        });
        for (key, _) in self.written.iter() {
            if objects.get(key).is_none() {
                fs::remove_file(self.file(key))?;
            }
        }
        for (key, object) in objects.iter() {
            if self.written.get(key) != Some(object) {
                write_file(&self.file(key), object)?;
            }
        }
        self.written = objects;
        let marker = marker.iter().next().map(|(_, object)| object);
        write_file(
            &self.path().join("marker.json"),
            marker.context("no marker")?,
        )
    }

    fn marker_address(&self) -> Ipv4Addr {
        let [high, low] = self.version.to_be_bytes();
        Ipv4Addr::new(198, 18, high, low)
    }

    /// Waits until the kernel enforces the last version.
    pub fn wait(&mut self) -> Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        let marker_address = self.marker_address().octets();
        loop {
            // A table that is being replaced may disappear between two reads.
            let isolated = self.kernel.elements("judged-ingress4").unwrap_or_default();
            // During a swap, both tables enforce.
            let tables = self.kernel.tables().unwrap_or_default();
            let ours = tables.iter().filter(|it| it.starts_with("palisade"));
            if isolated.iter().any(|it| it.key == marker_address) && ours.count() == 1 {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("the kernel does not enforce the files");
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Writes a file atomically.
fn write_file(path: &Path, object: &Value) -> Result<()> {
    let draft = path.with_extension("draft");
    fs::write(&draft, serde_json::to_vec(object)?)?;
    fs::rename(&draft, path).context("cannot rename a file")
}

/// An agent process, killed on drop.
#[derive(Debug)]
pub struct AgentProcess(Child);

impl AgentProcess {
    /// Starts an agent on the node.
    pub fn start(node: &TestNode, directory: &Directory) -> Result<AgentProcess> {
        let source = directory.path().to_string_lossy().into_owned();
        Ok(AgentProcess(start(node, &["--source".to_owned(), source])?))
    }

    /// Kills it.
    pub fn kill(&mut self) -> Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }

    /// Terminates it, and waits for its end.
    pub fn terminate(&mut self) -> Result<()> {
        let id = i32::try_from(self.0.id()).context("invalid process identifier")?;
        signal::kill(Pid::from_raw(id), Signal::SIGTERM)?;
        let ended = self.0.wait()?;
        ensure!(ended.success(), "an agent failed after SIGTERM");
        Ok(())
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.0.try_wait()?.is_some())
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        // It may have exited.
        let _ = self.kill();
    }
}

/// An agent and its directory.
#[derive(Debug)]
pub struct Process {
    directory: Directory,
    _agent: AgentProcess,
}

impl Process {
    /// Starts an agent with an empty directory.
    pub fn start(node: &TestNode) -> Result<Process> {
        let directory = Directory::new(node)?;
        let agent = AgentProcess::start(node, &directory)?;
        Ok(Process {
            directory,
            _agent: agent,
        })
    }
}

impl Programmer for Process {
    fn apply(&mut self, objects: &Objects) -> Result<()> {
        self.directory.write(objects)?;
        self.directory.wait()
    }

    fn differences(&mut self, _: &Objects) -> Result<Vec<String>> {
        // The agent audits its table itself.
        Ok(Vec::new())
    }
}
