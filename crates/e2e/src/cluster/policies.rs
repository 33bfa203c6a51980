//! Policies that come, change and go at random.

#![allow(
    clippy::indexing_slicing,
    reason = "a missing field of a value is null"
)]

use palisade_oracle::generate::scenario;
use serde_json::{Value, json};

use palisade_generate::Rng;

/// The namespaces, apps and kinds of random policies.
pub const NAMESPACES: [&str; 2] = ["x", "y"];
/// The apps.
pub const APPS: [&str; 3] = ["web", "db", "client"];
const KINDS: [&str; 4] = [
    "NetworkPolicy",
    "ClusterNetworkPolicy",
    "AdminNetworkPolicy",
    "BaselineAdminNetworkPolicy",
];
/// The maximum number of policies.
const MOST: usize = 8;

/// A change of the cluster's policies, or of objects that they select.
#[derive(Clone, Debug)]
pub enum Change {
    /// An object is new or different.
    Set(Value),
    /// An object is deleted.
    Deleted(Value),
}

/// Where random changes come from.
#[derive(Debug)]
pub struct Changes {
    rng: Rng,
    seed: u64,
    spare: Vec<Value>,
    /// The policies that the server took.
    pub held: Vec<Value>,
}

impl Changes {
    /// Of a seed.
    pub fn new(seed: u64) -> Changes {
        Changes {
            rng: Rng::new(seed),
            seed: seed.wrapping_mul(1_000_003),
            spare: Vec::new(),
            held: Vec::new(),
        }
    }

    /// The next change.
    pub fn draw(&mut self) -> Change {
        let turn = self.rng.below(10);
        if turn == 0 {
            return Change::Set(self.namespace());
        }
        let is_full = self.held.len() >= MOST;
        if !self.held.is_empty() && (is_full || turn < 4) {
            let place = usize::try_from(self.rng.below(self.held.len() as u64)).unwrap_or(0);
            return Change::Deleted(self.held.swap_remove(place));
        }
        Change::Set(self.policy())
    }

    fn namespace(&mut self) -> Value {
        let pick = |rng: &mut Rng, from: &[&'static str]| {
            let place = usize::try_from(rng.below(from.len() as u64)).unwrap_or(0);
            from.get(place).copied().unwrap_or_default()
        };
        let name = pick(&mut self.rng, &NAMESPACES);
        let team = pick(&mut self.rng, &["red", "blue"]);
        let tenant = pick(&mut self.rng, &["t1", "t2"]);
        json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": {"team": team, "tenant": tenant}},
        })
    }

    fn policy(&mut self) -> Value {
        loop {
            if let Some(mut policy) = self.spare.pop() {
                policy["metadata"]["creationTimestamp"] = Value::Null;
                return policy;
            }
            self.seed = self.seed.wrapping_add(1);
            let objects = scenario(self.seed, 0).objects;
            self.spare.extend(objects.into_iter().filter(|object| {
                let kind = object["kind"].as_str().unwrap_or_default();
                let version = object["apiVersion"].as_str().unwrap_or_default();
                let namespace = object["metadata"]["namespace"].as_str();
                let is_early = version == "networking.k8s.io/v1alpha1" || !version.contains('/');
                KINDS.contains(&kind)
                    && !is_early
                    && namespace.is_none_or(|it| NAMESPACES.contains(&it))
            }));
        }
    }
}
