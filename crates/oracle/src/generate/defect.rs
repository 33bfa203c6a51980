//! One defect in a sound policy.

use super::marks::{Mark, is_anp, is_early, is_np0};
use super::policy::{Maker, peers_key, ports_key};
use serde_json::{Value, json};

/// A peer around a selector, on its namespace or its pod side.
fn around(generation: &str, selector: &Value, pods: bool) -> Value {
    match (generation, pods) {
        ("np" | "cnp0" | "dnp", true) => json!({"podSelector": selector}),
        ("np", false) => json!({"namespaceSelector": selector}),
        ("cnp0" | "dnp", false) => json!({"namespaces": {"selector": selector}}),
        (g, true) if is_np0(g) => json!({"pods": selector}),
        (g, true) if is_early(g) => {
            json!({"pods": {"namespaces": {"namespaceSelector": {}}, "podSelector": selector}})
        }
        (_, true) => json!({"pods": {"namespaceSelector": {}, "podSelector": selector}}),
        (g, false) if is_early(g) => json!({"namespaces": {"namespaceSelector": selector}}),
        (_, false) => json!({"namespaces": selector}),
    }
}

fn bad_selector(defect: &str, pods: bool) -> Option<Value> {
    let (key, value) = if pods {
        ("app", "web")
    } else {
        ("team", "red")
    };
    Some(match defect {
        "operator" => {
            json!({"matchExpressions": [{"key": key, "operator": "notIn", "values": [value]}]})
        }
        "values" => json!({"matchExpressions": [{"key": key, "operator": "In", "values": []}]}),
        "exists-values" => {
            json!({"matchExpressions": [{"key": key, "operator": "Exists", "values": [value]}]})
        }
        "null-label" => json!({"matchLabels": {key: null}}),
        "label-type" => json!({"matchLabels": {key: 5}}),
        "unknown-key" => json!({"matchlabels": {key: value}}),
        _ => return None,
    })
}

/// A bad peer beside the sound one.
fn bad_peer(maker: &mut Maker<'_>, m: &Mark) -> Option<Value> {
    let generation = m.generation;
    let early = is_early(generation);
    let old = generation == "cnp0" || generation == "dnp";
    if let Some(defect) = m.defect.strip_prefix("sel-") {
        let pods = maker.rng.chance(1, 2);
        return Some(around(generation, &bad_selector(defect, pods)?, pods));
    }
    let every = around(generation, &json!({}), false);
    let block = |block: Value| json!({"ipBlock": block});
    // networks, or an ipBlock.
    let cidr = |text: &str| {
        if generation == "np" || old {
            json!({"ipBlock": {"cidr": text}})
        } else {
            json!({"networks": [text]})
        }
    };
    Some(match m.defect {
        "peer-empty" => json!({}),
        "peer-null" => json!({"namespaces": null}),
        "peer-type" => json!("everyone"),
        "peer-only-unknown" => json!({"tenants": {}}),
        "peer-unknown-key" => {
            let mut p = every;
            p["tenants"] = json!({});
            p
        }
        "peer-two" if early => {
            json!({"namespaces": {"namespaceSelector": {}}, "pods": {"namespaces": {"namespaceSelector": {}}, "podSelector": {}}})
        }
        "peer-two" => {
            json!({"namespaces": {}, "pods": {"namespaceSelector": {}, "podSelector": {}}})
        }
        "np0-both" => json!({"pods": {}, "namespaces": {}}),
        "block-and-pods" => json!({"ipBlock": {"cidr": "0.0.0.0/0"}, "podSelector": {}}),
        "block-unknown-key" => block(json!({"cidr": "0.0.0.0/0", "excepts": ["10.0.0.0/8"]})),
        "block-no-cidr" => block(json!({"except": ["10.0.0.0/8"]})),
        "cidr-bad" => cidr(maker.rng.word(&[
            "10.0.0.0/33",
            "10.0.0/8",
            "10.0.0.0",
            "fd00::/129",
            "web/8",
            "10.0.0.256/8",
            "",
        ])),
        "cidr-mapped" => cidr(
            maker
                .rng
                .word(&["::ffff:10.0.0.0/104", "::ffff:0a00:0/104"]),
        ),
        "cidr-zeros" => cidr(
            maker
                .rng
                .word(&["010.0.0.0/8", "10.00.000.0/8", "10.0.001.0/24"]),
        ),
        "cidr-length-zero" => cidr("10.0.0.0/08"),
        "except-outside" => block(json!({"cidr": "10.0.0.0/8", "except": ["192.168.0.0/16"]})),
        "except-equal" => block(json!({"cidr": "10.0.0.0/8", "except": ["10.0.0.0/8"]})),
        "except-family" => block(json!({"cidr": "0.0.0.0/0", "except": ["fd00::/8"]})),
        "ns-empty" => json!({"namespaces": {}}),
        "ns-self-false" => json!({"namespaces": {"self": false}}),
        "ns-self-and-selector" => json!({"namespaces": {"self": true, "selector": {}}}),
        "ns-except-alone" => json!({"namespaces": {"except": [{"matchLabels": {"team": "red"}}]}}),
        "ns-unknown-key" => json!({"namespaces": {"selector": {}, "not": [{}]}}),
        "pods-no-pod-selector" if early => {
            json!({"pods": {"namespaces": {"namespaceSelector": {}}}})
        }
        "pods-no-pod-selector" => json!({"pods": {"namespaceSelector": {}}}),
        "pods-no-namespace-selector" | "pods-no-namespaces" => json!({"pods": {"podSelector": {}}}),
        "ns-struct" => json!({"namespaces": {"namespaceSelector": {}}}),
        "ns-two-fields" => json!({"namespaces": {"namespaceSelector": {}, "sameLabels": ["team"]}}),
        "ns-none" => json!({"pods": {"namespaces": {}, "podSelector": {}}}),
        "related-unknown" => json!({"namespaces": {"related": "Friends"}}),
        "dialect-mixed" if early => json!({"namespaces": {"matchLabels": {"team": "red"}}}),
        "dialect-mixed" => json!({"namespaces": {"namespaceSelector": {}}}),
        "networks-early" | "networks-ingress" => json!({"networks": ["0.0.0.0/0"]}),
        "nodes-early" => json!({"nodes": {}}),
        "nodes-operator" => json!({"nodes": bad_selector("operator", false)?}),
        "networks-empty" => json!({"networks": []}),
        "networks-type" => json!({"networks": "0.0.0.0/0"}),
        "domains-empty" => json!({"domainNames": []}),
        "domains-not-accept" | "domains-banp" => json!({"domainNames": ["a.example.com"]}),
        "all-inner-key" => json!({"all": {"really": true}}),
        "all-in-anp" => json!({"all": {}}),
        _ => return None,
    })
}

/// A bad port element, beside sound ones or alone.
fn bad_port(m: &Mark) -> Option<Value> {
    let generation = m.generation;
    Some(if generation == "cnp" {
        let number = |n: Value| json!({"tcp": {"destinationPort": {"number": n}}});
        match m.defect {
            "port-unknown-key" => {
                json!({"tcp": {"destinationPort": {"number": 80}, "sourcePort": {"number": 80}}})
            }
            "port-zero" => number(json!(0)),
            "port-big" => number(json!(65536)),
            "port-bool" => number(json!(true)),
            "port-text" => number(json!("80")),
            "port-empty" => json!({}),
            "port-two" => {
                json!({"tcp": {"destinationPort": {"number": 80}}, "udp": {"destinationPort": {"number": 80}}})
            }
            "destination-empty" => json!({"tcp": {"destinationPort": {}}}),
            "range-reversed" => {
                json!({"tcp": {"destinationPort": {"range": {"start": 90, "end": 80}}}})
            }
            "range-equal" => {
                json!({"tcp": {"destinationPort": {"range": {"start": 80, "end": 80}}}})
            }
            "named-empty" => json!({"destinationNamedPort": ""}),
            _ => return None,
        }
    } else if is_anp(generation) {
        let number = |n: Value| json!({"portNumber": {"protocol": "TCP", "port": n}});
        match m.defect {
            "port-unknown-key" => {
                json!({"portNumber": {"protocol": "TCP", "port": 80, "endPort": 90}})
            }
            "port-zero" => number(json!(0)),
            "port-big" => number(json!(70000)),
            "port-bool" => number(json!(true)),
            "port-text" => number(json!("80")),
            "port-protocol" => json!({"portNumber": {"protocol": "tcp", "port": 80}}),
            "port-empty" => json!({}),
            "port-two" => {
                json!({"portNumber": {"protocol": "TCP", "port": 80}, "namedPort": "http"})
            }
            "range-reversed" => json!({"portRange": {"protocol": "TCP", "start": 90, "end": 80}}),
            "range-equal" => json!({"portRange": {"protocol": "TCP", "start": 80, "end": 80}}),
            "named-empty" => json!({"namedPort": ""}),
            _ => return None,
        }
    } else {
        match m.defect {
            "port-unknown-key" => json!({"port": 80, "name": "http"}),
            "port-zero" => json!({"port": 0}),
            "port-big" => json!({"port": 65536}),
            "port-bool" => json!({"port": true}),
            "port-protocol" => json!({"protocol": "tcp", "port": 80}),
            "port-quoted" => json!({"port": "80"}),
            "port-sctp" => json!({"protocol": "SCTP", "port": 80}),
            "port-endport" => json!({"port": 80, "endPort": 90}),
            "endport-below" => json!({"port": 90, "endPort": 80}),
            "endport-named" => json!({"port": "http", "endPort": 80}),
            "endport-alone" => json!({"endPort": 80}),
            "endport-big" => json!({"port": 80, "endPort": 65536}),
            _ => return None,
        }
    })
}

/// Puts an element into a list of a rule; `beside`: the other elements stay.
fn put(maker: &mut Maker<'_>, rule: &mut Value, key: &str, element: Value, beside: bool) {
    let mut list = match rule.get(key).and_then(Value::as_array) {
        Some(l) if beside => l.clone(),
        _ => Vec::new(),
    };
    let at = maker.rng.below(list.len() + 1);
    list.insert(at, element);
    rule[key] = json!(list);
}

/// A defect in the rule.
pub(crate) fn in_rule(maker: &mut Maker<'_>, m: &Mark, mut rule: Value) -> Value {
    let peers = peers_key(m.generation, m.direction);
    let ports = ports_key(m.generation);
    if let Some(p) = bad_peer(maker, m) {
        let beside = maker.rng.chance(2, 3);
        put(maker, &mut rule, peers, p, beside);
        return rule;
    }
    if let Some(p) = bad_port(m) {
        let beside = maker.rng.chance(1, 2);
        put(maker, &mut rule, ports, p, beside);
        return rule;
    }
    match m.defect {
        "rule-unknown-key" => rule["priority"] = json!(1),
        "dnp-action" => rule["action"] = json!("Allow"),
        "peers-missing" => {
            rule.as_object_mut().unwrap().remove(peers);
        }
        "peers-empty" => rule[peers] = json!([]),
        "peers-type" => {
            let first = rule[peers][0].clone();
            rule[peers] = if first.is_object() { first } else { json!({}) };
        }
        "ports-type" => rule[ports] = json!({"port": 80}),
        "protocols-empty" => rule[ports] = json!([]),
        "action-unknown" => {
            let word = *maker.rng.pick(&["allow", "Reject", "deny", ""]);
            rule["action"] = json!(word);
        }
        "action-absent" => {
            if maker.rng.chance(1, 3) {
                rule["action"] = json!(null);
            } else {
                rule.as_object_mut().unwrap().remove("action");
            }
        }
        "action-pass" => rule["action"] = json!("Pass"),
        "action-other" => {
            rule["action"] = json!(if m.generation == "cnp" {
                "Allow"
            } else {
                "Accept"
            })
        }
        "action-unknown-and-peer" => {
            rule["action"] = json!("Log");
            put(maker, &mut rule, peers, json!({}), true);
        }
        "over-limit" => {
            // D119: every element is evaluated; only the last one is decisive.
            let sound = rule[peers][0].clone();
            let none = around(
                m.generation,
                &json!({"matchLabels": {"team": "absent"}}),
                false,
            );
            let mut list = vec![none; 101];
            list.push(sound);
            rule[peers] = json!(list);
        }
        _ => {}
    }
    rule
}

/// A defect outside the rules.
pub(crate) fn in_object(maker: &mut Maker<'_>, m: &Mark, spec: &mut Value) {
    let key = match m.generation {
        "cnp0" | "dnp" => "appliedTo",
        "np" | "np0-v1beta" | "np0-extensions" => "podSelector",
        _ => "subject",
    };
    let bare = key == "podSelector";
    // The selector of the subject, in its place.
    let subject = |selector: Value| match key {
        "podSelector" => selector,
        "appliedTo" => json!({"namespaceSelector": selector}),
        _ => json!({"namespaces": selector}),
    };
    let word = if m.direction == "ingress" {
        "Ingress"
    } else {
        "Egress"
    };
    match m.defect {
        "spec-unknown-key" => spec["enabled"] = json!(false),
        "rules-type" => {
            let first = spec[m.direction][0].clone();
            spec[m.direction] = first;
        }
        "subject-operator" => spec[key] = subject(bad_selector("operator", bare).unwrap()),
        "subject-null-label" => spec[key] = subject(bad_selector("null-label", bare).unwrap()),
        "subject-type" => spec[key] = json!("everything"),
        "subject-unknown-key" if bare => spec[key] = json!({"matchLabels": {}, "app": "web"}),
        "subject-unknown-key" => spec[key]["tenants"] = json!({}),
        "subject-absent" => {
            spec.as_object_mut().unwrap().remove(key);
        }
        "subject-empty" => spec[key] = json!({}),
        "subject-two" => {
            spec[key] =
                json!({"namespaces": {}, "pods": {"namespaceSelector": {}, "podSelector": {}}})
        }
        "subject-no-pods" => spec[key] = json!({"pods": {"namespaceSelector": {}}}),
        "applied-no-namespaces" => spec[key] = json!({"podSelector": {}}),
        "types-unknown" => spec["policyTypes"] = json!([word, "Both"]),
        "types-unknown-only" => spec["policyTypes"] = json!(["ingress"]),
        "types-three" => spec["policyTypes"] = json!(["Ingress", "Egress", "Ingress"]),
        "types-type" => spec["policyTypes"] = json!("Ingress"),
        "priority-absent" => {
            if maker.rng.chance(1, 3) {
                spec["priority"] = json!(null);
            } else {
                spec.as_object_mut().unwrap().remove("priority");
            }
        }
        "priority-text" => spec["priority"] = json!("10"),
        "priority-negative" => spec["priority"] = json!(-1),
        "priority-big" => spec["priority"] = json!(*maker.rng.pick(&[1001, 1500])),
        "tier-unknown" => spec["tier"] = json!("Platform"),
        "tier-case" => {
            spec["tier"] = json!(if m.tier == "admin" {
                "admin"
            } else {
                "baseline"
            })
        }
        "tier-absent" => {
            spec.as_object_mut().unwrap().remove("tier");
        }
        _ => {}
    }
}
