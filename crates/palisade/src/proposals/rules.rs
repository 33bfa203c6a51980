//! Planned rules as manifests, in the API version of the policy that gets them.

use palisade_core::analysis::proposals::{PlannedPeer, PlannedPods, PlannedPort, PlannedRule};
use palisade_core::model::{Cluster, NamespaceId};
use palisade_core::net::Protocol;
use palisade_core::policy::{Direction, PolicyApi};

use crate::manifest_text::Value;

/// What the text of a rule depends on besides the rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dialect {
    /// The API version.
    pub(super) api: PolicyApi,
    /// Whether an AdminNetworkPolicy has the shape before v0.1.3 (D37).
    pub(super) early_shape: bool,
    /// The namespace of the policy.
    pub(super) namespace: Option<NamespaceId>,
}

impl Dialect {
    /// Returns the dialect of a NetworkPolicy of today.
    pub(super) fn of_network_policy(namespace: NamespaceId) -> Dialect {
        Dialect {
            api: PolicyApi::NetworkPolicy,
            early_shape: false,
            namespace: Some(namespace),
        }
    }

    /// Reports whether the rules of the API version have an action.
    fn has_actions(self) -> bool {
        matches!(
            self.api,
            PolicyApi::Cluster
                | PolicyApi::Admin
                | PolicyApi::BaselineAdmin
                | PolicyApi::EarlyCluster
        )
    }

    /// Returns the key of the list of ports.
    pub(super) fn ports_key(self) -> &'static str {
        match self.api {
            PolicyApi::Cluster => "protocols",
            PolicyApi::Admin
            | PolicyApi::BaselineAdmin
            | PolicyApi::NetworkPolicy
            | PolicyApi::NetworkPolicy2016
            | PolicyApi::IsolationAnnotation
            | PolicyApi::EarlyCluster
            | PolicyApi::Default => "ports",
        }
    }

    fn peers_key(self, direction: Direction) -> &'static str {
        match (self.api, direction) {
            (PolicyApi::Default, Direction::Ingress) => "onlyFrom",
            (PolicyApi::Default, Direction::Egress) => "onlyTo",
            (_, Direction::Ingress) => "from",
            (_, Direction::Egress) => "to",
        }
    }

    /// Formats a rule; `None`: the dialect cannot express it.
    pub(super) fn rule(self, cluster: &Cluster<'_>, rule: &PlannedRule<'_>) -> Option<Value> {
        let mut entries = Vec::new();
        if self.has_actions() {
            let is_today = self.api == PolicyApi::Cluster;
            let action = if is_today { "Accept" } else { "Allow" };
            entries.push(("action".into(), Value::text(action)));
        }
        let peers = rule.peers.iter().map(|it| self.peer(cluster, it));
        let peers: Vec<Value> = peers.collect::<Option<_>>()?;
        entries.push((
            self.peers_key(rule.direction).into(),
            Value::List(self.with_joined_networks(peers, rule)),
        ));
        if !rule.ports.is_empty() {
            let ports = rule.ports.iter().map(|it| self.port(*it));
            entries.push((self.ports_key().into(), Value::List(ports.collect())));
        }
        Some(Value::Map(entries))
    }

    /// Joins the blocks of cluster-wide policies: one `networks` has several.
    fn with_joined_networks(self, peers: Vec<Value>, rule: &PlannedRule<'_>) -> Vec<Value> {
        if !self.has_actions() || self.api == PolicyApi::EarlyCluster {
            return peers;
        }
        let blocks = rule.peers.iter().filter_map(|it| match it {
            PlannedPeer::Block(block) => Some(Value::text(block.to_string())),
            PlannedPeer::Pods(_) => None,
        });
        let blocks: Vec<Value> = blocks.collect();
        let mut joined: Vec<Value> = peers
            .into_iter()
            .zip(&rule.peers)
            .filter_map(|(value, peer)| matches!(peer, PlannedPeer::Pods(_)).then_some(value))
            .collect();
        if !blocks.is_empty() {
            joined.push(Value::entry("networks", Value::List(blocks)));
        }
        joined
    }

    fn peer(self, cluster: &Cluster<'_>, peer: &PlannedPeer<'_>) -> Option<Value> {
        let pods = match peer {
            PlannedPeer::Pods(pods) => pods,
            PlannedPeer::Block(block) => return self.block(&block.to_string()),
        };
        let namespace = selector(&[(NAME_LABEL, cluster.namespace_name(pods.namespace))]);
        let is_own = self.namespace == Some(pods.namespace);
        let labels = || selector(&pods.labels);
        let has_labels = !pods.labels.is_empty();
        Some(match self.api {
            PolicyApi::Cluster | PolicyApi::Admin | PolicyApi::BaselineAdmin => {
                self.cluster_wide_pods(namespace, pods)
            }
            PolicyApi::NetworkPolicy if is_own => Value::entry("podSelector", labels()),
            PolicyApi::NetworkPolicy if has_labels => Value::Map(vec![
                ("namespaceSelector".into(), namespace),
                ("podSelector".into(), labels()),
            ]),
            PolicyApi::NetworkPolicy => Value::entry("namespaceSelector", namespace),
            // This kind selects pods of its namespace, or all pods of namespaces (D70).
            PolicyApi::NetworkPolicy2016 if is_own => Value::entry("pods", labels()),
            PolicyApi::NetworkPolicy2016 => Value::entry("namespaces", namespace),
            PolicyApi::EarlyCluster | PolicyApi::Default => {
                let namespaces = Value::entry("selector", namespace);
                let mut entries = vec![("namespaces".into(), namespaces)];
                entries.extend(has_labels.then(|| ("podSelector".into(), labels())));
                Value::Map(entries)
            }
            PolicyApi::IsolationAnnotation => return None,
        })
    }

    fn cluster_wide_pods(self, namespace: Value, pods: &PlannedPods<'_>) -> Value {
        let namespaces = if self.early_shape {
            Value::entry("namespaceSelector", namespace)
        } else {
            namespace
        };
        if pods.labels.is_empty() {
            return Value::entry("namespaces", namespaces);
        }
        let key = if self.early_shape {
            "namespaces"
        } else {
            "namespaceSelector"
        };
        let pods = vec![
            (key.into(), namespaces),
            ("podSelector".into(), selector(&pods.labels)),
        ];
        Value::entry("pods", Value::Map(pods))
    }

    fn block(self, block: &str) -> Option<Value> {
        match self.api {
            PolicyApi::NetworkPolicy | PolicyApi::EarlyCluster | PolicyApi::Default => {
                let cidr = Value::entry("cidr", Value::text(block));
                Some(Value::entry("ipBlock", cidr))
            }
            PolicyApi::Cluster | PolicyApi::Admin | PolicyApi::BaselineAdmin
                if !self.early_shape =>
            {
                let blocks = Value::List(vec![Value::text(block)]);
                Some(Value::entry("networks", blocks))
            }
            // Shapes before v0.1.3 have no addresses, and neither has the proposal of 2016.
            PolicyApi::Cluster
            | PolicyApi::Admin
            | PolicyApi::BaselineAdmin
            | PolicyApi::NetworkPolicy2016
            | PolicyApi::IsolationAnnotation => None,
        }
    }

    /// Formats a port.
    pub(super) fn port(self, (protocol, port): PlannedPort) -> Value {
        let number = Value::Number(port.get());
        let name = || Value::text(protocol.name());
        match self.api {
            PolicyApi::Cluster => {
                let port = Value::entry("number", number);
                let port = Value::entry("destinationPort", port);
                Value::Map(vec![(protocol.name().to_ascii_lowercase().into(), port)])
            }
            PolicyApi::Admin | PolicyApi::BaselineAdmin => {
                let port = vec![("protocol".into(), name()), ("port".into(), number)];
                Value::entry("portNumber", Value::Map(port))
            }
            PolicyApi::NetworkPolicy
            | PolicyApi::NetworkPolicy2016
            | PolicyApi::IsolationAnnotation
            | PolicyApi::EarlyCluster
            | PolicyApi::Default => {
                let mut port = vec![("port".into(), number)];
                // TCP is the default.
                if protocol != Protocol::Tcp {
                    port.insert(0, ("protocol".into(), name()));
                }
                Value::Map(port)
            }
        }
    }
}

/// The label that every namespace has, with its name (D23).
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Formats a selector of labels.
pub(super) fn selector(labels: &[(&str, &str)]) -> Value {
    if labels.is_empty() {
        return Value::Map(Vec::new());
    }
    let labels = labels.iter();
    let labels = labels.map(|(key, value)| ((*key).to_owned().into(), Value::text(*value)));
    Value::entry("matchLabels", Value::Map(labels.collect()))
}
