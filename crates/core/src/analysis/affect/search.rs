//! Searches the flows of a group: each combination of a peer and a port that the rules distinguish.

use rustc_hash::{FxHashMap, FxHashSet};

use super::group::Group;
use super::mask::{Mask, distinct};
use super::peers::{Kind, Member, Peer, PeerAddress};
use super::ports::{PortChoice, Ports};
use super::shared::{Block, Shared, Union};
use super::stack::FlowEffects;
use super::{FoundEffects, OverrideFinder, Witness};
use crate::answer::Transport;
use crate::decide::{Flow, FlowEnd, Identity, Traffic};
use crate::flow_end::EndName;
use crate::model::{Pod, PodId, ServiceId};
use crate::net::Family;
use crate::policy::Direction;
use crate::program::AddressAtom;

/// A peer that stands for all that the rules do not distinguish from it.
struct Candidate<'c> {
    pair: Pair<'c>,
    /// The rules that match the peer; one mask for each address that it could have.
    masks: Vec<Mask>,
    /// The port map of the destination, if it is a pod.
    map: Option<u32>,
}

/// A subject and a peer between which a flow is possible.
struct Pair<'c> {
    subject: PodId,
    peer: Member<'c>,
    at: PeerAddress,
    via: Option<ServiceId>,
}

impl<'c> OverrideFinder<'c> {
    /// Adds the effects of all flows of a group.
    pub(super) fn search(&self, shared: &Shared, group: &Group<'c>, found: &mut FoundEffects) {
        let union = shared.union(&self.peers, self.program, group);
        let ports = Ports::new(self.program, &group.stack, group.class);
        let mut seen: FxHashSet<Vec<Mask>> = FxHashSet::default();
        let mut choices: FxHashMap<(Option<u32>, Option<PodId>), Vec<PortChoice>> =
            FxHashMap::default();
        for candidate in self.candidates(shared, &union, group) {
            let Candidate { pair, masks, map } = candidate;
            let destination = match (group.stack.direction, pair.peer.identity) {
                (Direction::Ingress, _) => Some(pair.subject),
                (Direction::Egress, Identity::Pod(id)) => Some(id),
                (Direction::Egress, Identity::Node(_) | Identity::External) => None,
            };
            let choices = choices.entry((map, destination)).or_insert_with(|| {
                let pod = destination.and_then(|id| self.pod(id));
                let map = map.and_then(|map| self.program.port_maps.get(map as usize));
                ports.choices(map, pod)
            });
            for choice in choices.iter() {
                // The verdicts depend only on the rules that match. Flows that match the same rules
                // for the same possible addresses have the same effects, so each set is evaluated
                // once.
                let matched = distinct(masks.iter().map(|mask| mask.and(&choice.mask)));
                if seen.insert(matched.clone()) {
                    let witness = self.witness(group, &pair, choice.traffic);
                    found.add(&story(group, &matched), &witness);
                }
            }
        }
        self.through_services(shared, &union, group, &ports, &mut seen, found);
    }

    /// Returns one peer for each set of rules that peers of the group match, in the order of the
    /// list.
    fn candidates(&self, shared: &Shared, union: &Union, group: &Group<'c>) -> Vec<Candidate<'c>> {
        let is_source = group.stack.direction == Direction::Ingress;
        let fits = |block: &Block| {
            let has_family = block.family.is_none_or(|it| group.families.has(it));
            has_family && !(is_source && block.only_receives)
        };
        let pair = |place: usize| {
            let peer = self.peers.list.get(place)?;
            Some((place, self.pair(group, peer)?))
        };
        // The peers of a block match the same rules of the ordered tiers. Those that no
        // NetworkPolicy selects by itself also match the same rules of the union, so the first of
        // them that can be a peer stands for the rest. Trying all of them would cost the number of
        // pods for each group.
        let mut pairs: Vec<(usize, Pair<'c>)> = Vec::new();
        for block in shared.blocks.iter().filter(|block| fits(block)) {
            let rest = block.peers.iter();
            let mut rest = rest.filter(|place| !union.of_peers.contains_key(place));
            pairs.extend(rest.find_map(|place| pair(*place)));
        }
        // The others need one for each block and set of rules of the union. If no flow with a peer
        // is possible, the next one of the same block and set takes its place.
        let mut singled_out: Vec<(&usize, &Mask)> = union.of_peers.iter().collect();
        singled_out.sort_unstable_by_key(|(place, _)| **place);
        let mut handled: FxHashSet<(usize, &Mask)> = FxHashSet::default();
        for (place, mask) in singled_out {
            let Some(of_block) = shared.of_peer.get(*place) else {
                continue;
            };
            let block = shared.blocks.get(*of_block);
            let key = (*of_block, mask);
            if block.is_some_and(fits)
                && !handled.contains(&key)
                && let Some(found) = pair(*place)
            {
                handled.insert(key);
                pairs.push(found);
            }
        }
        // The list has pods first, so witnesses prefer them, and the order is reproducible.
        pairs.sort_by_key(|(place, _)| *place);
        let candidate = |(place, pair): (usize, Pair<'c>)| {
            let block = shared.blocks.get(*shared.of_peer.get(place)?)?;
            Some(Candidate {
                pair,
                masks: union.masks(block, place, group),
                map: match group.stack.direction {
                    Direction::Ingress => Some(group.class.port_map),
                    Direction::Egress => block.map,
                },
            })
        };
        pairs.into_iter().filter_map(candidate).collect()
    }

    /// Adds the effects of flows of a pod to itself through a Service (D77). The candidates above
    /// leave such flows out (D76).
    fn through_services(
        &self,
        shared: &Shared,
        union: &Union,
        group: &Group<'c>,
        ports: &Ports<'_, '_>,
        seen: &mut FxHashSet<Vec<Mask>>,
        found: &mut FoundEffects,
    ) {
        let masks = |kind: usize, at: PeerAddress| {
            let place = *self.peers.places.get(&(Kind::Pod(kind), at))?;
            let block = shared.blocks.get(*shared.of_peer.get(place)?)?;
            Some(union.masks(block, place, group))
        };
        for id in &group.pods {
            let (Some(served), Some(pod)) = (self.served.get(id), self.pod(*id)) else {
                continue;
            };
            let Some(kind) = self.peers.pod_kinds.get(id).copied() else {
                continue;
            };
            let map = self.program.class(*id);
            let map = map.and_then(|class| self.program.port_map(class));
            for (service, protocol, port) in served {
                let of_port = ports.of(*protocol, *port, map);
                for at in self.own_places(pod, *service) {
                    let of_peer = masks(kind, at).unwrap_or_default();
                    let matched = distinct(of_peer.iter().map(|mask| mask.and(&of_port)));
                    if matched.is_empty() || !seen.insert(matched.clone()) {
                        continue;
                    }
                    let pair = Pair {
                        subject: *id,
                        peer: Member {
                            name: EndName::Pod(*id),
                            identity: Identity::Pod(*id),
                            local_to: None,
                        },
                        at,
                        via: Some(*service),
                    };
                    let witness = self.witness(group, &pair, Traffic::Port(*protocol, *port));
                    found.add(&story(group, &matched), &witness);
                }
            }
        }
    }

    /// Returns the places of a pod as the peer of a flow through a Service: one for each family
    /// that both have.
    fn own_places(&self, pod: &Pod<'_>, service: ServiceId) -> Vec<PeerAddress> {
        if pod.addresses.is_empty() {
            return vec![PeerAddress::Unknown];
        }
        let service = self.cluster.services.get(service.0 as usize);
        let offered = service.map_or(&[][..], |it| &it.cluster_addresses);
        let offers =
            |family| offered.is_empty() || offered.iter().any(|it| Family::of(*it) == family);
        let first = |family| {
            let mut addresses = pod.addresses.iter().copied();
            addresses.find(|it| Family::of(*it) == family)
        };
        let families = Family::BOTH.into_iter().filter(|family| offers(*family));
        let places = families.filter_map(|family| {
            let atom = self.program.address_atom(first(family)?);
            Some(PeerAddress::Atom(family, atom))
        });
        places.collect()
    }

    fn pod(&self, id: PodId) -> Option<&'c Pod<'c>> {
        self.cluster.pods.get(id.0 as usize)
    }

    /// Returns a subject and a member of a peer between which a flow is evaluated. Excluded are a
    /// pod and itself (D76), unless it stands for several pods, and ingress from the subject's own
    /// node (D74).
    fn pair(&self, group: &Group<'c>, peer: &Peer<'c>) -> Option<Pair<'c>> {
        let is_possible = |subject: PodId, member: &Member<'_>| {
            let Some(pod) = self.pod(subject) else {
                return false;
            };
            let is_itself = member.identity == Identity::Pod(subject) && pod.template.is_none();
            let is_local = group.stack.direction == Direction::Ingress
                && member.local_to.is_some()
                && member.local_to == pod.node;
            !is_itself && !is_local
        };
        group.pods.iter().find_map(|subject| {
            let mut members = peer.members.iter();
            let member = members.find(|member| is_possible(*subject, member))?;
            Some(Pair {
                subject: *subject,
                peer: *member,
                at: peer.at,
                via: None,
            })
        })
    }

    fn witness(&self, group: &Group<'c>, pair: &Pair<'c>, traffic: Traffic) -> Witness {
        let family = match pair.at {
            PeerAddress::Atom(family, _) => Some(family),
            PeerAddress::Unknown => group.families.only(),
        };
        // An unknown address has no atom. Any possible one will do: the effect holds for all of
        // them.
        let atom = match pair.at {
            PeerAddress::Atom(_, atom) => atom,
            PeerAddress::Unknown => {
                let [v4, v6] = &self.peers.possible;
                let possible = if family == Some(Family::V6) { v6 } else { v4 };
                possible.first().copied().unwrap_or(AddressAtom(0))
            }
        };
        let is_known = group.families.known && pair.at != PeerAddress::Unknown;
        let carried = match (traffic, family) {
            (Traffic::Port(protocol, port), _) => Transport::Port(protocol, port),
            (Traffic::Portless | Traffic::NeighborDiscovery, Some(Family::V6)) => {
                Transport::Icmp6(None)
            }
            (Traffic::Portless | Traffic::NeighborDiscovery, _) => Transport::Icmp,
        };
        // Rules of a direction match the address of the peer only. The one of the subject is
        // arbitrary.
        let subject = FlowEnd {
            identity: Identity::Pod(pair.subject),
            address: AddressAtom(0),
        };
        let peer = FlowEnd {
            identity: pair.peer.identity,
            address: atom,
        };
        let subject_name = EndName::Pod(pair.subject);
        let (source, destination, names) = match group.stack.direction {
            Direction::Ingress => (peer, subject, (pair.peer.name, subject_name)),
            Direction::Egress => (subject, peer, (subject_name, pair.peer.name)),
        };
        Witness {
            source: names.0,
            destination: names.1,
            transport: carried,
            family: family.filter(|_| is_known),
            via: pair.via,
            flow: Flow {
                source,
                destination,
                traffic,
                via_service: pair.via.is_some() || source.identity == destination.identity,
                node_local: false,
            },
        }
    }
}

/// Returns the effects of a flow that hold for every address that the peer could have.
fn story(group: &Group<'_>, matched: &[Mask]) -> FlowEffects {
    let stories = matched.iter().map(|mask| group.stack.story(mask));
    stories.reduce(|a, b| a.and(&b)).unwrap_or_default()
}
