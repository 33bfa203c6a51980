//! The shared context of the checks: policies by id, and classes of pods with the rules that select
//! them.

use rustc_hash::FxHashSet;

use crate::compile::count;
use crate::id_set::{ones, set_bit};
use crate::model::{Cluster, Effect, NamespaceId, Pod, PodId, Policy, PolicyId};
use crate::policy::{Direction, Tier};
use crate::program::{Class, Program, RuleId, RulePlace, direction_index, table_index};

/// A cluster, its program, and one pod of each class.
#[derive(Debug)]
pub(super) struct CheckContext<'c> {
    pub(super) cluster: &'c Cluster<'c>,
    pub(super) program: &'c Program,
    /// The first pod of each class.
    first: Vec<Option<PodId>>,
}

impl<'c> CheckContext<'c> {
    pub(super) fn new(cluster: &'c Cluster<'c>, program: &'c Program) -> CheckContext<'c> {
        // Labels are kept by pod, not by class. No rule distinguishes the pods of a class, so the
        // first can stand for all.
        let mut first = vec![None; program.classes.len()];
        for pod in 0..count(cluster.pods.len()) {
            let class = program.class_id(PodId(pod));
            if let Some(slot) = class.and_then(|class| first.get_mut(class as usize)) {
                slot.get_or_insert(PodId(pod));
            }
        }
        CheckContext {
            cluster,
            program,
            first,
        }
    }

    /// Whether the input has pods. Without pods, only findings that always hold are reported.
    pub(super) fn has_pods(&self) -> bool {
        !self.program.classes.is_empty()
    }

    pub(super) fn pod(&self, id: PodId) -> Option<&'c Pod<'c>> {
        self.cluster.pods.get(id.0 as usize)
    }

    /// Returns a pod of a class.
    pub(super) fn pod_of(&self, class: u32) -> Option<&'c Pod<'c>> {
        let pod = self.first.get(class as usize).copied().flatten()?;
        self.pod(pod)
    }

    /// Returns every class with one of its pods.
    pub(super) fn classes(&self) -> impl Iterator<Item = (&'c Class, &'c Pod<'c>)> + '_ {
        let classes = self.program.classes.iter();
        classes.filter_map(|class| Some((class, self.pod_of(class.id)?)))
    }

    /// Returns the classes of a namespace. Classes are sorted by namespace, so these are adjacent.
    pub(super) fn classes_in(&self, namespace: NamespaceId) -> &'c [Class] {
        let classes = &self.program.classes;
        let start = classes.partition_point(|it| it.namespace < namespace.0);
        let end = classes.partition_point(|it| it.namespace <= namespace.0);
        classes.get(start..end).unwrap_or_default()
    }

    /// Returns the namespace with a name.
    pub(super) fn namespace(&self, name: &str) -> Option<NamespaceId> {
        let namespaces = &self.cluster.namespaces;
        let found = namespaces.binary_search_by(|it| it.name.cmp(name)).ok()?;
        Some(NamespaceId(count(found)))
    }

    pub(super) fn policy(&self, id: PolicyId) -> Option<&'c Policy<'c>> {
        self.cluster.policies.get(id.0 as usize)
    }

    pub(super) fn policies(&self) -> impl Iterator<Item = (PolicyId, &'c Policy<'c>)> + use<'c> {
        let policies = self.cluster.policies.iter().enumerate();
        policies.map(|(index, policy)| (PolicyId(count(index)), policy))
    }

    /// Returns the rules of enforced policies with a readable subject. Rules that fail closed or
    /// have no effect are not included.
    pub(super) fn rules(&self) -> impl Iterator<Item = (RulePlace, &'c Effect<'c>)> + use<'c> {
        let policies = self.policies();
        let enforced = policies.filter(|(_, it)| !it.audited && it.subject.is_some());
        enforced.flat_map(|(policy, it)| {
            Direction::BOTH.into_iter().flat_map(move |direction| {
                let rules = it.rules(direction).list.iter().enumerate();
                let sound = rules.filter(|(_, rule)| !rule.failed_closed);
                sound.filter_map(move |(index, rule)| {
                    let place = RulePlace {
                        policy,
                        direction,
                        index: count(index),
                    };
                    Some((place, rule.effect.as_ref()?))
                })
            })
        })
    }

    /// Returns the rules of a direction whose policies select some of these classes, ascending.
    pub(super) fn rules_on<'k>(
        &self,
        direction: Direction,
        classes: impl Iterator<Item = &'k Class>,
    ) -> Vec<RuleId> {
        // Many classes share their rows and unions. Distinct ones are collected first, so each is
        // read once.
        let tables = [Tier::Admin, Tier::Baseline].map(|tier| table_index(tier, direction));
        let mut rows = tables.map(|_| FxHashSet::default());
        let mut unions = FxHashSet::default();
        for class in classes {
            for (table, rows) in tables.iter().zip(&mut rows) {
                rows.extend(class.subject_rows.get(*table).copied());
            }
            unions.extend(class.unions.get(direction_index(direction)).copied());
        }
        let mut found = vec![0; self.program.rules.len().div_ceil(64)];
        for (table, rows) in tables.iter().zip(&rows) {
            let Some(table) = self.program.tables.get(*table) else {
                continue;
            };
            let mut bits = vec![0; table.subjects.words];
            for row in rows {
                let row = table.subjects.row(*row).iter();
                bits.iter_mut().zip(row).for_each(|(bits, it)| *bits |= it);
            }
            for rule in ones(&bits).filter_map(|bit| table.rules.get(bit as usize)) {
                set_bit(&mut found, rule.0);
            }
        }
        let of_direction = self.program.unions.get(direction_index(direction));
        for union in of_direction.into_iter().flatten().enumerate() {
            if unions.contains(&count(union.0)) {
                union
                    .1
                    .rules
                    .iter()
                    .for_each(|it| set_bit(&mut found, it.0));
            }
        }
        ones(&found).map(RuleId).collect()
    }
}
