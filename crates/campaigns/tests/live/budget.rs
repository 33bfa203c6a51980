//! The policies that fit the budget of their namespace (D148), while policies are created and
//! deleted.

use std::net::IpAddr;

use palisade_api::{Options, Source, key, lower_one, read};
use palisade_core::budget::Budget;
use palisade_core::incremental::{HashKey, IncrementalPlanner};
use palisade_core::net::Protocol;
use palisade_core::plan::{MERGE_OVER, SHARE_FROM};
use palisade_core::policy::{Direction, Verdict};
use serde_json::{Value, json};

use super::{compiled_plan, deliver, pod};
use palisade_campaigns::canonical::{canonical, planner_rule_name};
use palisade_campaigns::history::Event;
use palisade_campaigns::plan_reader;

/// A policy over the budget is reported, allows nothing, and is planned as soon as it fits.
#[test]
fn policies_wait_for_room_in_their_namespace() {
    let policy = |name: &str, created: &str, n_ports: u16| {
        let ports: Vec<Value> = (1..=n_ports).map(|port| json!({"port": port})).collect();
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": name, "namespace": "x", "creationTimestamp": created},
            "spec": {"podSelector": {}, "ingress": [{"ports": ports}]}})
    };
    let update = |live: &mut IncrementalPlanner, object: &Value, exists: bool| {
        let sources = [Source::new("object.json", object.to_string().into_bytes())];
        let manifests = read(&sources, Options::default(), &|_| {});
        let object = manifests.objects.first().unwrap();
        let key = key(object).unwrap();
        if exists {
            live.set(key, &lower_one(object));
        } else {
            live.remove(key);
        }
        drop(live.commit());
    };
    let over = |live: &IncrementalPlanner| {
        let over = live.over_budget().into_iter();
        over.map(|(namespace, name)| format!("{namespace}/{name}"))
            .collect::<Vec<String>>()
    };
    let allowed = |live: &IncrementalPlanner, port: u16| {
        let plan = live.plan();
        let own: IpAddr = "10.0.0.1".parse().unwrap();
        let other: IpAddr = "10.0.0.9".parse().unwrap();
        let port = Some((Protocol::Tcp, port.try_into().unwrap()));
        plan_reader::verdict(&plan, (own, Direction::Ingress), other, port) == Verdict::Allow
    };
    let mut live = IncrementalPlanner::within(
        Budget::new(10),
        "n1",
        HashKey::new(1, 2),
        MERGE_OVER,
        SHARE_FROM,
    );
    deliver(&mut live, &pod("a", "web", "n1", "10.0.0.1"));
    let [first, second] = ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"];
    let old = policy("z-old", first, 6);
    let new = policy("a-new", second, 8);
    let never = policy("b-never", first, 11);
    update(&mut live, &new, true);
    assert_eq!(over(&live), [""; 0]);
    assert!(allowed(&live, 8));
    // The older policy has precedence, regardless of names and of arrival.
    update(&mut live, &old, true);
    assert_eq!(over(&live), ["x/a-new"]);
    assert!(allowed(&live, 6) && !allowed(&live, 8));
    // A policy over the budget by itself takes no room.
    update(&mut live, &never, true);
    assert_eq!(over(&live), ["x/a-new", "x/b-never"]);
    assert!(allowed(&live, 6) && !allowed(&live, 11));
    update(&mut live, &old, false);
    assert_eq!(over(&live), ["x/b-never"]);
    assert!(allowed(&live, 8) && !allowed(&live, 11));
    // Smaller, and without rules.
    update(&mut live, &policy("b-never", first, 2), true);
    assert_eq!(over(&live), [""; 0]);
    update(&mut live, &never, true);
    update(&mut live, &policy("b-never", first, 0), true);
    assert_eq!(over(&live), [""; 0]);
    // Alone, it still isolates.
    update(&mut live, &new, false);
    update(&mut live, &never, true);
    assert_eq!(over(&live), ["x/b-never"]);
    assert!(!allowed(&live, 1) && !allowed(&live, 8));
    update(&mut live, &never, false);
    assert_eq!(over(&live), [""; 0]);
    assert!(allowed(&live, 1));
}

/// Thousands of policies in one batch, most of them over the budget.
#[test]
fn many_policies_of_a_batch_are_counted_together() {
    let policy = |number: u64| {
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": format!("p{number}"), "namespace": "x"},
            "spec": {"podSelector": {}, "ingress": [{"ports": [{"port": 1 + number}]}]}})
    };
    let budget = Budget::new(100);
    let mut live =
        IncrementalPlanner::within(budget, "n1", HashKey::new(1, 2), MERGE_OVER, SHARE_FROM);
    let Event::Set(own) = pod("a", "web", "n1", "10.0.0.1") else {
        panic!("a pod");
    };
    let policies = (0..5_000).map(|number| policy(number * 7 % 5_000));
    let objects: Vec<Value> = policies.chain([own]).collect();
    for object in &objects {
        deliver(&mut live, &Event::Set(object.clone()));
    }
    drop(live.commit());
    assert_eq!(live.over_budget().len(), 4_900);
    let objects: Vec<&Value> = objects.iter().collect();
    let text = canonical(&live.plan(), &|rule| planner_rule_name(&live, rule));
    assert_eq!(text, compiled_plan(budget, &objects, "n1", MERGE_OVER));
}
