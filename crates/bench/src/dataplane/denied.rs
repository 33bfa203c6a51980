//! The cost of a denied packet, with NetworkPolicies as large as a tenant can write them.

use std::fmt;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, ensure};
use palisade_bench::large::{ADDRESSES, ALL, longest_way, planned};
use palisade_core::net::Family;
use palisade_lab::lab;
use palisade_lab::network::LabNetwork;
use palisade_lab::topology::{PodSpec, Topology};
use palisade_nft::Kernel;
use palisade_nft::node::{Generation, Settings, ruleset};
use palisade_nft::ruleset::{
    Chain, Hook, Match, Name, Point, Rule, Ruleset, Statement, Verdict, state,
};
use serde::Serialize;

use super::load::Size;
use super::machine::RealTime;
use super::traffic::percentile;
use super::variant::node_spec;
use crate::compare::progress;

/// Where packets go: no rule is for it.
const ELSEWHERE: [&str; 2] = ["198.51.100.7", "2001:db8:ffff::7"];
const SLICES: usize = 7;
const PACKETS: u64 = 10_000;
/// The limit of the cost of a denied packet.
const BAR_NANOSECONDS: f64 = 20_000.0;

/// The cost of a denied packet with one kind of policies.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeniedReport {
    name: &'static str,
    /// The number of elements of the policies, or `None` without policies, with a single rule that
    /// drops.
    count: Option<u32>,
    /// The rules of the pod's chain on the longest way.
    rules: usize,
    size: Size,
    /// For each family, with all that it takes to send the packet.
    nanoseconds: [f64; 2],
}

/// Sends packets through one rule that drops everything, and through every kind of large policies.
pub(super) fn denied(count: u32) -> Result<Vec<DeniedReport>> {
    let mut reports = vec![baseline()?];
    for large in ALL {
        progress(&format!("denied: {}", large.name))?;
        let plan = planned(large.objects(count)).map_err(|words| anyhow!(words))?;
        let settings = Settings::of_node(Generation::FIRST, &lab::node_options());
        let ruleset = ruleset(&plan, &settings);
        let world = LabNetwork::build(&topology()?, &|_| {})?;
        let mut kernel = world.in_node(0, Kernel::open)??;
        kernel.install(&ruleset)?;
        let nanoseconds = nanoseconds(&world, large.port).context(large.name)?;
        check(&mut kernel, &ruleset).context(large.name)?;
        reports.push(DeniedReport {
            name: large.name,
            count: Some(count),
            rules: longest_way(&ruleset),
            size: Size::of(&ruleset),
            nanoseconds,
        });
    }
    Ok(reports)
}

/// A table that drops every packet by its first rule.
fn baseline() -> Result<DeniedReport> {
    let rule = Rule {
        matches: vec![Match::CtState(state::NEW)],
        statements: vec![Statement::Verdict(Verdict::Drop)],
        origin: None,
    };
    let ruleset = Ruleset {
        table: Name::word("dropping"),
        sets: Vec::new(),
        chains: vec![Chain {
            name: Name::word("forward"),
            hook: Some(Hook {
                point: Point::Forward,
                priority: 0,
                nat: false,
            }),
            rules: vec![rule],
        }],
    };
    let world = LabNetwork::build(&topology()?, &|_| {})?;
    let mut kernel = world.in_node(0, Kernel::open)??;
    kernel.install_plain(&ruleset)?;
    Ok(DeniedReport {
        name: "one rule that drops everything",
        count: None,
        rules: 1,
        size: Size::of(&ruleset),
        nanoseconds: nanoseconds(&world, 1)?,
    })
}

/// The pod that policies select, and one that no policy selects.
fn topology() -> Result<Topology> {
    let pods = [ADDRESSES, ELSEWHERE].map(|addresses| -> Result<PodSpec> {
        let addresses = addresses.iter().map(|it| Ok(it.parse()?));
        Ok(PodSpec {
            node: 0,
            addresses: addresses.collect::<Result<Vec<IpAddr>>>()?,
        })
    });
    Ok(Topology {
        nodes: vec![node_spec()],
        pods: pods.into_iter().collect::<Result<_>>()?,
        outside: Vec::new(),
    })
}

/// The time that passes for a packet of each family, the least of some slices. The kernel handles
/// each packet while it is sent, and this is the whole cost; the counters show that no work is
/// deferred.
fn nanoseconds(world: &LabNetwork, port: u16) -> Result<[f64; 2]> {
    // Without it there is more noise, and no packet costs less.
    let _real_time = RealTime::begin();
    let [v4, v6] = Family::BOTH.map(|family| -> Result<f64> {
        let of = |[v4, v6]: [&str; 2]| -> Result<IpAddr> {
            let text = match family {
                Family::V4 => v4,
                Family::V6 => v6,
            };
            Ok(text.parse()?)
        };
        let (from, to) = (of(ADDRESSES)?, of(ELSEWHERE)?);
        let socket = world.in_pod(0, || -> Result<UdpSocket> {
            let socket = UdpSocket::bind(SocketAddr::new(from, 0))?;
            socket.connect(SocketAddr::new(to, port))?;
            Ok(socket)
        })??;
        let slices = (0..SLICES).map(|_| -> Result<f64> {
            let start = Instant::now();
            for _ in 0..PACKETS {
                socket.send(&[0])?;
            }
            Ok(start.elapsed().as_secs_f64() * 1e9 / PACKETS as f64)
        });
        Ok(percentile(slices.collect::<Result<_>>()?, 0))
    });
    Ok([v4?, v6?])
}

/// Ensures that the end of the pod's chain has dropped every packet of each family, and nothing
/// else has.
fn check(kernel: &mut Kernel, ruleset: &Ruleset) -> Result<()> {
    let counts = kernel.counters()?;
    for word in ["egress4-", "egress6-"] {
        let mut chains = ruleset.chains.iter();
        let chain = chains.find(|it| it.name.as_str().starts_with(word));
        let chain = chain.context("the pod has no chain")?;
        let of_chain = counts.iter().filter(|it| it.chain == chain.name.as_str());
        for count in of_chain {
            let is_end = count.rule + 1 == chain.rules.len();
            let expected = if is_end { SLICES as u64 * PACKETS } else { 0 };
            ensure!(
                count.packets == expected,
                "rule {} of {} has counted {} packets instead of {expected}",
                count.rule,
                chain.name.as_str(),
                count.packets
            );
        }
    }
    Ok(())
}

impl fmt::Display for DeniedReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DeniedReport {
            name,
            count,
            rules,
            size,
            nanoseconds: [v4, v6],
        } = self;
        let count = count.map_or(String::new(), |count| count.to_string());
        let bar = BAR_NANOSECONDS / 1e3;
        let met = if v4.max(*v6) <= BAR_NANOSECONDS {
            "met"
        } else {
            "MISSED"
        };
        write!(
            f,
            "  {name:<72}{count:>7}{rules:>7}{:>10}{:>9.2}{:>9.2}  <= {bar:.0}  {met}",
            size.elements,
            v4 / 1e3,
            v6 / 1e3
        )
    }
}

/// All of them, as a table.
pub(super) fn show(reports: &[DeniedReport], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let [a, b, c, d, e, g, h] = [
        "a denied packet of UDP, least of 7 slices",
        "of each",
        "rules",
        "elements",
        "IPv4 us",
        "IPv6 us",
        "bar (us)",
    ];
    writeln!(f, "{a:<74}{b:>7}{c:>7}{d:>10}{e:>9}{g:>9}  {h}")?;
    for report in reports {
        writeln!(f, "{report}")?;
    }
    Ok(())
}
