//! The space of addresses, cut into intervals that no rule divides.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Subnets, Ipv6Subnets};

use crate::net::{Cidr, Family};
use crate::program::{AddressAtoms, Program};

/// Returns the intervals of possible addresses, ascending: the atoms, split at `cuts`.
pub(crate) fn intervals(program: &Program, family: Family, cuts: &[Cidr]) -> Vec<(IpAddr, IpAddr)> {
    let mut starts: Vec<u128> = program.addresses.starts(family);
    let last = match family {
        Family::V4 => u128::from(u32::MAX),
        Family::V6 => u128::MAX,
    };
    // An atom is an interval that no rule divides. With the bounds of the cuts added, no cut
    // divides an interval either, and its first address stands for all.
    for cut in cuts.iter().filter(|cut| Family::of(cut.first()) == family) {
        starts.push(bits(cut.first()));
        starts.extend(bits(cut.last()).checked_add(1).filter(|it| *it <= last));
    }
    starts.sort_unstable();
    starts.dedup();
    let ends = starts.iter().skip(1).map(|next| next - 1);
    let ends = ends.chain([last]);
    let impossible = AddressAtoms::impossible(family);
    let is_possible = |(start, end): &(&u128, u128)| {
        let mut impossible = impossible.iter();
        !impossible.any(|(from, to)| from <= *start && end <= to)
    };
    let intervals = starts.iter().zip(ends).filter(is_possible);
    intervals
        .map(|(start, end)| (address(family, *start), address(family, end)))
        .collect()
}

/// Returns the address of a family with these bits.
pub(crate) fn address(family: Family, bits: u128) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(bits).unwrap_or(u32::MAX))),
        Family::V6 => IpAddr::V6(Ipv6Addr::from_bits(bits)),
    }
}

pub(crate) fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Splits an interval into blocks.
pub(crate) fn blocks(first: IpAddr, last: IpAddr) -> Vec<Cidr> {
    match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => Ipv4Subnets::new(first, last, 0)
            .filter_map(|net| Cidr::new(IpAddr::V4(net.network()), net.prefix_len()))
            .collect(),
        (IpAddr::V6(first), IpAddr::V6(last)) => Ipv6Subnets::new(first, last, 0)
            .filter_map(|net| Cidr::new(IpAddr::V6(net.network()), net.prefix_len()))
            .collect(),
        // An interval is of one family.
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => Vec::new(),
    }
}
