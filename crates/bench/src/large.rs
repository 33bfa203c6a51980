//! NetworkPolicies as large as a tenant can write them, for one pod: the rules that a packet passes
//! must not grow with them.

use std::collections::BTreeMap;

use palisade_api::{Options, Source, lower_within, read};
use palisade_core::budget::Budget;
use palisade_core::compile::compile;
use palisade_core::plan::{Plan, plan};
use palisade_nft::ruleset::{Chain, Name, Rule, Ruleset, Statement, Verdict};
use serde_json::{Value, json};

/// The node of the pod.
pub const NODE: &str = "n1";

/// The addresses of the pod.
pub const ADDRESSES: [&str; 2] = ["192.0.2.1", "2001:db8:a::1"];

/// A kind of large policies.
#[derive(Clone, Copy, Debug)]
pub struct Large {
    /// Their name.
    pub name: &'static str,
    /// The maximum number of rules of the pod's chain that a packet passes, regardless of their
    /// number.
    pub rules: usize,
    /// A UDP port that many of them have, but not for all peers.
    pub port: u16,
    /// Generates a number of them.
    pub written: fn(u32) -> Written,
}

/// The policies of a tenant.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// Rules for what the pod sends.
    pub rules: Vec<Value>,
    /// Other pods.
    pub pods: Vec<Value>,
}

/// All kinds.
pub const ALL: &[Large] = &[
    Large {
        name: "few: 8 rules of 4 ports",
        rules: 33,
        port: 1,
        written: |_| Written {
            rules: (0..8).map(|number| few(number, 4)).collect(),
            ..Written::default()
        },
    },
    Large {
        name: "ranges of ports for all peers",
        rules: 2,
        port: 3,
        written: |count| Written {
            rules: vec![json!({"ports": ranges(count)})],
            ..Written::default()
        },
    },
    Large {
        name: "blocks with an exception each",
        rules: 2,
        port: 1,
        written: |count| Written {
            rules: vec![json!({"to": (0..count).map(block).collect::<Vec<Value>>()})],
            ..Written::default()
        },
    },
    Large {
        name: "rules with a range, a selector and a block each",
        rules: 3,
        port: 1,
        written: |count| {
            let rule =
                |(number, range)| json!({"ports": [range], "to": [app(number), block(number)]});
            Written {
                rules: (0..).zip(ranges(count)).map(rule).collect(),
                pods: pods(100, |_| Vec::new()),
            }
        },
    },
    Large {
        name: "every length of ranges, with exceptions",
        rules: 18,
        port: 32_768,
        written: every_length,
    },
    Large {
        name: "rules with a named port each, 100 pods",
        rules: 2,
        port: 1,
        written: |count| {
            let rule = |number| json!({"ports": [named(number)], "to": [app(number)]});
            Written {
                rules: (0..count).map(rule).collect(),
                pods: pods(100, |pod| {
                    (0..count)
                        .filter(|it| it % 100 == pod)
                        .map(declared)
                        .collect()
                }),
            }
        },
    },
    Large {
        name: "one named port, rules with a selector each",
        rules: 2,
        port: 1,
        written: |count| Written {
            rules: (0..count)
                .map(|number| json!({"ports": [named(0)], "to": [app(number)]}))
                .collect(),
            pods: pods(100, |_| vec![declared(0)]),
        },
    },
    Large {
        name: "one named port, rules with a block each",
        rules: 2,
        port: 1,
        written: |count| Written {
            rules: (0..count)
                .map(|number| json!({"ports": [named(0)], "to": [block(number)]}))
                .collect(),
            pods: pods(100, |_| vec![declared(0)]),
        },
    },
    Large {
        name: "one named port of another number at each pod",
        rules: 2,
        port: 1,
        written: |count| Written {
            rules: (0..10)
                .map(|number| json!({"ports": [named(0)], "to": [app(number), block(number)]}))
                .collect(),
            pods: pods(count, |pod| {
                vec![json!({"name": "p0", "containerPort": number_of(pod), "protocol": "UDP"})]
            }),
        },
    },
    Large {
        name: "named ports of three protocols, numbers, ranges, selectors and blocks",
        // One for hosts, one for ranges of addresses, and the end.
        rules: 3,
        port: 1,
        written: |count| Written {
            rules: (0..).zip(ranges(count)).map(mixed).collect(),
            pods: pods(100, |pod| {
                (0..count)
                    .filter(|it| it % 100 == pod)
                    .flat_map(of_protocols)
                    .collect()
            }),
        },
    },
    Large {
        name: "one rule with all named ports, for all peers",
        rules: 2,
        port: 3,
        written: |count| Written {
            rules: vec![json!({"ports": (0..count).map(named).collect::<Vec<Value>>()})],
            pods: pods(100, |pod| {
                (0..count)
                    .filter(|it| it % 100 == pod)
                    .map(declared)
                    .collect()
            }),
        },
    },
    Large {
        name: "a range, blocks, and a rule for each part of the range",
        // One for each of four lengths of parts, and the end.
        rules: 5,
        port: 1,
        written: crossing,
    },
];

impl Large {
    /// The objects of a cluster with a number of them.
    pub fn objects(&self, count: u32) -> Vec<Value> {
        let Written { rules, mut pods } = (self.written)(count);
        pods.push(subject());
        pods.push(policy("p", "Egress", &rules));
        pods
    }
}

/// The pod that policies select.
pub fn subject() -> Value {
    pod("a", "subject", &ADDRESSES.map(str::to_owned), &[])
}

/// A policy with rules of a direction that selects every pod.
pub fn policy(name: &str, direction: &str, rules: &[Value]) -> Value {
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": "x"},
        "spec": {"podSelector": {}, "policyTypes": [direction], direction.to_lowercase(): rules}})
}

/// What the node has to enforce; the words of the first problem, if an object is not valid.
pub fn planned(objects: Vec<Value>) -> Result<Plan, String> {
    let text = Value::from(objects).to_string().into_bytes();
    let sources = [Source::new("objects.json", text)];
    let manifests = read(&sources, Options::default(), &|_| {});
    if let Some(problem) = manifests.problems.iter().find(|it| it.is_error()) {
        return Err(problem.message.clone());
    }
    let lowered = lower_within(&manifests.objects, Vec::new(), Budget::UNLIMITED);
    let program = compile(&lowered.cluster);
    Ok(plan(&lowered.cluster, &program, NODE))
}

/// Another pod, perhaps on the node of the first.
fn pod(name: &str, app: &str, addresses: &[String], ports: &[Value]) -> Value {
    let list: Vec<Value> = addresses.iter().map(|it| json!({"ip": it})).collect();
    let node = if name == "a" { NODE } else { "n2" };
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "x", "labels": {"app": app}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i", "ports": ports}]},
        "status": {"podIP": addresses.first(), "podIPs": list}})
}

fn pods(count: u32, ports: impl Fn(u32) -> Vec<Value>) -> Vec<Value> {
    let pod = |number: u32| {
        let v4 = format!("10.{}.{}.1", number >> 8, number & 255);
        let addresses = [v4, format!("2001:db8:{number:x}::1")];
        let app = format!("a{number}");
        pod(&format!("b{number}"), &app, &addresses, &ports(number))
    };
    (0..count).map(pod).collect()
}

/// Pods by a label, the same for many numbers.
fn app(number: u32) -> Value {
    let mut values = vec![format!("a{}", number % 100)];
    values.push(format!("other{number}"));
    json!({"podSelector": {"matchExpressions": [
        {"key": "app", "operator": "In", "values": values}]}})
}

/// A block with an exception, of one family or the other.
fn block(number: u32) -> Value {
    if number.is_multiple_of(2) {
        let net = format!("10.{}.{}", number >> 8, number & 255);
        return json!({"ipBlock": {"cidr": format!("{net}.0/24"), "except": [format!("{net}.8/29")]}});
    }
    let net = format!("2001:db8:{number:x}");
    json!({"ipBlock": {"cidr": format!("{net}::/48"), "except": [format!("{net}:1::/64")]}})
}

/// Ranges of two ports each that do not touch.
pub fn ranges(count: u32) -> Vec<Value> {
    let starts = (0..count).map(number_of);
    starts
        .map(|start| json!({"port": start, "endPort": start + 1, "protocol": "UDP"}))
        .collect()
}

/// The first of three ports that no other number has.
fn number_of(number: u32) -> u32 {
    1 + number * 3 % 65_530
}

fn named(number: u32) -> Value {
    json!({"port": format!("p{number}"), "protocol": "UDP"})
}

fn declared(number: u32) -> Value {
    json!({"name": format!("p{number}"), "containerPort": number_of(number), "protocol": "UDP"})
}

const PROTOCOLS: [&str; 3] = ["UDP", "TCP", "SCTP"];

fn of_protocols(number: u32) -> Vec<Value> {
    let port = |protocol: &str| {
        let letter = protocol.to_lowercase();
        json!({"name": format!("{letter}{number}"), "containerPort": number_of(number), "protocol": protocol})
    };
    PROTOCOLS.map(port).to_vec()
}

fn mixed((number, range): (u32, Value)) -> Value {
    let of = |protocol: &str| {
        let letter = protocol.to_lowercase();
        json!({"port": format!("{letter}{number}"), "protocol": protocol})
    };
    let mut ports = PROTOCOLS.map(of).to_vec();
    ports.push(range);
    ports.push(json!({"port": number_of(number), "protocol": "SCTP"}));
    json!({"ports": ports, "to": [app(number), block(number)]})
}

/// A rule with a few ports, for a pod.
fn few(number: u32, ports: u32) -> Value {
    let ports = (0..ports).map(|it| json!({"port": 1 + number * ports + it, "protocol": "UDP"}));
    json!({"ports": ports.collect::<Vec<Value>>(), "to": [app(number)]})
}

/// Ranges of every length at one port, for pods and for blocks, and of other protocols for all
/// peers.
fn every_length(count: u32) -> Written {
    let except = |number: u32| format!("10.{}.{}.0/28", number >> 8, number & 255);
    let except: Vec<String> = (0..count.min(65_536)).map(except).collect();
    let peers = [
        json!({"podSelector": {}}),
        json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": except}}),
        json!({"ipBlock": {"cidr": "2001:db8:1::/48", "except": ["2001:db8:1:1::/64"]}}),
    ];
    let mut rules = Vec::new();
    for bits in 0..16 {
        let last = 32_768 + ((1u32 << bits) - 1).min(32_766);
        let port = json!({"port": 32_768, "endPort": last, "protocol": "UDP"});
        rules.push(json!({"ports": [port], "to": peers}));
    }
    rules.push(json!({"ports": [{"protocol": "UDP"}], "to": peers}));
    rules.push(json!({"to": peers}));
    let open = [
        json!({"port": 1, "endPort": 65_534, "protocol": "TCP"}),
        json!({"protocol": "SCTP"}),
    ];
    rules.push(json!({"ports": open}));
    Written {
        rules,
        pods: pods(100, |_| Vec::new()),
    }
}

/// A range of as many parts as a range can have, for blocks of addresses, and a rule for each part:
/// each part has the blocks by itself, which are 104 times as many elements as were written. With
/// 5,000 it is nearly all that fits into the budget of a namespace.
fn crossing(count: u32) -> Written {
    let blocks = (0..count * 48 / 100).map(|number| {
        let cidr = format!(
            "10.{}.{}.{}/32",
            number >> 14,
            number >> 7 & 127,
            (number & 127) * 2
        );
        json!({"ipBlock": {"cidr": cidr}})
    });
    let whole = json!({"port": 1, "endPort": 65_534, "protocol": "UDP"});
    let mut rules = vec![json!({"ports": [whole], "to": blocks.collect::<Vec<Value>>()})];
    let (mut first, end) = (1_u32, 65_535);
    while first < end {
        let fits = |size: &u32| first.is_multiple_of(*size) && first + size <= end;
        let size = [4_096, 256, 16, 1].into_iter().find(fits).unwrap_or(1);
        let part = json!({"port": first, "endPort": first + size - 1, "protocol": "UDP"});
        let peer = json!({"ipBlock": {"cidr": format!("198.18.{}.{}/32", rules.len() >> 8, rules.len() & 255)}});
        rules.push(json!({"ports": [part], "to": [peer]}));
        first += size;
    }
    Written {
        rules,
        ..Written::default()
    }
}

/// The most rules that a packet passes on its way through a chain of a pod and those behind it, up
/// to a yes or no.
pub fn longest_way(ruleset: &Ruleset) -> usize {
    let chains: BTreeMap<&Name, &Chain> = ruleset.chains.iter().map(|it| (&it.name, it)).collect();
    let rule_chains = chains.keys().filter(|name| is_rule_chain(name));
    let longest = rule_chains.map(|name| longest(&chains, name));
    longest.max().unwrap_or(0)
}

fn longest(chains: &BTreeMap<&Name, &Chain>, chain: &Name) -> usize {
    let rules = chains.get(chain).map(|it| it.rules.as_slice());
    let mut most = 0;
    for (place, rule) in rules.unwrap_or_default().iter().enumerate() {
        let rule_chains = targets(rule).filter(|to| is_rule_chain(to));
        let further = rule_chains.map(|to| longest(chains, to)).max();
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

/// Whether a chain is of the rules of a pod.
pub fn is_rule_chain(name: &Name) -> bool {
    let words = ["egress4-", "egress6-", "ingress4-", "ingress6-"];
    words.iter().any(|word| name.as_str().starts_with(word))
}
