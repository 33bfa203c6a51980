//! Flows between the pods of a cluster, drawn from a seed: as values for the engine, and as text
//! for `explain --flows`.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::num::NonZeroU16;

use palisade_core::decide::{Flow, FlowEnd, Identity, Traffic};
use palisade_core::model::{Cluster, Pod, PodId};
use palisade_core::net::{Family, Protocol};
use palisade_core::program::Program;

use crate::Rng;

/// The ports that flows try at pods that do not declare them.
const PORTS: [(Protocol, u16); 10] = [
    (Protocol::Tcp, 80),
    (Protocol::Tcp, 443),
    (Protocol::Tcp, 8080),
    (Protocol::Tcp, 8443),
    (Protocol::Tcp, 3000),
    (Protocol::Tcp, 5432),
    (Protocol::Tcp, 6379),
    (Protocol::Tcp, 9000),
    (Protocol::Udp, 53),
    (Protocol::Sctp, 9999),
];

/// The pods that flows can start and end at: alive, with an address of their own.
fn pods<'c, 'a>(cluster: &'c Cluster<'a>) -> Vec<(PodId, &'c Pod<'a>)> {
    let pods = (0..).map(PodId).zip(&cluster.pods);
    pods.filter(|(_, pod)| pod.is_selectable() && !pod.addresses.is_empty())
        .collect()
}

/// Random flows from pod to pod; none if there are no pods.
pub fn flows(cluster: &Cluster<'_>, program: &Program, seed: u64, count: usize) -> Vec<Flow> {
    let mut rng = Rng::new(seed);
    let pods = pods(cluster);
    let mut flows = Vec::with_capacity(count);
    while flows.len() < count {
        let (Some((source, a)), Some((destination, b))) =
            (pick(&mut rng, &pods), pick(&mut rng, &pods))
        else {
            break;
        };
        let family = if rng.chance(50) {
            Family::V4
        } else {
            Family::V6
        };
        let shared = [family, Family::V4, Family::V6];
        let shared = shared.map(|family| Some((address(a, family)?, address(b, family)?)));
        let Some((from, to)) = shared.into_iter().flatten().next() else {
            continue;
        };
        let (protocol, port) = port(&mut rng, b);
        flows.push(Flow {
            source: FlowEnd {
                identity: Identity::Pod(*source),
                address: program.address_atom(from),
            },
            destination: FlowEnd {
                identity: Identity::Pod(*destination),
                address: program.address_atom(to),
            },
            traffic: Traffic::Port(protocol, port),
            via_service: false,
            node_local: false,
        });
    }
    flows
}

/// Flow queries, one a line: mostly from pod to pod, some from or to nodes and addresses outside.
pub fn queries(cluster: &Cluster<'_>, seed: u64, count: usize) -> String {
    let mut rng = Rng::new(seed);
    let pods = pods(cluster);
    let mut text = String::new();
    for _ in 0..count {
        let (Some((source, _)), Some((destination, pod))) =
            (pick(&mut rng, &pods), pick(&mut rng, &pods))
        else {
            break;
        };
        let (protocol, number) = port(&mut rng, pod);
        let mut port = number.to_string();
        let (mut from, mut to) = (cluster.pod_name(*source), cluster.pod_name(*destination));
        let node = pick(&mut rng, &cluster.nodes).map(|node| format!("node/{}", node.name));
        match rng.below(100) {
            0..8 => to = outside(&mut rng),
            8..13 => from = outside(&mut rng),
            13..17 => to = node.unwrap_or(to),
            17..20 => from = node.unwrap_or(from),
            _ => {
                let declared = pod.ports.iter().find(|it| {
                    let is_it = it.protocol == protocol && it.port == number;
                    is_it && it.name.is_some()
                });
                if let (true, Some(name)) = (rng.chance(10), declared.and_then(|it| it.name)) {
                    name.clone_into(&mut port);
                }
            }
        }
        let protocol = protocol.name().to_ascii_lowercase();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{from} {to} {protocol}/{port}");
    }
    text
}

fn pick<'l, T>(rng: &mut Rng, list: &'l [T]) -> Option<&'l T> {
    list.get(rng.below(list.len() as u64) as usize)
}

fn address(pod: &Pod<'_>, family: Family) -> Option<IpAddr> {
    let mut addresses = pod.addresses.iter().copied();
    addresses.find(|it| Family::of(*it) == family)
}

fn outside(rng: &mut Rng) -> String {
    match rng.below(2) {
        0 => format!("203.0.{}.{}", rng.below(128), rng.below(256)),
        _ => format!("198.51.100.{}", rng.below(256)),
    }
}

/// Half of the flows are for a port that the destination declares, most others for a common one.
fn port(rng: &mut Rng, destination: &Pod<'_>) -> (Protocol, NonZeroU16) {
    let choice = rng.below(100);
    let declared = pick(rng, &destination.ports).filter(|_| choice < 50);
    if let Some(declared) = declared {
        return (declared.protocol, declared.port);
    }
    let (protocol, number) = if choice < 85 {
        PORTS
            .get(rng.below(PORTS.len() as u64) as usize)
            .copied()
            .unwrap_or((Protocol::Tcp, 80))
    } else {
        (Protocol::Tcp, rng.between(1, 65535) as u16)
    };
    (protocol, NonZeroU16::new(number).unwrap_or(NonZeroU16::MIN))
}

#[cfg(test)]
mod tests {
    use palisade_api::{Options, Source, lower, read};
    use palisade_core::answer::FlowEvaluator;
    use palisade_core::compile::compile;
    use palisade_core::query::FlowQuery;

    use super::*;
    use crate::{World, world_list};

    #[test]
    fn every_flow_is_between_pods_and_every_query_has_an_answer() {
        let bytes = world_list(&World::new(3, 300, 100)).unwrap();
        let sources = [Source::new("cluster.json", bytes)];
        let manifests = read(&sources, Options::default(), &|_| {});
        let lowered = lower(&manifests.objects, Vec::new());
        let program = compile(&lowered.cluster);
        let drawn = flows(&lowered.cluster, &program, 3, 1_000);
        assert_eq!(drawn.len(), 1_000);
        assert_eq!(drawn, flows(&lowered.cluster, &program, 3, 1_000));

        let respondent = FlowEvaluator::new(&lowered.cluster, &program);
        let text = queries(&lowered.cluster, 3, 1_000);
        assert_eq!(text.lines().count(), 1_000);
        for line in text.lines() {
            let answer = respondent.answer(&FlowQuery::parse(line).unwrap());
            assert!(answer.is_ok(), "{line}: {answer:?}");
        }
    }
}
