//! Runs the compiler and the planner on a part of the cluster, for some local classes.

use std::cell::{OnceCell, RefCell};

use super::registry::ExcerptRegistry;
use super::rule_chains::{RestList, RuleChains, StepInterner, StepList};
use super::{Engine, LocalClass};
use crate::compile::compile;
use crate::incremental::store::{Excerpt, Store};
use crate::model::PodId;
use crate::plan::Planner;
use crate::policy::Direction;

/// Plans the tiers of one class by the policies of an excerpt. The methods return `None` if no pod
/// of the excerpt stands for the class.
pub(super) struct ClassPlan<'s, 'p, 'a> {
    planner: &'s mut Planner<'p, 'a, ExcerptRegistry<'p>>,
    chains: &'s mut RuleChains,
    steps: &'s mut StepInterner,
    /// The class, by its number in the program.
    class: Option<u32>,
}

impl ClassPlan<'_, '_, '_> {
    /// Plans the Admin tier.
    pub(super) fn admin(&mut self, direction: Direction) -> Option<StepList> {
        let admin = self.planner.admin(self.class?, direction);
        Some(self.chains.list(&admin, self.steps))
    }

    /// Plans the NetworkPolicies; `None` if none isolates the class.
    pub(super) fn union(&mut self, direction: Direction) -> Option<RestList> {
        let union = self.planner.union(self.class?, direction)?;
        Some(self.chains.rest(&union, self.steps))
    }

    /// Plans the Baseline tier.
    pub(super) fn baseline(&mut self, direction: Direction) -> Option<RestList> {
        let baseline = self.planner.baseline(self.class?, direction);
        Some(self.chains.rest(&baseline, self.steps))
    }
}

impl Engine {
    /// Plans an excerpt to which these classes were added in this order. `each` plans the tiers
    /// that it needs, class by class.
    pub(super) fn plan_each(
        &mut self,
        store: &Store,
        excerpt: Excerpt<'_>,
        classes: &[u32],
        mut each: impl FnMut(u32, &mut LocalClass, &mut ClassPlan<'_, '_, '_>),
    ) {
        let Excerpt {
            cluster, policies, ..
        } = excerpt;
        let program = compile(&cluster);
        // One registry and one interner for all classes: steps and groups that they share are made
        // once.
        let registry = ExcerptRegistry {
            store,
            groups: &mut self.numbers,
            rules: &mut self.rules,
            policies: &policies,
            with_ports: &self.with_ports,
            names: RefCell::default(),
            by_name: OnceCell::new(),
            amongs: Vec::new(),
        };
        let mut planner = Planner::new(&cluster, &program, registry, self.merge_over);
        let mut interner = StepInterner::default();
        // The excerpt has one pod for each class, in this order: the index is the pod's number.
        for (index, id) in (0..).zip(classes) {
            let Some(local) = self.local.get_mut(id) else {
                continue;
            };
            let mut class_plan = ClassPlan {
                planner: &mut planner,
                chains: &mut self.chains,
                steps: &mut interner,
                class: program.class_id(PodId(index)),
            };
            each(*id, local, &mut class_plan);
        }
        // The planner does not report which class a name was resolved for. Every class of the run
        // counts as a user: a name that changes may plan a few classes without need.
        for (name, ports) in planner.into_registry().names.into_inner() {
            for class in classes {
                if let Some(local) = self.local.get_mut(class) {
                    local.names.insert(name.clone());
                }
            }
            self.names.insert(name, ports);
        }
    }
}
