//! Events of every kind, made of objects of the cluster.

#![allow(
    clippy::indexing_slicing,
    reason = "the objects are our generator's: every named field exists or is null"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::time::{ClockId, clock_gettime};
use palisade_api::{Options, Source, key, lower_one, read};
use palisade_core::incremental::IncrementalPlanner;
use palisade_core::plan::PlanChange;
use serde_json::{Value, json};

use super::report::{EventKind, Times};
use palisade_generate::Rng;

/// The number of pods, namespaces and policies kept for events.
const KEPT: usize = 4_000;

/// Some objects of the cluster.
pub(super) struct Sample {
    rng: Rng,
    node: String,
    n_seen: u64,
    pods: Vec<Value>,
    local_pods: Vec<Value>,
    namespaces: Vec<Value>,
    policies: Vec<Value>,
    local_policies: Vec<Value>,
    admin: Vec<Value>,
}

impl Sample {
    pub(super) fn new(seed: u64, node: &str) -> Sample {
        Sample {
            rng: Rng::new(seed),
            node: node.to_owned(),
            n_seen: 0,
            pods: Vec::new(),
            local_pods: Vec::new(),
            namespaces: Vec::new(),
            policies: Vec::new(),
            local_policies: Vec::new(),
            admin: Vec::new(),
        }
    }

    /// Keeps an object for events. Policies come after pods: it is then known which of them select
    /// local pods.
    pub(super) fn consider(&mut self, object: &Value) {
        self.n_seen += 1;
        let list = match object["kind"].as_str().unwrap_or_default() {
            "Pod" if object["spec"]["nodeName"] == json!(self.node) => &mut self.local_pods,
            "Pod" => &mut self.pods,
            "Namespace" => &mut self.namespaces,
            "NetworkPolicy" => {
                if self.local_pods.iter().any(|pod| selects(object, pod)) {
                    self.local_policies.push(object.clone());
                }
                &mut self.policies
            }
            "ClusterNetworkPolicy" => &mut self.admin,
            _ => return,
        };
        if list.len() < KEPT {
            list.push(object.clone());
        } else {
            let at = self.rng.below(self.n_seen) as usize;
            if let Some(kept) = list.get_mut(at) {
                *kept = object.clone();
            }
        }
    }

    fn any(&mut self, of: impl Fn(&Sample) -> &Vec<Value>) -> Result<Value> {
        let length = of(self).len() as u64;
        let at = self.rng.below(length.max(1)) as usize;
        let found = of(self).get(at).cloned();
        found.context("the cluster lacks a kind of object that events are made of")
    }
}

/// Whether a policy selects a pod by its plain labels.
fn selects(policy: &Value, pod: &Value) -> bool {
    if policy["metadata"]["namespace"] != pod["metadata"]["namespace"] {
        return false;
    }
    let selector = &policy["spec"]["podSelector"];
    let labels = selector["matchLabels"].as_object();
    let mut labels = labels.into_iter().flatten();
    selector["matchExpressions"].is_null()
        && labels.all(|(key, value)| pod["metadata"]["labels"][key] == *value)
}

/// Measures all kinds of events.
pub(super) fn measure(
    live: &mut IncrementalPlanner,
    sample: &mut Sample,
    n: u64,
    only: Option<&str>,
) -> Result<Vec<EventKind>> {
    let n = n as usize;
    let policies = n.min(1_000);
    let mut kinds = Vec::new();
    let mut run = |live: &mut IncrementalPlanner, name, batch, list: Vec<Value>| -> Result<()> {
        if only.is_none_or(|words| str::contains(name, words)) {
            kinds.push(timed(live, name, batch, &list)?);
        }
        Ok(())
    };
    let make = |sample: &mut Sample, n: usize, one: fn(&mut Sample, u64) -> Result<Value>| {
        (0..n as u64)
            .map(|i| one(sample, i))
            .collect::<Result<Vec<Value>>>()
    };
    let same = make(sample, n, |sample, _| sample.any(|it| &it.pods))?;
    // The sampled objects must be unchanged here.
    run(live, "pod, status only", 100, same)?;
    let moved = make(sample, n, moved_pod)?;
    run(live, "pod, another address", 100, moved)?;
    let new = make(sample, n, new_pod)?;
    run(live, "pod of a known class comes", 100, new.clone())?;
    run(
        live,
        "pod of a known class, alone",
        1,
        make(sample, n, moved_pod)?,
    )?;
    let ended = new.into_iter().map(|mut pod| {
        pod["status"]["phase"] = json!("Succeeded");
        pod
    });
    run(live, "pod ends", 100, ended.collect())?;
    run(live, "pod of a new class", 100, make(sample, n, odd_pod)?)?;
    run(
        live,
        "local pod, another address",
        1,
        make(sample, policies, moved_local)?,
    )?;
    run(
        live,
        "local pod of a new class",
        1,
        make(sample, policies.min(200), odd_local)?,
    )?;
    run(
        live,
        "namespace relabelled",
        1,
        make(sample, policies, relabelled)?,
    )?;
    run(
        live,
        "NetworkPolicy, any",
        1,
        make(sample, n, other_policy)?,
    )?;
    run(
        live,
        "NetworkPolicy of a local pod",
        1,
        make(sample, policies, local_policy)?,
    )?;
    run(
        live,
        "cluster-wide policy",
        1,
        make(sample, policies, other_admin)?,
    )?;
    Ok(kinds)
}

fn timed(
    live: &mut IncrementalPlanner,
    name: &'static str,
    batch: usize,
    events: &[Value],
) -> Result<EventKind> {
    let sources = [Source::new("events.json", serde_json::to_vec(events)?)];
    let manifests = read(&sources, Options::default(), &|_| {});
    // For a single event, the time of other programs must not count, but the thread's clock is
    // slower. In a batch, reading the clock takes as long as an event: the batch is timed as a
    // whole.
    let alone = batch == 1;
    let clock = || if alone { Clock::cpu() } else { Clock::wall() };
    let (mut sets, mut whole, mut commits) = (Vec::new(), Vec::new(), Vec::new());
    let mut changes = 0;
    for batch in manifests.objects.chunks(batch) {
        // The caller has just lowered them.
        let meanings = batch
            .iter()
            .filter_map(|object| Some((key(object)?, lower_one(object))));
        let meanings: Vec<_> = meanings.collect();
        let first = sets.len();
        let started = clock();
        for (key, meaning) in &meanings {
            black_box(live.set(*key, black_box(meaning)));
        }
        let mean = started.nanos() / batch.len() as u64;
        sets.extend(batch.iter().map(|_| mean));
        let started = clock();
        let change = black_box(live.commit());
        let commit = started.nanos();
        changes += size(&change);
        commits.push(commit);
        let share = commit / batch.len() as u64;
        let of_batch = sets.get(first..).unwrap_or_default();
        whole.extend(of_batch.iter().map(|set| set + share));
    }
    Ok(EventKind {
        name,
        events: sets.len(),
        batch,
        changes: changes as f64 / sets.len().max(1) as f64,
        set: Times::of(sets),
        with_commit: Times::of(whole),
        commit: Times::of(commits),
    })
}

/// A moment.
enum Clock {
    Wall(Instant),
    Cpu(Duration),
}

impl Clock {
    fn wall() -> Clock {
        Clock::Wall(Instant::now())
    }

    fn cpu() -> Clock {
        Clock::Cpu(own_cpu())
    }

    fn nanos(&self) -> u64 {
        let elapsed = match self {
            Clock::Wall(since) => since.elapsed(),
            Clock::Cpu(since) => own_cpu().saturating_sub(*since),
        };
        u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The processor time of this thread.
fn own_cpu() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.map(Duration::from).unwrap_or_default()
}

fn size(change: &PlanChange) -> usize {
    change.joined.len()
        + change.left.len()
        + change.ended_members.len()
        + change.chains.len()
        + change.pods.len()
}

/// An address that no pod of the cluster has.
fn at(pod: &mut Value, number: u64) {
    let address = format!(
        "10.{}.{}.{}",
        200 + number / 62_500 % 50,
        number / 250 % 250,
        number % 250
    );
    pod["status"]["podIP"] = json!(address);
    pod["status"]["podIPs"] = json!([{"ip": address}]);
}

fn moved_pod(sample: &mut Sample, _: u64) -> Result<Value> {
    let mut pod = sample.any(|it| &it.pods)?;
    let number = sample.rng.below(1_000_000);
    at(&mut pod, number);
    Ok(pod)
}

fn new_pod(sample: &mut Sample, index: u64) -> Result<Value> {
    let mut pod = sample.any(|it| &it.pods)?;
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    pod["metadata"]["name"] = json!(format!("{name}-{index}"));
    let number = sample.rng.below(1_000_000);
    at(&mut pod, number);
    Ok(pod)
}

fn odd_pod(sample: &mut Sample, index: u64) -> Result<Value> {
    let mut pod = sample.any(|it| &it.pods)?;
    pod["metadata"]["labels"]["version"] = json!(format!("v9.{index}"));
    Ok(pod)
}

fn moved_local(sample: &mut Sample, index: u64) -> Result<Value> {
    let mut pod = sample.any(|it| &it.local_pods)?;
    at(&mut pod, 1_000_000 + index);
    Ok(pod)
}

fn odd_local(sample: &mut Sample, index: u64) -> Result<Value> {
    let mut pod = sample.any(|it| &it.local_pods)?;
    pod["metadata"]["labels"]["version"] = json!(format!("v8.{index}"));
    Ok(pod)
}

fn relabelled(sample: &mut Sample, _: u64) -> Result<Value> {
    let mut namespace = sample.any(|it| &it.namespaces)?;
    let env = sample.rng.pick(&["prod", "staging", "test", "dev"]);
    namespace["metadata"]["labels"]["env"] = json!(env);
    Ok(namespace)
}

/// The same policy with one rule more or other ports.
fn edited(sample: &mut Sample, mut policy: Value) -> Value {
    let tier = sample.rng.pick(&["frontend", "backend", "data"]);
    let port = 8_000 + sample.rng.below(1_000);
    policy["spec"]["policyTypes"] = json!(["Ingress"]);
    policy["spec"]["ingress"] = json!([{
        "from": [{"podSelector": {"matchLabels": {"tier": tier}}}, {"ipBlock": {"cidr": "198.18.7.0/24"}}],
        "ports": [{"port": port, "protocol": "TCP"}],
    }]);
    policy
}

fn other_policy(sample: &mut Sample, _: u64) -> Result<Value> {
    let policy = sample.any(|it| &it.policies)?;
    Ok(edited(sample, policy))
}

fn local_policy(sample: &mut Sample, _: u64) -> Result<Value> {
    let policy = sample.any(|it| &it.local_policies)?;
    Ok(edited(sample, policy))
}

/// The rules of another policy, under the name and for the subjects of this one.
fn other_admin(sample: &mut Sample, _: u64) -> Result<Value> {
    let mut policy = sample.any(|it| &it.admin)?;
    let other = sample.any(|it| &it.admin)?;
    for field in ["ingress", "egress"] {
        policy["spec"][field] = other["spec"][field].clone();
        if policy["spec"][field].is_null() {
            policy["spec"][field] = json!([]);
        }
    }
    Ok(policy)
}
