//! The tables of the ordered tiers: rules are bits, and a verdict is a conjunction of rows.

use rustc_hash::FxHashMap;

use super::labels::count;
use super::rules::{CompiledRules, OrderKey, order, up_to_default_group};
use crate::id_set::{clear_bit, set_bit};
use crate::model::Cluster;
use crate::policy::{Direction, Tier};
use crate::program::{LONG_ROW, PortMap, Rows, RuleId, Slice, Table};
use crate::set_hash::{SetInterner, bits_word};

/// Builds rows. Equal rows are kept once.
#[derive(Debug)]
pub(super) struct RowsBuilder {
    rows: Rows,
    ids: SetInterner,
    /// A buffer for the row that is built.
    draft: Vec<u64>,
}

impl RowsBuilder {
    pub(super) fn new(n_rules: usize) -> RowsBuilder {
        let words = n_rules.div_ceil(64);
        let mut rows = RowsBuilder {
            rows: Rows::blank(words, 0),
            ids: SetInterner::default(),
            draft: vec![0; words],
        };
        // Row 0 is the empty row: a verdict skips a table if the subject's row is 0, and uses row 0
        // where a flow has no node, no name or no class.
        rows.of([]);
        rows
    }

    /// Returns the number of a row.
    pub(super) fn add(&mut self, row: &[u64]) -> u32 {
        let words = row.iter().enumerate();
        let signature = words.fold(0, |all, (place, bits)| all ^ bits_word(place, *bits));
        let rows = &self.rows;
        let number = self.ids.number(signature, |id| rows.row(id) == row);
        if number.is_new {
            self.rows.bits.extend_from_slice(row);
        }
        number.id
    }

    /// Returns the number of the row with some bits.
    pub(super) fn of(&mut self, bits: impl IntoIterator<Item = u32>) -> u32 {
        let mut row = std::mem::take(&mut self.draft);
        row.fill(0);
        for bit in bits {
            set_bit(&mut row, bit);
        }
        let id = self.add(&row);
        self.draft = row;
        id
    }

    pub(super) fn finish(self) -> Rows {
        let mut rows = self.rows;
        // A bit for each word that is not zero. A verdict over long rows reads only the words that
        // have a bit in the conjunction of the summaries.
        if rows.words > LONG_ROW {
            for row in rows.bits.chunks(rows.words) {
                rows.summaries.extend(row.chunks(64).map(|words| {
                    let used = (0..).zip(words).filter(|(_, word)| **word != 0);
                    used.fold(0, |summary, (place, _)| summary | 1_u64 << place)
                }));
            }
        }
        rows.bits.shrink_to_fit();
        rows.summaries.shrink_to_fit();
        rows
    }
}

/// A table whose rows for subjects and peers are missing: `ClassRows` makes them class by class.
#[derive(Debug)]
pub(super) struct TableDraft {
    pub(super) table: Table,
    /// The bits of the rules of each policy; only policies with rules here.
    pub(super) of_policy: FxHashMap<u32, Vec<u32>>,
    /// For each pod set the bits of the rules that have it as a peer.
    pub(super) of_set: Vec<Vec<u32>>,
    pub(super) subjects: RowsBuilder,
    pub(super) peers: RowsBuilder,
}

/// The parts of the program that tables are built from.
pub(super) struct TableInput<'i, 'a> {
    pub(super) cluster: &'i Cluster<'a>,
    pub(super) compiled: &'i CompiledRules,
    pub(super) set_relations: &'i [Option<u32>],
    /// For each node selector the nodes that it selects.
    pub(super) node_sets: &'i [Vec<crate::model::NodeId>],
    pub(super) port_maps: &'i [PortMap],
}

impl TableDraft {
    pub(super) fn new(input: &TableInput<'_, '_>, tier: Tier, direction: Direction) -> TableDraft {
        // Bits are numbered by precedence: the first bit of a conjunction is the rule that decides.
        let ordered = ordered(input, tier, direction);
        let n_rules = ordered.len();
        let group_end = ordered.iter().filter(|(key, _)| up_to_default_group(key));
        let mut table = Table {
            group_end: count(group_end.count()),
            rules: ordered.into_iter().map(|(_, rule)| rule).collect(),
            relative: vec![0; n_rules.div_ceil(64)],
            ..Table::default()
        };
        let mut of_policy: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        let mut of_set = vec![Vec::new(); input.set_relations.len()];
        for (bit, id) in table.rules.iter().enumerate() {
            let bit = count(bit);
            let Some(rule) = input.compiled.rules.get(id.0 as usize) else {
                continue;
            };
            table.actions.push(rule.action);
            of_policy.entry(rule.place.policy.0).or_default().push(bit);
            for id in rule.sets.of(&input.compiled.lists.sets) {
                if let Some(bits) = of_set.get_mut(*id as usize) {
                    bits.push(bit);
                }
                // The set has pods of all namespaces, related to the subject or not. If such a bit
                // comes first, the rule itself is evaluated for the flow.
                if input
                    .set_relations
                    .get(*id as usize)
                    .is_some_and(Option::is_some)
                {
                    set_bit(&mut table.relative, bit);
                }
            }
        }
        addresses(input, &mut table);
        ports(input, &mut table);
        nodes(input, &mut table);
        named(input, &mut table);
        TableDraft {
            table,
            of_policy,
            of_set,
            subjects: RowsBuilder::new(n_rules),
            peers: RowsBuilder::new(n_rules),
        }
    }

    pub(super) fn finish(self) -> Table {
        Table {
            subjects: self.subjects.finish(),
            peers: self.peers.finish(),
            ..self.table
        }
    }
}

/// Returns the rules of a tier and direction, in order of precedence.
fn ordered<'a>(
    input: &TableInput<'_, 'a>,
    tier: Tier,
    direction: Direction,
) -> Vec<(OrderKey<'a>, RuleId)> {
    let mut ordered = Vec::new();
    for (id, rule) in input.compiled.rules.iter().enumerate() {
        if rule.place.direction != direction {
            continue;
        }
        let Some(policy) = input.cluster.policies.get(rule.place.policy.0 as usize) else {
            continue;
        };
        if let Some((its_tier, key)) = order(
            policy.rank,
            (policy.api, policy.name),
            rule.action,
            rule.place.index,
        ) && its_tier == tier
        {
            ordered.push((key, RuleId(count(id))));
        }
    }
    ordered.sort_unstable();
    ordered
}

/// One of the two lists of runs of atoms: address blocks or port ranges.
struct Runs<'r> {
    of: fn(&crate::program::Rule) -> Slice,
    list: &'r [(u32, u32)],
}

/// Builds a row for each atom: the rules with a run that covers the atom, and those that `always`
/// match. Returns the rows, and the row of each atom.
fn sweep(
    input: &TableInput<'_, '_>,
    table: &Table,
    n_atoms: usize,
    runs: &Runs<'_>,
    always: fn(&crate::program::Rule) -> bool,
) -> (Rows, Vec<u32>) {
    let mut rows = RowsBuilder::new(table.rules.len());
    let mut row = vec![0; table.rules.len().div_ceil(64)];
    let mut covers = vec![0_u32; table.rules.len()];
    // Runs of one rule may overlap, such as two blocks of one peer list. They are counted, and the
    // bit is cleared with the last of them; clearing it with the first would lose the rest of the
    // longer run. At an atom, ends sort before starts (`false < true`), and the row is stored after
    // all of them: runs of one rule that adjoin leave no gap and make no row of their own.
    let mut events: Vec<(u32, bool, u32)> = Vec::new();
    for (bit, id) in table.rules.iter().enumerate() {
        let bit = count(bit);
        let Some(rule) = input.compiled.rules.get(id.0 as usize) else {
            continue;
        };
        // Set in every atom: no run can add to it, and none may clear it.
        if always(rule) {
            set_bit(&mut row, bit);
            continue;
        }
        for (start, end) in (runs.of)(rule).of(runs.list) {
            events.push((*start, true, bit));
            events.push((*end, false, bit));
        }
    }
    events.sort_unstable();
    let mut events = events.into_iter().peekable();
    let mut of_atoms = Vec::with_capacity(n_atoms);
    let mut current = rows.add(&row);
    for atom in 0..count(n_atoms) {
        let mut changed = false;
        while let Some((_, starts, bit)) = events.next_if(|(at, ..)| *at == atom) {
            changed = true;
            if let Some(covers) = covers.get_mut(bit as usize) {
                if starts {
                    *covers += 1;
                    set_bit(&mut row, bit);
                } else {
                    *covers -= 1;
                    if *covers == 0 {
                        clear_bit(&mut row, bit);
                    }
                }
            }
        }
        // Most bounds come from rules of other tables, and start an atom with the same row.
        if changed {
            current = rows.add(&row);
        }
        of_atoms.push(current);
    }
    (rows.finish(), of_atoms)
}

fn addresses(input: &TableInput<'_, '_>, table: &mut Table) {
    let lists = &input.compiled.lists;
    let n_atoms = input.compiled.addresses.len();
    let runs = Runs {
        of: |rule| rule.blocks,
        list: &lists.blocks,
    };
    let swept = sweep(input, table, n_atoms, &runs, |rule| rule.any_peer);
    (table.addresses, table.address_rows) = swept;
}

fn ports(input: &TableInput<'_, '_>, table: &mut Table) {
    let lists = &input.compiled.lists;
    let n_atoms = input.compiled.ports.portless() as usize + 1;
    let runs = Runs {
        of: |rule| rule.ports,
        list: &lists.ports,
    };
    let swept = sweep(input, table, n_atoms, &runs, |rule| rule.any_port);
    (table.ports, table.port_rows) = swept;
}

fn nodes(input: &TableInput<'_, '_>, table: &mut Table) {
    let mut bits_of_node = vec![Vec::new(); input.cluster.nodes.len()];
    for (bit, id) in table.rules.iter().enumerate() {
        let Some(rule) = input.compiled.rules.get(id.0 as usize) else {
            continue;
        };
        for selector in rule.nodes.of(&input.compiled.lists.nodes) {
            let nodes = input.node_sets.get(*selector as usize);
            for node in nodes.into_iter().flatten() {
                if let Some(bits) = bits_of_node.get_mut(node.0 as usize) {
                    bits.push(count(bit));
                }
            }
        }
    }
    let mut rows = RowsBuilder::new(table.rules.len());
    table.node_rows = bits_of_node.into_iter().map(|bits| rows.of(bits)).collect();
    table.nodes = rows.finish();
}

fn named(input: &TableInput<'_, '_>, table: &mut Table) {
    let mut bits_of_name: FxHashMap<crate::program::NamedPort, Vec<u32>> = FxHashMap::default();
    for (bit, id) in table.rules.iter().enumerate() {
        let Some(rule) = input.compiled.rules.get(id.0 as usize) else {
            continue;
        };
        for named in rule.names.of(&input.compiled.lists.names) {
            bits_of_name.entry(*named).or_default().push(count(bit));
        }
    }
    let mut rows = RowsBuilder::new(table.rules.len());
    // A rule may name a port with a protocol (NetworkPolicy, D33) or without one (D41). The row of
    // a port has the rules of both.
    for entry in input.port_maps.iter().flat_map(|map| &map.entries) {
        let keys = entry.names.iter().flat_map(|name| {
            [None, Some(entry.protocol)].map(|protocol| crate::program::NamedPort {
                name: *name,
                protocol,
            })
        });
        let bits = keys.filter_map(|key| bits_of_name.get(&key)).flatten();
        let row = rows.of(bits.copied());
        // `PortMaps` numbers the entries in this order.
        table.named_rows.push(row);
    }
    table.named = rows.finish();
}
