//! The endpoints of flows, by name.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use palisade_core::EndName;
use palisade_core::analysis::connect::{Member, Network};
use palisade_core::model::{Cluster, NamespaceId, Pod, PodId, Workload};
use palisade_core::net::Cidr;

/// The type of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum EndKind {
    /// A pod with a network of its own.
    Pod,
    /// The template of a workload without pods.
    Template,
    /// A host-network pod.
    HostPod,
    /// A process on a node.
    Node,
    /// Addresses outside the cluster.
    Network,
    /// A Service.
    Service,
}

impl EndKind {
    /// Returns the type of a pod.
    pub(crate) fn of_pod(pod: &Pod<'_>) -> EndKind {
        if pod.host_network {
            EndKind::HostPod
        } else if pod.template.is_some() {
            EndKind::Template
        } else {
            EndKind::Pod
        }
    }

    /// Reports whether policies can select it.
    pub(crate) fn is_selectable(self) -> bool {
        matches!(self, EndKind::Pod | EndKind::Template)
    }

    /// Returns its letter in the data of the page.
    pub(crate) fn letter(self) -> char {
        match self {
            EndKind::Pod => 'p',
            EndKind::Template => 't',
            EndKind::HostPod => 'h',
            EndKind::Node => 'n',
            EndKind::Network => 'x',
            EndKind::Service => 's',
        }
    }
}

/// An endpoint of flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedEnd {
    /// The name; a network has one for each of its blocks.
    pub(crate) names: Vec<String>,
    /// The name where there is room for one only.
    pub(crate) label: String,
    /// The type.
    pub(crate) kind: EndKind,
    /// Its space, an index of [`NamedEnds::spaces`].
    pub(crate) space: usize,
}

impl NamedEnd {
    fn new(name: String, kind: EndKind, space: usize) -> NamedEnd {
        NamedEnd {
            label: name.clone(),
            names: vec![name],
            kind,
            space,
        }
    }

    /// Returns all its names, separated by blanks.
    pub(crate) fn name(&self) -> Cow<'_, str> {
        match self.names.as_slice() {
            [name] => Cow::Borrowed(name),
            names => Cow::Owned(names.join(" ")),
        }
    }
}

/// The endpoints of a cluster.
#[derive(Debug, Default)]
pub(crate) struct NamedEnds {
    /// The endpoints, in the order of output.
    pub(crate) list: Vec<NamedEnd>,
    /// The spaces: namespaces, then nodes and networks.
    pub(crate) spaces: Vec<String>,
    /// Workloads of several pods by name, with their endpoints, ascending.
    pub(crate) workloads: Vec<(String, Vec<u32>)>,
}

/// The spaces of nodes and of networks. Parentheses are invalid in names of namespaces.
pub(crate) const NODES: &str = "(nodes)";
pub(crate) const NETWORKS: &str = "(outside)";

/// The space of an endpoint, in the order of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum EndOrder {
    Namespace(NamespaceId),
    Nodes,
    Networks,
}

/// The spaces in use, numbered in the order of their first use.
#[derive(Debug, Default)]
struct Places(BTreeMap<EndOrder, usize>);

impl Places {
    fn of(&mut self, place: EndOrder) -> usize {
        let next = self.0.len();
        *self.0.entry(place).or_insert(next)
    }

    /// Returns their names in the order of output, and the new number of each.
    fn sorted(&self, cluster: &Cluster<'_>) -> (Vec<String>, Vec<usize>) {
        let mut new_places = vec![0; self.0.len()];
        let mut names = Vec::new();
        for (place, old) in &self.0 {
            if let Some(new) = new_places.get_mut(*old) {
                *new = names.len();
            }
            names.push(match place {
                EndOrder::Namespace(id) => cluster.namespace_name(*id).to_owned(),
                EndOrder::Nodes => NODES.to_owned(),
                EndOrder::Networks => NETWORKS.to_owned(),
            });
        }
        (names, new_places)
    }
}

/// Returns the workloads with several pods. A workload that another one created comes last.
pub(crate) fn workloads(
    cluster: &Cluster<'_>,
    members: impl Iterator<Item = Option<Member>>,
) -> Vec<(String, Vec<u32>)> {
    let mut ends: HashMap<PodId, u32> = HashMap::new();
    for (end, member) in (0..).zip(members) {
        if let Some(Member::Pod(id)) = member {
            ends.insert(id, end);
        }
    }
    let mut found: Vec<&Workload<'_>> = cluster.workloads.iter().collect();
    found.sort_by_key(|it| it.is_owned);
    let found = found.into_iter().filter(|it| it.pods.len() > 1);
    let named = found.map(|it| {
        let namespace = cluster.namespace_name(it.namespace);
        let mut its: Vec<u32> = it
            .pods
            .iter()
            .filter_map(|id| ends.get(id).copied())
            .collect();
        its.sort_unstable();
        (format!("{namespace}/{}/{}", it.kind, it.name), its)
    });
    named.collect()
}

impl NamedEnds {
    /// Names the members of a cluster.
    pub(crate) fn new(
        cluster: &Cluster<'_>,
        members: &[Member],
        networks: &[Network],
    ) -> NamedEnds {
        let mut places = Places::default();
        let mut list = Vec::with_capacity(members.len());
        for member in members {
            list.push(match member {
                Member::Pod(id) => {
                    let pod = cluster.pods.get(id.0 as usize);
                    let kind = pod.map_or(EndKind::Pod, EndKind::of_pod);
                    let space = pod.map_or(EndOrder::Nodes, |it| EndOrder::Namespace(it.namespace));
                    NamedEnd::new(cluster.pod_name(*id), kind, places.of(space))
                }
                Member::Service(id) => {
                    let service = cluster.services.get(id.0 as usize);
                    let space =
                        service.map_or(EndOrder::Nodes, |it| EndOrder::Namespace(it.namespace));
                    let name = cluster.service_name(*id);
                    NamedEnd::new(name, EndKind::Service, places.of(space))
                }
                Member::Node(id) => {
                    let name = EndName::Node(*id).text(cluster);
                    NamedEnd::new(name, EndKind::Node, places.of(EndOrder::Nodes))
                }
                Member::Network(id) => {
                    let network = networks.get(id.0 as usize);
                    let blocks = network.map_or(&[][..], |it| &it.blocks);
                    NamedEnd {
                        names: blocks.iter().map(ToString::to_string).collect(),
                        label: network.map_or_else(String::new, |it| network_label(it, networks)),
                        kind: EndKind::Network,
                        space: places.of(EndOrder::Networks),
                    }
                }
            });
        }
        let (spaces, new_places) = places.sorted(cluster);
        for end in &mut list {
            end.space = new_places.get(end.space).copied().unwrap_or(0);
        }
        NamedEnds {
            workloads: workloads(cluster, members.iter().copied().map(Some)),
            list,
            spaces,
        }
    }

    /// Returns the endpoint with a number.
    pub(crate) fn get(&self, id: u32) -> Option<&NamedEnd> {
        self.list.get(id as usize)
    }

    /// Reports whether policies can apply to flows of this endpoint.
    pub(crate) fn is_governed(&self, id: u32) -> bool {
        let kind = self.get(id).map(|end| end.kind);
        kind.is_some_and(|kind| kind.is_selectable() || kind == EndKind::Service)
    }

    /// Returns the endpoints with their numbers.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (u32, &NamedEnd)> {
        (0..).zip(&self.list)
    }

    /// Returns the label of an endpoint.
    pub(crate) fn label(&self, id: u32) -> &str {
        self.get(id).map_or("", |end| &end.label)
    }

    /// Returns the name of a space.
    pub(crate) fn space(&self, id: usize) -> &str {
        self.spaces.get(id).map_or("", String::as_str)
    }
}

/// Describes a network by the shorter form: its blocks, or the outside except the blocks of others.
pub(crate) fn network_label(network: &Network, networks: &[Network]) -> String {
    let listed = |blocks: &[Cidr]| {
        let shown = blocks.iter().take(MOST_BLOCKS).map(|block| {
            let text = block.to_string();
            let is_single = block.halves().is_none();
            let address = text.split('/').next().filter(|_| is_single);
            address.unwrap_or(&text).to_owned()
        });
        let mut words: Vec<String> = shown.collect();
        if blocks.len() > MOST_BLOCKS {
            words.push(format!("{} more", blocks.len() - MOST_BLOCKS));
        }
        words.join(", ")
    };
    let others = networks
        .iter()
        .filter(|it| it.family == network.family && *it != network);
    let mut others: Vec<Cidr> = others.flat_map(|it| &it.blocks).copied().collect();
    others.sort_by_key(|it| it.first());
    if others.is_empty() {
        return format!("any {} outside", network.family);
    }
    if others.len() < network.blocks.len() {
        return format!("{} outside but {}", network.family, listed(&others));
    }
    listed(&network.blocks)
}

/// The most blocks of a network that are shown.
const MOST_BLOCKS: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_core::net::{CidrText, Family};

    fn network(texts: &[&str]) -> Network {
        let parse = |text: &&str| CidrText::parse(text).unwrap().cidr;
        Network {
            family: Family::V4,
            blocks: texts.iter().map(parse).collect(),
        }
    }

    #[test]
    fn a_network_has_the_shorter_label() {
        let one = network(&["10.0.0.0/8", "192.0.2.1/32"]);
        let two = network(&["172.16.0.0/12", "198.51.100.0/24", "203.0.113.0/24"]);
        let label = |it: &Network, all: &[&Network]| {
            let all: Vec<Network> = all.iter().map(|it| (*it).clone()).collect();
            network_label(it, &all)
        };
        assert_eq!(label(&one, &[&one]), "any IPv4 outside");
        assert_eq!(label(&one, &[&one, &two]), "10.0.0.0/8, 192.0.2.1");
        assert_eq!(
            label(&two, &[&one, &two]),
            "IPv4 outside but 10.0.0.0/8, 192.0.2.1"
        );
    }
}
