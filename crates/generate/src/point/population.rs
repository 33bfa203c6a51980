//! The applications and pods of namespaces: a few bytes for each namespace and application, none
//! for pods.

use super::{Part, Plan};
use crate::cluster::{App, Home};
use crate::rng::Rng;

const AREAS: [&str; 6] = ["shop", "billing", "search", "identity", "media", "ledger"];
const ENVIRONMENTS: [&str; 4] = ["prod", "staging", "test", "dev"];
const NOUNS: [&str; 6] = [
    "checkout", "catalog", "cart", "invoice", "session", "gateway",
];
const COMPONENTS: [&str; 5] = ["api", "web", "worker", "cache", "store"];
const TIERS: [&str; 3] = ["frontend", "backend", "data"];

/// The ports that applications listen on.
const PORTS: [u64; 6] = [8080, 8443, 3000, 5432, 6379, 9000];

/// The namespace of the DNS servers, if there are enough namespaces.
pub(super) const SYSTEM: &str = "kube-system";

/// The namespace of Prometheus, which scrapes all pods, if there are enough namespaces.
pub(super) const MONITORING: &str = "monitoring";

/// The application of the DNS servers, the first of its namespace.
pub(super) const NAME_SERVER: &str = "kube-dns";

/// An application; the numbers are places in the lists above.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workload {
    noun: u8,
    component: u8,
    tier: u8,
    major: u8,
    minor: u8,
    port: u8,
    pub(super) replicas: u8,
    pub(super) is_stateful: bool,
}

impl Workload {
    pub(super) fn tier(&self) -> &'static str {
        word(&TIERS, self.tier)
    }
}

/// Namespaces with their applications and the number of their pods.
#[derive(Debug)]
pub(super) struct Population {
    seed: u64,
    namespaces_per_tenant: u64,
    /// By namespace: its area and its environment.
    words: Vec<(u8, u8)>,
    /// By namespace: the number of pods before it; and the number of all.
    pods_before: Vec<u64>,
    /// By namespace: the number of applications before it; and the number of all.
    workloads_before: Vec<usize>,
    workloads: Vec<Workload>,
}

impl Population {
    pub(super) fn new(plan: &Plan) -> Population {
        let mut rng = plan.rng(Part::Population);
        let mut population = Population {
            seed: plan.seed,
            namespaces_per_tenant: plan.spread.namespaces_per_tenant.max(1),
            words: Vec::new(),
            pods_before: vec![0],
            workloads_before: vec![0],
            workloads: Vec::new(),
        };
        let mut n_pods = 0;
        for size in sizes(&mut rng, plan) {
            let area = rng.below(AREAS.len() as u64) as u8;
            let environment = rng.below(ENVIRONMENTS.len() as u64) as u8;
            population.words.push((area, environment));
            let mut left = size;
            while left > 0 {
                let workload = workload(&mut rng, plan, left);
                left -= u64::from(workload.replicas);
                population.workloads.push(workload);
            }
            n_pods += size;
            population.pods_before.push(n_pods);
            population.workloads_before.push(population.workloads.len());
        }
        population
    }

    pub(super) fn n_namespaces(&self) -> usize {
        self.words.len()
    }

    pub(super) fn n_tenants(&self) -> u64 {
        (self.words.len() as u64).div_ceil(self.namespaces_per_tenant)
    }

    pub(super) fn home(&self, namespace: usize) -> Home {
        let (area, environment) = self.words.get(namespace).copied().unwrap_or_default();
        let env = word(&ENVIRONMENTS, environment);
        let name = match namespace {
            0 if self.words.len() > 2 => SYSTEM.to_owned(),
            1 if self.words.len() > 2 => MONITORING.to_owned(),
            _ => format!("{}-{env}-{namespace}", word(&AREAS, area)),
        };
        Home {
            name,
            tenant: tenant(namespace as u64 / self.namespaces_per_tenant),
            env,
        }
    }

    /// The applications of a namespace.
    pub(super) fn workloads(&self, namespace: usize) -> &[Workload] {
        let before = |at: usize| self.workloads_before.get(at).copied().unwrap_or(0);
        let of_namespace = before(namespace)..before(namespace + 1);
        self.workloads.get(of_namespace).unwrap_or_default()
    }

    /// An application with all its names; `index` is its place in its namespace.
    pub(super) fn app(&self, home: &Home, index: usize, workload: &Workload) -> App {
        let component = word(&COMPONENTS, workload.component);
        let name = if home.name == SYSTEM && index == 0 {
            NAME_SERVER.to_owned()
        } else {
            format!("{}-{component}-{index}", word(&NOUNS, workload.noun))
        };
        // Equal templates have equal hashes, so it follows from the names alone.
        let bytes = home.name.bytes().chain([b'/']).chain(name.bytes());
        let hash = bytes.fold(self.seed, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        App {
            home: home.clone(),
            name,
            component,
            version: format!("v{}.{}.0", workload.major, workload.minor),
            hash: Rng::new(hash).suffix(9),
            port: PORTS.get(usize::from(workload.port)).copied().unwrap_or(80),
        }
    }

    /// A namespace, each as likely as the others.
    pub(super) fn any_namespace(&self, rng: &mut Rng) -> usize {
        rng.below(self.words.len() as u64) as usize
    }

    /// A namespace, the more likely the more pods it has.
    pub(super) fn busy_namespace(&self, rng: &mut Rng) -> usize {
        let n_pods = self.pods_before.last().copied().unwrap_or(0);
        self.namespace_of(rng.below(n_pods))
    }

    /// The namespace of a pod; pods are counted from 0 in the order of namespaces.
    pub(super) fn namespace_of(&self, pod: u64) -> usize {
        self.pods_before
            .partition_point(|before| *before <= pod)
            .saturating_sub(1)
    }

    /// The name of an application of a namespace; `None` if it has no pods.
    pub(super) fn any_app(&self, rng: &mut Rng, namespace: usize) -> Option<App> {
        let workloads = self.workloads(namespace);
        let index = rng.below(workloads.len() as u64) as usize;
        let workload = workloads.get(index)?;
        Some(self.app(&self.home(namespace), index, workload))
    }

    pub(super) fn any_environment(rng: &mut Rng) -> &'static str {
        rng.pick(&ENVIRONMENTS)
    }

    pub(super) fn any_tier(rng: &mut Rng) -> &'static str {
        rng.pick(&TIERS)
    }

    pub(super) fn any_tenant(&self, rng: &mut Rng) -> String {
        tenant(rng.below(self.n_tenants()))
    }
}

pub(super) fn tenant(index: u64) -> String {
    format!("tenant-{index}")
}

/// The label that only one pod has, if all pods have such labels.
pub(super) fn instance(pod: u64) -> String {
    format!("i-{pod}")
}

fn word(words: &[&'static str], index: u8) -> &'static str {
    words.get(usize::from(index)).copied().unwrap_or_default()
}

fn workload(rng: &mut Rng, plan: &Plan, left: u64) -> Workload {
    let spread = &plan.spread;
    let drawn = rng.log_normal(spread.replicas_mean, spread.replicas_deviation) as u64;
    let cap = spread.replicas_cap.clamp(1, 255);
    Workload {
        noun: rng.below(NOUNS.len() as u64) as u8,
        component: rng.below(COMPONENTS.len() as u64) as u8,
        tier: rng.below(TIERS.len() as u64) as u8,
        major: rng.below(4) as u8,
        minor: rng.below(10) as u8,
        port: rng.below(PORTS.len() as u64) as u8,
        replicas: drawn.clamp(1, cap).min(left) as u8,
        is_stateful: rng.chance(spread.stateful_percent),
    }
}

/// The number of pods of each namespace: at least one, at most the cap, in total as planned if
/// possible.
fn sizes(rng: &mut Rng, plan: &Plan) -> Vec<u64> {
    let cap = plan.spread.namespace_cap.max(1);
    let drawn: Vec<f64> = (0..plan.namespaces)
        .map(|_| rng.log_normal(0.0, plan.spread.namespace_deviation))
        .collect();
    let total: f64 = drawn.iter().sum();
    let scale = plan.pods as f64 / total;
    let sizes = drawn
        .iter()
        .map(|size| ((size * scale) as u64).clamp(1, cap));
    let mut sizes: Vec<u64> = sizes.collect();
    let mut given: u64 = sizes.iter().sum();
    // What rounding left over or overspent is spread over namespaces that can bear it.
    while given != plan.pods {
        let before = given;
        for size in &mut sizes {
            if given < plan.pods && *size < cap {
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
