//! The whole cluster at once: who reaches whom, and on which ports.
//!
//! Members that no policy tells apart as sources are one *source key*, and likewise one *destination
//! key*. For each destination key the tiers are folded over bitmaps of source keys, each tier once
//! for each distinct set of rules, so that the work grows with what policies distinguish and not with
//! pairs of pods. What decides is the same [`Program`] that [`decide`](crate::decide) reads, rule by
//! rule in the same order; tests hold the two together.

mod allowed;
pub(crate) mod bits;
mod blocks;
pub(crate) mod columns;
pub mod diff;
mod egress;
mod fold;
mod ingress;
pub(crate) mod keys;
pub(crate) mod members;
mod memo;
mod networks;
mod pairs;
mod parallel;
pub(crate) mod peers;
mod per_port;
mod reached;
mod rows;
pub(crate) mod runs;
mod services;
mod summary;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU16;

use rustc_hash::FxHashMap;

use self::columns::{Columns, MapColumns};
use self::egress::{FoldContext, UnionRules};
use self::keys::{AddressClasses, FlowRole, Key, Keys};
use self::members::MemberView;
use self::peers::Sources;
use self::rows::{CellPorts, Row};
use self::services::ServiceMap;
use crate::answer::PortSet;
use crate::compile::count;
use crate::model::{Cluster, NodeId, PodId, ServiceId};
use crate::net::{Cidr, Family, Protocol};
use crate::policy::{Direction, Tier};
use crate::program::{AddressAtom, Program, table_index};

pub use self::blocks::{Block, Blocks, GroupId, TooMany};
pub(crate) use self::ingress::is_relative;
pub use self::pairs::{Matrix, Pair};
pub use self::summary::Summary;

/// Someone who can be at an end of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Member {
    /// A pod, a template, or a pod of the host network, which stands for its node (D73).
    Pod(PodId),
    /// A node.
    Node(NodeId),
    /// Addresses outside the cluster that no policy tells apart.
    Network(NetworkId),
    /// A Service; flows only lead to it.
    Service(ServiceId),
}

/// A member, by its place in [`Connectivity::members`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u32);

/// Outside addresses, by their place in [`Connectivity::networks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetworkId(pub u32);

/// Addresses outside the cluster that no policy tells apart. Addresses of pods and nodes in these
/// blocks are not meant: whoever has an address is that (D22).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Their family.
    pub family: Family,
    /// The blocks, ascending.
    pub blocks: Vec<Cidr>,
}

/// What is asked about.
pub struct Selection<'s> {
    /// Which members as sources.
    pub from: &'s (dyn Fn(&Member, &[Network]) -> bool + Sync),
    /// Which members as destinations.
    pub to: &'s (dyn Fn(&Member, &[Network]) -> bool + Sync),
    /// Which ports; none: all.
    pub ports: Vec<PortFilter>,
    /// Blocks that outside networks are cut at, so that `from` and `to` can choose exactly them.
    pub cuts: Vec<Cidr>,
}

impl fmt::Debug for Selection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut it = f.debug_struct("Selection");
        it.field("ports", &self.ports)
            .field("cuts", &self.cuts)
            .finish_non_exhaustive()
    }
}

impl Selection<'_> {
    /// Everyone and everything.
    pub const ALL: Selection<'static> = Selection {
        from: &|_, _| true,
        to: &|_, _| true,
        ports: Vec::new(),
        cuts: Vec::new(),
    };
}

/// Some ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortFilter {
    /// These.
    Set(PortSet),
    /// Whatever has the name at the destination.
    Named(Protocol, String),
}

/// What becomes of flows from one member to another, by ports. Ports in none of the sets are denied.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reach {
    /// Allowed.
    pub allowed: PortSet,
    /// Allowed in one family or at one backend, and denied in another.
    pub mixed: PortSet,
    /// Dependent on an address that is not known (D136).
    pub unknown: PortSet,
}

impl Reach {
    /// Whether everything is denied.
    pub fn is_nothing(&self) -> bool {
        self.allowed.is_empty() && self.mixed.is_empty() && self.unknown.is_empty()
    }
}

/// Who is told how far the work has come: so many of so many destinations.
pub type Progress<'p> = &'p (dyn Fn(usize, usize) + Sync);

/// Everyone who takes part, by what policies tell apart.
#[derive(Debug)]
pub struct Connectivity<'c> {
    cluster: &'c Cluster<'c>,
    program: &'c Program,
    members: Vec<Member>,
    views: Vec<Option<MemberView<'c>>>,
    networks: Vec<Network>,
    sources: Keys<'c>,
    destinations: Keys<'c>,
    /// The Services among the destinations, ascending.
    services: Vec<(MemberId, ServiceId)>,
    addresses: AddressClasses,
    union_rules: [Vec<crate::program::RuleId>; 2],
    /// The atoms that an unknown address could be in, for each family.
    possible: [Vec<AddressAtom>; 2],
    filters: Vec<PortFilter>,
    /// The sources in the network of each node, ascending.
    local_sources: BTreeMap<&'c str, Vec<u32>>,
    /// For each mark of a destination key the ports that named filters mean there.
    named: Vec<Vec<(Protocol, NonZeroU16)>>,
}

impl<'c> Connectivity<'c> {
    /// Finds out who takes part, and who is the same to all policies.
    pub fn new(
        cluster: &'c Cluster<'c>,
        program: &'c Program,
        selection: &Selection<'_>,
    ) -> Connectivity<'c> {
        let union_rules = keys::union_rules(program);
        let addresses = AddressClasses::new(program, &union_rules);
        let families = networks::families(cluster, program);
        let outside = networks::networks(&families, program, &addresses, &selection.cuts);
        let found = members::members(cluster, program, &outside);
        let networks: Vec<Network> = outside.into_iter().map(|it| it.network).collect();
        let (members, seen): (Vec<Member>, Vec<Option<MemberView<'c>>>) = found.into_iter().unzip();
        let is_meant = |member: u32, by: &dyn Fn(&Member, &[Network]) -> bool| {
            let member = members.get(member as usize);
            member.is_some_and(|member| by(member, &networks))
        };
        let from = |member: u32| is_meant(member, selection.from).then_some(0);
        let sources = Keys::new(
            program,
            FlowRole::Source,
            &addresses,
            seen.iter().copied(),
            from,
        );
        let marks = PortNameMarks::new(cluster, &members, &selection.ports);
        let to = |member: u32| is_meant(member, selection.to).then(|| marks.of(member));
        let destinations = Keys::new(
            program,
            FlowRole::Destination,
            &addresses,
            seen.iter().copied(),
            to,
        );
        let services = members.iter().enumerate();
        let services = services.filter_map(|(id, member)| match member {
            Member::Service(service) if (selection.to)(member, &networks) => {
                Some((MemberId(count(id)), *service))
            }
            Member::Service(_) | Member::Pod(_) | Member::Node(_) | Member::Network(_) => None,
        });
        let mut local_sources: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for (id, seen) in seen.iter().enumerate() {
            let id = count(id);
            if let Some(node) = seen.as_ref().and_then(|seen| seen.local_to)
                && sources.of(id).is_some()
            {
                local_sources.entry(node).or_default().push(id);
            }
        }
        Connectivity {
            cluster,
            program,
            local_sources,
            services: services.collect(),
            members,
            views: seen,
            networks,
            sources,
            destinations,
            addresses,
            union_rules,
            possible: Family::BOTH.map(|family| program.addresses.possible(family)),
            filters: selection.ports.clone(),
            named: marks.ports,
        }
    }

    /// Everyone who could take part, in the order in which they are shown.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The networks outside.
    pub fn networks(&self) -> &[Network] {
        &self.networks
    }

    /// Whether a member takes part as a source.
    pub fn is_source(&self, member: MemberId) -> bool {
        self.sources.of(member.0).is_some()
    }

    /// Whether a member takes part as a destination.
    pub fn is_destination(&self, member: MemberId) -> bool {
        self.destinations.of(member.0).is_some()
            || self
                .services
                .binary_search_by_key(&member, |(id, _)| *id)
                .is_ok()
    }

    /// How many kinds of sources and destinations policies tell apart.
    pub fn size(&self) -> (usize, usize) {
        (self.sources.len(), self.destinations.len())
    }

    fn with_ground<R>(
        &self,
        services: Option<&ServiceMap<'_>>,
        work: impl FnOnce(&FoldContext<'_>) -> R,
    ) -> R {
        let backends = services.into_iter().flat_map(|map| &map.backends.list);
        let destinations = self.destinations.list.iter().chain(backends);
        let sources = Sources::new(self.program, &self.sources);
        let columns = Columns::new(self.program);
        let union_rules = UnionRules::new(self.program, &self.union_rules);
        let ground = FoldContext::new(
            self.program,
            &sources,
            &columns,
            &self.addresses,
            &union_rules,
            &self.possible,
            destinations.map(|key| &key.view),
        );
        work(&ground)
    }

    /// Destination keys in an order in which those with the same rules are near each other.
    fn in_order<'k>(&self, keys: &'k Keys<'c>) -> Vec<&'k Key<'c>> {
        let mut list: Vec<&Key<'c>> = keys.list.iter().collect();
        let row =
            |rows: &[u32; 4], direction| rows.get(table_index(Tier::Admin, direction)).copied();
        list.sort_by_cached_key(|key| {
            let class = peers::class(self.program, key);
            class.map(|class| {
                (
                    row(&class.subject_rows, Direction::Ingress),
                    row(&class.peer_rows, Direction::Egress),
                    class.unions,
                )
            })
        });
        list
    }

    fn columns<'g>(&self, ground: &FoldContext<'g>, key: &Key<'_>) -> MapColumns<'g> {
        let class = peers::class(self.program, key);
        ground.columns.with(class.map(|class| class.port_map))
    }

    fn cell_ports(&self, ground: &FoldContext<'_>, key: &Key<'_>, row: &Row) -> Vec<CellPorts> {
        let columns = self.columns(ground, key);
        let named = self.named.get(key.mark as usize);
        let filter = rows::filter_at(&self.filters, named.map_or(&[], Vec::as_slice));
        rows::cell_ports(row, columns, filter.as_ref())
    }
}

/// What named ports mean at destinations: members with different meanings have different marks.
struct PortNameMarks {
    of_member: Vec<u32>,
    ports: Vec<Vec<(Protocol, NonZeroU16)>>,
}

impl PortNameMarks {
    fn new(cluster: &Cluster<'_>, members: &[Member], filters: &[PortFilter]) -> PortNameMarks {
        let mut ids: FxHashMap<Vec<(Protocol, NonZeroU16)>, u32> = FxHashMap::default();
        let mut marks = PortNameMarks {
            of_member: Vec::new(),
            ports: vec![Vec::new()],
        };
        let is_named = |filter: &PortFilter| matches!(filter, PortFilter::Named(..));
        if !filters.iter().any(is_named) {
            return marks;
        }
        ids.insert(Vec::new(), 0);
        for member in members {
            let pod = match member {
                Member::Pod(pod) => cluster.pods.get(pod.0 as usize),
                Member::Node(_) | Member::Network(_) | Member::Service(_) => None,
            };
            let pod = pod.filter(|pod| !pod.host_network);
            let ports = pod.into_iter().flat_map(|pod| pod.ports.iter());
            let is_meant = |port: &&crate::model::ContainerPort<'_>| {
                filters.iter().any(|filter| match filter {
                    PortFilter::Named(protocol, name) => {
                        port.protocol == *protocol && port.name == Some(name)
                    }
                    PortFilter::Set(_) => false,
                })
            };
            let ports = ports.filter(is_meant);
            let mut ports: Vec<_> = ports.map(|port| (port.protocol, port.port)).collect();
            ports.sort_unstable();
            ports.dedup();
            let next = count(marks.ports.len());
            let mark = *ids.entry(ports.clone()).or_insert(next);
            if mark == next {
                marks.ports.push(ports);
            }
            marks.of_member.push(mark);
        }
        marks
    }

    fn of(&self, member: u32) -> u32 {
        self.of_member.get(member as usize).copied().unwrap_or(0)
    }
}
