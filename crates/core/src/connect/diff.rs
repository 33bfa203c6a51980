//! What a change does: the flows that two clusters disagree about.
//!
//! Everyone who is in either cluster takes part. Ends that neither cluster tells apart are one key; for each
//! destination key whose flows a changed object can concern, both clusters are folded over the same source
//! keys, and what differs is told in blocks, with what decided before and after. Nothing else is folded, so
//! that a small change of a large cluster costs little.

mod assemble;
mod blame;
mod changes;
mod columns;
mod compare;
mod ends;
mod groups;
mod keys;
mod locals;
mod scope;
mod states;
mod why;

use self::assemble::BlockAssembler;
use self::compare::{Comparison, Worker};
use self::ends::{ClusterSide, ComparedEnd};
use self::keys::JointKeys;
use self::locals::Locals;
use self::scope::Scope;
use super::bits::{set, words_for};
use super::columns::Columns;
use super::egress::{FoldContext, UnionRules};
use super::keys::FlowRole as Which;
use super::networks;
use super::parallel::drive;
use super::peers::{Sources, class};
use super::{Member, Progress, TooMany};
use crate::answer::PortSet;
use crate::compile::count;
use crate::model::Cluster;
use crate::net::{Cidr, Family};
use crate::policy::{Direction, Tier};
use crate::program::{Program, table_index};

pub use self::blame::ChangedObject;
pub use self::changes::{Change, Changes, PolicyChange};
pub use self::compare::OneSided;
pub use self::groups::Groups;
pub use self::states::ChangeKind;
pub use self::why::DecisionChange;

/// A cluster and its program.
#[derive(Clone, Copy, Debug)]
pub struct Version<'c> {
    /// The cluster.
    pub cluster: &'c Cluster<'c>,
    /// Compiled.
    pub program: &'c Program,
}

/// Someone at an end of flows, by their place in [`Difference::ends`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndId(pub u32);

/// Who someone is in each cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// In the old one.
    pub old: Option<Member>,
    /// In the new one.
    pub new: Option<Member>,
    /// The blocks of addresses, if it is a network outside.
    pub blocks: Vec<Cidr>,
}

/// Flows that are different: from every end of one group to every other end of another, on all these ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// What became of them.
    pub kind: ChangeKind,
    /// The sources, by their place in [`Difference::groups`].
    pub from: u32,
    /// The destinations.
    pub to: u32,
    /// The ports.
    pub ports: PortSet,
    /// The family, if only its flows are different though the ends share both.
    pub family: Option<Family>,
    /// Whether an end of each flow is only in one cluster.
    pub one_sided: Option<OneSided>,
    /// What decided before and after; of what is undecided there is no such thing.
    pub decision: Option<DecisionChange>,
    /// Whether the reason is one flow's, and others may have another: there were too many to ask for.
    pub is_example: bool,
    /// The changed objects that it comes from, the likeliest first.
    pub culprits: Vec<ChangedObject>,
}

/// How many ordered pairs of ends have flows that are different.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// With some flow that is allowed now.
    pub gained: u64,
    /// With some flow that is denied now.
    pub lost: u64,
    /// With some flow that depends on an address.
    pub undecided: u64,
}

/// What two clusters disagree about.
#[derive(Debug)]
pub struct Difference<'c> {
    /// The old cluster.
    pub old: Version<'c>,
    /// The new cluster.
    pub new: Version<'c>,
    /// The objects that are not the same.
    pub changes: Changes,
    /// Everyone who is in either.
    pub ends: Vec<Endpoint>,
    /// Groups of them.
    pub groups: Groups,
    /// What is different, by kind, culprit, destination and source.
    pub blocks: Vec<Block>,
    /// Pairs between ends that both clusters have.
    pub totals: Totals,
    /// Pairs with an end that only one of them has.
    pub one_sided_totals: Totals,
}

/// How much may be found.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// So many blocks.
    pub blocks: usize,
    /// So many flows are asked for what decided them.
    pub reasons: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            blocks: 1_000_000,
            reasons: 4_000_000,
        }
    }
}

/// Compares two clusters.
pub fn diff<'c>(
    old: Version<'c>,
    new: Version<'c>,
    limits: Limits,
    progress: Progress<'_>,
) -> Result<Difference<'c>, TooMany> {
    let changes = Changes::between(old.cluster, new.cluster);
    let mut families = networks::families(old.cluster, old.program);
    families.extend(networks::families(new.cluster, new.program));
    families.sort_unstable();
    families.dedup();
    let (of_old, of_new) = rayon::join(
        || ClusterSide::new(0, old, &families),
        || ClusterSide::new(1, new, &families),
    );
    let sides = [&of_old, &of_new];
    let ends = ends::compared_ends(&of_old, &of_new);
    let scope = Scope::new(&of_old, &of_new, &ends, &changes);
    let locals = Locals::new(sides, &ends);
    let mut gather = BlockAssembler::new(sides, &ends, &locals, limits.blocks);
    let at = |flags: &[bool], index: usize| flags.get(index).copied().unwrap_or(false);
    // Everything that goes to someone concerned, then what else comes from someone concerned.
    let everyone = |_: usize| true;
    let to_concerned = |index: usize| at(&scope.destinations, index);
    let from_concerned = |index: usize| at(&scope.sources, index);
    let to_others = |index: usize| !at(&scope.destinations, index);
    let all = All {
        sides,
        ends: &ends,
        locals: &locals,
        limits,
        progress,
    };
    all.run([&everyone, &to_concerned], &mut gather)?;
    all.run([&from_concerned, &to_others], &mut gather)?;
    Ok(gather.finish([old, new], changes, endpoints(sides, &ends)))
}

fn endpoints(sides: [&ClusterSide<'_>; 2], ends: &[ComparedEnd]) -> Vec<Endpoint> {
    let [old, new] = sides;
    let ends = ends.iter().map(|end| Endpoint {
        old: old.member(end.old),
        new: new.member(end.new),
        blocks: end.blocks.clone(),
    });
    ends.collect()
}

/// Whether an end takes part.
type TakesPart<'t> = &'t dyn Fn(usize) -> bool;

/// What all flows have in common.
struct All<'a, 'c> {
    sides: [&'a ClusterSide<'c>; 2],
    ends: &'a [ComparedEnd],
    locals: &'a Locals,
    limits: Limits,
    progress: Progress<'a>,
}

impl All<'_, '_> {
    /// Compares the flows from some ends to some others.
    fn run(
        &self,
        [from, to]: [TakesPart<'_>; 2],
        gather: &mut BlockAssembler,
    ) -> Result<(), TooMany> {
        let All {
            sides,
            ends,
            locals,
            limits,
            progress,
        } = *self;
        let is_any = |takes_part: TakesPart<'_>| (0..ends.len()).any(takes_part);
        if !is_any(from) || !is_any(to) {
            return Ok(());
        }
        let [old, new] = sides;
        let sources = JointKeys::new(old, new, ends, Which::Source, from);
        let destinations = JointKeys::new(old, new, ends, Which::Destination, to);
        with_grounds(sides, &sources, &destinations, |grounds| {
            let present = [0, 1].map(|side| {
                let mut words = vec![0; words_for(sources.len())];
                for (key, presence) in sources.presence.iter().enumerate() {
                    if presence.get(side).copied().unwrap_or(false) {
                        set(&mut words, count(key));
                    }
                }
                words
            });
            let comparison = Comparison {
                sides,
                grounds,
                sources: &sources,
                destinations: &destinations,
                present,
                locals,
                most_reasons: limits.reasons / destinations.len().max(1),
            };
            let order = in_order(sides, &destinations);
            gather.begin(&sources);
            drive(
                &|| Worker::new(grounds),
                &order,
                progress,
                &|worker: &mut Worker<'_>, key| (*key, comparison.found(worker, *key)),
                &mut |(key, (parts, singles))| {
                    gather.add(destinations.members(key), parts, &singles)
                },
            )
        })
    }
}

/// Destination keys in an order in which those with the same rules are near each other.
fn in_order(sides: [&ClusterSide<'_>; 2], destinations: &JointKeys<'_>) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count(destinations.len())).collect();
    let [old, new] = sides;
    order.sort_by_cached_key(|id| {
        let rows = |program: &Program, key: Option<&super::keys::Key<'_>>| {
            let class = class(program, key?)?;
            let row =
                |rows: &[u32; 4], direction| rows.get(table_index(Tier::Admin, direction)).copied();
            Some((
                row(&class.subject_rows, Direction::Ingress),
                row(&class.peer_rows, Direction::Egress),
                class.unions,
            ))
        };
        (
            rows(new.program, destinations.new.list.get(*id as usize)),
            rows(old.program, destinations.old.list.get(*id as usize)),
        )
    });
    order
}

fn with_grounds<R>(
    sides: [&ClusterSide<'_>; 2],
    sources: &JointKeys<'_>,
    destinations: &JointKeys<'_>,
    work: impl FnOnce([&FoldContext<'_>; 2]) -> R,
) -> R {
    let [old, new] = sides;
    with_ground(old, &sources.old, &destinations.old, |of_old| {
        with_ground(new, &sources.new, &destinations.new, |of_new| {
            work([of_old, of_new])
        })
    })
}

fn with_ground<R>(
    side: &ClusterSide<'_>,
    sources: &super::keys::Keys<'_>,
    destinations: &super::keys::Keys<'_>,
    work: impl FnOnce(&FoldContext<'_>) -> R,
) -> R {
    let sources = Sources::new(side.program, sources);
    let columns = Columns::new(side.program);
    let union_rules = UnionRules::new(side.program, &side.union_rules);
    let ground = FoldContext::new(
        side.program,
        &sources,
        &columns,
        &side.addresses,
        &union_rules,
        &side.possible,
        destinations.list.iter().map(|key| &key.view),
    );
    work(&ground)
}
