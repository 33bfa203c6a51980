//! Unions of many rules, asked at once.
//!
//! NetworkPolicies that select a pod are a union: their order does not matter. Where there are many, the
//! groups that may use a port become one group, so that what a new connection costs does not grow
//! with the policies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::book::Book;
use super::groups::GroupDrafts;
use super::{GroupId, Merged, PeerCondition, PortCondition, Step, Within};
use crate::net::{Family, Protocol};

/// Takes as much of a union as possible together; the steps that are left have to be asked one by one.
pub(super) fn merge<B: Book>(
    steps: &[Arc<Step>],
    groups: &mut GroupDrafts<'_, '_, B>,
) -> (Merged, Vec<Arc<Step>>) {
    let mut draft = Draft::default();
    for step in steps {
        draft.step(step, groups);
    }
    let of_ports = draft.of_ports.into_iter();
    let merged = Merged {
        of_ports: of_ports
            .map(|(port, of_port)| (port, groups.together(&of_port)))
            .collect(),
        any_port: (!draft.of_any_port.is_empty()).then(|| groups.together(&draft.of_any_port)),
        open: draft.open,
    };
    (merged, draft.steps)
}

/// The parts of a union.
#[derive(Default)]
struct Draft {
    of_ports: BTreeMap<(Protocol, u16), BTreeSet<GroupId>>,
    of_any_port: BTreeSet<GroupId>,
    open: [BTreeSet<(Protocol, u16)>; 2],
    steps: Vec<Arc<Step>>,
}

impl Draft {
    /// Takes a step apart. What does not fit stays a step: ranges, blocks, names of ports.
    fn step<B: Book>(&mut self, step: &Step, groups: &GroupDrafts<'_, '_, B>) {
        let is_single = |port: &PortCondition| port.range.start() == port.range.end();
        let is_plain = |port: &&PortCondition| is_single(port) && port.at.is_none();
        let ports = step.ports.as_deref().unwrap_or_default();
        let plain: Vec<(Protocol, u16)> = ports
            .iter()
            .filter(is_plain)
            .map(|port| (port.protocol, port.range.start().get()))
            .collect();
        let others = ports.iter().filter(|port| !is_plain(port)).copied();
        let others: Vec<PortCondition> = others.collect();
        let (hosts, families, odd) = ends(step, groups);
        for group in &hosts {
            if step.ports.is_none() {
                self.of_any_port.insert(*group);
            }
            for port in &plain {
                self.of_ports.entry(*port).or_default().insert(*group);
            }
        }
        for (family, open) in Family::BOTH.into_iter().zip(&mut self.open) {
            if families.contains(&family) {
                open.extend(&plain);
            }
        }
        let mut keep = |ports: Option<Vec<PortCondition>>, peers: Vec<PeerCondition>| {
            let is_no_port = ports.as_ref().is_some_and(Vec::is_empty);
            if !peers.is_empty() && !is_no_port {
                self.steps.push(Arc::new(Step {
                    rule: step.rule,
                    action: step.action,
                    ports,
                    peers: Some(peers),
                }));
            }
        };
        keep(step.ports.clone(), odd);
        // Anyone at any port is a step of its own; groups at any port are merged.
        let plainly = |within| PeerCondition {
            within,
            except: Vec::new(),
        };
        let open = families.iter().map(|it| plainly(Within::Family(*it)));
        if step.ports.is_none() {
            keep(None, open.collect());
        } else {
            let hosts = hosts.iter().map(|it| plainly(Within::Group(*it)));
            keep(Some(others), hosts.chain(open).collect());
        }
    }
}

/// The other ends of a step: groups of hosts, whole families, and everything else.
fn ends<B: Book>(
    step: &Step,
    groups: &GroupDrafts<'_, '_, B>,
) -> (Vec<GroupId>, Vec<Family>, Vec<PeerCondition>) {
    let Some(peers) = &step.peers else {
        return (Vec::new(), Family::BOTH.to_vec(), Vec::new());
    };
    let (mut hosts, mut families, mut odd) = (Vec::new(), Vec::new(), Vec::new());
    for peer in peers {
        match peer.within {
            Within::Family(family) if peer.except.is_empty() => families.push(family),
            Within::Group(group) if peer.except.is_empty() && groups.is_hosts(group) => {
                hosts.push(group);
            }
            Within::Family(_) | Within::Group(_) => odd.push(peer.clone()),
        }
    }
    (hosts, families, odd)
}
