//! An ordered tier over all sources at once: who is accepted, who is passed on, who is still open.

use super::bits::{KeySet, Words, is_empty, or};
use super::columns::Covered;
use super::per_port::PerPort;
use crate::policy::Action;

/// What an ordered tier has come to.
#[derive(Clone, Debug)]
pub(super) struct Folded {
    /// Accepted.
    pub(super) accepted: Words,
    /// Passed on to the next tier.
    pub(super) passed: Words,
    /// Met by no rule yet.
    pub(super) open: Words,
}

impl Folded {
    pub(super) fn new(open: &[u64]) -> Folded {
        Folded {
            accepted: vec![0; open.len()],
            passed: vec![0; open.len()],
            open: open.to_vec(),
        }
    }

    /// What the next tier decides.
    pub(super) fn rest(&self) -> Words {
        let mut rest = self.open.clone();
        or(&mut rest, &self.passed);
        rest
    }

    fn apply(&mut self, action: Action, keys: &KeySet) {
        let into = match action {
            Action::Accept => Some(self.accepted.as_mut_slice()),
            Action::Pass => Some(self.passed.as_mut_slice()),
            Action::Deny => None,
        };
        keys.take(&mut self.open, into);
    }
}

/// How often it is asked whether anything is still open.
const CHECK_EVERY: usize = 8;

impl PerPort<Folded> {
    /// The next rule, over the columns and source keys that it matches.
    pub(super) fn rule(&mut self, covered: &Covered<'_>, action: Action, keys: &KeySet) {
        if !keys.is_empty() {
            self.change(covered, |folded| folded.apply(action, keys));
        }
    }

    /// Whether the rules so far have met everyone; asked only now and then, since it is not free.
    pub(super) fn is_settled(&self, n_rules: usize) -> bool {
        n_rules.is_multiple_of(CHECK_EVERY) && self.groups.iter().all(|it| is_empty(&it.open))
    }
}
