//! Ranges of ports as blocks of ports that begin with the same bits.
//!
//! Blocks have 0, 4, 8, 12 or 16 bits in common. A dataplane finds all blocks of a port by five
//! exact lookups, however many ranges there are. A range is at most 104 blocks, and ranges of
//! different rules need not be cut at each other's edges. Blocks of any number of bits would be
//! fewer, but need 17 lookups.

use std::collections::BTreeMap;

use crate::net::{PortRange, Protocol};

/// Ports of a protocol that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortBlock {
    /// The protocol.
    pub protocol: Protocol,
    /// The number of bits that the ports have in common: 0 (every port), 4, 8, 12 or 16.
    pub bits: u8,
    /// The first port.
    pub first: u16,
}

impl PortBlock {
    /// Returns the block of one port.
    pub fn single(protocol: Protocol, port: u16) -> PortBlock {
        PortBlock {
            protocol,
            bits: 16,
            first: port,
        }
    }

    /// Returns the block of so many bits that contains a port.
    pub fn around(protocol: Protocol, port: u16, bits: u8) -> PortBlock {
        PortBlock {
            protocol,
            bits,
            first: port & PortBlock::mask(bits),
        }
    }

    /// Returns the mask of the bits that the ports of a block have in common.
    pub fn mask(bits: u8) -> u16 {
        !u16::MAX.checked_shr(bits.into()).unwrap_or(0)
    }
}

/// Returns the blocks of exactly the ports in some ranges.
pub(super) fn blocks(ranges: impl IntoIterator<Item = (Protocol, PortRange)>) -> Vec<PortBlock> {
    let mut of_protocols: BTreeMap<Protocol, Vec<PortRange>> = BTreeMap::new();
    for (protocol, range) in ranges {
        of_protocols.entry(protocol).or_default().push(range);
    }
    let mut blocks = Vec::new();
    for (protocol, mut ranges) in of_protocols {
        // Ports start at 1, and the block of all ports at 0. Only the range of all ports is that
        // block; ranges that together cover 1 to 65535 stay blocks of their own.
        if ranges.contains(&PortRange::ALL) {
            blocks.push(PortBlock::around(protocol, 0, 0));
            continue;
        }
        // Ranges that overlap or touch are merged first: a port is in at most one of the blocks.
        ranges.sort_unstable();
        let mut open: Option<(u32, u32)> = None;
        for range in ranges {
            let (start, end) = (range.start().get(), range.end().get());
            let (start, end) = (u32::from(start), u32::from(end));
            match &mut open {
                Some((_, last)) if start <= *last + 1 => *last = end.max(*last),
                _ => {
                    split(protocol, open.replace((start, end)), &mut blocks);
                }
            }
        }
        split(protocol, open, &mut blocks);
    }
    blocks
}

/// Returns the number of blocks of one range.
pub(crate) fn port_blocks(range: PortRange) -> u32 {
    if range == PortRange::ALL {
        return 1;
    }
    let (start, end) = (range.start().get(), range.end().get());
    let mut blocks = 0;
    each_block((start.into(), end.into()), |_, _| blocks += 1);
    blocks
}

/// Adds the blocks of one range, bounds included: from each port the largest that starts there.
fn split(protocol: Protocol, range: Option<(u32, u32)>, blocks: &mut Vec<PortBlock>) {
    let Some(range) = range else {
        return;
    };
    each_block(range, |bits, first| {
        blocks.push(PortBlock {
            protocol,
            bits,
            first,
        });
    });
}

/// Calls `block` with the bits and the first port of each block of a range.
fn each_block((mut start, end): (u32, u32), mut block: impl FnMut(u8, u16)) {
    // In 32 bits, because the port after 65535 ends the loop. `& !3` leaves blocks of five sizes
    // only: the bits that differ inside a block are a multiple of four.
    while start <= end {
        let aligned = start.trailing_zeros().min(16);
        let fitting = (end - start + 1).ilog2();
        let zeros = aligned.min(fitting) & !3;
        block(16 - zeros as u8, start as u16);
        start += 1 << zeros;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u16, end: u16) -> PortRange {
        PortRange::new(start.try_into().unwrap(), end.try_into().unwrap()).unwrap()
    }

    fn of(ranges: &[(u16, u16)]) -> Vec<(u16, u8)> {
        let ranges = ranges.iter().map(|it| (Protocol::Tcp, range(it.0, it.1)));
        let blocks = blocks(ranges).into_iter();
        blocks.map(|it| (it.first, it.bits)).collect()
    }

    #[test]
    fn a_port_is_a_block_of_all_bits() {
        assert_eq!(of(&[(80, 80)]), [(80, 16)]);
    }

    #[test]
    fn a_range_is_the_largest_blocks_that_fit() {
        assert_eq!(of(&[(8000, 8015)]), [(8000, 12)]);
        let expected = [(14, 16), (15, 16), (16, 12), (32, 16), (33, 16)];
        assert_eq!(of(&[(14, 33)]), expected);
        let halves = (8..16).map(|first| (first * 4096, 4));
        assert_eq!(of(&[(32768, 65535)]), halves.collect::<Vec<_>>());
    }

    #[test]
    fn ranges_that_overlap_or_touch_are_one() {
        assert_eq!(of(&[(8008, 8015), (8000, 8007)]), [(8000, 12)]);
        let within = [(8000, 8015), (8001, 8001), (8000, 8002)];
        assert_eq!(of(&within), [(8000, 12)]);
    }

    #[test]
    fn only_the_range_of_all_ports_is_the_block_of_all_ports() {
        assert_eq!(of(&[(1, 65535), (80, 80)]), [(0, 0)]);
        // Port 0 is in no range.
        assert_eq!(of(&[(1, 80), (81, 65535)]).len(), 60);
    }

    #[test]
    fn no_range_is_more_than_104_blocks() {
        assert_eq!(of(&[(1, 65534)]).len(), 104);
    }

    #[test]
    fn protocols_are_kept_apart() {
        let both = [
            (Protocol::Udp, range(16, 31)),
            (Protocol::Tcp, range(32, 47)),
        ];
        let found = blocks(both);
        assert_eq!(
            found,
            [
                PortBlock::around(Protocol::Tcp, 32, 12),
                PortBlock::around(Protocol::Udp, 16, 12)
            ]
        );
    }

    #[test]
    fn blocks_have_the_ports_of_their_ranges() {
        let ranges = [(1, 1), (3, 700), (650, 1000), (1024, 4097), (65535, 65535)];
        let found = blocks(ranges.map(|it| (Protocol::Tcp, range(it.0, it.1))));
        for port in 0..=u16::MAX {
            let expected = ranges.iter().any(|it| (it.0..=it.1).contains(&port));
            let around = [0, 4, 8, 12, 16].map(|bits| PortBlock::around(Protocol::Tcp, port, bits));
            let is_found = around.iter().any(|block| found.contains(block));
            assert_eq!(is_found, expected, "{port}");
        }
    }
}
