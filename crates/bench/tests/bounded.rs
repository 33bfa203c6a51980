//! What a packet has to pass through does not grow with what authors of NetworkPolicies write: rules of the
//! longest way through the chains of a pod, counted over rulesets of very large policies.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;

use palisade_api::{Options, Source, lower, read};
use palisade_core::compile::compile;
use palisade_core::plan::plan;
use palisade_nft::node::{Generation, NodeOptions, Settings, ruleset};
use palisade_nft::ruleset::{Chain, Name, Rule, Ruleset, Statement, Verdict};
use serde_json::{Value, json};

/// Whatever is written, a packet passes through no more rules of a body than these: a rule for each of five lengths of
/// blocks of ports, for everyone, for hosts and for ranges; one each for hosts and ranges at any port, one for everyone at any
/// port, and the end.
const MOST: usize = 3 * 5 + 4;

/// The number of rules on the longest way from a chain on, up to a yes or no.
fn longest(chains: &BTreeMap<&Name, &Chain>, chain: &Name) -> usize {
    let mut most = 0;
    for (place, rule) in chains[chain].rules.iter().enumerate() {
        let bodies = targets(rule).filter(|to| is_of_a_body(to));
        let further = bodies.map(|to| longest(chains, to)).max();
        most = most.max(place + 1 + further.unwrap_or(0));
    }
    most
}

fn targets(rule: &Rule) -> impl Iterator<Item = &Name> {
    rule.statements.iter().filter_map(|it| {
        if let Statement::Verdict(Verdict::Goto(to) | Verdict::Jump(to)) = it {
            return Some(to);
        }
        None
    })
}

fn is_of_a_body(name: &Name) -> bool {
    let words = ["egress4-", "egress6-", "ingress4-", "ingress6-"];
    words.iter().any(|word| name.as_str().starts_with(word))
}

/// The most rules of one body, for either family.
fn rules_of_bodies(ruleset: &Ruleset) -> usize {
    let chains: BTreeMap<&Name, &Chain> = ruleset.chains.iter().map(|it| (&it.name, it)).collect();
    let bodies = chains.keys().filter(|name| is_of_a_body(name));
    bodies.map(|name| longest(&chains, name)).max().unwrap()
}

/// The ruleset of a pod that policies select, in one direction: each a list of rules.
fn of_policies(direction: &str, policies: &[Vec<Value>]) -> Ruleset {
    let mut objects = vec![json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "a", "namespace": "x"},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
        "status": {"podIP": "192.0.2.1", "podIPs": [{"ip": "192.0.2.1"}, {"ip": "2001:db8:a::1"}]}})];
    for (number, rules) in policies.iter().enumerate() {
        objects.push(json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": format!("p{number}"), "namespace": "x"},
            "spec": {"podSelector": {}, "policyTypes": [direction], direction.to_lowercase(): rules}}));
    }
    let text = Value::from(objects).to_string().into_bytes();
    let sources = [Source::new("objects.json", text)];
    let manifests = read(&sources, Options::default(), &|_| {});
    let problems = manifests.problems.iter();
    assert_eq!(problems.filter(|it| it.is_error()).count(), 0);
    let lowered = lower(&manifests.objects, Vec::new());
    let program = compile(&lowered.cluster);
    let plan = plan(&lowered.cluster, &program, "n1");
    ruleset(
        &plan,
        &Settings::of_node(Generation::FIRST, &NodeOptions::default()),
    )
}

#[track_caller]
fn check(direction: &str, expected: usize, rules: impl Fn(u32) -> Vec<Value>) {
    for count in [1_000, 10_000] {
        let found = rules_of_bodies(&of_policies(direction, &[rules(count)]));
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
    // Ranges of every length at one port, for everyone, for pods and for blocks.
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
    let found = rules_of_bodies(&of_policies("Ingress", &many));
    // Of UDP all lengths but none; all for pods and for blocks; pods and blocks at any port; the end.
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
        assert_eq!(rules_of_bodies(&of_policies("Ingress", &policies)), 2);
    }
}
