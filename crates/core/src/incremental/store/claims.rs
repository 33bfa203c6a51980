//! Who claims an address, and who has it.

use std::net::IpAddr;

use rustc_hash::FxHashMap;

use super::table::Table;
use super::{Before, Pod, Store};
use crate::compile::precedence;
use crate::incremental::slab::NONE;

/// Who has an address (D22, D82, D107, D108).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::incremental) enum Owner {
    /// A live pod with a network of its own.
    Pod(u32),
    /// A node, or a pod in its network.
    Node(u32),
    /// A pod in the network of a node that is not given.
    UnknownNode,
}

/// Someone who says that an address is its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::incremental) enum Claimant {
    Pod(u32),
    Node(u32),
    /// A pod of the host network.
    HostPod(u32),
}

/// A claimant in four bytes.
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

/// Several claim it.
const SEVERAL: u32 = 3;

/// All claims. Nearly every address has one claimant.
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

    /// Takes note of what an address is, before something about it changes.
    pub(super) fn touch(&mut self, address: IpAddr) {
        if self.changes.touched.contains(address) {
            return;
        }
        let owner = self.owner(address);
        let (groups, ports) = self.standing(owner);
        self.groups.retain(groups);
        if ports != NONE {
            self.ports.retain(ports);
        }
        let before = Before {
            owner,
            now: None,
            groups,
            ports,
            is_local: self.local_class(owner).is_some(),
        };
        self.changes.touched.add(address, before);
    }

    /// The class of an owner that is a local pod.
    pub(in crate::incremental) fn local_class(&self, owner: Option<Owner>) -> Option<u32> {
        let Some(Owner::Pod(pod)) = owner else {
            return None;
        };
        let pod = self.pods.get(pod)?;
        pod.is_local().then_some(pod.class)
    }

    /// The groups that the addresses of an owner are in, and the ports of its class.
    pub(in crate::incremental) fn standing(&self, owner: Option<Owner>) -> (u32, u32) {
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
        let groups = if groups == NONE {
            self.no_groups
        } else {
            groups
        };
        (groups, ports)
    }

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

    /// The smaller one has the address: pods before nodes before pods of the host network, then as
    /// `compile::owners` has it.
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

    /// All addresses that were owned at the last commit, with the groups of their owners' classes and the ports.
    pub(in crate::incremental) fn each_owned(&self, take: &mut dyn FnMut(IpAddr, (u32, u32))) {
        let v4 = self.claims.v4.addresses().map(|it| IpAddr::V4(it.into()));
        let v6 = self.claims.v6.keys().map(|it| IpAddr::V6((*it).into()));
        for address in v4.chain(v6) {
            if !self.is_touched(address) {
                take(address, self.standing(self.owner(address)));
            }
        }
        for (address, before) in self.changes.touched.iter() {
            take(*address, (before.groups, before.ports));
        }
    }

    /// Whether something about an address has changed since the last commit.
    pub(in crate::incremental) fn is_touched(&self, address: IpAddr) -> bool {
        self.changes.touched.contains(address)
    }

    /// Whether more than one claim an address.
    pub(super) fn is_shared(&self, address: IpAddr) -> bool {
        !self.claims.several.is_empty() && self.claims.several.contains_key(&address)
    }

    /// How many addresses have an owner.
    pub(in crate::incremental) fn n_addresses(&self) -> usize {
        self.claims.v4.len() + self.claims.v6.len()
    }

    /// The addresses that more than one claims, in order, and who has each.
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
