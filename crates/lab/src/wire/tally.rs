//! What the packets that are seen say about a batch of probes.

use crate::packet::read::{IcmpReason, PacketKind, ReceivedPacket};
use crate::topology::Location;
use crate::wire::{Probe, ProbeResult};

/// What is known of a batch so far.
pub(crate) struct BatchTally<'a> {
    batch: &'a [Probe],
    first: u32,
    measured: Vec<ProbeResult>,
    /// How many probes may still arrive or be answered.
    open: usize,
}

impl<'a> BatchTally<'a> {
    pub(crate) fn new(batch: &'a [Probe], first: u32) -> BatchTally<'a> {
        BatchTally {
            batch,
            first,
            measured: vec![ProbeResult::default(); batch.len()],
            open: batch.len(),
        }
    }

    /// Whether there is anything left to wait for.
    pub(crate) fn is_open(&self) -> bool {
        self.open > 0
    }

    /// What became of each probe.
    pub(crate) fn finish(self) -> Vec<ProbeResult> {
        self.measured
    }

    /// Takes note of a packet that was seen somewhere.
    pub(crate) fn note(&mut self, place: Location, seen: &ReceivedPacket) {
        let number = seen.id.map(|id| id.wrapping_sub(self.first) as usize);
        let Some((probe, measured)) = number
            .and_then(|number| Some((self.batch.get(number)?, self.measured.get_mut(number)?)))
        else {
            return;
        };
        let before = *measured;
        match seen.kind {
            PacketKind::Probe(_) => measured.arrived = measured.arrived.or(Some(place)),
            PacketKind::Reset
            | PacketKind::SynAck
            | PacketKind::EchoReply
            | PacketKind::SctpAnswer
            | PacketKind::Error(IcmpReason::PortUnreachable | IcmpReason::ProtocolUnreachable) => {
                // Somebody on the way may say as much; only the destination's word counts.
                if place == probe.from && seen.source == probe.destination {
                    measured.answered = true;
                }
            }
            PacketKind::Error(_)
            | PacketKind::Segment(_)
            | PacketKind::LaterFragment
            | PacketKind::Unknown => {}
        }
        let done = |measured: &ProbeResult| measured.arrived.is_some() && measured.answered;
        if done(measured) && !done(&before) {
            self.open -= 1;
        }
    }
}
