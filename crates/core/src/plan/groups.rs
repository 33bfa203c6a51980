//! The groups of addresses that steps name, each made once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::num::NonZeroU16;

use super::book::{Book, GroupKey, Meaning, Role};
use super::{GroupId, PeerCondition, Within};
use crate::model::{Cluster, Peer};
use crate::net::{Cidr, Family, Protocol};
use crate::program::{Class, NONE, Program, Rule};

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

/// A port that a name stands for, and where.
type NamedPort = (Protocol, NonZeroU16, GroupId);

/// Groups, as steps come to need them.
pub(super) struct GroupDrafts<'p, 'a, B> {
    cluster: &'p Cluster<'a>,
    program: &'p Program,
    pub(super) book: B,
    keys: HashMap<GroupId, GroupKey>,
    ids: HashMap<(GroupKey, Role), GroupId>,
    /// The ports of each name.
    ports: HashMap<(u32, Role), Vec<NamedPort>>,
}

impl<'p, 'a, B: Book> GroupDrafts<'p, 'a, B> {
    pub(super) fn new(
        cluster: &'p Cluster<'a>,
        program: &'p Program,
        book: B,
    ) -> GroupDrafts<'p, 'a, B> {
        GroupDrafts {
            cluster,
            program,
            book,
            keys: HashMap::new(),
            ids: HashMap::new(),
            ports: HashMap::new(),
        }
    }

    /// Whether a group is one of pods, nodes and single addresses.
    pub(super) fn is_hosts(&self, id: GroupId) -> bool {
        matches!(self.keys.get(&id), Some(GroupKey::Hosts { .. }))
    }

    /// The group of all hosts of some groups.
    pub(super) fn together(&mut self, ids: &BTreeSet<GroupId>) -> GroupId {
        let (mut all_sets, mut all_nodes, mut all_singles) = (Vec::new(), Vec::new(), Vec::new());
        for id in ids {
            if let Some(GroupKey::Hosts {
                sets,
                nodes,
                singles,
            }) = self.keys.get(id)
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
        let key = GroupKey::Hosts {
            sets: all_sets,
            nodes: all_nodes,
            singles: all_singles,
        };
        let ids: Vec<GroupId> = ids.iter().copied().collect();
        self.id(key, Role::Accepts, Meaning::Together(&ids))
    }

    /// The other ends that a rule means for a subject: hosts together, blocks by their length, and
    /// each block with exceptions by itself.
    pub(super) fn peers(
        &mut self,
        subject: &Class,
        rule: &Rule,
        peers: &[Peer<'a>],
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
                singles: singles.clone(),
            };
            let cluster = self.cluster;
            if let Some(subject) = cluster.namespaces.get(subject.namespace as usize) {
                let meaning = Meaning::Hosts {
                    cluster,
                    subject,
                    peers,
                    singles: &singles,
                };
                conditions.push(PeerCondition {
                    within: Within::Group(self.id(key, Role::of(rule.action), meaning)),
                    except: Vec::new(),
                });
            }
        }
        for ((family, length), mut nets) in blocks {
            nets.sort_unstable();
            nets.dedup();
            let within = if length == 0 {
                Within::Family(family)
            } else {
                Within::Group(self.nets_of(family, length, &nets))
            };
            conditions.push(PeerCondition {
                within,
                except: Vec::new(),
            });
        }
        conditions
    }

    /// For a name of ports: the numbers that it stands for somewhere, and where.
    pub(super) fn named(&mut self, number: u32, name: &str, role: Role) -> Vec<NamedPort> {
        if let Some(known) = self.ports.get(&(number, role)) {
            return known.clone();
        }
        let ports = self.book.ports(number, name).into_iter();
        let with_group = ports.map(|(protocol, port)| {
            let key = GroupKey::Named(number, protocol, port);
            let at = self.id(key, role, Meaning::Named(name, protocol, port));
            (protocol, port, at)
        });
        let with_group: Vec<NamedPort> = with_group.collect();
        self.ports.insert((number, role), with_group.clone());
        with_group
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
        Within::Group(self.nets_of(family, length, &[cidr.first()]))
    }

    /// The groups of some blocks, one for each length. A length of zero is a group too: whoever
    /// excepts everything means nobody.
    fn nets(&mut self, blocks: Blocks) -> Vec<GroupId> {
        let mut groups = Vec::new();
        for ((family, length), mut nets) in blocks {
            nets.sort_unstable();
            nets.dedup();
            groups.push(self.nets_of(family, length, &nets));
        }
        groups
    }

    fn nets_of(&mut self, family: Family, length: u8, nets: &[IpAddr]) -> GroupId {
        let key = GroupKey::Nets(family, length, nets.to_vec());
        // Nobody ever joins or leaves it.
        self.id(key, Role::Accepts, Meaning::Nets(family, length, nets))
    }

    fn id(&mut self, key: GroupKey, role: Role, meaning: Meaning<'_, '_>) -> GroupId {
        let key = (key, role);
        if let Some(known) = self.ids.get(&key) {
            return *known;
        }
        let id = self.book.group(&key.0, role, meaning);
        self.keys.insert(id, key.0.clone());
        self.ids.insert(key, id);
        id
    }
}
