//! NetworkPolicy, and its 2016 form with the isolation annotation (sections 2.1 and 2.7).

use crate::json::{Bad, Map, Res, count, field, object, only, opt_list, opt_object, text, texts};
use crate::rule::{Direction, Match, Namespaces, Peer, ip_block, lenient_list, np_port};
use crate::select::Selector;
use serde_json::Value;

/// A NetworkPolicy, or a policy read as one.
#[derive(Clone, Debug)]
pub(crate) struct NetPol {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) id: String,
    /// When it was created, as written.
    pub(crate) created: String,
    /// `None`: invalid, selects no pod (D110).
    pub(crate) pods: Option<Selector>,
    pub(crate) ingress: NetPolSide,
    pub(crate) egress: NetPolSide,
}

/// One direction of a NetworkPolicy.
#[derive(Clone, Debug, Default)]
pub(crate) struct NetPolSide {
    pub(crate) isolates: bool,
    /// Rules that can match, by their id.
    pub(crate) rules: Vec<(String, Match)>,
}

impl NetPol {
    /// One direction.
    pub(crate) fn side(&self, direction: Direction) -> &NetPolSide {
        match direction {
            Direction::Ingress => &self.ingress,
            Direction::Egress => &self.egress,
        }
    }
}

/// networking.k8s.io/v1. An `Err` is an object that is skipped (D123).
pub(crate) fn read(namespace: &str, name: &str, object: &Map) -> Res<NetPol> {
    let none = Map::new();
    let spec = opt_object(object, "spec")?.unwrap_or(&none);
    let id = format!("netpol/{namespace}/{name}");
    // Absent and null select all pods; invalid selects none (D110, D111, D123).
    let pods = match field(spec, "podSelector") {
        None => Some(Selector::default()),
        Some(v) => Selector::read(v).ok(),
    };
    let types = match field(spec, "policyTypes") {
        None => Vec::new(),
        Some(v) => texts(v)?,
    };
    let egress = opt_list(spec, "egress")?;
    let ingress = opt_list(spec, "ingress")?;
    let has = |word: &str| types.iter().any(|t| t == word);
    let unknown = types.iter().any(|t| t != "Ingress" && t != "Egress");
    let (listed_in, listed_out) = if types.is_empty() {
        // E4: egress: [] does not add Egress.
        (true, egress.is_some_and(|e| !e.is_empty()))
    } else {
        (has("Ingress"), has("Egress"))
    };
    let side = |direction: Direction, listed: bool, rules: Option<&Vec<Value>>| NetPolSide {
        // D102, D105: an unknown entry isolates both; rules of an unlisted direction stay ignored
        // (D31).
        isolates: listed || unknown,
        rules: if listed {
            rules_of(&id, direction, rules, |r| np_rule(r, direction, namespace))
        } else {
            Vec::new()
        },
    };
    Ok(NetPol {
        ingress: side(Direction::Ingress, listed_in, ingress),
        egress: side(Direction::Egress, listed_out, egress),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        id,
        created: String::new(),
        pods,
    })
}

/// D21: a defective rule matches nothing and is left out; the others keep their numbers.
pub(crate) fn rules_of(
    id: &str,
    direction: Direction,
    rules: Option<&Vec<Value>>,
    read: impl Fn(&Value) -> Res<Match>,
) -> Vec<(String, Match)> {
    rules
        .into_iter()
        .flatten()
        .enumerate()
        .filter_map(|(i, r)| {
            let what = read(r).ok()?;
            Some((format!("{id}#{}[{i}]", direction.word()), what))
        })
        .collect()
}

fn np_rule(v: &Value, direction: Direction, namespace: &str) -> Res<Match> {
    let map = object(v)?;
    let peers = match direction {
        Direction::Ingress => "from",
        Direction::Egress => "to",
    };
    only(map, &[peers, "ports"])?;
    Ok(Match {
        peers: lenient_list(map, peers, |p| np_peer(p, namespace))?,
        ports: lenient_list(map, "ports", |p| np_port(p, false))?,
    })
}

fn np_peer(v: &Value, namespace: &str) -> Res<Peer> {
    let map = object(v)?;
    only(map, &["podSelector", "namespaceSelector", "ipBlock"])?;
    let pods = field(map, "podSelector").map(Selector::read).transpose()?;
    let namespaces = field(map, "namespaceSelector")
        .map(Selector::read)
        .transpose()?;
    match (pods, namespaces, field(map, "ipBlock")) {
        (Some(p), None, None) => Ok(Peer::Pods(Namespaces::Exact(namespace.to_owned()), p)),
        (p, Some(n), None) => Ok(Peer::Pods(Namespaces::Selector(n), p.unwrap_or_default())),
        (None, None, Some(b)) => ip_block(b),
        // Nothing set, or ipBlock with another: matches nothing (2.1, D21).
        _ => Err(Bad),
    }
}

/// The 2016 form, in an isolated namespace (D69, D72). `extensions`: extensions/v1beta1, with both
/// shapes of peers (D125).
pub(crate) fn read_2016(
    namespace: &str,
    name: &str,
    object: &Map,
    extensions: bool,
) -> Res<NetPol> {
    let none = Map::new();
    let spec = opt_object(object, "spec")?.unwrap_or(&none);
    let id = format!("np0/{namespace}/{name}");
    let pods = match field(spec, "podSelector") {
        None => Some(Selector::default()),
        Some(v) => Selector::read_2016(v).ok(),
    };
    let rules = opt_list(spec, "ingress")?;
    Ok(NetPol {
        ingress: NetPolSide {
            isolates: true,
            rules: rules_of(&id, Direction::Ingress, rules, |r| {
                np0_rule(r, namespace, extensions)
            }),
        },
        egress: NetPolSide::default(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        id,
        created: String::new(),
        pods,
    })
}

fn np0_rule(v: &Value, namespace: &str, extensions: bool) -> Res<Match> {
    let map = object(v)?;
    only(map, &["from", "ports"])?;
    Ok(Match {
        peers: lenient_list(map, "from", |p| np0_peer(p, namespace, extensions))?,
        ports: lenient_list(map, "ports", |p| np_port(p, true))?,
    })
}

fn np0_peer(v: &Value, namespace: &str, extensions: bool) -> Res<Peer> {
    let map = object(v)?;
    let shipped = ["podSelector", "namespaceSelector"];
    let all = ["pods", "namespaces", "podSelector", "namespaceSelector"];
    only(map, if extensions { &all } else { &all[..2] })?;
    // D70: none or both match nothing.
    if count(map, &all) != 1 {
        return Err(Bad);
    }
    let is_shipped = count(map, &shipped) == 1;
    let read = |v: &Value| {
        if is_shipped {
            Selector::read(v)
        } else {
            Selector::read_2016(v)
        }
    };
    if let Some(v) = field(map, "pods").or_else(|| field(map, "podSelector")) {
        return Ok(Peer::Pods(
            Namespaces::Exact(namespace.to_owned()),
            read(v)?,
        ));
    }
    let v = field(map, "namespaces").or_else(|| field(map, "namespaceSelector"));
    Ok(Peer::Pods(
        Namespaces::Selector(read(v.ok_or(Bad)?)?),
        Selector::default(),
    ))
}

/// D69: the synthetic policy of an isolated namespace.
pub(crate) fn isolation(namespace: &str) -> NetPol {
    NetPol {
        namespace: namespace.to_owned(),
        name: "(isolation)".to_owned(),
        id: format!("np0/{namespace}/(isolation)"),
        created: String::new(),
        pods: Some(Selector::default()),
        ingress: NetPolSide {
            isolates: true,
            rules: Vec::new(),
        },
        egress: NetPolSide::default(),
    }
}

/// Whether a namespace's annotations isolate it (D69, D71, D126).
pub(crate) fn isolated(annotations: &[(String, String)]) -> bool {
    let get = |key: &str| {
        annotations
            .iter()
            .find(|(k, _)| k == key)
            .map(|(_, v)| v.as_str())
    };
    let by_word = match get("net.beta.kubernetes.io/network-isolation") {
        None | Some("false") => false,
        // "true", and any other value (closed).
        Some(_) => true,
    };
    by_word
        || get("net.beta.kubernetes.io/network-policy").is_some_and(|t| shipped(t).unwrap_or(true))
}

/// D71, D126: the value of the shipped annotation; an unreadable value isolates.
fn shipped(text_: &str) -> Res<bool> {
    let v: Value = serde_json::from_str(text_).map_err(|_| Bad)?;
    match opt_object(object(&v)?, "ingress")? {
        None => Ok(false),
        Some(i) => match field(i, "isolation") {
            None => Ok(false),
            Some(w) => text(w).map(|_| true),
        },
    }
}
