//! Numbered packets between pods during other work.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};

use super::pods::Pod;

/// The port that packets go to.
pub const PORT: u16 = 7000;
/// Between two packets of a stream.
const PAUSE: Duration = Duration::from_micros(500);
/// The maximum time of a packet in flight.
const LAST: Duration = Duration::from_millis(500);

/// What became of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    /// Packets sent.
    pub sent: u64,
    /// Packets that arrived.
    pub arrived: u64,
    /// Packets dropped by a full socket of this program: a loss of the measurement.
    pub overrun: u64,
}

impl Stream {
    /// Packets that did not arrive for another reason than a full socket.
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.arrived + self.overrun)
    }
}

/// Sends packets from each of some pods to another for as long as the work takes.
pub fn during<T>(
    streams: &[(&Pod, &Pod)],
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, Vec<Stream>)> {
    let is_over = AtomicBool::new(false);
    let is_quiet = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut workers = Vec::new();
        for (from, to) in streams {
            let (ready, started) = channel();
            let is_quiet = &is_quiet;
            let receiver = scope.spawn(move || receive(to, from, is_quiet, &ready));
            // If it ends without output, its error is reported at the end.
            let _ = started.recv();
            let sender = scope.spawn(|| send(from, to, &is_over));
            workers.push((sender, receiver));
        }
        let result = work();
        is_over.store(true, Ordering::Release);
        thread::sleep(LAST);
        is_quiet.store(true, Ordering::Release);
        let mut all = Vec::new();
        for (sender, receiver) in workers {
            let panicked = |_| anyhow!("a thread panicked");
            let sent = sender.join().map_err(panicked)??;
            let (arrived, overrun) = receiver.join().map_err(panicked)??;
            all.push(Stream {
                sent,
                arrived,
                overrun,
            });
        }
        Ok((result?, all))
    })
}

/// A port of its own for each sender: many may send to one pod.
fn port_of(from: &Pod) -> u16 {
    let last = match from.address {
        std::net::IpAddr::V4(it) => it.octets(),
        std::net::IpAddr::V6(_) => [0; 4],
    };
    let [_, _, node, host] = last;
    PORT + u16::from(node % 8) * 256 + u16::from(host)
}

fn send(from: &Pod, to: &Pod, is_over: &AtomicBool) -> Result<u64> {
    from.enter()?;
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let to = SocketAddr::new(to.address, port_of(from));
    let mut sent = 0_u64;
    while !is_over.load(Ordering::Acquire) {
        let number = sent.to_be_bytes();
        socket.send_to(&number, to).context("cannot send")?;
        sent += 1;
        thread::sleep(PAUSE);
    }
    Ok(sent)
}

fn receive(at: &Pod, from: &Pod, is_quiet: &AtomicBool, ready: &Sender<()>) -> Result<(u64, u64)> {
    at.enter()?;
    let socket = UdpSocket::bind(("0.0.0.0", port_of(from)))?;
    socket.set_read_timeout(Some(Duration::from_millis(50)))?;
    let _ = ready.send(());
    let mut arrived = 0;
    while !is_quiet.load(Ordering::Acquire) {
        if socket.recv(&mut [0; 8]).is_ok() {
            arrived += 1;
        }
    }
    let sockets = std::fs::read_to_string("/proc/thread-self/net/udp")?;
    Ok((arrived, overrun(&sockets, port_of(from))))
}

/// Packets dropped by a full socket of a port, by the kernel's list of sockets.
fn overrun(sockets: &str, port: u16) -> u64 {
    let local = format!(":{port:04X}");
    let line = sockets.lines().find(|line| {
        let address = line.split_whitespace().nth(1);
        address.is_some_and(|it| it.ends_with(&local))
    });
    let drops = line.and_then(|it| it.split_whitespace().last()?.parse().ok());
    drops.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_socket_is_found_by_its_port() {
        let sockets = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n  \
             10: 00000000:1B58 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1 2 0 17\n";
        assert_eq!(overrun(sockets, 7_000), 17);
        assert_eq!(overrun(sockets, 7_001), 0);
    }
}
