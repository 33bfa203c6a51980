//! The documents of `affecting`.

use serde::Serialize;

use super::flow::FlowView;
use super::{API_VERSION, direction_name};
use crate::report::affecting::{
    EnforcementState, NamedRule, Override, PodReport, PolicyReport, SelectingPolicy, SelectingRule,
    Unreached,
};
use crate::report::verdict_name;

/// The policies that select a pod, or pods with the same answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AffectingView<'r> {
    api_version: &'static str,
    kind: &'static str,
    /// The queried endpoint.
    endpoint: &'r str,
    /// The pods of a workload.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pods: &'r [String],
    /// Whether it is a host-network pod, which no policy selects.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    host_network: bool,
    egress: Vec<EntryView<'r>>,
    ingress: Vec<EntryView<'r>>,
}

impl<'r> AffectingView<'r> {
    /// Returns the document of a report.
    pub fn new(report: &'r PodReport) -> AffectingView<'r> {
        AffectingView {
            api_version: API_VERSION,
            kind: "Affecting",
            endpoint: &report.endpoint,
            pods: &report.pods,
            host_network: report.host_network,
            egress: report.egress.iter().map(EntryView::new).collect(),
            ingress: report.ingress.iter().map(EntryView::new).collect(),
        }
    }
}

/// Different answers for the pods of one workload.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AffectingSetView<'r> {
    api_version: &'static str,
    kind: &'static str,
    answers: Vec<AffectingView<'r>>,
}

impl<'r> AffectingSetView<'r> {
    /// Returns the document of several reports.
    pub fn new(reports: &'r [PodReport]) -> AffectingSetView<'r> {
        AffectingSetView {
            api_version: API_VERSION,
            kind: "AffectingSet",
            answers: reports.iter().map(AffectingView::new).collect(),
        }
    }
}

/// A policy that selects a pod, in one direction.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct EntryView<'r> {
    policy: &'r str,
    tier: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<i64>,
    rules: Vec<&'r str>,
    isolates: bool,
    /// Whether it does not fit into the budget of its namespace (D148).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    over_budget: bool,
    state: &'static str,
    overridden_by: Vec<OverrideView<'r>>,
    rule_details: Vec<RuleView<'r>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
}

impl<'r> EntryView<'r> {
    fn new(entry: &'r SelectingPolicy) -> EntryView<'r> {
        let SelectingPolicy {
            policy,
            isolates,
            over_budget,
            state,
            overridden_by,
            rules,
        } = entry;
        let position = policy.position.as_ref();
        EntryView {
            policy: &policy.name,
            tier: policy.tier.name(),
            priority: policy.priority,
            rules: rules.iter().map(|it| it.rule.id.as_str()).collect(),
            isolates: *isolates,
            over_budget: *over_budget,
            state: state_name(*state),
            overridden_by: overridden_by.iter().map(OverrideView::new).collect(),
            rule_details: rules.iter().map(RuleView::new).collect(),
            file: position.map(|(file, _)| file.as_str()),
            line: position.map(|(_, line)| *line),
        }
    }
}

fn state_name(state: EnforcementState) -> &'static str {
    match state {
        EnforcementState::InForce => "InForce",
        EnforcementState::PartlyOverridden => "PartlyOverridden",
        EnforcementState::Overridden => "Overridden",
        EnforcementState::NeverDecides => "NeverDecides",
        EnforcementState::DryRun => "DryRun",
    }
}

/// A rule of an entry.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RuleView<'r> {
    id: &'r str,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule_name: Option<&'r str>,
    /// Whether it decides a flow of the pod.
    decides: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    failed_closed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
}

impl<'r> RuleView<'r> {
    fn new(rule: &'r SelectingRule) -> RuleView<'r> {
        RuleView {
            id: &rule.rule.id,
            action: rule.action.as_deref(),
            rule_name: rule.name.as_deref(),
            decides: rule.decides,
            failed_closed: rule.failed_closed,
            line: rule.line,
        }
    }
}

/// An override between the queried policy and another one.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct OverrideView<'r> {
    /// The other policy.
    policy: &'r str,
    direction: &'static str,
    /// Its rules.
    rules: Vec<&'r str>,
    /// Whether its isolation takes effect, and no rule.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    isolation: bool,
    /// The rules of the queried policy.
    own_rules: Vec<&'r str>,
    /// Whether the isolation of the queried policy takes effect.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    own_isolation: bool,
    /// The verdict for the witness; the overridden policy has the opposite verdict.
    verdict: &'static str,
    /// Whether the earlier policy matches with Pass: later tiers decide.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    passes: bool,
    witness: FlowView,
}

impl<'r> OverrideView<'r> {
    fn new(it: &'r Override) -> OverrideView<'r> {
        let ids = |rules: &'r [NamedRule]| rules.iter().map(|rule| rule.id.as_str()).collect();
        OverrideView {
            policy: &it.policy,
            direction: direction_name(it.direction),
            rules: ids(&it.other.rules),
            isolation: it.other.isolation,
            own_rules: ids(&it.own.rules),
            own_isolation: it.own.isolation,
            verdict: verdict_name(it.verdict),
            passes: it.passes,
            witness: it.witness.clone().into(),
        }
    }
}

/// The overrides of a policy, in both directions.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AffectedByView<'r> {
    api_version: &'static str,
    kind: &'static str,
    policy: &'r str,
    tier: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<i64>,
    /// Whether it is in audit mode; the answer is as if it were enforced.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
    /// The directions in which it isolates.
    isolates: Vec<&'static str>,
    /// The directions in which it has rules or isolates.
    directions: Vec<&'static str>,
    /// The pods that it selects.
    subjects: &'r [String],
    /// Their namespaces.
    namespaces: &'r [String],
    overrides: Vec<OverrideView<'r>>,
    overridden_by: Vec<OverrideView<'r>>,
    /// The policies that decide the flows that its Pass rules match.
    defers_to: Vec<OverrideView<'r>>,
    /// The NetworkPolicies that isolate its pods, if it is a policy of the Baseline tier.
    out_of_reach: Vec<ReachView<'r>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
}

impl<'r> AffectedByView<'r> {
    /// Returns the document of a report.
    pub fn new(report: &'r PolicyReport) -> AffectedByView<'r> {
        let names = |directions: &[palisade_core::policy::Direction]| {
            let names = directions.iter().map(|it| direction_name(*it));
            names.collect()
        };
        let position = report.policy.position.as_ref();
        AffectedByView {
            api_version: API_VERSION,
            kind: "AffectedBy",
            policy: &report.policy.name,
            tier: report.policy.tier.name(),
            priority: report.policy.priority,
            dry_run: report.dry_run,
            isolates: names(&report.isolates),
            directions: names(&report.directions),
            subjects: &report.subjects,
            namespaces: &report.namespaces,
            overrides: report.overrides.iter().map(OverrideView::new).collect(),
            overridden_by: report.overridden_by.iter().map(OverrideView::new).collect(),
            defers_to: report.defers_to.iter().map(OverrideView::new).collect(),
            out_of_reach: report.out_of_reach.iter().map(ReachView::new).collect(),
            file: position.map(|(file, _)| file.as_str()),
            line: position.map(|(_, line)| *line),
        }
    }
}

/// A NetworkPolicy that isolates pods which a policy of the Baseline tier selects.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ReachView<'r> {
    policy: &'r str,
    direction: &'static str,
    subjects: &'r [String],
}

impl<'r> ReachView<'r> {
    fn new(it: &'r Unreached) -> ReachView<'r> {
        ReachView {
            policy: &it.policy,
            direction: direction_name(it.direction),
            subjects: &it.subjects,
        }
    }
}
