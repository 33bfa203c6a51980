//! F13: packets in pieces, and packets that are not tracked, while the policies change.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use palisade_core::net::Family;
use palisade_lab::topology::Location;
use palisade_nft::Kernel;
use palisade_nft::ruleset::{Chain, Hook, Match, Name, Point, Rule, Ruleset, Statement};

use super::churn::{ChurningCluster, DOOR, OPEN};
use super::ledger::{Expected, Settled, Timeline};
use super::objects::{Pod, pod_address};
use super::outcome::Outcome;
use super::programming::Programming;
use super::test_node::{CLIENT, SERVER, SPARE, STRANGER, TestNode};
use super::traffic::{Flow, SHORTEST, Traffic, counter};

/// Three pieces on the links of the lab.
const LONG: usize = 4_000;
/// A port at which nobody is tracked.
const UNTRACKED: u16 = 5301;

/// Keeps a port out of connection tracking, as a resolver on the node may.
fn untrack(stage: &TestNode) -> Result<()> {
    let table = Ruleset {
        table: Name::word("untrack"),
        sets: Vec::new(),
        chains: vec![Chain {
            name: Name::word("prerouting"),
            hook: Some(Hook {
                point: Point::Prerouting,
                priority: -300,
                nat: false,
            }),
            rules: vec![Rule {
                matches: vec![Match::L4(17), Match::HeaderPort(UNTRACKED, UNTRACKED)],
                statements: vec![Statement::Notrack],
                origin: None,
            }],
        }],
    };
    stage.on_node(|| Ok(Kernel::open()?.install_plain(&table)?))
}

/// How many pieces have come to a pod.
fn pieces(stage: &TestNode, pod: usize) -> Result<u64> {
    let read = || -> std::io::Result<(String, String)> {
        let snmp = std::fs::read_to_string("/proc/thread-self/net/snmp")?;
        Ok((
            snmp,
            std::fs::read_to_string("/proc/thread-self/net/snmp6")?,
        ))
    };
    let (snmp, snmp6) = stage.world.in_pod(pod, read)??;
    let ipv4 = counter(&snmp, "Ip:", "ReasmReqds").context("pieces are not counted")?;
    let ipv6 = snmp6
        .lines()
        .find_map(|it| it.strip_prefix("Ip6ReasmReqds"));
    Ok(ipv4
        + ipv6
            .and_then(|it| it.trim().parse::<u64>().ok())
            .unwrap_or(0))
}

/// What each flow is, and what should become of it.
#[derive(Debug)]
struct FragmentFlow {
    name: &'static str,
    expected: Timeline,
    is_door: bool,
}

fn streets(stage: &TestNode) -> Result<(Traffic, Vec<FragmentFlow>)> {
    let [closed, ..] = SPARE;
    let mut traffic = Traffic::default();
    let mut streets = Vec::new();
    for family in Family::BOTH {
        for port in [OPEN, DOOR, UNTRACKED] {
            let ear = stage.socket(SERVER, family, port)?;
            traffic.hear(Location::Pod(SERVER), &ear)?;
        }
        let ear = stage.socket(closed, family, OPEN)?;
        traffic.hear(Location::Pod(closed), &ear)?;
        for (name, from, to, port, length, expected) in [
            ("pieces", CLIENT, SERVER, OPEN, LONG, Expected::Allowed),
            (
                "denied pieces",
                STRANGER,
                closed,
                OPEN,
                LONG,
                Expected::Denied,
            ),
            (
                "pieces at the door",
                CLIENT,
                SERVER,
                DOOR,
                LONG,
                Expected::Denied,
            ),
            (
                "untracked",
                CLIENT,
                SERVER,
                UNTRACKED,
                SHORTEST,
                Expected::Denied,
            ),
            (
                "untracked of a stranger",
                STRANGER,
                SERVER,
                UNTRACKED,
                SHORTEST,
                Expected::Denied,
            ),
        ] {
            traffic.add(Flow {
                from: stage.sockets(from, family, 1)?,
                to: SocketAddr::new(pod_address(to, family), port),
                length,
                is_paced: expected == Expected::Allowed,
            });
            streets.push(FragmentFlow {
                name,
                expected: Timeline::new(expected),
                is_door: port == DOOR,
            });
        }
    }
    Ok((traffic, streets))
}

/// Makes so many changes while such packets flow.
pub fn under_change(
    name: &str,
    stage: &TestNode,
    programming: &mut dyn Programming,
    updates: u64,
    seed: u64,
) -> Result<Outcome> {
    let mut outcome = Outcome::new(name);
    untrack(stage)?;
    let [closed, ..] = SPARE;
    let mut town = ChurningCluster::new(seed);
    town.objects.put_pod(&Pod::at("closed", "tenant", closed));
    programming.apply(&town.objects)?;
    let before = pieces(stage, closed)?;
    let (traffic, mut streets) = streets(stage)?;
    let clock = stage.clock;
    let mut left = updates;
    while left > 0 {
        let part = left.min(100);
        left -= part;
        let mut commits = Vec::new();
        let ((), logs) = traffic.during(&stage.world, clock, || {
            for _ in 0..part {
                town.change();
                // It stays what it is, whoever comes and goes.
                town.objects.put_pod(&Pod::at("closed", "tenant", closed));
                let (applied, commit) = clock.time(|| programming.apply(&town.objects));
                applied?;
                commits.push((commit, town.is_open));
                std::thread::sleep(Duration::from_micros(500));
            }
            Ok(())
        })?;
        let settled = Settled::of(&logs);
        for (log, street) in logs.iter().zip(&mut streets) {
            for (commit, is_open) in commits.iter().filter(|_| street.is_door) {
                let expected = match is_open {
                    true => Expected::Allowed,
                    false => Expected::Denied,
                };
                street.expected.change(*commit, expected);
            }
            let tally = log.judge(&street.expected, &settled);
            let words = format!(
                "{}: {} leaked, {} lost",
                street.name, tally.leaked, tally.lost
            );
            let is_broken = tally.leaked + tally.lost > 0;
            outcome.add(tally, is_broken.then_some(words).into_iter().collect());
        }
        outcome.count("updates", part);
    }
    let leaked = pieces(stage, closed)? - before;
    outcome.check(leaked == 0, || {
        format!("{leaked} single pieces got to a closed pod")
    });
    Ok(outcome)
}
