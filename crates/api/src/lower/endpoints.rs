//! Pods, nodes and workloads: the possible endpoints of a flow.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use palisade_core::labels::Selector as CoreSelector;
use palisade_core::model::{
    Cluster, ContainerPort, NamespaceId, Node, Origin, Pod, PodId, PodPhase, Workload, label,
};
use rayon::iter::ParallelIterator as _;
use rayon::slice::ParallelSlice as _;

use super::{Objects, labels};
use crate::node::NodeAddress;
use crate::object::{Object, ObjectSpec};
use crate::pod::{Phase, PodSpec, PodStatus, PodTemplate};
use crate::selector::Selector;

pub(super) fn lower<'o>(objects: &Objects<'o, '_>, cluster: &mut Cluster<'o>) {
    pods(objects, cluster);
    workloads(objects, cluster);
    nodes(objects, cluster);
}

/// How many pods one task lowers; neighbours share their common parts.
const RUN: usize = 1024;

fn pods<'o>(objects: &Objects<'o, '_>, cluster: &mut Cluster<'o>) {
    let runs = objects.pods.par_chunks(RUN);
    let runs = runs.map(|keys| {
        let mut run: Vec<Pod<'o>> = Vec::with_capacity(keys.len());
        let mut before: Option<&'o Object<'_>> = None;
        let mut ports = RecentPorts::default();
        for (namespace, _, name, origin) in keys {
            let Some(object) = objects.object(*origin) else {
                continue;
            };
            if let ObjectSpec::Pod(pod) = &object.spec {
                let neighbour = before.zip(run.last());
                let lowered = one_pod(object, pod, neighbour, &mut ports);
                run.push(Pod {
                    namespace: *namespace,
                    name,
                    origin: *origin,
                    ..lowered
                });
                before = Some(object);
            }
        }
        run
    });
    let runs: Vec<Vec<Pod<'o>>> = runs.collect();
    cluster.pods.reserve_exact(objects.pods.len());
    cluster.pods.extend(runs.into_iter().flatten());
}

/// A pod. It shares equal parts with its neighbour.
fn one_pod<'o>(
    object: &'o Object<'_>,
    pod: &'o crate::pod::Pod<'_>,
    neighbour: Option<(&'o Object<'_>, &Pod<'o>)>,
    ports: &mut RecentPorts<'o>,
) -> Pod<'o> {
    let crate::pod::Pod { spec, status } = pod;
    let PodStatus {
        phase,
        addresses,
        unready,
        // Only pods of the host network have it, and those have `podIPs` as well.
        host_ip: _,
    } = status;
    let life = match phase {
        Phase::Running => PodPhase::Running,
        Phase::Pending => PodPhase::Pending,
        Phase::Unknown => PodPhase::Unknown,
        Phase::Succeeded | Phase::Failed => PodPhase::Terminated,
    };
    let same_labels = neighbour.filter(|(it, _)| it.metadata.labels == object.metadata.labels);
    Pod {
        labels: match same_labels {
            Some((_, pod)) => Arc::clone(&pod.labels),
            None => labels(&object.metadata.labels),
        },
        addresses: canonical(addresses),
        phase: life,
        ready: !unready && life != PodPhase::Pending,
        created: object.metadata.creation_timestamp.as_deref(),
        ..from_spec(spec, ports.of(&spec.ports))
    }
}

fn canonical(addresses: &[IpAddr]) -> Vec<IpAddr> {
    let mut canonical: Vec<IpAddr> = Vec::with_capacity(addresses.len());
    for address in addresses {
        let address = address.to_canonical();
        if !canonical.contains(&address) {
            canonical.push(address);
        }
    }
    canonical
}

/// The ports of the pods before, of which many have the same.
#[derive(Default)]
struct RecentPorts<'o> {
    /// The latest last.
    lists: Vec<(
        &'o [crate::pod::ContainerPort<'o>],
        Arc<[ContainerPort<'o>]>,
    )>,
}

impl<'o> RecentPorts<'o> {
    /// How many are compared.
    const MOST: usize = 16;

    fn of(&mut self, ports: &'o [crate::pod::ContainerPort<'o>]) -> Arc<[ContainerPort<'o>]> {
        let mut lists = self.lists.iter();
        if let Some((_, known)) = lists.rfind(|(it, _)| *it == ports) {
            return Arc::clone(known);
        }
        if self.lists.len() == RecentPorts::MOST {
            self.lists.remove(0);
        }
        let lowered: Arc<[ContainerPort<'o>]> = ports.iter().map(container_port).collect();
        self.lists.push((ports, Arc::clone(&lowered)));
        lowered
    }
}

/// A pod's specification without its ports.
fn from_spec<'o>(spec: &'o PodSpec<'_>, ports: Arc<[ContainerPort<'o>]>) -> Pod<'o> {
    let PodSpec {
        node_name,
        host_network,
        ports: _,
    } = spec;
    Pod {
        namespace: NamespaceId(u32::MAX),
        name: "",
        template: None,
        labels: Arc::default(),
        ports,
        addresses: Vec::new(),
        node: node_name.as_deref().filter(|name| !name.is_empty()),
        host_network: *host_network,
        phase: PodPhase::Running,
        ready: true,
        created: None,
        origin: Origin(u32::MAX),
    }
}

fn container_port<'o>(declared: &'o crate::pod::ContainerPort<'_>) -> ContainerPort<'o> {
    let crate::pod::ContainerPort {
        name,
        port,
        protocol,
    } = declared;
    ContainerPort {
        name: name.as_deref(),
        port: *port,
        protocol: *protocol,
    }
}

/// The owner of pods, by namespace, kind and name.
type OwnerKey<'o> = (NamespaceId, &'o str, &'o str);

fn owner_key<'o>(objects: &Objects<'o, '_>, object: &'o Object<'_>) -> OwnerKey<'o> {
    let namespace = objects.namespace_of(object);
    (namespace, object.kind.name(), &object.metadata.name)
}

fn workloads<'o>(objects: &Objects<'o, '_>, cluster: &mut Cluster<'o>) {
    let by_owner = pods_by_owner(objects, cluster);
    let known: HashSet<OwnerKey<'_>> = objects
        .list
        .iter()
        .filter(|(_, object)| matches!(object.spec, ObjectSpec::Workload(_)))
        .map(|(_, object)| owner_key(objects, object))
        .collect();
    let mut workloads = Vec::new();
    let mut templates = Vec::new();
    for (origin, object) in &objects.list {
        let ObjectSpec::Workload(workload) = &object.spec else {
            continue;
        };
        let crate::workload::Workload {
            replicas,
            selector,
            template: PodTemplate { labels: own, spec },
        } = workload;
        let namespace = objects.namespace_of(object);
        let owner = owner_key(objects, object);
        let mut owners = object.metadata.owners.iter();
        let is_made = owners.any(|(kind, name)| known.contains(&(namespace, &**kind, &**name)));
        let mut pods = by_owner.get(&owner).cloned().unwrap_or_default();
        if pods.is_empty()
            && let Some(selector) = selector
        {
            pods = selected(cluster, namespace, selector);
        }
        if pods.is_empty() {
            let index = cluster.pods.len() + templates.len();
            pods.push(PodId(u32::try_from(index).unwrap_or(u32::MAX)));
            templates.push(Pod {
                namespace,
                name: &object.metadata.name,
                template: Some(object.kind.short()),
                labels: labels(own),
                origin: *origin,
                ..from_spec(spec, spec.ports.iter().map(container_port).collect())
            });
        }
        workloads.push(Workload {
            kind: object.kind.short(),
            namespace,
            name: &object.metadata.name,
            pods,
            is_owned: is_made,
            replicas: replicas.and_then(|it| u32::try_from(it).ok()),
        });
    }
    workloads.sort_by(|a, b| (a.namespace, a.kind, a.name).cmp(&(b.namespace, b.kind, b.name)));
    cluster.workloads = workloads;
    cluster.pods.extend(templates);
}

/// The live pods of each workload of the input; a Deployment's are those of its ReplicaSets, a
/// CronJob's those of its Jobs.
fn pods_by_owner<'o>(
    objects: &Objects<'o, '_>,
    cluster: &Cluster<'o>,
) -> HashMap<OwnerKey<'o>, Vec<PodId>> {
    let mut owners_of: HashMap<OwnerKey<'o>, Vec<(&'o str, &'o str)>> = HashMap::new();
    for (_, object) in &objects.list {
        if matches!(object.spec, ObjectSpec::Workload(_)) {
            let key = owner_key(objects, object);
            let owners = object.metadata.owners.iter();
            let owners = owners.map(|(kind, name)| (&**kind, &**name));
            owners_of.insert(key, owners.collect());
        }
    }
    let mut pods: HashMap<OwnerKey<'o>, Vec<PodId>> = HashMap::new();
    if owners_of.is_empty() {
        return pods;
    }
    for (index, pod) in cluster.pods.iter().enumerate() {
        if pod.phase == PodPhase::Terminated {
            continue;
        }
        let Some(object) = objects.object(pod.origin) else {
            continue;
        };
        let id = PodId(u32::try_from(index).unwrap_or(u32::MAX));
        for (kind, name) in &object.metadata.owners {
            let owner = (pod.namespace, &**kind, &**name);
            let above = owners_of.get(&owner).into_iter().flatten();
            let above = above.map(|(kind, name)| (pod.namespace, *kind, *name));
            for key in above.chain([owner]) {
                let list = pods.entry(key).or_default();
                if list.last() != Some(&id) {
                    list.push(id);
                }
            }
        }
    }
    pods
}

/// The live pods of a namespace that a selector selects.
pub(super) fn selected(
    cluster: &Cluster<'_>,
    namespace: NamespaceId,
    selector: &Selector<'_>,
) -> Vec<PodId> {
    let pods = of_namespace(cluster, namespace);
    let meant = pods.filter(|(_, pod)| pod.phase != PodPhase::Terminated && selects(selector, pod));
    meant.map(|(id, _)| id).collect()
}

/// The pods of a namespace, without templates.
pub(super) fn of_namespace<'c, 'o>(
    cluster: &'c Cluster<'o>,
    namespace: NamespaceId,
) -> impl Iterator<Item = (PodId, &'c Pod<'o>)> {
    // Pods are sorted, and templates come after them.
    let n_pods = cluster.pods.partition_point(|pod| pod.template.is_none());
    let pods = cluster.pods.get(..n_pods).unwrap_or_default();
    let start = pods.partition_point(|pod| pod.namespace < namespace);
    let end = pods.partition_point(|pod| pod.namespace <= namespace);
    let own = pods.get(start..end).unwrap_or_default().iter().enumerate();
    own.map(move |(index, pod)| {
        let index = u32::try_from(start + index).unwrap_or(u32::MAX);
        (PodId(index), pod)
    })
}

/// Whether a selector of a workload or a Service selects a pod.
pub(super) fn selects(selector: &Selector<'_>, pod: &Pod<'_>) -> bool {
    selector.matches(|key| label(&pod.labels, key))
}

/// A selector over the objects' texts.
pub(super) fn selector<'o>(selector: &'o Selector<'_>) -> CoreSelector<&'o str> {
    let requirements = selector.requirements.iter().map(|requirement| {
        let palisade_core::labels::Requirement {
            key,
            operator,
            values,
        } = requirement;
        palisade_core::labels::Requirement {
            key: &**key,
            operator: *operator,
            values: values.iter().map(|value| &**value).collect(),
        }
    });
    CoreSelector {
        requirements: requirements.collect(),
    }
}

/// The nodes of the input, and those that only pods name.
fn nodes<'o>(objects: &Objects<'o, '_>, cluster: &mut Cluster<'o>) {
    for (_, object) in &objects.list {
        let ObjectSpec::Node(node) = &object.spec else {
            continue;
        };
        let crate::node::Node {
            addresses,
            pod_cidrs,
        } = node;
        let of = |internal: bool| {
            let kind = addresses.iter().filter(move |it| it.internal == internal);
            kind.map(|NodeAddress { address, .. }| *address)
        };
        let addresses: Vec<IpAddr> = of(true).chain(of(false)).collect();
        cluster.nodes.push(Node {
            name: &object.metadata.name,
            labels: labels(&object.metadata.labels),
            addresses: canonical(&addresses),
            pod_cidrs: pod_cidrs.clone(),
            has_object: true,
        });
    }
    let mentioned: HashSet<&'o str> = cluster.pods.iter().filter_map(|pod| pod.node).collect();
    let mut mentioned: Vec<&'o str> = mentioned.into_iter().collect();
    mentioned.sort_unstable();
    cluster.nodes.sort_by_key(|node| node.name);
    mentioned.retain(|name| {
        cluster
            .nodes
            .binary_search_by_key(name, |it| it.name)
            .is_err()
    });
    cluster.nodes.extend(mentioned.into_iter().map(|name| Node {
        name,
        labels: Arc::default(),
        addresses: Vec::new(),
        pod_cidrs: Vec::new(),
        has_object: false,
    }));
    cluster.nodes.sort_by_key(|node| node.name);
}
