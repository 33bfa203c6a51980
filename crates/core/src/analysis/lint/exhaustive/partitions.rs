//! Groups of subjects, and partitions of their flows in which each rule matches a fixed set of
//! keys.

use rustc_hash::FxHashMap;

use super::flow_space::FlowSpace;
use super::fold::Step;
use crate::analysis::connect::bits::{KeySet, Words, has, set};
use crate::analysis::connect::columns::MapColumns;
use crate::analysis::connect::keys::representatives;
use crate::id_set::{clear_bit, ones};
use crate::model::{PodId, PolicyRank};
use crate::net::Family;
use crate::policy::{Direction, Tier};
use crate::program::{AddressAtom, Class, NONE, RuleId, Union, direction_index, table_index};

/// Pods that the same rules select and for which each rule matches the same peers and ports.
#[derive(Debug)]
pub(super) struct Group {
    /// The rows of the ordered tiers, and the default isolation; `NONE` if there is none.
    pub(super) admin: u32,
    pub(super) baseline: u32,
    pub(super) default_isolation: u32,
    /// The union of NetworkPolicies; `NONE` if none isolates the pods.
    pub(super) union: u32,
    /// The namespace, if a peer of some rule depends on it, else `NONE`.
    namespace: u32,
    /// The port map of the subject, if it is the destination and some rule names a port of the map.
    map: u32,
    /// Whether the pods have, or could have, an address of each family.
    families: [bool; 2],
    pub(super) pods: Vec<PodId>,
}

/// The values by which groups differ, besides the families: the rows of both tiers, default
/// isolation, union, namespace and port map.
type ClassParts = [u32; 6];

/// The values by which groups differ.
type Parts = (ClassParts, [bool; 2]);

impl Group {
    /// Returns everything that the fold of the Admin tier depends on; the other values are 0.
    pub(super) fn admin_part(&self) -> Parts {
        let parts = [self.admin, 0, 0, 0, self.namespace, self.map];
        (parts, self.families)
    }

    /// Returns everything that the fold of the Baseline tier depends on.
    pub(super) fn baseline_part(&self) -> Parts {
        let isolated = u32::from(self.default_isolation != NONE);
        let parts = [0, self.baseline, isolated, 0, self.namespace, self.map];
        (parts, self.families)
    }
}

/// Groups the subjects of a direction that some policy selects, sorted by what the Admin tier sees.
pub(super) fn groups(flows: &FlowSpace<'_>) -> Vec<Group> {
    let (cluster, program) = (flows.context.cluster, flows.context.program);
    let mut places: FxHashMap<Parts, usize> = FxHashMap::default();
    let mut groups: Vec<Group> = Vec::new();
    // All values but the families depend on the class alone, so they are computed once for each.
    let mut of_class: FxHashMap<u32, ClassParts> = FxHashMap::default();
    for (id, (pod, class)) in cluster.pods.iter().zip(&program.pod_classes).enumerate() {
        let (Ok(id), Some(class)) = (u32::try_from(id), program.classes.get(*class as usize))
        else {
            continue;
        };
        let parts = *of_class
            .entry(class.id)
            .or_insert_with(|| class_parts(flows, class));
        let [admin, baseline, default_isolation, union, namespace, map] = parts;
        // No policy selects the pod: nothing can be found about its flows.
        if [admin, baseline, default_isolation, union] == [0, 0, NONE, NONE] {
            continue;
        }
        let has = |family| {
            let mut addresses = pod.addresses.iter();
            pod.addresses.is_empty() || addresses.any(|it| Family::of(*it) == family)
        };
        let families = Family::BOTH.map(has);
        let place = *places.entry((parts, families)).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.pods.push(PodId(id)),
            None => groups.push(Group {
                admin,
                baseline,
                default_isolation,
                union,
                namespace,
                map,
                families,
                pods: vec![PodId(id)],
            }),
        }
    }
    // The Admin part comes first: callers take runs of groups that agree in it.
    groups.sort_by_key(|it| {
        (
            it.admin_part(),
            it.baseline_part(),
            it.union,
            it.default_isolation,
        )
    });
    groups
}

/// Returns the values by which the groups of a class's pods differ from those of other classes.
fn class_parts(flows: &FlowSpace<'_>, class: &Class) -> ClassParts {
    let row = |tier| {
        let row = class.subject_rows.get(table_index(tier, flows.direction));
        row.copied().unwrap_or(0)
    };
    let index = direction_index(flows.direction);
    let of = |it: &[u32; 2]| it.get(index).copied().unwrap_or(NONE);
    let mut group = Group {
        admin: row(Tier::Admin),
        baseline: row(Tier::Baseline),
        default_isolation: of(&class.default_isolations),
        union: of(&class.unions),
        namespace: NONE,
        map: NONE,
        families: [false; 2],
        pods: Vec::new(),
    };
    // Namespace and port map would split the pods of equal rules into many groups, each with a fold
    // of its own. They count only if some rule depends on them.
    let rules = flows.rules_on(&group);
    if rules.iter().any(|it| flows.is_relative(*it)) {
        group.namespace = class.namespace;
    }
    if flows.direction == Direction::Ingress && flows.names_some(class.port_map, &rules) {
        group.map = class.port_map;
    }
    [
        group.admin,
        group.baseline,
        group.default_isolation,
        group.union,
        group.namespace,
        group.map,
    ]
}

/// The flows of some groups in one family, to destinations with one port map, with one assumption
/// about unknown addresses. In it, each rule matches a fixed set of keys in a fixed set of columns.
#[derive(Debug)]
pub(super) struct FlowPartition<'f> {
    pub(super) family: Family,
    /// The port map of the destination; `NONE` if no rule names a port of it.
    pub(super) map: u32,
    /// The atom that all unknown addresses are assumed to be in; none if there are no unknown ones.
    pub(super) assumed: Option<AddressAtom>,
    pub(super) columns: MapColumns<'f>,
    /// The keys that are in the partition.
    pub(super) keys: Words,
    /// The namespace of the subjects, if a peer depends on it.
    namespace: u32,
}

/// Keys that are no peers of certain subjects: a pod is its own peer only through a Service (D76,
/// D77), and processes of its own node are exempt from ingress (D74).
#[derive(Debug, Default)]
pub(super) struct ExcludedKeys {
    /// Keys that are peers in no column.
    never: Vec<u32>,
    /// The keys that stand for the only subject alone, and the columns in which a Service leads to
    /// it.
    itself: Vec<u32>,
    served: Vec<u32>,
}

impl<'c> FlowSpace<'c> {
    pub(super) fn union_of(&self, union: u32) -> Option<&'c Union> {
        let unions = self
            .context
            .program
            .unions
            .get(direction_index(self.direction))?;
        unions.get(union as usize)
    }

    /// Returns the rules of a row of an ordered tier with their bits, in order.
    pub(super) fn rules_of(
        &self,
        tier: Tier,
        row: u32,
    ) -> impl Iterator<Item = (u32, RuleId)> + 'c {
        let table = self.context.program.table(tier, self.direction);
        let bits = ones(table.subjects.row(row));
        bits.filter_map(|bit| Some((bit, *table.rules.get(bit as usize)?)))
    }

    /// Returns all rules whose policies select a group.
    fn rules_on(&self, group: &Group) -> Vec<RuleId> {
        let admin = self.rules_of(Tier::Admin, group.admin);
        let baseline = self.rules_of(Tier::Baseline, group.baseline);
        let union = self.union_of(group.union);
        let union = union.into_iter().flat_map(|it| it.rules.iter().copied());
        admin
            .chain(baseline)
            .map(|(_, id)| id)
            .chain(union)
            .collect()
    }

    /// Splits the flows of groups into partitions. The groups must agree in families, port map and
    /// namespace.
    pub(super) fn partitions<'f>(&'f self, groups: &[Group]) -> Vec<FlowPartition<'f>> {
        let Some(first) = groups.first() else {
            return Vec::new();
        };
        // Without unknown addresses and port maps of peers, no partition depends on the rules.
        let has_unknown = !self.sources.unknown.is_empty();
        let mut rules: Vec<RuleId> = Vec::new();
        if has_unknown || !self.maps.is_empty() {
            rules = groups.iter().flat_map(|it| self.rules_on(it)).collect();
            rules.sort_unstable();
            rules.dedup();
        }
        let maps = self.maps.iter().copied();
        let maps: Vec<u32> = maps.filter(|map| self.names_some(*map, &rules)).collect();
        let mut partitions = Vec::new();
        for (family, _) in Family::BOTH
            .into_iter()
            .zip(first.families)
            .filter(|it| it.1)
        {
            let all = match family {
                Family::V4 => &self.sources.may_have[0],
                Family::V6 => &self.sources.may_have[1],
            };
            // The port map is the destination's: the subject's own map for ingress; for egress one
            // partition for each map that some rule names, and one for all other keys.
            let map = match self.direction {
                Direction::Ingress => first.map,
                Direction::Egress => NONE,
            };
            for map in [map].into_iter().chain(maps.iter().copied()) {
                let mut keys = all.clone();
                if !maps.is_empty() {
                    self.keep_map(&mut keys, map, &maps);
                }
                let partition = |assumed, keys: Words| FlowPartition {
                    family,
                    map,
                    assumed,
                    columns: self.context.columns.with((map != NONE).then_some(map)),
                    keys,
                    namespace: first.namespace,
                };
                let unknown = self.sources.unknown.iter();
                let unknown: Vec<u32> = unknown.filter(|it| has(&keys, **it)).copied().collect();
                if unknown.is_empty() {
                    partitions.push(partition(None, keys));
                    continue;
                }
                let mut some = vec![0; keys.len()];
                unknown.iter().for_each(|it| set(&mut some, *it));
                for (place, atom) in self.assumptions(&rules, family).into_iter().enumerate() {
                    // No assumption changes a key with a known address. The first partition has all
                    // of them, the others only the unknown ones.
                    let keys = if place == 0 {
                        keys.clone()
                    } else {
                        some.clone()
                    };
                    partitions.push(partition(Some(atom), keys));
                }
            }
        }
        partitions
    }

    /// Keeps the keys with the port map `map`; for `NONE`, those whose map is not among `maps`.
    fn keep_map(&self, keys: &mut Words, map: u32, maps: &[u32]) {
        for (key, its) in (0..).zip(&self.map_of_key) {
            let its = if maps.binary_search(its).is_ok() {
                *its
            } else {
                NONE
            };
            if its != map {
                clear_bit(keys, key);
            }
        }
    }

    /// Returns the atoms to assume for unknown addresses: one for each set of blocks of the rules
    /// that an address can be in.
    fn assumptions(&self, rules: &[RuleId], family: Family) -> Vec<AddressAtom> {
        // One address is in effect in all tiers at once. Sets of blocks are therefore taken over
        // the rules of all tiers; one assumption for each tier would combine tiers that no single
        // address matches.
        let possible = match family {
            Family::V4 => &self.context.possible[0],
            Family::V6 => &self.context.possible[1],
        };
        representatives(self.context.program, rules, possible)
    }

    /// Makes a step of a rule: its keys and columns in a partition.
    pub(super) fn step<'f>(
        &'f self,
        partition: &FlowPartition<'f>,
        id: RuleId,
        bit: u32,
    ) -> Option<Step<'f>> {
        let program = self.context.program;
        let rule = program.rules.get(id.0 as usize)?;
        let policy = self
            .context
            .cluster
            .policies
            .get(rule.place.policy.0 as usize)?;
        let is_relative = self.is_relative(id);
        let covers = partition
            .assumed
            .is_some_and(|atom| self.sources.covers(id, atom));
        let keys = if is_relative {
            // These depend on the subject's namespace; `Sources` caches only peers that do not.
            std::borrow::Cow::Owned(self.sources.related_peers(
                id,
                partition.family,
                partition.namespace,
            ))
        } else {
            std::borrow::Cow::Borrowed(self.sources.peers(id, partition.family)?)
        };
        // `Sources` knows the peers with known addresses. If a block of the rule has the assumed
        // atom, all unknown keys match too.
        let keys = if covers && !matches!(*keys, KeySet::Everything) {
            let n = self.sources.n();
            let all = keys
                .iter(n)
                .chain(self.sources.unknown.iter().copied())
                .collect();
            std::borrow::Cow::Owned(KeySet::new(all, n))
        } else {
            keys
        };
        Some(Step {
            rule: id,
            bit,
            place: rule.place,
            action: rule.action,
            priority: policy.rank,
            is_default: policy.rank == PolicyRank::DefaultGroup,
            covered: partition.columns.covered(id),
            keys,
        })
    }

    /// Returns the steps of a row of an ordered tier, in order.
    pub(super) fn tier<'f>(
        &'f self,
        partition: &FlowPartition<'f>,
        tier: Tier,
        row: u32,
    ) -> Vec<Step<'f>> {
        let rules = self.rules_of(tier, row);
        rules
            .filter_map(|(bit, id)| self.step(partition, id, bit))
            .collect()
    }

    /// Returns the steps of a union, in order.
    pub(super) fn union<'f>(&'f self, partition: &FlowPartition<'f>, union: u32) -> Vec<Step<'f>> {
        let rules = self.union_of(union).map_or(&[][..], |it| &it.rules).iter();
        rules
            .filter_map(|id| self.step(partition, *id, 0))
            .collect()
    }

    /// Returns the keys that are no peers of any subject of the groups.
    pub(super) fn excluded(&self, groups: &[Group], partition: &FlowPartition<'_>) -> ExcludedKeys {
        let cluster = self.context.cluster;
        let mut apart = ExcludedKeys::default();
        let mut pods = groups.iter().flat_map(|it| it.pods.iter());
        let (Some(first), second) = (pods.next(), pods.next()) else {
            return apart;
        };
        let node = |id: &PodId| cluster.pods.get(id.0 as usize).and_then(|pod| pod.node);
        // Only if every subject runs on the node: otherwise another subject has the key as its
        // peer.
        if let Some(its) = node(first)
            && self.direction == Direction::Ingress
            && let Some(local) = self.only_node.get(its)
        {
            let mut pods = groups.iter().flat_map(|it| it.pods.iter());
            if pods.all(|pod| node(pod) == Some(its)) {
                apart.never.extend(local);
            }
        }
        let Some(pod) = cluster.pods.get(first.0 as usize) else {
            return apart;
        };
        // With two subjects, the key of one pod is a peer of the other. A template stands for
        // several pods, which are peers of each other.
        if second.is_some() || pod.template.is_some() {
            return apart;
        }
        let Some(own) = self.only_pod.get(first) else {
            return apart;
        };
        apart.itself.extend(own);
        for (service, protocol, port) in self.context.served.get(first).into_iter().flatten() {
            let service = cluster.services.get(service.0 as usize);
            let offered = service.map_or(&[][..], |it| &it.cluster_addresses);
            // A Service without known addresses, and a pod without, may be reached in any family.
            let mut families = offered.iter().map(|it| Family::of(*it));
            if pod.addresses.is_empty()
                || offered.is_empty()
                || families.any(|it| it == partition.family)
            {
                let column = partition.columns.of_port(*protocol, *port);
                apart.served.extend(u32::try_from(column));
            }
        }
        apart
    }
}

impl FlowPartition<'_> {
    /// Returns the columns that have a port. A column is empty if names take all of its ports.
    pub(super) fn all_columns(&self) -> Vec<u32> {
        let columns = (0..self.columns.len()).filter(|it| !self.columns.is_empty(*it));
        columns.filter_map(|it| u32::try_from(it).ok()).collect()
    }

    /// Splits columns by the keys that are peers there: a pod that is alone is its own peer only in
    /// columns in which a Service leads to it.
    pub(super) fn parts(&self, apart: &ExcludedKeys, columns: Vec<u32>) -> Vec<(Vec<u32>, Words)> {
        let mut keys = self.keys.clone();
        apart
            .never
            .iter()
            .for_each(|key| clear_bit(&mut keys, *key));
        if apart.itself.is_empty() {
            return vec![(columns, keys)];
        }
        let (served, other): (Vec<u32>, Vec<u32>) = columns
            .into_iter()
            .partition(|it| apart.served.contains(it));
        let mut without = keys.clone();
        apart
            .itself
            .iter()
            .for_each(|key| clear_bit(&mut without, *key));
        let parts = [(served, keys), (other, without)].into_iter();
        parts.filter(|it| !it.0.is_empty()).collect()
    }
}
