//! Bodies as they are told: the groups that they name by the numbers of their sets.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::Sharing;
use crate::plan::{
    Body, BodyId, Faced, GroupId, Merged, PeerCondition, PortBlock, PortCondition, Step, Within,
};

/// The bodies that are told in other words, or by other numbers, than the engine has for them; all others are told as they are.
#[derive(Debug, Default)]
pub(in crate::live) struct Told {
    bodies: FxHashMap<BodyId, Other>,
    /// Steps in other words, by where the engine has them.
    steps: FxHashMap<usize, OtherStep>,
}

#[derive(Debug)]
struct Other {
    id: BodyId,
    body: Arc<Body>,
    /// As the engine has it.
    own: Arc<Body>,
}

#[derive(Debug)]
struct OtherStep {
    step: Arc<Step>,
    /// As the engine has it; as long as it is kept its place is nobody else's.
    _own: Arc<Step>,
    uses: u32,
}

impl Told {
    pub(in crate::live) fn is_empty(&self) -> bool {
        self.bodies.is_empty()
    }

    /// The number of a body.
    pub(in crate::live) fn id(&self, id: BodyId) -> BodyId {
        self.bodies.get(&id).map_or(id, |other| other.id)
    }

    pub(in crate::live) fn faced(&self, faced: Faced) -> Faced {
        Faced {
            egress: faced.egress.map(|id| self.id(id)),
            ingress: faced.ingress.map(|id| self.id(id)),
        }
    }

    /// A body and its number.
    pub(in crate::live) fn body(&self, id: BodyId, own: &Arc<Body>) -> (BodyId, Arc<Body>) {
        match self.bodies.get(&id) {
            Some(other) => (other.id, Arc::clone(&other.body)),
            None => (id, Arc::clone(own)),
        }
    }

    /// Tells a body, by this number.
    pub(in crate::live) fn begin(
        &mut self,
        id: BodyId,
        own: &Arc<Body>,
        number: BodyId,
        sharing: &Sharing,
    ) -> (BodyId, Arc<Body>) {
        let is_same = own.groups().all(|group| sharing.set(group) == group);
        if is_same && id == number {
            return (id, Arc::clone(own));
        }
        let body = if is_same {
            Arc::clone(own)
        } else {
            Arc::new(Body {
                direction: own.direction,
                admin: self.steps(&own.admin, sharing),
                merged: merged(&own.merged, sharing),
                rest: self.steps(&own.rest, sharing),
                end: own.end,
            })
        };
        let other = Other {
            id: number,
            body: Arc::clone(&body),
            own: Arc::clone(own),
        };
        self.bodies.insert(id, other);
        (number, body)
    }

    /// Ends a body; says by which number it was told.
    pub(in crate::live) fn end(&mut self, id: BodyId) -> BodyId {
        let Some(other) = self.bodies.remove(&id) else {
            return id;
        };
        for step in other.own.admin.iter().chain(&other.own.rest) {
            let place = Arc::as_ptr(step).addr();
            if let Some(kept) = self.steps.get_mut(&place) {
                kept.uses -= 1;
                if kept.uses == 0 {
                    self.steps.remove(&place);
                }
            }
        }
        other.id
    }

    fn steps(&mut self, steps: &[Arc<Step>], sharing: &Sharing) -> Vec<Arc<Step>> {
        let told = steps.iter().map(|own| {
            if own.groups().all(|group| sharing.set(group) == group) {
                return Arc::clone(own);
            }
            let place = Arc::as_ptr(own).addr();
            let kept = self.steps.entry(place).or_insert_with(|| OtherStep {
                step: Arc::new(step(own, sharing)),
                _own: Arc::clone(own),
                uses: 0,
            });
            kept.uses += 1;
            Arc::clone(&kept.step)
        });
        told.collect()
    }
}

fn merged(own: &Merged, sharing: &Sharing) -> Merged {
    let set = |group: &GroupId| sharing.set(*group);
    let by_port = |ports: &BTreeMap<PortBlock, GroupId>| {
        let ports = ports.iter().map(|(block, group)| (*block, set(group)));
        ports.collect::<BTreeMap<PortBlock, GroupId>>()
    };
    Merged {
        of_ports: by_port(&own.of_ports),
        any_port: own.any_port.as_ref().map(set),
        nets_of_ports: own.nets_of_ports.each_ref().map(by_port),
        nets_of_any_port: own.nets_of_any_port.map(|group| group.as_ref().map(set)),
        open: own.open.clone(),
    }
}

fn step(own: &Step, sharing: &Sharing) -> Step {
    let set = |group: GroupId| sharing.set(group);
    let port = |own: &PortCondition| PortCondition {
        at: own.at.map(set),
        ..*own
    };
    let peer = |own: &PeerCondition| PeerCondition {
        within: match own.within {
            Within::Family(family) => Within::Family(family),
            Within::Group(group) => Within::Group(set(group)),
        },
        except: own.except.iter().copied().map(set).collect(),
    };
    let ports = own.ports.as_ref();
    let peers = own.peers.as_ref();
    Step {
        rule: own.rule,
        action: own.action,
        ports: ports.map(|ports| ports.iter().map(port).collect()),
        peers: peers.map(|peers| peers.iter().map(peer).collect()),
    }
}
