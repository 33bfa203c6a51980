//! The fold of an ordered tier over all sources at once: accepted, passed on, or still open.

use super::bits::{KeySet, Words, is_empty, or};
use super::columns::Covered;
use super::per_port::PerPort;
use crate::policy::Action;

/// The sources by the action of the first rule that matches them.
#[derive(Clone, Debug)]
pub(super) struct Folded {
    /// Matched by a rule with Accept.
    pub(super) accepted: Words,
    /// Matched by a rule with Pass: the next tier decides.
    pub(super) passed: Words,
    /// Matched by no rule so far. Denied sources are in none of the three sets.
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

    /// Returns the sources that the next tier decides.
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
        // Matched keys leave `open`, so a later rule does not see them: the first match decides.
        keys.take(&mut self.open, into);
    }
}

/// The number of rules between two checks for open sources.
const CHECK_EVERY: usize = 8;

impl PerPort<Folded> {
    /// Applies the next rule to the columns and source keys that it matches.
    pub(super) fn rule(&mut self, covered: &Covered<'_>, action: Action, keys: &KeySet) {
        // Without a key there is nothing to change, and no reason to split groups of columns.
        if !keys.is_empty() {
            self.change(covered, |folded| folded.apply(action, keys));
        }
    }

    /// Returns whether the rules so far matched every source. Only some calls check, because a
    /// check reads the words of all groups.
    pub(super) fn is_settled(&self, n_rules: usize) -> bool {
        n_rules.is_multiple_of(CHECK_EVERY) && self.groups.iter().all(|it| is_empty(&it.open))
    }
}
