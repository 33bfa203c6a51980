//! What others do to our tables is noticed, and an audit names it.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use palisade_nft::ruleset::{Chain, Name, Point, Ruleset, Set, Statement, Values, Verdict};
use palisade_nft::{Drift, Kernel, Op, TableNotice, TableWatcher, Transaction};

use crate::Test;
use crate::rules::{elements, inner, rule, small};

pub(crate) const TESTS: &[Test] = &[
    ("watch::our_own_changes_are_silent", our_own),
    ("watch::changes_by_other_programs_are_reported", of_others),
    ("watch::a_deleted_table_is_reported", deleted),
    ("watch::changes_of_other_tables_are_ignored", other_tables),
    ("watch::hooks_and_sizes_are_compared", hooks_and_sizes),
    ("watch::lost_notices_are_reported", lost),
    ("watch::in_a_thread_of_its_own", in_a_thread),
];

const SOON: Duration = Duration::from_secs(5);
const NOW: Duration = Duration::ZERO;

fn watched() -> (Kernel, TableWatcher) {
    let kernel = Kernel::open().unwrap().without_ownership();
    let mut watcher = TableWatcher::open().unwrap();
    watcher.ignore(kernel.port());
    (kernel, watcher)
}

fn everything(watcher: &mut TableWatcher) -> Vec<TableNotice> {
    std::iter::from_fn(|| watcher.next(NOW).unwrap()).collect()
}

fn changed() -> TableNotice {
    let table = "palisade1a".to_owned();
    TableNotice::Changed { table }
}

fn our_own() {
    let (mut kernel, mut watcher) = watched();
    kernel.install(&small(1)).unwrap();
    kernel.install(&small(2)).unwrap();
    let add = Transaction {
        ops: vec![Op::AddChain(Name::word("new"))],
        ..Transaction::default()
    };
    kernel.commit(&add).unwrap();
    assert_eq!(watcher.next(Duration::from_millis(20)).unwrap(), None);
    kernel.remove().unwrap();
    assert_eq!(everything(&mut watcher), []);
}

fn of_others() {
    let accept = rule(
        &[],
        &[Statement::Counter, Statement::Verdict(Verdict::Accept)],
    );
    let drop = rule(&[], &[Statement::Verdict(Verdict::Drop)]);
    let ours = small(1);
    let forward = |rules| {
        Op::Rewrite(Chain {
            rules,
            ..ours.chains[1].clone()
        })
    };
    let members = &ours.sets[1];
    let chain = "forward".to_owned();
    let rules = |found| Drift::Rules {
        chain: chain.clone(),
        expected: 1,
        found,
    };
    let count = |missing, foreign| Drift::Elements {
        set: "mem4".to_owned(),
        missing,
        foreign,
    };
    let mut verdicts = ours.sets[2].clone();
    verdicts.values = Values::Verdicts(vec![Verdict::Accept]);
    let cases = [
        ("flushed chain", vec![forward(Vec::new())], rules(0)),
        (
            "added rule",
            vec![forward(vec![accept, drop.clone()])],
            rules(2),
        ),
        (
            "another rule",
            vec![forward(vec![drop])],
            Drift::Rule {
                chain: chain.clone(),
                place: 0,
            },
        ),
        (
            "added element",
            vec![Op::AddElements(elements(members, &[[7, 201]]))],
            count(0, 1),
        ),
        (
            "removed element",
            vec![Op::DeleteElements(elements(members, &[[7, 0]]))],
            count(1, 0),
        ),
        (
            "flushed set",
            vec![Op::DeleteElements(members.clone())],
            count(200, 0),
        ),
        (
            "element that leads elsewhere",
            vec![
                Op::DeleteElements(ours.sets[2].clone()),
                Op::AddElements(verdicts),
            ],
            Drift::Elements {
                set: "eg4".to_owned(),
                missing: 1,
                foreign: 1,
            },
        ),
        (
            "added chain",
            vec![Op::AddChain(Name::word("theirs"))],
            Drift::ForeignChain("theirs".to_owned()),
        ),
        (
            "added set",
            vec![Op::AddSet(Set {
                name: Name::word("theirs"),
                ..members.clone()
            })],
            Drift::ForeignSet("theirs".to_owned()),
        ),
        (
            "deleted set",
            vec![Op::DeleteSet(members.name.clone())],
            Drift::NoSet("mem4".to_owned()),
        ),
        (
            "deleted chain",
            vec![
                Op::DeleteSet(ours.sets[2].name.clone()),
                Op::DeleteChain(ours.chains[0].name.clone()),
            ],
            Drift::NoChain("e-10.0.0.1".to_owned()),
        ),
    ];
    for (what, ops, difference) in cases {
        let (mut kernel, mut watcher) = watched();
        kernel.remove().unwrap();
        kernel.install(&with_room(&ours)).unwrap();
        assert_eq!(kernel.audit(&with_room(&ours)).unwrap(), [], "{what}");
        let mut other = Kernel::open().unwrap().without_ownership();
        assert!(other.adopt().unwrap());
        let transaction = Transaction {
            ops,
            ..Transaction::default()
        };
        other.commit(&transaction).unwrap();
        assert_eq!(watcher.next(SOON).unwrap(), Some(changed()), "{what}");
        let others = everything(&mut watcher);
        assert!(others.iter().all(|it| *it == changed()), "{what}");
        let mut found = kernel.audit(&with_room(&ours)).unwrap();
        found.retain(|it| *it != Drift::NoSet("eg4".to_owned()));
        assert_eq!(found, [difference], "{what}");
        assert!(!found[0].to_string().is_empty());
    }
}

type Mutation<'a> = &'a dyn Fn(&mut Ruleset);

fn hooks_and_sizes() {
    let mut kernel = Kernel::open().unwrap();
    let ours = with_room(&small(1));
    kernel.install(&ours).unwrap();
    let altered = |alter: Mutation<'_>| {
        let mut other = ours.clone();
        alter(&mut other);
        other
    };
    let hook = |name: &str| Drift::Hook(name.to_owned());
    let shape = |name: &str| Drift::Shape(name.to_owned());
    let cases: [(Mutation<'_>, Drift); 6] = [
        (
            &|it| it.chains[1].hook.as_mut().unwrap().priority = -11,
            hook("forward"),
        ),
        (
            &|it| it.chains[1].hook.as_mut().unwrap().point = Point::Output,
            hook("forward"),
        ),
        (
            &|it| it.chains[1].hook.as_mut().unwrap().nat = true,
            hook("forward"),
        ),
        (&|it| it.chains[2].hook = None, hook("input")),
        (&|it| it.sets[0].size = 401, shape("generation")),
        (&|it| it.sets[2].values = Values::Nothing, shape("eg4")),
    ];
    for (alter, expected) in cases {
        let found = kernel.audit(&altered(alter)).unwrap();
        assert_eq!(found.first(), Some(&expected), "{found:?}");
    }
}

fn with_room(ruleset: &Ruleset) -> Ruleset {
    let mut ruleset = ruleset.clone();
    ruleset.sets.iter_mut().for_each(|set| set.size = 400);
    ruleset
}

fn deleted() {
    let (mut kernel, mut watcher) = watched();
    kernel.install(&small(1)).unwrap();
    let mut other = Kernel::open().unwrap().without_ownership();
    assert_eq!(other.remove().unwrap(), 1);
    let table = "palisade1a".to_owned();
    let notices = everything(&mut watcher);
    assert!(
        notices.contains(&TableNotice::Deleted { table }),
        "{notices:?}"
    );
    assert_eq!(kernel.audit(&small(1)).unwrap(), [Drift::NoTable]);
    // The kernel refuses the next transaction, and the next installation repairs the table.
    let add = Transaction {
        ops: vec![Op::AddChain(Name::word("new"))],
        ..Transaction::default()
    };
    assert!(!kernel.commit(&add).unwrap_err().is_unknown());
    kernel.install(&small(2)).unwrap();
    assert_eq!(kernel.audit(&small(2)).unwrap(), []);
    assert_eq!(everything(&mut watcher), []);
}

fn other_tables() {
    let (mut kernel, mut watcher) = watched();
    kernel.install(&small(1)).unwrap();
    let mut other = Kernel::open().unwrap();
    let theirs = Ruleset {
        table: Name::word("other"),
        ..small(7)
    };
    other.install_plain(&theirs).unwrap();
    other.install_plain(&theirs).unwrap();
    assert_eq!(watcher.next(Duration::from_millis(20)).unwrap(), None);
    assert_eq!(kernel.audit(&small(1)).unwrap(), []);
}

fn lost() {
    let (mut kernel, mut watcher) = watched();
    let mut large = small(1);
    let mut many = Set::new(Name::word("many"), vec![palisade_nft::ruleset::Field::V4]);
    for number in 0..60_000 {
        let address = IpAddr::V4(Ipv4Addr::from_bits(number));
        many.push(&[palisade_nft::ruleset::Value::Address(address)]);
    }
    large.sets.push(many);
    // More than any socket buffer.
    for _ in 0..3 {
        kernel.install(&large).unwrap();
    }
    let notices = everything(&mut watcher);
    assert_eq!(notices, [TableNotice::Lost], "and no own change");
    // The watch continues.
    let mut other = Kernel::open().unwrap().without_ownership();
    other.adopt().unwrap();
    let add = Transaction {
        ops: vec![Op::AddChain(Name::word("theirs"))],
        ..Transaction::default()
    };
    other.commit(&add).unwrap();
    assert_eq!(watcher.next(SOON).unwrap(), Some(changed()));
}

fn in_a_thread() {
    let (mut kernel, mut watcher) = watched();
    kernel.install(&small(1)).unwrap();
    let thread = std::thread::spawn(move || watcher.next(SOON).unwrap());
    let mut other = Kernel::open().unwrap().without_ownership();
    other.adopt().unwrap();
    let chain = inner(small(1).chains[0].name.clone(), Vec::new());
    other
        .commit(&Transaction {
            ops: vec![Op::Rewrite(chain)],
            ..Transaction::default()
        })
        .unwrap();
    assert_eq!(thread.join().unwrap(), Some(changed()));
}
