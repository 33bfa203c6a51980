//! Evaluates a query to plain values: the only file here that calls the engine.

use std::collections::BTreeMap;

use anyhow::{anyhow, bail};
use palisade_core::analysis::connect::{
    Connectivity, EndGroupId, Matrix, Member, MemberId, Network, PortFilter, Selection, Summary,
};
use palisade_core::model::Cluster;
use palisade_core::net::Cidr;
use palisade_core::program::Program;

use super::ends::{EndKind, NamedEnds};
use super::filter::Filter;
use super::kinds::{EndClass, EndClasses, NOT_EVALUATED};
use super::ports::{Ports, Reaches};
use super::{Answer, Block, Table};
use crate::progress::Progress;

/// A query of connectivity.
pub(crate) struct ConnectivityQuery<'c> {
    /// The cluster.
    pub(crate) cluster: &'c Cluster<'c>,
    /// Its program.
    pub(crate) program: &'c Program,
    /// The sources; empty: any.
    pub(crate) from: Vec<Filter>,
    /// The destinations; empty: any.
    pub(crate) to: Vec<Filter>,
    /// The namespaces of the source or the destination; empty: any.
    pub(crate) namespaces: Vec<Filter>,
    /// The labels of a source or destination pod.
    pub(crate) labels: Option<Filter>,
    /// The ports; empty: all.
    pub(crate) ports: Vec<PortFilter>,
    /// Whether tables omit flows between nodes and networks, to which no policy applies.
    pub(crate) governed_only: bool,
    /// Whether to show a progress bar.
    pub(crate) show_progress: bool,
}

/// A function of each pair: the source, the destination, and their ports.
pub(crate) type WithPair<'w> = dyn FnMut(&NamedEnds, [u32; 2], &Ports) -> anyhow::Result<()> + 'w;

/// The help for an answer that is too large.
const HELP: &str = "limit it with --from, --to, --port or -n, or count with --summary";

impl<'c> ConnectivityQuery<'c> {
    /// Reports whether `-n` or `-l` restricts one side of the flows.
    fn has_side_filter(&self) -> bool {
        !self.namespaces.is_empty() || self.labels.is_some()
    }

    fn fits_side_filter(&self, member: &Member, networks: &[Network]) -> bool {
        let labels = self.labels.as_ref();
        self.any(&self.namespaces, member, networks)
            && labels.is_none_or(|it| it.selects(self.cluster, member, networks))
    }

    fn any(&self, filters: &[Filter], member: &Member, networks: &[Network]) -> bool {
        let selects = |it: &Filter| it.selects(self.cluster, member, networks);
        filters.is_empty() || filters.iter().any(selects)
    }

    /// Splits the query into parts without overlap. Flows that start or end in a selection are
    /// those that start there, and of the others those that end there.
    fn parts<'a>(&'a self, cluster: &'a Cluster<'a>) -> Vec<Connectivity<'a>> {
        let filters = self.from.iter().chain(&self.to);
        // All parts get the same cuts: a member must have the same number in each of them.
        let cuts: Vec<Cidr> = filters.filter_map(Filter::cut).collect();
        let from = |member: &Member, networks: &[Network]| self.any(&self.from, member, networks);
        let to = |member: &Member, networks: &[Network]| self.any(&self.to, member, networks);
        let fits = |member: &Member, networks: &[Network]| self.fits_side_filter(member, networks);
        let part = |from: &(dyn Fn(&Member, &[Network]) -> bool + Sync),
                    to: &(dyn Fn(&Member, &[Network]) -> bool + Sync)| {
            let selection = Selection {
                from,
                to,
                ports: self.ports.clone(),
                cuts: cuts.clone(),
            };
            Connectivity::new(cluster, self.program, &selection)
        };
        if !self.has_side_filter() {
            return vec![part(&from, &to)];
        }
        vec![
            part(
                &|it, networks| from(it, networks) && fits(it, networks),
                &to,
            ),
            part(
                &|it, networks| from(it, networks) && !fits(it, networks),
                &|it, networks| to(it, networks) && fits(it, networks),
            ),
        ]
    }

    fn is_pod(&self, member: &Member) -> bool {
        match member {
            Member::Pod(id) => {
                let pod = self.cluster.pods.get(id.0 as usize);
                pod.is_some_and(|pod| pod.is_selectable())
            }
            Member::Node(_) | Member::Network(_) | Member::Service(_) => false,
        }
    }

    fn ends(&self, parts: &[Connectivity<'_>]) -> NamedEnds {
        let first = parts.first();
        let members = first.map_or(&[][..], Connectivity::members);
        let networks = first.map_or(&[][..], Connectivity::networks);
        NamedEnds::new(self.cluster, members, networks)
    }

    fn progress(&self) -> Progress {
        Progress::counting("evaluating", 0, self.show_progress)
    }

    /// Returns blocks of groups, at most `most` of them.
    pub(crate) fn blocks(&self, most: usize) -> anyhow::Result<Answer<'_>> {
        let parts = self.parts(self.cluster);
        let ends = self.ends(&parts);
        let mut answer = Answer {
            ends,
            parts: Vec::new(),
            groups: Vec::new(),
            blocks: Vec::new(),
            reaches: Reaches::default(),
        };
        for (at, part) in parts.into_iter().enumerate() {
            let progress = self.progress();
            let left = most.saturating_sub(answer.blocks.len());
            let blocks = part.blocks(left, &|done, total| progress.reach_of(done, total));
            progress.finish();
            let too_many = |_| {
                let most = super::table::grouped(most as u64);
                anyhow!("more than {most} blocks; {HELP}, or allow more with --max-blocks")
            };
            let blocks = blocks.map_err(too_many)?;
            let before = answer.groups.len();
            let ids = (0..blocks.n_groups()).filter_map(|it| u32::try_from(it).ok());
            answer.groups.extend(ids.map(|id| (at, EndGroupId(id))));
            for block in &blocks.list {
                let reach = answer.reaches.intern(&block.reach);
                answer.blocks.push(Block {
                    from: before + block.from.0 as usize,
                    to: before + block.to.0 as usize,
                    reach,
                });
            }
            answer.parts.push((part, blocks));
        }
        Ok(answer)
    }

    /// Returns totals over ordered pairs of different pods.
    pub(crate) fn totals(&self) -> Summary {
        let parts = self.parts(self.cluster);
        let mut totals = Summary::default();
        for part in &parts {
            let progress = self.progress();
            let summary = part.summary(&|done, total| progress.reach_of(done, total));
            progress.finish();
            totals.allowed += summary.allowed;
            totals.denied += summary.denied;
            totals.mixed += summary.mixed;
            totals.unknown += summary.unknown;
            totals.no_family += summary.no_family;
        }
        // A pod that takes part in several parts counts once.
        let members = parts.first().map_or(&[][..], Connectivity::members);
        let numbered = (0..).map(MemberId).zip(members);
        let counts = |(id, member): &(MemberId, &Member)| {
            let takes_part =
                |part: &Connectivity<'_>| part.is_source(*id) || part.is_destination(*id);
            self.is_pod(member) && parts.iter().any(takes_part)
        };
        totals.endpoints = numbered.filter(counts).count() as u64;
        totals
    }

    /// Passes on every pair for which a port is allowed, as it is found.
    pub(crate) fn pairs(&self, with: &mut WithPair<'_>) -> anyhow::Result<()> {
        let parts = self.parts(self.cluster);
        let ends = self.ends(&parts);
        let mut reaches = Reaches::default();
        for part in &parts {
            let progress = self.progress();
            // Each part numbers its sets of ports; a number is faster to look up than the set.
            let mut places: Vec<Option<usize>> = Vec::new();
            part.pairs(
                &|done, total| progress.reach_of(done, total),
                &mut |pair| -> anyhow::Result<()> {
                    let number = pair.number as usize;
                    if places.len() <= number {
                        places.resize(number + 1, None);
                    }
                    let reach = match places.get(number).copied().flatten() {
                        Some(known) => known,
                        None => reaches.intern(pair.reach),
                    };
                    if let Some(place) = places.get_mut(number) {
                        *place = Some(reach);
                    }
                    let pair = [pair.source.0, pair.destination.0];
                    with(&ends, pair, reaches.get(reach))
                },
            )?;
            progress.finish();
        }
        Ok(())
    }

    /// Returns classes of endpoints and the ports between each two, with at most `most` classes.
    pub(crate) fn table(&self, most: usize) -> anyhow::Result<Table> {
        if let Some(table) = self.table_of(self.cluster, most.min(MOST_BY_NODE)) {
            return Ok(table);
        }
        // A node always reaches its own pods (D74), which makes pods of one workload on different
        // nodes separate classes. Where that makes too many classes, the pods are evaluated without
        // nodes.
        let mut unplaced = self.cluster.clone();
        for pod in unplaced.pods.iter_mut().filter(|pod| !pod.host_network) {
            pod.node = None;
        }
        let table = self.table_of(&unplaced, most);
        let table = table.map(|table| Table {
            without_node_local: true,
            ..table
        });
        table.ok_or_else(|| {
            let most = super::table::grouped(most as u64);
            anyhow!(
                "more than {most} classes of endpoints are too many for this format; {HELP}, or use -o json"
            )
        })
    }

    fn table_of(&self, cluster: &Cluster<'_>, most: usize) -> Option<Table> {
        let parts = self.parts(cluster);
        let ends = self.ends(&parts);
        let mut matrices = Vec::new();
        for part in &parts {
            let progress = self.progress();
            let matrix = part.matrix(most, &|done, total| progress.reach_of(done, total));
            progress.finish();
            matrices.push(matrix?);
        }
        let table = joined(ends, &parts, &matrices, self.governed_only);
        (table.kinds.list.len() <= most).then_some(table)
    }
}

/// The most classes for which pods are distinguished by their nodes.
const MOST_BY_NODE: usize = 100;

/// The space of a class, its type, and its class in each part.
type KindKey = (usize, EndKind, Vec<usize>);

/// The class of an endpoint that a part does not have.
const NONE: usize = usize::MAX;

/// A class of the joined table.
struct JoinedClass {
    space: usize,
    kind: EndKind,
    /// Its class in each part.
    of_part: Vec<usize>,
    /// Whether it is a source and a destination, in each part.
    roles: Vec<(bool, bool)>,
    members: Vec<u32>,
}

/// Joins the matrices of all parts. A class of the result has one type and one space.
fn joined(
    ends: NamedEnds,
    parts: &[Connectivity<'_>],
    matrices: &[Matrix],
    governed_only: bool,
) -> Table {
    let classes = joined_classes(&ends, parts, matrices);
    let mut reaches = Reaches::default();
    let interned: Vec<Vec<usize>> = matrices
        .iter()
        .map(|matrix| matrix.reaches.iter().map(|it| reaches.intern(it)).collect())
        .collect();
    let mut kinds = EndClasses::default();
    for from in &classes {
        let row = classes.iter().map(|to| {
            if !is_evaluated(from, to, governed_only) {
                return NOT_EVALUATED;
            }
            let cell = cell(from, to, matrices, &interned);
            cell.and_then(|it| i32::try_from(it).ok())
                .unwrap_or(NOT_EVALUATED)
        });
        kinds.add_row(row.collect());
        kinds.list.push(EndClass {
            label: String::new(),
            space: from.space,
            members: from.members.clone(),
        });
    }
    kinds.name(&ends);
    Table {
        ends,
        kinds,
        reaches,
        without_node_local: false,
    }
}

/// Returns the classes of endpoints that no part distinguishes, space by space.
fn joined_classes(
    ends: &NamedEnds,
    parts: &[Connectivity<'_>],
    matrices: &[Matrix],
) -> Vec<JoinedClass> {
    // For each endpoint, its class in each part.
    let mut kinds_of = vec![vec![NONE; matrices.len()]; ends.list.len()];
    for (part, matrix) in matrices.iter().enumerate() {
        for (kind, members) in matrix.kinds.iter().enumerate() {
            for member in members {
                let its = kinds_of.get_mut(member.0 as usize);
                if let Some(its) = its.and_then(|its| its.get_mut(part)) {
                    *its = kind;
                }
            }
        }
    }
    let mut found: BTreeMap<KindKey, Vec<u32>> = BTreeMap::new();
    for ((id, end), kinds) in ends.numbered().zip(kinds_of) {
        if kinds.iter().any(|it| *it != NONE) {
            let key = (end.space, end.kind, kinds);
            found.entry(key).or_default().push(id);
        }
    }
    let mut found: Vec<(KindKey, Vec<u32>)> = found.into_iter().collect();
    found.sort_by_key(|((space, ..), members)| (*space, members.first().copied()));
    let class = |((space, kind, of_part), members): (KindKey, Vec<u32>)| {
        let first = MemberId(members.first().copied().unwrap_or(u32::MAX));
        let role = |part: &Connectivity<'_>| (part.is_source(first), part.is_destination(first));
        JoinedClass {
            space,
            kind,
            of_part,
            roles: parts.iter().map(role).collect(),
            members,
        }
    };
    found.into_iter().map(class).collect()
}

/// Reports whether the table has the flows from one class to another.
fn is_evaluated(from: &JoinedClass, to: &JoinedClass, governed_only: bool) -> bool {
    // A template represents several pods, and is evaluated with itself.
    let is_itself =
        from.members.len() == 1 && from.members == to.members && from.kind != EndKind::Template;
    let is_governed =
        from.kind.is_selectable() || to.kind.is_selectable() || to.kind == EndKind::Service;
    !is_itself && (!governed_only || is_governed)
}

/// Returns the index of the ports from one class to another, in the first part that has both.
fn cell(
    from: &JoinedClass,
    to: &JoinedClass,
    matrices: &[Matrix],
    interned: &[Vec<usize>],
) -> Option<usize> {
    (0..matrices.len()).find_map(|part| {
        let is_source = from.roles.get(part)?.0;
        let is_destination = to.roles.get(part)?.1;
        if !is_source || !is_destination {
            return None;
        }
        let matrix = matrices.get(part)?;
        let row = matrix.cells.get(*from.of_part.get(part)?)?;
        let cell = *row.get(*to.of_part.get(part)?)?;
        interned.get(part)?.get(cell as usize).copied()
    })
}

/// Refuses a drawing or matrix with too many namespaces.
pub(crate) fn refuse(what: &str, units: usize) -> anyhow::Result<()> {
    bail!("{what} of {units} namespaces is too large to read; {HELP}, or use -o json")
}
