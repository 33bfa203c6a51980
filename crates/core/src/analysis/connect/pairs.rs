//! Connectivity pair by pair: streamed, and as a small matrix.

use std::convert::Infallible;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::parallel::drive;
use super::reached::{ReachingSources, Target};
use super::rows::Rows;
use super::services::ServiceTarget;
use super::{Connectivity, Member, MemberId, Progress, Reach};
use crate::compile::count;
use crate::program::NONE;

/// Two members with a flow that is not denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair<'r> {
    /// The source.
    pub source: MemberId,
    /// The destination.
    pub destination: MemberId,
    /// The verdicts by port; not all are denied.
    pub reach: &'r Reach,
    /// The number of the reach, from 0: equal reaches share one.
    pub number: u32,
}

/// Connectivity between kinds of members: no policy distinguishes the members of a kind.
#[derive(Debug)]
pub struct Matrix {
    /// The members of each kind, ascending; kinds are in the order of their first members.
    pub kinds: Vec<Vec<MemberId>>,
    /// The distinct reaches. The first denies everything.
    pub reaches: Vec<Reach>,
    /// For each kind of source and each kind of destination the index of the reach.
    pub cells: Vec<Vec<u32>>,
}

/// The parts that distinguish kinds: both keys, the node if it matters, and the Service.
type KindParts<'c> = (u32, u32, Option<&'c str>, Option<u32>);

/// The number of destinations that are evaluated before their pairs are visited.
const AT_ONCE: usize = 1024;

impl<'c> Connectivity<'c> {
    /// Visits every pair with a flow that is not denied, by destination, then source. Of the pairs
    /// of a member with itself only those of templates are visited: a template stands for several
    /// pods.
    pub fn pairs<E>(
        &self,
        progress: Progress<'_>,
        visit: &mut dyn FnMut(Pair<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let members = || (0..count(self.members.len())).map(MemberId);
        let destinations: Vec<MemberId> = members().filter(|it| self.is_destination(*it)).collect();
        let sources: Vec<MemberId> = members().filter(|it| self.is_source(*it)).collect();
        self.pairs_between(&sources, &destinations, progress, visit)
    }

    /// Visits the pairs between some members.
    fn pairs_between<E>(
        &self,
        sources: &[MemberId],
        destinations: &[MemberId],
        progress: Progress<'_>,
        visit: &mut dyn FnMut(Pair<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let map = self.service_map();
        let services = map.services.iter();
        let services: FxHashMap<u32, &ServiceTarget> =
            services.map(|it| (it.member.0, it)).collect();
        // Kept across batches: a number means the same reach in all of them.
        let mut numbers: FxHashMap<Reach, u32> = FxHashMap::default();
        self.with_context(Some(&map), |context| {
            let mut n_done = 0;
            for batch in destinations.chunks(AT_ONCE) {
                // Members of a key share their sources, so each key of a batch is folded once. The
                // batch bounds the results in memory.
                let mut ids: Vec<(bool, u32)> = Vec::new();
                for member in batch {
                    ids.push(self.target_id(*member));
                }
                ids.sort_unstable();
                ids.dedup();
                let targets = ids.iter().filter_map(|(is_service, id)| {
                    Some(if *is_service {
                        Target::Service(services.get(id)?)
                    } else {
                        Target::Key(self.destinations.list.get(*id as usize)?)
                    })
                });
                let targets: Vec<Target<'_, 'c>> = targets.collect();
                let mut found: Vec<Arc<ReachingSources>> = Vec::with_capacity(targets.len());
                drive(
                    &|| Rows::new(context),
                    &targets,
                    &|_, _| {},
                    &|rows: &mut Rows<'_>, target| self.reached(rows, &map, *target),
                    &mut |reached| {
                        found.push(Arc::new(reached));
                        Ok(())
                    },
                )?;
                let found: FxHashMap<(bool, u32), Arc<ReachingSources>> =
                    ids.into_iter().zip(found).collect();
                for member in batch {
                    if let Some(reached) = found.get(&self.target_id(*member)) {
                        self.visit_pairs(sources, *member, reached, &mut numbers, visit)?;
                    }
                }
                n_done += batch.len();
                progress(n_done, destinations.len());
            }
            Ok(())
        })
    }

    fn target_id(&self, member: MemberId) -> (bool, u32) {
        match self.destinations.of(member.0) {
            Some(key) => (false, key),
            None => (true, member.0),
        }
    }

    fn visit_pairs<E>(
        &self,
        sources: &[MemberId],
        destination: MemberId,
        reached: &ReachingSources,
        numbers: &mut FxHashMap<Reach, u32>,
        visit: &mut dyn FnMut(Pair<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut of_key = vec![NONE; self.sources.len()];
        for (index, part) in reached.parts.iter().enumerate() {
            for key in super::bits::iter(&part.sources) {
                if let Some(slot) = of_key.get_mut(key as usize) {
                    *slot = count(index);
                }
            }
        }
        let mut number = |reach: &Reach| match numbers.get(reach) {
            Some(known) => *known,
            None => {
                let next = count(numbers.len());
                numbers.insert(reach.clone(), next);
                next
            }
        };
        let parts = reached.parts.iter();
        let parts: Vec<(u32, &Reach)> = parts
            .map(|part| (number(&part.reach), &part.reach))
            .collect();
        // A local source overrides the group of its key: the pair is exempt at ingress (D74).
        let local = reached.local.iter();
        let local = local.filter(|(_, to, _)| *to == destination);
        let local: FxHashMap<MemberId, (u32, &Reach)> = local
            .map(|(from, _, reach)| (*from, (number(reach), reach)))
            .collect();
        for source in sources.iter().copied() {
            if source == destination && !self.is_template(source) {
                continue;
            }
            let key = self.sources.of(source.0);
            let part = key.and_then(|key| of_key.get(key as usize));
            let part = part.and_then(|part| parts.get(*part as usize));
            let reach = local.get(&source).or(part).copied();
            if let Some((number, reach)) = reach.filter(|(_, reach)| !reach.is_empty()) {
                visit(Pair {
                    source,
                    destination,
                    reach,
                    number,
                })?;
            }
        }
        Ok(())
    }

    /// Returns whether a member is a template, which stands for several pods.
    pub fn is_template(&self, member: MemberId) -> bool {
        match self.members.get(member.0 as usize) {
            Some(Member::Pod(pod)) => {
                let pod = self.cluster.pods.get(pod.0 as usize);
                pod.is_some_and(|pod| pod.template.is_some())
            }
            Some(Member::Node(_) | Member::Network(_) | Member::Service(_)) | None => false,
        }
    }

    /// Evaluates connectivity between kinds of members; `None`: more than `limit` kinds.
    pub fn matrix(&self, limit: usize, progress: Progress<'_>) -> Option<Matrix> {
        let mut ids: FxHashMap<KindParts<'_>, usize> = FxHashMap::default();
        let mut kinds: Vec<Vec<MemberId>> = Vec::new();
        for (member, view) in self.views.iter().enumerate() {
            let member = MemberId(count(member));
            if !self.is_source(member) && !self.is_destination(member) {
                continue;
            }
            let key = |of: Option<u32>| of.unwrap_or(NONE);
            // Flows from a pod's own node are exempt at ingress (D74). If that node is a source,
            // its pods are a kind of their own.
            let node = view.as_ref().and_then(|view| view.local_to.or(view.node));
            let node = node.filter(|node| self.local_sources.contains_key(node));
            let service = view.is_none().then_some(member.0);
            let parts = (
                key(self.sources.of(member.0)),
                key(self.destinations.of(member.0)),
                node,
                service,
            );
            let kind = *ids.entry(parts).or_insert(kinds.len());
            match kinds.get_mut(kind) {
                Some(kind) => kind.push(member),
                None => kinds.push(vec![member]),
            }
            if kinds.len() > limit {
                return None;
            }
        }
        Some(self.fill(kinds, progress))
    }

    fn fill(&self, kinds: Vec<Vec<MemberId>>, progress: Progress<'_>) -> Matrix {
        // One member of each kind stands for all. A second one is the source of flows inside the
        // kind, because a member is no pair with itself.
        let mut kind_of: FxHashMap<MemberId, usize> = FxHashMap::default();
        for (kind, members) in kinds.iter().enumerate() {
            kind_of.extend(members.iter().take(2).map(|member| (*member, kind)));
        }
        let firsts = kinds.iter().filter_map(|members| members.first().copied());
        let destinations: Vec<MemberId> = firsts.filter(|it| self.is_destination(*it)).collect();
        let some = kinds
            .iter()
            .flat_map(|members| members.iter().take(2).copied());
        let sources: Vec<MemberId> = some.filter(|it| self.is_source(*it)).collect();
        let mut reaches = vec![Reach::default()];
        let mut ids: FxHashMap<Reach, u32> = FxHashMap::default();
        let mut cells = vec![vec![0; kinds.len()]; kinds.len()];
        let kind = |member: MemberId| kind_of.get(&member).copied().unwrap_or(usize::MAX);
        let mut visit = |pair: Pair<'_>| {
            let row = cells.get_mut(kind(pair.source));
            let cell = row.and_then(|row| row.get_mut(kind(pair.destination)));
            // Both sources of a kind have the same reach: the first one counts.
            if let Some(cell) = cell.filter(|cell| **cell == 0) {
                let next = count(reaches.len());
                *cell = *ids.entry(pair.reach.clone()).or_insert(next);
                if *cell == next {
                    reaches.push(pair.reach.clone());
                }
            }
            Ok::<(), Infallible>(())
        };
        let Ok(()) = self.pairs_between(&sources, &destinations, progress, &mut visit);
        Matrix {
            kinds,
            reaches,
            cells,
        }
    }
}
