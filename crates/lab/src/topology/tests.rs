//! Valid and invalid topologies.

use super::{Location, NodeSpec, PodSpec, Topology, TopologyError};

fn topology(node: &[&str], pods: &[(usize, &[&str])], outside: &[&str]) -> Topology {
    let read = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    Topology {
        nodes: vec![NodeSpec {
            addresses: read(node),
        }],
        pods: pods
            .iter()
            .map(|(node, addresses)| PodSpec {
                node: *node,
                addresses: read(addresses),
            })
            .collect(),
        outside: read(outside),
    }
}

#[test]
fn every_address_has_one_owner() {
    let good = topology(
        &["10.0.0.1"],
        &[(0, &["10.1.0.1", "fd00::1"])],
        &["192.0.2.1"],
    );
    assert_eq!(good.check(), Ok(()));
    assert!(good.has_ipv6());

    let shared = topology(&["10.0.0.1"], &[(0, &["10.1.0.1"])], &["10.1.0.1"]);
    assert_eq!(
        shared.check(),
        Err(TopologyError::Duplicate {
            address: "10.1.0.1".parse().unwrap(),
            first: Location::Pod(0),
            second: Location::Outside,
        })
    );
}

#[test]
fn an_address_that_is_not_of_one_host_is_refused() {
    for address in [
        "0.0.0.0",
        "::",
        "127.0.0.1",
        "::1",
        "224.0.0.1",
        "ff02::1",
        "169.254.3.4",
        "fe80::7",
        "255.255.255.255",
        "0.1.2.3",
        "::ffff:10.0.0.1",
    ] {
        let refused = topology(&["10.0.0.1"], &[(0, &[address])], &[]).check();
        assert!(
            matches!(
                refused,
                Err(TopologyError::Unroutable {
                    place: Location::Pod(0),
                    ..
                })
            ),
            "{address}: {refused:?}"
        );
    }
}

#[test]
fn a_pod_needs_a_node() {
    let error = topology(&[], &[(1, &["10.1.0.1"])], &[])
        .check()
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "pod 0 is on node 1; the topology has 1 nodes"
    );
}
