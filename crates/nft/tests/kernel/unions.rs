//! Unions in set lookups, with packets: blocks of ports, hosts, and ranges of addresses, at their
//! edges.

use std::net::IpAddr;
use std::sync::Arc;

use palisade_core::net::{Family, Protocol};
use palisade_core::plan::{
    Group, GroupId, GroupKind, MergedUnion, Plan, PodChains, PortBlock, RuleChain, RuleChainId,
};
use palisade_core::policy::{Direction, Verdict};
use palisade_nft::node::ruleset;

use crate::Test;
use crate::node::{A, B, C, Checks, Node, OUTSIDE, address, open_plan, settings};

pub(crate) const TESTS: &[Test] = &[
    ("unions::ports_have_edges", ports_have_edges),
    ("unions::ranges_have_edges", ranges_have_edges),
];

const HOSTS: [GroupId; 2] = [GroupId(1), GroupId(2)];
const RANGES: [GroupId; 2] = [GroupId(3), GroupId(4)];

/// `B` allows ingress by a union.
fn plan(groups: Vec<(GroupId, GroupKind, Vec<IpAddr>)>, merged: MergedUnion) -> Plan {
    let mut plan = open_plan();
    for (id, kind, addresses) in groups {
        plan.groups.insert(id, Group { kind, addresses });
    }
    let chain = RuleChain {
        direction: Direction::Ingress,
        admin: Vec::new(),
        merged,
        rest: Vec::new(),
        verdict: Verdict::Deny,
    };
    plan.chains.insert(RuleChainId(0), Arc::new(chain));
    for family in Family::BOTH {
        let pod_chains = PodChains {
            egress: None,
            ingress: Some(RuleChainId(0)),
        };
        plan.pods.insert(address(B, family), pod_chains);
    }
    plan
}

fn udp(first: u16, bits: u8) -> PortBlock {
    PortBlock::around(Protocol::Udp, first, bits)
}

/// Ports from 1000 to 1007 are for anyone, 2000 and 2001 for `A`, 2000 for `C` as well; of TCP all
/// are.
fn ports_have_edges() {
    let hosts = |pods: &[_]| {
        let addresses = pods.iter();
        let addresses = addresses.flat_map(|pod| Family::BOTH.map(|it| address(*pod, it)));
        let mut addresses: Vec<IpAddr> = addresses.collect();
        addresses.sort();
        addresses
    };
    let mut merged = MergedUnion::default();
    for open in &mut merged.open {
        open.extend([udp(1000, 13), PortBlock::around(Protocol::Tcp, 0, 0)]);
    }
    let [one, other] = HOSTS;
    merged.of_ports.insert(udp(2000, 15), one);
    merged.of_ports.insert(udp(2000, 16), other);
    let groups = vec![
        (one, GroupKind::Hosts, hosts(&[A])),
        (other, GroupKind::Hosts, hosts(&[C])),
    ];
    let mut node = Node::build();
    node.install(&ruleset(&plan(groups, merged), &settings(Checks::None)));
    for family in Family::BOTH {
        for (from, port, passes) in [
            (OUTSIDE, 999, false),
            (OUTSIDE, 1000, true),
            (OUTSIDE, 1003, true),
            (OUTSIDE, 1007, true),
            (OUTSIDE, 1008, false),
            (OUTSIDE, 2000, false),
            (A, 1007, true),
            (A, 1999, false),
            (A, 2000, true),
            (A, 2001, true),
            (A, 2002, false),
            (C, 2000, true),
            (C, 2001, false),
            (C, 1, false),
        ] {
            let found = node.passes(from, address(from, family), B, port);
            assert_eq!(found, passes, "{family} {from:?} {port}");
        }
    }
}

/// Port 3000 is for two ranges, the second of which has one address; port 3001 is for all from an
/// address on; every port is for a range between them.
fn ranges_have_edges() {
    let bounds = |texts: &[&str]| -> Vec<IpAddr> {
        let bounds = texts.iter().map(|it| it.parse().unwrap());
        bounds.collect()
    };
    let of = |v4: &[&str], v6: &[&str]| [bounds(v4), bounds(v6)];
    let two = of(
        &[
            "203.0.113.16",
            "203.0.113.24",
            "203.0.113.40",
            "203.0.113.41",
        ],
        &[
            "2001:db8::16",
            "2001:db8::24",
            "2001:db8::40",
            "2001:db8::41",
        ],
    );
    let open_end = of(&["203.0.113.200"], &["2001:db8::200"]);
    let always = of(
        &["203.0.113.30", "203.0.113.32"],
        &["2001:db8::30", "2001:db8::32"],
    );
    let mut merged = MergedUnion::default();
    let mut groups = Vec::new();
    for (place, family) in Family::BOTH.into_iter().enumerate() {
        let id = |group: GroupId| GroupId(group.0 + 10 * place as u32);
        let [one, other] = RANGES.map(id);
        let any = GroupId(other.0 + 1);
        merged.nets_of_ports[place].insert(udp(3000, 16), one);
        merged.nets_of_ports[place].insert(udp(3001, 16), other);
        merged.nets_of_any_port[place] = Some(any);
        let kind = GroupKind::Ranges(family);
        groups.push((one, kind, two[place].clone()));
        groups.push((other, kind, open_end[place].clone()));
        groups.push((any, kind, always[place].clone()));
    }
    let mut node = Node::build();
    node.install(&ruleset(&plan(groups, merged), &settings(Checks::None)));
    for (last, port, passes) in [
        (15, 3000, false),
        (16, 3000, true),
        (23, 3000, true),
        (24, 3000, false),
        (39, 3000, false),
        (40, 3000, true),
        (41, 3000, false),
        (200, 3000, false),
        (16, 3001, false),
        (199, 3001, false),
        (200, 3001, true),
        (250, 3001, true),
        (29, 5, false),
        (30, 5, true),
        (31, 65535, true),
        (32, 5, false),
    ] {
        for source in [format!("203.0.113.{last}"), format!("2001:db8::{last}")] {
            let found = node.passes(OUTSIDE, source.parse().unwrap(), B, port);
            assert_eq!(found, passes, "{source} {port}");
        }
    }
}
