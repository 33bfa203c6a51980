//! Subjects of AdminNetworkPolicy, BaselineAdminNetworkPolicy and ClusterNetworkPolicy, sections 2.2
//! and 2.4.

use crate::documents::{ANP, BANP, CNP, Form};
use crate::harness::{Limit, all_violate, groups, limit, one_of, required};

groups! {
    subjects: [subjects, fields],
    pods: [pods, default_namespaces],
}

const KINDS: [&Form; 3] = [&ANP, &BANP, &CNP];
const INVALID: (&str, &str) = ("INVALID-SUBJECT", "spec.subject");

fn subject(form: &Form, text: &str) -> String {
    form.spec(&format!("subject: {text}"))
}

fn subjects() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in KINDS {
        let fields = [
            "namespaces: {}",
            "pods: {namespaceSelector: {}, podSelector: {}}",
        ];
        let name = format!("2.2 2.4 D20 subject of {} is one of two", form.label());
        let inside = |text: &str| subject(form, &format!("{{{text}}}"));
        limits.push(one_of(&name, &fields, INVALID, inside).may("ONE-OF", INVALID.1));
        limits.push(
            limit(format!(
                "2.3 2.4 D20 subject of {} is required",
                form.label()
            ))
            .violates("absent", form.spec("-subject"), INVALID.0, INVALID.1)
            .violates("null", subject(form, "null"), INVALID.0, INVALID.1)
            .may("REQUIRED", INVALID.1),
        );
    }
    limits
}

fn fields() -> Vec<Limit> {
    let mut limits = Vec::new();
    for form in KINDS {
        let case =
            |text: &str, inside: &str| (subject(form, text), format!("spec.subject{inside}"));
        let pods = "{pods: {namespaceSelector: {}, podSelector: {}, namespaces: {}}}";
        let unknown = vec![
            case("{namespaces: {}, nodes: {}}", ".nodes"),
            case("{namespaces: {}, all: {}}", ".all"),
            case(
                "{namespaces: {}, namespaceSelector: {}}",
                ".namespaceSelector",
            ),
            case(pods, ".pods.namespaces"),
        ];
        let name = format!(
            "3.12 D111 unknown fields of the subject of {}",
            form.label()
        );
        limits.push(all_violate(&name, "UNKNOWN-FIELD", unknown).also(INVALID.0, INVALID.1));
        let typed = vec![
            case("[]", ""),
            case("text", ""),
            case("true", ""),
            case("{pods: []}", ".pods"),
            case("{pods: text}", ".pods"),
        ];
        let name = format!("3.12 D123 types of the subject of {}", form.label());
        limits.push(all_violate(&name, "WRONG-TYPE", typed).also(INVALID.0, INVALID.1));
    }
    limits
}

fn selected(form: &Form, text: &str) -> String {
    subject(form, &format!("{{pods: {{{text}}}}}"))
}

fn pods() -> Vec<Limit> {
    let both = [
        ("podSelector", "namespaceSelector: {}"),
        ("namespaceSelector", "podSelector: {}"),
    ];
    let mut limits = Vec::new();
    for form in KINDS {
        // ClusterNetworkPolicy does not need the second.
        let needed = if form.shape.is_empty() { 1 } else { 2 };
        for (field, other) in both.into_iter().take(needed) {
            let limit = required(
                &format!(
                    "2.2 2.4 subject.pods.{field} of {} is required",
                    form.label()
                ),
                &format!("spec.subject.pods.{field}"),
                selected(form, other),
                selected(form, &format!("{other}, {field}: null")),
            );
            limits.push(limit.also(INVALID.0, INVALID.1));
        }
    }
    limits
}

fn default_namespaces() -> Vec<Limit> {
    let all = selected(&CNP, "podSelector: {}, namespaceSelector: {}");
    let null = selected(&CNP, "podSelector: {}, namespaceSelector: null");
    vec![
        limit("2.4 subject.pods.namespaceSelector is all namespaces by default")
            .means("absent", selected(&CNP, "podSelector: {}"), all.clone())
            .means("null", null, all),
    ]
}
