//! Explains a verdict: the rules that a flow was evaluated against, from the evaluation itself.

use crate::decide::{Cause, Flow, FlowView};
use crate::id_set::ones;
use crate::policy::{Direction, Tier};
use crate::program::{NONE, Program, RuleId, RulePlace, direction_index, table_index};

/// A rule that a flow was evaluated against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrailStep {
    /// The policy, direction and index of the rule.
    pub rule: RulePlace,
    /// Whether the rule matched.
    pub outcome: StepOutcome,
}

/// The result of one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepOutcome {
    /// The rule matches and decides.
    Matched,
    /// The rule matches: Pass.
    Passed,
    /// The rule does not match: peer.
    PeerDiffers,
    /// The rule does not match: port.
    PortDiffers,
    /// The rule does not match: peer, port.
    BothDiffer,
    /// The rule also matches, after the rule that decides.
    AlsoMatches,
}

impl StepOutcome {
    /// Returns the name in every output.
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
    /// Returns the rules that match a flow in one direction, in order: those that pass, and the
    /// rule that decides.
    pub fn trail(&self, flow: &Flow, direction: Direction, cause: Cause) -> Vec<TrailStep> {
        let Ok(view) = self.view(flow, direction) else {
            return Vec::new();
        };
        if matches!(cause, Cause::Exempt(_) | Cause::NotApplicable(_)) {
            return Vec::new();
        }
        let mut passed: Vec<RuleId> = Vec::new();
        // Evaluated once more to collect the Pass rules: the fast path does not record them. The
        // cause is known.
        self.evaluate(&view, &mut passed);
        let passed = passed.into_iter().map(|rule| (rule, StepOutcome::Passed));
        let decided = cause.rule().map(|rule| (rule, StepOutcome::Matched));
        let steps = passed.chain(decided);
        steps
            .filter_map(|(rule, outcome)| self.step(rule, outcome))
            .collect()
    }

    /// Returns the rules of all policies that select the pod, in order of evaluation, each with its
    /// result. NetworkPolicies are listed completely, since they are a union (D101).
    pub fn full_trail(&self, flow: &Flow, direction: Direction, cause: Cause) -> Vec<TrailStep> {
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
                // One matching rule is the cause (D137); the others allow the flow as well.
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

    /// Adds the rules of an ordered tier, up to the first that matches. Returns whether that rule
    /// decides.
    fn ordered_steps(
        &self,
        tier: Tier,
        view: &FlowView<'_>,
        cause: Cause,
        steps: &mut Vec<TrailStep>,
    ) -> bool {
        for rule in self.subject_rules(tier, view) {
            let outcome = self.outcome(rule, view);
            // The first rule that matches ends the tier. If it is not the cause, its action is
            // Pass.
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

    /// Returns the rules of an ordered tier that apply to the subject, in order.
    pub(crate) fn subject_rules(&self, tier: Tier, view: &FlowView<'_>) -> Vec<RuleId> {
        let table = self.table(tier, view.direction);
        let row = view
            .subject
            .subject_rows
            .get(table_index(tier, view.direction));
        let row = table.subjects.row(row.copied().unwrap_or(0));
        // Rules behind the default policies do not apply to pods that these isolate (D62). Only an
        // invalid priority puts a rule there (D116).
        let isolation = view.subject.default_isolations;
        let isolation = isolation.get(direction_index(view.direction));
        let end = match tier {
            Tier::Baseline if isolation.is_some_and(|it| *it != NONE) => table.group_end,
            Tier::Admin | Tier::Baseline => NONE,
        };
        let bits = ones(row).take_while(|bit| *bit < end);
        bits.filter_map(|bit| table.rules.get(bit as usize).copied())
            .collect()
    }

    pub(crate) fn outcome(&self, rule: RuleId, view: &FlowView<'_>) -> StepOutcome {
        let Some(rule) = self.rules.get(rule.0 as usize) else {
            // Ids come from this program: not reached.
            return StepOutcome::BothDiffer;
        };
        match (self.peer_matches(rule, view), self.port_matches(rule, view)) {
            (true, true) => StepOutcome::Matched,
            (true, false) => StepOutcome::PortDiffers,
            (false, true) => StepOutcome::PeerDiffers,
            (false, false) => StepOutcome::BothDiffer,
        }
    }

    fn step(&self, rule: RuleId, outcome: StepOutcome) -> Option<TrailStep> {
        self.place(rule).map(|rule| TrailStep { rule, outcome })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::compile;
    use crate::fixture::{all, allow, baseline, cluster, default_policy, flow, pod};

    #[test]
    fn rules_behind_the_isolation_of_default_policies_are_not_in_the_trail() {
        // The priority is out of range and keeps its place in integer order (D116): behind the
        // default policies, whose effective priority is 1002 (1.2).
        let cluster = cluster(
            vec![pod("x", "a"), pod("y", "b")],
            vec![
                default_policy("d").ingress_isolates(),
                baseline("late", 2000).ingress(allow(all())),
            ],
        );
        let program = compile(&cluster);
        let flow = flow(&cluster, &program, ["y/b", "x/a"], 80);
        let cause = program.decide(&flow).ingress;
        assert!(matches!(cause, Cause::DefaultIsolation(_)), "{cause:?}");
        let trail = program.full_trail(&flow, Direction::Ingress, cause);
        assert_eq!(trail, []);
    }
}
