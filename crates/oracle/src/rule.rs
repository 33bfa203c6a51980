//! Rules as they are evaluated: peers, port filters and actions, and when they match (sections 2.5
//! and 2.1 to 2.7).

use crate::cidr;
use crate::json::{Bad, Map, Res, field, integer, list, object, only, opt_text, text};
use crate::select::{Selector, label};
use crate::world::{Pod, World};
use ipnet::IpNet;
use serde_json::Value;
use std::net::IpAddr;

/// Direction of evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Ingress,
    Egress,
}

impl Direction {
    /// The word in specs and ids.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }
}

/// Protocols that have ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

impl Protocol {
    /// Exactly TCP, UDP or SCTP (D17, D40, D102).
    pub(crate) fn read(text: &str) -> Res<Self> {
        match text {
            "TCP" => Ok(Self::Tcp),
            "UDP" => Ok(Self::Udp),
            "SCTP" => Ok(Self::Sctp),
            _ => Err(Bad),
        }
    }
}

/// What a rule does. "Accept" stands for Allow too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Accept,
    Deny,
    Pass,
}

/// The namespaces of a peer.
#[derive(Clone, Debug)]
pub(crate) enum Namespaces {
    Selector(Selector),
    Except(Selector, Vec<Selector>),
    Same,
    Other,
    SameLabels(Vec<String>),
    NotSameLabels(Vec<String>),
    Exact(String),
}

/// One peer.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    Any,
    Pods(Namespaces, Selector),
    Nodes(Selector),
    Cidr(IpNet, Vec<IpNet>),
    Networks(Vec<IpNet>),
    Domains(Vec<String>),
}

/// One element of a port or protocol list.
#[derive(Clone, Debug)]
pub(crate) enum Port {
    Range(Protocol, u16, u16),
    /// A name, and its protocol if the form has one.
    Named(String, Option<Protocol>),
}

/// The filters of a rule; `None` is no filter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Match {
    pub(crate) peers: Option<Vec<Peer>>,
    pub(crate) ports: Option<Vec<Port>>,
}

/// A rule with its id.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) id: String,
    pub(crate) action: Action,
    pub(crate) what: Match,
}

/// The peer of a flow (D22).
#[derive(Clone, Debug)]
pub(crate) enum Identity<'a> {
    Pod(&'a Pod),
    /// A node; the labels that count when no Node object has the address (D108).
    Node(&'a [usize]),
    External,
}

/// Protocol and port of a flow; no port for ICMP and other protocols.
pub(crate) type L4 = Option<(Protocol, u16)>;

/// One direction of a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow<'a> {
    pub(crate) subject: &'a Pod,
    pub(crate) peer: &'a Identity<'a>,
    pub(crate) address: IpAddr,
    /// The destination, if it is a pod (D33).
    pub(crate) target: Option<&'a Pod>,
    pub(crate) l4: L4,
}

impl Match {
    /// Both filters, each a list of alternatives.
    pub(crate) fn matches(&self, world: &World, flow: &Flow<'_>) -> bool {
        self.peers
            .as_ref()
            .is_none_or(|ps| ps.iter().any(|p| p.matches(world, flow)))
            && self
                .ports
                .as_ref()
                .is_none_or(|ps| ps.iter().any(|p| p.matches(flow)))
    }
}

impl Peer {
    fn matches(&self, world: &World, flow: &Flow<'_>) -> bool {
        match self {
            Self::Any => true,
            // Pods only, never host-network ones (D48, D73): those are nodes.
            Self::Pods(namespaces, pods) => match flow.peer {
                Identity::Pod(p) => {
                    pods.matches(&p.labels) && namespaces.matches(world, flow.subject, p)
                }
                Identity::Node(_) | Identity::External => false,
            },
            // D43, D56, D106, D107, D108.
            Self::Nodes(selector) => match flow.peer {
                Identity::Node(named) => {
                    let mut holders = world
                        .nodes
                        .iter()
                        .filter(|n| n.addresses.iter().any(|(a, _)| *a == flow.address))
                        .peekable();
                    if holders.peek().is_some() {
                        holders.any(|n| selector.matches(&n.labels))
                    } else {
                        named
                            .iter()
                            .any(|n| selector.matches(&world.nodes[*n].labels))
                    }
                }
                Identity::Pod(_) | Identity::External => false,
            },
            // By address, of any endpoint (D44, D87); except narrows this peer only (D100).
            Self::Cidr(net, except) => {
                net.contains(&flow.address) && !except.iter().any(|e| e.contains(&flow.address))
            }
            Self::Networks(nets) => nets.iter().any(|n| n.contains(&flow.address)),
            // D54, D55: by learned addresses.
            Self::Domains(patterns) => world
                .dns
                .iter()
                .any(|(n, a)| *a == flow.address && patterns.iter().any(|p| domain(p, n))),
        }
    }
}

/// D54: both sides are lower case without the last dot; `*.` stands for one or more labels.
fn domain(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix("*.") {
        Some(rest) => name
            .strip_suffix(rest)
            .is_some_and(|front| front.len() > 1 && front.ends_with('.')),
        None => pattern == name,
    }
}

/// D54: lower case, one trailing dot stripped.
pub(crate) fn domain_name(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    lower.strip_suffix('.').unwrap_or(&lower).to_owned()
}

impl Namespaces {
    fn matches(&self, world: &World, subject: &Pod, peer: &Pod) -> bool {
        let (mine, theirs) = (
            &world.namespaces[subject.namespace],
            &world.namespaces[peer.namespace],
        );
        match self {
            Self::Selector(s) => s.matches(&theirs.labels),
            // D67.
            Self::Except(s, except) => {
                s.matches(&theirs.labels) && !except.iter().any(|e| e.matches(&theirs.labels))
            }
            // D45, D67: by name.
            Self::Same => mine.name == theirs.name,
            Self::Other => mine.name != theirs.name,
            // D46: [] selects nothing.
            Self::SameLabels(keys) => {
                !keys.is_empty()
                    && keys.iter().all(|k| {
                        label(&mine.labels, k).is_some()
                            && label(&mine.labels, k) == label(&theirs.labels, k)
                    })
            }
            // D47: both have every key, and one value differs.
            Self::NotSameLabels(keys) => {
                keys.iter()
                    .all(|k| label(&mine.labels, k).is_some() && label(&theirs.labels, k).is_some())
                    && keys
                        .iter()
                        .any(|k| label(&mine.labels, k) != label(&theirs.labels, k))
            }
            Self::Exact(name) => theirs.name == *name,
        }
    }
}

impl Port {
    fn matches(&self, flow: &Flow<'_>) -> bool {
        // D14: a filter matches TCP, UDP and SCTP only.
        let Some((protocol, port)) = flow.l4 else {
            return false;
        };
        match self {
            // D28: inclusive.
            Self::Range(p, lo, hi) => *p == protocol && *lo <= port && port <= *hi,
            // D33 with a protocol, D41 and D51 without: on the destination pod only (D35, D52).
            Self::Named(name, p) => {
                p.is_none_or(|p| p == protocol)
                    && flow.target.is_some_and(|pod| {
                        pod.ports
                            .iter()
                            .any(|c| c.name == *name && c.protocol == protocol && c.number == port)
                    })
            }
        }
    }
}

/// D29: 1..65535.
pub(crate) fn port_number(v: &Value) -> Res<u16> {
    match u16::try_from(integer(v)?) {
        Ok(n) if n > 0 => Ok(n),
        _ => Err(Bad),
    }
}

/// D32: at most 15 of a-z, 0-9 and `-`, with a letter.
fn port_name(name: &str) -> Res<()> {
    let fits = name
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if fits && name.len() <= 15 && name.bytes().any(|b| b.is_ascii_lowercase()) {
        Ok(())
    } else {
        Err(Bad)
    }
}

/// A port element of NP, CNP0 and DNP; of NP0 if `early`, without SCTP and endPort (2.7, D72).
pub(crate) fn np_port(v: &Value, early: bool) -> Res<Port> {
    let map = object(v)?;
    only(
        map,
        if early {
            &["protocol", "port"]
        } else {
            &["protocol", "port", "endPort"]
        },
    )?;
    // D30: absent is TCP.
    let protocol = opt_text(map, "protocol")?.map_or(Ok(Protocol::Tcp), Protocol::read)?;
    if early && protocol == Protocol::Sctp {
        return Err(Bad);
    }
    let end = field(map, "endPort").map(port_number).transpose()?;
    match (field(map, "port"), end) {
        (None, None) => Ok(Port::Range(protocol, 1, u16::MAX)),
        (Some(Value::String(name)), None) => {
            port_name(name)?;
            Ok(Port::Named(name.clone(), Some(protocol)))
        }
        (Some(v @ Value::Number(_)), end) => {
            let start = port_number(v)?;
            let end = end.unwrap_or(start);
            if start > end {
                return Err(Bad);
            }
            Ok(Port::Range(protocol, start, end))
        }
        _ => Err(Bad),
    }
}

/// An ipBlock of NP, CNP0 and DNP (D88, D121, D124).
pub(crate) fn ip_block(v: &Value) -> Res<Peer> {
    let map = object(v)?;
    only(map, &["cidr", "except"])?;
    let net = cidr::legacy(text(field(map, "cidr").ok_or(Bad)?)?)?;
    let mut except = Vec::new();
    if let Some(v) = field(map, "except") {
        for e in list(v)? {
            let e = cidr::legacy(text(e)?)?;
            if !cidr::strictly_inside(e, net) {
                return Err(Bad);
            }
            except.push(e);
        }
    }
    Ok(Peer::Cidr(net, except))
}

/// A list where missing and empty are no filter (D66 and 2.1), and a defective element matches
/// nothing (D21, D109).
pub(crate) fn lenient_list<T>(
    map: &Map,
    key: &str,
    read: impl Fn(&Value) -> Res<T>,
) -> Res<Option<Vec<T>>> {
    match field(map, key) {
        None => Ok(None),
        Some(v) => {
            let items = list(v)?;
            if items.is_empty() {
                return Ok(None);
            }
            Ok(Some(items.iter().filter_map(|i| read(i).ok()).collect()))
        }
    }
}

/// The same where a defective element is a defect of the whole rule (D16).
pub(crate) fn strict_list<T>(
    map: &Map,
    key: &str,
    read: impl Fn(&Value) -> Res<T>,
) -> Res<Option<Vec<T>>> {
    match field(map, key) {
        None => Ok(None),
        Some(v) => {
            let items = list(v)?;
            if items.is_empty() {
                return Ok(None);
            }
            Ok(Some(items.iter().map(read).collect::<Res<_>>()?))
        }
    }
}

/// Every block a match mentions, for D136.
pub(crate) fn blocks(what: &Match, into: &mut Vec<IpNet>) {
    for p in what.peers.iter().flatten() {
        match p {
            Peer::Cidr(net, except) => {
                into.push(*net);
                into.extend(except);
            }
            Peer::Networks(nets) => into.extend(nets),
            Peer::Any | Peer::Pods(..) | Peer::Nodes(_) | Peer::Domains(_) => {}
        }
    }
}
