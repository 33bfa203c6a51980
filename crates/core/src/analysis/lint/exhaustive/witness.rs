//! Picks one flow of a flow class as its witness.

use std::num::NonZeroU16;

use super::facts::Cell;
use super::flow_space::{FlowSpace, Participant};
use super::partitions::Group;
use crate::analysis::affect::Witness;
use crate::answer::{PortSet, Transport};
use crate::decide::{Flow, FlowEnd, Identity, Traffic};
use crate::flow_end::EndName;
use crate::model::{Pod, PodId, ServiceId};
use crate::net::{Family, Protocol};
use crate::policy::Direction;
use crate::program::{AddressAtom, NONE, RuleId};

/// Well-known ports. A witness with one of them is easier to read.
const FAMILIAR: [(Protocol, u16); 4] = [
    (Protocol::Tcp, 80),
    (Protocol::Tcp, 443),
    (Protocol::Tcp, 8080),
    (Protocol::Udp, 53),
];

/// A subject and a peer between which a flow is possible.
struct Pair<'c> {
    subject: PodId,
    peer: Participant<'c>,
    /// The Service that leads a pod back to itself, and its port there (D77).
    via: Option<(ServiceId, Protocol, NonZeroU16)>,
}

impl<'c> FlowSpace<'c> {
    /// Returns one of the flows of a cell.
    pub(super) fn witness(&self, groups: &[Group], cell: &Cell) -> Option<Witness> {
        let pair = self.pair(groups, cell)?;
        let pods = &self.context.cluster.pods;
        let subject = pods.get(pair.subject.0 as usize)?;
        let peer = pair.peer.view;
        let destination = match (self.direction, peer.identity) {
            (Direction::Ingress, _) => Some(subject),
            (Direction::Egress, Identity::Pod(id)) => pods.get(id.0 as usize),
            (Direction::Egress, Identity::Node(_) | Identity::External) => None,
        };
        let traffic = match pair.via {
            Some((_, protocol, port)) => Traffic::Port(protocol, port),
            None => self.traffic(cell, destination)?,
        };
        let carried = match (traffic, cell.family) {
            (Traffic::Port(protocol, port), _) => Transport::Port(protocol, port),
            (Traffic::Portless | Traffic::NeighborDiscovery, Family::V6) => Transport::Icmp6(None),
            (Traffic::Portless | Traffic::NeighborDiscovery, Family::V4) => Transport::Icmp,
        };
        // Rules of a direction match the address of the peer only. The one of the subject is
        // arbitrary.
        let subject_end = FlowEnd {
            identity: Identity::Pod(pair.subject),
            address: AddressAtom(0),
        };
        let peer_end = FlowEnd {
            identity: peer.identity,
            address: peer.atom(cell.family).or(cell.assumed)?,
        };
        let subject_name = EndName::Pod(pair.subject);
        let (source, destination, names) = match self.direction {
            Direction::Ingress => (peer_end, subject_end, (pair.peer.name, subject_name)),
            Direction::Egress => (subject_end, peer_end, (subject_name, pair.peer.name)),
        };
        let is_known = !subject.addresses.is_empty() && !peer.is_unknown;
        Some(Witness {
            source: names.0,
            destination: names.1,
            transport: carried,
            family: Some(cell.family).filter(|_| is_known),
            via: pair.via.map(|it| it.0),
            flow: Flow {
                source,
                destination,
                traffic,
                via_service: pair.via.is_some() || source.identity == destination.identity,
                node_local: false,
            },
        })
    }

    fn pair(&self, groups: &[Group], cell: &Cell) -> Option<Pair<'c>> {
        let (from, to) = cell.groups;
        let groups = groups.get(from as usize..to as usize)?;
        let pods = || groups.iter().flat_map(|it| it.pods.iter().copied());
        let key = self.keys.list.get(cell.key as usize)?;
        let members = || {
            let members = key.members.iter();
            members.filter_map(|it| self.context.participants.get(*it as usize).copied())
        };
        let pod = |id: PodId| self.context.cluster.pods.get(id.0 as usize);
        let is_possible = |subject: PodId, peer: &Participant<'_>| {
            let Some(pod) = pod(subject) else {
                return false;
            };
            let is_itself = peer.view.identity == Identity::Pod(subject) && pod.template.is_none();
            let is_local = self.direction == Direction::Ingress
                && peer.view.local_to.is_some()
                && peer.view.local_to == pod.node;
            !is_itself && !is_local
        };
        let pair = pods().find_map(|subject| {
            // Only the subject itself and processes of its node are no peers, so the search is
            // short.
            let peer = members().find(|peer| is_possible(subject, peer))?;
            Some(Pair {
                subject,
                peer,
                via: None,
            })
        });
        // No two distinct ends are left: the pod is alone in its key and reaches itself.
        pair.or_else(|| {
            let subject = pods().next()?;
            let peer = members().find(|it| it.view.identity == Identity::Pod(subject))?;
            let columns = self
                .context
                .columns
                .with((cell.map != NONE).then_some(cell.map));
            let mut served = self.context.served.get(&subject)?.iter().copied();
            let via = served.find(|(_, protocol, port)| {
                columns.of_port(*protocol, *port) == cell.column as usize
            });
            Some(Pair {
                subject,
                peer,
                via: Some(via?),
            })
        })
    }

    /// Picks a port of a column: one that the destination declares, else a well-known one, else the
    /// first.
    fn traffic(&self, cell: &Cell, destination: Option<&Pod<'_>>) -> Option<Traffic> {
        let columns = self
            .context
            .columns
            .with((cell.map != NONE).then_some(cell.map));
        let column = cell.column as usize;
        let ports = columns.ports(column);
        let declared = destination.into_iter().flat_map(|pod| pod.ports.iter());
        let declared = declared.map(|it| (it.protocol, it.port));
        let familiar = FAMILIAR.into_iter();
        let familiar = familiar.filter_map(|(it, port)| Some((it, NonZeroU16::new(port)?)));
        let mut likely = declared.chain(familiar);
        let has_port = |ports: &PortSet, (protocol, port): (Protocol, NonZeroU16)| {
            ports.contains(protocol, port)
        };
        if let Some((protocol, port)) = likely.find(|it| has_port(&ports, *it)) {
            return Some(Traffic::Port(protocol, port));
        }
        let first = ports.edges().into_iter().find_map(|edge| match edge {
            crate::query::PortQuery::Number(protocol, port) => Some(Traffic::Port(protocol, port)),
            crate::query::PortQuery::Icmp
            | crate::query::PortQuery::Icmp6(_)
            | crate::query::PortQuery::Ip(_)
            | crate::query::PortQuery::Any
            | crate::query::PortQuery::Name(..) => None,
        });
        first.or(columns.is_portless(column).then_some(Traffic::Portless))
    }

    /// Returns the first of `rules` that matches the flow of a witness.
    pub(super) fn first_of(&self, rules: &[RuleId], witness: &Witness) -> Option<RuleId> {
        let program = self.context.program;
        let view = program.view(&witness.flow, self.direction).ok()?;
        let mut rules = rules.iter().copied();
        rules.find(|id| {
            let rule = program.rules.get(id.0 as usize);
            rule.is_some_and(|rule| program.matches(rule, &view))
        })
    }
}
