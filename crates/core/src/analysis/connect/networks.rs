//! The networks outside the cluster: addresses that no policy distinguishes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustc_hash::FxHashMap;

use super::Network;
use super::keys::AddressClasses;
use crate::address_space::{bits, blocks, intervals};
use crate::model::Cluster;
use crate::net::{Cidr, Family};
use crate::program::{AddressAtom, Program};

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
