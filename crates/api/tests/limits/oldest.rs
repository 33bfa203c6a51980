//! The NetworkPolicy of 2016 and the annotation that isolates a namespace, section 2.7.

use palisade_api::{Object, ObjectSpec};
use palisade_core::policy::Direction::Ingress;

use crate::documents::{Form, NP, NP0, NP0_SHIPPED};
use crate::harness::{Limit, all_violate, groups, limit, one_of};

groups! {
    spec: [pod_selector, rules],
    sources: [sources, spellings, bare_selectors],
    fields: [unknown_fields],
    isolation: [isolation, shipped_isolation, both_isolations],
}

const FORMS: [&Form; 2] = [&NP0, &NP0_SHIPPED];

fn pod_selector() -> Vec<Limit> {
    let limit = |form: &&Form| {
        limit(format!(
            "2.7 D70 podSelector of {} is all pods by default",
            form.label()
        ))
        .means(
            "absent",
            form.spec("-podSelector"),
            form.spec("podSelector: {}"),
        )
        .means(
            "null",
            form.spec("podSelector: null"),
            form.spec("podSelector: {}"),
        )
    };
    FORMS.iter().map(limit).collect()
}

fn rules() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in FORMS {
        let any = form.spec("ingress: [{}]");
        let rule = |text: &str| form.spec(&format!("ingress: [{{{text}}}]"));
        limits.push(
            limit(format!("2.7 rules of {} are optional", form.label()))
                .means("none", form.spec("ingress: []"), form.spec(""))
                .means("null", form.spec("ingress: null"), form.spec("")),
        );
        limits.push(
            limit(format!(
                "2.7 a rule of {} is everything by default",
                form.label()
            ))
            .fits("{}", any.clone())
            .means("no sources", rule("from: []"), any.clone())
            .means("null sources", rule("from: null"), any.clone())
            .means("no ports", rule("ports: []"), any.clone())
            .means("null ports", rule("ports: null"), any),
        );
    }
    limits
}

fn sources() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in FORMS {
        let path = form.peer_path(Ingress, "");
        let name = format!("2.7 D70 a source of {} is pods or namespaces", form.label());
        let fields = ["pods: {}", "namespaces: {}"];
        limits.push(one_of(&name, &fields, ("ONE-OF", &path), |text| {
            form.peer(Ingress, text)
        }));
    }
    limits
}

fn spellings() -> Vec<Limit> {
    let shipped = |text: &str| NP0_SHIPPED.peer(Ingress, text);
    let mut limits = vec![
        limit("3.12 D125 the two spellings of extensions/v1beta1")
            .fits("pods", shipped("pods: {}"))
            .fits("namespaces", shipped("namespaces: {}"))
            .means(
                "podSelector",
                shipped("podSelector: {}"),
                shipped("pods: {}"),
            )
            .means(
                "namespaceSelector",
                shipped("namespaceSelector: {}"),
                shipped("namespaces: {}"),
            )
            .violates(
                "none",
                shipped(""),
                "ONE-OF",
                &NP0_SHIPPED.peer_path(Ingress, ""),
            ),
    ];
    let mut first = limit("3.12 D125 v1beta has only the spelling of the proposal");
    for key in ["podSelector", "namespaceSelector"] {
        let alone = NP0.peer(Ingress, &format!("{key}: {{}}"));
        let beside = NP0.peer(Ingress, &format!("pods: {{}}, {key}: {{}}"));
        let path = NP0.peer_path(Ingress, key);
        first = first.violates(key, alone, "UNKNOWN-FIELD", &path).violates(
            &format!("{key} beside pods"),
            beside,
            "UNKNOWN-FIELD",
            &path,
        );
    }
    limits.push(first.may("ONE-OF", &NP0.peer_path(Ingress, "")));
    limits
}

fn bare_selectors() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in FORMS {
        let peer = |text: &str| form.peer(Ingress, text);
        let inside = |at: &str| form.peer_path(Ingress, at);
        limits.push(
            limit(format!(
                "2.7 D70 bare maps are selectors of {}",
                form.label()
            ))
            .warns(
                "policy",
                form.spec("podSelector: {a: b}"),
                "BARE-SELECTOR",
                "spec.podSelector",
            )
            .warns(
                "pods",
                peer("pods: {a: b}"),
                "BARE-SELECTOR",
                &inside("pods"),
            )
            .warns(
                "namespaces",
                peer("namespaces: {a: b, c: d}"),
                "BARE-SELECTOR",
                &inside("namespaces"),
            )
            .means(
                "labels",
                peer("pods: {a: b}"),
                peer("pods: {matchLabels: {a: b}}"),
            )
            .clean("a selector", peer("pods: {matchLabels: {a: b}}"))
            .clean(
                "expressions",
                peer("pods: {matchExpressions: [{key: a, operator: Exists}]}"),
            )
            .violates(
                "null value (D24)",
                peer("pods: {a: null}"),
                "NULL-LABEL",
                &inside("pods.a"),
            )
            .violates(
                "number",
                peer("pods: {a: 1}"),
                "WRONG-TYPE",
                &inside("pods.a"),
            )
            .violates(
                "beside matchLabels",
                peer("pods: {matchLabels: {a: b}, c: d}"),
                "UNKNOWN-FIELD",
                &inside("pods.c"),
            ),
        );
    }
    limits.push(
        limit("2.7 D70 bare maps are selectors of the 2016 form only")
            .violates(
                "policy",
                NP.spec("podSelector: {a: b}"),
                "UNKNOWN-FIELD",
                "spec.podSelector.a",
            )
            .may("INVALID-SUBJECT", "spec.podSelector")
            .violates(
                "peer",
                NP.peer(Ingress, "podSelector: {a: b}"),
                "UNKNOWN-FIELD",
                &NP.peer_path(Ingress, "podSelector.a"),
            ),
    );
    limits
}

fn unknown_fields() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in FORMS {
        let mut cases = Vec::new();
        for key in ["egress", "policyTypes", "subject"] {
            cases.push((form.spec(&format!("{key}: []")), format!("spec.{key}")));
        }
        for key in ["to", "action", "name"] {
            cases.push((
                form.rule(Ingress, &format!("{key}: []")),
                format!("spec.ingress[0].{key}"),
            ));
        }
        for key in ["ipBlock", "networks", "nodes"] {
            let document = form.peer(Ingress, &format!("pods: {{}}, {key}: {{}}"));
            cases.push((document, form.peer_path(Ingress, key)));
        }
        // Ranges were added later: no real range, no range of one port, not all ports.
        for port in [
            "port: 80, endPort: 90",
            "port: 80, endPort: 80",
            "port: 1, endPort: 65535",
        ] {
            cases.push((form.port(port), form.port_path("endPort")));
        }
        for key in ["portNumber", "name"] {
            cases.push((
                form.port(&format!("port: 80, {key}: 80")),
                form.port_path(key),
            ));
        }
        let name = format!("2.7 D26 unknown fields of {}", form.label());
        limits.push(all_violate(&name, "UNKNOWN-FIELD", cases));
    }
    limits
}

const ISOLATION: &str = "net.beta.kubernetes.io/network-isolation";
const SHIPPED: &str = "net.beta.kubernetes.io/network-policy";

fn namespace(annotations: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: shop\n  annotations: {annotations}\n"
    )
}

fn annotated(key: &str, value: &str) -> String {
    namespace(&format!("{{{key}: {value}}}"))
}

fn path(key: &str) -> String {
    format!("metadata.annotations[\"{key}\"]")
}

fn isolated(object: &Object<'_>) -> bool {
    matches!(&object.spec, ObjectSpec::Namespace(namespace) if namespace.isolated)
}

fn open(object: &Object<'_>) -> bool {
    matches!(&object.spec, ObjectSpec::Namespace(namespace) if !namespace.isolated)
}

fn isolation() -> Vec<Limit> {
    let mut limit = limit("2.7 D69 the isolation annotation")
        .reads("absent", namespace("{}"), open)
        .reads("null", namespace("null"), open)
        .reads("false", annotated(ISOLATION, "\"false\""), open)
        .reads("true", annotated(ISOLATION, "\"true\""), isolated);
    for word in [
        "",
        "True",
        "TRUE",
        "False",
        "yes",
        "no",
        "1",
        " true",
        "DefaultDeny",
    ] {
        let document = annotated(ISOLATION, &format!("\"{word}\""));
        limit = limit.violates(word, document, "ISOLATION-ANNOTATION", &path(ISOLATION));
    }
    vec![
        limit
            .violates(
                "not a text",
                annotated(ISOLATION, "true"),
                "WRONG-TYPE",
                &path(ISOLATION),
            )
            .violates(
                "a number",
                annotated(ISOLATION, "1"),
                "WRONG-TYPE",
                &path(ISOLATION),
            ),
    ]
}

fn shipped_isolation() -> Vec<Limit> {
    let shipped = |value: &str| annotated(SHIPPED, &format!("'{value}'"));
    let deny = r#"{"ingress":{"isolation":"DefaultDeny"}}"#;
    let mut limit = limit("2.7 D71 D126 the isolation annotation that shipped")
        .reads("DefaultDeny", shipped(deny), isolated)
        .reads(
            "spaces",
            shipped(r#"{ "ingress": { "isolation": "DefaultDeny" } }"#),
            isolated,
        );
    for broken in [
        "",
        "{",
        "true",
        r#"{"ingress":{"isolation":"DefaultDeny"}"#,
        "DefaultDeny",
    ] {
        limit = limit.violates(
            broken,
            shipped(broken),
            "ISOLATION-ANNOTATION",
            &path(SHIPPED),
        );
    }
    vec![limit]
}

fn both_isolations() -> Vec<Limit> {
    let deny = r#"'{"ingress":{"isolation":"DefaultDeny"}}'"#;
    let both = |word: &str, json: &str| {
        namespace(&format!("{{{ISOLATION}: \"{word}\", {SHIPPED}: {json}}}"))
    };
    vec![
        limit("3.12 D126 both isolation annotations")
            .reads("both", both("true", deny), isolated)
            .reads("only the second", both("false", deny), isolated)
            .violates(
                "broken JSON",
                both("false", "'{'"),
                "ISOLATION-ANNOTATION",
                &path(SHIPPED),
            )
            .violates(
                "broken word",
                both("yes", deny),
                "ISOLATION-ANNOTATION",
                &path(ISOLATION),
            ),
    ]
}
