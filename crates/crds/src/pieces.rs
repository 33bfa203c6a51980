//! The schemas that several kinds share: selectors, peers by address, port numbers, status.

use serde_json::json;

use crate::Channel;
use crate::schema::Schema;

/// The name part of a label key, and a label value that is not empty.
const LABEL_NAME: &str = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?";

/// A label selector. The palisade channel validates it as Kubernetes validates those of
/// NetworkPolicies, except for the keys of `matchLabels`, which a schema cannot restrict. It needs
/// no CEL: an expression for each of so many selectors would cost more than an API server allows.
pub(crate) fn selector(channel: Channel, description: &str) -> Schema {
    selector_fields(channel, Schema::object(description, [])).atomic()
}

/// Adds the fields of a selector to an object.
pub(crate) fn selector_fields(channel: Channel, object: Schema) -> Schema {
    let mut value = Schema::string("");
    let mut listed = Schema::string("");
    let mut operator =
        Schema::string("How values are compared: In, NotIn, Exists or DoesNotExist.");
    let mut key = Schema::string("The key of the label.");
    if channel.is_ours() {
        // Dropping a null would widen the selector; a null that is kept is visible (D24).
        value = label_value(value).with("nullable", json!(true));
        listed = label_value(listed);
        operator = operator.values(&["In", "NotIn", "Exists", "DoesNotExist"]);
        key = label_key(key);
    }
    let values = Schema::list("The values, for In and NotIn only.", listed).atomic_list();
    let mut expression = Schema::object(
        "",
        [("key", key), ("operator", operator), ("values", values)],
    )
    .required(&["key", "operator"]);
    if channel.is_ours() {
        expression = expression.with(
            "oneOf",
            json!([
                {
                    "properties": {"operator": {"enum": ["In", "NotIn"]}, "values": {"minItems": 1}},
                    "required": ["values"],
                },
                {
                    "properties": {
                        "operator": {"enum": ["Exists", "DoesNotExist"]},
                        "values": {"maxItems": 0},
                    },
                },
            ]),
        );
    }
    let expressions = Schema::list("Requirements; all must match.", expression);
    let labels = Schema::map("Labels that must all be present with these values.", value);
    object
        .field("matchExpressions", expressions.atomic_list())
        .field("matchLabels", labels)
}

/// A text that is the key of a label.
pub(crate) fn label_key(schema: Schema) -> Schema {
    // The prefix has a limit of its own, which takes a second expression.
    let prefix = "[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
    schema
        .max_length(317)
        .pattern(&format!("^({prefix}/)?{LABEL_NAME}$"))
        .with("allOf", json!([{"pattern": "^([^/]{1,253}/)?[^/]{1,63}$"}]))
}

fn label_value(schema: Schema) -> Schema {
    schema.max_length(63).pattern(&format!("^({LABEL_NAME})?$"))
}

/// Whether `namespaceSelector` is optional beside `podSelector`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamespaceSelector {
    Required,
    Optional,
}

/// `pods: {namespaceSelector, podSelector}`.
pub(crate) fn namespaced_pods(channel: Channel, rule: NamespaceSelector) -> Schema {
    let (namespaces, required): (_, &[&str]) = match rule {
        NamespaceSelector::Required => (
            "The namespaces by their labels; {} selects all.",
            &["namespaceSelector", "podSelector"],
        ),
        NamespaceSelector::Optional => (
            "The namespaces by their labels; all if absent or {}.",
            &["podSelector"],
        ),
    };
    Schema::object(
        "Some pods of some namespaces.",
        [
            ("namespaceSelector", selector(channel, namespaces)),
            (
                "podSelector",
                selector(channel, "The pods by their labels; {} selects all."),
            ),
        ],
    )
    .required(required)
}

/// The pods that a cluster-wide policy selects.
pub(crate) fn subject(channel: Channel, rule: NamespaceSelector) -> Schema {
    Schema::object(
        "The pods that the policy selects, never host-network pods. Exactly one field.",
        [
            (
                "namespaces",
                selector(channel, "All pods of the namespaces with these labels."),
            ),
            ("pods", namespaced_pods(channel, rule)),
        ],
    )
    .exactly_one()
}

/// The name of a rule.
pub(crate) fn rule_name() -> Schema {
    Schema::string("A name for messages and logs.").max_length(100)
}

/// The priority of a policy in its tier.
pub(crate) fn priority() -> Schema {
    Schema::int32(
        "The precedence in the tier: the policy with the lowest number is evaluated first.",
        0..=1000,
    )
}

/// A port number.
pub(crate) fn port(description: &str) -> Schema {
    Schema::int32(description, 1..=65535)
}

/// Peers by address.
pub(crate) fn networks() -> Schema {
    let block = Schema::string("")
        .max_length(43)
        .rule("isCIDR(self)", "Invalid CIDR format provided");
    Schema::list(
        "Address blocks of either family, such as 192.0.2.0/24 or 2001:db8::/32.",
        block,
    )
    .items(1..=25)
    .set()
}

/// Peers by domain name.
pub(crate) fn domain_names() -> Schema {
    let name = Schema::string("").pattern(concat!(
        r"^(\*\.)?([a-zA-z0-9]([-a-zA-Z0-9_]*[a-zA-Z0-9])?\.)+",
        r"[a-zA-z0-9]([-a-zA-Z0-9_]*[a-zA-Z0-9])?\.?$",
    ));
    Schema::list(
        "Host names, or every name below one, as in *.example.com. For rules that accept.",
        name,
    )
    .items(1..=25)
    .set()
}

/// Peers by node.
pub(crate) fn nodes(channel: Channel) -> Schema {
    selector(channel, "The addresses of the nodes with these labels.")
}

/// The status that controllers write.
pub(crate) fn status() -> Schema {
    let condition = Schema::object(
        "",
        [
            (
                "lastTransitionTime",
                Schema::string("The time of the last change of the status.")
                    .with("format", json!("date-time")),
            ),
            (
                "message",
                Schema::string("A message for people.").max_length(32768),
            ),
            (
                "observedGeneration",
                Schema::count("The generation of the object that the condition refers to."),
            ),
            (
                "reason",
                Schema::string("The reason, in one word.")
                    .max_length(1024)
                    .with("minLength", json!(1))
                    .pattern("^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
            ),
            (
                "status",
                Schema::string("Whether the condition holds.")
                    .values(&["True", "False", "Unknown"]),
            ),
            (
                "type",
                Schema::string("The type of the condition.")
                    .max_length(316)
                    .pattern(concat!(
                        r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?",
                        r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                    )),
            ),
        ],
    )
    .required(&["lastTransitionTime", "message", "reason", "status", "type"]);
    let conditions = Schema::list(
        "The conditions of the object, one for each type.",
        condition,
    )
    .with("x-kubernetes-list-type", json!("map"))
    .with("x-kubernetes-list-map-keys", json!(["type"]));
    Schema::object(
        "The status that controllers write.",
        [("conditions", conditions)],
    )
    .required(&["conditions"])
}
