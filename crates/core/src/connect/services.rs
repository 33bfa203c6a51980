//! Services as destinations: a flow to a Service is a flow to each of its backends (D78).

use std::collections::BTreeSet;
use std::num::NonZeroU16;

use super::bits::{self, Words, and, and_not, or};
use super::keys::{FlowRole, Keys};
use super::members::{MemberView, family_index};
use super::reached::part_of;
use super::rows::{Cell, Rows, SourceGroup, divide};
use super::{Connectivity, MemberId, PortFilter, Reach};
use crate::answer::{PortSet, backings, service_families};
use crate::model::ServicePort;
use crate::net::{Family, Protocol};

/// Where the Services among the destinations lead.
#[derive(Debug)]
pub(super) struct ServiceMap<'c> {
    pub(super) services: Vec<ServiceTarget>,
    /// The backends of all of them.
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

/// A port that it offers.
#[derive(Debug)]
struct OfferedPort {
    protocol: Protocol,
    port: NonZeroU16,
    /// The places of its backends, and the port there.
    backends: Vec<(u32, NonZeroU16)>,
}

/// What the flows from each source to one port of a Service come to.
struct ServiceRow {
    /// Those for whom there is a flow at all.
    present: Words,
    allowed: Words,
    denied: Words,
    unknown: Words,
}

impl<'c> Connectivity<'c> {
    pub(super) fn service_map(&self) -> ServiceMap<'c> {
        let mut seen: Vec<MemberView<'c>> = Vec::new();
        let mut services = Vec::new();
        for (member, id) in &self.services {
            let Some(service) = self.cluster.services.get(id.0 as usize) else {
                continue;
            };
            let offered = service.ports.iter().filter(|it| self.is_selected(it));
            let ports = offered.map(|offered| {
                let backings = backings(self.cluster, self.program, service, offered);
                let backends = backings.iter().map(|(party, port)| {
                    seen.push(MemberView::new(self.cluster, self.program, party));
                    (u32::try_from(seen.len() - 1).unwrap_or(u32::MAX), *port)
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
        let backends = Keys::new(
            self.program,
            FlowRole::Destination,
            &self.addresses,
            seen.iter().copied().map(Some),
            |_| Some(0),
        );
        ServiceMap {
            services,
            views: seen,
            backends,
        }
    }

    /// Whether a port of a Service is asked about, which is the one that clients dial (D129).
    fn is_selected(&self, offered: &ServicePort<'_>) -> bool {
        let is_meant = |filter: &PortFilter| match filter {
            PortFilter::Set(set) => set.contains(offered.protocol, offered.port),
            PortFilter::Named(protocol, name) => {
                offered.protocol == *protocol && offered.name == Some(name)
            }
        };
        self.filters.is_empty() || self.filters.iter().any(is_meant)
    }

    /// The sources of a Service by what they get, those that get nothing left out. Sources that run
    /// on the node of a backend come by themselves, since that is open to them (D74).
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
            (!reach.is_nothing()).then_some(SourceGroup { sources, reach })
        });
        let of_parts: Vec<SourceGroup> = of_parts.collect();
        let mut local = Vec::new();
        let places = service.ports.iter().flat_map(|port| &port.backends);
        let nodes = places.filter_map(|(place, _)| map.views.get(*place as usize)?.node);
        let nodes: BTreeSet<&str> = nodes.collect();
        for node in nodes {
            let Some(members) = self.local_sources.get(node) else {
                continue;
            };
            let is_local = |place: u32| {
                let seen = map.views.get(place as usize);
                seen.is_some_and(|seen| seen.node == Some(node))
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

    /// What the flows to all backends of a port come to; `is_local` says which are open anyhow.
    fn joined(
        &self,
        rows: &mut Rows<'_>,
        map: &ServiceMap<'_>,
        service: &ServiceTarget,
        port: &OfferedPort,
        is_local: Option<&dyn Fn(u32) -> bool>,
    ) -> ServiceRow {
        let n_words = rows.ground().sources.all.len();
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
            let ends = FlowEndKeys {
                families: &service.families,
                destination_is_unknown: key.view.is_unknown,
                is_open,
            };
            joined.add(rows, cell, &ends);
        }
        for words in [&mut joined.allowed, &mut joined.denied, &mut joined.unknown] {
            and(words, &joined.present);
        }
        joined
    }
}

/// What has to be known of the two ends of flows to a backend.
struct FlowEndKeys<'e> {
    families: &'e [Family],
    destination_is_unknown: bool,
    is_open: bool,
}

impl ServiceRow {
    /// One more backend.
    fn add(&mut self, rows: &Rows<'_>, cell: &Cell, ends: &FlowEndKeys<'_>) {
        let sources = rows.ground().sources;
        let n_words = self.present.len();
        let (mut present, mut all, mut any) =
            (vec![0; n_words], vec![u64::MAX; n_words], vec![0; n_words]);
        for family in ends.families {
            let index = family_index(*family);
            let (Some(Some(plane)), Some(may_have)) =
                (cell.families.get(index), sources.may_have.get(index))
            else {
                continue;
            };
            or(&mut present, may_have);
            let words = all.iter_mut().zip(&plane.all).zip(may_have);
            for ((all, plane), may_have) in words {
                *all &= plane | !may_have;
            }
            or(&mut any, plane.any());
        }
        if ends.is_open {
            all.fill(u64::MAX);
            any.fill(u64::MAX);
        }
        and(&mut all, &present);
        and(&mut any, &present);
        // Only if an end's address is not known does one of several answers hold.
        let mut depends = any.clone();
        and_not(&mut depends, &all);
        if !ends.destination_is_unknown {
            and(&mut depends, &sources.unknown_words);
        }
        for (index, here) in present.iter().enumerate() {
            let at = |words: &Words| words.get(index).copied().unwrap_or(0);
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

    /// Where the port goes for a source; `None`: nowhere.
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
