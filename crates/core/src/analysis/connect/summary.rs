//! Totals over pairs of pods.

use std::convert::Infallible;

use super::bits::{self, Weights, Words, or};
use super::egress::FoldContext;
use super::keys::Key;
use super::parallel::drive;
use super::rows::{CellPorts, Row, Rows, SourceGroup, every_and_any, everything};
use super::{Connectivity, Member, Progress, Reach};
use crate::net::Family;

/// The number of ordered pairs of different pods, by their verdicts over all selected ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The pods that take part.
    pub endpoints: u64,
    /// Pairs with every port allowed.
    pub allowed: u64,
    /// Pairs with every port denied.
    pub denied: u64,
    /// Pairs with some ports allowed, or only one address family.
    pub mixed: u64,
    /// Pairs for which everything depends on an unknown address (D136).
    pub unknown: u64,
    /// Pairs that share no address family: there is no flow to decide.
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

    fn of(&mut self, kind: PairKind) -> &mut u64 {
        match kind {
            PairKind::Allowed => &mut self.allowed,
            PairKind::Denied => &mut self.denied,
            PairKind::Mixed => &mut self.mixed,
            PairKind::Unknown => &mut self.unknown,
            PairKind::NoFamily => &mut self.no_family,
        }
    }
}

/// The verdict of a pair over all selected ports.
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
            self.count(rows.context(), &weights, key, &row)
        };
        let mut add = |counted: Summary| {
            summary.add(&counted);
            Ok::<(), Infallible>(())
        };
        let Ok(()) = self.with_context(None, |context| {
            drive(&|| Rows::new(context), &keys, progress, &make, &mut add)
        });
        let members = self.members.iter().enumerate();
        let endpoints = members.filter(|(id, member)| {
            let takes_part =
                |of: &Vec<u32>| of.get(*id).is_some_and(|it| *it != crate::program::NONE);
            // Host-network pods have no class. Their flows are their node's, and are not counted.
            let has_class = |view: &super::members::MemberView<'_>| view.class.is_some();
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
        context: &FoldContext<'_>,
        weights: &Weights,
        key: &Key<'_>,
        row: &Row,
    ) -> Summary {
        let single = single_family(context, row, &self.selected_cells(context, key, row));
        // In clusters of one family two sets are enough. Groups by reach take far longer.
        let kinds = match single {
            Some((every, some)) => vec![(PairKind::Allowed, every), (PairKind::Mixed, some)],
            None => parts_by_kind(context, key, row, &self.cell_ports(context, key, row)),
        };
        let mut summary = Summary::default();
        let mut left = weights.of(&context.sources.all);
        for (kind, sources) in &kinds {
            let weight = weights.of(sources);
            *summary.of(*kind) += weight * key.n_pods;
            left -= weight;
        }
        summary.denied += left * key.n_pods;
        // A pod with itself is no pair. The weights above count whole keys; it is subtracted here.
        for member in &key.members {
            let Some(source) = self.sources.of(*member) else {
                continue;
            };
            let mut kinds = kinds.iter();
            let kind = kinds.find(|(_, sources)| bits::has(sources, source));
            *summary.of(kind.map_or(PairKind::Denied, |(kind, _)| *kind)) -= 1;
        }
        summary
    }
}

impl Connectivity<'_> {
    /// Returns for each cell whether it has selected ports.
    fn selected_cells(&self, context: &FoldContext<'_>, key: &Key<'_>, row: &Row) -> Vec<bool> {
        if !self.filters.is_empty() {
            let ports = self.cell_ports(context, key, row);
            return ports.iter().map(|ports| !ports.is_empty()).collect();
        }
        // Without filters it is enough that a column is not empty: sets of ports take longer.
        let columns = self.columns(context, key);
        let mut is_selected = vec![false; row.cells.groups.len()];
        for (column, cell) in row.cells.of.iter().enumerate() {
            if let Some(is_selected) = is_selected.get_mut(*cell as usize).filter(|it| !**it) {
                *is_selected = !columns.is_empty(column);
            }
        }
        is_selected
    }
}

/// Returns the sources with everything allowed and those with something allowed. `None`: sets are
/// not enough, because of an unknown address or several families.
fn single_family(
    context: &FoldContext<'_>,
    row: &Row,
    is_selected: &[bool],
) -> Option<(Words, Words)> {
    let sources = context.sources;
    let [v4, v6] = &sources.may_have;
    let is_one_family = bits::is_empty(v4) || bits::is_empty(v6);
    let covers = v4 == &sources.all || v6 == &sources.all;
    if !is_one_family || !covers || !sources.unknown.is_empty() {
        return None;
    }
    let cells = row.cells.groups.iter().zip(is_selected);
    let selected = cells.filter(|(_, is_selected)| **is_selected);
    let mut sets = Vec::new();
    for (cell, _) in selected {
        let mut of_cell = cell.families.iter().flatten();
        let (Some(allowed), None) = (of_cell.next(), of_cell.next()) else {
            return None;
        };
        if allowed.any.is_some() {
            return None;
        }
        sets.push((&allowed.all, &allowed.all));
    }
    let (every, mut some) = every_and_any(sources.all.len(), sets.into_iter())?;
    bits::and_not(&mut some, &every);
    Some((every, some))
}

/// Groups the sources by the verdicts of their pairs; sources with nothing allowed are left out.
fn parts_by_kind(
    context: &FoldContext<'_>,
    key: &Key<'_>,
    row: &Row,
    ports: &[CellPorts],
) -> Vec<(PairKind, Words)> {
    let mut kinds: Vec<(PairKind, Words)> = Vec::new();
    for SourceGroup { sources, reach } in row.parts(context, key, ports) {
        let first = bits::iter(&sources).next().unwrap_or(0);
        let shares = |family| key.view.may_have(family) && context.sources.may_have(family, first);
        let selected = everything(ports, Family::BOTH.map(shares));
        let kind = match &reach {
            Reach { allowed, .. } if *allowed == selected => PairKind::Allowed,
            Reach { unknown, .. } if *unknown == selected => PairKind::Unknown,
            Reach { .. } => PairKind::Mixed,
        };
        kinds.push((kind, sources));
    }
    let mut apart = context.sources.all.clone();
    let mut shared = vec![0; apart.len()];
    for family in Family::BOTH {
        if key.view.may_have(family) {
            let index = super::members::family_index(family);
            if let Some(may_have) = context.sources.may_have.get(index) {
                or(&mut shared, may_have);
            }
        }
    }
    bits::and_not(&mut apart, &shared);
    if !bits::is_empty(&apart) {
        kinds.push((PairKind::NoFamily, apart));
    }
    kinds
}
