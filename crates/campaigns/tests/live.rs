//! The incremental plan equals the plan of all objects: after every batch of a random history, the
//! accumulated changes and the planner's state equal a compilation of all objects.
//!
//! A history that fails prints its seed; `LIVE_SEED=n` replays it alone.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

#[path = "live/budget.rs"]
mod budget;
#[path = "live/histories.rs"]
mod histories;
#[path = "live/named.rs"]
mod named;

use palisade_api::{Options, Source, key, lower_one, lower_within, read};
use palisade_core::budget::Budget;
use palisade_core::compile::compile;
use palisade_core::incremental::{HashKey, IncrementalPlanner};
use palisade_core::plan::{MERGE_OVER, Plan, plan_merging};
use palisade_nft::node::{Generation, NodeOptions, Settings};
use palisade_nft::update::TableUpdater;
use serde_json::{Value, json};

use palisade_campaigns::canonical::{canonical, planner_rule_name, program_rule_names};
use palisade_campaigns::history::{Event, History};

/// The histories, and the batches of each.
const SEEDS: std::ops::Range<u64> = 0..60;
const BATCHES: usize = 60;
const NODES: [&str; 2] = ["n1", "n2"];

fn deliver(planner: &mut IncrementalPlanner, event: &Event) -> bool {
    let (Event::Set(object) | Event::Deleted(object)) = event;
    let object = aged(object).to_string();
    let sources = [Source::new("object.json", object.into_bytes())];
    let manifests = read(&sources, Options::default(), &|_| {});
    let object = manifests.objects.first().expect("an object");
    match event {
        Event::Set(_) => key(object).is_some_and(|key| planner.set(key, &lower_one(object))),
        Event::Deleted(_) => key(object).is_some_and(|key| planner.remove(key)),
    }
}

/// Sets the creation time of a NetworkPolicy by its spec; other objects stay.
fn aged(object: &Value) -> Value {
    let mut object = object.clone();
    let day = object["spec"].to_string().len() % 8;
    if object["kind"] == "NetworkPolicy" && day > 0 {
        object["metadata"]["creationTimestamp"] = format!("2026-01-0{day}T00:00:00Z").into();
    }
    object
}

/// The plan of all objects, as text.
fn compiled_plan(
    budget: Budget,
    objects: &[&Value],
    node: &str,
    merge_over: usize,
) -> palisade_campaigns::canonical::Canonical {
    let objects: Vec<Value> = objects.iter().map(|it| aged(it)).collect();
    let text = serde_json::to_vec(&objects).unwrap();
    let sources = [Source::new("objects.json", text)];
    let manifests = read(&sources, Options::default(), &|_| {});
    let lowered = lower_within(&manifests.objects, Vec::new(), budget);
    let program = compile(&lowered.cluster);
    let plan = plan_merging(&lowered.cluster, &program, node, merge_over);
    canonical(&plan, &program_rule_names(&lowered.cluster, &program))
}

/// The plan does not depend on the order of objects, nor on commits between them.
#[test]
fn the_order_does_not_matter() {
    for seed in 1_000..1_010 {
        let mut history = History::new(seed);
        for _ in 0..150 {
            drop(history.next_event());
        }
        let objects: Vec<Value> = history.objects.values().cloned().collect();
        let compiled = compiled_plan(
            Budget::default(),
            &objects.iter().collect::<Vec<_>>(),
            "n1",
            MERGE_OVER,
        );
        for _ in 0..3 {
            let mut order = objects.clone();
            history.rng.shuffle(&mut order);
            let mut planner = IncrementalPlanner::new("n1", HashKey::new(1, 2));
            for object in order {
                deliver(&mut planner, &Event::Set(object.clone()));
                if history.rng.chance(20) {
                    drop(planner.commit());
                }
                assert!(
                    !deliver(&mut planner, &Event::Set(object)),
                    "setting an object again changes nothing"
                );
            }
            drop(planner.commit());
            let text = canonical(&planner.plan(), &|rule| planner_rule_name(&planner, rule));
            assert_eq!(text, compiled, "seed {seed}");
            assert!(planner.commit().is_empty());
        }
    }
}

fn pod(name: &str, app: &str, node: &str, address: &str) -> Event {
    Event::Set(json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "x", "labels": {"app": app}, "creationTimestamp": "2024-01-01T00:00:00Z"},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running", "podIPs": [{"ip": address}]}}))
}

fn policy(app: &str) -> Event {
    Event::Set(
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "p", "namespace": "x"},
        "spec": {"podSelector": {"matchLabels": {"app": "db"}}, "ingress": [
            {"from": [{"podSelector": {"matchLabels": {"app": app}}}]}]}}),
    )
}

/// The numbers of policies and peers, which must not multiply; `LIVE_SHARED=800,5000` overrides
/// them.
const POLICIES: usize = 40;
const PEERS: usize = 100;

/// The number of elements in the kernel's sets of members.
fn elements(plan: &Plan) -> usize {
    let settings = Settings::of_node(Generation::FIRST, &NodeOptions::default());
    let (_, ruleset) = TableUpdater::new(plan, &settings);
    let sets = ruleset.sets.iter();
    let members = sets.filter(|set| set.name.to_string().starts_with("members"));
    members.map(palisade_nft::ruleset::Set::len).sum()
}

fn peer(number: usize, app: &str) -> Event {
    let address = format!("10.1.{}.{}", number / 250, number % 250);
    pod(&format!("peer-{number}"), app, "n2", &address)
}

/// A policy with its own subject and its own selector for the peers of all policies.
fn policy_with_selector(number: usize, text: &str) -> Event {
    let from = json!({"podSelector": {"matchExpressions": [
        {"key": "app", "operator": "In", "values": ["web", format!("{text}-{number}")]}]}});
    Event::Set(
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": format!("p-{number}"), "namespace": "x"},
        "spec": {"podSelector": {"matchLabels": {"app": format!("db-{number}")}},
            "ingress": [{"from": [from]}]}}),
    )
}

/// Different selectors of the same pods share one set in the kernel, until their members differ.
#[test]
fn selectors_of_the_same_pods_share_a_set() {
    let update = std::env::var("LIVE_SHARED").ok();
    let update = update.as_deref().and_then(|it| it.split_once(','));
    let (policies, peers) = update.map_or((POLICIES, PEERS), |(policies, peers)| {
        (policies.parse().unwrap(), peers.parse().unwrap())
    });
    let mut planner = IncrementalPlanner::new("n1", HashKey::new(1, 2));
    for number in 0..policies {
        let address = format!("10.2.{}.{}", number / 250, number % 250);
        let own = format!("db-{number}");
        deliver(&mut planner, &pod(&own, &own, "n1", &address));
        deliver(&mut planner, &policy_with_selector(number, "other"));
    }
    for number in 0..peers {
        deliver(&mut planner, &peer(number, "web"));
    }
    let first = planner.commit();
    let mut plan = Plan::default();
    plan.apply(&first);
    assert_eq!((plan.groups.len(), first.joined.len()), (1, peers));
    assert_eq!(planner.counts().groups, policies);
    assert_eq!(elements(&plan), peers);

    // One more pod of all selectors is one element.
    deliver(&mut planner, &peer(peers, "web"));
    let change = planner.commit();
    assert!(change.split.is_none() && !change.reevaluate);
    assert_eq!((change.joined.len(), change.chains.len()), (1, 0));
    plan.apply(&change);

    // One more pod of one selector: its policy gets a set and a rule chain of its own; all others
    // stay.
    deliver(&mut planner, &peer(peers + 1, "other-0"));
    let change = planner.commit();
    let split = change.split.as_deref().expect("a split");
    assert_eq!((split.groups.len(), split.joined.len()), (1, peers + 1));
    assert_eq!((split.chains.len(), split.pods.len()), (1, 1));
    assert_eq!((change.joined.len(), change.ended_chains.len()), (1, 1));
    assert!(!change.reevaluate, "the change only widens");
    plan.apply(&change);
    assert_eq!(plan, planner.plan());
    assert_eq!(elements(&plan), 2 * peers + 3);

    // Groups that become equal again share a set with the next table.
    let Event::Set(deleted) = peer(peers + 1, "other-0") else {
        unreachable!()
    };
    deliver(&mut planner, &Event::Deleted(deleted));
    plan.apply(&planner.commit());
    assert_eq!(elements(&plan), 2 * peers + 2);
    planner.share();
    assert_eq!(elements(&planner.plan()), peers + 1);
    plan = planner.plan();

    // Replacing a selector by an equivalent one changes nothing, even if no other policy has it.
    for number in 0..policies {
        deliver(&mut planner, &policy_with_selector(number, "another"));
    }
    let change = planner.commit();
    assert_eq!((change.groups.len(), change.joined.len()), (0, 0));
    assert_eq!(change.ended_members.len(), 0);
    plan.apply(&change);
    assert_eq!(plan, planner.plan());
}

/// Groups of policies that precede their pods share a set with the next table, which the planner
/// installs before the elements double.
#[test]
fn groups_that_grow_equal_share_a_set_with_the_next_table() {
    let mut planner = IncrementalPlanner::new("n1", HashKey::new(1, 2));
    for number in 0..3 {
        let own = format!("db-{number}");
        deliver(
            &mut planner,
            &pod(&own, &own, "n1", &format!("10.2.0.{number}")),
        );
        deliver(&mut planner, &policy_with_selector(number, "other"));
    }
    drop(planner.commit());
    for number in 0..20 {
        deliver(&mut planner, &peer(number, "web"));
        drop(planner.commit());
    }
    assert_eq!(elements(&planner.plan()), 60);
    planner.share();
    assert_eq!(elements(&planner.plan()), 20);
}

/// A pod that leaves the host network again does not affect its former groups.
#[test]
fn a_pod_may_enter_and_leave_the_host_network() {
    let mut host_network_pod = pod("b", "web", "n2", "10.0.0.3");
    if let Event::Set(object) = &mut host_network_pod {
        object["spec"]["hostNetwork"] = json!(true);
    }
    let mut planner = IncrementalPlanner::new("n1", HashKey::new(1, 2));
    let mut objects: Vec<Value> = Vec::new();
    for event in [
        pod("db", "db", "n1", "10.0.0.1"),
        pod("a", "web", "n2", "10.0.0.2"),
        pod("b", "web", "n2", "10.0.0.3"),
        pod("c", "web", "n2", "10.0.0.4"),
        host_network_pod,
        pod("c", "other", "n2", "10.0.0.4"),
        pod("b", "web", "n2", "10.0.0.3"),
        policy("other"),
    ] {
        deliver(&mut planner, &event);
        drop(planner.commit());
        let (Event::Set(object) | Event::Deleted(object)) = event;
        objects.retain(|it| it["metadata"]["name"] != object["metadata"]["name"]);
        objects.push(object);
    }
    let text = canonical(&planner.plan(), &|rule| planner_rule_name(&planner, rule));
    let compiled = compiled_plan(
        Budget::default(),
        &objects.iter().collect::<Vec<_>>(),
        "n1",
        MERGE_OVER,
    );
    assert_eq!(text, compiled);
}

/// Connections are reevaluated when a change narrows or an address has a new owner, and not when it
/// only widens.
#[test]
fn connections_are_reevaluated_unless_a_change_only_widens() {
    let mut planner = IncrementalPlanner::new("n1", HashKey::new(1, 2));
    let mut reevaluates = |events: &[Event]| {
        for event in events {
            deliver(&mut planner, event);
        }
        planner.commit().reevaluate
    };
    assert!(reevaluates(&[
        pod("db", "db", "n1", "10.0.0.1"),
        policy("web")
    ]));
    assert!(
        !reevaluates(&[pod("web-1", "web", "n2", "10.0.0.2")]),
        "joins an accepting group"
    );
    assert!(
        !reevaluates(&[pod("web-1", "web", "n2", "10.0.0.2")]),
        "no change"
    );
    // Both pods have the address until the old one is deleted. They are equally old: the name
    // decides (D134).
    assert!(
        !reevaluates(&[pod("web-2", "web", "n3", "10.0.0.2")]),
        "the first pod still owns the address"
    );
    let Event::Set(deleted) = pod("web-1", "web", "n2", "10.0.0.2") else {
        unreachable!()
    };
    assert!(
        reevaluates(&[Event::Deleted(deleted)]),
        "a new owner in the same group"
    );
    assert!(
        reevaluates(&[pod("web-2", "other", "n3", "10.0.0.2")]),
        "left the group"
    );
    assert!(reevaluates(&[policy("other")]), "another rule chain");
    assert!(
        reevaluates(&[pod("db", "db", "n1", "10.0.0.9")]),
        "a local pod moved"
    );
    let deny = json!({"apiVersion": "policy.networking.k8s.io/v1alpha2", "kind": "ClusterNetworkPolicy",
        "metadata": {"name": "a"}, "spec": {"tier": "Admin", "priority": 1, "subject": {"namespaces": {}},
        "ingress": [{"action": "Deny", "from": [{"pods": {"namespaceSelector": {},
            "podSelector": {"matchLabels": {"app": "bad"}}}}]}]}});
    assert!(reevaluates(&[Event::Set(deny)]));
    assert!(
        reevaluates(&[pod("bad", "bad", "n2", "10.0.0.7")]),
        "joins a denying group"
    );
}
