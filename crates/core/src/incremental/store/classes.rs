//! Classes of pods that no policy can distinguish.

use super::pods::Facts;
use super::{Class, Store};
use crate::incremental::slab::NONE;
use crate::incremental::texts::Symbol;
use crate::model::ContainerPort;
use crate::net::Protocol;

/// The number of classes without pods that the store keeps.
// Jobs and rollouts come back with the same labels: their class still has its groups then, and its
// members join without a look at all selections. The bound keeps labels that never come back, such
// as hashes of pod templates, from filling the memory.
const MOST_IDLE: usize = 1024;

impl Store {
    /// Adds a pod to the linked list of its class.
    pub(super) fn join(&mut self, id: u32, class: u32) {
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

    pub(super) fn leave(&mut self, id: u32, class: u32) {
        let Some(pod) = self.pods.get_mut(id) else {
            return;
        };
        // The links are cleared, because the pod may become a host-network pod. That is in no list,
        // and must not keep the links of one that it left.
        let next = std::mem::replace(&mut pod.next, NONE);
        let previous = std::mem::replace(&mut pod.previous, NONE);
        if let Some(next) = self.pods.get_mut(next) {
            next.previous = previous;
        }
        if let Some(previous) = self.pods.get_mut(previous) {
            previous.next = next;
        } else if let Some(of_class) = self.classes.get_mut(class) {
            of_class.first_pod = next;
        }
        self.count_leaver(class);
    }

    fn count_leaver(&mut self, class: u32) {
        let Some(of_class) = self.classes.get_mut(class) else {
            return;
        };
        of_class.n_pods -= 1;
        // Not dropped at once: a rollout can remove the last pod before it adds the next one.
        if of_class.n_pods == 0 {
            self.idle.push_back(class);
        }
    }

    /// Returns the class of a pod, which may be new. `before` is its present class, which is mostly
    /// the same.
    pub(super) fn class_of(&mut self, facts: &Facts<'_, '_>, before: u32) -> u32 {
        // The hash stands for labels and ports, which are not compared: it is keyed and has 128
        // bits, so authors of labels cannot merge two classes.
        let digest = facts.class.long();
        let is_it = |id: u32| {
            let class = self.classes.get(id);
            class.is_some_and(|it| it.is_there() && it.digest == digest)
        };
        if is_it(before) {
            return before;
        }
        let hash = (digest >> 64) as u64;
        if let Some(known) = self.class_index.find(hash, is_it) {
            return known;
        }
        let namespace = self.use_namespace(facts.namespace);
        let labels = self.label_set(&facts.object.labels);
        let ports = self.port_list(&facts.object.ports);
        let id = self.classes.insert(Class {
            digest,
            namespace,
            labels,
            ports,
            n_pods: 0,
            first_pod: NONE,
            groups: NONE,
            next: NONE,
            previous: NONE,
        });
        let classes = &self.classes;
        self.class_index.insert(hash, id, |id| {
            classes.get(id).map_or(0, |it| (it.digest >> 64) as u64)
        });
        if let Some(of_namespace) = self.namespaces.get_mut(namespace) {
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

    fn port_list(&mut self, container_ports: &[ContainerPort<'_>]) -> u32 {
        // Ports without a name are not kept: policies match numbers whatever a pod declares.
        let mut ports: Vec<(Symbol, Protocol, u16)> = Vec::new();
        for (name, protocol, port) in container_ports.iter().filter_map(named) {
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

    /// Drops the oldest of the classes without pods, if there are many.
    pub(super) fn drop_idle(&mut self) {
        while self.idle.len() > MOST_IDLE {
            let Some(id) = self.idle.pop_front() else {
                return;
            };
            // The class may have pods again, or be in the queue twice. A later entry then decides.
            let is_idle = self.classes.get(id).is_some_and(|it| it.n_pods == 0);
            if is_idle && !self.idle.contains(&id) {
                self.drop_class(id);
            }
        }
    }

    fn drop_class(&mut self, id: u32) {
        let class = self.classes.remove(id);
        self.class_index.remove((class.digest >> 64) as u64, id);
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
}

/// Returns a port that has a name.
pub(super) fn named<'a>(port: &ContainerPort<'a>) -> Option<(&'a str, Protocol, u16)> {
    let (name, protocol, number) = port.named()?;
    Some((name, protocol, number.get()))
}
