//! Random histories of small clusters with many conflicts: objects are created, changed and
//! deleted.

#![expect(clippy::indexing_slicing, reason = "a campaign fails by panicking")]

use std::collections::BTreeMap;

use palisade_oracle::generate::scenario;
use serde_json::{Value, json};

/// Random numbers (splitmix64); the same seed gives the same ones.
#[derive(Debug)]
pub struct Rng(u64);

impl Rng {
    /// Starts at a seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed ^ 0x51ed_270b_4d3a_9c11)
    }

    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound.max(1) as u64) as usize
    }

    /// Returns true with a probability in percent.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns an element of a list that is not empty.
    pub fn pick<'l, T>(&mut self, list: &'l [T]) -> &'l T {
        &list[self.below(list.len())]
    }

    /// Puts a list in a random order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for at in (1..list.len()).rev() {
            list.swap(at, self.below(at + 1));
        }
    }
}

/// The identity of an object: version, kind, namespace and name.
pub type Id = [String; 4];

/// Returns the identity of an object.
pub fn id(object: &Value) -> Id {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    [
        text(&object["apiVersion"]),
        text(&object["kind"]),
        text(&metadata["namespace"]),
        text(&metadata["name"]),
    ]
}

/// An event.
#[derive(Debug)]
pub enum Event {
    /// An object was created or changed.
    Set(Value),
    /// An object was deleted.
    Deleted(Value),
}

/// A cluster, and the objects that it may get.
#[derive(Debug)]
pub struct History {
    /// The random choices.
    pub rng: Rng,
    /// The current objects.
    pub objects: BTreeMap<Id, Value>,
    /// Former and future objects.
    pool: Vec<Value>,
}

/// The kinds in a history. Nodes do not read workloads and Services.
const KINDS: [&str; 8] = [
    "Pod",
    "Namespace",
    "Node",
    "NetworkPolicy",
    "AdminNetworkPolicy",
    "BaselineAdminNetworkPolicy",
    "ClusterNetworkPolicy",
    "DefaultNetworkPolicy",
];

/// The label that only twins select.
const TWIN: &str = "twin";

/// An equivalent policy with other selectors, as long as no pod has the label of twins.
fn twin(object: &Value) -> Option<Value> {
    let [_, kind, _, name] = id(object);
    if !kind.ends_with("Policy") || kind == "BaselineAdminNetworkPolicy" {
        return None;
    }
    let mut twin = object.clone();
    twin["metadata"]["name"] = json!(format!("{name}-{TWIN}"));
    for list in ["ingress", "egress"] {
        if let Some(rules) = twin["spec"].get_mut(list) {
            reword(rules);
        }
    }
    Some(twin)
}

fn reword(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(reword),
        Value::Object(map) => {
            if let Some(Value::Object(labels)) = map.remove("matchLabels") {
                let expressions = labels.iter().map(
                    |(key, value)| json!({"key": key, "operator": "In", "values": [value, TWIN]}),
                );
                let expressions: Vec<Value> = expressions.collect();
                let mut all = map.remove("matchExpressions").unwrap_or_else(|| json!([]));
                if let Some(all) = all.as_array_mut() {
                    all.extend(expressions);
                }
                map.insert("matchExpressions".to_owned(), all);
            }
            map.values_mut().for_each(reword);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A policy in the namespace of a pod with enough egress rules with named ports for a set lookup.
fn named(rng: &mut Rng, pool: &[Value], number: usize) -> Value {
    let pods: Vec<&Value> = pool.iter().filter(|it| id(it)[1] == "Pod").collect();
    let namespace = pods.get(rng.below(pods.len()));
    let namespace = namespace.map_or("default".to_owned(), |pod| id(pod)[2].clone());
    let peer = |rng: &mut Rng| {
        let app = json!({"matchLabels": {"app": rng.pick(&["web", "db", "client", TWIN])}});
        match rng.below(7) {
            0 => json!({"podSelector": app}),
            1 => json!({"namespaceSelector": {}, "podSelector": app}),
            2 => {
                json!({"namespaceSelector": {"matchLabels": {"team": rng.pick(&["red", "blue"])}}})
            }
            3 => json!({"ipBlock": {"cidr": "10.0.0.0/23", "except": ["10.0.0.2/31"]}}),
            4 => json!({"ipBlock": {"cidr": format!("10.0.{}.1/32", rng.below(3))}}),
            5 => json!({"ipBlock": {"cidr": "fd00::/62", "except": ["fd00:0:0:1::/64"]}}),
            _ => json!({"ipBlock": {"cidr": rng.pick(&["0.0.0.0/0", "::/0"])}}),
        }
    };
    let rule = |rng: &mut Rng| {
        let name = rng.pick(&["http", "web", "multi", "dns"]);
        let mut ports = vec![json!({"port": name})];
        if rng.chance(30) {
            ports.push(json!({"port": rng.pick(&[80, 8080])}));
        }
        if rng.chance(30) {
            ports.push(json!({"port": name, "protocol": "UDP"}));
        }
        let peers: Vec<Value> = (0..rng.below(3)).map(|_| peer(rng)).collect();
        match peers.is_empty() && rng.chance(80) {
            true => json!({"ports": ports, "to": [peer(rng)]}),
            false if peers.is_empty() => json!({"ports": ports}),
            false => json!({"ports": ports, "to": peers}),
        }
    };
    let rules: Vec<Value> = (0..6 + rng.below(6)).map(|_| rule(rng)).collect();
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": format!("named-{number}"), "namespace": namespace},
        "spec": {"podSelector": {}, "policyTypes": ["Egress"], "egress": rules}})
}

impl History {
    /// Starts with the cluster of a seed.
    pub fn new(seed: u64) -> History {
        let mut rng = Rng::new(seed);
        let mut pool = Vec::new();
        for part in 0..3 {
            let scenario = scenario(seed * 3 + part, 0);
            let objects = scenario.objects.into_iter();
            pool.extend(objects.filter(|object| {
                let [_, kind, _, name] = id(object);
                KINDS.contains(&kind.as_str()) && !name.is_empty()
            }));
        }
        if seed % 4 == 2 {
            let named: Vec<Value> = (0..3)
                .map(|number| named(&mut rng, &pool, number))
                .collect();
            pool.extend(named);
        }
        if seed % 2 == 1 {
            let twins: Vec<Value> = pool.iter().filter_map(twin).collect();
            pool.extend(twins);
        }
        rng.shuffle(&mut pool);
        History {
            rng,
            objects: BTreeMap::new(),
            pool,
        }
    }

    /// The next event, if there is one.
    pub fn next_event(&mut self) -> Option<Event> {
        match self.rng.below(10) {
            0..=2 => self.create(),
            3 => self.delete(),
            _ => self.change(),
        }
    }

    fn create(&mut self) -> Option<Event> {
        if self.pool.is_empty() {
            return None;
        }
        let at = self.rng.below(self.pool.len());
        let object = self.pool.swap_remove(at);
        Some(self.set(object))
    }

    fn delete(&mut self) -> Option<Event> {
        let deleted = self.any(|_| true)?;
        let object = self.objects.remove(&deleted)?;
        self.pool.push(object.clone());
        Some(Event::Deleted(object))
    }

    fn set(&mut self, object: Value) -> Event {
        if let Some(before) = self.objects.insert(id(&object), object.clone())
            && self.rng.chance(50)
        {
            self.pool.push(before);
        }
        Event::Set(object)
    }

    fn any(&mut self, is_selected: impl Fn(&str) -> bool) -> Option<Id> {
        let keys = self.objects.keys();
        let keys: Vec<Id> = keys
            .filter(|[_, kind, ..]| is_selected(kind))
            .cloned()
            .collect();
        (!keys.is_empty()).then(|| self.rng.pick(&keys).clone())
    }

    fn change(&mut self) -> Option<Event> {
        let kind = *self
            .rng
            .pick(&["Pod", "Pod", "Pod", "Namespace", "Node", "policy"]);
        let key = self.any(|it| match kind {
            "policy" => it.ends_with("Policy"),
            kind => it == kind,
        })?;
        let mut object = self.objects[&key].clone();
        match kind {
            "Pod" => self.change_pod(&mut object),
            "Namespace" => self.change_namespace(&mut object),
            "Node" => self.change_node(&mut object),
            _ => self.change_policy(&mut object, &key),
        }
        Some(self.set(object))
    }

    fn change_pod(&mut self, pod: &mut Value) {
        let rng = &mut self.rng;
        match rng.below(9) {
            0 => pod["metadata"]["labels"]["app"] = json!(rng.pick(&["web", "db", "client", TWIN])),
            1 => pod["metadata"]["labels"] = json!({"app": "web", "track": "a"}),
            2 => pod["status"]["phase"] = json!(rng.pick(&PHASES)),
            3 => {
                let toggled = pod["spec"]["hostNetwork"] != json!(true);
                pod["spec"]["hostNetwork"] = json!(toggled);
            }
            4 => pod["spec"]["nodeName"] = json!(rng.pick(&["n1", "n2", "n3", "ghost"])),
            5 => {
                let day = 1 + rng.below(4);
                let time = rng.pick(&["T00:00:00Z", "T00:00:00.5Z"]);
                pod["metadata"]["creationTimestamp"] = json!(format!("2024-01-0{day}{time}"));
            }
            6 => {
                let port = rng.pick(&[80, 8080, 9090]);
                let name = rng.pick(&["http", "web", "multi", "dns"]);
                pod["spec"]["containers"][0]["ports"] =
                    json!([{"name": name, "containerPort": port}]);
            }
            7 => {
                // No policy selects by it.
                pod["status"]["startTime"] = json!(format!("2024-01-01T00:00:0{}Z", rng.below(10)));
            }
            _ => {
                // Few addresses, which are reused in every order.
                let n = rng.below(3);
                let v4 = format!("10.0.{n}.{}", 1 + rng.below(5));
                let v6 = format!("fd00:0:0:{n}::{}", 1 + rng.below(5));
                let addresses = match rng.below(6) {
                    0 => vec![v6],
                    1 => vec![v4, v6],
                    2 => vec![format!("192.0.2.{}", 1 + rng.below(3))],
                    3 => vec!["203.0.113.7".to_owned()],
                    4 => Vec::new(),
                    _ => vec![v4],
                };
                let list = addresses.iter().map(|it| json!({"ip": it}));
                pod["status"]["podIPs"] = list.collect();
                pod["status"]["podIP"] = json!(addresses.first().cloned().unwrap_or_default());
            }
        }
    }

    fn change_namespace(&mut self, namespace: &mut Value) {
        let rng = &mut self.rng;
        let metadata = &mut namespace["metadata"];
        match rng.below(4) {
            0 => metadata["labels"]["team"] = json!(rng.pick(&["red", "blue", "green"])),
            1 => metadata["labels"]["tenant"] = json!(rng.pick(&["t1", "t2"])),
            2 => metadata["labels"] = json!({}),
            _ => {
                let value = rng.pick(&["true", "false"]);
                metadata["annotations"] =
                    json!({"net.beta.kubernetes.io/network-isolation": value});
            }
        }
    }

    fn change_node(&mut self, node: &mut Value) {
        let rng = &mut self.rng;
        match rng.below(4) {
            0 => node["metadata"]["labels"]["role"] = json!(rng.pick(&["worker", "control-plane"])),
            1 => node["metadata"]["labels"]["zone"] = json!(rng.pick(&["a", "b"])),
            2 => node["spec"]["podCIDR"] = json!(format!("10.1.{}.0/24", rng.below(9))),
            _ => {
                let address = rng.pick(&["192.0.2.1", "192.0.2.2", "192.0.2.101", "10.0.0.1"]);
                node["status"]["addresses"] = json!([{"type": "InternalIP", "address": address}]);
            }
        }
    }

    /// Changes a field of a policy, or replaces its spec with another policy's.
    fn change_policy(&mut self, policy: &mut Value, key: &Id) {
        let same_kind = |it: &&Value| id(it)[..2] == key[..2];
        let others: Vec<Value> = self.pool.iter().filter(same_kind).cloned().collect();
        let rng = &mut self.rng;
        match rng.below(6) {
            0 => {
                let value = rng.pick(&["audit", "enforce"]);
                policy["metadata"]["annotations"] = json!({"palisade.dev/enforcement": value});
            }
            1 if policy["spec"]["priority"].is_number() => {
                policy["spec"]["priority"] = json!(rng.below(100));
            }
            2 => {
                // Removes a rule.
                let field = rng.pick(&["ingress", "egress"]);
                if let Some(rules) = policy["spec"][field].as_array_mut()
                    && !rules.is_empty()
                {
                    let at = rng.below(rules.len());
                    rules.remove(at);
                }
            }
            3 => {
                // Reverses the rules.
                let field = rng.pick(&["ingress", "egress"]);
                if let Some(rules) = policy["spec"][field].as_array_mut() {
                    rules.reverse();
                }
            }
            4 => {
                policy["metadata"]["labels"] = json!({"unused": "label"});
            }
            _ if !others.is_empty() => {
                policy["spec"] = rng.pick(&others)["spec"].clone();
            }
            _ => {}
        }
    }
}

const PHASES: [&str; 5] = ["Running", "Pending", "Succeeded", "Failed", "Unknown"];
