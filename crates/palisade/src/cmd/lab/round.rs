//! One round of a lab: builds, enforces and measures the current input.

use std::io::Write;
use std::net::IpAddr;
use std::time::Instant;

use palisade_core::answer::{FlowEvaluator, FlowVerdict, QueryError, Transport};
use palisade_core::query::{Endpoint, FlowQuery, PortQuery};
use palisade_lab::complete::{AddedNames, CompletedCluster, complete};
use palisade_lab::lab::Lab;
use palisade_lab::probe_plan::{ProbeKind, ProbePlanner};
use palisade_lab::questions;
use palisade_lab::services::Entry;
use palisade_lab::topology::Location;
use palisade_lab::trial::Trial;
use palisade_nft::node::{Generation, MarkBits};

use crate::args::{Cli, LabArgs};
use crate::cluster::{other_policies, report_other_policies};
use crate::draw::clean;
use crate::flows::{FlowLine, ParsedFlow};
use crate::progress::Progress;
use crate::report::flow::NamedFlow;
use crate::report::lab::{Probe, Round};
use crate::source::Inputs;

/// The input of a round.
pub(super) struct RoundInput {
    pub(super) inputs: Inputs,
    /// The flows of `--flows`; without them the whole matrix is probed.
    pub(super) flows: Option<Vec<FlowLine>>,
    /// The learned addresses of names.
    pub(super) learned: Vec<(String, IpAddr)>,
}

/// A running lab, and the inputs that decide whether it can be reused.
pub(super) struct StandingLab {
    pub(super) lab: Lab,
    /// The names of its nodes, each with the translations on it.
    nodes: Vec<(String, Vec<Entry>)>,
    generation: Generation,
    /// The pods and nodes that `lab exec` can enter.
    pub(super) places: Vec<(String, Location)>,
}

impl StandingLab {
    /// Reports whether the lab has the topology and the translations that would be built.
    fn fits(&self, completed: &CompletedCluster<'_>, nodes: &[(String, Vec<Entry>)]) -> bool {
        *self.lab.world().topology() == completed.topology && self.nodes == nodes
    }
}

/// Runs one round. If only policies changed, the running lab is reused: its policies are replaced,
/// and its connections are evaluated again. Returns `None` if the objects have errors, which it
/// writes to `messages`; the lab then stays as it is.
pub(super) fn go(
    args: &LabArgs,
    cli: &Cli,
    input: RoundInput,
    running: &mut Option<StandingLab>,
    messages: &mut dyn Write,
) -> anyhow::Result<Option<Round>> {
    let started = Instant::now();
    let RoundInput {
        inputs,
        flows,
        learned,
    } = input;
    let cluster = &args.cluster;
    let Some(manifests) = crate::cluster::objects_reporting_to(cluster, cli, &inputs, messages)
    else {
        return Ok(None);
    };
    let lowered =
        crate::cluster::lowered_reporting_to(cluster, learned, cli, &inputs, &manifests, messages);
    let other_policies = other_policies(&inputs, &manifests);
    report_other_policies(cli, &other_policies, messages);
    let outside = match &flows {
        Some(lines) => questions::named(queries(lines)),
        None => questions::outside(&lowered.cluster),
    };
    let names = AddedNames::of(&lowered.cluster);
    let completed = complete(&lowered.cluster, &names, &outside);
    let program = crate::cluster::compiled(cli, &completed.cluster);
    let evaluator = FlowEvaluator::new(&completed.cluster, &program);
    let mut planner = ProbePlanner::new(&completed);
    let is_matrix = flows.is_none();
    let lines = flows.unwrap_or_else(|| {
        let matrix = questions::matrix(&completed).into_iter();
        matrix
            .map(|question| FlowLine::Query(Box::new(describe(question))))
            .collect()
    });
    planner.keep_free(queries(&lines));
    let rows = Rows::new(&evaluator, &completed, &mut planner, lines, is_matrix);
    let nodes: Vec<(String, Vec<Entry>)> = (completed.cluster.nodes.iter().enumerate())
        .map(|(index, node)| (node.name.to_owned(), planner.entries.of_node(index)))
        .collect();
    // A failure below leaves unknown policies in the lab: a reused lab is taken out here, and put
    // back only after the last step.
    let fitting = running.take_if(|it| it.fits(&completed, &nodes));
    let is_built = fitting.is_none();
    let mut next = match fitting {
        Some(running) => StandingLab {
            generation: running.generation.next(MarkBits::DEFAULT.last_generation()),
            places: places(&completed),
            ..running
        },
        None => StandingLab {
            lab: build(&completed, &planner, cli, messages)?,
            nodes,
            generation: Generation::FIRST,
            places: places(&completed),
        },
    };
    next.lab.enforce(&completed, &program, next.generation)?;
    let built = started.elapsed();
    let probe_kinds: Vec<ProbeKind> = rows.trials().flat_map(Trial::shown).collect();
    let progress = Progress::counting("probing", probe_kinds.len(), !cli.quiet);
    let outcomes = next
        .lab
        .measure(&probe_kinds, &|done| progress.reach(done))?;
    progress.finish();
    *running = Some(next);
    Ok(Some(Round {
        probes: rows.compare(outcomes),
        n_pods: completed.topology.pods.len(),
        n_nodes: completed.topology.nodes.len(),
        built,
        probed: started.elapsed().saturating_sub(built),
        is_built,
        other_policies,
    }))
}

fn build(
    completed: &CompletedCluster<'_>,
    planner: &ProbePlanner<'_, '_>,
    cli: &Cli,
    messages: &mut dyn Write,
) -> anyhow::Result<Lab> {
    let topology = &completed.topology;
    let n_namespaces = topology.pods.len() + topology.nodes.len() + 1;
    let progress = Progress::counting("building", n_namespaces, !cli.quiet);
    let lab = Lab::build(completed, &planner.entries, &|done| progress.reach(done))?;
    progress.finish();
    if !cli.quiet {
        for (pod, why) in &completed.left_out {
            let name = clean(&completed.cluster.pod_name(*pod));
            let _ = writeln!(messages, "palisade: {name} is not in the lab: {why}");
        }
    }
    Ok(lab)
}

/// Names the places of a lab.
fn places(completed: &CompletedCluster<'_>) -> Vec<(String, Location)> {
    let cluster = &completed.cluster;
    let pods = completed.pods.iter().enumerate();
    let pods = pods.map(|(index, id)| (cluster.pod_name(*id), Location::Pod(index)));
    let nodes = cluster.nodes.iter().enumerate();
    let nodes = nodes.map(|(index, node)| (format!("node/{}", node.name), Location::Node(index)));
    pods.chain(nodes)
        // In the announcement of a lab, white space ends the name of a place.
        .filter(|(name, _)| !name.contains(char::is_whitespace))
        .collect()
}

fn queries(lines: &[FlowLine]) -> impl Iterator<Item = &FlowQuery> {
    lines.iter().filter_map(|line| match line {
        FlowLine::Query(parsed) => Some(&parsed.query),
        FlowLine::Invalid(..) => None,
    })
}

/// Converts a query to the flow of the output.
fn describe(query: FlowQuery) -> ParsedFlow {
    let flow = NamedFlow {
        source: endpoint(&query.source),
        destination: endpoint(&query.destination),
        ..NamedFlow::default()
    };
    ParsedFlow {
        flow: flow.with_query(&query.port),
        query,
        place: None,
    }
}

fn endpoint(endpoint: &Endpoint) -> String {
    match endpoint {
        Endpoint::Pod(namespace, name) => format!("{namespace}/{name}"),
        Endpoint::Workload(namespace, kind, name) => format!("{namespace}/{kind}/{name}"),
        Endpoint::Service(namespace, name) => format!("{namespace}/svc/{name}"),
        Endpoint::Node(name) => format!("node/{name}"),
        Endpoint::Address(address) => address.to_string(),
        Endpoint::Block(block) => block.to_string(),
    }
}

/// The flows in order, each with its trial or the reason why there is none.
struct Rows {
    rows: Vec<(NamedFlow, Result<Trial, String>)>,
    /// Whether the flows are those of the matrix and not of `--flows`.
    is_matrix: bool,
}

impl Rows {
    fn new(
        evaluator: &FlowEvaluator<'_>,
        completed: &CompletedCluster<'_>,
        planner: &mut ProbePlanner<'_, '_>,
        lines: Vec<FlowLine>,
        is_matrix: bool,
    ) -> Rows {
        let mut rows = Vec::with_capacity(lines.len());
        for line in lines {
            let ParsedFlow { query, flow, place } = match line {
                FlowLine::Query(parsed) => *parsed,
                FlowLine::Invalid(flow, error) => {
                    rows.push((flow, Err(error)));
                    continue;
                }
            };
            let new_trial = if query.port == PortQuery::Any {
                Trial::of_any_port
            } else {
                Trial::new
            };
            match new_trial(evaluator, completed, planner, &query) {
                Ok(trial) => rows.push((flow, Ok(trial))),
                // The matrix has every pair, also those that share no address family.
                Err(QueryError::NoFamily | QueryError::WrongFamily(..)) if is_matrix => {}
                Err(error) => rows.push((flow, Err(ParsedFlow::error(place, &error)))),
            }
        }
        Rows { rows, is_matrix }
    }

    fn trials(&self) -> impl Iterator<Item = &Trial> {
        self.rows
            .iter()
            .filter_map(|(_, trial)| trial.as_ref().ok())
    }

    fn compare(self, outcomes: Vec<palisade_lab::lab::ProbeOutcome>) -> Vec<Probe> {
        let mut outcomes = outcomes.into_iter();
        let is_typed = !self.is_matrix;
        let probe = |(flow, trial): (NamedFlow, Result<Trial, String>)| match trial {
            Err(error) => Probe {
                flow,
                predicted: FlowVerdict::Unknown,
                measured: None,
                error: Some(error),
                unanswered: false,
                differs: false,
                is_invalid: is_typed,
                was: None,
            },
            Ok(trial) => {
                let verdicts = trial.compare(&mut outcomes);
                let mut flow = flow;
                if flow.family.is_none() {
                    flow.family = trial.predicted.family;
                }
                if flow.port.is_none() {
                    flow.port = port(&trial);
                }
                Probe {
                    flow,
                    predicted: verdicts.predicted,
                    measured: verdicts.measured.as_ref().ok().copied(),
                    error: verdicts.measured.err().map(|why| why.to_string()),
                    unanswered: verdicts.unanswered,
                    differs: verdicts.differs,
                    is_invalid: false,
                    was: None,
                }
            }
        };
        self.rows.into_iter().map(probe).collect()
    }
}

/// Returns the number of a named port, if it is the same for all flows.
fn port(trial: &Trial) -> Option<u16> {
    let mut ports = trial.predicted.flows.iter().map(|it| match it.transport {
        Transport::Port(_, port) => Some(port.get()),
        Transport::Icmp | Transport::Icmp6(_) | Transport::Ip(_) => None,
    });
    let first = ports.next().flatten();
    first.filter(|first| ports.all(|it| it == Some(*first)))
}
