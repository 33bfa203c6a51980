//! ClusterNetworkPolicy of `policy.networking.k8s.io/v1alpha2`.

use serde_json::{Value, json};

use crate::Channel;
use crate::definition::{Definition, upstream_annotations};
use crate::pieces::{
    NamespaceSelector, domain_names, namespaced_pods, networks, nodes, port, priority, rule_name,
    selector, subject,
};
use crate::schema::Schema;

/// The CRD.
pub(crate) fn crd(channel: Channel) -> Value {
    let definition = Definition {
        group: "policy.networking.k8s.io",
        version: "v1alpha2",
        kind: "ClusterNetworkPolicy",
        plural: "clusternetworkpolicies",
        short_name: Some("cnp"),
        columns: &[
            ("Tier", ".spec.tier", "string"),
            ("Priority", ".spec.priority", "string"),
        ],
        annotations: upstream_annotations(
            channel,
            "https://github.com/kubernetes-sigs/network-policy-api/pull/347",
            "v0.2.0",
        ),
        description: "An administrator's policy for the whole cluster: rules that are evaluated in order, before (Admin) or after (Baseline) the NetworkPolicies.",
    };
    let spec = Schema::object(
        "The specification of the policy.",
        [
            (
                "tier",
                Schema::string("Admin: evaluated before NetworkPolicies. Baseline: evaluated for pods that no NetworkPolicy isolates.")
                    .values(&["Admin", "Baseline"]),
            ),
            ("priority", priority()),
            ("subject", subject(channel, NamespaceSelector::Optional)),
            ("ingress", ingress(channel)),
            ("egress", egress(channel)),
        ],
    )
    .required(&["priority", "subject", "tier"]);
    definition.crd(spec, |object| object)
}

/// Rules for traffic to pods.
pub(crate) fn ingress(channel: Channel) -> Schema {
    let peers = Schema::list("The sources: any of these.", peer(channel));
    let rule = Schema::object(
        "",
        [
            ("name", rule_name()),
            ("action", action()),
            ("from", peers.items(1..=25)),
            ("protocols", protocols(channel)),
        ],
    )
    .required(&["action", "from"]);
    Schema::list(
        "Rules for traffic to the pods; the first matching rule decides.",
        rule,
    )
    .items(0..=25)
}

/// Rules for traffic from pods.
pub(crate) fn egress(channel: Channel) -> Schema {
    let mut peer = peer(channel).field("networks", networks());
    if channel.is_experimental() {
        peer = peer
            .field("nodes", nodes(channel))
            .field("domainNames", domain_names());
    }
    let peers = Schema::list("The destinations: any of these.", peer);
    let mut rule = Schema::object(
        "",
        [
            ("name", rule_name()),
            ("action", action()),
            ("to", peers.items(1..=25)),
            ("protocols", protocols(channel)),
        ],
    )
    .required(&["action", "to"]);
    match channel {
        Channel::Standard => {}
        Channel::Experimental => {
            rule = rule.rule(
                concat!(
                    "!(self.to.exists(peer, has(peer.networks) || has(peer.nodes) || has(peer.domainNames)) ",
                    "&& has(self.protocols) && self.protocols.exists(protocol, has(protocol.destinationNamedPort)))",
                ),
                "networks/nodes/domainNames peer cannot be set with namedPorts since there are no namedPorts for networks/nodes/domainNames",
            );
        }
        // A port by name beside an address is valid here (D52); only an Accept rule can have domain
        // names (D53).
        Channel::Palisade => {
            rule = rule.rule(
                "self.action == 'Accept' || !self.to.exists(peer, has(peer.domainNames))",
                "domainNames is only allowed in a rule whose action is Accept",
            );
        }
    }
    Schema::list(
        "Rules for traffic from the pods; the first matching rule decides.",
        rule,
    )
    .items(0..=25)
}

fn action() -> Schema {
    Schema::string("Accept or Deny the traffic, or Pass it on to the next tier.")
        .values(&["Accept", "Deny", "Pass"])
}

/// The peers of both directions.
fn peer(channel: Channel) -> Schema {
    let mut peer = Schema::object(
        "Exactly one field.",
        [
            (
                "namespaces",
                selector(
                    channel,
                    "All pods of the namespaces with these labels; {} selects all.",
                ),
            ),
            (
                "pods",
                namespaced_pods(channel, NamespaceSelector::Optional),
            ),
        ],
    );
    if channel.is_ours() {
        // Fields inside must reach the validation, which rejects them: pruning would remove them
        // first (D57).
        let all = Schema::object(
            "Every peer with an address, inside and outside of the cluster. Always {}.",
            [],
        )
        .with("x-kubernetes-preserve-unknown-fields", json!(true))
        .with("maxProperties", json!(0));
        peer = peer.field("all", all);
    }
    peer.exactly_one()
}

fn protocols(channel: Channel) -> Schema {
    let ports = |description| {
        let range = Schema::object(
            "Ports from start to end, both included.",
            [
                ("start", port("The first port.")),
                ("end", port("The last port.")),
            ],
        )
        .required(&["end", "start"])
        .rule(
            "self.start < self.end",
            "Start port must be less than End port",
        );
        let destination = Schema::object(
            "The destination port, after address translation. Exactly one field.",
            [("number", port("One port.")), ("range", range)],
        )
        .exactly_one();
        Schema::object(description, [("destinationPort", destination)])
            .with("minProperties", json!(1))
    };
    let mut named = Schema::string("The container port of this name, with its own protocol.");
    if channel.is_ours() {
        named = named.with("minLength", json!(1));
    }
    let element = Schema::object(
        "Exactly one field.",
        [
            ("tcp", ports("TCP.")),
            ("udp", ports("UDP.")),
            ("sctp", ports("SCTP.")),
            ("destinationNamedPort", named),
        ],
    )
    .exactly_one();
    Schema::list(
        "The protocols and ports: any of these; all if absent.",
        element,
    )
    .items(1..=25)
}
