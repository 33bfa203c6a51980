//! Transactions on an active table: executed completely or not at all, with the error of the failed
//! message.

use std::sync::{Arc, Mutex};

use nix::errno::Errno;
use palisade_nft::faults::{Fault, Faults, Syscall};
use palisade_nft::ruleset::{Chain, Field, Match, Name, Ruleset, Set, Statement, Value, Verdict};
use palisade_nft::{Error, Kernel, Op, Transaction};

use crate::Test;
use crate::rules::{apply, elements, inner, rule, small};

pub(crate) const TESTS: &[Test] = &[
    ("change::every_operation", every_operation),
    ("change::many_elements", many_elements),
    ("change::a_refusal_changes_nothing", refusals),
    ("change::a_full_set_is_reported", too_large),
    ("change::without_a_table", without_a_table),
    ("change::calls_that_fail", calls_that_fail),
    ("change::adopted_tables_are_changed", adopted),
];

fn every_operation() {
    let mut kernel = Kernel::open().unwrap();
    let mut model = small(1);
    model.sets[1].size = 400;
    kernel.install(&model).unwrap();
    let new = Name::numbered("new", 1);
    let counter = rule(&[], &[Statement::Counter]);
    let goto = |name: &Name| rule(&[], &[Statement::Verdict(Verdict::Goto(name.clone()))]);
    let forward = model.chains[1].clone();
    let mut numbers = Set::numbers(Name::word("ports"), vec![Field::L4, Field::Port]);
    numbers.push_number(&[Value::L4(6), Value::Port(80)], 7);
    numbers.push_number(&[Value::L4(6), Value::Port(81)], 8);
    numbers.size = 64;
    let steps = [
        vec![
            Op::AddChain(new.clone()),
            Op::Rewrite(inner(new.clone(), vec![counter.clone()])),
            Op::AddSet(numbers.clone()),
        ],
        vec![
            Op::Rewrite(Chain {
                rules: vec![goto(&new), counter.clone()],
                ..forward.clone()
            }),
            Op::AddElements(elements(&model.sets[1], &[[201, 1], [202, 1]])),
            Op::DeleteElements(elements(&model.sets[1], &[[7, 0]])),
        ],
        vec![
            Op::Rewrite(Chain {
                rules: Vec::new(),
                ..forward
            }),
            Op::DeleteChain(new),
            Op::DeleteSet(numbers.name),
        ],
    ];
    for ops in steps {
        let transaction = Transaction {
            ops,
            ..Transaction::default()
        };
        kernel.commit(&transaction).unwrap();
        apply(&mut model, &transaction);
        assert_eq!(kernel.audit(&model).unwrap(), []);
    }
    assert!(kernel.commit(&Transaction::default()).unwrap().messages == 0);
}

/// More than one message can hold, added and deleted.
fn many_elements() {
    let mut kernel = Kernel::open().unwrap();
    let mut model = small(1);
    let mut many = Set::new(Name::word("many"), vec![Field::Number, Field::V4]);
    many.size = 20_000;
    model.sets.push(many.clone());
    kernel.install(&model).unwrap();
    for number in 0..10_000 {
        let address = std::net::Ipv4Addr::from_bits(number).into();
        many.push(&[Value::Number(3), Value::Address(address)]);
    }
    let add = Transaction {
        ops: vec![Op::AddElements(many.clone())],
        ..Transaction::default()
    };
    assert!(kernel.commit(&add).unwrap().messages > 3);
    let without = model.clone();
    apply(&mut model, &add);
    assert_eq!(kernel.audit(&model).unwrap(), []);
    let delete = Transaction {
        ops: vec![Op::DeleteElements(many)],
        ..Transaction::default()
    };
    kernel.commit(&delete).unwrap();
    assert_eq!(kernel.audit(&without).unwrap(), []);
}

fn refusals() {
    let mut kernel = Kernel::open().unwrap();
    let mut model = small(1);
    model.sets[1].size = 201;
    let used = Name::word("used");
    let to_it = rule(&[], &[Statement::Verdict(Verdict::Jump(used.clone()))]);
    let asking = rule(
        &[Match::Lookup {
            set: Name::word("mem4"),
            key: vec![
                palisade_nft::ruleset::Key::Number(7),
                palisade_nft::ruleset::Key::Address(
                    palisade_nft::ruleset::PacketEnd::Source,
                    palisade_core::net::Family::V4,
                    32,
                ),
            ],
            missing: false,
        }],
        &[],
    );
    model
        .chains
        .insert(0, inner(used.clone(), vec![asking.clone()]));
    model.chains[2].rules.push(to_it.clone());
    kernel.install(&model).unwrap();
    let nowhere = Name::word("nowhere");
    let members = &model.sets[1];
    let to_nowhere = Statement::Verdict(Verdict::Goto(nowhere.clone()));
    let other = Set {
        name: nowhere.clone(),
        ..generation_like(members)
    };
    let cases = [
        (Op::AddChain(used.clone()), Errno::EEXIST, "add the chain"),
        (
            Op::DeleteChain(used.clone()),
            Errno::EBUSY,
            "delete the chain `used`",
        ),
        (Op::DeleteChain(nowhere.clone()), Errno::ENOENT, "nowhere"),
        (
            Op::Rewrite(inner(nowhere.clone(), Vec::new())),
            Errno::ENOENT,
            "rewrite the chain `nowhere`",
        ),
        (
            Op::Rewrite(inner(used, vec![asking, rule(&[], &[to_nowhere])])),
            Errno::ENOENT,
            "rewrite the chain `used`, at rule 2",
        ),
        (
            Op::AddSet(members.clone()),
            Errno::EEXIST,
            "add the set `mem4`",
        ),
        (
            Op::DeleteSet(members.name.clone()),
            Errno::EBUSY,
            "delete the set `mem4`",
        ),
        (Op::DeleteSet(nowhere), Errno::ENOENT, "nowhere"),
        // Also if it is equal.
        (
            Op::AddElements(elements(members, &[[7, 0]])),
            Errno::EEXIST,
            "add 1 elements to the set `mem4`",
        ),
        (
            Op::DeleteElements(elements(members, &[[9, 9]])),
            Errno::ENOENT,
            "delete 1 elements",
        ),
        (
            Op::AddElements(elements(members, &[[1, 1], [2, 1]])),
            Errno::ENFILE,
            "add 2 elements",
        ),
        (Op::AddElements(other), Errno::ENOENT, "nowhere"),
    ];
    for (op, errno, words) in cases {
        let fine = |number| Op::AddChain(Name::numbered("fine", number));
        let transaction = Transaction {
            ops: vec![fine(1), op, fine(2)],
            ..Transaction::default()
        };
        let error = kernel.commit(&transaction).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert!(!error.is_unknown());
        let Error::Refused(refusal) = error else {
            panic!("{error}");
        };
        assert_eq!((refusal.errno, refusal.operation), (errno, Some(1)));
        assert_eq!(kernel.audit(&model).unwrap(), []);
    }
    let broken = Transaction {
        ops: vec![Op::AddElements(Set {
            keys: vec![1],
            ..members.clone()
        })],
        ..Transaction::default()
    };
    let error = kernel.commit(&broken).unwrap_err();
    assert!(matches!(error, Error::Unusable(_)), "{error}");
    // Deleted elements make room for elements added after them in the same transaction.
    let swap = Transaction {
        ops: vec![
            Op::DeleteElements(elements(members, &[[7, 0]])),
            Op::AddElements(elements(members, &[[1, 1], [2, 1]])),
        ],
        ..Transaction::default()
    };
    kernel.commit(&swap).unwrap();
    apply(&mut model, &swap);
    assert_eq!(kernel.audit(&model).unwrap(), []);
}

/// A set of the same form with one element.
fn generation_like(set: &Set) -> Set {
    elements(set, &[[1, 1]])
}

fn too_large() {
    let mut kernel = Kernel::open().unwrap();
    kernel.install(&small(1)).unwrap();
    kernel.limit_batch(4096);
    let counters = vec![rule(&[], &[Statement::Counter]); 100];
    let rewrite = Transaction {
        ops: vec![Op::Rewrite(inner(
            small(1).chains[0].name.clone(),
            counters,
        ))],
        ..Transaction::default()
    };
    let error = kernel.commit(&rewrite).unwrap_err();
    assert!(
        matches!(error, Error::SmallBuffer { most: 4096, .. }),
        "{error}"
    );
    assert!(!error.is_unknown());
    assert_eq!(kernel.audit(&small(1)).unwrap(), []);
}

fn without_a_table() {
    let mut kernel = Kernel::open().unwrap();
    let add = Transaction {
        ops: vec![Op::AddChain(Name::word("new"))],
        ..Transaction::default()
    };
    assert!(matches!(kernel.commit(&add), Err(Error::NoTable)));
    assert!(!kernel.adopt().unwrap());
    assert!(matches!(kernel.commit(&add), Err(Error::NoTable)));
    kernel.install(&small(1)).unwrap();
    assert_eq!(kernel.table(), Some("palisade1a"));
    kernel.commit(&add).unwrap();
    kernel.remove().unwrap();
    assert!(matches!(kernel.commit(&add), Err(Error::NoTable)));
}

fn adopted() {
    let mut first = Kernel::open().unwrap();
    first.install(&small(1)).unwrap();
    first.install(&small(2)).unwrap();
    drop(first);
    let mut second = Kernel::open().unwrap();
    assert!(second.adopt().unwrap());
    assert_eq!(second.table(), Some("palisade1b"));
    let mut model = small(2);
    let add = Transaction {
        ops: vec![Op::AddChain(Name::word("new"))],
        ..Transaction::default()
    };
    second.commit(&add).unwrap();
    apply(&mut model, &add);
    assert_eq!(second.audit(&model).unwrap(), []);
}

/// One call that fails, once armed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Once(pub(crate) Arc<Mutex<Option<(Syscall, Fault)>>>);

impl Faults for Once {
    fn before(&mut self, call: Syscall) -> Option<Fault> {
        let mut armed = self.0.lock().unwrap();
        let is_it = armed.is_some_and(|(at, _)| at == call);
        if is_it {
            armed.take().map(|(_, fault)| fault)
        } else {
            None
        }
    }
}

fn calls_that_fail() {
    let once = Once::default();
    let mut kernel = Kernel::open().unwrap().with_faults(Box::new(once.clone()));
    let mut model = small(1);
    kernel.install(&model).unwrap();
    let send = |errno| (Syscall::Send, Fault::Fail(errno));
    let receive = |errno| (Syscall::Receive, Fault::Fail(errno));
    // The call, whether the transaction was done, and whether that is known.
    let cases = [
        (send(Errno::ENOBUFS), false, true),
        (send(Errno::ENOMEM), false, true),
        (send(Errno::EPERM), false, true),
        (send(Errno::EMSGSIZE), false, true),
        (send(Errno::EINTR), true, true),
        (receive(Errno::EINTR), true, true),
        (receive(Errno::ENOBUFS), true, false),
        (receive(Errno::ENOMEM), true, false),
        (receive(Errno::EIO), true, false),
        ((Syscall::Receive, Fault::Lose), true, false),
        ((Syscall::Send, Fault::Lose), false, false),
    ];
    for (number, (fault, is_done, is_known)) in (0..).zip(cases) {
        let add = Transaction {
            ops: vec![Op::AddChain(Name::numbered("new", number))],
            ..Transaction::default()
        };
        *once.0.lock().unwrap() = Some(fault);
        let outcome = kernel.commit(&add);
        assert_eq!(*once.0.lock().unwrap(), None, "the fault was used");
        match outcome {
            Ok(_) => assert!(is_known && is_done, "{fault:?}"),
            Err(error) => {
                assert!(!(is_known && is_done), "{fault:?}: {error}");
                assert_eq!(error.is_unknown(), !is_known, "{fault:?}: {error}");
            }
        }
        if is_done {
            apply(&mut model, &add);
        }
        // The unread rest of one response does not count as the next response.
        assert_eq!(kernel.audit(&model).unwrap(), [], "{fault:?}");
    }
    // A refusal stays a refusal, even if another response is lost.
    let again: &Ruleset = &model;
    let twice = Transaction {
        ops: vec![Op::AddChain(again.chains[0].name.clone()); 2],
        ..Transaction::default()
    };
    let error = kernel.commit(&twice).unwrap_err();
    assert!(matches!(error, Error::Refused(_)), "{error}");
}
