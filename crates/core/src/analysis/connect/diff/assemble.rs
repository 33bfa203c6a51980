//! Assembles the changes of all destinations into blocks.

use std::borrow::Cow;

use rustc_hash::FxHashMap;

use super::blame::CauseFinder;
use super::changes::Changes;
use super::compare::{ChangeLabel, ChangedGroup, ChangedPair};
use super::ends::{ClusterSide, ComparedEndpoint};
use super::groups::{Group, Groups, each_endpoint};
use super::keys::JointKeys;
use super::locals::Locals;
use super::states::ChangeKind;
use super::{Block, Difference, Endpoint, EndpointId, Totals, Version};
use crate::analysis::connect::bits::{self, KeySet, Weights, Words, or};
use crate::analysis::connect::{Member, TooManyBlocks};
use crate::answer::PortSet;
use crate::compile::count;
use crate::set_hash::{SetInterner, word};

/// The bytes that groups may take. A result that needs more counts as too many blocks.
const ROOM: usize = 1 << 30;

/// The changes so far, by label, ports and groups.
pub(super) struct BlockAssembler {
    locals: Locals,
    /// Whether each endpoint stands for several, which can have flows to each other.
    is_many: Vec<bool>,
    limit: usize,
    /// The runs so far; the last one is current.
    runs: Vec<Run>,
    groups: Vec<Group>,
    group_ids: SetInterner,
    /// Further source keys with the endpoints of a group: by the group, the run and the number of
    /// the neighbours that are left out.
    also: FxHashMap<(u32, usize, u32), KeySet>,
    ports: Vec<PortSet>,
    port_ids: FxHashMap<PortSet, u32>,
    /// The destinations, by label, ports and sources.
    found: FxHashMap<(ChangeLabel, u32, u32), Vec<u32>>,
    room: usize,
    totals: Totals,
    one_sided: Totals,
}

/// The source keys of a run.
struct Run {
    members: Vec<Vec<u32>>,
    /// The hash of the endpoints of each key.
    sums: Vec<u128>,
    weights: Weights,
    /// The keys with a neighbour of some destination.
    neighbours: Words,
    of_end: Vec<u32>,
}

impl BlockAssembler {
    pub(super) fn new(
        sides: [&ClusterSide<'_>; 2],
        endpoints: &[ComparedEndpoint],
        locals: &Locals,
        limit: usize,
    ) -> BlockAssembler {
        BlockAssembler {
            locals: locals.clone(),
            is_many: endpoints.iter().map(|it| is_many(sides, it)).collect(),
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

    /// Starts a run with these source keys.
    pub(super) fn begin(&mut self, sources: &JointKeys<'_>) {
        let members = (0..count(sources.len())).map(|key| sources.members(key).to_vec());
        let members: Vec<Vec<u32>> = members.collect();
        let mut neighbours = vec![0; bits::words_for(sources.len())];
        for endpoint in self.locals.all() {
            if let Some(key) = sources.new.of(endpoint) {
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

    /// Adds the changes of a destination key.
    pub(super) fn add(
        &mut self,
        members: &[u32],
        parts: Vec<ChangedGroup>,
        singles: &[ChangedPair],
    ) -> Result<(), TooManyBlocks> {
        self.count(members, &parts, singles);
        for part in parts {
            let ports = self.ports(&part.ports);
            // Destinations of a key have the same sources except for their neighbours, which are
            // compared one by one. Most have none, and share a group.
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
            let group = self.group_of(vec![single.source]);
            let list = self.found.entry((single.label, ports, group)).or_default();
            list.push(single.destination);
        }
        if self.found.len() > self.limit || self.room > ROOM {
            return Err(TooManyBlocks(self.limit.min(self.found.len())));
        }
        Ok(())
    }

    fn run(&self) -> Option<&Run> {
        self.runs.last()
    }

    /// Returns the number of a destination's neighbours if a source is among them; else 0.
    fn neighbours_in(&self, sources: &[u64], destination: u32) -> u32 {
        let id = self.locals.id(destination);
        let Some(run) = self.run().filter(|_| id != 0) else {
            return 0;
        };
        // A pass over words settles most cases before single neighbours are looked up.
        let mut both = run.neighbours.iter().zip(sources);
        if both.all(|(a, b)| a & b == 0) {
            return 0;
        }
        let all = self.locals.get(id).all.iter();
        let mut keys = all.filter_map(|it| run.of_end.get(*it as usize));
        if keys.any(|key| bits::has(sources, *key)) {
            id
        } else {
            0
        }
    }

    /// Returns the group of source keys without some neighbours, by the endpoints in it.
    fn source_group(&mut self, sources: &[u64], without: u32) -> u32 {
        let Some(run) = self.runs.last() else {
            return 0;
        };
        let sums = bits::iter(sources).filter_map(|key| run.sums.get(key as usize));
        let mut hash = sums.fold(0, |sum: u128, it| sum.wrapping_add(*it));
        // The hash is a sum over endpoints: neighbours are subtracted, and nothing is listed.
        for endpoint in &self.locals.get(without).all {
            let key = run.of_end.get(*endpoint as usize);
            if key.is_some_and(|key| bits::has(sources, *key)) {
                hash = hash.wrapping_sub(word(u64::from(*endpoint)));
            }
        }
        let mut ids = std::mem::take(&mut self.group_ids);
        let number = ids.number(hash, |id| self.has_endpoints(id, sources, without));
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

    /// Returns a set of source keys of this run.
    fn keys(&self, sources: &[u64]) -> KeySet {
        let n = self.run().map_or(0, |run| run.members.len());
        KeySet::new(bits::iter(sources).collect(), n)
    }

    /// Returns whether a group has the endpoints of some source keys of this run, without some
    /// neighbours.
    fn has_endpoints(&mut self, id: u32, sources: &[u64], without: u32) -> bool {
        let Some(run) = self.runs.last() else {
            return false;
        };
        let (here, n) = (self.runs.len() - 1, run.members.len());
        let own_keys = match self.groups.get(id as usize) {
            Some(Group::Keys {
                run,
                keys,
                without: left_out,
            }) if (*run, *left_out) == (here, without) => Some(keys),
            Some(Group::Keys { .. } | Group::Endpoints(_)) | None => None,
        };
        let also = self.also.get(&(id, here, without));
        if own_keys.into_iter().chain(also).any(|it| it.is(sources, n)) {
            return true;
        }
        let mut endpoints: Vec<u32> = Vec::new();
        let left_out = &self.locals.get(without).all;
        each_endpoint(&run.members, bits::iter(sources), left_out, |endpoint| {
            endpoints.push(endpoint);
        });
        endpoints.sort_unstable();
        let is_same = self.endpoints_of(id) == endpoints;
        if is_same {
            // The same keys come again at other destinations, and comparing keys is faster than
            // listing their endpoints.
            let keys = self.keys(sources);
            self.room += keys.room();
            self.also.insert((id, here, without), keys);
        }
        is_same
    }

    /// Returns the endpoints of a group, ascending.
    fn endpoints_of(&self, id: u32) -> Cow<'_, [u32]> {
        let (run, keys, without) = match self.groups.get(id as usize) {
            Some(Group::Keys { run, keys, without }) => (*run, keys, *without),
            Some(Group::Endpoints(endpoints)) => return Cow::Borrowed(endpoints),
            None => return Cow::Borrowed(&[]),
        };
        let run = self.runs.get(run).map_or(&[][..], |run| &run.members);
        let left_out = &self.locals.get(without).all;
        let mut list: Vec<u32> = Vec::new();
        each_endpoint(run, keys.iter(run.len()), left_out, |it| list.push(it));
        list.sort_unstable();
        Cow::Owned(list)
    }

    /// Returns the group of some endpoints, which must be ascending.
    fn group_of(&mut self, endpoints: Vec<u32>) -> u32 {
        let mut ids = std::mem::take(&mut self.group_ids);
        let number = ids.number(sum(&endpoints), |id| *self.endpoints_of(id) == *endpoints);
        self.group_ids = ids;
        if number.is_new {
            self.push(Group::Endpoints(endpoints));
        }
        number.id
    }

    fn push(&mut self, group: Group) {
        self.room += match &group {
            Group::Keys { keys, .. } => keys.room(),
            Group::Endpoints(endpoints) => endpoints.len() * 4,
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

    /// Counts the pairs, neighbours as single pairs. An endpoint is no pair with itself.
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
                let is_counted = |label: &ChangeLabel| {
                    label.kind == kind && label.one_sided.is_some() == is_one_sided
                };
                let mut all: Option<Words> = None;
                for part in parts.iter().filter(|it| is_counted(&it.label)) {
                    match &mut all {
                        Some(all) => or(all, &part.sources),
                        None => all = Some(part.sources.clone()),
                    }
                }
                // Weights count whole keys: neighbours and the destination itself are subtracted.
                if let Some(all) = all {
                    let weight = run.weights.of(&all);
                    for member in members {
                        let has = |endpoint: &u32| {
                            let key = run.of_end.get(*endpoint as usize);
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
                let singles = singles.iter().filter(|it| is_counted(&it.label));
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

    /// Sorts the blocks and numbers the groups in that order.
    pub(super) fn finish<'c>(
        mut self,
        [old, new]: [Version<'c>; 2],
        changes: Changes,
        endpoints: Vec<Endpoint>,
    ) -> Difference<'c> {
        let found = std::mem::take(&mut self.found);
        let mut drafts: Vec<DraftBlock> = Vec::with_capacity(found.len());
        for ((label, ports, from), mut to) in found {
            to.sort_unstable();
            let first = to.first().copied().unwrap_or(0);
            let is_one = to.len() == 1;
            let to = self.group_of(to);
            let is_itself =
                is_one && to == from && !self.is_many.get(first as usize).copied().unwrap_or(false);
            // A single endpoint has no flow to itself.
            if !is_itself {
                drafts.push((label, from, to, first, ports));
            }
        }
        let groups = Groups {
            list: self.groups,
            runs: self.runs.into_iter().map(|run| run.members).collect(),
            locals: self.locals,
        };
        let blame = CauseFinder::new([old, new], &changes, &endpoints);
        let ports = self.ports;
        let block = |(label, from, to, first, id): DraftBlock| {
            let firsts = [groups.first(from), Some(EndpointId(first))];
            let block = Block {
                kind: label.kind,
                from,
                to,
                ports: ports.get(id as usize).cloned().unwrap_or_default(),
                family: label.family,
                one_sided: label.one_sided,
                decision: label.decision,
                is_example: label.is_example,
                causes: blame.culprits(&label, || [from, to].map(|it| groups.some(it))),
            };
            (firsts, block)
        };
        let mut blocks: Vec<([Option<EndpointId>; 2], Block)> =
            drafts.into_iter().map(block).collect();
        // Changes come out of a hash map: every key of this order is a property of the block, so
        // output is the same in every run.
        blocks.sort_by(|(firsts, block), (other_firsts, other)| {
            let key = |block: &Block| (block.kind, block.causes.first().copied());
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
            endpoints,
            groups,
            blocks,
            unseen: Vec::new(),
            totals: self.totals,
            one_sided_totals: self.one_sided,
        }
    }
}

/// A block before groups have their final numbers: label, sources, destinations, the first
/// destination, ports.
type DraftBlock = (ChangeLabel, u32, u32, u32, u32);

impl Totals {
    fn add(&mut self, [gained, lost, undecided]: [u64; 3]) {
        self.gained += gained;
        self.lost += lost;
        self.undecided += undecided;
    }
}

/// Returns the hash of some endpoints: the sum of their words.
fn sum(endpoints: &[u32]) -> u128 {
    let words = endpoints.iter().map(|it| word(u64::from(*it)));
    words.fold(0, u128::wrapping_add)
}

fn is_many(sides: [&ClusterSide<'_>; 2], endpoint: &ComparedEndpoint) -> bool {
    let [old, new] = sides;
    let stands_for_many = |side: &ClusterSide<'_>, member: Option<u32>| match side.member(member) {
        Some(Member::Pod(id)) => {
            let pod = side.cluster.pods.get(id.0 as usize);
            pod.is_some_and(|pod| pod.template.is_some())
        }
        Some(Member::Network(_)) => true,
        Some(Member::Node(_) | Member::Service(_)) | None => false,
    };
    stands_for_many(old, endpoint.old) || stands_for_many(new, endpoint.new)
}
