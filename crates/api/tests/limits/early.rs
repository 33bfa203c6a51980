//! ClusterNetworkPolicy and DefaultNetworkPolicy of 2021, section 2.6. Their ports and blocks are
//! those of NetworkPolicy, in its file.

use palisade_api::{Object, ObjectSpec};
use palisade_core::policy::Direction::{Egress, Ingress};

use crate::documents::{CNP0, DIRECTIONS, DNP, Form};
use crate::harness::{Limit, all_violate, groups, limit, required};

groups! {
    applied_to: [applied_to],
    rules: [rules, isolation_of_defaults],
    peers: [peers, namespaces],
    fields: [unknown_fields, types],
}

const KINDS: [&Form; 2] = [&CNP0, &DNP];
const INVALID: (&str, &str) = ("INVALID-SUBJECT", "spec.appliedTo");

fn applied_to() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in KINDS {
        let label = form.label();
        let applied = |text: &str| form.spec(&format!("appliedTo: {text}"));
        let all = applied("{namespaceSelector: {}}");
        limits.push(
            limit(format!(
                "2.6 D64 appliedTo.namespaceSelector of {label} is required"
            ))
            .fits("given", all.clone())
            .violates(
                "no appliedTo",
                form.spec("-appliedTo"),
                INVALID.0,
                INVALID.1,
            )
            .violates("null appliedTo", applied("null"), INVALID.0, INVALID.1)
            .may("REQUIRED", "spec.appliedTo")
            .violates("empty", applied("{}"), INVALID.0, INVALID.1)
            .violates(
                "null",
                applied("{namespaceSelector: null}"),
                INVALID.0,
                INVALID.1,
            )
            .violates(
                "only pods",
                applied("{podSelector: {}}"),
                INVALID.0,
                INVALID.1,
            )
            .may("REQUIRED", "spec.appliedTo.namespaceSelector"),
        );
        let pods = "{namespaceSelector: {}, podSelector: null}";
        let given = "{namespaceSelector: {}, podSelector: {}}";
        limits.push(
            limit(format!(
                "2.6 D64 appliedTo.podSelector of {label} is all pods by default"
            ))
            .means("null", applied(pods), all)
            .fits("given", applied(given)),
        );
        let unknown = ["namespaces", "pods", "selector"].map(|key| {
            let document = applied(&format!("{{namespaceSelector: {{}}, {key}: {{}}}}"));
            (document, format!("spec.appliedTo.{key}"))
        });
        let name = format!("3.12 D111 unknown fields of appliedTo of {label}");
        limits.push(all_violate(&name, "UNKNOWN-FIELD", unknown.into()).also(INVALID.0, INVALID.1));
        let typed = ["[]", "text", "true"].map(|text| (applied(text), INVALID.1.to_owned()));
        let name = format!("3.12 D123 types of appliedTo of {label}");
        limits.push(all_violate(&name, "WRONG-TYPE", typed.into()).also(INVALID.0, INVALID.1));
    }
    limits
}

fn rules() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in KINDS {
        for direction in DIRECTIONS {
            let peers = form.peers_key(direction);
            let any = form.rule(direction, "");
            let mut limit = limit(format!(
                "2.6 D66 {} of {} is any peer by default",
                direction.key(),
                form.label()
            ))
            .fits("absent", any.clone());
            for (field, value) in [
                (peers, "[]"),
                (peers, "null"),
                ("ports", "[]"),
                ("ports", "null"),
            ] {
                let change = format!("{field}: {value}");
                limit = limit.means(&change, form.rule(direction, &change), any.clone());
            }
            limits.push(limit);
        }
    }
    limits
}

/// Which of the two lists of rules an object has.
fn lists(object: &Object<'_>) -> Option<(bool, bool)> {
    let ObjectSpec::EarlyPolicy(policy) = &object.spec else {
        return None;
    };
    Some((policy.ingress.is_some(), policy.egress.is_some()))
}

fn isolation_of_defaults() -> Vec<Limit> {
    vec![
        limit("2.6 D63 a key of a DefaultNetworkPolicy counts, and null is none")
            .reads("neither", DNP.spec(""), |it| {
                lists(it) == Some((false, false))
            })
            .reads("null", DNP.spec("ingress: null; egress: null"), |it| {
                lists(it) == Some((false, false))
            })
            .reads("ingress", DNP.spec("ingress: []"), |it| {
                lists(it) == Some((true, false))
            })
            .reads("egress", DNP.spec("egress: []"), |it| {
                lists(it) == Some((false, true))
            })
            .reads("both", DNP.spec("ingress: []; egress: [{}]"), |it| {
                lists(it) == Some((true, true))
            }),
    ]
}

fn peers() -> Vec<Limit> {
    let pods = "podSelector: {}";
    let namespaces = "namespaces: {self: true}";
    let block = "ipBlock: {cidr: 10.0.0.0/8}";
    let mut limits = Vec::new();
    for form in KINDS {
        for direction in DIRECTIONS {
            let path = form.peer_path(direction, "");
            let peer = |fields: &[&str]| form.peer(direction, &fields.join(", "));
            let mut limit = limit(format!(
                "2.6 D65 a peer of {} of {}",
                direction.key(),
                form.label()
            ))
            .fits("podSelector", peer(&[pods]))
            .fits("namespaces", peer(&[namespaces]))
            .fits("both", peer(&[pods, namespaces]))
            .fits("ipBlock", peer(&[block]))
            .means(
                "null beside a selector (D24)",
                peer(&[pods, "namespaces: null", "ipBlock: null"]),
                peer(&[pods]),
            );
            for fields in [
                &[] as &[&str],
                &["podSelector: null"],
                &["namespaces: null"],
                &["ipBlock: null"],
                &[block, pods],
                &[block, namespaces],
                &[block, pods, namespaces],
            ] {
                limit = limit.violates(&fields.join(", "), peer(fields), "ONE-OF", &path);
            }
            limits.push(limit);
        }
    }
    limits
}

fn namespaces() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in KINDS {
        for direction in DIRECTIONS {
            let path = form.peer_path(direction, "namespaces");
            let peer = |text: &str| form.peer(direction, &format!("namespaces: {{{text}}}"));
            let label = format!("{} of {}", direction.key(), form.label());
            let selected = peer("selector: {}");
            let mut one = limit(format!(
                "2.6 D65 D67 namespaces of {label} are self or selector"
            ))
            .fits("self", peer("self: true"))
            .fits("selector", selected.clone())
            .fits(
                "selector and except",
                peer("selector: {}, except: [{matchLabels: {a: b}}]"),
            )
            .means(
                "self false",
                peer("self: false, selector: {}"),
                selected.clone(),
            )
            .means(
                "null",
                peer("self: null, selector: {}, except: null"),
                selected.clone(),
            )
            .means("no except", peer("selector: {}, except: []"), selected);
            for fields in [
                "",
                "self: null",
                "self: false",
                "selector: null",
                "self: true, selector: {}",
                "self: true, except: [{matchLabels: {a: b}}]",
                "self: true, selector: {}, except: [{matchLabels: {a: b}}]",
            ] {
                one = one.violates(fields, peer(fields), "ONE-OF", &path);
            }
            limits.push(one);
            let mut alone = limit(format!("2.6 except of {label} needs selector"));
            for fields in [
                "except: [{matchLabels: {a: b}}]",
                "self: false, except: [{matchLabels: {a: b}}]",
                "selector: null, except: [{matchLabels: {a: b}}]",
            ] {
                alone = alone.violates(fields, peer(fields), "ONE-OF", &path);
            }
            limits.push(alone);
            let typed = [
                ("self: \"true\"", ".self"),
                ("self: 1", ".self"),
                ("self: {}", ".self"),
                ("selector: {}, except: {}", ".except"),
                ("selector: {}, except: [text]", ".except[0]"),
            ];
            let typed = typed.map(|(text, at)| (peer(text), format!("{path}{at}")));
            let name = format!("3.12 D123 types of namespaces of {label}");
            limits.push(all_violate(&name, "WRONG-TYPE", typed.into()));
            let unknown = ["matchLabels", "notSelf", "namespaceSelector", "related"].map(|key| {
                let document = peer(&format!("selector: {{}}, {key}: {{}}"));
                (document, format!("{path}.{key}"))
            });
            let name = format!("2.6 D26 unknown fields of namespaces of {label}");
            limits.push(all_violate(&name, "UNKNOWN-FIELD", unknown.into()));
        }
    }
    limits
}

fn unknown_fields() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in KINDS {
        let mut cases = Vec::new();
        for key in ["subject", "podSelector", "policyTypes"] {
            cases.push((form.spec(&format!("{key}: []")), format!("spec.{key}")));
        }
        for direction in DIRECTIONS {
            let (other, turned) = match (form.peers_key(Ingress), direction) {
                ("from", Ingress) => ("onlyFrom", "to"),
                ("from", Egress) => ("onlyTo", "from"),
                (_, Ingress) => ("from", "onlyTo"),
                (_, Egress) => ("to", "onlyFrom"),
            };
            for key in [other, turned, "protocols", "name"] {
                let change = format!("{}: []; {key}: []", form.peers_key(direction));
                cases.push((
                    form.rule(direction, &change),
                    format!("spec.{}[0].{key}", direction.key()),
                ));
            }
            for key in ["namespaceSelector", "pods", "networks", "nodes"] {
                let document = form.peer(direction, &format!("podSelector: {{}}, {key}: {{}}"));
                cases.push((document, form.peer_path(direction, key)));
            }
        }
        for key in ["portNumber", "namedPort", "number"] {
            cases.push((
                form.port(&format!("port: 80, {key}: 80")),
                form.port_path(key),
            ));
        }
        let name = format!("2.6 D17 D26 unknown fields of {}", form.label());
        limits.push(all_violate(&name, "UNKNOWN-FIELD", cases));
    }
    let action = DNP.rule(Ingress, "action: Allow");
    limits.push(limit("2.6 a DefaultNetworkPolicy has no action").violates(
        "Allow",
        action,
        "UNKNOWN-FIELD",
        "spec.ingress[0].action",
    ));
    limits
}

fn types() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in KINDS {
        let mut cases = Vec::new();
        for direction in DIRECTIONS {
            let path = form.peers_path(direction);
            for (text, at) in [("{}", ""), ("text", ""), ("[text]", "[0]")] {
                cases.push((form.peers(direction, text), format!("{path}{at}")));
            }
            for key in ["podSelector", "namespaces", "ipBlock"] {
                for value in ["[]", "text", "true"] {
                    let document = form.peer(direction, &format!("{key}: {value}"));
                    cases.push((document, form.peer_path(direction, key)));
                }
            }
        }
        let name = format!("3.12 D123 types of peers of {}", form.label());
        limits.push(all_violate(&name, "WRONG-TYPE", cases));
    }
    limits.push(required(
        "2.6 ipBlock.cidr of a DefaultNetworkPolicy beside except",
        &DNP.peer_path(Egress, "ipBlock.cidr"),
        DNP.peer(Egress, "ipBlock: {except: []}"),
        DNP.peer(Egress, "ipBlock: {cidr: null, except: []}"),
    ));
    limits
}
