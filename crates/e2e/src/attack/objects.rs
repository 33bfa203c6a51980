//! Objects that a tenant can write and that cost others as much as possible, as the bytes of a
//! request.

use std::fmt::Write as _;

/// The size of a large object: the API server accepts requests of 3 MiB and etcd values of 1.5 MiB,
/// and a stored object has half the size of its JSON.
pub const LARGE: usize = 2_900_000;

/// The most address blocks of the NetworkPolicies of a namespace under the default budget (D148).
pub const BLOCKS: usize = 49_999;

/// The namespace of the tenant.
pub const TENANT: &str = "tenant";

/// The content of a large NetworkPolicy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Ranges of ports.
    Ranges,
    /// Blocks of addresses.
    Blocks,
    /// Selectors of pods, all different.
    Selectors,
}

impl Shape {
    /// Every shape.
    pub const ALL: [Shape; 3] = [Shape::Ranges, Shape::Blocks, Shape::Selectors];

    /// Its name in a report.
    pub fn name(self) -> &'static str {
        match self {
            Shape::Ranges => "ranges of ports",
            Shape::Blocks => "blocks of addresses",
            Shape::Selectors => "selectors of pods",
        }
    }

    /// One entry of the list; entries of different numbers differ.
    fn entry(self, number: usize, out: &mut String) {
        // Writing to a string cannot fail.
        let _ = match self {
            Shape::Ranges => {
                let protocol = ["TCP", "UDP", "SCTP"].get(number % 3).unwrap_or(&"TCP");
                let first = number / 3 % 21_000 * 3 + 1;
                let last = first + 1;
                write!(
                    out,
                    r#"{{"protocol":"{protocol}","port":{first},"endPort":{last}}}"#
                )
            }
            Shape::Blocks => {
                let [a, b, c] = [number / 2_500 % 100, number / 50 % 50, number % 50];
                // Every other address: no two blocks merge into a larger one.
                let (b, c) = (b * 2, c * 2);
                write!(out, r#"{{"ipBlock":{{"cidr":"1.{a}.{b}.{c}/32"}}}}"#)
            }
            Shape::Selectors => write!(
                out,
                r#"{{"podSelector":{{"matchLabels":{{"a{number}":"b"}}}}}}"#
            ),
        };
    }
}

/// The subject of a NetworkPolicy of the tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// No pod.
    None,
    /// The tenant's own pod of an app.
    App(&'static str),
}

/// How large a NetworkPolicy is.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// As JSON.
    Bytes(usize),
    /// In entries of its list.
    Entries(usize),
}

/// A NetworkPolicy of the tenant, in parts: many policies share one text.
#[derive(Clone, Debug)]
pub struct Large {
    tail: String,
}

impl Large {
    /// Makes one that is so large; `first` is the number of its first entry.
    pub fn new(shape: Shape, subject: Subject, limit: Limit, first: usize) -> Large {
        let selector = match subject {
            Subject::None => r#"{"matchLabels":{"app":"none"}}"#.to_owned(),
            Subject::App(app) => format!(r#"{{"matchLabels":{{"app":"{app}"}}}}"#),
        };
        let mut tail =
            format!(r#""spec":{{"podSelector":{selector},"policyTypes":["Ingress"],"ingress":[{{"#);
        tail.push_str(match shape {
            Shape::Ranges => r#""ports":["#,
            Shape::Blocks | Shape::Selectors => r#""from":["#,
        });
        let mut number = first;
        let is_full = |tail: &str, entries| match limit {
            Limit::Bytes(bytes) => tail.len() + 200 >= bytes,
            Limit::Entries(most) => entries >= most,
        };
        while !is_full(&tail, number - first) {
            if number > first {
                tail.push(',');
            }
            shape.entry(number, &mut tail);
            number += 1;
        }
        tail.push_str("]}]}}");
        Large { tail }
    }

    /// The object under a name.
    pub fn named(&self, name: &str) -> Vec<u8> {
        let mut text = head(name, "");
        text.push_str(&self.tail);
        text.into_bytes()
    }
}

/// A NetworkPolicy that allows one address on a number of port ranges, and selects an app.
pub fn ranges(name: &str, app: &'static str, address: usize, count: usize) -> Vec<u8> {
    let mut text = head(name, "");
    let cidr = format!("192.0.2.{}/32", address % 250 + 1);
    let _ = write!(
        text,
        r#""spec":{{"podSelector":{{"matchLabels":{{"app":"{app}"}}}},"policyTypes":["Ingress"],"ingress":[{{"from":[{{"ipBlock":{{"cidr":"{cidr}"}}}}],"ports":["#
    );
    for number in 0..count {
        let comma = if number > 0 { "," } else { "" };
        // A gap after each: no two merge; the highest ports are in none.
        let first = number * 3 % 60_000 + 1;
        let last = first + 1;
        let _ = write!(
            text,
            r#"{comma}{{"protocol":"UDP","port":{first},"endPort":{last}}}"#
        );
    }
    text.push_str("]}]}}");
    text.into_bytes()
}

/// A value for `metadata.managedFields[].fieldsV1`, nested this deep.
pub fn deep(levels: usize) -> Vec<u8> {
    let map = r#"{"f:a":"#.repeat(levels) + "{}" + &"}".repeat(levels);
    map.into_bytes()
}

/// The same with bytes that are not UTF-8.
pub fn not_text() -> Vec<u8> {
    b"{\"f:\xff\":{},\"f:\xc3(\":{}}".to_vec()
}

/// A NetworkPolicy of the tenant that selects none of its pods, with such fields.
pub fn policy_with_fields(name: &str, fields: &[u8]) -> Vec<u8> {
    let noted = noted("networking.k8s.io/v1");
    let tail = r#""spec":{"podSelector":{"matchLabels":{"app":"none"}},"policyTypes":["Egress"]}}"#;
    [
        head_open(name).as_bytes(),
        noted.as_bytes(),
        fields,
        b"}]},",
        tail.as_bytes(),
    ]
    .concat()
}

/// A pod of the tenant on a node, with such fields.
pub fn pod_with_fields(name: &str, node: u8, image: &str, fields: &[u8]) -> Vec<u8> {
    let head = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","namespace":"{TENANT}","labels":{{"app":"odd"}}"#
    );
    let noted = noted("v1");
    let tail = format!(
        r#"}}]}},"spec":{{"nodeName":"n{node}","terminationGracePeriodSeconds":0,"automountServiceAccountToken":false,"containers":[{{"name":"main","image":"{image}","imagePullPolicy":"Never"}}]}}}}"#
    );
    [head.as_bytes(), noted.as_bytes(), fields, tail.as_bytes()].concat()
}

fn head_open(name: &str) -> String {
    format!(
        r#"{{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{{"name":"{name}","namespace":"{TENANT}""#
    )
}

fn head(name: &str, more: &str) -> String {
    head_open(name) + more + "},"
}

/// Up to the value of `fieldsV1`, from the comma before `managedFields` on.
fn noted(version: &str) -> String {
    format!(
        r#","managedFields":[{{"manager":"m","operation":"Update","apiVersion":"{version}","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn large_policies_are_as_large_as_wanted_and_differ_by_name_only() {
        for shape in Shape::ALL {
            let large = Large::new(shape, Subject::App("db"), Limit::Bytes(100_000), 7);
            let bytes = large.named("p1");
            assert!((99_000..=100_000).contains(&bytes.len()), "{}", bytes.len());
            let object: Value = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(object["metadata"]["name"], "p1");
            assert_eq!(object["metadata"]["namespace"], TENANT);
            let rule = &object["spec"]["ingress"][0];
            let entries = rule["ports"].as_array().or(rule["from"].as_array());
            let entries = entries.unwrap();
            assert!(entries.len() > 1_000);
            assert_ne!(entries[0], entries[1]);
        }
    }

    #[test]
    fn what_uses_a_budget_up_fits() {
        let entries = palisade_core::budget::Budget::default().entries();
        assert_eq!(u64::try_from(BLOCKS).unwrap(), entries / 2 - 1);
        let large = Large::new(Shape::Blocks, Subject::App("db"), Limit::Entries(BLOCKS), 7);
        let object: Value = serde_json::from_slice(&large.named("p1")).unwrap();
        let entries = object["spec"]["ingress"][0]["from"].as_array().unwrap();
        assert_eq!(entries.len(), BLOCKS);
    }

    #[test]
    fn objects_with_odd_fields_are_objects() {
        for bytes in [
            policy_with_fields("p", &deep(20)),
            pod_with_fields("p", 1, "none", &deep(20)),
            ranges("p", "db", 3, 10),
        ] {
            let object: Value = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(object["metadata"]["name"], "p");
        }
        let object: Value = serde_json::from_slice(&policy_with_fields("p", &deep(3))).unwrap();
        let fields = &object["metadata"]["managedFields"][0]["fieldsV1"];
        assert_eq!(fields["f:a"]["f:a"]["f:a"], serde_json::json!({}));
        assert!(policy_with_fields("p", &not_text()).contains(&0xff));
    }
}
