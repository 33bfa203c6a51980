//! Compares the engine with the oracle on random clusters, end to end: reading, lowering,
//! compilation and evaluation. Every part of an answer must agree.

pub mod campaign;
pub(crate) mod shrink;

use std::net::IpAddr;

use palisade_api::{Code, Options, Source, lower_within, read};
use palisade_core::EndName;
use palisade_core::answer::{self, FlowAnswer, FlowEvaluator, FlowVerdict};
use palisade_core::budget::Budget;
use palisade_core::compile::compile;
use palisade_core::decide::{Absence, Cause, Exemption};
use palisade_core::net;
use palisade_core::query::FlowQuery;
use palisade_oracle::generate::{Mark, scenario};
use palisade_oracle::{Answer, Detail, Family, Oracle, Reason, Side, SideVerdict, Verdict};
use serde_json::Value;

/// A flow query with different answers, and a minimal cluster.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The seed of the scenario.
    pub seed: u64,
    /// The budget of the NetworkPolicies of each namespace.
    pub budget: Budget,
    /// The flow query.
    pub query: String,
    /// The objects.
    pub objects: Vec<Value>,
    /// The addresses of DNS names.
    pub dns: Vec<(String, IpAddr)>,
    /// The engine's answer.
    pub engine: Answer,
    /// The oracle's answer.
    pub oracle: Answer,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.query)?;
        writeln!(f, "  at most {} entries", self.budget.entries())?;
        for object in &self.objects {
            writeln!(f, "  {object}")?;
        }
        for (name, address) in &self.dns {
            writeln!(f, "  dns {name} {address}")?;
        }
        writeln!(f, "  engine: {:?}", self.engine)?;
        write!(f, "  oracle: {:?}", self.oracle)
    }
}

/// The comparison of a scenario.
#[derive(Clone, Debug, Default)]
pub struct Compared {
    /// Equal answers.
    pub verdicts: u64,
    /// Queries for which both report that there is no answer.
    pub unanswered: u64,
    /// Policies over the budget of their namespace.
    pub over_budget: usize,
    /// The first difference.
    pub differences: Vec<Difference>,
    /// The combinations that its policies contain.
    pub marks: Vec<Mark>,
}

/// Compares engine and oracle on the scenario of a seed.
pub fn compare(seed: u64, n_queries: usize) -> Compared {
    let mut scenario = scenario(seed, n_queries);
    let budget = budget(seed);
    if budget != Budget::default() {
        set_creation_times(&mut scenario.objects);
    }
    let (engine, over_budget) =
        engine_answers(budget, &scenario.objects, &scenario.dns, &scenario.queries);
    let oracle = Oracle::within(budget.entries(), &scenario.objects, &scenario.dns);
    let mut compared = Compared {
        marks: scenario.marks,
        over_budget,
        ..Compared::default()
    };
    for (query, engine) in scenario.queries.iter().zip(engine) {
        let oracle = normalized(oracle.answer(query));
        if engine == oracle {
            if oracle.error {
                compared.unanswered += 1;
            } else {
                compared.verdicts += 1;
            }
            continue;
        }
        let difference = Difference {
            seed,
            budget,
            query: query.clone(),
            objects: scenario.objects.clone(),
            dns: scenario.dns.clone(),
            engine,
            oracle,
        };
        // One difference of a scenario is enough.
        compared.differences.push(shrink::shrink(difference));
        break;
    }
    compared
}

/// The budget of namespaces in the scenario of a seed (D148): in every fourth one, policies exceed
/// it.
fn budget(seed: u64) -> Budget {
    if seed % 4 == 3 {
        Budget::new(1 + seed / 4 % 12)
    } else {
        Budget::default()
    }
}

/// Sets creation times of NetworkPolicies that are not in the order of their names; some are
/// missing or unusual.
fn set_creation_times(objects: &mut [Value]) {
    let is_policy = |it: &&mut Value| it.get("kind").is_some_and(|kind| kind == "NetworkPolicy");
    for (index, object) in objects.iter_mut().filter(is_policy).enumerate() {
        let time = match index * 5 % 8 {
            6 => "2026-01-01T00:00:00+01:00".to_owned(),
            7 => continue,
            day => format!("2026-01-0{}T00:00:00Z", 7 - day / 2),
        };
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("creationTimestamp".to_owned(), Value::String(time));
        }
    }
}

/// Both answers to one query.
fn both_answers(
    budget: Budget,
    objects: &[Value],
    dns: &[(String, IpAddr)],
    query: &str,
) -> (Answer, Answer) {
    let queries = [query.to_owned()];
    let engine = engine_answers(budget, objects, dns, &queries).0.pop();
    let oracle = Oracle::within(budget.entries(), objects, dns).answer(query);
    (engine.unwrap_or_else(no_answer), normalized(oracle))
}

/// The engine's answers in the oracle's types, and the number of policies over the budget.
fn engine_answers(
    budget: Budget,
    objects: &[Value],
    dns: &[(String, IpAddr)],
    queries: &[String],
) -> (Vec<Answer>, usize) {
    let text = serde_json::to_vec(objects).unwrap_or_default();
    let sources = [Source::new("objects.json", text)];
    let manifests = read(&sources, Options::default(), &|_| {});
    let lowered = lower_within(&manifests.objects, dns.to_vec(), budget);
    let program = compile(&lowered.cluster);
    let evaluator = FlowEvaluator::new(&lowered.cluster, &program);
    let translation = Translation {
        evaluator: &evaluator,
    };
    let answer = |text: &String| {
        let query = FlowQuery::parse(text).ok();
        let answer = query.and_then(|query| evaluator.answer(&query).ok());
        answer.map_or_else(no_answer, |answer| normalized(translation.answer(&answer)))
    };
    let problems = lowered.problems.iter();
    let over = problems.filter(|it| it.code == Code::OverBudget).count();
    (queries.iter().map(answer).collect(), over)
}

fn no_answer() -> Answer {
    Answer {
        verdict: Verdict::Unknown,
        error: true,
        family: None,
        source: String::new(),
        destination: String::new(),
        egress: None,
        ingress: None,
        answers: Vec::new(),
    }
}

/// Removes the names of the query, and sorts the flows.
fn normalized(mut answer: Answer) -> Answer {
    answer.source.clear();
    answer.destination.clear();
    answer.answers.sort();
    answer
}

struct Translation<'r> {
    evaluator: &'r FlowEvaluator<'r>,
}

impl Translation<'_> {
    fn answer(&self, answer: &answer::Answer) -> Answer {
        let flow_answers = answer.flows.iter().filter(|_| answer.is_split());
        Answer {
            answers: flow_answers
                .map(|flow_answer| self.flow_answer(flow_answer))
                .collect(),
            ..self.outcome(&answer.outcome, answer.family)
        }
    }

    fn flow_answer(&self, flow_answer: &FlowAnswer) -> Answer {
        Answer {
            source: self.end(flow_answer.source),
            destination: self.end(flow_answer.destination),
            ..self.outcome(&flow_answer.outcome, flow_answer.family)
        }
    }

    fn end(&self, end: EndName) -> String {
        end.text(self.evaluator.cluster)
    }

    fn outcome(&self, outcome: &answer::Outcome, family: Option<net::Family>) -> Answer {
        Answer {
            verdict: match outcome.verdict {
                FlowVerdict::Allow => Verdict::Allow,
                FlowVerdict::Deny => Verdict::Deny,
                FlowVerdict::Mixed => Verdict::Mixed,
                FlowVerdict::Unknown => Verdict::Unknown,
            },
            error: false,
            family: family.map(|family| match family {
                net::Family::V4 => Family::V4,
                net::Family::V6 => Family::V6,
            }),
            egress: Some(self.side(outcome.egress)),
            ingress: Some(self.side(outcome.ingress)),
            ..no_answer()
        }
    }

    fn side(&self, side: answer::DirectionAnswer) -> Side {
        let (cluster, program) = (self.evaluator.cluster, self.evaluator.program);
        let place = side
            .cause
            .and_then(Cause::rule)
            .and_then(|it| program.place(it));
        let behind = side.deciding.map(|behind| behind.policies(program));
        let policies = behind.into_iter().flatten();
        let mut policies: Vec<String> = policies.map(|id| cluster.policy_name(id)).collect();
        policies.sort();
        Side {
            verdict: match side.verdict {
                answer::DirectionVerdict::Allow => SideVerdict::Allow,
                answer::DirectionVerdict::Deny => SideVerdict::Deny,
                answer::DirectionVerdict::Mixed => SideVerdict::Mixed,
                answer::DirectionVerdict::Unknown => SideVerdict::Unknown,
                answer::DirectionVerdict::Exempt => SideVerdict::Exempt,
                answer::DirectionVerdict::NotApplicable => SideVerdict::NotApplicable,
            },
            reason: side.reason.map(reason),
            detail: side.cause.and_then(detail),
            rule: place.map(|place| {
                let policy = cluster.policy_name(place.policy);
                format!("{policy}#{}[{}]", place.direction.key(), place.index)
            }),
            policies,
        }
    }
}

fn reason(reason: answer::Reason) -> Reason {
    match reason {
        answer::Reason::AdminRule => Reason::AdminRule,
        answer::Reason::NetworkPolicyRule => Reason::NetworkPolicyRule,
        answer::Reason::Isolation => Reason::Isolation,
        answer::Reason::BaselineRule => Reason::BaselineRule,
        answer::Reason::DefaultIsolation => Reason::DefaultIsolation,
        answer::Reason::Default => Reason::Default,
        answer::Reason::Exempt => Reason::Exempt,
        answer::Reason::NotApplicable => Reason::NotApplicable,
    }
}

fn detail(cause: Cause) -> Option<Detail> {
    match cause {
        Cause::Exempt(Exemption::Reply) => Some(Detail::Reply),
        Cause::Exempt(Exemption::NodeLocal) => Some(Detail::NodeLocal),
        Cause::Exempt(Exemption::SelfAddress) => Some(Detail::SelfAddress),
        Cause::Exempt(Exemption::NeighborDiscovery) => Some(Detail::NeighborDiscovery),
        Cause::NotApplicable(Absence::HostNetwork) => Some(Detail::HostNetwork),
        Cause::NotApplicable(Absence::Node) => Some(Detail::Node),
        Cause::NotApplicable(Absence::External) => Some(Detail::External),
        Cause::AdminRule(..)
        | Cause::NetworkPolicyRule(_)
        | Cause::Isolation(_)
        | Cause::BaselineRule(..)
        | Cause::DefaultIsolation(_)
        | Cause::Default => None,
    }
}
