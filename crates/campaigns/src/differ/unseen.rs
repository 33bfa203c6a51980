//! Compares the difference of two clusters without pods with every flow of pods that could exist.
//!
//! Policies of a random cluster change, and their pods are not in the input. The reference makes
//! small sets of pods from the label values that the selectors of both sides name, and the oracle
//! answers for each flow between them on both sides. If a flow is gained, the difference must not
//! be that every flow is as before.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use palisade_api::{Options, Source, lower, read};
use palisade_core::analysis::connect::diff::{ChangeKind, Limits, Version, diff};
use palisade_core::compile::compile;
use palisade_generate::Rng;
use palisade_oracle::generate::scenario;
use palisade_oracle::{Oracle, Verdict};
use serde_json::{Value, json};

use super::change::{changed, identity};

/// The comparison of pairs of clusters without pods.
#[derive(Clone, Debug, Default)]
pub struct Unseen {
    /// Compared pairs.
    pub pairs: u64,
    /// Pairs whose difference is that every flow is as before.
    pub same: u64,
    /// Pairs in which some pods gain a flow.
    pub gaining: u64,
    /// Answers of the oracle.
    pub answers: u64,
    /// The mistakes.
    pub mistakes: Vec<String>,
}

impl Unseen {
    /// Adds another comparison.
    pub fn add(&mut self, other: Unseen) {
        self.pairs += other.pairs;
        self.same += other.same;
        self.gaining += other.gaining;
        self.answers += other.answers;
        self.mistakes.extend(other.mistakes);
    }
}

/// The maximum numbers of pods and of ports of a reference.
const MOST_PODS: usize = 24;
const MOST_PORTS: usize = 7;

/// The kinds that a directory of policies has.
const KEPT: [&str; 7] = [
    "Namespace",
    "Node",
    "NetworkPolicy",
    "ClusterNetworkPolicy",
    "AdminNetworkPolicy",
    "BaselineAdminNetworkPolicy",
    "DefaultNetworkPolicy",
];

/// Compares the pair of a seed.
pub fn compare(seed: u64) -> Unseen {
    let cluster = scenario(seed, 0);
    let old = without_pods(cluster.objects);
    let mut rng = Rng::new(seed ^ 0xab5e_27ed);
    let new = match rng.below(4) {
        0 => with_nodes_of(&old, without_pods(changed(seed, &old))),
        _ => edited(&mut rng, &old),
    };
    let mut unseen = compare_objects(seed, [&old, &new], &cluster.dns);
    if !unseen.mistakes.is_empty() {
        unseen.mistakes = vec![shrink(seed, [old, new], &cluster.dns)];
    }
    unseen
}

fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap_or_default()
}

fn without_pods(objects: Vec<Value>) -> Vec<Value> {
    let mut objects = objects;
    objects.retain(|it| KEPT.contains(&kind(it)));
    objects
}

/// Gives a side the nodes of the other: flows of a new node are flows of a new endpoint.
fn with_nodes_of(old: &[Value], mut new: Vec<Value>) -> Vec<Value> {
    new.retain(|it| kind(it) != "Node");
    new.extend(old.iter().filter(|it| kind(it) == "Node").cloned());
    new
}

/// Compares two lists of objects.
fn compare_objects(seed: u64, sides: [&[Value]; 2], dns: &[(String, IpAddr)]) -> Unseen {
    let mut compared = Unseen {
        pairs: 1,
        ..Unseen::default()
    };
    let found = match found(sides, dns) {
        Ok(found) => found,
        Err(message) => {
            compared.mistakes.push(format!("seed {seed}: {message}"));
            return compared;
        }
    };
    compared.same = u64::from(found == Found::Same);
    let reference = Reference::new(seed, sides, dns);
    let (gained, answers) = reference.gained();
    compared.answers = answers;
    if let Some(flow) = gained {
        compared.gaining = 1;
        if found != Found::Possible {
            compared
                .mistakes
                .push(format!("seed {seed}: {flow} is gained, and not reported"));
        }
    }
    compared
}

/// What a difference reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// Every flow is as before.
    Same,
    /// Flows differ, and none can be gained.
    Narrower,
    /// Flows are gained or undecided.
    Possible,
}

fn found(sides: [&[Value]; 2], dns: &[(String, IpAddr)]) -> Result<Found, String> {
    let texts = sides.map(|objects| serde_json::to_vec(objects).unwrap_or_default());
    let [old, new] = texts.map(|text| [Source::new("objects.json", text)]);
    let old = read(&old, Options::default(), &|_| {});
    let new = read(&new, Options::default(), &|_| {});
    let old = lower(&old.objects, dns.to_vec());
    let new = lower(&new.objects, dns.to_vec());
    let (old_program, new_program) = (compile(&old.cluster), compile(&new.cluster));
    let version = |cluster, program| Version { cluster, program };
    let difference = diff(
        version(&old.cluster, &old_program),
        version(&new.cluster, &new_program),
        Limits::default(),
        &|_, _| {},
    );
    let difference = difference.map_err(|it| it.to_string())?;
    let mut kinds = difference.blocks.iter().map(|it| it.kind);
    Ok(
        if !difference.unseen.is_empty() || kinds.any(|it| it != ChangeKind::Lost) {
            Found::Possible
        } else if difference.blocks.is_empty() {
            Found::Same
        } else {
            Found::Narrower
        },
    )
}

/// Removes objects while a pair has a mistake, and returns its message.
fn shrink(seed: u64, mut sides: [Vec<Value>; 2], dns: &[(String, IpAddr)]) -> String {
    let first = |[old, new]: &[Vec<Value>; 2]| {
        let compared = compare_objects(seed, [old, new], dns);
        compared.mistakes.into_iter().next()
    };
    let names: BTreeSet<String> = sides
        .iter()
        .flatten()
        .map(|it| format!("{:?}", identity(it)))
        .collect();
    for name in names {
        let mut fewer = sides.clone();
        for side in &mut fewer {
            side.retain(|it| format!("{:?}", identity(it)) != name);
        }
        if first(&fewer).is_some() {
            sides = fewer;
        }
    }
    let mut text = first(&sides).unwrap_or_default();
    for (name, objects) in ["old", "new"].into_iter().zip(&sides) {
        text.push_str(&format!("\n  {name}:"));
        for object in objects {
            text.push_str(&format!("\n  {object}"));
        }
    }
    text
}

/// Pods that could exist, with both sides of a pair.
struct Reference {
    oracles: [Oracle; 2],
    pods: Vec<String>,
    others: Vec<String>,
    ports: Vec<String>,
}

/// What the policies of both sides name.
#[derive(Default)]
struct Atoms {
    pods: BTreeMap<String, BTreeSet<String>>,
    namespaces: BTreeMap<String, BTreeSet<String>>,
    ports: BTreeSet<u64>,
    addresses: BTreeSet<String>,
}

/// The kind of object that a selector selects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Pods,
    Namespaces,
    Nodes,
}

impl Atoms {
    fn collect(&mut self, value: &Value, of: Of) {
        match value {
            Value::Array(items) => items.iter().for_each(|it| self.collect(it, of)),
            Value::Object(map) => {
                for (key, value) in map {
                    let below = match key.as_str() {
                        "nodes" => Of::Nodes,
                        "podSelector" => Of::Pods,
                        key if key.starts_with("namespace") => Of::Namespaces,
                        _ => of,
                    };
                    self.word(key, value, below);
                    self.collect(value, below);
                }
                // A requirement, and the map of labels of 2016.
                if let Some(key) = map.get("key").and_then(Value::as_str) {
                    let values = map.get("values").and_then(Value::as_array);
                    let values = values.into_iter().flatten().filter_map(Value::as_str);
                    self.labels(of, key, values);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Collects what one field has.
    fn word(&mut self, key: &str, value: &Value, of: Of) {
        match (key, value) {
            ("matchLabels" | "podSelector" | "pods" | "namespaces", Value::Object(labels)) => {
                for (key, value) in labels {
                    self.labels(of, key, value.as_str().into_iter());
                }
            }
            ("sameLabels" | "notSameLabels", Value::Array(keys)) => {
                for key in keys.iter().filter_map(Value::as_str) {
                    self.labels(Of::Namespaces, key, [].into_iter());
                }
            }
            ("port" | "endPort" | "number" | "start" | "end", Value::Number(number)) => {
                self.ports
                    .extend(number.as_u64().into_iter().flat_map(|it| [it, it + 1]));
            }
            ("cidr", Value::String(block)) => {
                let address = block.split('/').next().unwrap_or_default();
                self.addresses.insert(address.to_owned());
            }
            ("networks" | "except", Value::Array(blocks)) => {
                let blocks = blocks.iter().filter_map(Value::as_str);
                let addresses = blocks.filter_map(|it| it.split('/').next());
                self.addresses.extend(addresses.map(str::to_owned));
            }
            _ => {}
        }
    }

    fn labels<'v>(&mut self, of: Of, key: &str, values: impl Iterator<Item = &'v str>) {
        let labels = match of {
            Of::Pods => &mut self.pods,
            Of::Namespaces => &mut self.namespaces,
            Of::Nodes => return,
        };
        let is_key = |it: &str| {
            let mut bytes = it.bytes();
            !it.is_empty() && bytes.all(|it| it.is_ascii_alphanumeric() || b"-_./".contains(&it))
        };
        if is_key(key) && !key.ends_with("Selector") && !key.starts_with("match") {
            let known = labels.entry(key.to_owned()).or_default();
            known.extend(values.filter(|it| is_key(it)).map(str::to_owned));
        }
    }
}

fn shuffle<T>(rng: &mut Rng, list: &mut [T]) {
    for at in (1..list.len()).rev() {
        list.swap(at, index(rng, at + 1));
    }
}

fn index(rng: &mut Rng, bound: usize) -> usize {
    usize::try_from(rng.below(bound.max(1) as u64)).unwrap_or(0)
}

/// Every combination of values: none, each that is named, and one that is not.
fn combinations(
    rng: &mut Rng,
    labels: &BTreeMap<String, BTreeSet<String>>,
) -> Vec<BTreeMap<String, String>> {
    let mut all = vec![BTreeMap::new()];
    for (key, values) in labels {
        let mut longer = Vec::new();
        for known in &all {
            longer.push(known.clone());
            for value in values.iter().map(String::as_str).chain(["unnamed"]) {
                let mut known = known.clone();
                known.insert(key.clone(), value.to_owned());
                longer.push(known);
            }
        }
        // Few of many: another seed takes others.
        shuffle(rng, &mut longer);
        longer.truncate(200);
        all = longer;
    }
    all
}

impl Reference {
    fn new(seed: u64, sides: [&[Value]; 2], dns: &[(String, IpAddr)]) -> Reference {
        let mut rng = Rng::new(seed ^ 0x0b5e_70ad);
        let mut atoms = Atoms::default();
        let mut namespaces: BTreeSet<String> = BTreeSet::new();
        for object in sides.into_iter().flatten() {
            let field = |path: &str| object.pointer(path).and_then(Value::as_str);
            if kind(object) == "Namespace" {
                namespaces.extend(field("/metadata/name").map(str::to_owned));
            } else if kind(object) != "Node" {
                namespaces.extend(field("/metadata/namespace").map(str::to_owned));
                atoms.collect(&object["spec"], Of::Pods);
            }
        }
        atoms.pods.remove("kubernetes.io/metadata.name");
        atoms.namespaces.remove("kubernetes.io/metadata.name");
        let is_v6 = rng.chance(25);
        let mut more: Vec<Value> = Vec::new();
        // A namespace that no object names can have any labels.
        let mut labels = combinations(&mut rng, &atoms.namespaces);
        let labels = labels.swap_remove(index(&mut rng, labels.len()));
        more.push(json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "one-more", "labels": labels}}));
        namespaces.insert("one-more".to_owned());
        let combinations = combinations(&mut rng, &atoms.pods);
        let mut kinds: Vec<(&String, usize)> = Vec::new();
        for namespace in &namespaces {
            kinds.extend((0..combinations.len()).map(|it| (namespace, it)));
        }
        shuffle(&mut rng, &mut kinds);
        kinds.truncate(MOST_PODS);
        let mut pods = Vec::new();
        for (number, (namespace, labels)) in (1..).zip(kinds) {
            let block = rng.below(3);
            let address = if is_v6 {
                format!("fd00:0:0:{block}::{number:x}")
            } else {
                format!("10.0.{block}.{number}")
            };
            let name = format!("pod{number}");
            more.push(json!({"apiVersion": "v1", "kind": "Pod", "metadata":
                {"name": name, "namespace": namespace, "labels": combinations.get(labels)},
                "spec": {"containers": [{"name": "c", "image": "i", "ports": declared(&mut rng)}]},
                "status": {"phase": "Running", "podIPs": [{"ip": address}]}}));
            pods.push(format!("{namespace}/{name}"));
        }
        Reference {
            oracles: sides.map(|objects| Oracle::new(&[objects, &more].concat(), dns)),
            others: others(&mut rng, sides, &atoms, dns, is_v6),
            ports: ports(&mut rng, &atoms),
            pods,
        }
    }

    /// A flow that some pods gain, and the number of answers until then.
    fn gained(&self) -> (Option<String>, u64) {
        let [old, new] = &self.oracles;
        let mut answers = 0;
        let ends: Vec<&String> = self.pods.iter().chain(&self.others).collect();
        for (number, from) in ends.iter().enumerate() {
            for to in &ends {
                // Only flows of a pod are subject to policies.
                let is_pod = number < self.pods.len() || self.pods.contains(to);
                if from == to || !is_pod {
                    continue;
                }
                for port in &self.ports {
                    let flow = format!("{from} {to} {port}");
                    answers += 1;
                    if old.answer(&flow).verdict != Verdict::Deny {
                        continue;
                    }
                    answers += 1;
                    if new.answer(&flow).verdict == Verdict::Allow {
                        return (Some(flow), answers);
                    }
                }
            }
        }
        (None, answers)
    }
}

/// The ports of a container: those that rules name, with their usual numbers.
fn declared(rng: &mut Rng) -> Value {
    let all = [
        ("http", 80, "TCP"),
        ("dns", 53, "UDP"),
        ("dns", 53, "TCP"),
        ("sig", 9003, "SCTP"),
        ("web", 80, "UDP"),
        ("multi", 80, "TCP"),
        ("multi", 8080, "TCP"),
        ("side", 81, "TCP"),
    ];
    let some = all.into_iter().filter(|_| rng.chance(75));
    let ports = some.map(|(name, number, protocol)| json!({"name": name, "containerPort": number, "protocol": protocol}));
    ports.collect()
}

fn ports(rng: &mut Rng, atoms: &Atoms) -> Vec<String> {
    let numbers = atoms.ports.iter().chain(&[53, 80, 8080, 9003]);
    let numbers: BTreeSet<&u64> = numbers.filter(|it| (1..=65535).contains(*it)).collect();
    let protocols = ["tcp", "udp", "sctp"];
    let of = |protocol: &str| {
        let ports = numbers.iter().map(|number| format!("{protocol}/{number}"));
        ports.collect::<Vec<String>>()
    };
    let mut ports: Vec<String> = protocols.into_iter().flat_map(of).collect();
    shuffle(rng, &mut ports);
    ports.truncate(MOST_PORTS);
    // A port that nothing names, and a protocol without ports.
    ports.extend(["tcp/4001".to_owned(), "ip/47".to_owned()]);
    ports
}

/// Addresses that are no pod's: outside, and of nodes of both sides.
fn others(
    rng: &mut Rng,
    sides: [&[Value]; 2],
    atoms: &Atoms,
    dns: &[(String, IpAddr)],
    is_v6: bool,
) -> Vec<String> {
    let mut all: Vec<String> = atoms.addresses.iter().cloned().collect();
    all.extend(dns.iter().map(|(_, address)| address.to_string()));
    shuffle(rng, &mut all);
    all.truncate(4);
    let outside = ["203.0.113.7", "2001:db8:ffff::7"];
    all.extend(outside.map(str::to_owned));
    let [old, _] = sides;
    for node in old.iter().filter(|it| kind(it) == "Node") {
        let addresses = node.pointer("/status/addresses").and_then(Value::as_array);
        let texts = addresses.into_iter().flatten();
        let texts = texts.filter_map(|it| it.get("address")?.as_str());
        all.extend(texts.map(str::to_owned));
    }
    let is_known = |it: &String| {
        let address: Result<IpAddr, _> = it.parse();
        address.is_ok_and(|it| it.is_ipv6() == is_v6 && !it.is_unspecified())
    };
    all.retain(is_known);
    all
}

/// Label values of the generator, and words of rules that stand for each other.
const WORDS: [&[&str]; 9] = [
    &["web", "db", "client"],
    &["a", "b"],
    &["red", "blue", "green"],
    &["t1", "t2"],
    &["worker", "control-plane"],
    &["Accept", "Deny", "Pass"],
    &["Allow", "Deny", "Pass"],
    &["In", "NotIn"],
    &["Exists", "DoesNotExist"],
];

/// The objects after a few small edits.
fn edited(rng: &mut Rng, objects: &[Value]) -> Vec<Value> {
    let mut objects = objects.to_vec();
    for _ in 0..=rng.below(3) {
        if objects.is_empty() {
            break;
        }
        let at = index(rng, objects.len());
        let Some(object) = objects.get_mut(at) else {
            break;
        };
        let is_node = kind(object) == "Node";
        let parts = ["/spec", "/metadata/labels"];
        let path = if is_node || kind(object) == "Namespace" {
            parts[1]
        } else {
            parts[0]
        };
        match rng.below(12) {
            0 if !is_node => {
                objects.remove(at);
            }
            1 if path == parts[0] => {
                if let Some(annotations) = object.pointer_mut("/metadata") {
                    annotations["annotations"] = json!({"palisade.dev/enforcement": "audit"});
                }
            }
            _ => {
                if let Some(part) = object.pointer_mut(path) {
                    edit(rng, part);
                }
            }
        }
    }
    objects
}

/// Edits a random part of a value.
fn edit(rng: &mut Rng, value: &mut Value) {
    let is_here = rng.chance(25);
    match value {
        Value::Array(items) if is_here || items.is_empty() => match rng.below(4) {
            0 => shuffle(rng, items),
            1 => {
                let at = index(rng, items.len());
                if let Some(item) = items.get(at).cloned() {
                    items.push(item);
                }
            }
            2 if !items.is_empty() => {
                items.remove(index(rng, items.len()));
            }
            _ => items.reverse(),
        },
        Value::Array(items) => {
            let at = index(rng, items.len());
            if let Some(item) = items.get_mut(at) {
                edit(rng, item);
            }
        }
        Value::Object(map) => {
            let keys: Vec<String> = map.keys().cloned().collect();
            let Some(key) = keys.get(index(rng, keys.len())) else {
                return;
            };
            if rng.chance(8) {
                map.remove(key);
            } else if let Some(value) = map.get_mut(key) {
                edit(rng, value);
            }
        }
        Value::String(text) => {
            let lists = WORDS.into_iter().filter(|it| it.contains(&text.as_str()));
            let lists: Vec<&[&str]> = lists.collect();
            if let Some(words) = lists.get(index(rng, lists.len()))
                && let Some(word) = words.get(index(rng, words.len()))
            {
                *text = (*word).to_owned();
            }
        }
        Value::Number(number) => {
            let other = [80_u64, 81, 443, 8080, 53, 1, 5, 10];
            let other = other.get(index(rng, other.len())).copied();
            *number = other.unwrap_or(80).into();
        }
        Value::Bool(_) | Value::Null => {}
    }
}
