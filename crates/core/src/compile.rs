//! From a cluster to its program: what policies name becomes numbers, once.

mod atoms;
mod labels;
mod owners;
mod rules;
mod sets;
mod tables;

use std::collections::HashMap;

use rustc_hash::FxHashMap;

pub(crate) use self::labels::count;
use self::rules::{Compiled, Vocabulary, by_policy};
use self::tables::{TableDraft, TableInput};
use crate::model::{Cluster, NodeId, Place, Pod, Policy, PolicyId};
use crate::policy::{Direction, Tier};
use crate::program::{
    Class, IsolationId, NONE, PortMap, PortMapEntry, Program, RuleId, Slice, Union, direction_index,
};

pub use self::owners::{Conflict, conflicts, owners};

/// The effective priority of a BaselineAdminNetworkPolicy: behind every valid one (1.2).
pub const BASELINE_ADMIN_PRIORITY: i64 = rules::BASELINE_ADMIN_PRIORITY;

/// Compiles the policies that are enforced.
pub fn compile(cluster: &Cluster<'_>) -> Program {
    compile_policies(cluster, &|_, policy| !policy.audited)
}

/// Compiles the policies that `is_enforced` names: what would be if others did not exist.
pub fn compile_policies(
    cluster: &Cluster<'_>,
    is_enforced: &dyn Fn(PolicyId, &Policy<'_>) -> bool,
) -> Program {
    let mut vocabulary = Vocabulary::collect(cluster, is_enforced);
    let compiled = vocabulary.compile();
    let (port_maps, pods) = classify(cluster, &mut vocabulary);
    let Classified { keys, of_pods } = pods;
    let label_keys: Vec<(u32, u32)> = keys.iter().map(|key| (key.0, key.1)).collect();
    let in_sets = vocabulary.sets.of_classes(cluster, &label_keys);
    let node_sets = node_sets(cluster, &mut vocabulary);
    let set_relations = vocabulary.sets.set_relations();
    let input = TableInput {
        cluster,
        compiled: &compiled,
        n_sets: vocabulary.sets.len(),
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
    let mut signatures = Signatures::new(cluster, &compiled, &vocabulary.subjects, tables);
    let mut classes = Vec::with_capacity(keys.len());
    let mut class_sets = Vec::new();
    for ((namespace, _, port_map), sets) in keys.into_iter().zip(in_sets) {
        let subject = signatures.subject(&sets);
        let start = count(class_sets.len());
        let peer_rows = signatures.peer(&sets);
        class_sets.extend(sets);
        classes.push(Class {
            subject_rows: subject.rows,
            peer_rows,
            unions: subject.unions,
            default_isolations: subject.default_isolations,
            namespace,
            port_map,
            sets: Slice {
                start,
                end: count(class_sets.len()),
            },
        });
    }
    let relations = vocabulary.sets.relations(cluster);
    let Signatures {
        tables,
        unions,
        isolations,
        ..
    } = signatures;
    let Compiled {
        rules,
        lists,
        addresses,
        ports,
    } = compiled;
    Program {
        rules,
        lists,
        classes,
        class_sets,
        pod_classes: of_pods,
        tables: tables.map(TableDraft::finish),
        unions,
        isolations,
        set_relations,
        relations,
        addresses,
        ports,
        port_maps,
        node_sets,
        owners: owners(cluster),
    }
}

/// The classes of pods, by namespace, label set and port map.
struct Classified {
    keys: Vec<(u32, u32, u32)>,
    of_pods: Vec<Option<u32>>,
}

fn classify<'a>(
    cluster: &Cluster<'a>,
    vocabulary: &mut Vocabulary<'a>,
) -> (Vec<PortMap>, Classified) {
    let mut maps: FxHashMap<Vec<(u8, u16, Vec<u32>)>, u32> = FxHashMap::default();
    let mut port_maps = Vec::new();
    let mut n_entries = 0;
    let mut ids: FxHashMap<(u32, u32, u32), u32> = FxHashMap::default();
    let mut classified = Classified {
        keys: Vec::new(),
        of_pods: Vec::with_capacity(cluster.pods.len()),
    };
    for pod in &cluster.pods {
        if !pod.is_selectable() {
            classified.of_pods.push(None);
            continue;
        }
        let label_set = vocabulary.sets.pods.set(&pod.labels);
        let map = port_map(pod, &vocabulary.port_names);
        let key: Vec<(u8, u16, Vec<u32>)> = map
            .entries
            .iter()
            .map(|entry| (entry.protocol as u8, entry.port.get(), entry.names.clone()))
            .collect();
        let port_map = *maps.entry(key).or_insert_with(|| {
            let mut map = map;
            for entry in &mut map.entries {
                entry.number = n_entries;
                n_entries += 1;
            }
            port_maps.push(map);
            count(port_maps.len() - 1)
        });
        let key = (pod.namespace.0, label_set, port_map);
        let class = *ids.entry(key).or_insert_with(|| {
            classified.keys.push(key);
            count(classified.keys.len() - 1)
        });
        classified.of_pods.push(Some(class));
    }
    (port_maps, classified)
}

/// The names that rules use among those of a pod's ports. One name may stand for several ports, and
/// one port may have several names (D34).
fn port_map(pod: &Pod<'_>, names: &HashMap<&str, u32>) -> PortMap {
    let mut map = PortMap::default();
    for declared in &pod.ports {
        let Some(name) = declared.name.and_then(|name| names.get(name)) else {
            continue;
        };
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
    for entry in &mut map.entries {
        entry.names.sort_unstable();
        entry.names.dedup();
    }
    map.entries
        .sort_by_key(|entry| (entry.protocol, entry.port));
    map
}

/// The nodes that each selector of nodes selects.
fn node_sets<'a>(cluster: &Cluster<'a>, vocabulary: &mut Vocabulary<'a>) -> Vec<Vec<NodeId>> {
    let nodes = cluster.nodes.iter().enumerate();
    let sets: Vec<(NodeId, u32)> = nodes
        .filter(|(_, node)| node.known)
        .map(|(id, node)| (NodeId(count(id)), vocabulary.nodes.set(&node.labels)))
        .collect();
    let of = |label_sets: Vec<u32>| {
        let selected = sets.iter();
        let selected = selected.filter(|(_, set)| label_sets.binary_search(set).is_ok());
        selected.map(|(node, _)| *node).collect()
    };
    vocabulary.nodes.matches().into_iter().map(of).collect()
}

/// What the policies that select a class say of it.
#[derive(Clone, Copy, Debug)]
struct Subject {
    rows: [u32; 4],
    unions: [u32; 2],
    default_isolations: [u32; 2],
}

/// Rows and unions, made once for each distinct set of policies or pod sets.
struct Signatures<'i, 'a> {
    cluster: &'i Cluster<'a>,
    /// The policies that have a pod set as their subject.
    subject_of: Vec<Vec<PolicyId>>,
    rules_of: [Vec<Vec<RuleId>>; 2],
    tables: [TableDraft; 4],
    subjects: FxHashMap<Vec<PolicyId>, Subject>,
    peers: FxHashMap<Vec<u32>, [u32; 4]>,
    unions: [Vec<Union>; 2],
    isolations: Vec<Vec<PolicyId>>,
    isolation_ids: FxHashMap<Vec<PolicyId>, u32>,
}

impl<'i, 'a> Signatures<'i, 'a> {
    fn new(
        cluster: &'i Cluster<'a>,
        compiled: &Compiled,
        subjects: &[Option<u32>],
        tables: [TableDraft; 4],
    ) -> Signatures<'i, 'a> {
        let n_sets = tables.first().map_or(0, |table| table.of_set.len());
        let mut subject_of = vec![Vec::new(); n_sets];
        for (policy, set) in subjects.iter().enumerate() {
            let list = set.and_then(|set| subject_of.get_mut(set as usize));
            if let Some(list) = list {
                list.push(PolicyId(count(policy)));
            }
        }
        Signatures {
            cluster,
            subject_of,
            rules_of: by_policy(&compiled.rules, cluster.policies.len()),
            tables,
            subjects: FxHashMap::default(),
            peers: FxHashMap::default(),
            unions: [Vec::new(), Vec::new()],
            isolations: Vec::new(),
            isolation_ids: FxHashMap::default(),
        }
    }

    fn subject(&mut self, sets: &[u32]) -> Subject {
        let lists = sets.iter();
        let lists = lists.filter_map(|set| self.subject_of.get(*set as usize));
        let mut policies: Vec<PolicyId> = lists.flatten().copied().collect();
        policies.sort_unstable();
        if let Some(known) = self.subjects.get(&policies) {
            return *known;
        }
        let tables = self.tables.each_mut();
        let rows = tables.map(|table| {
            let bits = policies.iter();
            let bits = bits.filter_map(|policy| table.of_policy.get(policy.0 as usize));
            table.subjects.of(bits.flatten().copied())
        });
        let mut subject = Subject {
            rows,
            unions: [NONE; 2],
            default_isolations: [NONE; 2],
        };
        for direction in Direction::BOTH {
            let index = direction_index(direction);
            let isolating = self.isolating(&policies, Place::NetworkPolicy, direction);
            if !isolating.is_empty() {
                let rules = isolating.iter();
                let rules =
                    rules.filter_map(|policy| self.rules_of.get(index)?.get(policy.0 as usize));
                let rules: Vec<RuleId> = rules.flatten().copied().collect();
                let isolation = IsolationId(self.isolation(isolating));
                if let (Some(unions), Some(of_subject)) =
                    (self.unions.get_mut(index), subject.unions.get_mut(index))
                {
                    *of_subject = count(unions.len());
                    unions.push(Union { rules, isolation });
                }
            }
            let isolating = self.isolating(&policies, Place::DefaultGroup, direction);
            if !isolating.is_empty()
                && let Some(of_subject) = subject.default_isolations.get_mut(index)
            {
                *of_subject = self.isolation(isolating);
            }
        }
        self.subjects.insert(policies, subject);
        subject
    }

    /// The policies of a stage that isolate in a direction, by namespace and name (D137).
    fn isolating(
        &self,
        policies: &[PolicyId],
        place: Place,
        direction: Direction,
    ) -> Vec<PolicyId> {
        let policy = |id: &PolicyId| self.cluster.policies.get(id.0 as usize);
        let isolates = |it: &Policy<'_>| it.place == place && it.rules(direction).isolates;
        let ids = policies.iter().copied();
        let mut isolating: Vec<PolicyId> =
            ids.filter(|id| policy(id).is_some_and(isolates)).collect();
        isolating.sort_by_key(|id| policy(id).map(|it| (it.namespace, it.name, it.generation)));
        isolating
    }

    fn isolation(&mut self, policies: Vec<PolicyId>) -> u32 {
        if let Some(known) = self.isolation_ids.get(&policies) {
            return *known;
        }
        let id = count(self.isolations.len());
        self.isolations.push(policies.clone());
        self.isolation_ids.insert(policies, id);
        id
    }

    fn peer(&mut self, sets: &[u32]) -> [u32; 4] {
        let has_bits = |set: u32| {
            let mut tables = self.tables.iter();
            tables.any(|table| {
                table
                    .of_set
                    .get(set as usize)
                    .is_some_and(|it| !it.is_empty())
            })
        };
        let sets: Vec<u32> = sets.iter().copied().filter(|set| has_bits(*set)).collect();
        if let Some(known) = self.peers.get(&sets) {
            return *known;
        }
        let tables = self.tables.each_mut();
        let rows = tables.map(|table| {
            let bits = sets.iter();
            let bits = bits.filter_map(|set| table.of_set.get(*set as usize));
            table.peers.of(bits.flatten().copied())
        });
        self.peers.insert(sets, rows);
        rows
    }
}
