//! The common rules of AdminNetworkPolicy, BaselineAdminNetworkPolicy and ClusterNetworkPolicy,
//! sections 2.3 and 2.4: priority, lists, names, actions, `status`.

use palisade_core::policy::Direction::{self, Egress, Ingress};

use crate::documents::{
    ANP, ANP_K, ANP_N, BANP, BANP_K, BANP_N, CNP, CNP0, DIRECTIONS, DNP, Form, NP, NP0,
};
use crate::harness::{
    Limit, all_violate, entries, groups, length, limit, list, number, required, words,
};

groups! {
    tiers_and_priorities: [tiers, priorities],
    lists: [numbers_of_rules, numbers_of_peers, numbers_of_ports],
    names_and_actions: [names_of_rules, actions],
    fields: [unknown_fields, types],
    status: [status],
}

/// The kinds with rules that have actions, and the maximum of their rules, peers and ports.
const KINDS: [(&Form, usize); 3] = [(&ANP, 100), (&BANP, 100), (&CNP, 25)];

fn tiers() -> Vec<Limit> {
    let tier = |text: &str| CNP.spec(&format!("tier: {text}"));
    let wrong = ["", "Default", "NetworkPolicy", "Admins"];
    let mut limits = vec![
        words(
            "2.4 D19 spec.tier",
            &["Admin", "Baseline"],
            &wrong,
            "spec.tier",
            tier,
        ),
        required(
            "2.4 D115 spec.tier is required",
            "spec.tier",
            CNP.spec("-tier"),
            tier("null"),
        ),
        limit("2.4 D123 type of spec.tier").violates("1", tier("1"), "WRONG-TYPE", "spec.tier"),
    ];
    for form in [&NP, &ANP, &BANP, &CNP0, &DNP, &NP0] {
        let name = format!("2.3 D26 {} has no tier", form.label());
        let document = form.spec("tier: Admin");
        limits.push(limit(name).violates("tier", document, "UNKNOWN-FIELD", "spec.tier"));
    }
    limits
}

fn priorities() -> Vec<Limit> {
    let mut limits = Vec::new();
    let path = "spec.priority";
    for form in [&ANP, &ANP_N, &ANP_K, &CNP] {
        let name = |what: &str| format!("2.3 2.4 D116 spec.priority of {} {what}", form.label());
        let priority = |text: &str| {
            let rule = form.rules(Ingress, 1);
            rule.replace("priority: 10,", &format!("priority: {text},"))
        };
        limits.push(number(&name("is 0 to 1000"), 0..=1000, path, |it| {
            priority(&it.to_string())
        }));
        let mut far = limit(name("far outside"));
        for number in [
            "-2147483648",
            "2147483647",
            "2147483648",
            "9223372036854775807",
        ] {
            far = far.violates(number, priority(number), "OUT-OF-RANGE", path);
        }
        limits.push(far);
        let absent = form.spec("-priority");
        limits.push(required(
            &name("is required"),
            path,
            absent,
            priority("null"),
        ));
        let typed = ["\"10\"", "10.5", "true", "[10]", "{}", "high"];
        let typed = typed.map(|text| (priority(text), path.to_owned()));
        limits.push(all_violate(
            &name("is a number"),
            "WRONG-TYPE",
            typed.into(),
        ));
    }
    for form in [&NP, &BANP, &CNP0, &DNP, &NP0] {
        let name = format!("2.3 2.6 {} has no priority", form.label());
        let document = form.spec("priority: 10");
        limits.push(limit(name).violates("10", document, "UNKNOWN-FIELD", path));
    }
    limits
}

fn numbers_of_rules() -> Vec<Limit> {
    let mut limits = Vec::new();
    let early = [(&ANP_N, 100), (&ANP_K, 100), (&BANP_N, 100), (&BANP_K, 100)];
    for (form, most) in KINDS.into_iter().chain(early) {
        for direction in DIRECTIONS {
            let key = direction.key();
            let rules = |count| form.rules(direction, count);
            let name = format!(
                "2.3 2.4 D119 C6 spec.{key} of {} at most {most}",
                form.label()
            );
            limits.push(list(&name, 0..=most, &format!("spec.{key}"), rules));
            limits.push(
                limit(format!(
                    "2.3 2.4 D24 spec.{key} of {} is optional",
                    form.label()
                ))
                .means("none", rules(0), form.spec(""))
                .means("null", form.spec(&format!("{key}: null")), form.spec("")),
            );
        }
        let rules = |direction: Direction| {
            let rules = vec![form.rule_text(direction, ""); most];
            format!("{}: [{}]", direction.key(), rules.join(", "))
        };
        let both = form.spec(&DIRECTIONS.map(rules).join("; "));
        let name = format!(
            "2.3 2.4 C6 {most} rules for each direction of {}",
            form.label()
        );
        limits.push(limit(name).fits("both", both));
    }
    limits
}

fn names_of_rules() -> Vec<Limit> {
    let mut limits = Vec::new();
    for (form, _) in KINDS {
        for direction in DIRECTIONS {
            let key = direction.key();
            let path = format!("spec.{key}[0].name");
            let name = |text: &str| form.rule(direction, &format!("name: \"{text}\""));
            let label = format!("2.3 2.4 rule.name of {key} of {}", form.label());
            let too_long = ("TOO-LONG", path.as_str());
            limits.push(length(
                &format!("{label} has 100 characters"),
                100,
                too_long,
                name,
            ));
            let wide = |count: usize| name(&"é".repeat(count));
            limits.push(
                limit(format!("{label} counts characters, not bytes"))
                    .fits("100", wide(100))
                    .violates("101", wide(101), "TOO-LONG", &path),
            );
            let rule = form.rule_text(direction, "name: a");
            limits.push(
                limit(format!("{label} C8 is optional and not unique"))
                    .means(
                        "null",
                        form.rule(direction, "name: null"),
                        form.rule(direction, ""),
                    )
                    .fits("empty", name(""))
                    .fits("spaces", name("allow all of it"))
                    .fits("twice", form.spec(&format!("{key}: [{rule}, {rule}]"))),
            );
        }
    }
    limits
}

fn actions() -> Vec<Limit> {
    let mut limits = Vec::new();
    let others: [(&Form, &[&str], &[&str]); 3] = [
        (&ANP, &["Allow", "Deny", "Pass"], &["", "Accept", "Log"]),
        (&BANP, &["Allow", "Deny"], &["", "Accept", "Pass"]),
        (&CNP, &["Accept", "Deny", "Pass"], &["", "Allow", "Drop"]),
    ];
    let early: [(&Form, &[&str], &[&str]); 5] = [
        (&ANP_K, others[0].1, others[0].2),
        (&ANP_N, others[0].1, others[0].2),
        (&BANP_K, others[1].1, others[1].2),
        (&BANP_N, others[1].1, others[1].2),
        (&CNP0, &["Allow", "Deny"], &["", "Accept", "Pass"]),
    ];
    for (form, legal, wrong) in others.into_iter().chain(early) {
        for direction in DIRECTIONS {
            let path = format!("spec.{}[0].action", direction.key());
            let action = |word: &str| form.rule(direction, &format!("action: {word}"));
            let label = format!("{} of {}", direction.key(), form.label());
            limits.push(words(
                &format!("2.3 2.4 2.6 D18 action of {label}"),
                legal,
                wrong,
                &path,
                action,
            ));
            let name = format!("2.3 2.4 2.6 D112 action of {label} is required");
            limits.push(required(
                &name,
                &path,
                form.rule(direction, "-action"),
                action("null"),
            ));
            let typed = ["1", "true", "[Deny]", "{}"].map(|text| (action(text), path.clone()));
            let name = format!("3.12 D123 type of action of {label}");
            limits.push(all_violate(&name, "WRONG-TYPE", typed.into()));
        }
    }
    for action in ["Accept", "Deny", "Pass"] {
        let rules = format!(
            "tier: Baseline; ingress: [{{action: {action}, from: [{{namespaces: {{}}}}]}}]"
        );
        let name = format!("2.4 action {action} in the Baseline tier");
        limits.push(limit(name).fits(action, CNP.spec(&rules)));
    }
    limits
}

fn numbers_of_peers() -> Vec<Limit> {
    let mut limits = Vec::new();
    for (form, peer, most) in [
        (&ANP, "{namespaces: {}}", 100),
        (&ANP_N, "{namespaces: {namespaceSelector: {}}}", 100),
        (&ANP_K, "{namespaces: {related: Self}}", 100),
        (&BANP, "{namespaces: {}}", 100),
        (&CNP, "{namespaces: {}}", 25),
    ] {
        for direction in DIRECTIONS {
            let path = form.peers_path(direction);
            let label = format!("{path} of {}", form.label());
            let peers = |count| form.peers(direction, &entries(count, |_| peer.to_owned()));
            let name = format!("2.3 2.4 D17 {label} has 1 to {most}");
            limits.push(list(&name, 1..=most, &path, peers));
            let key = form.peers_key(direction);
            let absent = form.rule(direction, &format!("-{key}"));
            let null = form.peers(direction, "null");
            limits.push(required(
                &format!("2.3 2.4 D17 {label} is required"),
                &path,
                absent,
                null,
            ));
        }
    }
    // Before v0.1.2 a BaselineAdminNetworkPolicy had no maximum.
    for (form, peer) in [
        (&BANP_N, "{namespaces: {namespaceSelector: {}}}"),
        (&BANP_K, "{namespaces: {related: Self}}"),
    ] {
        for direction in DIRECTIONS {
            let path = form.peers_path(direction);
            let mut limit = limit(format!("2.3 D17 {path} of early {}", form.label()));
            for count in [1, 2, 99, 100, 101] {
                let peers = form.peers(direction, &entries(count, |_| peer.to_owned()));
                limit = limit.fits(&count.to_string(), peers);
            }
            limits.push(limit.violates("0", form.peers(direction, "[]"), "TOO-FEW", &path));
        }
    }
    limits
}

fn numbers_of_ports() -> Vec<Limit> {
    let mut limits = Vec::new();
    for (form, least, most) in [
        (&ANP, 0, 100),
        (&ANP_N, 0, 100),
        (&ANP_K, 0, 100),
        (&BANP, 0, 100),
        (&BANP_N, 0, 100),
        (&BANP_K, 0, 100),
        (&CNP, 1, 25),
    ] {
        for direction in DIRECTIONS {
            let key = form.ports_key();
            let path = format!("spec.{}[0].{key}", direction.key());
            let ports = |text: &str| form.rule(direction, &format!("{key}: {text}"));
            let name = format!(
                "2.3 2.4 D39 D117 {path} of {} are {least} to {most}",
                form.label()
            );
            limits.push(list(&name, least..=most, &path, |count| {
                ports(&entries(count, |it| match key {
                    "ports" => format!("{{portNumber: {{protocol: TCP, port: {}}}}}", it + 1),
                    _ => format!("{{tcp: {{destinationPort: {{number: {}}}}}}}", it + 1),
                }))
            }));
            let name = format!("2.3 2.4 D24 {path} of {} is optional", form.label());
            let unfiltered = form.rule(direction, "");
            let mut optional = limit(name).means("null", ports("null"), unfiltered.clone());
            if least == 0 {
                optional = optional.means("D39 none", ports("[]"), unfiltered);
            }
            limits.push(optional);
        }
    }
    limits
}

fn unknown_fields() -> Vec<Limit> {
    let mut limits = Vec::new();
    for (form, _) in KINDS {
        let ports = if form.ports_key() == "protocols" {
            "ports"
        } else {
            "protocols"
        };
        for direction in DIRECTIONS {
            let turned = match direction {
                Ingress => "to",
                Egress => "from",
            };
            let keys = [turned, ports, "onlyFrom", "port", "description", "Action"];
            let cases = keys.map(|key| {
                let path = format!("spec.{}[0].{key}", direction.key());
                (form.rule(direction, &format!("{key}: []")), path)
            });
            let name = format!(
                "2.3 2.4 D17 D26 unknown fields of {} of {}",
                direction.key(),
                form.label()
            );
            limits.push(all_violate(&name, "UNKNOWN-FIELD", cases.into()));
        }
    }
    limits
}

fn types() -> Vec<Limit> {
    let mut limits = Vec::new();
    for (form, _) in KINDS {
        let mut cases = Vec::new();
        for direction in DIRECTIONS {
            let rule = format!("spec.{}[0]", direction.key());
            let peers = form.peers_key(direction);
            let ports = form.ports_key();
            for (change, at) in [
                ("name: 1".to_owned(), "name".to_owned()),
                ("name: [a]".to_owned(), "name".to_owned()),
                (format!("{peers}: {{}}"), peers.to_owned()),
                (format!("{peers}: text"), peers.to_owned()),
                (format!("{peers}: [text]"), format!("{peers}[0]")),
                (format!("{peers}: [[]]"), format!("{peers}[0]")),
                (format!("{ports}: {{}}"), ports.to_owned()),
                (format!("{ports}: 80"), ports.to_owned()),
                (format!("{ports}: [80]"), format!("{ports}[0]")),
            ] {
                cases.push((form.rule(direction, &change), format!("{rule}.{at}")));
            }
            for (fields, at) in [
                ("namespaces: []", "namespaces"),
                ("pods: []", "pods"),
                ("pods: text", "pods"),
            ] {
                cases.push((form.peer(direction, fields), form.peer_path(direction, at)));
            }
        }
        let name = format!("3.12 D123 types in the rules of {}", form.label());
        limits.push(all_violate(&name, "WRONG-TYPE", cases));
    }
    limits
}

fn condition(kind: &str) -> String {
    let rest = "reason: a, message: a, lastTransitionTime: \"2024-01-01T00:00:00Z\"";
    format!("{{type: {kind}, status: \"True\", {rest}}}")
}

fn status() -> Vec<Limit> {
    let mut limits = Vec::new();
    for (form, _) in KINDS {
        let status = |text: &str| form.top(&format!("status: {text}"));
        let conditions = |kinds: &[&str]| {
            let conditions: Vec<String> = kinds.iter().map(|kind| condition(kind)).collect();
            status(&format!("{{conditions: [{}]}}", conditions.join(", ")))
        };
        let path = "status.conditions";
        limits.push(
            limit(format!("2.3 2.4 status of {} has conditions", form.label()))
                // A program in Go writes this for none.
                .fits("null", status("{conditions: null}"))
                .violates("absent", status("{}"), "REQUIRED", path),
        );
        limits.push(
            limit(format!(
                "2.3 2.4 conditions of {} are a map by type",
                form.label()
            ))
            .fits("no status", form.spec(""))
            .fits("null", status("null"))
            .fits("none", conditions(&[]))
            .fits("two", conditions(&["A", "B"]))
            .violates(
                "twice",
                conditions(&["A", "B", "A"]),
                "DUPLICATE-ITEM",
                "status.conditions[2].type",
            ),
        );
    }
    // The list was not a map before v0.1.3.
    for form in [&ANP_N, &BANP_N] {
        let both = format!(
            "status: {{conditions: [{}, {}]}}",
            condition("A"),
            condition("A")
        );
        let document = format!("{}{both}\n", form.rules(Ingress, 1));
        limits.push(
            limit(format!("2.3 conditions of early {}", form.label())).fits("twice", document),
        );
    }
    limits
}
