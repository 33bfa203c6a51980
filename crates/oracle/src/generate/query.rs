//! Random flow queries of a cluster: mostly pod to pod, about 3 in 100 are errors.

use super::cluster::{Cluster, OUTSIDE, PodInfo};
use super::rng::Rng;

/// Numbers near the limits in rules.
const NUMBERS: [u16; 16] = [
    1, 52, 53, 54, 79, 80, 81, 82, 443, 8000, 8080, 8081, 9003, 9090, 9091, 65535,
];

/// A port without a name; `four` and `six` are the possible families.
fn plain_port(rng: &mut Rng, four: bool, six: bool) -> String {
    let number = *rng.pick(&NUMBERS);
    match rng.below(100) {
        0..=62 => format!("tcp/{number}"),
        63..=79 => format!("udp/{number}"),
        80..=87 => format!("sctp/{number}"),
        88..=92 if four => "icmp".to_owned(),
        88..=95 if six => "icmpv6".to_owned(),
        96 if four => "ip/1".to_owned(),
        97 if six => "ip/58".to_owned(),
        _ => "ip/47".to_owned(),
    }
}

/// The pod of a word, by name or address.
fn pod_of<'a>(c: &'a Cluster, word: &str) -> Option<&'a PodInfo> {
    let plain = word.replace("/pod/", "/");
    c.pods
        .iter()
        .find(|p| p.id == plain || p.addresses.iter().any(|a| a == word))
}

/// The families of an endpoint, as far as its word shows them.
fn families(c: &Cluster, word: &str) -> (bool, bool) {
    if !word.contains('/') {
        return (!word.contains(':'), word.contains(':'));
    }
    match pod_of(c, word) {
        Some(p) if !p.addresses.is_empty() => (
            p.addresses.iter().any(|a| !a.contains(':')),
            p.addresses.iter().any(|a| a.contains(':')),
        ),
        _ => (true, true),
    }
}

/// A port for a pair; `None` if the two have no family in common, most of the time.
fn port(rng: &mut Rng, c: &Cluster, src: &str, dst: &str) -> Option<String> {
    let (a, b) = (families(c, src), families(c, dst));
    let (four, six) = (a.0 && b.0, a.1 && b.1);
    if !four && !six && !rng.chance(1, 20) {
        return None;
    }
    let names = pod_of(c, dst).filter(|p| !p.host).map(|p| &p.names);
    match names {
        Some(names) if !names.is_empty() && rng.chance(1, 10) => {
            let (protocol, name) = rng.pick(names);
            Some(format!("{protocol}/{name}"))
        }
        _ => Some(plain_port(rng, four, six)),
    }
}

fn live_pod(rng: &mut Rng, c: &Cluster) -> String {
    let live: Vec<&str> = c
        .pods
        .iter()
        .filter(|p| p.live && !p.host)
        .map(|p| p.id.as_str())
        .collect();
    if live.is_empty() {
        return c.pods[0].id.clone();
    }
    let id = *rng.pick(&live);
    match (rng.below(30), id.split_once('/')) {
        (0, Some((ns, name))) => format!("{ns}/pod/{name}"),
        _ => id.to_owned(),
    }
}

fn pod_address(rng: &mut Rng, c: &Cluster) -> String {
    let all: Vec<&String> = c
        .pods
        .iter()
        .filter(|p| !p.host)
        .flat_map(|p| &p.addresses)
        .collect();
    match all.is_empty() {
        true => live_pod(rng, c),
        false => (*rng.pick(&all)).clone(),
    }
}

fn host_pod(rng: &mut Rng, c: &Cluster) -> Option<String> {
    let all: Vec<&str> = c
        .pods
        .iter()
        .filter(|p| p.live && p.host)
        .map(|p| p.id.as_str())
        .collect();
    (!all.is_empty()).then(|| (*rng.pick(&all)).to_owned())
}

fn outside(rng: &mut Rng) -> String {
    (*rng.pick(&OUTSIDE)).to_owned()
}

/// A Service as destination, with a port that it offers.
fn service(rng: &mut Rng, c: &Cluster, through_node: bool) -> Option<(String, String)> {
    if c.services.is_empty() {
        return None;
    }
    let s = rng.pick(&c.services);
    let (protocol, number, name, node_port) = rng.pick(&s.ports);
    let port = match (rng.below(3), node_port) {
        (0, _) => name.clone(),
        (1, Some(n)) if through_node => n.to_string(),
        _ => number.to_string(),
    };
    let word = if !s.addresses.is_empty() && rng.chance(1, 2) {
        rng.pick(&s.addresses).clone()
    } else {
        s.id.clone()
    };
    Some((word, format!("{protocol}/{port}")))
}

/// One line of a flows file.
pub(crate) fn query(rng: &mut Rng, c: &Cluster) -> String {
    loop {
        if let Some(q) = attempt(rng, c) {
            return q;
        }
    }
}

/// `None`: try again.
fn attempt(rng: &mut Rng, c: &Cluster) -> Option<String> {
    let (src, dst) = match rng.below(100) {
        0..=61 => {
            let (src, dst) = (live_pod(rng, c), live_pod(rng, c));
            if src == dst && rng.chance(9, 10) {
                return None;
            }
            (src, dst)
        }
        62..=64 => (pod_address(rng, c), live_pod(rng, c)),
        65..=67 => (live_pod(rng, c), pod_address(rng, c)),
        68..=70 => (outside(rng), live_pod(rng, c)),
        71..=73 => (live_pod(rng, c), outside(rng)),
        74..=76 => (format!("node/{}", rng.pick(&c.nodes)), live_pod(rng, c)),
        77 | 78 => (live_pod(rng, c), format!("node/{}", rng.pick(&c.nodes))),
        79 => (rng.pick(&c.node_addresses).clone(), live_pod(rng, c)),
        80 => (live_pod(rng, c), rng.pick(&c.node_addresses).clone()),
        81 | 82 => {
            let h = host_pod(rng, c)?;
            if rng.chance(1, 2) {
                (h, live_pod(rng, c))
            } else {
                (live_pod(rng, c), h)
            }
        }
        83..=86 => {
            if c.workloads.is_empty() {
                return None;
            }
            let w = rng.pick(&c.workloads).clone();
            match rng.below(5) {
                0 => (w, rng.pick(&c.workloads).clone()),
                1 | 2 => (live_pod(rng, c), w),
                3 => (w, outside(rng)),
                _ => (w, live_pod(rng, c)),
            }
        }
        87..=92 => {
            let src = match rng.below(6) {
                0 => outside(rng),
                1 => format!("node/{}", rng.pick(&c.nodes)),
                _ => live_pod(rng, c),
            };
            let (dst, port) = service(rng, c, false)?;
            return Some(format!("{src} {dst} {port}"));
        }
        93 | 94 => return through(rng, c),
        95 => {
            let loopback = *rng.pick(&["127.0.0.1", "::1", "127.8.8.8"]);
            let src = if rng.chance(1, 4) {
                format!("node/{}", rng.pick(&c.nodes))
            } else {
                live_pod(rng, c)
            };
            let six = loopback.contains(':');
            return Some(format!("{src} {loopback} {}", plain_port(rng, !six, six)));
        }
        96 => {
            if rng.chance(1, 2) {
                (outside(rng), outside(rng))
            } else {
                let there = |p: &&PodInfo| p.live && p.node.as_deref() == Some("ghost");
                let pod = c.pods.iter().find(there)?;
                ("node/ghost".to_owned(), pod.id.clone())
            }
        }
        _ => return Some(erroneous(rng, c)),
    };
    let port = port(rng, c, &src, &dst)?;
    Some(format!("{src} {dst} {port}"))
}

/// Through a node from outside, or a pod through a Service.
fn through(rng: &mut Rng, c: &Cluster) -> Option<String> {
    let node = rng.pick(&c.nodes).clone();
    if rng.chance(1, 3) {
        return at_node_port(rng, c);
    }
    if rng.chance(1, 3) {
        let (dst, port) = service(rng, c, true)?;
        return Some(format!("{} {dst} {port} via node/{node}", outside(rng)));
    }
    if rng.chance(1, 2) {
        let s = c.services.iter().find(|s| !s.addresses.is_empty())?;
        let s = &s.id;
        let (src, dst) = (live_pod(rng, c), live_pod(rng, c));
        let dst = if rng.chance(1, 2) { src.clone() } else { dst };
        let port = port(rng, c, &src, &dst)?;
        return Some(format!("{src} {dst} {port} via {s}"));
    }
    let (src, dst) = (outside(rng), live_pod(rng, c));
    let port = port(rng, c, &src, &dst)?;
    Some(format!("{src} {dst} {port} via node/{node}"))
}

/// A nodePort at an address of a node, from outside and from inside.
fn at_node_port(rng: &mut Rng, c: &Cluster) -> Option<String> {
    if c.services.is_empty() {
        return None;
    }
    let s = rng.pick(&c.services);
    let (protocol, _, _, node_port) = rng.pick(&s.ports);
    let port = (*node_port)?;
    let src = match rng.below(4) {
        0 => live_pod(rng, c),
        1 => format!("node/{}", rng.pick(&c.nodes)),
        _ => outside(rng),
    };
    let dst = rng.pick(&c.node_addresses).clone();
    Some(format!("{src} {dst} {protocol}/{port}"))
}

fn erroneous(rng: &mut Rng, c: &Cluster) -> String {
    let pod = live_pod(rng, c);
    let finished = c.pods.iter().find(|p| !p.live);
    match rng.below(14) {
        0 => format!("{pod} nope/missing tcp/80"),
        1 => format!("nope/missing {pod} tcp/80"),
        2 => format!("{pod} {pod} tcp/0"),
        3 => format!("{pod} {pod} tcp/65536"),
        4 => format!("{pod} {pod} tcp/no-such-name"),
        5 => format!("node/nowhere {pod} tcp/80"),
        6 => format!("{pod} 0.0.0.0 tcp/80"),
        7 => format!("127.0.0.1 {pod} tcp/80"),
        8 => format!("{pod} {} ip/6", outside(rng)),
        9 => format!("{pod} {} tcp/http", outside(rng)),
        10 => "203.0.113.7 ::1 tcp/80".to_owned(),
        11 => format!("203.0.113.7 {pod} icmpv6"),
        12 => match c.services.first() {
            Some(s) => format!("{} {pod} tcp/80", s.id),
            None => format!("{pod} nope/svc/nothing tcp/80"),
        },
        _ => match (finished, c.services.first()) {
            (Some(p), _) => format!("{} {pod} tcp/80", p.id),
            (None, Some(s)) => format!("{pod} {} tcp/7", s.id),
            (None, None) => format!("{pod} {pod} tcp"),
        },
    }
}
