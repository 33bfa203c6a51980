//! Completes a cluster: every pod has a node and addresses, and workloads have pods.
//!
//! What the objects define stays. What they leave open is chosen, always in the same way. Pods
//! without a node are spread over nodes of the lab's own: no flow becomes local to a node that the
//! objects do not put the pod on. Addresses come from ranges that no cluster uses.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use palisade_core::model::{BackendTarget, Cluster, Node, Pod, PodId, PodPhase};
use palisade_core::net::Family;
use palisade_core::owners::owners;
use palisade_core::program::Owner;
use rustc_hash::FxHashMap;

use crate::topology::{NodeSpec, PodSpec, Topology, is_routable};

/// The names of added objects.
// They are made first, because a cluster borrows all its texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddedNames {
    nodes: Vec<String>,
    /// The names of the pods of each template.
    pods: HashMap<PodId, Vec<String>>,
}

/// The number of nodes that the lab adds for pods without a node.
// Two: flows between pods of a workload then cross a link.
const EXTRA_NODES: usize = 2;
/// The most pods that are made for a workload without pods.
const MOST_PODS: u32 = 2;

impl AddedNames {
    /// Returns the names of all objects that a cluster lacks.
    pub fn of(cluster: &Cluster<'_>) -> AddedNames {
        let mut names = AddedNames::default();
        let without_node = cluster.pods.iter().any(|pod| {
            let is_live = pod.phase != PodPhase::Terminated;
            is_live && (pod.node.is_none() || pod.template.is_some())
        });
        if without_node || cluster.nodes.is_empty() {
            let is_free = |name: &String| cluster.nodes.iter().all(|node| node.name != name);
            let free = (1u32..).map(|number| format!("lab-{number}"));
            names.nodes = free.filter(is_free).take(EXTRA_NODES).collect();
        }
        let mut taken: BTreeSet<(u32, String)> = cluster
            .pods
            .iter()
            .filter(|pod| pod.template.is_none())
            .map(|pod| (pod.namespace.0, pod.name.to_owned()))
            .collect();
        for workload in &cluster.workloads {
            for id in &workload.pods {
                let Some(pod) = cluster.pods.get(id.0 as usize) else {
                    continue;
                };
                let Some(kind) = pod.template else { continue };
                let wanted = workload
                    .replicas
                    .unwrap_or(if kind == "ds" { 2 } else { 1 });
                let numbers = (0u32..).map(|number| format!("{}-{number}", pod.name));
                let free = numbers.filter(|it| !taken.contains(&(pod.namespace.0, it.clone())));
                let own: Vec<String> = free.take(wanted.min(MOST_PODS) as usize).collect();
                // The names of two templates may collide as well.
                taken.extend(own.iter().map(|name| (pod.namespace.0, name.clone())));
                names.pods.insert(*id, own);
            }
        }
        names
    }
}

/// A cluster that can be built, and its topology.
#[derive(Debug)]
pub struct CompletedCluster<'a> {
    /// The completed cluster. Predictions are made for this one.
    pub cluster: Cluster<'a>,
    /// The topology that is built. Its nodes have the order of the cluster's.
    pub topology: Topology,
    /// The pod of the cluster for each pod of the topology.
    pub pods: Vec<PodId>,
    /// The first pod that was made from a template. All later ones were as well.
    pub first_made: PodId,
    /// The pods that cannot be built, with the reason.
    pub left_out: Vec<(PodId, OmissionReason)>,
}

/// Why a pod cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum OmissionReason {
    /// Another pod has all its addresses.
    #[error("another pod has its address")]
    AddressTaken,
    /// None of its addresses is routable.
    #[error("packets cannot be routed to its address")]
    Unroutable,
}

impl CompletedCluster<'_> {
    /// Returns the index of a pod in the topology.
    pub fn pod_index(&self, id: PodId) -> Option<usize> {
        self.pods.binary_search(&id).ok()
    }
}

/// Completes a cluster. `outside` are addresses beyond the cluster that must exist.
pub fn complete<'a>(
    cluster: &Cluster<'a>,
    names: &'a AddedNames,
    outside: &[IpAddr],
) -> CompletedCluster<'a> {
    let mut cluster = cluster.clone();
    let mut pool = AddressPool::new(&cluster, outside);
    add_nodes(&mut cluster, names, &mut pool);
    let first_made = PodId(u32::try_from(cluster.pods.len()).unwrap_or(u32::MAX));
    add_pods(&mut cluster, names);
    let mut next_node = names.nodes.iter().cycle();
    for pod in &mut cluster.pods {
        if pod.template.is_some() || pod.phase == PodPhase::Terminated || pod.host_network {
            continue;
        }
        if pod.node.is_none() {
            pod.node = next_node.next().map(String::as_str);
        }
        if pod.addresses.is_empty() {
            pod.addresses = pool.take(Range::Pods);
        }
    }
    for service in &mut cluster.services {
        let is_dialled = !service.is_headless && !service.is_external_name;
        if is_dialled && service.cluster_addresses.is_empty() {
            service.cluster_addresses = pool.take(Range::Services);
        }
    }
    shape(cluster, first_made, &mut pool, outside)
}

fn add_nodes<'a>(cluster: &mut Cluster<'a>, names: &'a AddedNames, pool: &mut AddressPool) {
    for node in &mut cluster.nodes {
        if node.has_object && node.addresses.is_empty() {
            node.addresses = pool.take(Range::Nodes);
        }
    }
    for name in &names.nodes {
        cluster.nodes.push(Node {
            name,
            labels: Arc::default(),
            addresses: pool.take(Range::Nodes),
            pod_cidrs: Vec::new(),
            has_object: true,
        });
    }
    cluster.nodes.sort_by_key(|node| node.name);
}

/// Replaces templates with pods, also in workloads and Services.
fn add_pods<'a>(cluster: &mut Cluster<'a>, names: &'a AddedNames) {
    // The templates stay where they are, and pods keep their indices. No workload or Service refers
    // to them any more.
    let mut made: HashMap<PodId, Vec<PodId>> = HashMap::new();
    for index in 0..cluster.pods.len() {
        let id = PodId(u32::try_from(index).unwrap_or(u32::MAX));
        let (Some(names), Some(template)) = (names.pods.get(&id), cluster.pods.get(index)) else {
            continue;
        };
        if names.is_empty() {
            continue;
        }
        let template = template.clone();
        for name in names {
            let new = PodId(u32::try_from(cluster.pods.len()).unwrap_or(u32::MAX));
            made.entry(id).or_default().push(new);
            cluster.pods.push(Pod {
                name,
                template: None,
                ..template.clone()
            });
        }
    }
    let pods_of = |id: PodId| made.get(&id).cloned().unwrap_or_else(|| vec![id]);
    for workload in &mut cluster.workloads {
        workload.pods = workload.pods.iter().flat_map(|id| pods_of(*id)).collect();
    }
    for port in cluster.services.iter_mut().flat_map(|it| &mut it.ports) {
        let backends = port.backends.iter().flat_map(|backend| {
            let targets = match backend.target {
                BackendTarget::Pod(id) => pods_of(id).into_iter().map(BackendTarget::Pod).collect(),
                BackendTarget::Address(_) => vec![backend.target],
            };
            let with_port = |target| palisade_core::model::Backend {
                target,
                port: backend.port,
            };
            targets.into_iter().map(with_port).collect::<Vec<_>>()
        });
        port.backends = backends.collect();
    }
}

/// Makes the topology of a cluster whose objects have nodes and addresses.
fn shape<'a>(
    cluster: Cluster<'a>,
    first_made: PodId,
    pool: &mut AddressPool,
    outside: &[IpAddr],
) -> CompletedCluster<'a> {
    let owners = owners(&cluster);
    let mut topology = Topology {
        nodes: nodes(&cluster, &owners, pool),
        ..Topology::default()
    };
    let mut pods = Vec::new();
    let mut left_out = Vec::new();
    for (index, pod) in cluster.pods.iter().enumerate() {
        let id = PodId(u32::try_from(index).unwrap_or(u32::MAX));
        if pod.template.is_some() || !pod.is_selectable() {
            continue;
        }
        // Of an address that several pods have, one pod is the owner (D82). The others must not be
        // built with it.
        let own = pod.addresses.iter().copied();
        let own = own.filter(|it| owners.get(it) == Some(&Owner::Pod(id)));
        let own: Vec<IpAddr> = own.collect();
        let addresses: Vec<IpAddr> = own.iter().copied().filter(|it| is_routable(*it)).collect();
        let node = pod.node.and_then(|name| {
            let nodes = &cluster.nodes;
            nodes.binary_search_by(|node| node.name.cmp(name)).ok()
        });
        match node {
            _ if own.is_empty() => left_out.push((id, OmissionReason::AddressTaken)),
            Some(node) if !addresses.is_empty() => {
                topology.pods.push(PodSpec { node, addresses });
                pods.push(id);
            }
            _ => left_out.push((id, OmissionReason::Unroutable)),
        }
    }
    let mut beyond: Vec<IpAddr> = outside.iter().map(IpAddr::to_canonical).collect();
    beyond.retain(|it| is_routable(*it) && !owners.contains_key(it));
    beyond.retain(|it| !pool.of_services.contains(it));
    beyond.sort_unstable();
    beyond.dedup();
    topology.outside = beyond;
    CompletedCluster {
        cluster,
        topology,
        pods,
        first_made,
        left_out,
    }
}

/// Returns the addresses of nodes: their own, those of pods in their network, and at least one of
/// each family, which a node needs to route.
fn nodes(
    cluster: &Cluster<'_>,
    owners: &FxHashMap<IpAddr, Owner>,
    pool: &mut AddressPool,
) -> Vec<NodeSpec> {
    let mut used = BTreeSet::new();
    let mut is_free = |it: &IpAddr| {
        let others = matches!(owners.get(it), Some(Owner::Pod(_)));
        !others && is_routable(*it) && used.insert(*it)
    };
    let mut specs: Vec<NodeSpec> = cluster
        .nodes
        .iter()
        .map(|node| NodeSpec {
            addresses: node
                .addresses
                .iter()
                .copied()
                .filter(&mut is_free)
                .collect(),
        })
        .collect();
    for (node, spec) in cluster.nodes.iter().zip(&mut specs) {
        let pods = cluster.pods.iter().filter(|pod| {
            pod.host_network && pod.phase != PodPhase::Terminated && pod.node == Some(node.name)
        });
        let of_pods = pods.flat_map(|pod| &pod.addresses).copied();
        spec.addresses.extend(of_pods.filter(&mut is_free));
    }
    for spec in &mut specs {
        for family in Family::BOTH {
            if !spec.addresses.iter().any(|it| Family::of(*it) == family) {
                spec.addresses.push(pool.one(Range::Nodes, family));
            }
        }
    }
    specs
}

/// The purpose of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Range {
    Pods,
    Services,
    Nodes,
}

/// Unused addresses: of the range that providers use among themselves (100.64.0.0/10), and of a
/// unique local one.
struct AddressPool {
    families: Vec<Family>,
    used: BTreeSet<IpAddr>,
    of_services: BTreeSet<IpAddr>,
    next: [u32; 3],
}

impl AddressPool {
    fn new(cluster: &Cluster<'_>, outside: &[IpAddr]) -> AddressPool {
        let of_pods = cluster.pods.iter().flat_map(|pod| &pod.addresses);
        let of_nodes = cluster.nodes.iter().flat_map(|node| &node.addresses);
        let existing: BTreeSet<IpAddr> = of_pods.chain(of_nodes).copied().collect();
        let mut families: Vec<Family> = Family::BOTH.to_vec();
        // A cluster with addresses of one family stays one.
        families.retain(|family| existing.iter().any(|it| Family::of(*it) == *family));
        if families.is_empty() {
            families = Family::BOTH.to_vec();
        }
        let services = cluster.services.iter();
        let of_services =
            services.flat_map(|it| it.cluster_addresses.iter().chain(&it.external_addresses));
        let of_services: BTreeSet<IpAddr> = of_services.copied().collect();
        let mut used = existing;
        used.extend(&of_services);
        used.extend(outside);
        AddressPool {
            families,
            used,
            of_services,
            next: [0; 3],
        }
    }

    /// Returns an address of each family that the cluster has.
    fn take(&mut self, range: Range) -> Vec<IpAddr> {
        let families = self.families.clone();
        let number = self.number(range);
        let mut addresses = Vec::new();
        for family in families {
            let address = address(range, family, number);
            if self.used.insert(address) {
                addresses.push(address);
            } else {
                addresses.push(self.one(range, family));
            }
        }
        addresses
    }

    /// Returns an address of one family.
    fn one(&mut self, range: Range, family: Family) -> IpAddr {
        loop {
            let number = self.number(range);
            let address = address(range, family, number);
            if self.used.insert(address) {
                return address;
            }
        }
    }

    fn number(&mut self, range: Range) -> u32 {
        let next = match (range, &mut self.next) {
            (Range::Pods, [next, ..]) => next,
            (Range::Services, [_, next, _]) => next,
            (Range::Nodes, [.., next]) => next,
        };
        *next += 1;
        *next
    }
}

fn address(range: Range, family: Family, number: u32) -> IpAddr {
    let (v4, v6) = match range {
        Range::Pods => (Ipv4Addr::new(100, 64, 0, 0), 1),
        Range::Services => (Ipv4Addr::new(100, 120, 0, 0), 2),
        Range::Nodes => (Ipv4Addr::new(100, 124, 0, 0), 3),
    };
    match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits().wrapping_add(number))),
        Family::V6 => {
            let [high, low] = [(number >> 16) as u16, number as u16];
            IpAddr::V6(Ipv6Addr::new(0xfd6c, 0x6162, v6, 0, 0, 0, high, low))
        }
    }
}
