//! The agent as a process of its own, with a directory as its source: what is told is written into files,
//! and what is in the kernel is read from the kernel.

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
use super::programming::Programming;
use super::test_node::TestNode;

/// How long an agent may take until the kernel holds what the files say.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often the kernel is looked at.
const LOOK: Duration = Duration::from_millis(1);

/// A directory that an agent watches.
#[derive(Debug)]
pub struct Directory {
    directory: TempDir,
    told: Objects,
    version: u16,
    kernel: Kernel,
}

impl Directory {
    /// An empty one.
    pub fn new(stage: &TestNode) -> Result<Directory> {
        Ok(Directory {
            directory: TempDir::new()?,
            told: Objects::default(),
            version: 0,
            kernel: stage.on_node(|| Ok(Kernel::open()?))?,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    fn file(&self, key: &Key) -> PathBuf {
        self.path().join(format!("{}-{}.json", key.kind, key.name))
    }

    /// Writes what is different, each object as a whole, and a sign of the version last.
    pub fn write(&mut self, objects: &Objects) -> Result<()> {
        let mut objects = objects.clone();
        objects.put_policy("marker", &isolates("marker"));
        // The address of a pod that nobody is says which version it is. Nothing of a change is in the
        // kernel later than who is judged.
        self.version = self.version.wrapping_add(1);
        let mut marker = Objects::default();
        marker.put_pod(&Pod {
            addresses: vec![self.sign().into()],
            ..Pod::at("marker", "marker", 0)
        });
        for (key, _) in self.told.iter() {
            if objects.get(key).is_none() {
                fs::remove_file(self.file(key))?;
            }
        }
        for (key, object) in objects.iter() {
            if self.told.get(key) != Some(object) {
                put(&self.file(key), object)?;
            }
        }
        self.told = objects;
        let marker = marker.iter().next().map(|(_, object)| object);
        put(
            &self.path().join("marker.json"),
            marker.context("no marker")?,
        )
    }

    fn sign(&self) -> Ipv4Addr {
        let [high, low] = self.version.to_be_bytes();
        Ipv4Addr::new(198, 18, high, low)
    }

    /// Waits until the kernel holds what was written last.
    pub fn wait(&mut self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let sign = self.sign().octets();
        loop {
            // A table that is being replaced may be gone between two questions.
            let judged = self.kernel.elements("judged-ingress4").unwrap_or_default();
            // While a table replaces another, both enforce.
            let tables = self.kernel.tables().unwrap_or_default();
            let ours = tables.iter().filter(|it| it.starts_with("palisade"));
            if judged.iter().any(|it| it.key == sign) && ours.count() == 1 {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("the kernel does not hold what the files say");
            }
            thread::sleep(LOOK);
        }
    }
}

/// Puts a file in place at once.
fn put(path: &Path, object: &Value) -> Result<()> {
    let draft = path.with_extension("draft");
    fs::write(&draft, serde_json::to_vec(object)?)?;
    fs::rename(&draft, path).context("a file cannot be put in place")
}

/// A process that is ended when nobody needs it any more.
#[derive(Debug)]
pub struct Running(Child);

impl Running {
    /// Starts an agent on the node.
    pub fn start(stage: &TestNode, directory: &Directory) -> Result<Running> {
        let source = directory.path().to_string_lossy().into_owned();
        Ok(Running(start(stage, &["--source".to_owned(), source])?))
    }

    /// Ends it at once, by force.
    pub fn kill(&mut self) -> Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }

    /// Asks it to end, and waits until it has.
    pub fn terminate(&mut self) -> Result<()> {
        let id = i32::try_from(self.0.id()).context("a strange process")?;
        signal::kill(Pid::from_raw(id), Signal::SIGTERM)?;
        let ended = self.0.wait()?;
        ensure!(ended.success(), "an agent that was asked to end failed");
        Ok(())
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.0.try_wait()?.is_some())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.kill();
    }
}

/// An agent and its directory.
#[derive(Debug)]
pub struct Process {
    directory: Directory,
    _agent: Running,
}

impl Process {
    /// Starts an agent that enforces what is written from now on.
    pub fn start(stage: &TestNode) -> Result<Process> {
        let directory = Directory::new(stage)?;
        let agent = Running::start(stage, &directory)?;
        Ok(Process {
            directory,
            _agent: agent,
        })
    }
}

impl Programming for Process {
    fn apply(&mut self, objects: &Objects) -> Result<()> {
        self.directory.write(objects)?;
        self.directory.wait()
    }

    fn differences(&mut self, _: &Objects) -> Result<Vec<String>> {
        // The agent compares by itself.
        Ok(Vec::new())
    }
}
