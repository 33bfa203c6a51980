//! The engine compared with the oracle on random clusters, end to end: the objects go through the
//! reader, the lowering, the program and the answers, and every part of an answer must agree.

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

/// A question that the two answer differently, with the smallest cluster in which they do.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The seed of the scenario.
    pub seed: u64,
    /// What the NetworkPolicies of each namespace may be together.
    pub budget: Budget,
    /// The question.
    pub question: String,
    /// The objects.
    pub objects: Vec<Value>,
    /// What names have resolved to.
    pub dns: Vec<(String, IpAddr)>,
    /// What the engine says.
    pub engine: Answer,
    /// What the oracle says.
    pub oracle: Answer,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.question)?;
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

/// What comparing a scenario came to.
#[derive(Clone, Debug, Default)]
pub struct Compared {
    /// How many questions were answered alike.
    pub verdicts: u64,
    /// How many could not be asked, as both say.
    pub unaskable: u64,
    /// How many policies did not fit into the budget of their namespace.
    pub over_budget: usize,
    /// The first one that was answered differently.
    pub differences: Vec<Difference>,
    /// What its policies contained.
    pub marks: Vec<Mark>,
}

/// Compares engine and oracle on the scenario of a seed.
pub fn compare(seed: u64, n_questions: usize) -> Compared {
    let mut scenario = scenario(seed, n_questions);
    let budget = budget(seed);
    if budget != Budget::default() {
        give_ages(&mut scenario.objects);
    }
    let (engine, over_budget) =
        answers(budget, &scenario.objects, &scenario.dns, &scenario.queries);
    let oracle = Oracle::within(budget.entries(), &scenario.objects, &scenario.dns);
    let mut compared = Compared {
        marks: scenario.marks,
        over_budget,
        ..Compared::default()
    };
    for (question, engine) in scenario.queries.iter().zip(engine) {
        let oracle = normal(oracle.answer(question));
        if engine == oracle {
            if oracle.error {
                compared.unaskable += 1;
            } else {
                compared.verdicts += 1;
            }
            continue;
        }
        let difference = Difference {
            seed,
            budget,
            question: question.clone(),
            objects: scenario.objects.clone(),
            dns: scenario.dns.clone(),
            engine,
            oracle,
        };
        // One of a scenario says enough.
        compared.differences.push(shrink::shrink(difference));
        break;
    }
    compared
}

/// The budget of namespaces in the scenario of a seed (D148): in every fourth one so small that policies do not fit.
fn budget(seed: u64) -> Budget {
    if seed % 4 == 3 {
        Budget::new(1 + seed / 4 % 12)
    } else {
        Budget::default()
    }
}

/// Gives NetworkPolicies times of creation that are not in the order of their names, and some none or an unusual one.
fn give_ages(objects: &mut [Value]) {
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

/// The two answers to one question.
fn both(
    budget: Budget,
    objects: &[Value],
    dns: &[(String, IpAddr)],
    question: &str,
) -> (Answer, Answer) {
    let questions = [question.to_owned()];
    let engine = answers(budget, objects, dns, &questions).0.pop();
    let oracle = Oracle::within(budget.entries(), objects, dns).answer(question);
    (engine.unwrap_or_else(unasked), normal(oracle))
}

/// The engine's answers in the oracle's types, and how many policies it says do not fit.
fn answers(
    budget: Budget,
    objects: &[Value],
    dns: &[(String, IpAddr)],
    questions: &[String],
) -> (Vec<Answer>, usize) {
    let text = serde_json::to_vec(objects).unwrap_or_default();
    let sources = [Source::new("objects.json", text)];
    let manifests = read(&sources, Options::default(), &|_| {});
    let lowered = lower_within(&manifests.objects, dns.to_vec(), budget);
    let program = compile(&lowered.cluster);
    let respondent = FlowEvaluator::new(&lowered.cluster, &program);
    let translation = Translation {
        respondent: &respondent,
    };
    let answer = |text: &String| {
        let question = FlowQuery::parse(text).ok();
        let answer = question.and_then(|question| respondent.answer(&question).ok());
        answer.map_or_else(unasked, |answer| normal(translation.answer(&answer)))
    };
    let problems = lowered.problems.iter();
    let over = problems.filter(|it| it.code == Code::OverBudget).count();
    (questions.iter().map(answer).collect(), over)
}

fn unasked() -> Answer {
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

/// Names of the whole question do not matter, nor the order of single flows.
fn normal(mut answer: Answer) -> Answer {
    answer.source.clear();
    answer.destination.clear();
    answer.answers.sort();
    answer
}

struct Translation<'r> {
    respondent: &'r FlowEvaluator<'r>,
}

impl Translation<'_> {
    fn answer(&self, answer: &answer::Answer) -> Answer {
        let singles = answer.flows.iter().filter(|_| answer.is_split());
        Answer {
            answers: singles.map(|single| self.single(single)).collect(),
            ..self.outcome(&answer.outcome, answer.family)
        }
    }

    fn single(&self, single: &FlowAnswer) -> Answer {
        Answer {
            source: self.party(single.source),
            destination: self.party(single.destination),
            ..self.outcome(&single.outcome, single.family)
        }
    }

    fn party(&self, party: EndName) -> String {
        party.text(self.respondent.cluster)
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
            ..unasked()
        }
    }

    fn side(&self, side: answer::DirectionAnswer) -> Side {
        let (cluster, program) = (self.respondent.cluster, self.respondent.program);
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
