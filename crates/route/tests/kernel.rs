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
use palisade_route::{Bypass, Link, Routes, Way, elsewhere, unchecked, verdict};

fn main() -> ExitCode {
    let ways = Test::new("the kernel says which way packets take", ways);
    run_inside([ways.needs(&[Need::IP])])
}

fn ip(words: &str) {
    let done = Command::new("ip").args(words.split(' ')).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "ip {words}: {said}");
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
    let ways = routes.ways(all.iter().map(|it| address(it))).unwrap();
    let way = |text: &str| ways.get(&address(text)).unwrap().clone();
    let direct = |interface: &str, link: Link| {
        Some(Way {
            interface: interface.to_owned(),
            link,
            is_direct: true,
        })
    };
    assert_eq!(way("10.0.0.1"), direct("veth1", Link::Pair));
    assert_eq!(way("fd00::1"), direct("veth1", Link::Pair));
    let bridge = way("10.0.1.7").unwrap();
    assert_eq!(
        (bridge.interface.as_str(), bridge.is_direct),
        ("cni0", true)
    );
    assert!(matches!(bridge.link, Link::Bridge { .. }), "{bridge:?}");
    assert_eq!(way("10.0.2.1"), Some(bridge), "bridged all the same");
    assert!(!way("10.0.9.9").unwrap().is_direct, "a gateway forwards");
    assert_eq!(way("192.0.2.1"), None, "the node's own");
    assert_eq!(way("fd99::1"), None, "no way");

    // Everything but what connects pods leads elsewhere, and so does a pair with a gateway at its end.
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

    // A new namespace shows no bridged packets, whether the module is there or not, unless the one bridge does so itself.
    let of_bridge = |routes: &mut Routes| {
        let ways = routes.ways([address("10.0.1.7")].into_iter()).unwrap();
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
