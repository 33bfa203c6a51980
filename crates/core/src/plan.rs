//! What one node must enforce: the program, as it applies to the pods of the node.
//!
//! A plan is the input of a dataplane: ordered steps over groups of addresses, protocols and ports.
//! It does not depend on a kernel. Every step is a rule of the program for one subject: the
//! dataplane enforces what the program decides.

mod change;
mod generation;
mod groups;
mod merge;
mod named;
mod planner;
mod ports;
mod ranges;
mod registry;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

pub use self::change::PlanChange;
pub use self::generation::Generation;
pub(crate) use self::named::{Bounds, SubsetId, SubsetKey, contains};
pub(crate) use self::planner::{AfterAdmin, Planner};
pub use self::planner::{plan, plan_merging};
pub use self::ports::PortBlock;
pub(crate) use self::ports::port_blocks;
pub(crate) use self::registry::{GroupKey, GroupMeaning, GroupRegistry, GroupRole};
use crate::net::{Family, PortRange, Protocol};
use crate::policy::{Action, Direction, Verdict};
use crate::program::RuleId;

/// The default for the number of steps up to which a union is evaluated step by step. A larger
/// union, and one whose steps have more than four times as many conditions, is merged into sets.
// A step keeps a counter of its own, and compares protocol and port before any lookup. A merged
// union is at most 19 rules for a packet, whatever the policies say, but nearly all are lookups.
pub const MERGE_OVER: usize = 8;

/// The default for the number of members from which groups of the same members become one.
// Sharing smaller groups would save little, and each time such groups come to differ, the rule
// chains that name them have to be written again.
pub const SHARE_FROM: usize = 16;

/// The number of a group of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// The number of a rule chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleChainId(pub u32);

/// Everything that one node must enforce.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The groups that steps name.
    pub groups: BTreeMap<GroupId, Group>,
    /// The rule chains. Pods with the same rules share one.
    pub chains: BTreeMap<RuleChainId, Arc<RuleChain>>,
    /// The addresses of the node's pods that no other pod owns (D82), and their rule chains.
    pub pods: BTreeMap<IpAddr, PodChains>,
}

/// The rule chains of a pod's address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodChains {
    /// For connections that the pod opens; `None`: no policy applies to its egress.
    pub egress: Option<RuleChainId>,
    /// For connections to the pod; `None`: no policy applies to its ingress.
    pub ingress: Option<RuleChainId>,
}

impl PodChains {
    /// Returns the rule chain of a direction.
    pub fn chain(self, direction: Direction) -> Option<RuleChainId> {
        match direction {
            Direction::Ingress => self.ingress,
            Direction::Egress => self.egress,
        }
    }
}

/// A set of addresses that steps name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The meaning of the addresses.
    pub kind: GroupKind,
    /// The addresses, sorted.
    pub addresses: Vec<IpAddr>,
}

/// The kinds of groups, by the meaning of their addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupKind {
    /// Single addresses of both families.
    Hosts,
    /// The first addresses of blocks of one family and prefix length.
    Nets(Family, u8),
    /// The bounds of ranges of a family: in turn the first address of a range and the first address
    /// after it. A range up to the last address of the family has no second bound. There is at
    /// least one range, and the members never change.
    Ranges(Family),
}

/// Returns the ranges of such bounds: the first address of each, and the first address after it, if
/// there is one.
pub fn ranges(bounds: &[IpAddr]) -> impl Iterator<Item = (IpAddr, Option<IpAddr>)> + '_ {
    // The last chunk has one bound if its range goes up to the last address of the family.
    let pairs = bounds.chunks(2);
    pairs.filter_map(|pair| Some((*pair.first()?, pair.get(1).copied())))
}

/// The rules of a subject in one direction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RuleChain {
    /// The direction.
    pub direction: Direction,
    /// The Admin tier, in order: the first step that matches decides. `Pass` leads to what follows
    /// this tier.
    pub admin: Vec<Arc<Step>>,
    // Only unions are merged, and all rules of a union accept: the merged part and the steps after
    // it may be evaluated in any order.
    /// The merged part of a large union, which only accepts.
    pub merged: MergedUnion,
    /// The steps after that: of the NetworkPolicies if they isolate the subject, otherwise of the
    /// Baseline tier, where `Pass` has become `Accept`. The first step that matches decides.
    pub rest: Vec<Arc<Step>>,
    /// The verdict if nothing above matches.
    pub verdict: Verdict,
}

/// The part of a large union that is evaluated by lookups: the order of its rules does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MergedUnion {
    /// The hosts that may use each block of ports, of all rules together. A port may be in several
    /// blocks.
    pub of_ports: BTreeMap<PortBlock, GroupId>,
    /// The hosts that may use every port of every protocol.
    pub any_port: Option<GroupId>,
    /// The ranges of addresses that may use each block of ports, for each family.
    pub nets_of_ports: [BTreeMap<PortBlock, GroupId>; 2],
    /// The ranges of addresses that may use every port of every protocol, for each family.
    pub nets_of_any_port: [Option<GroupId>; 2],
    /// The blocks of ports that every peer may use, for each family.
    pub open: [BTreeSet<PortBlock>; 2],
}

impl MergedUnion {
    /// Returns the blocks of ports that every peer of a family may use.
    pub fn open(&self, family: Family) -> &BTreeSet<PortBlock> {
        of_family(&self.open, family)
    }

    /// Returns the ranges of addresses of a family that may use each block of ports.
    pub fn nets_of_ports(&self, family: Family) -> &BTreeMap<PortBlock, GroupId> {
        of_family(&self.nets_of_ports, family)
    }

    /// Returns the ranges of addresses of a family that may use every port of every protocol.
    pub fn nets_of_any_port(&self, family: Family) -> Option<GroupId> {
        *of_family(&self.nets_of_any_port, family)
    }

    /// Returns the groups that the union names.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> + '_ {
        let nets_of_ports = self.nets_of_ports.iter().flat_map(BTreeMap::values);
        let of_ports = self.of_ports.values().chain(nets_of_ports);
        let nets_of_any_port = self.nets_of_any_port.iter().flatten();
        let of_any_port = self.any_port.iter().chain(nets_of_any_port);
        of_ports.chain(of_any_port).copied()
    }
}

fn of_family<T>([v4, v6]: &[T; 2], family: Family) -> &T {
    match family {
        Family::V4 => v4,
        Family::V6 => v6,
    }
}

/// A rule of the program for one subject: names and relations are resolved.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// The rule.
    pub rule: RuleId,
    /// The action on what matches.
    pub action: Action,
    /// The ports, of which one must match; `None`: every port of every protocol.
    pub ports: Option<Vec<PortCondition>>,
    /// The peers, of which one must match; `None`: every peer.
    pub peers: Option<Vec<PeerCondition>>,
}

/// Ports of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortCondition {
    /// The protocol.
    pub protocol: Protocol,
    /// The ports.
    pub range: PortRange,
    /// Only peers of this group, at which a port name stands for these ports; `None`: every peer.
    pub at: Option<GroupId>,
}

/// A condition on the address of the peer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerCondition {
    /// The addresses that match.
    pub within: PeerScope,
    /// The addresses among them that do not match.
    pub except: Vec<GroupId>,
}

/// The addresses of a condition, before its exceptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerScope {
    /// Every address of a family.
    Family(Family),
    /// The members of a group.
    Group(GroupId),
}

impl Step {
    /// Returns the groups that the step names, some of them perhaps twice.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> + '_ {
        let ports = self.ports.iter().flatten().filter_map(|port| port.at);
        let peers = self.peers.iter().flatten().flat_map(|peer| {
            let within = match peer.within {
                PeerScope::Family(_) => None,
                PeerScope::Group(group) => Some(group),
            };
            within.into_iter().chain(peer.except.iter().copied())
        });
        ports.chain(peers)
    }
}

impl RuleChain {
    /// Returns the groups that the rule chain names, some of them perhaps twice.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> + '_ {
        // The Admin tier, the merged part and the rest: nothing else names a group.
        let steps = self.admin.iter().chain(&self.rest);
        let merged = self.merged.groups();
        merged.chain(steps.flat_map(|step| step.groups()))
    }
}
