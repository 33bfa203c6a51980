//! A whole cluster, planned before it is written: its policies select pods that exist.
//!
//! The sizes of namespaces and applications, and what policies select, follow what is known of real
//! clusters: a few namespaces have most of the pods, and most policies are small.

mod cluster_policy;
mod network_policy;

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};

use super::cluster::{App, Home, as_served, metadata};
use super::rng::Rng;
use super::{namespace, node, pod};

/// The plan of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct World {
    /// The seed that all choices follow from.
    pub seed: u64,
    /// The number of nodes.
    pub nodes: u64,
    /// The number of namespaces.
    pub namespaces: u64,
    /// The number of pods.
    pub pods: u64,
    /// The number of NetworkPolicies.
    pub network_policies: u64,
    /// The number of cluster-wide policies of all kinds.
    pub cluster_policies: u64,
}

impl World {
    /// A cluster with ten pods a namespace, a hundred a node, and a tenth of its policies
    /// cluster-wide.
    pub fn new(seed: u64, pods: u64, policies: u64) -> World {
        World {
            seed,
            nodes: pods.div_ceil(100),
            namespaces: pods.div_ceil(10),
            pods,
            network_policies: policies - policies / 10,
            cluster_policies: policies / 10,
        }
    }
}

/// The objects of a cluster: nodes, namespaces, pods, policies.
pub fn world(plan: &World) -> Vec<Value> {
    let mut rng = Rng::new(plan.seed);
    let population = Population::new(&mut rng, plan);
    let mut objects = Vec::new();
    for index in 0..plan.nodes {
        let mut value = node::build(&mut rng, index);
        as_served(&mut rng, false, false, &mut value);
        objects.push(value);
    }
    for home in &population.homes {
        let mut value = namespace::build(&mut rng, home);
        as_served(&mut rng, false, false, &mut value);
        objects.push(value);
    }
    pods(&mut rng, plan, &population, &mut objects);
    let blocks = network_policy::blocks(&mut rng);
    for serial in 0..plan.network_policies {
        let mut value = network_policy::build(&mut rng, &population, &blocks, serial);
        as_served(&mut rng, true, true, &mut value);
        objects.push(value);
    }
    for serial in 0..plan.cluster_policies {
        let mut value = cluster_policy::build(&mut rng, &population, serial);
        as_served(&mut rng, true, true, &mut value);
        objects.push(value);
    }
    for object in &mut objects {
        object.sort_all_objects();
    }
    objects
}

/// The addresses to which the domain names of policies have resolved.
pub fn learned() -> Vec<(String, IpAddr)> {
    let names = (0..N_NAMES).map(|index| {
        let address = Ipv4Addr::new(198, 51, 100, index);
        (name(index), IpAddr::from(address))
    });
    names.collect()
}

/// Policies have this many domain names outside the cluster.
const N_NAMES: u8 = 60;

fn name(index: u8) -> String {
    format!("host-{index}.service-{}.example.com", index % 12)
}

/// An application and its number of pods.
struct Workload {
    app: App,
    replicas: u64,
    is_stateful: bool,
}

/// The namespaces of all applications and pods.
struct Population {
    homes: Vec<Home>,
    /// By namespace.
    workloads: Vec<Vec<Workload>>,
    /// The namespace of each pod.
    home_of_pod: Vec<usize>,
}

impl Population {
    fn new(rng: &mut Rng, plan: &World) -> Population {
        let homes: Vec<Home> = (0..plan.namespaces).map(|it| home(rng, it)).collect();
        let sizes = sizes(rng, plan);
        let mut population = Population {
            workloads: Vec::new(),
            home_of_pod: Vec::new(),
            homes,
        };
        for (index, (home, size)) in population.homes.iter().zip(sizes).enumerate() {
            let mut workloads = Vec::new();
            let mut left = size;
            while left > 0 {
                let replicas = (rng.log_normal(1.0, 0.9) as u64).clamp(1, 200).min(left);
                left -= replicas;
                workloads.push(Workload {
                    app: app(rng, home, workloads.len()),
                    replicas,
                    is_stateful: rng.chance(10),
                });
            }
            population.workloads.push(workloads);
            let of_pods = std::iter::repeat_n(index, size as usize);
            population.home_of_pod.extend(of_pods);
        }
        population
    }

    /// A namespace, each as likely as the others.
    fn any_home(&self, rng: &mut Rng) -> usize {
        rng.below(self.homes.len() as u64) as usize
    }

    /// A namespace, the more likely the more pods it has.
    fn busy_home(&self, rng: &mut Rng) -> usize {
        rng.pick(&self.home_of_pod)
    }

    fn home(&self, index: usize) -> Option<&Home> {
        self.homes.get(index)
    }

    /// An application of a namespace.
    fn app(&self, rng: &mut Rng, home: usize) -> Option<&App> {
        let workloads = self.workloads.get(home)?;
        let index = rng.below(workloads.len() as u64) as usize;
        workloads.get(index).map(|workload| &workload.app)
    }
}

fn home(rng: &mut Rng, serial: u64) -> Home {
    let area = rng.pick(&["shop", "billing", "search", "identity", "media", "ledger"]);
    let env = rng.pick(&["prod", "staging", "test", "dev"]);
    Home {
        name: format!("{area}-{env}-{serial}"),
        tenant: format!("tenant-{}", serial / 10),
        env,
    }
}

/// Applications of different namespaces often have one name.
fn app(rng: &mut Rng, home: &Home, index: usize) -> App {
    let noun = rng.pick(&[
        "checkout", "catalog", "cart", "invoice", "session", "gateway",
    ]);
    let component = rng.pick(&["api", "web", "worker", "cache", "store"]);
    let (major, minor) = (rng.below(4), rng.below(10));
    App {
        home: home.clone(),
        name: format!("{noun}-{component}-{index}"),
        component,
        version: format!("v{major}.{minor}.0"),
        hash: rng.suffix(9),
        port: rng.pick(&[8080, 8443, 3000, 5432, 6379, 9000]),
    }
}

/// The number of pods of each namespace: at least one, at most 3,000, in total as planned.
fn sizes(rng: &mut Rng, plan: &World) -> Vec<u64> {
    let drawn: Vec<f64> = (0..plan.namespaces)
        .map(|_| rng.log_normal(0.0, 1.3))
        .collect();
    let total: f64 = drawn.iter().sum();
    let scale = plan.pods as f64 / total;
    let mut sizes: Vec<u64> = drawn
        .iter()
        .map(|size| ((size * scale) as u64).clamp(1, 3_000))
        .collect();
    let mut given: u64 = sizes.iter().sum();
    // What rounding left over or overspent is spread over namespaces that can bear it.
    while given != plan.pods {
        let before = given;
        for size in &mut sizes {
            if given < plan.pods && *size < 3_000 {
                *size += 1;
                given += 1;
            } else if given > plan.pods && *size > 1 {
                *size -= 1;
                given -= 1;
            }
        }
        if given == before {
            break;
        }
    }
    sizes
}

fn pods(rng: &mut Rng, plan: &World, population: &Population, objects: &mut Vec<Value>) {
    let mut serial = 0;
    for workload in population.workloads.iter().flatten() {
        for ordinal in 0..workload.replicas {
            serial += 1;
            let sidecar = rng.chance(30);
            let situation = pod::Situation::any(rng, plan.nodes, sidecar);
            let mut value = pod::build(rng, &workload.app, serial, situation);
            if workload.is_stateful {
                of_stateful_set(&mut value, &workload.app, ordinal);
            }
            as_served(rng, false, false, &mut value);
            objects.push(value);
        }
    }
}

/// Sets the name and the labels of a pod of a StatefulSet, which no other pod has.
pub(super) fn of_stateful_set(value: &mut Value, app: &App, ordinal: u64) {
    let Some(metadata) = metadata(value) else {
        return;
    };
    let name = format!("{}-{ordinal}", app.name);
    metadata.insert("generateName".to_owned(), format!("{}-", app.name).into());
    metadata.insert("name".to_owned(), name.as_str().into());
    if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
        let hash = labels.remove("pod-template-hash");
        let revision = hash.unwrap_or_default();
        labels.insert("controller-revision-hash".to_owned(), revision);
        let index = ordinal.to_string();
        labels.insert("apps.kubernetes.io/pod-index".to_owned(), index.into());
        let key = "statefulset.kubernetes.io/pod-name";
        labels.insert(key.to_owned(), name.into());
    }
    let owner = metadata
        .get_mut("ownerReferences")
        .and_then(|it| it.get_mut(0));
    if let Some(Value::Object(owner)) = owner {
        owner.insert("kind".to_owned(), "StatefulSet".into());
        owner.insert("name".to_owned(), json!(app.name));
    }
}
