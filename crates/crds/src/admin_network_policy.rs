//! AdminNetworkPolicy and BaselineAdminNetworkPolicy of `policy.networking.k8s.io/v1alpha1`.
//!
//! Upstream's channels have the shape F of the last releases. The palisade channel has the union of
//! the shapes K, N and F, and an object must keep to one (D37).

use serde_json::{Value, json};

use crate::Channel;
use crate::definition::{Definition, upstream_annotations};
use crate::pieces::{
    NamespaceSelector, domain_names, label_key, namespaced_pods, networks, nodes, port, priority,
    rule_name, selector, selector_fields, subject,
};
use crate::schema::Schema;

/// Which of the two kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Admin,
    Baseline,
}

/// The direction of a list of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Ingress,
    Egress,
}

/// The CRD.
pub(crate) fn crd(channel: Channel, kind: Kind) -> Value {
    let approval = "https://github.com/kubernetes-sigs/network-policy-api/pull/300";
    // The files of v0.1.8 are those of v0.1.7, its mark included.
    let annotations = upstream_annotations(channel, approval, "v0.1.7");
    let definition = match kind {
        Kind::Admin => Definition {
            group: "policy.networking.k8s.io",
            version: "v1alpha1",
            kind: "AdminNetworkPolicy",
            plural: "adminnetworkpolicies",
            short_name: Some("anp"),
            columns: &[("Priority", ".spec.priority", "string")],
            annotations,
            description: "An administrator's policy for the whole cluster, evaluated before the NetworkPolicies. ClusterNetworkPolicy replaces it.",
        },
        Kind::Baseline => Definition {
            group: "policy.networking.k8s.io",
            version: "v1alpha1",
            kind: "BaselineAdminNetworkPolicy",
            plural: "baselineadminnetworkpolicies",
            short_name: Some("banp"),
            columns: &[],
            annotations,
            description: "The administrator's policy for pods that no NetworkPolicy isolates; there is one, named default. ClusterNetworkPolicy replaces it.",
        },
    };
    let mut spec = Schema::object(
        "The specification of the policy.",
        [
            ("subject", subject(channel, NamespaceSelector::Required)),
            ("ingress", rules(channel, kind, Direction::Ingress)),
            ("egress", rules(channel, kind, Direction::Egress)),
        ],
    );
    spec = match kind {
        Kind::Admin => spec
            .field("priority", priority())
            .required(&["priority", "subject"]),
        Kind::Baseline => spec.required(&["subject"]),
    };
    if channel.is_ours() {
        spec = spec.rule(
            &one_shape(),
            "all peers of an object must have the shape of one release",
        );
    }
    definition.crd(spec, |object| match kind {
        Kind::Admin => object,
        Kind::Baseline => object.rule(
            "self.metadata.name == 'default'",
            "Only one baseline admin network policy with metadata.name=\"default\" can be created in the cluster",
        ),
    })
}

fn rules(channel: Channel, kind: Kind, direction: Direction) -> Schema {
    let is_egress = direction == Direction::Egress;
    let peers = match direction {
        Direction::Ingress => "from",
        Direction::Egress => "to",
    };
    let mut peer = Schema::object(
        "Exactly one field.",
        [("namespaces", namespaces(channel)), ("pods", pods(channel))],
    )
    .exactly_one();
    let mut by_address = "has(peer.networks) || has(peer.nodes)".to_owned();
    let mut words = "networks/nodes".to_owned();
    if is_egress {
        peer = peer.field("networks", networks());
        if channel.is_experimental() {
            peer = peer.field("nodes", nodes(channel));
            if kind == Kind::Admin {
                peer = peer.field("domainNames", domain_names());
                by_address.push_str(" || has(peer.domainNames)");
                words.push_str("/domainNames");
            }
        }
    }
    let action = match kind {
        Kind::Admin => {
            Schema::string("Allow or Deny the traffic, or Pass it on to the NetworkPolicies.")
                .values(&["Allow", "Deny", "Pass"])
        }
        Kind::Baseline => Schema::string("Allow or Deny the traffic.").values(&["Allow", "Deny"]),
    };
    let list = if is_egress {
        "The destinations: any of these."
    } else {
        "The sources: any of these."
    };
    let mut rule = Schema::object(
        "",
        [
            ("name", rule_name()),
            ("action", action),
            (peers, Schema::list(list, peer).items(1..=100)),
            ("ports", ports(channel)),
        ],
    )
    .required(&["action", peers]);
    match (channel, kind) {
        (Channel::Experimental, _) if is_egress => {
            rule = rule.rule(
                &format!(
                    "!(self.to.exists(peer, {by_address}) && has(self.ports) && self.ports.exists(port, has(port.namedPort)))"
                ),
                &format!("{words} peer cannot be set with namedPorts since there are no namedPorts for {words}"),
            );
        }
        // Only an Allow rule can have domain names (D53).
        (Channel::Palisade, Kind::Admin) if is_egress => {
            rule = rule.rule(
                "self.action == 'Allow' || !self.to.exists(peer, has(peer.domainNames))",
                "domainNames is only allowed in a rule whose action is Allow",
            );
        }
        (Channel::Standard | Channel::Experimental | Channel::Palisade, _) => {}
    }
    let description = if is_egress {
        "Rules for traffic from the pods; the first matching rule decides."
    } else {
        "Rules for traffic to the pods; the first matching rule decides."
    };
    Schema::list(description, rule).items(0..=100)
}

/// The selectors of namespaces in the early shapes.
const EARLY: [&str; 4] = [
    "related",
    "namespaceSelector",
    "sameLabels",
    "notSameLabels",
];

fn early_fields(channel: Channel, object: Schema) -> Schema {
    let keys =
        |description| Schema::list(description, label_key(Schema::string(""))).items(0..=100);
    object
        .field(
            "related",
            // The proposal's own sample has it in lower case (D45).
            Schema::string("The subject's own namespace (Self), or every other (NotSelf).")
                .pattern("^([Nn][Oo][Tt])?[Ss][Ee][Ll][Ff]$"),
        )
        .field(
            "namespaceSelector",
            selector(channel, "Namespaces by their labels; {} selects all."),
        )
        .field(
            "sameLabels",
            keys("Namespaces that have the subject's values for all these keys."),
        )
        .field(
            "notSameLabels",
            keys("Namespaces that have all these keys, and another value for at least one."),
        )
}

/// `namespaces` of a peer: a selector (F), or one of the early forms.
fn namespaces(channel: Channel) -> Schema {
    let description = "All pods of the namespaces with these labels; {} selects all.";
    if !channel.is_ours() {
        return selector(channel, description);
    }
    let union = selector_fields(channel, Schema::object(description, [])).atomic();
    let early = EARLY.map(|name| json!({"required": [name]}));
    let shapes = json!([
        {"not": {"anyOf": early}},
        {"anyOf": early, "maxProperties": 1},
    ]);
    early_fields(channel, union).with("oneOf", shapes)
}

/// `pods` of a peer: with `namespaceSelector` (F) or `namespaces` (K and N).
fn pods(channel: Channel) -> Schema {
    let pods = namespaced_pods(channel, NamespaceSelector::Required);
    if !channel.is_ours() {
        return pods;
    }
    let namespaces = Schema::object(
        "The namespaces, in the shape before v0.1.3. Exactly one field.",
        [],
    );
    pods.field(
        "namespaces",
        early_fields(channel, namespaces).exactly_one(),
    )
    .required(&["podSelector"])
    .with(
        "oneOf",
        json!([{"required": ["namespaceSelector"]}, {"required": ["namespaces"]}]),
    )
}

/// The rule that no object has peers of the early shapes beside peers of the late one.
fn one_shape() -> String {
    let early_namespaces = EARLY
        .map(|name| format!("has(p.namespaces.{name})"))
        .join(" || ");
    let is_early = format!(
        "has(p.namespaces) ? ({early_namespaces}) : (has(p.pods) && has(p.pods.namespaces))"
    );
    let some_early = |list: &str, peers: &str| {
        format!("(has(self.{list}) && self.{list}.exists(r, r.{peers}.exists(p, {is_early})))")
    };
    let no_late = |list: &str, peers: &str| {
        format!("(!has(self.{list}) || self.{list}.all(r, r.{peers}.all(p, {is_early})))")
    };
    format!(
        "!({} || {}) || ({} && {})",
        some_early("ingress", "from"),
        some_early("egress", "to"),
        no_late("ingress", "from"),
        no_late("egress", "to"),
    )
}

fn ports(channel: Channel) -> Schema {
    let protocol = |required: bool| {
        let description = if required {
            "TCP, UDP or SCTP."
        } else {
            "TCP, UDP or SCTP; TCP if absent."
        };
        let protocol = Schema::string(description).default(json!("TCP"));
        if channel.is_ours() {
            // The empty text counts as TCP (D40).
            protocol.values(&["TCP", "UDP", "SCTP", ""])
        } else {
            protocol
        }
    };
    let number = Schema::object(
        "One port.",
        [("protocol", protocol(true)), ("port", port("The port."))],
    )
    .required(&["port", "protocol"]);
    let mut range = Schema::object(
        "Ports from start to end, both included.",
        [
            ("protocol", protocol(false)),
            ("start", port("The first port.")),
            ("end", port("The last port.")),
        ],
    )
    .required(&["end", "start"]);
    if channel.is_ours() {
        range = range.rule("self.start <= self.end", "the range ends before it starts");
    }
    let mut element = Schema::object(
        "Exactly one field.",
        [("portNumber", number), ("portRange", range)],
    )
    .exactly_one();
    if channel.is_experimental() {
        let mut name = Schema::string("The container port of this name, with its own protocol.");
        if channel.is_ours() {
            name = name.with("minLength", json!(1));
        }
        element = element.field("namedPort", name);
    }
    // Releases before v0.1.7 read an empty list as no filter (D39).
    let least = u32::from(!channel.is_ours());
    Schema::list(
        "The ports: any of these; all of every protocol if absent.",
        element,
    )
    .items(least..=100)
}
