//! eBPF programs on the path to pods. What they do cannot be seen; that they exist can.
//!
//! A program at a pod's interface, or at one that leads elsewhere, can pass packets to another
//! interface, past netfilter. The routing socket lists XDP programs and filters of traffic control.
//! Programs that are attached by links (tcx, from Linux 6.6) are found by a system call that not
//! every agent may make (`attached.rs`). The plugins that attach those are therefore also known by
//! their interfaces.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::bypass::{Bypass, HookPoint, LinkKind, PodRoute};
use crate::elsewhere::NodeInterface;

/// The interfaces of plugins that forward by eBPF. No other program creates interfaces of these
/// names.
const PLUGINS: [(&str, &str); 3] = [
    ("cilium_host", "Cilium"),
    ("bpfin.cali", "Calico's eBPF mode"),
    ("bpfout.cali", "Calico's eBPF mode"),
];

/// Returns the names of the interfaces on the path of pods' packets: those that lead to pods, ports
/// of bridges with pods, and `elsewhere`, those that do not lead to pods. Others, such as those of
/// containers that are no pods, do not matter.
pub fn on_path(
    interfaces: &[NodeInterface],
    elsewhere: &BTreeSet<String>,
    routes: &BTreeMap<IpAddr, Option<PodRoute>>,
) -> BTreeSet<String> {
    let of_pods: BTreeSet<&str> = routes
        .values()
        .flatten()
        .map(|it| it.interface.as_str())
        .collect();
    let bridges: BTreeSet<u32> = interfaces
        .iter()
        .filter(|it| {
            matches!(it.link, LinkKind::Bridge { .. }) && of_pods.contains(it.name.as_str())
        })
        .map(|it| it.index)
        .collect();
    let is_on_the_way = |it: &&NodeInterface| {
        let is_port = it.controller.is_some_and(|it| bridges.contains(&it));
        let name = it.name.as_str();
        name != "lo" && (is_port || of_pods.contains(name) || elsewhere.contains(name))
    };
    let found = interfaces.iter().filter(is_on_the_way);
    found.map(|it| it.name.clone()).collect()
}

/// Returns the programs that may take pods' packets past netfilter, at interfaces [`on_the_way`].
/// `filtered` are the indexes of interfaces with a program in traffic control, `attached` of those
/// with one beside it.
pub fn programs(
    interfaces: &[NodeInterface],
    on_the_way: &BTreeSet<String>,
    filtered: &BTreeSet<u32>,
    attached: &BTreeSet<u32>,
) -> Vec<Bypass> {
    let mut found = Vec::new();
    for it in interfaces {
        if !on_the_way.contains(&it.name) {
            continue;
        }
        let points = [
            (HookPoint::Xdp, it.has_xdp),
            (HookPoint::Traffic, filtered.contains(&it.index)),
            (HookPoint::Tcx, attached.contains(&it.index)),
        ];
        let present = points.into_iter().filter(|(_, is_present)| *is_present);
        found.extend(present.map(|(point, _)| Bypass::Program {
            interface: it.name.clone(),
            point,
        }));
    }
    // Wherever the plugin's interface is: its programs may be at interfaces of pods that do not
    // exist yet.
    for it in interfaces {
        let plugin = PLUGINS.iter().find(|(name, _)| *name == it.name);
        found.extend(plugin.map(|(_, plugin)| Bypass::Plugin {
            interface: it.name.clone(),
            plugin,
        }));
    }
    found.sort_unstable();
    found
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn interface(index: u32, name: &str, link: LinkKind) -> NodeInterface {
        NodeInterface {
            index,
            name: name.to_owned(),
            link,
            controller: None,
            has_xdp: false,
        }
    }

    fn program(interface: &str, point: HookPoint) -> Bypass {
        Bypass::Program {
            interface: interface.to_owned(),
            point,
        }
    }

    #[test]
    fn programs_count_on_the_path_to_pods_only() {
        let shown = LinkKind::Bridge {
            shows: [true, true],
        };
        let mut all = [
            interface(1, "lo", LinkKind::Hardware),
            interface(2, "eth0", LinkKind::Hardware),
            interface(3, "veth1", LinkKind::Pair),
            interface(4, "cni0", shown.clone()),
            interface(5, "port", LinkKind::Pair),
            interface(6, "docker", LinkKind::Pair),
        ];
        let [lo, eth0, _, _, port, docker] = &mut all;
        port.controller = Some(4);
        for it in [lo, eth0, docker] {
            it.has_xdp = true;
        }
        let path = |interface: &str, link| {
            Some(PodRoute {
                interface: interface.to_owned(),
                link,
                is_direct: true,
            })
        };
        let routes = BTreeMap::from([
            ("10.0.0.1".parse().unwrap(), path("veth1", LinkKind::Pair)),
            ("10.0.1.1".parse().unwrap(), path("cni0", shown)),
            ("10.0.1.2".parse().unwrap(), None),
        ]);
        let elsewhere = BTreeSet::from(["eth0", "lo"].map(str::to_owned));
        let filtered = BTreeSet::from([1, 3, 5, 6]);
        let attached = BTreeSet::from([1, 2, 5, 6]);
        let path = on_path(&all, &elsewhere, &routes);
        let found = programs(&all, &path, &filtered, &attached);
        let expected = [
            program("eth0", HookPoint::Xdp),
            program("eth0", HookPoint::Tcx),
            program("port", HookPoint::Traffic),
            program("port", HookPoint::Tcx),
            program("veth1", HookPoint::Traffic),
        ];
        assert_eq!(found, expected);
        let words: Vec<String> = found.iter().map(Bypass::words).collect();
        assert!(words.iter().all(|it| it.contains("--bpf=allow")));
        let none = BTreeSet::new();
        let path = on_path(&all, &BTreeSet::new(), &routes);
        assert_eq!(programs(&all, &path, &none, &none), []);
    }

    #[test]
    fn plugins_are_known_by_their_interfaces() {
        let all = [
            interface(2, "eth0", LinkKind::Hardware),
            interface(3, "cilium_host", LinkKind::Pair),
            interface(4, "cali0123", LinkKind::Pair),
            interface(5, "bpfin.cali", LinkKind::Pair),
        ];
        let none = BTreeSet::new();
        let found = programs(&all, &BTreeSet::new(), &none, &none);
        let names: Vec<String> = found.iter().map(Bypass::words).collect();
        let [calico, cilium] = names.as_slice() else {
            unreachable!("{names:?}")
        };
        assert!(calico.starts_with("Calico's eBPF mode is on this node (bpfin.cali)"));
        assert!(cilium.starts_with("Cilium is on this node (cilium_host)"));
    }
}
