//! Label selectors and address blocks, as the policies of all kinds use them.

use serde_json::{Value, json};

use super::cluster::{App, Home};
use super::rng::Rng;

/// A selector of pods, by all operators.
pub(super) fn pods(rng: &mut Rng, app: &App) -> Value {
    match rng.below(20) {
        0..=12 => json!({"matchLabels": {"app.kubernetes.io/name": app.name}}),
        13..=15 => json!({}),
        16 => json!({"matchLabels": {
            "app.kubernetes.io/component": app.component, "app.kubernetes.io/version": app.version,
        }}),
        17 => json!({"matchExpressions": [
            {"key": "app.kubernetes.io/component", "operator": "In", "values": ["api", "web"]},
        ]}),
        18 => json!({"matchExpressions": [
            {"key": "app.kubernetes.io/component", "operator": "NotIn", "values": ["store"]},
            {"key": "pod-template-hash", "operator": "Exists"},
        ]}),
        _ => json!({
            "matchExpressions": [{"key": "quarantine", "operator": "DoesNotExist"}],
            "matchLabels": {"app.kubernetes.io/component": app.component},
        }),
    }
}

/// A selector of namespaces.
pub(super) fn namespaces(rng: &mut Rng, home: &Home) -> Value {
    match rng.below(10) {
        0..=4 => json!({"matchLabels": {"kubernetes.io/metadata.name": home.name}}),
        5..=6 => json!({"matchLabels": {"tenant": home.tenant}}),
        7 => json!({"matchLabels": {"env": home.env, "tenant": home.tenant}}),
        8 => json!({"matchExpressions": [
            {"key": "env", "operator": "In", "values": ["prod", "staging"]},
        ]}),
        _ => json!({}),
    }
}

/// Address blocks without host bits, all different.
pub(super) fn networks(rng: &mut Rng, count: u64) -> Vec<String> {
    let first = rng.below(200);
    (0..count)
        .map(|index| match index % 3 {
            0 => format!("10.{}.0.0/16", first + index),
            1 => format!("203.0.113.{}/32", first + index),
            _ => format!("fd00:{:x}::/32", first + index),
        })
        .collect()
}
