//! Builds explanations from the answers of the engine.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use palisade_api::{Lines, Object, Source};
use palisade_core::EndName;
use palisade_core::analysis::nearest::{NearMiss, nearest};
use palisade_core::answer::{
    Answer, DirectionAnswer, FlowAnswer, FlowEvaluator, Note, Outcome, PortAnswer, join,
};
use palisade_core::decide::Cause;
use palisade_core::explain::TrailStep;
use palisade_core::model::{Policy, PolicyId};
use palisade_core::policy::{Direction, Verdict};
use palisade_core::program::RulePlace;

use super::miss;
use super::{
    DirectionReport, EvaluatedEnds, Evaluation, Explanation, Failure, MissReport, PolicyReport,
    Position, RuleName, RuleReport, StepReport,
};
use crate::report::flow::NamedFlow;
use crate::report::proposal::Proposals;
use crate::report::unread::{UnreadAtFlow, UnreadObject};

/// How much an explanation has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// Whether it has all rules of the policies, also those that do not match.
    pub full_trail: bool,
    /// Whether it has near misses of denied flows.
    pub why_not: bool,
    /// Whether it has what only the text shows.
    pub for_text: bool,
}

impl Detail {
    /// Returns all details.
    pub fn everything() -> Detail {
        Detail {
            full_trail: true,
            why_not: true,
            for_text: true,
        }
    }
}

/// The evaluator and the sources from which explanations are built.
#[derive(Debug)]
pub struct Explainer<'t> {
    evaluator: &'t FlowEvaluator<'t>,
    objects: &'t [Object<'t>],
    sources: &'t [Source],
    detail: Detail,
    unread: &'t [UnreadObject],
    lines: Vec<OnceLock<Lines<'t>>>,
}

impl<'t> Explainer<'t> {
    /// Creates an explainer for the objects of an evaluator.
    pub fn new(
        evaluator: &'t FlowEvaluator<'t>,
        objects: &'t [Object<'t>],
        sources: &'t [Source],
        detail: Detail,
    ) -> Explainer<'t> {
        let lines = sources.iter().map(|_| OnceLock::new());
        Explainer {
            evaluator,
            objects,
            sources,
            detail,
            unread: &[],
            lines: lines.collect(),
        }
    }

    /// Adds the unreadable policies, which explanations name where they could select an end.
    pub fn with_unread(self, unread: &'t [UnreadObject]) -> Explainer<'t> {
        Explainer { unread, ..self }
    }

    /// Returns the evaluator.
    pub fn evaluator(&self) -> &'t FlowEvaluator<'t> {
        self.evaluator
    }

    /// Returns an explainer without near misses: a set of ports has none of its own.
    fn plainly(&self) -> Explainer<'t> {
        let detail = Detail {
            why_not: false,
            ..self.detail
        };
        let plainly = Explainer::new(self.evaluator, self.objects, self.sources, detail);
        plainly.with_unread(self.unread)
    }

    /// Builds the explanation of an answer; `queried` is the flow of the query.
    pub fn explanation(&self, queried: NamedFlow, answer: &Answer) -> Explanation<'t> {
        let head = self.detail.for_text.then(|| self.head(&queried, answer));
        let cluster = self.evaluator.cluster;
        let unread = UnreadAtFlow::of_flows(self.unread, cluster, &queried, &answer.flows);
        let mut flow = NamedFlow {
            family: answer.family,
            ..queried
        };
        let mut witness = answer.flows.first();
        let mut answers = Vec::new();
        let notes = answer.flows.iter().flat_map(|it| &it.notes).copied();
        let notes: BTreeSet<Note> = notes.collect();
        if let [single] = answer.flows.as_slice() {
            if single.via.is_some() && flow.ports.is_none() {
                flow = self.single_flow(single);
            } else if flow.ports.is_none() {
                flow = flow.with_transport(single.transport);
            }
        } else {
            let service = answer.flows.first().and_then(|single| single.via);
            let service = service.map(|id| self.evaluator.cluster.service_name(id));
            flow.via = flow.via.or(service);
            if answer.is_split() {
                witness = None;
                let explain = |single: &FlowAnswer| {
                    self.report(self.single_flow(single), &single.outcome, Some(single))
                };
                answers = answer.flows.iter().map(explain).collect();
            }
        }
        Explanation {
            head,
            notes: notes.into_iter().collect(),
            n_backends: if answers.is_empty() {
                n_backends(answer)
            } else {
                0
            },
            answers,
            unread,
            ..self.report(flow, &answer.outcome, witness)
        }
    }

    /// Returns the flow as the text names it.
    fn head(&self, queried: &NamedFlow, answer: &Answer) -> NamedFlow {
        let has_port = queried.port.is_some() || queried.ports.is_some();
        let head = match answer.flows.as_slice() {
            [single] if single.via.is_some() => self.single_flow(single),
            [single] if !has_port => queried.clone().with_transport(single.transport),
            _ => queried.clone(),
        };
        NamedFlow {
            family: None,
            ..head
        }
    }

    /// Builds an explanation for each set of ports.
    pub fn port_sets(&self, queried: &NamedFlow, answers: &[PortAnswer]) -> Vec<Explanation<'t>> {
        let plainly = self.plainly();
        let explain = |PortAnswer { ports, answer }: &PortAnswer| {
            let flow = NamedFlow {
                ports: Some(ports.clone()),
                ..queried.clone()
            };
            plainly.explanation(flow, answer)
        };
        answers.iter().map(explain).collect()
    }

    /// Builds one explanation of all sets of ports.
    pub fn any_port(&self, queried: NamedFlow, answers: &[PortAnswer]) -> Explanation<'t> {
        if let [PortAnswer { ports, answer }] = answers {
            let flow = NamedFlow {
                ports: Some(ports.clone()),
                ..queried
            };
            return self.explanation(flow, answer);
        }
        let Some(outcome) = join(answers) else {
            let error = "the destination offers no port".to_owned();
            return Explanation::unanswered(queried, error);
        };
        let mut answers = self.port_sets(&queried, answers);
        // Once for all ports.
        let unread = UnreadAtFlow::joined(answers.iter().flat_map(|it| &it.unread));
        for answer in &mut answers {
            answer.unread.clear();
        }
        Explanation {
            answers,
            unread,
            ..self.report(queried, &outcome, None)
        }
    }

    fn single_flow(&self, single: &FlowAnswer) -> NamedFlow {
        let cluster = self.evaluator.cluster;
        let flow = NamedFlow {
            source: single.source.text(cluster),
            destination: single.destination.text(cluster),
            family: single.family,
            via: single.via.map(|id| cluster.service_name(id)),
            ..NamedFlow::default()
        };
        flow.with_transport(single.transport)
    }

    fn report(
        &self,
        flow: NamedFlow,
        outcome: &Outcome,
        single: Option<&FlowAnswer>,
    ) -> Explanation<'t> {
        let direction = |direction| {
            let answer = outcome.direction(direction);
            let miss = single.and_then(|single| self.miss(single, direction, answer.cause?));
            let evaluation = single.map(|it| self.evaluation(it, direction, answer, miss.as_ref()));
            self.direction(answer, direction, evaluation)
        };
        let egress = direction(Direction::Egress);
        let ingress = direction(Direction::Ingress);
        Explanation {
            flow,
            head: None,
            verdict: outcome.verdict,
            error: None,
            egress: Some(egress),
            ingress: Some(ingress),
            proposals: Proposals::default(),
            with_reach: self.detail.full_trail,
            dry_run: Vec::new(),
            notes: Vec::new(),
            n_backends: 0,
            answers: Vec::new(),
            unread: Vec::new(),
        }
    }

    /// Returns the rule that came nearest to allowing a denied flow.
    fn miss(
        &self,
        single: &FlowAnswer,
        direction: Direction,
        cause: Cause,
    ) -> Option<NearMiss<'t>> {
        let address = match direction {
            Direction::Ingress => single.source_address,
            Direction::Egress => single.destination_address,
        };
        let (cluster, program) = (self.evaluator.cluster, self.evaluator.program);
        let denied = self.detail.why_not && cause.verdict() == Verdict::Deny;
        denied
            .then(|| nearest(cluster, program, &single.flow, direction, cause, address))
            .flatten()
    }

    fn direction(
        &self,
        answer: DirectionAnswer,
        direction: Direction,
        evaluation: Option<Evaluation<'t>>,
    ) -> DirectionReport<'t> {
        let program = self.evaluator.program;
        let place = answer.cause.and_then(Cause::rule);
        let place = place.and_then(|rule| program.place(rule));
        let deciding = answer.deciding.map(|it| it.policies(program));
        let policies = deciding.into_iter().flatten();
        DirectionReport {
            direction,
            answer,
            rule: place.map(|place| self.rule(place)),
            policies: policies
                .filter_map(|id| self.policy(id, direction))
                .collect(),
            evaluation,
        }
    }

    fn policy(&self, id: PolicyId, direction: Direction) -> Option<PolicyReport<'t>> {
        let policy = self.policy_of(id)?;
        let position = self.detail.for_text.then(|| self.policy_position(policy));
        Some(PolicyReport {
            name: self.evaluator.cluster.policy_name(id),
            is_over_budget: policy.is_over_budget,
            n_rules: policy.rules(direction).list.len(),
            position: position.flatten(),
        })
    }

    fn evaluation(
        &self,
        single: &FlowAnswer,
        direction: Direction,
        answer: DirectionAnswer,
        miss: Option<&NearMiss<'t>>,
    ) -> Evaluation<'t> {
        let program = self.evaluator.program;
        let trail = answer.cause.map(|cause| {
            let steps = program.trail(&single.flow, direction, cause);
            self.steps(steps)
        });
        let full_trail = answer.cause.filter(|_| self.detail.full_trail);
        let full_trail = full_trail.map(|cause| {
            let steps = program.full_trail(&single.flow, direction, cause);
            self.steps(steps)
        });
        let ends = self.detail.for_text;
        Evaluation {
            ends: ends.then(|| self.ends(single, direction, answer)),
            trail: trail.unwrap_or_default(),
            full_trail,
            nearest_miss: miss.map(|miss| self.miss_report(single, direction, miss)),
        }
    }

    fn ends(
        &self,
        single: &FlowAnswer,
        direction: Direction,
        answer: DirectionAnswer,
    ) -> EvaluatedEnds {
        let (cluster, program) = (self.evaluator.cluster, self.evaluator.program);
        let (subject, peer) = match direction {
            Direction::Egress => (single.source, single.destination),
            Direction::Ingress => (single.destination, single.source),
        };
        let has_rules = || {
            let steps = program.full_trail(&single.flow, direction, Cause::Default);
            !steps.is_empty()
        };
        EvaluatedEnds {
            subject: subject.text(cluster),
            peer: peer.text(cluster),
            has_rules: answer.cause == Some(Cause::Default) && has_rules(),
        }
    }

    fn steps(&self, steps: Vec<TrailStep>) -> Vec<StepReport<'t>> {
        let step = |TrailStep { rule, outcome }: TrailStep| StepReport {
            rule: self.rule_name(rule),
            outcome,
        };
        steps.into_iter().map(step).collect()
    }

    fn miss_report(
        &self,
        single: &FlowAnswer,
        direction: Direction,
        miss: &NearMiss<'t>,
    ) -> MissReport<'t> {
        let cluster = self.evaluator.cluster;
        MissReport {
            rule: cluster.rule_name(miss.rule),
            message: miss::sentence(cluster, single, direction, miss),
            position: self.rule_position(miss.rule),
        }
    }

    fn rule(&self, place: RulePlace) -> RuleReport<'t> {
        let policy = self.policy_of(place.policy);
        let rule = policy.and_then(|it| it.rules(place.direction).list.get(place.index as usize));
        let namespace = policy.and_then(|policy| policy.namespace);
        let is_over_budget = policy.is_some_and(|it| it.is_over_budget);
        let failure = if is_over_budget {
            Failure::OverBudget
        } else {
            Failure::Unreadable
        };
        RuleReport {
            name: self.rule_name(place),
            api_version: policy.map_or("", |it| it.api_version),
            kind: policy.map_or("", |it| it.api.kind()),
            namespace: namespace.map(|id| self.evaluator.cluster.namespace_name(id)),
            policy: policy.map_or("", |it| it.name),
            direction: place.direction,
            index: place.index,
            action: rule.and_then(|rule| rule.written_action),
            failure: rule.filter(|it| it.failed_closed).map(|_| failure),
            position: self.rule_position(place),
        }
    }

    fn rule_name(&self, place: RulePlace) -> RuleName<'t> {
        let policy = self.policy_of(place.policy);
        let rule = policy.and_then(|it| it.rules(place.direction).list.get(place.index as usize));
        RuleName {
            id: self.evaluator.cluster.rule_name(place),
            name: rule.and_then(|rule| rule.name),
        }
    }

    fn policy_of(&self, id: PolicyId) -> Option<&'t Policy<'t>> {
        self.evaluator.cluster.policies.get(id.0 as usize)
    }

    fn rule_position(&self, place: RulePlace) -> Option<Position<'t>> {
        let policy = self.policy_of(place.policy)?;
        let object = self.objects.get(policy.origin.0 as usize)?;
        let span = object.rule_span(place.direction, place.index as usize)?;
        self.position(object, span.start as usize)
    }

    fn policy_position(&self, policy: &Policy<'_>) -> Option<Position<'t>> {
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

/// Returns the number of backends of a Service among the flows of an answer.
fn n_backends(answer: &Answer) -> usize {
    let through = answer.flows.iter().filter(|it| it.via.is_some());
    let backends: BTreeSet<EndName> = through.map(|it| it.destination).collect();
    backends.len()
}
