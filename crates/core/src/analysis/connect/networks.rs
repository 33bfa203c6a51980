//! The networks outside the cluster: addresses that no policy distinguishes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Subnets, Ipv6Subnets};
use rustc_hash::FxHashMap;

use super::Network;
use super::keys::AddressClasses;
use crate::model::Cluster;
use crate::net::{Cidr, Family};
use crate::program::{AddressAtom, AddressAtoms, Program};

/// A network and one of its atoms, which stands for all of them.
#[derive(Debug)]
pub(super) struct Outside {
    pub(super) network: Network,
    pub(super) atom: AddressAtom,
}

/// Returns the families in which a pod, a node or a block of a policy has addresses; IPv4 if none.
pub(super) fn families(cluster: &Cluster<'_>, program: &Program) -> Vec<Family> {
    let pods = cluster.pods.iter().flat_map(|pod| &pod.addresses);
    let nodes = cluster.nodes.iter().flat_map(|node| &node.addresses);
    let has = |family: Family| {
        let mut addresses = pods.clone().chain(nodes.clone());
        addresses.any(|address| Family::of(*address) == family)
    };
    let [v4, v6] = [Family::V4, Family::V6].map(has);
    // Without blocks in policies the whole family is one atom.
    let v6 = v6 || program.addresses.v6.len() > 1;
    let v4 = v4 || program.addresses.v4.len() > 1 || !v6;
    let families = [(v4, Family::V4), (v6, Family::V6)];
    let families = families.into_iter().filter(|it| it.0);
    families.map(|it| it.1).collect()
}

/// Returns the networks outside, one for each set of addresses that neither policies nor `cuts`
/// distinguish.
pub(super) fn networks(
    families: &[Family],
    program: &Program,
    classes: &AddressClasses,
    cuts: &[Cidr],
) -> Vec<Outside> {
    let mut found: Vec<Outside> = Vec::new();
    for family in families.iter().copied() {
        let mut ids: FxHashMap<(u32, u32, Vec<bool>), usize> = FxHashMap::default();
        for (first, last) in intervals(program, family, cuts) {
            let atom = program.address_atom(first);
            if is_all_owned(program, first, last) {
                continue;
            }
            let of_cuts = cuts.iter().map(|cut| cut.contains(first)).collect();
            // A network is one member, so its addresses must share both keys: as source and as
            // destination.
            let key = (
                classes.of_source(atom),
                classes.of_destination(atom),
                of_cuts,
            );
            let blocks = blocks(first, last);
            let index = *ids.entry(key).or_insert(found.len());
            match found.get_mut(index) {
                Some(outside) => outside.network.blocks.extend(blocks),
                None => found.push(Outside {
                    network: Network { family, blocks },
                    atom,
                }),
            }
        }
    }
    found
}

/// Returns the intervals of possible addresses, ascending: the atoms, split at `cuts`.
fn intervals(program: &Program, family: Family, cuts: &[Cidr]) -> Vec<(IpAddr, IpAddr)> {
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
pub(super) fn address(family: Family, bits: u128) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(bits).unwrap_or(u32::MAX))),
        Family::V6 => IpAddr::V6(Ipv6Addr::from_bits(bits)),
    }
}

pub(super) fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Returns whether pods and nodes own every address of an interval, so none of them is outside.
fn is_all_owned(program: &Program, first: IpAddr, last: IpAddr) -> bool {
    /// The size from which an interval counts as not full: what fills up in practice are blocks
    /// around single pods and nodes.
    const MOST: u128 = 16;
    let size = bits(last) - bits(first);
    if size >= MOST {
        return false;
    }
    let address = |offset: u128| match first {
        IpAddr::V4(first) => {
            let offset = u32::try_from(offset).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(first.to_bits() + offset))
        }
        IpAddr::V6(first) => IpAddr::V6(Ipv6Addr::from_bits(first.to_bits() + offset)),
    };
    (0..=size).all(|offset| program.owner(address(offset)).is_some())
}

/// Splits an interval into blocks.
pub(super) fn blocks(first: IpAddr, last: IpAddr) -> Vec<Cidr> {
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
