//! The groups of addresses that steps name, each made once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::num::NonZeroU16;

use super::named::{SubsetId, SubsetKey};
use super::ranges::Ranges;
use super::registry::{GroupKey, GroupMeaning, GroupRegistry, GroupRole};
use super::{GroupId, PeerCondition, PeerScope};
use crate::model::{Cluster, Peer};
use crate::net::{Cidr, Family, Protocol};
use crate::program::{Class, NONE, Program, Rule};

/// Exceptions of more lengths than these do not stay exceptions of a step: a dataplane asks for each length, and
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

/// How many lengths some blocks have.
fn lengths(cidrs: &[Cidr]) -> usize {
    let lengths = cidrs
        .iter()
        .map(|it| (it.first().is_ipv4(), it.net().prefix_len()));
    lengths.collect::<BTreeSet<_>>().len()
}

fn sort(blocks: &mut Blocks) {
    for nets in blocks.values_mut() {
        nets.sort_unstable();
        nets.dedup();
    }
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

/// A rule, and the subject that asks it.
#[derive(Clone, Copy)]
pub(super) struct SubjectRule<'p, 'a> {
    pub(super) subject: &'p Class,
    pub(super) rule: &'p Rule,
    pub(super) peers: &'p [Peer<'a>],
}

/// The other ends that a rule means for a subject, before they are groups.
#[derive(Clone, Debug, Default)]
pub(super) struct PeerDraft {
    sets: Vec<(u32, Option<u32>)>,
    nodes: Vec<u32>,
    singles: Vec<IpAddr>,
    /// Blocks of more than one address.
    blocks: Blocks,
    /// Blocks with exceptions.
    narrowed: Vec<(Cidr, Vec<Cidr>)>,
}

impl PeerDraft {
    fn has_hosts(&self) -> bool {
        !self.sets.is_empty() || !self.nodes.is_empty() || !self.singles.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.conditions() == 0
    }

    /// How many conditions they are, and how many exceptions those have.
    pub(super) fn conditions(&self) -> usize {
        let narrowed = self.narrowed.iter();
        let narrowed = narrowed.map(|(_, except)| 1 + lengths(except));
        usize::from(self.has_hosts()) + self.blocks.len() + narrowed.sum::<usize>()
    }

    /// Whether exceptions have too many lengths to be asked one by one.
    pub(super) fn excepts_much(&self) -> bool {
        let mut narrowed = self.narrowed.iter();
        narrowed.any(|(_, except)| lengths(except) > MOST_EXCEPTIONS)
    }

    /// Whether everyone of a family is meant.
    pub(super) fn is_any_of(&self, family: Family) -> bool {
        self.blocks.contains_key(&(family, 0))
    }

    /// What all other blocks of a family have without their exceptions.
    pub(super) fn ranges(&self, family: Family) -> Ranges {
        let mut all = Vec::new();
        for ((of, length), nets) in &self.blocks {
            if *of == family && *length > 0 {
                let blocks = nets.iter().filter_map(|net| Cidr::new(*net, *length));
                all.push(Ranges::of_blocks(blocks));
            }
        }
        for (block, except) in &self.narrowed {
            if Family::of(block.first()) == family {
                let is_same = |it: &Cidr| Family::of(it.first()) == family;
                let except = except.iter().copied().filter(is_same);
                all.push(Ranges::of_blocks([*block]).without(&Ranges::of_blocks(except)));
            }
        }
        Ranges::together(&all)
    }

    /// The same with single addresses.
    pub(super) fn ranges_and_singles(&self, family: Family) -> Ranges {
        let singles = self.singles.iter().copied();
        let singles = singles.filter(|it| Family::of(*it) == family);
        let singles = Ranges::of_blocks(singles.map(Cidr::single));
        Ranges::together([&self.ranges(family), &singles])
    }
}

/// A port that a name stands for, and where.
pub(super) type NamedPort = (Protocol, NonZeroU16, GroupId);

/// Groups, as steps come to need them.
pub(super) struct GroupDrafts<'p, 'a, B> {
    cluster: &'p Cluster<'a>,
    program: &'p Program,
    pub(super) registry: B,
    pub(super) keys: HashMap<GroupId, GroupKey>,
    ids: HashMap<(GroupKey, GroupRole), GroupId>,
    pub(super) amongs: HashMap<SubsetKey, SubsetId>,
    /// The ports of each name.
    ports: HashMap<(u32, GroupRole), Vec<NamedPort>>,
}

impl<'p, 'a, B: GroupRegistry> GroupDrafts<'p, 'a, B> {
    pub(super) fn new(
        cluster: &'p Cluster<'a>,
        program: &'p Program,
        book: B,
    ) -> GroupDrafts<'p, 'a, B> {
        GroupDrafts {
            cluster,
            program,
            registry: book,
            keys: HashMap::new(),
            ids: HashMap::new(),
            amongs: HashMap::new(),
            ports: HashMap::new(),
        }
    }

    /// The group of some ranges of addresses of a family.
    pub(super) fn ranges(&mut self, ranges: &Ranges, family: Family) -> GroupId {
        let bounds: Vec<IpAddr> = ranges.bounds(family).collect();
        let key = GroupKey::Ranges(family, bounds.clone());
        // Nobody ever joins or leaves it.
        self.id(
            key,
            GroupRole::Accepts,
            GroupMeaning::Ranges(family, &bounds),
        )
    }

    /// The other ends that a rule means for a subject.
    pub(super) fn peer_draft(&self, asker: SubjectRule<'_, 'a>) -> PeerDraft {
        let SubjectRule {
            subject,
            rule,
            peers,
        } = asker;
        let mut ends = PeerDraft::default();
        for peer in peers {
            match peer {
                Peer::Block { cidr, except } => {
                    if except.is_empty() {
                        add_block(*cidr, &mut ends.blocks);
                    } else {
                        ends.narrowed.push((*cidr, except.clone()));
                    }
                }
                Peer::Domains(patterns) => {
                    for address in self.cluster.learned_for(patterns) {
                        add_block(Cidr::single(address), &mut ends.blocks);
                    }
                }
                // What these select, the program knows.
                Peer::Pods(_) | Peer::Nodes(_) | Peer::All => {}
            }
        }
        sort(&mut ends.blocks);
        for family in Family::BOTH {
            let singles = ends.blocks.remove(&(family, family.bits()));
            ends.singles.extend(singles.unwrap_or_default());
        }
        let sets = rule.sets.of(&self.program.lists.sets).iter();
        let sets = sets.filter_map(|set| self.related(subject, *set));
        ends.sets = sets.collect();
        ends.nodes = rule.nodes.of(&self.program.lists.nodes).to_vec();
        ends.nodes.sort_unstable();
        ends.nodes.dedup();
        ends
    }

    /// The group of the hosts among the other ends, if there are any.
    pub(super) fn hosts(
        &mut self,
        asker: SubjectRule<'_, 'a>,
        ends: &PeerDraft,
    ) -> Option<GroupId> {
        if !ends.has_hosts() {
            return None;
        }
        let SubjectRule {
            subject,
            rule,
            peers,
        } = asker;
        let key = GroupKey::Hosts {
            sets: ends.sets.clone(),
            nodes: ends.nodes.clone(),
            singles: ends.singles.clone(),
            named: Vec::new(),
        };
        let cluster = self.cluster;
        let subject = cluster.namespaces.get(subject.namespace as usize)?;
        let meaning = GroupMeaning::Hosts {
            cluster,
            subject,
            peers,
            singles: &ends.singles,
        };
        Some(self.id(key, GroupRole::of(rule.action), meaning))
    }

    /// The other ends as conditions: each block with exceptions by itself, hosts together, and blocks by
    /// their length.
    pub(super) fn conditions(
        &mut self,
        asker: SubjectRule<'_, 'a>,
        ends: &PeerDraft,
    ) -> Vec<PeerCondition> {
        let mut conditions = Vec::new();
        let mut blocks = ends.blocks.clone();
        for (block, except) in &ends.narrowed {
            let by_length = by_length(except);
            if by_length.len() > MOST_EXCEPTIONS {
                for rest in without(*block, except) {
                    add_block(rest, &mut blocks);
                }
                continue;
            }
            let except = self.nets(by_length);
            let within = self.within(*block);
            conditions.push(PeerCondition { within, except });
        }
        sort(&mut blocks);
        let plainly = |within| PeerCondition {
            within,
            except: Vec::new(),
        };
        let hosts = self.hosts(asker, ends);
        conditions.extend(hosts.map(|id| plainly(PeerScope::Group(id))));
        for ((family, length), nets) in &blocks {
            let within = if *length == 0 {
                PeerScope::Family(*family)
            } else {
                PeerScope::Group(self.nets_of(*family, *length, nets))
            };
            conditions.push(plainly(within));
        }
        conditions
    }

    /// Finds out which numbers a name of ports stands for somewhere, and where.
    pub(super) fn learn(&mut self, number: u32, name: &str, role: GroupRole) {
        if self.ports.contains_key(&(number, role)) {
            return;
        }
        let ports = self.registry.ports(number, name).into_iter();
        let with_group = ports.map(|(protocol, port)| {
            let key = GroupKey::Named(number, protocol, port);
            let at = self.id(key, role, GroupMeaning::Named(name, protocol, port));
            (protocol, port, at)
        });
        let with_group: Vec<NamedPort> = with_group.collect();
        self.ports.insert((number, role), with_group);
    }

    /// The numbers that a learned name stands for, of one protocol or of all.
    pub(super) fn learned(
        &self,
        number: u32,
        role: GroupRole,
        protocol: Option<Protocol>,
    ) -> impl Iterator<Item = NamedPort> {
        let ports = self.ports.get(&(number, role)).into_iter().flatten();
        let fits = move |it: &&NamedPort| protocol.is_none_or(|protocol| it.0 == protocol);
        ports.filter(fits).copied()
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

    fn within(&mut self, cidr: Cidr) -> PeerScope {
        let (family, length) = (Family::of(cidr.first()), cidr.net().prefix_len());
        if length == 0 {
            return PeerScope::Family(family);
        }
        PeerScope::Group(self.nets_of(family, length, &[cidr.first()]))
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
        self.id(
            key,
            GroupRole::Accepts,
            GroupMeaning::Nets(family, length, nets),
        )
    }

    pub(super) fn id(
        &mut self,
        key: GroupKey,
        role: GroupRole,
        meaning: GroupMeaning<'_, '_>,
    ) -> GroupId {
        let key = (key, role);
        if let Some(known) = self.ids.get(&key) {
            return *known;
        }
        let id = self.registry.group(&key.0, role, meaning);
        self.keys.insert(id, key.0.clone());
        self.ids.insert(key, id);
        id
    }
}
