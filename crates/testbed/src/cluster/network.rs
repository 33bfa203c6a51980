//! The network of a cluster: a namespace for the control plane with a bridge, one for each node,
//! and routes between the ranges of pods.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::error::{Result, at};
use crate::home::{Entry, Home};
use crate::process::{command, run};

use super::node::Node;
use crate::server::SERVICES;

/// The timeout for one change of a network.
const CHANGE: Duration = Duration::from_secs(20);

/// How pods are connected to their node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plugin {
    /// Each by a link of its own; packets between pods are always routed.
    Ptp,
    /// All by a bridge; packets between pods of a node are not routed.
    Bridge,
}

/// A network namespace that is mounted on a file.
#[derive(Debug, Clone)]
pub(crate) struct Space {
    pub(crate) file: PathBuf,
}

impl Space {
    /// The namespace of a node, or of the control plane, which has number 0.
    pub(crate) fn of(home: &Home, number: u8) -> Space {
        let name = match number {
            0 => "plane".to_owned(),
            _ => format!("n{number}"),
        };
        let file = home.file(&format!("net-{name}"));
        Space { file }
    }

    /// Makes it, with its loopback interface up and forwarding on.
    fn make(home: &Home, number: u8) -> Result<Space> {
        let space = Space::of(home, number);
        home.note(&Entry::Namespace(space.file.clone()))?;
        std::fs::write(&space.file, "").map_err(at("write", &space.file))?;
        let made = command("unshare", [space.option().as_os_str(), "true".as_ref()]);
        run(made, CHANGE)?;
        space.ip("link set lo up")?;
        // Without a mount of its own, /proc shows the settings of the reader's namespace, here this
        // one.
        let settings = "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter; \
                        echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet";
        let mut set = space.command(Path::new("sh"));
        set.args(["-c", settings]);
        run(set, CHANGE)?;
        Ok(space)
    }

    fn option(&self) -> OsString {
        let mut option = OsString::from("--net=");
        option.push(&self.file);
        option
    }

    /// A program inside.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(self.option()).arg("--").arg(program);
        command
    }

    /// Runs `ip` inside; words are divided by spaces.
    fn ip(&self, words: &str) -> Result<()> {
        let mut command = self.command(Path::new("ip"));
        command.args(words.split(' '));
        run(command, CHANGE).map(|_| ())
    }
}

/// The namespace of the control plane, with the bridge that nodes are on.
pub(crate) fn control_plane(home: &Home, address: Ipv4Addr) -> Result<Space> {
    let space = Space::make(home, 0)?;
    space.ip("link add br0 type bridge")?;
    space.ip(&format!("addr add {address}/24 dev br0"))?;
    space.ip("link set br0 up")?;
    Ok(space)
}

/// The namespace of a node, on a link to the bridge.
pub(crate) fn node(home: &Home, plane: &Space, number: u8, address: Ipv4Addr) -> Result<Space> {
    let space = Space::make(home, number)?;
    let mut link = plane.command(Path::new("ip"));
    let port = format!("n{number}");
    link.args([
        "link", "add", &port, "type", "veth", "peer", "eth0", "netns",
    ]);
    link.arg(&space.file);
    run(link, CHANGE)?;
    plane.ip(&format!("link set {port} master br0 up"))?;
    space.ip(&format!("addr add {address}/24 dev eth0"))?;
    space.ip("link set eth0 up")?;
    Ok(space)
}

/// Adds the routes to every range of pods.
pub(crate) fn routes(plane: &Space, nodes: &[Node]) -> Result<()> {
    for to in nodes {
        let way = format!("route add {} via {}", to.pods(), to.address);
        plane.ip(&way)?;
        for from in nodes.iter().filter(|it| it.number != to.number) {
            from.space.ip(&way)?;
        }
        // Addresses of Services are translated on output, but only if there is a route: nodes have
        // no default route.
        let services = format!("route add {SERVICES} via {}", super::PLANE);
        to.space.ip(&services)?;
    }
    Ok(())
}
