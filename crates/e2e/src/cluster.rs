//! Palisade on a whole cluster of the testbed: installed by our manifests, real kubelets and pods,
//! real packets.
//!
//! Policies change at random, and packets of real pods must match the verdicts of `explain` for the
//! live cluster. Agents are replaced while packets flow, the API server has an outage, and
//! uninstallation leaves nothing.

pub mod campaign;
pub mod console;
pub mod outage;
pub mod packets;
pub mod pods;
pub mod policies;
pub mod traffic;

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use palisade_testbed::{Cluster, Plugin, Shape, program_image};
use serde_json::{Value, json};

use self::console::{Shown, replay};

/// The image that the manifests name.
const IMAGE: &str = "localhost/palisade:0.1.0";
/// The timeout of an operation in a cluster, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// A cluster that enforces by our agents.
#[derive(Debug)]
pub struct E2eCluster {
    /// The cluster.
    pub cluster: Cluster,
    palisade: PathBuf,
    deploy: PathBuf,
}

/// The installation.
#[derive(Clone, Debug)]
pub struct Installed {
    /// The program, which people at the control plane use as well.
    pub palisade: PathBuf,
    /// The archive of the image; `None`: one is made of the program and its libraries.
    pub image: Option<PathBuf>,
    /// The directory of the manifests.
    pub deploy: PathBuf,
}

impl E2eCluster {
    /// Starts a cluster of some nodes and installs Palisade in it.
    pub fn install(installed: &Installed, nodes: u8) -> Result<E2eCluster> {
        E2eCluster::install_in(installed, &routed(nodes))
    }

    /// The same in a cluster of any shape.
    pub fn install_in(installed: &Installed, shape: &Shape) -> Result<E2eCluster> {
        let whole = E2eCluster::start_in(installed, shape)?;
        whole.apply_file("crds/palisade.yaml")?;
        whole.apply_file("palisade.yaml")?;
        whole.wait_for_agents()?;
        Ok(whole)
    }

    /// Starts a cluster of some nodes that have the image.
    pub fn start(installed: &Installed, nodes: u8) -> Result<E2eCluster> {
        E2eCluster::start_in(installed, &routed(nodes))
    }

    fn start_in(installed: &Installed, shape: &Shape) -> Result<E2eCluster> {
        let whole = E2eCluster {
            cluster: Cluster::start(shape)?,
            palisade: installed.palisade.clone(),
            deploy: installed.deploy.clone(),
        };
        whole.give_blocks(shape.nodes)?;
        if let Some(archive) = &installed.image {
            whole.cluster.load_image(archive)?;
            return Ok(whole);
        }
        let archive = whole.cluster.directory().join("palisade.tar");
        std::fs::write(&archive, program_image(&installed.palisade, IMAGE)?)?;
        whole.cluster.load_image(&archive)?;
        Ok(whole)
    }

    /// Sets `spec.podCIDRs` of each Node, as a controller does in most clusters: agents close
    /// unknown addresses of them.
    fn give_blocks(&self, nodes: u8) -> Result<()> {
        for number in 1..=nodes {
            let block = format!("10.200.{number}.0/24");
            let patch = json!({"spec": {"podCIDR": block, "podCIDRs": [block]}});
            let (node, patch) = (format!("n{number}"), patch.to_string());
            self.kubectl(&["patch", "node", &node, "-p", &patch])?;
        }
        Ok(())
    }

    /// Removes the installation as the documentation shows.
    pub fn uninstall(&self) -> Result<()> {
        for file in ["palisade.yaml", "crds/palisade.yaml"] {
            let path = self.deploy.join(file);
            let path = path.to_string_lossy();
            self.kubectl(&[
                "delete",
                "--ignore-not-found",
                "--wait=true",
                "--timeout=120s",
                "-f",
                &path,
            ])?;
        }
        Ok(())
    }

    /// Removes the table of every node with the script for that.
    pub fn clean_up(&self) -> Result<String> {
        answer(&mut self.at_hand(&self.deploy.join("cleanup"))?, None)
    }

    /// Types the commands of a page into a shell of a cluster admin, and compares the output.
    pub fn replay(&self, shown: &[Shown]) -> Result<()> {
        let mut shell = self.at_hand(Path::new("bash"))?;
        let root = self.deploy.join("..");
        shell.current_dir(root).env("IMAGE", IMAGE);
        replay(&mut shell, shown)
    }

    /// A program that finds `kubectl` and `palisade`, which know this cluster, where programs are
    /// found.
    fn at_hand(&self, program: &Path) -> Result<Command> {
        let directory = self.cluster.directory().join("bin");
        std::fs::create_dir_all(&directory)?;
        let palisade = self.cluster.enter(0, &self.palisade);
        for (name, command) in [("kubectl", self.cluster.kubectl()), ("palisade", palisade)] {
            let program = command.get_program().to_string_lossy().into_owned();
            let words = command.get_args().map(|it| it.to_string_lossy());
            let words: Vec<String> = words.map(|it| format!("'{it}'")).collect();
            let script = format!("#!/bin/sh\nexec '{program}' {} \"$@\"\n", words.join(" "));
            let file = directory.join(name);
            std::fs::write(&file, script)?;
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755))?;
        }
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(program);
        command.env("PATH", format!("{}:{path}", directory.display()));
        let kubeconfig = self.cluster.directory().join("admin.kubeconfig");
        command.env("KUBECONFIG", kubeconfig);
        Ok(command)
    }

    /// Applies a manifest of the directory.
    pub fn apply_file(&self, file: &str) -> Result<()> {
        let path = self.deploy.join(file);
        let path = path.to_string_lossy();
        // Schemas of this size do not fit into an annotation.
        let words = ["apply", "--server-side", "--force-conflicts", "-f", &path];
        self.kubectl(&words).map(|_| ())
    }

    /// What kubectl answers.
    pub fn kubectl(&self, words: &[&str]) -> Result<String> {
        answer(self.cluster.kubectl().args(words), None)
    }

    /// Applies an object.
    pub fn apply(&self, object: &Value) -> Result<()> {
        let words = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        let text = object.to_string();
        answer(self.cluster.kubectl().args(words), Some(&text)).map(|_| ())
    }

    /// Deletes an object if it exists.
    pub fn delete(&self, object: &Value) -> Result<()> {
        let words = ["delete", "--ignore-not-found", "--wait=true", "-f", "-"];
        let text = object.to_string();
        answer(self.cluster.kubectl().args(words), Some(&text)).map(|_| ())
    }

    /// Waits until every node's agent is ready.
    pub fn wait_for_agents(&self) -> Result<()> {
        let words = ["-n", "palisade-system", "rollout", "status"];
        let mut all: Vec<&str> = words.to_vec();
        all.extend(["daemonset/palisade-agent", "--timeout=180s"]);
        if let Err(error) = self.kubectl(&all) {
            let pods = self.kubectl(&["-n", "palisade-system", "describe", "pods"]);
            let logs = self.kubectl(&["-n", "palisade-system", "logs", "daemonset/palisade-agent"]);
            bail!(
                "{error:#}\n{}\n{}",
                pods.unwrap_or_default(),
                logs.unwrap_or_default()
            );
        }
        Ok(())
    }

    /// What Palisade answers to a person at the control plane.
    pub fn palisade(&self, words: &[&str], input: &str) -> Result<String> {
        let mut command = self.cluster.enter(0, &self.palisade);
        command
            .args(words)
            .arg("--kubeconfig")
            .arg(self.cluster.directory().join("admin.kubeconfig"));
        answer(&mut command, Some(input))
    }

    /// Our tables in the kernel of a node.
    pub fn tables(&self, node: u8) -> Result<String> {
        let mut command = self.cluster.enter(node, Path::new("nft"));
        answer(command.args(["list", "tables"]), None)
    }
}

/// A cluster whose pods are routed.
pub(crate) fn routed(nodes: u8) -> Shape {
    Shape {
        nodes,
        proxy: true,
        plugin: Plugin::Ptp,
        server: Vec::new(),
    }
}

/// Waits for a condition.
pub fn until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    loop {
        let answer = is_so();
        if matches!(answer, Ok(true)) {
            return Ok(());
        }
        if Instant::now() > end {
            answer?;
            bail!("not within {} s: {what}", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The output of a program, which must exit with 0 or 1.
fn answer(command: &mut Command, input: Option<&str>) -> Result<String> {
    command.stdin(match input {
        Some(_) => Stdio::piped(),
        None => Stdio::null(),
    });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("a program cannot be started")?;
    if let (Some(input), Some(mut stdin)) = (input, child.stdin.take()) {
        let input = input.to_owned();
        std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    }
    let output = child.wait_with_output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let is_answer = match command.get_args().any(|it| it == "explain") {
        true => output.status.code() != Some(2) && output.status.code().is_some(),
        false => output.status.success(),
    };
    ensure!(is_answer, "{command:?}: {}", stderr.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
