//! Namespaces with the labels that selectors use.

use serde_json::{Value, json};

use super::cluster::Home;
use super::rng::Rng;

pub(super) fn build(rng: &mut Rng, home: &Home) -> Value {
    let level = rng.pick(&["baseline", "restricted"]);
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "annotations": {"example.com/owner": format!("team-{}", rng.below(40))},
            "labels": {
                "env": home.env,
                "kubernetes.io/metadata.name": home.name,
                "pod-security.kubernetes.io/enforce": level,
                "tenant": home.tenant,
            },
            "name": home.name,
        },
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    })
}
