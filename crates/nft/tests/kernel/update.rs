//! A table that is updated with a plan equals a newly installed one.

use std::cell::Cell;
use std::net::{IpAddr, UdpSocket};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use palisade_core::net::{PortRange, Protocol};
use palisade_core::plan::{
    Group, GroupId, GroupKind, MergedUnion, PeerCondition, PeerScope, Plan, PlanChange, PodChains,
    PortBlock, PortCondition, RuleChain, RuleChainId, Step,
};
use palisade_core::policy::{Action, Direction};
use palisade_core::program::RuleId;
use palisade_nft::faults::{Fault, Syscall};
use palisade_nft::load::TableAuditor;
use palisade_nft::node::{Generation, NodeOptions, SenderChecks, Settings};
use palisade_nft::ruleset::{Match, Name, Point, Ruleset, Statement};
use palisade_nft::update::PIECE;
use palisade_nft::{Error, Kernel, Op, TableUpdater};

use crate::Test;
use crate::change::Once;
use crate::plans::{PlanHistory, difference, interface, pods};
use crate::rules::{apply, block, hooked, rule};

pub(crate) const TESTS: &[Test] = &[
    ("update::an_updated_table_equals_a_new_one", random_changes),
    ("update::a_new_table_repairs_failed_updates", failures),
    ("update::changing_neither_leaks_nor_loses", under_traffic),
    ("update::unknown_senders_do_not_reach_the_node", unknown),
];

fn settings(seed: u64) -> Settings {
    let mut settings = Settings::of_node(Generation::FIRST, &NodeOptions::default());
    if seed.is_multiple_of(2) {
        settings.pod_blocks = vec![block("10.9.0.0/24"), block("fd09::/64")];
    }
    if seed.is_multiple_of(3) {
        settings.senders = SenderChecks::Trusted;
    }
    settings
}

/// Audits in parts, with a stop before each set and through another socket. Everything is compared
/// once.
fn audits_in_parts(kernel: &Kernel, expected: &Ruleset) {
    let table = kernel.table().unwrap();
    let mut auditor = TableAuditor::open().unwrap();
    let (mut from, mut times): (Option<String>, usize) = (None, 0);
    loop {
        let is_started = Cell::new(false);
        let once = || !is_started.replace(true);
        let audited = auditor.audit(table, expected, from.as_deref(), &once);
        let audited = audited.unwrap();
        assert_eq!(audited.differences, []);
        times += 1;
        from = audited.stopped_at;
        if from.is_none() {
            break;
        }
    }
    assert_eq!(times, expected.sets.len());
}

fn random_changes() {
    for seed in 0..16 {
        let mut kernel = Kernel::open().unwrap();
        let mut history = PlanHistory::new(seed);
        let mut settings = settings(seed);
        // Every other table is changed in pieces of a few elements.
        let piece = if seed.is_multiple_of(2) { PIECE } else { 3 };
        let (updater, table) = TableUpdater::new(&history.plan, &settings);
        let mut updater = updater.in_pieces_of(piece);
        kernel.install(&table).unwrap();
        for step in 0..20 {
            let change = history.next_change();
            if history.random.is_one_in(2) {
                let some = pods().into_iter().filter(|_| history.random.is_one_in(2));
                updater.set_elsewhere(some.map(interface).collect());
            }
            let next = settings.generation.next(settings.mark.last_generation());
            let generation = history.random.is_one_in(2).then_some(next);
            settings.generation = generation.unwrap_or(settings.generation);
            match updater.change(&change, generation) {
                Ok(transactions) => {
                    for transaction in &transactions {
                        kernel.commit(transaction).unwrap();
                    }
                }
                Err(_) => {
                    let table;
                    (updater, table) = TableUpdater::new(&history.plan, updater.settings());
                    updater = updater.in_pieces_of(piece);
                    kernel.install(&table).unwrap();
                }
            }
            let expected = updater.expected(history.plan.clone()).ruleset();
            assert_eq!(kernel.audit(&expected).unwrap(), [], "seed {seed}");
            if step == 19 {
                audits_in_parts(&kernel, &expected);
            }
            let held = kernel.generation().unwrap();
            assert_eq!(held, Some(settings.generation.get().into()));
        }
        kernel.remove().unwrap();
    }
}

/// Each call of a change fails once, and the next installation repairs the table.
fn failures() {
    let faults = [
        (Syscall::Send, Fault::Fail(Errno::ENOBUFS)),
        (Syscall::Receive, Fault::Fail(Errno::ENOBUFS)),
        (Syscall::Receive, Fault::Lose),
        (Syscall::Send, Fault::Lose),
    ];
    let once = Once::default();
    let mut kernel = Kernel::open().unwrap().with_faults(Box::new(once.clone()));
    let mut history = PlanHistory::new(5);
    let mut generation = Generation::FIRST;
    let (mut updater, table) = TableUpdater::new(&history.plan, &settings(2));
    kernel.install(&table).unwrap();
    let mut failed = 0;
    for number in 0..40usize {
        let before = updater.expected(history.plan.clone()).ruleset();
        let mut model = before.clone();
        let change = history.next_change();
        generation = generation.next(updater.settings().mark.last_generation());
        let Ok(transactions) = updater.change(&change, Some(generation)) else {
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
                let is_done = !kernel.audit(&model).unwrap().is_empty();
                assert!(error.is_unknown() || !is_done, "{error}");
                failed += 1;
                break;
            }
            apply(&mut model, transaction);
            assert_eq!(kernel.audit(&model).unwrap(), []);
        }
        let table: Ruleset;
        (updater, table) = TableUpdater::new(&history.plan, updater.settings());
        kernel.install(&table).unwrap();
        assert_eq!(kernel.audit(&table).unwrap(), []);
    }
    assert!(failed > 30, "{failed}");

    // Another program changed the table: the kernel refuses the whole transaction.
    let with_chain = PlanChange {
        pods: vec![("10.9.0.200".parse().unwrap(), PodChains::default())],
        ..PlanChange::default()
    };
    let transactions = updater.change(&with_chain, None).unwrap();
    let held = updater.expected(history.plan.clone()).ruleset();
    kernel.commit(&transactions[0]).unwrap();
    let Err(Error::Refused(refusal)) = kernel.commit(&transactions[0]) else {
        panic!("it was not refused");
    };
    assert_eq!(refusal.errno, Errno::EEXIST);
    assert!(matches!(transactions[0].ops[0], Op::AddElements(_)));
    assert_ne!(kernel.audit(&held).unwrap(), []);
}

/// The verdicts of one pod stay the same while all its chains and elements are rewritten.
fn under_traffic() {
    let client: IpAddr = "127.0.0.1".parse().unwrap();
    let mut history = PlanHistory::new(17);
    let with_client = |plan: &Plan, number: u32| {
        let mut plan = plan.clone();
        let group = GroupId(1_000_000);
        let mut servers: Vec<IpAddr> = vec!["127.0.0.2".parse().unwrap()];
        // Other pods come and go.
        servers.extend(number.is_multiple_of(3).then_some(client));
        servers.sort();
        plan.groups.insert(
            group,
            Group {
                kind: GroupKind::Hosts,
                addresses: servers,
            },
        );
        let port = NonZeroU16::new(50_002).unwrap();
        let step = Arc::new(Step {
            rule: RuleId(0),
            action: Action::Accept,
            ports: Some(vec![PortCondition {
                protocol: Protocol::Udp,
                range: PortRange::single(port),
                at: None,
            }]),
            peers: Some(vec![PeerCondition {
                within: PeerScope::Group(group),
                except: Vec::new(),
            }]),
        });
        let mut chain = RuleChain {
            direction: Direction::Egress,
            admin: Vec::new(),
            merged: MergedUnion::default(),
            rest: (0..=number % 4).map(|_| Arc::clone(&step)).collect(),
            verdict: palisade_core::policy::Verdict::Deny,
        };
        if number.is_multiple_of(2) {
            let of_ports = &mut chain.merged.of_ports;
            of_ports.insert(PortBlock::single(Protocol::Udp, 50_002), group);
            chain.rest.clear();
        }
        let id = RuleChainId(1_000_000 + number);
        plan.chains.insert(id, Arc::new(chain));
        let pod_chains = PodChains {
            egress: Some(id),
            ingress: None,
        };
        plan.pods.insert(client, pod_chains);
        plan
    };
    let mut kernel = Kernel::open().unwrap();
    let mut plan = with_client(&history.plan, 0);
    let (mut updater, table) = TableUpdater::new(&plan, &settings(2));
    kernel.install(&table).unwrap();
    let is_over = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let traffic = scope.spawn(|| traffic(&is_over));
        let over = Over(&is_over);
        for number in 1..=300 {
            history.next_change();
            let next = with_client(&history.plan, number);
            let change = difference(&plan, &next);
            plan = next;
            let generation = updater
                .settings()
                .generation
                .next(updater.settings().mark.last_generation());
            match updater.change(&change, Some(generation)) {
                Ok(transactions) => transactions.iter().for_each(|transaction| {
                    kernel.commit(transaction).unwrap();
                }),
                Err(_) => {
                    let table;
                    (updater, table) = TableUpdater::new(&plan, updater.settings());
                    kernel.install(&table).unwrap();
                }
            }
        }
        drop(over);
        traffic.join().unwrap()
    });
    assert!(sent > 100, "{sent}");
    assert_eq!(
        kernel
            .audit(&updater.expected(plan.clone()).ruleset())
            .unwrap(),
        []
    );
}

/// Ends the traffic, also when a test fails.
struct Over<'t>(&'t AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends packets of an allowed and of a denied flow until the end. Returns their number.
fn traffic(is_over: &AtomicBool) -> usize {
    let allowed = UdpSocket::bind("127.0.0.2:50002").unwrap();
    let patience = Some(Duration::from_secs(2));
    allowed.set_read_timeout(patience).unwrap();
    let denied = UdpSocket::bind("127.0.0.2:50003").unwrap();
    denied.set_nonblocking(true).unwrap();
    let client = UdpSocket::bind("127.0.0.1:40001").unwrap();
    let mut sent = 0;
    while !is_over.load(Ordering::Relaxed) {
        let _ = client.send_to(b"hello", "127.0.0.2:50003");
        client.send_to(b"hello", "127.0.0.2:50002").unwrap();
        allowed
            .recv_from(&mut [0; 16])
            .expect("an allowed packet was lost");
        sent += 1;
    }
    let leaked = denied.recv_from(&mut [0; 16]).is_ok();
    assert!(!leaked, "a denied packet came through");
    sent
}

/// On the loopback interface all packets are for the node. Those of an unknown address in a block of
/// pods do not reach it, tracked or not, until the address is known.
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
    let mut settings = Settings::of_node(Generation::FIRST, &NodeOptions::default());
    settings.pod_blocks = vec![block("127.9.0.0/16")];
    let (mut updater, table) = TableUpdater::new(&Plan::default(), &settings);
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
        pods: vec![(pod, PodChains::default())],
        ..PlanChange::default()
    };
    for transaction in updater.change(&change, None).unwrap() {
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
    let next = settings.generation.next(settings.mark.last_generation());
    for transaction in updater.change(&change, Some(next)).unwrap() {
        kernel.commit(&transaction).unwrap();
    }
    for to in ["127.0.0.1:5000", "127.0.0.1:5353"] {
        assert!(!passes("127.9.0.1:0", to), "{to}");
    }
}

fn untracking() -> palisade_nft::ruleset::Chain {
    let mut chain = hooked("output", Point::Output, Vec::new());
    if let Some(hook) = &mut chain.hook {
        hook.priority = -300;
    }
    chain
}
