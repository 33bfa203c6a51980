//! Which frames between two pods on one bridge are judged, for each family and each setting of the kernel (D103).

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use palisade_core::net::Family;
use palisade_nft::Kernel;

use super::Findings;
use crate::faults::deltas::{Deltas, Running};
use crate::faults::objects::{NODE, Objects, Pod, isolates, pod_address};
use crate::faults::process::Directory;
use crate::faults::programming::Programming;
use crate::faults::test_node::{CLIENT, SERVER, TestNode};
use crate::health::{AGENT, ready};

const PORT: u16 = 5001;
/// What does not come in so long was dropped; a frame takes microseconds.
const DROPPED: Duration = Duration::from_millis(150);

/// How long an agent may take to see that frames pass it by.
const NOTICED: Duration = Duration::from_secs(10);

/// Two pods on a bridge, under no policy and isolated, for each of the four settings.
pub fn frames() -> Result<Findings> {
    let mut findings = Findings::default();
    let stage = TestNode::build()?;
    bridge(&stage)?;
    let mut deltas = stage.on_node(|| Deltas::with(Kernel::open()?, Running::Judged))?;
    for shown in [[true, true], [true, false], [false, true], [false, false]] {
        for (family, is_shown) in Family::BOTH.into_iter().zip(shown) {
            show(&stage, family, is_shown)?;
        }
        for is_isolated in [false, true] {
            deltas.apply(&objects(is_isolated))?;
            for (family, is_shown) in Family::BOTH.into_iter().zip(shown) {
                let arrives = arrives(&stage, family)?;
                let [v4, v6] = shown.map(u8::from);
                findings.expect(
                    arrives != (is_isolated && is_shown),
                    format!(
                        "bridge-nf-call-iptables {v4}, -ip6tables {v6}: {family:?}, {}: {}",
                        if is_isolated { "isolated" } else { "no policy" },
                        if arrives { "arrives" } else { "is dropped" },
                    ),
                );
            }
        }
    }
    Ok(findings)
}

/// The agent on such a node: it must say that it is not ready where frames pass it by.
pub fn noticed(palisade: &Path) -> Result<Findings> {
    let mut findings = Findings::default();
    for is_shown in [true, false] {
        let stage = TestNode::build()?;
        bridge(&stage)?;
        for family in Family::BOTH {
            show(&stage, family, is_shown)?;
        }
        let mut directory = Directory::new(&stage)?;
        directory.write(&objects(true))?;
        let mut agent = stage.on_node(|| {
            let mut command = Command::new(palisade);
            command.args(["agent", "--node", NODE, "--listen", AGENT]);
            // Its nodes have no blocks of addresses.
            command.args(["--unknown-pod=allow", "--source"]);
            command.arg(directory.path());
            command.stdin(Stdio::null()).stderr(Stdio::null());
            command.spawn().context("the agent cannot be started")
        })?;
        let answer: Result<(bool, (u16, String))> = (|| {
            directory.wait()?;
            let arrives = arrives(&stage, Family::V4)?;
            let end = Instant::now() + NOTICED;
            loop {
                let said = stage.on_node(ready)?;
                // For other reasons, too, an agent may not be ready for a moment.
                let is_as_decided = match is_shown {
                    true => said.0 == 200,
                    false => said.0 != 200 && said.1.contains("bridge"),
                };
                if is_as_decided || Instant::now() > end {
                    return Ok((arrives, said));
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        })();
        agent.kill()?;
        agent.wait()?;
        let (arrives, (code, words)) = answer?;
        findings.expect(
            arrives != is_shown && (code == 200) == is_shown && words.contains("bridge") != is_shown,
            format!(
                "bridge-nf-call {}: a packet to an isolated pod {}; the agent's /readyz says {code} {words:?} (D103)",
                u8::from(is_shown),
                if arrives { "arrives" } else { "is dropped" },
            ),
        );
    }
    Ok(findings)
}

fn objects(is_isolated: bool) -> Objects {
    let mut objects = Objects::new();
    objects.put_pod(&Pod::at("client", "client", CLIENT));
    objects.put_pod(&Pod::at("server", "server", SERVER));
    if is_isolated {
        objects.put_policy("server", &isolates("server"));
    }
    objects
}

/// Whether a first packet from one pod comes to the other.
fn arrives(stage: &TestNode, family: Family) -> Result<bool> {
    let server: UdpSocket = stage.socket(SERVER, family, PORT)?;
    server.set_read_timeout(Some(DROPPED))?;
    let client = stage.socket(CLIENT, family, 0)?;
    // A packet that a busy machine loses is sent again.
    for _ in 0..2 {
        client.send_to(b"?", SocketAddr::new(pod_address(SERVER, family), PORT))?;
        if server.recv(&mut [0; 8]).is_ok() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether frames of a family are shown to netfilter.
fn show(stage: &TestNode, family: Family, is_shown: bool) -> Result<()> {
    let name = match family {
        Family::V4 => "bridge-nf-call-iptables",
        Family::V6 => "bridge-nf-call-ip6tables",
    };
    let path = format!("/proc/sys/net/bridge/{name}");
    let value = u8::from(is_shown).to_string();
    stage.on_node(|| {
        fs::write(&path, value).with_context(|| format!("{path}: br_netfilter is not there"))
    })
}

/// Puts both pods on one bridge: each finds the other on its own link, and not by way of the node.
fn bridge(stage: &TestNode) -> Result<()> {
    stage.on_node(|| {
        ip("link add bridge0 type bridge")?;
        for pod in [CLIENT, SERVER] {
            let interface = stage.world.pod_interface(pod);
            ip(&format!("link set {interface} master bridge0"))?;
        }
        ip("link set bridge0 up")?;
        // The node reaches them by the bridge, as where its address is their gateway: what a pod sends must come from there
        // (D147).
        let families = |pod| Family::BOTH.map(|family| pod_address(pod, family));
        for address in [CLIENT, SERVER].into_iter().flat_map(families) {
            let length = if address.is_ipv4() { 32 } else { 128 };
            ip(&format!("route del {address}/{length}"))?;
            ip(&format!("route add {address}/{length} dev bridge0"))?;
        }
        Ok(())
    })?;
    for (from, to) in [(CLIENT, SERVER), (SERVER, CLIENT)] {
        let link = stage.world.in_pod(to, || ip_says("-o link show eth0"))??;
        let mut words = link.split(' ').skip_while(|it| *it != "link/ether");
        let hardware = words.nth(1).context("a pod without a hardware address")?;
        stage.world.in_pod(from, || {
            for family in Family::BOTH {
                let address = pod_address(to, family);
                let length = if address.is_ipv4() { 32 } else { 128 };
                ip(&format!("route add {address}/{length} dev eth0"))?;
                ip(&format!(
                    "neigh replace {address} lladdr {hardware} dev eth0"
                ))?;
            }
            Ok::<(), anyhow::Error>(())
        })??;
    }
    Ok(())
}

fn ip(words: &str) -> Result<()> {
    ip_says(words).map(drop)
}

/// Runs `ip` in the network of the calling thread.
fn ip_says(words: &str) -> Result<String> {
    let output = Command::new("ip").args(words.split(' ')).output();
    let output = output.context("the program `ip` is needed")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {words}: {}", said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
