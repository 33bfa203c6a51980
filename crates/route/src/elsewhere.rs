//! The interfaces that do not lead to pods of the node, and the pods whose source addresses cannot
//! be checked (D147).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::bypass::{LinkKind, PodRoute};

/// An interface of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInterface {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its kind.
    pub link: LinkKind,
    /// The index of the bridge, bond or similar interface of which it is a port.
    pub controller: Option<u32>,
    /// Whether an XDP program receives its packets.
    pub has_xdp: bool,
}

/// Returns the interfaces that do not lead to pods of the node alone: packets may arrive there
/// although the route back is another one. `gateways` are the indexes of interfaces behind which a
/// gateway forwards.
///
/// Plugins connect pods by pairs and bridges: these count as leading to pods before any pod is
/// known, unless they have a gateway or hardware behind them. Everything else leads elsewhere
/// unless a pod is a neighbor there.
pub fn elsewhere(
    interfaces: &[NodeInterface],
    gateways: &BTreeSet<u32>,
    routes: &BTreeMap<IpAddr, Option<PodRoute>>,
) -> BTreeSet<String> {
    let of_pods: BTreeSet<&str> = routes
        .values()
        .flatten()
        .filter(|it| it.is_direct)
        .map(|it| it.interface.as_str())
        .collect();
    let has_hardware = |bridge: u32| {
        let mut ports = interfaces.iter().filter(|it| it.controller == Some(bridge));
        ports.any(|it| it.link == LinkKind::Hardware)
    };
    let leads_on = |it: &&NodeInterface| {
        gateways.contains(&it.index)
            || match it.link {
                LinkKind::Pair => false,
                LinkKind::Bridge { .. } => has_hardware(it.index),
                LinkKind::Switch | LinkKind::Part | LinkKind::Hardware | LinkKind::Other => {
                    !of_pods.contains(it.name.as_str())
                }
            }
    };
    let all = interfaces.iter().filter(leads_on);
    all.map(|it| it.name.clone()).collect()
}

/// Pods whose source addresses the node cannot check.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UncheckedSenders {
    /// The interface that they are behind.
    pub interface: String,
    /// Whether the interface leads elsewhere, too; otherwise several pods share it.
    pub leads_elsewhere: bool,
    /// The number of their addresses.
    pub addresses: usize,
}

impl UncheckedSenders {
    /// Returns what is not checked, as text.
    pub fn words(&self) -> String {
        let UncheckedSenders {
            interface,
            leads_elsewhere,
            addresses: _,
        } = self;
        if *leads_elsewhere {
            return format!(
                "pods behind {interface} can send with any address but those of this node's pods: the interface also leads elsewhere; remove NET_RAW from the pods"
            );
        }
        format!(
            "pods behind {interface} can send with each other's addresses: they share the interface; remove NET_RAW from the pods"
        )
    }
}

/// Returns the pods whose source addresses cannot be checked, by interface.
pub fn unchecked(
    routes: &BTreeMap<IpAddr, Option<PodRoute>>,
    elsewhere: &BTreeSet<String>,
) -> Vec<UncheckedSenders> {
    // By family: a pod with one address of each shares its interface with no other pod.
    let mut behind: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    for (address, route) in routes {
        if let Some(route) = route {
            let [v4, v6] = behind.entry(&route.interface).or_default();
            *(if address.is_ipv4() { v4 } else { v6 }) += 1;
        }
    }
    let of_interface = |(interface, counts): (&str, [usize; 2])| {
        let leads_elsewhere = elsewhere.contains(interface);
        let uncheckable = counts.iter().filter(|it| leads_elsewhere || **it > 1);
        let addresses = uncheckable.sum();
        (addresses > 0).then(|| UncheckedSenders {
            interface: interface.to_owned(),
            leads_elsewhere,
            addresses,
        })
    };
    behind.into_iter().filter_map(of_interface).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    const BRIDGE: LinkKind = LinkKind::Bridge {
        shows: [true, true],
    };

    fn interface(index: u32, name: &str, link: LinkKind, controller: Option<u32>) -> NodeInterface {
        NodeInterface {
            index,
            name: name.to_owned(),
            link,
            controller,
            has_xdp: false,
        }
    }

    fn pod_routes(of: &[(&str, &str)]) -> BTreeMap<IpAddr, Option<PodRoute>> {
        let route = |interface: &str| PodRoute {
            interface: interface.to_owned(),
            link: LinkKind::Other,
            is_direct: true,
        };
        of.iter()
            .map(|(address, it)| (address.parse().unwrap(), Some(route(it))))
            .collect()
    }

    #[test]
    fn pairs_and_bridges_are_of_pods_unless_they_lead_on() {
        let all = [
            interface(1, "eth0", LinkKind::Hardware, None),
            interface(2, "flannel.1", LinkKind::Other, None),
            interface(3, "veth1", LinkKind::Pair, None),
            interface(4, "uplink", LinkKind::Pair, None),
            interface(5, "cni0", BRIDGE, None),
            interface(6, "veth2", LinkKind::Pair, Some(5)),
            interface(7, "br0", BRIDGE, None),
            interface(8, "eth1", LinkKind::Hardware, Some(7)),
            interface(9, "br1", BRIDGE, None),
            interface(10, "tap0", LinkKind::Other, None),
        ];
        let routes = pod_routes(&[("10.0.0.1", "tap0"), ("10.0.0.2", "veth1")]);
        let found = elsewhere(&all, &BTreeSet::from([4, 9]), &routes);
        let expected = ["br0", "br1", "eth0", "eth1", "flannel.1", "uplink"];
        assert_eq!(found, expected.map(str::to_owned).into());
        // Before the pod is known, its unusual interface leads elsewhere.
        let found = elsewhere(&all, &BTreeSet::new(), &BTreeMap::new());
        assert!(found.contains("tap0") && !found.contains("veth1"));
    }

    #[test]
    fn pods_that_share_an_interface_are_unchecked() {
        let elsewhere = BTreeSet::from(["br0".to_owned()]);
        let pods = pod_routes(&[
            ("10.0.0.1", "veth1"),
            ("fd00::1", "veth1"),
            ("10.0.1.1", "cni0"),
            ("10.0.1.2", "cni0"),
            ("fd00:1::1", "cni0"),
            ("10.0.2.1", "br0"),
        ]);
        let found = unchecked(&pods, &elsewhere);
        let unchecked = |interface: &str, leads_elsewhere, addresses| UncheckedSenders {
            interface: interface.to_owned(),
            leads_elsewhere,
            addresses,
        };
        let expected = [unchecked("br0", true, 1), unchecked("cni0", false, 2)];
        assert_eq!(found, expected);
        let words: Vec<String> = found.iter().map(UncheckedSenders::words).collect();
        assert!(words.iter().any(|it| it.contains("leads elsewhere")));
        assert!(words.iter().any(|it| it.contains("each other's")));
    }
}
