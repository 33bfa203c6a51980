//! Small random clusters, dense in conflicts and defects, with flow queries; the same seed gives
//! the same ones.

mod cluster;
mod defect;
mod marks;
mod policy;
mod query;
mod rng;

pub use marks::{Mark, marks_required};

use marks::lists;
use rng::Rng;
use serde_json::Value;
use std::net::IpAddr;

/// A cluster with flow queries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Its seed.
    pub seed: u64,
    /// Kubernetes objects; of duplicate objects the later one counts.
    pub objects: Vec<Value>,
    /// Addresses learned from DNS.
    pub dns: Vec<(String, IpAddr)>,
    /// Lines of a flows file.
    pub queries: Vec<String>,
    /// The combinations in its policies.
    pub marks: Vec<Mark>,
}

/// The scenario of a seed. Each seed takes the next combinations of [`marks_required`], and adds
/// random policies.
pub fn scenario(seed: u64, n_queries: usize) -> Scenario {
    let mut rng = Rng::new(seed);
    let (sound, defective) = lists();
    let mut plans = vec![pick(sound, seed)];
    let twice = seed.wrapping_mul(2);
    plans.extend([twice, twice + 1].map(|i| pick(defective, i)));
    // Nine more at most; three in four scenarios have five or fewer.
    let extra = if rng.chance(1, 4) {
        rng.below(10)
    } else {
        rng.below(6)
    };
    for _ in 0..extra {
        let list = if rng.chance(1, 8) { defective } else { sound };
        // All forms are equally frequent, except NetworkPolicy, which is more frequent.
        let form = *rng.pick(&marks::FORMS);
        let form = if rng.chance(1, 4) {
            ("np", "netpol")
        } else {
            form
        };
        // Most random rules match nothing, so those that match are preferred.
        let wide = rng.chance(2, 5);
        let fits: Vec<Mark> = list
            .iter()
            .filter(|m| (m.generation, m.tier) == form)
            .filter(|m| !wide || matches!(m.port, "none" | "-"))
            .copied()
            .collect();
        plans.push(*rng.pick(&fits));
    }
    rng.shuffle(&mut plans);
    let mut cluster = cluster::cluster(&mut rng, &plans);
    let (policies, marks) = policy::policies(&mut rng, &cluster, &plans);
    let queries = (0..n_queries)
        .map(|_| query::query(&mut rng, &cluster))
        .collect();
    let dns = cluster.dns(&mut rng);
    let mut objects = std::mem::take(&mut cluster.objects);
    objects.extend(policies);
    Scenario {
        seed,
        objects,
        dns,
        queries,
        marks,
    }
}

/// A permutation of a list that is spread out from the start.
fn pick(list: &[Mark], i: u64) -> Mark {
    let n = list.len() as u64;
    let mut stride = n * 382 / 1000 + 1;
    while gcd(stride, n) != 1 {
        stride += 1;
    }
    list[usize::try_from((i % n) * stride % n).unwrap()]
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
