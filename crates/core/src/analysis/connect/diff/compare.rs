//! One destination on both sides: the sources whose verdict differs, by port and deciding cause.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::columns::{Column, columns};
use super::ends::ClusterSide;
use super::keys::JointKeys;
use super::locals::Locals;
use super::states::{ChangeKind, ChangedSources, FamilyFilter, States, changed};
use super::why::{DecisionChange, Pair, decision_change, is_same};
use crate::analysis::connect::bits::{self, Words, and, and_not, is_empty};
use crate::analysis::connect::egress::FoldContext;
use crate::analysis::connect::members::MemberView;
use crate::analysis::connect::peers::class;
use crate::analysis::connect::rows::{Cell, Row, Rows};
use crate::answer::PortSet;
use crate::net::Family;

/// An endpoint that only one cluster has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OneSided {
    /// Only the new cluster has it.
    New,
    /// Only the old cluster has it.
    Gone,
}

/// The properties that all flows of a change share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ChangeLabel {
    pub(super) kind: ChangeKind,
    pub(super) one_sided: Option<OneSided>,
    pub(super) family: Option<Family>,
    pub(super) decision: Option<DecisionChange>,
    /// Whether the causes are those of one flow, and other flows may have others.
    pub(super) is_example: bool,
}

/// Sources whose flows to one destination key differ.
#[derive(Clone, Debug)]
pub(super) struct ChangedGroup {
    pub(super) label: ChangeLabel,
    pub(super) ports: PortSet,
    pub(super) sources: Words,
}

/// Flows between two single endpoints that differ.
#[derive(Clone, Debug)]
pub(super) struct ChangedPair {
    pub(super) label: ChangeLabel,
    pub(super) ports: PortSet,
    pub(super) source: u32,
    pub(super) destination: u32,
}

/// The inputs that the comparisons of all destinations share.
pub(super) struct Comparison<'g, 'c> {
    pub(super) sides: [&'g ClusterSide<'c>; 2],
    pub(super) contexts: [&'g FoldContext<'g>; 2],
    pub(super) sources: &'g JointKeys<'c>,
    pub(super) destinations: &'g JointKeys<'c>,
    /// The source keys that each side has.
    pub(super) present: [Words; 2],
    pub(super) locals: &'g Locals,
    /// The maximum number of flows of one destination whose causes are evaluated.
    pub(super) most_reasons: usize,
}

/// Evaluates destinations on both sides, one after the other.
pub(super) struct Worker<'g> {
    old: Rows<'g>,
    new: Rows<'g>,
    columns: FxHashMap<[Option<u32>; 2], Arc<Vec<Column>>>,
}

impl<'g> Worker<'g> {
    pub(super) fn new([old, new]: [&'g FoldContext<'g>; 2]) -> Worker<'g> {
        Worker {
            old: Rows::new(old),
            new: Rows::new(new),
            columns: FxHashMap::default(),
        }
    }
}

/// A destination key in a comparison.
#[derive(Clone, Copy)]
struct DestinationView<'a, 'c> {
    key: u32,
    views: [&'a MemberView<'c>; 2],
    /// The only source key to compare, with the sides on which it is on the destination's node.
    neighbour: Option<(u32, [bool; 2])>,
}

/// Columns that share a cell on each side, and so all verdicts.
struct SameColumns<'r> {
    cells: [&'r Cell; 2],
    columns: Vec<&'r Column>,
}

/// The changes of one destination so far: for each label the ports and sources.
#[derive(Default)]
struct DestinationDraft {
    order: Vec<ChangeLabel>,
    of_label: FxHashMap<ChangeLabel, Vec<(PortSet, Words)>>,
    n_reasons: usize,
}

impl DestinationDraft {
    fn add(&mut self, label: ChangeLabel, ports: &PortSet, sources: Words) {
        if is_empty(&sources) || ports.is_empty() {
            return;
        }
        let list = self.of_label.entry(label).or_insert_with(|| {
            self.order.push(label);
            Vec::new()
        });
        // Ports with the same sources share a group.
        match list.iter_mut().find(|(_, known)| *known == sources) {
            Some((known, _)) => known.add(ports),
            None => list.push((ports.clone(), sources)),
        }
    }

    fn finish(mut self) -> Vec<ChangedGroup> {
        // The order in which a hash map has the reasons must not reach the output.
        self.order.sort_unstable();
        let mut parts = Vec::new();
        for label in self.order {
            let list = self.of_label.remove(&label).unwrap_or_default();
            parts.extend(list.into_iter().map(|(ports, sources)| ChangedGroup {
                label,
                ports,
                sources,
            }));
        }
        parts
    }
}

impl<'c> Comparison<'_, 'c> {
    /// Returns the changes at a destination key.
    pub(super) fn found(
        &self,
        worker: &mut Worker<'_>,
        key: u32,
    ) -> (Vec<ChangedGroup>, Vec<ChangedPair>) {
        let old_key = self.destinations.old.list.get(key as usize);
        let new_key = self.destinations.new.list.get(key as usize);
        let (Some(old_key), Some(new_key)) = (old_key, new_key) else {
            return (Vec::new(), Vec::new());
        };
        let rows = [worker.old.row(old_key), worker.new.row(new_key)];
        let [before, after] = self.contexts;
        let map = |it: &FoldContext<'_>, key| class(it.program, key).map(|it| it.port_map);
        let maps = [map(before, old_key), map(after, new_key)];
        // Few pairs of port maps occur: each worker intersects their columns once.
        let all = worker.columns.entry(maps).or_insert_with(|| {
            let [old, new] = maps;
            let (old, new) = (before.columns.with(old), after.columns.with(new));
            Arc::new(columns(old, new))
        });
        let all = Arc::clone(all);
        let at = DestinationView {
            key,
            views: [&old_key.view, &new_key.view],
            neighbour: None,
        };
        let alike = same_columns(&rows, &all);
        let mut draft = DestinationDraft::default();
        alike.iter().for_each(|it| self.add(&mut draft, &at, it));
        (draft.finish(), self.singles(&at, &alike))
    }

    /// Compares the pairs of neighbours that D74 does not exempt alike on both sides.
    fn singles(&self, at: &DestinationView<'_, 'c>, alike: &[SameColumns<'_>]) -> Vec<ChangedPair> {
        let mut found = Vec::new();
        for destination in self.destinations.members(at.key) {
            let neighbours = self.locals.get(self.locals.id(*destination));
            for (source, on_node) in &neighbours.special {
                let Some(key) = self.sources.new.of(*source) else {
                    continue;
                };
                let at = DestinationView {
                    neighbour: Some((key, *on_node)),
                    ..*at
                };
                let mut draft = DestinationDraft::default();
                alike.iter().for_each(|it| self.add(&mut draft, &at, it));
                found.extend(draft.finish().into_iter().map(|part| ChangedPair {
                    label: part.label,
                    ports: part.ports,
                    source: *source,
                    destination: *destination,
                }));
            }
        }
        found
    }

    fn add(
        &self,
        draft: &mut DestinationDraft,
        at: &DestinationView<'_, 'c>,
        alike: &SameColumns<'_>,
    ) {
        let portless = alike.columns.iter().filter(|it| it.is_portless);
        let portless: Vec<&Column> = portless.copied().collect();
        for filter in [
            FamilyFilter::Any,
            FamilyFilter::Only(Family::V4),
            FamilyFilter::Only(Family::V6),
        ] {
            // Each ICMP protocol is of one family; other traffic is of any family that both share.
            let (columns, extra) = match filter {
                FamilyFilter::Any => (&alike.columns, PortSet::other()),
                FamilyFilter::Only(Family::V4) => (&portless, PortSet::icmp()),
                FamilyFilter::Only(Family::V6) => (&portless, PortSet::icmp6()),
            };
            if columns.is_empty() {
                continue;
            }
            let states = |index: usize| {
                let context = self.contexts.get(index)?;
                let (view, cell) = (at.views.get(index)?, alike.cells.get(index)?);
                let neighbour = at
                    .neighbour
                    .filter(|(_, on_node)| on_node.get(index) == Some(&true));
                let open = neighbour.map(|(key, _)| key);
                Some(States::new(context.sources, view, cell, filter, open))
            };
            let (Some(old), Some(new)) = (states(0), states(1)) else {
                continue;
            };
            for mut changed in changed(&old, &new) {
                // The other sources of the key are compared without a neighbour.
                if let Some((key, _)) = at.neighbour {
                    let is_changed = bits::has(&changed.sources, key);
                    changed.sources.fill(0);
                    if is_changed {
                        bits::set(&mut changed.sources, key);
                    }
                }
                let family = match filter {
                    FamilyFilter::Any => changed.family,
                    FamilyFilter::Only(family) => Some(family),
                };
                let columns = columns.iter().map(|column| {
                    let mut ports = match filter {
                        FamilyFilter::Any => column.ports.clone(),
                        FamilyFilter::Only(_) => PortSet::default(),
                    };
                    if column.is_portless {
                        ports.add(&extra);
                    }
                    (*column, ports)
                });
                let columns: Vec<(&Column, PortSet)> = columns.collect();
                self.record(draft, at, &changed, family, &columns);
            }
        }
    }

    /// Adds sources that differ, labelled by presence and deciding causes.
    fn record(
        &self,
        draft: &mut DestinationDraft,
        at: &DestinationView<'_, 'c>,
        changed: &ChangedSources,
        family: Option<Family>,
        columns: &[(&Column, PortSet)],
    ) {
        for (one_sided, sources) in self.by_presence(at.key, changed) {
            let label = ChangeLabel {
                kind: changed.kind,
                one_sided,
                family: changed.family,
                decision: None,
                is_example: false,
            };
            let n_sources = bits::iter(&sources).count();
            if changed.kind == ChangeKind::Undecided {
                for (column, ports) in columns {
                    let mut sources = sources.clone();
                    // Bounds cannot compare two sides that both depend on the address.
                    if changed.is_doubtful {
                        self.keep_different(&mut sources, at.views, column, family);
                    }
                    draft.add(label, ports, sources);
                }
                continue;
            }
            let n_flows = n_sources * columns.len();
            // Above the limit one flow stands for all: its causes are reported as an example.
            let is_example = draft.n_reasons + n_flows > self.most_reasons;
            if is_example {
                let first = bits::iter(&sources).next();
                let (Some(source), Some((column, _))) = (first, columns.first()) else {
                    continue;
                };
                let reason = self.reason(source, at, column, family, changed.kind);
                let mut ports = PortSet::default();
                columns.iter().for_each(|(_, more)| ports.add(more));
                let label = ChangeLabel {
                    decision: Some(reason),
                    is_example: n_flows > 1,
                    ..label
                };
                draft.add(label, &ports, sources);
                continue;
            }
            draft.n_reasons += n_flows;
            for (column, ports) in columns {
                let mut by_reason: FxHashMap<DecisionChange, Words> = FxHashMap::default();
                for source in bits::iter(&sources) {
                    let reason = self.reason(source, at, column, family, changed.kind);
                    let words = by_reason.entry(reason);
                    let words = words.or_insert_with(|| vec![0; sources.len()]);
                    bits::set(words, source);
                }
                for (reason, sources) in by_reason {
                    let reason = Some(reason);
                    draft.add(
                        ChangeLabel {
                            decision: reason,
                            ..label
                        },
                        ports,
                        sources,
                    );
                }
            }
        }
    }

    /// Splits sources by whether one cluster lacks an endpoint of the flow.
    fn by_presence(&self, key: u32, changed: &ChangedSources) -> Vec<(Option<OneSided>, Words)> {
        let here = self.destinations.presence.get(key as usize);
        let [in_old, in_new] = here.copied().unwrap_or([true; 2]);
        let [old, new] = &self.present;
        let mut common = changed.sources.clone();
        and(&mut common, old);
        and(&mut common, new);
        if !in_old || !in_new {
            common.fill(0);
        }
        let mut rest = changed.sources.clone();
        and_not(&mut rest, &common);
        let mut gone = rest.clone();
        if in_new {
            and_not(&mut gone, new);
        }
        and_not(&mut rest, &gone);
        // A flow from an endpoint of one cluster to an endpoint of the other exists in neither, so
        // each flow belongs to exactly one part.
        let parts = [
            (None, common),
            (Some(OneSided::New), rest),
            (Some(OneSided::Gone), gone),
        ];
        let parts = parts.into_iter();
        parts.filter(|(_, words)| !is_empty(words)).collect()
    }

    fn pair<'p>(&'p self, source: u32, views: [&'p MemberView<'c>; 2]) -> Pair<'p, 'c> {
        let keys = [&self.sources.old, &self.sources.new];
        let source = keys.map(|keys| keys.list.get(source as usize).map(|key| &key.view));
        // A side that lacks a key has a placeholder without addresses in its place.
        let is_there =
            |it: &&MemberView<'_>| Family::BOTH.into_iter().any(|family| it.may_have(family));
        Pair {
            source: source.map(|it| it.filter(is_there)),
            destination: views.map(|it| Some(it).filter(is_there)),
        }
    }

    fn reason(
        &self,
        source: u32,
        at: &DestinationView<'_, 'c>,
        column: &Column,
        family: Option<Family>,
        kind: ChangeKind,
    ) -> DecisionChange {
        let pair = self.pair(source, at.views);
        let reason = decision_change(self.sides, &pair, column, family, kind);
        match at.neighbour {
            Some((_, on_node)) => reason.between_neighbours(on_node),
            None => reason,
        }
    }

    /// Keeps only sources whose flows differ for some possible address.
    fn keep_different(
        &self,
        sources: &mut Words,
        views: [&MemberView<'c>; 2],
        column: &Column,
        family: Option<Family>,
    ) {
        let all: Vec<u32> = bits::iter(sources).collect();
        sources.fill(0);
        for source in all {
            if !is_same(self.sides, &self.pair(source, views), column, family) {
                bits::set(sources, source);
            }
        }
    }
}

/// Groups the columns by their cells on both sides, in order.
fn same_columns<'r>(rows: &'r [Row; 2], columns: &'r [Column]) -> Vec<SameColumns<'r>> {
    let [old, new] = rows;
    let mut places: FxHashMap<(u32, u32), usize> = FxHashMap::default();
    let mut found: Vec<SameColumns<'r>> = Vec::new();
    for column in columns {
        let cell = |row: &'r Row, column: usize| {
            let id = row.cells.of.get(column).copied()?;
            Some((id, row.cells.groups.get(id as usize)?))
        };
        let (Some((i, mine)), Some((j, its))) = (cell(old, column.old), cell(new, column.new))
        else {
            continue;
        };
        let place = *places.entry((i, j)).or_insert(found.len());
        match found.get_mut(place) {
            Some(known) => known.columns.push(column),
            None => found.push(SameColumns {
                cells: [mine, its],
                columns: vec![column],
            }),
        }
    }
    found
}
