//! What a packet has to pass through does not grow with what authors of NetworkPolicies write:
//! rules of the longest way through the chains of a pod, counted over rulesets of very large
//! policies.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use palisade_bench::large::{ALL, Large, longest_way, planned, policy, subject};
use palisade_nft::node::{Generation, NodeOptions, Settings, ruleset};
use palisade_nft::ruleset::Ruleset;
use serde_json::{Value, json};

/// The maximum number of rules of its pod's chains that a packet passes, for any policies: a rule
/// for each of five lengths of blocks of ports, for all peers, for hosts and for ranges; one each
/// for hosts and ranges at any port, one for all peers at any port, and the end.
const MOST: usize = 3 * 5 + 4;

/// Unions of few conditions are evaluated one by one, and then there is the end.
const MOST_ONE_BY_ONE: usize = 32 + 1;

/// The ruleset of a pod that policies select, in one direction: each a list of rules.
fn of_policies(direction: &str, policies: &[Vec<Value>]) -> Ruleset {
    let mut objects = vec![subject()];
    for (number, rules) in policies.iter().enumerate() {
        objects.push(policy(&format!("p{number}"), direction, rules));
    }
    of_objects(objects)
}

fn of_objects(objects: Vec<Value>) -> Ruleset {
    let settings = Settings::of_node(Generation::FIRST, &NodeOptions::default());
    ruleset(&planned(objects).unwrap(), &settings)
}

#[track_caller]
fn check(direction: &str, expected: usize, rules: impl Fn(u32) -> Vec<Value>) {
    for count in [1_000, 10_000] {
        let found = longest_way(&of_policies(direction, &[rules(count)]));
        assert_eq!(found, expected, "{count}");
        assert!(found <= MOST);
    }
}

/// Ranges of two ports each that do not touch.
fn ports(count: u32) -> Vec<Value> {
    let starts = (0..count).map(|number| 1 + number * 3);
    starts
        .map(|start| json!({"port": start, "endPort": start + 1}))
        .collect()
}

#[test]
fn ranges_of_ports_for_everyone() {
    check("Ingress", 2, |count| vec![json!({"ports": ports(count)})]);
}

#[test]
fn ranges_of_ports_for_pods() {
    check("Ingress", 2, |count| {
        vec![json!({"ports": ports(count), "from": [{"podSelector": {}}]})]
    });
}

#[test]
fn single_ports_of_one_rule() {
    check("Egress", 2, |count| {
        let ports: Vec<Value> = (1..=count).map(|port| json!({"port": port * 3})).collect();
        vec![json!({"ports": ports, "to": [{"podSelector": {}}]})]
    });
}

#[test]
fn exceptions_of_one_block() {
    check("Ingress", 2, |count| {
        let except = |number: u32| format!("10.{}.{}.0/28", number >> 8, number & 255);
        let except: Vec<String> = (0..count).map(except).collect();
        vec![json!({"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": except}}]})]
    });
}

#[test]
fn blocks_with_an_exception_each() {
    check("Egress", 2, |count| {
        let block = |number: u32| {
            let net = format!("2001:db8:{number:x}");
            json!({"ipBlock": {"cidr": format!("{net}::/48"), "except": [format!("{net}:1::/64")]}})
        };
        vec![json!({"to": (0..count).map(block).collect::<Vec<Value>>()})]
    });
}

#[test]
fn rules_with_a_range_and_a_peer_each() {
    // One for hosts, one for ranges, and the end.
    check("Ingress", 3, |count| {
        let rule = |(number, port): (u32, Value)| {
            let net = format!("10.{}.{}", number >> 8, number & 255);
            json!({"ports": [port], "from": [
                {"podSelector": {"matchLabels": {"app": format!("a{number}")}}},
                {"ipBlock": {"cidr": format!("{net}.0/24"), "except": [format!("{net}.8/29")]}},
                {"ipBlock": {"cidr": "192.0.2.77/32"}}]})
        };
        (0..).zip(ports(count)).map(rule).collect()
    });
}

#[test]
fn everyone_at_every_port_many_times() {
    check("Ingress", 2, |count| vec![json!({}); count as usize]);
}

#[test]
fn as_many_lengths_as_there_are() {
    // Ranges of every length at one port, for all peers, for pods and for blocks.
    let peers = [
        json!({"podSelector": {}}),
        json!({"ipBlock": {"cidr": "10.0.0.0/8"}}),
    ];
    let mut rules = Vec::new();
    for bits in 0..16 {
        let port = json!({"port": 32768, "endPort": 32768 + ((1u32 << bits) - 1).min(32767)});
        rules.push(json!({"ports": [port], "from": peers}));
    }
    rules.push(json!({"ports": [{"protocol": "TCP"}], "from": peers}));
    rules.push(json!({"ports": [{"port": 1, "endPort": 65534, "protocol": "UDP"}]}));
    rules.push(json!({"from": peers}));
    let many: Vec<Vec<Value>> = rules.into_iter().map(|rule| vec![rule; 30]).collect();
    let found = longest_way(&of_policies("Ingress", &many));
    // Of UDP all lengths but none; all for pods and for blocks; pods and blocks at any port; the
    // end.
    assert_eq!(found, 4 + 5 + 5 + 2 + 1);
    assert!(found <= MOST);
}

#[test]
fn many_policies() {
    let of = |number: u32| {
        let peer = json!({"ipBlock": {"cidr": format!("10.{number}.0.0/16")}});
        vec![json!({"ports": ports(2_000), "from": [peer]})]
    };
    for count in [1, 30] {
        let policies: Vec<Vec<Value>> = (0..count).map(of).collect();
        assert_eq!(longest_way(&of_policies("Ingress", &policies)), 2);
    }
}

/// Everything that is measured, which includes named ports of egress rules in all ways.
#[test]
fn everything_that_is_measured() {
    for large in ALL {
        let Large { name, rules, .. } = *large;
        for count in [1_000, 10_000] {
            let found = longest_way(&of_objects(large.objects(count)));
            assert_eq!(found, rules, "{name}: {count}");
            assert!(found <= MOST.max(MOST_ONE_BY_ONE), "{name}");
        }
    }
}

/// One condition less than are looked up at once, and one more, of named ports that stand for
/// several numbers.
#[test]
fn named_ports_of_few_numbers_are_looked_up_one_by_one() {
    for (numbers, expected) in [(32, MOST_ONE_BY_ONE), (33, 2)] {
        let mut objects = vec![subject()];
        for number in 0..numbers {
            let address = format!("10.0.0.{}", number + 1);
            objects.push(json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": format!("b{number}"), "namespace": "x"},
                "spec": {"nodeName": "n2", "containers": [{"name": "c", "image": "i",
                    "ports": [{"name": "http", "containerPort": 8000 + number}]}]},
                "status": {"podIP": address, "podIPs": [{"ip": address}]}}));
        }
        let rule = json!({"ports": [{"port": "http"}], "to": [{"podSelector": {}}]});
        objects.push(policy("p", "Egress", &[rule]));
        assert_eq!(longest_way(&of_objects(objects)), expected, "{numbers}");
    }
}

/// In ingress rules a name matches the pod's own ports, eight at most.
#[test]
fn named_ports_of_the_pod_itself() {
    for names in [100, 1_000] {
        let mut own = subject();
        let port = |number: u32| json!({"name": format!("p{}", number % names), "containerPort": 1 + number * 3});
        let containers = (0..names * 8).map(
            |number| json!({"name": format!("c{number}"), "image": "i", "ports": [port(number)]}),
        );
        own["spec"]["containers"] = containers.collect();
        let rule = |number: u32| json!({"ports": [{"port": format!("p{number}")}], "from": [{"podSelector": {}}]});
        let rules: Vec<Value> = (0..names).map(rule).collect();
        let objects = vec![own, policy("p", "Ingress", &rules)];
        assert_eq!(longest_way(&of_objects(objects)), 2, "{names}");
    }
}

/// Many pods of the node, each with policies of its own that have named ports.
#[test]
fn many_pods_with_policies_of_their_own() {
    for count in [10, 100] {
        let mut objects = Vec::new();
        for number in 0..count {
            let address = format!("10.0.{number}.1");
            let own = format!("a{number}");
            objects.push(json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": own, "namespace": "x", "labels": {"app": own}},
                "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i",
                    "ports": [{"name": "http", "containerPort": 8000 + number}]}]},
                "status": {"podIP": address, "podIPs": [{"ip": address}]}}));
            let to = |other: usize| json!({"podSelector": {"matchLabels": {"app": format!("a{}", (number + other) % count)}}});
            let rules: Vec<Value> = (0..10)
                .map(|other| json!({"ports": [{"port": "http"}], "to": [to(other)]}))
                .collect();
            let mut policy = policy(&format!("p{number}"), "Egress", &rules);
            policy["spec"]["podSelector"] = json!({"matchLabels": {"app": own}});
            objects.push(policy);
        }
        assert_eq!(longest_way(&of_objects(objects)), 2, "{count}");
    }
}
