//! The compiled form of a cluster's policies, for verdicts, explanations and plans.
//!
//! A *class* is a set of pods that no policy distinguishes; an *atom* is an interval of addresses
//! or ports that no rule distinguishes. In the ordered tiers, the rules of one direction are
//! numbered in order of precedence and are bits of rows: a subject's row has the rules of the
//! policies that select it, a peer's row the rules that have it among their peers, a port's row the
//! rules that cover it. The first bit of their conjunction is the rule that decides. The
//! NetworkPolicy tier is a union of a few rules for each namespace: these are short lists.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;

use rustc_hash::FxHashMap;

use crate::id_set::{has_bit, ones};
use crate::model::{NodeId, PodId, PolicyId};
use crate::net::{Family, Protocol};
use crate::policy::{Action, Direction, Tier};
use crate::policy_index::PolicyIndex;

/// A rule that has an effect, by its index in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(pub u32);

/// A set of policies that isolate the same pods, by its index in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IsolationId(pub u32);

/// An interval of addresses that no rule distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressAtom(pub(crate) u32);

/// The position of a rule in its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RulePlace {
    /// The policy.
    pub policy: PolicyId,
    /// The list of rules: ingress or egress.
    pub direction: Direction,
    /// The index in the list.
    pub index: u32,
}

/// The compiled policies of a cluster.
#[derive(Debug)]
pub struct Program {
    pub(crate) rules: Vec<Rule>,
    pub(crate) lists: Lists,
    pub(crate) classes: Vec<Class>,
    /// For each class its narrow pod sets, ascending; `Class::sets` points here.
    pub(crate) narrow_sets: Vec<u32>,
    /// The wide pod sets, which contain many classes, ascending.
    pub(crate) wide_sets: Vec<u32>,
    /// What is known of each pod set without reading its classes.
    pub(crate) hints: Vec<Hint>,
    /// For each class a bit for each wide set.
    pub(crate) wide: Rows,
    /// For each pod its class; `NONE` for pods that policies cannot select.
    pub(crate) pod_classes: Vec<u32>,
    /// The tables of the ordered tiers, by [`table_index`].
    pub(crate) tables: [Table; 4],
    /// The unions of NetworkPolicies that select the same classes, for each direction.
    pub(crate) unions: [Vec<Union>; 2],
    /// The indexes of namespaces with many NetworkPolicy rules.
    pub(crate) policy_indexes: Vec<PolicyIndex>,
    /// The policies that isolate together, for each distinct set of them.
    pub(crate) isolations: Vec<Vec<PolicyId>>,
    /// For each pod set its relation to the subject, if it has one.
    pub(crate) set_relations: Vec<Option<u32>>,
    pub(crate) relations: Vec<Relation>,
    pub(crate) addresses: AddressAtoms,
    pub(crate) ports: PortAtoms,
    /// The port maps of pods: for a protocol and number, the names that rules use for it.
    pub(crate) port_maps: Vec<PortMap>,
    /// The nodes that each `nodes` selector selects.
    pub(crate) node_sets: Vec<Vec<NodeId>>,
    /// The owner of each address (D22).
    pub(crate) owners: Owners,
}

/// The owner of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// A live pod with a network of its own.
    Pod(PodId),
    /// A node or a pod in its network; the node, if its object is in the input (D108).
    Node(Option<NodeId>),
}

/// The owner of each address, by family.
// An entry for IPv4 is half as large with its own map: with `IpAddr` as key every address would
// take the room of IPv6.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    v4: FxHashMap<u32, Owner>,
    v6: FxHashMap<u128, Owner>,
}

impl Owners {
    pub(crate) fn new(owners: FxHashMap<IpAddr, Owner>) -> Owners {
        let mut by_family = Owners::default();
        // Counted first: in a large cluster each growth of a map would move all owners.
        let is_v4 = |address: &&IpAddr| address.to_canonical().is_ipv4();
        by_family.v4.reserve(owners.keys().filter(is_v4).count());
        for (address, owner) in owners {
            match address.to_canonical() {
                IpAddr::V4(address) => by_family.v4.insert(address.to_bits(), owner),
                IpAddr::V6(address) => by_family.v6.insert(address.to_bits(), owner),
            };
        }
        by_family
    }

    pub(crate) fn get(&self, address: IpAddr) -> Option<Owner> {
        match address.to_canonical() {
            IpAddr::V4(address) => self.v4.get(&address.to_bits()).copied(),
            IpAddr::V6(address) => self.v6.get(&address.to_bits()).copied(),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (IpAddr, Owner)> + '_ {
        let v4 = self.v4.iter();
        let v4 = v4.map(|(bits, owner)| (IpAddr::V4(Ipv4Addr::from_bits(*bits)), *owner));
        let v6 = self.v6.iter();
        let v6 = v6.map(|(bits, owner)| (IpAddr::V6(Ipv6Addr::from_bits(*bits)), *owner));
        v4.chain(v6)
    }
}

/// Returns the index of a table of the ordered tiers in [`Program::tables`].
pub(crate) fn table_index(tier: Tier, direction: Direction) -> usize {
    let tier = match tier {
        Tier::Admin => 0,
        Tier::Baseline => 2,
    };
    tier + direction_index(direction)
}

pub(crate) fn direction_index(direction: Direction) -> usize {
    match direction {
        Direction::Ingress => 0,
        Direction::Egress => 1,
    }
}

/// A rule that has an effect.
// 64 bytes: verdicts read rules in no order, and aligned each is one cache line. Lists of any
// length are elsewhere, in `Lists`.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Rule {
    pub(crate) place: RulePlace,
    pub(crate) action: Action,
    /// Whether every peer matches.
    pub(crate) any_peer: bool,
    /// The pod sets of the peers, in `Lists::sets`.
    pub(crate) sets: Slice,
    /// The runs of address atoms of the peers, in `Lists::blocks`.
    pub(crate) blocks: Slice,
    /// The node selectors of the peers, in `Lists::nodes`.
    pub(crate) nodes: Slice,
    /// Whether every port of every protocol matches.
    pub(crate) any_port: bool,
    /// For each port atom of a run the bit of its number modulo 64. A port atom without a bit here
    /// is in no run.
    pub(crate) port_bits: u64,
    /// The runs of port atoms, in `Lists::ports`.
    pub(crate) ports: Slice,
    /// The ports by name, in `Lists::names`.
    pub(crate) names: Slice,
}

/// The lists that rules point into.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    pub(crate) sets: Vec<u32>,
    pub(crate) blocks: Vec<(u32, u32)>,
    pub(crate) nodes: Vec<u32>,
    pub(crate) ports: Vec<(u32, u32)>,
    pub(crate) names: Vec<NamedPort>,
}

impl Lists {
    /// Frees unused capacity.
    pub(crate) fn shrink(&mut self) {
        self.sets.shrink_to_fit();
        self.blocks.shrink_to_fit();
        self.nodes.shrink_to_fit();
        self.ports.shrink_to_fit();
        self.names.shrink_to_fit();
    }
}

/// A port by name, as a rule has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NamedPort {
    pub(crate) name: u32,
    pub(crate) protocol: Option<Protocol>,
}

/// A run of entries in a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Slice {
    pub(crate) fn of<T>(self, list: &[T]) -> &[T] {
        list.get(self.start as usize..self.end as usize)
            .unwrap_or_default()
    }
}

/// A class of pods. Classes are in the order of their namespaces.
// 64 bytes: a verdict reads two classes of a large array, and aligned each is one cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Class {
    /// The index of the class.
    pub(crate) id: u32,
    /// The rows of the rules whose policies select the class, for each table.
    pub(crate) subject_rows: [u32; 4],
    /// The rows of the rules that have the class among their peers, for each table.
    pub(crate) peer_rows: [u32; 4],
    /// The union of the NetworkPolicies that select the class, for each direction; `NONE`: not
    /// isolated.
    pub(crate) unions: [u32; 2],
    /// The default policies that isolate the class, for each direction; `NONE`: none (D62).
    pub(crate) default_isolations: [u32; 2],
    pub(crate) namespace: u32,
    pub(crate) port_map: u32,
    /// The start of the class's narrow pod sets; those of the next class follow.
    pub(crate) sets: u32,
}

/// What is known of a pod set without reading its classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    /// The set is narrow: it contains few classes.
    Narrow,
    /// The set is narrow, and all of its classes are of this namespace.
    Within(u32),
    /// The set is wide, and this is its column.
    Wide(u32),
}

/// No row, union or isolation.
// Not an `Option`, which would double the size; as an index it is past the end of every list.
pub(crate) const NONE: u32 = u32::MAX;

/// The rules of an ordered tier for one direction.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// The rule of each bit.
    pub(crate) rules: Vec<RuleId>,
    pub(crate) actions: Vec<Action>,
    pub(crate) subjects: Rows,
    pub(crate) peers: Rows,
    /// The rows of address atoms; rules for every peer have their bit in all of them.
    pub(crate) addresses: Rows,
    pub(crate) address_rows: Vec<u32>,
    pub(crate) nodes: Rows,
    pub(crate) node_rows: Vec<u32>,
    pub(crate) ports: Rows,
    pub(crate) port_rows: Vec<u32>,
    /// The rows of the entries of port maps, by [`PortMapEntry::number`].
    pub(crate) named: Rows,
    pub(crate) named_rows: Vec<u32>,
    /// The rules with a peer that depends on the subject: a bit of a row is not enough.
    pub(crate) relative: Vec<u64>,
    /// The first bit after the rules of default policies; pods that these isolate get no further.
    pub(crate) group_end: u32,
}

/// Rows of bits, all of one width. In tables, row 0 has no bit set.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) words: usize,
    pub(crate) bits: Vec<u64>,
    /// For each row a bit for each of its words, set if the word is not zero; only for rows that
    /// are longer than [`LONG_ROW`].
    pub(crate) summaries: Vec<u64>,
}

/// The length in words up to which a row is read from end to end.
// 32 words are 2,048 rules and four cache lines. The API allows 25,000 rules in a tier, which are
// 391 words: with summaries a verdict reads a few of them.
pub(crate) const LONG_ROW: usize = 32;

impl Rows {
    /// Creates rows without any bit.
    pub(crate) fn blank(words: usize, n_rows: usize) -> Rows {
        Rows {
            words,
            bits: vec![0; words * n_rows],
            summaries: Vec::new(),
        }
    }

    /// Returns which words of a row have a bit; empty for rows that are not long.
    pub(crate) fn summary(&self, id: u32) -> &[u64] {
        let words = self.words.div_ceil(64);
        let start = id as usize * words;
        self.summaries.get(start..start + words).unwrap_or_default()
    }

    pub(crate) fn row(&self, id: u32) -> &[u64] {
        let start = id as usize * self.words;
        self.bits.get(start..start + self.words).unwrap_or_default()
    }
}

/// The NetworkPolicies that select a class in one direction, together.
#[derive(Debug)]
pub(crate) struct Union {
    /// The rules, by namespace, name and index (D137).
    pub(crate) rules: Vec<RuleId>,
    pub(crate) isolation: IsolationId,
    /// The index of the namespace's rules, if there are many; `NONE`: no index.
    pub(crate) index: u32,
    /// The rules of the index that are in the union.
    pub(crate) selected: Vec<u64>,
}

/// A relation between the namespaces of subject and peer.
#[derive(Clone, Debug)]
pub(crate) struct Relation {
    /// Whether related namespaces must be of one group, or of different ones.
    pub(crate) same: bool,
    /// For each namespace its group; `NONE` is never related to any.
    pub(crate) groups: Vec<u32>,
}

impl Relation {
    pub(crate) fn holds(&self, subject: u32, peer: u32) -> bool {
        let group = |namespace: u32| self.groups.get(namespace as usize).copied();
        match (group(subject), group(peer)) {
            // A namespace that lacks a key is neither the same nor different (D46, D47).
            (Some(subject), Some(peer)) if subject != NONE && peer != NONE => {
                (subject == peer) == self.same
            }
            _ => false,
        }
    }
}

/// The names of a pod's ports that rules use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortMap {
    /// The ports, by protocol and number.
    pub(crate) entries: Vec<PortMapEntry>,
}

/// A port that has names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortMapEntry {
    pub(crate) protocol: Protocol,
    pub(crate) port: NonZeroU16,
    pub(crate) names: Vec<u32>,
    /// The index of the entry among those of all port maps.
    pub(crate) number: u32,
}

impl PortMap {
    pub(crate) fn entry(&self, protocol: Protocol, port: NonZeroU16) -> Option<&PortMapEntry> {
        let entries = self.entries.iter();
        // A pod has few named ports: a linear search is enough.
        let mut found = entries.filter(|it| it.protocol == protocol && it.port == port);
        found.next()
    }
}

/// The atoms of addresses: IPv4 first, then IPv6.
#[derive(Debug, Default)]
pub(crate) struct AddressAtoms {
    pub(crate) v4: Vec<u32>,
    pub(crate) v6: Vec<u128>,
}

impl AddressAtoms {
    pub(crate) fn of(&self, address: IpAddr) -> AddressAtom {
        // Every list starts with 0, and an address is at or after one start: the subtraction cannot
        // overflow.
        let atom = match address.to_canonical() {
            IpAddr::V4(address) => {
                let bits = address.to_bits();
                self.v4.partition_point(|start| *start <= bits) - 1
            }
            IpAddr::V6(address) => {
                let bits = address.to_bits();
                self.v4.len() + self.v6.partition_point(|start| *start <= bits) - 1
            }
        };
        AddressAtom(u32::try_from(atom).unwrap_or(NONE))
    }

    pub(crate) fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Returns the atoms with an address that a pod could have: not loopback, not multicast.
    pub(crate) fn possible(&self, family: Family) -> Vec<AddressAtom> {
        match family {
            Family::V4 => atoms_outside(&self.v4, u32::MAX, &IMPOSSIBLE_V4, 0),
            Family::V6 => atoms_outside(&self.v6, u128::MAX, &IMPOSSIBLE_V6, self.v4.len()),
        }
    }
}

impl AddressAtoms {
    /// Returns the starts of the atoms of a family, ascending.
    pub(crate) fn starts(&self, family: Family) -> Vec<u128> {
        match family {
            Family::V4 => self.v4.iter().copied().map(u128::from).collect(),
            Family::V6 => self.v6.clone(),
        }
    }

    /// Returns the ranges of addresses that no endpoint can have, by first and last address.
    pub(crate) fn impossible(family: Family) -> Vec<(u128, u128)> {
        match family {
            Family::V4 => IMPOSSIBLE_V4
                .map(|(from, to)| (u128::from(from), u128::from(to)))
                .to_vec(),
            Family::V6 => IMPOSSIBLE_V6.to_vec(),
        }
    }
}

/// This network, loopback, and everything from multicast on.
const IMPOSSIBLE_V4: [(u32, u32); 3] = [
    (0, 0x00ff_ffff),
    (0x7f00_0000, 0x7fff_ffff),
    (0xe000_0000, u32::MAX),
];

/// Unspecified and loopback, IPv4-mapped addresses, and multicast.
const IMPOSSIBLE_V6: [(u128, u128); 3] = [
    (0, 1),
    (0xffff_0000_0000, 0xffff_ffff_ffff),
    (0xff << 120, u128::MAX),
];

/// Returns the intervals that are not inside one of the others, as atoms numbered from `before`.
fn atoms_outside<T: Copy + Ord + std::ops::Sub<Output = T> + From<u8>>(
    starts: &[T],
    last: T,
    others: &[(T, T)],
    before: usize,
) -> Vec<AddressAtom> {
    let ends = starts.iter().skip(1).map(|next| *next - T::from(1));
    let intervals = starts.iter().zip(ends.chain([last])).enumerate();
    let outside = intervals.filter(|(_, (start, end))| {
        // An atom that is only partly impossible has an address that a pod could have.
        let within = |(from, to): &(T, T)| *from <= **start && end <= to;
        !others.iter().any(within)
    });
    let atom = |index: usize| AddressAtom(u32::try_from(before + index).unwrap_or(NONE));
    outside.map(|(index, _)| atom(index)).collect()
}

/// The atoms of ports: TCP, UDP, SCTP, and one for all protocols without ports.
#[derive(Debug, Default)]
pub(crate) struct PortAtoms {
    pub(crate) starts: [Vec<u16>; 3],
}

impl PortAtoms {
    pub(crate) fn of(&self, protocol: Protocol, port: u16) -> u32 {
        let [tcp, udp, sctp] = &self.starts;
        // Port atoms of all protocols are numbered together, and 0 starts every list.
        let (before, starts) = match protocol {
            Protocol::Tcp => (0, tcp),
            Protocol::Udp => (tcp.len(), udp),
            Protocol::Sctp => (tcp.len() + udp.len(), sctp),
        };
        let atom = before + starts.partition_point(|start| *start <= port) - 1;
        u32::try_from(atom).unwrap_or(NONE)
    }

    /// Returns the atom of all protocols without ports.
    pub(crate) fn portless(&self) -> u32 {
        let n_atoms: usize = self.starts.iter().map(Vec::len).sum();
        u32::try_from(n_atoms).unwrap_or(NONE)
    }

    /// Returns the ports at which an atom of the protocol starts.
    pub(crate) fn starts(&self, protocol: Protocol) -> &[u16] {
        let [tcp, udp, sctp] = &self.starts;
        match protocol {
            Protocol::Tcp => tcp,
            Protocol::Udp => udp,
            Protocol::Sctp => sctp,
        }
    }
}

impl Program {
    /// Returns the position of a rule in its object.
    pub fn place(&self, rule: RuleId) -> Option<RulePlace> {
        self.rules.get(rule.0 as usize).map(|rule| rule.place)
    }

    /// Returns the action of a rule.
    pub fn action(&self, rule: RuleId) -> Option<Action> {
        self.rules.get(rule.0 as usize).map(|rule| rule.action)
    }

    /// Returns the policies that isolate together.
    pub fn isolation(&self, id: IsolationId) -> &[PolicyId] {
        self.isolations
            .get(id.0 as usize)
            .map_or(&[], Vec::as_slice)
    }

    /// Returns the owner of an address; `None`: outside the cluster (D22).
    pub fn owner(&self, address: IpAddr) -> Option<Owner> {
        self.owners.get(address)
    }

    /// Returns the atom of an address.
    pub fn address_atom(&self, address: IpAddr) -> AddressAtom {
        self.addresses.of(address)
    }

    /// Returns the number of classes of pods, address atoms and port atoms.
    pub fn size(&self) -> (usize, usize, usize) {
        let n_ports = self.ports.portless() as usize + 1;
        (self.classes.len(), self.addresses.len(), n_ports)
    }

    /// Returns the class of a pod; `None`: policies cannot select it.
    pub(crate) fn class_id(&self, pod: PodId) -> Option<u32> {
        let class = self.pod_classes.get(pod.0 as usize).copied();
        class.filter(|class| *class != NONE)
    }

    pub(crate) fn class(&self, pod: PodId) -> Option<&Class> {
        self.classes
            .get(*self.pod_classes.get(pod.0 as usize)? as usize)
    }

    /// Returns the rules of a direction whose policies select a class.
    pub(crate) fn rules_selecting(&self, class: &Class, direction: Direction) -> Vec<RuleId> {
        let mut rules = Vec::new();
        for tier in [Tier::Admin, Tier::Baseline] {
            let table = self.table(tier, direction);
            let row = class.subject_rows.get(table_index(tier, direction));
            let bits = ones(table.subjects.row(row.copied().unwrap_or(0)));
            rules.extend(bits.filter_map(|bit| table.rules.get(bit as usize)));
        }
        let index = direction_index(direction);
        let union = class.unions.get(index).copied();
        let union = union.and_then(|id| self.unions.get(index)?.get(id as usize));
        rules.extend(union.into_iter().flat_map(|it| &it.rules));
        rules
    }

    /// Returns the narrow pod sets of a class, ascending.
    pub(crate) fn narrow_sets(&self, class: &Class) -> &[u32] {
        // No end is stored: the sets of the next class start there, and the class stays in one
        // cache line.
        let next = self.classes.get(class.id as usize + 1);
        let end = next.map_or(self.narrow_sets.len(), |next| next.sets as usize);
        let sets = self.narrow_sets.get(class.sets as usize..end);
        sets.unwrap_or_default()
    }

    /// Returns the pod sets of a class, narrow ones first.
    pub(crate) fn sets_of(&self, class: &Class) -> impl Iterator<Item = u32> + '_ {
        let wide = ones(self.wide.row(class.id));
        let wide = wide.filter_map(|column| self.wide_sets.get(column as usize).copied());
        self.narrow_sets(class).iter().copied().chain(wide)
    }

    /// Returns whether a class is in a pod set, regardless of a relation to the subject.
    pub(crate) fn is_in(&self, class: &Class, set: u32) -> bool {
        match self.hints.get(set as usize) {
            Some(Hint::Wide(column)) => has_bit(self.wide.row(class.id), *column),
            // Most sets are of NetworkPolicies and of one namespace: no search for classes of
            // others.
            Some(Hint::Within(namespace)) if *namespace != class.namespace => false,
            _ => self.narrow_sets(class).binary_search(&set).is_ok(),
        }
    }

    pub(crate) fn port_map(&self, class: &Class) -> Option<&PortMap> {
        self.port_maps.get(class.port_map as usize)
    }
}
