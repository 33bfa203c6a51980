//! Nodes with an object, their addresses, and those of their host-network pods.

use std::net::IpAddr;

use super::claims::Claimant;
use super::{Node, Store};
use crate::incremental::slab::NONE;
use crate::model::Node as ModelNode;

impl Store {
    /// Sets a node to the state of its object; `None` if there is no object. Returns whether
    /// policies can see a difference.
    pub(in crate::incremental) fn set_node(
        &mut self,
        name: &str,
        object: Option<&ModelNode<'_>>,
    ) -> bool {
        let known = self.texts.find(name);
        let known = known.and_then(|symbol| self.node_ids.get(&symbol).copied());
        let object = object.filter(|it| it.has_object);
        match (known, object) {
            (None, None) => false,
            (Some(id), None) => {
                self.remove_node(id);
                true
            }
            (None, Some(object)) => {
                self.add_node(name, object);
                true
            }
            (Some(id), Some(object)) => self.change_node(id, object),
        }
    }

    fn add_node(&mut self, name: &str, object: &ModelNode<'_>) {
        let symbol = self.texts.intern(name);
        // Before the node is in `node_ids`: the addresses of its host-network pods belong to an
        // unknown node until now (D108).
        self.touch_host_pods(symbol);
        let labels = self.label_set(&object.labels);
        let id = self.nodes.insert(Node {
            name: symbol,
            labels,
            addresses: object.addresses.as_slice().into(),
            pod_cidrs: object.pod_cidrs.as_slice().into(),
            groups: NONE,
        });
        self.node_ids.insert(symbol, id);
        for address in &object.addresses {
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
        // Touched addresses have retained the list of groups; it may be released below.
        let node = self.nodes.take(id);
        self.node_ids.remove(&name);
        if node.groups != NONE {
            self.groups.release(node.groups);
        }
        self.release_labels(node.labels);
        self.texts.release(name);
        self.changes.gone_nodes.push(id);
    }

    fn change_node(&mut self, id: u32, object: &ModelNode<'_>) -> bool {
        let Some((labels, addresses, same_blocks)) = self.nodes.get(id).map(|it| {
            let same_blocks = *it.pod_cidrs == *object.pod_cidrs;
            (it.labels, it.addresses.clone(), same_blocks)
        }) else {
            return false;
        };
        // No policy sees the blocks, but the agent closes those of its own node for unknown pods.
        let mut differs = !same_blocks;
        if differs && let Some(node) = self.nodes.get_mut(id) {
            node.pod_cidrs = object.pod_cidrs.as_slice().into();
        }
        if *addresses != *object.addresses {
            differs = true;
            for address in addresses {
                self.unclaim(address, Claimant::Node(id));
            }
            for address in &object.addresses {
                self.claim(*address, Claimant::Node(id));
            }
            if let Some(node) = self.nodes.get_mut(id) {
                node.addresses = object.addresses.as_slice().into();
            }
        }
        if !self.same_labels(labels, &object.labels) {
            differs = true;
            let new = self.label_set(&object.labels);
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

    /// Returns the addresses that a node can own: its own, and those of its host-network pods.
    // Another object can have won them; callers check the owner.
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
