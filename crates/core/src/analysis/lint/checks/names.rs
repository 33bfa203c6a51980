//! Port names that no pod has or that cannot match, and domain names without addresses.

use rustc_hash::{FxHashMap, FxHashSet};

use super::context::CheckContext;
use super::{Code, Finding, FindingDetail, FindingTarget, always, now};
use crate::compile::count;
use crate::id_set::{ones, set_bit};
use crate::model::{Effect, Peer, PortMatch};
use crate::net::Protocol;
use crate::policy::{Direction, Tier};
use crate::program::{NamedPort, PortMap, Rule, RuleId, direction_index, table_index};

pub(super) fn find(context: &CheckContext<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    named_with_addresses(context, &mut findings);
    unlearned(context, &mut findings);
    if context.has_pods() {
        unexposed(context, &mut findings);
    }
    findings
}

/// Returns the first port name of a rule.
fn first_named<'c>(effect: &'c Effect<'_>) -> Option<&'c str> {
    let mut ports = effect.ports.iter().flatten();
    ports.find_map(|port| match port {
        PortMatch::Named(_, name) => Some(*name),
        PortMatch::Numbers(..) => None,
    })
}

/// Finds egress rules that combine port names with addresses, nodes or domains. Only pods have port
/// names (D33), so at such a peer the name matches only pods (D52, D60, D127).
fn named_with_addresses(context: &CheckContext<'_>, findings: &mut Vec<Finding>) {
    for (place, effect) in context.rules() {
        let is_egress = place.direction == Direction::Egress;
        let Some(name) = first_named(effect).filter(|_| is_egress) else {
            continue;
        };
        let peers = effect.peers.iter().flatten();
        let addresses = peers.enumerate().find(|(_, peer)| match peer {
            Peer::Block { .. } | Peer::Nodes(_) | Peer::Domains(_) | Peer::All => true,
            Peer::Pods(_) => false,
        });
        if let Some((index, _)) = addresses {
            findings.push(Finding {
                detail: FindingDetail::Text(name.to_owned()),
                ..always(
                    Code::NamedPortAddresses,
                    FindingTarget::Peer(place, count(index)),
                )
            });
        }
    }
}

/// Finds domain patterns without an address, if the input has learned names at all (D54).
fn unlearned(context: &CheckContext<'_>, findings: &mut Vec<Finding>) {
    if context.cluster.learned.is_empty() {
        return;
    }
    let names = Names::new(&context.cluster.learned);
    for (place, effect) in context.rules() {
        for (index, peer) in effect.peers.iter().flatten().enumerate() {
            let Peer::Domains(patterns) = peer else {
                continue;
            };
            for pattern in patterns {
                let (exact, above) = (&names.exact, &names.above);
                let learned = if pattern.wildcard { above } else { exact };
                if !learned.contains(pattern.name.as_str()) {
                    let stars = if pattern.wildcard { "*." } else { "" };
                    findings.push(Finding {
                        detail: FindingDetail::Text(format!("{stars}{}", pattern.name)),
                        ..now(
                            Code::DomainUnlearned,
                            FindingTarget::Peer(place, count(index)),
                        )
                    });
                }
            }
        }
    }
}

/// The learned names, and all names above them. A wildcard pattern matches if a learned name is
/// below its own name.
struct Names {
    exact: FxHashSet<String>,
    above: FxHashSet<String>,
}

impl Names {
    fn new<T>(learned: &[(String, T)]) -> Names {
        let mut names = Names {
            exact: FxHashSet::default(),
            above: FxHashSet::default(),
        };
        for (name, _) in learned {
            let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
            let mut rest = name.as_str();
            // Each step removes the first label; every name above counts, since `*.` stands for one
            // or more labels.
            while let Some((label, above)) = rest.split_once('.').filter(|it| !it.0.is_empty()) {
                let _ = label;
                names.above.insert(above.to_owned());
                rest = above;
            }
            names.exact.insert(name);
        }
        names
    }
}

/// Finds port names that no possible destination pod has: the subjects for ingress, the peers for
/// egress. A rule without any destination pod is left to `PEER-MATCHES-NOTHING` and
/// `SELECTS-NOTHING`.
fn unexposed(context: &CheckContext<'_>, findings: &mut Vec<Finding>) {
    let names = &context.program.lists.names;
    if names.is_empty() {
        return;
    }
    let mut exposure = Exposure {
        exposed: vec![false; names.len()],
        leads: vec![0; context.program.rules.len().div_ceil(64)],
    };
    exposure.of_subjects(context);
    exposure.of_peers(context);
    let rules = (0_u32..).zip(&context.program.rules);
    for (id, rule) in rules.filter(|(_, rule)| !rule.names.of(names).is_empty()) {
        let leads = crate::id_set::has_bit(&exposure.leads, id);
        let rules = context.policy(rule.place.policy);
        let rules = rules.map(|it| it.rules(rule.place.direction));
        let written = rules.and_then(|it| it.list.get(rule.place.index as usize));
        let written = written.filter(|it| !it.failed_closed);
        let Some(effect) = written.and_then(|it| it.effect.as_ref()).filter(|_| leads) else {
            continue;
        };
        // The compiled names are in the order of the named ports of the rule, which gives each its
        // index.
        let named = effect.ports.iter().flatten().enumerate();
        let named = named.filter_map(|(index, port)| match port {
            PortMatch::Named(_, name) => Some((index, *name)),
            PortMatch::Numbers(..) => None,
        });
        for (number, (index, name)) in (rule.names.start..rule.names.end).zip(named) {
            if exposure.exposed.get(number as usize) == Some(&false) {
                findings.push(Finding {
                    detail: FindingDetail::Text(name.to_owned()),
                    ..now(
                        Code::PortUnexposed,
                        FindingTarget::Port(rule.place, count(index)),
                    )
                });
            }
        }
    }
}

/// The port names of rules that exist at some possible destination.
struct Exposure {
    /// For each named port of the compiled rules, whether a destination has it.
    exposed: Vec<bool>,
    /// The rules with a possible destination pod, as bits.
    leads: Vec<u64>,
}

impl Exposure {
    fn mark(&mut self, rule: &Rule, map: &PortMap, names: &[NamedPort]) {
        let numbers = rule.names.start..rule.names.end;
        for (number, named) in numbers.zip(rule.names.of(names)) {
            if let Some(exposed) = self.exposed.get_mut(number as usize) {
                *exposed |= has_name(map, named);
            }
        }
    }

    /// Marks the names of ingress rules, whose destinations are their subjects. Each row of rules
    /// is combined with each port map once, whatever the number of classes that have both.
    fn of_subjects(&mut self, context: &CheckContext<'_>) {
        let program = context.program;
        let names = &program.lists.names;
        let direction = Direction::Ingress;
        for rule in context.rules_on(direction, program.classes.iter()) {
            set_bit(&mut self.leads, rule.0);
        }
        let is_named = |id: &RuleId| {
            let rule = program.rules.get(id.0 as usize);
            rule.filter(|rule| !rule.names.of(names).is_empty())
        };
        for tier in [Tier::Admin, Tier::Baseline] {
            let index = table_index(tier, direction);
            let table = program.table(tier, direction);
            // The rules with port names, as a mask: most rows have none, and their conjunction is
            // empty.
            let mut named = vec![0; table.subjects.words];
            for (bit, _) in (0..)
                .zip(&table.rules)
                .filter(|(_, id)| is_named(id).is_some())
            {
                set_bit(&mut named, bit);
            }
            let classes = program.classes.iter();
            let pairs = classes.filter_map(|it| Some((*it.subject_rows.get(index)?, it.port_map)));
            let pairs: FxHashSet<(u32, u32)> = pairs.collect();
            for (row, map) in pairs {
                let Some(map) = port_map(context, map) else {
                    continue;
                };
                let row = table.subjects.row(row).iter().zip(&named);
                let row: Vec<u64> = row.map(|(row, named)| row & named).collect();
                let rules = ones(&row).filter_map(|bit| table.rules.get(bit as usize));
                for rule in rules.filter_map(is_named) {
                    self.mark(rule, map, names);
                }
            }
        }
        let index = direction_index(direction);
        let classes = program.classes.iter();
        let pairs = classes.filter_map(|it| Some((*it.unions.get(index)?, it.port_map)));
        let mut pairs: Vec<(u32, u32)> = pairs.collect();
        pairs.sort_unstable();
        pairs.dedup();
        for of_union in pairs.chunk_by(|a, b| a.0 == b.0) {
            let union = of_union.first().map_or(0, |it| it.0);
            let union = program
                .unions
                .get(index)
                .and_then(|it| it.get(union as usize));
            let rules = union.iter().flat_map(|it| &it.rules).filter_map(is_named);
            let rules: Vec<&Rule> = rules.collect();
            for (_, map) in of_union {
                if let Some(map) = port_map(context, *map) {
                    rules.iter().for_each(|rule| self.mark(rule, map, names));
                }
            }
        }
    }

    /// Marks the names of egress rules, whose destinations are their peers. Relations to the
    /// subject are ignored: they only remove destinations, so a name may stay unreported but is
    /// never reported wrongly.
    fn of_peers(&mut self, context: &CheckContext<'_>) {
        let program = context.program;
        let names = &program.lists.names;
        let is_candidate = |rule: &&Rule| {
            rule.place.direction == Direction::Egress && !rule.names.of(names).is_empty()
        };
        // Only sets that these rules use. All sets of all classes would be a large map.
        let mut needed = vec![0; program.hints.len().div_ceil(64)];
        for rule in program.rules.iter().filter(is_candidate) {
            let sets = rule.sets.of(&program.lists.sets).iter();
            sets.for_each(|set| set_bit(&mut needed, *set));
        }
        let mut maps_of: FxHashMap<u32, FxHashSet<u32>> = FxHashMap::default();
        let mut all_maps = FxHashSet::default();
        for class in &program.classes {
            all_maps.insert(class.port_map);
            let sets = program.sets_of(class);
            for set in sets.filter(|set| crate::id_set::has_bit(&needed, *set)) {
                maps_of.entry(set).or_default().insert(class.port_map);
            }
        }
        let mut known: FxHashMap<(Option<u32>, NamedPort), bool> = FxHashMap::default();
        let mut has = |set: Option<u32>, named: &NamedPort| {
            *known.entry((set, *named)).or_insert_with(|| {
                let maps = set.map_or(Some(&all_maps), |set| maps_of.get(&set));
                let maps = maps.into_iter().flatten();
                maps.filter_map(|map| port_map(context, *map))
                    .any(|map| has_name(map, named))
            })
        };
        for (id, rule) in (0..)
            .zip(&program.rules)
            .filter(|(_, rule)| is_candidate(rule))
        {
            // Any pod may be at an address of a block.
            let any_pod = rule.any_peer || !rule.blocks.of(&program.lists.blocks).is_empty();
            let any_pod = any_pod.then_some(None);
            let sets = rule.sets.of(&program.lists.sets).iter();
            let inhabited = sets.filter(|set| maps_of.contains_key(set));
            let places: Vec<Option<u32>> = inhabited.map(|it| Some(*it)).chain(any_pod).collect();
            if places.is_empty() {
                continue;
            }
            set_bit(&mut self.leads, id);
            let numbers = rule.names.start..rule.names.end;
            for (number, named) in numbers.zip(rule.names.of(names)) {
                if let Some(exposed) = self.exposed.get_mut(number as usize) {
                    *exposed |= places.iter().any(|set| has(*set, named));
                }
            }
        }
    }
}

fn port_map<'p>(context: &CheckContext<'p>, map: u32) -> Option<&'p PortMap> {
    context.program.port_maps.get(map as usize)
}

fn has_name(map: &PortMap, named: &NamedPort) -> bool {
    let fits = |protocol: Protocol| named.protocol.is_none_or(|it| it == protocol);
    let mut entries = map.entries.iter();
    entries.any(|entry| fits(entry.protocol) && entry.names.contains(&named.name))
}
