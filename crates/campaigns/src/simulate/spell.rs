//! A plan in words that do not depend on its numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use palisade_core::plan::{GroupId, PeerScope, Plan, PortBlock, RuleChain, Step};

/// What every address has to face. Two plans are spelled alike if they say the same and hold nothing else.
pub(super) fn spell(plan: &Plan) -> String {
    let mut words = String::new();
    for (address, faced) in &plan.pods {
        for (word, id) in [("egress", faced.egress), ("ingress", faced.ingress)] {
            let body = id.and_then(|id| plan.chains.get(&id));
            let body = body.map_or_else(|| "anything".to_owned(), |body| spell_body(plan, body));
            let _ = writeln!(words, "{address} {word} {body}");
        }
    }
    // How many groups say the same is not said: selectors that select alike may be one, or several.
    let faced = plan.pods.values().flat_map(|it| [it.egress, it.ingress]);
    let faced: BTreeSet<_> = faced.flatten().collect();
    let unused = plan.chains.keys().filter(|id| !faced.contains(id));
    let named: BTreeSet<_> = plan.chains.values().flat_map(|it| it.groups()).collect();
    let unnamed = plan.groups.keys().filter(|id| !named.contains(id));
    let (unused, unnamed) = (unused.count(), unnamed.count());
    let _ = write!(
        words,
        "{unused} bodies that nobody faces, {unnamed} groups that nobody names"
    );
    words
}

fn spell_body(plan: &Plan, body: &RuleChain) -> String {
    let steps = |steps: &[std::sync::Arc<Step>]| -> Vec<String> {
        steps.iter().map(|step| spell_step(plan, step)).collect()
    };
    let mut rest = steps(&body.rest);
    // Where all steps do the same their order says nothing.
    let first = body.rest.first().map(|step| step.action);
    if body.rest.iter().all(|step| Some(step.action) == first) {
        rest.sort_unstable();
    }
    let group = |id: GroupId| spell_group(plan, id);
    let by_port = |ports: &BTreeMap<PortBlock, GroupId>| {
        let ports = ports.iter();
        let ports = ports.map(|(port, id)| format!("{port:?} {}", group(*id)));
        ports.collect::<Vec<String>>()
    };
    format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {rest:?} {:?}",
        steps(&body.admin),
        by_port(&body.merged.of_ports),
        body.merged.any_port.map(group),
        body.merged.nets_of_ports.each_ref().map(by_port),
        body.merged.nets_of_any_port.map(|it| it.map(group)),
        body.merged.open,
        body.verdict
    )
}

fn spell_step(plan: &Plan, step: &Step) -> String {
    let ports = step.ports.as_ref().map(|ports| {
        let port = |it: &palisade_core::plan::PortCondition| {
            let at = it.at.map(|id| spell_group(plan, id));
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
                PeerScope::Group(id) => spell_group(plan, id),
            };
            let mut except: Vec<String> =
                it.except.iter().map(|id| spell_group(plan, *id)).collect();
            except.sort_unstable();
            format!("{within} except {except:?}")
        };
        let mut peers: Vec<String> = peers.iter().map(peer).collect();
        peers.sort_unstable();
        peers
    });
    format!("{:?} {ports:?} {peers:?}", step.action)
}

fn spell_group(plan: &Plan, id: GroupId) -> String {
    match plan.groups.get(&id) {
        None => "a group that is not there".to_owned(),
        Some(group) => format!("{:?} {:?}", group.kind, group.addresses),
    }
}
