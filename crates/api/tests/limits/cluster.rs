//! ClusterNetworkPolicy v1alpha2, section 2.4: peers, protocols and the peer `all`.

use palisade_core::policy::Direction::{Egress, Ingress};

use crate::documents::{CNP, DIRECTIONS};
use crate::harness::{Limit, all_violate, groups, limit, number, one_of, required};

groups! {
    peers: [peers, pods, everyone],
    protocols: [protocols, destination_ports, ranges, named_ports],
    fields: [fields],
    pruned: [pruned],
}

/// The fields of an egress peer; the first three also exist for ingress.
const PEERS: [&str; 6] = [
    "namespaces: {}",
    "pods: {podSelector: {}}",
    "all: {}",
    "networks: [10.0.0.0/8]",
    "nodes: {}",
    "domainNames: [a.example.com]",
];

fn peers() -> Vec<Limit> {
    let mut limits = Vec::new();
    for direction in DIRECTIONS {
        let known = match direction {
            Ingress => &PEERS[..3],
            Egress => &PEERS[..],
        };
        let path = CNP.peer_path(direction, "");
        let name = format!("2.4 D17 D57 a peer of {} is exactly one", direction.key());
        limits.push(one_of(&name, known, ("ONE-OF", &path), |text| {
            CNP.peer(direction, text)
        }));
        let mut unknown: Vec<&str> = PEERS.into_iter().skip(known.len()).collect();
        unknown.extend([
            "namespaceSelector: {}",
            "podSelector: {}",
            "ipBlock: {}",
            "sameLabels: []",
        ]);
        let cases = unknown.into_iter().map(|field| {
            let key = field.split(':').next().unwrap_or_default();
            let document = CNP.peer(direction, &format!("namespaces: {{}}, {field}"));
            (document, CNP.peer_path(direction, key))
        });
        let name = format!(
            "2.4 D17 D26 unknown fields of a peer of {}",
            direction.key()
        );
        limits.push(all_violate(&name, "UNKNOWN-FIELD", cases.collect()));
        let mut early = limit(format!("2.2 D38 shape N in a peer of {}", direction.key()));
        for field in [
            "namespaceSelector: {matchLabels: {a: b}}",
            "sameLabels: [a]",
            "related: Self",
        ] {
            let key = field.split(':').next().unwrap_or_default();
            let path = CNP.peer_path(direction, &format!("namespaces.{key}"));
            let document = CNP.peer(direction, &format!("namespaces: {{{field}}}"));
            early = early.violates(field, document, "UNKNOWN-FIELD", &path);
        }
        limits.push(early);
    }
    let path = CNP.peer_path(Ingress, "");
    let mut only_egress = limit("2.4 egress-only peers");
    for field in &PEERS[3..] {
        let key = field.split(':').next().unwrap_or_default();
        let inside = CNP.peer_path(Ingress, key);
        only_egress = only_egress.violates(key, CNP.peer(Ingress, field), "UNKNOWN-FIELD", &inside);
    }
    limits.push(only_egress.may("ONE-OF", &path));
    let mut channels = limit("2.4 D57 peers outside the standard channel warn");
    for field in ["nodes: {}", "domainNames: [a.example.com]", "all: {}"] {
        let key = field.split(':').next().unwrap_or_default();
        let path = CNP.peer_path(Egress, key);
        channels = channels.warns(key, CNP.peer(Egress, field), "CHANNEL", &path);
    }
    for field in [
        "namespaces: {}",
        "pods: {podSelector: {}}",
        "networks: [10.0.0.0/8]",
    ] {
        channels = channels.clean(field, CNP.peer(Egress, field));
    }
    limits.push(channels);
    limits
}

fn pods() -> Vec<Limit> {
    let mut limits = Vec::new();
    for direction in DIRECTIONS {
        let pods = |text: &str| CNP.peer(direction, &format!("pods: {{{text}}}"));
        let key = direction.key();
        let path = CNP.peer_path(direction, "pods.podSelector");
        let name = format!("2.4 D117 pods.podSelector of {key} is required");
        limits.push(required(
            &name,
            &path,
            pods("namespaceSelector: {}"),
            pods("podSelector: null"),
        ));
        let everywhere = pods("podSelector: {}, namespaceSelector: {}");
        limits.push(
            limit(format!(
                "2.4 E49 pods.namespaceSelector of {key} is all namespaces by default"
            ))
            .means("absent", pods("podSelector: {}"), everywhere.clone())
            .means(
                "null",
                pods("podSelector: {}, namespaceSelector: null"),
                everywhere,
            )
            .violates("{}", pods(""), "REQUIRED", &path),
        );
    }
    limits
}

fn everyone() -> Vec<Limit> {
    let mut limits = Vec::new();
    for direction in DIRECTIONS {
        let all = |text: &str| CNP.peer(direction, &format!("all: {text}"));
        let path = |inside: &str| CNP.peer_path(direction, &format!("all{inside}"));
        limits.push(
            limit(format!("2.4 D57 all of {} is empty", direction.key()))
                .fits("{}", all("{}"))
                .violates(
                    "inner all",
                    all("{all: {}}"),
                    "UNKNOWN-FIELD",
                    &path(".all"),
                )
                .violates(
                    "labels",
                    all("{matchLabels: {}}"),
                    "UNKNOWN-FIELD",
                    &path(".matchLabels"),
                )
                .violates("true", all("true"), "WRONG-TYPE", &path(""))
                .violates("list", all("[]"), "WRONG-TYPE", &path(""))
                .violates("text", all("everything"), "WRONG-TYPE", &path("")),
        );
    }
    limits
}

fn protocols() -> Vec<Limit> {
    let fields = [
        "tcp: {destinationPort: {number: 80}}",
        "udp: {destinationPort: {number: 80}}",
        "sctp: {destinationPort: {number: 80}}",
        "destinationNamedPort: http",
    ];
    let mut limits = vec![one_of(
        "2.4 D17 an entry of protocols is exactly one of four",
        &fields,
        ("ONE-OF", &CNP.port_path("")),
        |text| CNP.port(text),
    )];
    for protocol in ["tcp", "udp", "sctp"] {
        let port = |text: &str| CNP.port(&format!("{protocol}: {text}"));
        let path = CNP.port_path(&format!("{protocol}.destinationPort"));
        let name = format!("2.4 D50 4.4 {protocol} is not empty");
        limits.push(required(
            &name,
            &path,
            port("{}"),
            port("{destinationPort: null}"),
        ));
    }
    limits
}

/// A destination port of a protocol.
fn destination(protocol: &str, text: &str) -> String {
    CNP.port(&format!("{protocol}: {{destinationPort: {{{text}}}}}"))
}

fn destination_ports() -> Vec<Limit> {
    let mut limits = Vec::new();
    for protocol in ["tcp", "udp", "sctp"] {
        let path = CNP.port_path(&format!("{protocol}.destinationPort"));
        let fields = ["number: 80", "range: {start: 1, end: 2}"];
        let name = format!("2.4 {protocol}.destinationPort is one of two");
        limits.push(one_of(&name, &fields, ("ONE-OF", &path), |text| {
            destination(protocol, text)
        }));
        let name = format!("2.4 D29 {protocol}.destinationPort.number is 1 to 65535");
        limits.push(number(&name, 1..=65535, &format!("{path}.number"), |it| {
            destination(protocol, &format!("number: {it}"))
        }));
    }
    limits
}

fn ranges() -> Vec<Limit> {
    let mut limits = Vec::new();
    for protocol in ["tcp", "udp", "sctp"] {
        let label = format!("{protocol}.destinationPort.range");
        let path = |inside: &str| CNP.port_path(&format!("{label}{inside}"));
        let inside = |text: &str| destination(protocol, &format!("range: {{{text}}}"));
        let range = |start: i64, end: i64| inside(&format!("start: {start}, end: {end}"));
        let mut start = limit(format!("2.4 D29 {label}.start is 1 to 65535"));
        for fitting in [1, 2, 65533, 65534] {
            start = start.fits(&fitting.to_string(), range(fitting, 65535));
        }
        for violating in [0, 65536] {
            let document = range(violating, 65535);
            start = start.violates(
                &violating.to_string(),
                document,
                "OUT-OF-RANGE",
                &path(".start"),
            );
        }
        let mut end = limit(format!("2.4 D29 {label}.end is 1 to 65535"));
        for fitting in [2, 3, 65534, 65535] {
            end = end.fits(&fitting.to_string(), range(1, fitting));
        }
        for violating in [0, 65536] {
            let document = range(1, violating);
            end = end.violates(
                &violating.to_string(),
                document,
                "OUT-OF-RANGE",
                &path(".end"),
            );
        }
        limits.extend([start, end]);
        for (field, other) in [("start", "end: 2"), ("end", "start: 1")] {
            limits.push(required(
                &format!("2.4 {label}.{field} is required"),
                &path(&format!(".{field}")),
                inside(other),
                inside(&format!("{other}, {field}: null")),
            ));
        }
        limits.push(
            limit(format!("2.4 D17 D118 {label} starts below its end (CEL)"))
                .fits("one below", range(80, 81))
                .violates("equal", range(80, 80), "PORT-RANGE", &path(""))
                .violates("one above", range(81, 80), "PORT-RANGE", &path(""))
                .violates(
                    "equal at the most",
                    range(65535, 65535),
                    "PORT-RANGE",
                    &path(""),
                ),
        );
    }
    limits
}

fn named_ports() -> Vec<Limit> {
    let path = CNP.port_path("destinationNamedPort");
    let named = |text: &str| CNP.port(&format!("destinationNamedPort: {text}"));
    let mut beside = limit("2.4 D52 D60 D127 destinationNamedPort beside peers by address");
    let rule = |peer: &str| {
        let ports = "protocols: [{destinationNamedPort: http}]";
        CNP.rule(Egress, &format!("to: [{{{peer}}}]; {ports}"))
    };
    for peer in &PEERS[..2] {
        beside = beside.clean(peer, rule(peer));
    }
    for peer in &PEERS[2..] {
        beside = beside.fits(peer, rule(peer));
    }
    vec![
        limit("2.4 D17 4.4 destinationNamedPort is not empty")
            .fits("a name", named("http"))
            .violates("empty", named("\"\""), "PORT-NAME", &path),
        // The schema has neither a pattern nor a length.
        limit("2.4 D51 destinationNamedPort is free text")
            .fits("16 characters", named(&"a".repeat(16)))
            .fits("upper case", named("HTTP")),
        beside,
    ]
}

fn fields() -> Vec<Limit> {
    let case = |fields: &str, path: &str| (CNP.port(fields), CNP.port_path(path));
    let mut unknown = vec![
        case("destinationNamedPort: http, port: 80", "port"),
        case("destinationNamedPort: http, portNumber: {}", "portNumber"),
        case("destinationNamedPort: http, TCP: {}", "TCP"),
        case("destinationNamedPort: http, icmp: {}", "icmp"),
    ];
    let mut typed = vec![
        case("destinationNamedPort: 80", "destinationNamedPort"),
        case("destinationNamedPort: [http]", "destinationNamedPort"),
    ];
    for protocol in ["tcp", "udp", "sctp"] {
        let port = format!("{protocol}.destinationPort");
        for (text, at) in [
            ("{destinationPort: {number: 80}, port: 80}", ".port"),
            (
                "{destinationPort: {number: 80}, sourcePort: {}}",
                ".sourcePort",
            ),
            (
                "{destinationPort: {number: 80, port: 80}}",
                ".destinationPort.port",
            ),
            (
                "{destinationPort: {range: {start: 1, end: 2, step: 1}}}",
                ".destinationPort.range.step",
            ),
        ] {
            unknown.push(case(
                &format!("{protocol}: {text}"),
                &format!("{protocol}{at}"),
            ));
        }
        typed.extend([
            case(&format!("{protocol}: 80"), protocol),
            case(&format!("{protocol}: []"), protocol),
            case(&format!("{protocol}: {{destinationPort: 80}}"), &port),
        ]);
        for (text, at) in [
            ("number: \"80\"", "number"),
            ("number: http", "number"),
            ("number: 80.5", "number"),
            ("range: 1-2", "range"),
            ("range: [1, 2]", "range"),
            ("range: {start: \"1\", end: 2}", "range.start"),
            ("range: {start: 1, end: true}", "range.end"),
        ] {
            typed.push((
                destination(protocol, text),
                CNP.port_path(&format!("{port}.{at}")),
            ));
        }
    }
    vec![
        all_violate(
            "2.4 D17 D26 unknown fields of protocols",
            "UNKNOWN-FIELD",
            unknown,
        ),
        all_violate("3.12 D123 types of protocols", "WRONG-TYPE", typed),
    ]
}

fn pruned() -> Vec<Limit> {
    let peer = |text: &str| CNP.peer(Ingress, text);
    let everyone = peer("namespaces: {}");
    vec![
        limit("2.4 D38 D57 D128 what an API server stores")
            .means(
                "shape N",
                peer("namespaces: {namespaceSelector: {matchLabels: {a: b}}}"),
                everyone,
            )
            .when_pruned()
            .means(
                "shape N of pods",
                peer("pods: {namespaces: {related: Self}, podSelector: {}}"),
                peer("pods: {podSelector: {}}"),
            )
            .when_pruned()
            .violates(
                "all",
                peer("all: {}"),
                "ONE-OF",
                &CNP.peer_path(Ingress, ""),
            )
            .when_pruned()
            .violates(
                "C22 destinationPort beside tcp",
                CNP.port("tcp: null, destinationPort: {number: 80}"),
                "ONE-OF",
                &CNP.port_path(""),
            )
            .when_pruned(),
    ]
}
