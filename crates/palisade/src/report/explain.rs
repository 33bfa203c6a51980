//! Explanations: the verdict of a flow, what decides it, and what would change it.

mod builder;
mod miss;
mod text;

use palisade_core::answer::{DirectionAnswer, FlowVerdict, Note, Reason};
use palisade_core::decide::Cause;
use palisade_core::explain::StepOutcome;
use palisade_core::policy::Direction;

use super::flow::NamedFlow;
use super::proposal::Proposals;
use super::unread::UnreadAtFlow;

pub use self::builder::{Detail, Explainer};
pub(crate) use self::miss::requirement;
pub use self::text::ports_text;

/// The explanation of a flow, or of several that a query stands for.
#[derive(Clone, Debug)]
pub struct Explanation<'t> {
    /// The flow.
    pub flow: NamedFlow,
    /// The flow as the text names it, if that is another name: as it was written.
    pub head: Option<NamedFlow>,
    /// The verdict of both directions together.
    pub verdict: FlowVerdict,
    /// Why the query has no answer.
    pub error: Option<String>,
    /// The result at the source.
    pub egress: Option<DirectionReport<'t>>,
    /// The result at the destination.
    pub ingress: Option<DirectionReport<'t>>,
    /// The changes that would allow the flow, if they were requested.
    pub proposals: Proposals,
    /// Whether the text lists the other flows that the proposals change.
    pub with_reach: bool,
    /// The verdicts of audited policies.
    pub dry_run: Vec<DryRun>,
    /// Remarks that change no verdict, sorted.
    pub notes: Vec<Note>,
    /// How many backends of a Service have the verdict, if all have the same.
    pub n_backends: usize,
    /// The explanations of the parts, if they differ.
    pub answers: Vec<Explanation<'t>>,
    /// The unreadable policies that could select an end.
    pub unread: Vec<UnreadAtFlow<'t>>,
}

/// The verdict that an audited policy would have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DryRun {
    /// The policy.
    pub policy: String,
    /// The verdict, if it were enforced.
    pub verdict: FlowVerdict,
}

/// The result of one direction.
#[derive(Clone, Debug)]
pub struct DirectionReport<'t> {
    /// The direction.
    pub direction: Direction,
    /// The verdict, the reason and the cause.
    pub answer: DirectionAnswer,
    /// The rule that decides.
    pub rule: Option<RuleReport<'t>>,
    /// The policies that isolate, or the one whose rule decides, in order of the cluster.
    pub policies: Vec<PolicyReport<'t>>,
    /// Details of the evaluation, if all flows share them.
    pub evaluation: Option<Evaluation<'t>>,
}

/// A policy that decides a direction.
#[derive(Clone, Debug)]
pub struct PolicyReport<'t> {
    /// The identifier.
    pub name: String,
    /// Whether it does not fit into the budget of its namespace (D148).
    pub is_over_budget: bool,
    /// The number of its rules for the direction.
    pub n_rules: usize,
    /// The position, if the text needs it.
    pub position: Option<Position<'t>>,
}

/// A rule.
#[derive(Clone, Debug)]
pub struct RuleReport<'t> {
    /// The identifier, and the name in the policy.
    pub name: RuleName<'t>,
    /// The `apiVersion` of the policy.
    pub api_version: &'t str,
    /// The kind of the policy.
    pub kind: &'static str,
    /// The namespace of the policy.
    pub namespace: Option<&'t str>,
    /// The name of the policy.
    pub policy: &'t str,
    /// The direction.
    pub direction: Direction,
    /// The index in the list of the policy.
    pub index: u32,
    /// The action as it was written.
    pub action: Option<&'t str>,
    /// Why it fails closed, if it does.
    pub failure: Option<Failure>,
    /// The position.
    pub position: Option<Position<'t>>,
}

/// Why a rule fails closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A field cannot be read.
    Unreadable,
    /// The policy does not fit into the budget of its namespace (D148).
    OverBudget,
}

/// The identifier of a rule, and its name in the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleName<'t> {
    /// `netpol/shop/db#ingress[0]`.
    pub id: String,
    /// The value of `name`.
    pub name: Option<&'t str>,
}

/// The evaluation of a single flow in one direction.
#[derive(Clone, Debug)]
pub struct Evaluation<'t> {
    /// What only the text shows, if it was requested.
    pub ends: Option<EvaluatedEnds>,
    /// The rules that match: those that pass, and the rule that decides.
    pub trail: Vec<StepReport<'t>>,
    /// All rules of the policies that select the pod, if they were requested.
    pub full_trail: Option<Vec<StepReport<'t>>>,
    /// The rule that came nearest to allowing a denied flow.
    pub nearest_miss: Option<MissReport<'t>>,
}

/// The ends of an evaluated flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvaluatedEnds {
    /// The pod or node whose policies are evaluated.
    pub subject: String,
    /// The other end.
    pub peer: String,
    /// Whether a policy has a rule for the subject, if no policy decides.
    pub has_rules: bool,
}

/// A rule that the flow was evaluated against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepReport<'t> {
    /// The rule.
    pub rule: RuleName<'t>,
    /// Whether it matched.
    pub outcome: StepOutcome,
}

/// The rule that came nearest to allowing a denied flow.
#[derive(Clone, Debug)]
pub struct MissReport<'t> {
    /// The identifier of the rule.
    pub rule: String,
    /// What it would allow, and what the flow has.
    pub message: String,
    /// The position of the rule, if the text needs it.
    pub position: Option<Position<'t>>,
}

/// The position of a rule or policy.
#[derive(Clone, Copy, Debug)]
pub struct Position<'t> {
    /// The name of the source.
    pub file: &'t str,
    /// The line.
    pub line: usize,
    /// The source from the start of the line on.
    pub rest: &'t str,
}

impl<'t> Explanation<'t> {
    /// Returns the explanation of a query that has no answer.
    pub fn unanswered(queried: NamedFlow, error: String) -> Explanation<'t> {
        Explanation {
            flow: queried,
            head: None,
            verdict: FlowVerdict::Unknown,
            error: Some(error),
            egress: None,
            ingress: None,
            proposals: Proposals::default(),
            with_reach: false,
            dry_run: Vec::new(),
            notes: Vec::new(),
            n_backends: 0,
            answers: Vec::new(),
            unread: Vec::new(),
        }
    }
}

impl DirectionReport<'_> {
    /// Returns the cause, if it is the same for all flows and addresses.
    pub fn cause(&self) -> Option<Cause> {
        self.answer.cause
    }

    /// Returns the reason, if it is the same for all flows and addresses.
    pub fn reason(&self) -> Option<Reason> {
        self.answer.reason
    }

    /// Returns the names of the deciding policies that fulfil a condition, sorted.
    pub fn policy_names(&self, counts: impl Fn(&PolicyReport<'_>) -> bool) -> Vec<&str> {
        let policies = self.policies.iter().filter(|it| counts(it));
        let mut names: Vec<&str> = policies.map(|it| it.name.as_str()).collect();
        names.sort_unstable();
        names
    }
}
