//! Random histories, batch by batch: the accumulated changes, the planner's state and a compilation
//! of all objects must agree.

use std::collections::BTreeSet;
use std::net::IpAddr;

use palisade_core::budget::Budget;
use palisade_core::incremental::{HashKey, IncrementalPlanner};
use palisade_core::net::Protocol;
use palisade_core::plan::{
    GroupId, GroupKind, MERGE_OVER, Plan, PlanChange, PodChains, RuleChainId, SHARE_FROM,
};
use palisade_core::policy::{Action, Direction, Verdict};
use serde_json::Value;

use super::{BATCHES, NODES, SEEDS, compiled_plan, deliver};
use palisade_campaigns::canonical::{canonical, planner_rule_name};
use palisade_campaigns::history::{Event, History};
use palisade_campaigns::plan_reader;

/// How often each event of interest occurred.
#[derive(Debug, Default)]
struct Coverage {
    batches: usize,
    chains: usize,
    reevaluated: usize,
    widened: usize,
    splits: usize,
    shared: usize,
    merged: usize,
    over_budget: usize,
}

impl Coverage {
    /// Whether every event occurred often enough. Groups split far more often in the simulation and
    /// in the tests of `core::incremental::sharing`.
    fn is_sufficient(&self) -> bool {
        self.chains > 5_000
            && self.widened > 20
            && self.splits > 10
            && self.shared > 300
            && self.merged > 5
            && self.over_budget > 100
    }
}

/// The options of planners that the seed of a history determines.
#[derive(Clone, Copy)]
struct Options {
    seed: u64,
    budget: Budget,
    merge_over: usize,
    share_from: usize,
}

impl Options {
    fn of(seed: u64) -> Options {
        Options {
            seed,
            // Sometimes a budget that policies exceed.
            budget: match seed % 5 {
                2 => Budget::new(2 + seed % 11),
                _ => Budget::default(),
            },
            merge_over: if seed.is_multiple_of(3) {
                0
            } else {
                MERGE_OVER
            },
            share_from: *[1, 2, SHARE_FROM, 1].get(seed as usize % 4).unwrap_or(&1),
        }
    }
}

/// The incremental planner of a node, and the plan accumulated from its changes.
struct NodePlanner {
    node: &'static str,
    options: Options,
    planner: IncrementalPlanner,
    accumulated: Plan,
    used: UsedIds,
}

impl NodePlanner {
    fn new(node: &'static str, options: Options) -> NodePlanner {
        let key = HashKey::new(options.seed, 2);
        let (budget, merge_over, share_from) =
            (options.budget, options.merge_over, options.share_from);
        NodePlanner {
            node,
            options,
            planner: IncrementalPlanner::within(budget, node, key, merge_over, share_from),
            accumulated: Plan::default(),
            used: UsedIds::default(),
        }
    }

    /// Delivers a batch, and checks its change and the resulting plan.
    fn check_batch(
        &mut self,
        events: &[Event],
        objects: &[&Value],
        shares: &mut dyn FnMut() -> bool,
        coverage: &mut Coverage,
        at: &str,
    ) {
        let mut differs = false;
        for event in events {
            differs |= deliver(&mut self.planner, event);
        }
        assert_eq!(
            self.planner.plan(),
            self.accumulated,
            "{at}: between commits"
        );
        let change = self.planner.commit();
        assert!(differs || change.is_empty(), "{at}");
        let before = self.accumulated.clone();
        let mut split_plan = before.clone();
        if let Some(split) = &change.split {
            split_plan = check_split(split, &before, &mut self.used, at);
            coverage.splits += 1;
        }
        check_change(&change, &split_plan, &mut self.used, at);
        check_narrowing(&change, &split_plan, at);
        self.accumulated.apply(&change);
        let plan = self.planner.plan();
        assert_eq!(plan, self.accumulated, "{at}: accumulated");
        let named: BTreeSet<_> = plan.chains.values().flat_map(|it| it.groups()).collect();
        let groups: BTreeSet<_> = plan.groups.keys().copied().collect();
        assert_eq!(named, groups, "{at}: groups in use");
        let options = self.options;
        let text = canonical(&plan, &|rule| planner_rule_name(&self.planner, rule));
        let compiled = compiled_plan(options.budget, objects, self.node, options.merge_over);
        assert_eq!(text, compiled, "{at}");
        if !change.reevaluate && !change.is_empty() {
            coverage.widened += 1;
            check_widening(&before, &plan, at);
        }
        let counts = self.planner.counts();
        assert_eq!(counts.sets, plan.groups.len(), "{at}");
        coverage.over_budget += counts.over_budget;
        coverage.shared += counts.groups - counts.sets;
        // Sometimes the planner shares groups again, as with a new table.
        if shares() {
            self.planner.share();
            self.accumulated = self.planner.plan();
            check_sharing(&self.accumulated, options.share_from, at);
            let rule_name = |rule| planner_rule_name(&self.planner, rule);
            assert_eq!(text, canonical(&self.accumulated, &rule_name), "{at}");
            coverage.merged += plan.groups.len() - self.accumulated.groups.len();
            self.used.add(&self.accumulated);
        }
        coverage.chains += text.values().flatten().flatten().count();
        coverage.reevaluated += usize::from(change.reevaluate);
        coverage.batches += 1;
    }
}

#[test]
fn the_incremental_plan_equals_a_compilation_of_all_objects() {
    let replayed = std::env::var("LIVE_SEED").ok();
    let replayed = replayed.map(|seed| seed.parse::<u64>().expect("a number"));
    let seeds = replayed.map_or(SEEDS, |seed| seed..seed + 1);
    let mut coverage = Coverage::default();
    for seed in seeds {
        println!("seed {seed}");
        let mut history = History::new(seed);
        let options = Options::of(seed);
        let mut planners = NODES.map(|node| NodePlanner::new(node, options));
        for batch in 0..BATCHES {
            let n_events = 1 + history.rng.below(5);
            let events: Vec<Event> = (0..n_events).filter_map(|_| history.next_event()).collect();
            let objects: Vec<&Value> = history.objects.values().collect();
            for planner in &mut planners {
                let at = format!("seed {seed} batch {batch} {}", planner.node);
                let mut shares = || history.rng.chance(10);
                planner.check_batch(&events, &objects, &mut shares, &mut coverage, &at);
            }
        }
    }
    println!("{coverage:?}");
    assert!(
        replayed.is_some() || coverage.is_sufficient(),
        "{coverage:?}"
    );
}

/// Checks a change: addresses join groups without them and leave groups with them, and no entry
/// occurs twice.
fn check_change(change: &PlanChange, before: &Plan, used: &mut UsedIds, at: &str) {
    let once = |list: &[(GroupId, IpAddr)]| {
        let set: BTreeSet<_> = list.iter().copied().collect();
        assert_eq!(set.len(), list.len(), "{at}: duplicate entry");
        set
    };
    let is_in = |group: &GroupId, address: &IpAddr| {
        let group = before.groups.get(group);
        group.is_some_and(|it| it.addresses.contains(address))
    };
    for (group, address) in once(&change.joined) {
        assert!(
            !is_in(&group, &address),
            "{at}: {address} is already a member"
        );
        assert!(!change.ended_groups.contains(&group), "{at}");
    }
    for (group, address) in once(&change.left) {
        assert!(is_in(&group, &address), "{at}: {address} is no member");
        assert!(!change.ended_groups.contains(&group), "{at}");
    }
    let ended = change.ended_groups.iter().flat_map(|id| {
        let addresses = before.groups[id].addresses.iter();
        addresses.map(|address| (*id, *address))
    });
    assert_eq!(once(&change.ended_members), ended.collect(), "{at}: ended");
    for (id, _) in &change.groups {
        assert!(used.groups.insert(*id), "{at}: {id:?} is reused");
    }
    for (id, _) in &change.chains {
        assert!(used.chains.insert(*id), "{at}: {id:?} is reused");
    }
    let leads = |faced: &PodChains| {
        let chains = [faced.egress, faced.ingress].into_iter().flatten();
        let new = |id: &RuleChainId| change.chains.iter().any(|(it, _)| it == id);
        chains.filter(|id| !new(id)).collect::<Vec<RuleChainId>>()
    };
    for id in change.pods.iter().flat_map(|(_, faced)| leads(faced)) {
        assert!(
            before.chains.contains_key(&id),
            "{at}: {id:?} does not exist"
        );
    }
}

/// The identifiers of all changes so far.
#[derive(Default)]
struct UsedIds {
    groups: BTreeSet<GroupId>,
    chains: BTreeSet<RuleChainId>,
}

impl UsedIds {
    fn add(&mut self, plan: &Plan) {
        self.groups.extend(plan.groups.keys());
        self.chains.extend(plan.chains.keys());
    }
}

/// Checks that the split before a change alters no verdict and removes nothing.
fn check_split(split: &PlanChange, before: &Plan, used: &mut UsedIds, at: &str) -> Plan {
    check_change(split, before, used, at);
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
        reevaluate: reevaluates,
        narrowing,
        ..
    } = split;
    assert!(
        split.is_none() && !reevaluates && narrowing.is_empty(),
        "{at}"
    );
    assert!(left.is_empty() && changed_hands.is_empty(), "{at}");
    assert!(ended_groups.is_empty() && ended_members.is_empty(), "{at}");
    assert!(ended_bodies.is_empty() && ended_pods.is_empty(), "{at}");
    after
}

/// Checks that no two large groups have the same members, unless only one of them denies.
fn check_sharing(plan: &Plan, share_from: usize, at: &str) {
    let mut known = BTreeSet::new();
    let narrowing = narrowing(plan);
    for (id, group) in &plan.groups {
        if group.kind == GroupKind::Hosts && group.addresses.len() >= share_from {
            let key = (group.addresses.clone(), narrowing.contains(id));
            assert!(
                known.insert(key),
                "{at}: {id:?} has the members of another group"
            );
        }
    }
}

/// Checks that a change marks the groups that deny.
fn check_narrowing(change: &PlanChange, before: &Plan, at: &str) {
    let mut after = before.clone();
    after.apply(&PlanChange {
        split: None,
        ..change.clone()
    });
    let narrowing = narrowing(&after);
    let changed = change.joined.iter().chain(&change.left);
    let changed: BTreeSet<GroupId> = changed.map(|(id, _)| *id).collect();
    let hosts = |id: &GroupId| after.groups.get(id).map(|it| it.kind) == Some(GroupKind::Hosts);
    let expected: BTreeSet<GroupId> = changed
        .intersection(&narrowing)
        .copied()
        .filter(hosts)
        .collect();
    let marked: BTreeSet<GroupId> = change.narrowing.iter().copied().filter(hosts).collect();
    assert_eq!(marked, expected, "{at}: narrowing");
}

/// The groups of rules with action Deny or Pass.
fn narrowing(plan: &Plan) -> BTreeSet<GroupId> {
    let chains = plan.chains.values();
    let steps = chains.flat_map(|it| it.admin.iter().chain(&it.rest));
    let steps = steps.filter(|step| step.action != Action::Accept);
    steps.flat_map(|step| step.groups()).collect()
}

/// Checks that a change without reevaluation denies no connection that was allowed.
fn check_widening(before: &Plan, after: &Plan, at: &str) {
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
                    let of = |plan| plan_reader::verdict(plan, (*own, direction), *peer, port);
                    assert!(
                        of(before) == Verdict::Deny || of(after) == Verdict::Allow,
                        "{at}: {own} {direction} {peer} {port:?}"
                    );
                }
            }
        }
    }
}
