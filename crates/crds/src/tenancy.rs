//! Tenancy of `palisade.dev/v1alpha1`: namespaces with different values of a label do not reach
//! each other.

use serde_json::{Value, json};

use crate::Channel;
use crate::cluster_network_policy::{egress, ingress};
use crate::definition::Definition;
use crate::pieces::{label_key, priority};
use crate::schema::Schema;

/// The CRD.
pub(crate) fn crd() -> Value {
    let definition = Definition {
        group: "palisade.dev",
        version: "v1alpha1",
        kind: "Tenancy",
        plural: "tenancies",
        short_name: None,
        columns: &[
            ("Label", ".spec.namespaceLabel", "string"),
            ("Priority", ".spec.priority", "integer"),
            ("Closed", ".spec.closedPriority", "integer"),
        ],
        annotations: Vec::new(),
        description: "Separates tenants: namespaces with different values of a label do not reach each other.",
    };
    let template = Schema::object(
        "Rules that every tenant has before those that separate tenants.",
        [
            ("ingress", ingress(Channel::Palisade)),
            ("egress", egress(Channel::Palisade)),
        ],
    );
    let spec = Schema::object(
        "The label of the tenants, and the precedence of their policies.",
        [
            (
                "namespaceLabel",
                label_key(Schema::string(
                    "The label of a namespace whose value names the tenant.",
                ))
                .default(json!("tenant")),
            ),
            ("priority", priority().default(json!(900))),
            ("closedPriority", priority().default(json!(1000))),
            ("template", template),
            (
                "dns",
                Schema::string("Allow: every tenant can reach the cluster's DNS. None: only if the template accepts it.")
                    .values(&["Allow", "None"])
                    .default(json!("Allow")),
            ),
        ],
    )
    .rule(
        "self.priority < self.closedPriority",
        "the tenants' own policies must be evaluated before the closed one: priority < closedPriority",
    );
    definition.crd(spec, |object| object)
}
