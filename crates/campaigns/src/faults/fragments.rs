//! F13: fragments and untracked packets while policies change.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use palisade_core::net::Family;
use palisade_lab::topology::Location;
use palisade_nft::Kernel;
use palisade_nft::ruleset::{Chain, Hook, Match, Name, Point, Rule, Ruleset, Statement};

use super::churn::{ChurningCluster, OPEN, TOGGLED};
use super::ledger::{DecisionTimes, Expected, Timeline};
use super::objects::{Pod, pod_address};
use super::outcome::Outcome;
use super::programmer::Programmer;
use super::test_node::{CLIENT, OTHER_CLIENT, SERVER, SPARE, TestNode};
use super::traffic::{Flow, MIN_PAYLOAD, Traffic, counter};

/// A payload of three fragments on the lab's links.
const FRAGMENTED: usize = 4_000;
/// A port without connection tracking.
const UNTRACKED: u16 = 5301;

/// Exempts a port from connection tracking, like a DNS cache on the node.
fn untrack(node: &TestNode) -> Result<()> {
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
    node.on_node(|| Ok(Kernel::open()?.install_plain(&table)?))
}

/// The number of fragments that a pod has received.
fn fragments_received(node: &TestNode, pod: usize) -> Result<u64> {
    let read = || -> std::io::Result<(String, String)> {
        let snmp = std::fs::read_to_string("/proc/thread-self/net/snmp")?;
        Ok((
            snmp,
            std::fs::read_to_string("/proc/thread-self/net/snmp6")?,
        ))
    };
    let (snmp, snmp6) = node.world.in_pod(pod, read)??;
    let ipv4 =
        counter(&snmp, "Ip:", "ReasmReqds").context("the kernel does not count fragments")?;
    let ipv6 = snmp6
        .lines()
        .find_map(|it| it.strip_prefix("Ip6ReasmReqds"));
    Ok(ipv4
        + ipv6
            .and_then(|it| it.trim().parse::<u64>().ok())
            .unwrap_or(0))
}

/// A flow, and its expected verdict.
#[derive(Debug)]
struct FragmentFlow {
    name: &'static str,
    expected: Timeline,
    is_toggled: bool,
}

fn flows(node: &TestNode) -> Result<(Traffic, Vec<FragmentFlow>)> {
    let [closed, ..] = SPARE;
    let mut traffic = Traffic::default();
    let mut flows = Vec::new();
    for family in Family::BOTH {
        for port in [OPEN, TOGGLED, UNTRACKED] {
            let receiver = node.socket(SERVER, family, port)?;
            traffic.add_receiver(Location::Pod(SERVER), &receiver)?;
        }
        let receiver = node.socket(closed, family, OPEN)?;
        traffic.add_receiver(Location::Pod(closed), &receiver)?;
        for (name, from, to, port, length, expected) in [
            (
                "fragments",
                CLIENT,
                SERVER,
                OPEN,
                FRAGMENTED,
                Expected::Allowed,
            ),
            (
                "denied fragments",
                OTHER_CLIENT,
                closed,
                OPEN,
                FRAGMENTED,
                Expected::Denied,
            ),
            (
                "fragments to the toggled port",
                CLIENT,
                SERVER,
                TOGGLED,
                FRAGMENTED,
                Expected::Denied,
            ),
            (
                "untracked",
                CLIENT,
                SERVER,
                UNTRACKED,
                MIN_PAYLOAD,
                Expected::Denied,
            ),
            (
                "untracked from the other client",
                OTHER_CLIENT,
                SERVER,
                UNTRACKED,
                MIN_PAYLOAD,
                Expected::Denied,
            ),
        ] {
            traffic.add(Flow {
                from: node.sockets(from, family, 1)?,
                to: SocketAddr::new(pod_address(to, family), port),
                length,
                is_paced: expected == Expected::Allowed,
            });
            flows.push(FragmentFlow {
                name,
                expected: Timeline::new(expected),
                is_toggled: port == TOGGLED,
            });
        }
    }
    Ok((traffic, flows))
}

/// Makes changes while such packets flow.
pub fn under_change(
    name: &str,
    node: &TestNode,
    programmer: &mut dyn Programmer,
    updates: u64,
    seed: u64,
) -> Result<Outcome> {
    let mut outcome = Outcome::new(name);
    untrack(node)?;
    let [closed, ..] = SPARE;
    let mut cluster = ChurningCluster::new(seed);
    cluster
        .objects
        .put_pod(&Pod::at("closed", "tenant", closed));
    programmer.apply(&cluster.objects)?;
    let before = fragments_received(node, closed)?;
    let (traffic, mut flows) = flows(node)?;
    let clock = node.clock;
    let mut left = updates;
    while left > 0 {
        let part = left.min(100);
        left -= part;
        let mut commits = Vec::new();
        let ((), logs) = traffic.during(&node.world, clock, || {
            for _ in 0..part {
                cluster.change();
                // Its object stays the same through every change.
                cluster
                    .objects
                    .put_pod(&Pod::at("closed", "tenant", closed));
                let (applied, commit) = clock.time(|| programmer.apply(&cluster.objects));
                applied?;
                commits.push((commit, cluster.is_open));
                std::thread::sleep(Duration::from_micros(500));
            }
            Ok(())
        })?;
        let decided = DecisionTimes::of(&logs);
        for (log, flow) in logs.iter().zip(&mut flows) {
            for (commit, is_open) in commits.iter().filter(|_| flow.is_toggled) {
                let expected = match is_open {
                    true => Expected::Allowed,
                    false => Expected::Denied,
                };
                flow.expected.change(*commit, expected);
            }
            let tally = log.tally(&flow.expected, &decided);
            let message = format!(
                "{}: {} leaked, {} lost",
                flow.name, tally.leaked, tally.lost
            );
            let is_violated = tally.leaked + tally.lost > 0;
            outcome.add(tally, is_violated.then_some(message).into_iter().collect());
        }
        outcome.count("updates", part);
    }
    let leaked = fragments_received(node, closed)? - before;
    outcome.check(leaked == 0, || {
        format!("{leaked} fragments arrived at an isolated pod")
    });
    Ok(outcome)
}
