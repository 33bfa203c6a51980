//! Atoms: intervals of addresses and of ports that no rule distinguishes.
//!
//! Every bound of every rule starts a new atom, so a block of addresses or a range of ports is a
//! run of neighbouring atoms, and membership is two comparisons.

use std::net::IpAddr;

use crate::net::{Cidr, PortRange, Protocol};
use crate::program::{AddressAtoms, PortAtoms};

/// Collects the bounds of address blocks.
#[derive(Debug, Default)]
pub(super) struct AddressBounds {
    v4: Vec<u32>,
    v6: Vec<u128>,
}

impl AddressBounds {
    /// Adds the bounds of a block.
    pub(super) fn add(&mut self, block: Cidr) {
        // A block starts an atom, and so does the first address after it. After the last address of
        // a family there is none.
        match (block.first(), block.last()) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                self.v4.push(first.to_bits());
                self.v4.extend(last.to_bits().checked_add(1));
            }
            (IpAddr::V6(first), IpAddr::V6(last)) => {
                self.v6.push(first.to_bits());
                self.v6.extend(last.to_bits().checked_add(1));
            }
            // The first and last address of a block are of one family.
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => {}
        }
    }

    /// Returns the atoms, by their first addresses.
    pub(super) fn finish(mut self) -> AddressAtoms {
        // The first atom starts at 0 even if no block does: every address must be in some atom.
        self.v4.push(0);
        self.v4.sort_unstable();
        self.v4.dedup();
        self.v6.push(0);
        self.v6.sort_unstable();
        self.v6.dedup();
        AddressAtoms {
            v4: self.v4,
            v6: self.v6,
        }
    }
}

/// Collects the bounds of port ranges.
#[derive(Debug, Default)]
pub(super) struct PortBounds {
    starts: [Vec<u16>; 3],
}

impl PortBounds {
    /// Adds the bounds of a range.
    pub(super) fn add(&mut self, protocol: Protocol, range: PortRange) {
        let starts = match protocol {
            Protocol::Tcp => &mut self.starts[0],
            Protocol::Udp => &mut self.starts[1],
            Protocol::Sctp => &mut self.starts[2],
        };
        starts.push(range.start().get());
        starts.extend(range.end().get().checked_add(1));
    }

    /// Returns the atoms, by their first ports.
    pub(super) fn finish(self) -> PortAtoms {
        // Protocols stay apart: a rule names ports of one protocol, and another one's bounds in its
        // atoms would only make more of them.
        let finish = |mut starts: Vec<u16>| {
            starts.push(0);
            starts.sort_unstable();
            starts.dedup();
            starts
        };
        PortAtoms {
            starts: self.starts.map(finish),
        }
    }
}
