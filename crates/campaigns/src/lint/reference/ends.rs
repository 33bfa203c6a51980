//! The possible ends of flows in a small cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use palisade_core::EndName;
use palisade_core::model::{Cluster, NodeId, Peer, Pod, PodId, PodPhase};
use palisade_core::net::{Cidr, Family};
use palisade_core::policy::Direction;
use palisade_core::program::{Owner, Program};

use super::End;

/// The pod or the node of an end.
type Identity = (Option<PodId>, Option<NodeId>);

/// Returns the possible ends of flows: pods, nodes, their addresses, and sampled addresses outside.
pub(super) fn ends<'c>(cluster: &'c Cluster<'c>, program: &Program) -> Vec<End<'c>> {
    let mut collector = EndCollector {
        cluster,
        program,
        possible: BTreeMap::new(),
        outside: Vec::new(),
        ends: Vec::new(),
    };
    collector.sample_addresses();
    collector.add_pods();
    collector.add_nodes();
    collector.add_owned_addresses();
    collector.add_outside();
    collector.ends
}

struct EndCollector<'c, 'p> {
    cluster: &'c Cluster<'c>,
    program: &'p Program,
    /// A possible address of a pod in each interval between edges of blocks.
    possible: BTreeMap<Family, Vec<IpAddr>>,
    /// An address outside in each interval, and whether it can only receive.
    outside: Vec<(Family, IpAddr, bool)>,
    ends: Vec<End<'c>>,
}

impl EndCollector<'_, '_> {
    fn sample_addresses(&mut self) {
        let services = self.cluster.services.iter();
        let services =
            services.flat_map(|it| it.cluster_addresses.iter().chain(&it.external_addresses));
        let services: BTreeSet<IpAddr> = services.map(IpAddr::to_canonical).collect();
        for family in Family::BOTH {
            let starts = starts(self.cluster, family);
            let (no_host, group) = special(family);
            let is_free = |it: u128| {
                let it = address(family, it);
                self.program.owner(it).is_none() && !services.contains(&it)
            };
            for (at, start) in starts.iter().enumerate() {
                let end = starts.get(at + 1).map_or(last(family), |it| it - 1);
                if let Some(it) = first_free((*start, end), &no_host, |_| true) {
                    let possible = self.possible.entry(family).or_default();
                    possible.push(address(family, it));
                }
                let host = first_free((*start, end), &no_host, is_free).map(|it| (it, false));
                let found = host.or_else(|| {
                    let range = ((*start).max(group.0), end.min(group.1));
                    Some((first_free(range, &[], is_free)?, true))
                });
                if let Some((it, only_receives)) = found {
                    self.outside
                        .push((family, address(family, it), only_receives));
                }
            }
        }
    }

    fn add_outside(&mut self) {
        let outside = self.outside.iter();
        self.ends
            .extend(outside.map(|(family, at, only_receives)| End {
                name: EndName::Address(*at),
                pod: None,
                node: None,
                family: *family,
                addresses: vec![*at],
                local_to: None,
                only_receives: *only_receives,
            }));
    }
}

impl<'c> EndCollector<'c, '_> {
    /// Adds an end in each family of its known addresses, or in both if none is known.
    fn add(
        &mut self,
        name: EndName,
        identity: Identity,
        known: &[IpAddr],
        local_to: Option<&'c str>,
    ) {
        for family in Family::BOTH {
            let mut of_family = known.iter().filter(|it| Family::of(**it) == family);
            let addresses = match of_family.next() {
                Some(first) => vec![first.to_canonical()],
                None if known.is_empty() => self.possible.get(&family).cloned().unwrap_or_default(),
                None => continue,
            };
            self.ends.push(End {
                name,
                pod: identity.0,
                node: identity.1,
                family,
                addresses,
                local_to,
                only_receives: false,
            });
        }
    }

    fn add_pods(&mut self) {
        let cluster = self.cluster;
        for (id, pod) in (0..).map(PodId).zip(&cluster.pods) {
            if pod.phase == PodPhase::Terminated {
                continue;
            }
            if pod.host_network {
                self.add_host_network_pod(id, pod);
            } else {
                self.add(EndName::Pod(id), (Some(id), None), &pod.addresses, None);
            }
        }
    }

    fn add_host_network_pod(&mut self, id: PodId, pod: &'c Pod<'c>) {
        let cluster = self.cluster;
        let mut owners = pod.addresses.iter().map(|it| self.program.owner(*it));
        let node = match pod.node {
            Some(name) => cluster.node(name),
            None => owners.find_map(|it| match it {
                Some(Owner::Node(node)) => node,
                Some(Owner::Pod(_)) | None => None,
            }),
        };
        let object = node.and_then(|it| cluster.nodes.get(it.0 as usize));
        let addresses = Family::BOTH.into_iter().filter_map(|family| {
            let of = |list: &[IpAddr]| list.iter().copied().find(|it| Family::of(*it) == family);
            let own = of(&pod.addresses);
            let is_nodes = own.is_some_and(|own| {
                let mut nodes = cluster.nodes.iter();
                nodes.any(|node| node.addresses.contains(&own))
            });
            match own {
                Some(own) if !is_nodes => Some(own),
                own => object.and_then(|it| of(&it.addresses)).or(own),
            }
        });
        let addresses: Vec<IpAddr> = addresses.collect();
        let local_to = pod.node.or(object.map(|it| it.name));
        self.add(EndName::Pod(id), (None, node), &addresses, local_to);
    }

    fn add_nodes(&mut self) {
        let cluster = self.cluster;
        for (id, node) in (0..).map(NodeId).zip(&cluster.nodes) {
            if !node.addresses.is_empty() {
                let identity = (None, Some(id).filter(|_| node.has_object));
                let name = EndName::Node(id);
                self.add(name, identity, &node.addresses, Some(node.name));
            }
        }
    }

    fn add_owned_addresses(&mut self) {
        let pods = self.cluster.pods.iter().flat_map(|it| &it.addresses);
        let nodes = self.cluster.nodes.iter().flat_map(|it| &it.addresses);
        let all: BTreeSet<IpAddr> = pods.chain(nodes).map(IpAddr::to_canonical).collect();
        for at in all {
            let identity = match self.program.owner(at) {
                Some(Owner::Pod(id)) => (Some(id), None),
                Some(Owner::Node(node)) => (None, node),
                None => continue,
            };
            self.add(EndName::Address(at), identity, &[at], None);
        }
    }
}

fn last(family: Family) -> u128 {
    match family {
        Family::V4 => u128::from(u32::MAX),
        Family::V6 => u128::MAX,
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(it) => u128::from(it.to_bits()),
        IpAddr::V6(it) => it.to_bits(),
    }
}

fn address(family: Family, number: u128) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(number).unwrap_or(0))),
        Family::V6 => IpAddr::V6(Ipv6Addr::from_bits(number)),
    }
}

/// The ranges of addresses of no host, and the range of multicast groups.
fn special(family: Family) -> ([(u128, u128); 3], (u128, u128)) {
    match family {
        Family::V4 => (
            [
                (0, 0x00ff_ffff),
                (0x7f00_0000, 0x7fff_ffff),
                (0xe000_0000, 0xffff_ffff),
            ],
            (0xe000_0000, 0xefff_ffff),
        ),
        Family::V6 => (
            [
                (0, 1),
                (0xffff_0000_0000, 0xffff_ffff_ffff),
                (0xff << 120, u128::MAX),
            ],
            (0xff << 120, u128::MAX),
        ),
    }
}

/// The starts of the address intervals that no block divides, in a family.
fn starts(cluster: &Cluster<'_>, family: Family) -> Vec<u128> {
    let mut starts = BTreeSet::from([0]);
    let mut add = |block: Cidr| {
        if Family::of(block.first()) == family {
            starts.insert(number(block.first()));
            starts.extend(number(block.last()).checked_add(1));
        }
    };
    for policy in &cluster.policies {
        let rules = Direction::BOTH
            .into_iter()
            .flat_map(|it| &policy.rules(it).list);
        let effects = rules.filter_map(|it| it.effect.as_ref());
        for peer in effects.filter_map(|it| it.peers.as_ref()).flatten() {
            if let Peer::Block { cidr, except } = peer {
                except.iter().chain([cidr]).copied().for_each(&mut add);
            }
        }
    }
    for (_, resolved) in &cluster.learned {
        add(Cidr::single(resolved.to_canonical()));
    }
    let starts = starts.into_iter();
    starts.filter(|it| *it <= last(family)).collect()
}

/// The first address of a range that is outside some ranges and meets a condition.
fn first_free(
    (mut at, last): (u128, u128),
    not: &[(u128, u128)],
    fits: impl Fn(u128) -> bool,
) -> Option<u128> {
    while at <= last {
        match not.iter().find(|(from, to)| (*from..=*to).contains(&at)) {
            Some((_, to)) => at = to.checked_add(1)?,
            None if fits(at) => return Some(at),
            None => at = at.checked_add(1)?,
        }
    }
    None
}
