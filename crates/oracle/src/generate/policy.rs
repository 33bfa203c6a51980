//! Random policies of every API version: sound rules by kind of peer and port filter.

use super::cluster::{APPS, Cluster, OUTSIDE, TEAMS, TENANTS, TRACKS};
use super::defect;
use super::marks::{Mark, is_anp, is_early, is_np0, lists};
use super::rng::Rng;
use serde_json::{Map, Value, json};

/// The parts of policies.
pub(crate) struct Maker<'a> {
    pub(crate) rng: &'a mut Rng,
    pub(crate) cluster: &'a Cluster,
}

/// The policies of a scenario, and the marks of all their rules.
pub(crate) fn policies(
    rng: &mut Rng,
    cluster: &Cluster,
    plans: &[Mark],
) -> (Vec<Value>, Vec<Mark>) {
    let mut names: Vec<String> = (0..plans.len()).map(|i| format!("q{i:02}")).collect();
    rng.shuffle(&mut names);
    let mut maker = Maker { rng, cluster };
    let (mut out, mut marks) = (Vec::new(), Vec::new());
    let mut default = false;
    for (plan, name) in plans.iter().zip(names) {
        // D49: the first BANP has its name, others do not.
        let name = if plan.generation.starts_with("banp") && !std::mem::replace(&mut default, true)
        {
            "default".to_owned()
        } else {
            name
        };
        let namespace = maker.namespace(plan);
        if maker.rng.chance(1, 40) {
            // Of duplicate objects the later one counts.
            let other = random_like(maker.rng, plan);
            let (_, sound) = maker.policy(&other, &name, namespace);
            out.push(sound);
        }
        let (found, policy) = maker.policy(plan, &name, namespace);
        out.push(policy);
        marks.extend(found);
    }
    (out, marks)
}

/// Another sound rule for the same object.
fn random_like(rng: &mut Rng, plan: &Mark) -> Mark {
    let wide = rng.chance(2, 5);
    let fits: Vec<&Mark> = lists()
        .0
        .iter()
        .filter(|m| m.generation == plan.generation && m.tier == plan.tier)
        .filter(|m| !wide || m.port == "none")
        .collect();
    **rng.pick(&fits)
}

/// The key of a rule's peers.
pub(crate) fn peers_key(generation: &str, direction: &str) -> &'static str {
    match (generation, direction) {
        ("dnp", "ingress") => "onlyFrom",
        ("dnp", _) => "onlyTo",
        (_, "ingress") => "from",
        _ => "to",
    }
}

/// The key of a rule's port filter.
pub(crate) fn ports_key(generation: &str) -> &'static str {
    if generation == "cnp" {
        "protocols"
    } else {
        "ports"
    }
}

impl Maker<'_> {
    fn namespace(&mut self, plan: &Mark) -> &'static str {
        if is_np0(plan.generation) && !self.cluster.isolated.is_empty() && self.rng.chance(9, 10) {
            return self.rng.word(&self.cluster.isolated);
        }
        self.rng.word(&self.cluster.namespaces)
    }

    /// A policy with the planned rule, and up to two more.
    fn policy(&mut self, plan: &Mark, name: &str, namespace: &str) -> (Vec<Mark>, Value) {
        let generation = plan.generation;
        let mut planned = *plan;
        let mut marks = vec![*plan];
        if plan.peer == "-" || plan.port == "-" {
            // The other parts are those of a sound rule.
            let fits: Vec<&Mark> = lists()
                .0
                .iter()
                .filter(|m| {
                    m.generation == generation
                        && m.tier == plan.tier
                        && m.action == plan.action
                        && m.direction == plan.direction
                        && (plan.peer == "-" || plan.peer == m.peer)
                })
                .collect();
            planned = **self.rng.pick(&fits);
        }
        let mut rules: Vec<(Mark, Value)> = vec![(planned, self.rule(&planned))];
        for _ in 0..self.rng.below(3) {
            let m = random_like(self.rng, plan);
            marks.push(m);
            rules.push((m, self.rule(&m)));
        }
        if self.rng.chance(1, 3) {
            rules.rotate_left(1);
        }
        let mut spec = self.spec(generation, plan);
        let at = rules.iter().position(|(m, _)| *m == planned).unwrap_or(0);
        let before = rules[..at]
            .iter()
            .filter(|(m, _)| m.direction == plan.direction)
            .count();
        for (m, rule) in rules {
            if spec.get(m.direction).is_none() {
                spec[m.direction] = json!([]);
            }
            spec[m.direction].as_array_mut().unwrap().push(rule);
        }
        if generation == "np" {
            self.policy_types(&mut spec, plan.direction);
        }
        if !is_np0(generation) && self.rng.chance(1, 10) {
            // An empty list: it isolates in DNP (D63), and nowhere else.
            for d in ["ingress", "egress"] {
                if spec.get(d).is_none() {
                    spec[d] = json!([]);
                }
            }
        }
        if plan.defect != "-" {
            let rule = spec[plan.direction].as_array_mut().unwrap().remove(before);
            let rule = defect::in_rule(self, plan, rule);
            spec[plan.direction]
                .as_array_mut()
                .unwrap()
                .insert(before, rule);
            defect::in_object(self, plan, &mut spec);
        }
        (marks, object(generation, name, namespace, &spec, self.rng))
    }

    /// Everything but the rules.
    fn spec(&mut self, generation: &str, plan: &Mark) -> Value {
        // A defect often denies everything, which would hide everything else; so it is not
        // everywhere.
        let narrow = plan.defect != "-" && self.rng.chance(4, 5);
        if generation == "np" || is_np0(generation) {
            return match self.rng.below(6) {
                0 => json!({}),
                1 | 2 => json!({"podSelector": {}}),
                3 if is_np0(generation) => json!({"podSelector": {"app": *self.rng.pick(&APPS)}}),
                _ => json!({"podSelector": self.pod_selector()}),
            };
        }
        if generation == "cnp0" || generation == "dnp" {
            let mut applied = json!({"namespaceSelector": self.namespace_selector()});
            if narrow || self.rng.chance(1, 2) {
                applied["podSelector"] = self.pod_selector();
            }
            return json!({"appliedTo": applied});
        }
        let subject = match self.rng.below(6) {
            0 | 1 if !narrow => json!({"namespaces": {}}),
            2 | 3 if !narrow => json!({"namespaces": self.namespace_selector()}),
            4 if generation == "cnp" => json!({"pods": {"podSelector": self.pod_selector()}}),
            _ => {
                json!({"pods": {"namespaceSelector": self.namespace_selector(), "podSelector": self.pod_selector()}})
            }
        };
        let mut spec = json!({"subject": subject});
        if !generation.starts_with("banp") {
            spec["priority"] = json!(*self.rng.pick(&[0, 1, 5, 5, 10, 1000]));
        }
        if generation == "cnp" {
            spec["tier"] = json!(if plan.tier == "admin" {
                "Admin"
            } else {
                "Baseline"
            });
        }
        spec
    }

    /// Makes the planned direction apply, by name or by default.
    fn policy_types(&mut self, spec: &mut Value, direction: &str) {
        let both = json!(["Ingress", "Egress"]);
        match (self.rng.below(4), direction) {
            (0 | 1, _) => {}
            (2, "ingress") => spec["policyTypes"] = json!(["Ingress"]),
            (2, _) => spec["policyTypes"] = json!(["Egress"]),
            _ => spec["policyTypes"] = both,
        }
    }

    /// A sound rule.
    fn rule(&mut self, m: &Mark) -> Value {
        let mut rule = Map::new();
        if (is_anp(m.generation) || m.generation == "cnp") && self.rng.chance(1, 4) {
            rule.insert("name".into(), json!(format!("r{}", self.rng.below(9))));
        }
        let word = match (m.action, m.generation) {
            ("accept", "cnp") => Some("Accept"),
            ("accept", _) => Some("Allow"),
            ("deny", _) => Some("Deny"),
            ("pass", _) => Some("Pass"),
            _ => None,
        };
        if let Some(word) = word {
            rule.insert("action".into(), json!(word));
        }
        if m.peer == "any" {
            if self.rng.chance(1, 4) {
                rule.insert(peers_key(m.generation, m.direction).into(), json!([]));
            }
        } else {
            let mut peers = vec![self.peer(m.generation, m.peer)];
            // A second peer of the same kind, sometimes.
            if self.rng.chance(1, 4) {
                peers.push(self.peer(m.generation, m.peer));
            }
            rule.insert(peers_key(m.generation, m.direction).into(), json!(peers));
        }
        if m.port == "empty-list" {
            rule.insert("ports".into(), json!([]));
        } else if m.port != "none" {
            let mut ports = vec![self.port(m.generation, m.port)];
            if self.rng.chance(1, 4) {
                ports.push(self.port(m.generation, m.port));
            }
            rule.insert(ports_key(m.generation).into(), json!(ports));
        }
        Value::Object(rule)
    }

    pub(crate) fn namespace_selector(&mut self) -> Value {
        let key = *self.rng.pick(&["team", "team", "tenant"]);
        let value = if key == "team" {
            *self.rng.pick(&TEAMS)
        } else {
            *self.rng.pick(&TENANTS)
        };
        if self.rng.chance(1, 6) {
            let name = *self.rng.pick(&self.cluster.namespaces);
            return json!({"matchLabels": {"kubernetes.io/metadata.name": name}});
        }
        self.selector(key, value)
    }

    pub(crate) fn pod_selector(&mut self) -> Value {
        let key = *self.rng.pick(&["app", "app", "track"]);
        let value = if key == "app" {
            *self.rng.pick(&APPS)
        } else {
            *self.rng.pick(&TRACKS)
        };
        self.selector(key, value)
    }

    fn selector(&mut self, key: &str, value: &str) -> Value {
        match self.rng.below(10) {
            0 | 9 => json!({}),
            1 => {
                json!({"matchExpressions": [{"key": key, "operator": "In", "values": [value, "other"]}]})
            }
            2 => {
                json!({"matchExpressions": [{"key": key, "operator": "NotIn", "values": [value]}]})
            }
            3 => json!({"matchExpressions": [{"key": key, "operator": "Exists"}]}),
            4 => json!({"matchExpressions": [{"key": key, "operator": "DoesNotExist"}]}),
            5 => {
                json!({"matchLabels": {key: value}, "matchExpressions": [{"key": key, "operator": "Exists", "values": []}]})
            }
            _ => json!({"matchLabels": {key: value}}),
        }
    }

    /// A block that cuts through the addresses of pods, nodes or the outside.
    pub(crate) fn cidr(&mut self) -> String {
        let pods: Vec<&String> = self
            .cluster
            .pods
            .iter()
            .flat_map(|p| &p.addresses)
            .collect();
        match self.rng.below(15) {
            0 | 1 | 14 => "0.0.0.0/0".to_owned(),
            2 => "10.0.0.0/8".to_owned(),
            3 => format!("10.0.{}.0/24", self.rng.below(3)),
            // Host bits are masked (D27).
            4 => format!("10.0.{}.9/29", self.rng.below(3)),
            5 => "10.0.0.0/23".to_owned(),
            6 => "192.0.2.0/24".to_owned(),
            7 => "203.0.113.0/26".to_owned(),
            8 => "::/0".to_owned(),
            9 => "fd00::/16".to_owned(),
            10 => format!("fd00:0:0:{}::/64", self.rng.below(3)),
            11 => "2001:db8::/32".to_owned(),
            _ => {
                let a = match pods.is_empty() {
                    true => OUTSIDE[0],
                    false => self.rng.pick(&pods).as_str(),
                };
                format!("{a}/{}", if a.contains(':') { 128 } else { 32 })
            }
        }
    }

    /// A block with strict parts of it.
    fn block_except(&mut self) -> Value {
        let n = self.rng.below(3);
        match self.rng.below(5) {
            0 => json!({"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}),
            1 => json!({"cidr": "10.0.0.0/8", "except": [format!("10.0.{n}.0/24"), "10.0.1.4/30"]}),
            2 => json!({"cidr": format!("10.0.{n}.0/24"), "except": [format!("10.0.{n}.3/29")]}),
            3 => json!({"cidr": "::/0", "except": [format!("fd00:0:0:{n}::/64")]}),
            _ => {
                json!({"cidr": "fd00::/8", "except": ["fd00:0:0:1::/65", format!("fd00:0:0:{n}::4/126")]})
            }
        }
    }

    /// A sound peer.
    pub(crate) fn peer(&mut self, generation: &str, kind: &str) -> Value {
        let keys = json!(*self.rng.pick(&[
            &["team"][..],
            &["tenant"],
            &["team", "tenant"],
            &["tenant"],
            &[]
        ]));
        let early = is_early(generation);
        let old = generation == "cnp0" || generation == "dnp";
        match kind {
            "namespaces" if generation == "np" => {
                json!({"namespaceSelector": self.namespace_selector()})
            }
            "namespaces" if is_np0(generation) && self.rng.chance(1, 3) => {
                json!({"namespaces": {"team": *self.rng.pick(&TEAMS)}})
            }
            "namespaces" if early => {
                json!({"namespaces": {"namespaceSelector": self.namespace_selector()}})
            }
            "namespaces" if old => json!({"namespaces": {"selector": self.namespace_selector()}}),
            "namespaces" => json!({"namespaces": self.namespace_selector()}),
            "pods" if generation == "np" || old => json!({"podSelector": self.pod_selector()}),
            "pods" if is_np0(generation) && self.rng.chance(1, 3) => {
                json!({"pods": {"app": *self.rng.pick(&APPS)}})
            }
            "pods" if is_np0(generation) => json!({"pods": self.pod_selector()}),
            "pods" if early => {
                json!({"pods": {"namespaces": {"namespaceSelector": self.namespace_selector()}, "podSelector": self.pod_selector()}})
            }
            "pods" => {
                json!({"pods": {"namespaceSelector": self.namespace_selector(), "podSelector": self.pod_selector()}})
            }
            "pod-selector" => json!({"podSelector": self.pod_selector()}),
            "namespace-selector" => json!({"namespaceSelector": self.namespace_selector()}),
            "pods-anywhere" => json!({"pods": {"podSelector": self.pod_selector()}}),
            "pods-namespaces" if old => match self.rng.below(3) {
                0 => json!({"podSelector": self.pod_selector(), "namespaces": {"self": true}}),
                _ => {
                    json!({"podSelector": self.pod_selector(), "namespaces": {"selector": self.namespace_selector()}})
                }
            },
            "pods-namespaces" => {
                json!({"podSelector": self.pod_selector(), "namespaceSelector": self.namespace_selector()})
            }
            "namespaces-except" => {
                json!({"namespaces": {"selector": self.namespace_selector(), "except": [self.namespace_selector()]}})
            }
            "self" => json!({"namespaces": {"self": true}}),
            "block" => json!({"ipBlock": {"cidr": self.cidr()}}),
            "block-except" => json!({"ipBlock": self.block_except()}),
            "all" => json!({"all": {}}),
            "same-labels" => json!({"namespaces": {"sameLabels": keys}}),
            "not-same-labels" => json!({"namespaces": {"notSameLabels": keys}}),
            "pods-same-labels" => {
                json!({"pods": {"namespaces": {"sameLabels": keys}, "podSelector": self.pod_selector()}})
            }
            "pods-not-same-labels" => {
                json!({"pods": {"namespaces": {"notSameLabels": keys}, "podSelector": self.pod_selector()}})
            }
            "related-self" => {
                json!({"namespaces": {"related": *self.rng.pick(&["Self", "self", "SELF"])}})
            }
            "related-not-self" => {
                json!({"namespaces": {"related": *self.rng.pick(&["NotSelf", "notself", "notSelf"])}})
            }
            "pods-related" => {
                json!({"pods": {"namespaces": {"related": *self.rng.pick(&["Self", "NotSelf"])}, "podSelector": self.pod_selector()}})
            }
            "networks" => {
                let (a, b) = (self.cidr(), self.cidr());
                if a == b {
                    json!({"networks": [a]})
                } else {
                    json!({"networks": [a, b]})
                }
            }
            "nodes" => match self.rng.below(4) {
                0 => json!({"nodes": {}}),
                1 => {
                    json!({"nodes": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}})
                }
                _ => {
                    json!({"nodes": {"matchLabels": {"role": *self.rng.pick(&["worker", "control-plane"])}}})
                }
            },
            _ => {
                json!({"domainNames": [*self.rng.pick(&["*.example.com", "a.example.com", "ads.EXAMPLE.com", "example.com.", "www.example.org", "*.a.example.com"])]})
            }
        }
    }

    /// A sound port element.
    pub(crate) fn port(&mut self, generation: &str, kind: &str) -> Value {
        let number = *self.rng.pick(&[80, 81, 443, 8080, 9090, 53]);
        let (start, end) = *self.rng.pick(&[
            (80, 81),
            (8000, 8080),
            (8080, 9090),
            (1, 65535),
            (53, 443),
            (79, 80),
        ]);
        let name = *self
            .rng
            .pick(&["http", "dns", "web", "multi", "side", "sig", "absent"]);
        let upper = kind.to_uppercase();
        let any = *self.rng.pick(&["TCP", "UDP", "SCTP"]);
        if generation == "cnp" {
            let any = any.to_lowercase();
            return match kind {
                "range" => {
                    json!({any: {"destinationPort": {"range": {"start": start, "end": end}}}})
                }
                "named" => json!({"destinationNamedPort": name}),
                // D50.
                "all-tcp" => json!({any: {}}),
                _ => json!({kind: {"destinationPort": {"number": number}}}),
            };
        }
        if is_anp(generation) {
            return match kind {
                "range" if self.rng.chance(1, 3) => {
                    json!({"portRange": {"start": start, "end": end}})
                }
                "range" => json!({"portRange": {"protocol": any, "start": start, "end": end}}),
                "named" => json!({"namedPort": name}),
                "no-protocol" if self.rng.chance(1, 3) => {
                    json!({"portNumber": {"protocol": "", "port": number}})
                }
                "no-protocol" => json!({"portNumber": {"port": number}}),
                _ => json!({"portNumber": {"protocol": upper, "port": number}}),
            };
        }
        match kind {
            "range" => json!({"protocol": any, "port": start, "endPort": end}),
            "named" if self.rng.chance(1, 2) => json!({"port": name}),
            "named" => json!({"protocol": "TCP", "port": name}),
            "named-udp" => json!({"protocol": "UDP", "port": name}),
            // D30.
            "all-tcp" if self.rng.chance(1, 2) => json!({}),
            "all-tcp" => json!({"protocol": "TCP"}),
            "all-udp" => json!({"protocol": "UDP"}),
            "no-protocol" => json!({"port": number}),
            _ => json!({"protocol": upper, "port": number}),
        }
    }
}

fn object(generation: &str, name: &str, namespace: &str, spec: &Value, rng: &mut Rng) -> Value {
    let (api, kind) = match generation {
        "np" => ("networking.k8s.io/v1", "NetworkPolicy"),
        "np0-v1beta" => ("v1beta", "NetworkPolicy"),
        "np0-extensions" => ("extensions/v1beta1", "NetworkPolicy"),
        "cnp" => ("policy.networking.k8s.io/v1alpha2", "ClusterNetworkPolicy"),
        "cnp0" => ("networking.k8s.io/v1alpha1", "ClusterNetworkPolicy"),
        "dnp" => ("networking.k8s.io/v1alpha1", "DefaultNetworkPolicy"),
        g if g.starts_with("banp") => (
            "policy.networking.k8s.io/v1alpha1",
            "BaselineAdminNetworkPolicy",
        ),
        _ => ("policy.networking.k8s.io/v1alpha1", "AdminNetworkPolicy"),
    };
    let mut meta = json!({"name": name});
    if generation == "np" || is_np0(generation) {
        meta["namespace"] = json!(namespace);
    } else if rng.chance(1, 3) {
        meta["uid"] = json!(format!("uid-{name}"));
    }
    json!({"apiVersion": api, "kind": kind, "metadata": meta, "spec": spec})
}
