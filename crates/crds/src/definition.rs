//! The parts of a CRD around its schema: names, columns and annotations.

use serde_json::{Map, Value, json};

use crate::Channel;
use crate::pieces::status;
use crate::schema::Schema;

/// A kind, without its schema.
#[derive(Debug)]
pub(crate) struct Definition {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) short_name: Option<&'static str>,
    /// Name, path and type of each column before the age.
    pub(crate) columns: &'static [(&'static str, &'static str, &'static str)],
    /// The annotations of the CRD itself.
    pub(crate) annotations: Vec<(&'static str, &'static str)>,
    pub(crate) description: &'static str,
}

/// The annotations of a CRD that upstream publishes. A group of `k8s.io` needs the approval;
/// a schema that differs from the approved one must not claim it.
pub(crate) fn upstream_annotations(
    channel: Channel,
    approval: &'static str,
    release: &'static str,
) -> Vec<(&'static str, &'static str)> {
    let approval = if channel.is_ours() {
        "unapproved, Palisade accepts more than the approved API"
    } else {
        approval
    };
    vec![
        ("api-approved.kubernetes.io", approval),
        ("policy.networking.k8s.io/bundle-version", release),
        ("policy.networking.k8s.io/channel", channel.name()),
    ]
}

impl Definition {
    /// The document, for objects with this `spec`; `finish` may add to the schema of the object.
    pub(crate) fn crd(&self, spec: Schema, finish: impl FnOnce(Schema) -> Schema) -> Value {
        let object = Schema::object(
            self.description,
            [
                (
                    "apiVersion",
                    Schema::string("The group and version of the object's API."),
                ),
                ("kind", Schema::string("The kind of the object.")),
                ("metadata", Schema::object("", [])),
                ("spec", spec),
                ("status", status()),
            ],
        )
        .required(&["metadata", "spec"]);
        let age = ("Age", ".metadata.creationTimestamp", "date");
        let columns = self.columns.iter().chain([&age]);
        let columns: Vec<Value> = columns
            .map(|(name, path, kind)| json!({"name": name, "jsonPath": path, "type": kind}))
            .collect();
        let annotations = self.annotations.iter();
        let annotations: Map<String, Value> = annotations
            .map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect();
        let mut names = json!({
            "kind": self.kind,
            "listKind": format!("{}List", self.kind),
            "plural": self.plural,
            "singular": self.kind.to_lowercase(),
        });
        if let (Some(short), Value::Object(names)) = (self.short_name, &mut names) {
            names.insert("shortNames".to_owned(), json!([short]));
        }
        let mut metadata = json!({"name": format!("{}.{}", self.plural, self.group)});
        if let (false, Value::Object(metadata)) = (annotations.is_empty(), &mut metadata) {
            metadata.insert("annotations".to_owned(), Value::Object(annotations));
        }
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": metadata,
            "spec": {
                "group": self.group,
                "names": names,
                "scope": "Cluster",
                "versions": [{
                    "name": self.version,
                    "served": true,
                    "storage": true,
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": finish(object).into_value()},
                    "subresources": {"status": {}},
                }],
            },
        })
    }
}
