//! One round of a lab: what the files say now is built, enforced and measured.

use std::io::Write;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use palisade_core::answer::{FlowEvaluator, QueryError, Transport};
use palisade_core::query::{Endpoint, FlowQuery, PortQuery};
use palisade_lab::complete::{AddedNames, CompletedCluster, furnish};
use palisade_lab::lab::Lab;
use palisade_lab::probe_plan::{ProbeKind, ProbePlanner};
use palisade_lab::questions;
use palisade_lab::services::Entry;
use palisade_lab::topology::Location;
use palisade_lab::trial::Trial;
use palisade_nft::node::{Generation, MarkBits};

use crate::args::{Cli, LabArgs};
use crate::draw::clean;
use crate::flows::{FlowLine, ParsedFlow};
use crate::progress::Progress;
use crate::source::Inputs;
use crate::view::explanation::{FlowView, verdict};
use crate::view::lab::ProbeView;

/// What has been read for a round.
pub(super) struct RoundInput {
    pub(super) inputs: Inputs,
    /// The flows that somebody wrote down; without them everyone is asked about.
    pub(super) flows: Option<Vec<FlowLine>>,
    /// What names have resolved to.
    pub(super) learned: Vec<(String, IpAddr)>,
}

/// What a round came to.
pub(crate) struct Round {
    pub(crate) probes: Vec<ProbeView>,
    pub(crate) n_pods: usize,
    pub(crate) n_nodes: usize,
    pub(crate) times: Times,
    /// Whether the lab was built for it, and not for an earlier one.
    pub(crate) is_built: bool,
    /// Where visitors can go.
    pub(super) places: Vec<(String, Location)>,
}

/// How long things took.
pub(crate) struct Times {
    /// From the files to policies in force.
    pub(crate) built: Duration,
    pub(crate) probed: Duration,
}

/// A lab that stands, and what it was built for.
pub(super) struct StandingLab {
    pub(super) lab: Lab,
    /// The names of its nodes, each with the translations on it.
    nodes: Vec<(String, Vec<Entry>)>,
    generation: Generation,
}

impl StandingLab {
    /// Whether it is what would be built.
    fn fits(&self, furnished: &CompletedCluster<'_>, nodes: &[(String, Vec<Entry>)]) -> bool {
        *self.lab.world().topology() == furnished.topology && self.nodes == nodes
    }
}

/// Does one round. A lab that stands is used again if only policies have changed: they are put in the place of
/// those before, and connections are judged anew. What the objects give cause to say is told;
/// `None`: they have errors, and everything stays as it is.
pub(super) fn go(
    args: &LabArgs,
    cli: &Cli,
    given: RoundInput,
    standing: &mut Option<StandingLab>,
    told: &mut dyn Write,
) -> anyhow::Result<Option<Round>> {
    let started = Instant::now();
    let RoundInput {
        inputs,
        flows,
        learned,
    } = given;
    let cluster = &args.cluster;
    let Some(manifests) = crate::cluster::objects_reporting_to(cluster, cli, &inputs, told) else {
        return Ok(None);
    };
    let lowered =
        crate::cluster::lowered_reporting_to(cluster, learned, cli, &inputs, &manifests, told);
    let outside = match &flows {
        Some(lines) => questions::named(typed(lines)),
        None => questions::outside(&lowered.cluster),
    };
    let names = AddedNames::of(&lowered.cluster);
    let furnished = furnish(&lowered.cluster, &names, &outside);
    let program = crate::cluster::compiled(cli, &furnished.cluster);
    let respondent = FlowEvaluator::new(&furnished.cluster, &program);
    let mut realiser = ProbePlanner::new(&furnished);
    let is_matrix = flows.is_none();
    let asked = flows.unwrap_or_else(|| {
        let all = questions::matrix(&furnished).into_iter();
        all.map(|question| FlowLine::Asked(describe(question)))
            .collect()
    });
    realiser.keep_free(typed(&asked));
    let rows = Rows::new(&respondent, &furnished, &mut realiser, asked, is_matrix);
    let nodes: Vec<(String, Vec<Entry>)> = (furnished.cluster.nodes.iter().enumerate())
        .map(|(index, node)| (node.name.to_owned(), realiser.entries.of_node(index)))
        .collect();
    // Whatever fails from here on leaves a lab in which nobody knows what is in force.
    let fitting = standing.take_if(|it| it.fits(&furnished, &nodes));
    let is_built = fitting.is_none();
    let mut next = match fitting {
        Some(standing) => StandingLab {
            generation: standing.generation.next(MarkBits::DEFAULT),
            ..standing
        },
        None => StandingLab {
            lab: build(&furnished, &realiser, cli, told)?,
            nodes,
            generation: Generation::FIRST,
        },
    };
    next.lab.enforce(&furnished, &program, next.generation)?;
    let built = started.elapsed();
    let means: Vec<ProbeKind> = rows.trials().flat_map(Trial::shown).collect();
    let progress = Progress::counting("probing", means.len(), !cli.quiet);
    let seen = next.lab.measure(&means, &|done| progress.reach(done))?;
    progress.finish();
    let times = Times {
        built,
        probed: started.elapsed().saturating_sub(built),
    };
    *standing = Some(next);
    Ok(Some(Round {
        probes: rows.compare(seen),
        n_pods: furnished.topology.pods.len(),
        n_nodes: furnished.topology.nodes.len(),
        times,
        is_built,
        places: places(&furnished),
    }))
}

fn build(
    furnished: &CompletedCluster<'_>,
    realiser: &ProbePlanner<'_, '_>,
    cli: &Cli,
    told: &mut dyn Write,
) -> anyhow::Result<Lab> {
    let topology = &furnished.topology;
    let n_namespaces = topology.pods.len() + topology.nodes.len() + 1;
    let progress = Progress::counting("building", n_namespaces, !cli.quiet);
    let lab = Lab::build(furnished, &realiser.entries, &|done| progress.reach(done))?;
    progress.finish();
    if !cli.quiet {
        for (pod, why) in &furnished.left_out {
            let name = clean(&furnished.cluster.pod_name(*pod));
            let _ = writeln!(told, "palisade: {name} is not in the lab: {why}");
        }
    }
    Ok(lab)
}

/// The places of a lab by name.
fn places(furnished: &CompletedCluster<'_>) -> Vec<(String, Location)> {
    let cluster = &furnished.cluster;
    let pods = furnished.pods.iter().enumerate();
    let pods = pods.map(|(index, id)| (cluster.pod_name(*id), Location::Pod(index)));
    let nodes = cluster.nodes.iter().enumerate();
    let nodes = nodes.map(|(index, node)| (format!("node/{}", node.name), Location::Node(index)));
    pods.chain(nodes)
        // A name that is not one is nobody's to visit.
        .filter(|(name, _)| !name.contains(char::is_whitespace))
        .collect()
}

fn typed(lines: &[FlowLine]) -> impl Iterator<Item = &FlowQuery> {
    lines.iter().filter_map(|line| match line {
        FlowLine::Asked(asked) => Some(&asked.question),
        FlowLine::Wrong(..) => None,
    })
}

/// A question in the words of flows.
fn describe(question: FlowQuery) -> ParsedFlow {
    let mut flow = FlowView {
        source: endpoint(&question.source),
        destination: endpoint(&question.destination),
        ..FlowView::default()
    };
    flow.carry(&question.port);
    ParsedFlow { question, flow }
}

fn endpoint(endpoint: &Endpoint) -> String {
    match endpoint {
        Endpoint::Pod(namespace, name) => format!("{namespace}/{name}"),
        Endpoint::Workload(namespace, kind, name) => format!("{namespace}/{kind}/{name}"),
        Endpoint::Service(namespace, name) => format!("{namespace}/svc/{name}"),
        Endpoint::Node(name) => format!("node/{name}"),
        Endpoint::Address(address) => address.to_string(),
    }
}

/// The flows in their order, each with its trial or the reason why there is none.
struct Rows {
    rows: Vec<(FlowView, Result<Trial, String>)>,
    /// Whether nobody typed them.
    is_matrix: bool,
}

impl Rows {
    fn new(
        respondent: &FlowEvaluator<'_>,
        furnished: &CompletedCluster<'_>,
        realiser: &mut ProbePlanner<'_, '_>,
        lines: Vec<FlowLine>,
        is_matrix: bool,
    ) -> Rows {
        let mut rows = Vec::with_capacity(lines.len());
        for line in lines {
            let ParsedFlow { question, flow } = match line {
                FlowLine::Asked(asked) => asked,
                FlowLine::Wrong(flow, error) => {
                    rows.push((flow, Err(error)));
                    continue;
                }
            };
            let try_it = if question.port == PortQuery::Any {
                Trial::of_any_port
            } else {
                Trial::new
            };
            match try_it(respondent, furnished, realiser, &question) {
                Ok(trial) => rows.push((flow, Ok(trial))),
                // The matrix asks of everyone, also of those who have no addresses in common.
                Err(QueryError::NoFamily | QueryError::WrongFamily(..)) if is_matrix => {}
                Err(error) => rows.push((flow, Err(error.to_string()))),
            }
        }
        Rows { rows, is_matrix }
    }

    fn trials(&self) -> impl Iterator<Item = &Trial> {
        self.rows
            .iter()
            .filter_map(|(_, trial)| trial.as_ref().ok())
    }

    fn compare(self, seen: Vec<palisade_lab::lab::ProbeOutcome>) -> Vec<ProbeView> {
        let mut seen = seen.into_iter();
        let is_typed = !self.is_matrix;
        let probe = |(flow, trial): (FlowView, Result<Trial, String>)| match trial {
            Err(error) => ProbeView {
                flow,
                predicted: "Unknown",
                measured: None,
                error: Some(error),
                unanswered: false,
                differs: false,
                unaskable: is_typed,
                was: None,
            },
            Ok(trial) => {
                let verdicts = trial.compare(&mut seen);
                let mut flow = flow;
                if flow.family.is_none() {
                    flow.family = trial.predicted.family.map(|it| it.to_string());
                }
                if flow.port.is_none() {
                    flow.port = port(&trial);
                }
                ProbeView {
                    flow,
                    predicted: verdict(verdicts.predicted),
                    measured: verdicts.measured.as_ref().ok().copied().map(verdict),
                    error: verdicts.measured.err().map(|why| why.to_string()),
                    unanswered: verdicts.unanswered,
                    differs: verdicts.differs,
                    unaskable: false,
                    was: None,
                }
            }
        };
        self.rows.into_iter().map(probe).collect()
    }
}

/// The port that a name stands for, if it is one.
fn port(trial: &Trial) -> Option<u16> {
    let mut ports = trial.predicted.flows.iter().map(|it| match it.carried {
        Transport::Port(_, port) => Some(port.get()),
        Transport::Icmp | Transport::Icmp6(_) | Transport::Ip(_) => None,
    });
    let first = ports.next().flatten();
    first.filter(|first| ports.all(|it| it == Some(*first)))
}
