//! Pods with their addresses and classes.

use std::net::{IpAddr, Ipv4Addr};

use super::claims::Claimant;
use super::classes::named;
use super::stamp::{Created, Stamp};
use super::{Hosted, Owner, Store};
use crate::incremental::digest::Digest;
use crate::incremental::slab::NONE;
use crate::model::{Pod as ModelPod, PodPhase};
use crate::time::digits;

/// A pod that has an address.
// 40 bytes: of all objects, pods take the most memory of an agent.
#[derive(Debug)]
pub(in crate::incremental) struct Pod {
    /// The hash of its namespace, its name, and everything that policies can see of it. The same
    /// hash means no change.
    whole: u64,
    pub(super) stamp: Stamp,
    /// The high half of the hash of its namespace and name.
    // All that the index needs. The namespace itself is in the class.
    key: u32,
    /// The place of its name in the arena.
    name: u32,
    /// The number of its class; `NONE` for host-network pods.
    pub(in crate::incremental) class: u32,
    /// The next pod of its class, and the one before.
    pub(super) next: u32,
    pub(super) previous: u32,
    /// Its address if it has exactly one IPv4 address, else zero.
    address: u32,
}

impl Default for Pod {
    fn default() -> Pod {
        Pod {
            whole: 0,
            stamp: Stamp::new(PodPhase::Terminated, None, false),
            key: 0,
            name: NONE,
            class: NONE,
            next: NONE,
            previous: NONE,
            address: 0,
        }
    }
}

impl Pod {
    /// Returns false for the blank that a removed pod leaves.
    pub(in crate::incremental) fn is_there(&self) -> bool {
        self.name != NONE
    }

    /// Returns whether the pod runs on the node of the plan.
    pub(in crate::incremental) fn is_local(&self) -> bool {
        self.stamp.is_local()
    }

    pub(super) fn life(&self) -> PodPhase {
        self.stamp.life()
    }
}

/// A pod of the input, with the hashes of everything that policies can see of it.
pub(super) struct Facts<'g, 'a> {
    pub(super) object: &'g ModelPod<'a>,
    pub(super) namespace: &'g str,
    is_local: bool,
    /// The hash of its class, still open; for a host-network pod, that of its namespace.
    pub(super) class: Digest,
    /// The hash of all facts, with the name.
    whole: u64,
}

impl Facts<'_, '_> {
    /// Returns the address if there is exactly one IPv4 address, else zero.
    // A single 0.0.0.0 is zero as well, and goes to `more_addresses` like several addresses.
    fn address(&self) -> u32 {
        match self.object.addresses.as_slice() {
            [IpAddr::V4(one)] => one.to_bits(),
            _ => 0,
        }
    }
}

impl Store {
    /// Sets a pod to its current state; `None` if it is gone. Returns whether policies can see a
    /// difference.
    // Most updates of pods change nothing that policies can see. Their path is the first one here:
    // one hash, one look at the index, one comparison.
    pub(in crate::incremental) fn set_pod(
        &mut self,
        namespace: &str,
        name: &str,
        object: Option<&ModelPod<'_>>,
    ) -> bool {
        // Without an address, or after its end, a pod is no member of any group (D81, D83).
        let object = object.filter(|it| {
            it.template.is_none() && it.phase != PodPhase::Terminated && !it.addresses.is_empty()
        });
        let of_namespace = self.texts.hashes().text(namespace);
        let mut name_hash = of_namespace;
        name_hash.text(name);
        let name_hash = name_hash.short();
        let key = (name_hash >> 32) as u32;
        let has_key = |id: u32| self.pods.get(id).filter(|it| it.key == key);
        // Before the facts: the entry arrives from memory while the facts are hashed. Another pod
        // can have the same 32 bits. `whole` includes the name and excludes that pod.
        let near = self.pod_index.find(name_hash, |id| has_key(id).is_some());
        let near = near.and_then(has_key);
        let facts = object.map(|object| self.facts(namespace, of_namespace, name_hash, object));
        if let (Some(pod), Some(facts)) = (near, &facts)
            && pod.whole == facts.whole
        {
            return false;
        }
        let known = near.and_then(|_| {
            let has_name = |id, pod| self.has_name(id, pod, of_namespace, name);
            self.pod_index.find(name_hash, |id| {
                has_key(id).is_some_and(|pod| has_name(id, pod))
            })
        });
        match (known, facts) {
            (None, None) => false,
            (Some(id), None) => {
                self.remove_pod(id);
                true
            }
            (None, Some(facts)) => {
                self.add_pod(key, name, &facts);
                true
            }
            (Some(id), Some(facts)) => {
                // Again, because the first entry with the key may have been another pod.
                let before = self.pods.get(id).map(|it| it.whole);
                if before == Some(facts.whole) {
                    return false;
                }
                self.change_pod(id, &facts);
                true
            }
        }
    }

    /// Returns whether a pod has this namespace and name.
    fn has_name(&self, id: u32, pod: &Pod, of_namespace: Digest, name: &str) -> bool {
        // The text of the namespace would be two more reads of distant memory; its hash is as good.
        let namespace = self.namespaces.get(self.namespace_of(id, pod));
        self.texts.arena.bytes(pod.name) == name.as_bytes()
            && namespace.is_some_and(|it| it.hash == of_namespace.short())
    }

    /// Hashes everything that policies can see of a pod. `digest` has the namespace already, and
    /// `name_hash` is the hash of namespace and name.
    fn facts<'g, 'a>(
        &self,
        namespace: &'g str,
        mut digest: Digest,
        name_hash: u64,
        object: &'g ModelPod<'a>,
    ) -> Facts<'g, 'a> {
        let is_local = object.node == Some(self.texts.get(self.own_node));
        // Labels and ports of host-network pods match nothing (D73).
        if !object.host_network {
            // The counts come first, because other facts follow the list.
            digest.word(object.labels.len() as u64);
            for (key, value) in object.labels.iter() {
                digest.text(key);
                digest.text(value);
            }
            digest.word(object.ports.iter().filter_map(named).count() as u64);
            for (name, protocol, port) in object.ports.iter().filter_map(named) {
                digest.text(name);
                digest.word(u64::from(port) << 8 | u64::from(protocol as u8));
            }
        }
        // The hash of the class is a prefix of the hash of all facts: labels are hashed once.
        let class = digest;
        // Age and phase settle conflicts about an address (D82). A host-network pod has none: its
        // address is the node's, so the name of the node counts instead.
        let (text, life) = if object.host_network {
            (object.node, 0)
        } else {
            (object.created, object.phase as u64)
        };
        digest.word(name_hash);
        let is_some = u64::from(text.is_some());
        let flags = u64::from(object.host_network) << 2 | u64::from(is_local) << 1 | is_some;
        digest.word((object.addresses.len() as u64) << 16 | life << 8 | flags);
        for address in &object.addresses {
            match address {
                IpAddr::V4(it) => digest.word(u64::from(it.to_bits())),
                IpAddr::V6(it) => {
                    let bits = it.to_bits();
                    // No IPv4 address is that large: the families stay apart.
                    digest.word(u64::MAX);
                    digest.word((bits >> 64) as u64);
                    digest.word(bits as u64);
                }
            }
        }
        digest.text(text.unwrap_or_default());
        Facts {
            object,
            namespace,
            is_local,
            class,
            whole: digest.short(),
        }
    }

    fn add_pod(&mut self, key: u32, name: &str, facts: &Facts<'_, '_>) {
        let name = self.texts.arena.put(name);
        let id = self.pods.insert(Pod {
            key,
            name,
            ..Pod::default()
        });
        let pods = &self.pods;
        // The index uses the high half of a hash only, and that is `key`.
        self.pod_index.insert(u64::from(key) << 32, id, |id| {
            u64::from(pods.get(id).map_or(0, |it| it.key)) << 32
        });
        self.fill(id, facts, NONE);
        self.claim_addresses(id, facts.object);
    }

    fn remove_pod(&mut self, id: u32) {
        // First: the address is recorded with the pod as its owner.
        self.unclaim_addresses(id);
        let (class, namespace) = self.empty(id);
        self.leave(id, class);
        let pod = self.pods.take(id);
        self.pod_index.remove(u64::from(pod.key) << 32, id);
        self.texts.arena.free(pod.name);
        self.release_namespace(namespace);
        self.changes.gone_pods.push(id);
    }

    fn change_pod(&mut self, id: u32, facts: &Facts<'_, '_>) {
        let Some(pod) = self.pods.get(id) else {
            return;
        };
        let (one, is_hosted) = (pod.address, pod.class == NONE);
        if !facts.object.host_network && !self.same_created(pod.stamp, facts.object.created) {
            self.changes.recreated.insert(id);
        }
        let stays = one != 0 && one == facts.address() && is_hosted == facts.object.host_network;
        // Nearly all pods keep their address. The claim stays then, but the state of the address
        // must be recorded before the class of the pod changes.
        if stays {
            self.touch(IpAddr::V4(Ipv4Addr::from_bits(one)));
        } else {
            self.unclaim_addresses(id);
        }
        let (class, namespace) = self.empty(id);
        self.fill(id, facts, class);
        // After `fill` has its use: otherwise the namespace could be removed and made again.
        self.release_namespace(namespace);
        if !stays {
            self.claim_addresses(id, facts.object);
        }
    }

    /// Returns the namespace of a pod.
    fn namespace_of(&self, id: u32, pod: &Pod) -> u32 {
        match self.classes.get(pod.class) {
            Some(class) => class.namespace,
            None => self.hosted.get(&id).map_or(NONE, |it| it.namespace),
        }
    }

    /// Stores everything of a pod except its name. `before` is the class that it is still a member
    /// of.
    fn fill(&mut self, id: u32, facts: &Facts<'_, '_>, before: u32) {
        let object = facts.object;
        let (stamp, class) = if object.host_network {
            let namespace = self.use_namespace(facts.namespace);
            let node = object.node.map(|node| self.texts.intern(node));
            let node = node.unwrap_or(NONE);
            self.hosted.insert(id, Hosted { namespace, node });
            self.host_pods.entry(node).or_default().push(id);
            (Stamp::new(PodPhase::Running, None, facts.is_local), NONE)
        } else {
            let created = object.created.map(|text| match digits(text) {
                Some(digits) => Created::Digits(digits),
                None => Created::Text(self.texts.intern(text)),
            });
            let class = self.class_of(facts, before);
            (Stamp::new(object.phase, created, facts.is_local), class)
        };
        let address = facts.address();
        if address == 0 {
            let several = object.addresses.as_slice().into();
            self.more_addresses.insert(id, several);
        }
        if class != before {
            self.leave(id, before);
            self.join(id, class);
        }
        if let Some(pod) = self.pods.get_mut(id) {
            pod.whole = facts.whole;
            pod.stamp = stamp;
            pod.address = address;
            pod.class = class;
        }
    }

    /// Undoes `fill`, except that the pod stays a member of its class. Returns the class, and a
    /// namespace that the caller must release.
    // Mostly the new class is the old one. Leaving and joining it again would make it idle for a
    // moment, and move the pod in its list.
    fn empty(&mut self, id: u32) -> (u32, u32) {
        let Some((class, stamp, one)) = self
            .pods
            .get(id)
            .map(|pod| (pod.class, pod.stamp, pod.address))
        else {
            return (NONE, NONE);
        };
        if one == 0 {
            self.more_addresses.remove(&id);
        }
        if let Some(Created::Text(symbol)) = stamp.created() {
            self.texts.release(symbol);
        }
        let hosted = match class {
            NONE => self.hosted.remove(&id),
            _ => None,
        };
        let Some(Hosted { namespace, node }) = hosted else {
            return (class, NONE);
        };
        if let Some(pods) = self.host_pods.get_mut(&node) {
            pods.retain(|it| *it != id);
            if pods.is_empty() {
                self.host_pods.remove(&node);
            }
        }
        self.texts.release(node);
        (class, namespace)
    }

    fn claim_addresses(&mut self, id: u32, object: &ModelPod<'_>) {
        let claimant = match object.host_network {
            true => Claimant::HostPod(id),
            false => Claimant::Pod(id),
        };
        for address in &object.addresses {
            self.claim(*address, claimant);
        }
    }

    fn unclaim_addresses(&mut self, id: u32) {
        let pod = self.pods.get(id);
        let Some((class, one)) = pod.map(|pod| (pod.class, pod.address)) else {
            return;
        };
        let claimant = match class {
            NONE => Claimant::HostPod(id),
            _ => Claimant::Pod(id),
        };
        if one != 0 {
            self.unclaim(IpAddr::V4(Ipv4Addr::from_bits(one)), claimant);
            return;
        }
        for address in self.addresses(id) {
            self.unclaim(address, claimant);
        }
    }

    /// Returns the addresses of a pod.
    pub(in crate::incremental) fn addresses(&self, id: u32) -> Vec<IpAddr> {
        let one = self.pods.get(id).map_or(0, |pod| pod.address);
        if one != 0 {
            return vec![IpAddr::V4(Ipv4Addr::from_bits(one))];
        }
        let several = self.more_addresses.get(&id);
        several.map(|it| it.to_vec()).unwrap_or_default()
    }

    /// Passes on the addresses that a pod owns (D82).
    pub(in crate::incremental) fn own_addresses(&self, id: u32, take: &mut dyn FnMut(IpAddr)) {
        let one = self.pods.get(id).map_or(0, |pod| pod.address);
        let mut take = |address: IpAddr| {
            // Conflicts are rare: mostly this is one look at an empty map.
            if !self.is_shared(address) || self.owner(address) == Some(Owner::Pod(id)) {
                take(address);
            }
        };
        if one != 0 {
            take(IpAddr::V4(Ipv4Addr::from_bits(one)));
            return;
        }
        let several = self.more_addresses.get(&id);
        several.into_iter().flatten().copied().for_each(take);
    }

    /// Returns the namespace and the name of a pod, in the order of comparisons.
    pub(in crate::incremental) fn pod_name(&self, id: u32) -> (&str, &str) {
        let Some(pod) = self.pods.get(id) else {
            return ("", "");
        };
        let namespace = self.namespaces.get(self.namespace_of(id, pod));
        let namespace = namespace.map_or(NONE, |it| it.name);
        (self.texts.get(namespace), self.texts.arena.get(pod.name))
    }
}
