//! One node: containerd, kubelet and, if wanted, kube-proxy, in one network and one mount
//! namespace.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::api::Api;
use crate::authority::write;
use crate::binaries::Binaries;
use crate::error::{Error, Result};
use crate::home::Home;
use crate::kubeconfig::kubeconfig;
use crate::process::{Process, run, until};

use super::network::{self, Space};
use super::{Shape, configs};

/// Mounts of a node must not reach ours, but those of containerd must reach kubelet, and vice
/// versa. Fixed paths of both are in memory, and disappear with the namespace.
const APART: &str = "mount --make-rshared / && mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /var/lib && mount -t tmpfs tmpfs /var/log \
                     && mkdir -p /run/lock /var/lib/kubelet /var/log/pods && exec \"$@\"";

/// A node of a cluster.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) number: u8,
    pub(crate) address: Ipv4Addr,
    pub(crate) space: Space,
    directory: PathBuf,
    processes: Vec<Process>,
}

impl Node {
    /// Creates its namespace, link and files; starts nothing.
    pub(crate) fn make(home: &Home, plane: &Space, number: u8, shape: &Shape) -> Result<Node> {
        let address = Ipv4Addr::new(172, 30, 0, number.saturating_add(100));
        let space = network::node(home, plane, number, address)?;
        let node = Node {
            number,
            address,
            space,
            directory: home.subdirectory(&format!("n{number}"))?,
            processes: Vec::new(),
        };
        let plugins = home.subdirectory(&format!("n{number}/cni"))?;
        let (cni, containerd) = (
            configs::cni(&node.directory, &node.pods(), shape.plugin),
            configs::containerd(&node.directory, &plugins),
        );
        write(&plugins.join("10-testbed.conflist"), &cni)?;
        write(&node.directory.join("containerd.toml"), &containerd)?;
        Ok(node)
    }

    /// Its name in the cluster.
    pub(crate) fn name(&self) -> String {
        format!("n{}", self.number)
    }

    /// The range of its pods.
    pub(crate) fn pods(&self) -> String {
        format!("10.200.{}.0/24", self.number)
    }

    /// Starts containerd, which makes the node's mount namespace, and loads the images.
    pub(crate) fn start_containerd(&mut self, home: &Home, binaries: &Binaries) -> Result<()> {
        let mut command = self.space.command(Path::new("unshare"));
        command.args([
            "--mount",
            "--propagation",
            "private",
            "--",
            "sh",
            "-c",
            APART,
            "sh",
        ]);
        command.args(["containerd", "--log-level", "warn", "--config"]);
        command.arg(self.directory.join("containerd.toml"));
        let name = format!("containerd-{}", self.name());
        let mut process = home.start(&name, command)?;
        let socket = self.directory.join("containerd.sock");
        let mut ended = None;
        let is_there = until(Duration::from_secs(30), || {
            ended = process.check().err();
            ended.is_some() || std::os::unix::net::UnixStream::connect(&socket).is_ok()
        });
        if let Some(error) = ended {
            return Err(error);
        }
        if !is_there {
            return Err(Error::Timeout {
                what: name,
                seconds: 30,
                output: process.output(),
            });
        }
        self.processes.push(process);
        for image in crate::binaries::IMAGES {
            import(home, self.number, &binaries.path(image))?;
        }
        Ok(())
    }

    /// A program in the namespaces of containerd.
    fn inside(&self, program: &Path) -> Result<Command> {
        let Some(containerd) = self.processes.first() else {
            return Err(Error::Refused(format!("{} has no containerd", self.name())));
        };
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", containerd.identity.pid));
        command.arg(format!("--net=/proc/{}/ns/net", containerd.identity.pid));
        command.arg("--").arg(program);
        Ok(command)
    }

    /// Starts kubelet.
    pub(crate) fn start_kubelet(
        &mut self,
        home: &Home,
        binaries: &Binaries,
        api: &Api,
    ) -> Result<()> {
        let name = self.name();
        let authority = &api.keys().authority;
        let user = format!("system:node:{name}");
        let addresses = [IpAddr::V4(self.address)];
        let file = format!("kubelet-{name}");
        let credentials =
            authority.server(&file, (&user, &["system:nodes"]), &[&name], &addresses)?;
        let access = self.directory.join("kubelet.kubeconfig");
        kubeconfig(&access, &api.url(), &user, &credentials)?;
        let config = self.directory.join("kubelet.yaml");
        write(&config, &configs::kubelet(&self.directory, &credentials))?;
        let mut command = self.inside(&binaries.path("kubelet"))?;
        command.args([
            format!("--config={}", config.display()),
            format!("--kubeconfig={}", access.display()),
            format!("--root-dir={}", self.directory.join("kubelet").display()),
            format!("--cert-dir={}", self.directory.join("pki").display()),
            format!("--hostname-override={name}"),
            format!("--node-ip={}", self.address),
        ]);
        self.processes.push(home.start(&file, command)?);
        Ok(())
    }

    /// Starts kube-proxy.
    pub(crate) fn start_proxy(
        &mut self,
        home: &Home,
        binaries: &Binaries,
        api: &Api,
    ) -> Result<()> {
        let name = self.name();
        let file = format!("kube-proxy-{name}");
        let authority = &api.keys().authority;
        let credentials = authority.client(&file, "system:kube-proxy", &[])?;
        let access = self.directory.join("proxy.kubeconfig");
        kubeconfig(&access, &api.url(), "system:kube-proxy", &credentials)?;
        let config = self.directory.join("proxy.yaml");
        write(&config, &configs::proxy(&name, &access))?;
        let mut command = self.inside(&binaries.path("kube-proxy"))?;
        command.arg(format!("--config={}", config.display()));
        self.processes.push(home.start(&file, command)?);
        Ok(())
    }

    /// An error if one of its processes has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.processes.iter_mut().try_for_each(Process::check)
    }

    /// The last lines of its logs.
    pub(crate) fn output(&self) -> String {
        let output = self
            .processes
            .iter()
            .map(|it| format!("{}:\n{}", it.name, it.output()));
        output.collect::<Vec<String>>().join("\n")
    }
}

/// Loads an archive of images into a node.
pub(crate) fn import(home: &Home, number: u8, archive: &Path) -> Result<()> {
    let mut command = Command::new("ctr");
    command
        .arg("--address")
        .arg(home.file(&format!("n{number}/containerd.sock")));
    command.args(["--namespace", "k8s.io", "images", "import"]);
    command.arg(archive);
    run(command, Duration::from_secs(120)).map(|_| ())
}
