//! The frames between two pods on one bridge that nftables evaluates, for each family and each
//! setting of the kernel (D103).

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use palisade_agent::Established;
use palisade_core::net::Family;
use palisade_nft::Kernel;

use super::Findings;
use crate::faults::deltas::Deltas;
use crate::faults::objects::{NODE, Objects, Pod, isolates, pod_address};
use crate::faults::process::Directory;
use crate::faults::programmer::Programmer;
use crate::faults::test_node::{CLIENT, SERVER, TestNode};
use crate::health::{AGENT, ready};
use crate::ip::ip;

const PORT: u16 = 5001;
/// The time after which a frame counts as dropped; it takes microseconds.
const TIMEOUT: Duration = Duration::from_millis(150);

/// The time within which an agent must report a bypass.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Measures two pods on a bridge, without a policy and isolated, for each of the four settings.
pub fn frames() -> Result<Findings> {
    let mut findings = Findings::default();
    let node = TestNode::build()?;
    bridge(&node)?;
    let mut deltas = node.on_node(|| Deltas::with(Kernel::open()?, Established::Evaluate))?;
    for passed in [[true, true], [true, false], [false, true], [false, false]] {
        for (family, is_passed) in Family::BOTH.into_iter().zip(passed) {
            pass_to_netfilter(&node, family, is_passed)?;
        }
        for is_isolated in [false, true] {
            deltas.apply(&objects(is_isolated))?;
            for (family, is_passed) in Family::BOTH.into_iter().zip(passed) {
                let arrives = arrives(&node, family)?;
                let [v4, v6] = passed.map(u8::from);
                findings.expect(
                    arrives != (is_isolated && is_passed),
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

/// Runs the agent on such a node: it must not be ready if frames bypass it.
pub fn readiness(palisade: &Path) -> Result<Findings> {
    let mut findings = Findings::default();
    for is_passed in [true, false] {
        let node = TestNode::build()?;
        bridge(&node)?;
        for family in Family::BOTH {
            pass_to_netfilter(&node, family, is_passed)?;
        }
        let mut directory = Directory::new(&node)?;
        directory.write(&objects(true))?;
        let mut agent = node.on_node(|| {
            let mut command = Command::new(palisade);
            command.args(["agent", "--node", NODE, "--listen", AGENT]);
            // Its nodes have no `podCIDRs`.
            command.args(["--unknown-pod=allow", "--source"]);
            command.arg(directory.path());
            command.stdin(Stdio::null()).stderr(Stdio::null());
            command.spawn().context("cannot start the agent")
        })?;
        let outcome: Result<(bool, (u16, String))> = (|| {
            directory.wait()?;
            let arrives = arrives(&node, Family::V4)?;
            let end = Instant::now() + REPORT_TIMEOUT;
            loop {
                let response = node.on_node(ready)?;
                // An agent may not be ready for other reasons at first.
                let is_expected = match is_passed {
                    true => response.0 == 200,
                    false => response.0 != 200 && response.1.contains("bridge"),
                };
                if is_expected || Instant::now() > end {
                    return Ok((arrives, response));
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        })();
        agent.kill()?;
        agent.wait()?;
        let (arrives, (code, body)) = outcome?;
        findings.expect(
            arrives != is_passed && (code == 200) == is_passed && body.contains("bridge") != is_passed,
            format!(
                "bridge-nf-call {}: a packet to an isolated pod {}; the agent's /readyz returns {code} {body:?} (D103)",
                u8::from(is_passed),
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

/// Whether a first packet from one pod arrives at the other.
fn arrives(node: &TestNode, family: Family) -> Result<bool> {
    let server: UdpSocket = node.socket(SERVER, family, PORT)?;
    server.set_read_timeout(Some(TIMEOUT))?;
    let client = node.socket(CLIENT, family, 0)?;
    // A busy machine may lose a packet.
    for _ in 0..2 {
        client.send_to(b"?", SocketAddr::new(pod_address(SERVER, family), PORT))?;
        if server.recv(&mut [0; 8]).is_ok() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Sets whether the bridge passes frames of a family to netfilter.
fn pass_to_netfilter(node: &TestNode, family: Family, is_passed: bool) -> Result<()> {
    let name = match family {
        Family::V4 => "bridge-nf-call-iptables",
        Family::V6 => "bridge-nf-call-ip6tables",
    };
    let path = format!("/proc/sys/net/bridge/{name}");
    let value = u8::from(is_passed).to_string();
    node.on_node(|| {
        fs::write(&path, value)
            .with_context(|| format!("{path}: the module br_netfilter is not loaded"))
    })
}

/// Attaches both pods to one bridge. Each reaches the other on its link, and not through the node.
fn bridge(node: &TestNode) -> Result<()> {
    node.on_node(|| {
        ip("link add bridge0 type bridge")?;
        for pod in [CLIENT, SERVER] {
            let interface = node.world.pod_interface(pod);
            ip(&format!("link set {interface} master bridge0"))?;
        }
        ip("link set bridge0 up")?;
        // The node reaches them through the bridge, as in a cluster where its address is their
        // gateway: the source check needs this route (D147).
        let families = |pod| Family::BOTH.map(|family| pod_address(pod, family));
        for address in [CLIENT, SERVER].into_iter().flat_map(families) {
            let length = if address.is_ipv4() { 32 } else { 128 };
            ip(&format!("route del {address}/{length}"))?;
            ip(&format!("route add {address}/{length} dev bridge0"))?;
        }
        Ok(())
    })?;
    for (from, to) in [(CLIENT, SERVER), (SERVER, CLIENT)] {
        let link = node.world.in_pod(to, || ip("-o link show eth0"))??;
        let mut fields = link.split(' ').skip_while(|it| *it != "link/ether");
        let hardware = fields.nth(1).context("a pod without a hardware address")?;
        node.world.in_pod(from, || {
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
