//! The groups of addresses that steps name, each built once.

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

/// The most prefix lengths that the exceptions of one block may have as exceptions of a step.
// Each length is one more lookup in the same rule of the dataplane, and a rule has room for a
// bounded number of them. Blocks with more are split into what is left of them.
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

/// Returns the number of distinct families and prefix lengths of some blocks.
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

/// Returns what is left of a block without some others, as blocks.
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
    // Only the half with an exception is halved again: an exception leaves at most one block for
    // each bit by which its prefix is longer.
    let halves = block.halves().into_iter().flatten();
    halves.flat_map(|half| without(half, &inside)).collect()
}

/// A rule, with a subject that it applies to.
#[derive(Clone, Copy)]
pub(super) struct SubjectRule<'p, 'a> {
    pub(super) subject: &'p Class,
    pub(super) rule: &'p Rule,
    pub(super) peers: &'p [Peer<'a>],
}

/// The peers of a rule for a subject, before they become groups.
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

    /// Returns the number of conditions and of their exceptions.
    pub(super) fn conditions(&self) -> usize {
        let narrowed = self.narrowed.iter();
        let narrowed = narrowed.map(|(_, except)| 1 + lengths(except));
        usize::from(self.has_hosts()) + self.blocks.len() + narrowed.sum::<usize>()
    }

    /// Whether the exceptions of a block have too many lengths for a step.
    pub(super) fn excepts_much(&self) -> bool {
        let mut narrowed = self.narrowed.iter();
        narrowed.any(|(_, except)| lengths(except) > MOST_EXCEPTIONS)
    }

    /// Whether every address of a family is a peer.
    pub(super) fn is_any_of(&self, family: Family) -> bool {
        self.blocks.contains_key(&(family, 0))
    }

    /// Returns the addresses of all other blocks of a family, without their exceptions.
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

    /// Returns the same addresses together with the single ones.
    pub(super) fn ranges_and_singles(&self, family: Family) -> Ranges {
        let singles = self.singles.iter().copied();
        let singles = singles.filter(|it| Family::of(*it) == family);
        let singles = Ranges::of_blocks(singles.map(Cidr::single));
        Ranges::together([&self.ranges(family), &singles])
    }
}

/// A port that a name stands for, and the group of the pods at which it does.
pub(super) type NamedPort = (Protocol, NonZeroU16, GroupId);

/// Builds groups as steps need them.
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
        registry: B,
    ) -> GroupDrafts<'p, 'a, B> {
        GroupDrafts {
            cluster,
            program,
            registry,
            keys: HashMap::new(),
            ids: HashMap::new(),
            amongs: HashMap::new(),
            ports: HashMap::new(),
        }
    }

    /// Returns the group of some ranges of addresses of a family.
    pub(super) fn ranges(&mut self, ranges: &Ranges, family: Family) -> GroupId {
        let bounds: Vec<IpAddr> = ranges.bounds(family).collect();
        let key = GroupKey::Ranges(family, bounds.clone());
        // The members never change, so the order of membership changes does not matter. One role
        // serves all steps.
        self.id(
            key,
            GroupRole::Accepts,
            GroupMeaning::Ranges(family, &bounds),
        )
    }

    /// Returns the peers of a rule for a subject.
    pub(super) fn peer_draft(&self, subject_rule: SubjectRule<'_, 'a>) -> PeerDraft {
        let SubjectRule {
            subject,
            rule,
            peers,
        } = subject_rule;
        let mut draft = PeerDraft::default();
        for peer in peers {
            match peer {
                Peer::Block { cidr, except } => {
                    if except.is_empty() {
                        add_block(*cidr, &mut draft.blocks);
                    } else {
                        draft.narrowed.push((*cidr, except.clone()));
                    }
                }
                Peer::Domains(patterns) => {
                    for address in self.cluster.learned_for(patterns) {
                        add_block(Cidr::single(address), &mut draft.blocks);
                    }
                }
                // The rule has what these select, in `sets` and `nodes`.
                Peer::Pods(_) | Peer::Nodes(_) | Peer::All => {}
            }
        }
        sort(&mut draft.blocks);
        // A block of one address is a host: it shares the exact lookup of the pods and nodes, and
        // needs no length of its own.
        for family in Family::BOTH {
            let singles = draft.blocks.remove(&(family, family.bits()));
            draft.singles.extend(singles.unwrap_or_default());
        }
        let sets = rule.sets.of(&self.program.lists.sets).iter();
        let sets = sets.filter_map(|set| self.related(subject, *set));
        draft.sets = sets.collect();
        draft.nodes = rule.nodes.of(&self.program.lists.nodes).to_vec();
        draft.nodes.sort_unstable();
        draft.nodes.dedup();
        draft
    }

    /// Returns the group of the hosts among the peers, if there are any.
    pub(super) fn hosts(
        &mut self,
        subject_rule: SubjectRule<'_, 'a>,
        draft: &PeerDraft,
    ) -> Option<GroupId> {
        if !draft.has_hosts() {
            return None;
        }
        let SubjectRule {
            subject,
            rule,
            peers,
        } = subject_rule;
        let key = GroupKey::Hosts {
            sets: draft.sets.clone(),
            nodes: draft.nodes.clone(),
            singles: draft.singles.clone(),
            named: Vec::new(),
        };
        let cluster = self.cluster;
        let subject = cluster.namespaces.get(subject.namespace as usize)?;
        let meaning = GroupMeaning::Hosts {
            cluster,
            subject,
            peers,
            singles: &draft.singles,
        };
        Some(self.id(key, GroupRole::of(rule.action), meaning))
    }

    /// Returns the peers as conditions: each block with exceptions is one, all hosts are one, and
    /// so are the other blocks of each length.
    pub(super) fn conditions(
        &mut self,
        subject_rule: SubjectRule<'_, 'a>,
        draft: &PeerDraft,
    ) -> Vec<PeerCondition> {
        // A dataplane looks up all blocks of one length at once, with the address masked to that
        // length. A block with exceptions stays apart: they narrow this peer only (D100).
        let mut conditions = Vec::new();
        let mut blocks = draft.blocks.clone();
        for (block, except) in &draft.narrowed {
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
        let hosts = self.hosts(subject_rule, draft);
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

    /// Resolves a port name: the ports that it stands for, each with the group of the pods there.
    pub(super) fn resolve_name(&mut self, number: u32, name: &str, role: GroupRole) {
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

    /// Returns the ports of a resolved name, of one protocol or of all.
    pub(super) fn ports_of_name(
        &self,
        number: u32,
        role: GroupRole,
        protocol: Option<Protocol>,
    ) -> impl Iterator<Item = NamedPort> {
        let ports = self.ports.get(&(number, role)).into_iter().flatten();
        let fits = move |it: &&NamedPort| protocol.is_none_or(|protocol| it.0 == protocol);
        ports.filter(fits).copied()
    }

    /// Returns a pod set for a subject, with the group of namespaces that its relation compares
    /// with; `None`: no pod of the set is related.
    fn related(&self, subject: &Class, set: u32) -> Option<(u32, Option<u32>)> {
        let relation = self.program.set_relations.get(set as usize).copied();
        // Subjects of one group of namespaces share the result, also if their namespaces differ.
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

    /// Returns the groups of some blocks, one for each length. Length 0 is a group too: an
    /// exception of everything leaves no address.
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
        // The members never change, so the order of membership changes does not matter. One role
        // serves all steps.
        self.id(
            key,
            GroupRole::Accepts,
            GroupMeaning::Nets(family, length, nets),
        )
    }

    /// Returns the number of a group. The registry is called once for each key and role.
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
