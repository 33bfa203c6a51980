//! The kernel's memory for policies with different selectors of the same pods.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use palisade_api::{Options, Source, key, lower_one, read};
use palisade_core::incremental::{HashKey, IncrementalPlanner};
use palisade_core::plan::{MERGE_OVER, SHARE_FROM};
use palisade_lab::lab;
use palisade_nft::TableUpdater;
use palisade_nft::node::{Generation, Settings};
use serde::Serialize;
use serde_json::{Value, json};

use super::load::{Size, check_table};
use super::memory::Memory;
use super::traffic::percentile;
use super::variant::empty_kernel;
use crate::compare::progress;

const NODE: &str = "here";
const TRIES: usize = 3;
/// The kernel removes a namespace some time after its last use; this is ample.
const SETTLING: Duration = Duration::from_millis(1_000);

/// The numbers of policies and of selected pods.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Same {
    policies: usize,
    pods: usize,
}

impl FromStr for Same {
    type Err = String;

    fn from_str(text: &str) -> Result<Same, String> {
        let words = "two numbers from 1 to 60000 are needed, as in `800,5000`";
        let (policies, pods) = text.split_once(',').ok_or(words)?;
        let number = |text: &str| text.parse().map_err(|_| words.to_owned());
        let (policies, pods) = (number(policies)?, number(pods)?);
        let fits = |it: usize| (1..=60_000).contains(&it);
        if !fits(policies) || !fits(pods) {
            return Err(words.to_owned());
        }
        Ok(Same { policies, pods })
    }
}

/// Their memory.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SameReport {
    policies: usize,
    pods: usize,
    /// Whether groups of the same members are one set.
    is_shared: bool,
    groups: usize,
    sets: usize,
    size: Size,
    /// The least of some loads.
    wall_seconds: f64,
    /// The median of the kernel's additional memory after a load.
    memory_bytes: f64,
}

/// Loads them, as the agent does and with a set for each group.
pub(super) fn same(same: Same, memory: &Memory) -> Result<Vec<SameReport>> {
    let both = [(true, SHARE_FROM), (false, usize::MAX)];
    let reports = both.map(|(is_shared, share_from)| {
        progress(&format!("the same members, shared: {is_shared}"))?;
        measure(same, is_shared, share_from, memory)
    });
    reports.into_iter().collect()
}

fn measure(same: Same, is_shared: bool, share_from: usize, memory: &Memory) -> Result<SameReport> {
    let live = live(same, share_from)?;
    let settings = Settings::of_node(Generation::FIRST, &lab::node_options());
    let (_, ruleset) = TableUpdater::new(&live.plan(), &settings);
    let (mut wall, mut more) = (Vec::new(), Vec::new());
    for index in 0..TRIES {
        let (_world, mut kernel) = empty_kernel()?;
        sleep(SETTLING);
        let before = memory.bytes().context("the memory cannot be read")?;
        let start = Instant::now();
        kernel.install(&ruleset)?;
        wall.push(start.elapsed().as_secs_f64());
        sleep(SETTLING);
        let after = memory.bytes().context("the memory cannot be read")?;
        more.push(after as f64 - before as f64);
        if index == 0 && is_shared {
            check_table(&mut kernel, &ruleset)?;
        }
    }
    let counts = live.counts();
    Ok(SameReport {
        policies: same.policies,
        pods: same.pods,
        is_shared,
        groups: counts.groups,
        sets: counts.sets,
        size: Size::of(&ruleset),
        wall_seconds: percentile(wall, 0),
        memory_bytes: percentile(more, 50),
    })
}

fn live(same: Same, share_from: usize) -> Result<IncrementalPlanner> {
    let mut live = IncrementalPlanner::sharing(NODE, HashKey::new(1, 2), MERGE_OVER, share_from);
    for number in 0..same.policies {
        let app = format!("db-{number}");
        apply(&mut live, &pod(&app, NODE, (2, number)))?;
        apply(&mut live, &policy(number))?;
    }
    for number in 0..same.pods {
        let mut peer = pod(&format!("peer-{number}"), "elsewhere", (1, number));
        if let Some(labels) = peer.pointer_mut("/metadata/labels") {
            *labels = json!({"app": "web"});
        }
        apply(&mut live, &peer)?;
    }
    drop(live.commit());
    let counts = live.counts();
    ensure!(
        counts.groups == same.policies,
        "{} groups instead of one for each policy",
        counts.groups
    );
    Ok(live)
}

fn apply(live: &mut IncrementalPlanner, object: &Value) -> Result<()> {
    let sources = [Source::new("object.json", object.to_string().into_bytes())];
    let manifests = read(&sources, Options::default(), &|_| {});
    let object = manifests.objects.first().context("an object is missing")?;
    let key = key(object).context("no plan depends on an object")?;
    live.set(key, &lower_one(object));
    Ok(())
}

fn pod(name: &str, node: &str, (network, number): (u8, usize)) -> Value {
    let (high, low) = ((number / 250) as u8, (number % 250) as u8 + 1);
    let address = IpAddr::V4(Ipv4Addr::new(10, network, high, low));
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "x", "labels": {"app": name}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}})
}

/// A policy with its own subject, and its own selector for the peers of all policies.
fn policy(number: usize) -> Value {
    let from = json!({"podSelector": {"matchExpressions": [
        {"key": "app", "operator": "In", "values": ["web", format!("other-{number}")]}]}});
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": format!("p-{number}"), "namespace": "x"},
        "spec": {"podSelector": {"matchLabels": {"app": format!("db-{number}")}},
            "ingress": [{"from": [from]}]}})
}

impl fmt::Display for SameReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = if self.is_shared {
            "groups of the same members as one set"
        } else {
            "a set for each group"
        };
        write!(
            f,
            "{} policies x {} pods that all of them select, {shared}: groups {}, sets {}, elements {}; \
             {:.0} ms; kernel memory {:.1} MB",
            self.policies,
            self.pods,
            self.groups,
            self.sets,
            self.size.elements,
            self.wall_seconds * 1e3,
            self.memory_bytes / 1e6
        )
    }
}
