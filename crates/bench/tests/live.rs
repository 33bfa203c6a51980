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

use std::collections::BTreeSet;
use std::net::IpAddr;

use palisade_api::{Options, Source, key, lower, lower_one, read};
use palisade_core::compile::compile;
use palisade_core::live::Live;
use palisade_core::plan::{GroupId, MERGE_OVER, Plan, PlanChange, plan_merging};
use serde_json::Value;

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

#[test]
fn kept_up_to_date_is_made_anew() {
    let replayed = std::env::var("LIVE_SEED").ok();
    let replayed = replayed.map(|seed| seed.parse::<u64>().expect("a number"));
    let seeds = replayed.map_or(SEEDS, |seed| seed..seed + 1);
    let (mut faced, mut rejudged, mut batches) = (0, 0, 0);
    for seed in seeds {
        println!("seed {seed}");
        let merge_over = if seed % 3 == 0 { 0 } else { MERGE_OVER };
        let mut history = History::new(seed);
        let mut lives = NODES.map(|node| (node, Live::merging(node, merge_over), Plan::default()));
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
                faced += words.values().flatten().flatten().count();
                rejudged += u64::from(change.rejudge);
                batches += 1;
            }
        }
    }
    println!("{batches} batches, {faced} bodies faced, {rejudged} to be judged anew");
    assert!(replayed.is_some() || faced > 5_000, "{faced}");
}
