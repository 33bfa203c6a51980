//! What a cluster lives on, as far as it is given: its DNS, its API server, its own components and
//! the kubelets.

use std::num::NonZeroU16;

use rustc_hash::FxHashSet;

use super::context::CheckContext;
use crate::compile::count;
use crate::decide::Identity;
use crate::flow_end::{self, EndCandidate};
use crate::model::{BackendTarget, NodeId, Pod, PodId, PodLifecycle, Service, ServicePort, label};
use crate::net::{Family, Protocol};
use crate::policy::{Direction, Tier};
use crate::program::{AddressAtom, table_index};

/// The namespace of the cluster's own components.
pub(super) const SYSTEM: &str = "kube-system";

const DNS: NonZeroU16 = NonZeroU16::new(53).unwrap();
const API_SERVER: NonZeroU16 = NonZeroU16::new(6443).unwrap();
const KUBELET: NonZeroU16 = NonZeroU16::new(10250).unwrap();

/// A port of somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target<'c> {
    pub(super) end: EndCandidate<'c>,
    pub(super) protocol: Protocol,
    pub(super) port: NonZeroU16,
}

/// The cluster's DNS.
#[derive(Debug)]
pub(super) struct Dns<'c> {
    /// Whom to ask, and where.
    pub(super) targets: Vec<Target<'c>>,
    /// Its pods, which are no clients of it.
    pub(super) pods: FxHashSet<PodId>,
}

/// Where rules see a party: its class or node, its addresses, and what it is asked at.
type Seen = (
    Option<u32>,
    [Option<u32>; 2],
    [Option<AddressAtom>; 2],
    (Protocol, NonZeroU16),
);

impl<'c> CheckContext<'c> {
    /// The cluster's DNS: whoever its Service leads to, or else pods that carry its label.
    pub(super) fn dns(&self) -> Dns<'c> {
        let mut found = Vec::new();
        let system = self.namespace(SYSTEM);
        for service in ["kube-dns", "coredns"] {
            let service = self.service(SYSTEM, service);
            let ports = service.into_iter().flat_map(|it| &it.ports);
            for port in ports.filter(|it| it.port == DNS) {
                found.extend(self.backends(port));
            }
        }
        if found.is_empty() {
            let pods = self.pods().filter(|(_, pod)| {
                Some(pod.namespace) == system && label(&pod.labels, "k8s-app") == Some("kube-dns")
            });
            for (id, _) in pods {
                let party = flow_end::pod(self.cluster, self.program, id);
                found.extend([Protocol::Udp, Protocol::Tcp].map(|protocol| Target {
                    end: party,
                    protocol,
                    port: DNS,
                }));
            }
        }
        let pods = found.iter().filter_map(|target| match target.end.identity {
            Identity::Pod(pod) => Some(pod),
            Identity::Node(_) | Identity::External => None,
        });
        Dns {
            pods: pods.collect(),
            targets: self.distinct(found),
        }
    }

    /// The API server: whoever its Service leads to, or else the nodes of the control plane.
    pub(super) fn api_server(&self) -> Vec<Target<'c>> {
        let service = self.service("default", "kubernetes");
        let ports = service.into_iter().flat_map(|it| &it.ports);
        let found: Vec<Target<'c>> = ports.flat_map(|port| self.backends(port)).collect();
        if !found.is_empty() {
            return self.distinct(found);
        }
        let has_role = |id: &NodeId| {
            let node = self.cluster.nodes.get(id.0 as usize);
            let role = "node-role.kubernetes.io/control-plane";
            node.is_some_and(|node| label(&node.labels, role).is_some())
        };
        self.at_nodes(has_role, API_SERVER)
    }

    /// The kubelets, which the API server and what measures pods ask.
    pub(super) fn kubelets(&self) -> Vec<Target<'c>> {
        self.at_nodes(|_| true, KUBELET)
    }

    fn at_nodes(&self, is_meant: impl Fn(&NodeId) -> bool, port: NonZeroU16) -> Vec<Target<'c>> {
        let nodes = (0..count(self.cluster.nodes.len())).map(NodeId);
        let targets = nodes.filter(is_meant).map(|id| Target {
            end: flow_end::node(self.cluster, id),
            protocol: Protocol::Tcp,
            port,
        });
        self.distinct(targets.collect())
    }

    fn service(&self, namespace: &str, name: &str) -> Option<&'c Service<'c>> {
        let namespace = self.namespace(namespace)?;
        let mut services = self.cluster.services.iter();
        services.find(|it| it.namespace == namespace && it.name == name)
    }

    fn backends(&self, port: &'c ServicePort<'c>) -> impl Iterator<Item = Target<'c>> + '_ {
        port.backends.iter().map(|backend| Target {
            end: match backend.target {
                BackendTarget::Pod(pod) => flow_end::pod(self.cluster, self.program, pod),
                BackendTarget::Address(it) => flow_end::at(self.cluster, self.program, it),
            },
            protocol: port.protocol,
            port: backend.port,
        })
    }

    /// The pods that are not over, also those in the network of their node.
    pub(super) fn pods(&self) -> impl Iterator<Item = (PodId, &'c Pod<'c>)> + use<'c> {
        let pods = (0..).map(PodId).zip(&self.cluster.pods);
        pods.filter(|(_, pod)| pod.life != PodLifecycle::Ended)
    }

    /// The atoms of a party's addresses, for each family.
    pub(super) fn atoms(&self, party: &EndCandidate<'_>) -> [Option<AddressAtom>; 2] {
        Family::BOTH.map(|family| {
            let address = party.addresses.of(family);
            address.map(|it| self.program.address_atom(it))
        })
    }

    /// One of those that no rule tells apart: whoever asks it asks for all of them.
    fn distinct(&self, mut targets: Vec<Target<'c>>) -> Vec<Target<'c>> {
        let mut seen: FxHashSet<Seen> = FxHashSet::default();
        targets.retain(|target| {
            let (class, node) = match target.end.identity {
                Identity::Pod(pod) => (self.program.class_id(pod), None),
                Identity::Node(node) => (None, node),
                Identity::External => (None, None),
            };
            let rows = [Tier::Admin, Tier::Baseline].map(|tier| {
                let table = self
                    .program
                    .tables
                    .get(table_index(tier, Direction::Egress));
                let node = node.map(|it| it.0 as usize);
                table.and_then(|table| table.node_rows.get(node?).copied())
            });
            let atoms = self.atoms(&target.end);
            seen.insert((class, rows, atoms, (target.protocol, target.port)))
        });
        targets
    }
}
