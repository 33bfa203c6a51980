//! The deciding causes of a flow that differs, before and after.

use super::columns::Column;
use super::ends::ClusterSide;
use super::states::ChangeKind;
use crate::analysis::connect::members::MemberView;
use crate::decide::{Cause, Decision, Exemption, Flow, FlowEnd, Traffic};
use crate::net::Family;
use crate::policy::{Direction, Verdict};
use crate::program::{AddressAtom, AddressAtoms};

/// The causes that decided a flow before and after, in the direction that denied or denies it. If
/// both directions deny, that is egress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DecisionChange {
    /// The direction of both causes.
    pub direction: Direction,
    /// The cause in the old cluster; `None`: it lacks an endpoint.
    pub old: Option<Cause>,
    /// The cause in the new cluster; `None`: it lacks an endpoint.
    pub new: Option<Cause>,
}

/// A pair of endpoints as members of both sides.
#[derive(Clone, Copy)]
pub(super) struct Pair<'p, 'c> {
    pub(super) source: [Option<&'p MemberView<'c>>; 2],
    pub(super) destination: [Option<&'p MemberView<'c>>; 2],
}

impl DecisionChange {
    /// Exempts ingress on the sides where source and destination are on one node (D74).
    pub(super) fn between_neighbours(mut self, on_node: [bool; 2]) -> DecisionChange {
        let [old, new] = on_node.map(|is_local| is_local && self.direction == Direction::Ingress);
        let exempt = |cause: Option<Cause>| cause.map(|_| Cause::Exempt(Exemption::NodeLocal));
        if old {
            self.old = exempt(self.old);
        }
        if new {
            self.new = exempt(self.new);
        }
        self
    }
}

/// Returns an address of a member: of the family if it has one, otherwise any.
fn atom(side: &ClusterSide<'_>, view: &MemberView<'_>, family: Option<Family>) -> AddressAtom {
    let of = |family| view.atom(family);
    let known = family.and_then(of).or(of(Family::V4)).or(of(Family::V6));
    let [v4, v6] = &side.possible;
    let possible = if family == Some(Family::V6) { v6 } else { v4 };
    known
        .or(possible.first().copied())
        .unwrap_or(AddressAtom(0))
}

/// Returns the family of a flow: the selected one if both members share it, else the first shared.
fn shared_family(
    source: &MemberView<'_>,
    destination: &MemberView<'_>,
    family: Option<Family>,
) -> Option<Family> {
    let shared = |family: &Family| source.may_have(*family) && destination.may_have(*family);
    family
        .filter(shared)
        .or(Family::BOTH.into_iter().find(shared))
}

fn decide(
    side: &ClusterSide<'_>,
    source: &MemberView<'_>,
    destination: &MemberView<'_>,
    traffic: Traffic,
    family: Option<Family>,
) -> Decision {
    let family = shared_family(source, destination, family);
    let end = |view: &MemberView<'_>| FlowEnd {
        identity: view.identity,
        address: atom(side, view, family),
    };
    side.program
        .decide(&flow(end(source), end(destination), traffic))
}

/// Returns a flow between representatives of two keys.
fn flow(source: FlowEnd, destination: FlowEnd, traffic: Traffic) -> Flow {
    // One pod can represent both keys, for two pods like it. A flow through a Service is evaluated
    // even if both are the same pod (D77). D74 is applied to pairs, elsewhere.
    Flow {
        source,
        destination,
        traffic,
        via_service: true,
        node_local: false,
    }
}

/// Returns what decided the flows of a pair over a column.
pub(super) fn decision_change(
    sides: [&ClusterSide<'_>; 2],
    pair: &Pair<'_, '_>,
    column: &Column,
    family: Option<Family>,
    kind: ChangeKind,
) -> DecisionChange {
    let [old, new] = [0, 1].map(|index| {
        let side = sides.get(index)?;
        let source = pair.source.get(index).copied().flatten()?;
        let destination = pair.destination.get(index).copied().flatten()?;
        Some(decide(side, source, destination, column.traffic(), family))
    });
    let denied = match kind {
        ChangeKind::Gained => old,
        ChangeKind::Lost | ChangeKind::Undecided => new,
    };
    let other = match kind {
        ChangeKind::Gained => new,
        ChangeKind::Lost | ChangeKind::Undecided => old,
    };
    let direction = match (denied, other) {
        (Some(decision), _) if decision.egress.verdict() == Verdict::Deny => Direction::Egress,
        (Some(_), _) => Direction::Ingress,
        // A side lacks an endpoint, and the other side allows the flow: a direction with a rule
        // explains more than one without policies.
        (None, Some(decision)) => {
            let weight = |cause: Cause| match cause {
                Cause::NotApplicable(_) => 0,
                Cause::Default | Cause::Exempt(_) => 1,
                Cause::AdminRule(..)
                | Cause::NetworkPolicyRule(_)
                | Cause::Isolation(_)
                | Cause::BaselineRule(..)
                | Cause::DefaultIsolation(_) => 2,
            };
            if weight(decision.egress) > weight(decision.ingress) {
                Direction::Egress
            } else {
                Direction::Ingress
            }
        }
        (None, None) => Direction::Ingress,
    };
    DecisionChange {
        direction,
        old: old.map(|it| it.cause(direction)),
        new: new.map(|it| it.cause(direction)),
    }
}

/// Returns whether a pair that depends on an unknown address on both sides has the same verdict for
/// every address.
pub(super) fn is_same(
    sides: [&ClusterSide<'_>; 2],
    pair: &Pair<'_, '_>,
    column: &Column,
    only: Option<Family>,
) -> bool {
    let [old, new] = [0, 1].map(|index| {
        let side = sides.get(index)?;
        let source = pair.source.get(index).copied().flatten()?;
        let destination = pair.destination.get(index).copied().flatten()?;
        Some((*side, source, destination))
    });
    let (Some(old), Some(new)) = (old, new) else {
        return false;
    };
    let families = Family::BOTH.into_iter();
    let mut families = families.filter(|it| only.is_none_or(|only| only == *it));
    families.all(|family| {
        // Each direction depends on the address of its own peer only. The directions are tried one
        // by one: addresses of two unknown endpoints need not be tried in pairs.
        let addresses = addresses(sides, family);
        let tried = |of: (&ClusterSide<'_>, &MemberView<'_>, &MemberView<'_>), direction| {
            verdicts(of, column.traffic(), family, &addresses, direction)
        };
        let [old_out, new_out] = [old, new].map(|it| tried(it, Direction::Egress));
        let [old_in, new_in] = [old, new].map(|it| tried(it, Direction::Ingress));
        // A direction that denies every address denies the flow, whatever the other one allows.
        let is_never = |out: &[bool], into: &[bool]| !out.contains(&true) || !into.contains(&true);
        (old_out == new_out && old_in == new_in)
            || (is_never(&old_out, &old_in) && is_never(&new_out, &new_in))
    })
}

/// Returns an address of each set that either side distinguishes, as atoms of both sides.
fn addresses(sides: [&ClusterSide<'_>; 2], family: Family) -> Vec<[AddressAtom; 2]> {
    let mut starts: Vec<u128> = Vec::new();
    for side in sides {
        starts.extend(side.program.addresses.starts(family));
    }
    for (_, last) in AddressAtoms::impossible(family) {
        starts.extend(last.checked_add(1));
    }
    starts.sort_unstable();
    starts.dedup();
    let impossible = AddressAtoms::impossible(family);
    let is_possible = |bits: &u128| !impossible.iter().any(|(a, b)| (a..=b).contains(&bits));
    let highest = match family {
        Family::V4 => u128::from(u32::MAX),
        Family::V6 => u128::MAX,
    };
    let starts = starts.into_iter().filter(|it| *it <= highest);
    let addresses = starts.filter(is_possible).map(|bits| {
        let address = crate::address_space::address(family, bits);
        sides.map(|side| side.program.address_atom(address))
    });
    addresses.collect()
}

/// Returns for each address that the peer could have whether a direction allows the flow; the same
/// verdict for all if the address is known.
fn verdicts(
    (side, source, destination): (&ClusterSide<'_>, &MemberView<'_>, &MemberView<'_>),
    traffic: Traffic,
    family: Family,
    addresses: &[[AddressAtom; 2]],
    direction: Direction,
) -> Vec<bool> {
    let peer = match direction {
        Direction::Egress => destination,
        Direction::Ingress => source,
    };
    let tried = |atom: AddressAtom| {
        // The subject's own address matches nothing in its direction: any will do.
        let end = |view: &MemberView<'_>| FlowEnd {
            identity: view.identity,
            address: atom,
        };
        let flow = flow(end(source), end(destination), traffic);
        side.program.direction(&flow, direction).verdict() == Verdict::Allow
    };
    match peer.atom(family) {
        Some(atom) => vec![tried(atom); addresses.len()],
        None if peer.is_unknown => addresses
            .iter()
            .filter_map(|both| both.get(side.index))
            .map(|atom| tried(*atom))
            .collect(),
        None => Vec::new(),
    }
}
