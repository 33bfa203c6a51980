//! Builds the index of the NetworkPolicy rules of namespaces with many rules.

use rustc_hash::FxHashMap;

use super::classes::SetMembers;
use super::labels::count;
use super::rules::{CompiledRules, by_policy};
use crate::id_set::{IdSet, clear_bit, set_bit};
use crate::model::{Cluster, NamespaceId, PolicyId, PolicyRank};
use crate::policy::Direction;
use crate::policy_index::{AtomRuns, PolicyIndex};
use crate::program::{Hint, NONE, NamedPort, Rule, RuleId, Slice, Union, direction_index};
use crate::set_hash::{SetInterner, word};

/// The number of rules up to which a union is evaluated rule by rule.
// A rule is one cache line, and `port_bits` refuses most rules without a search: a short list is
// faster to walk than the index.
const FEW_RULES: usize = 48;

/// The parts of the program that indexes are built from.
pub(super) struct IndexInput<'i, 'a> {
    pub(super) cluster: &'i Cluster<'a>,
    pub(super) compiled: &'i CompiledRules,
    pub(super) members: &'i SetMembers,
    pub(super) set_relations: &'i [Option<u32>],
}

/// Builds the indexes that large unions need, and refers these unions to them.
pub(super) fn build_indexes(
    input: &IndexInput<'_, '_>,
    unions: &mut [Vec<Union>; 2],
) -> Vec<PolicyIndex> {
    let mut indexes = Vec::new();
    for direction in Direction::BOTH {
        let Some(unions) = unions.get_mut(direction_index(direction)) else {
            continue;
        };
        if unions.iter().all(|union| union.rules.len() <= FEW_RULES) {
            continue;
        }
        // One index for all rules of a namespace, shared by the unions of all its classes: a union
        // adds only a bit for each of its rules.
        let mut places = vec![NONE; input.compiled.rules.len()];
        let mut of_rule = vec![NONE; input.compiled.rules.len()];
        for rules in by_namespace(input, direction) {
            for (place, RuleId(rule)) in rules.iter().enumerate() {
                let rule = *rule as usize;
                if let (Some(at), Some(index)) = (places.get_mut(rule), of_rule.get_mut(rule)) {
                    *at = count(place);
                    *index = count(indexes.len());
                }
            }
            indexes.push(new_index(input, rules));
        }
        for union in unions.iter_mut() {
            let of = |rule: &RuleId| of_rule.get(rule.0 as usize).copied();
            let Some(index) = union.rules.first().and_then(of).filter(|it| *it != NONE) else {
                continue;
            };
            let is_whole = union.rules.iter().all(|rule| of(rule) == Some(index));
            if union.rules.len() <= FEW_RULES || !is_whole {
                continue;
            }
            let n_rules = indexes.get(index as usize).map_or(0, |it| it.rules.len());
            let mut selected = vec![0; n_rules.div_ceil(64)];
            for rule in &union.rules {
                let place = places.get(rule.0 as usize).copied();
                set_bit(&mut selected, place.unwrap_or(NONE));
            }
            union.index = index;
            union.selected = selected;
        }
    }
    indexes
}

/// Returns the rules of the namespaces with many rules, in the order of unions (D137).
fn by_namespace(input: &IndexInput<'_, '_>, direction: Direction) -> Vec<Vec<RuleId>> {
    let cluster = input.cluster;
    let slices = by_policy(&input.compiled.rules, cluster.policies.len());
    let slices = slices.into_iter().nth(direction_index(direction));
    let slices = slices.unwrap_or_default();
    let mut policies: Vec<(NamespaceId, &str, PolicyId, Slice)> = Vec::new();
    for ((index, policy), slice) in cluster.policies.iter().enumerate().zip(slices) {
        if let Some(namespace) = policy.namespace
            && policy.rank == PolicyRank::NetworkPolicy
            && slice.start < slice.end
        {
            policies.push((namespace, policy.name, PolicyId(count(index)), slice));
        }
    }
    // The same order as in `ClassRows::isolating`. The first bit that matches must be the rule that
    // a walk over the list would have found.
    let generation = |id: PolicyId| cluster.policies.get(id.0 as usize).map(|it| it.api);
    policies.sort_by_key(|(namespace, name, id, _)| (*namespace, *name, generation(*id)));
    let namespaces = policies.chunk_by(|(a, ..), (b, ..)| a == b);
    let lists = namespaces.map(|policies| {
        let slices = policies.iter().map(|(.., slice)| slice);
        let rules = slices.flat_map(|slice| slice.start..slice.end);
        rules.map(RuleId).collect::<Vec<RuleId>>()
    });
    // One rule that cannot be indexed leaves its namespace without an index: a verdict looks either
    // at the index or at the list, never at both.
    let is_plain = |rule: &RuleId| {
        let rule = input.compiled.rules.get(rule.0 as usize);
        rule.is_some_and(|rule| can_be_indexed(input, rule))
    };
    lists
        .filter(|rules| rules.len() > FEW_RULES && rules.iter().all(is_plain))
        .collect()
}

/// Whether the index can match a rule: its peers do not depend on the subject, and are no nodes.
fn can_be_indexed(input: &IndexInput<'_, '_>, rule: &Rule) -> bool {
    let relation = |set: &u32| input.set_relations.get(*set as usize).copied().flatten();
    let mut sets = rule.sets.of(&input.compiled.lists.sets).iter();
    rule.nodes.start == rule.nodes.end && sets.all(|set| relation(set).is_none())
}

fn new_index(input: &IndexInput<'_, '_>, rules: Vec<RuleId>) -> PolicyIndex {
    let (compiled, lists) = (input.compiled, &input.compiled.lists);
    let n_rules = rules.len();
    let (mut any_port, mut any_peer) = (Vec::new(), Vec::new());
    let (mut ports, mut blocks) = (Vec::new(), Vec::new());
    let mut names: FxHashMap<NamedPort, Vec<u32>> = FxHashMap::default();
    let mut sets: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
    for (place, rule) in rules.iter().enumerate() {
        let place = count(place);
        let Some(rule) = compiled.rules.get(rule.0 as usize) else {
            continue;
        };
        if rule.any_port {
            any_port.push(place);
        } else {
            let runs = rule.ports.of(&lists.ports).iter();
            ports.extend(runs.map(|(start, end)| (*start, *end, place)));
            for name in rule.names.of(&lists.names) {
                names.entry(*name).or_default().push(place);
            }
        }
        if rule.any_peer {
            any_peer.push(place);
        } else {
            let runs = rule.blocks.of(&lists.blocks).iter();
            blocks.extend(runs.map(|(start, end)| (*start, *end, place)));
            for set in rule.sets.of(&lists.sets) {
                sets.entry(*set).or_default().push(place);
            }
        }
    }
    let column = |set: u32| match input.members.hints.get(set as usize) {
        Some(Hint::Wide(column)) => *column,
        _ => NONE,
    };
    let (wide, narrow): (Vec<_>, Vec<_>) =
        sets.into_iter().partition(|(set, _)| column(*set) != NONE);
    let wide = wide.into_iter().map(|(set, places)| (column(set), places));
    let mut index = PolicyIndex {
        rules,
        any_port: vec![IdSet::from_list(any_port, n_rules)],
        ports: segments(&ports, n_rules),
        names: sorted(names, n_rules),
        any_peer: vec![IdSet::from_list(any_peer, n_rules)],
        addresses: segments(&blocks, n_rules),
        narrow: sorted(narrow, n_rules),
        wide_mask: vec![0; input.members.wide.words],
        wide: sorted(wide, n_rules),
    };
    for (column, _) in &index.wide {
        set_bit(&mut index.wide_mask, *column);
    }
    index
}

fn sorted<K: Ord>(
    lists: impl IntoIterator<Item = (K, Vec<u32>)>,
    n_rules: usize,
) -> Vec<(K, IdSet)> {
    let mut lists: Vec<(K, Vec<u32>)> = lists.into_iter().collect();
    lists.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    let members = lists.into_iter().map(|(key, mut places)| {
        // Places were added in ascending order: repetitions of one are adjacent.
        places.dedup();
        (key, IdSet::from_list(places, n_rules))
    });
    members.collect()
}

/// Returns the rules of each atom. A run goes from its first atom to before its last.
fn segments(runs: &[(u32, u32, u32)], n_rules: usize) -> AtomRuns {
    // A sweep over the bounds of all runs. Runs of one rule may overlap, so they are counted: the
    // bit of the rule changes with the first and the last of them only.
    let mut events: Vec<(u32, bool, u32)> = Vec::with_capacity(runs.len() * 2);
    for (start, end, place) in runs {
        events.push((*start, true, *place));
        events.push((*end, false, *place));
    }
    events.sort_unstable();
    let mut segments = AtomRuns::default();
    let mut active = vec![0_u64; n_rules.div_ceil(64)];
    let mut covers = vec![0_u32; n_rules];
    let mut signature = 0;
    let mut ids = SetInterner::default();
    // The bits of each row, to compare with: a finished row may be a list.
    let mut drafts: Vec<Vec<u64>> = Vec::new();
    for at_atom in events.chunk_by(|(a, ..), (b, ..)| a == b) {
        for (_, starts, place) in at_atom {
            let Some(covers) = covers.get_mut(*place as usize) else {
                continue;
            };
            let before = *covers;
            *covers = if *starts {
                before + 1
            } else {
                before.saturating_sub(1)
            };
            if (before == 0) != (*covers == 0) {
                signature ^= word(u64::from(*place));
                if *starts {
                    set_bit(&mut active, *place);
                } else {
                    clear_bit(&mut active, *place);
                }
            }
        }
        // A row is stored after all events of its atom. A run that ends where another one of the
        // same rule starts leaves no gap.
        let number = ids.number(signature, |id| drafts.get(id as usize) == Some(&active));
        if number.is_new {
            drafts.push(active.clone());
        }
        segments.starts.extend(at_atom.first().map(|(at, ..)| *at));
        segments.rows_of.push(number.id);
    }
    let rows = drafts.into_iter();
    segments.rows = rows.map(|bits| IdSet::from_bits(bits, n_rules)).collect();
    segments
}
