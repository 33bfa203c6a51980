//! `palisade-campaigns spoof`: sends packets with false senders, in batches small enough that none
//! is lost.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::Args;
use palisade_core::net::Family;
use palisade_lab::privilege::RequiredPrivilege;
use palisade_lab::topology::Location;

use super::bytes::Batch;
use super::cluster::{Cluster, PODS};
use super::connections::{Connections, any_pod};
use super::generate::{Generator, Packet, Target};
use super::report::{Count, Mode, Report, Tally};
use crate::agents::program;
use palisade_generate::Rng;
use palisade_lab::privilege::stay_inside;

/// Packets in flight: far fewer than the kernel's queues hold.
const BATCH: usize = 128;
/// Batches of false packets between two of packets that must arrive.
const ROUND: u64 = 8;
/// Attempts for an honest packet: a busy machine may lose one.
const ATTEMPTS: usize = 3;
/// The percentage of batches with `drop-every` that are injected into connections.
const INJECTED_PERCENT: u64 = 30;

/// Arguments of `spoof`.
#[derive(Args, Clone, Debug)]
pub struct SpoofArgs {
    /// The number of packets with a false sender, which must be dropped
    #[arg(long, default_value_t = 1_000_000)]
    packets: u64,
    /// The seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The program to run [default: the one beside this]
    #[arg(long, value_name = "PATH")]
    palisade: Option<PathBuf>,
}

/// Sends half of the packets with the default, half with every packet checked, and some without any
/// check.
pub fn spoof(args: &SpoofArgs) -> Result<Report> {
    stay_inside(RequiredPrivilege::Any)?;
    let palisade = program(args.palisade.as_deref())?;
    let started = Instant::now();
    let half = args.packets / 2;
    let control = (args.packets / 20).clamp(4_000, 40_000);
    let mut tallies = Vec::new();
    for (number, (mode, packets)) in [
        (Mode::Drop, half),
        (Mode::DropEvery, args.packets - half),
        (Mode::Allow, control),
    ]
    .into_iter()
    .enumerate()
    {
        let cluster = Cluster::build(&palisade, mode.value())?;
        let mut run = Run {
            cluster,
            generator: Generator(Rng::new(args.seed.wrapping_add(number as u64))),
            tally: Tally::new(mode),
            next: 1,
        };
        run.run(packets)
            .with_context(|| format!("--false-sender={}", mode.value()))?;
        tallies.push(run.tally);
    }
    Ok(Report {
        tallies,
        seconds: started.elapsed().as_secs_f64(),
    })
}

/// A run with one mode.
struct Run {
    cluster: Cluster,
    generator: Generator,
    tally: Tally,
    /// The number of the next packet.
    next: u32,
}

impl Run {
    fn run(&mut self, packets: u64) -> Result<()> {
        let connections = match self.tally.mode {
            Mode::Drop | Mode::DropEvery => Some(Connections::open(&self.cluster)?),
            Mode::Allow => None,
        };
        let mut batches = 0;
        while self.tally.spoofed().sent < packets {
            let left = packets - self.tally.spoofed().sent;
            let size = BATCH.min(usize::try_from(left).unwrap_or(BATCH));
            if batches % ROUND == 0 {
                self.honest()?;
                self.same_bridge()?;
                self.redirects()?;
            }
            match &connections {
                Some(connections)
                    if self.tally.mode == Mode::DropEvery
                        && self.generator.0.chance(INJECTED_PERCENT) =>
                {
                    self.inject(connections, size)?;
                }
                _ if batches % ROUND == 1 => self.routers(size.min(16))?,
                _ => self.spoofed(size)?,
            }
            batches += 1;
        }
        self.tally.redirected = self.cluster.redirected()?;
        if let Some(connections) = &connections
            && self.tally.mode == Mode::Drop
        {
            // The default allows this, as documented.
            for _ in 0..8 {
                self.inject(connections, BATCH)?;
            }
        }
        Ok(())
    }

    /// Sends packets of one sender. Returns where they arrived, and the number of later fragments.
    fn send(&mut self, from: Location, packets: &[Packet]) -> Result<(Vec<Option<Location>>, u64)> {
        let first = self.next;
        let mut batch = Batch::default();
        for packet in packets {
            batch.add(&self.cluster.wire, packet, self.next)?;
            self.next += 1;
        }
        let arrivals = batch.send(&mut self.cluster.wire, from, first, packets.len())?;
        Ok((arrivals.locations, arrivals.later_fragments))
    }

    fn spoofed(&mut self, size: usize) -> Result<()> {
        let from = self.generator.sender();
        let packets: Vec<Packet> = (0..size).map(|_| self.generator.spoofed(from)).collect();
        let (locations, later) = self.send(from, &packets)?;
        let is_checked = self.tally.mode != Mode::Allow;
        for (packet, place) in packets.iter().zip(&locations) {
            let arrived = u64::from(place.is_some());
            let Some(claim) = packet.claim else { continue };
            self.tally.claims.entry(claim).or_default().add(1, arrived);
            let is_ipv6 = packet.family() == Family::V6;
            let payload = self.tally.payloads.entry((packet.payload, is_ipv6));
            payload.or_default().add(1, arrived);
            if let Some(place) = place
                && is_checked
            {
                self.tally
                    .example(|| format!("{packet:?} arrived at {place}"));
            }
        }
        if is_checked {
            self.tally.later_fragments += later;
        }
        Ok(())
    }

    /// Sends router advertisements and redirects of a pod to its node, from its own address.
    fn routers(&mut self, size: usize) -> Result<()> {
        let pod = any_pod(&mut self.generator.0);
        let packets: Vec<Packet> = (0..size)
            .map(|_| self.generator.honest_router(pod))
            .collect();
        let (locations, _) = self.send(Location::Pod(pod), &packets)?;
        let arrived = locations.iter().flatten().count() as u64;
        self.tally.routers.add(packets.len() as u64, arrived);
        if arrived > 0 && self.tally.mode != Mode::Allow {
            self.tally
                .example(|| format!("router messages of pod {pod} arrived"));
        }
        Ok(())
    }

    /// Sends IPv4 redirects from a pod's own address.
    fn redirects(&mut self) -> Result<()> {
        let pod = any_pod(&mut self.generator.0);
        let packets: Vec<Packet> = (0..8).map(|_| self.generator.own_redirect(pod)).collect();
        let (locations, _) = self.send(Location::Pod(pod), &packets)?;
        let arrived = locations.iter().flatten().count() as u64;
        self.tally.redirects.add(packets.len() as u64, arrived);
        Ok(())
    }

    /// Sends with addresses of other pods on the same bridge: the documented limit.
    fn same_bridge(&mut self) -> Result<()> {
        let pod = any_pod(&mut self.generator.0);
        let packets: Vec<Packet> = (0..16)
            .filter_map(|_| self.generator.same_bridge(pod))
            .collect();
        if packets.is_empty() {
            return Ok(());
        }
        let (locations, _) = self.send(Location::Pod(pod), &packets)?;
        let arrived = locations.iter().flatten().count() as u64;
        self.tally.same_bridge.add(packets.len() as u64, arrived);
        Ok(())
    }

    /// Sends packets of a pod with its own address, which must all arrive.
    fn honest(&mut self) -> Result<()> {
        let pod = any_pod(&mut self.generator.0);
        let mut packets: Vec<Packet> = (0..BATCH / 4).map(|_| self.generator.honest(pod)).collect();
        let sent = packets.len() as u64;
        for _ in 0..ATTEMPTS {
            let (locations, _) = self.send(Location::Pod(pod), &packets)?;
            let arrived = |(packet, place): &(Packet, Option<Location>)| {
                place.map(Target::Place) == Some(packet.target)
            };
            let outcome = packets.into_iter().zip(locations);
            packets = outcome
                .filter(|it| !arrived(it))
                .map(|(packet, _)| packet)
                .collect();
            if packets.is_empty() {
                break;
            }
        }
        let lost = packets.len() as u64;
        self.tally.honest.add(sent, sent - lost);
        for packet in packets {
            self.tally.example(|| format!("{packet:?} did not arrive"));
        }
        Ok(())
    }

    /// Injects packets into connections of others.
    fn inject(&mut self, connections: &Connections, size: usize) -> Result<()> {
        let Count { sent, arrived } = connections.refresh(&mut self.cluster, &mut self.next)?;
        self.tally.honest.add(sent, arrived);
        if sent != arrived {
            self.tally
                .example(|| format!("{} packets of connections are lost", sent - arrived));
        }
        for (same_bridge, size) in [(false, size), (true, 4)] {
            let from = any_pod(&mut self.generator.0);
            let first = self.next;
            let mut batch = Batch::default();
            let gateway = self.cluster.network().gateway_hardware(from);
            // Some pods are an end of many connections, or on no bridge.
            for _ in 0..size * PODS.len() {
                let count = (self.next - first) as usize;
                let rng = &mut self.generator.0;
                if count < size
                    && let Some(packets) =
                        connections.injected(rng, from, same_bridge, self.next)?
                {
                    for packet in packets {
                        batch.add_bytes(gateway, packet);
                    }
                    self.next += 1;
                }
            }
            let sent = (self.next - first) as usize;
            let arrivals = batch.send(&mut self.cluster.wire, Location::Pod(from), first, sent)?;
            let count = match same_bridge {
                false => &mut self.tally.injected,
                true => &mut self.tally.injected_same_bridge,
            };
            count.add(sent as u64, arrivals.count());
            if arrivals.count() > 0 && !same_bridge && self.tally.mode == Mode::DropEvery {
                self.tally
                    .example(|| format!("pod {from} injected packets into a connection"));
            }
        }
        Ok(())
    }
}
