//! The early ClusterNetworkPolicy and DefaultNetworkPolicy of networking.k8s.io/v1alpha1 (section
//! 2.6).

use crate::admin::{Ordered, Subject, Tier, finish};
use crate::json::{
    Bad, Map, Res, field, list, object, only, opt_bool, opt_list, opt_object, opt_text,
};
use crate::netpol::{NetPolSide, rules_of};
use crate::rule::{
    Action, Direction, Match, Namespaces, Peer, Rule, ip_block, lenient_list, np_port, strict_list,
};
use crate::select::Selector;
use serde_json::Value;

/// A DefaultNetworkPolicy.
#[derive(Clone, Debug)]
pub(crate) struct DefaultPolicy {
    pub(crate) id: String,
    pub(crate) name: String,
    /// `None`: invalid, selects no pod (D64).
    pub(crate) subject: Option<Subject>,
    pub(crate) ingress: NetPolSide,
    pub(crate) egress: NetPolSide,
}

impl DefaultPolicy {
    /// One direction.
    pub(crate) fn side(&self, direction: Direction) -> &NetPolSide {
        match direction {
            Direction::Ingress => &self.ingress,
            Direction::Egress => &self.egress,
        }
    }
}

/// D64, D111: `namespaceSelector` is required.
fn subject(spec: &Map) -> Option<Subject> {
    let read = |v: &Value| -> Res<Subject> {
        let map = object(v)?;
        only(map, &["namespaceSelector", "podSelector"])?;
        Ok(Subject {
            namespaces: Selector::read(field(map, "namespaceSelector").ok_or(Bad)?)?,
            pods: field(map, "podSelector")
                .map(Selector::read)
                .transpose()?
                .unwrap_or_default(),
        })
    };
    field(spec, "appliedTo").and_then(|v| read(v).ok())
}

/// D65, D67: `podSelector` and `namespaces` together are AND; ipBlock must be alone.
fn peer(v: &Value) -> Res<Peer> {
    let map = object(v)?;
    only(map, &["podSelector", "namespaces", "ipBlock"])?;
    let pods = field(map, "podSelector").map(Selector::read).transpose()?;
    match (pods, field(map, "namespaces"), field(map, "ipBlock")) {
        (None, None, Some(b)) => ip_block(b),
        // No policy namespace exists: all namespaces.
        (Some(p), None, None) => Ok(Peer::Pods(Namespaces::Selector(Selector::default()), p)),
        (p, Some(n), None) => Ok(Peer::Pods(namespaces(n)?, p.unwrap_or_default())),
        _ => Err(Bad),
    }
}

/// 2.6: `self: true` excludes the other two, `except` requires `selector`; neither self nor
/// selector is a defect (D65).
fn namespaces(v: &Value) -> Res<Namespaces> {
    let map = object(v)?;
    only(map, &["self", "selector", "except"])?;
    let own = opt_bool(map, "self")?.unwrap_or(false);
    let selector = field(map, "selector").map(Selector::read).transpose()?;
    let except: Option<Vec<Selector>> = field(map, "except")
        .map(|v| list(v)?.iter().map(Selector::read).collect())
        .transpose()?;
    match (own, selector, except) {
        (true, None, None) => Ok(Namespaces::Same),
        (false, Some(s), except) => Ok(Namespaces::Except(s, except.unwrap_or_default())),
        _ => Err(Bad),
    }
}

/// A CNP0 as two ordered policies: its Deny rules in class 0, its Allow rules in class 1 (D61).
/// `Err`: skipped (D123).
pub(crate) fn read_cluster(name: &str, uid: &str, object_: &Map) -> Res<[Ordered; 2]> {
    let none = Map::new();
    let spec = opt_object(object_, "spec")?.unwrap_or(&none);
    let id = format!("cnp0/{name}");
    let action = |v: &Value| match v.get("action").and_then(Value::as_str) {
        Some("Allow") => Some(Action::Accept),
        Some("Deny") => Some(Action::Deny),
        _ => None,
    };
    let rules = |direction: Direction| -> Res<Vec<Rule>> {
        let peers = match direction {
            Direction::Ingress => "from",
            Direction::Egress => "to",
        };
        let body = |v: &Value| -> Res<Match> {
            let map = object(v)?;
            only(map, &["action", peers, "ports"])?;
            opt_text(map, "action")?;
            Ok(Match {
                // D66: missing or empty is any peer.
                peers: strict_list(map, peers, peer)?,
                ports: strict_list(map, "ports", |p| np_port(p, false))?,
            })
        };
        Ok(opt_list(spec, direction.word())?
            .into_iter()
            .flatten()
            .enumerate()
            .filter_map(|(i, v)| {
                let rule_id = format!("{id}#{}[{i}]", direction.word());
                finish(rule_id, action(v), body(v), false)
            })
            .collect())
    };
    let (ingress, egress) = (rules(Direction::Ingress)?, rules(Direction::Egress)?);
    // D114: an unknown action has become Deny, so it is in class 0.
    let class = |class: u8, keep: Action| {
        let part = |rules: &Vec<Rule>| -> Vec<Rule> {
            rules.iter().filter(|r| r.action == keep).cloned().collect()
        };
        Ordered {
            tier: Tier::Admin,
            key: (class, 0, 0, name.to_owned(), uid.to_owned()),
            id: id.clone(),
            subject: subject(spec),
            ingress: part(&ingress),
            egress: part(&egress),
        }
    };
    Ok([class(0, Action::Deny), class(1, Action::Accept)])
}

/// A DNP. `Err`: skipped (D123).
pub(crate) fn read_default(name: &str, object_: &Map) -> Res<DefaultPolicy> {
    let none = Map::new();
    let spec = opt_object(object_, "spec")?.unwrap_or(&none);
    let id = format!("dnp/{name}");
    let (ingress, egress) = (opt_list(spec, "ingress")?, opt_list(spec, "egress")?);
    // D63: a direction is isolated if its key is there; both if neither is.
    let neither = ingress.is_none() && egress.is_none();
    let side = |direction: Direction, rules: Option<&Vec<Value>>| {
        let peers = match direction {
            Direction::Ingress => "onlyFrom",
            Direction::Egress => "onlyTo",
        };
        NetPolSide {
            isolates: rules.is_some() || neither,
            // D21: a defective rule, peer or element matches nothing.
            rules: rules_of(&id, direction, rules, |v| {
                let map = object(v)?;
                only(map, &[peers, "ports"])?;
                Ok(Match {
                    peers: lenient_list(map, peers, peer)?,
                    ports: lenient_list(map, "ports", |p| np_port(p, false))?,
                })
            }),
        }
    };
    Ok(DefaultPolicy {
        ingress: side(Direction::Ingress, ingress),
        egress: side(Direction::Egress, egress),
        name: name.to_owned(),
        subject: subject(spec),
        id,
    })
}
