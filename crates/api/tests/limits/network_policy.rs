//! NetworkPolicy v1, section 2.1, and its ports, which the kinds of 2021 share.

use palisade_api::{NetworkPolicyPeer, Object, ObjectSpec, PortMatch};
use palisade_core::net::{PortRange, Protocol};
use palisade_core::policy::Direction::{self, Egress, Ingress};

use crate::documents::{CNP0, DIRECTIONS, DNP, Form, NP, NP0, NP0_SHIPPED};
use crate::harness::{
    Limit, all_violate, entries, groups, length, limit, number, unlimited, words,
};

groups! {
    spec: [pod_selector, policy_types, rules],
    peers: [peers],
    ports: [protocols, ports, names_of_ports, end_ports],
    lists: [lists_without_limits],
    fields: [unknown_fields, types],
}

fn pod_selector() -> Vec<Limit> {
    vec![
        limit("2.1 spec.podSelector is all pods by default")
            .means(
                "absent",
                NP.spec("-podSelector"),
                NP.spec("podSelector: {}"),
            )
            .means(
                "null",
                NP.spec("podSelector: null"),
                NP.spec("podSelector: {}"),
            ),
    ]
}

fn isolates(object: &Object<'_>, direction: Direction) -> bool {
    matches!(&object.spec, ObjectSpec::NetworkPolicy(policy) if policy.isolates(direction))
}

fn policy_types() -> Vec<Limit> {
    let only_ingress = |it: &Object<'_>| isolates(it, Ingress) && !isolates(it, Egress);
    let only_egress = |it: &Object<'_>| !isolates(it, Ingress) && isolates(it, Egress);
    let both = |it: &Object<'_>| isolates(it, Ingress) && isolates(it, Egress);
    let types = |text: &str| NP.spec(&format!("policyTypes: {text}"));
    vec![
        limit("2.1 default of spec.policyTypes")
            .reads("absent", NP.spec(""), only_ingress)
            .reads("null", types("null"), only_ingress)
            .reads("none", types("[]"), only_ingress)
            .reads("E4 no egress rules", NP.spec("egress: []"), only_ingress)
            .reads("null egress", NP.spec("egress: null"), only_ingress)
            .reads("egress rules", NP.spec("egress: [{}]"), both)
            .reads(
                "none and egress rules",
                NP.spec("policyTypes: []; egress: [{}]"),
                both,
            )
            .reads(
                "E5 Egress",
                NP.spec("policyTypes: [Egress]; ingress: [{}]"),
                only_egress,
            )
            .reads("both", types("[Ingress, Egress]"), both),
        limit("2.1 spec.policyTypes has at most 2 entries")
            .fits("1", types("[Ingress]"))
            .fits("2", types("[Ingress, Egress]"))
            .fits("2 alike", types("[Egress, Egress]"))
            .violates(
                "3",
                types("[Ingress, Egress, Ingress]"),
                "TOO-MANY",
                "spec.policyTypes",
            ),
        words(
            "2.1 D102 D105 entries of spec.policyTypes",
            &["Ingress", "Egress"],
            &["", "Both", "ingres"],
            "spec.policyTypes[0]",
            |word| types(&format!("[{word}]")),
        ),
        limit("2.1 D102 the second entry of spec.policyTypes").violates(
            "Both",
            types("[Ingress, Both]"),
            "UNKNOWN-VALUE",
            "spec.policyTypes[1]",
        ),
    ]
}

fn rules() -> Vec<Limit> {
    let mut limits = Vec::new();
    for direction in DIRECTIONS {
        let key = direction.key();
        let spec = |text: &str| NP.spec(&format!("{key}: {text}"));
        limits.push(
            limit(format!("2.1 D24 D36 spec.{key} has no rules by default"))
                .means("null", spec("null"), NP.spec(""))
                .means("none", spec("[]"), NP.spec("")),
        );
        let peers = NP.peers_key(direction);
        let everything = spec("[{}]");
        let mut rule = limit(format!("2.1 a rule of spec.{key} is everything by default"))
            .fits("{}", everything.clone());
        for field in [peers, "ports"] {
            for (case, value) in [("null", "null"), ("none", "[]")] {
                let document = spec(&format!("[{{{field}: {value}}}]"));
                rule = rule.means(&format!("{field} {case}"), document, everything.clone());
            }
        }
        limits.push(rule);
    }
    limits
}

fn peers() -> Vec<Limit> {
    let pods = "podSelector: {}";
    let namespaces = "namespaceSelector: {}";
    let block = "ipBlock: {cidr: 10.0.0.0/8}";
    let mut limits = Vec::new();
    for direction in DIRECTIONS {
        let path = NP.peer_path(direction, "");
        let peer = |fields: &[&str]| NP.peer(direction, &fields.join(", "));
        let mut limit = limit(format!(
            "2.1 a peer of {} is selectors or ipBlock",
            direction.key()
        ))
        .fits("podSelector", peer(&[pods]))
        .fits("namespaceSelector", peer(&[namespaces]))
        .fits("both selectors", peer(&[pods, namespaces]))
        .fits("ipBlock", peer(&[block]))
        .means(
            "null beside a selector (D24)",
            peer(&[pods, "namespaceSelector: null", "ipBlock: null"]),
            peer(&[pods]),
        );
        for fields in [
            &[] as &[&str],
            &["podSelector: null"],
            &["namespaceSelector: null"],
            &["ipBlock: null"],
            &[block, pods],
            &[block, namespaces],
            &[block, pods, namespaces],
        ] {
            limit = limit.violates(&fields.join(", "), peer(fields), "ONE-OF", &path);
        }
        limits.push(limit);
    }
    limits.push(
        limit("2.1 podSelector alone leaves the namespace open").reads(
            "the policy's own",
            NP.peer(Ingress, pods),
            |it| {
                let ObjectSpec::NetworkPolicy(policy) = &it.spec else {
                    return false;
                };
                let peers = policy.ingress.first().map(|rule| rule.peers.as_deref());
                matches!(
                    peers,
                    Some(Ok([Ok(NetworkPolicyPeer::Pods {
                        namespaces: None,
                        pods: Some(_)
                    })]))
                )
            },
        ),
    );
    limits
}

/// The forms that share the ports of NetworkPolicy.
const FORMS: [&Form; 3] = [&NP, &CNP0, &DNP];
const WITH_2016: [&Form; 5] = [&NP, &CNP0, &DNP, &NP0, &NP0_SHIPPED];

fn all_of_tcp(object: &Object<'_>) -> bool {
    let ObjectSpec::NetworkPolicy(policy) = &object.spec else {
        return false;
    };
    let ports = policy.ingress.first().map(|rule| rule.ports.as_deref());
    let all = PortMatch::Numbers(Protocol::Tcp, PortRange::ALL);
    matches!(ports, Some(Ok([Ok(port)])) if *port == all)
}

fn protocols() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in WITH_2016 {
        let path = form.port_path("protocol");
        let port = |word: &str| form.port(&format!("protocol: {word}, port: 80"));
        let (legal, wrong): (&[&str], &[&str]) = match form.is_2016() {
            true => (&["TCP", "UDP"], &["", "ICMP", "SCTP", "6"]),
            false => (&["TCP", "UDP", "SCTP"], &["", "ICMP", "ANY", "6"]),
        };
        let name = format!("2.1 2.7 D72 protocol of a port of {}", form.label());
        limits.push(words(&name, legal, wrong, &path, port));
        let tcp = form.port("protocol: TCP, port: 80");
        let all = form.port("protocol: TCP");
        limits.push(
            limit(format!(
                "2.1 D30 a port of {} is of TCP by default",
                form.label()
            ))
            .means("absent", form.port("port: 80"), tcp.clone())
            .means("null", form.port("protocol: null, port: 80"), tcp)
            .means("{} is all of TCP", form.port(""), all),
        );
    }
    limits.push(limit("2.1 D30 an empty port is all of TCP").reads("{}", NP.port(""), all_of_tcp));
    limits
}

fn ports() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in WITH_2016 {
        let label = form.label();
        let path = form.port_path("port");
        let port = |text: &str| form.port(&format!("port: {text}"));
        limits.push(number(
            &format!("2.1 D29 port of {label} is 1 to 65535"),
            1..=65535,
            &path,
            |it| port(&it.to_string()),
        ));
        limits.push(
            limit(format!("2.1 port of {label} is all ports by default"))
                .means("null", port("null"), form.port(""))
                .violates("-1", port("-1"), "OUT-OF-RANGE", &path)
                .violates("beyond 32 bits", port("4294967376"), "OUT-OF-RANGE", &path),
        );
    }
    limits
}

fn names_of_ports() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in WITH_2016 {
        let label = form.label();
        let path = form.port_path("port");
        let port = |text: &str| form.port(&format!("port: \"{text}\""));
        let name = format!("2.1 a port name of {label} has 15 characters");
        limits.push(length(&name, 15, ("PORT-NAME", &path), port));
        let mut names = limit(format!("2.1 D32 D121 port names of {label}"));
        for good in ["a", "http", "http-2", "80a", "a-b-c"] {
            names = names.fits(good, port(good));
        }
        for bad in [
            "", "80", "8-0", "HTTP", "Http", "a_b", "a.b", "a b", "é", "8080:80",
        ] {
            names = names.violates(bad, port(bad), "PORT-NAME", &path);
        }
        limits.push(names);
    }
    limits
}

fn end_ports() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in FORMS {
        let label = form.label();
        let path = form.port_path("endPort");
        let ends = |port: &str, end: &str| form.port(&format!("port: {port}, endPort: {end}"));
        limits.push(
            limit(format!("2.1 endPort of {label} is not below port"))
                .fits("one above", ends("8000", "8001"))
                .fits("equal", ends("8000", "8000"))
                .violates("one below", ends("8000", "7999"), "PORT-RANGE", &path)
                .violates("far below", ends("65535", "1"), "PORT-RANGE", &path),
        );
        limits.push(number(
            &format!("2.1 D29 endPort of {label} is 1 to 65535"),
            1..=65535,
            &path,
            |it| ends("1", &it.to_string()),
        ));
        limits.push(
            limit(format!("2.1 endPort of {label} needs a numeric port"))
                .means("null", ends("80", "null"), form.port("port: 80"))
                .violates("no port", form.port("endPort: 90"), "PORT-RANGE", &path)
                .violates("null port", ends("null", "90"), "PORT-RANGE", &path)
                .violates("a name", ends("http", "90"), "PORT-RANGE", &path),
        );
    }
    limits
}

fn lists_without_limits() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in WITH_2016 {
        let label = form.label();
        let directions: &[Direction] = match form.is_2016() {
            true => &[Ingress],
            false => &DIRECTIONS,
        };
        for direction in directions {
            let key = direction.key();
            let name = format!("2.1 {key} of {label} has no most");
            limits.push(unlimited(&name, |count| form.rules(*direction, count)));
            let peer = match form.is_2016() {
                true => "{pods: {}}",
                false => "{podSelector: {}}",
            };
            let name = format!("2.1 D66 peers of {key} of {label} have no most");
            limits.push(unlimited(&name, |count| {
                form.peers(*direction, &entries(count, |_| peer.to_owned()))
            }));
        }
        limits.push(unlimited(
            &format!("2.1 ports of {label} have no most"),
            |count| form.ports(&entries(count, |it| format!("{{port: {}}}", it + 1))),
        ));
    }
    limits
}

fn unknown_fields() -> Vec<Limit> {
    let mut cases = vec![(NP.spec("subject: {}"), "spec.subject".to_owned())];
    for direction in DIRECTIONS {
        let wrong_way = match direction {
            Ingress => "to",
            Egress => "from",
        };
        for field in ["action: Allow", "name: a", "protocols: []", "port: 80"] {
            let key = field.split(':').next().unwrap_or_default();
            cases.push((
                NP.rule(direction, field),
                format!("spec.{}[0].{key}", direction.key()),
            ));
        }
        cases.push((
            NP.rule(
                direction,
                &format!("{}: []; {wrong_way}: []", NP.peers_key(direction)),
            ),
            format!("spec.{}[0].{wrong_way}", direction.key()),
        ));
        for field in ["namespaces", "pods", "networks", "cidr"] {
            let fields = format!("podSelector: {{}}, {field}: {{}}");
            cases.push((NP.peer(direction, &fields), NP.peer_path(direction, field)));
        }
    }
    for field in ["portNumber", "endport", "number", "targetPort"] {
        cases.push((
            NP.port(&format!("port: 80, {field}: 80")),
            NP.port_path(field),
        ));
    }
    vec![all_violate(
        "2.1 D26 unknown fields of NetworkPolicy",
        "UNKNOWN-FIELD",
        cases,
    )]
}

fn types() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in WITH_2016 {
        let mut cases = Vec::new();
        for (fields, field) in [
            ("port: 80.5", "port"),
            ("port: true", "port"),
            ("port: [80]", "port"),
            ("port: {number: 80}", "port"),
            ("protocol: 6, port: 80", "protocol"),
            ("protocol: [TCP], port: 80", "protocol"),
        ] {
            cases.push((form.port(fields), form.port_path(field)));
        }
        for (ports, at) in [("{}", ""), ("80", ""), ("[80]", "[0]"), ("[http]", "[0]")] {
            cases.push((form.ports(ports), format!("spec.ingress[0].ports{at}")));
        }
        let peers = form.peers_path(Ingress);
        for (text, at) in [("{}", ""), ("text", ""), ("[text]", "[0]"), ("[[]]", "[0]")] {
            cases.push((form.peers(Ingress, text), format!("{peers}{at}")));
        }
        let name = format!("3.12 D123 types in the rules of {}", form.label());
        limits.push(all_violate(&name, "WRONG-TYPE", cases));
    }
    for form in FORMS {
        let mut cases = Vec::new();
        for end in ["\"90\"", "90.5", "http", "true"] {
            let document = form.port(&format!("port: 80, endPort: {end}"));
            cases.push((document, form.port_path("endPort")));
        }
        let name = format!("3.12 D123 types of endPort of {}", form.label());
        limits.push(all_violate(&name, "WRONG-TYPE", cases));
    }
    let cases = [
        ("{}", ""),
        ("Ingress", ""),
        ("[1]", "[0]"),
        ("[[Ingress]]", "[0]"),
    ];
    let cases = cases.map(|(text, at)| {
        let document = NP.spec(&format!("policyTypes: {text}"));
        (document, format!("spec.policyTypes{at}"))
    });
    limits.push(all_violate(
        "2.1 D123 types of policyTypes",
        "WRONG-TYPE",
        cases.into(),
    ));
    limits
}
