//! Compares the engine with the kernel: random clusters of all API versions are built in network
//! namespaces, enforced by the real code and probed with packets. Every verdict must equal the
//! kernel's.

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

/// A flow with different verdicts of engine and kernel.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The seed of the cluster.
    pub seed: u64,
    /// The packet, the prediction and the measurement.
    pub message: String,
}

/// The comparison of some clusters.
#[derive(Clone, Debug, Default)]
pub struct Compared {
    /// The number of clusters.
    pub clusters: u64,
    /// Packets sent to compare a verdict.
    pub probes: u64,
    /// Of those, packets predicted to be denied.
    pub denied: u64,
    /// Flows that packets cannot measure.
    pub unmeasured: u64,
    /// The differences.
    pub differences: Vec<Difference>,
}

impl Compared {
    /// Adds the comparison of other clusters.
    pub fn add(&mut self, other: Compared) {
        self.clusters += other.clusters;
        self.probes += other.probes;
        self.denied += other.denied;
        self.unmeasured += other.unmeasured;
        self.differences.extend(other.differences);
    }
}

/// Flow queries of the scenario, beside the matrix.
const QUESTIONS: usize = 200;

/// A change of a ruleset before its installation.
pub type Change<'c> = &'c dyn Fn(&mut Ruleset);

/// Compares engine and kernel on the cluster of a seed.
pub fn compare(seed: u64, change: Option<Change<'_>>) -> Result<Compared, LabError> {
    let scenario = scenario(seed, QUESTIONS);
    let mut objects = scenario.objects;
    if uses_set_lookups(seed) {
        objects.extend(dense::policies(seed, &objects));
    }
    let text = serde_json::to_vec(&objects).unwrap_or_default();
    let sources = [Source::new("objects.json", text)];
    let manifests = read(&sources, Options::default(), &|_| {});
    let lowered = lower(&manifests.objects, scenario.dns);
    let queries = scenario.queries.iter();
    let queries: Vec<FlowQuery> = queries.filter_map(|it| FlowQuery::parse(it).ok()).collect();
    cluster(seed, &lowered.cluster, queries, change)
}

fn cluster(
    seed: u64,
    cluster: &Cluster<'_>,
    mut queries: Vec<FlowQuery>,
    change: Option<Change<'_>>,
) -> Result<Compared, LabError> {
    let names = AddedNames::of(cluster);
    let mut outside = questions::outside(cluster);
    outside.extend(questions::named(&queries));
    let completed = complete(cluster, &names, &outside);
    let program = compile(&completed.cluster);
    let evaluator = FlowEvaluator::new(&completed.cluster, &program);
    let mut planner = ProbePlanner::new(&completed);
    queries.extend(questions::matrix(&completed));
    queries.extend(portless_queries(&completed));
    planner.keep_free(&queries);
    let trials = queries.iter().filter_map(|query| {
        let trial = Trial::new(&evaluator, &completed, &mut planner, query);
        Some((query, trial.ok()?))
    });
    let trials: Vec<(&FlowQuery, Trial)> = trials.collect();
    let mut lab = Lab::build(&completed, &planner.entries, &|_| {})?;
    enforce(&mut lab, &completed, &program, seed, change)?;
    let means: Vec<ProbeKind> = trials.iter().flat_map(|(_, trial)| trial.shown()).collect();
    let measured = lab.measure(&means, &|_| {})?;
    let mut compared = Compared {
        clusters: 1,
        probes: means.len() as u64,
        ..Compared::default()
    };
    let mut measured = measured.into_iter();
    for (query, trial) in &trials {
        let verdicts = trial.compare(&mut measured);
        let denied = trial.predicted.flows.iter().zip(&trial.means);
        let denied = denied.filter(|(single, means)| means.is_ok() && is_denied(single));
        compared.denied += denied.count() as u64;
        compared.unmeasured += trial.means.iter().filter(|it| it.is_err()).count() as u64;
        if verdicts.differs {
            let message = format!(
                "{query:?}: predicted {:?}, measured {:?}{}",
                verdicts.predicted,
                verdicts.measured,
                if verdicts.unanswered {
                    ", without a reply"
                } else {
                    ""
                },
            );
            compared.differences.push(Difference { seed, message });
        }
    }
    let guarded = guards::check(seed, &mut lab, &trials)?;
    compared.add(guarded);
    Ok(compared)
}

/// Whether a cluster has additional NetworkPolicies, and set lookups for all unions: every other
/// one.
fn uses_set_lookups(seed: u64) -> bool {
    seed.is_multiple_of(2)
}

/// The settings of every node's ruleset.
pub fn settings() -> Settings {
    node_settings(Generation::FIRST)
}

/// Flow queries for protocols without ports.
fn portless_queries(completed: &CompletedCluster<'_>) -> Vec<FlowQuery> {
    let cluster = &completed.cluster;
    let pods = completed.pods.iter();
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
        // The next few pods after each, cyclically.
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
    completed: &CompletedCluster<'_>,
    program: &palisade_core::program::Program,
    seed: u64,
    change: Option<Change<'_>>,
) -> Result<(), LabError> {
    let merge_over = if uses_set_lookups(seed) {
        0
    } else {
        MERGE_OVER
    };
    let settings = settings();
    for node in 0..completed.topology.nodes.len() {
        let cluster = &completed.cluster;
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
