//! Derives the results of a batch of probes from received packets.

use crate::packet::read::{IcmpReason, PacketKind, ReceivedPacket};
use crate::topology::Location;
use crate::wire::{Probe, ProbeResult};

/// The results of a batch so far.
pub(crate) struct BatchTally<'a> {
    batch: &'a [Probe],
    first: u32,
    measured: Vec<ProbeResult>,
    /// The number of probes that may still arrive or be answered.
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

    /// Reports whether a probe may still arrive or be answered.
    pub(crate) fn is_open(&self) -> bool {
        self.open > 0
    }

    /// Returns the result of each probe.
    pub(crate) fn finish(self) -> Vec<ProbeResult> {
        self.measured
    }

    /// Records a packet that a location received.
    pub(crate) fn note(&mut self, place: Location, packet: &ReceivedPacket) {
        let number = packet.id.map(|id| id.wrapping_sub(self.first) as usize);
        let Some((probe, measured)) = number
            .and_then(|number| Some((self.batch.get(number)?, self.measured.get_mut(number)?)))
        else {
            return;
        };
        let before = *measured;
        match packet.kind {
            PacketKind::Probe(_) => measured.arrived = measured.arrived.or(Some(place)),
            PacketKind::Reset
            | PacketKind::SynAck
            | PacketKind::EchoReply
            | PacketKind::SctpAnswer
            | PacketKind::Error(IcmpReason::PortUnreachable | IcmpReason::ProtocolUnreachable) => {
                // A router on the path may send the same. Only the destination's answer counts.
                if place == probe.from && packet.source == probe.destination {
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
