//! The documents of `explain`.

use palisade_core::answer::{Note, Reason};
use palisade_core::decide::{Absence, Cause, Exemption};
use serde::Serialize;

use super::flow::FlowView;
use super::proposal::{ProposalView, changes};
use super::unread::UnreadView;
use super::{API_VERSION, direction_name};
use crate::report::explain::{
    DirectionReport, DryRun, Evaluation, Explanation, MissReport, RuleReport, StepReport,
};

/// An explanation.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplanationView<'t> {
    api_version: &'static str,
    kind: &'static str,
    flow: FlowView,
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    egress: Option<SideView<'t>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ingress: Option<SideView<'t>>,
    /// The edits of the first proposal, as text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changes: Vec<String>,
    /// The changes that would allow the flow, best first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    proposals: Vec<ProposalView>,
    /// Why no NetworkPolicy can allow the flow, and who can.
    #[serde(skip_serializing_if = "Option::is_none")]
    must_act: Option<String>,
    /// Whether the input was too large to look for proposals without -v.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    proposals_omitted: bool,
    /// The verdicts of audited policies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dry_run: Vec<DryRunView>,
    /// Remarks that change no verdict.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<NoteView>,
    /// How many backends of a Service have this verdict, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    backends: Option<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    answers: Vec<ExplanationView<'t>>,
    /// What the answer lacks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) unread: Vec<UnreadView<'t>>,
}

impl<'t> From<Explanation<'t>> for ExplanationView<'t> {
    fn from(explanation: Explanation<'t>) -> ExplanationView<'t> {
        let Explanation {
            flow,
            head: _,
            verdict,
            error,
            egress,
            ingress,
            proposals,
            with_reach: _,
            dry_run,
            notes,
            n_backends,
            answers,
            unread,
        } = explanation;
        ExplanationView {
            api_version: API_VERSION,
            kind: "Explanation",
            flow: flow.into(),
            verdict: verdict.name(),
            error,
            egress: egress.map(SideView::new),
            ingress: ingress.map(SideView::new),
            changes: changes(&proposals),
            proposals: proposals.list.into_iter().map(ProposalView::new).collect(),
            must_act: proposals.must_act,
            proposals_omitted: proposals.is_omitted,
            dry_run: dry_run.into_iter().map(DryRunView::new).collect(),
            notes: notes.into_iter().map(NoteView::new).collect(),
            backends: Some(n_backends).filter(|it| *it > 1),
            answers: answers.into_iter().map(ExplanationView::from).collect(),
            unread: unread.iter().map(UnreadView::of_flow).collect(),
        }
    }
}

/// The verdict that an audited policy would have.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DryRunView {
    policy: String,
    verdict: &'static str,
}

impl DryRunView {
    fn new(dry_run: DryRun) -> DryRunView {
        DryRunView {
            policy: dry_run.policy,
            verdict: dry_run.verdict.name(),
        }
    }
}

/// A remark that changes no verdict.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NoteView {
    code: &'static str,
    message: &'static str,
}

impl NoteView {
    fn new(note: Note) -> NoteView {
        NoteView {
            code: note.name(),
            message: note.message(),
        }
    }
}

/// Several explanations.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplanationSetView<'t> {
    api_version: &'static str,
    kind: &'static str,
    explanations: Vec<ExplanationView<'t>>,
}

impl<'t> ExplanationSetView<'t> {
    /// Returns what the explanations lack, each once.
    pub(crate) fn unread(&self) -> Vec<UnreadView<'t>> {
        let mut unread = Vec::new();
        for it in self.explanations.iter().flat_map(|it| &it.unread) {
            if !unread.contains(it) {
                unread.push(it.clone());
            }
        }
        unread
    }

    /// Returns the document of several explanations.
    pub fn new(explanations: Vec<ExplanationView<'t>>) -> ExplanationSetView<'t> {
        ExplanationSetView {
            api_version: API_VERSION,
            kind: "ExplanationSet",
            explanations,
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SideView<'t> {
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<RuleView<'t>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    policies: Vec<String>,
    /// The policies among them that do not fit into the budgets of their namespaces (D148).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    over_budget: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    trail: Vec<StepView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nearest_miss: Option<MissView>,
}

impl<'t> SideView<'t> {
    fn new(report: DirectionReport<'t>) -> SideView<'t> {
        let names = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        let policies = names(report.policy_names(|_| true));
        let over_budget = names(report.policy_names(|it| it.is_over_budget));
        let cause = report.cause();
        let (trail, nearest_miss) = match report.evaluation {
            Some(Evaluation {
                trail,
                full_trail,
                nearest_miss,
                ..
            }) => (full_trail.unwrap_or(trail), nearest_miss),
            None => (Vec::new(), None),
        };
        SideView {
            verdict: report.answer.verdict.name(),
            reason: report.answer.reason.map(Reason::name),
            detail: cause.and_then(detail),
            tier: report.answer.reason.and_then(tier),
            rule: report.rule.map(RuleView::new),
            policies,
            over_budget,
            trail: trail.into_iter().map(StepView::new).collect(),
            nearest_miss: nearest_miss.map(MissView::new),
        }
    }
}

/// The rule that came nearest to allowing a denied flow.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MissView {
    rule: String,
    message: String,
}

impl MissView {
    fn new(miss: MissReport<'_>) -> MissView {
        MissView {
            rule: miss.rule,
            message: miss.message,
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RuleView<'t> {
    id: String,
    api_version: &'t str,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'t str>,
    name: &'t str,
    direction: &'static str,
    index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule_name: Option<&'t str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<&'t str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    failed_closed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'t str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
}

impl<'t> RuleView<'t> {
    fn new(rule: RuleReport<'t>) -> RuleView<'t> {
        RuleView {
            id: rule.name.id,
            api_version: rule.api_version,
            kind: rule.kind,
            namespace: rule.namespace,
            name: rule.policy,
            direction: direction_name(rule.direction),
            index: rule.index,
            rule_name: rule.name.name,
            action: rule.action,
            failed_closed: rule.failure.is_some(),
            file: rule.position.map(|it| it.file),
            line: rule.position.map(|it| it.line),
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct StepView {
    rule: String,
    outcome: &'static str,
}

impl StepView {
    fn new(step: StepReport<'_>) -> StepView {
        StepView {
            rule: step.rule.id,
            outcome: step.outcome.name(),
        }
    }
}

/// Returns the name of an exemption or absence.
fn detail(cause: Cause) -> Option<&'static str> {
    match cause {
        Cause::Exempt(Exemption::Reply) => Some("Reply"),
        Cause::Exempt(Exemption::NodeLocal) => Some("NodeLocal"),
        Cause::Exempt(Exemption::SelfAddress) => Some("SelfAddress"),
        Cause::Exempt(Exemption::NeighborDiscovery) => Some("NeighborDiscovery"),
        Cause::NotApplicable(Absence::HostNetwork) => Some("HostNetwork"),
        Cause::NotApplicable(Absence::Node) => Some("Node"),
        Cause::NotApplicable(Absence::External) => Some("External"),
        Cause::AdminRule(..)
        | Cause::NetworkPolicyRule(_)
        | Cause::Isolation(_)
        | Cause::BaselineRule(..)
        | Cause::DefaultIsolation(_)
        | Cause::Default => None,
    }
}

/// Returns the tier of a reason.
fn tier(reason: Reason) -> Option<&'static str> {
    match reason {
        Reason::AdminRule => Some("Admin"),
        Reason::NetworkPolicyRule | Reason::Isolation => Some("NetworkPolicy"),
        Reason::BaselineRule | Reason::DefaultIsolation => Some("Baseline"),
        Reason::Default => Some("Default"),
        Reason::Exempt | Reason::NotApplicable => None,
    }
}
