//! The destinations that a cluster depends on, as far as they are in the input: its DNS, its API
//! server, its components and its kubelets.

use std::num::NonZeroU16;

use rustc_hash::FxHashSet;

use super::context::CheckContext;
use crate::compile::count;
use crate::decide::Identity;
use crate::flow_end::{self, EndCandidate};
use crate::model::{BackendTarget, NodeId, Pod, PodId, PodPhase, Service, ServicePort, label};
use crate::net::{Family, Protocol};
use crate::policy::{Direction, Tier};
use crate::program::{AddressAtom, table_index};

/// The namespace of the cluster's own components.
pub(super) const SYSTEM: &str = "kube-system";

const DNS: NonZeroU16 = NonZeroU16::new(53).unwrap();
const API_SERVER: NonZeroU16 = NonZeroU16::new(6443).unwrap();
const KUBELET: NonZeroU16 = NonZeroU16::new(10250).unwrap();

/// A port of a pod, a node or an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target<'c> {
    pub(super) end: EndCandidate<'c>,
    pub(super) protocol: Protocol,
    pub(super) port: NonZeroU16,
}

/// The cluster's DNS.
#[derive(Debug)]
pub(super) struct Dns<'c> {
    /// Where to send queries.
    pub(super) targets: Vec<Target<'c>>,
    /// Its pods. They are not its clients.
    pub(super) pods: FxHashSet<PodId>,
}

/// The properties of a target that rules distinguish: its class or its node rows, its addresses,
/// and its port.
type TargetKey = (
    Option<u32>,
    [Option<u32>; 2],
    [Option<AddressAtom>; 2],
    (Protocol, NonZeroU16),
);

impl<'c> CheckContext<'c> {
    /// Returns the cluster's DNS: the backends of its Service, else the pods with its label. An
    /// input of policies and workloads often has no Service of the system namespace.
    pub(super) fn dns(&self) -> Dns<'c> {
        let mut found = Vec::new();
        let system = self.namespace(SYSTEM);
        // `kube-dns` by convention, whatever serves it; some distributions use `coredns`.
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
                let pod = flow_end::pod(self.cluster, self.program, id);
                found.extend([Protocol::Udp, Protocol::Tcp].map(|protocol| Target {
                    end: pod,
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

    /// Returns the API server: the backends of its Service, else the nodes of the control plane.
    pub(super) fn api_server(&self) -> Vec<Target<'c>> {
        // The API server itself writes the backends of this Service, so files mostly lack them.
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

    /// Returns the kubelets: the API server calls them for logs and exec, metrics servers for
    /// usage.
    pub(super) fn kubelets(&self) -> Vec<Target<'c>> {
        self.at_nodes(|_| true, KUBELET)
    }

    fn at_nodes(&self, is_target: impl Fn(&NodeId) -> bool, port: NonZeroU16) -> Vec<Target<'c>> {
        let nodes = (0..count(self.cluster.nodes.len())).map(NodeId);
        let targets = nodes.filter(is_target).map(|id| Target {
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
        // Policies see the destination after translation (D78): the backend and its port.
        port.backends.iter().map(|backend| Target {
            end: match backend.target {
                BackendTarget::Pod(pod) => flow_end::pod(self.cluster, self.program, pod),
                BackendTarget::Address(it) => flow_end::at(self.cluster, self.program, it),
            },
            protocol: port.protocol,
            port: backend.port,
        })
    }

    /// Returns the pods that have not ended, including host-network pods.
    pub(super) fn pods(&self) -> impl Iterator<Item = (PodId, &'c Pod<'c>)> + use<'c> {
        let pods = (0..).map(PodId).zip(&self.cluster.pods);
        pods.filter(|(_, pod)| pod.phase != PodPhase::Terminated)
    }

    /// Returns the atoms of an endpoint's addresses, for each family.
    pub(super) fn atoms(&self, candidate: &EndCandidate<'_>) -> [Option<AddressAtom>; 2] {
        Family::BOTH.map(|family| {
            let address = candidate.addresses.of(family);
            address.map(|it| self.program.address_atom(it))
        })
    }

    /// Keeps one of the targets that no rule distinguishes. Hundreds of nodes often have the same
    /// rows; evaluating each would repeat the same result.
    fn distinct(&self, mut targets: Vec<Target<'c>>) -> Vec<Target<'c>> {
        let mut seen: FxHashSet<TargetKey> = FxHashSet::default();
        targets.retain(|target| {
            let (class, node) = match target.end.identity {
                Identity::Pod(pod) => (self.program.class_id(pod), None),
                Identity::Node(node) => (None, node),
                Identity::External => (None, None),
            };
            // Nodes have no class. Only egress rules match them, by the node rows of the two
            // tables.
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
