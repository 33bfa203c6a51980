//! A whole cluster: a control plane and nodes, each in a network namespace, with real kubelets and
//! containers.

mod configs;
mod network;
mod node;

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::api::{Api, unique};
use crate::binaries::{Binaries, cluster_available};
use crate::error::{Error, Result};
use crate::home::{Entry, Home};
use crate::kubeconfig::kubeconfig;
use crate::process::{Process, run};
use crate::remove::remove;
use crate::server::Location;

pub use self::network::Plugin;
use self::network::{Space, control_plane};
use self::node::Node;

/// The timeout for nodes to become ready, on a busy machine.
const READY: Duration = Duration::from_secs(180);

/// The address of the control plane.
const PLANE: Ipv4Addr = Ipv4Addr::new(172, 30, 0, 1);

/// The options of a cluster.
#[derive(Debug, Clone)]
pub struct Shape {
    /// How many nodes, 1 to 100.
    pub nodes: u8,
    /// Whether each node has a kube-proxy, in nftables mode.
    pub proxy: bool,
    /// How pods are connected.
    pub plugin: Plugin,
    /// More options of kube-apiserver.
    pub server: Vec<String>,
}

impl Shape {
    /// A cluster of this many nodes, without kube-proxy, with routed pods.
    pub fn nodes(nodes: u8) -> Shape {
        Shape {
            nodes,
            proxy: false,
            plugin: Plugin::Ptp,
            server: Vec::new(),
        }
    }
}

/// A running cluster. Dropping it ends and removes everything. If its process is killed, the next
/// cluster that is started in the same way, or `palisade-testbed down`, removes it.
#[derive(Debug)]
pub struct Cluster {
    // Dropped first: all processes must have ended before they are waited for.
    removal: Removal,
    api: Api,
    managers: Vec<Process>,
    nodes: Vec<Node>,
    home: Home,
    binaries: Binaries,
}

/// Removes a cluster when it is dropped, also an incomplete one.
#[derive(Debug)]
struct Removal {
    home: Option<Home>,
}

impl Drop for Removal {
    fn drop(&mut self) {
        if let Some(home) = &self.home {
            // `drop` cannot report an error; the ledger has everything that is left.
            let _ = remove(home);
        }
    }
}

impl Cluster {
    /// Starts one in a temporary directory, and waits until all nodes are ready.
    pub fn start(shape: &Shape) -> Result<Cluster> {
        let parent = std::env::temp_dir();
        sweep(&parent);
        let directory = parent.join(format!("palisade-cluster-{}", unique()));
        Cluster::make(&directory, shape)
    }

    /// Starts one in a directory that must not exist yet; it keeps running when this process ends.
    pub fn detached(directory: &Path, shape: &Shape) -> Result<()> {
        let mut cluster = Cluster::make(directory, shape)?;
        cluster.removal.home = None;
        Ok(())
    }

    /// Starts everything and waits for it.
    fn make(directory: &Path, shape: &Shape) -> Result<Cluster> {
        let binaries = cluster_available()?;
        if !(1..=100).contains(&shape.nodes) {
            let text = format!("a cluster has 1 to 100 nodes, not {}", shape.nodes);
            return Err(Error::Refused(text));
        }
        let home = Home::make(directory)?;
        let removal = Removal {
            home: Some(home.clone()),
        };
        let plane = control_plane(&home, PLANE)?;
        let mut nodes = Vec::new();
        for number in 1..=shape.nodes {
            nodes.push(Node::make(&home, &plane, number, shape)?);
        }
        network::routes(&plane, &nodes)?;
        for node in &mut nodes {
            node.start_containerd(&home, &binaries)?;
        }
        let location = Location::within(&plane.file, IpAddr::V4(PLANE));
        let mut api = Api::at(&home, &binaries, location, shape.server.clone())?;
        api.disown();
        configs::bootstrap(&home, &api)?;
        let managers = managers(&home, &binaries, &api, &plane)?;
        for node in &mut nodes {
            node.start_kubelet(&home, &binaries, &api)?;
            if shape.proxy {
                node.start_proxy(&home, &binaries, &api)?;
            }
        }
        let mut cluster = Cluster {
            removal,
            api,
            managers,
            nodes,
            home,
            binaries,
        };
        cluster.wait(usize::from(shape.nodes))?;
        Ok(cluster)
    }

    /// Waits until all nodes are ready.
    fn wait(&mut self, nodes: usize) -> Result<()> {
        let end = Instant::now() + READY;
        loop {
            self.check()?;
            let mut kubectl = self.kubectl();
            kubectl.args(["get", "nodes", "--request-timeout=5s", "-o"]);
            kubectl.arg(
                r#"jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}"#,
            );
            let output = run(kubectl, Duration::from_secs(10));
            let output = output.unwrap_or_else(|error| error.to_string());
            if output.lines().filter(|it| it.ends_with(" True")).count() == nodes {
                return Ok(());
            }
            if Instant::now() >= end {
                let logs: Vec<String> = self.nodes.iter().map(Node::output).collect();
                return Err(Error::Timeout {
                    what: format!("{nodes} ready nodes"),
                    seconds: READY.as_secs(),
                    output: format!("{output}\n{}", logs.join("\n")),
                });
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// An error with the end of its log if a process has ended.
    fn check(&mut self) -> Result<()> {
        for process in &mut self.managers {
            process.check()?;
        }
        for node in &mut self.nodes {
            node.check()?;
        }
        Ok(())
    }

    /// Its API server, reachable from the namespaces of the control plane and of nodes.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Its API server, to stop and to start.
    pub fn api_mut(&mut self) -> &mut Api {
        &mut self.api
    }

    /// The pinned kubectl in the namespace of the control plane, as a cluster administrator.
    pub fn kubectl(&self) -> Command {
        kubectl(&self.home, &self.binaries)
    }

    /// The directory of all its files.
    pub fn directory(&self) -> &Path {
        &self.home.directory
    }

    /// A program in the network namespace of a node; 0 is the control plane.
    pub fn enter(&self, node: u8, program: &Path) -> Command {
        Space::of(&self.home, node).command(program)
    }

    /// Loads an archive of images into all nodes.
    pub fn load_image(&self, archive: &Path) -> Result<()> {
        load_image(&self.home, archive)
    }
}

/// Kubectl in a namespace from which the server of a testbed is reachable.
pub(crate) fn kubectl(home: &Home, binaries: &Binaries) -> Command {
    let space = Space::of(home, 0);
    let program = binaries.path("kubectl");
    let mut command = if space.file.exists() {
        space.command(&program)
    } else {
        Command::new(program)
    };
    command
        .arg("--kubeconfig")
        .arg(home.file("admin.kubeconfig"));
    command
}

/// Loads an archive of images into all nodes of a cluster.
pub(crate) fn load_image(home: &Home, archive: &Path) -> Result<()> {
    let mut number = 1;
    while home.file(&format!("n{number}")).is_dir() {
        node::import(home, number, archive)?;
        number += 1;
    }
    Ok(())
}

/// Controller manager and scheduler.
fn managers(home: &Home, binaries: &Binaries, api: &Api, plane: &Space) -> Result<Vec<Process>> {
    let pki = home.file("pki");
    let mut started = Vec::new();
    for (name, options) in [
        ("kube-controller-manager", configs::controllers(home, api)),
        ("kube-scheduler", Vec::new()),
    ] {
        let user = format!("system:{name}");
        let credentials = api.keys().authority.client(name, &user, &[])?;
        let file = pki.join(format!("{name}.kubeconfig"));
        kubeconfig(&file, &api.url(), &user, &credentials)?;
        let mut command = plane.command(&binaries.path(name));
        for option in [
            "kubeconfig",
            "authentication-kubeconfig",
            "authorization-kubeconfig",
        ] {
            command.arg(format!("--{option}={}", file.display()));
        }
        command.args([
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            "--profiling=false",
        ]);
        command.arg(format!("--cert-dir={}", pki.join(name).display()));
        command.args(options);
        started.push(home.start(name, command)?);
    }
    Ok(started)
}

/// Removes clusters of this kind whose starter has ended without removing them.
fn sweep(parent: &Path) {
    let Ok(entries) = parent.read_dir() else {
        return;
    };
    let paths = entries.filter_map(|it| Some(it.ok()?.path()));
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().and_then(|it| it.to_str());
        name.is_some_and(|it| it.starts_with("palisade-cluster-"))
    };
    for path in paths.filter(is_ours) {
        let Ok(home) = Home::open(&path) else {
            continue;
        };
        let is_left = home
            .entries()
            .iter()
            .any(|it| matches!(it, Entry::Starter(starter) if !starter.is_alive()));
        if is_left {
            // The next start tries again to remove the rest.
            let _ = remove(&home);
        }
    }
}
