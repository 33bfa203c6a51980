//! Opens the sockets of a wire.

use std::io;
use std::thread;

use rustc_hash::FxHashSet;

use crate::network::{LabNetwork, settings};
use crate::packet::ProbePayload;
use crate::topology::Location;
use crate::wire::ports::Ports;
use crate::wire::sockets::{CaptureSocket, CaptureSockets, RawSender, WAITING};
use crate::wire::{Probe, Wire, WireError};

/// The protocols that every node and the outside receive: ICMP, TCP, UDP, SCTP.
const PROTOCOLS: [[u8; 4]; 2] = [[1, 6, 17, 132], [58, 6, 17, 132]];

impl Wire {
    /// Opens sockets in every location of the cluster.
    pub fn open(world: &LabNetwork) -> Result<Wire, WireError> {
        let ipv6 = settings::has_ipv6();
        let raw = |place| -> Result<RawSender, WireError> {
            world
                .run_in(place, || RawSender::open(ipv6))?
                .map_err(|source| WireError::Open { place, source })
        };
        let nodes = (0..world.topology().nodes.len())
            .map(|index| raw(Location::Node(index)))
            .collect::<Result<Vec<_>, _>>()?;
        let mut wire = Wire {
            world: world.clone(),
            captures: CaptureSockets::new().map_err(WireError::Receive)?,
            pods: Vec::new(),
            fabric: raw(Location::Outside)?,
            listening: FxHashSet::default(),
            nodes,
            ports: Ports::new(),
            next_id: 1,
            packet: Vec::new(),
        };
        let nodes = (0..wire.nodes.len()).map(Location::Node);
        for place in nodes.chain([Location::Outside]) {
            for (family, protocols) in [false, true].into_iter().zip(PROTOCOLS) {
                for protocol in protocols.into_iter().filter(|_| ipv6 || !family) {
                    wire.listen(place, family, protocol)?;
                }
            }
        }
        for socket in open_pods(world)? {
            let index = wire.captures.add(socket).map_err(WireError::Receive)?;
            wire.pods.push(index);
        }
        // What arrived before all sockets were ready is no measurement.
        wire.drain(&mut |_, _| ())?;
        Ok(wire)
    }

    /// Opens sockets for unusual protocols at the destinations of probes.
    pub(super) fn listen_for(&mut self, probes: &[Probe]) -> Result<(), WireError> {
        for probe in probes {
            if let ProbePayload::Other { protocol } = probe.carried
                && let Some(place @ (Location::Node(_) | Location::Outside)) =
                    self.world.owner(probe.destination)
            {
                self.listen(place, probe.destination.is_ipv6(), protocol)?;
            }
        }
        Ok(())
    }

    fn listen(&mut self, place: Location, ipv6: bool, protocol: u8) -> Result<(), WireError> {
        if self.listening.insert((place, ipv6, protocol)) {
            self.add_capture(place, || CaptureSocket::of_host(place, ipv6, protocol))?;
        }
        Ok(())
    }

    fn add_capture(
        &mut self,
        place: Location,
        open: impl FnOnce() -> io::Result<CaptureSocket>,
    ) -> Result<usize, WireError> {
        self.world
            .run_in(place, open)?
            .and_then(|socket| self.captures.add(socket))
            .map_err(|source| WireError::Open { place, source })
    }
}

/// Opens the sockets of all pods.
fn open_pods(world: &LabNetwork) -> Result<Vec<CaptureSocket>, WireError> {
    // Many at once: the kernel waits for each of them, and can wait for many together.
    let count = world.topology().pods.len();
    let share = count.div_ceil(WAITING).max(1);
    let open = |pod| {
        let place = Location::Pod(pod);
        world
            .run_in(place, || CaptureSocket::of_pod(pod))?
            .map_err(|source| WireError::Open { place, source })
    };
    let open_some = |first: usize| -> Result<Vec<CaptureSocket>, WireError> {
        (first..count.min(first + share)).map(open).collect()
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .step_by(share)
            .map(|first| (first, scope.spawn(move || open_some(first))))
            .collect();
        let mut all = Vec::with_capacity(count);
        for (first, thread) in threads {
            // A panic in a thread must not end this one: it opens the sockets itself.
            all.append(&mut thread.join().unwrap_or_else(|_| open_some(first))?);
        }
        Ok(all)
    })
}
