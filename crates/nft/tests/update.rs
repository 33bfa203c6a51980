//! Updates of a table by changes of the plan: the result is the ruleset of the new plan, and every
//! step is safe for packets.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    dead_code,
    reason = "a test fails by panicking, and shares parts with those in the kernel"
)]

#[path = "kernel/plans.rs"]
mod plans;
#[path = "kernel/rules.rs"]
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use palisade_core::net::Family;
use palisade_core::plan::{GroupId, GroupKind, Plan, PlanChange, PodChains};
use palisade_nft::node::{
    EstablishedFlows, Generation, NodeOptions, SenderChecks, Settings, ruleset,
};
use palisade_nft::ruleset::{
    Chain, Interface, Match, Name, Rule, Ruleset, Set, Statement, Values, Verdict,
};
use palisade_nft::{Op, TableUpdater, Transaction, UpdateError};
use plans::{PlanHistory, difference, interface, pods};
use rules::{apply, block};

/// Sets and chains without regard to their order and size.
fn canonical(ruleset: &Ruleset) -> (BTreeMap<String, Chain>, BTreeMap<String, Vec<String>>) {
    let chains = ruleset.chains.iter();
    let chains = chains.map(|chain| (chain.name.to_string(), chain.clone()));
    let sets = ruleset.sets.iter().map(|set| {
        let mut elements: Vec<String> = set
            .iter()
            .enumerate()
            .map(|(place, key)| match &set.values {
                Values::Nothing => format!("{key:?}"),
                Values::Ranges => format!("{key:?} {}", set.is_end(place)),
                Values::Verdicts(all) => format!("{key:?} {}", all[place]),
                Values::Numbers(all) => format!("{key:?} {}", all[place]),
            })
            .collect();
        elements.sort();
        (set.name.to_string(), elements)
    });
    (chains.collect(), sets.collect())
}

fn settings(seed: u64) -> Settings {
    let mut settings = Settings::of_node(Generation::FIRST, &NodeOptions::default());
    if seed.is_multiple_of(2) {
        settings.pod_blocks = vec![block("10.9.0.0/24"), block("fd09::/64")];
    }
    if seed.is_multiple_of(3) {
        settings.senders = SenderChecks::Trusted;
    } else {
        settings.senders = SenderChecks::Checked {
            elsewhere: BTreeSet::new(),
            every: seed.is_multiple_of(2),
        };
    }
    if seed.is_multiple_of(5) {
        settings.established = EstablishedFlows::Keep;
    }
    settings
}

fn names(rule: &Rule) -> Vec<Name> {
    let mut names = Vec::new();
    for statement in &rule.statements {
        if let Statement::Verdict(Verdict::Goto(name) | Verdict::Jump(name)) = statement {
            names.push(name.clone());
        }
    }
    names
}

fn targets(set: &Set) -> Vec<Name> {
    match &set.values {
        Values::Verdicts(all) => all
            .iter()
            .filter_map(|verdict| match verdict {
                Verdict::Jump(name) | Verdict::Goto(name) => Some(name.clone()),
                Verdict::Accept | Verdict::Drop | Verdict::Return => None,
            })
            .collect(),
        Values::Nothing | Values::Ranges | Values::Numbers(_) => Vec::new(),
    }
}

fn set<'r>(ruleset: &'r Ruleset, name: &str) -> &'r Set {
    let found = ruleset.sets.iter().find(|set| set.name.as_str() == name);
    found.unwrap_or_else(|| panic!("{name}"))
}

fn keys(set: &Set) -> BTreeSet<Vec<u8>> {
    set.iter().map(<[u8]>::to_vec).collect()
}

/// Asserts what holds between any two transactions.
fn check_whole(ruleset: &Ruleset) {
    let chains: BTreeMap<&Name, &Chain> = ruleset.chains.iter().map(|it| (&it.name, it)).collect();
    for chain in &ruleset.chains {
        assert!(!chain.rules.is_empty(), "{} is empty", chain.name);
        for name in chain.rules.iter().flat_map(names) {
            assert!(chains.contains_key(&name), "{} to {name}", chain.name);
        }
        for condition in chain.rules.iter().flat_map(|rule| &rule.matches) {
            if let Match::Lookup { set: name, .. } = condition {
                set(ruleset, name.as_str());
            }
            if let Match::LookupNumber { map, .. } = condition {
                set(ruleset, map.as_str());
            }
            if let Match::LookupNumber { set: name, .. } = condition {
                set(ruleset, name.as_str());
            }
        }
    }
    for name in ruleset.sets.iter().flat_map(targets) {
        assert!(chains.contains_key(&name), "a map to {name}");
    }
    for direction in ["egress", "ingress"] {
        for family in ["4", "6"] {
            let map = keys(set(ruleset, &format!("{direction}{family}")));
            let selected = keys(set(ruleset, &format!("judged-{direction}{family}")));
            // A newly isolated pod gets the jump to its chain first.
            assert!(selected.is_subset(&map));
        }
    }
}

/// Asserts that, with closed unknown addresses, the map entry of a deleted pod is not deleted
/// together with its known address: a packet between the two lookups would find neither.
fn check_closing(settings: &Settings, transaction: &Transaction, change: &PlanChange) {
    let gone: BTreeSet<Vec<u8>> = change.ended_pods.iter().map(octets).collect();
    let deleted = |word: &str| {
        transaction.ops.iter().any(|op| match op {
            Op::DeleteElements(set) => {
                set.name.as_str().contains(word) && set.iter().any(|key| gone.contains(key))
            }
            Op::AddChain(_)
            | Op::Rewrite(_)
            | Op::DeleteChain(_)
            | Op::AddSet(_)
            | Op::DeleteSet(_)
            | Op::AddElements(_) => false,
        })
    };
    if !settings.pod_blocks.is_empty() && deleted("gress") {
        assert!(!deleted("known"));
    }
}

fn octets(address: &IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Asserts that each of the three transactions does only what it may.
fn check_phases(
    before: &Ruleset,
    transactions: &[Transaction],
    change: &PlanChange,
    closes_unknown: bool,
) {
    let is_reached = |name: &Name| {
        name.as_str().starts_with("from-")
            || name.as_str().starts_with("to-")
            || !name.as_str().contains('-')
    };
    let old: BTreeSet<&Name> = before.chains.iter().map(|chain| &chain.name).collect();
    let new_groups: BTreeSet<u32> = change.groups.iter().map(|(id, _)| id.0).collect();
    let ended: BTreeSet<u32> = change.ended_groups.iter().map(|id| id.0).collect();
    let group = |key: &[u8]| u32::from_ne_bytes(*key.first_chunk().unwrap());
    let is_of_pods = |name: &str| closes_unknown && name.contains("gress");
    let gone: BTreeSet<Vec<u8>> = change.ended_pods.iter().map(octets).collect();
    let mut kinds = Vec::new();
    for transaction in transactions {
        assert!(!transaction.is_empty());
        let is_prepare = transaction.ops.iter().all(|op| match op {
            Op::AddChain(_) | Op::AddSet(_) => true,
            Op::Rewrite(chain) => !old.contains(&chain.name),
            Op::AddElements(set) => match set.name.as_str() {
                "members4" | "members6" => set.iter().all(|key| new_groups.contains(&group(key))),
                // The end of a range may be the start of another group's.
                "ranges4" | "ranges6" => {
                    let mut begins = set.iter().step_by(2);
                    begins.all(|key| new_groups.contains(&group(key)))
                }
                name => name.starts_with("open"),
            },
            Op::DeleteChain(_) | Op::DeleteSet(_) | Op::DeleteElements(_) => false,
        });
        // Members leave a remaining group last, unless rules change; a pod becomes isolated after
        // its jumps exist. Both narrow, and come with the generation.
        let only_members = change.chains.is_empty() && change.pods.is_empty();
        let leave_late = only_members && change.ended_pods.is_empty();
        let of_stayers = |set: &Set| {
            let mut groups = set.iter().map(group);
            groups.any(|id| !ended.contains(&id) && !new_groups.contains(&id))
        };
        let is_late = transaction.ops.iter().any(|op| match op {
            Op::AddElements(set) => set.name.as_str().starts_with("judged-"),
            Op::DeleteElements(set) => {
                set.name.as_str().starts_with("members") && leave_late && of_stayers(set)
            }
            Op::AddChain(_)
            | Op::Rewrite(_)
            | Op::DeleteChain(_)
            | Op::AddSet(_)
            | Op::DeleteSet(_) => false,
        });
        let of_generation = |chain: &Chain| {
            let name = chain.name.as_str();
            ["egress-allowed", "stamp", "forward", "input"].contains(&name)
        };
        let is_clean = transaction.ops.iter().all(|op| match op {
            Op::DeleteChain(_) | Op::DeleteSet(_) => true,
            Op::Rewrite(chain) => is_late && of_generation(chain),
            Op::AddElements(set) => match set.name.as_str() {
                "generation" => is_late,
                name => name.starts_with("judged-"),
            },
            Op::DeleteElements(set) => match set.name.as_str() {
                "generation" => is_late,
                "members4" | "members6" if leave_late => true,
                "members4" | "members6" => set.iter().all(|key| ended.contains(&group(key))),
                name if name.starts_with("open") || name.starts_with("ranges") => true,
                // The jump to a deleted pod's chain stays until its address is no longer known.
                name => is_of_pods(name) && set.iter().all(|key| gone.contains(key)),
            },
            Op::AddChain(_) | Op::AddSet(_) => false,
        });
        kinds.push(match (is_prepare, is_clean) {
            (true, _) => 0,
            (_, true) => 2,
            (false, false) => 1,
        });
        if !is_prepare && !is_clean {
            // Prepared chains may have rules, but no elements that jump to them.
            let is_map = |set: &Set| matches!(set.values, Values::Verdicts(_));
            let leads = |op: &Op| matches!(op, Op::AddElements(set) if is_map(set));
            let is_alone = transaction.ops.iter().any(leads);
            for op in &transaction.ops {
                match op {
                    // Only chains for dispatch, never a rule chain.
                    Op::Rewrite(chain) if old.contains(&chain.name) || is_alone => assert!(
                        is_reached(&chain.name)
                            || ["egress-allowed"].contains(&chain.name.as_str()),
                        "{}",
                        chain.name
                    ),
                    // Of groups that stay.
                    Op::AddElements(set) | Op::DeleteElements(set) => {
                        let is_of_groups = set.name.as_str().starts_with("members");
                        for key in set.iter().filter(|_| is_of_groups) {
                            let group = group(key);
                            let is_new = is_alone && new_groups.contains(&group);
                            assert!(!is_new && !ended.contains(&group));
                        }
                    }
                    Op::AddChain(_) | Op::AddSet(_) | Op::Rewrite(_) => assert!(!is_alone, "{op}"),
                    Op::DeleteChain(_) | Op::DeleteSet(_) => panic!("{op}"),
                }
            }
        }
    }
    assert!(kinds.is_sorted() && kinds.windows(2).all(|two| two[0] != two[1]));
    // A key that stays is not touched.
    let of = |is_added: bool| -> BTreeSet<(String, Vec<u8>)> {
        let ops = transactions.iter().flat_map(|transaction| &transaction.ops);
        let sets = ops.filter_map(|op| match op {
            Op::AddElements(set) | Op::AddSet(set) if is_added => Some(set),
            Op::DeleteElements(set) if !is_added => Some(set),
            Op::AddChain(_)
            | Op::Rewrite(_)
            | Op::DeleteChain(_)
            | Op::AddSet(_)
            | Op::DeleteSet(_)
            | Op::AddElements(_)
            | Op::DeleteElements(_) => None,
        });
        sets.flat_map(|set| set.iter().map(|key| (set.name.to_string(), key.to_vec())))
            .collect()
    };
    assert!(of(true).is_disjoint(&of(false)));
}

#[test]
fn changes_end_at_the_ruleset_of_the_plan() {
    let (mut prepared, mut switched, mut whole) = (0, 0, 0);
    for seed in 0..120 {
        let mut history = PlanHistory::new(seed);
        let mut settings = settings(seed);
        let (mut updater, mut table) = TableUpdater::new(&history.plan, &settings);
        assert_eq!(table, ruleset(&history.plan, &settings));
        for _ in 0..25 {
            let change = history.next_change();
            if settings.checks_senders() && history.random.is_one_in(2) {
                let some = pods().into_iter().filter(|_| history.random.is_one_in(2));
                let elsewhere: BTreeSet<Interface> = some.map(interface).collect();
                updater.set_elsewhere(elsewhere.clone());
                let every = seed.is_multiple_of(2);
                let senders = SenderChecks::Checked { elsewhere, every };
                assert_eq!(updater.is_due(), senders != settings.senders);
                settings.senders = senders;
            }
            let generation = history
                .random
                .is_one_in(2)
                .then(|| settings.generation.next(settings.mark.last_generation()));
            settings.generation = generation.unwrap_or(settings.generation);
            let transactions = match updater.change(&change, generation) {
                Ok(transactions) => transactions,
                Err(why) => {
                    assert!(matches!(why, UpdateError::Full(_)), "{why}");
                    assert_eq!(updater.settings().generation, settings.generation);
                    assert_eq!(updater.settings().senders, settings.senders);
                    (updater, table) = TableUpdater::new(&history.plan, &settings);
                    whole += 1;
                    continue;
                }
            };
            check_phases(
                &table,
                &transactions,
                &change,
                !settings.pod_blocks.is_empty(),
            );
            prepared += usize::from(transactions.len() > 1);
            switched += usize::from(transactions.len() == 1);
            for transaction in &transactions {
                check_closing(&settings, transaction, &change);
                apply(&mut table, transaction);
                check_whole(&table);
            }
            let known = table
                .sets
                .iter()
                .filter(|set| set.name.as_str().starts_with("known"));
            let known: BTreeSet<Vec<u8>> = known.flat_map(keys).collect();
            assert!(
                change
                    .ended_pods
                    .iter()
                    .all(|pod| !known.contains(&octets(pod)))
            );
            let expected = updater.expected(history.plan.clone()).ruleset();
            assert_eq!(canonical(&table), canonical(&expected), "seed {seed}");
            assert_eq!(
                canonical(&expected),
                canonical(&ruleset(&history.plan, &settings))
            );
            let sizes = |ruleset: &Ruleset| -> BTreeMap<String, u32> {
                ruleset
                    .sets
                    .iter()
                    .map(|set| (set.name.to_string(), set.size))
                    .collect()
            };
            assert_eq!(sizes(&table), sizes(&expected), "seed {seed}");
            for set in &table.sets {
                assert!(set.len() <= set.size as usize / 4 * 3, "{}", set.name);
            }
        }
    }
    assert!(
        prepared > 500 && switched > 200 && whole < 20,
        "{prepared} {switched} {whole}"
    );
}

fn change_of(updater: &mut TableUpdater, change: &PlanChange) -> Vec<Transaction> {
    updater.change(change, None).unwrap()
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn an_empty_change_has_no_transactions() {
    let history = PlanHistory::new(7);
    let (mut updater, _) = TableUpdater::new(&history.plan, &settings(0));
    assert_eq!(change_of(&mut updater, &PlanChange::default()), []);
    // The current generation is no change.
    let same = updater.change(&PlanChange::default(), Some(Generation::FIRST));
    assert_eq!(same, Ok(Vec::new()));
}

#[test]
fn a_peer_is_one_element() {
    let mut plan = Plan::default();
    let group = palisade_core::plan::Group {
        kind: GroupKind::Hosts,
        addresses: vec![address("10.0.0.1")],
    };
    plan.groups.insert(GroupId(4), group);
    let (mut updater, _) = TableUpdater::new(&plan, &settings(1));
    let peer = address("fd00::1");
    let change = PlanChange {
        joined: vec![(GroupId(4), peer)],
        ..PlanChange::default()
    };
    let transactions = change_of(&mut updater, &change);
    let [Transaction { ops, .. }] = transactions.as_slice() else {
        panic!("{transactions:?}");
    };
    let [Op::AddElements(set)] = ops.as_slice() else {
        panic!("{ops:?}");
    };
    assert_eq!((set.name.as_str(), set.len()), ("members6", 1));

    // A member that leaves and joins in one change stays.
    let change = PlanChange {
        joined: vec![(GroupId(4), peer)],
        left: vec![(GroupId(4), peer)],
        ..PlanChange::default()
    };
    assert_eq!(change_of(&mut updater, &change), []);

    // A change of an unknown group is an error.
    let change = PlanChange {
        joined: vec![(GroupId(5), peer)],
        ..PlanChange::default()
    };
    assert_eq!(updater.change(&change, None), Err(UpdateError::Unknown));
}

#[test]
fn another_generation_is_written_wherever_it_occurs() {
    for established in [EstablishedFlows::Evaluate, EstablishedFlows::Keep] {
        let history = PlanHistory::new(11);
        let mut settings = settings(0);
        settings.established = established;
        let (mut updater, _) = TableUpdater::new(&history.plan, &settings);
        let next = Generation::FIRST.next(settings.mark.last_generation());
        let transactions = updater.change(&PlanChange::default(), Some(next)).unwrap();
        let [Transaction { ops, .. }] = transactions.as_slice() else {
            panic!("{transactions:?}");
        };
        let mut rewritten = Vec::new();
        let mut elements = 0;
        for op in ops {
            match op {
                Op::Rewrite(chain) => rewritten.push(chain.name.as_str()),
                Op::AddElements(set) | Op::DeleteElements(set) => {
                    assert_eq!(set.name.as_str(), "generation");
                    elements += set.len();
                }
                Op::AddChain(_) | Op::DeleteChain(_) | Op::AddSet(_) | Op::DeleteSet(_) => {
                    panic!("{op}")
                }
            }
        }
        assert_eq!(rewritten, ["egress-allowed", "stamp", "forward", "input"]);
        assert_eq!(elements, 2);
        assert_eq!(updater.settings().generation, next);
    }
}

/// The updater refuses a change that does not fit into a set, before the kernel would refuse it.
#[test]
fn a_full_set_is_reported_before_the_change() {
    let mut plan = Plan::default();
    let host = |number: u32| IpAddr::V4(std::net::Ipv4Addr::from_bits(number));
    let group = palisade_core::plan::Group {
        kind: GroupKind::Hosts,
        addresses: (1..=40).map(host).collect(),
    };
    plan.groups.insert(GroupId(0), group);
    let (mut updater, _) = TableUpdater::new(&plan, &settings(1));
    // There is room for eighty, of which sixty are used.
    for number in 41..=60 {
        let joined = vec![(GroupId(0), host(number))];
        let change = PlanChange {
            joined,
            ..PlanChange::default()
        };
        assert_eq!(change_of(&mut updater, &change).len(), 1, "{number}");
        plan.apply(&change);
    }
    let one_more = PlanChange {
        joined: vec![(GroupId(0), host(61))],
        ..PlanChange::default()
    };
    let full = UpdateError::Full(Name::word("members4"));
    assert_eq!(updater.change(&one_more, None), Err(full.clone()));
    // Other sets have their own capacity, and leaving members make room.
    let other = PlanChange {
        joined: vec![(GroupId(0), address("fd00::1"))],
        left: vec![(GroupId(0), host(1))],
        ..PlanChange::default()
    };
    // Members join before others leave.
    assert_eq!(change_of(&mut updater, &other).len(), 2);
    assert_eq!(change_of(&mut updater, &one_more).len(), 1);
    plan.apply(&other);
    plan.apply(&one_more);
    // A new table has room for as many again.
    let (mut updater, table) = TableUpdater::new(&plan, &settings(1));
    assert_eq!(set(&table, "members4").size, 120);
    let many = PlanChange {
        joined: (100..130)
            .map(|number| (GroupId(0), host(number)))
            .collect(),
        ..PlanChange::default()
    };
    assert_eq!(change_of(&mut updater, &many).len(), 1);
    assert_eq!(updater.change(&one_more, None), Err(full));
}

#[test]
fn interfaces_that_lead_elsewhere_change_without_anything_else() {
    let history = PlanHistory::new(3);
    let some = BTreeSet::from([interface(address("10.9.0.1"))]);
    let elsewhere = |table: &Ruleset| {
        let set = table
            .sets
            .iter()
            .find(|it| it.name == Name::word("elsewhere"));
        set.map(Set::len)
    };
    let (mut updater, mut table) = TableUpdater::new(&history.plan, &settings(1));
    // The loopback interface is always there.
    assert_eq!(elsewhere(&table), Some(1));
    for (known, count) in [(some.clone(), 2), (BTreeSet::new(), 1)] {
        updater.set_elsewhere(known.clone());
        assert!(updater.is_due());
        let changes = change_of(&mut updater, &PlanChange::default());
        assert_eq!(changes.len(), 1);
        changes.iter().for_each(|it| apply(&mut table, it));
        assert_eq!(elsewhere(&table), Some(count));
        updater.set_elsewhere(known);
        assert!(!updater.is_due());
    }
    // Without the check of senders, nothing changes.
    let (mut updater, table) = TableUpdater::new(&history.plan, &settings(3));
    assert_eq!(elsewhere(&table), None);
    updater.set_elsewhere(some);
    assert!(!updater.is_due());
}

/// A pod of the other family uses the existing rule chains.
#[test]
fn a_rule_chain_is_installed_for_the_families_of_its_pods() {
    let mut history = PlanHistory::new(0);
    let id = loop {
        history.next_change();
        if let Some(id) = history.plan.chains.keys().next() {
            break *id;
        }
    };
    let direction = history.plan.chains[&id].direction;
    let pod_chains = match direction {
        palisade_core::policy::Direction::Egress => PodChains {
            egress: Some(id),
            ingress: None,
        },
        palisade_core::policy::Direction::Ingress => PodChains {
            egress: None,
            ingress: Some(id),
        },
    };
    for family in Family::BOTH {
        let (first, second) = match family {
            Family::V4 => ("10.9.0.1", "fd09::1"),
            Family::V6 => ("fd09::1", "10.9.0.1"),
        };
        let mut plan = history.plan.clone();
        plan.chains.retain(|it, _| *it == id);
        plan.pods = [(address(first), pod_chains)].into();
        let (mut updater, mut table) = TableUpdater::new(&plan, &settings(1));
        for pods in [vec![first, second], vec![second]] {
            let mut after = plan.clone();
            after.pods = pods
                .into_iter()
                .map(|it| (address(it), pod_chains))
                .collect();
            for transaction in change_of(&mut updater, &difference(&plan, &after)) {
                apply(&mut table, &transaction);
                check_whole(&table);
            }
            plan = after;
            assert_eq!(canonical(&table), canonical(&ruleset(&plan, &settings(1))));
        }
    }
}
