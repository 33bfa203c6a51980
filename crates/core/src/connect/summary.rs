//! Totals over pairs of pods.

use std::convert::Infallible;

use super::bits::{self, Weights, Words, or};
use super::egress::FoldContext;
use super::keys::Key;
use super::parallel::drive;
use super::rows::{CellPorts, Row, Rows, SourceGroup, every_and_any, everything};
use super::{Connectivity, Member, Progress, Reach};
use crate::net::Family;

/// How many ordered pairs of different pods are allowed, denied or neither, over all ports that are
/// asked about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The pods that take part.
    pub endpoints: u64,
    /// Everything is allowed.
    pub allowed: u64,
    /// Everything is denied.
    pub denied: u64,
    /// Ports, or families of addresses, differ.
    pub mixed: u64,
    /// Everything depends on an address that is not known (D136).
    pub unknown: u64,
    /// The two have no addresses of one family, so that there is nothing to decide.
    pub no_family: u64,
}

impl Summary {
    fn add(&mut self, other: &Summary) {
        self.allowed += other.allowed;
        self.denied += other.denied;
        self.mixed += other.mixed;
        self.unknown += other.unknown;
        self.no_family += other.no_family;
    }

    fn of(&mut self, sort: PairKind) -> &mut u64 {
        match sort {
            PairKind::Allowed => &mut self.allowed,
            PairKind::Denied => &mut self.denied,
            PairKind::Mixed => &mut self.mixed,
            PairKind::Unknown => &mut self.unknown,
            PairKind::NoFamily => &mut self.no_family,
        }
    }
}

/// What a pair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PairKind {
    Allowed,
    Denied,
    Mixed,
    Unknown,
    NoFamily,
}

impl Connectivity<'_> {
    /// Counts the pairs of pods. Nodes, networks and Services are not counted.
    pub fn summary(&self, progress: Progress<'_>) -> Summary {
        let weights: Vec<u64> = self.sources.list.iter().map(|key| key.n_pods).collect();
        let weights = Weights::new(&weights);
        let mut keys = self.in_order(&self.destinations);
        keys.retain(|key| key.n_pods > 0);
        let mut summary = Summary::default();
        let make = |rows: &mut Rows<'_>, key: &&Key<'_>| {
            let row = rows.row(key);
            self.count(rows.ground(), &weights, key, &row)
        };
        let mut tell = |counted: Summary| {
            summary.add(&counted);
            Ok::<(), Infallible>(())
        };
        let Ok(()) = self.with_ground(None, |ground| {
            drive(&|| Rows::new(ground), &keys, progress, &make, &mut tell)
        });
        let members = self.members.iter().enumerate();
        let endpoints = members.filter(|(id, member)| {
            let takes_part =
                |of: &Vec<u32>| of.get(*id).is_some_and(|it| *it != crate::program::NONE);
            let has_class = |seen: &super::members::MemberView<'_>| seen.class.is_some();
            matches!(member, Member::Pod(_))
                && self
                    .views
                    .get(*id)
                    .and_then(Option::as_ref)
                    .is_some_and(has_class)
                && (takes_part(&self.sources.of_member) || takes_part(&self.destinations.of_member))
        });
        summary.endpoints = endpoints.count() as u64;
        summary
    }

    fn count(
        &self,
        ground: &FoldContext<'_>,
        weights: &Weights,
        key: &Key<'_>,
        row: &Row,
    ) -> Summary {
        let single = single_plane(ground, row, &self.selected_cells(ground, key, row));
        let sorts = match single {
            Some((every, some)) => vec![(PairKind::Allowed, every), (PairKind::Mixed, some)],
            None => sorted_parts(ground, key, row, &self.cell_ports(ground, key, row)),
        };
        let mut summary = Summary::default();
        let mut left = weights.of(&ground.sources.all);
        for (sort, sources) in &sorts {
            let weight = weights.of(sources);
            *summary.of(*sort) += weight * key.n_pods;
            left -= weight;
        }
        summary.denied += left * key.n_pods;
        // A pod with itself is no pair.
        for member in &key.members {
            let Some(source) = self.sources.of(*member) else {
                continue;
            };
            let mut sorts = sorts.iter();
            let sort = sorts.find(|(_, sources)| bits::has(sources, source));
            *summary.of(sort.map_or(PairKind::Denied, |(sort, _)| *sort)) -= 1;
        }
        summary
    }
}

impl Connectivity<'_> {
    /// Which cells have ports that are asked about.
    fn selected_cells(&self, ground: &FoldContext<'_>, key: &Key<'_>, row: &Row) -> Vec<bool> {
        if !self.filters.is_empty() {
            let ports = self.cell_ports(ground, key, row);
            return ports.iter().map(|ports| !ports.is_empty()).collect();
        }
        let columns = self.columns(ground, key);
        let mut is_asked = vec![false; row.cells.groups.len()];
        for (column, cell) in row.cells.of.iter().enumerate() {
            if let Some(is_asked) = is_asked.get_mut(*cell as usize).filter(|it| !**it) {
                *is_asked = !columns.is_empty(column);
            }
        }
        is_asked
    }
}

/// Without unknown addresses and with one family everywhere, sets are all that is needed: who is
/// allowed everything, and who something else.
fn single_plane(ground: &FoldContext<'_>, row: &Row, is_asked: &[bool]) -> Option<(Words, Words)> {
    let sources = ground.sources;
    let [v4, v6] = &sources.may_have;
    let is_one_family = bits::is_empty(v4) || bits::is_empty(v6);
    let covers = v4 == &sources.all || v6 == &sources.all;
    if !is_one_family || !covers || !sources.unknown.is_empty() {
        return None;
    }
    let cells = row.cells.groups.iter().zip(is_asked);
    let meant = cells.filter(|(_, is_asked)| **is_asked);
    let mut planes = Vec::new();
    for (cell, _) in meant {
        let mut of_cell = cell.families.iter().flatten();
        let (Some(plane), None) = (of_cell.next(), of_cell.next()) else {
            return None;
        };
        if plane.any.is_some() {
            return None;
        }
        planes.push((&plane.all, &plane.all));
    }
    let (every, mut some) = every_and_any(sources.all.len(), planes.into_iter())?;
    bits::and_not(&mut some, &every);
    Some((every, some))
}

/// The sources by what their pairs are; those with nothing allowed are left out.
fn sorted_parts(
    ground: &FoldContext<'_>,
    key: &Key<'_>,
    row: &Row,
    ports: &[CellPorts],
) -> Vec<(PairKind, Words)> {
    let mut sorts: Vec<(PairKind, Words)> = Vec::new();
    for SourceGroup { sources, reach } in row.parts(ground, key, ports) {
        let first = bits::iter(&sources).next().unwrap_or(0);
        let shares = |family| key.view.may_have(family) && ground.sources.may_have(family, first);
        let asked = everything(ports, Family::BOTH.map(shares));
        let sort = match &reach {
            Reach { allowed, .. } if *allowed == asked => PairKind::Allowed,
            Reach { unknown, .. } if *unknown == asked => PairKind::Unknown,
            Reach { .. } => PairKind::Mixed,
        };
        sorts.push((sort, sources));
    }
    let mut apart = ground.sources.all.clone();
    let mut shared = vec![0; apart.len()];
    for family in Family::BOTH {
        if key.view.may_have(family) {
            let index = super::members::family_index(family);
            if let Some(may_have) = ground.sources.may_have.get(index) {
                or(&mut shared, may_have);
            }
        }
    }
    bits::and_not(&mut apart, &shared);
    if !bits::is_empty(&apart) {
        sorts.push((PairKind::NoFamily, apart));
    }
    sorts
}
