//! Which ways pass the hooks of netfilter, and which pass them by.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// What the kernel would do with a packet to an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRoute {
    /// The interface that it would leave by.
    pub interface: String,
    /// What that is.
    pub link: LinkKind,
    /// Whether the address is a neighbour there; otherwise somebody else is to forward it.
    pub is_direct: bool,
}

/// What an interface is, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// One end of a pair, whose other end a pod has: everything is routed.
    Pair,
    /// A bridge, on which pods reach each other without being routed.
    Bridge {
        /// Whether it shows IPv4 packets to netfilter, and IPv6 packets.
        shows: [bool; 2],
    },
    /// A switch of Open vSwitch, which forwards by its own rules.
    Switch,
    /// A part of another interface (macvlan, ipvlan), or a pair that eBPF forwards (netkit).
    Part,
    /// Hardware, or what a machine takes for hardware.
    Hardware,
    /// Something else, which routes.
    Other,
}

/// Packets that no policy sees.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bypass {
    /// Pods on one bridge reach each other.
    Bridge {
        /// The bridge.
        interface: String,
        /// Whether it is about IPv6.
        ipv6: bool,
    },
    /// Open vSwitch forwards between pods.
    Switch {
        /// The port of the switch.
        interface: String,
    },
    /// Pods have parts of another interface.
    Part {
        /// That interface.
        interface: String,
    },
    /// The node does not forward to any of its pods itself.
    Elsewhere {
        /// The interface that packets to pods leave by.
        interface: String,
    },
    /// A pod is not behind an interface of the node but beside it: it has a part of the hardware.
    Beside {
        /// The hardware.
        interface: String,
        /// The pod's address.
        address: IpAddr,
    },
    /// Services are translated by IPVS, outside of the hooks that judge.
    Services,
    /// A program of eBPF decides about packets before netfilter does.
    Program {
        /// Where.
        interface: String,
        /// At which point.
        point: HookPoint,
    },
    /// A flowtable of another program forwards packets of connections that were let through before.
    Flowtable {
        /// Its table.
        table: String,
        /// Its name.
        name: String,
        /// One of its interfaces.
        interface: String,
    },
    /// A plugin is there that forwards by eBPF, wherever its programs are.
    Plugin {
        /// The interface that it is known by.
        interface: String,
        /// What it is called.
        plugin: &'static str,
    },
}

/// Where a program of eBPF meets packets.
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
    /// What is wrong and what can be done, for people.
    pub fn words(&self) -> String {
        match self {
            Bypass::Bridge { interface, ipv6 } => {
                let setting = if *ipv6 { "ip6tables" } else { "iptables" };
                let family = if *ipv6 { "IPv6" } else { "IPv4" };
                format!(
                    "pods on the bridge {interface} reach each other past all policies ({family}): load br_netfilter and set net.bridge.bridge-nf-call-{setting}=1"
                )
            }
            Bypass::Switch { interface } => format!(
                "Open vSwitch forwards between pods past all policies ({interface}): this network plugin is not supported"
            ),
            Bypass::Part { interface } => format!(
                "packets of pods pass this node's network stack by ({interface}): this network plugin is not supported"
            ),
            Bypass::Elsewhere { interface } => format!(
                "this node does not forward to its pods itself, packets to all of them leave by {interface}: this network plugin is not supported"
            ),
            Bypass::Beside { interface, .. } => format!(
                "pods have parts of {interface} (macvlan, ipvlan, SR-IOV), and their packets pass this node's network stack by: this network plugin is not supported"
            ),
            Bypass::Services => "Services are translated by IPVS: pods behind Services are reached past their policies, and clients are judged by the Service's address: let kube-proxy use nftables or iptables".to_owned(),
            Bypass::Program { interface, point } => {
                let point = match point {
                    HookPoint::Xdp => "XDP",
                    HookPoint::Traffic => "tc",
                    HookPoint::Tcx => "tcx",
                };
                format!(
                    "a program of eBPF at {interface} ({point}) may send packets past all policies: remove it, or say --bpf=allow if it does not"
                )
            }
            Bypass::Flowtable {
                table,
                name,
                interface,
            } => format!(
                "the flowtable {name} of the table {table} ({interface}) forwards packets of established connections past all policies: remove it, or leave interfaces of pods and uplinks out of it"
            ),
            Bypass::Plugin { interface, plugin } => format!(
                "{plugin} is on this node ({interface}) and may forward by eBPF past all policies: remove it, or say --bpf=allow if it does not"
            ),
        }
    }
}

/// What the ways to all addresses of a node's pods mean. An address without a way is one of a pod that comes or goes.
pub fn verdict(ways: &BTreeMap<IpAddr, Option<PodRoute>>) -> Vec<Bypass> {
    let mut found = Vec::new();
    let known = || {
        ways.iter()
            .filter_map(|(address, way)| Some((address, way.as_ref()?)))
    };
    for (address, way) in known() {
        let interface = way.interface.clone();
        let ipv6 = address.is_ipv6();
        match way.link {
            LinkKind::Bridge { shows: [v4, v6] } if !(if ipv6 { v6 } else { v4 }) => {
                found.push(Bypass::Bridge { interface, ipv6 });
            }
            LinkKind::Switch => found.push(Bypass::Switch { interface }),
            LinkKind::Part => found.push(Bypass::Part { interface }),
            LinkKind::Pair | LinkKind::Bridge { .. } | LinkKind::Hardware | LinkKind::Other => {}
        }
    }
    // A single pod whose interface is gone already is no reason for alarm: its address takes the way of all others.
    let is_elsewhere = |way: &PodRoute| !way.is_direct || way.link == LinkKind::Hardware;
    if known().all(|(_, way)| is_elsewhere(way)) {
        if let Some((_, way)) = known().next().filter(|_| found.is_empty()) {
            let interface = way.interface.clone();
            found.push(Bypass::Elsewhere { interface });
        }
    } else {
        // Nor is one whose address is of the hardware's own subnet, for a moment.
        let beside = known().filter(|(_, way)| way.is_direct && way.link == LinkKind::Hardware);
        found.extend(beside.map(|(address, way)| Bypass::Beside {
            interface: way.interface.clone(),
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

    type Words = (&'static str, LinkKind, bool);

    fn pod_routes(of: &[(&str, Option<Words>)]) -> BTreeMap<IpAddr, Option<PodRoute>> {
        let way = |(interface, link, is_direct): &Words| PodRoute {
            interface: (*interface).to_owned(),
            link: link.clone(),
            is_direct: *is_direct,
        };
        let all = of.iter();
        all.map(|(address, it)| (address.parse().unwrap(), it.as_ref().map(way)))
            .collect()
    }

    #[test]
    fn pairs_are_routed_and_so_is_what_passes_a_bridge_that_shows_it() {
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
    fn a_bridge_is_asked_for_each_family() {
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
    fn switches_and_parts_are_refused_whatever_the_others_do() {
        let found = verdict(&pod_routes(&[
            ("10.0.0.1", Some(("veth1", LinkKind::Pair, true))),
            ("10.0.0.2", Some(("ovs0", LinkKind::Switch, true))),
            ("10.0.0.3", Some(("macvlan0", LinkKind::Part, true))),
        ]));
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn a_node_that_reaches_no_pod_directly_is_told_so() {
        let away = Some(("eth0", LinkKind::Hardware, false));
        let all = verdict(&pod_routes(&[
            ("10.0.0.1", away.clone()),
            ("10.0.0.2", Some(("cilium_host", LinkKind::Pair, false))),
        ]));
        assert!(matches!(all[..], [Bypass::Elsewhere { .. }]), "{all:?}");
        // One that has just gone is not all.
        let some = verdict(&pod_routes(&[
            ("10.0.0.1", away),
            ("10.0.0.2", Some(("veth1", LinkKind::Pair, true))),
        ]));
        assert_eq!(some, []);
    }

    #[test]
    fn a_pod_with_a_part_of_the_hardware_is_told_of_among_others() {
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
        // Where all of them are so, one sentence is enough.
        let all = verdict(&pod_routes(&[("192.0.2.7", beside)]));
        assert!(matches!(all[..], [Bypass::Elsewhere { .. }]), "{all:?}");
    }
}
