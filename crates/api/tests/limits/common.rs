//! The common rules of every API version, sections 2.0 and 2.1: names, kinds, duplicate keys,
//! unknown fields and wrong types around `spec`.

use palisade_api::Kind;
use palisade_core::policy::Direction::Ingress;

use crate::documents::{ANP, BANP, CNP, CNP0, DNP, Form, NP, NP0, NP0_SHIPPED};
use crate::harness::{Limit, all_violate, groups, length, limit, required};

groups! {
    names: [names, namespaces],
    kinds: [kinds],
    keys: [duplicate_keys, unknown_fields, pruned_fields],
    types: [types],
}

const FORMS: [&Form; 8] = [&NP, &ANP, &BANP, &CNP, &CNP0, &DNP, &NP0, &NP0_SHIPPED];

fn names() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in FORMS {
        let label = form.label();
        let mut missing = limit(format!("2.1 {label} has a name"));
        for (case, document) in [
            ("absent", form.metadata("-name")),
            ("null", form.metadata("name: null")),
            ("no metadata", form.top("-metadata")),
        ] {
            missing = missing.violates(case, document, "NAME-MISSING", "metadata.name");
        }
        let empty = form.metadata("name: \"\"");
        limits.push(missing.violates("empty", empty, "NAME-MISSING", "metadata.name"));
        if form.is_baseline() {
            continue;
        }
        let named = |name: &str| form.metadata(&format!("name: \"{name}\""));
        let invalid = ("NAME-INVALID", "metadata.name");
        let dotted = |text: &str| {
            let labels = text.as_bytes().chunks(63);
            let labels: Vec<String> = labels.map(|it| "a".repeat(it.len() - 1)).collect();
            named(&format!("{}a", labels.join(".")))
        };
        let name = format!("2.1 {label} 253 of a name");
        limits.push(length(&name, 253, invalid, dotted));
        let mut subdomain = limit(format!("2.1 {label} has a DNS subdomain as name"));
        for good in ["a", "0", "a-b", "a.b", "0.a-b.c1"] {
            subdomain = subdomain.fits(good, named(good));
        }
        for bad in [
            "A", "a_b", "-a", "a-", ".a", "a.", "a..b", "a b", "a/b", "é",
        ] {
            subdomain = subdomain.violates(bad, named(bad), invalid.0, invalid.1);
        }
        limits.push(subdomain);
    }
    let baseline = |name: &str| BANP.metadata(&format!("name: {name}"));
    let mut only =
        limit("2.3 D49 4.4 a BANP is named default").fits("default", baseline("default"));
    for other in ["defaults", "default-2", "baseline", "default.default"] {
        only = only.violates(other, baseline(other), "BANP-NAME", "metadata.name");
    }
    let twice = format!("{}---\n{}", BANP.spec(""), BANP.spec(""));
    limits.push(only.violates("twice", twice, "DUPLICATE-OBJECT", "metadata.name"));
    limits
}

fn namespaces() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in [&NP, &NP0, &NP0_SHIPPED] {
        let limit = limit(format!(
            "2.1 D140 {} without a namespace is in default",
            form.label()
        ));
        limits.push(
            limit
                .reads("absent", form.metadata(""), |it| {
                    it.namespace() == Some("default")
                })
                .reads("empty", form.metadata("namespace: \"\""), |it| {
                    it.namespace() == Some("default")
                })
                .reads("null", form.metadata("namespace: null"), |it| {
                    it.namespace() == Some("default")
                })
                .reads("given", form.metadata("namespace: shop"), |it| {
                    it.namespace() == Some("shop")
                })
                .violates(
                    "wrong case",
                    form.metadata("namespace: Shop"),
                    "NAME-INVALID",
                    "metadata.namespace",
                ),
        );
    }
    for form in [&ANP, &BANP, &CNP, &CNP0, &DNP] {
        let limit = limit(format!("2.4 2.6 {} is cluster-scoped", form.label()));
        limits.push(
            limit
                .reads("no namespace", form.metadata(""), |it| {
                    it.namespace().is_none()
                })
                .warns(
                    "a namespace",
                    form.metadata("namespace: shop"),
                    "NAMESPACE-SCOPE",
                    "metadata.namespace",
                ),
        );
    }
    limits
}

fn kinds() -> Vec<Limit> {
    let version = |form: &Form, version: &str| form.top(&format!("apiVersion: {version}"));
    vec![
        limit("2.6 the full apiVersion tells the kind, never the kind alone")
            .reads("v1alpha2", CNP.spec(""), |it| {
                it.kind == Kind::ClusterNetworkPolicy
            })
            .reads("2021", CNP0.spec(""), |it| {
                it.kind != Kind::ClusterNetworkPolicy
            })
            .violates(
                "C22 v1alpha1",
                version(&CNP, "policy.networking.k8s.io/v1alpha1"),
                "UNKNOWN-VERSION",
                "apiVersion",
            )
            .violates(
                "v1alpha3",
                version(&CNP, "policy.networking.k8s.io/v1alpha3"),
                "UNKNOWN-VERSION",
                "apiVersion",
            ),
        limit("2.7 D72 apiVersions of the 2016 form")
            .fits("v1beta", NP0.spec(""))
            .fits("extensions/v1beta1", NP0_SHIPPED.spec(""))
            .violates(
                "v1beta1",
                version(&NP, "v1beta1"),
                "UNKNOWN-VERSION",
                "apiVersion",
            )
            .violates(
                "networking.k8s.io/v1beta1",
                version(&NP, "networking.k8s.io/v1beta1"),
                "UNKNOWN-VERSION",
                "apiVersion",
            ),
    ]
}

fn duplicate_keys() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in FORMS {
        let limit = limit(format!("2.0 D25 4.4 duplicate keys in {}", form.label()));
        let code = "DUPLICATE-KEY";
        let block = "metadata:\n  name: default\n  name: default";
        limits.push(
            limit
                .violates(
                    "spec",
                    format!("{}spec: {{}}\n", form.spec("")),
                    code,
                    "spec",
                )
                .violates("block style", form.top(block), code, "metadata.name")
                .violates(
                    "rules",
                    form.spec("ingress: [], ingress: []"),
                    code,
                    "spec.ingress",
                )
                .violates(
                    "in a rule",
                    form.spec("ingress: [{ports: [], ports: []}]"),
                    code,
                    "spec.ingress[0].ports",
                ),
        );
    }
    let json = r#"{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "sample"}, "spec": {"ingress": [], "ingress": []}}"#;
    limits.push(limit("2.0 D25 duplicate keys in JSON").violates(
        "rules",
        json.to_owned(),
        "DUPLICATE-KEY",
        "spec.ingress",
    ));
    limits
}

fn unknown_fields() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in FORMS {
        let cases = [
            (form.top("specs: {}"), "specs"),
            (form.spec("colour: red"), "spec.colour"),
            (form.spec("policyType: [Ingress]"), "spec.policyType"),
            (form.spec("Ingress: []"), "spec.Ingress"),
            (form.metadata("labelz: {}"), "metadata.labelz"),
        ];
        let cases = cases.map(|(document, path)| (document, path.to_owned()));
        let name = format!(
            "2.0 D26 D111 unknown fields around the rules of {}",
            form.label()
        );
        limits.push(all_violate(&name, "UNKNOWN-FIELD", cases.into()));
    }
    limits
}

fn pruned_fields() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in FORMS {
        let limit = limit(format!(
            "2.0 D26 D128 pruning drops unknown fields of {}",
            form.label()
        ));
        let rule = |changes: &str| form.rule(Ingress, changes);
        limits.push(
            limit
                .means("of the object", form.top("specs: {}"), form.spec(""))
                .when_pruned()
                .means("of spec", form.spec("colour: red"), form.spec(""))
                .when_pruned()
                .means("of a rule", rule("colour: red"), rule(""))
                .when_pruned(),
        );
    }
    limits
}

fn types() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in FORMS {
        let mut cases = Vec::new();
        for (change, path) in [
            ("spec: []", "spec"),
            ("spec: text", "spec"),
            ("metadata: []", "metadata"),
        ] {
            cases.push((form.top(change), path.to_owned()));
        }
        for direction in ["ingress", "egress"] {
            if direction == "egress" && form.is_2016() {
                continue;
            }
            for (value, at) in [
                ("{}", ""),
                ("text", ""),
                ("1", ""),
                ("[text]", "[0]"),
                ("[[]]", "[0]"),
            ] {
                let change = format!("{direction}: {value}");
                cases.push((form.spec(&change), format!("spec.{direction}{at}")));
            }
        }
        cases.push((form.metadata("name: 1"), "metadata.name".to_owned()));
        cases.push((form.metadata("labels: []"), "metadata.labels".to_owned()));
        let name = format!("3.12 D123 types around the rules of {}", form.label());
        let limit = all_violate(&name, "WRONG-TYPE", cases);
        limits.push(limit.may("NAME-MISSING", "metadata.name"));
    }
    let isolation = "net.beta.kubernetes.io/network-isolation";
    limits.push(required(
        "2.4 a ClusterNetworkPolicy has a spec",
        "spec",
        CNP.top("-spec"),
        CNP.top("spec: null"),
    ));
    limits.push(limit("2.7 D71 annotations are a map").violates(
        "C11 one text",
        format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: a, annotations: {isolation}=true}}\n"),
        "WRONG-TYPE",
        "metadata.annotations",
    ));
    limits
}
