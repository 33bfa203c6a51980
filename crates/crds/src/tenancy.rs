//! Tenancy of `palisade.dev/v1alpha1`: namespaces with different values of a label never meet.

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
        description: "Keeps tenants apart: namespaces with different values of a label do not reach each other.",
    };
    let template = Schema::object(
        "Rules that every tenant gets before those that keep tenants apart.",
        [
            ("ingress", ingress(Channel::Palisade)),
            ("egress", egress(Channel::Palisade)),
        ],
    );
    let spec = Schema::object(
        "Who the tenants are, and where their policies stand.",
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
                Schema::string("Allow: every tenant may ask the cluster's DNS. None: only what the template accepts.")
                    .words(&["Allow", "None"])
                    .default(json!("Allow")),
            ),
        ],
    )
    .rule(
        "self.priority < self.closedPriority",
        "the tenants' own policies must be asked before the closed one: priority < closedPriority",
    );
    definition.crd(spec, |object| object)
}
