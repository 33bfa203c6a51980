//! From the plan of a node to its ruleset.
//!
//! A packet of a connection that was judged under the current generation passes by one comparison
//! of the connection's mark. Every other packet is judged on the tuple of its connection, which has
//! the client before translation of the source and the server after translation of the
//! destination, in both directions alike: first by the chain of the client's address, if a pod of
//! this node has it, then by the chain of the server's. Only a chain that said yes leads further;
//! whoever falls off the end of one is dropped. docs/dataplane.md has the reasons.

pub(crate) mod base_chains;
mod boot;
mod mark;
pub(crate) mod rule_chains;
pub(crate) mod senders;
pub(crate) mod unions;

use std::collections::BTreeSet;
use std::net::IpAddr;

use palisade_core::net::{Cidr, Family};
use palisade_core::plan::{Group, GroupId, GroupKind, Plan, PodChains};
use palisade_core::policy::Direction;

pub use self::boot::closed;
pub use self::mark::{Generation, MarkBits};
use crate::load::GENERATION_SET;
use crate::ruleset::{Field, Interface, Name, PacketEnd, Ruleset, Set, Value, Verdict};

/// What a node's ruleset depends on beside its plan. [`Settings::of_node`] makes it, for the agent and
/// for whoever tests or measures what the agent does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The bits of the connection's mark that are ours.
    pub mark: MarkBits,
    /// The generation of the policies: connections that were judged under another one are judged
    /// anew.
    pub generation: Generation,
    /// Whether senders are who they say (D147).
    pub senders: Senders,
    /// Blocks that only pods of this node have addresses of: addresses in them that no known pod has
    /// are dropped (D84).
    pub pod_blocks: Vec<Cidr>,
    /// Whether connections from pods to this node itself are judged (D75).
    pub judge_own_node: bool,
    /// What becomes of connections that were allowed when something changes.
    pub established: Established,
    /// Connections that are not tracked, as those to a resolver on the node may be, and that the
    /// policies allow: client, server, IP protocol, port. The agent cannot be told of them.
    pub untracked: Vec<(IpAddr, IpAddr, u8, u16)>,
}

/// What an administrator chooses for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeOptions {
    /// The bits of the connection's mark that are ours.
    pub mark: MarkBits,
    /// Whether senders are who they say (D147).
    pub senders: Senders,
    /// Blocks that only pods of this node have addresses of; none: addresses of unknown pods are
    /// not dropped (D84).
    pub pod_blocks: Vec<Cidr>,
    /// Whether connections from pods to this node itself are judged (D75).
    pub judge_own_node: bool,
    /// What becomes of connections that were allowed when something changes.
    pub established: Established,
}

impl Default for NodeOptions {
    fn default() -> NodeOptions {
        NodeOptions {
            mark: MarkBits::DEFAULT,
            senders: Senders::default(),
            pod_blocks: Vec::new(),
            judge_own_node: true,
            established: Established::Judge,
        }
    }
}

/// Whether senders are who they say (D147).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Senders {
    /// A packet must come from the interface that its sender's address is reached by.
    Checked {
        /// The interfaces that do not lead to pods of this node, where what goes and what comes may take different
        /// ways: from there any address may come that no pod of this node has.
        elsewhere: BTreeSet<Interface>,
        /// Whether packets of judged connections are asked, too. A connection's mark does not say who put a packet
        /// into it; but asking every packet costs more than everything else that is asked of it.
        every: bool,
    },
    /// Nobody asks.
    Trusted,
}

impl Default for Senders {
    fn default() -> Senders {
        Senders::Checked {
            elsewhere: BTreeSet::new(),
            every: false,
        }
    }
}

/// What becomes of connections that were allowed when something changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Established {
    /// Their next packet is judged by what holds now (D94).
    Judge,
    /// They go on until they end, whatever generation they were judged under. Whoever asks for this has to take the
    /// marks from connections of addresses that change hands, by
    /// [`Conntrack::forget_addresses`](crate::Conntrack::forget_addresses).
    Keep,
}

impl Settings {
    /// The settings of a node. What the agent cannot be told is not set here, so that tests and
    /// benchmarks do not have it either.
    pub fn of_node(generation: Generation, options: &NodeOptions) -> Settings {
        let NodeOptions {
            mark,
            senders,
            pod_blocks,
            judge_own_node,
            established,
        } = options;
        Settings {
            mark: *mark,
            generation,
            senders: senders.clone(),
            pod_blocks: pod_blocks.clone(),
            judge_own_node: *judge_own_node,
            established: *established,
            untracked: Vec::new(),
        }
    }

    /// The interfaces from where any address may come that no pod of this node has; `None`: senders are not
    /// checked at all.
    pub(crate) fn elsewhere(&self) -> Option<BTreeSet<Interface>> {
        match &self.senders {
            Senders::Checked { elsewhere, .. } => {
                // What a node says to itself has no way back that leads through an interface.
                let own = [Interface::LOOPBACK];
                Some(elsewhere.iter().copied().chain(own).collect())
            }
            Senders::Trusted => None,
        }
    }

    /// Whether the table says which addresses pods of the node have.
    pub(crate) fn knows_pods(&self) -> bool {
        !self.pod_blocks.is_empty() || self.checks_senders()
    }

    /// Whether senders are checked.
    pub fn checks_senders(&self) -> bool {
        self.senders != Senders::Trusted
    }

    /// Whether they are checked for packets of judged connections as well.
    pub(crate) fn checks_every_sender(&self) -> bool {
        matches!(self.senders, Senders::Checked { every: true, .. })
    }
}

/// The table, unless the loader chooses the other name.
pub const TABLE: &str = "palisade1a";

/// The ruleset of a node.
pub fn ruleset(plan: &Plan, settings: &Settings) -> Ruleset {
    let mut chains = base_chains::verdicts(settings);
    rule_chains::chains(plan, &mut chains);
    chains.extend(base_chains::hooked(settings));
    let mut sets = vec![generation(settings)];
    for family in Family::BOTH {
        sets.push(members(plan, family));
        for direction in Direction::BOTH {
            sets.extend(subjects(plan, direction, family));
        }
    }
    sets.extend(base_chains::sets(plan, settings));
    sets.extend(unions::sets(plan));
    let ranges = Family::BOTH.map(|family| ranges(plan, family));
    sets.extend(ranges.into_iter().filter(|set| !set.is_empty()));
    for set in &mut sets {
        // A hash table of fixed size refuses what is over it, so that there is room for as many again.
        set.size = capacity_for(set.len());
    }
    Ruleset {
        table: Name::word(TABLE),
        sets,
        chains,
    }
}

/// The size of a set that has so many elements when it is made.
pub(crate) fn capacity_for(count: usize) -> u32 {
    const AT_LEAST: u32 = 64;
    u32::try_from(count.saturating_mul(2))
        .unwrap_or(u32::MAX)
        .max(AT_LEAST)
}

/// The words of one family and direction.
pub(crate) struct ChainNames {
    /// The map from a pod's address to its chain.
    pub(crate) map: &'static str,
    /// The pods that are subjects, for the checks that fail closed.
    pub(crate) subjects: &'static str,
    /// The chain of a pod.
    pub(crate) pod: &'static str,
    /// The chains of a body, and their maps.
    pub(crate) body: &'static str,
    /// Which end of a connection the subject is.
    subject: PacketEnd,
    /// And which the other.
    peer: PacketEnd,
    /// The chain that a yes leads to.
    allowed: &'static str,
}

pub(crate) fn words(direction: Direction, family: Family) -> ChainNames {
    match (direction, family) {
        (Direction::Egress, Family::V4) => ChainNames {
            map: "egress4",
            subjects: "judged-egress4",
            pod: "from",
            body: "egress4",
            subject: PacketEnd::CtClient,
            peer: PacketEnd::CtServer,
            allowed: base_chains::EGRESS_ALLOWED,
        },
        (Direction::Egress, Family::V6) => ChainNames {
            map: "egress6",
            subjects: "judged-egress6",
            body: "egress6",
            ..words(Direction::Egress, Family::V4)
        },
        (Direction::Ingress, Family::V4) => ChainNames {
            map: "ingress4",
            subjects: "judged-ingress4",
            pod: "to",
            body: "ingress4",
            subject: PacketEnd::CtServer,
            peer: PacketEnd::CtClient,
            allowed: base_chains::STAMP,
        },
        (Direction::Ingress, Family::V6) => ChainNames {
            map: "ingress6",
            subjects: "judged-ingress6",
            body: "ingress6",
            ..words(Direction::Ingress, Family::V4)
        },
    }
}

/// The set that tells which ranges of addresses are in which group.
pub(crate) fn ranges_of(family: Family) -> &'static str {
    match family {
        Family::V4 => "ranges4",
        Family::V6 => "ranges6",
    }
}

/// The set that tells which addresses are in which group.
pub(crate) fn membership(family: Family) -> &'static str {
    match family {
        Family::V4 => "members4",
        Family::V6 => "members6",
    }
}

fn generation(settings: &Settings) -> Set {
    let mut set = Set::new(Name::word(GENERATION_SET), vec![Field::Number]);
    set.push(&[Value::Number(settings.generation.get().into())]);
    set
}

/// One relation for all groups: the kernel finds a set by walking a list of all sets.
fn members(plan: &Plan, family: Family) -> Set {
    let fields = vec![Field::Number, Field::address(family)];
    let mut set = Set::new(Name::word(membership(family)), fields);
    let hosts = |it: &(&GroupId, &Group)| !matches!(it.1.kind, GroupKind::Ranges(_));
    for (id, group) in plan.groups.iter().filter(hosts) {
        for address in addresses_of(&group.addresses, family) {
            set.push(&[Value::Number(id.0), Value::Address(address)]);
        }
    }
    set
}

/// One relation for all groups of ranges as well. Keys are compared as bytes, so that a range of keys of one group is a
/// range of addresses.
fn ranges(plan: &Plan, family: Family) -> Set {
    let mut set = Set::ranges(Name::word(ranges_of(family)), range_fields(family));
    for (id, group) in &plan.groups {
        if group.kind == GroupKind::Ranges(family) {
            push_ranges(*id, &group.addresses, &mut set);
        }
    }
    set
}

/// The fields of [`ranges_of`].
pub(crate) fn range_fields(family: Family) -> Vec<Field> {
    vec![Field::Number, Field::address(family)]
}

/// Adds the ranges that a group has.
pub(crate) fn push_ranges(GroupId(group): GroupId, bounds: &[IpAddr], set: &mut Set) {
    let key = |address| [Value::Number(group), Value::Address(address)];
    for (first, behind) in palisade_core::plan::ranges(bounds) {
        let behind = behind.map(key);
        set.push_range(&key(first), behind.as_ref().map(|it| it.as_slice()));
    }
}

/// The pods that are subjects in a direction: with their chains, and once more for the checks.
fn subjects(plan: &Plan, direction: Direction, family: Family) -> [Set; 2] {
    let words = words(direction, family);
    let fields = vec![Field::address(family)];
    let mut map = Set::map(Name::word(words.map), fields.clone());
    let mut set = Set::new(Name::word(words.subjects), fields);
    for (address, faced) in pods_of(plan, family) {
        if faced.body(direction).is_some() {
            let key = [Value::Address(address)];
            map.push_verdict(&key, Verdict::Jump(Name::at(words.pod, address)));
            set.push(&key);
        }
    }
    [map, set]
}

fn addresses_of(addresses: &[IpAddr], family: Family) -> impl Iterator<Item = IpAddr> {
    let addresses = addresses.iter().copied();
    addresses.filter(move |address| Family::of(*address) == family)
}

/// The addresses of a family that pods of the node have.
fn pods_of(plan: &Plan, family: Family) -> impl Iterator<Item = (IpAddr, PodChains)> + '_ {
    let pods = plan.pods.iter().map(|(address, faced)| (*address, *faced));
    pods.filter(move |(address, _)| Family::of(*address) == family)
}
