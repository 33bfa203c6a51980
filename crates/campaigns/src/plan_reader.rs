//! Reads a plan literally: the verdict on a connection, rule by rule.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a campaign fails by panicking"
)]

use std::net::IpAddr;
use std::sync::Arc;

use palisade_core::net::{Cidr, Family, Protocol};
use palisade_core::plan::{GroupId, GroupKind, PeerScope, Plan, PortBlock, Step, ranges};
use palisade_core::policy::{Action, Direction, Verdict};

/// The protocol and the port of a connection, or `None` without ports.
pub type Port = Option<(Protocol, std::num::NonZeroU16)>;

/// The verdict of a plan on a connection between a local address and another, in one direction.
pub fn verdict(
    plan: &Plan,
    (own, direction): (IpAddr, Direction),
    peer: IpAddr,
    port: Port,
) -> Verdict {
    let chains = plan.pods.get(&own).copied().unwrap_or_default();
    let Some(chain) = chains.chain(direction) else {
        return Verdict::Allow;
    };
    let chain = &plan.chains[&chain];
    let first = |steps: &[Arc<Step>]| {
        let mut steps = steps.iter();
        let step = steps.find(|step| matches(plan, step, peer, port));
        match step.map(|step| step.action) {
            Some(Action::Accept) => Some(Verdict::Allow),
            Some(Action::Deny) => Some(Verdict::Deny),
            Some(Action::Pass) | None => None,
        }
    };
    if let Some(decided) = first(&chain.admin) {
        return decided;
    }
    let merged = &chain.merged;
    let family = Family::of(peer);
    let at: Vec<PortBlock> = port.map_or(Vec::new(), |(protocol, port)| {
        let around = |bits| PortBlock::around(protocol, port.get(), bits);
        (0..=16).map(around).collect()
    });
    let by_port = at.iter().flat_map(|at| {
        let nets = merged.nets_of_ports(family).get(at);
        merged.of_ports.get(at).into_iter().chain(nets)
    });
    let of_any = merged.nets_of_any_port(family);
    let groups = by_port.chain(&merged.any_port).chain(&of_any);
    let is_open = at.iter().any(|at| merged.open(family).contains(at));
    if is_open || groups.into_iter().any(|group| is_in(plan, *group, peer)) {
        return Verdict::Allow;
    }
    first(&chain.rest).unwrap_or(chain.verdict)
}

fn matches(plan: &Plan, step: &Step, peer: IpAddr, port: Port) -> bool {
    let ports = step.ports.as_ref().is_none_or(|ports| {
        ports.iter().any(|condition| {
            port.is_some_and(|(protocol, port)| {
                condition.protocol == protocol
                    && condition.range.contains(port)
                    && condition.at.is_none_or(|at| is_in(plan, at, peer))
            })
        })
    });
    let peers = step.peers.as_ref().is_none_or(|peers| {
        peers.iter().any(|condition| {
            let within = match condition.within {
                PeerScope::Family(family) => Family::of(peer) == family,
                PeerScope::Group(group) => is_in(plan, group, peer),
            };
            let mut except = condition.except.iter();
            within && !except.any(|group| is_in(plan, *group, peer))
        })
    });
    ports && peers
}

fn is_in(plan: &Plan, group: GroupId, peer: IpAddr) -> bool {
    let group = &plan.groups[&group];
    match group.kind {
        GroupKind::Hosts => group.addresses.binary_search(&peer).is_ok(),
        GroupKind::Nets(_, length) => group
            .addresses
            .iter()
            .any(|net| Cidr::new(*net, length).unwrap().contains(peer)),
        GroupKind::Ranges(family) => {
            let mut ranges = ranges(&group.addresses);
            family == Family::of(peer)
                && ranges.any(|(first, behind)| first <= peer && behind.is_none_or(|it| peer < it))
        }
    }
}
