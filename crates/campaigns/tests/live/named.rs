//! Named ports of egress rules in set lookups: pods that are created and deleted move as members,
//! and no rule chain is rewritten.

use std::net::IpAddr;

use palisade_core::budget::Budget;
use palisade_core::incremental::{HashKey, IncrementalPlanner};
use palisade_core::plan::{Plan, PlanChange};
use serde_json::{Value, json};

use super::{MERGE_OVER, compiled_plan, deliver};
use palisade_campaigns::canonical::{canonical, planner_rule_name};
use palisade_campaigns::history::Event;

/// A cluster, and its incremental plan.
struct LivePlan {
    live: IncrementalPlanner,
    plan: Plan,
    objects: Vec<Value>,
}

impl LivePlan {
    fn new() -> LivePlan {
        LivePlan {
            live: IncrementalPlanner::new("n1", HashKey::new(1, 2)),
            plan: Plan::default(),
            objects: Vec::new(),
        }
    }

    /// Sets an object, and compares the plan with that of all objects.
    fn set(&mut self, object: Value) -> PlanChange {
        deliver(&mut self.live, &Event::Set(object.clone()));
        let name = |it: &Value| it["metadata"]["name"].clone();
        self.objects.retain(|it| name(it) != name(&object));
        self.objects.push(object);
        self.commit()
    }

    fn remove(&mut self, name: &str) -> PlanChange {
        let place = self
            .objects
            .iter()
            .position(|it| it["metadata"]["name"] == name);
        let object = self.objects.remove(place.unwrap());
        deliver(&mut self.live, &Event::Deleted(object));
        self.commit()
    }

    fn commit(&mut self) -> PlanChange {
        let change = self.live.commit();
        self.plan.apply(&change);
        assert_eq!(self.plan, self.live.plan());
        let text = canonical(&self.plan, &|rule| planner_rule_name(&self.live, rule));
        let objects: Vec<&Value> = self.objects.iter().collect();
        assert_eq!(
            text,
            compiled_plan(Budget::default(), &objects, "n1", MERGE_OVER)
        );
        change
    }
}

/// A pod that has a named port.
fn pod(name: &str, app: &str, address: &str, port: (&str, u16)) -> Value {
    let node = if app == "client" { "n1" } else { "n2" };
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "x", "labels": {"app": app}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i",
            "ports": [{"name": port.0, "containerPort": port.1}]}]},
        "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}})
}

/// Many rules with the name `http`: for pods by their labels, and for a block.
fn policy() -> Value {
    let to_app =
        |number: usize| json!({"podSelector": {"matchLabels": {"app": format!("a{number}")}}});
    let mut rules: Vec<Value> = (0..20)
        .map(|number| json!({"ports": [{"port": "http"}], "to": [to_app(number)]}))
        .collect();
    let block = json!({"ipBlock": {"cidr": "10.9.0.0/16", "except": ["10.9.9.0/24"]}});
    rules.push(json!({"ports": [{"port": "http"}], "to": [block]}));
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "p", "namespace": "x"},
        "spec": {"podSelector": {"matchLabels": {"app": "client"}}, "policyTypes": ["Egress"],
            "egress": rules}})
}

/// The addresses that join and leave, in a change without anything else.
fn membership_changes(change: &PlanChange) -> (Vec<IpAddr>, Vec<IpAddr>) {
    assert!(
        change.chains.is_empty() && change.pods.is_empty(),
        "{change:?}"
    );
    assert!(
        change.groups.is_empty() && change.ended_groups.is_empty(),
        "{change:?}"
    );
    let addresses = |list: &[(_, IpAddr)]| list.iter().map(|(_, address)| *address).collect();
    (addresses(&change.joined), addresses(&change.left))
}

#[test]
fn pods_with_named_ports_move_by_members() {
    let mut live_plan = LivePlan::new();
    live_plan.set(pod("client", "client", "10.0.0.1", ("none", 1)));
    live_plan.set(pod("first", "a1", "10.1.0.1", ("http", 80)));
    live_plan.set(pod("second", "a2", "10.1.0.2", ("http", 8080)));
    live_plan.set(policy());
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();

    // By its label, by its address, and by neither.
    let third = ip("10.1.0.3");
    let change = live_plan.set(pod("third", "a3", "10.1.0.3", ("http", 80)));
    assert_eq!(membership_changes(&change), (vec![third], vec![]));
    let fourth = ip("10.9.0.4");
    let change = live_plan.set(pod("fourth", "none", "10.9.0.4", ("http", 8080)));
    assert_eq!(membership_changes(&change), (vec![fourth], vec![]));
    let change = live_plan.set(pod("fifth", "none", "10.9.9.5", ("http", 80)));
    assert_eq!(membership_changes(&change), (vec![], vec![]));

    // Another port with the same name, and a port with another name.
    let change = live_plan.set(pod("fourth", "none", "10.9.0.4", ("http", 80)));
    assert_eq!(membership_changes(&change), (vec![fourth], vec![fourth]));
    let change = live_plan.set(pod("third", "a3", "10.1.0.3", ("other", 80)));
    assert_eq!(membership_changes(&change), (vec![], vec![third]));

    // One label more or less changes nothing for a pod in the block.
    let change = live_plan.set(pod("fourth", "a4", "10.9.0.4", ("http", 80)));
    assert_eq!(membership_changes(&change), (vec![], vec![]));
    let change = live_plan.set(pod("fourth", "none", "10.9.0.4", ("http", 80)));
    assert_eq!(membership_changes(&change), (vec![], vec![]));

    // Out of the block, and deleted.
    let change = live_plan.set(pod("fourth", "none", "10.8.0.4", ("http", 80)));
    assert_eq!(membership_changes(&change), (vec![], vec![fourth]));
    let change = live_plan.remove("second");
    // Without it the name has only one port.
    assert_eq!((change.chains.len(), change.ended_chains.len()), (1, 1));
}
