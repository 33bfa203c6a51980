//! What the packets that are seen say about a batch of probes.

use crate::packet::read::{Kind, Reason, Seen};
use crate::topology::Place;
use crate::wire::{Measured, Probe};

/// What is known of a batch so far.
pub(crate) struct Tally<'a> {
    batch: &'a [Probe],
    first: u32,
    measured: Vec<Measured>,
    /// How many probes may still arrive or be answered.
    open: usize,
}

impl<'a> Tally<'a> {
    pub(crate) fn new(batch: &'a [Probe], first: u32) -> Tally<'a> {
        Tally {
            batch,
            first,
            measured: vec![Measured::default(); batch.len()],
            open: batch.len(),
        }
    }

    /// Whether there is anything left to wait for.
    pub(crate) fn is_open(&self) -> bool {
        self.open > 0
    }

    /// What became of each probe.
    pub(crate) fn finish(self) -> Vec<Measured> {
        self.measured
    }

    /// Takes note of a packet that was seen somewhere.
    pub(crate) fn note(&mut self, place: Place, seen: &Seen) {
        let number = seen.id.map(|id| id.wrapping_sub(self.first) as usize);
        let Some((probe, measured)) = number
            .and_then(|number| Some((self.batch.get(number)?, self.measured.get_mut(number)?)))
        else {
            return;
        };
        let before = *measured;
        match seen.kind {
            Kind::Probe(_) => measured.arrived = measured.arrived.or(Some(place)),
            Kind::Reset
            | Kind::SynAck
            | Kind::EchoReply
            | Kind::SctpAnswer
            | Kind::Error(Reason::PortUnreachable | Reason::ProtocolUnreachable) => {
                // Somebody on the way may say as much; only the destination's word counts.
                if place == probe.from && seen.source == probe.destination {
                    measured.answered = true;
                }
            }
            Kind::Error(_) | Kind::Segment(_) | Kind::LaterFragment | Kind::Unknown => {}
        }
        let done = |measured: &Measured| measured.arrived.is_some() && measured.answered;
        if done(measured) && !done(&before) {
            self.open -= 1;
        }
    }
}
