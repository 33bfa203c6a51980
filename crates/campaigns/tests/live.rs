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

#[path = "live/budget.rs"]
mod budget;
#[path = "live/named.rs"]
mod named;
#[path = "live/reader.rs"]
mod reader;

use std::collections::BTreeSet;
use std::net::IpAddr;

use palisade_api::{Options, Source, key, lower_one, lower_within, read};
use palisade_core::budget::Budget;
use palisade_core::compile::compile;
use palisade_core::incremental::{HashKey, IncrementalPlanner};
use palisade_core::net::Protocol;
use palisade_core::plan::{
    GroupId, GroupKind, MERGE_OVER, Plan, PlanChange, PodChains, RuleChainId, SHARE_FROM,
    plan_merging,
};
use palisade_core::policy::{Action, Direction, Verdict};
use palisade_nft::node::{Generation, NodeOptions, Settings};
use palisade_nft::update::TableUpdater;
use serde_json::{Value, json};

use palisade_campaigns::canonical::{canonical, planner_rule_name, program_rule_names};
use palisade_campaigns::history::{Event, History};

/// How many histories, and how many batches each has.
const SEEDS: std::ops::Range<u64> = 0..60;
const BATCHES: usize = 60;
const NODES: [&str; 2] = ["n1", "n2"];

fn tell(live: &mut IncrementalPlanner, event: &Event) -> bool {
    let (Event::Set(object) | Event::Deleted(object)) = event;
    let object = aged(object).to_string();
    let sources = [Source::new("object.json", object.into_bytes())];
    let manifests = read(&sources, Options::default(), &|_| {});
    let object = manifests.objects.first().expect("an object");
    match event {
        Event::Set(_) => key(object).is_some_and(|key| live.set(key, &lower_one(object))),
        Event::Deleted(_) => key(object).is_some_and(|key| live.remove(key)),
    }
}

/// A NetworkPolicy with a time of creation that depends on what it says; other objects as they are.
fn aged(object: &Value) -> Value {
    let mut object = object.clone();
    let day = object["spec"].to_string().len() % 8;
    if object["kind"] == "NetworkPolicy" && day > 0 {
        object["metadata"]["creationTimestamp"] = format!("2026-01-0{day}T00:00:00Z").into();
    }
    object
}

/// The plan of all objects together, in words.
fn rebuilt(
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

/// What is told of joins what it was not in and leaves what it was in, and nothing is told twice.
fn sound(change: &PlanChange, before: &Plan, seen: &mut Seen, at: &str) {
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
        assert!(seen.groups.insert(*id), "{at}: {id:?} is used again");
    }
    for (id, _) in &change.chains {
        assert!(seen.bodies.insert(*id), "{at}: {id:?} is used again");
    }
    let leads = |faced: &PodChains| {
        let bodies = [faced.egress, faced.ingress].into_iter().flatten();
        let new = |id: &RuleChainId| change.chains.iter().any(|(it, _)| it == id);
        bodies.filter(|id| !new(id)).collect::<Vec<RuleChainId>>()
    };
    for id in change.pods.iter().flat_map(|(_, faced)| leads(faced)) {
        assert!(before.chains.contains_key(&id), "{at}: {id:?} is not there");
    }
}

/// The numbers that were ever told of.
#[derive(Default)]
struct Seen {
    groups: BTreeSet<GroupId>,
    bodies: BTreeSet<RuleChainId>,
}

impl Seen {
    fn take_in(&mut self, plan: &Plan) {
        self.groups.extend(plan.groups.keys());
        self.bodies.extend(plan.chains.keys());
    }
}

/// What comes before the rest of a change makes no difference to anybody, and takes nothing away.
fn neutral(split: &PlanChange, before: &Plan, seen: &mut Seen, at: &str) -> Plan {
    sound(split, before, seen, at);
    let mut after = before.clone();
    after.apply(split);
    let by_number = |rule| format!("{rule:?}");
    let (old, new) = (canonical(before, &by_number), canonical(&after, &by_number));
    assert_eq!(old, new, "{at}: split");
    let PlanChange {
        split,
        left,
        ended_groups,
        ended_members,
        ended_chains: ended_bodies,
        ended_pods,
        changed_hands,
        reevaluate: rejudge,
        narrowing,
        ..
    } = split;
    assert!(split.is_none() && !rejudge && narrowing.is_empty(), "{at}");
    assert!(left.is_empty() && changed_hands.is_empty(), "{at}");
    assert!(ended_groups.is_empty() && ended_members.is_empty(), "{at}");
    assert!(ended_bodies.is_empty() && ended_pods.is_empty(), "{at}");
    after
}

/// No two groups of one kind have the same members, of those that are large enough, but where one
/// narrows and the other does not.
fn shared(plan: &Plan, share_from: usize, at: &str) {
    let mut known = BTreeSet::new();
    let narrowing = narrowing(plan);
    for (id, group) in &plan.groups {
        if group.kind == GroupKind::Hosts && group.addresses.len() >= share_from {
            let key = (group.addresses.clone(), narrowing.contains(id));
            assert!(known.insert(key), "{at}: {id:?} has the members of another");
        }
    }
}

/// Whoever joins or leaves groups that deny is told to do so.
fn narrows(change: &PlanChange, before: &Plan, at: &str) {
    let mut after = before.clone();
    after.apply(&PlanChange {
        split: None,
        ..change.clone()
    });
    let narrowing = narrowing(&after);
    let moved = change.joined.iter().chain(&change.left);
    let moved: BTreeSet<GroupId> = moved.map(|(id, _)| *id).collect();
    let hosts = |id: &GroupId| after.groups.get(id).map(|it| it.kind) == Some(GroupKind::Hosts);
    let expected: BTreeSet<GroupId> = moved
        .intersection(&narrowing)
        .copied()
        .filter(hosts)
        .collect();
    let told: BTreeSet<GroupId> = change.narrowing.iter().copied().filter(hosts).collect();
    assert_eq!(told, expected, "{at}: narrowing");
}

/// The groups that steps name which deny or pass on.
fn narrowing(plan: &Plan) -> BTreeSet<GroupId> {
    let bodies = plan.chains.values();
    let steps = bodies.flat_map(|it| it.admin.iter().chain(&it.rest));
    let steps = steps.filter(|step| step.action != Action::Accept);
    steps.flat_map(|step| step.groups()).collect()
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
    let (mut splits, mut saved, mut merged, mut over_budget) = (0, 0, 0, 0);
    for seed in seeds {
        println!("seed {seed}");
        let merge_over = if seed % 3 == 0 { 0 } else { MERGE_OVER };
        // So little that policies do not fit, now and then.
        let budget = match seed % 5 {
            2 => Budget::new(2 + seed % 11),
            _ => Budget::default(),
        };
        let mut history = History::new(seed);
        let share_from = *[1, 2, SHARE_FROM, 1].get(seed as usize % 4).unwrap_or(&1);
        let mut lives = NODES.map(|node| {
            let key = HashKey::new(seed, 2);
            let live = IncrementalPlanner::within(budget, node, key, merge_over, share_from);
            (node, live, Plan::default(), Seen::default())
        });
        for batch in 0..BATCHES {
            let n_events = 1 + history.rng.below(5);
            let events: Vec<Event> = (0..n_events).filter_map(|_| history.next_event()).collect();
            let objects: Vec<&Value> = history.objects.values().collect();
            for (node, live, folded, seen) in &mut lives {
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
                let at = format!("seed {seed} batch {batch} {node}");
                let mut divided = folded.clone();
                if let Some(split) = &change.split {
                    divided = neutral(split, folded, seen, &at);
                    splits += 1;
                }
                sound(&change, &divided, seen, &at);
                narrows(&change, &divided, &at);
                folded.apply(&change);
                let kept = live.plan();
                assert_eq!(kept, *folded, "seed {seed} batch {batch} {node}: folded");
                let named: BTreeSet<_> = kept.chains.values().flat_map(|it| it.groups()).collect();
                let groups: BTreeSet<_> = kept.groups.keys().copied().collect();
                assert_eq!(
                    named, groups,
                    "seed {seed} batch {batch} {node}: groups in use"
                );
                let words = canonical(&kept, &|rule| planner_rule_name(live, rule));
                let anew = rebuilt(budget, &objects, node, merge_over);
                assert_eq!(words, anew, "seed {seed} batch {batch} {node}");
                if !change.reevaluate && !change.is_empty() {
                    widened += 1;
                    wider(&old, &kept, &format!("seed {seed} batch {batch} {node}"));
                }
                let counts = live.counts();
                over_budget += counts.over_budget;
                assert_eq!(counts.sets, kept.groups.len(), "{at}");
                saved += counts.groups - counts.sets;
                // The whole plan is told anew, now and then.
                if history.rng.chance(10) {
                    live.share();
                    *folded = live.plan();
                    shared(folded, share_from, &at);
                    assert_eq!(
                        words,
                        canonical(folded, &|rule| planner_rule_name(live, rule)),
                        "{at}"
                    );
                    merged += kept.groups.len() - folded.groups.len();
                    seen.take_in(folded);
                }
                faced += words.values().flatten().flatten().count();
                rejudged += u64::from(change.reevaluate);
                batches += 1;
            }
        }
    }
    println!("{batches} batches, {faced} bodies, {rejudged} judged anew, {widened} only wider");
    println!("{saved} groups that were another's, {splits} splits, {merged} merged later");
    // Groups split far more often in the simulation and in the tests of `core::live::sharing`.
    let enough = faced > 5_000 && widened > 20 && splits > 10 && saved > 300 && merged > 5;
    let enough = enough && over_budget > 100;
    assert!(
        replayed.is_some() || enough,
        "{faced} {widened} {splits} {over_budget}"
    );
}

/// The same objects in any order, with commits anywhere, come to the same.
#[test]
fn the_order_does_not_matter() {
    for seed in 1_000..1_010 {
        let mut history = History::new(seed);
        for _ in 0..150 {
            drop(history.next_event());
        }
        let objects: Vec<Value> = history.objects.values().cloned().collect();
        let anew = rebuilt(
            Budget::default(),
            &objects.iter().collect::<Vec<_>>(),
            "n1",
            MERGE_OVER,
        );
        for _ in 0..3 {
            let mut order = objects.clone();
            history.rng.shuffle(&mut order);
            let mut live = IncrementalPlanner::new("n1", HashKey::new(1, 2));
            for object in order {
                tell(&mut live, &Event::Set(object.clone()));
                if history.rng.chance(20) {
                    drop(live.commit());
                }
                assert!(!tell(&mut live, &Event::Set(object)), "twice is once");
            }
            drop(live.commit());
            let words = canonical(&live.plan(), &|rule| planner_rule_name(&live, rule));
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

/// How many policies and peers are enough to see that they are not multiplied;
/// `LIVE_SHARED=800,5000` takes others.
const POLICIES: usize = 40;
const PEERS: usize = 100;

/// Elements of the kernel's sets of members.
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

/// A policy of its own subject, whose peers are those of all others, in its own words.
fn selecting(number: usize, text: &str) -> Event {
    let from = json!({"podSelector": {"matchExpressions": [
        {"key": "app", "operator": "In", "values": ["web", format!("{text}-{number}")]}]}});
    Event::Set(
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": format!("p-{number}"), "namespace": "x"},
        "spec": {"podSelector": {"matchLabels": {"app": format!("db-{number}")}},
            "ingress": [{"from": [from]}]}}),
    )
}

/// Selectors that differ in text and select the same pods are one group of the kernel, until they
/// do not.
#[test]
fn selectors_of_the_same_pods_cost_them_once() {
    let given = std::env::var("LIVE_SHARED").ok();
    let given = given.as_deref().and_then(|it| it.split_once(','));
    let (policies, peers) = given.map_or((POLICIES, PEERS), |(policies, peers)| {
        (policies.parse().unwrap(), peers.parse().unwrap())
    });
    let mut live = IncrementalPlanner::new("n1", HashKey::new(1, 2));
    for number in 0..policies {
        let address = format!("10.2.{}.{}", number / 250, number % 250);
        let own = format!("db-{number}");
        tell(&mut live, &pod(&own, &own, "n1", &address));
        tell(&mut live, &selecting(number, "other"));
    }
    for number in 0..peers {
        tell(&mut live, &peer(number, "web"));
    }
    let first = live.commit();
    let mut plan = Plan::default();
    plan.apply(&first);
    assert_eq!((plan.groups.len(), first.joined.len()), (1, peers));
    assert_eq!(live.counts().groups, policies);
    assert_eq!(elements(&plan), peers);

    // One more for all is one element.
    tell(&mut live, &peer(peers, "web"));
    let change = live.commit();
    assert!(change.split.is_none() && !change.reevaluate);
    assert_eq!((change.joined.len(), change.chains.len()), (1, 0));
    plan.apply(&change);

    // One more for one policy: it has a set of its own, and its body another number; all others
    // stay.
    tell(&mut live, &peer(peers + 1, "other-0"));
    let change = live.commit();
    let split = change.split.as_deref().expect("a split");
    assert_eq!((split.groups.len(), split.joined.len()), (1, peers + 1));
    assert_eq!((split.chains.len(), split.pods.len()), (1, 1));
    assert_eq!((change.joined.len(), change.ended_chains.len()), (1, 1));
    assert!(!change.reevaluate, "somebody may do more");
    plan.apply(&change);
    assert_eq!(plan, live.plan());
    assert_eq!(elements(&plan), 2 * peers + 3);

    // What becomes the same again is one when the whole plan is told.
    let Event::Set(gone) = peer(peers + 1, "other-0") else {
        unreachable!()
    };
    tell(&mut live, &Event::Deleted(gone));
    plan.apply(&live.commit());
    assert_eq!(elements(&plan), 2 * peers + 2);
    live.share();
    assert_eq!(elements(&live.plan()), peers + 1);
    plan = live.plan();

    // A selector in other words that means the same costs nothing, also if nobody else has it.
    for number in 0..policies {
        tell(&mut live, &selecting(number, "another"));
    }
    let change = live.commit();
    assert_eq!((change.groups.len(), change.joined.len()), (0, 0));
    assert_eq!(change.ended_members.len(), 0);
    plan.apply(&change);
    assert_eq!(plan, live.plan());
}

/// Policies that come before the pods are one as soon as the table is made anew, which happens
/// before it has twice as many elements.
#[test]
fn what_grows_alike_is_one_when_the_plan_is_told() {
    let mut live = IncrementalPlanner::new("n1", HashKey::new(1, 2));
    for number in 0..3 {
        let own = format!("db-{number}");
        tell(
            &mut live,
            &pod(&own, &own, "n1", &format!("10.2.0.{number}")),
        );
        tell(&mut live, &selecting(number, "other"));
    }
    drop(live.commit());
    for number in 0..20 {
        tell(&mut live, &peer(number, "web"));
        drop(live.commit());
    }
    assert_eq!(elements(&live.plan()), 60);
    live.share();
    assert_eq!(elements(&live.plan()), 20);
}

/// A pod that was in the host network for a while has nothing to do with those that it left.
#[test]
fn into_the_host_network_and_back() {
    let mut hosted = pod("b", "web", "n2", "10.0.0.3");
    if let Event::Set(object) = &mut hosted {
        object["spec"]["hostNetwork"] = json!(true);
    }
    let mut live = IncrementalPlanner::new("n1", HashKey::new(1, 2));
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
        let (Event::Set(object) | Event::Deleted(object)) = event;
        objects.retain(|it| it["metadata"]["name"] != object["metadata"]["name"]);
        objects.push(object);
    }
    let words = canonical(&live.plan(), &|rule| planner_rule_name(&live, rule));
    let anew = rebuilt(
        Budget::default(),
        &objects.iter().collect::<Vec<_>>(),
        "n1",
        MERGE_OVER,
    );
    assert_eq!(words, anew);
}

/// Connections are judged anew when something was taken away or an address changed hands, and not
/// when someone may do more.
#[test]
fn what_has_to_be_judged_anew() {
    let mut live = IncrementalPlanner::new("n1", HashKey::new(1, 2));
    let mut rejudge = |events: &[Event]| {
        for event in events {
            tell(&mut live, event);
        }
        live.commit().reevaluate
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
        rejudge(&[Event::Deleted(gone)]),
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
