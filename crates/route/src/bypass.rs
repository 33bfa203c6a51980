//! Which routes pass the netfilter hooks, and which bypass them.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// The kernel's route to an address of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRoute {
    /// The interface by which packets leave.
    pub interface: String,
    /// The kind of the interface.
    pub link: LinkKind,
    /// Whether the address is a neighbor there; otherwise a gateway forwards.
    pub is_direct: bool,
}

/// The kind of an interface, as far as it matters for policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// One end of a veth pair; a pod has the other. All packets are routed.
    Pair,
    /// A bridge, whose pods reach each other without routing.
    Bridge {
        /// Whether it shows IPv4 packets to netfilter, and IPv6 packets.
        shows: [bool; 2],
    },
    /// A port of Open vSwitch, which forwards by its own rules.
    Switch,
    /// A part of another interface (macvlan, ipvlan), or a netkit pair, through which eBPF
    /// forwards.
    Part,
    /// Hardware, or an interface that the node uses like hardware.
    Hardware,
    /// Any other interface; its packets are routed.
    Other,
}

/// A path on which packets bypass all policies, or may.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bypass {
    /// Pods on one bridge reach each other through the bridge.
    Bridge {
        /// The bridge.
        interface: String,
        /// Whether IPv6 packets do; otherwise IPv4 packets.
        ipv6: bool,
    },
    /// Open vSwitch forwards packets between pods.
    Switch {
        /// The port of the switch.
        interface: String,
    },
    /// Pods use sub-interfaces of another interface.
    Part {
        /// That interface.
        interface: String,
    },
    /// The node does not forward to any of its pods itself.
    Elsewhere {
        /// The interface by which packets to pods leave.
        interface: String,
    },
    /// A pod is not behind an interface of the node but beside it: it has a part of the hardware.
    Beside {
        /// The hardware.
        interface: String,
        /// The pod's address.
        address: IpAddr,
    },
    /// IPVS translates Services, past the hooks that evaluate policies.
    Services,
    /// An eBPF program receives packets before netfilter does.
    Program {
        /// The interface of the program.
        interface: String,
        /// Its attach point.
        point: HookPoint,
    },
    /// A flowtable of another program forwards packets of established connections.
    Flowtable {
        /// Its table.
        table: String,
        /// Its name.
        name: String,
        /// One of its interfaces.
        interface: String,
    },
    /// A plugin that forwards by eBPF is present, wherever its programs are.
    Plugin {
        /// The interface by which it is recognized.
        interface: String,
        /// The name of the plugin.
        plugin: &'static str,
    },
}

/// The attach point of an eBPF program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HookPoint {
    /// At the driver.
    Xdp,
    /// In a filter of traffic control.
    Traffic,
    /// Attached by a link of eBPF, beside traffic control.
    Tcx,
}

impl Bypass {
    /// Returns the cause and what to do, as text.
    pub fn words(&self) -> String {
        match self {
            Bypass::Bridge { interface, ipv6 } => {
                let setting = if *ipv6 { "ip6tables" } else { "iptables" };
                let family = if *ipv6 { "IPv6" } else { "IPv4" };
                format!(
                    "pods on the bridge {interface} bypass all policies between each other ({family}): load br_netfilter and set net.bridge.bridge-nf-call-{setting}=1"
                )
            }
            Bypass::Switch { interface } => format!(
                "Open vSwitch forwards packets between pods past all policies ({interface}): this network plugin is not supported"
            ),
            Bypass::Part { interface } => format!(
                "packets of pods bypass this node's network stack ({interface}): this network plugin is not supported"
            ),
            Bypass::Elsewhere { interface } => format!(
                "all packets to this node's pods leave the node by {interface}: this network plugin is not supported"
            ),
            Bypass::Beside { interface, .. } => format!(
                "pods use sub-interfaces of {interface} (macvlan, ipvlan, SR-IOV); their packets bypass this node's network stack: this network plugin is not supported"
            ),
            Bypass::Services => "IPVS translates Services: packets bypass the policies of pods behind Services, and egress is evaluated for the Service's address; set kube-proxy to nftables or iptables mode".to_owned(),
            Bypass::Program { interface, point } => {
                let point = match point {
                    HookPoint::Xdp => "XDP",
                    HookPoint::Traffic => "tc",
                    HookPoint::Tcx => "tcx",
                };
                format!(
                    "an eBPF program at {interface} ({point}) may send packets past all policies: remove it, or set --bpf=allow if it does not"
                )
            }
            Bypass::Flowtable {
                table,
                name,
                interface,
            } => format!(
                "the flowtable {name} of the table {table} ({interface}) forwards packets of established connections past all policies: remove it, or exclude interfaces of pods and uplinks from it"
            ),
            Bypass::Plugin { interface, plugin } => format!(
                "{plugin} is on this node ({interface}) and may forward by eBPF past all policies: remove it, or set --bpf=allow if it does not"
            ),
        }
    }
}

/// Returns the bypasses on the routes to a node's pods. An address without a route belongs to a pod
/// that starts or ends.
pub fn verdict(routes: &BTreeMap<IpAddr, Option<PodRoute>>) -> Vec<Bypass> {
    let mut found = Vec::new();
    let known = || {
        routes
            .iter()
            .filter_map(|(address, route)| Some((address, route.as_ref()?)))
    };
    for (address, route) in known() {
        let interface = route.interface.clone();
        let ipv6 = address.is_ipv6();
        match route.link {
            LinkKind::Bridge { shows: [v4, v6] } if !(if ipv6 { v6 } else { v4 }) => {
                found.push(Bypass::Bridge { interface, ipv6 });
            }
            LinkKind::Switch => found.push(Bypass::Switch { interface }),
            LinkKind::Part => found.push(Bypass::Part { interface }),
            LinkKind::Pair | LinkKind::Bridge { .. } | LinkKind::Hardware | LinkKind::Other => {}
        }
    }
    // A single pod whose interface is already gone is no reason for an alarm: packets to its
    // address take the route of all other addresses.
    let is_elsewhere = |route: &PodRoute| !route.is_direct || route.link == LinkKind::Hardware;
    if known().all(|(_, route)| is_elsewhere(route)) {
        if let Some((_, route)) = known().next().filter(|_| found.is_empty()) {
            let interface = route.interface.clone();
            found.push(Bypass::Elsewhere { interface });
        }
    } else {
        // A pod in the hardware's own subnet is one that has a part of the hardware, or has just
        // ended. The caller waits before it reports.
        let beside =
            known().filter(|(_, route)| route.is_direct && route.link == LinkKind::Hardware);
        found.extend(beside.map(|(address, route)| Bypass::Beside {
            interface: route.interface.clone(),
            address: *address,
        }));
    }
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
mod tests {
    use super::*;

    type RouteSpec = (&'static str, LinkKind, bool);

    fn pod_routes(of: &[(&str, Option<RouteSpec>)]) -> BTreeMap<IpAddr, Option<PodRoute>> {
        let route = |(interface, link, is_direct): &RouteSpec| PodRoute {
            interface: (*interface).to_owned(),
            link: link.clone(),
            is_direct: *is_direct,
        };
        let all = of.iter();
        all.map(|(address, it)| (address.parse().unwrap(), it.as_ref().map(route)))
            .collect()
    }

    #[test]
    fn veth_pairs_are_routed_and_so_are_bridges_with_br_netfilter() {
        let shown = LinkKind::Bridge {
            shows: [true, false],
        };
        let none = verdict(&pod_routes(&[
            ("10.0.0.1", Some(("veth1", LinkKind::Pair, true))),
            ("10.0.0.2", Some(("cni0", shown, true))),
            ("10.0.0.3", None),
        ]));
        assert_eq!(none, []);
        assert_eq!(verdict(&BTreeMap::new()), []);
    }

    #[test]
    fn a_bridge_is_checked_for_each_family() {
        let bridge = |v4, v6| LinkKind::Bridge { shows: [v4, v6] };
        let found = verdict(&pod_routes(&[
            ("10.0.0.1", Some(("cni0", bridge(true, false), true))),
            ("10.0.0.2", Some(("cni0", bridge(true, false), true))),
            ("fd00::1", Some(("cni0", bridge(true, false), true))),
            ("fd00::2", Some(("cni0", bridge(true, false), true))),
        ]));
        let [one] = found.as_slice() else {
            unreachable!("{found:?}")
        };
        assert!(
            one.words().contains("bridge-nf-call-ip6tables=1"),
            "{one:?}"
        );
        let found = verdict(&pod_routes(&[(
            "10.0.0.1",
            Some(("cni0", bridge(false, true), true)),
        )]));
        assert!(found[0].words().contains("bridge-nf-call-iptables=1"));
    }

    #[test]
    fn switches_and_macvlans_are_reported_whatever_the_other_pods_have() {
        let found = verdict(&pod_routes(&[
            ("10.0.0.1", Some(("veth1", LinkKind::Pair, true))),
            ("10.0.0.2", Some(("ovs0", LinkKind::Switch, true))),
            ("10.0.0.3", Some(("macvlan0", LinkKind::Part, true))),
        ]));
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn a_node_without_direct_routes_to_pods_is_reported() {
        let away = Some(("eth0", LinkKind::Hardware, false));
        let all = verdict(&pod_routes(&[
            ("10.0.0.1", away.clone()),
            ("10.0.0.2", Some(("cilium_host", LinkKind::Pair, false))),
        ]));
        assert!(matches!(all[..], [Bypass::Elsewhere { .. }]), "{all:?}");
        // One pod that has just gone is not all of them.
        let some = verdict(&pod_routes(&[
            ("10.0.0.1", away),
            ("10.0.0.2", Some(("veth1", LinkKind::Pair, true))),
        ]));
        assert_eq!(some, []);
    }

    #[test]
    fn a_pod_on_a_hardware_interface_is_reported_among_others() {
        let beside = Some(("eth0", LinkKind::Hardware, true));
        let found = verdict(&pod_routes(&[
            ("192.0.2.7", beside.clone()),
            ("10.0.0.2", Some(("veth1", LinkKind::Pair, true))),
        ]));
        let expected = Bypass::Beside {
            interface: "eth0".to_owned(),
            address: "192.0.2.7".parse().unwrap(),
        };
        assert_eq!(found, [expected]);
        assert!(found[0].words().contains("macvlan"));
        // If all of them are like this, one bypass is enough.
        let all = verdict(&pod_routes(&[("192.0.2.7", beside)]));
        assert!(matches!(all[..], [Bypass::Elsewhere { .. }]), "{all:?}");
    }
}
