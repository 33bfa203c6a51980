//! Our standard and experimental CRDs equal upstream's, except for descriptions.
//!
//! The test needs upstream's files, which are not kept here. Those of v0.1.8 are those of v0.1.7,
//! which Go's modules have.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeSet;
use std::process::ExitCode;

use palisade_crds::{Channel, crds};
use palisade_need::{run, tests};
use palisade_testbed::{UPSTREAM, upstream};
use serde_json::Value;

/// Every leaf of a schema with its path, for comparison. Descriptions are left out, unordered lists
/// are sorted, and traces of a generator are dropped.
fn leaves(value: &Value) -> BTreeSet<String> {
    fn walk(value: &Value, path: &str, inside_properties: bool, leaves: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => {
                if map.is_empty() {
                    leaves.insert(format!("{path} = {{}}"));
                }
                for (key, value) in map {
                    let is_text = key == "description" && value.is_string();
                    if is_text && !inside_properties {
                        continue;
                    }
                    let properties = key == "properties" && !inside_properties;
                    walk(value, &format!("{path}.{key}"), properties, leaves);
                }
            }
            Value::Array(items) => {
                let mut items: Vec<String> = items.iter().map(Value::to_string).collect();
                if path.ends_with(".required") || path.ends_with(".enum") {
                    items.sort();
                }
                for (index, item) in items.iter().enumerate() {
                    let item: Value = serde_json::from_str(item).unwrap();
                    walk(&item, &format!("{path}[{index}]"), false, leaves);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                leaves.insert(format!("{path} = {value}"));
            }
        }
    }
    let mut leaves = BTreeSet::new();
    let mut value = value.clone();
    if let Value::Object(map) = &mut value {
        map.remove("status");
    }
    if let Some(Value::Object(metadata)) = value.get_mut("metadata") {
        metadata.remove("creationTimestamp");
    }
    walk(&value, "", false, &mut leaves);
    leaves
}

fn main() -> ExitCode {
    let plain = tests![equal_arguments_give_equal_documents];
    let compared = tests![needs [UPSTREAM]: upstream_channels_are_upstreams];
    run(plain.into_iter().chain(compared))
}

fn upstream_channels_are_upstreams() {
    let directory = upstream().unwrap();
    let mut n_leaves = 0;
    for channel in [Channel::Standard, Channel::Experimental] {
        for crd in crds(channel) {
            let plural = crd["spec"]["names"]["plural"].as_str().unwrap();
            let release = match plural {
                "clusternetworkpolicies" => "v0.2.0",
                _ => "v0.1.7",
            };
            let path = directory
                .join(release)
                .join(channel.name())
                .join(format!("policy.networking.k8s.io_{plural}.yaml"));
            let text = std::fs::read_to_string(&path).unwrap();
            let theirs = leaves(&serde_saphyr::from_str(&text).unwrap());
            let ours = leaves(&crd);
            let only_ours: Vec<_> = ours.difference(&theirs).collect();
            let only_theirs: Vec<_> = theirs.difference(&ours).collect();
            assert!(
                only_ours.is_empty() && only_theirs.is_empty(),
                "{} {plural}: only ours {only_ours:#?}, only theirs {only_theirs:#?}",
                channel.name()
            );
            n_leaves += ours.len();
        }
    }
    // The number of leaves of the six documents.
    assert_eq!(n_leaves, 2_042);
}

fn equal_arguments_give_equal_documents() {
    for channel in Channel::ALL {
        assert_eq!(
            serde_json::to_string(&crds(channel)).unwrap(),
            serde_json::to_string(&crds(channel)).unwrap()
        );
    }
}
