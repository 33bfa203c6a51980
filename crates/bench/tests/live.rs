//! Kept up to date is the same as made anew: after every batch of a random history, the changes so
//! far, what is kept, and the plan of all objects together say the same.
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

#[path = "live/canonical.rs"]
mod canonical;
#[path = "live/history.rs"]
mod history;
#[path = "live/reader.rs"]
mod reader;

use std::collections::BTreeSet;
use std::net::IpAddr;

use palisade_api::{Options, Source, key, lower, lower_one, read};
use palisade_core::compile::compile;
use palisade_core::live::{HashKey, Live};
use palisade_core::net::Protocol;
use palisade_core::plan::{GroupId, MERGE_OVER, Plan, PlanChange, plan_merging};
use palisade_core::policy::{Direction, Verdict};
use serde_json::{Value, json};

use self::canonical::{canonical, of_live, of_program};
use self::history::{Event, History};

/// How many histories, and how many batches each has.
const SEEDS: std::ops::Range<u64> = 0..60;
const BATCHES: usize = 60;
const NODES: [&str; 2] = ["n1", "n2"];

fn tell(live: &mut Live, event: &Event) -> bool {
    let (Event::Set(object) | Event::Gone(object)) = event;
    let sources = [Source::new("object.json", object.to_string().into_bytes())];
    let manifests = read(&sources, Options::default(), &|_| {});
    let object = manifests.objects.first().expect("an object");
    match event {
        Event::Set(_) => live.set(key(object), &lower_one(object)),
        Event::Gone(_) => live.remove(key(object)),
    }
}

/// The plan of all objects together, in words.
fn rebuilt(objects: &[&Value], node: &str, merge_over: usize) -> canonical::Canonical {
    let text = serde_json::to_vec(objects).unwrap();
    let sources = [Source::new("objects.json", text)];
    let manifests = read(&sources, Options::default(), &|_| {});
    let lowered = lower(&manifests.objects, Vec::new());
    let program = compile(&lowered.cluster);
    let plan = plan_merging(&lowered.cluster, &program, node, merge_over);
    canonical(&plan, &of_program(&lowered.cluster, &program))
}

/// What is told of joins what it was not in and leaves what it was in, and nothing is told twice.
fn sound(change: &PlanChange, before: &Plan, at: &str) {
    let once = |list: &[(GroupId, IpAddr)]| {
        let set: BTreeSet<_> = list.iter().copied().collect();
        assert_eq!(set.len(), list.len(), "{at}: told twice");
        set
    };
    let is_in = |group: &GroupId, address: &IpAddr| {
        let group = before.groups.get(group);
        group.is_some_and(|it| it.addresses.contains(address))
    };
    for (group, address) in once(&change.joined) {
        assert!(!is_in(&group, &address), "{at}: {address} was in already");
        assert!(!change.ended_groups.contains(&group), "{at}");
    }
    for (group, address) in once(&change.left) {
        assert!(is_in(&group, &address), "{at}: {address} was not in");
        assert!(!change.ended_groups.contains(&group), "{at}");
    }
    let ended = change.ended_groups.iter().flat_map(|id| {
        let addresses = before.groups[id].addresses.iter();
        addresses.map(|address| (*id, *address))
    });
    assert_eq!(once(&change.ended_members), ended.collect(), "{at}: ended");
    for (id, _) in &change.groups {
        assert!(
            before.groups.keys().all(|known| known < id),
            "{at}: used again"
        );
    }
    for (id, _) in &change.bodies {
        assert!(
            before.bodies.keys().all(|known| known < id),
            "{at}: used again"
        );
    }
}

/// Whatever was allowed still is, where nothing has to be judged anew.
fn wider(before: &Plan, after: &Plan, at: &str) {
    let peers = before.groups.values().chain(after.groups.values());
    let peers: BTreeSet<IpAddr> = peers.flat_map(|it| it.addresses.clone()).collect();
    let number = |port| std::num::NonZeroU16::new(port).unwrap();
    for own in after.pods.keys() {
        for direction in Direction::BOTH {
            for port in [
                None,
                Some((Protocol::Tcp, number(80))),
                Some((Protocol::Tcp, number(8080))),
                Some((Protocol::Udp, number(53))),
            ] {
                for peer in peers.iter().filter(|it| it.is_ipv4() == own.is_ipv4()) {
                    let of = |plan| reader::verdict(plan, (*own, direction), *peer, port);
                    assert!(
                        of(before) == Verdict::Deny || of(after) == Verdict::Allow,
                        "{at}: {own} {direction} {peer} {port:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn kept_up_to_date_is_made_anew() {
    let replayed = std::env::var("LIVE_SEED").ok();
    let replayed = replayed.map(|seed| seed.parse::<u64>().expect("a number"));
    let seeds = replayed.map_or(SEEDS, |seed| seed..seed + 1);
    let (mut faced, mut rejudged, mut widened, mut batches) = (0, 0, 0, 0);
    for seed in seeds {
        println!("seed {seed}");
        let merge_over = if seed % 3 == 0 { 0 } else { MERGE_OVER };
        let mut history = History::new(seed);
        let mut lives = NODES.map(|node| {
            (
                node,
                Live::merging(node, HashKey::new(seed, 2), merge_over),
                Plan::default(),
            )
        });
        for batch in 0..BATCHES {
            let n_events = 1 + history.rng.below(5);
            let events: Vec<Event> = (0..n_events).filter_map(|_| history.next()).collect();
            let objects: Vec<&Value> = history.objects.values().collect();
            for (node, live, folded) in &mut lives {
                let mut differs = false;
                for event in &events {
                    differs |= tell(live, event);
                }
                let before = live.plan();
                assert_eq!(
                    before, *folded,
                    "seed {seed} batch {batch} {node}: between commits"
                );
                let change = live.commit();
                assert!(
                    differs || change.is_empty(),
                    "seed {seed} batch {batch} {node}"
                );
                let old = folded.clone();
                sound(
                    &change,
                    folded,
                    &format!("seed {seed} batch {batch} {node}"),
                );
                folded.apply(&change);
                let kept = live.plan();
                assert_eq!(kept, *folded, "seed {seed} batch {batch} {node}: folded");
                let named: BTreeSet<_> = kept.bodies.values().flat_map(|it| it.groups()).collect();
                let groups: BTreeSet<_> = kept.groups.keys().copied().collect();
                assert_eq!(
                    named, groups,
                    "seed {seed} batch {batch} {node}: groups in use"
                );
                let words = canonical(&kept, &|rule| of_live(live, rule));
                let anew = rebuilt(&objects, node, merge_over);
                assert_eq!(words, anew, "seed {seed} batch {batch} {node}");
                if !change.rejudge && !change.is_empty() {
                    widened += 1;
                    wider(&old, &kept, &format!("seed {seed} batch {batch} {node}"));
                }
                faced += words.values().flatten().flatten().count();
                rejudged += u64::from(change.rejudge);
                batches += 1;
            }
        }
    }
    println!("{batches} batches, {faced} bodies, {rejudged} judged anew, {widened} only wider");
    let enough = faced > 5_000 && widened > 20;
    assert!(replayed.is_some() || enough, "{faced} {widened}");
}

/// The same objects in any order, with commits anywhere, come to the same.
#[test]
fn the_order_does_not_matter() {
    for seed in 1_000..1_010 {
        let mut history = History::new(seed);
        for _ in 0..150 {
            drop(history.next());
        }
        let objects: Vec<Value> = history.objects.values().cloned().collect();
        let anew = rebuilt(&objects.iter().collect::<Vec<_>>(), "n1", MERGE_OVER);
        for _ in 0..3 {
            let mut order = objects.clone();
            history.rng.shuffle(&mut order);
            let mut live = Live::new("n1", HashKey::new(1, 2));
            for object in order {
                tell(&mut live, &Event::Set(object.clone()));
                if history.rng.chance(20) {
                    drop(live.commit());
                }
                assert!(!tell(&mut live, &Event::Set(object)), "twice is once");
            }
            drop(live.commit());
            let words = canonical(&live.plan(), &|rule| of_live(&live, rule));
            assert_eq!(words, anew, "seed {seed}");
            assert!(live.commit().is_empty());
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

/// A pod that was in the host network for a while has nothing to do with those that it left.
#[test]
fn into_the_host_network_and_back() {
    let mut hosted = pod("b", "web", "n2", "10.0.0.3");
    if let Event::Set(object) = &mut hosted {
        object["spec"]["hostNetwork"] = json!(true);
    }
    let mut live = Live::new("n1", HashKey::new(1, 2));
    let mut objects: Vec<Value> = Vec::new();
    for event in [
        pod("db", "db", "n1", "10.0.0.1"),
        pod("a", "web", "n2", "10.0.0.2"),
        pod("b", "web", "n2", "10.0.0.3"),
        pod("c", "web", "n2", "10.0.0.4"),
        hosted,
        pod("c", "other", "n2", "10.0.0.4"),
        pod("b", "web", "n2", "10.0.0.3"),
        policy("other"),
    ] {
        tell(&mut live, &event);
        drop(live.commit());
        let (Event::Set(object) | Event::Gone(object)) = event;
        objects.retain(|it| it["metadata"]["name"] != object["metadata"]["name"]);
        objects.push(object);
    }
    let words = canonical(&live.plan(), &|rule| of_live(&live, rule));
    let anew = rebuilt(&objects.iter().collect::<Vec<_>>(), "n1", MERGE_OVER);
    assert_eq!(words, anew);
}

/// Connections are judged anew when something was taken away or an address changed hands, and not
/// when someone may do more.
#[test]
fn what_has_to_be_judged_anew() {
    let mut live = Live::new("n1", HashKey::new(1, 2));
    let mut rejudge = |events: &[Event]| {
        for event in events {
            tell(&mut live, event);
        }
        live.commit().rejudge
    };
    assert!(rejudge(&[pod("db", "db", "n1", "10.0.0.1"), policy("web")]));
    assert!(
        !rejudge(&[pod("web-1", "web", "n2", "10.0.0.2")]),
        "joins what accepts"
    );
    assert!(
        !rejudge(&[pod("web-1", "web", "n2", "10.0.0.2")]),
        "nothing is new"
    );
    // The new pod has the address before the old one is gone: the newer one would win, but they are
    // equally old, so that the name decides until the old one goes (D134).
    assert!(
        !rejudge(&[pod("web-2", "web", "n3", "10.0.0.2")]),
        "still the first one's"
    );
    let Event::Set(gone) = pod("web-1", "web", "n2", "10.0.0.2") else {
        unreachable!()
    };
    assert!(
        rejudge(&[Event::Gone(gone)]),
        "changed hands in the same group"
    );
    assert!(
        rejudge(&[pod("web-2", "other", "n3", "10.0.0.2")]),
        "left the group"
    );
    assert!(rejudge(&[policy("other")]), "another body");
    assert!(
        rejudge(&[pod("db", "db", "n1", "10.0.0.9")]),
        "a local pod moved"
    );
    let deny = json!({"apiVersion": "policy.networking.k8s.io/v1alpha2", "kind": "ClusterNetworkPolicy",
        "metadata": {"name": "a"}, "spec": {"tier": "Admin", "priority": 1, "subject": {"namespaces": {}},
        "ingress": [{"action": "Deny", "from": [{"pods": {"namespaceSelector": {},
            "podSelector": {"matchLabels": {"app": "bad"}}}}]}]}});
    assert!(rejudge(&[Event::Set(deny)]));
    assert!(
        rejudge(&[pod("bad", "bad", "n2", "10.0.0.7")]),
        "joins what denies"
    );
}
