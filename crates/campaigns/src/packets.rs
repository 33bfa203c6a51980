//! Engine against kernel: random clusters of every generation are built in network namespaces,
//! enforced by the real code and probed with packets; every verdict must be what the kernel did.

pub mod campaign;
mod dense;
mod guards;
pub mod wrong;

use palisade_api::{Options, Source, lower, read};
use palisade_core::answer::FlowEvaluator;
use palisade_core::compile::compile;
use palisade_core::model::Cluster;
use palisade_core::plan::{MERGE_OVER, plan_merging};
use palisade_core::query::{Endpoint, FlowQuery, PortQuery};
use palisade_lab::complete::{AddedNames, CompletedCluster, complete};
use palisade_lab::lab::{Lab, LabError, node_settings};
use palisade_lab::probe_plan::{ProbeKind, ProbePlanner};
use palisade_lab::questions;
use palisade_lab::trial::Trial;
use palisade_nft::node::{Generation, Settings, ruleset};
use palisade_nft::ruleset::Ruleset;
use palisade_oracle::generate::scenario;

/// A flow for which engine and kernel differ.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The seed of the cluster.
    pub seed: u64,
    /// What was sent, what was predicted and what was measured, in words.
    pub words: String,
}

/// What some clusters came to.
#[derive(Clone, Debug, Default)]
pub struct Compared {
    /// How many clusters.
    pub clusters: u64,
    /// How many packets were sent to compare a verdict.
    pub probes: u64,
    /// How many of them were predicted to be denied.
    pub denied: u64,
    /// How many flows could not be shown with packets.
    pub unshown: u64,
    /// Where engine and kernel differ.
    pub differences: Vec<Difference>,
}

impl Compared {
    /// Adds those of other clusters.
    pub fn add(&mut self, other: Compared) {
        self.clusters += other.clusters;
        self.probes += other.probes;
        self.denied += other.denied;
        self.unshown += other.unshown;
        self.differences.extend(other.differences);
    }
}

/// How many questions of the scenario are asked beside the matrix.
const QUESTIONS: usize = 200;

/// A change to a ruleset on its way into the kernel.
pub type Change<'c> = &'c dyn Fn(&mut Ruleset);

/// Compares engine and kernel on the cluster of a seed.
pub fn compare(seed: u64, change: Option<Change<'_>>) -> Result<Compared, LabError> {
    let scenario = scenario(seed, QUESTIONS);
    let mut objects = scenario.objects;
    if asks_by_sets(seed) {
        objects.extend(dense::policies(seed, &objects));
    }
    let text = serde_json::to_vec(&objects).unwrap_or_default();
    let sources = [Source::new("objects.json", text)];
    let manifests = read(&sources, Options::default(), &|_| {});
    let lowered = lower(&manifests.objects, scenario.dns);
    let asked = scenario.queries.iter();
    let asked: Vec<FlowQuery> = asked.filter_map(|it| FlowQuery::parse(it).ok()).collect();
    cluster(seed, &lowered.cluster, asked, change)
}

fn cluster(
    seed: u64,
    cluster: &Cluster<'_>,
    mut asked: Vec<FlowQuery>,
    change: Option<Change<'_>>,
) -> Result<Compared, LabError> {
    let names = AddedNames::of(cluster);
    let mut outside = questions::outside(cluster);
    outside.extend(questions::named(&asked));
    let furnished = complete(cluster, &names, &outside);
    let program = compile(&furnished.cluster);
    let respondent = FlowEvaluator::new(&furnished.cluster, &program);
    let mut realiser = ProbePlanner::new(&furnished);
    asked.extend(questions::matrix(&furnished));
    asked.extend(seldom(&furnished));
    realiser.keep_free(&asked);
    let trials = asked.iter().filter_map(|question| {
        let trial = Trial::new(&respondent, &furnished, &mut realiser, question);
        Some((question, trial.ok()?))
    });
    let trials: Vec<(&FlowQuery, Trial)> = trials.collect();
    let mut lab = Lab::build(&furnished, &realiser.entries, &|_| {})?;
    enforce(&mut lab, &furnished, &program, seed, change)?;
    let means: Vec<ProbeKind> = trials.iter().flat_map(|(_, trial)| trial.shown()).collect();
    let seen = lab.measure(&means, &|_| {})?;
    let mut compared = Compared {
        clusters: 1,
        probes: means.len() as u64,
        ..Compared::default()
    };
    let mut seen = seen.into_iter();
    for (question, trial) in &trials {
        let verdicts = trial.compare(&mut seen);
        let denied = trial.predicted.flows.iter().zip(&trial.means);
        let denied = denied.filter(|(single, means)| means.is_ok() && is_denied(single));
        compared.denied += denied.count() as u64;
        compared.unshown += trial.means.iter().filter(|it| it.is_err()).count() as u64;
        if verdicts.differs {
            let words = format!(
                "{question:?}: predicted {:?}, measured {:?}{}",
                verdicts.predicted,
                verdicts.measured,
                if verdicts.unanswered {
                    ", unanswered"
                } else {
                    ""
                },
            );
            compared.differences.push(Difference { seed, words });
        }
    }
    let guarded = guards::check(seed, &mut lab, &trials)?;
    compared.add(guarded);
    Ok(compared)
}

/// In every other cluster there are more NetworkPolicies, and unions are asked by sets, however
/// small.
fn asks_by_sets(seed: u64) -> bool {
    seed.is_multiple_of(2)
}

/// What every node's ruleset depends on beside its plan.
pub fn settings() -> Settings {
    node_settings(Generation::FIRST)
}

/// What people seldom ask about: protocols without ports.
fn seldom(furnished: &CompletedCluster<'_>) -> Vec<FlowQuery> {
    let cluster = &furnished.cluster;
    let pods = furnished.pods.iter();
    let pods = pods.filter_map(|id| cluster.pods.get(id.0 as usize));
    let ends: Vec<Endpoint> = pods
        .map(|pod| {
            let namespace = cluster.namespace_name(pod.namespace).to_owned();
            Endpoint::Pod(namespace, pod.name.to_owned())
        })
        .collect();
    let ports = [
        PortQuery::Ip(47),
        PortQuery::Ip(50),
        PortQuery::Ip(51),
        PortQuery::Ip(253),
    ];
    let mut questions = Vec::new();
    for (index, source) in ends.iter().enumerate() {
        // The next few of each, all around.
        for (destination, port) in ends.iter().cycle().skip(index + 1).zip(&ports) {
            if destination != source {
                questions.push(FlowQuery {
                    source: source.clone(),
                    destination: destination.clone(),
                    port: port.clone(),
                    via: None,
                });
            }
        }
    }
    questions
}

fn is_denied(single: &palisade_core::answer::FlowAnswer) -> bool {
    single.outcome.verdict == palisade_core::answer::FlowVerdict::Deny
}

fn enforce(
    lab: &mut Lab,
    furnished: &CompletedCluster<'_>,
    program: &palisade_core::program::Program,
    seed: u64,
    change: Option<Change<'_>>,
) -> Result<(), LabError> {
    let merge_over = if asks_by_sets(seed) { 0 } else { MERGE_OVER };
    let settings = settings();
    for node in 0..furnished.topology.nodes.len() {
        let cluster = &furnished.cluster;
        let name = cluster.nodes.get(node).map_or("", |node| node.name);
        let plan = plan_merging(cluster, program, name, merge_over);
        let mut ruleset = ruleset(&plan, &settings);
        if let Some(change) = change {
            change(&mut ruleset);
        }
        lab.install(node, &ruleset)?;
    }
    Ok(())
}
