//! Pods and their classes.

use std::net::{IpAddr, Ipv4Addr};

use super::claims::Claimant;
use super::classes::named;
use super::stamp::{Created, Stamp};
use super::{Hosted, Owner, Store};
use crate::incremental::digest::Digest;
use crate::incremental::slab::NONE;
use crate::model::{Pod as Given, PodLifecycle};
use crate::time::digits;

/// A pod that has an address.
#[derive(Debug)]
pub(in crate::incremental) struct Pod {
    /// The hash of its namespace, its name, and all that policies can see of it: where this is the same, nothing has
    /// changed.
    whole: u64,
    pub(super) stamp: Stamp,
    /// The high half of the hash of its namespace and name.
    key: u32,
    /// Where its name is.
    name: u32,
    /// `NONE` for pods of the host network.
    pub(in crate::incremental) class: u32,
    /// The next pod of its class, and the one before.
    pub(super) next: u32,
    pub(super) previous: u32,
    /// Its address, if it has just one of IPv4; otherwise zero.
    address: u32,
}

impl Default for Pod {
    fn default() -> Pod {
        Pod {
            whole: 0,
            stamp: Stamp::new(PodLifecycle::Ended, None, false),
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
    /// Whether it is not the blank in the place of one that is gone.
    pub(in crate::incremental) fn is_there(&self) -> bool {
        self.name != NONE
    }

    /// Whether it runs on the node that all this is kept for.
    pub(in crate::incremental) fn is_local(&self) -> bool {
        self.stamp.is_local()
    }

    pub(super) fn life(&self) -> PodLifecycle {
        self.stamp.life()
    }
}

/// What policies can see of a pod.
pub(super) struct Facts<'g, 'a> {
    pub(super) given: &'g Given<'a>,
    pub(super) namespace: &'g str,
    is_local: bool,
    /// The hash of what makes its class; of its namespace, if it is of the host network.
    pub(super) class: Digest,
    /// The hash of all of it.
    whole: u64,
}

impl Facts<'_, '_> {
    /// Its address, if it has just one of IPv4; otherwise zero.
    fn address(&self) -> u32 {
        match self.given.addresses.as_slice() {
            [IpAddr::V4(one)] => one.to_bits(),
            _ => 0,
        }
    }
}

impl Store {
    /// A pod as it is now; `None`: it is gone, or has no address.
    pub(in crate::incremental) fn set_pod(
        &mut self,
        namespace: &str,
        name: &str,
        given: Option<&Given<'_>>,
    ) -> bool {
        let given = given.filter(|it| {
            it.template.is_none() && it.life != PodLifecycle::Ended && !it.addresses.is_empty()
        });
        let of_namespace = self.texts.hashes().text(namespace);
        let mut called = of_namespace;
        called.text(name);
        let called = called.short();
        let key = (called >> 32) as u32;
        let has_key = |id: u32| self.pods.get(id).filter(|it| it.key == key);
        // Looked for first, so that it comes from memory while the hash of what is given is made.
        let near = self.pod_index.find(called, |id| has_key(id).is_some());
        let near = near.and_then(has_key);
        let facts = given.map(|given| self.facts(namespace, of_namespace, called, given));
        if let (Some(pod), Some(facts)) = (near, &facts)
            && pod.whole == facts.whole
        {
            return false;
        }
        let known = near.and_then(|_| {
            let is_called = |id, pod| self.is_called(id, pod, of_namespace, name);
            self.pod_index.find(called, |id| {
                has_key(id).is_some_and(|pod| is_called(id, pod))
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
                let before = self.pods.get(id).map(|it| it.whole);
                if before == Some(facts.whole) {
                    return false;
                }
                self.change_pod(id, &facts);
                true
            }
        }
    }

    /// Whether a pod is called so. The texts of namespaces lie far away, and the hash of one is as good.
    fn is_called(&self, id: u32, pod: &Pod, of_namespace: Digest, name: &str) -> bool {
        let namespace = self.namespaces.get(self.namespace_of(id, pod));
        self.texts.arena.bytes(pod.name) == name.as_bytes()
            && namespace.is_some_and(|it| it.hash == of_namespace.short())
    }

    /// What policies can see of a pod, and the hash of it behind that of its namespace; `called` is the hash of what it is
    /// called.
    fn facts<'g, 'a>(
        &self,
        namespace: &'g str,
        mut digest: Digest,
        called: u64,
        given: &'g Given<'a>,
    ) -> Facts<'g, 'a> {
        let is_local = given.node == Some(self.texts.get(self.own_node));
        if !given.host_network {
            // Counts stand in front, so that something longer can follow.
            digest.word(given.labels.len() as u64);
            for (key, value) in given.labels.iter() {
                digest.text(key);
                digest.text(value);
            }
            digest.word(given.ports.iter().filter_map(named).count() as u64);
            for (name, protocol, port) in given.ports.iter().filter_map(named) {
                digest.text(name);
                digest.word(u64::from(port) << 8 | u64::from(protocol as u8));
            }
        }
        let class = digest;
        let (text, life) = if given.host_network {
            (given.node, 0)
        } else {
            (given.created, given.life as u64)
        };
        digest.word(called);
        let is_some = u64::from(text.is_some());
        let flags = u64::from(given.host_network) << 2 | u64::from(is_local) << 1 | is_some;
        digest.word((given.addresses.len() as u64) << 16 | life << 8 | flags);
        for address in &given.addresses {
            match address {
                IpAddr::V4(it) => digest.word(u64::from(it.to_bits())),
                IpAddr::V6(it) => {
                    let bits = it.to_bits();
                    digest.word(u64::MAX);
                    digest.word((bits >> 64) as u64);
                    digest.word(bits as u64);
                }
            }
        }
        digest.text(text.unwrap_or_default());
        Facts {
            given,
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
        self.pod_index.insert(u64::from(key) << 32, id, |id| {
            u64::from(pods.get(id).map_or(0, |it| it.key)) << 32
        });
        self.fill(id, facts, NONE);
        self.claim_addresses(id, facts.given);
    }

    fn remove_pod(&mut self, id: u32) {
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
        if !facts.given.host_network && !self.same_created(pod.stamp, facts.given.created) {
            self.changes.recreated.insert(id);
        }
        let stays = one != 0 && one == facts.address() && is_hosted == facts.given.host_network;
        if stays {
            self.touch(IpAddr::V4(Ipv4Addr::from_bits(one)));
        } else {
            self.unclaim_addresses(id);
        }
        let (class, namespace) = self.empty(id);
        self.fill(id, facts, class);
        // Not before, so that the namespace is there all the time.
        self.release_namespace(namespace);
        if !stays {
            self.claim_addresses(id, facts.given);
        }
    }

    /// The namespace of a pod.
    fn namespace_of(&self, id: u32, pod: &Pod) -> u32 {
        match self.classes.get(pod.class) {
            Some(class) => class.namespace,
            None => self.hosted.get(&id).map_or(NONE, |it| it.namespace),
        }
    }

    /// Writes down everything of a pod but its name. `before` is the class that it is still a member of.
    fn fill(&mut self, id: u32, facts: &Facts<'_, '_>, before: u32) {
        let given = facts.given;
        let (stamp, class) = if given.host_network {
            let namespace = self.use_namespace(facts.namespace);
            let node = given.node.map(|node| self.texts.intern(node));
            let node = node.unwrap_or(NONE);
            self.hosted.insert(id, Hosted { namespace, node });
            self.host_pods.entry(node).or_default().push(id);
            (
                Stamp::new(PodLifecycle::Running, None, facts.is_local),
                NONE,
            )
        } else {
            let created = given.created.map(|text| match digits(text) {
                Some(digits) => Created::Digits(digits),
                None => Created::Text(self.texts.intern(text)),
            });
            let class = self.class_of(facts, before);
            (Stamp::new(given.life, created, facts.is_local), class)
        };
        let address = facts.address();
        if address == 0 {
            let several = given.addresses.as_slice().into();
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

    /// The opposite of `fill`, but that it stays a member of its class, which is the answer; and a namespace, which has one
    /// use less from then on.
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

    fn claim_addresses(&mut self, id: u32, given: &Given<'_>) {
        let claimant = match given.host_network {
            true => Claimant::HostPod(id),
            false => Claimant::Pod(id),
        };
        for address in &given.addresses {
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

    /// The addresses of a pod.
    pub(in crate::incremental) fn addresses(&self, id: u32) -> Vec<IpAddr> {
        let one = self.pods.get(id).map_or(0, |pod| pod.address);
        if one != 0 {
            return vec![IpAddr::V4(Ipv4Addr::from_bits(one))];
        }
        let several = self.more_addresses.get(&id);
        several.map(|it| it.to_vec()).unwrap_or_default()
    }

    /// Hands on the addresses of a pod that are its own (D82).
    pub(in crate::incremental) fn own_addresses(&self, id: u32, take: &mut dyn FnMut(IpAddr)) {
        let one = self.pods.get(id).map_or(0, |pod| pod.address);
        let mut take = |address: IpAddr| {
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

    /// Namespace and name of a pod, for comparing.
    pub(in crate::incremental) fn pod_name(&self, id: u32) -> (&str, &str) {
        let Some(pod) = self.pods.get(id) else {
            return ("", "");
        };
        let namespace = self.namespaces.get(self.namespace_of(id, pod));
        let namespace = namespace.map_or(NONE, |it| it.name);
        (self.texts.get(namespace), self.texts.arena.get(pod.name))
    }
}
