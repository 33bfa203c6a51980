//! Maps targets of findings in the model to fields of objects.
//!
//! The model's lists have only readable entries, and a list of networks is several peers there. The
//! object is therefore walked again.

use palisade_api::{
    ClusterPeer, ClusterRule, Kind, Object, ObjectSpec, PathStep, PortMatch, Readable,
};
use palisade_core::analysis::lint::FindingTarget;
use palisade_core::policy::Direction;
use palisade_core::program::RulePlace;

/// The path of a field.
pub(crate) type Steps = Vec<PathStep<'static>>;

/// Returns the path of the field of a finding; empty for the object as a whole.
pub(crate) fn steps(object: &Object<'_>, at: FindingTarget) -> Steps {
    match at {
        FindingTarget::Subject(_) => subject(object),
        FindingTarget::Rule(place) => rule(place),
        FindingTarget::Peer(place, index) => peer(object, place, index as usize),
        FindingTarget::Port(place, index) => port(object, place, index as usize),
        FindingTarget::Policy(_)
        | FindingTarget::Namespace(_)
        | FindingTarget::Pod(_)
        | FindingTarget::Service(_) => Vec::new(),
    }
}

fn subject(object: &Object<'_>) -> Steps {
    use PathStep::Field;
    let field = match &object.spec {
        ObjectSpec::NetworkPolicy(_) | ObjectSpec::NetworkPolicy2016(_) => "podSelector",
        ObjectSpec::ClusterPolicy(_) => "subject",
        ObjectSpec::EarlyPolicy(_) => "appliedTo",
        ObjectSpec::Namespace(_)
        | ObjectSpec::Pod(_)
        | ObjectSpec::Node(_)
        | ObjectSpec::Service(_)
        | ObjectSpec::EndpointSlice(_)
        | ObjectSpec::Workload(_)
        | ObjectSpec::Unreadable => return Vec::new(),
    };
    vec![Field("spec"), Field(field)]
}

fn rule(place: RulePlace) -> Steps {
    vec![
        PathStep::Field("spec"),
        PathStep::Field(place.direction.key()),
        PathStep::Index(place.index as usize),
    ]
}

/// For each peer of the model, the item of the list and, if the item is several peers, the index in
/// it.
type PeerItems = Vec<(usize, Option<usize>)>;

/// Returns the peers of a rule: the field, and the item of each peer of the model.
pub(crate) fn peers_of(object: &Object<'_>, place: RulePlace) -> Option<(&'static str, PeerItems)> {
    let index = place.index as usize;
    let is_ingress = place.direction == Direction::Ingress;
    let usual = if is_ingress { "from" } else { "to" };
    match &object.spec {
        ObjectSpec::NetworkPolicy(policy) => {
            let rules = chosen(place.direction, &policy.ingress, &policy.egress);
            Some((usual, readable(rules.get(index)?.peers.as_ref().ok()?)))
        }
        ObjectSpec::NetworkPolicy2016(policy) => {
            let rule = policy.ingress.get(index)?;
            Some((usual, readable(rule.sources.as_ref().ok()?)))
        }
        ObjectSpec::EarlyPolicy(policy) => {
            let rules = chosen(place.direction, &policy.ingress, &policy.egress);
            let rule = rules.as_ref()?.get(index)?;
            let field = match (object.kind == Kind::DefaultNetworkPolicy, is_ingress) {
                (true, true) => "onlyFrom",
                (true, false) => "onlyTo",
                (false, _) => usual,
            };
            Some((field, readable(rule.peers.as_ref().ok()?)))
        }
        ObjectSpec::ClusterPolicy(policy) => {
            let rules = chosen(place.direction, &policy.ingress, &policy.egress);
            Some((usual, cluster_peers(rules.get(index)?)?))
        }
        ObjectSpec::Namespace(_)
        | ObjectSpec::Pod(_)
        | ObjectSpec::Node(_)
        | ObjectSpec::Service(_)
        | ObjectSpec::EndpointSlice(_)
        | ObjectSpec::Workload(_)
        | ObjectSpec::Unreadable => None,
    }
}

/// Returns the value of a direction.
fn chosen<'r, T>(direction: Direction, ingress: &'r T, egress: &'r T) -> &'r T {
    match direction {
        Direction::Ingress => ingress,
        Direction::Egress => egress,
    }
}

/// Lists the readable items: unreadable ones are not in the model.
fn readable<T>(list: &[Readable<T>]) -> PeerItems {
    let readable = list.iter().enumerate().filter(|(_, it)| it.is_ok());
    readable.map(|(index, _)| (index, None)).collect()
}

fn cluster_peers(rule: &ClusterRule<'_>) -> Option<PeerItems> {
    let mut places = Vec::new();
    for (index, peer) in rule.peers.as_ref().ok()?.iter().enumerate() {
        match peer {
            Ok(ClusterPeer::Networks(blocks)) => {
                places.extend((0..blocks.len()).map(|inner| (index, Some(inner))));
            }
            Ok(_) => places.push((index, None)),
            Err(_) => return None,
        }
    }
    Some(places)
}

fn peer(object: &Object<'_>, place: RulePlace, index: usize) -> Steps {
    let mut steps = rule(place);
    let Some((field, peers)) = peers_of(object, place) else {
        return steps;
    };
    if let Some((item, inner)) = peers.get(index) {
        steps.extend([PathStep::Field(field), PathStep::Index(*item)]);
        if let Some(inner) = inner {
            steps.extend([PathStep::Field("networks"), PathStep::Index(*inner)]);
        }
    }
    steps
}

fn port(object: &Object<'_>, place: RulePlace, index: usize) -> Steps {
    let mut steps = rule(place);
    let Some((field, ports)) = ports_of(object, place) else {
        return steps;
    };
    let mut readable = ports.iter().enumerate().filter(|(_, it)| it.is_ok());
    if let Some((item, _)) = readable.nth(index) {
        steps.extend([PathStep::Field(field), PathStep::Index(item)]);
    }
    steps
}

/// The field and the ports of a rule in the object.
type Ports<'o> = (&'static str, &'o [Readable<PortMatch<'o>>]);

fn ports_of<'o>(object: &'o Object<'_>, place: RulePlace) -> Option<Ports<'o>> {
    let index = place.index as usize;
    match &object.spec {
        ObjectSpec::NetworkPolicy(policy) => {
            let rules = chosen(place.direction, &policy.ingress, &policy.egress);
            Some(("ports", rules.get(index)?.ports.as_ref().ok()?))
        }
        ObjectSpec::NetworkPolicy2016(policy) => {
            Some(("ports", policy.ingress.get(index)?.ports.as_ref().ok()?))
        }
        ObjectSpec::EarlyPolicy(policy) => {
            let rules = chosen(place.direction, &policy.ingress, &policy.egress);
            let rule = rules.as_ref()?.get(index)?;
            Some(("ports", rule.ports.as_ref().ok()?))
        }
        ObjectSpec::ClusterPolicy(policy) => {
            let rules = chosen(place.direction, &policy.ingress, &policy.egress);
            let ports = rules.get(index)?.ports.as_ref()?.as_ref().ok()?;
            let field = if object.kind == Kind::ClusterNetworkPolicy {
                "protocols"
            } else {
                "ports"
            };
            Some((field, ports))
        }
        ObjectSpec::Namespace(_)
        | ObjectSpec::Pod(_)
        | ObjectSpec::Node(_)
        | ObjectSpec::Service(_)
        | ObjectSpec::EndpointSlice(_)
        | ObjectSpec::Workload(_)
        | ObjectSpec::Unreadable => None,
    }
}
