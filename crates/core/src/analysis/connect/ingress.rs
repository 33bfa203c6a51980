//! Ingress: the sources that a destination admits, for all sources at once.

use std::sync::Arc;

use super::allowed::AllowedSources;
use super::bits::{self, KeySet, and, or};
use super::columns::{Columns, MapColumns};
use super::fold::Folded;
use super::keys::{Key, representatives};
use super::memo::Memo;
use super::peers::{Sources, class};
use super::per_port::PerPort;
use crate::net::Family;
use crate::policy::{Direction, Tier};
use crate::program::{
    AddressAtom, Class, NONE, Program, Rule, RuleId, Table, direction_index, table_index,
};

/// The address that a fold assumes for sources with unknown addresses; `None`: there are none.
pub(super) type Assumed = Option<AddressAtom>;

/// Everything that a folded tier depends on: the subject's row, its port names, its namespace if a
/// peer depends on it, whether default policies isolate it, the family and the assumed address.
type TierKey = (u32, u32, u32, bool, Family, Assumed);

/// Everything that the ingress direction depends on: both rows, the union, default isolation, port
/// names, namespace and family.
type SideKey = (u32, u32, u32, bool, u32, u32, Family);

/// Folds the ingress direction, one destination after the other.
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

/// The sources after the Admin tier.
#[derive(Clone, Debug)]
pub(super) struct AfterAdmin {
    pub(super) accepted: bits::Words,
    /// Neither accepted nor denied: later tiers decide.
    pub(super) rest: bits::Words,
}

impl AfterAdmin {
    pub(super) fn of(folded: &Folded) -> AfterAdmin {
        AfterAdmin {
            accepted: folded.accepted.clone(),
            rest: folded.rest(),
        }
    }

    /// Returns the allowed sources if the later tiers allow `then`.
    pub(super) fn then(&self, then: &[u64]) -> bits::Words {
        let mut allowed = self.rest.clone();
        and(&mut allowed, then);
        or(&mut allowed, &self.accepted);
        allowed
    }
}

/// A destination in one fold: in one family, with one assumed address of unknown sources.
#[derive(Clone, Copy)]
struct IngressDestination<'f> {
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

    /// Returns the sources that a destination admits in a family.
    pub(super) fn side(&mut self, key: &Key<'_>, family: Family) -> Arc<PerPort<AllowedSources>> {
        let Some(class) = class(self.program, key) else {
            // Only pods are subjects: ingress does not apply to nodes and networks.
            let n_columns = self.columns.with(None).len();
            let all = AllowedSources::of(self.sources.all.clone());
            return Arc::new(PerPort::one(n_columns, all));
        };
        let id = self.side_key(class, family);
        if let Some(known) = self.sides.get(&id) {
            return known;
        }
        let mut side: Option<PerPort<AllowedSources>> = None;
        for assumed in self.assumptions(class, family) {
            let lane = IngressDestination {
                class,
                columns: self.columns.with(Some(class.port_map)),
                family,
                assumed,
            };
            let allowed = self.lane(lane);
            side = Some(match side {
                None => allowed,
                Some(side) => side.join(&allowed, AllowedSources::or_else),
            });
        }
        let n_columns = self.columns.with(Some(class.port_map)).len();
        let none = || {
            PerPort::one(
                n_columns,
                AllowedSources::of(vec![0; self.sources.all.len()]),
            )
        };
        let side = side.unwrap_or_else(none);
        let size = side.groups.len() * self.sources.all.len() * 8;
        self.sides.keep(id, side, size)
    }

    fn side_key(&self, class: &Class, family: Family) -> SideKey {
        let row = |tier| subject_row(class, tier);
        let at = |of: &[u32; 2]| ingress(of).unwrap_or(NONE);
        // The namespace of the subject matters only to relations; without any, classes of all
        // namespaces share results.
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

    /// Returns the addresses to try for unknown sources: one for each set of blocks, among those of
    /// the rules that select the destination.
    fn assumptions(&self, class: &Class, family: Family) -> Vec<Assumed> {
        let possible = match family {
            Family::V4 => &self.possible[0],
            Family::V6 => &self.possible[1],
        };
        if self.sources.unknown.is_empty() {
            return vec![None];
        }
        // Blocks of rules that do not select the destination would add folds and no results.
        let rules = self.program.rules_selecting(class, Direction::Ingress);
        let atoms = representatives(self.program, &rules, possible);
        atoms.into_iter().map(Some).collect()
    }

    fn union_rules(&self, class: &Class) -> Option<&'f [RuleId]> {
        let unions = self
            .program
            .unions
            .get(direction_index(Direction::Ingress))?;
        let union = unions.get(ingress(&class.unions)? as usize)?;
        Some(&union.rules)
    }

    fn lane(&mut self, lane: IngressDestination<'f>) -> PerPort<AllowedSources> {
        // The destination is the only subject: either NetworkPolicies isolate it or the Baseline
        // follows (D12), and only that tier is folded.
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

    fn tier_key(&self, lane: IngressDestination<'f>, tier: Tier) -> TierKey {
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
        // The family is part of the key: sources match blocks by their address of that family.
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

    fn admin(&mut self, lane: IngressDestination<'f>) -> Arc<PerPort<AfterAdmin>> {
        let id = self.tier_key(lane, Tier::Admin);
        if let Some(known) = self.admin.get(&id) {
            return known;
        }
        let folded = self.fold(lane, Tier::Admin, u32::MAX);
        let admin = folded.map(AfterAdmin::of);
        let size = admin.groups.len() * self.sources.all.len() * 16;
        self.admin.keep(id, admin, size)
    }

    fn baseline(&mut self, lane: IngressDestination<'f>) -> Arc<PerPort<bits::Words>> {
        let id = self.tier_key(lane, Tier::Baseline);
        if let Some(known) = self.baseline.get(&id) {
            return known;
        }
        let table = self.program.table(Tier::Baseline, Direction::Ingress);
        let is_isolated = ingress(&lane.class.default_isolations).is_some();
        // Later rules do not apply to pods that DefaultNetworkPolicies isolate (D62).
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

    /// Folds the rules of a tier that select the destination, in order, up to a bit.
    fn fold(&self, lane: IngressDestination<'f>, tier: Tier, end: u32) -> PerPort<Folded> {
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

    /// Calls `with` for the sources that a rule matches, in one or two sets.
    fn matching(
        &self,
        lane: IngressDestination<'f>,
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
        // The sets above have blocks evaluated for known addresses only. Unknown sources are added
        // here, because the assumed address changes from fold to fold.
        if let Some(atom) = lane.assumed
            && self.sources.covers(id, atom)
        {
            with(&KeySet::Sparse(self.sources.unknown.clone()));
        }
    }

    /// Returns the sources that NetworkPolicies allow; `None`: none isolates the destination.
    fn union(&self, lane: IngressDestination<'f>) -> Option<PerPort<bits::Words>> {
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

/// Returns whether a peer of a rule depends on the subject's namespace.
pub(crate) fn is_relative(program: &Program, rule: &Rule) -> bool {
    let mut sets = rule.sets.of(&program.lists.sets).iter();
    sets.any(|set| {
        let relation = program.set_relations.get(*set as usize);
        relation.is_some_and(Option::is_some)
    })
}

/// Iterates over the rules of a row in order, with their bits.
pub(super) fn rules_of(table: &Table, row: u32) -> impl Iterator<Item = (u32, RuleId)> + '_ {
    let bits = bits::iter(table.subjects.row(row));
    bits.filter_map(|bit| Some((bit, *table.rules.get(bit as usize)?)))
}

fn subject_row(class: &Class, tier: Tier) -> u32 {
    let index = table_index(tier, Direction::Ingress);
    class.subject_rows.get(index).copied().unwrap_or(0)
}

/// Returns the ingress entry of a class, if it has one.
fn ingress(of: &[u32; 2]) -> Option<u32> {
    let index = direction_index(Direction::Ingress);
    of.get(index).copied().filter(|it| *it != NONE)
}
