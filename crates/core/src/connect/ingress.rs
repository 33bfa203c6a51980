//! What destinations let in: their side of the fold, over all sources.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::allowed::AllowedSources;
use super::bits::{self, KeySet, and, or};
use super::columns::{Columns, MapColumns};
use super::fold::Folded;
use super::keys::{Key, distinguishing_blocks};
use super::memo::Memo;
use super::peers::{Sources, class};
use super::per_port::PerPort;
use crate::net::Family;
use crate::policy::{Direction, Tier};
use crate::program::{
    AddressAtom, Class, NONE, Program, Rule, RuleId, Table, direction_index, table_index,
};

/// The address that sources are taken to have whose address is not known.
pub(super) type Assumed = Option<AddressAtom>;

/// What the fold of a tier depends on: the subject's row, its port names, its namespace if a peer
/// depends on it, whether default policies isolate it, the family and the assumed address.
type TierKey = (u32, u32, u32, bool, Family, Assumed);

/// What a side depends on: both rows, the union, default isolation, port names, namespace, family.
type SideKey = (u32, u32, u32, bool, u32, u32, Family);

/// The ingress side of all destinations.
#[derive(Debug)]
pub(super) struct Ingress<'f> {
    program: &'f Program,
    sources: &'f Sources<'f>,
    columns: &'f Columns<'f>,
    /// The atoms that an unknown address could be in, for each family.
    possible: &'f [Vec<AddressAtom>; 2],
    admin: Memo<TierKey, PerPort<AfterAdmin>>,
    baseline: Memo<TierKey, PerPort<bits::Words>>,
    sides: Memo<SideKey, PerPort<AllowedSources>>,
}

/// What the Admin tier leaves.
#[derive(Clone, Debug)]
pub(super) struct AfterAdmin {
    pub(super) accepted: bits::Words,
    /// For the tiers behind it to decide.
    pub(super) rest: bits::Words,
}

impl AfterAdmin {
    pub(super) fn of(folded: &Folded) -> AfterAdmin {
        AfterAdmin {
            accepted: folded.accepted.clone(),
            rest: folded.rest(),
        }
    }

    /// What is allowed if the tiers behind it allow `then`.
    pub(super) fn then(&self, then: &[u64]) -> bits::Words {
        let mut allowed = self.rest.clone();
        and(&mut allowed, then);
        or(&mut allowed, &self.accepted);
        allowed
    }
}

/// A destination of traffic that comes in, as one lane of the fold sees it.
#[derive(Clone, Copy)]
struct IngressLane<'f> {
    class: &'f Class,
    columns: MapColumns<'f>,
    family: Family,
    assumed: Assumed,
}

impl<'f> Ingress<'f> {
    pub(super) fn new(
        program: &'f Program,
        sources: &'f Sources<'f>,
        columns: &'f Columns<'f>,
        possible: &'f [Vec<AddressAtom>; 2],
        room: usize,
    ) -> Ingress<'f> {
        Ingress {
            program,
            sources,
            columns,
            possible,
            admin: Memo::new(room),
            baseline: Memo::new(room),
            sides: Memo::new(room),
        }
    }

    /// Who is let in by a destination, in a family.
    pub(super) fn side(&mut self, key: &Key<'_>, family: Family) -> Arc<PerPort<AllowedSources>> {
        let Some(class) = class(self.program, key) else {
            let n_columns = self.columns.with(None).len();
            let everyone = AllowedSources::of(self.sources.all.clone());
            return Arc::new(PerPort::one(n_columns, everyone));
        };
        let id = self.side_key(class, family);
        if let Some(known) = self.sides.get(&id) {
            return known;
        }
        let mut side: Option<PerPort<AllowedSources>> = None;
        for assumed in self.assumptions(class, family) {
            let lane = IngressLane {
                class,
                columns: self.columns.with(Some(class.port_map)),
                family,
                assumed,
            };
            let planes = self.lane(lane);
            side = Some(match side {
                None => planes,
                Some(side) => side.join(&planes, AllowedSources::or_else),
            });
        }
        let n_columns = self.columns.with(Some(class.port_map)).len();
        let nobody = || {
            PerPort::one(
                n_columns,
                AllowedSources::of(vec![0; self.sources.all.len()]),
            )
        };
        let side = side.unwrap_or_else(nobody);
        let size = side.groups.len() * self.sources.all.len() * 8;
        self.sides.keep(id, side, size)
    }

    fn side_key(&self, class: &Class, family: Family) -> SideKey {
        let row = |tier| subject_row(class, tier);
        let at = |of: &[u32; 2]| ingress(of).unwrap_or(NONE);
        // Which namespace it is can only count through a relation.
        let namespace = if self.program.relations.is_empty() {
            NONE
        } else {
            class.namespace
        };
        (
            row(Tier::Admin),
            row(Tier::Baseline),
            at(&class.unions),
            ingress(&class.default_isolations).is_some(),
            class.port_map,
            namespace,
            family,
        )
    }

    /// The addresses that unknown sources have to be tried with: one for each set of blocks, among
    /// those of the rules here, that an address can be in.
    fn assumptions(&self, class: &Class, family: Family) -> Vec<Assumed> {
        let possible = match family {
            Family::V4 => &self.possible[0],
            Family::V6 => &self.possible[1],
        };
        if self.sources.unknown.is_empty() {
            return vec![None];
        }
        let mut rules: Vec<RuleId> = Vec::new();
        for tier in [Tier::Admin, Tier::Baseline] {
            let table = self.program.table(tier, Direction::Ingress);
            let of_tier = rules_of(table, subject_row(class, tier));
            rules.extend(of_tier.map(|(_, id)| id));
        }
        rules.extend(self.union_rules(class).into_iter().flatten());
        let covered = distinguishing_blocks(self.program, rules.iter());
        let mut seen = FxHashSet::default();
        let is_new = |atom: &&AddressAtom| seen.insert(covered.get(atom.0 as usize));
        possible.iter().filter(is_new).copied().map(Some).collect()
    }

    fn union_rules(&self, class: &Class) -> Option<&'f [RuleId]> {
        let unions = self
            .program
            .unions
            .get(direction_index(Direction::Ingress))?;
        let union = unions.get(ingress(&class.unions)? as usize)?;
        Some(&union.rules)
    }

    fn lane(&mut self, lane: IngressLane<'f>) -> PerPort<AllowedSources> {
        let admin = self.admin(lane);
        match self.union(lane) {
            Some(union) => admin.join(&union, |admin, union| AllowedSources::of(admin.then(union))),
            None => {
                let baseline = self.baseline(lane);
                admin.join(&baseline, |admin, then| {
                    AllowedSources::of(admin.then(then))
                })
            }
        }
    }

    fn tier_key(&self, lane: IngressLane<'f>, tier: Tier) -> TierKey {
        let row = subject_row(lane.class, tier);
        let table = self.program.table(tier, Direction::Ingress);
        let mut words = table.subjects.row(row).iter().zip(&table.relative);
        let namespace = if words.any(|(a, b)| a & b != 0) {
            lane.class.namespace
        } else {
            NONE
        };
        let is_isolated =
            tier == Tier::Baseline && ingress(&lane.class.default_isolations).is_some();
        let port_map = lane.class.port_map;
        (
            row,
            port_map,
            namespace,
            is_isolated,
            lane.family,
            lane.assumed,
        )
    }

    fn admin(&mut self, lane: IngressLane<'f>) -> Arc<PerPort<AfterAdmin>> {
        let id = self.tier_key(lane, Tier::Admin);
        if let Some(known) = self.admin.get(&id) {
            return known;
        }
        let folded = self.fold(lane, Tier::Admin, u32::MAX);
        let admin = folded.map(AfterAdmin::of);
        let size = admin.groups.len() * self.sources.all.len() * 16;
        self.admin.keep(id, admin, size)
    }

    fn baseline(&mut self, lane: IngressLane<'f>) -> Arc<PerPort<bits::Words>> {
        let id = self.tier_key(lane, Tier::Baseline);
        if let Some(known) = self.baseline.get(&id) {
            return known;
        }
        let table = self.program.table(Tier::Baseline, Direction::Ingress);
        let is_isolated = ingress(&lane.class.default_isolations).is_some();
        // Whatever stands behind the default policies is not for pods that they isolate (D62).
        let end = if is_isolated {
            table.group_end
        } else {
            u32::MAX
        };
        let folded = self.fold(lane, Tier::Baseline, end);
        let allowed = folded.map(|folded| {
            let mut allowed = folded.accepted.clone();
            or(&mut allowed, &folded.passed);
            if !is_isolated {
                or(&mut allowed, &folded.open);
            }
            allowed
        });
        let size = allowed.groups.len() * self.sources.all.len() * 8;
        self.baseline.keep(id, allowed, size)
    }

    /// The rules of a tier that select the destination, in order, up to a bit.
    fn fold(&self, lane: IngressLane<'f>, tier: Tier, end: u32) -> PerPort<Folded> {
        let table = self.program.table(tier, Direction::Ingress);
        let mut split = PerPort::one(lane.columns.len(), Folded::new(&self.sources.all));
        let rules = rules_of(table, subject_row(lane.class, tier));
        for (n_rules, (_, id)) in rules.take_while(|(bit, _)| *bit < end).enumerate() {
            let Some(rule) = self.program.rules.get(id.0 as usize) else {
                continue;
            };
            if split.is_settled(n_rules) {
                break;
            }
            let covered = lane.columns.covered(id);
            self.matching(lane, id, rule, |keys| {
                split.rule(&covered, rule.action, keys);
            });
        }
        split
    }

    /// The sources that a rule means, in one or two sets.
    fn matching(
        &self,
        lane: IngressLane<'f>,
        id: RuleId,
        rule: &Rule,
        mut with: impl FnMut(&KeySet),
    ) {
        if is_relative(self.program, rule) {
            let subject = lane.class.namespace;
            with(&self.sources.related_peers(id, lane.family, subject));
        } else if let Some(keys) = self.sources.peers(id, lane.family) {
            with(keys);
        }
        if let Some(atom) = lane.assumed
            && self.sources.covers(id, atom)
        {
            with(&KeySet::Sparse(self.sources.unknown.clone()));
        }
    }

    /// What NetworkPolicies allow; `None`: none of them isolates the destination.
    fn union(&self, lane: IngressLane<'f>) -> Option<PerPort<bits::Words>> {
        let rules = self.union_rules(lane.class)?;
        let mut split = PerPort::one(lane.columns.len(), vec![0; self.sources.all.len()]);
        for id in rules {
            let Some(rule) = self.program.rules.get(id.0 as usize) else {
                continue;
            };
            let covered = lane.columns.covered(*id);
            self.matching(lane, *id, rule, |keys| {
                if !keys.is_empty() {
                    split.change(&covered, |words| keys.add_to(words, &self.sources.all));
                }
            });
        }
        Some(split)
    }
}

/// Whether a peer of a rule depends on the subject.
pub(crate) fn is_relative(program: &Program, rule: &Rule) -> bool {
    let mut sets = rule.sets.of(&program.lists.sets).iter();
    sets.any(|set| {
        let relation = program.set_relations.get(*set as usize);
        relation.is_some_and(Option::is_some)
    })
}

/// The rules of a row, in order, with their bits.
pub(super) fn rules_of(table: &Table, row: u32) -> impl Iterator<Item = (u32, RuleId)> + '_ {
    let bits = bits::iter(table.subjects.row(row));
    bits.filter_map(|bit| Some((bit, *table.rules.get(bit as usize)?)))
}

fn subject_row(class: &Class, tier: Tier) -> u32 {
    let index = table_index(tier, Direction::Ingress);
    class.subject_rows.get(index).copied().unwrap_or(0)
}

/// What a class has for ingress, if anything.
fn ingress(of: &[u32; 2]) -> Option<u32> {
    let index = direction_index(Direction::Ingress);
    of.get(index).copied().filter(|it| *it != NONE)
}
