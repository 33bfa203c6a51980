//! The objects of a simulation: several versions of each, which makes setting one after another an
//! edit, and reuses addresses and names.

use std::collections::BTreeMap;
use std::net::IpAddr;

use palisade_api::{Object, Options, Source, key, lower, lower_within, read};
use palisade_core::budget::Budget;
use palisade_core::compile::compile;
use palisade_core::incremental::{ObjectKey, ObjectKind};
use palisade_core::model::Cluster;
use palisade_oracle::generate::scenario;
use serde_json::{Value, json};

use super::dense;
use super::evaluation::Packet;
use super::script::Step;
use palisade_generate::Rng;

/// The identity of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// Its kind.
    pub(super) kind: ObjectKind,
    /// Its namespace, or an empty string.
    pub(super) namespace: String,
    /// Its name.
    pub(super) name: String,
}

impl Key {
    /// As the agent's key.
    pub(super) fn borrowed(&self) -> ObjectKey<'_> {
        ObjectKey {
            kind: self.kind,
            namespace: &self.namespace,
            name: &self.name,
        }
    }
}

/// The manifests that a catalog is read from.
#[derive(Debug)]
pub(super) struct Sources([Source; 1]);

impl Sources {
    /// Generates the manifests of a seed.
    pub(super) fn new(seed: u64) -> Sources {
        let mut rng = Rng::new(seed ^ 0x6361_7461_6c6f_6700);
        let mut objects = Vec::new();
        if seed.is_multiple_of(2) {
            for version in 0..3 + rng.below(3) {
                objects.extend(dense::objects(&mut rng, version));
            }
        } else {
            let first = rng.below(1_000_000);
            for version in 0..2 + rng.below(3) {
                objects.extend(scenario(first + version, 0).objects);
            }
        }
        for object in &mut objects {
            give_block(&mut rng, object);
        }
        // One object per line: a failure prints the line.
        let lines: Vec<String> = objects.iter().map(Value::to_string).collect();
        let text = format!("[\n{}\n]", lines.join(",\n"));
        Sources([Source::new("objects.json", text.into_bytes())])
    }
}

/// Adds `podCIDRs` to a Node: nodes of scenarios have none.
fn give_block(rng: &mut Rng, object: &mut Value) {
    if object.get("kind").is_some_and(|it| it == "Node") && rng.chance(70) {
        let blocks = match rng.below(4) {
            0 => json!(["10.0.1.0/24"]),
            1 => json!(["10.0.0.0/24", "fd00::/64"]),
            2 => json!(["10.0.1.8/29", "fd00:0:0:1::/64"]),
            _ => json!(["10.0.0.4/30"]),
        };
        if let Some(map) = object.as_object_mut() {
            map.insert("spec".to_owned(), json!({"podCIDRs": blocks}));
        }
    }
}

/// The objects by key, each in all its versions.
#[derive(Debug)]
pub(super) struct Catalog<'s> {
    /// The keys.
    pub(super) keys: Vec<Key>,
    versions: Vec<Vec<Object<'s>>>,
    text: &'s str,
    /// The addresses of all pods and nodes.
    pub(super) addresses: Vec<IpAddr>,
}

impl<'s> Catalog<'s> {
    /// Reads it.
    pub(super) fn new(sources: &'s Sources) -> Catalog<'s> {
        let manifests = read(&sources.0, Options::default(), &|_| {});
        let mut by_key: BTreeMap<Key, Vec<Object<'s>>> = BTreeMap::new();
        for object in manifests.objects {
            let Some(key) = key(&object).filter(|it| !it.name.is_empty()) else {
                continue;
            };
            let key = Key {
                kind: key.kind,
                namespace: key.namespace.to_owned(),
                name: key.name.to_owned(),
            };
            let versions = by_key.entry(key).or_default();
            if versions.len() < 4 {
                versions.push(object);
            }
        }
        let mut addresses = Vec::new();
        for object in by_key.values().flatten() {
            let lowered = lower(std::slice::from_ref(object), Vec::new());
            let pods = lowered.cluster.pods.iter().flat_map(|it| &it.addresses);
            let nodes = lowered.cluster.nodes.iter().flat_map(|it| &it.addresses);
            addresses.extend(pods.chain(nodes).copied());
        }
        addresses.sort_unstable();
        addresses.dedup();
        let (keys, versions) = by_key.into_iter().unzip();
        Catalog {
            keys,
            versions,
            text: sources.0.first().map_or("", Source::text),
            addresses,
        }
    }

    /// The number of versions of an object.
    pub(super) fn versions(&self, key: usize) -> usize {
        self.versions.get(key).map_or(0, Vec::len)
    }

    /// A version of an object.
    pub(super) fn object(&self, key: usize, version: usize) -> Option<&Object<'s>> {
        self.versions.get(key)?.get(version)
    }

    /// A version of an object as JSON.
    pub(super) fn json(&self, key: usize, version: usize) -> Option<Value> {
        let start = self.object(key, version)?.span.range().start;
        let line = self.text.get(start..)?.lines().next()?;
        serde_json::from_str(line.trim_end_matches(',')).ok()
    }

    /// A step as text.
    pub(super) fn describe(&self, step: Step, flows: &[Packet]) -> String {
        let name = |key: usize| {
            let key = self.keys.get(key);
            key.map_or_else(String::new, |it| {
                format!("{} {}/{}", it.kind.short(), it.namespace, it.name)
            })
        };
        match step {
            Step::Set(key, version) => {
                let object = self.object(key, version);
                let text = object.and_then(|it| self.text.get(it.span.range().start..));
                let line = text.and_then(|it| it.lines().next()).unwrap_or_default();
                format!("set {} = {line}", name(key))
            }
            Step::Remove(key) => format!("remove {}", name(key)),
            Step::Repeat(key) => format!("repeat {}", name(key)),
            Step::Send(flow, reply) => {
                let flow = flows.get(flow);
                let flow = flow.map(|it| (it.client, it.server, it.l4, it.port));
                format!("send {flow:?}, reply: {reply}")
            }
            Step::Relist(_)
            | Step::Deliver(_)
            | Step::Sync
            | Step::Advance
            | Step::Pass(_)
            | Step::Resync
            | Step::Refuse
            | Step::LoseResponse
            | Step::Kill
            | Step::Start
            | Step::ForeignChange(..)
            | Step::Notice(_)
            | Step::Converge { .. } => format!("{step:?}"),
        }
    }

    /// Lowers and compiles versions of objects, with this budget for the NetworkPolicies of each
    /// namespace.
    pub(super) fn with_cluster<R>(
        &self,
        budget: Budget,
        received: &BTreeMap<usize, usize>,
        then: impl FnOnce(&Cluster<'_>, &palisade_core::program::Program) -> R,
    ) -> R {
        let objects = received
            .iter()
            .filter_map(|(key, version)| self.object(*key, *version));
        let objects: Vec<Object<'_>> = objects.cloned().collect();
        let lowered = lower_within(&objects, Vec::new(), budget);
        let program = compile(&lowered.cluster);
        then(&lowered.cluster, &program)
    }
}

/// Consecutive seeds that share one catalog of objects.
const SEEDS_PER_CATALOG: u64 = 64;

/// Runs seeds in order, each with its catalog, up to the first result.
pub(super) fn first_of<T>(
    seeds: std::ops::Range<u64>,
    mut run: impl FnMut(u64, &Catalog<'_>) -> Option<T>,
) -> Option<T> {
    let mut first = seeds.start;
    while first < seeds.end {
        let number = first / SEEDS_PER_CATALOG;
        let end = ((number + 1) * SEEDS_PER_CATALOG).min(seeds.end);
        let sources = Sources::new(number);
        let catalog = Catalog::new(&sources);
        if let Some(found) = (first..end).find_map(|seed| run(seed, &catalog)) {
            return Some(found);
        }
        first = end;
    }
    None
}
