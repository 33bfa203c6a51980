//! Subjects that the same rules meet in the same way.

use rustc_hash::FxHashMap;

use super::stack::Stack;
use crate::model::{Cluster, PodId};
use crate::net::Family;
use crate::policy::{Direction, Tier};
use crate::program::{Class, Program, direction_index, table_index};

/// Pods for which every peer and port matches the same rules.
#[derive(Debug)]
pub(super) struct Group<'p> {
    pub(super) stack: Stack<'p>,
    /// The class of the first.
    pub(super) class: &'p Class,
    pub(super) pods: Vec<PodId>,
    pub(super) families: Families,
    /// What the ordered tiers see of the subject: their rows, and its namespace in relations.
    pub(super) shared: (u32, u32, Vec<u32>),
}

/// The families that a pod has addresses of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Families {
    pub(super) v4: bool,
    pub(super) v6: bool,
    /// Whether the addresses are known; else they could be of any family (D83).
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

    /// The only family, if there is only one.
    pub(super) fn only(self) -> Option<Family> {
        match (self.v4, self.v6) {
            (true, false) => Some(Family::V4),
            (false, true) => Some(Family::V6),
            (true, true) | (false, false) => None,
        }
    }
}

/// The policies on a class in a direction: two rows, a union, an isolation.
type Rules = [u32; 4];

/// What makes subjects the same: the rules, what relations see of the namespace, the port map where
/// the subject is the destination, the families.
type Key = (Rules, Vec<u32>, Option<u32>, Families);

/// Groups pods; those that no policy can select, or that no rule and no isolation is on, are left out.
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
        let relations = relations
            .entry(rules)
            .or_insert_with(|| related(program, &new_stack()));
        let seen = relations.iter().map(|relation| {
            let relation = program.relations.get(*relation as usize);
            let group = relation.and_then(|it| it.groups.get(class.namespace as usize));
            group.copied().unwrap_or(u32::MAX)
        });
        let port_map = match direction {
            Direction::Ingress => Some(class.port_map),
            Direction::Egress => None,
        };
        let families = Families::of(cluster, *pod);
        let seen: Vec<u32> = seen.collect();
        let [admin, baseline, ..] = rules;
        let shared = (admin, baseline, seen.clone());
        let key = (rules, seen, port_map, families);
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

/// The relations that rules of a stack look at.
fn related(program: &Program, stack: &Stack<'_>) -> Vec<u32> {
    let sets = stack.rules.iter();
    let sets = sets.flat_map(|rule| rule.sets.of(&program.lists.sets));
    let relations = sets.filter_map(|set| program.set_relations.get(*set as usize).copied()?);
    let mut relations: Vec<u32> = relations.collect();
    relations.sort_unstable();
    relations.dedup();
    relations
}
