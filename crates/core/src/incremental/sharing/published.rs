//! Rule chains as published, with the numbers of sets in place of groups.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::Sharing;
use crate::plan::{
    GroupId, MergedUnion, PeerCondition, PeerScope, PodChains, PortBlock, PortCondition, RuleChain,
    RuleChainId, Step,
};

/// The published form of the rule chains that differ from the engine's in their groups or their
/// number. All others are published as they are.
// Only the differences: most chains name no group that shares a set.
#[derive(Debug, Default)]
pub(in crate::incremental) struct PublishedChains {
    others: FxHashMap<RuleChainId, Other>,
    /// Translated steps, by the addresses of the engine's steps.
    // Many chains share a step. Translated once, it is one step for the dataplane as well.
    steps: FxHashMap<usize, OtherStep>,
}

#[derive(Debug)]
struct Other {
    /// The published number.
    id: RuleChainId,
    /// The published chain.
    chain: Arc<RuleChain>,
    /// The engine's chain.
    own: Arc<RuleChain>,
}

#[derive(Debug)]
struct OtherStep {
    step: Arc<Step>,
    // The engine's step. Owned: no other step can get its address, which is the key.
    _own: Arc<Step>,
    uses: u32,
}

impl PublishedChains {
    pub(in crate::incremental) fn is_empty(&self) -> bool {
        self.others.is_empty()
    }

    /// Returns the published number of a rule chain.
    pub(in crate::incremental) fn id(&self, id: RuleChainId) -> RuleChainId {
        self.others.get(&id).map_or(id, |other| other.id)
    }

    /// Returns the chains of a pod by their published numbers.
    pub(in crate::incremental) fn pod_chains(&self, chains: PodChains) -> PodChains {
        PodChains {
            egress: chains.egress.map(|id| self.id(id)),
            ingress: chains.ingress.map(|id| self.id(id)),
        }
    }

    /// Returns the published form of a rule chain, with its number.
    pub(in crate::incremental) fn chain(
        &self,
        id: RuleChainId,
        own: &Arc<RuleChain>,
    ) -> (RuleChainId, Arc<RuleChain>) {
        match self.others.get(&id) {
            Some(other) => (other.id, Arc::clone(&other.chain)),
            None => (id, Arc::clone(own)),
        }
    }

    /// Begins to publish a rule chain under this number.
    pub(in crate::incremental) fn begin(
        &mut self,
        id: RuleChainId,
        own: &Arc<RuleChain>,
        number: RuleChainId,
        sharing: &Sharing,
    ) -> (RuleChainId, Arc<RuleChain>) {
        let is_same = own.groups().all(|group| sharing.set(group) == group);
        if is_same && id == number {
            return (id, Arc::clone(own));
        }
        // A renumbered chain can have the engine's steps: if each group has the set of its number.
        let chain = if is_same {
            Arc::clone(own)
        } else {
            Arc::new(RuleChain {
                direction: own.direction,
                admin: self.steps(&own.admin, sharing),
                merged: merged(&own.merged, sharing),
                rest: self.steps(&own.rest, sharing),
                verdict: own.verdict,
            })
        };
        let other = Other {
            id: number,
            chain: Arc::clone(&chain),
            own: Arc::clone(own),
        };
        self.others.insert(id, other);
        (number, chain)
    }

    /// Ends a rule chain. Returns its published number.
    pub(in crate::incremental) fn end(&mut self, id: RuleChainId) -> RuleChainId {
        let Some(other) = self.others.remove(&id) else {
            return id;
        };
        // Steps that were not translated have no entry.
        for step in other.own.admin.iter().chain(&other.own.rest) {
            let pointer = Arc::as_ptr(step).addr();
            if let Some(kept) = self.steps.get_mut(&pointer) {
                kept.uses -= 1;
                if kept.uses == 0 {
                    self.steps.remove(&pointer);
                }
            }
        }
        other.id
    }

    fn steps(&mut self, steps: &[Arc<Step>], sharing: &Sharing) -> Vec<Arc<Step>> {
        let translated = steps.iter().map(|own| {
            if own.groups().all(|group| sharing.set(group) == group) {
                return Arc::clone(own);
            }
            let pointer = Arc::as_ptr(own).addr();
            let kept = self.steps.entry(pointer).or_insert_with(|| OtherStep {
                step: Arc::new(step(own, sharing)),
                _own: Arc::clone(own),
                uses: 0,
            });
            kept.uses += 1;
            Arc::clone(&kept.step)
        });
        translated.collect()
    }
}

fn merged(own: &MergedUnion, sharing: &Sharing) -> MergedUnion {
    let set = |group: &GroupId| sharing.set(*group);
    let by_port = |ports: &BTreeMap<PortBlock, GroupId>| {
        let ports = ports.iter().map(|(block, group)| (*block, set(group)));
        ports.collect::<BTreeMap<PortBlock, GroupId>>()
    };
    MergedUnion {
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
            PeerScope::Family(family) => PeerScope::Family(family),
            PeerScope::Group(group) => PeerScope::Group(set(group)),
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
