//! What was found of all destinations, put together in blocks.

use std::borrow::Cow;

use rustc_hash::FxHashMap;

use super::blame::Blame;
use super::changes::Changes;
use super::compare::{ChangeLabel, ChangedGroup, ChangedPair};
use super::ends::{ClusterSide, ComparedEnd};
use super::groups::{Group, Groups, each_end};
use super::keys::JointKeys;
use super::locals::Locals;
use super::states::ChangeKind;
use super::{Block, Difference, EndId, Endpoint, Totals, Version};
use crate::answer::PortSet;
use crate::compile::count;
use crate::connect::bits::{self, KeySet, Weights, Words, or};
use crate::connect::{Member, TooMany};
use crate::set_hash::{SetInterner, word};

/// Groups may take so many bytes; beyond that there is too much, however few blocks there are.
const ROOM: usize = 1 << 30;

/// What was found so far.
pub(super) struct BlockAssembler {
    locals: Locals,
    /// Whether each end stands for several, so that it can meet itself.
    is_many: Vec<bool>,
    limit: usize,
    /// For each run, for each source key its ends, and the sum of their words.
    runs: Vec<Run>,
    groups: Vec<Group>,
    group_ids: SetInterner,
    /// Other keys that turned out to be the ends of a group: by the group, the run and who is left out.
    also: FxHashMap<(u32, usize, u32), KeySet>,
    ports: Vec<PortSet>,
    port_ids: FxHashMap<PortSet, u32>,
    /// By what is said, the ports and the sources: the destinations.
    found: FxHashMap<(ChangeLabel, u32, u32), Vec<u32>>,
    room: usize,
    totals: Totals,
    one_sided: Totals,
}

/// The sources of a run.
struct Run {
    members: Vec<Vec<u32>>,
    sums: Vec<u128>,
    weights: Weights,
    /// The keys with somebody who is a neighbour of somebody.
    neighbours: Words,
    of_end: Vec<u32>,
}

impl BlockAssembler {
    pub(super) fn new(
        sides: [&ClusterSide<'_>; 2],
        ends: &[ComparedEnd],
        locals: &Locals,
        limit: usize,
    ) -> BlockAssembler {
        BlockAssembler {
            locals: locals.clone(),
            is_many: ends.iter().map(|end| is_many(sides, end)).collect(),
            limit,
            runs: Vec::new(),
            groups: Vec::new(),
            group_ids: SetInterner::default(),
            also: FxHashMap::default(),
            ports: Vec::new(),
            port_ids: FxHashMap::default(),
            found: FxHashMap::default(),
            room: 0,
            totals: Totals::default(),
            one_sided: Totals::default(),
        }
    }

    /// From here on, sources are keys of these.
    pub(super) fn begin(&mut self, sources: &JointKeys<'_>) {
        let members = (0..count(sources.len())).map(|key| sources.members(key).to_vec());
        let members: Vec<Vec<u32>> = members.collect();
        let mut neighbours = vec![0; bits::words_for(sources.len())];
        for end in self.locals.all() {
            if let Some(key) = sources.new.of(end) {
                bits::set(&mut neighbours, key);
            }
        }
        let weights: Vec<u64> = members.iter().map(|list| list.len() as u64).collect();
        self.runs.push(Run {
            sums: members.iter().map(|list| sum(list)).collect(),
            weights: Weights::new(&weights),
            neighbours,
            of_end: sources.new.of_member.clone(),
            members,
        });
    }

    /// Adds what was found of a destination key.
    pub(super) fn add(
        &mut self,
        members: &[u32],
        parts: Vec<ChangedGroup>,
        singles: &[ChangedPair],
    ) -> Result<(), TooMany> {
        self.count(members, &parts, singles);
        for part in parts {
            let ports = self.ports(&part.ports);
            let mut by_neighbours: FxHashMap<u32, u32> = FxHashMap::default();
            for member in members {
                let without = self.neighbours_in(&part.sources, *member);
                let group = match by_neighbours.get(&without) {
                    Some(known) => *known,
                    None => {
                        let group = self.source_group(&part.sources, without);
                        by_neighbours.insert(without, group);
                        group
                    }
                };
                let list = self.found.entry((part.label, ports, group)).or_default();
                list.push(*member);
            }
        }
        for single in singles {
            let ports = self.ports(&single.ports);
            let group = self.ends(vec![single.source]);
            let list = self.found.entry((single.label, ports, group)).or_default();
            list.push(single.destination);
        }
        if self.found.len() > self.limit || self.room > ROOM {
            return Err(TooMany(self.limit.min(self.found.len())));
        }
        Ok(())
    }

    fn run(&self) -> Option<&Run> {
        self.runs.last()
    }

    /// The number of a destination's neighbours if some of them are among the sources; else 0.
    fn neighbours_in(&self, sources: &[u64], destination: u32) -> u32 {
        let id = self.locals.id(destination);
        let Some(run) = self.run().filter(|_| id != 0) else {
            return 0;
        };
        let mut both = run.neighbours.iter().zip(sources);
        if both.all(|(a, b)| a & b == 0) {
            return 0;
        }
        let all = self.locals.get(id).all.iter();
        let mut keys = all.filter_map(|end| run.of_end.get(*end as usize));
        if keys.any(|key| bits::has(sources, *key)) {
            id
        } else {
            0
        }
    }

    fn source_group(&mut self, sources: &[u64], without: u32) -> u32 {
        let Some(run) = self.runs.last() else {
            return 0;
        };
        let sums = bits::iter(sources).filter_map(|key| run.sums.get(key as usize));
        let mut signature = sums.fold(0, |sum: u128, it| sum.wrapping_add(*it));
        for end in &self.locals.get(without).all {
            let key = run.of_end.get(*end as usize);
            if key.is_some_and(|key| bits::has(sources, *key)) {
                signature = signature.wrapping_sub(word(u64::from(*end)));
            }
        }
        let mut ids = std::mem::take(&mut self.group_ids);
        let number = ids.number(signature, |id| self.are_ends(id, sources, without));
        self.group_ids = ids;
        if number.is_new {
            self.push(Group::Keys {
                run: self.runs.len() - 1,
                keys: self.keys(sources),
                without,
            });
        }
        number.id
    }

    /// Source keys of this run.
    fn keys(&self, sources: &[u64]) -> KeySet {
        let n = self.run().map_or(0, |run| run.members.len());
        KeySet::new(bits::iter(sources).collect(), n)
    }

    /// Whether the ends of a group are those of some source keys of this run, without some neighbours.
    fn are_ends(&mut self, id: u32, sources: &[u64], without: u32) -> bool {
        let Some(run) = self.runs.last() else {
            return false;
        };
        let (here, n) = (self.runs.len() - 1, run.members.len());
        let as_it_is = match self.groups.get(id as usize) {
            Some(Group::Keys {
                run,
                keys,
                without: left_out,
            }) if (*run, *left_out) == (here, without) => Some(keys),
            Some(Group::Keys { .. } | Group::Ends(_)) | None => None,
        };
        let also = self.also.get(&(id, here, without));
        if as_it_is.into_iter().chain(also).any(|it| it.is(sources, n)) {
            return true;
        }
        let mut ends: Vec<u32> = Vec::new();
        let left_out = &self.locals.get(without).all;
        each_end(&run.members, bits::iter(sources), left_out, |end| {
            ends.push(end);
        });
        ends.sort_unstable();
        let is_same = self.ends_of(id) == ends;
        if is_same {
            // They are asked for again and again, and to list them takes longer than to compare keys.
            let keys = self.keys(sources);
            self.room += keys.room();
            self.also.insert((id, here, without), keys);
        }
        is_same
    }

    /// The ends of a group, ascending.
    fn ends_of(&self, id: u32) -> Cow<'_, [u32]> {
        let (run, keys, without) = match self.groups.get(id as usize) {
            Some(Group::Keys { run, keys, without }) => (*run, keys, *without),
            Some(Group::Ends(ends)) => return Cow::Borrowed(ends),
            None => return Cow::Borrowed(&[]),
        };
        let run = self.runs.get(run).map_or(&[][..], |run| &run.members);
        let left_out = &self.locals.get(without).all;
        let mut ends: Vec<u32> = Vec::new();
        each_end(run, keys.iter(run.len()), left_out, |end| ends.push(end));
        ends.sort_unstable();
        Cow::Owned(ends)
    }

    /// The group of some ends, ascending.
    fn ends(&mut self, ends: Vec<u32>) -> u32 {
        let mut ids = std::mem::take(&mut self.group_ids);
        let number = ids.number(sum(&ends), |id| *self.ends_of(id) == *ends);
        self.group_ids = ids;
        if number.is_new {
            self.push(Group::Ends(ends));
        }
        number.id
    }

    fn push(&mut self, group: Group) {
        self.room += match &group {
            Group::Keys { keys, .. } => keys.room(),
            Group::Ends(ends) => ends.len() * 4,
        };
        self.groups.push(group);
    }

    fn ports(&mut self, ports: &PortSet) -> u32 {
        if let Some(known) = self.port_ids.get(ports) {
            return *known;
        }
        let id = count(self.ports.len());
        self.ports.push(ports.clone());
        self.port_ids.insert(ports.clone(), id);
        id
    }

    /// Counts the pairs: nobody with itself, and neighbours one by one.
    fn count(&mut self, members: &[u32], parts: &[ChangedGroup], singles: &[ChangedPair]) {
        let Some(run) = self.runs.last() else {
            return;
        };
        let mut sums: [[u64; 3]; 2] = [[0; 3]; 2];
        for (is_one_sided, sums) in [false, true].into_iter().zip(&mut sums) {
            for (kind, sum) in [ChangeKind::Gained, ChangeKind::Lost, ChangeKind::Undecided]
                .into_iter()
                .zip(sums)
            {
                let is_meant = |label: &ChangeLabel| {
                    label.kind == kind && label.one_sided.is_some() == is_one_sided
                };
                let mut all: Option<Words> = None;
                for part in parts.iter().filter(|it| is_meant(&it.label)) {
                    match &mut all {
                        Some(all) => or(all, &part.sources),
                        None => all = Some(part.sources.clone()),
                    }
                }
                if let Some(all) = all {
                    let weight = run.weights.of(&all);
                    for member in members {
                        let has = |end: &u32| {
                            let key = run.of_end.get(*end as usize);
                            key.is_some_and(|key| bits::has(&all, *key))
                        };
                        let neighbours = &self.locals.get(self.locals.id(*member)).all;
                        let left_out = neighbours.iter().filter(|it| has(it)).count() as u64;
                        let itself = u64::from(
                            has(member)
                                && !self.is_many.get(*member as usize).copied().unwrap_or(false),
                        );
                        *sum += weight - left_out - itself;
                    }
                }
                let singles = singles.iter().filter(|it| is_meant(&it.label));
                let mut pairs: Vec<_> = singles.map(|it| (it.source, it.destination)).collect();
                pairs.sort_unstable();
                pairs.dedup();
                *sum += pairs.len() as u64;
            }
        }
        let [common, one_sided] = sums;
        self.totals.add(common);
        self.one_sided.add(one_sided);
    }

    /// Puts blocks in order and numbers groups as they come.
    pub(super) fn finish<'c>(
        mut self,
        [old, new]: [Version<'c>; 2],
        changes: Changes,
        ends: Vec<Endpoint>,
    ) -> Difference<'c> {
        let found = std::mem::take(&mut self.found);
        let mut drafts: Vec<DraftBlock> = Vec::with_capacity(found.len());
        for ((label, ports, from), mut to) in found {
            to.sort_unstable();
            let first = to.first().copied().unwrap_or(0);
            let is_one = to.len() == 1;
            let to = self.ends(to);
            let is_itself =
                is_one && to == from && !self.is_many.get(first as usize).copied().unwrap_or(false);
            // Nobody is meant together with itself.
            if !is_itself {
                drafts.push((label, from, to, first, ports));
            }
        }
        let groups = Groups {
            list: self.groups,
            runs: self.runs.into_iter().map(|run| run.members).collect(),
            locals: self.locals,
        };
        let blame = Blame::new([old, new], &changes, &ends);
        let ports = self.ports;
        let block = |(label, from, to, first, id): DraftBlock| {
            let firsts = [groups.first(from), Some(EndId(first))];
            let block = Block {
                kind: label.kind,
                from,
                to,
                ports: ports.get(id as usize).cloned().unwrap_or_default(),
                family: label.family,
                one_sided: label.one_sided,
                decision: label.decision,
                is_example: label.is_example,
                culprits: blame.culprits(&label, || [from, to].map(|it| groups.some(it))),
            };
            (firsts, block)
        };
        let mut blocks: Vec<([Option<EndId>; 2], Block)> = drafts.into_iter().map(block).collect();
        blocks.sort_by(|(firsts, block), (other_firsts, other)| {
            let key = |block: &Block| (block.kind, block.culprits.first().copied());
            let order = key(block).cmp(&key(other));
            let [from, to] = firsts;
            let [other_from, other_to] = other_firsts;
            order
                .then_with(|| (to, from).cmp(&(other_to, other_from)))
                .then_with(|| block.ports.cmp(&other.ports))
                .then_with(|| (block.family, block.decision).cmp(&(other.family, other.decision)))
                .then_with(|| groups.get(block.to).cmp(&groups.get(other.to)))
                .then_with(|| groups.get(block.from).cmp(&groups.get(other.from)))
        });
        let mut blocks: Vec<Block> = blocks.into_iter().map(|(_, block)| block).collect();
        let groups = groups.numbered(&mut blocks);
        Difference {
            old,
            new,
            changes,
            ends,
            groups,
            blocks,
            totals: self.totals,
            one_sided_totals: self.one_sided,
        }
    }
}

/// A block before its groups have their numbers: what is said, sources, destinations, the first of them, ports.
type DraftBlock = (ChangeLabel, u32, u32, u32, u32);

impl Totals {
    fn add(&mut self, [gained, lost, undecided]: [u64; 3]) {
        self.gained += gained;
        self.lost += lost;
        self.undecided += undecided;
    }
}

/// The sum of the words of some ends.
fn sum(ends: &[u32]) -> u128 {
    let words = ends.iter().map(|end| word(u64::from(*end)));
    words.fold(0, u128::wrapping_add)
}

fn is_many(sides: [&ClusterSide<'_>; 2], end: &ComparedEnd) -> bool {
    let [old, new] = sides;
    let is_template = |side: &ClusterSide<'_>, member: Option<u32>| match side.member(member) {
        Some(Member::Pod(id)) => {
            let pod = side.cluster.pods.get(id.0 as usize);
            pod.is_some_and(|pod| pod.template.is_some())
        }
        Some(Member::Network(_)) => true,
        Some(Member::Node(_) | Member::Service(_)) | None => false,
    };
    is_template(old, end.old) || is_template(new, end.new)
}
