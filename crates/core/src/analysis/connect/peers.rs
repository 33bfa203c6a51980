//! The source keys that rules match: as peers for ingress, as subjects for egress.

use std::sync::OnceLock;

use rustc_hash::FxHashMap;

use super::bits::{KeySet, Words, all_ones, has, set, words_for};
use super::keys::{Key, Keys};
use super::members::family_index;
use crate::compile::count;
use crate::decide::Identity;
use crate::model::PolicyId;
use crate::net::Family;
use crate::policy::{Direction, Tier};
use crate::program::{
    AddressAtom, Class, NONE, Program, Rule, RuleId, direction_index, table_index,
};

/// The source keys, indexed by what rules match.
#[derive(Debug)]
pub(crate) struct Sources<'p> {
    program: &'p Program,
    /// All source keys.
    pub(crate) all: Words,
    /// The keys that have or could have an address of each family.
    pub(crate) may_have: [Words; 2],
    /// The keys that could have any address.
    pub(crate) unknown: Vec<u32>,
    pub(crate) unknown_words: Words,
    /// The keys of pods that NetworkPolicies isolate for egress.
    pub(crate) isolated: Words,
    /// The keys of pods that DefaultNetworkPolicies isolate for egress.
    pub(crate) default_isolated: Words,
    /// The namespace of each key that is a pod.
    namespaces: Vec<Option<u32>>,
    /// The keys in each pod set.
    of_set: Vec<Vec<u32>>,
    /// The keys of nodes in each set of nodes.
    of_node_set: Vec<Vec<u32>>,
    /// The keys by known address, for each family.
    by_atom: [Vec<(u32, u32)>; 2],
    /// For each rule the number of its list of peers; equal lists share one.
    peers_of_rule: Vec<u32>,
    /// For each family and number the matching keys, computed on first use.
    peers: [Vec<OnceLock<KeySet>>; 2],
    /// The keys that each policy selects for egress.
    subjects: FxHashMap<PolicyId, KeySet>,
}

impl<'p> Sources<'p> {
    pub(crate) fn new(program: &'p Program, keys: &Keys<'_>) -> Sources<'p> {
        let n = keys.len();
        let mut of_set = vec![Vec::new(); program.set_relations.len()];
        let mut of_node_set = vec![Vec::new(); program.node_sets.len()];
        let mut by_atom = [Vec::new(), Vec::new()];
        let mut sources = Sources {
            program,
            all: all_ones(n),
            may_have: [vec![0; words_for(n)], vec![0; words_for(n)]],
            unknown: Vec::new(),
            unknown_words: vec![0; words_for(n)],
            isolated: vec![0; words_for(n)],
            default_isolated: vec![0; words_for(n)],
            namespaces: Vec::with_capacity(n),
            of_set: Vec::new(),
            of_node_set: Vec::new(),
            by_atom: [Vec::new(), Vec::new()],
            peers_of_rule: Vec::new(),
            peers: [Vec::new(), Vec::new()],
            subjects: subjects(program, keys),
        };
        let egress = direction_index(Direction::Egress);
        for (id, key) in keys.list.iter().enumerate() {
            let id = count(id);
            let class = class(program, key);
            sources.namespaces.push(class.map(|class| class.namespace));
            if key.view.is_unknown {
                sources.unknown.push(id);
                set(&mut sources.unknown_words, id);
            }
            for family in Family::BOTH {
                let index = family_index(family);
                if let Some(words) = sources.may_have.get_mut(index)
                    && key.view.may_have(family)
                {
                    set(words, id);
                }
                if let (Some(atom), Some(list)) = (key.view.atom(family), by_atom.get_mut(index)) {
                    list.push((atom.0, id));
                }
            }
            for set in class.into_iter().flat_map(|it| program.sets_of(it)) {
                if let Some(list) = of_set.get_mut(set as usize) {
                    list.push(id);
                }
            }
            if let Identity::Node(Some(node)) = key.view.identity {
                for (nodes, list) in program.node_sets.iter().zip(&mut of_node_set) {
                    if nodes.binary_search(&node).is_ok() {
                        list.push(id);
                    }
                }
            }
            let has = |of: &[u32; 2]| of.get(egress).is_some_and(|it| *it != NONE);
            if class.is_some_and(|class| has(&class.unions)) {
                set(&mut sources.isolated, id);
            }
            if class.is_some_and(|class| has(&class.default_isolations)) {
                set(&mut sources.default_isolated, id);
            }
        }
        by_atom.iter_mut().for_each(|list| list.sort_unstable());
        sources.of_set = of_set;
        sources.of_node_set = of_node_set;
        sources.by_atom = by_atom;
        sources.number_peers();
        sources
    }

    pub(crate) fn n(&self) -> usize {
        self.namespaces.len()
    }

    /// Returns whether a key has, or could have, an address of a family.
    pub(crate) fn may_have(&self, family: Family, key: u32) -> bool {
        let words = self.may_have.get(family_index(family));
        words.is_some_and(|words| has(words, key))
    }

    fn number_peers(&mut self) {
        // Many rules have the same peers, all pods of a namespace for example. Their keys are
        // found once, and only if a fold reaches one of the rules.
        let mut ids = FxHashMap::default();
        let lists = &self.program.lists;
        for rule in &self.program.rules {
            let key = (
                rule.any_peer,
                rule.sets.of(&lists.sets),
                rule.blocks.of(&lists.blocks),
                rule.nodes.of(&lists.nodes),
            );
            let next = count(ids.len());
            let id = *ids.entry(key).or_insert(next);
            self.peers_of_rule.push(id);
        }
        // `OnceLock`, because the workers of all threads share the sources.
        let empty = || ids.iter().map(|_| OnceLock::new()).collect();
        self.peers = [empty(), empty()];
    }

    /// Returns the keys that are peers of a rule for every subject. Blocks match known addresses.
    pub(crate) fn peers(&self, id: RuleId, family: Family) -> Option<&KeySet> {
        let number = self.peers_of_rule.get(id.0 as usize)?;
        let peers = self.peers.get(family_index(family))?;
        let rule = self.program.rules.get(id.0 as usize)?;
        let slot = peers.get(*number as usize)?;
        Some(slot.get_or_init(|| self.find(rule, family, None)))
    }

    /// Returns the keys that are peers of a rule for subjects of a namespace.
    pub(crate) fn related_peers(&self, id: RuleId, family: Family, subject: u32) -> KeySet {
        // Not kept: the result also depends on the subject's namespace, and the folded tier that
        // uses it is memoised by that namespace.
        let rule = self.program.rules.get(id.0 as usize);
        let none = KeySet::Sparse(Vec::new());
        rule.map_or(none, |rule| self.find(rule, family, Some(subject)))
    }

    fn find(&self, rule: &Rule, family: Family, subject: Option<u32>) -> KeySet {
        if rule.any_peer {
            return KeySet::Everything;
        }
        let lists = &self.program.lists;
        let mut keys = Vec::new();
        for set in rule.sets.of(&lists.sets) {
            let of_set = self.of_set.get(*set as usize);
            let of_set = of_set.into_iter().flatten().copied();
            match (self.relation(*set), subject) {
                (Some(relation), Some(subject)) => keys.extend(of_set.filter(|key| {
                    let namespace = self.namespaces.get(*key as usize).copied().flatten();
                    namespace.is_some_and(|it| relation.holds(subject, it))
                })),
                (None, _) | (Some(_), None) => keys.extend(of_set),
            }
        }
        // Sorted by atom, so the keys of a run of atoms are one slice.
        let by_atom = self.by_atom.get(family_index(family));
        for (start, end) in rule.blocks.of(&lists.blocks) {
            let by_atom = by_atom.map_or(&[][..], Vec::as_slice);
            let first = by_atom.partition_point(|(atom, _)| atom < start);
            let last = by_atom.partition_point(|(atom, _)| atom < end);
            let within = by_atom.get(first..last).unwrap_or_default();
            keys.extend(within.iter().map(|(_, key)| *key));
        }
        for set in rule.nodes.of(&lists.nodes) {
            keys.extend(self.of_node_set.get(*set as usize).into_iter().flatten());
        }
        KeySet::new(keys, self.n())
    }

    fn relation(&self, set: u32) -> Option<&'p crate::program::Relation> {
        let relation = self.program.set_relations.get(set as usize).copied();
        self.program.relations.get(relation.flatten()? as usize)
    }

    /// Returns whether the blocks of a rule cover an address.
    pub(crate) fn covers(&self, id: RuleId, atom: AddressAtom) -> bool {
        let rule = self.program.rules.get(id.0 as usize);
        let blocks = rule.map_or(&[][..], |it| it.blocks.of(&self.program.lists.blocks));
        let mut blocks = blocks.iter();
        blocks.any(|(start, end)| (*start..*end).contains(&atom.0))
    }

    /// Returns the keys that a policy selects for egress.
    pub(crate) fn subjects(&self, policy: PolicyId) -> Option<&KeySet> {
        self.subjects.get(&policy)
    }

    /// Returns those of them that the relation of one of `sets` connects with a peer's namespace.
    pub(crate) fn related_subjects(
        &self,
        policy: PolicyId,
        sets: &[u32],
        namespace: u32,
    ) -> KeySet {
        let relations: Vec<_> = sets.iter().filter_map(|set| self.relation(*set)).collect();
        let is_related = |key: &u32| {
            let subject = self.namespaces.get(*key as usize).copied().flatten();
            subject.is_some_and(|it| relations.iter().any(|rel| rel.holds(it, namespace)))
        };
        let subjects = self.subjects.get(&policy);
        let subjects = subjects.into_iter().flat_map(|keys| keys.iter(self.n()));
        let keys = subjects.filter(is_related).collect();
        KeySet::new(keys, self.n())
    }
}

/// Returns the class of a key, if it is a pod.
pub(crate) fn class<'p>(program: &'p Program, key: &Key<'_>) -> Option<&'p Class> {
    program.classes.get(key.view.class? as usize)
}

/// Returns the keys that each policy selects for egress, for policies with egress rules.
fn subjects(program: &Program, keys: &Keys<'_>) -> FxHashMap<PolicyId, KeySet> {
    let mut lists: FxHashMap<PolicyId, Vec<u32>> = FxHashMap::default();
    let mut add = |rules: &mut dyn Iterator<Item = RuleId>, keys: &[u32]| {
        let rules = rules.filter_map(|id| program.rules.get(id.0 as usize));
        let mut policies: Vec<PolicyId> = rules.map(|rule| rule.place.policy).collect();
        policies.sort_unstable();
        policies.dedup();
        for policy in policies {
            lists.entry(policy).or_default().extend(keys);
        }
    };
    for tier in [Tier::Admin, Tier::Baseline] {
        let index = table_index(tier, Direction::Egress);
        let table = program.table(tier, Direction::Egress);
        // Classes with equal rows are subjects of the same policies, so each row is read once and
        // not for every key.
        let row = |class: &Class| class.subject_rows.get(index).copied().unwrap_or(0);
        for (row, keys) in grouped(program, keys, row) {
            let bits = super::bits::iter(table.subjects.row(row));
            let mut rules = bits.filter_map(|bit| table.rules.get(bit as usize).copied());
            add(&mut rules, &keys);
        }
    }
    let index = direction_index(Direction::Egress);
    let union = |class: &Class| class.unions.get(index).copied().unwrap_or(NONE);
    for (union, keys) in grouped(program, keys, union) {
        let union = program
            .unions
            .get(index)
            .and_then(|it| it.get(union as usize));
        let mut rules = union.into_iter().flat_map(|it| it.rules.iter().copied());
        add(&mut rules, &keys);
    }
    let n = keys.len();
    let sets = lists.into_iter();
    sets.map(|(policy, keys)| (policy, KeySet::new(keys, n)))
        .collect()
}

/// Groups the keys of pods by a number of their class.
fn grouped(
    program: &Program,
    keys: &Keys<'_>,
    number: impl Fn(&Class) -> u32,
) -> FxHashMap<u32, Vec<u32>> {
    let mut groups: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
    for (id, key) in keys.list.iter().enumerate() {
        if let Some(class) = class(program, key) {
            groups.entry(number(class)).or_default().push(count(id));
        }
    }
    groups
}
