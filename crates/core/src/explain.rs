//! Why: the rules that a flow met on its way, found by the evaluation itself.

use crate::decide::{Cause, Flow, FlowView};
use crate::policy::{Direction, Tier};
use crate::program::{Program, RuleId, RulePlace, direction_index, table_index};

/// A rule that a flow met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The rule.
    pub rule: RulePlace,
    /// What came of it.
    pub outcome: StepOutcome,
}

/// What came of asking a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepOutcome {
    /// It matched and decided.
    Matched,
    /// It matched and passed the flow on.
    Passed,
    /// Its peers are others.
    PeerDiffers,
    /// Its ports are others.
    PortDiffers,
    /// Neither its peers nor its ports match.
    BothDiffer,
    /// It matched as well, behind the rule that decided.
    AlsoMatches,
}

impl StepOutcome {
    /// The word in every output.
    pub fn name(self) -> &'static str {
        match self {
            StepOutcome::Matched => "Matched",
            StepOutcome::Passed => "Passed",
            StepOutcome::PeerDiffers => "PeerDiffers",
            StepOutcome::PortDiffers => "PortDiffers",
            StepOutcome::BothDiffer => "BothDiffer",
            StepOutcome::AlsoMatches => "AlsoMatches",
        }
    }
}

impl Program {
    /// The rules that a flow met and that matched it, in order, in one direction.
    pub fn trail(&self, flow: &Flow, direction: Direction, cause: Cause) -> Vec<Step> {
        let Ok(view) = self.view(flow, direction) else {
            return Vec::new();
        };
        if matches!(cause, Cause::Exempt(_) | Cause::NotApplicable(_)) {
            return Vec::new();
        }
        let mut passed: Vec<RuleId> = Vec::new();
        self.evaluate(&view, &mut passed);
        let passed = passed.into_iter().map(|rule| (rule, StepOutcome::Passed));
        let decided = cause.rule().map(|rule| (rule, StepOutcome::Matched));
        let steps = passed.chain(decided);
        steps
            .filter_map(|(rule, outcome)| self.step(rule, outcome))
            .collect()
    }

    /// Every rule of the policies that select the pod, in the order they are asked, and what came
    /// of it; the NetworkPolicies' rules to the last, since they are a union (D101).
    pub fn full_trail(&self, flow: &Flow, direction: Direction, cause: Cause) -> Vec<Step> {
        let Ok(view) = self.view(flow, direction) else {
            return Vec::new();
        };
        let mut steps = Vec::new();
        if matches!(cause, Cause::Exempt(_) | Cause::NotApplicable(_)) {
            return steps;
        }
        if self.ordered_steps(Tier::Admin, &view, cause, &mut steps) {
            return steps;
        }
        let index = direction_index(direction);
        let union = view.subject.unions.get(index).copied();
        let union = union.and_then(|id| self.unions.get(index)?.get(id as usize));
        if let Some(union) = union {
            for rule in &union.rules {
                let mut outcome = self.outcome(*rule, &view);
                if outcome == StepOutcome::Matched && cause.rule() != Some(*rule) {
                    outcome = StepOutcome::AlsoMatches;
                }
                steps.extend(self.step(*rule, outcome));
            }
            return steps;
        }
        self.ordered_steps(Tier::Baseline, &view, cause, &mut steps);
        steps
    }

    /// The rules of an ordered tier; whether one of them decided.
    fn ordered_steps(
        &self,
        tier: Tier,
        view: &FlowView<'_>,
        cause: Cause,
        steps: &mut Vec<Step>,
    ) -> bool {
        for rule in self.subject_rules(tier, view) {
            let outcome = self.outcome(rule, view);
            let passes = outcome == StepOutcome::Matched && cause.rule() != Some(rule);
            let outcome = if passes { StepOutcome::Passed } else { outcome };
            steps.extend(self.step(rule, outcome));
            if outcome == StepOutcome::Matched {
                return true;
            }
            if outcome == StepOutcome::Passed {
                return false;
            }
        }
        false
    }

    /// The rules of an ordered tier whose policies select the subject, in order.
    pub(crate) fn subject_rules(&self, tier: Tier, view: &FlowView<'_>) -> Vec<RuleId> {
        let table = self.table(tier, view.direction);
        let row = view
            .subject
            .subject_rows
            .get(table_index(tier, view.direction));
        let row = table.subjects.row(row.copied().unwrap_or(0));
        let rules = table.rules.iter().enumerate();
        let selected = rules.filter(|(bit, _)| {
            row.get(bit / 64)
                .is_some_and(|word| word >> (bit % 64) & 1 == 1)
        });
        selected.map(|(_, rule)| *rule).collect()
    }

    pub(crate) fn outcome(&self, rule: RuleId, view: &FlowView<'_>) -> StepOutcome {
        let Some(rule) = self.rules.get(rule.0 as usize) else {
            return StepOutcome::BothDiffer;
        };
        match (self.peer_matches(rule, view), self.port_matches(rule, view)) {
            (true, true) => StepOutcome::Matched,
            (true, false) => StepOutcome::PortDiffers,
            (false, true) => StepOutcome::PeerDiffers,
            (false, false) => StepOutcome::BothDiffer,
        }
    }

    fn step(&self, rule: RuleId, outcome: StepOutcome) -> Option<Step> {
        self.place(rule).map(|rule| Step { rule, outcome })
    }
}
