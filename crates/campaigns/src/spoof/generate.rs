//! Generates packets from a seed: sender, source address, destination and payload.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use palisade_core::net::Family;
use palisade_lab::topology::Location;

use super::claims::{CLAIMS, Claim, Payload, ROUTABLE};
use super::cluster::{
    LAB_GATEWAY, NODES, PODS, address, block_address, bridge_address, share_bridge,
};
use palisade_generate::Rng;

/// The destination of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// One location.
    Place(Location),
    /// Everything on the sender's link.
    Link,
}

/// A packet to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    /// Its sender.
    pub(super) from: Location,
    /// The owner of its source address, or `None` for the sender itself.
    pub(super) claim: Option<Claim>,
    /// The source address.
    pub(super) source: IpAddr,
    /// Its destination.
    pub(super) target: Target,
    /// Whether it is sent directly to a pod of the same bridge instead of to the node.
    pub(super) direct: bool,
    /// Its payload.
    pub(super) payload: Payload,
}

impl Packet {
    /// Its address family.
    pub(super) fn family(&self) -> Family {
        match self.source {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        }
    }
}

/// A generator of packets.
#[derive(Debug)]
pub(super) struct Generator(pub(super) Rng);

impl Generator {
    fn family(&mut self) -> Family {
        if self.0.chance(50) {
            Family::V4
        } else {
            Family::V6
        }
    }

    /// A random pod that fulfills a condition.
    fn pod(&mut self, condition: impl Fn(usize) -> bool) -> Option<usize> {
        let some: Vec<usize> = (0..PODS.len()).filter(|it| condition(*it)).collect();
        (!some.is_empty()).then(|| self.0.pick(&some))
    }

    /// The sender of the next packets: a pod, or sometimes a host outside.
    pub(super) fn sender(&mut self) -> Location {
        match self.0.below(PODS.len() as u64 + 1) as usize {
            pod if pod < PODS.len() => Location::Pod(pod),
            _ => Location::Outside,
        }
    }

    /// A packet with a false sender that must be dropped.
    pub(super) fn spoofed(&mut self, from: Location) -> Packet {
        match from {
            Location::Pod(pod) if self.0.chance(5) => self.router_packet(pod),
            Location::Pod(pod) => self.pod_packet(pod),
            Location::Node(_) | Location::Outside => self.outside_packet(),
        }
    }

    fn pod_packet(&mut self, pod: usize) -> Packet {
        let family = self.family();
        let (claim, source) = loop {
            let claim = self.0.pick(&CLAIMS);
            if let Some(source) = self.claimed(pod, claim, family) {
                break (claim, source);
            }
        };
        let (target, direct) = self.target(pod);
        Packet {
            from: Location::Pod(pod),
            claim: Some(claim),
            source,
            target,
            direct,
            payload: self.0.pick(&ROUTABLE),
        }
    }

    /// A packet of a host outside with the address of a pod, to another pod of the same node or to
    /// the node.
    fn outside_packet(&mut self) -> Packet {
        let family = self.family();
        let claimed = self.0.below(PODS.len() as u64) as usize;
        let node = PODS.get(claimed).map_or(0, |it| it.node);
        let other =
            self.pod(|it| it != claimed && PODS.get(it).is_some_and(|pod| pod.node == node));
        let to = match other {
            Some(pod) if self.0.chance(70) => Location::Pod(pod),
            _ => Location::Node(node),
        };
        Packet {
            from: Location::Outside,
            claim: Some(Claim::FromOutside),
            source: address(Location::Pod(claimed), family),
            target: Target::Place(to),
            direct: false,
            payload: self.0.pick(&ROUTABLE),
        }
    }

    /// A router message, from a gateway's address or a link-local one.
    fn router_packet(&mut self, pod: usize) -> Packet {
        let family = self.family();
        let Some(it) = PODS.get(pod) else {
            return self.pod_packet(pod);
        };
        let own = it
            .bridge
            .map(|bridge| bridge_address(it.node, bridge, Family::V4));
        let source = match family {
            Family::V4 => own
                .filter(|_| self.0.chance(50))
                .unwrap_or(LAB_GATEWAY.into()),
            Family::V6 => self.link_local(),
        };
        let beside = self.pod(|other| other != pod && share_bridge(pod, other));
        let target = match beside {
            Some(other) if self.0.chance(40) => Target::Place(Location::Pod(other)),
            _ if family == Family::V6 && self.0.chance(50) => Target::Link,
            _ => Target::Place(Location::Node(it.node)),
        };
        let payload = match family {
            Family::V6 if self.0.chance(50) => Payload::Advertisement,
            Family::V4 | Family::V6 => Payload::Redirect,
        };
        Packet {
            from: Location::Pod(pod),
            claim: Some(Claim::Router),
            source,
            target,
            direct: true,
            payload,
        }
    }

    /// An IPv6 router advertisement or redirect from a pod's own address to its node, which must be
    /// dropped.
    pub(super) fn honest_router(&mut self, pod: usize) -> Packet {
        let node = PODS.get(pod).map_or(0, |it| it.node);
        Packet {
            from: Location::Pod(pod),
            claim: None,
            source: address(Location::Pod(pod), Family::V6),
            target: Target::Place(Location::Node(node)),
            direct: false,
            payload: match self.0.chance(50) {
                true => Payload::Advertisement,
                false => Payload::Redirect,
            },
        }
    }

    /// An IPv4 redirect from a pod's own address, to its node or to a pod of its bridge. It
    /// arrives, but the receiver ignores it: its sender is no gateway.
    pub(super) fn own_redirect(&mut self, pod: usize) -> Packet {
        let node = PODS.get(pod).map_or(0, |it| it.node);
        let other = self.pod(|it| it != pod && share_bridge(pod, it));
        let to = match other {
            Some(other) if self.0.chance(50) => Location::Pod(other),
            _ => Location::Node(node),
        };
        Packet {
            from: Location::Pod(pod),
            claim: None,
            source: address(Location::Pod(pod), Family::V4),
            target: Target::Place(to),
            direct: true,
            payload: Payload::Redirect,
        }
    }

    /// A packet with the sender's own address.
    pub(super) fn honest(&mut self, pod: usize) -> Packet {
        let family = self.family();
        let (target, direct) = self.target(pod);
        Packet {
            from: Location::Pod(pod),
            claim: None,
            source: address(Location::Pod(pod), family),
            target,
            direct,
            payload: self.0.pick(&ROUTABLE),
        }
    }

    /// A packet with the address of another pod on the sender's bridge: the documented limit. Only
    /// some pods share a bridge.
    pub(super) fn same_bridge(&mut self, pod: usize) -> Option<Packet> {
        let other = self.pod(|it| it != pod && share_bridge(pod, it))?;
        let (target, direct) = self.target(pod);
        let family = self.family();
        Some(Packet {
            from: Location::Pod(pod),
            claim: None,
            source: address(Location::Pod(other), family),
            target,
            direct,
            payload: self.0.pick(&ROUTABLE),
        })
        .filter(|it| it.target != Target::Place(Location::Pod(other)))
    }

    fn target(&mut self, pod: usize) -> (Target, bool) {
        let to = match self.0.below(10) {
            0 => Location::Outside,
            1 | 2 => Location::Node(self.0.below(NODES as u64) as usize),
            _ => self
                .pod(|it| it != pod)
                .map_or(Location::Outside, Location::Pod),
        };
        let direct = matches!(to, Location::Pod(other) if share_bridge(pod, other));
        (Target::Place(to), direct && self.0.chance(70))
    }

    /// An address of a claimed owner, if it has one of the family.
    fn claimed(&mut self, pod: usize, claim: Claim, family: Family) -> Option<IpAddr> {
        let it = PODS.get(pod)?;
        let number = self.0.between(1, 200);
        let of = |place| Some(address(place, family));
        match claim {
            Claim::SameNodePod => {
                let other = self.pod(|other| {
                    let is_local = PODS.get(other).is_some_and(|there| there.node == it.node);
                    other != pod && is_local && !share_bridge(pod, other)
                });
                of(Location::Pod(other?))
            }
            Claim::OtherNodePod => {
                let is_remote = |other: &super::cluster::Pod| other.node != it.node;
                let other = self.pod(|other| PODS.get(other).is_some_and(is_remote));
                of(Location::Pod(other?))
            }
            Claim::OwnNode => match it.bridge {
                Some(bridge) if self.0.chance(50) => Some(bridge_address(it.node, bridge, family)),
                _ => of(Location::Node(it.node)),
            },
            Claim::OtherNode => of(Location::Node((it.node + 1) % NODES)),
            Claim::Outside => match (family, self.0.chance(50)) {
                (_, true) => of(Location::Outside),
                (Family::V4, _) => Some(Ipv4Addr::new(198, 51, 100, number as u8).into()),
                (Family::V6, _) => {
                    Some(Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, number as u16).into())
                }
            },
            // For a bridged pod, an address that is routed to its bridge.
            Claim::NoPod => {
                let number = 40 + (number % 24) as u8;
                Some(block_address(it.node, it.bridge, number, family))
            }
            Claim::Loopback => Some(match family {
                Family::V4 => Ipv4Addr::new(127, 0, 0, number as u8).into(),
                Family::V6 => Ipv6Addr::LOCALHOST.into(),
            }),
            Claim::Multicast => Some(match family {
                Family::V4 => Ipv4Addr::new(224, 0, 0, number as u8).into(),
                Family::V6 => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, number as u16).into(),
            }),
            Claim::Broadcast => (family == Family::V4).then_some(Ipv4Addr::BROADCAST.into()),
            Claim::Unspecified => Some(match family {
                Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
                Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
            }),
            Claim::LinkLocal => Some(match family {
                Family::V4 => Ipv4Addr::new(169, 254, 1, number as u8).into(),
                Family::V6 => self.link_local(),
            }),
            Claim::Router | Claim::FromOutside => None,
        }
    }

    /// An IPv6 link-local address: the gateway's or another.
    fn link_local(&mut self) -> IpAddr {
        let number = self.0.between(1, 40) as u16;
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, number).into()
    }
}
