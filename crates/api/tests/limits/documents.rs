//! The documents: a valid object of every API version, with places for other text.

use palisade_core::policy::Direction;

/// An API version, with a valid object.
pub(crate) struct Form {
    api_version: &'static str,
    kind: &'static str,
    /// The shape of its peers, where one apiVersion has several: K, N or F.
    pub(crate) shape: &'static str,
    name: &'static str,
    /// The fields of `spec`, in flow style.
    spec: &'static [&'static str],
    /// The fields of a rule, by direction.
    ingress: &'static [&'static str],
    egress: &'static [&'static str],
    /// The names of a rule's lists.
    from: &'static str,
    to: &'static str,
    ports: &'static str,
}

const POLICY_V1ALPHA1: &str = "policy.networking.k8s.io/v1alpha1";

/// NetworkPolicy v1.
pub(crate) const NP: Form = Form {
    api_version: "networking.k8s.io/v1",
    kind: "NetworkPolicy",
    shape: "",
    name: "sample",
    spec: &["podSelector: {}"],
    ingress: &[],
    egress: &[],
    from: "from",
    to: "to",
    ports: "ports",
};

/// AdminNetworkPolicy in shape F.
pub(crate) const ANP: Form = Form {
    api_version: POLICY_V1ALPHA1,
    kind: "AdminNetworkPolicy",
    shape: "F",
    spec: &["priority: 10", "subject: {namespaces: {}}"],
    ingress: &["action: Allow", "from: [{namespaces: {}}]"],
    egress: &["action: Allow", "to: [{namespaces: {}}]"],
    ..NP
};

/// AdminNetworkPolicy in shape N.
pub(crate) const ANP_N: Form = Form {
    shape: "N",
    ingress: &[
        "action: Allow",
        "from: [{namespaces: {namespaceSelector: {}}}]",
    ],
    egress: &[
        "action: Allow",
        "to: [{namespaces: {namespaceSelector: {}}}]",
    ],
    ..ANP
};

/// AdminNetworkPolicy in shape K.
pub(crate) const ANP_K: Form = Form {
    shape: "K",
    ingress: &[
        "action: Allow",
        "from: [{pods: {namespaces: {related: Self}, podSelector: {}}}]",
    ],
    egress: &[
        "action: Allow",
        "to: [{pods: {namespaces: {related: Self}, podSelector: {}}}]",
    ],
    ..ANP
};

/// BaselineAdminNetworkPolicy in shape F.
pub(crate) const BANP: Form = Form {
    kind: "BaselineAdminNetworkPolicy",
    name: "default",
    spec: &["subject: {namespaces: {}}"],
    ..ANP
};

/// BaselineAdminNetworkPolicy in shape N.
pub(crate) const BANP_N: Form = Form {
    shape: "N",
    ingress: ANP_N.ingress,
    egress: ANP_N.egress,
    ..BANP
};

/// BaselineAdminNetworkPolicy in shape K.
pub(crate) const BANP_K: Form = Form {
    shape: "K",
    ingress: ANP_K.ingress,
    egress: ANP_K.egress,
    ..BANP
};

/// ClusterNetworkPolicy v1alpha2.
pub(crate) const CNP: Form = Form {
    api_version: "policy.networking.k8s.io/v1alpha2",
    kind: "ClusterNetworkPolicy",
    spec: &["tier: Admin", "priority: 10", "subject: {namespaces: {}}"],
    ingress: &["action: Accept", "from: [{namespaces: {}}]"],
    egress: &["action: Accept", "to: [{namespaces: {}}]"],
    ports: "protocols",
    ..NP
};

/// ClusterNetworkPolicy of 2021.
pub(crate) const CNP0: Form = Form {
    api_version: "networking.k8s.io/v1alpha1",
    kind: "ClusterNetworkPolicy",
    spec: &["appliedTo: {namespaceSelector: {}}"],
    ingress: &["action: Allow"],
    egress: &["action: Allow"],
    ..NP
};

/// DefaultNetworkPolicy of 2021.
pub(crate) const DNP: Form = Form {
    kind: "DefaultNetworkPolicy",
    ingress: &[],
    egress: &[],
    from: "onlyFrom",
    to: "onlyTo",
    ..CNP0
};

/// NetworkPolicy of 2016.
pub(crate) const NP0: Form = Form {
    api_version: "v1beta",
    ..NP
};

/// NetworkPolicy of 2016 in the group of its release.
pub(crate) const NP0_SHIPPED: Form = Form {
    api_version: "extensions/v1beta1",
    ..NP
};

/// Both directions.
pub(crate) const DIRECTIONS: [Direction; 2] = [Direction::Ingress, Direction::Egress];

impl Form {
    /// Kind, apiVersion and shape, for the names of limits.
    pub(crate) fn label(&self) -> String {
        let label = format!("{} {} {}", self.api_version, self.kind, self.shape);
        label.trim_end().to_owned()
    }

    /// Whether it is the form of 2016, which has only ingress.
    pub(crate) fn is_2016(&self) -> bool {
        [NP0.api_version, NP0_SHIPPED.api_version].contains(&self.api_version)
    }

    /// Whether it is a BaselineAdminNetworkPolicy.
    pub(crate) fn is_baseline(&self) -> bool {
        self.kind == BANP.kind
    }

    /// The name of the list of ports.
    pub(crate) fn ports_key(&self) -> &'static str {
        self.ports
    }

    /// The object with other fields: changes are divided by `; `, replace the field of the same
    /// name, and `-name` removes it.
    pub(crate) fn top(&self, changes: &str) -> String {
        let base = [
            format!("apiVersion: {}", self.api_version),
            format!("kind: {}", self.kind),
            format!("metadata: {{name: {}}}", self.name),
            format!("spec: {{{}}}", merged(self.spec, "").join(", ")),
        ];
        let base: Vec<&str> = base.iter().map(String::as_str).collect();
        let mut document = merged(&base, changes).join("\n");
        document.push('\n');
        document
    }

    /// The object with other metadata.
    pub(crate) fn metadata(&self, changes: &str) -> String {
        let name = format!("name: {}", self.name);
        let metadata = merged(&[&name], changes).join(", ");
        self.top(&format!("metadata: {{{metadata}}}"))
    }

    /// The object with other fields of `spec`.
    pub(crate) fn spec(&self, changes: &str) -> String {
        self.top(&format!(
            "spec: {{{}}}",
            merged(self.spec, changes).join(", ")
        ))
    }

    /// The object with this many rules in a direction.
    pub(crate) fn rules(&self, direction: Direction, count: usize) -> String {
        let rules = vec![self.rule_text(direction, ""); count];
        self.spec(&format!("{}: [{}]", direction.key(), rules.join(", ")))
    }

    /// The object with one rule that has other fields.
    pub(crate) fn rule(&self, direction: Direction, changes: &str) -> String {
        let rule = self.rule_text(direction, changes);
        self.spec(&format!("{}: [{rule}]", direction.key()))
    }

    /// A rule with other fields.
    pub(crate) fn rule_text(&self, direction: Direction, changes: &str) -> String {
        let base = match direction {
            Direction::Ingress => self.ingress,
            Direction::Egress => self.egress,
        };
        format!("{{{}}}", merged(base, changes).join(", "))
    }

    /// The name of the list of peers.
    pub(crate) fn peers_key(&self, direction: Direction) -> &'static str {
        match direction {
            Direction::Ingress => self.from,
            Direction::Egress => self.to,
        }
    }

    /// The object with one rule that has these peers, a flow list.
    pub(crate) fn peers(&self, direction: Direction, peers: &str) -> String {
        self.rule(
            direction,
            &format!("{}: {peers}", self.peers_key(direction)),
        )
    }

    /// The object with one rule and one peer that has these fields.
    pub(crate) fn peer(&self, direction: Direction, fields: &str) -> String {
        self.peers(direction, &format!("[{{{fields}}}]"))
    }

    /// The path of that list of peers.
    pub(crate) fn peers_path(&self, direction: Direction) -> String {
        format!("spec.{}[0].{}", direction.key(), self.peers_key(direction))
    }

    /// The path of that peer, or of something in it.
    pub(crate) fn peer_path(&self, direction: Direction, inside: &str) -> String {
        let dot = if inside.is_empty() { "" } else { "." };
        format!("{}[0]{dot}{inside}", self.peers_path(direction))
    }

    /// The object with one ingress rule that has these ports, a flow list.
    pub(crate) fn ports(&self, ports: &str) -> String {
        self.rule(Direction::Ingress, &format!("{}: {ports}", self.ports))
    }

    /// The object with one ingress rule and one port that has these fields.
    pub(crate) fn port(&self, fields: &str) -> String {
        self.ports(&format!("[{{{fields}}}]"))
    }

    /// The path of that port, or of something in it.
    pub(crate) fn port_path(&self, inside: &str) -> String {
        let dot = if inside.is_empty() { "" } else { "." };
        format!("spec.ingress[0].{}[0]{dot}{inside}", self.ports)
    }
}

fn merged(base: &[&str], changes: &str) -> Vec<String> {
    let key = |field: &str| field.split(':').next().unwrap_or_default().to_owned();
    let mut fields: Vec<String> = base.iter().map(|field| (*field).to_owned()).collect();
    for change in changes.split("; ").filter(|change| !change.is_empty()) {
        if let Some(removed) = change.strip_prefix('-') {
            fields.retain(|field| key(field) != removed);
            continue;
        }
        match fields.iter_mut().find(|field| key(field) == key(change)) {
            Some(field) => change.clone_into(field),
            None => fields.push(change.to_owned()),
        }
    }
    fields
}
