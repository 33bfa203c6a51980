//! Ports of AdminNetworkPolicy and BaselineAdminNetworkPolicy, section 2.3.

use palisade_core::policy::Direction::Egress;

use crate::documents::{ANP, ANP_K, ANP_N, BANP, Form};
use crate::harness::{Limit, all_violate, groups, limit, number, one_of, required, words};

groups! {
    elements: [elements, named_ports, fields],
    numbers: [numbers, ranges],
    protocols: [protocols],
}

const FORMS: [&Form; 4] = [&ANP, &ANP_N, &ANP_K, &BANP];

fn elements() -> Vec<Limit> {
    let fields = [
        "portNumber: {protocol: TCP, port: 80}",
        "namedPort: http",
        "portRange: {protocol: TCP, start: 1, end: 2}",
    ];
    let limit = |form: &&Form| {
        let name = format!("2.3 D17 a port of {} is exactly one of three", form.label());
        one_of(&name, &fields, ("ONE-OF", &form.port_path("")), |text| {
            form.port(text)
        })
    };
    FORMS.iter().map(limit).collect()
}

fn numbers() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in FORMS {
        let label = form.label();
        let path = form.port_path("portNumber.port");
        let port = |text: &str| form.port(&format!("portNumber: {{protocol: TCP, port: {text}}}"));
        let name = format!("2.3 D29 portNumber.port of {label} is 1 to 65535");
        limits.push(number(&name, 1..=65535, &path, |it| port(&it.to_string())));
        limits.push(required(
            &format!("2.3 portNumber.port of {label} is required"),
            &path,
            form.port("portNumber: {protocol: TCP}"),
            port("null"),
        ));
        limits.push(
            limit(format!("2.3 portNumber of {label} is not empty")).violates(
                "{}",
                form.port("portNumber: {}"),
                "REQUIRED",
                &path,
            ),
        );
    }
    limits
}

fn ranges() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in FORMS {
        let label = form.label();
        let path = |inside: &str| form.port_path(&format!("portRange{inside}"));
        let range = |start: &str, end: &str| {
            form.port(&format!(
                "portRange: {{protocol: TCP, start: {start}, end: {end}}}"
            ))
        };
        let name = format!("2.3 D29 portRange.start of {label} is 1 to 65535");
        limits.push(number(&name, 1..=65535, &path(".start"), |it| {
            range(&it.to_string(), "65535")
        }));
        let name = format!("2.3 D29 portRange.end of {label} is 1 to 65535");
        limits.push(number(&name, 1..=65535, &path(".end"), |it| {
            range("1", &it.to_string())
        }));
        for (field, other) in [("start", "end: 2"), ("end", "start: 1")] {
            limits.push(required(
                &format!("2.3 portRange.{field} of {label} is required"),
                &path(&format!(".{field}")),
                form.port(&format!("portRange: {{{other}}}")),
                form.port(&format!("portRange: {{{other}, {field}: null}}")),
            ));
        }
        limits.push(
            limit(format!(
                "2.3 D17 D42 portRange of {label} starts below its end"
            ))
            .clean("one below", range("80", "81"))
            .warns("equal", range("80", "80"), "PORT-RANGE-SINGLE", &path(""))
            .means(
                "equal is one port",
                range("80", "80"),
                form.port("portNumber: {protocol: TCP, port: 80}"),
            )
            .violates("one above", range("81", "80"), "PORT-RANGE", &path("")),
        );
    }
    limits
}

fn protocols() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in FORMS {
        for (field, rest) in [
            ("portNumber", "port: 80"),
            ("portRange", "start: 1, end: 2"),
        ] {
            let label = format!("{field}.protocol of {}", form.label());
            let path = form.port_path(&format!("{field}.protocol"));
            let protocol =
                |word: &str| form.port(&format!("{field}: {{protocol: {word}, {rest}}}"));
            let name = format!("2.3 D40 {label}");
            let wrong = ["ICMP", "ANY", "6"];
            limits.push(words(
                &name,
                &["TCP", "UDP", "SCTP"],
                &wrong,
                &path,
                protocol,
            ));
            let tcp = protocol("TCP");
            limits.push(
                limit(format!("2.3 D40 D117 {label} is TCP by default"))
                    .means(
                        "absent",
                        form.port(&format!("{field}: {{{rest}}}")),
                        tcp.clone(),
                    )
                    .means("null", protocol("null"), tcp.clone())
                    .means("empty", protocol("\"\""), tcp),
            );
        }
    }
    limits
}

fn named_ports() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in [&ANP, &BANP] {
        let label = form.label();
        let named = |peer: &str| {
            form.rule(
                Egress,
                &format!("to: [{{{peer}}}]; ports: [{{namedPort: http}}]"),
            )
        };
        let mut beside = limit(format!("2.3 D127 namedPort beside peers of {label}"))
            .clean("namespaces", named("namespaces: {}"));
        let mut peers = vec!["networks: [10.0.0.0/8]", "nodes: {}"];
        if !form.is_baseline() {
            peers.push("domainNames: [a.example.com]");
        }
        for peer in peers {
            beside = beside.fits(peer, named(peer));
        }
        limits.push(beside);
        // The schema has neither a pattern nor a length.
        limits.push(
            limit(format!("2.3 namedPort of {label} is free text"))
                .fits(
                    "16 characters",
                    form.port(&format!("namedPort: {}", "a".repeat(16))),
                )
                .fits("upper case", form.port("namedPort: HTTP")),
        );
    }
    limits
}

fn fields() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in FORMS {
        let label = form.label();
        let case = |fields: &str, path: &str| (form.port(fields), form.port_path(path));
        let unknown = vec![
            case("namedPort: http, port: 80", "port"),
            case("namedPort: http, protocol: TCP", "protocol"),
            case("namedPort: http, tcp: {}", "tcp"),
            case("portNumber: {port: 80, number: 80}", "portNumber.number"),
            case("portNumber: {port: 80, endPort: 90}", "portNumber.endPort"),
            case("portRange: {start: 1, end: 2, port: 3}", "portRange.port"),
        ];
        limits.push(all_violate(
            &format!("2.3 D17 D26 unknown fields of a port of {label}"),
            "UNKNOWN-FIELD",
            unknown,
        ));
        let typed = vec![
            case("portNumber: 80", "portNumber"),
            case("portNumber: {port: http}", "portNumber.port"),
            case("portNumber: {port: \"80\"}", "portNumber.port"),
            case("portNumber: {port: 80.5}", "portNumber.port"),
            case("portNumber: {protocol: 6, port: 80}", "portNumber.protocol"),
            case("portRange: 1-2", "portRange"),
            case("portRange: [1, 2]", "portRange"),
            case("portRange: {start: \"1\", end: 2}", "portRange.start"),
            case("portRange: {start: 1, end: true}", "portRange.end"),
            case("namedPort: 80", "namedPort"),
            case("namedPort: {name: http}", "namedPort"),
        ];
        limits.push(all_violate(
            &format!("3.12 D123 types of a port of {label}"),
            "WRONG-TYPE",
            typed,
        ));
    }
    limits
}
