//! ClusterNetworkPolicy and DefaultNetworkPolicy of `networking.k8s.io/v1alpha1`, the draft of
//! 2021.
//!
//! The draft sets no limits on its lists, and an expression over lists without limits costs more
//! than an API server allows. So there is no CEL here, only schemas.

use serde_json::{Value, json};

use crate::Channel;
use crate::definition::Definition;
use crate::pieces::selector;
use crate::schema::Schema;

/// Which of the two kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Cluster,
    Default,
}

const APPROVAL: (&str, &str) = (
    "api-approved.kubernetes.io",
    "unapproved, a draft of 2021 that was never released; for Palisade only",
);

/// The CRD.
pub(crate) fn crd(kind: Kind) -> Value {
    let definition = match kind {
        Kind::Cluster => Definition {
            group: "networking.k8s.io",
            version: "v1alpha1",
            kind: "ClusterNetworkPolicy",
            plural: "clusternetworkpolicies",
            short_name: Some("cnp0"),
            columns: &[],
            annotations: vec![APPROVAL],
            description: "The draft of 2021: rules for the whole cluster, every Deny before every Allow, and both before the NetworkPolicies.",
        },
        Kind::Default => Definition {
            group: "networking.k8s.io",
            version: "v1alpha1",
            kind: "DefaultNetworkPolicy",
            plural: "defaultnetworkpolicies",
            short_name: Some("dnp"),
            columns: &[],
            annotations: vec![APPROVAL],
            description: "The draft of 2021: the traffic allowed for pods that no NetworkPolicy isolates.",
        },
    };
    let (from, to) = match kind {
        Kind::Cluster => ("from", "to"),
        Kind::Default => ("onlyFrom", "onlyTo"),
    };
    let applied_to = Schema::object(
        "The pods that the policy selects.",
        [
            (
                "namespaceSelector",
                select("The namespaces by their labels; {} selects all."),
            ),
            (
                "podSelector",
                select("The pods by their labels; all if absent."),
            ),
        ],
    )
    .required(&["namespaceSelector"]);
    let spec = Schema::object(
        "The specification of the policy.",
        [
            ("appliedTo", applied_to),
            (
                "ingress",
                Schema::list("Rules for traffic to the pods.", rule(kind, from)),
            ),
            (
                "egress",
                Schema::list("Rules for traffic from the pods.", rule(kind, to)),
            ),
        ],
    )
    .required(&["appliedTo"]);
    definition.crd(spec, |object| object)
}

/// These kinds exist beside the palisade channel only, and are validated like it.
fn select(description: &str) -> Schema {
    selector(Channel::Palisade, description)
}

fn rule(kind: Kind, peers: &str) -> Schema {
    let rule = Schema::object(
        "",
        [
            (
                peers,
                Schema::list("The peers: any of these; every peer if absent.", peer()),
            ),
            (
                "ports",
                Schema::list("The ports: any of these; all if absent.", port()),
            ),
        ],
    );
    match kind {
        Kind::Cluster => rule
            .field(
                "action",
                Schema::string("Allow or Deny the traffic.").values(&["Allow", "Deny"]),
            )
            .required(&["action"]),
        Kind::Default => rule,
    }
}

fn peer() -> Schema {
    let block = Schema::object(
        "Addresses.",
        [
            (
                "cidr",
                Schema::string("The block, such as 192.0.2.0/24.").with("format", json!("cidr")),
            ),
            (
                "except",
                Schema::list(
                    "Smaller blocks inside it that do not match.",
                    Schema::string("").with("format", json!("cidr")),
                ),
            ),
        ],
    )
    .required(&["cidr"]);
    let namespaces = Schema::object(
        "Namespaces: the pod's own, or a selection.",
        [
            ("self", Schema::boolean("The pod's own namespace.")),
            (
                "selector",
                select("The namespaces by their labels; {} selects all."),
            ),
            (
                "except",
                Schema::list(
                    "Namespaces of the selection that do not match.",
                    select("Namespaces by their labels."),
                ),
            ),
        ],
    )
    .with(
        "oneOf",
        json!([
            {
                "properties": {"self": {"enum": [true]}},
                "required": ["self"],
                "not": {"anyOf": [{"required": ["selector"]}, {"required": ["except"]}]},
            },
            {"properties": {"self": {"enum": [false]}}, "required": ["selector"]},
        ]),
    );
    Schema::object(
        "Pods and namespaces; both must match. Or addresses.",
        [
            ("podSelector", select("The pods by their labels.")),
            ("namespaces", namespaces),
            ("ipBlock", block),
        ],
    )
    .with(
        "oneOf",
        json!([
            {"required": ["ipBlock"], "maxProperties": 1},
            {"minProperties": 1, "not": {"required": ["ipBlock"]}},
        ]),
    )
}

/// An entry of `ports`, as NetworkPolicies have it.
fn port() -> Schema {
    let number_or_name = Schema::int_or_string("A number, or the name of a container port.")
        .with("minimum", json!(1))
        .with("maximum", json!(65535))
        .with("maxLength", json!(15))
        .with("pattern", json!("^[a-z0-9]+(-[a-z0-9]+)*$"))
        .with("allOf", json!([{"pattern": "[a-z]"}]));
    Schema::object(
        "",
        [
            (
                "protocol",
                Schema::string("TCP, UDP or SCTP; TCP if absent.").values(&["TCP", "UDP", "SCTP"]),
            ),
            ("port", number_or_name),
            (
                "endPort",
                Schema::int32("The last port of a range that starts at `port`.", 1..=65535),
            ),
        ],
    )
    // An empty text is no name: with `endPort`, `port` is a number.
    .with(
        "anyOf",
        json!([
            {"not": {"required": ["endPort"]}},
            {"required": ["port"], "properties": {"port": {"maxLength": 0}}},
        ]),
    )
}
