//! Packets of real pods, next to the verdicts of `explain` for the live cluster.

#![allow(
    clippy::indexing_slicing,
    reason = "a missing field of a value is null"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::E2eCluster;
use super::pods::Pod;

/// The ports of the flows.
pub const TCP: [u16; 2] = [80, 8080];
/// The port of echoes.
pub const UDP: u16 = 53;
/// What does not come back in so long was dropped.
pub(crate) const DROPPED: Duration = Duration::from_millis(700);

/// An answer: source, destination and port, and whether the flow is allowed.
pub type Answers = BTreeMap<(String, String, String), bool>;

/// A process in every pod that answers at the UDP port.
#[derive(Debug)]
pub struct Echoes(Arc<AtomicBool>);

impl Echoes {
    /// Starts them.
    pub fn start(pods: &[Pod]) -> Result<Echoes> {
        let echoes = Echoes(Arc::default());
        for pod in pods {
            let pod = pod.clone();
            let is_over = Arc::clone(&echoes.0);
            let (ready, started) = mpsc::channel();
            thread::spawn(move || {
                let socket = pod.enter().and_then(|()| {
                    let socket = UdpSocket::bind(("0.0.0.0", UDP))?;
                    socket.set_read_timeout(Some(Duration::from_millis(200)))?;
                    Ok(socket)
                });
                let socket = match socket {
                    Ok(socket) => socket,
                    Err(error) => {
                        let _ = ready.send(Err(error));
                        return;
                    }
                };
                let _ = ready.send(Ok(()));
                let mut buffer = [0; 64];
                while !is_over.load(Ordering::Acquire) {
                    if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                        let _ = socket.send_to(buffer.get(..length).unwrap_or_default(), from);
                    }
                }
            });
            started.recv().context("an echo did not start")??;
        }
        Ok(echoes)
    }
}

impl Drop for Echoes {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Sends packets between all pods, and returns which were answered.
pub fn measured(pods: &[Pod]) -> Result<Answers> {
    let mut answers = Answers::new();
    let all: Vec<Result<Vec<(String, String, bool)>>> = thread::scope(|scope| {
        let workers: Vec<_> = pods
            .iter()
            .map(|pod| scope.spawn(|| from(pod, pods)))
            .collect();
        workers
            .into_iter()
            .map(|it| it.join().unwrap_or_else(|_| Ok(Vec::new())))
            .collect()
    });
    for (pod, answered) in pods.iter().zip(all) {
        for (to, port, is_allowed) in answered? {
            answers.insert((pod.called(), to, port), is_allowed);
        }
    }
    Ok(answers)
}

fn from(pod: &Pod, pods: &[Pod]) -> Result<Vec<(String, String, bool)>> {
    let others = pods.iter().filter(|it| it.address != pod.address);
    let flows = others.flat_map(|to| {
        let tcp = TCP.map(|port| (to, false, port));
        tcp.into_iter().chain([(to, true, UDP)])
    });
    thread::scope(|scope| {
        let workers: Vec<_> = flows
            .map(|(to, is_udp, port)| {
                scope.spawn(move || {
                    pod.enter()?;
                    let address = SocketAddr::new(to.address, port);
                    let is_allowed = match is_udp {
                        true => echoed(address)?,
                        false => connected(address)?,
                    };
                    let protocol = if is_udp { "udp" } else { "tcp" };
                    Ok((to.called(), format!("{protocol}/{port}"), is_allowed))
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|it| {
                let joined = it.join();
                joined.map_err(|_| anyhow::anyhow!("a thread panicked"))?
            })
            .collect()
    })
}

/// Whether the destination answers, also if only with a reset.
pub(crate) fn connected(to: SocketAddr) -> Result<bool> {
    match TcpStream::connect_timeout(&to, DROPPED) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot connect to {to}")),
    }
}

/// Whether the destination answers a datagram, also if only with an ICMP error.
pub(crate) fn echoed(to: SocketAddr) -> Result<bool> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(DROPPED))?;
    socket.send(b"?")?;
    match socket.recv(&mut [0; 8]) {
        Ok(_) => Ok(true),
        // No socket listens there: the answer comes only if policies allow the flow.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot connect to {to}")),
    }
}

impl E2eCluster {
    /// The verdicts of `explain` for the live cluster and the same flows.
    pub fn explained(&self, pods: &[Pod]) -> Result<Answers> {
        let mut flows = String::new();
        let mut keys = Vec::new();
        for from in pods {
            for to in pods.iter().filter(|it| it.address != from.address) {
                let tcp = TCP.map(|port| format!("tcp/{port}"));
                for port in tcp.into_iter().chain([format!("udp/{UDP}")]) {
                    let _ = writeln!(flows, "{} {} {port}", from.called(), to.called());
                    keys.push((from.called(), to.called(), port));
                }
            }
        }
        let words = ["explain", "--lenient", "--flows", "-", "-o", "jsonl"];
        let output = self.palisade(&words, &flows)?;
        let mut answers = Answers::new();
        for (key, line) in keys.into_iter().zip(output.lines()) {
            let explanation: Value = serde_json::from_str(line)?;
            answers.insert(key, explanation["verdict"] == "Allow");
        }
        Ok(answers)
    }
}

/// Where two sets of answers differ, in words.
pub fn differences(explained: &Answers, measured: &Answers) -> Vec<String> {
    let word = |it: Option<&bool>| match it {
        Some(true) => "Allow",
        Some(false) => "Deny",
        None => "nothing",
    };
    let mut words = Vec::new();
    for (key, explained) in explained {
        let does = measured.get(key);
        if does != Some(explained) {
            let (from, to, port) = key;
            words.push(format!(
                "{from} -> {to} {port}: explain {}, packets {}",
                word(Some(explained)),
                word(does)
            ));
        }
    }
    words
}
