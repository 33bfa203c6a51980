//! A random cluster that yields its objects one after the other.

use std::collections::VecDeque;

use serde_json::{Map, Value, json};

use super::rng::{Rng, unique_suffix};
use super::yaml::Style;
use super::{
    admin_network_policy, cluster_network_policy, config_map, deployment, endpoint_slice,
    namespace, network_policy, pod, service,
};

/// Pods, services and policies belong to one of this many latest applications.
const OPEN_APPS: usize = 64;

/// Pods run on one of this many nodes.
const N_NODES: u64 = 2000;

/// The kinds that are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `v1` Namespace
    Namespace,
    /// `apps/v1` Deployment
    Deployment,
    /// `v1` Pod
    Pod,
    /// `v1` Service
    Service,
    /// `discovery.k8s.io/v1` EndpointSlice
    EndpointSlice,
    /// `networking.k8s.io/v1` NetworkPolicy
    NetworkPolicy,
    /// `policy.networking.k8s.io/v1alpha2` ClusterNetworkPolicy
    ClusterNetworkPolicy,
    /// `policy.networking.k8s.io/v1alpha1` AdminNetworkPolicy, shape F
    AdminNetworkPolicy,
    /// `v1` ConfigMap
    ConfigMap,
}

impl Kind {
    /// The kind as in the field `kind` of objects.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Namespace => "Namespace",
            Kind::Deployment => "Deployment",
            Kind::Pod => "Pod",
            Kind::Service => "Service",
            Kind::EndpointSlice => "EndpointSlice",
            Kind::NetworkPolicy => "NetworkPolicy",
            Kind::ClusterNetworkPolicy => "ClusterNetworkPolicy",
            Kind::AdminNetworkPolicy => "AdminNetworkPolicy",
            Kind::ConfigMap => "ConfigMap",
        }
    }

    /// Whether users write such objects; controllers write the others.
    fn is_written_by_users(self) -> bool {
        match self {
            Kind::Namespace | Kind::Pod | Kind::EndpointSlice => false,
            Kind::Deployment
            | Kind::Service
            | Kind::NetworkPolicy
            | Kind::ClusterNetworkPolicy
            | Kind::AdminNetworkPolicy
            | Kind::ConfigMap => true,
        }
    }

    /// Whether a server counts the changes of its spec (`metadata.generation`).
    fn has_generation(self) -> bool {
        self.is_written_by_users() && self != Kind::ConfigMap && self != Kind::Service
    }
}

/// The weight of each kind.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    weights: &'static [(Kind, u64)],
    /// The percentage of user-written objects from a chart.
    chart_percent: u64,
    /// The percentage of pods with a second container.
    sidecar_percent: u64,
}

impl Mix {
    /// A repository or dump of everything.
    pub const MANIFESTS: Mix = Mix {
        weights: EVERYTHING,
        chart_percent: 50,
        sidecar_percent: 5,
    };
    /// The same kinds, all as a server returns them.
    pub const LIVE: Mix = Mix {
        weights: EVERYTHING,
        chart_percent: 0,
        sidecar_percent: 5,
    };
    /// The kinds that a policy tool lists from a server, mostly pods.
    pub const LIST: Mix = Mix {
        weights: &[
            (Kind::Pod, 82),
            (Kind::NetworkPolicy, 12),
            (Kind::Namespace, 4),
            (Kind::ClusterNetworkPolicy, 2),
        ],
        chart_percent: 0,
        sidecar_percent: 30,
    };
}

const EVERYTHING: &[(Kind, u64)] = &[
    (Kind::Pod, 70),
    (Kind::Deployment, 8),
    (Kind::NetworkPolicy, 8),
    (Kind::Service, 4),
    (Kind::EndpointSlice, 3),
    (Kind::Namespace, 3),
    (Kind::ClusterNetworkPolicy, 2),
    (Kind::AdminNetworkPolicy, 1),
    (Kind::ConfigMap, 1),
];

/// One drawn object.
#[derive(Clone, Debug)]
pub struct Object {
    /// Its kind.
    pub kind: Kind,
    /// Its producer.
    pub style: Style,
    /// The object, keys in kubectl's order.
    pub value: Value,
}

/// A namespace that has objects.
#[derive(Clone, Debug)]
pub(super) struct Home {
    pub(super) name: String,
    pub(super) tenant: String,
    pub(super) env: &'static str,
}

/// An application that pods, services and policies belong to.
#[derive(Clone, Debug)]
pub(super) struct App {
    pub(super) home: Home,
    pub(super) name: String,
    pub(super) component: &'static str,
    pub(super) version: String,
    pub(super) hash: String,
    pub(super) port: u64,
}

/// The state that keeps objects unique and consistent with each other.
#[derive(Debug)]
pub struct Cluster {
    rng: Rng,
    homes: Vec<Home>,
    apps: VecDeque<App>,
    n_apps: u64,
    n_objects: u64,
    n_pods: u64,
}

impl Cluster {
    /// A cluster without objects; equal seeds give equal objects.
    pub fn new(seed: u64) -> Cluster {
        let (homes, apps) = (Vec::new(), VecDeque::new());
        Cluster {
            rng: Rng::new(seed),
            homes,
            apps,
            n_apps: 0,
            n_objects: 0,
            n_pods: 0,
        }
    }

    /// The source of this cluster's choices.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// Draws the next object. The first is a namespace, which the others are in or select.
    pub fn next_object(&mut self, mix: &Mix) -> Object {
        let kind = if self.homes.is_empty() {
            Kind::Namespace
        } else {
            self.draw(mix)
        };
        let from_chart = kind.is_written_by_users() && self.rng.chance(mix.chart_percent);
        let mut value = self.build(kind, mix);
        self.n_objects += 1;
        let style = if from_chart {
            as_chart(&mut value);
            Style::Helm
        } else {
            as_served(
                &mut self.rng,
                kind.is_written_by_users(),
                kind.has_generation(),
                &mut value,
            );
            Style::Kubectl
        };
        // Maps keep insertion order if some crate of the build turns that feature on.
        value.sort_all_objects();
        Object { kind, style, value }
    }

    fn draw(&mut self, mix: &Mix) -> Kind {
        let total = mix.weights.iter().map(|(_, weight)| weight).sum();
        let mut left = self.rng.below(total);
        for &(kind, weight) in mix.weights {
            if left < weight {
                return kind;
            }
            left -= weight;
        }
        Kind::Pod
    }

    fn build(&mut self, kind: Kind, mix: &Mix) -> Value {
        let serial = self.n_objects;
        match kind {
            Kind::Namespace => {
                let home = self.open_home();
                namespace::build(&mut self.rng, &home)
            }
            Kind::Deployment => {
                let app = self.open_app();
                deployment::build(&mut self.rng, &app)
            }
            Kind::Pod => {
                let app = self.app();
                self.n_pods += 1;
                let sidecar = self.rng.chance(mix.sidecar_percent);
                let situation = pod::Situation::any(&mut self.rng, N_NODES, sidecar);
                pod::build(&mut self.rng, &app, self.n_pods, situation)
            }
            Kind::Service => {
                let app = self.app();
                service::build(&mut self.rng, &app, serial)
            }
            Kind::EndpointSlice => {
                let app = self.app();
                endpoint_slice::build(&mut self.rng, &app, &unique_suffix(serial))
            }
            Kind::NetworkPolicy => {
                let (app, other) = (self.app(), self.app());
                network_policy::build(&mut self.rng, &app, &other, serial)
            }
            Kind::ClusterNetworkPolicy => {
                let (app, other) = (self.app(), self.app());
                cluster_network_policy::build(&mut self.rng, &app, &other, serial)
            }
            Kind::AdminNetworkPolicy => {
                let (app, other) = (self.app(), self.app());
                admin_network_policy::build(&mut self.rng, &app, &other, serial)
            }
            Kind::ConfigMap => {
                let app = self.app();
                config_map::build(&mut self.rng, &app, serial)
            }
        }
    }

    fn open_home(&mut self) -> Home {
        let serial = self.homes.len();
        let area = self
            .rng
            .pick(&["shop", "billing", "search", "identity", "media", "ledger"]);
        let env = self.rng.pick(&["prod", "staging", "test", "dev"]);
        let tenant = format!("tenant-{}", serial / 10);
        let home = Home {
            name: format!("{area}-{env}-{serial}"),
            tenant,
            env,
        };
        self.homes.push(home.clone());
        home
    }

    fn open_app(&mut self) -> App {
        let index = self.rng.below(self.homes.len() as u64) as usize;
        let home = match self.homes.get(index) {
            Some(home) => home.clone(),
            None => self.open_home(),
        };
        let noun = self.rng.pick(&[
            "checkout", "catalog", "cart", "invoice", "session", "gateway", "profile", "ranking",
        ]);
        let component = self.rng.pick(&["api", "web", "worker", "cache", "store"]);
        let (major, minor, patch) = (self.rng.below(9), self.rng.below(40), self.rng.below(20));
        let app = App {
            home,
            name: format!("{noun}-{component}-{}", self.n_apps),
            component,
            version: format!("v{major}.{minor}.{patch}"),
            hash: self.rng.suffix(9),
            port: self.rng.pick(&[8080, 8443, 3000, 5432, 6379, 9000]),
        };
        self.n_apps += 1;
        if self.apps.len() == OPEN_APPS {
            self.apps.pop_front();
        }
        self.apps.push_back(app.clone());
        app
    }

    fn app(&mut self) -> App {
        let index = self.rng.below(self.apps.len() as u64) as usize;
        match self.apps.get(index) {
            Some(app) if !self.rng.chance(10) => app.clone(),
            Some(_) | None => self.open_app(),
        }
    }
}

/// Adds what a server adds to an object that it stores.
pub(super) fn as_served(rng: &mut Rng, by_people: bool, has_generation: bool, value: &mut Value) {
    let applied = (by_people && rng.chance(40))
        .then(|| last_applied(value))
        .flatten();
    let Some(metadata) = metadata(value) else {
        return;
    };
    let time = Value::from(rng.time());
    metadata.entry("creationTimestamp").or_insert(time);
    let version = rng.below(1 << 31).to_string();
    metadata.insert("resourceVersion".to_owned(), version.into());
    metadata.insert("uid".to_owned(), rng.uid().into());
    if has_generation {
        metadata.insert("generation".to_owned(), rng.between(1, 9).into());
    }
    if let Some(applied) = applied {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        if let Value::Object(annotations) = annotations {
            let key = "kubectl.kubernetes.io/last-applied-configuration";
            annotations.insert(key.to_owned(), applied.into());
        }
    }
}

/// Removes what only a server knows, and adds what charts add.
fn as_chart(value: &mut Value) {
    if let Value::Object(object) = value {
        object.remove("status");
    }
    let Some(metadata) = metadata(value) else {
        return;
    };
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    if let Value::Object(labels) = labels {
        labels.insert("app.kubernetes.io/managed-by".to_owned(), "Helm".into());
        labels.insert("helm.sh/chart".to_owned(), "platform-4.12.0".into());
    }
}

/// The object as its author applied it, in one line, as kubectl stores it.
fn last_applied(value: &Value) -> Option<String> {
    let mut applied = value.clone();
    if let Value::Object(object) = &mut applied {
        object.remove("status");
    }
    applied.sort_all_objects();
    serde_json::to_string(&applied).ok().map(|line| line + "\n")
}

pub(super) fn metadata(value: &mut Value) -> Option<&mut Map<String, Value>> {
    value.get_mut("metadata")?.as_object_mut()
}
