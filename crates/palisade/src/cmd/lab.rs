//! `palisade lab`: the cluster in network namespaces, the policies in the kernel, and packets.

mod visit;

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::Context;
use palisade_core::answer::{Carried, Respondent, Unanswerable};
use palisade_core::question::{Endpoint, PortQuery, Question};
use palisade_lab::enter::{Want, enter};
use palisade_lab::furnish::{Furnished, Names, furnish};
use palisade_lab::lab::Lab;
use palisade_lab::questions;
use palisade_lab::realise::{Means, Realiser};
use palisade_lab::trial::Trial;
use palisade_nft::node::Generation;

use crate::Outcome;
use crate::args::{Cli, LabArgs, LabOutput};
use crate::draw::clean;
use crate::flows::{self, Asked, Line};
use crate::matrix;
use crate::progress::Progress;
use crate::view::explanation::{FlowView, verdict};
use crate::view::lab::{LabReportView, ProbeView};
use crate::view::{Form, write_document};

/// Builds the cluster, enforces its policies, and compares what is predicted with what packets show.
pub(crate) fn run(args: &LabArgs, cli: &Cli) -> anyhow::Result<Outcome> {
    if let Some(visit) = &args.visit {
        return visit::run(visit);
    }
    let started = Instant::now();
    let lines = match &args.flows {
        Some(path) => Some(flows::lines(&[], Some(path), &args.cluster.input)?),
        None => None,
    };
    let inputs = crate::cluster::inputs(&args.cluster)?;
    // Before anything starts a thread: only a process of one thread may go into a namespace of users.
    enter(Want::Any).context("cannot make network namespaces")?;
    let Some(manifests) = crate::cluster::objects(&args.cluster, cli, &inputs) else {
        return Ok(Outcome::Unanswered);
    };
    let lowered = crate::cluster::lowered(&args.cluster, cli, &inputs, &manifests)?;
    let asked = lines.unwrap_or_default();
    let outside = match &args.flows {
        Some(_) => questions::named(typed(&asked)),
        None => questions::outside(&lowered.cluster),
    };
    let names = Names::of(&lowered.cluster);
    let furnished = furnish(&lowered.cluster, &names, &outside);
    let program = crate::cluster::compiled(cli, &furnished.cluster);
    let respondent = Respondent::new(&furnished.cluster, &program);
    let mut realiser = Realiser::new(&furnished);
    let is_matrix = args.flows.is_none();
    let asked = if is_matrix {
        let all = questions::matrix(&furnished).into_iter();
        all.map(|question| Line::Asked(describe(question)))
            .collect()
    } else {
        asked
    };
    realiser.keep_free(typed(&asked));
    let rows = Rows::new(&respondent, &furnished, &mut realiser, asked, is_matrix);
    let mut lab = build(&furnished, &realiser, cli)?;
    lab.enforce(&furnished, &program, Generation::FIRST)?;
    let built = started.elapsed();
    let means: Vec<Means> = rows.trials().flat_map(Trial::shown).collect();
    let progress = Progress::counting("probing", means.len(), !cli.quiet);
    let seen = lab.measure(&means, &|done| progress.reach(done))?;
    progress.finish();
    let times = Times {
        built,
        probed: started.elapsed().saturating_sub(built),
    };
    let probes = rows.compare(seen);
    print(args, cli, &furnished, &probes, &times)?;
    if args.keep {
        visit::keep(&lab, &furnished)?;
    }
    let differences = probes.iter().any(|probe| probe.differs);
    let nothing = probes.iter().all(|probe| probe.measured.is_none());
    Ok(if probes.iter().any(|probe| probe.unaskable) {
        Outcome::Unanswered
    } else if nothing && !args.keep {
        // A lab that is kept up may be there for visits alone.
        anstream::eprintln!("palisade: no flow could be measured with packets");
        Outcome::Unanswered
    } else if differences && !args.exit_zero {
        Outcome::Findings
    } else {
        Outcome::Clean
    })
}

/// How long things took.
pub(crate) struct Times {
    pub(crate) built: Duration,
    pub(crate) probed: Duration,
}

fn build(furnished: &Furnished<'_>, realiser: &Realiser<'_, '_>, cli: &Cli) -> anyhow::Result<Lab> {
    let topology = &furnished.topology;
    let n_namespaces = topology.pods.len() + topology.nodes.len() + 1;
    let progress = Progress::counting("building", n_namespaces, !cli.quiet);
    let lab = Lab::build(furnished, &realiser.entries, &|done| progress.reach(done))?;
    progress.finish();
    if !cli.quiet {
        for (pod, why) in &furnished.left_out {
            let name = clean(&furnished.cluster.pod_name(*pod));
            anstream::eprintln!("palisade: {name} is not in the lab: {why}");
        }
    }
    Ok(lab)
}

fn typed(lines: &[Line]) -> impl Iterator<Item = &Question> {
    lines.iter().filter_map(|line| match line {
        Line::Asked(asked) => Some(&asked.question),
        Line::Wrong(..) => None,
    })
}

/// A question in the words of flows.
fn describe(question: Question) -> Asked {
    let mut flow = FlowView {
        source: endpoint(&question.source),
        destination: endpoint(&question.destination),
        ..FlowView::default()
    };
    flow.carry(&question.port);
    Asked { question, flow }
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
        respondent: &Respondent<'_>,
        furnished: &Furnished<'_>,
        realiser: &mut Realiser<'_, '_>,
        lines: Vec<Line>,
        is_matrix: bool,
    ) -> Rows {
        let mut rows = Vec::with_capacity(lines.len());
        for line in lines {
            let Asked { question, flow } = match line {
                Line::Asked(asked) => asked,
                Line::Wrong(flow, error) => {
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
                Err(Unanswerable::NoFamily | Unanswerable::WrongFamily(..)) if is_matrix => {}
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

    fn compare(self, seen: Vec<palisade_lab::lab::Seen>) -> Vec<ProbeView> {
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
                }
            }
        };
        self.rows.into_iter().map(probe).collect()
    }
}

/// The port that a name stands for, if it is one.
fn port(trial: &Trial) -> Option<u16> {
    let mut ports = trial.predicted.flows.iter().map(|it| match it.carried {
        Carried::Port(_, port) => Some(port.get()),
        Carried::Icmp | Carried::Icmp6(_) | Carried::Ip(_) => None,
    });
    let first = ports.next().flatten();
    first.filter(|first| ports.all(|it| it == Some(*first)))
}

fn print(
    args: &LabArgs,
    cli: &Cli,
    furnished: &Furnished<'_>,
    probes: &[ProbeView],
    times: &Times,
) -> anyhow::Result<()> {
    let report = LabReportView::new(probes);
    match args.output {
        LabOutput::Json | LabOutput::Yaml => {
            let mut out = std::io::BufWriter::new(std::io::stdout().lock());
            let form = if args.output == LabOutput::Json {
                Form::Json
            } else {
                Form::Yaml
            };
            write_document(&mut out, form, &report)?;
            out.flush()?;
        }
        LabOutput::Jsonl => {
            let mut out = std::io::BufWriter::new(std::io::stdout().lock());
            for probe in probes {
                serde_json::to_writer(&mut out, probe)?;
                writeln!(out)?;
            }
            out.flush()?;
        }
        LabOutput::Table | LabOutput::Wide => {
            let all = args.flows.is_some() || args.output == LabOutput::Wide;
            let text = matrix::text(furnished, probes, times, all, cli.quiet);
            write!(anstream::stdout(), "{text}")?;
        }
    }
    Ok(())
}
