//! AdminNetworkPolicy and BaselineAdminNetworkPolicy in their three dialects, and
//! ClusterNetworkPolicy v1alpha2 (sections 2.2 to 2.4), with the fail-closed rules (1.6).

use crate::cidr;
use crate::json::{
    Bad, Map, Res, count, field, list, object, only, opt_list, opt_object, opt_text, text, texts,
};
use crate::rule::{
    Action, Direction, Match, Namespaces, Peer, Port, Protocol, Rule, domain_name, port_number,
    strict_list,
};
use crate::select::Selector;
use ipnet::IpNet;
use serde_json::Value;

/// The subject of a cluster-wide policy.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) namespaces: Selector,
    pub(crate) pods: Selector,
}

/// Tier of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    Admin,
    Baseline,
}

/// A policy with ordered rules.
#[derive(Clone, Debug)]
pub(crate) struct Ordered {
    pub(crate) tier: Tier,
    /// The order key of 1.2: class, priority, kind, name, uid.
    pub(crate) key: (u8, i64, u8, String, String),
    /// The id of the policy.
    pub(crate) id: String,
    /// `None`: invalid, selects no pod (D20).
    pub(crate) subject: Option<Subject>,
    pub(crate) ingress: Vec<Rule>,
    pub(crate) egress: Vec<Rule>,
}

impl Ordered {
    /// The rules of a direction.
    pub(crate) fn rules(&self, direction: Direction) -> &[Rule] {
        match direction {
            Direction::Ingress => &self.ingress,
            Direction::Egress => &self.egress,
        }
    }
}

/// The kinds of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Cnp,
    Anp,
    Banp,
}

/// Shape of a v1alpha1 object (D37).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    /// K or N: `namespaces` is a struct.
    Early,
    /// F: `namespaces` is a selector.
    Flat,
    /// Both in one object.
    Mixed,
}

/// Reads a policy. An `Err` is an object that is skipped (D123).
pub(crate) fn read(kind: Kind, name: &str, uid: &str, object: &Map) -> Res<Ordered> {
    let none = Map::new();
    let spec = opt_object(object, "spec")?.unwrap_or(&none);
    let ingress = opt_list(spec, "ingress")?;
    let egress = opt_list(spec, "egress")?;
    let mut fail = false;
    let (prefix, kind_order, tier) = match kind {
        Kind::Cnp => {
            // D19, D115: an unknown tier, or none, is Admin with every rule defective.
            let tier = match opt_text(spec, "tier")? {
                Some("Admin") => Tier::Admin,
                Some("Baseline") => Tier::Baseline,
                _ => {
                    fail = true;
                    Tier::Admin
                }
            };
            ("cnp", 0, tier)
        }
        Kind::Anp => ("anp", 1, Tier::Admin),
        Kind::Banp => ("banp", 1, Tier::Baseline),
    };
    let priority = if kind == Kind::Banp {
        // 1.2, D49.
        1001
    } else {
        // D116: any integer keeps its place; else every rule is defective, at 0.
        match field(spec, "priority").and_then(Value::as_i64) {
            Some(p) => p,
            None => {
                fail = true;
                0
            }
        }
    };
    let dialect = match kind {
        Kind::Cnp => Dialect::Flat,
        Kind::Anp | Kind::Banp => dialect(ingress, egress),
    };
    // D120: two dialects make every rule defective.
    fail |= dialect == Dialect::Mixed;
    let id = format!("{prefix}/{name}");
    let rules = |direction: Direction, rules: Option<&Vec<Value>>| -> Vec<Rule> {
        rules
            .into_iter()
            .flatten()
            .enumerate()
            .filter_map(|(i, v)| {
                let rule_id = format!("{id}#{}[{i}]", direction.word());
                let shape = Shape {
                    kind,
                    dialect,
                    direction,
                };
                finish(rule_id, shape.action(v), shape.body(v), fail)
            })
            .collect()
    };
    Ok(Ordered {
        tier,
        key: (2, priority, kind_order, name.to_owned(), uid.to_owned()),
        // D20, D111, D123.
        subject: field(spec, "subject").and_then(|v| subject(v, kind).ok()),
        ingress: rules(Direction::Ingress, ingress),
        egress: rules(Direction::Egress, egress),
        id,
    })
}

/// The fail-closed rules (D16, D18, D112, D113). `action` is `None` if it is unknown.
pub(crate) fn finish(
    id: String,
    action: Option<Action>,
    body: Res<Match>,
    fail: bool,
) -> Option<Rule> {
    match (action, body) {
        (Some(action), Ok(what)) if !fail => Some(Rule { id, action, what }),
        // D18: known match, unknown intent.
        (None, Ok(what)) if !fail => Some(Rule {
            id,
            action: Action::Deny,
            what,
        }),
        // D16: an Accept is removed, every other action becomes Deny-all.
        (Some(Action::Accept), _) => None,
        (Some(Action::Deny | Action::Pass) | None, _) => Some(Rule {
            id,
            action: Action::Deny,
            what: Match::default(),
        }),
    }
}

/// D37, over all peers of the object.
fn dialect(ingress: Option<&Vec<Value>>, egress: Option<&Vec<Value>>) -> Dialect {
    let (mut early, mut flat) = (false, false);
    let lists = [(ingress, "from"), (egress, "to")];
    for (rules, key) in lists {
        for rule in rules.into_iter().flatten() {
            let peers = rule.get(key).and_then(Value::as_array);
            for peer in peers.into_iter().flatten() {
                if let Some(n) = peer.get("namespaces").and_then(Value::as_object) {
                    let struct_keys = [
                        "related",
                        "namespaceSelector",
                        "sameLabels",
                        "notSameLabels",
                    ];
                    early |= struct_keys.iter().any(|k| n.contains_key(*k));
                    flat |= n.is_empty()
                        || n.contains_key("matchLabels")
                        || n.contains_key("matchExpressions");
                }
                if let Some(p) = peer.get("pods").and_then(Value::as_object) {
                    early |= p.contains_key("namespaces");
                    flat |= p.contains_key("namespaceSelector");
                }
            }
        }
    }
    match (early, flat) {
        (true, true) => Dialect::Mixed,
        (true, false) => Dialect::Early,
        (false, _) => Dialect::Flat,
    }
}

/// Exactly one of `namespaces` and `pods` (2.2, 2.4).
fn subject(v: &Value, kind: Kind) -> Res<Subject> {
    let map = object(v)?;
    only(map, &["namespaces", "pods"])?;
    match (field(map, "namespaces"), field(map, "pods")) {
        (Some(n), None) => Ok(Subject {
            namespaces: Selector::read(n)?,
            pods: Selector::default(),
        }),
        (None, Some(p)) => {
            let (namespaces, pods) = namespaced_pod(p, kind)?;
            Ok(Subject { namespaces, pods })
        }
        _ => Err(Bad),
    }
}

/// `podSelector` is required; `namespaceSelector` too, but in v1alpha2 its absence means all
/// namespaces (2.4, D117).
fn namespaced_pod(v: &Value, kind: Kind) -> Res<(Selector, Selector)> {
    let map = object(v)?;
    only(map, &["namespaceSelector", "podSelector"])?;
    let pods = Selector::read(field(map, "podSelector").ok_or(Bad)?)?;
    let namespaces = match (field(map, "namespaceSelector"), kind) {
        (Some(n), _) => Selector::read(n)?,
        (None, Kind::Cnp) => Selector::default(),
        (None, Kind::Anp | Kind::Banp) => return Err(Bad),
    };
    Ok((namespaces, pods))
}

/// The context of a rule.
#[derive(Clone, Copy, Debug)]
struct Shape {
    kind: Kind,
    dialect: Dialect,
    direction: Direction,
}

impl Shape {
    /// `None`: unknown, absent or null (D18, D112).
    fn action(self, v: &Value) -> Option<Action> {
        match (self.kind, v.get("action").and_then(Value::as_str)?) {
            (Kind::Cnp, "Accept") | (Kind::Anp | Kind::Banp, "Allow") => Some(Action::Accept),
            (_, "Deny") => Some(Action::Deny),
            (Kind::Cnp | Kind::Anp, "Pass") => Some(Action::Pass),
            _ => None,
        }
    }

    fn body(self, v: &Value) -> Res<Match> {
        let map = object(v)?;
        let peers = match self.direction {
            Direction::Ingress => "from",
            Direction::Egress => "to",
        };
        let ports = if self.kind == Kind::Cnp {
            "protocols"
        } else {
            "ports"
        };
        only(map, &["name", "action", peers, ports])?;
        opt_text(map, "name")?;
        opt_text(map, "action")?;
        // D17: missing or empty from/to is a defect here.
        let read = strict_list(map, peers, |p| self.peer(p))?.ok_or(Bad)?;
        // D17, D53: domainNames in Accept rules only.
        let domains = read.iter().any(|p| matches!(p, Peer::Domains(_)));
        if domains && self.action(v) != Some(Action::Accept) {
            return Err(Bad);
        }
        let filter = match (self.kind, field(map, ports)) {
            // D117: `protocols: []` is a defect; D39: `ports: []` is no filter.
            (Kind::Cnp, Some(v)) if list(v)?.is_empty() => return Err(Bad),
            (Kind::Cnp, _) => strict_list(map, ports, cnp_protocol)?,
            (Kind::Anp | Kind::Banp, _) => strict_list(map, ports, anp_port)?,
        };
        Ok(Match {
            peers: Some(read),
            ports: filter,
        })
    }

    fn peer(self, v: &Value) -> Res<Peer> {
        let map = object(v)?;
        let mut known = vec!["namespaces", "pods"];
        if self.kind == Kind::Cnp {
            // D57.
            known.push("all");
        }
        // Egress only (2.2, 2.4); not in K and N (D120); domainNames not in BANP (2.3).
        if self.direction == Direction::Egress && self.dialect != Dialect::Early {
            known.extend(["networks", "nodes"]);
            if self.kind != Kind::Banp {
                known.push("domainNames");
            }
        }
        only(map, &known)?;
        if count(map, &known) != 1 {
            return Err(Bad);
        }
        if let Some(v) = field(map, "namespaces") {
            return Ok(Peer::Pods(self.namespaces(v)?, Selector::default()));
        }
        if let Some(v) = field(map, "pods") {
            if self.dialect != Dialect::Early {
                let (namespaces, pods) = namespaced_pod(v, self.kind)?;
                return Ok(Peer::Pods(Namespaces::Selector(namespaces), pods));
            }
            let map = object(v)?;
            only(map, &["namespaces", "podSelector"])?;
            let namespaces = self.namespaces(field(map, "namespaces").ok_or(Bad)?)?;
            let pods = Selector::read(field(map, "podSelector").ok_or(Bad)?)?;
            return Ok(Peer::Pods(namespaces, pods));
        }
        if let Some(v) = field(map, "all") {
            // D57: must be empty.
            return if object(v)?.is_empty() {
                Ok(Peer::Any)
            } else {
                Err(Bad)
            };
        }
        if let Some(v) = field(map, "networks") {
            return Ok(Peer::Networks(networks(v)?));
        }
        if let Some(v) = field(map, "nodes") {
            return Ok(Peer::Nodes(Selector::read(v)?));
        }
        if let Some(v) = field(map, "domainNames") {
            let names: Vec<String> = texts(v)?.iter().map(|t| domain_name(t)).collect();
            // D117 for the empty list; D54 for texts that the pattern rejects.
            if names.is_empty() || !names.iter().all(|n| sound_domain(n)) {
                return Err(Bad);
            }
            return Ok(Peer::Domains(names));
        }
        Err(Bad)
    }

    fn namespaces(self, v: &Value) -> Res<Namespaces> {
        if self.dialect != Dialect::Early {
            return Ok(Namespaces::Selector(Selector::read(v)?));
        }
        // K and N: exactly one (D120).
        let map = object(v)?;
        let known = [
            "related",
            "namespaceSelector",
            "sameLabels",
            "notSameLabels",
        ];
        only(map, &known)?;
        if count(map, &known) != 1 {
            return Err(Bad);
        }
        if let Some(v) = field(map, "related") {
            // D45, D104: in any case of letters.
            return match text(v)?.to_ascii_lowercase().as_str() {
                "self" => Ok(Namespaces::Same),
                "notself" => Ok(Namespaces::Other),
                _ => Err(Bad),
            };
        }
        if let Some(v) = field(map, "sameLabels") {
            return Ok(Namespaces::SameLabels(texts(v)?));
        }
        if let Some(v) = field(map, "notSameLabels") {
            return Ok(Namespaces::NotSameLabels(texts(v)?));
        }
        let v = field(map, "namespaceSelector").ok_or(Bad)?;
        Ok(Namespaces::Selector(Selector::read(v)?))
    }
}

/// D54: two labels at least, after `*.` too.
fn sound_domain(name: &str) -> bool {
    let name = name.strip_prefix("*.").unwrap_or(name);
    let labels: Vec<&str> = name.split('.').collect();
    labels.len() >= 2
        && labels.iter().all(|l| {
            !l.is_empty()
                && !l.starts_with('-')
                && !l.ends_with('-')
                && l.bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        })
}

/// One of `portNumber`, `namedPort`, `portRange` (2.3).
fn anp_port(v: &Value) -> Res<Port> {
    let map = object(v)?;
    let known = ["portNumber", "namedPort", "portRange"];
    only(map, &known)?;
    if count(map, &known) != 1 {
        return Err(Bad);
    }
    if let Some(v) = field(map, "namedPort") {
        return named(v);
    }
    // D40, D117: no protocol, or an empty one, is TCP.
    let protocol = |m: &Map| match opt_text(m, "protocol")? {
        None | Some("") => Ok(Protocol::Tcp),
        Some(t) => Protocol::read(t),
    };
    if let Some(v) = field(map, "portNumber") {
        let map = object(v)?;
        only(map, &["protocol", "port"])?;
        let port = port_number(field(map, "port").ok_or(Bad)?)?;
        return Ok(Port::Range(protocol(map)?, port, port));
    }
    let map = object(field(map, "portRange").ok_or(Bad)?)?;
    only(map, &["protocol", "start", "end"])?;
    range(protocol(map)?, map)
}

/// Start to end; equal is one port (D42, D118), an end before the start a defect (D17).
fn range(protocol: Protocol, map: &Map) -> Res<Port> {
    let start = port_number(field(map, "start").ok_or(Bad)?)?;
    let end = port_number(field(map, "end").ok_or(Bad)?)?;
    if start > end {
        return Err(Bad);
    }
    Ok(Port::Range(protocol, start, end))
}

/// D17: the empty name is no name. D41, D51: no protocol of its own.
fn named(v: &Value) -> Res<Port> {
    let name = text(v)?;
    if name.is_empty() {
        return Err(Bad);
    }
    Ok(Port::Named(name.to_owned(), None))
}

/// One of `tcp`, `udp`, `sctp`, `destinationNamedPort` (2.4).
fn cnp_protocol(v: &Value) -> Res<Port> {
    let map = object(v)?;
    let known = ["tcp", "udp", "sctp", "destinationNamedPort"];
    only(map, &known)?;
    if count(map, &known) != 1 {
        return Err(Bad);
    }
    if let Some(v) = field(map, "destinationNamedPort") {
        return named(v);
    }
    let protocols = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
    let (v, protocol) = known
        .iter()
        .zip(protocols)
        .find_map(|(k, p)| field(map, k).map(|v| (v, p)))
        .ok_or(Bad)?;
    let map = object(v)?;
    only(map, &["destinationPort"])?;
    let Some(port) = opt_object(map, "destinationPort")? else {
        // D50: all ports of the protocol.
        return Ok(Port::Range(protocol, 1, u16::MAX));
    };
    only(port, &["number", "range"])?;
    match (field(port, "number"), field(port, "range")) {
        (Some(n), None) => {
            let n = port_number(n)?;
            Ok(Port::Range(protocol, n, n))
        }
        (None, Some(r)) => {
            let r = object(r)?;
            only(r, &["start", "end"])?;
            range(protocol, r)
        }
        _ => Err(Bad),
    }
}

/// The blocks of a `networks` peer (D27, D117, D124).
fn networks(v: &Value) -> Res<Vec<IpNet>> {
    let items = list(v)?;
    if items.is_empty() {
        return Err(Bad);
    }
    items.iter().map(|t| cidr::strict(text(t)?)).collect()
}
