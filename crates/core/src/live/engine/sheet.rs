//! The compiler and the planner at work on a part of the cluster, for some local classes.

use std::cell::{OnceCell, RefCell};

use super::bodies::{Bodies, RestList, Seen, StepList};
use super::book::Numbers;
use super::{Engine, LocalClass};
use crate::compile::compile;
use crate::live::store::{Excerpt, Store};
use crate::model::PodId;
use crate::plan::Planner;
use crate::policy::Direction;

/// What one class has to face of the policies of an excerpt; `None`: no policy of it is about the class.
pub(super) struct Sheet<'s, 'p, 'a> {
    planner: &'s mut Planner<'p, 'a, Numbers<'p>>,
    bodies: &'s mut Bodies,
    seen: &'s mut Seen,
    /// The class, by its number in the program.
    class: Option<u32>,
}

impl Sheet<'_, '_, '_> {
    /// The Admin tier.
    pub(super) fn admin(&mut self, direction: Direction) -> Option<StepList> {
        let admin = self.planner.admin(self.class?, direction);
        Some(self.bodies.list(&admin, self.seen))
    }

    /// The NetworkPolicies, if one isolates the class.
    pub(super) fn union(&mut self, direction: Direction) -> Option<RestList> {
        let union = self.planner.union(self.class?, direction)?;
        Some(self.bodies.rest(&union, self.seen))
    }

    /// The Baseline tier.
    pub(super) fn baseline(&mut self, direction: Direction) -> Option<RestList> {
        let baseline = self.planner.baseline(self.class?, direction);
        Some(self.bodies.rest(&baseline, self.seen))
    }
}

impl Engine {
    /// Plans an excerpt that some classes were added to, in this order; `each` asks for what it needs, class by class.
    pub(super) fn plan_each(
        &mut self,
        store: &Store,
        excerpt: Excerpt<'_>,
        classes: &[u32],
        mut each: impl FnMut(u32, &mut LocalClass, &mut Sheet<'_, '_, '_>),
    ) {
        let Excerpt {
            cluster, policies, ..
        } = excerpt;
        let program = compile(&cluster);
        let book = Numbers {
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
        let mut seen = Seen::default();
        for (index, id) in (0..).zip(classes) {
            let Some(local) = self.local.get_mut(id) else {
                continue;
            };
            let mut sheet = Sheet {
                planner: &mut planner,
                bodies: &mut self.bodies,
                seen: &mut seen,
                class: program.class_id(PodId(index)),
            };
            each(*id, local, &mut sheet);
        }
        for (name, ports) in planner.into_book().names.into_inner() {
            for class in classes {
                if let Some(local) = self.local.get_mut(class) {
                    local.names.insert(name.clone());
                }
            }
            self.names.insert(name, ports);
        }
    }
}
