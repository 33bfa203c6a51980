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
        description: "An administrator's policy for the whole cluster: rules that are asked in order, before (Admin) or after (Baseline) the NetworkPolicies.",
    };
    let spec = Schema::object(
        "What the policy says.",
        [
            (
                "tier",
                Schema::string("Admin: asked before NetworkPolicies. Baseline: asked for pods that no NetworkPolicy isolates.")
                    .words(&["Admin", "Baseline"]),
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
    let peers = Schema::list("Where the traffic comes from: any of these.", peer(channel));
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
        "Rules for traffic to the pods; the first that matches decides.",
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
    let peers = Schema::list("Where the traffic goes to: any of these.", peer);
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
        // A port by name beside an address is evaluated as it stands (D52); a name of a domain can
        // only be accepted (D53).
        Channel::Palisade => {
            rule = rule.rule(
                "self.action == 'Accept' || !self.to.exists(peer, has(peer.domainNames))",
                "domainNames can only stand in a rule whose action is Accept",
            );
        }
    }
    Schema::list(
        "Rules for traffic from the pods; the first that matches decides.",
        rule,
    )
    .items(0..=25)
}

fn action() -> Schema {
    Schema::string("Accept or Deny the traffic, or Pass it on to the next tier.")
        .words(&["Accept", "Deny", "Pass"])
}

/// What a peer of both directions can be.
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
        // What is inside must reach the validation to be refused: pruned, it would be gone (D57).
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
            "The port that is connected to, after translation. Exactly one field.",
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
        "The protocols and ports: any of these; left out, all.",
        element,
    )
    .items(1..=25)
}
