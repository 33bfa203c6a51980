//! Nodes, namespaces, pods and Services, each with all fields that a server prints.

use std::net::Ipv4Addr;

use anyhow::Result;
use serde_json::{Value, json};

use super::population::{Population, Workload, instance};
use super::{Part, Plan};
use crate::cluster::{App, as_served, metadata};
use crate::rng::Rng;
use crate::world::of_stateful_set;
use crate::{namespace, node, pod};

/// The percentage of pods with a second container.
const SIDECAR_PERCENT: u64 = 30;

/// Receives one object after the other.
pub(super) type Take<'t> = &'t mut dyn FnMut(Value) -> Result<()>;

/// Writes the objects that policies select.
pub(super) struct Objects<'p> {
    plan: &'p Plan,
    population: &'p Population,
}

impl<'p> Objects<'p> {
    pub(super) fn new(plan: &'p Plan, population: &'p Population) -> Objects<'p> {
        Objects { plan, population }
    }

    pub(super) fn nodes(&self, take: Take<'_>) -> Result<()> {
        let mut rng = self.plan.rng(Part::Nodes);
        for index in 0..self.plan.nodes() {
            let mut value = node::build(&mut rng, index);
            as_served(&mut rng, false, false, &mut value);
            take(value)?;
        }
        Ok(())
    }

    pub(super) fn namespaces(&self, take: Take<'_>) -> Result<()> {
        let mut rng = self.plan.rng(Part::Namespaces);
        for index in 0..self.population.n_namespaces() {
            let mut value = namespace::build(&mut rng, &self.population.home(index));
            as_served(&mut rng, false, false, &mut value);
            take(value)?;
        }
        Ok(())
    }

    pub(super) fn pods(&self, take: Take<'_>) -> Result<()> {
        let mut rng = self.plan.rng(Part::Pods);
        // Every node has addresses of its own, as most networks for pods have it.
        let n_nodes = self.plan.nodes().max(1);
        let mut pods_of_node: Vec<u64> = vec![0; n_nodes as usize];
        let mut n_pods = 0;
        self.each_app(&mut |app, workload| {
            for ordinal in 0..u64::from(workload.replicas) {
                let node = free_node(&mut rng, &mut pods_of_node);
                let value = self.pod(&mut rng, app, workload, (n_pods, ordinal, node));
                n_pods += 1;
                take(value)?;
            }
            Ok(())
        })
    }

    pub(super) fn services(&self, take: Take<'_>) -> Result<()> {
        let mut rng = self.plan.rng(Part::Services);
        let mut n_services = 0;
        self.each_app(&mut |app, _| {
            if !rng.chance(self.plan.spread.service_percent) {
                return Ok(());
            }
            n_services += 1;
            let mut value = service(app, n_services);
            as_served(&mut rng, false, false, &mut value);
            take(value)
        })
    }

    fn each_app(&self, take: &mut dyn FnMut(&App, &Workload) -> Result<()>) -> Result<()> {
        for namespace in 0..self.population.n_namespaces() {
            let home = self.population.home(namespace);
            let workloads = self.population.workloads(namespace);
            for (index, workload) in workloads.iter().enumerate() {
                take(&self.population.app(&home, index, workload), workload)?;
            }
        }
        Ok(())
    }

    fn pod(
        &self,
        rng: &mut Rng,
        app: &App,
        workload: &Workload,
        (number, ordinal, (node, address)): (u64, u64, (u64, u64)),
    ) -> Value {
        let situation = pod::Situation {
            node,
            sidecar: rng.chance(SIDECAR_PERCENT),
            host_network: false,
            finished: false,
            dual_stack_percent: self.plan.spread.dual_stack_percent,
        };
        let mut value = pod::build(rng, app, address, situation);
        if let Some(metadata) = metadata(&mut value) {
            let mut labels = json!({
                "app": app.name,
                "component": app.component,
                "pod-template-hash": app.hash,
                "tier": workload.tier(),
                "version": app.version,
            });
            if self.plan.spread.unique_label
                && let Value::Object(labels) = &mut labels
            {
                labels.insert("instance".to_owned(), instance(number).into());
            }
            metadata.insert("labels".to_owned(), labels);
        }
        if workload.is_stateful {
            of_stateful_set(&mut value, app, ordinal);
        }
        if self.plan.spread.pods_per_node.is_none()
            && let Some(Value::Object(spec)) = value.get_mut("spec")
        {
            spec.remove("nodeName");
        }
        as_served(rng, false, false, &mut value);
        value
    }
}

/// A node with a free address, and that address as a number below 2^23.
fn free_node(rng: &mut Rng, pods_of_node: &mut [u64]) -> (u64, u64) {
    let n_nodes = pods_of_node.len() as u64;
    let first = rng.below(n_nodes);
    // Nodes have 250 addresses for 50 pods on average: the first is nearly always free. A cluster
    // without nodes has all its pods on one.
    let room = if n_nodes > 1 { 250 } else { 1 << 23 };
    for step in 0..n_nodes {
        let node = (first + step) % n_nodes;
        if let Some(n_pods) = pods_of_node.get_mut(node as usize)
            && *n_pods < room
        {
            *n_pods += 1;
            return (node, (node << 8) + *n_pods);
        }
    }
    (first, first << 8)
}

fn service(app: &App, serial: u32) -> Value {
    let base = u32::from(Ipv4Addr::new(10, 96, 0, 0));
    let address = Ipv4Addr::from(base + serial).to_string();
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "labels": {"app": app.name},
            "name": app.name,
            "namespace": app.home.name,
        },
        "spec": {
            "clusterIP": address,
            "clusterIPs": [address],
            "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "ports": [
                {"name": "http", "port": 80, "protocol": "TCP", "targetPort": "http"},
                {"name": "metrics", "port": 9090, "protocol": "TCP", "targetPort": 9090},
            ],
            "selector": {"app": app.name},
            "sessionAffinity": "None",
            "type": "ClusterIP",
        },
        "status": {"loadBalancer": {}},
    })
}
