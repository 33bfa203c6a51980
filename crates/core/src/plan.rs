//! What one node has to enforce: the program, seen from the pods that run there.
//!
//! A plan is what a dataplane is told: ordered rules over groups of addresses, protocols and ports. It
//! knows no kernel. Every step is a rule of the program for one subject, so that what is enforced
//! is what is decided.

mod change;
mod groups;
mod merge;
mod named;
mod planner;
mod ports;
mod ranges;
mod registry;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

pub use self::change::PlanChange;
pub(crate) use self::named::{Bounds, SubsetId, SubsetKey, holds};
pub(crate) use self::planner::{AfterAdmin, Planner};
pub use self::planner::{plan, plan_merging};
pub use self::ports::PortBlock;
pub(crate) use self::ports::port_blocks;
pub(crate) use self::registry::{GroupKey, GroupMeaning, GroupRegistry, GroupRole};
use crate::net::{Family, PortRange, Protocol};
use crate::policy::{Action, Direction, Verdict};
use crate::program::RuleId;

/// Unions of more steps than these are asked at once, unless something else is said. So are those whose steps have
/// more than four times as many conditions, each of which is asked by itself otherwise.
pub const MERGE_OVER: usize = 8;

/// Groups of at least so many members are told as one if they have the same members, unless something else is said. With fewer it
/// would save little, and bodies would have to be told anew whenever such groups become different.
pub const SHARE_FROM: usize = 16;

/// A group of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// What a subject has to face.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleChainId(pub u32);

/// What one node has to enforce.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The groups that steps name.
    pub groups: BTreeMap<GroupId, Group>,
    /// What subjects have to face; pods that face the same share one.
    pub chains: BTreeMap<RuleChainId, Arc<RuleChain>>,
    /// The addresses of the pods that run there, as far as they are their own (D82).
    pub pods: BTreeMap<IpAddr, PodChains>,
}

/// What connections of a pod's address have to face.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodChains {
    /// Those to others; `None`: no policy is about them.
    pub egress: Option<RuleChainId>,
    /// Those of others to it.
    pub ingress: Option<RuleChainId>,
}

impl PodChains {
    /// What is faced in a direction.
    pub fn body(self, direction: Direction) -> Option<RuleChainId> {
        match direction {
            Direction::Ingress => self.ingress,
            Direction::Egress => self.egress,
        }
    }
}

/// Addresses that some step speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// What the addresses are.
    pub kind: GroupKind,
    /// The addresses, sorted.
    pub addresses: Vec<IpAddr>,
}

/// What the addresses of a group are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupKind {
    /// Single addresses of both families.
    Hosts,
    /// The first addresses of blocks of one family and prefix length.
    Nets(Family, u8),
    /// Where ranges of addresses of a family begin and end: in turn the first address of a range, and the first one
    /// behind it. The last range may have no end. There is at least one, and nobody ever joins or leaves.
    Ranges(Family),
}

/// The ranges that such bounds stand for: the first address of each, and the first one behind it, if there is one.
pub fn ranges(bounds: &[IpAddr]) -> impl Iterator<Item = (IpAddr, Option<IpAddr>)> + '_ {
    let pairs = bounds.chunks(2);
    pairs.filter_map(|pair| Some((*pair.first()?, pair.get(1).copied())))
}

/// What a subject has to face in one direction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RuleChain {
    /// The direction.
    pub direction: Direction,
    /// The Admin tier, in order: the first step that matches decides, and `Pass` leads to the rest.
    pub admin: Vec<Arc<Step>>,
    /// What of the rest is asked at once: it accepts.
    pub merged: MergedUnion,
    /// What comes after that: the NetworkPolicies if they isolate the subject, otherwise the Baseline
    /// tier, where a `Pass` has become what it leads to. The first step that matches decides.
    pub rest: Vec<Arc<Step>>,
    /// What becomes of everything else.
    pub verdict: Verdict,
}

/// The most of a large union: its order does not matter, so that it need not be asked step by step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MergedUnion {
    /// Which hosts may use ports: the groups of all steps together. A port may be in several blocks.
    pub of_ports: BTreeMap<PortBlock, GroupId>,
    /// Which hosts may use every port of every protocol.
    pub any_port: Option<GroupId>,
    /// Which ranges of addresses may use ports, for each family.
    pub nets_of_ports: [BTreeMap<PortBlock, GroupId>; 2],
    /// Which ranges of addresses may use every port of every protocol.
    pub nets_of_any_port: [Option<GroupId>; 2],
    /// The ports that anyone may use, for each family.
    pub open: [BTreeSet<PortBlock>; 2],
}

impl MergedUnion {
    /// The ports that anyone of a family may use.
    pub fn open(&self, family: Family) -> &BTreeSet<PortBlock> {
        of_family(&self.open, family)
    }

    /// Which ranges of addresses of a family may use ports.
    pub fn nets_of_ports(&self, family: Family) -> &BTreeMap<PortBlock, GroupId> {
        of_family(&self.nets_of_ports, family)
    }

    /// Which ranges of addresses of a family may use every port of every protocol.
    pub fn nets_of_any_port(&self, family: Family) -> Option<GroupId> {
        *of_family(&self.nets_of_any_port, family)
    }

    /// The groups that it names.
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

/// A rule, for one subject.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// The rule.
    pub rule: RuleId,
    /// What it does.
    pub action: Action,
    /// The ports, at least one of which must match; `None`: every port of every protocol.
    pub ports: Option<Vec<PortCondition>>,
    /// The other ends, at least one of which must match; `None`: anyone.
    pub peers: Option<Vec<PeerCondition>>,
}

/// Ports of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortCondition {
    /// The protocol.
    pub protocol: Protocol,
    /// The ports.
    pub range: PortRange,
    /// Only if the other end is one of these, for which a name stands for this port.
    pub at: Option<GroupId>,
}

/// Some of the other ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerCondition {
    /// Who is meant.
    pub within: PeerScope,
    /// And who of them is not.
    pub except: Vec<GroupId>,
}

/// Who a condition is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerScope {
    /// Every address of a family.
    Family(Family),
    /// A group.
    Group(GroupId),
}

impl Step {
    /// The groups that it names.
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
    /// The groups that it names.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> + '_ {
        let steps = self.admin.iter().chain(&self.rest);
        let merged = self.merged.groups();
        merged.chain(steps.flat_map(|step| step.groups()))
    }
}
