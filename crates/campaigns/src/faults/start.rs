//! F01: a pod sends before its node knows it. With a policy that denies, nothing ever gets through;
//! with one that allows, the first packet after the commit does.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use palisade_core::net::Family;
use palisade_lab::topology::Location;
use serde_json::json;

use super::ledger::{Expected, Settled, Timeline};
use super::objects::{Objects, Pod, isolates, pod_address, sends};
use super::outcome::Outcome;
use super::programming::Programming;
use super::test_node::{CLIENT, SERVER, SPARE, TestNode};
use super::traffic::{Flow, SHORTEST, Traffic};
use palisade_generate::Rng;

/// The port of the server.
const PORT: u16 = 5001;
/// So many pods start before packets are counted up.
const PART: u64 = 50;

/// What the node knows of the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// Nothing.
    Not,
    /// That there is one, but not its address.
    WithoutAddress,
    /// Everything; its policies deny.
    Denied,
    /// Everything; its policies allow.
    Allowed,
}

fn objects(known: Known) -> Objects {
    let mut objects = Objects::new();
    objects.put_pod(&Pod::at("client", "client", CLIENT));
    objects.put_pod(&Pod::at("server", "server", SERVER));
    objects.put_policy("tenant", &isolates("tenant"));
    objects.put_policy("guest", &isolates("guest"));
    objects.put_policy("guest-sends", &sends("guest", "server", &[PORT]));
    let from_server = json!({
        "podSelector": {"matchLabels": {"app": "guest"}},
        "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "server"}}}]}],
    });
    objects.put_policy("guest-hears", &from_server);
    let [place, ..] = SPARE;
    let pod = Pod::at("newcomer", "tenant", place);
    match known {
        Known::Not => {}
        Known::WithoutAddress => objects.put_pod(&Pod {
            addresses: Vec::new(),
            phase: "Pending",
            app: "guest",
            ..pod
        }),
        Known::Denied => objects.put_pod(&pod),
        Known::Allowed => objects.put_pod(&Pod {
            app: "guest",
            ..pod
        }),
    }
    objects
}

/// The flows: from and to the newcomer, which start denied, and one that is always allowed.
fn streets(stage: &TestNode) -> Result<(Traffic, Vec<bool>)> {
    let [place, ..] = SPARE;
    let mut traffic = Traffic::default();
    let mut is_newcomers = Vec::new();
    for family in Family::BOTH {
        let server = stage.socket(SERVER, family, PORT)?;
        let newcomer = stage.socket(place, family, PORT)?;
        traffic.hear(Location::Pod(SERVER), &server)?;
        traffic.hear(Location::Pod(place), &newcomer)?;
        let at = |pod| SocketAddr::new(pod_address(pod, family), PORT);
        for (from, to, is_paced) in [
            (stage.sockets(CLIENT, family, 1)?, at(SERVER), true),
            (stage.sockets(place, family, 8)?, at(SERVER), false),
            (stage.sockets(SERVER, family, 8)?, at(place), false),
        ] {
            traffic.add(Flow {
                from,
                to,
                length: SHORTEST,
                is_paced,
            });
            is_newcomers.push(!is_paced);
        }
    }
    Ok((traffic, is_newcomers))
}

/// Lets so many pods start, each of which is sending already.
pub fn starts(
    name: &str,
    stage: &TestNode,
    programming: &mut dyn Programming,
    pods: u64,
    seed: u64,
) -> Result<Outcome> {
    let mut outcome = Outcome::new(name);
    let mut rng = Rng::new(seed);
    programming
        .apply(&objects(Known::Not))
        .context("the first table")?;
    let (traffic, is_newcomers) = streets(stage)?;
    let clock = stage.clock;
    let mut timelines: Vec<Timeline> = is_newcomers
        .iter()
        .map(|it| match it {
            true => Timeline::new(Expected::Denied),
            false => Timeline::new(Expected::Allowed),
        })
        .collect();
    let mut left = pods;
    while left > 0 {
        let part = left.min(PART);
        left -= part;
        let mut commits = Vec::new();
        let ((), logs) = traffic.during(&stage.world, clock, || {
            for number in 0..part {
                let end = match number % 2 {
                    0 => Known::Denied,
                    _ => Known::Allowed,
                };
                for known in [Known::WithoutAddress, end, Known::Not] {
                    let objects = objects(known);
                    let (applied, commit) = clock.time(|| programming.apply(&objects));
                    applied?;
                    commits.push((commit, known));
                    thread::sleep(Duration::from_micros(rng.below(1_500)));
                }
            }
            Ok(())
        })?;
        let settled = Settled::of(&logs);
        for (commit, known) in &commits {
            let expected = match known {
                Known::Allowed => Expected::Allowed,
                Known::Not | Known::WithoutAddress | Known::Denied => Expected::Denied,
            };
            for (timeline, is_newcomers) in timelines.iter_mut().zip(&is_newcomers) {
                if *is_newcomers {
                    timeline.change(*commit, expected);
                }
            }
        }
        for (commit, _) in commits.iter().filter(|(_, it)| *it == Known::Allowed) {
            // How long after the commit the first packet of the newcomer was there.
            let arrivals = logs.iter().zip(&is_newcomers).filter(|(_, it)| **it);
            let arrivals = arrivals.flat_map(|(log, _)| log.arrived.iter().map(|(_, at)| *at));
            let first = arrivals.filter(|at| *at >= commit.0).min();
            if let Some(first) = first {
                outcome.took("first packet", first.saturating_sub(commit.1));
            }
        }
        outcome.count("pods started", part);
        for (flow, (log, timeline)) in logs.iter().zip(&timelines).enumerate() {
            let tally = log.judge(timeline, &settled);
            let is_broken = tally.leaked + tally.lost > 0;
            let leaks = log.leaks(timeline, &settled).join("; ");
            let words = format!(
                "flow {flow}: {} leaked, {} lost; {leaks}",
                tally.leaked, tally.lost
            );
            outcome.add(tally, is_broken.then_some(words).into_iter().collect());
        }
    }
    let opened = outcome.get("arrived");
    outcome.check(opened > 0, || "nothing was ever allowed".to_owned());
    Ok(outcome)
}
