//! Texts of changes that select what the input does not have.

use std::collections::BTreeSet;

use palisade_core::analysis::connect::diff::{
    ChangedObject, NamespaceTerm, SelectedRole, SelectedSet, Unseen,
};
use palisade_core::labels::{Requirement, Selector};
use palisade_core::model::PolicyId;
use palisade_core::policy::Direction;
use palisade_core::program::RulePlace;

use super::DiffReport;
use super::table::few;
use crate::report::explain::requirement;

impl<'d> DiffReport<'d> {
    /// Returns the selections without a member in the input.
    pub(crate) fn unseen(&self) -> &'d [Unseen<'d>] {
        &self.difference.unseen
    }

    /// Returns the number of changed objects whose flows could not all be compared.
    pub(crate) fn undecided_objects(&self) -> usize {
        let causes = self.unseen().iter().map(|it| it.cause);
        causes.collect::<BTreeSet<ChangedObject>>().len()
    }

    /// Names the policy that selects.
    pub(crate) fn unseen_policy(&self, unseen: &Unseen<'_>) -> String {
        let (old, new) = (self.difference.old, self.difference.new);
        match (unseen.policy.new, unseen.policy.old) {
            (Some(id), _) => new.cluster.policy_name(id),
            (None, Some(id)) => old.cluster.policy_name(id),
            (None, None) => String::new(),
        }
    }

    /// Names the rules that differ before and after. A policy that did not change itself has the
    /// same rules twice.
    pub(crate) fn unseen_rules(&self, unseen: &Unseen<'_>) -> [Vec<String>; 2] {
        let [before, after] = &unseen.rules;
        let (old, new) = (self.difference.old, self.difference.new);
        let names =
            |cluster: &palisade_core::model::Cluster<'_>, policy: PolicyId, rules: &[u32]| {
                let places = rules.iter().map(|index| RulePlace {
                    policy,
                    direction: unseen.direction,
                    index: *index,
                });
                places.map(|it| cluster.rule_name(it)).collect()
            };
        let none = Vec::new;
        let of_new = |rules: &[u32]| {
            let id = unseen.policy.new;
            id.map_or_else(none, |id| names(new.cluster, id, rules))
        };
        let of_old = match unseen.policy.old {
            Some(id) => names(old.cluster, id, before),
            None => of_new(before),
        };
        [of_old, of_new(after)]
    }

    /// Describes what is selected: `its ingress rules select pods of shop with app=api, none in the
    /// input`.
    pub(crate) fn unseen_sentence(&self, unseen: &Unseen<'_>, most: usize) -> String {
        let is_own = matches!(unseen.cause, ChangedObject::Policy(_));
        let direction = unseen.direction;
        let who = match (unseen.role, is_own) {
            (SelectedRole::Subject, true) => "it selects".to_owned(),
            (SelectedRole::Subject, false) => format!("{} selects", self.unseen_policy(unseen)),
            (SelectedRole::Peer, true) => format!("its {direction} rules select"),
            (SelectedRole::Peer, false) => {
                format!("{direction} rules of {} select", self.unseen_policy(unseen))
            }
        };
        let none = match unseen.set {
            SelectedSet::Domain(_) => "none known",
            SelectedSet::Everything
            | SelectedSet::Pods(..)
            | SelectedSet::Nodes(_)
            | SelectedSet::Block(..) => "none in the input",
        };
        format!("{who} {}, {none}", selects(&unseen.set, most))
    }

    /// Describes the rules that differ: `ingress: was netpol/shop/db#ingress[0], now no rule`.
    pub(crate) fn unseen_reason(&self, unseen: &Unseen<'_>, most: usize) -> String {
        let list = |rules: &[String]| match rules {
            [] => "no rule".to_owned(),
            rules => few(rules, most),
        };
        let [before, after] = self.unseen_rules(unseen);
        let words = match (unseen.cause, unseen.policy.old, unseen.policy.new) {
            (ChangedObject::Policy(_), Some(_), Some(_)) => {
                format!("was {}, now {}", list(&before), list(&after))
            }
            (ChangedObject::Policy(_), Some(_), None) => format!("was {}", list(&before)),
            (ChangedObject::Policy(_), None, _) => format!("now {}", list(&after)),
            (
                ChangedObject::Namespace(_) | ChangedObject::Pod(_) | ChangedObject::Node(_),
                _,
                _,
            ) => list(&after),
        };
        format!("{}: {words}", unseen.direction)
    }
}

/// Whether a selection is the destination of the flows that differ.
pub(crate) fn is_destination(unseen: &Unseen<'_>) -> bool {
    match unseen.direction {
        Direction::Ingress => unseen.role == SelectedRole::Subject,
        Direction::Egress => unseen.role == SelectedRole::Peer,
    }
}

fn requirements(selector: &Selector<&str>, most: usize) -> String {
    let texts = selector.requirements.iter().map(|it| {
        let Some(shown) = it.values.get(..most).filter(|_| most < it.values.len()) else {
            return requirement(it);
        };
        let more = format!("and {} more", it.values.len() - shown.len());
        let mut values = shown.to_vec();
        values.push(&more);
        requirement(&Requirement {
            values,
            ..it.clone()
        })
    });
    texts.collect::<Vec<String>>().join(", ")
}

/// Names a selection: `pods of shop with app=db`, `nodes with role=edge`. Of a list of values, it
/// has at most so many.
pub(crate) fn selects(set: &SelectedSet<'_>, most: usize) -> String {
    let with = |what: &str, selector: &Selector<&str>| match requirements(selector, most) {
        labels if labels.is_empty() => what.to_owned(),
        labels => format!("{what} with {labels}"),
    };
    match set {
        SelectedSet::Everything => "every peer".to_owned(),
        SelectedSet::Block(cidr, _) => cidr.to_string(),
        SelectedSet::Domain(pattern) => {
            let wildcard = if pattern.wildcard { "*." } else { "" };
            format!("addresses of {wildcard}{}", pattern.name)
        }
        SelectedSet::Nodes(selector) => with("nodes", selector),
        SelectedSet::Pods(NamespaceTerm::Named(name), selector) => {
            with(&format!("pods of {name}"), selector)
        }
        SelectedSet::Pods(term, selector) => {
            format!("{} in {}", with("pods", selector), namespaces(term, most))
        }
    }
}

fn namespaces(term: &NamespaceTerm<'_>, most: usize) -> String {
    match term {
        NamespaceTerm::Named(name) => (*name).to_owned(),
        NamespaceTerm::Selected(selector, except) => {
            let mut text = match requirements(selector, most) {
                labels if labels.is_empty() => "any namespace".to_owned(),
                labels => format!("namespaces with {labels}"),
            };
            for except in except {
                text.push_str(&format!(", not those with {}", requirements(except, most)));
            }
            text
        }
        NamespaceTerm::Own => "the subject's own namespace".to_owned(),
        NamespaceTerm::NotOwn => "other namespaces than the subject's".to_owned(),
        NamespaceTerm::SameLabels(keys) => {
            let keys = keys.join(", ");
            format!("namespaces with the same value of {keys} as the subject's")
        }
        NamespaceTerm::NotSameLabels(keys) => {
            let keys = keys.join(", ");
            format!("namespaces with another value of {keys} than the subject's")
        }
    }
}
