//! The compiled form of a cluster's policies, which decides, explains and is enforced.
//!
//! A *class* is a set of pods that no policy can tell apart; an *atom* is an interval of addresses
//! or ports that no rule tells apart. In the ordered tiers, rules of one direction are numbered in
//! order of precedence and are bits of rows: a subject's row has the rules of the policies that
//! select it, a peer's row the rules whose peers it is among, a port's row the rules that cover it.
//! The first bit of their conjunction is the rule that decides. The NetworkPolicy stage is a union
//! of a few rules for each namespace, so that it is kept as short lists.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;

use rustc_hash::FxHashMap;

use crate::id_set::{has_bit, ones};
use crate::model::{NodeId, PodId, PolicyId};
use crate::net::{Family, Protocol};
use crate::policy::{Action, Direction, Tier};
use crate::policy_index::PolicyIndex;

/// A rule that has an effect, by its place in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(pub u32);

/// A set of policies that isolate the same pods, by its place in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IsolationId(pub u32);

/// Addresses that no rule tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressAtom(pub(crate) u32);

/// Where a rule stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RulePlace {
    /// Its policy.
    pub policy: PolicyId,
    /// The direction of its list.
    pub direction: Direction,
    /// Its place in the list.
    pub index: u32,
}

/// The compiled policies of a cluster.
#[derive(Debug)]
pub struct Program {
    pub(crate) rules: Vec<Rule>,
    pub(crate) lists: Lists,
    pub(crate) classes: Vec<Class>,
    /// For each class the narrow pod sets it is in, ascending; `Class::sets` points here.
    pub(crate) narrow_sets: Vec<u32>,
    /// The wide pod sets, which many classes are in, ascending.
    pub(crate) wide_sets: Vec<u32>,
    /// What is known of each pod set without a look at its classes.
    pub(crate) hints: Vec<Hint>,
    /// For each class a bit for each wide set.
    pub(crate) wide: Rows,
    /// For each pod its class; `NONE` for pods that policies cannot select.
    pub(crate) pod_classes: Vec<u32>,
    /// The tables of the ordered tiers, by [`table_index`].
    pub(crate) tables: [Table; 4],
    /// What the NetworkPolicies that select a class say together, for each direction.
    pub(crate) unions: [Vec<Union>; 2],
    /// The rules of namespaces that have many, found by what they name.
    pub(crate) stages: Vec<PolicyIndex>,
    /// The policies that isolate, for each distinct set of them.
    pub(crate) isolations: Vec<Vec<PolicyId>>,
    /// For each pod set its relation to the subject, if it has one.
    pub(crate) set_relations: Vec<Option<u32>>,
    pub(crate) relations: Vec<Relation>,
    pub(crate) addresses: AddressAtoms,
    pub(crate) ports: PortAtoms,
    /// The port maps of pods: for a protocol and number, the names that rules may use for it.
    pub(crate) port_maps: Vec<PortMap>,
    /// The nodes that each `nodes` selector selects.
    pub(crate) node_sets: Vec<Vec<NodeId>>,
    /// Who has an address (D22).
    pub(crate) owners: Owners,
}

/// Who has an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// A live pod with a network of its own.
    Pod(PodId),
    /// A node, or a pod in its network; which node, if that object was given (D108).
    Node(Option<NodeId>),
}

/// Who has each address. The families are kept apart, since an address of IPv4 takes little room.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    v4: FxHashMap<u32, Owner>,
    v6: FxHashMap<u128, Owner>,
}

impl Owners {
    pub(crate) fn new(owners: FxHashMap<IpAddr, Owner>) -> Owners {
        let mut by_family = Owners::default();
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

/// Where a table of the ordered tiers stands in [`Program::tables`].
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

/// A rule that has an effect: in a line of cache.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Rule {
    pub(crate) place: RulePlace,
    pub(crate) action: Action,
    /// Anyone is a peer.
    pub(crate) any_peer: bool,
    /// The pod sets of its peers, in `Lists::sets`.
    pub(crate) sets: Slice,
    /// The runs of address atoms of its peers, in `Lists::blocks`.
    pub(crate) blocks: Slice,
    /// The node selectors of its peers, in `Lists::nodes`.
    pub(crate) nodes: Slice,
    /// Every port of every protocol matches.
    pub(crate) any_port: bool,
    /// For each port atom of a run the bit of its number's remainder by 64: what has no bit here
    /// is in no run.
    pub(crate) port_bits: u64,
    /// The runs of port atoms, in `Lists::ports`.
    pub(crate) ports: Slice,
    /// The ports by name, in `Lists::names`.
    pub(crate) names: Slice,
}

/// What rules point into.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    pub(crate) sets: Vec<u32>,
    pub(crate) blocks: Vec<(u32, u32)>,
    pub(crate) nodes: Vec<u32>,
    pub(crate) ports: Vec<(u32, u32)>,
    pub(crate) names: Vec<NamedPort>,
}

impl Lists {
    /// Gives back the room that is not used.
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

/// A class of pods: what a verdict needs, in a line of cache. Classes are in the order of their
/// namespaces.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Class {
    /// Its own number.
    pub(crate) id: u32,
    /// The rows of the rules that select it, for each table.
    pub(crate) subject_rows: [u32; 4],
    /// The rows of the rules whose peers it is among, for each table.
    pub(crate) peer_rows: [u32; 4],
    /// What the NetworkPolicies that select it say, for each direction; `NONE`: nothing.
    pub(crate) unions: [u32; 2],
    /// The default policies that isolate it, for each direction; `NONE`: none (D62).
    pub(crate) default_isolations: [u32; 2],
    pub(crate) namespace: u32,
    pub(crate) port_map: u32,
    /// Where the narrow pod sets it is in start; those of the next class follow.
    pub(crate) sets: u32,
}

/// What is known of a pod set without a look at its classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    /// It is narrow.
    Narrow,
    /// It is narrow, and all of its classes are of this namespace.
    Within(u32),
    /// It is wide, and this is its place among the wide ones.
    Wide(u32),
}

/// No row, union or isolation.
pub(crate) const NONE: u32 = u32::MAX;

/// The rules of an ordered tier for one direction.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// The rule of each bit, and what it does.
    pub(crate) rules: Vec<RuleId>,
    pub(crate) actions: Vec<Action>,
    pub(crate) subjects: Rows,
    pub(crate) peers: Rows,
    /// The rows of address atoms; rules for anyone have their bit in all of them.
    pub(crate) addresses: Rows,
    pub(crate) address_rows: Vec<u32>,
    pub(crate) nodes: Rows,
    pub(crate) node_rows: Vec<u32>,
    pub(crate) ports: Rows,
    pub(crate) port_rows: Vec<u32>,
    /// The rows of the entries of port maps, by [`PortMapEntry::row`].
    pub(crate) named: Rows,
    pub(crate) named_rows: Vec<u32>,
    /// The rules that have to be asked once more, because a peer depends on the subject.
    pub(crate) relative: Vec<u64>,
    /// The first bit after the rules of default policies: whoever they isolate gets no further.
    pub(crate) group_end: u32,
}

/// Rows of bits, all of one width. In tables, the row 0 has no bit set.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) words: usize,
    pub(crate) bits: Vec<u64>,
    /// For each row a bit for each of its words, set if the word is not zero; only for rows that are
    /// longer than [`LONG_ROW`].
    pub(crate) summaries: Vec<u64>,
}

/// The length in words up to which a row is read from end to end.
pub(crate) const LONG_ROW: usize = 32;

impl Rows {
    /// Rows without any bit.
    pub(crate) fn blank(words: usize, n_rows: usize) -> Rows {
        Rows {
            words,
            bits: vec![0; words * n_rows],
            summaries: Vec::new(),
        }
    }

    /// Which words of a row have a bit; nothing for rows that are not long.
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

/// What the NetworkPolicies that select a class say together.
#[derive(Debug)]
pub(crate) struct Union {
    /// In order of namespace, name and index (D137).
    pub(crate) rules: Vec<RuleId>,
    pub(crate) isolation: IsolationId,
    /// The index of the namespace's rules, if there are many; `NONE`: it has none.
    pub(crate) index: u32,
    /// Which rules of the index are those of the union.
    pub(crate) selected: Vec<u64>,
}

/// A relation between the namespaces of subject and peer.
#[derive(Clone, Debug)]
pub(crate) struct Relation {
    /// Whether they must agree, or differ.
    pub(crate) same: bool,
    /// For each namespace its group; `NONE` is never related to anything.
    pub(crate) groups: Vec<u32>,
}

impl Relation {
    pub(crate) fn holds(&self, subject: u32, peer: u32) -> bool {
        let group = |namespace: u32| self.groups.get(namespace as usize).copied();
        match (group(subject), group(peer)) {
            (Some(subject), Some(peer)) if subject != NONE && peer != NONE => {
                (subject == peer) == self.same
            }
            _ => false,
        }
    }
}

/// The names that a pod's ports have, as far as rules use them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortMap {
    /// Sorted by protocol and port.
    pub(crate) entries: Vec<PortMapEntry>,
}

/// A port that has names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortMapEntry {
    pub(crate) protocol: Protocol,
    pub(crate) port: NonZeroU16,
    pub(crate) names: Vec<u32>,
    /// The number of the entry among those of all port maps.
    pub(crate) number: u32,
}

impl PortMap {
    pub(crate) fn entry(&self, protocol: Protocol, port: NonZeroU16) -> Option<&PortMapEntry> {
        let entries = self.entries.iter();
        let mut found = entries.filter(|it| it.protocol == protocol && it.port == port);
        found.next()
    }
}

/// The atoms of addresses: those of IPv4 come first.
#[derive(Debug, Default)]
pub(crate) struct AddressAtoms {
    pub(crate) v4: Vec<u32>,
    pub(crate) v6: Vec<u128>,
}

impl AddressAtoms {
    pub(crate) fn of(&self, address: IpAddr) -> AddressAtom {
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

    /// The atoms with an address that a pod could have: not loopback, not multicast.
    pub(crate) fn possible(&self, family: Family) -> Vec<AddressAtom> {
        match family {
            Family::V4 => atoms_outside(&self.v4, u32::MAX, &IMPOSSIBLE_V4, 0),
            Family::V6 => atoms_outside(&self.v6, u128::MAX, &IMPOSSIBLE_V6, self.v4.len()),
        }
    }
}

impl AddressAtoms {
    /// Where the atoms of a family start, ascending.
    pub(crate) fn starts(&self, family: Family) -> Vec<u128> {
        match family {
            Family::V4 => self.v4.iter().copied().map(u128::from).collect(),
            Family::V6 => self.v6.clone(),
        }
    }

    /// The first and last addresses of what no pod and nobody outside could have.
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

/// Unspecified and loopback, IPv4 in disguise, and multicast.
const IMPOSSIBLE_V6: [(u128, u128); 3] = [
    (0, 1),
    (0xffff_0000_0000, 0xffff_ffff_ffff),
    (0xff << 120, u128::MAX),
];

/// The intervals that are not within one of the others, as atoms numbered from `before`.
fn atoms_outside<T: Copy + Ord + std::ops::Sub<Output = T> + From<u8>>(
    starts: &[T],
    last: T,
    others: &[(T, T)],
    before: usize,
) -> Vec<AddressAtom> {
    let ends = starts.iter().skip(1).map(|next| *next - T::from(1));
    let intervals = starts.iter().zip(ends.chain([last])).enumerate();
    let outside = intervals.filter(|(_, (start, end))| {
        let within = |(from, to): &(T, T)| *from <= **start && end <= to;
        !others.iter().any(within)
    });
    let atom = |index: usize| AddressAtom(u32::try_from(before + index).unwrap_or(NONE));
    outside.map(|(index, _)| atom(index)).collect()
}

/// The atoms of ports: TCP, UDP, SCTP, and one for everything without ports.
#[derive(Debug, Default)]
pub(crate) struct PortAtoms {
    pub(crate) starts: [Vec<u16>; 3],
}

impl PortAtoms {
    pub(crate) fn of(&self, protocol: Protocol, port: u16) -> u32 {
        let [tcp, udp, sctp] = &self.starts;
        let (before, starts) = match protocol {
            Protocol::Tcp => (0, tcp),
            Protocol::Udp => (tcp.len(), udp),
            Protocol::Sctp => (tcp.len() + udp.len(), sctp),
        };
        let atom = before + starts.partition_point(|start| *start <= port) - 1;
        u32::try_from(atom).unwrap_or(NONE)
    }

    /// The atom of everything that has no ports.
    pub(crate) fn portless(&self) -> u32 {
        let n_atoms: usize = self.starts.iter().map(Vec::len).sum();
        u32::try_from(n_atoms).unwrap_or(NONE)
    }

    /// The ports at which an atom of the protocol starts.
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
    /// Where a rule stands.
    pub fn place(&self, rule: RuleId) -> Option<RulePlace> {
        self.rules.get(rule.0 as usize).map(|rule| rule.place)
    }

    /// What a rule does.
    pub fn action(&self, rule: RuleId) -> Option<Action> {
        self.rules.get(rule.0 as usize).map(|rule| rule.action)
    }

    /// The policies that isolate together.
    pub fn isolation(&self, id: IsolationId) -> &[PolicyId] {
        self.isolations
            .get(id.0 as usize)
            .map_or(&[], Vec::as_slice)
    }

    /// Who has an address; `None`: someone outside the cluster (D22).
    pub fn owner(&self, address: IpAddr) -> Option<Owner> {
        self.owners.get(address)
    }

    /// The atom of an address.
    pub fn address_atom(&self, address: IpAddr) -> AddressAtom {
        self.addresses.of(address)
    }

    /// How many classes of pods, address atoms and port atoms the policies distinguish.
    pub fn size(&self) -> (usize, usize, usize) {
        let n_ports = self.ports.portless() as usize + 1;
        (self.classes.len(), self.addresses.len(), n_ports)
    }

    /// The class of a pod; `None`: policies cannot select it.
    pub(crate) fn class_id(&self, pod: PodId) -> Option<u32> {
        let class = self.pod_classes.get(pod.0 as usize).copied();
        class.filter(|class| *class != NONE)
    }

    pub(crate) fn class(&self, pod: PodId) -> Option<&Class> {
        self.classes
            .get(*self.pod_classes.get(pod.0 as usize)? as usize)
    }

    /// The narrow pod sets that a class is in, ascending.
    pub(crate) fn narrow_sets(&self, class: &Class) -> &[u32] {
        let next = self.classes.get(class.id as usize + 1);
        let end = next.map_or(self.narrow_sets.len(), |next| next.sets as usize);
        let sets = self.narrow_sets.get(class.sets as usize..end);
        sets.unwrap_or_default()
    }

    /// The pod sets that a class is in, narrow ones first.
    pub(crate) fn sets_of(&self, class: &Class) -> impl Iterator<Item = u32> + '_ {
        let wide = ones(self.wide.row(class.id));
        let wide = wide.filter_map(|column| self.wide_sets.get(column as usize).copied());
        self.narrow_sets(class).iter().copied().chain(wide)
    }

    /// Whether a class is in a pod set, its relation to the subject aside.
    pub(crate) fn is_in(&self, class: &Class, set: u32) -> bool {
        match self.hints.get(set as usize) {
            Some(Hint::Wide(column)) => has_bit(self.wide.row(class.id), *column),
            Some(Hint::Within(namespace)) if *namespace != class.namespace => false,
            _ => self.narrow_sets(class).binary_search(&set).is_ok(),
        }
    }

    pub(crate) fn port_map(&self, class: &Class) -> Option<&PortMap> {
        self.port_maps.get(class.port_map as usize)
    }
}
