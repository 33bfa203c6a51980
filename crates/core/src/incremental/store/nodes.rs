//! Nodes that were given, with their addresses and those of pods in their network.

use std::net::IpAddr;

use super::claims::Claimant;
use super::{Node, Store};
use crate::incremental::slab::NONE;
use crate::model::Node as Given;

impl Store {
    /// A node as its object has it; `None`: there is no object.
    pub(in crate::incremental) fn set_node(
        &mut self,
        name: &str,
        given: Option<&Given<'_>>,
    ) -> bool {
        let known = self.texts.find(name);
        let known = known.and_then(|symbol| self.node_ids.get(&symbol).copied());
        let given = given.filter(|it| it.has_object);
        match (known, given) {
            (None, None) => false,
            (Some(id), None) => {
                self.remove_node(id);
                true
            }
            (None, Some(given)) => {
                self.add_node(name, given);
                true
            }
            (Some(id), Some(given)) => self.change_node(id, given),
        }
    }

    fn add_node(&mut self, name: &str, given: &Given<'_>) {
        let symbol = self.texts.intern(name);
        // Their addresses are those of a node now.
        self.touch_host_pods(symbol);
        let labels = self.label_set(&given.labels);
        let id = self.nodes.insert(Node {
            name: symbol,
            labels,
            addresses: given.addresses.as_slice().into(),
            pod_cidrs: given.pod_cidrs.as_slice().into(),
            groups: NONE,
        });
        self.node_ids.insert(symbol, id);
        for address in &given.addresses {
            self.claim(*address, Claimant::Node(id));
        }
        self.changes.relabelled_nodes.push(id);
    }

    fn remove_node(&mut self, id: u32) {
        let Some((name, addresses)) = self.nodes.get(id).map(|it| (it.name, it.addresses.clone()))
        else {
            return;
        };
        self.touch_host_pods(name);
        for address in addresses {
            self.unclaim(address, Claimant::Node(id));
        }
        let node = self.nodes.take(id);
        self.node_ids.remove(&name);
        if node.groups != NONE {
            self.groups.release(node.groups);
        }
        self.release_labels(node.labels);
        self.texts.release(name);
        self.changes.gone_nodes.push(id);
    }

    fn change_node(&mut self, id: u32, given: &Given<'_>) -> bool {
        let Some((labels, addresses, blocks)) = self.nodes.get(id).map(|it| {
            let same_blocks = *it.pod_cidrs == *given.pod_cidrs;
            (it.labels, it.addresses.clone(), same_blocks)
        }) else {
            return false;
        };
        let mut differs = !blocks;
        if differs && let Some(node) = self.nodes.get_mut(id) {
            node.pod_cidrs = given.pod_cidrs.as_slice().into();
        }
        if *addresses != *given.addresses {
            differs = true;
            for address in addresses {
                self.unclaim(address, Claimant::Node(id));
            }
            for address in &given.addresses {
                self.claim(*address, Claimant::Node(id));
            }
            if let Some(node) = self.nodes.get_mut(id) {
                node.addresses = given.addresses.as_slice().into();
            }
        }
        if !self.same_labels(labels, &given.labels) {
            differs = true;
            let new = self.label_set(&given.labels);
            self.release_labels(labels);
            if let Some(node) = self.nodes.get_mut(id) {
                node.labels = new;
            }
            self.changes.relabelled_nodes.push(id);
        }
        differs
    }

    fn touch_host_pods(&mut self, node: u32) {
        for pod in self.host_pods.get(&node).cloned().unwrap_or_default() {
            for address in self.addresses(pod) {
                self.touch(address);
            }
        }
    }

    /// The addresses that could be a node's: its own, and those of pods in its network.
    pub(in crate::incremental) fn node_addresses(&self, id: u32) -> Vec<IpAddr> {
        let Some(node) = self.nodes.get(id) else {
            return Vec::new();
        };
        let mut addresses = node.addresses.to_vec();
        for pod in self.host_pods.get(&node.name).into_iter().flatten() {
            addresses.extend(self.addresses(*pod));
        }
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    pub(in crate::incremental) fn node_name(&self, id: u32) -> &str {
        let name = self.nodes.get(id).map_or(NONE, |it| it.name);
        self.texts.get(name)
    }
}
