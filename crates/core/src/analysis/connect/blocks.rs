//! Blocks: a group of sources, a group of destinations, and the reach between any two of them.

use rustc_hash::FxHashMap;

use super::bits::{self, KeySet};
use super::parallel::drive;
use super::reached::{ReachingSources, Target};
use super::rows::Rows;
use super::{Connectivity, MemberId, Progress, Reach};
use crate::compile::count;
use crate::set_hash::{SetInterner, ordered, word};

/// The index of a group of members in [`Blocks::groups`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndGroupId(pub u32);

/// The reach from every member of one group to every member of another. The allowed flows are the
/// union of all blocks. Flows from a member to itself are not included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The group of sources.
    pub from: EndGroupId,
    /// The group of destinations.
    pub to: EndGroupId,
    /// The reach, the same for every pair.
    pub reach: Reach,
}

/// Connectivity as blocks.
#[derive(Debug, Default)]
pub struct Blocks {
    groups: Vec<Group>,
    /// The blocks, by first destination, then first source.
    pub list: Vec<Block>,
}

/// Members, in the form that takes the least memory.
#[derive(Clone, Debug)]
enum Group {
    Sources(KeySet),
    Members(Vec<u32>),
}

/// The result has more blocks than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are more than {0} blocks")]
pub struct TooManyBlocks(pub usize);

/// The bytes that groups may take. A result that needs more counts as too many blocks.
const ROOM: usize = 1 << 30;

/// The groups of sources that reach a destination, each with its reach, by number.
type SameRow = Vec<(u32, u32)>;

/// The blocks so far, before groups have their final numbers.
#[derive(Default)]
struct BlocksDraft {
    sources: Vec<KeySet>,
    source_ids: SetInterner,
    reaches: Vec<Reach>,
    reach_ids: FxHashMap<Reach, u32>,
    /// The destinations of each row: equal rows share their blocks.
    rows: FxHashMap<SameRow, Vec<u32>>,
    /// Pairs outside of rows: the destinations by their local sources and the reach of these.
    local: FxHashMap<(Vec<u32>, u32), Vec<u32>>,
    n_blocks: usize,
    room: usize,
}

impl BlocksDraft {
    fn source_group(&mut self, words: &[u64], n: usize) -> u32 {
        let sources = &self.sources;
        let hash = ordered(words.iter().copied());
        let number = self.source_ids.number(hash, |id| {
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
        // The local sources of a destination with the same reach share one block.
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
    /// Evaluates connectivity as at most `limit` blocks.
    pub fn blocks(&self, limit: usize, progress: Progress<'_>) -> Result<Blocks, TooManyBlocks> {
        let map = self.service_map();
        let keys = self.in_order(&self.destinations);
        let targets: Vec<Target<'_, '_>> = keys
            .into_iter()
            .map(Target::Key)
            .chain(map.services.iter().map(Target::Service))
            .collect();
        let mut draft = BlocksDraft::default();
        let n_sources = self.sources.len();
        self.with_context(Some(&map), |context| {
            drive(
                &|| Rows::new(context),
                &targets,
                progress,
                &|rows: &mut Rows<'_>, target| self.reached(rows, &map, *target),
                &mut |reached| {
                    draft.add(reached, n_sources);
                    // Checked for each destination: the draft itself must stay within bounds.
                    if draft.n_blocks > limit || draft.room > ROOM {
                        return Err(TooManyBlocks(limit.min(draft.n_blocks)));
                    }
                    Ok(())
                },
            )
        })?;
        Ok(self.finish(draft))
    }

    /// Sorts the blocks and numbers the groups in that order.
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
        let list = |group: GroupRef| match group {
            GroupRef::Members(index) => members.get(index).map_or(&[][..], Vec::as_slice),
            GroupRef::Sources(_) => &[],
        };
        let first = |group: GroupRef| match group {
            GroupRef::Members(_) => list(group).first().copied(),
            GroupRef::Sources(index) => firsts.get(index).copied(),
        };
        // The draft is in hash maps, so the order has to come from the members. Source groups need
        // no list here: those of one row are disjoint, and differ in their first members.
        pairs.sort_by(|(to, from, reach), (other_to, other_from, other_reach)| {
            let order = (first(*to), first(*from)).cmp(&(first(*other_to), first(*other_from)));
            let order = order.then_with(|| list(*from).cmp(list(*other_from)));
            let order = order.then_with(|| list(*to).cmp(list(*other_to)));
            order.then_with(|| reach.cmp(other_reach))
        });
        let mut blocks = Blocks::default();
        let mut ids = SetInterner::default();
        let mut known: FxHashMap<GroupRef, EndGroupId> = FxHashMap::default();
        let mut number = |group_ref: GroupRef| {
            if let Some(known) = known.get(&group_ref) {
                return Some(*known);
            }
            let group = match group_ref {
                GroupRef::Members(index) => Group::Members(members.get(index).cloned()?),
                GroupRef::Sources(index) => Group::Sources(draft.sources.get(index).cloned()?),
            };
            let groups = &mut blocks.groups;
            let number = ids.number(self.set_hash(&group), |id| {
                let other = groups.get(id as usize);
                other.is_some_and(|other| self.listed(other) == self.listed(&group))
            });
            // The same members can come as source keys and as a list; output has them once.
            if number.is_new {
                groups.push(group);
            }
            known.insert(group_ref, EndGroupId(number.id));
            Some(EndGroupId(number.id))
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

    /// Returns the members of a group, ascending.
    pub fn group(&self, blocks: &Blocks, id: EndGroupId) -> Vec<MemberId> {
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

    /// Returns a hash of the members, which does not depend on the form of the group.
    fn set_hash(&self, group: &Group) -> u128 {
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
    /// Returns the number of groups.
    pub fn n_groups(&self) -> usize {
        self.groups.len()
    }
}

/// A group of a draft, by its index in one of two lists.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum GroupRef {
    Sources(usize),
    Members(usize),
}
