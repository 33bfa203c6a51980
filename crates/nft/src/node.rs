//! Makes the ruleset of a node from its plan.
//!
//! A packet whose connection was evaluated under the current generation passes after one comparison
//! of the ct mark. Every other packet is evaluated on the tuple of its connection. In both
//! directions, it has the client before source translation and the server after destination
//! translation. The chain of the client's address comes first, if a pod of this node has it, and
//! then the chain of the server's. A packet continues only after an explicit accept: where a chain
//! ends without one, it is dropped. docs/internals/dataplane.md has the reasons.

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
pub use self::mark::MarkBits;
use crate::load::GENERATION_SET;
use crate::ruleset::{Field, Interface, Name, PacketEnd, Ruleset, Set, Value, Verdict};
pub use palisade_core::plan::Generation;

/// What a node's ruleset depends on, apart from its plan. [`Settings::of_node`] makes it for the
/// agent, and for tests and benchmarks of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The bits of the ct mark that Palisade uses.
    pub mark: MarkBits,
    /// The generation of the ruleset. A connection with another one is evaluated again.
    pub generation: Generation,
    /// How source addresses are checked (D147).
    pub senders: SenderChecks,
    /// Blocks whose addresses only pods of this node have. Traffic of an address in them that no
    /// known pod has is dropped (D84).
    pub pod_blocks: Vec<Cidr>,
    /// Whether connections from pods to this node itself are evaluated (D75).
    pub evaluate_own_node: bool,
    /// How established connections are treated after a change.
    pub established: EstablishedFlows,
    /// Untracked connections that the policies allow, such as those to a resolver on the node:
    /// client, server, IP protocol, port. The agent has no option for them.
    pub untracked: Vec<(IpAddr, IpAddr, u8, u16)>,
}

/// The options of an administrator for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeOptions {
    /// The bits of the ct mark that Palisade uses.
    pub mark: MarkBits,
    /// How source addresses are checked (D147).
    pub senders: SenderChecks,
    /// Blocks whose addresses only pods of this node have. Without any, addresses of unknown pods
    /// are not dropped (D84).
    pub pod_blocks: Vec<Cidr>,
    /// Whether connections from pods to this node itself are evaluated (D75).
    pub evaluate_own_node: bool,
    /// How established connections are treated after a change.
    pub established: EstablishedFlows,
}

impl Default for NodeOptions {
    fn default() -> NodeOptions {
        NodeOptions {
            mark: MarkBits::DEFAULT,
            senders: SenderChecks::default(),
            pod_blocks: Vec::new(),
            evaluate_own_node: true,
            established: EstablishedFlows::Evaluate,
        }
    }
}

/// How source addresses are checked (D147).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SenderChecks {
    /// A packet must arrive on the interface through which its source address is reached.
    Checked {
        /// The interfaces that do not lead to pods of this node. Requests and replies may take
        /// different paths there: any source address is accepted but that of a pod of this node.
        elsewhere: BTreeSet<Interface>,
        /// Whether packets on the fast path are checked as well. A ct mark belongs to the
        /// connection, and any sender can put a packet into that; but to check every packet costs
        /// more than all other rules for it.
        every: bool,
    },
    /// Source addresses are not checked.
    Trusted,
}

impl Default for SenderChecks {
    fn default() -> SenderChecks {
        SenderChecks::Checked {
            elsewhere: BTreeSet::new(),
            every: false,
        }
    }
}

/// How established connections are treated after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EstablishedFlows {
    /// Their next packet is evaluated by the new rules (D94).
    Evaluate,
    /// They go on until they end, whatever generation evaluated them. The caller must then clear
    /// the marks of connections of addresses that change hands, by
    /// [`Conntrack::delete_connections`](crate::Conntrack::delete_connections).
    Keep,
}

impl Settings {
    /// Returns the settings of a node. What the agent has no option for stays empty, in tests and
    /// benchmarks as well.
    pub fn of_node(generation: Generation, options: &NodeOptions) -> Settings {
        let NodeOptions {
            mark,
            senders,
            pod_blocks,
            evaluate_own_node,
            established,
        } = options;
        Settings {
            mark: *mark,
            generation,
            senders: senders.clone(),
            pod_blocks: pod_blocks.clone(),
            evaluate_own_node: *evaluate_own_node,
            established: *established,
            untracked: Vec::new(),
        }
    }

    /// Returns the interfaces that do not lead to pods of this node, or `None` if source addresses
    /// are not checked.
    pub(crate) fn elsewhere(&self) -> Option<BTreeSet<Interface>> {
        match &self.senders {
            SenderChecks::Checked { elsewhere, .. } => {
                // Packets of the node to itself arrive here, and a route to a local address leads
                // through no interface.
                let own = [Interface::LOOPBACK];
                Some(elsewhere.iter().copied().chain(own).collect())
            }
            SenderChecks::Trusted => None,
        }
    }

    /// Reports whether the table has the known addresses of pods.
    pub(crate) fn knows_pods(&self) -> bool {
        !self.pod_blocks.is_empty() || self.checks_senders()
    }

    /// Reports whether source addresses are checked.
    pub fn checks_senders(&self) -> bool {
        self.senders != SenderChecks::Trusted
    }

    /// Reports whether they are checked on the fast path as well.
    pub(crate) fn checks_every_sender(&self) -> bool {
        matches!(self.senders, SenderChecks::Checked { every: true, .. })
    }
}

/// The name of the table. An installation may use the other one.
pub const TABLE: &str = "palisade1a";

/// Makes the ruleset of a node.
pub fn ruleset(plan: &Plan, settings: &Settings) -> Ruleset {
    let mut chains = base_chains::verdicts(settings);
    // Verdict chains come first, since all others lead to them. Base chains come last: they are
    // hooked when everything else is there.
    rule_chains::chains(plan, &mut chains);
    chains.extend(base_chains::base_chains(settings));
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
    // An interval set is a tree, and expensive to have without need: it exists only while it has
    // elements.
    sets.extend(ranges.into_iter().filter(|set| !set.is_empty()));
    for set in &mut sets {
        // A hash table of fixed size refuses further elements. Room for as many again saves
        // replacing the whole table soon.
        set.size = capacity_for(set.len());
    }
    Ruleset {
        table: Name::word(TABLE),
        sets,
        chains,
    }
}

/// Returns the size that a set is created with for so many elements.
pub(crate) fn capacity_for(count: usize) -> u32 {
    const AT_LEAST: u32 = 64;
    u32::try_from(count.saturating_mul(2))
        .unwrap_or(u32::MAX)
        .max(AT_LEAST)
}

/// The names and keys of one family and direction.
pub(crate) struct ChainNames {
    /// The verdict map from a pod's address to its chain.
    pub(crate) map: &'static str,
    /// The set of selected pods, for the rules that fail closed.
    pub(crate) subjects: &'static str,
    /// The prefix of chains of pods.
    pub(crate) pod: &'static str,
    /// The prefix of rule chains.
    pub(crate) rule_chain: &'static str,
    /// The address of the subject.
    subject: PacketEnd,
    /// The address of the peer.
    peer: PacketEnd,
    /// The chain of an accept.
    allowed: &'static str,
}

/// Returns the names of a direction and family.
// Names of sets and chains are an interface: the layout version in the table's name changes with
// them.
pub(crate) fn chain_names(direction: Direction, family: Family) -> ChainNames {
    match (direction, family) {
        (Direction::Egress, Family::V4) => ChainNames {
            map: "egress4",
            subjects: "judged-egress4",
            pod: "from",
            rule_chain: "egress4",
            subject: PacketEnd::CtClient,
            peer: PacketEnd::CtServer,
            allowed: base_chains::EGRESS_ALLOWED,
        },
        (Direction::Egress, Family::V6) => ChainNames {
            map: "egress6",
            subjects: "judged-egress6",
            rule_chain: "egress6",
            ..chain_names(Direction::Egress, Family::V4)
        },
        (Direction::Ingress, Family::V4) => ChainNames {
            map: "ingress4",
            subjects: "judged-ingress4",
            pod: "to",
            rule_chain: "ingress4",
            subject: PacketEnd::CtServer,
            peer: PacketEnd::CtClient,
            allowed: base_chains::STAMP,
        },
        (Direction::Ingress, Family::V6) => ChainNames {
            map: "ingress6",
            subjects: "judged-ingress6",
            rule_chain: "ingress6",
            ..chain_names(Direction::Ingress, Family::V4)
        },
    }
}

/// Returns the name of the interval set with the address ranges of groups.
pub(crate) fn ranges_of(family: Family) -> &'static str {
    match family {
        Family::V4 => "ranges4",
        Family::V6 => "ranges6",
    }
}

/// Returns the name of the set with the addresses of groups.
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

/// Makes the set of all members: `group . address`.
fn members(plan: &Plan, family: Family) -> Set {
    // One relation for all groups instead of a set for each: the kernel finds a set by walking a
    // list. 10,000 sets took 5.6 s to load, one relation 0.19 s.
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

/// Makes the interval set of all ranges: `group . address`.
fn ranges(plan: &Plan, family: Family) -> Set {
    // The kernel compares keys byte by byte. A range of keys of one group is therefore a range of
    // addresses.
    let mut set = Set::ranges(Name::word(ranges_of(family)), range_fields(family));
    for (id, group) in &plan.groups {
        if group.kind == GroupKind::Ranges(family) {
            push_ranges(*id, &group.addresses, &mut set);
        }
    }
    set
}

/// Returns the fields of [`ranges_of`].
pub(crate) fn range_fields(family: Family) -> Vec<Field> {
    vec![Field::Number, Field::address(family)]
}

/// Adds the ranges of a group.
pub(crate) fn push_ranges(GroupId(group): GroupId, bounds: &[IpAddr], set: &mut Set) {
    let key = |address| [Value::Number(group), Value::Address(address)];
    for (first, behind) in palisade_core::plan::ranges(bounds) {
        let behind = behind.map(key);
        set.push_range(&key(first), behind.as_ref().map(|it| it.as_slice()));
    }
}

/// Makes the verdict map of selected pods, and the set for the rules that fail closed.
fn subjects(plan: &Plan, direction: Direction, family: Family) -> [Set; 2] {
    let names = chain_names(direction, family);
    // Both have the same addresses. A packet in old rules may meet a new map, whose chain is still
    // empty for that packet: the set then drops it.
    let fields = vec![Field::address(family)];
    let mut map = Set::map(Name::word(names.map), fields.clone());
    let mut set = Set::new(Name::word(names.subjects), fields);
    for (address, pod_chains) in pods_of(plan, family) {
        if pod_chains.chain(direction).is_some() {
            let key = [Value::Address(address)];
            map.push_verdict(&key, Verdict::Jump(Name::at(names.pod, address)));
            set.push(&key);
        }
    }
    [map, set]
}

fn addresses_of(addresses: &[IpAddr], family: Family) -> impl Iterator<Item = IpAddr> {
    let addresses = addresses.iter().copied();
    addresses.filter(move |address| Family::of(*address) == family)
}

/// Lists the addresses of the node's pods in a family, with the rule chains of each.
fn pods_of(plan: &Plan, family: Family) -> impl Iterator<Item = (IpAddr, PodChains)> + '_ {
    let pods = plan.pods.iter().map(|(address, it)| (*address, *it));
    pods.filter(move |(address, _)| Family::of(*address) == family)
}
