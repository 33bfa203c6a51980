//! Traffic in slices: the same work in every variant, in turns, and the processor time it takes.
//!
//! Client and server are one thread on one core: the kernel forwards each packet during the send
//! call, and charges all work to this thread.

use std::fmt;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::ops::AddAssign;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use palisade_core::net::Family;
use palisade_generate::Rng;
use serde::{Serialize, Serializer};

use super::variant::{Ends, Variant};
use crate::clock::own_cpu;

/// Packets in a slice of the lasting flow, and connections in a slice of them.
const PACKETS: usize = 4_000;
const CONNECTIONS: usize = 300;
/// Flows of one packet in a slice.
pub(super) const FRESH: usize = 1_000;

/// Packets sent before they are received: the server's buffer surely holds them. Receiving is not
/// timed: it does not involve the path.
const BURST: usize = 50;

const PAYLOAD: [u8; 64] = [7; 64];

/// The kinds of measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// A packet of a UDP flow that was answered.
    Established(Family),
    /// A TCP connection with a request and a response.
    Connection(Family),
    /// The only packet of a UDP flow.
    NewFlow,
}

impl Measure {
    pub(super) const ALL: [Measure; 5] = [
        Measure::Established(Family::V4),
        Measure::Established(Family::V6),
        Measure::Connection(Family::V4),
        Measure::Connection(Family::V6),
        Measure::NewFlow,
    ];
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, family) = match self {
            Measure::Established(family) => ("UDP packet of an established flow", *family),
            Measure::Connection(family) => ("TCP connect + request + response + close", *family),
            Measure::NewFlow => ("UDP packet of a new flow", Family::V4),
        };
        let family = match family {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        };
        write!(f, "{what}, {family}")
    }
}

impl Serialize for Measure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The time of a slice, in seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Slice {
    cpu: f64,
    wall: f64,
    count: usize,
}

impl AddAssign for Slice {
    fn add_assign(&mut self, other: Slice) {
        self.cpu += other.cpu;
        self.wall += other.wall;
        self.count += other.count;
    }
}

/// One run: for each measure the nanoseconds of each variant.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) nanoseconds: Vec<Vec<f64>>,
    /// Slices of each measure and variant.
    pub(super) slices: usize,
    /// The share of the elapsed time that was charged to this thread.
    pub(super) charged: f64,
}

/// Visits all variants in turns, in random order, for so long.
pub(super) fn run(variants: &mut [Variant], rng: &mut Rng, length: Duration) -> Result<Run> {
    let mut samples: Vec<Vec<Vec<f64>>> =
        vec![vec![Vec::new(); variants.len()]; Measure::ALL.len()];
    let (mut cpu, mut wall) = (0.0, 0.0);
    let end = Instant::now() + length;
    let mut slices = 0;
    // The first round only warms up.
    while slices < 2 || Instant::now() < end {
        for (measure, of_measure) in Measure::ALL.into_iter().zip(&mut samples) {
            for index in shuffled(variants.len(), rng) {
                let variant = variants.get_mut(index).context("no such variant")?;
                let slice = slice(variant, measure)
                    .with_context(|| format!("{measure} through {}", variant.kind))?;
                if let (true, Some(of_variant)) = (slices > 0, of_measure.get_mut(index)) {
                    of_variant.push(slice.cpu * 1e9 / slice.count as f64);
                    cpu += slice.cpu;
                    wall += slice.wall;
                }
            }
        }
        slices += 1;
    }
    let tenth = |samples: Vec<f64>| percentile(samples, 10);
    let of_measure = |samples: Vec<Vec<f64>>| samples.into_iter().map(tenth).collect();
    Ok(Run {
        nanoseconds: samples.into_iter().map(of_measure).collect(),
        slices: slices - 1,
        charged: cpu / wall,
    })
}

fn shuffled(count: usize, rng: &mut Rng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, rng.below(last as u64 + 1) as usize);
    }
    order
}

/// A percentile of samples; 0 without any.
pub(super) fn percentile(mut samples: Vec<f64>, percent: usize) -> f64 {
    samples.sort_unstable_by(f64::total_cmp);
    let at = samples.len().saturating_sub(1) * percent / 100;
    samples.get(at).copied().unwrap_or(0.0)
}

fn slice(variant: &mut Variant, measure: Measure) -> Result<Slice> {
    // Connections of other measurements would slow this one down.
    variant.delete_connections()?;
    let slice = match measure {
        Measure::Established(family) => {
            let slice = established(variant.ends(family))?;
            variant.note(family, |begun| begun.udp += 1);
            slice
        }
        Measure::Connection(family) => {
            let slice = connections(variant, family)?;
            variant.note(family, |begun| begun.tcp += slice.count as u64);
            slice
        }
        Measure::NewFlow => {
            let slice = new_flows(variant.ends(Family::V4))?;
            variant.note(Family::V4, |begun| begun.udp += slice.count as u64);
            slice
        }
    };
    variant.check_tracking()?;
    Ok(slice)
}

fn timed(count: usize, work: impl FnOnce() -> Result<()>) -> Result<Slice> {
    let (start, cpu) = (Instant::now(), own_cpu()?);
    work()?;
    Ok(Slice {
        cpu: own_cpu()? - cpu,
        wall: start.elapsed().as_secs_f64(),
        count,
    })
}

impl Ends {
    /// Receives packets from the server's socket. All have arrived, unless one was lost.
    fn receive(&self, count: usize) -> Result<()> {
        let mut buffer = [0; 128];
        for _ in 0..count {
            self.receiver
                .recv(&mut buffer)
                .context("a packet was lost")?;
        }
        Ok(())
    }
}

fn established(ends: &Ends) -> Result<Slice> {
    let mut buffer = [0; 128];
    for _ in 0..2 {
        ends.sender.send(&PAYLOAD)?;
        let (length, sender) = ends.receiver.recv_from(&mut buffer)?;
        let answer = buffer.get(..length).unwrap_or_default();
        ends.receiver.send_to(answer, sender)?;
        ends.sender.recv(&mut buffer)?;
    }
    let mut whole = Slice::default();
    while whole.count < PACKETS {
        whole += timed(BURST, || {
            for _ in 0..BURST {
                ends.sender.send(&PAYLOAD)?;
            }
            Ok(())
        })?;
        ends.receive(BURST)?;
    }
    Ok(whole)
}

fn new_flows(ends: &Ends) -> Result<Slice> {
    let mut whole = Slice::default();
    for burst in ends.fresh.chunks(BURST) {
        whole += timed(burst.len(), || {
            for sender in burst {
                sender.send(&PAYLOAD)?;
            }
            Ok(())
        })?;
        ends.receive(burst.len())?;
    }
    Ok(whole)
}

/// The client closes its side first, and the server then resets the connection.
fn connections(variant: &Variant, family: Family) -> Result<Slice> {
    let ends = variant.ends(family);
    let clients = variant.clients(family, CONNECTIONS)?;
    let to = ends.server.into();
    let mut buffer = [0; 128];
    timed(clients.len(), || {
        for mut client in clients {
            client.connect(&to)?;
            let (mut server, _) = ends.listener.accept()?;
            client.write_all(&PAYLOAD)?;
            ensure!(
                server.read(&mut buffer)? == PAYLOAD.len(),
                "a request was cut"
            );
            server.write_all(&PAYLOAD)?;
            ensure!(
                client.read(&mut buffer)? == PAYLOAD.len(),
                "a response was cut"
            );
            client.shutdown(Shutdown::Write)?;
            ensure!(server.read(&mut buffer)? == 0, "a client did not end");
        }
        Ok(())
    })
}
