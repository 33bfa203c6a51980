//! Claims of addresses, and the owner of each address.

use std::net::IpAddr;

use rustc_hash::FxHashMap;

use super::table::Table;
use super::{AddressState, Pod, Store};
use crate::incremental::slab::NONE;
use crate::owners::precedence;

/// The owner of an address (D22, D82, D107, D108).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::incremental) enum Owner {
    /// A live pod outside the host network.
    Pod(u32),
    /// A node, also if a host-network pod claims the address.
    Node(u32),
    /// The node of a host-network pod, without a Node object.
    UnknownNode,
}

/// An object that claims an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::incremental) enum Claimant {
    Pod(u32),
    Node(u32),
    /// A host-network pod.
    HostPod(u32),
}

/// Packs a claimant into four bytes.
// The two low bits are the kind. The value 3 there is never a claimant, which leaves 2^30 numbers.
fn pack(claimant: Claimant) -> u32 {
    match claimant {
        Claimant::Pod(id) => id << 2,
        Claimant::Node(id) => id << 2 | 1,
        Claimant::HostPod(id) => id << 2 | 2,
    }
}

fn unpack(packed: u32) -> Option<Claimant> {
    let id = packed >> 2;
    match packed & 3 {
        0 => Some(Claimant::Pod(id)),
        1 => Some(Claimant::Node(id)),
        2 => Some(Claimant::HostPod(id)),
        _ => None,
    }
}

/// The value of an address with several claimants.
const SEVERAL: u32 = 3;

/// The claims of all addresses.
// Nearly every address has one claimant. A list for each would multiply the memory of the table.
#[derive(Debug, Default)]
pub(super) struct Claims {
    v4: Table,
    v6: FxHashMap<u128, u32>,
    several: FxHashMap<IpAddr, Vec<Claimant>>,
}

impl Claims {
    fn get(&self, address: IpAddr) -> Option<u32> {
        match address {
            IpAddr::V4(it) => self.v4.get(it.to_bits()),
            IpAddr::V6(it) => self.v6.get(&it.to_bits()).copied(),
        }
    }

    fn put(&mut self, address: IpAddr, claim: Option<u32>) {
        match (address, claim) {
            (IpAddr::V4(it), Some(claim)) => self.v4.insert(it.to_bits(), claim),
            (IpAddr::V4(it), None) => self.v4.remove(it.to_bits()),
            (IpAddr::V6(it), Some(claim)) => {
                self.v6.insert(it.to_bits(), claim);
            }
            (IpAddr::V6(it), None) => {
                self.v6.remove(&it.to_bits());
            }
        }
    }

    fn add(&mut self, address: IpAddr, claimant: Claimant) {
        match self.get(address) {
            None => self.put(address, Some(pack(claimant))),
            Some(SEVERAL) => self.several.entry(address).or_default().push(claimant),
            Some(one) => {
                let both = unpack(one).into_iter().chain([claimant]).collect();
                self.several.insert(address, both);
                self.put(address, Some(SEVERAL));
            }
        }
    }

    fn remove(&mut self, address: IpAddr, claimant: Claimant) {
        match self.get(address) {
            Some(SEVERAL) => {
                let Some(several) = self.several.get_mut(&address) else {
                    return;
                };
                // Back to the short form when one is left: `several` lists conflicts only.
                several.retain(|it| *it != claimant);
                let left = match several.as_slice() {
                    [] => None,
                    [one] => Some(pack(*one)),
                    _ => return,
                };
                self.several.remove(&address);
                self.put(address, left);
            }
            Some(one) if one == pack(claimant) => self.put(address, None),
            // A pod that lists an address twice has lost both claims at once.
            Some(_) | None => {}
        }
    }
}

impl Store {
    pub(super) fn claim(&mut self, address: IpAddr, claimant: Claimant) {
        self.touch(address);
        self.claims.add(address, claimant);
    }

    pub(super) fn unclaim(&mut self, address: IpAddr, claimant: Claimant) {
        self.touch(address);
        self.claims.remove(address, claimant);
    }

    /// Records the state of an address before it changes.
    // The order in which objects change within a batch must not matter, nor how often. So the first
    // call of a batch counts, and the commit compares its record with the final state.
    pub(super) fn touch(&mut self, address: IpAddr) {
        if self.changes.touched.contains(address) {
            return;
        }
        let owner = self.owner(address);
        let (groups, ports) = self.lists_of(owner);
        // The record names lists by number. Before the commit, the owner's class can get other
        // groups or be gone; without this use the number would then mean another list.
        self.groups.retain(groups);
        if ports != NONE {
            self.ports.retain(ports);
        }
        let before = AddressState {
            owner,
            now: None,
            groups,
            ports,
            is_local: self.local_class(owner).is_some(),
        };
        self.changes.touched.add(address, before);
    }

    /// Returns the class of an owner that is a local pod.
    pub(in crate::incremental) fn local_class(&self, owner: Option<Owner>) -> Option<u32> {
        let Some(Owner::Pod(pod)) = owner else {
            return None;
        };
        let pod = self.pods.get(pod)?;
        pod.is_local().then_some(pod.class)
    }

    /// Returns the list of groups of an owner's addresses, and the list of ports of its class.
    pub(in crate::incremental) fn lists_of(&self, owner: Option<Owner>) -> (u32, u32) {
        let standing = match owner {
            Some(Owner::Pod(pod)) => {
                let class = self.pods.get(pod).map_or(NONE, |it| it.class);
                let class = self.classes.get(class);
                class.map(|it| (it.groups, it.ports))
            }
            Some(Owner::Node(node)) => self.nodes.get(node).map(|it| (it.groups, NONE)),
            Some(Owner::UnknownNode) | None => None,
        };
        let (groups, ports) = standing.unwrap_or((NONE, NONE));
        // A new class has no list yet, and external addresses have no class. Both compare as the
        // empty list.
        let groups = if groups == NONE {
            self.no_groups
        } else {
            groups
        };
        (groups, ports)
    }

    // Computed each time instead of being stored: among several claimants it depends on facts that
    // change without a claim, such as the phase of a pod or the existence of a Node object.
    pub(in crate::incremental) fn owner(&self, address: IpAddr) -> Option<Owner> {
        let claim = self.claims.get(address)?;
        if claim != SEVERAL {
            return Some(self.as_owner(unpack(claim)?));
        }
        let several = self.claims.several.get(&address)?;
        several
            .iter()
            .min_by(|a, b| self.compare(**a, **b))
            .map(|it| self.as_owner(*it))
    }

    fn as_owner(&self, claimant: Claimant) -> Owner {
        match claimant {
            Claimant::Pod(pod) => Owner::Pod(pod),
            Claimant::Node(node) => Owner::Node(node),
            Claimant::HostPod(pod) => {
                let hosted = self.hosted.get(&pod);
                match hosted.and_then(|it| self.node_ids.get(&it.node)) {
                    Some(node) => Owner::Node(*node),
                    None => Owner::UnknownNode,
                }
            }
        }
    }

    /// Orders two claimants; the smaller one owns the address. Pods come before nodes, and nodes
    /// before host-network pods.
    // The same order as in `owners::owners`, which decides for whole clusters.
    fn compare(&self, a: Claimant, b: Claimant) -> std::cmp::Ordering {
        let rank = |it: Claimant| match it {
            Claimant::Pod(_) => 0,
            Claimant::Node(_) => 1,
            Claimant::HostPod(_) => 2,
        };
        let by_pod = |a: u32, b: u32| {
            let of = |id: u32| {
                let pod = self.pods.get(id);
                let created = pod.map(|pod| self.created(pod)).unwrap_or_default();
                (pod.map(Pod::life), created)
            };
            let ((life_a, created_a), (life_b, created_b)) = (of(a), of(b));
            let key = |life, created| Some(precedence(life?, created));
            key(life_a, created_a.as_text())
                .cmp(&key(life_b, created_b.as_text()))
                .then_with(|| self.pod_name(a).cmp(&self.pod_name(b)))
        };
        match (a, b) {
            (Claimant::Pod(a), Claimant::Pod(b)) => by_pod(a, b),
            (Claimant::Node(a), Claimant::Node(b)) => self.node_name(a).cmp(self.node_name(b)),
            (Claimant::HostPod(a), Claimant::HostPod(b)) => self.pod_name(a).cmp(&self.pod_name(b)),
            _ => rank(a).cmp(&rank(b)),
        }
    }

    /// Passes on all addresses that were owned at the last commit, with the list of groups and the
    /// list of ports of each.
    // Between commits objects can have changed: touched addresses come from their records.
    pub(in crate::incremental) fn each_owned(&self, take: &mut dyn FnMut(IpAddr, (u32, u32))) {
        let v4 = self.claims.v4.addresses().map(|it| IpAddr::V4(it.into()));
        let v6 = self.claims.v6.keys().map(|it| IpAddr::V6((*it).into()));
        for address in v4.chain(v6) {
            if !self.is_touched(address) {
                take(address, self.lists_of(self.owner(address)));
            }
        }
        for (address, before) in self.changes.touched.iter() {
            take(*address, (before.groups, before.ports));
        }
    }

    /// Returns whether the state of an address may have changed since the last commit.
    pub(in crate::incremental) fn is_touched(&self, address: IpAddr) -> bool {
        self.changes.touched.contains(address)
    }

    /// Returns whether an address has several claimants.
    pub(super) fn is_shared(&self, address: IpAddr) -> bool {
        !self.claims.several.is_empty() && self.claims.several.contains_key(&address)
    }

    /// Returns the number of addresses that have an owner.
    pub(in crate::incremental) fn n_addresses(&self) -> usize {
        self.claims.v4.len() + self.claims.v6.len()
    }

    /// Returns the addresses with several claimants, in order, each with its claimants, the owner
    /// first.
    pub(in crate::incremental) fn conflicts(&self) -> Vec<(IpAddr, Vec<Claimant>)> {
        let mut conflicts = Vec::new();
        for (address, claimants) in &self.claims.several {
            let mut claimants = claimants.clone();
            claimants.sort_by(|a, b| self.compare(*a, *b));
            conflicts.push((*address, claimants));
        }
        conflicts.sort_by_key(|(address, _)| *address);
        conflicts
    }
}
