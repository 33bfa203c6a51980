//! The compiler and the planner at work on a part of the cluster, for some local classes.

use std::cell::{OnceCell, RefCell};

use super::registry::ExcerptRegistry;
use super::rule_chains::{RestList, RuleChains, StepInterner, StepList};
use super::{Engine, LocalClass};
use crate::compile::compile;
use crate::incremental::store::{Excerpt, Store};
use crate::model::PodId;
use crate::plan::Planner;
use crate::policy::Direction;

/// What one class has to face of the policies of an excerpt; `None`: no policy of it is about the class.
pub(super) struct ClassPlan<'s, 'p, 'a> {
    planner: &'s mut Planner<'p, 'a, ExcerptRegistry<'p>>,
    chains: &'s mut RuleChains,
    steps: &'s mut StepInterner,
    /// The class, by its number in the program.
    class: Option<u32>,
}

impl ClassPlan<'_, '_, '_> {
    /// The Admin tier.
    pub(super) fn admin(&mut self, direction: Direction) -> Option<StepList> {
        let admin = self.planner.admin(self.class?, direction);
        Some(self.chains.list(&admin, self.steps))
    }

    /// The NetworkPolicies, if one isolates the class.
    pub(super) fn union(&mut self, direction: Direction) -> Option<RestList> {
        let union = self.planner.union(self.class?, direction)?;
        Some(self.chains.rest(&union, self.steps))
    }

    /// The Baseline tier.
    pub(super) fn baseline(&mut self, direction: Direction) -> Option<RestList> {
        let baseline = self.planner.baseline(self.class?, direction);
        Some(self.chains.rest(&baseline, self.steps))
    }
}

impl Engine {
    /// Plans an excerpt that some classes were added to, in this order; `each` asks for what it needs, class by class.
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
        let book = ExcerptRegistry {
            store,
            groups: &mut self.numbers,
            rules: &mut self.rules,
            policies: &policies,
            with_ports: &self.with_ports,
            names: RefCell::default(),
            by_name: OnceCell::new(),
            amongs: Vec::new(),
        };
        let mut planner = Planner::new(&cluster, &program, book, self.merge_over);
        let mut seen = StepInterner::default();
        for (index, id) in (0..).zip(classes) {
            let Some(local) = self.local.get_mut(id) else {
                continue;
            };
            let mut sheet = ClassPlan {
                planner: &mut planner,
                chains: &mut self.chains,
                steps: &mut seen,
                class: program.class_id(PodId(index)),
            };
            each(*id, local, &mut sheet);
        }
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
