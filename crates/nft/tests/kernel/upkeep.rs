//! A table that is kept up with a plan holds what it would hold if it were made anew.

use std::net::UdpSocket;
use std::time::Duration;

use nix::errno::Errno;
use palisade_core::plan::{Faced, Plan, PlanChange};
use palisade_nft::faults::{Call, Fault};
use palisade_nft::node::{Generation, Settings};
use palisade_nft::ruleset::{Match, Name, Point, Ruleset, Statement};
use palisade_nft::{Error, Kernel, Op, Upkeep};

use crate::Test;
use crate::change::Once;
use crate::plans::{Story, interface, pods};
use crate::rules::{apply, block, hooked, lo, rule};

pub(crate) const TESTS: &[Test] = &[
    ("upkeep::changes_are_held_as_if_made_anew", random_changes),
    ("upkeep::what_fails_is_made_good_by_the_whole", failures),
    ("upkeep::unknown_senders_do_not_reach_the_node", unknown),
];

fn settings(seed: u64) -> Settings {
    let mut settings = Settings::new(Generation::FIRST);
    if seed.is_multiple_of(2) {
        settings.pod_blocks = vec![block("10.9.0.0/24"), block("fd09::/64")];
    }
    if seed.is_multiple_of(3) {
        settings.interfaces = vec![("192.0.2.1".parse().unwrap(), lo())];
    }
    settings
}

fn random_changes() {
    for seed in 0..16 {
        let mut kernel = Kernel::open().unwrap();
        let mut story = Story::new(seed);
        let mut settings = settings(seed);
        let (mut upkeep, table) = Upkeep::new(&story.plan, &settings);
        kernel.install(&table).unwrap();
        for _ in 0..20 {
            let change = story.go_on();
            if !settings.interfaces.is_empty() && story.dice.is_one_in(2) {
                let mut known = vec![("192.0.2.1".parse().unwrap(), lo())];
                let some = pods().into_iter().filter(|_| story.dice.is_one_in(2));
                known.extend(some.map(|it| (it, interface(it))));
                upkeep.set_interfaces(known);
            }
            let next = settings.generation.next(settings.mark);
            let generation = story.dice.is_one_in(2).then_some(next);
            settings.generation = generation.unwrap_or(settings.generation);
            match upkeep.change(&change, generation) {
                Ok(transactions) => {
                    for transaction in &transactions {
                        kernel.commit(transaction).unwrap();
                    }
                }
                Err(_) => {
                    let table;
                    (upkeep, table) = Upkeep::new(&story.plan, upkeep.settings());
                    kernel.install(&table).unwrap();
                }
            }
            let expected = upkeep.ruleset(&story.plan);
            assert_eq!(kernel.audit(&expected).unwrap(), [], "seed {seed}");
            let held = kernel.generation().unwrap();
            assert_eq!(held, Some(settings.generation.get().into()));
        }
        kernel.remove().unwrap();
    }
}

/// Each call of a change fails once, and the whole table then puts it right.
fn failures() {
    let faults = [
        (Call::Send, Fault::Fail(Errno::ENOBUFS)),
        (Call::Receive, Fault::Fail(Errno::ENOBUFS)),
        (Call::Receive, Fault::Lose),
        (Call::Send, Fault::Lose),
    ];
    let once = Once::default();
    let mut kernel = Kernel::open().unwrap().with_faults(Box::new(once.clone()));
    let mut story = Story::new(5);
    let mut generation = Generation::FIRST;
    let (mut upkeep, table) = Upkeep::new(&story.plan, &settings(2));
    kernel.install(&table).unwrap();
    let mut failed = 0;
    for number in 0..40usize {
        let before = upkeep.ruleset(&story.plan);
        let mut model = before.clone();
        let change = story.go_on();
        generation = generation.next(upkeep.settings().mark);
        let Ok(transactions) = upkeep.change(&change, Some(generation)) else {
            continue;
        };
        let at = number % transactions.len();
        let fault = faults[number % faults.len()];
        for (place, transaction) in transactions.iter().enumerate() {
            if place == at {
                *once.0.lock().unwrap() = Some(fault);
            }
            let outcome = kernel.commit(transaction);
            if let Err(error) = outcome {
                let is_done = kernel.audit(&model).unwrap() != [];
                assert!(error.is_unknown() || !is_done, "{error}");
                failed += 1;
                break;
            }
            apply(&mut model, transaction);
            assert_eq!(kernel.audit(&model).unwrap(), []);
        }
        let table: Ruleset;
        (upkeep, table) = Upkeep::new(&story.plan, upkeep.settings());
        kernel.install(&table).unwrap();
        assert_eq!(kernel.audit(&table).unwrap(), []);
    }
    assert!(failed > 30, "{failed}");

    // Somebody else was there: the kernel refuses, and nothing of it is done.
    let body = PlanChange {
        pods: vec![("10.9.0.200".parse().unwrap(), Faced::default())],
        ..PlanChange::default()
    };
    let transactions = upkeep.change(&body, None).unwrap();
    let held = upkeep.ruleset(&story.plan);
    kernel.commit(&transactions[0]).unwrap();
    let Err(Error::Refused(refusal)) = kernel.commit(&transactions[0]) else {
        panic!("it was not refused");
    };
    assert_eq!(refusal.errno, Errno::EEXIST);
    assert!(matches!(transactions[0].ops[0], Op::AddElements(_)));
    assert_ne!(kernel.audit(&held).unwrap(), []);
}

/// On the loopback interface everything is for the node: who is in a block of pods and not known does not reach it,
/// tracked or not, and reaches it as soon as it is known.
fn unknown() {
    let mut kernel = Kernel::open().unwrap();
    let untrack = Ruleset {
        table: Name::word("untrack"),
        sets: Vec::new(),
        chains: vec![palisade_nft::ruleset::Chain {
            rules: vec![rule(
                &[Match::HeaderPort(5353, 5353)],
                &[Statement::Notrack],
            )],
            ..untracking()
        }],
    };
    kernel.install_plain(&untrack).unwrap();
    let mut settings = Settings::new(Generation::FIRST);
    settings.pod_blocks = vec![block("127.9.0.0/16")];
    let (mut upkeep, table) = Upkeep::new(&Plan::default(), &settings);
    kernel.install(&table).unwrap();
    let passes = |from: &str, to: &str| {
        let server = UdpSocket::bind(to).unwrap();
        server
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        let client = UdpSocket::bind(from).unwrap();
        let _ = client.send_to(b"x", to);
        server.recv_from(&mut [0; 8]).is_ok()
    };
    for to in ["127.0.0.1:5000", "127.0.0.1:5353"] {
        assert!(passes("127.0.0.2:0", to), "{to}");
        assert!(!passes("127.9.0.1:0", to), "{to}");
    }
    // The node itself may have an address of the block.
    assert!(passes("127.0.0.2:0", "127.9.0.1:5000"));
    let pod = "127.9.0.1".parse().unwrap();
    let change = PlanChange {
        pods: vec![(pod, Faced::default())],
        ..PlanChange::default()
    };
    for transaction in upkeep.change(&change, None).unwrap() {
        kernel.commit(&transaction).unwrap();
    }
    for to in ["127.0.0.1:5000", "127.0.0.1:5353"] {
        assert!(passes("127.9.0.1:0", to), "{to}");
        assert!(!passes("127.9.0.2:0", to), "{to}");
    }
    let change = PlanChange {
        ended_pods: vec![pod],
        ..PlanChange::default()
    };
    let next = settings.generation.next(settings.mark);
    for transaction in upkeep.change(&change, Some(next)).unwrap() {
        kernel.commit(&transaction).unwrap();
    }
    for to in ["127.0.0.1:5000", "127.0.0.1:5353"] {
        assert!(!passes("127.9.0.1:0", to), "{to}");
    }
}

fn untracking() -> palisade_nft::ruleset::Chain {
    let mut chain = hooked("prerouting", Point::Prerouting, Vec::new());
    if let Some(hook) = &mut chain.hook {
        hook.priority = -300;
    }
    chain
}
