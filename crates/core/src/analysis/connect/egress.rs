//! Egress: the sources that may send to a destination. The destination is the peer here: the rules
//! are those that match it as a peer, and the sources are the subjects of these rules.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::allowed::AllowedSources;
use super::bits::{self, KeySet, Words, and_not, is_empty, or};
use super::columns::{Columns, MapColumns};
use super::fold::Folded;
use super::ingress::{AfterAdmin, is_relative};
use super::keys::{AddressClasses, Key};
use super::members::MemberView;
use super::memo::Memo;
use super::peers::{Sources, class};
use super::per_port::PerPort;
use crate::decide::Identity;
use crate::model::NodeId;
use crate::net::Family;
use crate::policy::{Direction, Tier};
use crate::program::{
    AddressAtom, Class, NONE, Program, Rule, RuleId, Table, direction_index, table_index,
};

/// The egress rules of NetworkPolicies, by their peers.
#[derive(Debug)]
pub(super) struct UnionRules {
    any_peer: Vec<RuleId>,
    of_set: Vec<Vec<RuleId>>,
    of_node_set: Vec<Vec<RuleId>>,
    /// The runs of atoms of rules with blocks, by their first atom.
    runs: Vec<(u32, u32, RuleId)>,
}

impl UnionRules {
    pub(super) fn new(program: &Program, union_rules: &[Vec<RuleId>; 2]) -> UnionRules {
        let mut rules = UnionRules {
            any_peer: Vec::new(),
            of_set: vec![Vec::new(); program.set_relations.len()],
            of_node_set: vec![Vec::new(); program.node_sets.len()],
            runs: Vec::new(),
        };
        let egress = union_rules.get(direction_index(Direction::Egress));
        for id in egress.into_iter().flatten() {
            let Some(rule) = program.rules.get(id.0 as usize) else {
                continue;
            };
            if rule.any_peer {
                rules.any_peer.push(*id);
                continue;
            }
            for set in rule.sets.of(&program.lists.sets) {
                if let Some(list) = rules.of_set.get_mut(*set as usize) {
                    list.push(*id);
                }
            }
            for set in rule.nodes.of(&program.lists.nodes) {
                if let Some(list) = rules.of_node_set.get_mut(*set as usize) {
                    list.push(*id);
                }
            }
            let runs = rule.blocks.of(&program.lists.blocks).iter();
            rules
                .runs
                .extend(runs.map(|(start, end)| (*start, *end, *id)));
        }
        rules.runs.sort_unstable();
        rules
    }

    /// Returns the rules whose runs cover each atom; `atoms` must be ascending.
    fn covering(&self, atoms: &[u32]) -> FxHashMap<u32, Vec<RuleId>> {
        // A sweep over atoms and starts of runs. Looking up each atom in all runs would take the
        // product of both, and rules have many blocks.
        let mut covering = FxHashMap::default();
        let mut open: Vec<(u32, RuleId)> = Vec::new();
        let mut runs = self.runs.iter().peekable();
        for atom in atoms {
            while let Some((_, end, id)) = runs.next_if(|(start, ..)| start <= atom) {
                open.push((*end, *id));
            }
            open.retain(|(end, _)| end > atom);
            let mut ids: Vec<RuleId> = open.iter().map(|(_, id)| *id).collect();
            ids.sort_unstable();
            // Blocks of one rule can overlap.
            ids.dedup();
            covering.insert(*atom, ids);
        }
        covering
    }
}

/// Everything that a folded tier depends on: the rows in which the destination is a peer, its port
/// names, and its class if a peer depends on the subject.
type TierKey = ([u32; 3], u32, u32);

/// The inputs that the folds of all destinations share.
#[derive(Debug)]
pub(super) struct FoldContext<'f> {
    pub(super) program: &'f Program,
    pub(super) sources: &'f Sources<'f>,
    pub(super) columns: &'f Columns<'f>,
    pub(super) addresses: &'f AddressClasses,
    pub(super) union_rules: &'f UnionRules,
    /// The atoms that an unknown address could be in, for each family.
    pub(super) possible: &'f [Vec<AddressAtom>; 2],
    /// For each atom of a destination the rules of NetworkPolicies with blocks around it.
    covering: FxHashMap<u32, Vec<RuleId>>,
}

impl<'f> FoldContext<'f> {
    pub(super) fn new<'k>(
        program: &'f Program,
        sources: &'f Sources<'f>,
        columns: &'f Columns<'f>,
        addresses: &'f AddressClasses,
        union_rules: &'f UnionRules,
        possible: &'f [Vec<AddressAtom>; 2],
        destinations: impl Iterator<Item = &'k MemberView<'k>>,
    ) -> FoldContext<'f> {
        let mut context = FoldContext {
            program,
            sources,
            columns,
            addresses,
            union_rules,
            possible,
            covering: FxHashMap::default(),
        };
        let mut atoms: Vec<u32> = Vec::new();
        let mut any_unknown = false;
        for view in destinations {
            atoms.extend(view.atoms.iter().flatten().map(|atom| atom.0));
            any_unknown |= view.is_unknown;
        }
        if any_unknown {
            for family in Family::BOTH {
                atoms.extend(context.assumptions(family).iter().map(|atom| atom.0));
            }
        }
        atoms.sort_unstable();
        atoms.dedup();
        context.covering = union_rules.covering(&atoms);
        context
    }

    /// Returns the addresses to try for a destination with an unknown address.
    fn assumptions(&self, family: Family) -> Vec<AddressAtom> {
        let possible = match family {
            Family::V4 => &self.possible[0],
            Family::V6 => &self.possible[1],
        };
        // One atom of each class is enough: blocks are all that an address matches, and atoms of a
        // class are in the blocks of the same rules.
        let mut seen = FxHashSet::default();
        let is_new = |atom: &&AddressAtom| seen.insert(self.addresses.of_destination(**atom));
        possible.iter().filter(is_new).copied().collect()
    }
}

/// Folds the egress direction, one destination after the other.
#[derive(Debug)]
pub(super) struct Egress<'f> {
    context: &'f FoldContext<'f>,
    admin: Memo<TierKey, PerPort<AfterAdmin>>,
    baseline: Memo<TierKey, PerPort<Words>>,
    /// The sources that NetworkPolicies allow to send to an address, regardless of its identity.
    to_address: Memo<(u32, u32), PerPort<Words>>,
}

/// A destination in one fold, with one address.
#[derive(Clone, Copy)]
struct EgressDestination<'f> {
    class: Option<&'f Class>,
    node: Option<NodeId>,
    atom: AddressAtom,
    columns: MapColumns<'f>,
}

impl EgressDestination<'_> {
    fn port_map(&self) -> u32 {
        self.class.map_or(NONE, |class| class.port_map)
    }
}

impl<'f> Egress<'f> {
    pub(super) fn new(context: &'f FoldContext<'f>, room: usize) -> Egress<'f> {
        Egress {
            context,
            admin: Memo::new(room),
            baseline: Memo::new(room),
            to_address: Memo::new(room),
        }
    }

    /// Returns the sources that may send to a destination in a family.
    pub(super) fn side(&mut self, key: &Key<'_>, family: Family) -> PerPort<AllowedSources> {
        let class = class(self.context.program, key);
        let node = match key.view.identity {
            Identity::Node(node) => node,
            Identity::Pod(_) | Identity::External => None,
        };
        let columns = self.context.columns.with(class.map(|class| class.port_map));
        // A known address is one fold. For an unknown one the folds of all possible addresses
        // are joined into bounds.
        let atoms = match key.view.atom(family) {
            Some(atom) => vec![atom],
            None => self.context.assumptions(family),
        };
        let mut side: Option<PerPort<AllowedSources>> = None;
        for atom in atoms {
            let lane = EgressDestination {
                class,
                node,
                atom,
                columns,
            };
            let allowed = self.lane(lane);
            side = Some(match side {
                None => allowed,
                Some(side) => side.join(&allowed, AllowedSources::or_else),
            });
        }
        let none = || AllowedSources::of(vec![0; self.context.sources.all.len()]);
        side.unwrap_or_else(|| PerPort::one(columns.len(), none()))
    }

    fn lane(&mut self, lane: EgressDestination<'f>) -> PerPort<AllowedSources> {
        // Each source is a subject of its own here. Some bits of a word are isolated sources, which
        // NetworkPolicies decide after the Admin tier, and others are not, which the Baseline
        // decides (D12). Both tiers are therefore folded for all sources, and `isolated` selects
        // between the results bit by bit. At ingress the destination is the only subject, and one
        // of the two is enough.
        let admin = self.admin(lane);
        let baseline = self.baseline(lane);
        let isolated = &self.context.sources.isolated;
        if is_empty(isolated) {
            return admin.join(&baseline, |admin, then| {
                AllowedSources::of(admin.then(then))
            });
        }
        let union = self.union(lane);
        let then = union.join(&baseline, |union, baseline| {
            let words = union.iter().zip(baseline.iter()).zip(isolated);
            let words = words
                .map(|((union, baseline), isolated)| (union & isolated) | (baseline & !isolated));
            words.collect::<Words>()
        });
        admin.join(&then, |admin, then| AllowedSources::of(admin.then(then)))
    }

    /// Returns the rows of a table in which the destination is a peer: of class, address and node.
    fn rows(&self, lane: EgressDestination<'f>, tier: Tier) -> [u32; 3] {
        let table = self.context.program.table(tier, Direction::Egress);
        let index = table_index(tier, Direction::Egress);
        let of_class = lane.class.and_then(|class| class.peer_rows.get(index));
        let of_address = table.address_rows.get(lane.atom.0 as usize);
        let of_node = lane
            .node
            .and_then(|node| table.node_rows.get(node.0 as usize));
        [of_class, of_address, of_node].map(|row| row.copied().unwrap_or(0))
    }

    fn tier_key(&self, lane: EgressDestination<'f>, tier: Tier) -> (TierKey, Words) {
        let table = self.context.program.table(tier, Direction::Egress);
        let rows = self.rows(lane, tier);
        let [class, address, node] = rows;
        let mut words = table.peers.row(class).to_vec();
        or(&mut words, table.addresses.row(address));
        or(&mut words, table.nodes.row(node));
        let is_relative = words.iter().zip(&table.relative).any(|(a, b)| a & b != 0);
        // A relation depends on the sets and the namespace of the class. Classes with the same row
        // can differ in both, so the key needs the class itself.
        let class = lane.class.filter(|_| is_relative);
        let class = class.map_or(NONE, |class| class.id);
        ((rows, lane.port_map(), class), words)
    }

    fn admin(&mut self, lane: EgressDestination<'f>) -> Arc<PerPort<AfterAdmin>> {
        let (id, words) = self.tier_key(lane, Tier::Admin);
        if let Some(known) = self.admin.get(&id) {
            return known;
        }
        let admin = self.fold(lane, Tier::Admin, &words).map(AfterAdmin::of);
        let size = admin.groups.len() * self.context.sources.all.len() * 16;
        self.admin.keep(id, admin, size)
    }

    fn baseline(&mut self, lane: EgressDestination<'f>) -> Arc<PerPort<Words>> {
        let (id, words) = self.tier_key(lane, Tier::Baseline);
        if let Some(known) = self.baseline.get(&id) {
            return known;
        }
        let folded = self.fold(lane, Tier::Baseline, &words);
        let allowed = folded.map(|folded| {
            let mut allowed = folded.accepted.clone();
            or(&mut allowed, &folded.passed);
            or(&mut allowed, &folded.open);
            allowed
        });
        let size = allowed.groups.len() * self.context.sources.all.len() * 8;
        self.baseline.keep(id, allowed, size)
    }

    /// Folds the rules of a tier that have the destination as a peer, in order.
    fn fold(&self, lane: EgressDestination<'f>, tier: Tier, words: &[u64]) -> PerPort<Folded> {
        let context = self.context;
        let table = context.program.table(tier, Direction::Egress);
        let mut split = PerPort::one(lane.columns.len(), Folded::new(&context.sources.all));
        // Later rules do not apply to pods that DefaultNetworkPolicies isolate (D62). Sources that
        // leave `open` without an action are denied.
        let isolate = |split: &mut PerPort<Folded>| {
            for folded in &mut split.groups {
                and_not(&mut folded.open, &context.sources.default_isolated);
            }
        };
        let mut is_past_group = tier == Tier::Admin;
        for (n_rules, bit) in bits::iter(words).enumerate() {
            let Some((id, rule)) = rule_at(context.program, table, bit) else {
                continue;
            };
            if !is_past_group && bit >= table.group_end {
                isolate(&mut split);
                is_past_group = true;
            }
            if split.is_settled(n_rules) {
                // Nothing is open, so the isolation below changes nothing either.
                break;
            }
            let covered = lane.columns.covered(id);
            self.subjects(lane, rule, |keys| split.rule(&covered, rule.action, keys));
        }
        if !is_past_group {
            isolate(&mut split);
        }
        split
    }

    /// Calls `with` for the subjects of a rule that has the destination as a peer.
    fn subjects(&self, lane: EgressDestination<'f>, rule: &Rule, mut with: impl FnMut(&KeySet)) {
        let (program, sources) = (self.context.program, self.context.sources);
        let policy = rule.place.policy;
        // Relations matter only where nothing else makes the destination a peer.
        if !is_relative(program, rule) || is_peer_of_all(program, lane, rule) {
            if let Some(keys) = sources.subjects(policy) {
                with(keys);
            }
            return;
        }
        let Some(class) = lane.class else {
            return;
        };
        let sets = rule.sets.of(&program.lists.sets).iter().copied();
        let sets: Vec<u32> = sets.filter(|set| program.is_in(class, *set)).collect();
        with(&sources.related_subjects(policy, &sets, class.namespace));
    }

    /// Returns the sources whose NetworkPolicies allow flows to the destination.
    fn union(&mut self, lane: EgressDestination<'f>) -> Arc<PerPort<Words>> {
        let to_address = self.union_of_address(lane);
        let rules = &self.context.union_rules;
        let of_class = lane.class.into_iter();
        let of_class = of_class.flat_map(|class| self.context.program.sets_of(class));
        let by_set = of_class.filter_map(|set| rules.of_set.get(set as usize));
        let sets = self
            .context
            .program
            .node_sets
            .iter()
            .zip(&rules.of_node_set);
        let by_node = sets.filter_map(|(nodes, rules)| {
            let node = lane.node?;
            nodes.binary_search(&node).is_ok().then_some(rules)
        });
        // Most destinations are in no set of these rules: they share the result of their address
        // without a copy.
        let mut split: Option<PerPort<Words>> = None;
        for id in by_set.chain(by_node).flatten() {
            let split = split.get_or_insert_with(|| (*to_address).clone());
            self.allow(lane, *id, split);
        }
        split.map_or(to_address, Arc::new)
    }

    fn allow(&self, lane: EgressDestination<'f>, id: RuleId, split: &mut PerPort<Words>) {
        let context = self.context;
        let Some(rule) = context.program.rules.get(id.0 as usize) else {
            return;
        };
        let covered = lane.columns.covered(id);
        self.subjects(lane, rule, |keys| {
            if !keys.is_empty() {
                split.change(&covered, |words| keys.add_to(words, &context.sources.all));
            }
        });
    }

    fn union_of_address(&mut self, lane: EgressDestination<'f>) -> Arc<PerPort<Words>> {
        // Atoms of a class are in the blocks of the same rules, so the class is enough as a key.
        let class = self.context.addresses.of_destination(lane.atom);
        let id = (class, lane.port_map());
        if let Some(known) = self.to_address.get(&id) {
            return known;
        }
        let n_words = self.context.sources.all.len();
        let mut split = PerPort::one(lane.columns.len(), vec![0; n_words]);
        let covering = self.context.covering.get(&lane.atom.0);
        let any_peer = &self.context.union_rules.any_peer;
        for id in any_peer.iter().chain(covering.into_iter().flatten()) {
            self.allow(lane, *id, &mut split);
        }
        let size = split.groups.len() * n_words * 8;
        self.to_address.keep(id, split, size)
    }
}

fn rule_at<'p>(program: &'p Program, table: &Table, bit: u32) -> Option<(RuleId, &'p Rule)> {
    let id = *table.rules.get(bit as usize)?;
    Some((id, program.rules.get(id.0 as usize)?))
}

/// Returns whether the destination is a peer of a rule for every subject.
fn is_peer_of_all(program: &Program, lane: EgressDestination<'_>, rule: &Rule) -> bool {
    let lists = &program.lists;
    let mut blocks = rule.blocks.of(&lists.blocks).iter();
    if rule.any_peer || blocks.any(|(start, end)| (*start..*end).contains(&lane.atom.0)) {
        return true;
    }
    let mut nodes = rule.nodes.of(&lists.nodes).iter();
    if let Some(node) = lane.node
        && nodes.any(|set| {
            let nodes = program.node_sets.get(*set as usize);
            nodes.is_some_and(|nodes| nodes.binary_search(&node).is_ok())
        })
    {
        return true;
    }
    let Some(class) = lane.class else {
        return false;
    };
    rule.sets.of(&lists.sets).iter().any(|set| {
        let relation = program.set_relations.get(*set as usize).copied().flatten();
        relation.is_none() && program.is_in(class, *set)
    })
}
