//! Opening the sockets of a wire.

use std::io;
use std::thread;

use rustc_hash::FxHashSet;

use crate::packet::Carried;
use crate::topology::Place;
use crate::wire::ports::Ports;
use crate::wire::sockets::{Ear, Ears, Raw, WAITING};
use crate::wire::{Probe, Wire, WireError};
use crate::world::{World, settings};

/// The protocols for which every node and the outside listen: ICMP, TCP, UDP, SCTP.
const PROTOCOLS: [[u8; 4]; 2] = [[1, 6, 17, 132], [58, 6, 17, 132]];

impl Wire {
    /// Opens sockets in every place of the cluster.
    pub fn open(world: &World) -> Result<Wire, WireError> {
        let ipv6 = settings::has_ipv6();
        let raw = |place| -> Result<Raw, WireError> {
            world
                .run_in(place, || Raw::open(ipv6))?
                .map_err(|source| WireError::Open { place, source })
        };
        let nodes = (0..world.topology().nodes.len())
            .map(|index| raw(Place::Node(index)))
            .collect::<Result<Vec<_>, _>>()?;
        let mut wire = Wire {
            world: world.clone(),
            ears: Ears::new().map_err(WireError::Receive)?,
            pods: Vec::new(),
            fabric: raw(Place::Outside)?,
            listening: FxHashSet::default(),
            nodes,
            ports: Ports::new(),
            next_id: 1,
            packet: Vec::new(),
        };
        let nodes = (0..wire.nodes.len()).map(Place::Node);
        for place in nodes.chain([Place::Outside]) {
            for (family, protocols) in [false, true].into_iter().zip(PROTOCOLS) {
                for protocol in protocols.into_iter().filter(|_| ipv6 || !family) {
                    wire.listen(place, family, protocol)?;
                }
            }
        }
        for ear in open_pods(world)? {
            let index = wire.ears.add(ear).map_err(WireError::Receive)?;
            wire.pods.push(index);
        }
        // What arrived before the sockets were ready is nobody's.
        wire.drain(&mut |_, _| ())?;
        Ok(wire)
    }

    /// Makes sure that whoever is the destination of an unusual protocol listens for it.
    pub(super) fn listen_for(&mut self, probes: &[Probe]) -> Result<(), WireError> {
        for probe in probes {
            if let Carried::Other { protocol } = probe.carried
                && let Some(place @ (Place::Node(_) | Place::Outside)) =
                    self.world.owner(probe.destination)
            {
                self.listen(place, probe.destination.is_ipv6(), protocol)?;
            }
        }
        Ok(())
    }

    fn listen(&mut self, place: Place, ipv6: bool, protocol: u8) -> Result<(), WireError> {
        if self.listening.insert((place, ipv6, protocol)) {
            self.add_ear(place, || Ear::of_host(place, ipv6, protocol))?;
        }
        Ok(())
    }

    fn add_ear(
        &mut self,
        place: Place,
        open: impl FnOnce() -> io::Result<Ear>,
    ) -> Result<usize, WireError> {
        self.world
            .run_in(place, open)?
            .and_then(|ear| self.ears.add(ear))
            .map_err(|source| WireError::Open { place, source })
    }
}

/// Opens the sockets of all pods, many at once: the kernel takes its time for each.
fn open_pods(world: &World) -> Result<Vec<Ear>, WireError> {
    let count = world.topology().pods.len();
    let share = count.div_ceil(WAITING).max(1);
    let open = |pod| {
        let place = Place::Pod(pod);
        world
            .run_in(place, || Ear::of_pod(pod))?
            .map_err(|source| WireError::Open { place, source })
    };
    let open_some = |first: usize| -> Result<Vec<Ear>, WireError> {
        (first..count.min(first + share)).map(open).collect()
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .step_by(share)
            .map(|first| (first, scope.spawn(move || open_some(first))))
            .collect();
        let mut all = Vec::with_capacity(count);
        for (first, thread) in threads {
            // A thread that ended badly is not a reason to: this one tries again.
            all.append(&mut thread.join().unwrap_or_else(|_| open_some(first))?);
        }
        Ok(all)
    })
}
