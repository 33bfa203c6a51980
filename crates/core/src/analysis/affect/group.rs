//! Groups of subjects for which every rule matches the same flows.

use rustc_hash::FxHashMap;

use super::stack::Stack;
use crate::model::{Cluster, PodId};
use crate::net::Family;
use crate::policy::{Direction, Tier};
use crate::program::{Class, Program, direction_index, table_index};

/// Pods that the same rules select and for which each rule matches the same peers and ports.
#[derive(Debug)]
pub(super) struct Group<'p> {
    pub(super) stack: Stack<'p>,
    /// The class of the first pod.
    pub(super) class: &'p Class,
    pub(super) pods: Vec<PodId>,
    pub(super) families: Families,
    /// What the ordered tiers distinguish of the subject: its rows, and its namespace group in each
    /// relation.
    pub(super) shared: (u32, u32, Vec<u32>),
}

/// The families of the addresses of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Families {
    pub(super) v4: bool,
    pub(super) v6: bool,
    /// Whether the addresses are known. Unknown ones can be of any family (D83).
    pub(super) known: bool,
}

impl Families {
    fn of(cluster: &Cluster<'_>, pod: PodId) -> Families {
        let pod = cluster.pods.get(pod.0 as usize);
        let addresses = pod.map_or(&[][..], |pod| &pod.addresses);
        let known = !addresses.is_empty();
        let has = |family| !known || addresses.iter().any(|it| Family::of(*it) == family);
        Families {
            v4: has(Family::V4),
            v6: has(Family::V6),
            known,
        }
    }

    pub(super) fn has(self, family: Family) -> bool {
        match family {
            Family::V4 => self.v4,
            Family::V6 => self.v6,
        }
    }

    /// Returns the family, if there is only one.
    pub(super) fn only(self) -> Option<Family> {
        match (self.v4, self.v6) {
            (true, false) => Some(Family::V4),
            (false, true) => Some(Family::V6),
            (true, true) | (false, false) => None,
        }
    }
}

/// The policies that select a class in a direction: two rows, a union, an isolation.
type Rules = [u32; 4];

/// The values by which groups differ: the rules, the namespace group in each relation, the port map
/// if the subject is the destination, and the families.
type Key = (Rules, Vec<u32>, Option<u32>, Families);

/// Groups pods. Pods that policies cannot select, and pods without any rule or isolation, are left
/// out.
pub(super) fn groups<'p>(
    cluster: &Cluster<'_>,
    program: &'p Program,
    pods: &[PodId],
    direction: Direction,
) -> Vec<Group<'p>> {
    let mut groups: Vec<Group<'p>> = Vec::new();
    let mut places: FxHashMap<Key, usize> = FxHashMap::default();
    let mut relations: FxHashMap<Rules, Vec<u32>> = FxHashMap::default();
    for pod in pods {
        let Some(class) = program.class(*pod) else {
            continue;
        };
        let rules = rules(class, direction);
        let new_stack = || Stack::new(cluster, program, class, direction);
        // The relations depend on the rules alone. Many classes share these, and a stack is large.
        let relations = relations
            .entry(rules)
            .or_insert_with(|| related(program, &new_stack()));
        let namespace_groups = relations.iter().map(|relation| {
            let relation = program.relations.get(*relation as usize);
            let group = relation.and_then(|it| it.groups.get(class.namespace as usize));
            group.copied().unwrap_or(u32::MAX)
        });
        // Names belong to the destination. For egress that is the peer, which has the map.
        let port_map = match direction {
            Direction::Ingress => Some(class.port_map),
            Direction::Egress => None,
        };
        let families = Families::of(cluster, *pod);
        let namespace_groups: Vec<u32> = namespace_groups.collect();
        // Without union, port map and families: groups that differ only in these share the ordered
        // tiers.
        let [admin, baseline, ..] = rules;
        let shared = (admin, baseline, namespace_groups.clone());
        let key = (rules, namespace_groups, port_map, families);
        let next = groups.len();
        let place = *places.entry(key).or_insert(next);
        match groups.get_mut(place) {
            Some(group) => group.pods.push(*pod),
            None => groups.push(Group {
                stack: new_stack(),
                class,
                pods: vec![*pod],
                families,
                shared,
            }),
        }
    }
    groups.retain(|group| !group.stack.is_empty());
    groups
}

fn rules(class: &Class, direction: Direction) -> Rules {
    let index = direction_index(direction);
    let row = |tier| {
        class
            .subject_rows
            .get(table_index(tier, direction))
            .copied()
    };
    let parts = [
        row(Tier::Admin),
        row(Tier::Baseline),
        class.unions.get(index).copied(),
        class.default_isolations.get(index).copied(),
    ];
    parts.map(|part| part.unwrap_or(u32::MAX))
}

/// Returns the relations that rules of a stack use, ascending.
fn related(program: &Program, stack: &Stack<'_>) -> Vec<u32> {
    let sets = stack.rules.iter();
    let sets = sets.flat_map(|rule| rule.sets.of(&program.lists.sets));
    let relations = sets.filter_map(|set| program.set_relations.get(*set as usize).copied()?);
    let mut relations: Vec<u32> = relations.collect();
    relations.sort_unstable();
    relations.dedup();
    relations
}
