//! Whole clusters of a stated size, for measurements: the same objects as JSON and as YAML, written
//! one by one: the largest cluster needs no more memory than the smallest.
//!
//! Sizes and shares follow what is known of real clusters: one public dump, the test data of policy
//! tools, and the limits that Kubernetes is tested to.

mod admin;
mod adversary;
mod named;
mod network_policy;
mod objects;
mod output;
mod population;

use anyhow::Result;
use serde_json::Value;

use self::objects::Objects;
use self::population::Population;
use super::rng::Rng;

pub use self::adversary::Adversary;
pub use self::output::{Format, write};

/// The node that benchmarks keep up to date. All nodes have about as many pods.
pub const NODE: &str = "node-0001";

/// The size and the distributions of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The seed that all choices follow from.
    pub seed: u64,
    /// The number of pods.
    pub pods: u64,
    /// The number of namespaces.
    pub namespaces: u64,
    /// The number of NetworkPolicies.
    pub network_policies: u64,
    /// The number of cluster-wide policies.
    pub admin_policies: u64,
    /// The content of the cluster-wide policies.
    pub admin_set: AdminSet,
    /// The fewest and the most rules of a cluster-wide policy.
    pub admin_rules: (u64, u64),
    /// The number of rules of every NetworkPolicy, one peer each; drawn if there is none.
    pub rules: Option<u64>,
    /// The policies that are made to be expensive, if any.
    pub adversary: Option<Adversary>,
    /// How the pods are spread.
    pub spread: Spread,
}

/// The content of the cluster-wide policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdminSet {
    /// Subjects, peers and actions at random: without repetition, little can be shared.
    #[default]
    Random,
    /// What administrators write: tenants apart from each other, names and metrics for all.
    Structured,
}

/// How the pods are spread over namespaces, applications and nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// The deviation of the logarithm of a namespace's number of pods.
    pub namespace_deviation: f64,
    /// The most pods of a namespace.
    pub namespace_cap: u64,
    /// The mean of the logarithm of an application's number of pods.
    pub replicas_mean: f64,
    /// The deviation of the same.
    pub replicas_deviation: f64,
    /// The most pods of an application.
    pub replicas_cap: u64,
    /// The percentage of StatefulSets among applications; their pods have labels of their own.
    pub stateful_percent: u64,
    /// Whether every pod has a label that no other has.
    pub unique_label: bool,
    /// The number of namespaces of a tenant.
    pub namespaces_per_tenant: u64,
    /// The average number of pods of a node, or `None` without nodes.
    pub pods_per_node: Option<u64>,
    /// The percentage of applications with a Service.
    pub service_percent: u64,
    /// The percentage of pods that also have an IPv6 address.
    pub dual_stack_percent: u64,
}

impl Default for Spread {
    fn default() -> Spread {
        Spread {
            namespace_deviation: 1.3,
            namespace_cap: 3_000,
            replicas_mean: 1.0,
            replicas_deviation: 0.9,
            replicas_cap: 200,
            stateful_percent: 10,
            unique_label: false,
            namespaces_per_tenant: 10,
            pods_per_node: Some(50),
            service_percent: 30,
            dual_stack_percent: 0,
        }
    }
}

impl Plan {
    /// A cluster of this size, drawn as usual.
    pub fn new(pods: u64, namespaces: u64, network_policies: u64, admin_policies: u64) -> Plan {
        Plan {
            seed: 1,
            pods,
            namespaces,
            network_policies,
            admin_policies,
            admin_set: AdminSet::Random,
            admin_rules: (1, 5),
            rules: None,
            adversary: None,
            spread: Spread::default(),
        }
    }

    /// The number of nodes.
    pub fn nodes(&self) -> u64 {
        let per_node = self.spread.pods_per_node;
        per_node.map_or(0, |per_node| self.pods.div_ceil(per_node.max(1)))
    }

    /// The random numbers of one part of the cluster: other parts do not change them.
    fn rng(&self, part: Part) -> Rng {
        Rng::new(Rng::new(self.seed ^ ((part as u64) << 56)).bits())
    }
}

/// The parts of a cluster that are drawn apart from each other.
#[derive(Clone, Copy, Debug)]
enum Part {
    Population = 1,
    Nodes,
    Namespaces,
    Pods,
    Services,
    NetworkPolicies,
    AdminPolicies,
    Blocks,
}

/// Passes on the objects of a cluster, in this order: nodes, namespaces, pods, Services,
/// NetworkPolicies, cluster-wide policies. The first error ends it.
pub fn each_object(plan: &Plan, take: &mut dyn FnMut(&Value) -> Result<()>) -> Result<()> {
    let population = Population::new(plan);
    let objects = Objects::new(plan, &population);
    let mut take = |mut value: Value| {
        // Maps keep insertion order if some crate of the build turns that feature on.
        value.sort_all_objects();
        take(&value)
    };
    objects.nodes(&mut take)?;
    objects.namespaces(&mut take)?;
    objects.pods(&mut take)?;
    objects.services(&mut take)?;
    network_policy::each(plan, &population, &mut take)?;
    admin::each(plan, &population, &mut take)
}

#[cfg(test)]
mod tests;
