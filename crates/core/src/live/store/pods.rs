//! Pods and their classes.

use std::net::{IpAddr, Ipv4Addr};

use super::claims::Claimant;
use super::{Class, Store};
use crate::live::slab::{NONE, hash_of};
use crate::live::texts::Symbol;
use crate::model::{ContainerPort, Life, Pod as Given};
use crate::net::Protocol;

/// A pod that has an address.
#[derive(Debug)]
pub(in crate::live) struct Pod {
    namespace: u32,
    name: Symbol,
    /// `NONE` for pods of the host network.
    pub(in crate::live) class: u32,
    /// The next pod of its class, and the one before.
    pub(super) next: u32,
    previous: u32,
    /// The name of its node, or `NONE`.
    pub(in crate::live) node: Symbol,
    /// Its address, if it has just one of IPv4; otherwise zero.
    address: u32,
    pub(super) life: Life,
    created: Created,
}

impl Default for Pod {
    fn default() -> Pod {
        Pod {
            namespace: NONE,
            name: NONE,
            class: NONE,
            next: NONE,
            previous: NONE,
            node: NONE,
            address: 0,
            life: Life::Ended,
            created: Created::NEVER,
        }
    }
}

/// When a pod was created, as written: the digits of a time in the usual form, or a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Created(u64);

const TIME: &str = "0000-00-00T00:00:00Z";
const IS_TEXT: u64 = 1 << 63;

impl Created {
    const NEVER: Created = Created(u64::MAX);

    /// The digits of a time in the usual form.
    fn digits(text: &str) -> Option<u64> {
        if text.len() != TIME.len() {
            return None;
        }
        let mut digits = 0;
        for (byte, form) in text.bytes().zip(TIME.bytes()) {
            if form == b'0' && byte.is_ascii_digit() {
                digits = digits * 10 + u64::from(byte - b'0');
            } else if form == b'0' || byte != form {
                return None;
            }
        }
        Some(digits)
    }

    fn symbol(self) -> Option<Symbol> {
        let is_text = self != Created::NEVER && self.0 & IS_TEXT != 0;
        is_text.then(|| u32::try_from(self.0 & !IS_TEXT).unwrap_or(NONE))
    }
}

/// The text of a time.
#[derive(Debug, Default)]
pub(super) struct CreatedText(Option<String>);

impl CreatedText {
    pub(super) fn as_text(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

/// How many classes without pods are kept, since workloads come back.
const MOST_IDLE: usize = 1024;

impl Store {
    /// A pod as it is now; `None`: it is gone, or has no address.
    pub(in crate::live) fn set_pod(
        &mut self,
        namespace: &str,
        name: &str,
        given: Option<&Given<'_>>,
    ) -> bool {
        let given = given.filter(|it| {
            it.template.is_none() && it.life != Life::Ended && !it.addresses.is_empty()
        });
        let known = self.find_pod(namespace, name);
        match (known, given) {
            (None, None) => false,
            (Some(id), None) => {
                self.remove_pod(id);
                true
            }
            (None, Some(given)) => {
                self.add_pod(namespace, name, given);
                true
            }
            (Some(id), Some(given)) => {
                if self.is_same(id, given) {
                    return false;
                }
                self.change_pod(id, given);
                true
            }
        }
    }

    fn find_pod(&self, namespace: &str, name: &str) -> Option<u32> {
        let namespace = self.texts.find(namespace)?;
        let namespace = *self.namespace_ids.get(&namespace)?;
        let name = self.texts.find(name)?;
        self.pod_index.find(hash_of(&(namespace, name)), |id| {
            let pod = self.pods.get(id);
            pod.is_some_and(|it| (it.namespace, it.name) == (namespace, name))
        })
    }

    /// Whether policies can see no difference.
    fn is_same(&self, id: u32, given: &Given<'_>) -> bool {
        let Some(pod) = self.pods.get(id) else {
            return false;
        };
        let same_node = match given.node {
            None => pod.node == NONE,
            Some(node) => pod.node != NONE && self.texts.get(pod.node) == node,
        };
        let same_addresses = match given.addresses.as_slice() {
            [IpAddr::V4(one)] if one.to_bits() != 0 => pod.address == one.to_bits(),
            several => {
                let more = self.more_addresses.get(&id);
                more.is_some_and(|it| **it == *several)
            }
        };
        if !same_node || !same_addresses || given.host_network != (pod.class == NONE) {
            return false;
        }
        if given.host_network {
            return true;
        }
        let Some(class) = self.classes.get(pod.class) else {
            return false;
        };
        pod.life == given.life
            && self.same_created(pod.created, given.created)
            && self.same_labels(class.labels, &given.labels)
            && self.same_ports(class.ports, &given.ports)
    }

    fn same_created(&self, known: Created, given: Option<&str>) -> bool {
        match given {
            None => known == Created::NEVER,
            Some(text) => match Created::digits(text) {
                Some(digits) => known == Created(digits),
                None => known.symbol().is_some_and(|it| self.texts.get(it) == text),
            },
        }
    }

    fn same_ports(&self, id: u32, given: &[ContainerPort<'_>]) -> bool {
        let mut given = given.iter().filter_map(named);
        let known = self.ports.get(id);
        let same = known.iter().all(|(name, protocol, port)| {
            given.next() == Some((self.texts.get(*name), *protocol, *port))
        });
        same && given.next().is_none()
    }

    fn add_pod(&mut self, namespace: &str, name: &str, given: &Given<'_>) -> u32 {
        let namespace = self.use_namespace(namespace);
        let name = self.texts.intern(name);
        let id = self.pods.insert(Pod {
            namespace,
            name,
            ..Pod::default()
        });
        let pods = &self.pods;
        self.pod_index
            .insert(hash_of(&(namespace, name)), id, |id| {
                let pod = pods.get(id);
                hash_of(&pod.map_or((NONE, NONE), |it| (it.namespace, it.name)))
            });
        self.fill(id, given);
        id
    }

    fn remove_pod(&mut self, id: u32) {
        self.empty(id);
        let pod = self.pods.take(id);
        self.pod_index
            .remove(hash_of(&(pod.namespace, pod.name)), id);
        self.texts.release(pod.name);
        self.release_namespace(pod.namespace);
        self.changes.gone_pods.push(id);
    }

    fn change_pod(&mut self, id: u32, given: &Given<'_>) {
        let before = self.pods.get(id).map(|pod| pod.created);
        if before.is_some_and(|it| !self.same_created(it, given.created)) {
            self.changes.recreated = true;
        }
        // The class must not become idle in between if it stays.
        let class = self.pods.get(id).map_or(NONE, |pod| pod.class);
        self.hold(class);
        self.empty(id);
        self.fill(id, given);
        self.let_go(class);
    }

    /// Writes down everything of a pod but its name, and claims its addresses.
    fn fill(&mut self, id: u32, given: &Given<'_>) {
        let node = given.node.map_or(NONE, |node| self.texts.intern(node));
        let (mut life, mut created, mut class) = (Life::Running, Created::NEVER, NONE);
        if !given.host_network {
            life = given.life;
            created = match given.created {
                None => Created::NEVER,
                Some(text) => match Created::digits(text) {
                    Some(digits) => Created(digits),
                    None => Created(IS_TEXT | u64::from(self.texts.intern(text))),
                },
            };
            let namespace = self.pods.get(id).map_or(NONE, |pod| pod.namespace);
            class = self.class_of(namespace, given);
        }
        let address = match given.addresses.as_slice() {
            [IpAddr::V4(one)] => one.to_bits(),
            _ => 0,
        };
        if address == 0 {
            let several = given.addresses.as_slice().into();
            self.more_addresses.insert(id, several);
        }
        if let Some(pod) = self.pods.get_mut(id) {
            pod.node = node;
            pod.life = life;
            pod.created = created;
            pod.address = address;
            pod.class = class;
        }
        if class == NONE {
            self.host_pods.entry(node).or_default().push(id);
        } else {
            self.join(id, class);
        }
        let claimant = claimant(id, class);
        for address in &given.addresses {
            self.claim(*address, claimant);
        }
    }

    /// The opposite of `fill`.
    fn empty(&mut self, id: u32) {
        let Some((class, node, created)) = self
            .pods
            .get(id)
            .map(|pod| (pod.class, pod.node, pod.created))
        else {
            return;
        };
        let claimant = claimant(id, class);
        for address in self.addresses(id) {
            self.unclaim(address, claimant);
        }
        self.more_addresses.remove(&id);
        if class == NONE {
            if let Some(pods) = self.host_pods.get_mut(&node) {
                pods.retain(|it| *it != id);
                if pods.is_empty() {
                    self.host_pods.remove(&node);
                }
            }
        } else {
            self.leave(id, class);
        }
        if node != NONE {
            self.texts.release(node);
        }
        if let Some(symbol) = created.symbol() {
            self.texts.release(symbol);
        }
    }

    /// The addresses of a pod.
    pub(in crate::live) fn addresses(&self, id: u32) -> Vec<IpAddr> {
        let one = self.pods.get(id).map_or(0, |pod| pod.address);
        if one != 0 {
            return vec![IpAddr::V4(Ipv4Addr::from_bits(one))];
        }
        let several = self.more_addresses.get(&id);
        several.map(|it| it.to_vec()).unwrap_or_default()
    }

    /// Adds a pod to the chain of its class.
    fn join(&mut self, id: u32, class: u32) {
        let Some(of_class) = self.classes.get_mut(class) else {
            return;
        };
        let next = std::mem::replace(&mut of_class.first_pod, id);
        of_class.n_pods += 1;
        if let Some(next) = self.pods.get_mut(next) {
            next.previous = id;
        }
        if let Some(pod) = self.pods.get_mut(id) {
            (pod.next, pod.previous) = (next, NONE);
        }
    }

    fn leave(&mut self, id: u32, class: u32) {
        let links = self.pods.get(id).map(|pod| (pod.next, pod.previous));
        let Some((next, previous)) = links else {
            return;
        };
        if let Some(next) = self.pods.get_mut(next) {
            next.previous = previous;
        }
        if let Some(previous) = self.pods.get_mut(previous) {
            previous.next = next;
        } else if let Some(of_class) = self.classes.get_mut(class) {
            of_class.first_pod = next;
        }
        self.let_go(class);
    }

    /// Keeps a class from becoming idle.
    fn hold(&mut self, class: u32) {
        if let Some(class) = self.classes.get_mut(class) {
            class.n_pods += 1;
        }
    }

    fn let_go(&mut self, class: u32) {
        let Some(of_class) = self.classes.get_mut(class) else {
            return;
        };
        of_class.n_pods -= 1;
        if of_class.n_pods == 0 {
            self.idle.push_back(class);
        }
    }

    /// The class of a pod, which may be new.
    fn class_of(&mut self, namespace: u32, given: &Given<'_>) -> u32 {
        let labels = self.label_set(&given.labels);
        let ports = self.port_list(&given.ports);
        let key = (namespace, labels, ports);
        let known = self.class_index.find(hash_of(&key), |id| {
            let class = self.classes.get(id);
            class.is_some_and(|it| (it.namespace, it.labels, it.ports) == key)
        });
        if let Some(known) = known {
            self.release_labels(labels);
            self.release_ports(ports);
            return known;
        }
        let id = self.classes.insert(Class {
            namespace,
            labels,
            ports,
            n_pods: 0,
            first_pod: NONE,
            groups: NONE,
            next: NONE,
            previous: NONE,
            is_there: true,
        });
        let classes = &self.classes;
        self.class_index.insert(hash_of(&key), id, |id| {
            let class = classes.get(id);
            let key = class.map(|it| (it.namespace, it.labels, it.ports));
            hash_of(&key.unwrap_or((NONE, NONE, NONE)))
        });
        if let Some(of_namespace) = self.namespaces.get_mut(namespace) {
            of_namespace.uses += 1;
            let next = std::mem::replace(&mut of_namespace.first_class, id);
            if let Some(next) = self.classes.get_mut(next) {
                next.previous = id;
            }
            if let Some(class) = self.classes.get_mut(id) {
                class.next = next;
            }
        }
        self.changes.new_classes.push(id);
        id
    }

    fn port_list(&mut self, given: &[ContainerPort<'_>]) -> u32 {
        let mut ports: Vec<(Symbol, Protocol, u16)> = Vec::new();
        for (name, protocol, port) in given.iter().filter_map(named) {
            ports.push((self.texts.intern(name), protocol, port));
        }
        let (id, is_new) = self.ports.intern(&ports);
        if !is_new {
            for (name, ..) in ports {
                self.texts.release(name);
            }
        }
        id
    }

    pub(super) fn release_ports(&mut self, id: u32) {
        for (name, ..) in self.ports.release(id).into_iter().flatten() {
            self.texts.release(name);
        }
    }

    /// Forgets the oldest of the classes without pods, if there are many.
    pub(super) fn drop_idle(&mut self) {
        while self.idle.len() > MOST_IDLE {
            let Some(id) = self.idle.pop_front() else {
                return;
            };
            // It may be there twice, and may have pods again.
            let is_idle = self.classes.get(id).is_some_and(|it| it.n_pods == 0);
            if is_idle && !self.idle.contains(&id) {
                self.drop_class(id);
            }
        }
    }

    fn drop_class(&mut self, id: u32) {
        let class = self.classes.remove(id);
        let key = (class.namespace, class.labels, class.ports);
        self.class_index.remove(hash_of(&key), id);
        if let Some(next) = self.classes.get_mut(class.next) {
            next.previous = class.previous;
        }
        if let Some(previous) = self.classes.get_mut(class.previous) {
            previous.next = class.next;
        } else if let Some(namespace) = self.namespaces.get_mut(class.namespace) {
            namespace.first_class = class.next;
        }
        if class.groups != NONE {
            self.groups.release(class.groups);
        }
        self.release_labels(class.labels);
        self.release_ports(class.ports);
        self.release_namespace(class.namespace);
    }

    /// Namespace and name of a pod, for comparing.
    pub(in crate::live) fn pod_name(&self, id: u32) -> (&str, &str) {
        let Some(pod) = self.pods.get(id) else {
            return ("", "");
        };
        let namespace = self.namespaces.get(pod.namespace);
        let namespace = namespace.map_or(NONE, |it| it.name);
        (self.texts.get(namespace), self.texts.get(pod.name))
    }

    /// When a pod was created, as text.
    pub(super) fn created(&self, pod: &Pod) -> CreatedText {
        if pod.created == Created::NEVER {
            return CreatedText(None);
        }
        if let Some(symbol) = pod.created.symbol() {
            return CreatedText(Some(self.texts.get(symbol).to_owned()));
        }
        let mut digits = pod.created.0;
        let mut text: Vec<char> = TIME.chars().collect();
        for sign in text.iter_mut().rev() {
            if *sign == '0' {
                let digit = u32::try_from(digits % 10).unwrap_or(0);
                *sign = char::from_digit(digit, 10).unwrap_or('0');
                digits /= 10;
            }
        }
        CreatedText(Some(text.into_iter().collect()))
    }
}

fn claimant(id: u32, class: u32) -> Claimant {
    if class == NONE {
        Claimant::HostPod(id)
    } else {
        Claimant::Pod(id)
    }
}

/// A port that has a name.
fn named<'a>(port: &ContainerPort<'a>) -> Option<(&'a str, Protocol, u16)> {
    port.name.map(|name| (name, port.protocol, port.port.get()))
}
