//! The clusters with names, which benchmarks use.

use super::{AdminSet, Adversary, Plan};

/// Names of clusters with what each is for, from small to large.
const POINTS: [(&str, &str); 7] = [
    (
        "S",
        "300 pods, no cluster-wide policies: every tool can finish it",
    ),
    ("S20", "the same with 20 cluster-wide policies"),
    (
        "R",
        "5,413 pods, 13,678 NetworkPolicies: the shape of a real cluster",
    ),
    ("L", "100,000 pods, 10,000 namespaces: the target"),
    ("L1", "the same in 1,000 large namespaces"),
    (
        "A",
        "100,000 pods, 25,000 namespaces, 75,000 NetworkPolicies, no cluster-wide ones",
    ),
    (
        "X",
        "150,000 pods, 250,000 NetworkPolicies, 25,000 cluster-wide rules: the limits of the API",
    ),
];

/// Appended to the name of a cluster: cluster-wide policies as administrators write them.
const STRUCTURED: &str = "-structured";

/// Appended to the name of an adversary: an ordinary cluster of the same size.
const TWIN: &str = "-twin";

impl Plan {
    /// The cluster of that name: a point, a point with `-structured`, an adversary, or an adversary
    /// with `-twin`.
    pub fn named(name: &str) -> Option<Plan> {
        if let Some(adversary) = Adversary::named(name) {
            return Some(adversary.plan());
        }
        if let Some(adversary) = name.strip_suffix(TWIN).and_then(Adversary::named) {
            return Some(adversary.twin());
        }
        let (point, admin_set) = match name.strip_suffix(STRUCTURED) {
            Some(point) => (point, AdminSet::Structured),
            None => (name, AdminSet::Random),
        };
        let plan = match point {
            "S" => Plan::new(300, 30, 150, 0),
            "S20" => Plan::new(300, 30, 150, 20),
            "R" => Plan::new(5_413, 604, 13_678, 20),
            "L" => Plan::new(100_000, 10_000, 20_000, 1_000),
            "L1" => Plan::new(100_000, 1_000, 20_000, 1_000),
            "A" => Plan::new(100_000, 25_000, 75_000, 0),
            "X" => Plan {
                admin_rules: (25, 25),
                ..Plan::new(150_000, 10_000, 250_000, 1_000)
            },
            _ => return None,
        };
        Some(Plan { admin_set, ..plan })
    }

    /// All names of points, with what each is for.
    pub fn points() -> impl Iterator<Item = (&'static str, &'static str)> {
        POINTS.into_iter()
    }

    /// All names of adversaries, with what each does.
    pub fn adversaries() -> impl Iterator<Item = (&'static str, &'static str)> {
        Adversary::ALL
            .into_iter()
            .map(|it| (it.name(), it.summary()))
    }
}
