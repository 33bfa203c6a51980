//! The documents of `explain`.

use std::sync::OnceLock;

use palisade_api::{Lines, Object, Source};
use palisade_core::EndName;
use palisade_core::analysis::nearest::{NearMiss, nearest};
use palisade_core::analysis::remedy::{Denial, remedies};
use palisade_core::answer::{
    Answer, DirectionAnswer, FlowAnswer, FlowEvaluator, FlowVerdict, Outcome, PortAnswer, Reason,
    Transport, join,
};
use palisade_core::decide::{Absence, Cause, Exemption};
use palisade_core::explain::Step;
use palisade_core::model::{Policy, PolicyId};
use palisade_core::policy::{Direction, Verdict};
use palisade_core::program::RulePlace;
use palisade_core::query::PortQuery;
use serde::Serialize;

use super::API_VERSION;
use crate::remedy_text;

/// The evaluator and the sources from which explanations are built.
pub(crate) struct ExplainContext<'t> {
    pub(crate) respondent: &'t FlowEvaluator<'t>,
    pub(crate) objects: &'t [Object<'t>],
    pub(crate) sources: &'t [Source],
    /// Whether the trail includes rules that did not match.
    pub(crate) full_trail: bool,
    /// Whether to find near misses and remedies for denied flows.
    pub(crate) why_not: bool,
    lines: Vec<OnceLock<Lines<'t>>>,
}

/// The position of a rule or policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position<'t> {
    pub(crate) file: &'t str,
    pub(crate) line: usize,
    /// The source from the start of the line on.
    pub(crate) rest: &'t str,
}

impl<'t> ExplainContext<'t> {
    pub(crate) fn new(
        respondent: &'t FlowEvaluator<'t>,
        objects: &'t [Object<'t>],
        sources: &'t [Source],
        full_trail: bool,
        why_not: bool,
    ) -> ExplainContext<'t> {
        let lines = sources.iter().map(|_| OnceLock::new());
        ExplainContext {
            respondent,
            objects,
            sources,
            full_trail,
            why_not,
            lines: lines.collect(),
        }
    }

    /// Returns a context without near misses and remedies: a set of ports has none of its own.
    pub(crate) fn plainly(&self) -> ExplainContext<'t> {
        let (objects, sources) = (self.objects, self.sources);
        ExplainContext::new(self.respondent, objects, sources, self.full_trail, false)
    }

    /// Names an endpoint.
    pub(crate) fn end_name(&self, endpoint: EndName) -> String {
        endpoint.text(self.respondent.cluster)
    }

    /// Returns the id of a rule.
    pub(crate) fn rule_id(&self, place: RulePlace) -> String {
        self.respondent.cluster.rule_name(place)
    }

    /// Returns the position of a rule.
    pub(crate) fn rule_position(&self, place: RulePlace) -> Option<Position<'t>> {
        let policy = self
            .respondent
            .cluster
            .policies
            .get(place.policy.0 as usize)?;
        let object = self.objects.get(policy.origin.0 as usize)?;
        let span = object.rule_span(place.direction, place.index as usize)?;
        self.position(object, span.start as usize)
    }

    /// Returns the position of a policy.
    pub(crate) fn policy_position(&self, id: PolicyId) -> Option<Position<'t>> {
        let policy = self.respondent.cluster.policies.get(id.0 as usize)?;
        let object = self.objects.get(policy.origin.0 as usize)?;
        self.position(object, object.metadata.name_span.start as usize)
    }

    fn position(&self, object: &Object<'_>, offset: usize) -> Option<Position<'t>> {
        let index = object.source.0 as usize;
        let source = self.sources.get(index)?;
        let lines = self
            .lines
            .get(index)?
            .get_or_init(|| Lines::new(source.text()));
        let line = lines.line_of(offset);
        let start = lines.line(line).start;
        // A list on one line has much text before the rule.
        let start = if offset - start > FAR { offset } else { start };
        let text = source.text();
        let mut end = text.len().min(start + MOST_SHOWN);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        Some(Position {
            file: source.name(),
            line,
            rest: text.get(start..end).unwrap_or_default(),
        })
    }
}

/// A rule that starts this many bytes into its line is shown without the start of the line.
const FAR: usize = 200;

/// The most bytes of a rule that are shown.
const MOST_SHOWN: usize = 1 << 14;

/// An explanation.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExplanationView {
    api_version: &'static str,
    kind: &'static str,
    flow: FlowView,
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    egress: Option<SideView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ingress: Option<SideView>,
    /// The remedies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changes: Vec<String>,
    /// The verdicts of audited policies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dry_run: Vec<DryRunView>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    answers: Vec<ExplanationView>,
}

/// The verdict that an audited policy would have.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DryRunView {
    pub(crate) policy: String,
    pub(crate) verdict: &'static str,
}

/// Several explanations.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExplanationSetView {
    api_version: &'static str,
    kind: &'static str,
    explanations: Vec<ExplanationView>,
}

impl ExplanationSetView {
    pub(crate) fn new(explanations: Vec<ExplanationView>) -> ExplanationSetView {
        ExplanationSetView {
            api_version: API_VERSION,
            kind: "ExplanationSet",
            explanations,
        }
    }
}

/// The flow that is explained.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FlowView {
    pub(crate) source: String,
    pub(crate) destination: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) protocol: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) port: Option<u16>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) ports: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) family: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) via: Option<String>,
}

impl FlowView {
    /// Sets the protocol and port of a query.
    pub(crate) fn carry(&mut self, port: &PortQuery) {
        match port {
            PortQuery::Number(protocol, number) => {
                self.protocol = Some(protocol.name().to_owned());
                self.port = Some(number.get());
            }
            PortQuery::Name(protocol, _) => self.protocol = Some(protocol.name().to_owned()),
            PortQuery::Icmp => self.protocol = Some("ICMP".to_owned()),
            PortQuery::Icmp6(_) => self.protocol = Some("ICMPv6".to_owned()),
            PortQuery::Ip(number) => self.protocol = Some(number.to_string()),
            PortQuery::Any => {}
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SideView {
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<RuleView>,
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

/// The rule that came nearest to allowing a denied flow.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MissView {
    rule: String,
    message: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RuleView {
    id: String,
    api_version: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    name: String,
    direction: &'static str,
    index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    failed_closed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct StepView {
    rule: String,
    outcome: &'static str,
}

/// Returns the name of a verdict.
pub(crate) fn verdict(verdict: FlowVerdict) -> &'static str {
    match verdict {
        FlowVerdict::Allow => "Allow",
        FlowVerdict::Deny => "Deny",
        FlowVerdict::Mixed => "Mixed",
        FlowVerdict::Unknown => "Unknown",
    }
}

/// Returns the name of an exemption or absence.
pub(crate) fn detail(cause: Cause) -> Option<&'static str> {
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

impl FlowView {
    /// Sets the protocol and port of an evaluated flow.
    pub(crate) fn carrying(mut self, carried: Transport) -> FlowView {
        match carried {
            Transport::Port(protocol, port) => {
                self.protocol = Some(protocol.name().to_owned());
                self.port = Some(port.get());
            }
            Transport::Icmp => self.protocol = Some("ICMP".to_owned()),
            Transport::Icmp6(_) => self.protocol = Some("ICMPv6".to_owned()),
            Transport::Ip(number) => self.protocol = Some(number.to_string()),
        }
        self
    }
}

impl<'t> ExplainContext<'t> {
    /// Builds the explanation of an answer; `queried` is the flow of the query.
    pub(crate) fn explanation(&self, queried: FlowView, answer: &Answer) -> ExplanationView {
        let mut flow = FlowView {
            family: answer.family.map(|family| family.to_string()),
            ..queried
        };
        let mut witness = answer.flows.first();
        let mut answers = Vec::new();
        if let [single] = answer.flows.as_slice() {
            if single.via.is_some() && flow.ports.is_empty() {
                flow = self.single_flow(single);
            } else if flow.ports.is_empty() {
                flow = flow.carrying(single.transport);
            }
        } else {
            let service = answer.flows.first().and_then(|single| single.via);
            flow.via = flow
                .via
                .or(service.map(|id| self.respondent.cluster.service_name(id)));
            if answer.is_split() {
                witness = None;
                let singles = answer.flows.iter();
                answers = singles
                    .map(|single| {
                        self.view(self.single_flow(single), &single.outcome, Some(single))
                    })
                    .collect();
            }
        }
        let mut view = self.view(flow, &answer.outcome, witness);
        view.answers = answers;
        view
    }

    /// Builds the explanation of a query that could not be answered.
    pub(crate) fn unanswered(queried: FlowView, error: String) -> ExplanationView {
        ExplanationView {
            api_version: API_VERSION,
            kind: "Explanation",
            flow: queried,
            verdict: "Unknown",
            error: Some(error),
            egress: None,
            ingress: None,
            changes: Vec::new(),
            dry_run: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// Builds an explanation for each set of ports.
    pub(crate) fn port_sets(
        &self,
        queried: &FlowView,
        answers: &[PortAnswer],
    ) -> Vec<ExplanationView> {
        let plainly = self.plainly();
        let explain = |PortAnswer { ports, answer }: &PortAnswer| {
            let flow = FlowView {
                ports: ports.text(),
                ..queried.clone()
            };
            plainly.explanation(flow, answer)
        };
        answers.iter().map(explain).collect()
    }

    /// Builds one explanation of all sets of ports.
    pub(crate) fn any_port(&self, queried: FlowView, answers: &[PortAnswer]) -> ExplanationView {
        if let [PortAnswer { ports, answer }] = answers {
            let flow = FlowView {
                ports: ports.text(),
                ..queried
            };
            return self.explanation(flow, answer);
        }
        let Some(outcome) = join(answers) else {
            return ExplainContext::unanswered(
                queried,
                "the destination offers no port".to_owned(),
            );
        };
        ExplanationView {
            answers: self.port_sets(&queried, answers),
            ..self.view(queried, &outcome, None)
        }
    }

    pub(crate) fn single_flow(&self, single: &FlowAnswer) -> FlowView {
        let flow = FlowView {
            source: self.end_name(single.source),
            destination: self.end_name(single.destination),
            family: single.family.map(|family| family.to_string()),
            via: single
                .via
                .map(|id| self.respondent.cluster.service_name(id)),
            ..FlowView::default()
        };
        flow.carrying(single.transport)
    }

    fn view(
        &self,
        flow: FlowView,
        outcome: &Outcome,
        single: Option<&FlowAnswer>,
    ) -> ExplanationView {
        ExplanationView {
            api_version: API_VERSION,
            kind: "Explanation",
            flow,
            verdict: verdict(outcome.verdict),
            error: None,
            egress: Some(self.side(outcome.egress, Direction::Egress, single)),
            ingress: Some(self.side(outcome.ingress, Direction::Ingress, single)),
            changes: single.map_or_else(Vec::new, |single| self.changes(single)),
            dry_run: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// Returns the remedies of a flow, each in one text.
    fn changes(&self, single: &FlowAnswer) -> Vec<String> {
        let (cluster, program) = (self.respondent.cluster, self.respondent.program);
        let found = remedies(cluster, program, single, &self.denials(single));
        let found = found.iter();
        found
            .map(|remedy| remedy_text::change(self, single, remedy).join("\n"))
            .collect()
    }

    /// Returns the directions in which a flow is denied, with their near misses.
    pub(crate) fn denials(&self, single: &FlowAnswer) -> Vec<Denial<'t>> {
        let directions = [Direction::Egress, Direction::Ingress].into_iter();
        let denials = directions.filter_map(|direction| {
            let cause = single.outcome.direction(direction).cause?;
            (cause.verdict() == Verdict::Deny && self.why_not).then(|| Denial {
                direction,
                cause,
                miss: self.miss(single, direction, cause),
            })
        });
        denials.collect()
    }

    /// Returns the rule that came nearest to allowing a denied flow.
    pub(crate) fn miss(
        &self,
        single: &FlowAnswer,
        direction: Direction,
        cause: Cause,
    ) -> Option<NearMiss<'t>> {
        let address = match direction {
            Direction::Ingress => single.source_address,
            Direction::Egress => single.destination_address,
        };
        let (cluster, program) = (self.respondent.cluster, self.respondent.program);
        let denied = self.why_not && cause.verdict() == Verdict::Deny;
        denied
            .then(|| nearest(cluster, program, &single.flow, direction, cause, address))
            .flatten()
    }

    fn side(
        &self,
        side: DirectionAnswer,
        direction: Direction,
        single: Option<&FlowAnswer>,
    ) -> SideView {
        let program = self.respondent.program;
        let rule = side
            .cause
            .and_then(Cause::rule)
            .and_then(|it| program.place(it));
        SideView {
            verdict: side.verdict.name(),
            reason: side.reason.map(Reason::name),
            detail: side.cause.and_then(detail),
            tier: side.reason.and_then(tier),
            rule: rule.map(|place| self.rule(place)),
            policies: self.policies(side),
            over_budget: self.over_budget(side),
            trail: match (single, side.cause) {
                (Some(single), Some(cause)) => self.trail(single, direction, cause),
                _ => Vec::new(),
            },
            nearest_miss: match (single, side.cause) {
                (Some(single), Some(cause)) => {
                    let miss = self.miss(single, direction, cause);
                    miss.map(|miss| MissView {
                        rule: self.rule_id(miss.rule),
                        message: remedy_text::miss(self, single, direction, &miss),
                    })
                }
                _ => None,
            },
        }
    }

    /// Returns the policies that decide a direction: those that isolate, or the one whose rule
    /// decides.
    pub(crate) fn policies(&self, side: DirectionAnswer) -> Vec<String> {
        self.deciding_policies(side, |_| true)
    }

    /// Returns those of [`Self::policies`] that do not fit into the budgets of their namespaces
    /// (D148).
    pub(crate) fn over_budget(&self, side: DirectionAnswer) -> Vec<String> {
        self.deciding_policies(side, |policy| policy.is_over_budget)
    }

    fn deciding_policies(
        &self,
        side: DirectionAnswer,
        counts: impl Fn(&Policy<'_>) -> bool,
    ) -> Vec<String> {
        let program = self.respondent.program;
        let cluster = self.respondent.cluster;
        let deciding = side.deciding.map(|deciding| deciding.policies(program));
        let policies = deciding.into_iter().flatten();
        let counting = policies.filter(|id| {
            let policy = cluster.policies.get(id.0 as usize);
            policy.is_some_and(&counts)
        });
        let mut policies: Vec<String> = counting.map(|id| cluster.policy_name(id)).collect();
        policies.sort();
        policies
    }

    fn trail(&self, single: &FlowAnswer, direction: Direction, cause: Cause) -> Vec<StepView> {
        let program = self.respondent.program;
        let steps = if self.full_trail {
            program.full_trail(&single.flow, direction, cause)
        } else {
            program.trail(&single.flow, direction, cause)
        };
        let view = |Step { rule, outcome }: Step| StepView {
            rule: self.rule_id(rule),
            outcome: outcome.name(),
        };
        steps.into_iter().map(view).collect()
    }

    fn rule(&self, place: RulePlace) -> RuleView {
        let cluster = self.respondent.cluster;
        let policy = cluster.policies.get(place.policy.0 as usize);
        let rule = policy.and_then(|it| it.rules(place.direction).list.get(place.index as usize));
        let namespace = policy.and_then(|policy| policy.namespace);
        let position = self.rule_position(place);
        RuleView {
            id: self.rule_id(place),
            api_version: policy.map_or("", |it| it.api_version).to_owned(),
            kind: policy.map_or("", |it| it.api.kind()),
            namespace: namespace.map(|id| cluster.namespace_name(id).to_owned()),
            name: policy.map_or("", |it| it.name).to_owned(),
            direction: match place.direction {
                Direction::Ingress => "Ingress",
                Direction::Egress => "Egress",
            },
            index: place.index,
            rule_name: rule.and_then(|rule| rule.name).map(str::to_owned),
            action: rule.and_then(|rule| rule.written_action).map(str::to_owned),
            failed_closed: rule.is_some_and(|rule| rule.failed_closed),
            file: position.map(|it| it.file.to_owned()),
            line: position.map(|it| it.line),
        }
    }
}

impl ExplanationView {
    /// Adds the verdicts of audited policies.
    pub(crate) fn with_dry_run(self, dry_run: Vec<DryRunView>) -> ExplanationView {
        ExplanationView { dry_run, ..self }
    }
}
