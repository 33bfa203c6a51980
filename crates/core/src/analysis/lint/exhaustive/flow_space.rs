//! The flows of one direction, as classes that no policy distinguishes.
//!
//! Peers are *keys*, as in whole-cluster connectivity: peers that no rule distinguishes are one
//! key, and a set of keys is a bit set. Subjects are *groups*: pods that the same rules select and
//! match in the same way. A flow class is a group, a key, a family and a column of ports, and every
//! finding of this module is defined over flow classes.

use std::net::IpAddr;
use std::num::NonZeroU16;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::analysis::affect::peers::{free, groups as multicast, no_hosts, ranges};
use crate::analysis::affect::served;
use crate::analysis::connect::columns::Columns;
use crate::analysis::connect::keys::{AddressClasses, FlowRole, Keys, union_rules};
use crate::analysis::connect::members::MemberView;
use crate::analysis::connect::peers::Sources;
use crate::compile::count;
use crate::decide::Identity;
use crate::flow_end::{self, EndCandidate, EndName};
use crate::model::{Cluster, NodeId, PodId, PodPhase, ServiceId};
use crate::net::{Family, Protocol};
use crate::policy::Direction;
use crate::program::{AddressAtom, NONE, Owner, PortMap, Program, RuleId};

/// A possible peer: a pod, a node, or an address outside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Participant<'c> {
    pub(super) name: EndName,
    pub(super) view: MemberView<'c>,
    /// Whether it is a destination only, as multicast groups are.
    only_receives: bool,
}

/// The ports at which Services lead to a pod.
type Served = FxHashMap<PodId, Vec<(ServiceId, Protocol, NonZeroU16)>>;

/// The data that both directions share.
#[derive(Debug)]
pub(super) struct SpaceContext<'c> {
    pub(super) cluster: &'c Cluster<'c>,
    pub(super) program: &'c Program,
    pub(super) participants: Vec<Participant<'c>>,
    pub(super) columns: Columns<'c>,
    pub(super) served: Served,
    addresses: AddressClasses,
    /// The atoms that an unknown address can be in, for each family.
    pub(super) possible: [Vec<AddressAtom>; 2],
}

impl<'c> SpaceContext<'c> {
    pub(super) fn new(cluster: &'c Cluster<'c>, program: &'c Program) -> SpaceContext<'c> {
        SpaceContext {
            cluster,
            program,
            participants: participants(cluster, program),
            columns: Columns::new(program),
            served: served(cluster),
            addresses: AddressClasses::new(program, &union_rules(program)),
            possible: Family::BOTH.map(|family| program.addresses.possible(family)),
        }
    }
}

fn participants<'c>(cluster: &'c Cluster<'c>, program: &'c Program) -> Vec<Participant<'c>> {
    let mut list = Vec::new();
    let mut add = |candidate: &EndCandidate<'c>| {
        list.push(Participant {
            name: candidate.name,
            view: MemberView::new(cluster, program, candidate),
            only_receives: false,
        });
    };
    for (id, pod) in cluster.pods.iter().enumerate() {
        if pod.phase != PodPhase::Terminated {
            add(&flow_end::pod(cluster, program, PodId(count(id))));
        }
    }
    for id in 0..cluster.nodes.len() {
        let candidate = flow_end::node(cluster, NodeId(count(id)));
        if !candidate.addresses.is_empty() {
            add(&candidate);
        }
    }
    // A node by its address is another peer than by its name: an address is never local to a node
    // (D130), so it can call the pods there. A further address of a pod is another peer too: by its
    // name, a pod has only its first address of each family.
    let mut owned: Vec<(IpAddr, Owner)> = program.owners.iter().collect();
    owned.sort_unstable();
    for (address, owner) in &owned {
        let is_known = match owner {
            Owner::Pod(id) => {
                let pod = flow_end::pod(cluster, program, *id);
                let own = pod.addresses.of(Family::of(*address));
                own.is_some_and(|own| own.to_canonical() == address.to_canonical())
            }
            Owner::Node(_) => false,
        };
        if !is_known {
            add(&EndCandidate {
                name: EndName::Address(*address),
                ..flow_end::at(cluster, program, *address)
            });
        }
    }
    // Service addresses are translated before policies see them (D78), so no outside peer has one.
    let mut taken: FxHashSet<IpAddr> = owned.into_iter().map(|it| it.0).collect();
    for service in &cluster.services {
        let addresses = service.cluster_addresses.iter();
        let addresses = addresses.chain(&service.external_addresses);
        taken.extend(addresses.map(IpAddr::to_canonical));
    }
    outside(program, &taken, &mut list);
    list
}

/// Adds an outside peer for each atom with an address that no object has.
///
/// One for each atom is enough: no rule distinguishes the addresses of an atom.
fn outside(program: &Program, taken: &FxHashSet<IpAddr>, list: &mut Vec<Participant<'_>>) {
    for family in Family::BOTH {
        for (first, last) in ranges(program, family) {
            let host = free(family, (first, last), &no_hosts(family), taken);
            let found = host.map(|address| (address, false)).or_else(|| {
                // A multicast group receives and never sends (D13).
                let (from, to) = multicast(family);
                let range = (first.max(from), last.min(to));
                Some((free(family, range, &[], taken)?, true))
            });
            let Some((address, only_receives)) = found else {
                continue;
            };
            let atom = Some(program.address_atom(address));
            list.push(Participant {
                name: EndName::Address(address),
                view: MemberView {
                    identity: Identity::External,
                    class: None,
                    atoms: match family {
                        Family::V4 => [atom, None],
                        Family::V6 => [None, atom],
                    },
                    is_unknown: false,
                    local_to: None,
                    node: None,
                },
                only_receives,
            });
        }
    }
}

/// The peers of one direction and what rules see of them.
#[derive(Debug)]
pub(super) struct FlowSpace<'c> {
    pub(super) context: &'c SpaceContext<'c>,
    pub(super) direction: Direction,
    pub(super) keys: Keys<'c>,
    pub(super) sources: Sources<'c>,
    /// The keys whose members are all one pod, by the pod.
    pub(super) only_pod: FxHashMap<PodId, Vec<u32>>,
    /// The keys whose members all send from the network of one node, by the node.
    pub(super) only_node: FxHashMap<&'c str, Vec<u32>>,
    /// The port map of each key, and the distinct maps with names; for egress only, where keys are
    /// destinations.
    pub(super) map_of_key: Vec<u32>,
    pub(super) maps: Vec<u32>,
    /// Whether each rule names a port, and whether it has a peer that depends on the subject.
    pub(super) uses_names: Vec<bool>,
    pub(super) is_relative: Vec<bool>,
}

impl<'c> FlowSpace<'c> {
    pub(super) fn new(context: &'c SpaceContext<'c>, direction: Direction) -> FlowSpace<'c> {
        let program = context.program;
        let role = match direction {
            Direction::Ingress => FlowRole::Source,
            Direction::Egress => FlowRole::Destination,
        };
        // Keys are made for each direction: rules see less of a source than of a destination, which
        // has a port map, and a peer that only receives is no source.
        let takes_part = |id: u32| {
            let it = context.participants.get(id as usize)?;
            (direction == Direction::Egress || !it.only_receives).then_some(0)
        };
        let members = context.participants.iter().map(|it| Some(it.view));
        let keys = Keys::new(program, role, &context.addresses, members, takes_part);
        let sources = Sources::new(program, &keys);
        let mut space = FlowSpace {
            context,
            direction,
            sources,
            only_pod: FxHashMap::default(),
            only_node: FxHashMap::default(),
            map_of_key: Vec::with_capacity(keys.len()),
            maps: Vec::new(),
            keys,
            uses_names: Vec::with_capacity(program.rules.len()),
            is_relative: Vec::with_capacity(program.rules.len()),
        };
        for (id, key) in space.keys.list.iter().enumerate() {
            let members = key.members.iter();
            let members = members.filter_map(|it| context.participants.get(*it as usize));
            let mut views = members.map(|it| it.view);
            if let Some(first) = views.next() {
                let (mut pod, mut node) = (Some(first.identity), first.local_to);
                for other in views {
                    pod = pod.filter(|it| *it == other.identity);
                    node = node.filter(|it| Some(*it) == other.local_to);
                }
                if let Some(Identity::Pod(pod)) = pod {
                    space.only_pod.entry(pod).or_default().push(count(id));
                }
                if let Some(node) = node {
                    space.only_node.entry(node).or_default().push(count(id));
                }
            }
            // All members of a key share the port map, so the class of the key's view gives it.
            let class = key
                .view
                .class
                .and_then(|it| program.classes.get(it as usize));
            space.map_of_key.push(match direction {
                Direction::Ingress => NONE,
                Direction::Egress => class.map_or(NONE, |class| class.port_map),
            });
        }
        let has_names = |map: &&u32| {
            let map = program.port_maps.get(**map as usize);
            map.is_some_and(|map| !map.entries.is_empty())
        };
        space.maps = space.map_of_key.iter().filter(has_names).copied().collect();
        space.maps.sort_unstable();
        space.maps.dedup();
        for rule in &program.rules {
            space
                .uses_names
                .push(!rule.names.of(&program.lists.names).is_empty());
            let relative = crate::analysis::connect::is_relative(program, rule);
            space.is_relative.push(relative);
        }
        space
    }

    pub(super) fn uses_names(&self, rule: RuleId) -> bool {
        self.uses_names
            .get(rule.0 as usize)
            .copied()
            .unwrap_or(false)
    }

    pub(super) fn is_relative(&self, rule: RuleId) -> bool {
        self.is_relative
            .get(rule.0 as usize)
            .copied()
            .unwrap_or(false)
    }

    /// Whether a port map has a name that some of the rules use.
    pub(super) fn names_some(&self, map: u32, rules: &[RuleId]) -> bool {
        let program = self.context.program;
        let map: Option<&PortMap> = program.port_maps.get(map as usize);
        let entries = map.map_or(&[][..], |map| &map.entries);
        if entries.is_empty() {
            return false;
        }
        let rules = rules.iter().filter(|it| self.uses_names(**it));
        let rules = rules.filter_map(|it| program.rules.get(it.0 as usize));
        let mut names = rules.flat_map(|it| it.names.of(&program.lists.names));
        names.any(|named| {
            entries
                .iter()
                .any(|entry| entry.names.contains(&named.name))
        })
    }
}
