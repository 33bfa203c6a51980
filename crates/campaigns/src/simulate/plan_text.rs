//! A plan as text that does not depend on its identifiers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use palisade_core::plan::{GroupId, PeerScope, Plan, PortBlock, RuleChain, Step};

/// The rule chains of every address. Equal plans, up to identifiers, have equal text.
pub(super) fn plan_text(plan: &Plan) -> String {
    let mut text = String::new();
    for (address, chains) in &plan.pods {
        for (word, id) in [("egress", chains.egress), ("ingress", chains.ingress)] {
            let chain = id.and_then(|id| plan.chains.get(&id));
            let chain = chain.map_or_else(|| "any".to_owned(), |chain| chain_text(plan, chain));
            let _ = writeln!(text, "{address} {word} {chain}");
        }
    }
    // The number of equal groups is left out: selectors that select the same pods may share a
    // group.
    let chains = plan.pods.values().flat_map(|it| [it.egress, it.ingress]);
    let chains: BTreeSet<_> = chains.flatten().collect();
    let unused = plan.chains.keys().filter(|id| !chains.contains(id));
    let named: BTreeSet<_> = plan.chains.values().flat_map(|it| it.groups()).collect();
    let unnamed = plan.groups.keys().filter(|id| !named.contains(id));
    let (unused, unnamed) = (unused.count(), unnamed.count());
    let _ = write!(text, "{unused} unused rule chains, {unnamed} unused groups");
    text
}

fn chain_text(plan: &Plan, chain: &RuleChain) -> String {
    let steps = |steps: &[std::sync::Arc<Step>]| -> Vec<String> {
        steps.iter().map(|step| rule_text(plan, step)).collect()
    };
    let mut rest = steps(&chain.rest);
    // The order of rules with one action does not matter.
    let first = chain.rest.first().map(|step| step.action);
    if chain.rest.iter().all(|step| Some(step.action) == first) {
        rest.sort_unstable();
    }
    let group = |id: GroupId| group_text(plan, id);
    let by_port = |ports: &BTreeMap<PortBlock, GroupId>| {
        let ports = ports.iter();
        let ports = ports.map(|(port, id)| format!("{port:?} {}", group(*id)));
        ports.collect::<Vec<String>>()
    };
    format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {rest:?} {:?}",
        steps(&chain.admin),
        by_port(&chain.merged.of_ports),
        chain.merged.any_port.map(group),
        chain.merged.nets_of_ports.each_ref().map(by_port),
        chain.merged.nets_of_any_port.map(|it| it.map(group)),
        chain.merged.open,
        chain.verdict
    )
}

fn rule_text(plan: &Plan, step: &Step) -> String {
    let ports = step.ports.as_ref().map(|ports| {
        let port = |it: &palisade_core::plan::PortCondition| {
            let at = it.at.map(|id| group_text(plan, id));
            format!("{:?} {:?} {at:?}", it.protocol, it.range)
        };
        let mut ports: Vec<String> = ports.iter().map(port).collect();
        ports.sort_unstable();
        ports
    });
    let peers = step.peers.as_ref().map(|peers| {
        let peer = |it: &palisade_core::plan::PeerCondition| {
            let within = match it.within {
                PeerScope::Family(family) => format!("{family:?}"),
                PeerScope::Group(id) => group_text(plan, id),
            };
            let mut except: Vec<String> =
                it.except.iter().map(|id| group_text(plan, *id)).collect();
            except.sort_unstable();
            format!("{within} except {except:?}")
        };
        let mut peers: Vec<String> = peers.iter().map(peer).collect();
        peers.sort_unstable();
        peers
    });
    format!("{:?} {ports:?} {peers:?}", step.action)
}

fn group_text(plan: &Plan, id: GroupId) -> String {
    match plan.groups.get(&id) {
        None => "a missing group".to_owned(),
        Some(group) => format!("{:?} {:?}", group.kind, group.addresses),
    }
}
