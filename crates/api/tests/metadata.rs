//! Problems in `metadata`, and the parts that are still read.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use palisade_api::{Options, Source, lower, read};

/// D123: fields of `metadata` other than name and namespace do not change a policy. A pod with
/// unreadable labels is different: it is unknown which policies select it.
#[test]
fn a_wrong_type_in_metadata_does_not_remove_a_policy() {
    const POLICIES: [&str; 2] = [
        r#"{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"a"WRONG},"spec":{"podSelector":{}}}"#,
        r#"{"apiVersion":"policy.networking.k8s.io/v1alpha2","kind":"ClusterNetworkPolicy","metadata":{"name":"a"WRONG},"spec":{"tier":"Admin","priority":5,"subject":{"namespaces":{}},"ingress":[{"action":"Deny","from":[{"namespaces":{}}]}]}}"#,
    ];
    const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"WRONG},"spec":{"nodeName":"n"},"status":{"podIPs":[{"ip":"10.0.0.1"}]}}"#;
    /// The number of policies and pods of an object.
    #[track_caller]
    fn meant(text: &str, wrong: &str) -> (usize, usize) {
        let text = text.replace("WRONG", &format!(",{wrong}"));
        let sources = [Source::new("a.json", text.clone().into_bytes())];
        let manifests = read(&sources, Options::default(), &|_| {});
        assert!(!manifests.problems.is_empty(), "no problem: {text}");
        let at = wrong.trim_matches('"').split('"').next().unwrap();
        let path = manifests.problems[0].path.clone().unwrap_or_default();
        assert!(
            path.starts_with(&format!("metadata.{at}")),
            "{path}: {text}"
        );
        let lowered = lower(&manifests.objects, Vec::new());
        let cluster = lowered.cluster;
        (cluster.policies.len(), cluster.pods.len())
    }
    let harmless = [
        r#""annotations":["a"]"#,
        r#""generation":"x""#,
        r#""creationTimestamp":{}"#,
        r#""managedFields":"x""#,
        r#""ownerReferences":true"#,
        r#""finalizers":5"#,
        r#""uid":[]"#,
        r#""resourceVersion":5"#,
        r#""deletionTimestamp":5"#,
        r#""generateName":5"#,
    ];
    for wrong in harmless {
        for policy in POLICIES {
            assert_eq!(meant(policy, wrong), (1, 0), "{wrong}");
        }
        assert_eq!(meant(POD, wrong), (0, 1), "{wrong}");
    }
    let labels = [
        r#""labels":5"#,
        r#""labels":["a"]"#,
        r#""labels":{"app":5}"#,
        r#""labels":{"app":"web","other":null}"#,
    ];
    for wrong in labels {
        for policy in POLICIES {
            assert_eq!(meant(policy, wrong), (1, 0), "{wrong}");
        }
        assert_eq!(meant(POD, wrong), (0, 0), "{wrong}");
    }
}
