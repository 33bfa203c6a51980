//! Groups that pods are in because of a named port and their address, whatever their labels are.
//!
//! A class does not say where its pods are, so that these groups are in no list of a class. They are found when they are needed:
//! for addresses that something happened to, and when such a group begins or ends. For all others they stay the same.

use std::net::IpAddr;

use rustc_hash::FxHashMap;

use super::Engine;
use super::membership::{GroupChanges, own_members};
use crate::incremental::named::{LivePodSubset, Named};
use crate::incremental::select::GroupSpec;
use crate::incremental::store::{Before, Store};
use crate::incremental::texts::Symbol;
use crate::net::Protocol;
use crate::plan::GroupId;

impl GroupSpec {
    /// The named ports of pods that are in the group because of their addresses.
    fn ranged(&self) -> impl Iterator<Item = &Named> {
        let named = match self {
            GroupSpec::Hosts { named, .. } => named.as_slice(),
            GroupSpec::Nets(..) | GroupSpec::Ranges(..) | GroupSpec::Named(..) => &[],
        };
        named.iter().filter(|port| port.has_ranges())
    }

    /// Whether pods are in the group because of a named port and their address.
    pub(super) fn is_ranged(&self) -> bool {
        self.ranged().next().is_some()
    }

    /// Whether an address is in the group because of its owner's ports and where it is.
    fn has_by_address(&self, store: &Store, address: IpAddr, ports: u32) -> bool {
        let ports = store.ports.get(ports);
        let mut ranged = self.ranged().filter(|port| ports.contains(&port.key()));
        ranged.any(|port| port.subset.as_ref().is_some_and(|it| it.holds(address)))
    }
}

impl Engine {
    /// Tells the members that groups which begin or end have because of their addresses alone, but for addresses that
    /// something happened to.
    pub(super) fn by_address_only<'s>(
        &self,
        store: &Store,
        groups: impl Iterator<Item = (&'s u32, &'s GroupSpec)>,
        told: &mut Vec<(GroupId, IpAddr)>,
    ) {
        let mut by_port: ByPort<'_> = FxHashMap::default();
        for (id, spec) in groups {
            for port in spec.ranged() {
                let entries = by_port.entry(port.key()).or_default();
                entries.extend(port.subset.as_deref().map(|among| (*id, spec, among)));
            }
        }
        if by_port.is_empty() {
            return;
        }
        for (id, class) in store.classes.iter().filter(|(_, it)| it.is_there()) {
            let known = store.groups.get(class.groups);
            let ports = store.ports.get(class.ports).iter();
            let entries = ports.filter_map(|port| by_port.get(port)).flatten();
            let others = entries.filter(|(id, ..)| known.binary_search(id).is_err());
            let others: Vec<&Entry<'_>> = others.collect();
            if others.is_empty() {
                continue;
            }
            for (pod, _) in store.pods_of(id) {
                store.own_addresses(pod, &mut |address| {
                    if !store.is_touched(address) {
                        let groups = holding(&others, address);
                        told.extend(groups.into_iter().map(|id| (GroupId(id), address)));
                    }
                });
            }
        }
    }

    /// All groups that an address was in, ascending, but for those that name it themselves.
    pub(super) fn all_before(
        &self,
        store: &Store,
        address: IpAddr,
        before: &Before,
        turn: &GroupChanges,
    ) -> Vec<u32> {
        let mut groups = store.groups.get(before.groups).to_vec();
        let stayed = self.groups.by_address(store, address, before.ports);
        let stayed = stayed.into_iter();
        groups.extend(stayed.filter(|id| turn.begun.binary_search(id).is_err()));
        for (id, spec) in &turn.ended {
            if spec.has_by_address(store, address, before.ports) {
                groups.push(*id);
            }
        }
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// All groups that an address is in, ascending, but for those that name it themselves. The lists are those of its owner:
    /// of groups and of ports.
    pub(super) fn all_after(
        &self,
        store: &Store,
        address: IpAddr,
        (groups, ports): (u32, u32),
    ) -> Vec<u32> {
        let mut groups = store.groups.get(groups).to_vec();
        groups.extend(self.groups.by_address(store, address, ports));
        groups.sort_unstable();
        groups.dedup();
        groups
    }
}

/// A group, and the destinations that pods with a port must be among.
type Entry<'s> = (u32, &'s GroupSpec, &'s LivePodSubset);

type ByPort<'s> = FxHashMap<(Symbol, Protocol, u16), Vec<Entry<'s>>>;

/// The groups that have an address because of where it is, and do not name it themselves.
fn holding(entries: &[&Entry<'_>], address: IpAddr) -> Vec<u32> {
    let holding = entries.iter().filter(|(_, spec, among)| {
        among.holds(address) && own_members(spec).binary_search(&address).is_err()
    });
    let mut groups: Vec<u32> = holding.map(|(id, ..)| *id).collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}
