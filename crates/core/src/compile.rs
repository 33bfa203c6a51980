//! Compiles a cluster into its program: each name that policies use becomes a number, once.

mod atoms;
mod class_rows;
mod classes;
mod labels;
mod policy_index;
mod rules;
mod sets;
mod tables;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use rustc_hash::FxHashMap;

use self::class_rows::ClassRows;
use self::classes::SetMembers;
pub(crate) use self::labels::count;
use self::policy_index::{IndexInput, build_indexes};
use self::rules::{CompiledRules, PortName, Vocabulary};
use self::tables::{TableDraft, TableInput};
use crate::budget::crowded_names;
use crate::id_set::IdSet;
use crate::model::{Cluster, ContainerPort, NodeId, Pod, Policy, PolicyId};
use crate::owners::owners;
use crate::policy::{Direction, Tier};
use crate::program::{Class, NONE, Owners, PortMap, PortMapEntry, Program};

pub(crate) use self::rules::{OrderKey, order};

/// Compiles the policies that are enforced; audited ones have no effect.
pub fn compile(cluster: &Cluster<'_>) -> Program {
    compile_policies(cluster, &|_, policy| !policy.audited)
}

/// Compiles the policies that `is_enforced` accepts, as if the others did not exist.
pub fn compile_policies(
    cluster: &Cluster<'_>,
    is_enforced: &dyn Fn(PolicyId, &Policy<'_>) -> bool,
) -> Program {
    // All policies come first. Pods keep only labels and port names that some rule names, and a
    // bound of a block or of a port range can split the atoms of any other rule.
    let mut vocabulary = Vocabulary::collect(cluster, is_enforced);
    let compiled = vocabulary.compile();
    let (port_maps, pods) = classify(cluster, &mut vocabulary);
    let PodClasses { keys, of_pods } = pods;
    let label_keys: Vec<(u32, u32)> = keys.iter().map(|key| (key.0, key.1)).collect();
    let members = vocabulary.sets.of_classes(cluster, &label_keys);
    let node_sets = node_sets(cluster, &mut vocabulary);
    let set_relations = vocabulary.sets.set_relations();
    let input = TableInput {
        cluster,
        compiled: &compiled,
        set_relations: &set_relations,
        node_sets: &node_sets,
        port_maps: &port_maps,
    };
    let tables = [
        TableDraft::new(&input, Tier::Admin, Direction::Ingress),
        TableDraft::new(&input, Tier::Admin, Direction::Egress),
        TableDraft::new(&input, Tier::Baseline, Direction::Ingress),
        TableDraft::new(&input, Tier::Baseline, Direction::Egress),
    ];
    let mut rows = ClassRows::new(cluster, &compiled, &vocabulary.subjects, &members, tables);
    let classes = classes(keys, &mut rows, &members);
    let relations = vocabulary.sets.relations(cluster);
    let ClassRows {
        tables,
        mut unions,
        isolations,
        ..
    } = rows;
    let input = IndexInput {
        cluster,
        compiled: &compiled,
        members: &members,
        set_relations: &set_relations,
    };
    // The classes created the unions above; only now is it known which of them are large.
    let policy_indexes = build_indexes(&input, &mut unions);
    let CompiledRules {
        rules,
        lists,
        addresses,
        ports,
    } = compiled;
    Program {
        rules,
        lists,
        classes,
        narrow_sets: members.narrow,
        wide_sets: members.wide_sets,
        hints: members.hints,
        wide: members.wide,
        pod_classes: of_pods,
        tables: tables.map(TableDraft::finish),
        unions,
        policy_indexes,
        isolations,
        set_relations,
        relations,
        addresses,
        ports,
        port_maps,
        node_sets,
        owners: Owners::new(owners(cluster)),
    }
}

/// What distinguishes a class: its namespace, label set and port map.
type ClassKey = (u32, u32, u32);

/// The classes of pods, in the order of their namespaces.
struct PodClasses {
    keys: Vec<ClassKey>,
    of_pods: Vec<u32>,
}

fn classes(keys: Vec<ClassKey>, rows: &mut ClassRows<'_, '_>, members: &SetMembers) -> Vec<Class> {
    let class = |(id, (namespace, _, port_map)): (u32, ClassKey)| {
        let isolated = rows.isolated(id);
        Class {
            id,
            subject_rows: rows.subject(id),
            peer_rows: rows.peer(id),
            unions: isolated.unions,
            default_isolations: isolated.default_isolations,
            namespace,
            port_map,
            sets: members.narrow_start(id),
        }
    };
    (0..).zip(keys).map(class).collect()
}

fn classify<'a>(
    cluster: &Cluster<'a>,
    vocabulary: &mut Vocabulary<'_, 'a>,
) -> (Vec<PortMap>, PodClasses) {
    // The address is not part of the key. Address blocks that cut the range of the pods would
    // multiply the classes; an address becomes an atom instead, which is looked up for each flow.
    let mut maps = PortMaps::default();
    let mut ids: FxHashMap<ClassKey, u32> = FxHashMap::default();
    let mut classified = PodClasses {
        keys: Vec::new(),
        of_pods: Vec::with_capacity(cluster.pods.len()),
    };
    // Pods are sorted by namespace and name. The next one is often of the same class.
    let mut last = None;
    for pod in &cluster.pods {
        // Pods in the host network and ended pods are neither subject nor peer (D48, D81).
        if !pod.is_selectable() {
            classified.of_pods.push(NONE);
            continue;
        }
        let label_set = vocabulary.sets.pods.set(&pod.labels);
        let port_map = maps.number(pod, &vocabulary.port_names);
        let key = (pod.namespace.0, label_set, port_map);
        let class = match last {
            Some((its_key, class)) if its_key == key => class,
            _ => *ids.entry(key).or_insert_with(|| {
                classified.keys.push(key);
                count(classified.keys.len() - 1)
            }),
        };
        last = Some((key, class));
        classified.of_pods.push(class);
    }
    (maps.maps, classified.sorted())
}

impl PodClasses {
    /// Numbers the classes in the order of their namespaces.
    fn sorted(mut self) -> PodClasses {
        // Only templates break the order: they come after all pods. `ClassIndex` needs the classes
        // of a namespace in one run.
        if self.keys.is_sorted_by_key(|(namespace, ..)| *namespace) {
            return self;
        }
        let mut order: Vec<u32> = (0..count(self.keys.len())).collect();
        let key = |class: u32| self.keys.get(class as usize).copied();
        order.sort_by_key(|class| key(*class).map(|(namespace, ..)| namespace));
        let keys = order.iter().filter_map(|class| key(*class)).collect();
        let mut numbers = vec![0; order.len()];
        for (number, class) in order.iter().enumerate() {
            if let Some(slot) = numbers.get_mut(*class as usize) {
                *slot = count(number);
            }
        }
        for class in &mut self.of_pods {
            *class = numbers.get(*class as usize).copied().unwrap_or(NONE);
        }
        PodClasses {
            keys,
            of_pods: self.of_pods,
        }
    }
}

/// The distinct port maps so far, and their numbers.
#[derive(Default)]
struct PortMaps<'c, 'a> {
    maps: Vec<PortMap>,
    ids: FxHashMap<PortMapKey, u32>,
    n_entries: u32,
    /// The ports of the last pod, and its map.
    last: Option<(&'c [ContainerPort<'a>], u32)>,
}

/// Protocol, port and names of each entry.
type PortMapKey = Vec<(u8, u16, Vec<u32>)>;

impl<'c, 'a> PortMaps<'c, 'a> {
    fn number(&mut self, pod: &'c Pod<'a>, names: &HashMap<PortName<'_>, u32>) -> u32 {
        // Replicas share their ports. If no rule uses a name, all pods have the empty map.
        if let Some((ports, map)) = self.last
            && (names.is_empty() || *ports == *pod.ports)
        {
            return map;
        }
        let mut map = port_map(pod, names);
        let entries = map.entries.iter();
        let key = entries.map(|it| (it.protocol as u8, it.port.get(), it.names.clone()));
        let next = count(self.maps.len());
        let number = *self.ids.entry(key.collect()).or_insert(next);
        if number == next {
            // Entries are numbered across all maps, in the order of the maps: `tables::named` makes
            // one row for each in the same order.
            for entry in &mut map.entries {
                entry.number = self.n_entries;
                self.n_entries += 1;
            }
            self.maps.push(map);
        }
        self.last = Some((&pod.ports, number));
        number
    }
}

/// Returns the ports of a pod whose names some rule uses, with the numbers of these names. One
/// name may stand for several ports, and one port may have several names (D34).
fn port_map(pod: &Pod<'_>, names: &HashMap<PortName<'_>, u32>) -> PortMap {
    let mut map = PortMap::default();
    let crowded = crowded_names(pod.ports.iter().filter_map(ContainerPort::named));
    for declared in pod.ports.iter() {
        let Some(name) = declared.name else {
            continue;
        };
        // Where too many ports of the pod have the name, a rule that a budget limits does not match
        // by it.
        let few = (!crowded.contains_key(name)).then_some(PortName::Few(name));
        let used = [Some(PortName::All(name)), few].into_iter().flatten();
        for name in used.filter_map(|it| names.get(&it)) {
            let entries = map.entries.iter_mut();
            let mut same =
                entries.filter(|it| it.protocol == declared.protocol && it.port == declared.port);
            match same.next() {
                Some(entry) => entry.names.push(*name),
                None => map.entries.push(PortMapEntry {
                    protocol: declared.protocol,
                    port: declared.port,
                    names: vec![*name],
                    number: 0,
                }),
            }
        }
    }
    for entry in &mut map.entries {
        entry.names.sort_unstable();
        entry.names.dedup();
    }
    map.entries
        .sort_by_key(|entry| (entry.protocol, entry.port));
    map
}

/// Returns the nodes that each node selector selects, ascending.
fn node_sets<'a>(cluster: &Cluster<'a>, vocabulary: &mut Vocabulary<'_, 'a>) -> Vec<Vec<NodeId>> {
    // A node without a Node object has no labels to match, also not for an empty selector (D108).
    let mut with_set: Vec<Vec<NodeId>> = Vec::new();
    for (id, node) in cluster.nodes.iter().enumerate() {
        if node.has_object {
            let set = vocabulary.nodes.set(&node.labels) as usize;
            if set >= with_set.len() {
                with_set.resize(set + 1, Vec::new());
            }
            if let Some(nodes) = with_set.get_mut(set) {
                nodes.push(NodeId(count(id)));
            }
        }
    }
    let of = |label_sets: &IdSet| {
        let mut nodes = Vec::new();
        label_sets.for_each(|set| nodes.extend(with_set.get(set as usize).into_iter().flatten()));
        // `decide` searches the list by bisection.
        nodes.sort_unstable();
        nodes
    };
    vocabulary.nodes.matches().iter().map(of).collect()
}
