//! `palisade-campaigns spoof`: as many false packets as one likes, in batches whose absence is certain.

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

/// So many packets are under way at once: far fewer than the queues of the kernel hold.
const BATCH: usize = 128;
/// After so many batches of false packets come some that must arrive.
const ROUND: u64 = 8;
/// How often an honest packet is sent that a busy machine lost.
const TRIES: usize = 3;
/// Of a hundred batches with `drop-every`, so many go into connections.
const INJECTED: u64 = 30;

/// How many.
#[derive(Args, Clone, Debug)]
pub struct SpoofArgs {
    /// So many packets with a false sender that must be dropped
    #[arg(long, default_value_t = 1_000_000)]
    packets: u64,
    /// The seed of all choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The program to run [default: the one beside this]
    #[arg(long, value_name = "PATH")]
    palisade: Option<PathBuf>,
}

/// Sends them: half with the default, half with every packet checked, and some with nothing checked.
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
        let cluster = Cluster::build(&palisade, mode.word())?;
        let mut run = Run {
            cluster,
            generator: Generator(Rng::new(args.seed.wrapping_add(number as u64))),
            tally: Tally::new(mode),
            next: 1,
        };
        run.go(packets)
            .with_context(|| format!("--false-sender={}", mode.word()))?;
        tallies.push(run.tally);
    }
    Ok(Report {
        tallies,
        seconds: started.elapsed().as_secs_f64(),
    })
}

/// One mode.
struct Run {
    cluster: Cluster,
    generator: Generator,
    tally: Tally,
    /// The number of the next packet.
    next: u32,
}

impl Run {
    fn go(&mut self, packets: u64) -> Result<()> {
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
                    if self.tally.mode == Mode::DropEvery && self.generator.0.chance(INJECTED) =>
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
            // The default leaves this open, as documented.
            for _ in 0..8 {
                self.inject(connections, BATCH)?;
            }
        }
        Ok(())
    }

    /// Sends packets of one sender and says which arrived, and how many later fragments did.
    fn send(&mut self, from: Location, packets: &[Packet]) -> Result<(Vec<Option<Location>>, u64)> {
        let first = self.next;
        let mut batch = Batch::default();
        for packet in packets {
            batch.add(&self.cluster.wire, packet, self.next)?;
            self.next += 1;
        }
        let arrivals = batch.send(&mut self.cluster.wire, from, first, packets.len())?;
        Ok((arrivals.places, arrivals.later_fragments))
    }

    fn spoofed(&mut self, size: usize) -> Result<()> {
        let from = self.generator.sender();
        let packets: Vec<Packet> = (0..size).map(|_| self.generator.spoofed(from)).collect();
        let (places, later) = self.send(from, &packets)?;
        let is_checked = self.tally.mode != Mode::Allow;
        for (packet, place) in packets.iter().zip(&places) {
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

    /// Router advertisements and redirects of a pod to its node, from its own address.
    fn routers(&mut self, size: usize) -> Result<()> {
        let pod = any_pod(&mut self.generator.0);
        let packets: Vec<Packet> = (0..size)
            .map(|_| self.generator.honest_router(pod))
            .collect();
        let (places, _) = self.send(Location::Pod(pod), &packets)?;
        let arrived = places.iter().flatten().count() as u64;
        self.tally.routers.add(packets.len() as u64, arrived);
        if arrived > 0 && self.tally.mode != Mode::Allow {
            self.tally
                .example(|| format!("pod {pod} was heard as a router"));
        }
        Ok(())
    }

    /// Redirects of IPv4 from a pod's own address.
    fn redirects(&mut self) -> Result<()> {
        let pod = any_pod(&mut self.generator.0);
        let packets: Vec<Packet> = (0..8).map(|_| self.generator.own_redirect(pod)).collect();
        let (places, _) = self.send(Location::Pod(pod), &packets)?;
        let arrived = places.iter().flatten().count() as u64;
        self.tally.redirects.add(packets.len() as u64, arrived);
        Ok(())
    }

    /// The documented limit: pods behind one bridge as each other.
    fn same_bridge(&mut self) -> Result<()> {
        let pod = any_pod(&mut self.generator.0);
        let packets: Vec<Packet> = (0..16)
            .filter_map(|_| self.generator.same_bridge(pod))
            .collect();
        if packets.is_empty() {
            return Ok(());
        }
        let (places, _) = self.send(Location::Pod(pod), &packets)?;
        let arrived = places.iter().flatten().count() as u64;
        self.tally.same_bridge.add(packets.len() as u64, arrived);
        Ok(())
    }

    /// Packets of a pod with its own address, which all arrive where they are sent to.
    fn honest(&mut self) -> Result<()> {
        let pod = any_pod(&mut self.generator.0);
        let mut packets: Vec<Packet> = (0..BATCH / 4).map(|_| self.generator.honest(pod)).collect();
        let sent = packets.len() as u64;
        for _ in 0..TRIES {
            let (places, _) = self.send(Location::Pod(pod), &packets)?;
            let arrived = |(packet, place): &(Packet, Option<Location>)| {
                place.map(Target::Place) == Some(packet.target)
            };
            let outcome = packets.into_iter().zip(places);
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

    /// Puts packets into connections of others.
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
            let gateway = self.cluster.world().gateway_hardware(from);
            // Some pods are an end of many connections, or behind no bridge.
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
                    .example(|| format!("pod {from} put packets into a connection"));
            }
        }
        Ok(())
    }
}
