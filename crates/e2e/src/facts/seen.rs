//! Compares verdicts of the specification, of `explain` and of packets, on a cluster of the
//! testbed.

#![allow(
    clippy::indexing_slicing,
    reason = "a missing field of a value is null"
)]

use std::fmt::Write as _;
use std::io::{self, Read as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use palisade_testbed::{Plugin, Shape};
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};

use crate::cluster::packets::{DROPPED, connected, echoed};
use crate::cluster::pods::Pod;
use crate::cluster::{E2eCluster, Installed, routed};
use palisade_campaigns::faults::crafted::{Connection, Direction, Phase, Protocol as Crafted};
use palisade_campaigns::health::ready;
use palisade_campaigns::kernel_facts::Findings;

/// The time within which packets must follow a change, as in the conformance tests.
const SETTLED: Duration = Duration::from_secs(10);
/// The address of the first node.
pub const NODE: IpAddr = IpAddr::V4(Ipv4Addr::new(172, 30, 0, 101));

/// The next port that an association comes from.
static NEXT_PORT: AtomicU16 = AtomicU16::new(20_000);

/// A cluster of one node with our agent.
pub fn ground(palisade: &Path, deploy: &Path, plugin: Plugin) -> Result<E2eCluster> {
    let shape = Shape {
        plugin,
        ..routed(1)
    };
    let installed = Installed {
        palisade: palisade.to_owned(),
        image: None,
        deploy: deploy.to_owned(),
    };
    E2eCluster::install_in(&installed, &shape)
}

/// The first node as a sender and receiver.
pub fn node(whole: &E2eCluster) -> Pod {
    Pod {
        namespace: String::new(),
        name: "node/n1".to_owned(),
        address: NODE,
        network: whole.cluster.directory().join("net-n1"),
    }
}

/// A shell on the node.
pub fn on_node(whole: &E2eCluster, script: &str) -> Result<String> {
    let mut command = whole.cluster.enter(1, Path::new("sh"));
    let output = command.args(["-c", script]).output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{script}: {}", stderr.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether bridged packets are shown to netfilter from now on.
pub fn show_bridged(whole: &E2eCluster, is_shown: bool) -> Result<()> {
    let value = u8::from(is_shown);
    let script = format!(
        "for it in iptables ip6tables; do echo {value} > /proc/sys/net/bridge/bridge-nf-call-$it; done"
    );
    on_node(whole, &script).map(drop)
}

/// The agent's `/readyz`: the code and the text.
pub fn readiness(whole: &E2eCluster) -> Result<(u16, String)> {
    node(whole).inside(ready)
}

/// What carries a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// TCP.
    Tcp,
    /// UDP; a process at the destination echoes.
    Udp,
    /// Measures SCTP, which this kernel may not support, by the arrival of the first packet at the
    /// node.
    Sctp,
}

/// A flow, and its verdict by the specification.
#[derive(Clone, Debug)]
pub struct Case<'a> {
    /// The sender.
    pub from: &'a Pod,
    /// How `explain` calls the destination.
    pub called: &'a str,
    /// Where packets go.
    pub to: SocketAddr,
    /// By what.
    pub carrier: Carrier,
    /// Whether it is allowed.
    pub is_allowed: bool,
}

impl Case<'_> {
    fn port(&self) -> String {
        let protocol = match self.carrier {
            Carrier::Tcp => "tcp",
            Carrier::Udp => "udp",
            Carrier::Sctp => "sctp",
        };
        format!("{protocol}/{}", self.to.port())
    }

    fn source(&self) -> String {
        match self.from.namespace.as_str() {
            "" => self.from.name.clone(),
            _ => self.from.called(),
        }
    }

    fn arrives(&self, node: &Pod) -> Result<bool> {
        let to = self.to;
        match self.carrier {
            Carrier::Tcp => self.from.inside(|| connected(to)),
            Carrier::Udp => self.from.inside(|| echoed(to)),
            Carrier::Sctp => announced(self.from, node, to),
        }
    }
}

/// Compares the specification with `explain` and with packets, as soon as the packets have had
/// their time to follow.
pub fn compare(
    whole: &E2eCluster,
    findings: &mut Findings,
    when: &str,
    cases: &[Case<'_>],
) -> Result<()> {
    let mut flows = String::new();
    for case in cases {
        let _ = writeln!(flows, "{} {} {}", case.source(), case.called, case.port());
    }
    let words = ["explain", "--lenient", "--flows", "-", "-o", "jsonl"];
    let output = whole.palisade(&words, &flows)?;
    let verdicts: Vec<String> = output
        .lines()
        .map(|line| {
            let explanation: Value = serde_json::from_str(line)?;
            Ok(explanation["verdict"]
                .as_str()
                .unwrap_or("nothing")
                .to_owned())
        })
        .collect::<Result<_>>()?;
    let node = node(whole);
    let end = Instant::now() + SETTLED;
    let measured = loop {
        let measured = all_at_once(cases, &node)?;
        let is_right = cases
            .iter()
            .zip(&measured)
            .all(|(case, it)| case.is_allowed == *it);
        if is_right || Instant::now() > end {
            break measured;
        }
    };
    let word = |it: bool| if it { "Allow" } else { "Deny" };
    for (number, (case, arrives)) in cases.iter().zip(measured).enumerate() {
        let explained = verdicts.get(number).map_or("nothing", String::as_str);
        let (decided, packets) = (word(case.is_allowed), word(arrives));
        findings.expect(
            decided == explained && decided == packets,
            format!(
                "{when}: {} -> {} {}: specification {decided}, explain {explained}, packets {packets}",
                case.source(),
                case.called,
                case.port()
            ),
        );
    }
    Ok(())
}

fn all_at_once(cases: &[Case<'_>], node: &Pod) -> Result<Vec<bool>> {
    thread::scope(|scope| {
        let workers: Vec<_> = cases
            .iter()
            .map(|case| scope.spawn(|| case.arrives(node)))
            .collect();
        workers
            .into_iter()
            .map(|it| {
                it.join()
                    .map_err(|_| anyhow::anyhow!("a thread panicked"))?
            })
            .collect()
    })
}

/// Whether the first packet of an association reaches a socket behind the node's input hook.
fn announced(from: &Pod, at: &Pod, to: SocketAddr) -> Result<bool> {
    let raw = || {
        Ok(Socket::new(
            Domain::IPV4,
            Type::RAW,
            Some(Protocol::from(132)),
        )?)
    };
    let mut ear = at.inside(raw)?;
    ear.set_read_timeout(Some(DROPPED))?;
    let mouth = from.inside(raw)?;
    // Another association each time: an entry of connection tracking would accept the packet.
    let port = NEXT_PORT.fetch_add(1, Ordering::Relaxed);
    let connection = Connection {
        protocol: Crafted::Sctp,
        client: SocketAddr::new(from.address, port),
        destination: to,
        server: to,
    };
    let packet = connection.packet(Direction::FromClient, Phase::Opening)?;
    let packet = packet.context("SCTP without a packet")?;
    // The kernel writes the header of 20 bytes by itself.
    let payload = packet.get(20..).context("a packet without a header")?;
    mouth.send_to(payload, &to.into())?;
    let end = Instant::now() + DROPPED;
    let wanted = [port.to_be_bytes(), to.port().to_be_bytes()].concat();
    while Instant::now() < end {
        let mut buffer = [0; 256];
        match ear.read(&mut buffer) {
            Ok(length) => {
                if buffer.get(20..length.min(24)) == Some(wanted.as_slice()) {
                    return Ok(true);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}
