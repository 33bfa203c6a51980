//! Small random clusters, dense in conflicts and defects, and questions about them; the same seed gives the same ones.

mod cluster;
mod defect;
mod marks;
mod policy;
mod question;
mod rng;

pub use marks::{Mark, marks_required};

use marks::lists;
use rng::Rng;
use serde_json::Value;
use std::net::IpAddr;

/// A cluster with questions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// What it was made from.
    pub seed: u64,
    /// Kubernetes objects; of an object that is there twice the later one counts.
    pub objects: Vec<Value>,
    /// What was learned from DNS.
    pub dns: Vec<(String, IpAddr)>,
    /// Lines of a flows file.
    pub questions: Vec<String>,
    /// What its policies contain.
    pub marks: Vec<Mark>,
}

/// The scenario of a seed. Each seed takes the next combinations of [`marks_required`], and adds random policies.
pub fn scenario(seed: u64, n_questions: usize) -> Scenario {
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
        // Forms are taken as often as each other, NetworkPolicy more often.
        let form = *rng.pick(&marks::FORMS);
        let form = if rng.chance(1, 4) {
            ("np", "netpol")
        } else {
            form
        };
        // Rules that match anything at all are rare enough.
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
    let questions = (0..n_questions)
        .map(|_| question::question(&mut rng, &cluster))
        .collect();
    let dns = cluster.dns(&mut rng);
    let mut objects = std::mem::take(&mut cluster.objects);
    objects.extend(policies);
    Scenario {
        seed,
        objects,
        dns,
        questions,
        marks,
    }
}

/// A walk through a list that is spread out from the start, and complete after as many steps as it is long.
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
