//! A program in the network namespace of a tenant's pod, with the capabilities that containers have
//! and no others.

use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use socket2::{Domain, Protocol, Socket, Type};

use crate::cluster::pods::Pod;

/// The capabilities that containerd grants by default.
const CAPABILITIES: [(&str, u32); 14] = [
    ("chown", 0),
    ("dac_override", 1),
    ("fowner", 3),
    ("fsetid", 4),
    ("kill", 5),
    ("setgid", 6),
    ("setuid", 7),
    ("setpcap", 8),
    ("net_bind_service", 10),
    ("net_raw", 13),
    ("sys_chroot", 18),
    ("mknod", 27),
    ("audit_write", 29),
    ("setfcap", 31),
];
/// Packets sent without a pause.
const BURST: usize = 16;
const PAUSE: Duration = Duration::from_millis(2);
/// The protocol of raw sockets that send IP headers.
const WITH_HEADER: i32 = 255;

/// Sends packets, from the header of IP on, out of a pod; `program` is this one.
pub fn send_from(pod: &Pod, program: &Path, packets: &[Vec<u8>]) -> Result<()> {
    let mut bounding = String::from("-all");
    for (name, _) in CAPABILITIES {
        bounding.push_str(",+");
        bounding.push_str(name);
    }
    let mut child = Command::new("nsenter")
        .arg(format!("--net={}", pod.network.display()))
        .args(["--", "setpriv", "--inh-caps=-all", "--bounding-set"])
        .arg(&bounding)
        .arg(program)
        .arg("attack-sender")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run nsenter")?;
    let mut framed = Vec::new();
    for packet in packets {
        framed.extend(u16::try_from(packet.len())?.to_be_bytes());
        framed.extend(packet);
    }
    if let Some(mut stdin) = child.stdin.take() {
        // If it has exited, its output has the reason.
        let _ = stdin.write_all(&framed);
    }
    let output = child.wait_with_output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cannot send: {}", stderr.trim());
    Ok(())
}

/// The program: sends the packets that it reads, each after its length.
pub fn sender() -> Result<()> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    ensure!(
        is_bounded(&status),
        "a capability that containers do not have: {status}"
    );
    let mut bytes = Vec::new();
    std::io::stdin().read_to_end(&mut bytes)?;
    let open = |domain| Socket::new(domain, Type::RAW, Some(Protocol::from(WITH_HEADER)));
    let ipv4 = open(Domain::IPV4).context("no raw socket")?;
    let ipv6 = open(Domain::IPV6);
    let interface = link_local().map_or(0, |(_, index)| index);
    let mut rest = bytes.as_slice();
    let mut sent = 0_usize;
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length));
        let (packet, after) = after.split_at_checked(length).context("half a packet")?;
        rest = after;
        let done = match destination(packet, interface)? {
            to @ SocketAddr::V4(_) => ipv4.send_to(packet, &to.into()),
            to @ SocketAddr::V6(_) => match &ipv6 {
                Ok(socket) => socket.send_to(packet, &to.into()),
                Err(error) => bail!("no raw socket for IPv6: {error}"),
            },
        };
        done.context("the kernel refuses a packet")?;
        sent += 1;
        if sent.is_multiple_of(BURST) {
            thread::sleep(PAUSE);
        }
    }
    Ok(())
}

/// Whether a process has raw sockets and nothing that containers do not have.
fn is_bounded(status: &str) -> bool {
    let line = status.lines().find_map(|it| it.strip_prefix("CapEff:"));
    let has = line.and_then(|it| u64::from_str_radix(it.trim(), 16).ok());
    let may = CAPABILITIES.iter().fold(0, |all, (_, bit)| all | 1 << bit);
    has.is_some_and(|has| has & !may == 0 && has & (1 << 13) != 0)
}

/// The destination of a packet.
fn destination(packet: &[u8], interface: u32) -> Result<SocketAddr> {
    let version = packet.first().map(|it| it >> 4);
    let at = |range: std::ops::Range<usize>| packet.get(range).context("half a header");
    match version {
        Some(4) => {
            let address: [u8; 4] = at(16..20)?.try_into()?;
            Ok(SocketAddr::from((Ipv4Addr::from(address), 0)))
        }
        Some(6) => {
            let address: [u8; 16] = at(24..40)?.try_into()?;
            Ok(SocketAddrV6::new(Ipv6Addr::from(address), 0, 0, interface).into())
        }
        Some(_) | None => bail!("this is no packet"),
    }
}

/// The address of the calling thread's `eth0` that needs no router, and the number of the
/// interface.
pub fn link_local() -> Option<(Ipv6Addr, u32)> {
    let text = std::fs::read_to_string("/proc/thread-self/net/if_inet6").ok()?;
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let address = u128::from_str_radix(words.next()?, 16).ok()?;
        let index = u32::from_str_radix(words.next()?, 16).ok()?;
        let address = Ipv6Addr::from(address);
        let is_it = line.ends_with("eth0") && address.is_unicast_link_local();
        is_it.then_some((address, index))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_those_of_containers() {
        assert!(is_bounded("Name:\tx\nCapEff:\t00000000a80425fb\n"));
        // With NET_ADMIN, and without NET_RAW.
        assert!(!is_bounded("CapEff:\t00000000a80435fb\n"));
        assert!(!is_bounded("CapEff:\t00000000a80405fb\n"));
        assert!(!is_bounded("no such line"));
    }

    #[test]
    fn packets_say_where_they_go() {
        let mut ipv4 = [0; 20];
        ipv4[0] = 0x45;
        ipv4[16..].copy_from_slice(&[10, 200, 1, 2]);
        let to = destination(&ipv4, 3).unwrap();
        assert_eq!(to, "10.200.1.2:0".parse().unwrap());
        assert!(destination(&[0x45; 4], 3).is_err());
        assert!(destination(&[], 3).is_err());
    }
}
