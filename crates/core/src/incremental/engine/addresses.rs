//! Groups that pods are in by a named port and their address, whatever their labels are.
//!
//! Pods of a class have addresses in different ranges, so the list of a class cannot have these
//! groups. They are computed where they can change: for touched addresses, and when such a group
//! begins or ends. For all other addresses they stay the same.

use std::net::IpAddr;

use rustc_hash::FxHashMap;

use super::Engine;
use super::membership::{GroupChanges, own_members};
use crate::incremental::named::{LivePodSubset, Named};
use crate::incremental::select::GroupSpec;
use crate::incremental::store::{AddressState, Store};
use crate::incremental::texts::Symbol;
use crate::net::Protocol;
use crate::plan::GroupId;

impl GroupSpec {
    /// Returns the named ports whose pods are in the group by their addresses.
    fn ranged(&self) -> impl Iterator<Item = &Named> {
        let named = match self {
            GroupSpec::Hosts { named, .. } => named.as_slice(),
            GroupSpec::Nets(..) | GroupSpec::Ranges(..) | GroupSpec::Named(..) => &[],
        };
        named.iter().filter(|port| port.has_ranges())
    }

    /// Returns whether pods are in the group by a named port and their address.
    pub(super) fn is_ranged(&self) -> bool {
        self.ranged().next().is_some()
    }

    /// Returns whether an address is in the group by its owner's ports and an address range.
    fn has_by_address(&self, store: &Store, address: IpAddr, ports: u32) -> bool {
        let ports = store.ports.get(ports);
        let mut ranged = self.ranged().filter(|port| ports.contains(&port.key()));
        ranged.any(|port| port.subset.as_ref().is_some_and(|it| it.holds(address)))
    }
}

impl Engine {
    /// Adds the members by address only of groups that begin or end to a list, without touched
    /// addresses.
    pub(super) fn by_address_only<'s>(
        &self,
        store: &Store,
        groups: impl Iterator<Item = (&'s u32, &'s GroupSpec)>,
        members: &mut Vec<(GroupId, IpAddr)>,
    ) {
        // All these groups in one walk over the classes: unions can make one for each number of a
        // port name.
        let mut by_port: ByPort<'_> = FxHashMap::default();
        for (id, spec) in groups {
            for port in spec.ranged() {
                let entries = by_port.entry(port.key()).or_default();
                entries.extend(port.subset.as_deref().map(|subset| (*id, spec, subset)));
            }
        }
        if by_port.is_empty() {
            return;
        }
        for (id, class) in store.classes.iter().filter(|(_, it)| it.is_there()) {
            let known = store.groups.get(class.groups);
            let ports = store.ports.get(class.ports).iter();
            let entries = ports.filter_map(|port| by_port.get(port)).flatten();
            // Members by class are in the change already.
            let others = entries.filter(|(id, ..)| known.binary_search(id).is_err());
            let others: Vec<&Entry<'_>> = others.collect();
            if others.is_empty() {
                continue;
            }
            for (pod, _) in store.pods_of(id) {
                store.own_addresses(pod, &mut |address| {
                    if !store.is_touched(address) {
                        let groups = holding(&others, address);
                        members.extend(groups.into_iter().map(|id| (GroupId(id), address)));
                    }
                });
            }
        }
    }

    /// Returns all groups that an address was in, ascending, except those of which it is an own
    /// member.
    pub(super) fn all_before(
        &self,
        store: &Store,
        address: IpAddr,
        before: &AddressState,
        turnover: &GroupChanges,
    ) -> Vec<u32> {
        let mut groups = store.groups.get(before.groups).to_vec();
        // The index has the groups after the commit. Without the groups that begin, and with those
        // that end, they are the groups before it.
        let stayed = self.groups.by_address(store, address, before.ports);
        let stayed = stayed.into_iter();
        groups.extend(stayed.filter(|id| turnover.begun.binary_search(id).is_err()));
        for (id, spec) in &turnover.ended {
            if spec.has_by_address(store, address, before.ports) {
                groups.push(*id);
            }
        }
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// Returns all groups that an address is in, ascending, except those of which it is an own
    /// member. `groups` and `ports` are the lists of its owner.
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

/// A group, and the subset that pods with a port must also be in.
type Entry<'s> = (u32, &'s GroupSpec, &'s LivePodSubset);

type ByPort<'s> = FxHashMap<(Symbol, Protocol, u16), Vec<Entry<'s>>>;

/// Returns the groups that an address is in by a range, except those of which it is an own member.
fn holding(entries: &[&Entry<'_>], address: IpAddr) -> Vec<u32> {
    let holding = entries.iter().filter(|(_, spec, subset)| {
        subset.holds(address) && own_members(spec).binary_search(&address).is_err()
    });
    let mut groups: Vec<u32> = holding.map(|(id, ..)| *id).collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}
