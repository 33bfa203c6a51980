//! F01: a pod sends before its node knows it. With a policy that denies, no packet passes; with one
//! that allows, the first packet after the commit does.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use palisade_core::net::Family;
use palisade_lab::topology::Location;
use serde_json::json;

use super::ledger::{DecisionTimes, Expected, Timeline};
use super::objects::{Objects, Pod, isolates, pod_address, sends};
use super::outcome::Outcome;
use super::programmer::Programmer;
use super::test_node::{CLIENT, SERVER, SPARE, TestNode};
use super::traffic::{Flow, MIN_PAYLOAD, Traffic};
use palisade_generate::Rng;

/// The port of the server.
const PORT: u16 = 5001;
/// Pods between two tallies.
const BATCH: u64 = 50;

/// What the node knows about the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PodState {
    /// Nothing.
    Unknown,
    /// Its object, without an address.
    NoAddress,
    /// Its address; its policies deny.
    Denied,
    /// Its address; its policies allow.
    Allowed,
}

fn objects(state: PodState) -> Objects {
    let mut objects = Objects::new();
    objects.put_pod(&Pod::at("client", "client", CLIENT));
    objects.put_pod(&Pod::at("server", "server", SERVER));
    objects.put_policy("isolated", &isolates("isolated"));
    objects.put_policy("allowed", &isolates("allowed"));
    objects.put_policy("allowed-sends", &sends("allowed", "server", &[PORT]));
    let from_server = json!({
        "podSelector": {"matchLabels": {"app": "allowed"}},
        "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "server"}}}]}],
    });
    objects.put_policy("allowed-receives", &from_server);
    let [place, ..] = SPARE;
    let pod = Pod::at("new-pod", "isolated", place);
    match state {
        PodState::Unknown => {}
        PodState::NoAddress => objects.put_pod(&Pod {
            addresses: Vec::new(),
            phase: "Pending",
            app: "allowed",
            ..pod
        }),
        PodState::Denied => objects.put_pod(&pod),
        PodState::Allowed => objects.put_pod(&Pod {
            app: "allowed",
            ..pod
        }),
    }
    objects
}

/// The flows: from and to the new pod, denied at first, and one that is always allowed.
fn flows(node: &TestNode) -> Result<(Traffic, Vec<bool>)> {
    let [place, ..] = SPARE;
    let mut traffic = Traffic::default();
    let mut is_new_pods = Vec::new();
    for family in Family::BOTH {
        let server = node.socket(SERVER, family, PORT)?;
        let new_pod = node.socket(place, family, PORT)?;
        traffic.add_receiver(Location::Pod(SERVER), &server)?;
        traffic.add_receiver(Location::Pod(place), &new_pod)?;
        let at = |pod| SocketAddr::new(pod_address(pod, family), PORT);
        for (from, to, is_paced) in [
            (node.sockets(CLIENT, family, 1)?, at(SERVER), true),
            (node.sockets(place, family, 8)?, at(SERVER), false),
            (node.sockets(SERVER, family, 8)?, at(place), false),
        ] {
            traffic.add(Flow {
                from,
                to,
                length: MIN_PAYLOAD,
                is_paced,
            });
            is_new_pods.push(!is_paced);
        }
    }
    Ok((traffic, is_new_pods))
}

/// Starts pods that send from the beginning.
pub fn starts(
    name: &str,
    node: &TestNode,
    programmer: &mut dyn Programmer,
    pods: u64,
    seed: u64,
) -> Result<Outcome> {
    let mut outcome = Outcome::new(name);
    let mut rng = Rng::new(seed);
    programmer
        .apply(&objects(PodState::Unknown))
        .context("the first table")?;
    let (traffic, is_new_pods) = flows(node)?;
    let clock = node.clock;
    let mut timelines: Vec<Timeline> = is_new_pods
        .iter()
        .map(|it| match it {
            true => Timeline::new(Expected::Denied),
            false => Timeline::new(Expected::Allowed),
        })
        .collect();
    let mut left = pods;
    while left > 0 {
        let batch = left.min(BATCH);
        left -= batch;
        let mut commits = Vec::new();
        let ((), logs) = traffic.during(&node.world, clock, || {
            for number in 0..batch {
                let end = match number % 2 {
                    0 => PodState::Denied,
                    _ => PodState::Allowed,
                };
                for state in [PodState::NoAddress, end, PodState::Unknown] {
                    let objects = objects(state);
                    let (applied, commit) = clock.time(|| programmer.apply(&objects));
                    applied?;
                    commits.push((commit, state));
                    thread::sleep(Duration::from_micros(rng.below(1_500)));
                }
            }
            Ok(())
        })?;
        let decided = DecisionTimes::of(&logs);
        for (commit, state) in &commits {
            let expected = match state {
                PodState::Allowed => Expected::Allowed,
                PodState::Unknown | PodState::NoAddress | PodState::Denied => Expected::Denied,
            };
            for (timeline, is_new_pods) in timelines.iter_mut().zip(&is_new_pods) {
                if *is_new_pods {
                    timeline.change(*commit, expected);
                }
            }
        }
        for (commit, _) in commits.iter().filter(|(_, it)| *it == PodState::Allowed) {
            // The time from the commit to the first packet of the new pod.
            let arrivals = logs.iter().zip(&is_new_pods).filter(|(_, it)| **it);
            let arrivals = arrivals.flat_map(|(log, _)| log.arrived.iter().map(|(_, at)| *at));
            let first = arrivals.filter(|at| *at >= commit.0).min();
            if let Some(first) = first {
                outcome.record_time("first packet", first.saturating_sub(commit.1));
            }
        }
        outcome.count("pods started", batch);
        for (flow, (log, timeline)) in logs.iter().zip(&timelines).enumerate() {
            let tally = log.tally(timeline, &decided);
            let is_violated = tally.leaked + tally.lost > 0;
            let leaks = log.leaks(timeline, &decided).join("; ");
            let message = format!(
                "flow {flow}: {} leaked, {} lost; {leaks}",
                tally.leaked, tally.lost
            );
            outcome.add(tally, is_violated.then_some(message).into_iter().collect());
        }
    }
    let opened = outcome.get("arrived");
    outcome.check(opened > 0, || "no packet arrived".to_owned());
    Ok(outcome)
}
