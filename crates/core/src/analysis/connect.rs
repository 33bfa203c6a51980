//! Connectivity of the whole cluster: the ports on which each source may reach each destination.
//!
//! Members that no policy distinguishes as sources share one *source key*; members that no policy
//! distinguishes as destinations share one *destination key*. For each destination key the tiers
//! are folded over bitmaps of source keys, each tier once for each distinct set of rules. The work
//! grows with what policies distinguish, not with the number of pairs of pods. The fold reads the
//! same [`Program`] as [`decide`](crate::decide), rule by rule in the same order; tests compare
//! their results.

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

pub use self::blocks::{Block, Blocks, EndGroupId, TooManyBlocks};
pub(crate) use self::ingress::is_relative;
pub use self::pairs::{Matrix, Pair};
pub use self::summary::Summary;

/// A possible source or destination of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Member {
    /// A pod, a template, or a host-network pod, which is evaluated as its node (D73).
    Pod(PodId),
    /// The host network of a node.
    Node(NodeId),
    /// Addresses outside the cluster that no policy distinguishes.
    Network(NetworkId),
    /// A Service: a destination only.
    Service(ServiceId),
}

/// The index of a member in [`Connectivity::members`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u32);

/// The index of a network in [`Connectivity::networks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetworkId(pub u32);

/// Addresses outside the cluster that no policy distinguishes. Addresses of pods and nodes in the
/// blocks are excluded: their identity is that pod or node (D22).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// The address family of all blocks.
    pub family: Family,
    /// The blocks, ascending.
    pub blocks: Vec<Cidr>,
}

/// Restricts connectivity to some sources, destinations and ports.
pub struct Selection<'s> {
    /// Selects the sources.
    pub from: &'s (dyn Fn(&Member, &[Network]) -> bool + Sync),
    /// Selects the destinations.
    pub to: &'s (dyn Fn(&Member, &[Network]) -> bool + Sync),
    /// Selects the ports; empty: all.
    pub ports: Vec<PortFilter>,
    /// Blocks at which outside networks are split: `from` and `to` can then select exactly them.
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
    /// Selects every member and every port.
    pub const ALL: Selection<'static> = Selection {
        from: &|_, _| true,
        to: &|_, _| true,
        ports: Vec::new(),
        cuts: Vec::new(),
    };
}

/// Selects ports at a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortFilter {
    /// The same ports at every destination.
    Set(PortSet),
    /// The ports that have this protocol and name at the destination.
    Named(Protocol, String),
}

/// The verdicts of the flows from one member to another, by port. Ports in none of the sets are
/// denied.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reach {
    /// Allowed in every family and at every backend.
    pub allowed: PortSet,
    /// Allowed in one family or at one backend, denied in another.
    pub mixed: PortSet,
    /// Dependent on an unknown address (D136).
    pub unknown: PortSet,
}

impl Reach {
    /// Returns whether every port is denied.
    pub fn is_empty(&self) -> bool {
        self.allowed.is_empty() && self.mixed.is_empty() && self.unknown.is_empty()
    }
}

/// Receives the number of finished destinations and the number of all destinations.
pub type Progress<'p> = &'p (dyn Fn(usize, usize) + Sync);

/// The members of a cluster, grouped into keys, and the connectivity between them.
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
    /// For each node the sources in its host network, ascending.
    local_sources: BTreeMap<&'c str, Vec<u32>>,
    /// For each mark of a destination key the ports that named filters select there.
    named: Vec<Vec<(Protocol, NonZeroU16)>>,
}

impl<'c> Connectivity<'c> {
    /// Collects the members and groups those that no policy distinguishes.
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
        let (members, views): (Vec<Member>, Vec<Option<MemberView<'c>>>) =
            found.into_iter().unzip();
        let is_selected = |member: u32, by: &dyn Fn(&Member, &[Network]) -> bool| {
            let member = members.get(member as usize);
            member.is_some_and(|member| by(member, &networks))
        };
        // Only policies distinguish sources. Destinations also differ in the ports that a named
        // filter selects, because a port name is resolved at the destination.
        let from = |member: u32| is_selected(member, selection.from).then_some(0);
        let sources = Keys::new(
            program,
            FlowRole::Source,
            &addresses,
            views.iter().copied(),
            from,
        );
        let marks = PortNameMarks::new(cluster, &members, &selection.ports);
        let to = |member: u32| is_selected(member, selection.to).then(|| marks.of(member));
        let destinations = Keys::new(
            program,
            FlowRole::Destination,
            &addresses,
            views.iter().copied(),
            to,
        );
        let services = members.iter().enumerate();
        let services = services.filter_map(|(id, member)| match member {
            Member::Service(service) if (selection.to)(member, &networks) => {
                Some((MemberId(count(id)), *service))
            }
            Member::Service(_) | Member::Pod(_) | Member::Node(_) | Member::Network(_) => None,
        });
        // D74 depends on the nodes of both endpoints, which keys ignore: otherwise every node would
        // split every key. These sources are compared with their pods one by one.
        let mut local_sources: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for (id, view) in views.iter().enumerate() {
            let id = count(id);
            if let Some(node) = view.as_ref().and_then(|view| view.local_to)
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
            views,
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

    /// Returns all members in display order.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Returns the networks outside the cluster.
    pub fn networks(&self) -> &[Network] {
        &self.networks
    }

    /// Returns whether a member takes part as a source.
    pub fn is_source(&self, member: MemberId) -> bool {
        self.sources.of(member.0).is_some()
    }

    /// Returns whether a member takes part as a destination.
    pub fn is_destination(&self, member: MemberId) -> bool {
        self.destinations.of(member.0).is_some()
            || self
                .services
                .binary_search_by_key(&member, |(id, _)| *id)
                .is_ok()
    }

    /// Returns the number of source keys and of destination keys.
    pub fn size(&self) -> (usize, usize) {
        (self.sources.len(), self.destinations.len())
    }

    fn with_context<R>(
        &self,
        services: Option<&ServiceMap<'_>>,
        work: impl FnOnce(&FoldContext<'_>) -> R,
    ) -> R {
        // Backends are destinations of folds as well: the context has to cover their addresses.
        let backends = services.into_iter().flat_map(|map| &map.backends.list);
        let destinations = self.destinations.list.iter().chain(backends);
        let sources = Sources::new(self.program, &self.sources);
        let columns = Columns::new(self.program);
        let union_rules = UnionRules::new(self.program, &self.union_rules);
        let context = FoldContext::new(
            self.program,
            &sources,
            &columns,
            &self.addresses,
            &union_rules,
            &self.possible,
            destinations.map(|key| &key.view),
        );
        work(&context)
    }

    /// Sorts destination keys by their rules.
    fn in_order<'k>(&self, keys: &'k Keys<'c>) -> Vec<&'k Key<'c>> {
        // The memos of a worker are bounded: it reuses a folded tier only while keys with the same
        // rows follow each other.
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

    fn columns<'g>(&self, context: &FoldContext<'g>, key: &Key<'_>) -> MapColumns<'g> {
        let class = peers::class(self.program, key);
        context.columns.with(class.map(|class| class.port_map))
    }

    fn cell_ports(&self, context: &FoldContext<'_>, key: &Key<'_>, row: &Row) -> Vec<CellPorts> {
        let columns = self.columns(context, key);
        let named = self.named.get(key.mark as usize);
        let filter = rows::filter_at(&self.filters, named.map_or(&[], Vec::as_slice));
        rows::cell_ports(row, columns, filter.as_ref())
    }
}

/// The ports that named filters select at each destination. Members with the same ports share a
/// mark.
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
            // All marks are 0: names distinguish no destinations.
            return marks;
        }
        ids.insert(Vec::new(), 0);
        for member in members {
            let pod = match member {
                Member::Pod(pod) => cluster.pods.get(pod.0 as usize),
                Member::Node(_) | Member::Network(_) | Member::Service(_) => None,
            };
            // Port names of host-network pods do not resolve (D73).
            let pod = pod.filter(|pod| !pod.host_network);
            let ports = pod.into_iter().flat_map(|pod| pod.ports.iter());
            let is_selected = |port: &&crate::model::ContainerPort<'_>| {
                filters.iter().any(|filter| match filter {
                    PortFilter::Named(protocol, name) => {
                        port.protocol == *protocol && port.name == Some(name)
                    }
                    PortFilter::Set(_) => false,
                })
            };
            let ports = ports.filter(is_selected);
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
