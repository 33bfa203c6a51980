//! Blocks: a group of sources, a group of destinations, and what passes between any two of them.

use rustc_hash::FxHashMap;

use super::bits::{self, KeySet};
use super::parallel::drive;
use super::reached::{ReachingSources, Target};
use super::rows::Rows;
use super::{Connectivity, MemberId, Progress, Reach};
use crate::compile::count;
use crate::set_hash::{SetInterner, ordered, word};

/// A group of members, by its place in [`Blocks::groups`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// What passes from every member of one group to every member of another. What is allowed between
/// two members is all that any block says; nobody is meant together with itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The sources.
    pub from: GroupId,
    /// The destinations.
    pub to: GroupId,
    /// What passes.
    pub reach: Reach,
}

/// Who reaches whom, as blocks.
#[derive(Debug, Default)]
pub struct Blocks {
    groups: Vec<Group>,
    /// The blocks, by destination, then source.
    pub list: Vec<Block>,
}

/// Members, in the form that takes the least room.
#[derive(Clone, Debug)]
enum Group {
    Sources(KeySet),
    Members(Vec<u32>),
}

/// There are more blocks than anyone wants to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are more than {0} blocks")]
pub struct TooMany(pub usize);

/// Groups may take so many bytes; beyond that there are too many blocks, however few.
const ROOM: usize = 1 << 30;

/// Destinations with the same sources and the same ports of each.
type SameRow = Vec<(u32, u32)>;

/// What has been found so far.
#[derive(Default)]
struct BlocksDraft {
    sources: Vec<KeySet>,
    source_ids: SetInterner,
    reaches: Vec<Reach>,
    reach_ids: FxHashMap<Reach, u32>,
    rows: FxHashMap<SameRow, Vec<u32>>,
    /// By destination's local sources and what they get: pairs outside of rows.
    local: FxHashMap<(Vec<u32>, u32), Vec<u32>>,
    n_blocks: usize,
    room: usize,
}

impl BlocksDraft {
    fn source_group(&mut self, words: &[u64], n: usize) -> u32 {
        let sources = &self.sources;
        let signature = ordered(words.iter().copied());
        let number = self.source_ids.number(signature, |id| {
            let known = sources.get(id as usize);
            known.is_some_and(|known| known.is(words, n))
        });
        if number.is_new {
            let keys = KeySet::new(bits::iter(words).collect(), n);
            self.room += keys.room();
            self.sources.push(keys);
        }
        number.id
    }

    fn reach(&mut self, reach: &Reach) -> u32 {
        if let Some(known) = self.reach_ids.get(reach) {
            return *known;
        }
        let id = count(self.reaches.len());
        self.reaches.push(reach.clone());
        self.reach_ids.insert(reach.clone(), id);
        id
    }

    fn add(&mut self, reached: ReachingSources, n_sources: usize) {
        let mut row: SameRow = Vec::with_capacity(reached.parts.len());
        for part in &reached.parts {
            let sources = self.source_group(&part.sources, n_sources);
            row.push((sources, self.reach(&part.reach)));
        }
        row.sort_unstable();
        let n_blocks = row.len();
        let members = self.rows.entry(row).or_default();
        if members.is_empty() {
            self.n_blocks += n_blocks;
        }
        members.extend(reached.members);
        // Pairs of one destination with the same ports are told together.
        let mut by_pair: FxHashMap<(u32, u32), Vec<u32>> = FxHashMap::default();
        for (source, destination, reach) in &reached.local {
            let key = (destination.0, self.reach(reach));
            by_pair.entry(key).or_default().push(source.0);
        }
        for ((destination, reach), mut sources) in by_pair {
            sources.sort_unstable();
            let found = self.local.entry((sources, reach)).or_default();
            if found.is_empty() {
                self.n_blocks += 1;
            }
            found.push(destination);
        }
    }
}

impl Connectivity<'_> {
    /// Who reaches whom, as at most `limit` blocks.
    pub fn blocks(&self, limit: usize, progress: Progress<'_>) -> Result<Blocks, TooMany> {
        let map = self.service_map();
        let keys = self.in_order(&self.destinations);
        let targets: Vec<Target<'_, '_>> = keys
            .into_iter()
            .map(Target::Key)
            .chain(map.services.iter().map(Target::Service))
            .collect();
        let mut draft = BlocksDraft::default();
        let n_sources = self.sources.len();
        self.with_ground(Some(&map), |ground| {
            drive(
                &|| Rows::new(ground),
                &targets,
                progress,
                &|rows: &mut Rows<'_>, target| self.reached(rows, &map, *target),
                &mut |reached| {
                    draft.add(reached, n_sources);
                    if draft.n_blocks > limit || draft.room > ROOM {
                        return Err(TooMany(limit.min(draft.n_blocks)));
                    }
                    Ok(())
                },
            )
        })?;
        Ok(self.finish(draft))
    }

    /// Puts blocks in order and numbers groups as they come.
    fn finish(&self, draft: BlocksDraft) -> Blocks {
        let mut members: Vec<Vec<u32>> = Vec::new();
        let mut add = |mut list: Vec<u32>| {
            list.sort_unstable();
            members.push(list);
            GroupRef::Members(members.len() - 1)
        };
        let mut pairs: Vec<(GroupRef, GroupRef, u32)> = Vec::new();
        for (row, to) in draft.rows {
            let to = add(to);
            let blocks = row.into_iter();
            pairs.extend(blocks.map(|(from, reach)| (to, GroupRef::Sources(from as usize), reach)));
        }
        for ((from, reach), to) in draft.local {
            pairs.push((add(to), add(from), reach));
        }
        let firsts: Vec<u32> = draft.sources.iter().map(|it| self.first(it)).collect();
        let list = |side: GroupRef| match side {
            GroupRef::Members(index) => members.get(index).map_or(&[][..], Vec::as_slice),
            GroupRef::Sources(_) => &[],
        };
        let first = |side: GroupRef| match side {
            GroupRef::Members(_) => list(side).first().copied(),
            GroupRef::Sources(index) => firsts.get(index).copied(),
        };
        // By the first destination, then the first source, which does not depend on threads.
        pairs.sort_by(|(to, from, reach), (other_to, other_from, other_reach)| {
            let order = (first(*to), first(*from)).cmp(&(first(*other_to), first(*other_from)));
            let order = order.then_with(|| list(*from).cmp(list(*other_from)));
            let order = order.then_with(|| list(*to).cmp(list(*other_to)));
            order.then_with(|| reach.cmp(other_reach))
        });
        let mut blocks = Blocks::default();
        let mut ids = SetInterner::default();
        let mut known: FxHashMap<GroupRef, GroupId> = FxHashMap::default();
        let mut number = |side: GroupRef| {
            if let Some(known) = known.get(&side) {
                return Some(*known);
            }
            let group = match side {
                GroupRef::Members(index) => Group::Members(members.get(index).cloned()?),
                GroupRef::Sources(index) => Group::Sources(draft.sources.get(index).cloned()?),
            };
            let groups = &mut blocks.groups;
            let number = ids.number(self.signature(&group), |id| {
                let other = groups.get(id as usize);
                other.is_some_and(|other| self.listed(other) == self.listed(&group))
            });
            if number.is_new {
                groups.push(group);
            }
            known.insert(side, GroupId(number.id));
            Some(GroupId(number.id))
        };
        let numbered: Vec<Block> = pairs
            .into_iter()
            .filter_map(|(to, from, reach)| {
                let (from, to) = (number(from)?, number(to)?);
                let reach = draft.reaches.get(reach as usize)?.clone();
                Some(Block { from, to, reach })
            })
            .collect();
        blocks.list = numbered;
        blocks
    }

    /// The members of a group, ascending.
    pub fn group(&self, blocks: &Blocks, id: GroupId) -> Vec<MemberId> {
        let Some(group) = blocks.groups.get(id.0 as usize) else {
            return Vec::new();
        };
        self.listed(group)
    }

    fn listed(&self, group: &Group) -> Vec<MemberId> {
        let mut members = Vec::new();
        self.each_member(group, &mut |member| members.push(MemberId(member)));
        members.sort_unstable();
        members
    }

    fn each_member(&self, group: &Group, with: &mut dyn FnMut(u32)) {
        match group {
            Group::Members(list) => list.iter().copied().for_each(with),
            Group::Sources(keys) => {
                for key in keys.iter(self.sources.len()) {
                    let key = self.sources.list.get(key as usize);
                    for member in key.into_iter().flat_map(|key| &key.members) {
                        with(*member);
                    }
                }
            }
        }
    }

    /// The same for the same members, in whatever form.
    fn signature(&self, group: &Group) -> u128 {
        let mut sum: u128 = 0;
        self.each_member(group, &mut |member| {
            sum = sum.wrapping_add(word(u64::from(member)));
        });
        sum
    }

    fn first(&self, keys: &KeySet) -> u32 {
        let firsts = keys.iter(self.sources.len()).filter_map(|key| {
            let key = self.sources.list.get(key as usize);
            key.and_then(|key| key.members.first().copied())
        });
        firsts.min().unwrap_or(u32::MAX)
    }
}

impl Blocks {
    /// How many groups there are.
    pub fn n_groups(&self) -> usize {
        self.groups.len()
    }
}

/// One side of a block, by its place in one of two lists.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum GroupRef {
    Sources(usize),
    Members(usize),
}
