//! Echoes of the victim, timed, beside packets of the tenant that are denied.

use std::fmt;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use crate::cluster::packets::UDP;
use crate::cluster::pods::Pod;

/// Echo requests of a pod without other load.
const IDLE: u64 = 200;
/// Between two echoes.
const BETWEEN: Duration = Duration::from_millis(5);
/// An echo that takes longer is lost.
const LOST: Duration = Duration::from_millis(700);
/// A port that no policy of the tenant allows.
const DENIED: u16 = 64_000;
/// Packets from one source port.
const SAME_PORT: u64 = 64;

/// The round-trip times of echoes.
#[derive(Clone, Debug, Default)]
pub struct Echo {
    times: Vec<Duration>,
    /// The number of requests.
    pub sent: u64,
    /// Missing replies.
    pub lost: u64,
}

impl Echo {
    /// A percentile of the times.
    pub fn at(&self, percent: usize) -> Duration {
        percentile(&self.times, percent)
    }
}

impl fmt::Display for Echo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "p50 {:.2?}, p99 {:.2?} ({} of {} lost)",
            self.at(50),
            self.at(99),
            self.lost,
            self.sent
        )
    }
}

/// A percentile of the times.
pub fn percentile(times: &[Duration], percent: usize) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    let place = (times.len() * percent)
        .div_ceil(100)
        .saturating_sub(1)
        .min(times.len().saturating_sub(1));
    times.get(place).copied().unwrap_or_default()
}

/// Sends echo requests from one pod to another while some work runs, for at least this time.
pub fn latencies<T: Send>(
    from: &Pod,
    to: &Pod,
    atleast: Duration,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<(Echo, T)> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let worker = scope.spawn(|| request(from, to, atleast, &is_over));
        let result = work();
        is_over.store(true, Ordering::Release);
        let echo = worker.join().map_err(|_| anyhow!("a thread panicked"))??;
        Ok((echo, result?))
    })
}

fn request(from: &Pod, to: &Pod, atleast: Duration, is_over: &AtomicBool) -> Result<Echo> {
    from.enter()?;
    let mut echo = Echo::default();
    let began = Instant::now();
    while echo.sent < IDLE || (!is_over.load(Ordering::Acquire) && began.elapsed() < atleast) {
        // Each from a port of its own: every one is a new connection.
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect(SocketAddr::new(to.address, UDP))?;
        socket.set_read_timeout(Some(LOST))?;
        let sent = Instant::now();
        socket.send(b"?")?;
        echo.sent += 1;
        match socket.recv(&mut [0; 8]) {
            Ok(_) => echo.times.push(sent.elapsed()),
            Err(_) => echo.lost += 1,
        }
        thread::sleep(BETWEEN);
    }
    Ok(echo)
}

/// Sends denied packets from one pod to another as fast as one thread can. Returns their number.
pub fn flood(from: &Pod, to: &Pod, time: Duration) -> Result<u64> {
    from.inside(|| {
        let began = Instant::now();
        let mut sent = 0;
        while began.elapsed() < time {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            for _ in 0..SAME_PORT {
                // A full queue refuses some.
                let _ = socket.send_to(&[0; 32], SocketAddr::new(to.address, DENIED));
                sent += 1;
            }
        }
        Ok(sent)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let times: Vec<Duration> = (1..=10).rev().map(Duration::from_millis).collect();
        assert_eq!(percentile(&times, 50), Duration::from_millis(5));
        assert_eq!(percentile(&times, 99), Duration::from_millis(10));
        assert_eq!(percentile(&times, 100), Duration::from_millis(10));
        assert_eq!(percentile(&[], 50), Duration::ZERO);
    }
}
