//! The difference of two clusters: flows that one of them allows and the other one denies.
//!
//! The endpoints of both clusters take part. Endpoints that neither cluster distinguishes share a
//! key. For each destination key whose flows a changed object can affect, both clusters are folded
//! over the same source keys. Flows that differ become blocks, with the deciding causes before and
//! after. Nothing else is folded: a small change of a large cluster costs little.

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
mod unseen;
mod why;

use self::assemble::BlockAssembler;
use self::compare::{Comparison, Worker};
use self::ends::{ClusterSide, ComparedEndpoint};
use self::keys::JointKeys;
use self::locals::Locals;
use self::scope::Scope;
use super::bits::{set, words_for};
use super::columns::Columns;
use super::egress::{FoldContext, UnionRules};
use super::keys::FlowRole;
use super::networks;
use super::parallel::drive;
use super::peers::{Sources, class};
use super::{Member, Progress, TooManyBlocks};
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
pub use self::unseen::{NamespaceTerm, SelectedRole, SelectedSet, Unseen};
pub use self::why::DecisionChange;

/// One side of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Version<'c> {
    /// The objects.
    pub cluster: &'c Cluster<'c>,
    /// The compiled policies of the cluster.
    pub program: &'c Program,
}

/// The index of an endpoint in [`Difference::ends`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(pub u32);

/// An endpoint and the member that it is in each cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The member of the old cluster; `None`: only the new cluster has the endpoint.
    pub old: Option<Member>,
    /// The member of the new cluster; `None`: only the old cluster has the endpoint.
    pub new: Option<Member>,
    /// The blocks of addresses of a network outside; other endpoints have none.
    pub blocks: Vec<Cidr>,
}

/// Flows that differ: from every endpoint of one group to every other endpoint of another, on all
/// these ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// How the verdicts differ.
    pub kind: ChangeKind,
    /// The group of sources, by its index in [`Difference::groups`].
    pub from: u32,
    /// The group of destinations, likewise.
    pub to: u32,
    /// The ports, the same for every pair.
    pub ports: PortSet,
    /// The family, if only its flows differ although source and destination share both.
    pub family: Option<Family>,
    /// The cluster that alone has an endpoint of each flow; `None`: both have both.
    pub one_sided: Option<OneSided>,
    /// The deciding causes before and after; `None` if the change is undecided.
    pub decision: Option<DecisionChange>,
    /// Whether the causes are those of one flow, and other flows may have others: there were too
    /// many flows to evaluate each.
    pub is_example: bool,
    /// The changed objects that the difference comes from, the most likely first.
    pub causes: Vec<ChangedObject>,
}

/// The number of ordered pairs of endpoints with flows that differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Pairs with a flow that was denied and is allowed now.
    pub gained: u64,
    /// Pairs with a flow that was allowed and is denied now.
    pub lost: u64,
    /// Pairs with a flow whose difference depends on an unknown address.
    pub undecided: u64,
}

/// The result of a comparison: everything that differs.
#[derive(Debug)]
pub struct Difference<'c> {
    /// The old cluster.
    pub old: Version<'c>,
    /// The new cluster.
    pub new: Version<'c>,
    /// The objects that differ.
    pub changes: Changes,
    /// The endpoints of both clusters.
    pub endpoints: Vec<Endpoint>,
    /// The groups of endpoints that blocks refer to.
    pub groups: Groups,
    /// The blocks, by kind, changed object, destination and source.
    pub blocks: Vec<Block>,
    /// What changes affect and the input does not have: flows that could not be compared.
    pub unseen: Vec<Unseen<'c>>,
    /// Pairs of endpoints that both clusters have.
    pub totals: Totals,
    /// Pairs with an endpoint that only one cluster has.
    pub one_sided_totals: Totals,
}

/// Bounds of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum number of blocks.
    pub blocks: usize,
    /// The maximum number of flows whose deciding causes are evaluated.
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

/// Compares two clusters, flow by flow.
pub fn diff<'c>(
    old: Version<'c>,
    new: Version<'c>,
    limits: Limits,
    progress: Progress<'_>,
) -> Result<Difference<'c>, TooManyBlocks> {
    let changes = Changes::between(old.cluster, new.cluster);
    // Networks outside become endpoints only where both sides have them, so both sides need the
    // same families.
    let mut families = networks::families(old.cluster, old.program);
    families.extend(networks::families(new.cluster, new.program));
    families.sort_unstable();
    families.dedup();
    let (of_old, of_new) = rayon::join(
        || ClusterSide::new(0, old, &families),
        || ClusterSide::new(1, new, &families),
    );
    let sides = [&of_old, &of_new];
    let endpoints = ends::compared_ends(&of_old, &of_new);
    let scope = Scope::new(&of_old, &of_new, &endpoints, &changes);
    let locals = Locals::new(sides, &endpoints);
    let mut assembler = BlockAssembler::new(sides, &endpoints, &locals, limits.blocks);
    let at = |flags: &[bool], index: usize| flags.get(index).copied().unwrap_or(false);
    // Two runs cover each flow that can differ once: from all sources to affected destinations,
    // then from affected sources to the other destinations. A single run would have to fold all
    // sources for all destinations.
    let from_all = |_: usize| true;
    let to_affected = |index: usize| at(&scope.destinations, index);
    let from_affected = |index: usize| at(&scope.sources, index);
    let to_others = |index: usize| !at(&scope.destinations, index);
    let all = ComparisonRun {
        sides,
        ends: &endpoints,
        locals: &locals,
        limits,
        progress,
    };
    all.run([&from_all, &to_affected], &mut assembler)?;
    all.run([&from_affected, &to_others], &mut assembler)?;
    let unseen = unseen::unseen([old, new], &changes);
    let difference = assembler.finish([old, new], changes, members(sides, &endpoints));
    Ok(Difference {
        unseen,
        ..difference
    })
}

fn members(sides: [&ClusterSide<'_>; 2], endpoints: &[ComparedEndpoint]) -> Vec<Endpoint> {
    let [old, new] = sides;
    let endpoints = endpoints.iter().map(|endpoint| Endpoint {
        old: old.member(endpoint.old),
        new: new.member(endpoint.new),
        blocks: endpoint.blocks.clone(),
    });
    endpoints.collect()
}

/// Selects endpoints by index.
type TakesPart<'t> = &'t dyn Fn(usize) -> bool;

/// The inputs that both runs share.
struct ComparisonRun<'a, 'c> {
    sides: [&'a ClusterSide<'c>; 2],
    ends: &'a [ComparedEndpoint],
    locals: &'a Locals,
    limits: Limits,
    progress: Progress<'a>,
}

impl ComparisonRun<'_, '_> {
    /// Compares the flows from some endpoints to others.
    fn run(
        &self,
        [from, to]: [TakesPart<'_>; 2],
        assembler: &mut BlockAssembler,
    ) -> Result<(), TooManyBlocks> {
        let ComparisonRun {
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
        let sources = JointKeys::new(old, new, ends, FlowRole::Source, from);
        let destinations = JointKeys::new(old, new, ends, FlowRole::Destination, to);
        with_contexts(sides, &sources, &destinations, |contexts| {
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
                contexts,
                sources: &sources,
                destinations: &destinations,
                present,
                locals,
                // A share for each destination: a common counter would let the order of threads
                // decide which causes are examples.
                most_reasons: limits.reasons / destinations.len().max(1),
            };
            let order = in_order(sides, &destinations);
            assembler.begin(&sources);
            drive(
                &|| Worker::new(contexts),
                &order,
                progress,
                &|worker: &mut Worker<'_>, key| (*key, comparison.found(worker, *key)),
                &mut |(key, (parts, singles))| {
                    assembler.add(destinations.members(key), parts, &singles)
                },
            )
        })
    }
}

/// Sorts destination keys by their rules on both sides.
fn in_order(sides: [&ClusterSide<'_>; 2], destinations: &JointKeys<'_>) -> Vec<u32> {
    // As for one cluster: the memos of a worker are bounded, and are reused only while keys with
    // the same rows follow each other.
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

fn with_contexts<R>(
    sides: [&ClusterSide<'_>; 2],
    sources: &JointKeys<'_>,
    destinations: &JointKeys<'_>,
    work: impl FnOnce([&FoldContext<'_>; 2]) -> R,
) -> R {
    let [old, new] = sides;
    with_context(old, &sources.old, &destinations.old, |of_old| {
        with_context(new, &sources.new, &destinations.new, |of_new| {
            work([of_old, of_new])
        })
    })
}

fn with_context<R>(
    side: &ClusterSide<'_>,
    sources: &super::keys::Keys<'_>,
    destinations: &super::keys::Keys<'_>,
    work: impl FnOnce(&FoldContext<'_>) -> R,
) -> R {
    let sources = Sources::new(side.program, sources);
    let columns = Columns::new(side.program);
    let union_rules = UnionRules::new(side.program, &side.union_rules);
    let context = FoldContext::new(
        side.program,
        &sources,
        &columns,
        &side.addresses,
        &union_rules,
        &side.possible,
        destinations.list.iter().map(|key| &key.view),
    );
    work(&context)
}
