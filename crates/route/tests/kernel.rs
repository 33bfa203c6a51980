//! Ways in a network namespace of this test's own, made by `ip`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::process::{Command, ExitCode};

use palisade_need::{Need, Test, run_inside};
use palisade_route::{
    Bypass, HookPoint, LinkKind, PodRoute, Routes, VirtualServices, elsewhere, on_path, programs,
    services, unchecked, verdict,
};

/// Traffic control, which comes with `ip`.
const TC: Need = Need {
    word: "tc",
    what: "the program `tc`",
    how: "apt-get install iproute2",
    look: || match Command::new("tc").arg("-Version").output() {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    },
};

fn main() -> ExitCode {
    let ways = Test::new("the kernel says which way packets take", ways);
    let beside = Test::new("pods beside the hardware are seen", beside);
    let filters = Test::new("programs in traffic control are seen", filters);
    let attached = Test::new("who may not ask for programs of tcx says so", attached);
    let ipvs = Test::new("the interface of IPVS is seen", ipvs);
    run_inside([
        ways.needs(&[Need::IP]),
        beside.needs(&[Need::IP]),
        filters.needs(&[Need::IP, TC]),
        attached,
        ipvs.needs(&[Need::IP]),
    ])
}

fn ip(words: &str) {
    tool("ip", words);
}

fn tool(program: &str, words: &str) {
    let done = Command::new(program).args(words.split(' ')).output();
    let done = done.unwrap();
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program} {words}: {error}");
}

/// A pod on macvlan is a neighbour of the hardware that it has a part of. Nothing else of it can be
/// seen from the node.
fn beside() {
    for words in [
        // Hardware cannot be made, and the kernel says as little of the loopback interface as of
        // hardware.
        "link set lo up",
        "route add 198.51.100.0/24 dev lo",
        "link add wire type veth peer name other",
        "link set wire up",
        "link set other up",
        "link add part link wire type macvlan mode bridge",
        "link add veth7 type veth peer name pod7",
        "link set veth7 up",
        "link set pod7 up",
        "route add 10.7.0.1/32 dev veth7",
    ] {
        ip(words);
    }
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    let (on_part, on_pair) = (address("198.51.100.7"), address("10.7.0.1"));
    let mut routes = Routes::open().unwrap();
    let mut found = |of: &[IpAddr]| verdict(&routes.pod_routes(of.iter().copied()).unwrap());
    assert_eq!(found(&[on_pair]), []);
    let beside = Bypass::Beside {
        interface: "lo".to_owned(),
        address: on_part,
    };
    assert_eq!(found(&[on_pair, on_part]), [beside]);
    let all = Bypass::Elsewhere {
        interface: "lo".to_owned(),
    };
    assert_eq!(found(&[on_part]), [all]);
    // An interface of the node itself that is a part, with a route to a pod.
    ip("link set part up");
    ip("route add 10.7.0.2/32 dev part");
    let part = Bypass::Part {
        interface: "part".to_owned(),
    };
    assert_eq!(found(&[on_pair, address("10.7.0.2")]), [part]);
}

/// Filters of traffic control that are programs: at a pod, at an uplink, in a block that is shared,
/// and at neither.
fn filters() {
    for words in [
        "link add veth8 type veth peer name pod8",
        "link set veth8 up",
        "link set pod8 up",
        "route add 10.8.0.1/32 dev veth8",
        "link add up8 type veth peer name world8",
        "link set up8 up",
        "link set world8 up",
        "addr add 203.0.113.1/24 dev up8",
        "route add 10.88.0.0/16 via 203.0.113.254",
        "link add docker8 type veth peer name container8",
    ] {
        ip(words);
    }
    let mut routes = Routes::open().unwrap();
    let pod: IpAddr = "10.8.0.1".parse().unwrap();
    let found = |routes: &mut Routes| {
        let ways = routes.pod_routes([pod].into_iter()).unwrap();
        let (interfaces, gateways) = routes.interfaces().unwrap();
        let elsewhere = elsewhere(&interfaces, &gateways, &ways);
        let way = on_path(&interfaces, &elsewhere, &ways);
        let filtered = routes.filtered().unwrap();
        programs(&interfaces, &way, &filtered, &BTreeSet::new())
    };
    let program = |interface: &str| Bypass::Program {
        interface: interface.to_owned(),
        point: HookPoint::Traffic,
    };
    // The kernel takes a program of the older kind where it takes one of the newer.
    let bpf = "bpf da bytecode 1,6\u{a0}0\u{a0}0\u{a0}4294967295,";
    let filter = |words: &str| {
        let words = format!("filter add {words} {bpf}");
        let words: Vec<String> = words
            .split(' ')
            .map(|it| it.replace('\u{a0}', " "))
            .collect();
        let done = Command::new("tc").args(&words).output().unwrap();
        let error = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "tc {words:?}: {error}");
    };
    assert_eq!(found(&mut routes), []);
    // A discipline without a program decides nothing.
    tool("tc", "qdisc add dev veth8 clsact");
    tool("tc", "qdisc add dev docker8 clsact");
    filter("dev docker8 ingress");
    assert_eq!(found(&mut routes), []);
    filter("dev veth8 egress");
    assert_eq!(found(&mut routes), [program("veth8")]);
    tool("tc", "filter del dev veth8 egress");
    assert_eq!(found(&mut routes), []);
    filter("dev veth8 ingress");
    tool("tc", "qdisc add dev up8 ingress");
    filter("dev up8 parent ffff:");
    assert_eq!(found(&mut routes), [program("up8"), program("veth8")]);
    tool("tc", "qdisc del dev veth8 clsact");
    tool("tc", "qdisc del dev up8 ingress");
    assert_eq!(found(&mut routes), []);
    tool("tc", "qdisc add dev up8 ingress_block 22 clsact");
    assert_eq!(found(&mut routes), []);
    filter("block 22");
    assert_eq!(found(&mut routes), [program("up8")]);
}

/// Root of a user namespace has every right over its network, and none to ask for programs. Root of
/// the machine may ask.
fn attached() {
    let mut routes = Routes::open().unwrap();
    let (interfaces, _) = routes.interfaces().unwrap();
    let attached = routes.attached(&interfaces);
    assert_eq!(attached.at, BTreeSet::new());
    let is_root = (Need::ROOT.look)().is_ok();
    assert_eq!(attached.refused.is_none(), is_root, "{attached:?}");
    assert_eq!(attached.words().is_none(), is_root);
}

fn ipvs() {
    let mut routes = Routes::open().unwrap();
    let found = |routes: &mut Routes| {
        let (interfaces, _) = routes.interfaces().unwrap();
        services(&interfaces, &routes.virtual_services().unwrap())
    };
    assert!(!found(&mut routes));
    // kube-proxy makes a dummy of this name; the name is what it is known by.
    ip("link add kube-ipvs0 type bridge");
    assert!(found(&mut routes));
    ip("link del kube-ipvs0");
    assert!(!found(&mut routes));
    let (interfaces, _) = routes.interfaces().unwrap();
    let listed = "IP Virtual Server version 1.2.1 (size=4096)\nTCP  0A600001:01BB rr\n";
    assert!(services(
        &interfaces,
        &VirtualServices::Listed(listed.to_owned())
    ));
}

fn ways() {
    for words in [
        "link set lo up",
        // A pod on a pair, as the plugin ptp makes it.
        "link add veth1 type veth peer name pod1",
        "link set veth1 up",
        "link set pod1 up",
        "route add 10.0.0.1/32 dev veth1",
        "-6 route add fd00::1/128 dev veth1",
        // Pods on a bridge.
        "link add cni0 type bridge",
        "link set cni0 up",
        "addr add 10.0.1.254/24 dev cni0",
        // A port of the bridge that has a route of its own.
        "link add veth2 type veth peer name pod2",
        "link set veth2 master cni0",
        "link set veth2 up",
        "link set pod2 up",
        "route add 10.0.2.1/32 dev veth2",
        // A way out.
        "link add eth0 type veth peer name world",
        "link set eth0 up",
        "link set world up",
        "addr add 192.0.2.1/24 dev eth0",
        "route add default via 192.0.2.254",
    ] {
        ip(words);
    }
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    let mut routes = Routes::open().unwrap();
    let all = [
        "10.0.0.1",
        "fd00::1",
        "10.0.1.7",
        "10.0.2.1",
        "10.0.9.9",
        "192.0.2.1",
        "fd99::1",
    ];
    let ways = routes.pod_routes(all.iter().map(|it| address(it))).unwrap();
    let way = |text: &str| ways.get(&address(text)).unwrap().clone();
    let direct = |interface: &str, link: LinkKind| {
        Some(PodRoute {
            interface: interface.to_owned(),
            link,
            is_direct: true,
        })
    };
    assert_eq!(way("10.0.0.1"), direct("veth1", LinkKind::Pair));
    assert_eq!(way("fd00::1"), direct("veth1", LinkKind::Pair));
    let bridge = way("10.0.1.7").unwrap();
    assert_eq!(
        (bridge.interface.as_str(), bridge.is_direct),
        ("cni0", true)
    );
    assert!(matches!(bridge.link, LinkKind::Bridge { .. }), "{bridge:?}");
    assert_eq!(way("10.0.2.1"), Some(bridge), "bridged all the same");
    assert!(!way("10.0.9.9").unwrap().is_direct, "a gateway forwards");
    assert_eq!(way("192.0.2.1"), None, "the node's own");
    assert_eq!(way("fd99::1"), None, "no way");

    // Everything but what connects pods leads elsewhere, and so does a pair with a gateway at its
    // end.
    ip("link add vxlan0 type vxlan id 1 dstport 4789 remote 192.0.2.9 dev eth0");
    ip("route add 10.9.0.0/16 nexthop via 192.0.2.7 nexthop via 10.0.1.9");
    let found = |routes: &mut Routes| {
        let (interfaces, gateways) = routes.interfaces().unwrap();
        elsewhere(&interfaces, &gateways, &ways)
    };
    let names = |of: &[&str]| of.iter().map(|it| (*it).to_owned()).collect();
    let expected: BTreeSet<String> = names(&["cni0", "eth0", "lo", "vxlan0"]);
    assert_eq!(found(&mut routes), expected);
    ip("route del 10.9.0.0/16");
    let expected: BTreeSet<String> = names(&["eth0", "lo", "vxlan0"]);
    assert_eq!(found(&mut routes), expected);
    // Two addresses of one family are behind the bridge.
    let shared = unchecked(&ways, &expected);
    let shared: Vec<(&str, usize)> = shared
        .iter()
        .map(|it| (it.interface.as_str(), it.addresses))
        .collect();
    assert_eq!(shared, [("cni0", 2), ("eth0", 1)]);

    // A new namespace shows no bridged packets, whether the module is there or not, unless the one
    // bridge does so itself.
    let of_bridge = |routes: &mut Routes| {
        let ways = routes
            .pod_routes([address("10.0.1.7")].into_iter())
            .unwrap();
        verdict(&ways)
    };
    let shows = |on: u8| {
        let setting = "/proc/sys/net/bridge/bridge-nf-call-iptables";
        std::fs::write(setting, on.to_string()).is_ok()
    };
    let past = Bypass::Bridge {
        interface: "cni0".to_owned(),
        ipv6: false,
    };
    if shows(0) {
        assert_eq!(of_bridge(&mut routes), std::slice::from_ref(&past));
        assert!(shows(1));
        assert_eq!(of_bridge(&mut routes), []);
        assert!(shows(0));
        ip("link set cni0 type bridge nf_call_iptables 1");
        assert_eq!(of_bridge(&mut routes), []);
    } else {
        assert_eq!(of_bridge(&mut routes), [past]);
    }
}
