//! Proposals of `explain` on random clusters: each is applied to the manifests, and the oracle
//! evaluates the query and all pairs of pods before and after it.

pub mod campaign;
mod yaml;

use std::collections::BTreeMap;
use std::net::IpAddr;

use palisade::proposals::{EditInput, Proposer, Proven};
use palisade::report::proposal::Reach;
use palisade_api::{Options, Problem, Severity, Source, lower_within, read};
use palisade_core::answer::{FlowEvaluator, FlowVerdict};
use palisade_core::budget::Budget;
use palisade_core::compile::compile;
use palisade_core::model::{Cluster, PodPhase};
use palisade_core::query::FlowQuery;
use palisade_oracle::generate::scenario;
use palisade_oracle::{Oracle, Verdict};
use serde_json::Value;

/// Ports whose flows are compared between all pods, besides the port of the query.
const PORTS: [&str; 4] = ["tcp/80", "udp/53", "tcp/9090", "icmp"];

/// The proposals of the scenarios so far.
#[derive(Clone, Debug, Default)]
pub struct Compared {
    /// Denied queries.
    pub denied: u64,
    /// Denied queries with a proposal.
    pub answered: u64,
    /// Denied queries for which the answer names who must act.
    pub must_act: u64,
    /// Proposals.
    pub proposals: u64,
    /// Proposals with a change outside the queried pairs.
    pub wider: u64,
    /// Flows compared before and after.
    pub flows: u64,
    /// What is wrong, with the seed and the query.
    pub mistakes: Vec<String>,
}

/// Tries every proposal for the denied queries of a seed's scenario.
pub fn compare(seed: u64, n_queries: usize) -> Compared {
    let scenario = scenario(seed, n_queries);
    let sources = sources(seed, &scenario.objects);
    let options = Options::default();
    let manifests = read(&sources, options, &|_| {});
    let lowered = lower_within(&manifests.objects, scenario.dns.clone(), Budget::default());
    let program = compile(&lowered.cluster);
    let evaluator = FlowEvaluator::new(&lowered.cluster, &program);
    let known = EditInput {
        sources: &sources,
        n_files: sources.len(),
        options,
        learned: &scenario.dns,
        budget: Budget::default(),
        objects: &manifests.objects,
        problems: manifests.problems.iter().chain(&lowered.problems).collect(),
        cluster: &lowered.cluster,
    };
    let proposer = Proposer {
        known: &known,
        program: &program,
        roots: &[],
        most_bytes: usize::MAX,
    };
    let before = objects(&sources);
    let trial = Trial {
        seed,
        dns: &scenario.dns,
        sources: &sources,
        n_errors: errors(manifests.problems.iter()),
        oracle: Oracle::new(&before, &scenario.dns),
        before: &before,
        pods: pods(&lowered.cluster),
    };
    let mut compared = Compared::default();
    for line in &scenario.queries {
        let Ok(query) = FlowQuery::parse(line) else {
            continue;
        };
        let Ok(answer) = evaluator.answer(&query) else {
            continue;
        };
        if answer.outcome.verdict != FlowVerdict::Deny {
            continue;
        }
        compared.denied += 1;
        let proposals = proposer.proposals(&query, &answer);
        compared.answered += u64::from(!proposals.list.is_empty());
        compared.must_act += u64::from(proposals.report().must_act.is_some());
        for proven in &proposals.list {
            compared.proposals += 1;
            let wider = proven.proposal.allows.n_pairs > proven.proposal.n_queried;
            compared.wider += u64::from(wider);
            trial.try_out(line, proven, &mut compared);
        }
        if !compared.mistakes.is_empty() {
            break;
        }
    }
    compared
}

/// Writes each object to a file: as YAML in blocks, or as JSON.
fn sources(seed: u64, objects: &[Value]) -> Vec<Source> {
    let sources = objects.iter().enumerate().map(|(index, object)| {
        let is_json = (seed + index as u64).is_multiple_of(3);
        let (name, text) = if is_json {
            (format!("{index}.json"), object.to_string())
        } else {
            // A text that is no manifest shows in the comparison.
            let text = serde_saphyr::to_string(object).unwrap_or_default();
            (format!("{index}.yaml"), text)
        };
        Source::new(name, text.into_bytes())
    });
    sources.collect()
}

/// Reads the objects of sources without the engine.
fn objects(sources: &[Source]) -> Vec<Value> {
    let objects = sources.iter().flat_map(|source| {
        if source.name().ends_with(".json") {
            serde_json::from_str(source.text()).into_iter().collect()
        } else {
            yaml::documents(source.text())
        }
    });
    objects.collect()
}

fn errors<'p>(problems: impl Iterator<Item = &'p Problem>) -> usize {
    problems
        .filter(|it| it.severity() == Severity::Error)
        .count()
}

/// Returns the names of the pods that flows can begin and end at.
fn pods(cluster: &Cluster<'_>) -> Vec<String> {
    let pods = cluster.pods.iter().filter(|it| {
        it.template.is_none()
            && !it.host_network
            && it.phase != PodPhase::Terminated
            && !it.addresses.is_empty()
    });
    let names = pods.map(|it| format!("{}/pod/{}", cluster.namespace_name(it.namespace), it.name));
    names.collect()
}

/// What proposals of one scenario are tried against.
struct Trial<'t> {
    seed: u64,
    dns: &'t [(String, IpAddr)],
    sources: &'t [Source],
    n_errors: usize,
    oracle: Oracle,
    before: &'t [Value],
    pods: Vec<String>,
}

impl Trial<'_> {
    fn try_out(&self, line: &str, proven: &Proven, compared: &mut Compared) {
        let after = self.applied(proven);
        let mut wrong = |what: String| {
            let edits = &proven.proposal.edits;
            let seed = self.seed;
            compared
                .mistakes
                .push(format!("seed {seed}: {line}: {what}\n{edits:#?}"));
        };
        let manifests = read(&after, Options::default(), &|_| {});
        if errors(manifests.problems.iter()) > self.n_errors {
            wrong("the changed input has another error".to_owned());
        }
        let objects = objects(&after);
        if let Some(other) = self.other_change(&objects) {
            wrong(format!("it changes {other}"));
        }
        let oracle = Oracle::new(&objects, self.dns);
        let verdict = oracle.answer(line).verdict;
        if verdict != Verdict::Allow {
            wrong(format!("the oracle says {verdict:?} after it"));
        }
        let (mut flows, mut differences) = (0, Vec::new());
        let port = line.split_whitespace().nth(2).unwrap_or("tcp/80");
        for from in &self.pods {
            for to in self.pods.iter().filter(|to| *to != from) {
                for port in PORTS.into_iter().chain([port]) {
                    let Some(number) = plain_port(port) else {
                        continue;
                    };
                    flows += 1;
                    let flow = format!("{from} {to} {port}");
                    let [old, new] =
                        [&self.oracle, &oracle].map(|oracle| oracle.answer(&flow).verdict);
                    let proposal = &proven.proposal;
                    let (gains, loses) = match (old, new) {
                        (Verdict::Deny, Verdict::Allow | Verdict::Mixed)
                        | (Verdict::Mixed, Verdict::Allow) => (true, false),
                        (Verdict::Allow, Verdict::Deny | Verdict::Mixed)
                        | (Verdict::Mixed, Verdict::Deny) => (false, true),
                        // Of both families, either may have changed.
                        (Verdict::Mixed, Verdict::Mixed) => continue,
                        (Verdict::Unknown, _) | (_, Verdict::Unknown) => continue,
                        (Verdict::Allow, Verdict::Allow) | (Verdict::Deny, Verdict::Deny) => {
                            (false, false)
                        }
                    };
                    let stated =
                        [&proposal.allows, &proposal.denies].map(|it| has(it, from, to, number));
                    if stated != [gains, loses] {
                        differences.push(format!(
                            "{flow}: {old:?} before and {new:?} after, stated {stated:?}"
                        ));
                    }
                }
            }
        }
        if let Some(first) = differences.first() {
            wrong(format!("{} other flows: {first}", differences.len()));
        }
        compared.flows += flows;
    }

    /// Returns the sources with the proposal in them.
    fn applied(&self, proven: &Proven) -> Vec<Source> {
        let (texts, new_files) = proven.files();
        let mut sources: Vec<Source> = self.sources.to_vec();
        for (id, text) in texts {
            if let Some(source) = sources.get_mut(id.0 as usize) {
                *source = Source::new(source.name(), text.clone().into_bytes());
            }
        }
        for (path, text) in new_files {
            let name = path.display().to_string();
            sources.push(Source::new(name, text.clone().into_bytes()));
        }
        sources
    }

    /// Returns an object that a proposal must not change: one that is no policy.
    fn other_change(&self, after: &[Value]) -> Option<String> {
        let others = |objects: &[Value]| {
            let mut others: BTreeMap<String, usize> = BTreeMap::new();
            for object in objects {
                let kind = object.get("kind").and_then(Value::as_str);
                if !kind.is_some_and(|it| it.ends_with("NetworkPolicy")) {
                    *others.entry(object.to_string()).or_default() += 1;
                }
            }
            others
        };
        let (before, after) = (others(self.before), others(after));
        (before != after).then(|| "an object that is no policy".to_owned())
    }
}

/// A port as the blocks of a report name it; `None`: a name, which has another meaning at each pod.
fn plain_port(port: &str) -> Option<(&str, Option<u16>)> {
    if port == "icmp" {
        return Some(("icmp", None));
    }
    let (protocol, number) = port.split_once('/')?;
    let is_known = ["tcp", "udp", "sctp"].contains(&protocol);
    Some((protocol, Some(number.parse().ok()?))).filter(|_| is_known)
}

/// Reports whether stated flows have a flow.
fn has(reach: &Reach, from: &str, to: &str, (protocol, number): (&str, Option<u16>)) -> bool {
    let name = |it: &str| it.replace("/pod/", "/");
    let (from, to) = (name(from), name(to));
    let has_port = |text: &String| match (text.split_once('/'), number) {
        (None, None) => text == protocol,
        (Some((of, "*")), Some(_)) => of == protocol,
        (Some((of, range)), Some(number)) => {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let bounds = first.parse::<u16>().ok().zip(last.parse::<u16>().ok());
            of == protocol && bounds.is_some_and(|(first, last)| (first..=last).contains(&number))
        }
        _ => false,
    };
    reach.blocks.iter().any(|block| {
        block.from.contains(&from) && block.to.contains(&to) && block.ports.iter().any(has_port)
    })
}
