//! The groups of addresses that steps name, each made once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::num::NonZeroU16;

use super::{Group, GroupId, GroupKind, PeerCondition, Within};
use crate::compile::count;
use crate::model::{Cluster, NodeId, Peer};
use crate::net::{Cidr, Family, Protocol};
use crate::program::{Class, NONE, Owner, Program, Rule};

/// Exceptions of more lengths than these do not stay exceptions: a dataplane asks for each length, and
/// may have room for so many questions only.
const MOST_EXCEPTIONS: usize = 8;

/// The first addresses of blocks, by family and length.
type Blocks = BTreeMap<(Family, u8), Vec<IpAddr>>;

fn add_block(cidr: Cidr, blocks: &mut Blocks) {
    let key = (Family::of(cidr.first()), cidr.net().prefix_len());
    blocks.entry(key).or_default().push(cidr.first());
}

fn by_length(cidrs: &[Cidr]) -> Blocks {
    let mut blocks = Blocks::new();
    for cidr in cidrs {
        add_block(*cidr, &mut blocks);
    }
    blocks
}

/// What is left of a block without some others, as blocks.
fn without(block: Cidr, others: &[Cidr]) -> Vec<Cidr> {
    let inside: Vec<Cidr> = others
        .iter()
        .copied()
        .filter(|other| block == *other || block.strictly_contains(*other))
        .collect();
    if inside.is_empty() {
        let is_gone = others.iter().any(|other| other.strictly_contains(block));
        return if is_gone { Vec::new() } else { vec![block] };
    }
    if inside.contains(&block) {
        return Vec::new();
    }
    let halves = block.halves().into_iter().flatten();
    halves.flat_map(|half| without(half, &inside)).collect()
}

/// What makes a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum GroupKey {
    /// Pods, nodes and single addresses that are meant together.
    Hosts {
        /// Pod sets; with those that depend on the subject, which namespaces it is related to.
        sets: Vec<(u32, Option<u32>)>,
        nodes: Vec<u32>,
        singles: Vec<IpAddr>,
    },
    /// Blocks of one length.
    Nets(Family, u8, Vec<IpAddr>),
    /// Pods whose port of a number has a name.
    Named(u32, Protocol, NonZeroU16),
}

/// Groups, as steps come to need them.
pub(super) struct GroupDrafts<'p, 'a> {
    cluster: &'p Cluster<'a>,
    program: &'p Program,
    /// The addresses of the pods of each class.
    of_class: Vec<Vec<IpAddr>>,
    /// The addresses of each node.
    of_node: Vec<Vec<IpAddr>>,
    groups: BTreeMap<GroupId, Group>,
    keys: Vec<GroupKey>,
    ids: HashMap<GroupKey, GroupId>,
    /// The classes of each pod set, made when the first one is asked for.
    of_set: Vec<Vec<u32>>,
}

impl<'p, 'a> GroupDrafts<'p, 'a> {
    pub(super) fn new(cluster: &'p Cluster<'a>, program: &'p Program) -> GroupDrafts<'p, 'a> {
        let mut of_class = vec![Vec::new(); program.classes.len()];
        let mut of_node = vec![Vec::new(); cluster.nodes.len()];
        for (address, owner) in program.owners.iter() {
            let list = match owner {
                Owner::Pod(pod) => {
                    let class = program.class_id(pod);
                    class.and_then(|class| of_class.get_mut(class as usize))
                }
                Owner::Node(Some(NodeId(node))) => of_node.get_mut(node as usize),
                Owner::Node(None) => None,
            };
            if let Some(list) = list {
                list.push(address);
            }
        }
        let n_sets = program.set_relations.len();
        let mut of_set = vec![Vec::new(); n_sets];
        for (id, class) in program.classes.iter().enumerate() {
            for set in program.sets_of(class) {
                if let Some(classes) = of_set.get_mut(set as usize) {
                    classes.push(count(id));
                }
            }
        }
        GroupDrafts {
            cluster,
            program,
            of_class,
            of_node,
            groups: BTreeMap::new(),
            keys: Vec::new(),
            ids: HashMap::new(),
            of_set,
        }
    }

    pub(super) fn finish(self) -> BTreeMap<GroupId, Group> {
        self.groups
    }

    /// Whether a group is one of pods, nodes and single addresses.
    pub(super) fn is_hosts(&self, id: GroupId) -> bool {
        let key = self.keys.get(id.0 as usize);
        matches!(key, Some(GroupKey::Hosts { .. }))
    }

    /// The group of all hosts of some groups.
    pub(super) fn together(&mut self, ids: &BTreeSet<GroupId>) -> GroupId {
        let (mut all_sets, mut all_nodes, mut all_singles) = (Vec::new(), Vec::new(), Vec::new());
        for GroupId(id) in ids {
            if let Some(GroupKey::Hosts {
                sets,
                nodes,
                singles,
            }) = self.keys.get(*id as usize)
            {
                all_sets.extend(sets);
                all_nodes.extend(nodes);
                all_singles.extend(singles);
            }
        }
        all_sets.sort_unstable();
        all_sets.dedup();
        all_nodes.sort_unstable();
        all_nodes.dedup();
        all_singles.sort_unstable();
        all_singles.dedup();
        self.id(GroupKey::Hosts {
            sets: all_sets,
            nodes: all_nodes,
            singles: all_singles,
        })
    }

    /// The other ends that a rule means for a subject: hosts together, blocks by their length, and
    /// each block with exceptions by itself.
    pub(super) fn peers(
        &mut self,
        subject: &Class,
        rule: &Rule,
        peers: &[Peer<'_>],
    ) -> Vec<PeerCondition> {
        let mut conditions = Vec::new();
        let mut blocks = Blocks::new();
        for peer in peers {
            match peer {
                Peer::Block { cidr, except } => {
                    let by_length = by_length(except);
                    if (1..=MOST_EXCEPTIONS).contains(&by_length.len()) {
                        let except = self.nets(by_length);
                        let within = self.within(*cidr);
                        conditions.push(PeerCondition { within, except });
                    } else {
                        for rest in without(*cidr, except) {
                            add_block(rest, &mut blocks);
                        }
                    }
                }
                Peer::Domains(patterns) => {
                    for address in self.cluster.learned_for(patterns) {
                        add_block(Cidr::single(address), &mut blocks);
                    }
                }
                // What these select, the program knows.
                Peer::Pods(_) | Peer::Nodes(_) | Peer::All => {}
            }
        }
        let mut singles = Vec::new();
        for family in Family::BOTH {
            singles.extend(blocks.remove(&(family, family.bits())).unwrap_or_default());
        }
        singles.sort_unstable();
        singles.dedup();
        let sets = rule.sets.of(&self.program.lists.sets).iter();
        let sets: Vec<(u32, Option<u32>)> =
            sets.filter_map(|set| self.related(subject, *set)).collect();
        let mut nodes = rule.nodes.of(&self.program.lists.nodes).to_vec();
        nodes.sort_unstable();
        nodes.dedup();
        if !sets.is_empty() || !nodes.is_empty() || !singles.is_empty() {
            let key = GroupKey::Hosts {
                sets,
                nodes,
                singles,
            };
            conditions.push(PeerCondition {
                within: Within::Group(self.id(key)),
                except: Vec::new(),
            });
        }
        for ((family, length), mut nets) in blocks {
            nets.sort_unstable();
            nets.dedup();
            let within = if length == 0 {
                Within::Family(family)
            } else {
                Within::Group(self.id(GroupKey::Nets(family, length, nets)))
            };
            conditions.push(PeerCondition {
                within,
                except: Vec::new(),
            });
        }
        conditions
    }

    /// For a name of ports: the numbers that it stands for somewhere, and where.
    pub(super) fn named(&mut self, name: u32) -> Vec<(Protocol, NonZeroU16, GroupId)> {
        let maps = self.program.port_maps.iter();
        let entries = maps.flat_map(|map| &map.entries);
        let entries = entries.filter(|entry| entry.names.contains(&name));
        let mut ports: Vec<(Protocol, NonZeroU16)> =
            entries.map(|entry| (entry.protocol, entry.port)).collect();
        ports.sort_unstable();
        ports.dedup();
        let with_group = ports.into_iter().map(|(protocol, port)| {
            let at = self.id(GroupKey::Named(name, protocol, port));
            (protocol, port, at)
        });
        with_group.collect()
    }

    /// A pod set, and what of it depends on the subject's namespace; `None`: nothing of it is left.
    fn related(&self, subject: &Class, set: u32) -> Option<(u32, Option<u32>)> {
        let relation = self.program.set_relations.get(set as usize).copied();
        let Some(relation) = relation.flatten() else {
            return Some((set, None));
        };
        let relation = self.program.relations.get(relation as usize)?;
        let group = relation.groups.get(subject.namespace as usize).copied();
        group
            .filter(|group| *group != NONE)
            .map(|group| (set, Some(group)))
    }

    fn within(&mut self, cidr: Cidr) -> Within {
        let (family, length) = (Family::of(cidr.first()), cidr.net().prefix_len());
        if length == 0 {
            return Within::Family(family);
        }
        let key = GroupKey::Nets(family, length, vec![cidr.first()]);
        Within::Group(self.id(key))
    }

    /// The groups of some blocks, one for each length. A length of zero is a group too: whoever
    /// excepts everything means nobody.
    fn nets(&mut self, blocks: Blocks) -> Vec<GroupId> {
        let mut groups = Vec::new();
        for ((family, length), mut nets) in blocks {
            nets.sort_unstable();
            nets.dedup();
            groups.push(self.id(GroupKey::Nets(family, length, nets)));
        }
        groups
    }

    fn id(&mut self, key: GroupKey) -> GroupId {
        if let Some(known) = self.ids.get(&key) {
            return *known;
        }
        let id = GroupId(count(self.keys.len()));
        let (kind, addresses) = match &key {
            GroupKey::Nets(family, length, nets) => {
                (GroupKind::Nets(*family, *length), nets.clone())
            }
            GroupKey::Named(name, protocol, port) => (
                GroupKind::Hosts,
                self.hosts_with_port(*name, *protocol, *port),
            ),
            GroupKey::Hosts {
                sets,
                nodes,
                singles,
            } => (GroupKind::Hosts, self.hosts(sets, nodes, singles)),
        };
        self.groups.insert(id, Group { kind, addresses });
        self.keys.push(key.clone());
        self.ids.insert(key, id);
        id
    }

    fn hosts(&self, sets: &[(u32, Option<u32>)], nodes: &[u32], singles: &[IpAddr]) -> Vec<IpAddr> {
        let mut hosts = singles.to_vec();
        for (set, group) in sets {
            let classes = self.of_set.get(*set as usize);
            for class in classes.into_iter().flatten() {
                if self.is_meant(*set, *group, *class) {
                    let addresses = self.of_class.get(*class as usize);
                    hosts.extend(addresses.into_iter().flatten());
                }
            }
        }
        for set in nodes {
            let nodes = self.program.node_sets.get(*set as usize);
            for NodeId(node) in nodes.into_iter().flatten() {
                let addresses = self.of_node.get(*node as usize);
                hosts.extend(addresses.into_iter().flatten());
            }
        }
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    }

    /// Whether a class of a pod set is meant by subjects of a group of namespaces.
    fn is_meant(&self, set: u32, subject_group: Option<u32>, class: u32) -> bool {
        let Some(subject_group) = subject_group else {
            return true;
        };
        let relation = self.program.set_relations.get(set as usize).copied();
        let relation = relation.flatten();
        let relation = relation.and_then(|it| self.program.relations.get(it as usize));
        let class = self.program.classes.get(class as usize);
        let (Some(relation), Some(class)) = (relation, class) else {
            return false;
        };
        let group = relation.groups.get(class.namespace as usize).copied();
        let group = group.filter(|group| *group != NONE);
        group.is_some_and(|group| (group == subject_group) == relation.same)
    }

    fn hosts_with_port(&self, name: u32, protocol: Protocol, port: NonZeroU16) -> Vec<IpAddr> {
        let mut hosts = Vec::new();
        for (class, addresses) in self.program.classes.iter().zip(&self.of_class) {
            let map = self.program.port_map(class);
            let entry = map.and_then(|map| map.entry(protocol, port));
            if entry.is_some_and(|entry| entry.names.contains(&name)) {
                hosts.extend(addresses);
            }
        }
        hosts.sort_unstable();
        hosts
    }
}
