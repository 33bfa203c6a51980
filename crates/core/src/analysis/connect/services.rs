//! Services as destinations: a flow to a Service is a flow to each of its backends (D78).

use std::collections::BTreeSet;
use std::num::NonZeroU16;

use super::bits::{self, Words, and, and_not, or};
use super::keys::{FlowRole, Keys};
use super::members::{MemberView, family_index};
use super::reached::part_of;
use super::rows::{Cell, Rows, SourceGroup, divide};
use super::{Connectivity, MemberId, PortFilter, Reach};
use crate::answer::{PortSet, backends, service_families};
use crate::model::ServicePort;
use crate::net::{Family, Protocol};

/// The Services among the destinations, with their backends.
#[derive(Debug)]
pub(super) struct ServiceMap<'c> {
    pub(super) services: Vec<ServiceTarget>,
    /// The backends of all Services, one for each port that leads to them.
    views: Vec<MemberView<'c>>,
    pub(super) backends: Keys<'c>,
}

/// A Service among the destinations.
#[derive(Debug)]
pub(super) struct ServiceTarget {
    pub(super) member: MemberId,
    families: Vec<Family>,
    ports: Vec<OfferedPort>,
}

/// A port that a Service offers.
#[derive(Debug)]
struct OfferedPort {
    protocol: Protocol,
    port: NonZeroU16,
    /// Its backends, by index in [`ServiceMap::views`], and the port there.
    backends: Vec<(u32, NonZeroU16)>,
}

/// The sources of one port of a Service, by their verdicts at all backends.
struct ServiceRow {
    /// Sources with a flow to some backend.
    present: Words,
    allowed: Words,
    denied: Words,
    unknown: Words,
}

impl<'c> Connectivity<'c> {
    pub(super) fn service_map(&self) -> ServiceMap<'c> {
        let mut views: Vec<MemberView<'c>> = Vec::new();
        let mut services = Vec::new();
        for (member, id) in &self.services {
            let Some(service) = self.cluster.services.get(id.0 as usize) else {
                continue;
            };
            let offered = service.ports.iter().filter(|it| self.is_selected(it));
            let ports = offered.map(|offered| {
                let backings = backends(self.cluster, self.program, service, offered);
                let backends = backings.iter().map(|(backend, port)| {
                    views.push(MemberView::new(self.cluster, self.program, backend));
                    (u32::try_from(views.len() - 1).unwrap_or(u32::MAX), *port)
                });
                OfferedPort {
                    protocol: offered.protocol,
                    port: offered.port,
                    backends: backends.collect(),
                }
            });
            services.push(ServiceTarget {
                member: *member,
                ports: ports.collect(),
                families: service_families(service),
            });
        }
        // A backend need not be a selected destination, so backends have keys of their own.
        let backends = Keys::new(
            self.program,
            FlowRole::Destination,
            &self.addresses,
            views.iter().copied().map(Some),
            |_| Some(0),
        );
        ServiceMap {
            services,
            views,
            backends,
        }
    }

    /// Returns whether a port is selected: the one that clients dial (D129).
    fn is_selected(&self, offered: &ServicePort<'_>) -> bool {
        let selects = |filter: &PortFilter| match filter {
            PortFilter::Set(set) => set.contains(offered.protocol, offered.port),
            PortFilter::Named(protocol, name) => {
                offered.protocol == *protocol && offered.name == Some(name)
            }
        };
        self.filters.is_empty() || self.filters.iter().any(selects)
    }

    /// Groups the sources of a Service by reach; sources without any are left out. Sources on the
    /// node of a backend are listed one by one, because that backend is open to them (D74).
    pub(super) fn service_parts(
        &self,
        rows: &mut Rows<'_>,
        map: &ServiceMap<'_>,
        service: &ServiceTarget,
    ) -> (Vec<SourceGroup>, Vec<(MemberId, Reach)>) {
        let joined: Vec<(&OfferedPort, ServiceRow)> = service
            .ports
            .iter()
            .map(|port| (port, self.joined(rows, map, service, port, None)))
            .collect();
        let mut parts = vec![bits::all_ones(self.sources.len())];
        for (_, joined) in &joined {
            for by in [
                &joined.present,
                &joined.allowed,
                &joined.denied,
                &joined.unknown,
            ] {
                divide(&mut parts, by);
            }
        }
        let reach = |joined: &[(&OfferedPort, ServiceRow)], source: u32| {
            let mut reach = Reach::default();
            for (port, joined) in joined {
                if let Some(into) = joined.place(&mut reach, source) {
                    into.add_run(port.protocol, port.port.get(), port.port.get());
                }
            }
            reach
        };
        let of_parts = parts.into_iter().filter_map(|sources| {
            let first = bits::iter(&sources).next()?;
            let reach = reach(&joined, first);
            (!reach.is_empty()).then_some(SourceGroup { sources, reach })
        });
        let of_parts: Vec<SourceGroup> = of_parts.collect();
        let mut local = Vec::new();
        let places = service.ports.iter().flat_map(|port| &port.backends);
        let nodes = places.filter_map(|(place, _)| map.views.get(*place as usize)?.node);
        let nodes: BTreeSet<&str> = nodes.collect();
        // For sources on one of these nodes the backends there are open, while policies apply to
        // the other backends: the verdicts are combined once more for each node.
        for node in nodes {
            let Some(members) = self.local_sources.get(node) else {
                continue;
            };
            let is_local = |place: u32| {
                let view = map.views.get(place as usize);
                view.is_some_and(|view| view.node == Some(node))
            };
            let joined: Vec<(&OfferedPort, ServiceRow)> = service
                .ports
                .iter()
                .map(|port| (port, self.joined(rows, map, service, port, Some(&is_local))))
                .collect();
            for member in members {
                if let Some(source) = self.sources.of(*member) {
                    let open = reach(&joined, source);
                    let by_policy = part_of(&of_parts, source).map(|part| &part.reach);
                    if by_policy != Some(&open) {
                        local.push((MemberId(*member), open));
                    }
                }
            }
        }
        (of_parts, local)
    }

    /// Combines the verdicts at all backends of a port; those that `is_local` selects are open.
    fn joined(
        &self,
        rows: &mut Rows<'_>,
        map: &ServiceMap<'_>,
        service: &ServiceTarget,
        port: &OfferedPort,
        is_local: Option<&dyn Fn(u32) -> bool>,
    ) -> ServiceRow {
        let n_words = rows.context().sources.all.len();
        // Each backend removes sources from the last three sets. `present` masks them in the end.
        let mut joined = ServiceRow {
            present: vec![0; n_words],
            allowed: vec![u64::MAX; n_words],
            denied: vec![u64::MAX; n_words],
            unknown: vec![u64::MAX; n_words],
        };
        for (place, number) in &port.backends {
            let Some(id) = map.backends.of(*place) else {
                continue;
            };
            let Some(key) = map.backends.list.get(id as usize) else {
                continue;
            };
            let row = rows.kept_row(id, key);
            let column = rows.columns(key).of_port(port.protocol, *number);
            let Some(cell) = row.cells.at(column) else {
                continue;
            };
            let is_open = is_local.is_some_and(|is_local| is_local(*place));
            let flows = BackendFlows {
                families: &service.families,
                destination_is_unknown: key.view.is_unknown,
                is_open,
            };
            joined.add(rows, cell, &flows);
        }
        for words in [&mut joined.allowed, &mut joined.denied, &mut joined.unknown] {
            and(words, &joined.present);
        }
        joined
    }
}

/// The properties of the flows to one backend.
struct BackendFlows<'e> {
    families: &'e [Family],
    destination_is_unknown: bool,
    is_open: bool,
}

impl ServiceRow {
    /// Adds a backend.
    fn add(&mut self, rows: &Rows<'_>, cell: &Cell, flows: &BackendFlows<'_>) {
        let sources = rows.context().sources;
        let n_words = self.present.len();
        let (mut present, mut all, mut any) =
            (vec![0; n_words], vec![u64::MAX; n_words], vec![0; n_words]);
        for family in flows.families {
            let index = family_index(*family);
            let (Some(Some(allowed)), Some(may_have)) =
                (cell.families.get(index), sources.may_have.get(index))
            else {
                continue;
            };
            or(&mut present, may_have);
            // A source without the family has no flow in it that could be denied.
            let words = all.iter_mut().zip(&allowed.all).zip(may_have);
            for ((all, allowed), may_have) in words {
                *all &= allowed | !may_have;
            }
            or(&mut any, allowed.any());
        }
        if flows.is_open {
            all.fill(u64::MAX);
            any.fill(u64::MAX);
        }
        and(&mut all, &present);
        and(&mut any, &present);
        // Verdicts that differ between the families are unknown if an address is unknown: one of
        // them holds. Otherwise both hold, and the port is mixed.
        let mut depends = any.clone();
        and_not(&mut depends, &all);
        if !flows.destination_is_unknown {
            and(&mut depends, &sources.unknown_words);
        }
        for (index, here) in present.iter().enumerate() {
            let at = |words: &Words| words.get(index).copied().unwrap_or(0);
            // Sources without a flow to this backend keep the result of the others.
            let keep = |words: &mut Words, also: u64| {
                if let Some(word) = words.get_mut(index) {
                    *word &= also | !here;
                }
            };
            keep(&mut self.allowed, at(&all));
            keep(&mut self.denied, here & !at(&any));
            keep(&mut self.unknown, at(&depends));
        }
        or(&mut self.present, &present);
    }

    /// Returns the set that the port belongs to for a source; `None`: denied.
    fn place<'r>(&self, reach: &'r mut Reach, source: u32) -> Option<&'r mut PortSet> {
        let is = |words: &Words| bits::has(words, source);
        if !is(&self.present) || is(&self.denied) {
            None
        } else if is(&self.allowed) {
            Some(&mut reach.allowed)
        } else if is(&self.unknown) {
            Some(&mut reach.unknown)
        } else {
            Some(&mut reach.mixed)
        }
    }
}
