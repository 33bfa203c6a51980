//! Installing, replacing, adopting and removing.

use std::sync::{Arc, Mutex};

use nix::errno::Errno;
use palisade_nft::faults::{Fault, Faults, Syscall};
use palisade_nft::load::TABLES;
use palisade_nft::ruleset::{Chain, Match, Name, Point, Ruleset, Set, Statement, Values, Verdict};
use palisade_nft::{Conntrack, Error, Kernel};

use crate::Test;
use crate::forms::{compare, compare_elements, every_form};
use crate::rules::{generation, hooked, inner, rule, small};

pub(crate) const TESTS: &[Test] = &[
    ("install::probing_leaves_nothing", probing_leaves_nothing),
    (
        "install::each_replaces_the_one_before",
        each_replaces_the_one_before,
    ),
    (
        "install::a_small_buffer_is_enough",
        a_small_buffer_is_enough,
    ),
    (
        "install::too_small_a_buffer_is_reported",
        too_small_a_buffer,
    ),
    (
        "install::a_refusal_changes_nothing",
        a_refusal_changes_nothing,
    ),
    (
        "install::a_late_refusal_changes_nothing",
        a_late_refusal_changes_nothing,
    ),
    (
        "install::without_a_response_a_complete_table_stays",
        without_an_answer,
    ),
    ("install::tables_of_a_crash_are_deleted", after_a_crash),
    (
        "install::an_interrupted_swap_is_finished",
        after_a_torn_swap,
    ),
    ("install::other_tables_are_left_alone", other_tables),
    ("install::unusable_rulesets_are_refused", unusable_rulesets),
    ("install::connections_are_deleted", connections),
];

/// Those for kernels that let a table have an owner.
pub(crate) const OF_OWNERS: &[Test] = &[
    (
        "install::other_programs_cannot_change_owned_tables",
        others_may_not_touch_it,
    ),
    (
        "install::a_table_outlives_its_process_and_can_be_adopted",
        it_stays_and_can_be_adopted,
    ),
];

fn probing_leaves_nothing() {
    let mut kernel = Kernel::open().unwrap();
    kernel.probe().unwrap();
    assert_eq!(kernel.tables().unwrap(), Vec::<String>::new());
    assert_eq!(kernel.generation().unwrap(), None);
    assert_eq!(kernel.remove().unwrap(), 0);
}

fn each_replaces_the_one_before() {
    let mut kernel = Kernel::open().unwrap();
    let mut before = None;
    for number in 1..=5 {
        let loaded = kernel.install(&small(number)).unwrap();
        assert_eq!(loaded.replaced, before);
        assert_eq!(loaded.transactions, 1);
        assert_eq!(kernel.tables().unwrap(), [loaded.table]);
        assert_eq!(kernel.generation().unwrap(), Some(number));
        compare(&mut kernel, loaded.table, &small(number));
        before = Some(loaded.table.to_owned());
    }
    let counters = kernel.counters().unwrap();
    assert_eq!(counters.len(), 3);
    assert!(counters.iter().all(|count| count.table == TABLES[0]));
    assert_eq!(kernel.remove().unwrap(), 1);
    assert_eq!(kernel.tables().unwrap(), Vec::<String>::new());
}

fn a_small_buffer_is_enough() {
    let mut kernel = Kernel::open().unwrap();
    kernel.install(&small(1)).unwrap();
    kernel.limit_batch(8192);
    assert_eq!(kernel.largest_batch(), 8192);
    let ruleset = large(2, 3000);
    let loaded = kernel.install(&ruleset).unwrap();
    assert!(loaded.transactions > 10, "{loaded:?}");
    assert_eq!(kernel.tables().unwrap(), [loaded.table]);
    assert_eq!(kernel.generation().unwrap(), Some(2));
    compare(&mut kernel, loaded.table, &ruleset);
    compare_elements(&mut kernel, &ruleset);
}

fn too_small_a_buffer() {
    let mut kernel = Kernel::open().unwrap();
    kernel.install(&small(1)).unwrap();
    kernel.limit_batch(8192);
    let mut ruleset = small(2);
    // Base chains must be deleted in one transaction.
    let many = vec![rule(&[Match::CtPort(1, 2)], &[Statement::Counter]); 300];
    ruleset.chains.push(hooked("output", Point::Output, many));
    let error = kernel.install(&ruleset).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("raise the sysctl net.core.wmem_max"),
        "{error}"
    );
    assert_eq!(kernel.tables().unwrap(), [TABLES[0]]);
    assert_eq!(kernel.generation().unwrap(), Some(1));
    assert!(matches!(error, Error::SmallBuffer { most: 8192, .. }));
}

fn a_refusal_changes_nothing() {
    let mut kernel = Kernel::open().unwrap();
    kernel.install(&small(1)).unwrap();
    let jump = |name| Statement::Verdict(Verdict::Jump(Name::word(name)));
    let fine = rule(&[], &[Statement::Counter]);

    let mut wrong = small(2);
    wrong.chains[0].rules = vec![fine.clone(), rule(&[], &[jump("nowhere")])];
    let error = kernel.install(&wrong).unwrap_err().to_string();
    assert!(
        error.starts_with(
            "the kernel refused to add rule 2 of the chain `e-10.0.0.1`: No such file"
        ),
        "{error}"
    );

    let mut circle = small(3);
    let a = inner(Name::word("a"), vec![rule(&[], &[jump("b")])]);
    let b = inner(Name::word("b"), vec![rule(&[], &[jump("a")])]);
    let base = hooked("output", Point::Output, vec![rule(&[], &[jump("a")])]);
    circle.chains.extend([a, b, base]);
    let error = kernel.install(&circle).unwrap_err();
    assert!(error.to_string().contains("form a loop"), "{error}");

    let mut no_set = small(4);
    no_set.chains[0].rules = vec![fine.clone(), fine, lookup("missing")];
    let error = kernel.install(&no_set).unwrap_err().to_string();
    assert!(error.contains("add rule 3 of the chain"), "{error}");

    let mut twice = small(5);
    twice.sets.push(generation(6));
    let error = kernel.install(&twice).unwrap_err().to_string();
    assert!(
        error.contains("refused to add the set `generation`: File exists"),
        "{error}"
    );

    assert_eq!(kernel.tables().unwrap(), [TABLES[0]]);
    assert_eq!(kernel.generation().unwrap(), Some(1));
    compare(&mut kernel, TABLES[0], &small(1));
    compare_elements(&mut kernel, &small(1));
}

fn a_late_refusal_changes_nothing() {
    let mut kernel = Kernel::open().unwrap();
    kernel.install(&small(1)).unwrap();
    kernel.limit_batch(8192);
    let mut wrong = large(2, 1000);
    let last = wrong.chains.iter_mut().rfind(|chain| chain.hook.is_some());
    last.unwrap().rules.push(lookup("missing"));
    let error = kernel.install(&wrong).unwrap_err().to_string();
    assert!(error.contains("add rule 3 of the chain `input`"), "{error}");
    assert_eq!(kernel.tables().unwrap(), [TABLES[0]]);
    compare(&mut kernel, TABLES[0], &small(1));
}

/// Loses what the kernel answers to one call.
#[derive(Clone, Debug, Default)]
struct LostResponse(Arc<Mutex<LossState>>);

#[derive(Debug, Default)]
struct LossState {
    /// The number of sends.
    sent: usize,
    /// The call whose response is lost.
    lost: Option<usize>,
}

impl Faults for LostResponse {
    fn before(&mut self, call: Syscall) -> Option<Fault> {
        let mut heard = self.0.lock().unwrap();
        match call {
            Syscall::Send => heard.sent += 1,
            Syscall::Receive if heard.lost == Some(heard.sent) => return Some(Fault::Lose),
            Syscall::Receive => {}
        }
        None
    }
}

fn without_an_answer() {
    let deaf = LostResponse::default();
    let mut kernel = Kernel::open().unwrap().with_faults(Box::new(deaf.clone()));
    kernel.install(&small(1)).unwrap();
    kernel.remove().unwrap();
    kernel.limit_batch(8192);
    let ruleset = large(2, 1000);
    let listen = |lost| *deaf.0.lock().unwrap() = LossState { sent: 0, lost };
    listen(None);
    let loaded = kernel.install(&ruleset).unwrap();
    let last = deaf.0.lock().unwrap().sent;
    assert!(loaded.transactions > 2, "{loaded:?}");
    kernel.remove().unwrap();
    // A complete table is active, with or without an earlier table.
    for older in [None, Some(1)] {
        if let Some(number) = older {
            kernel.install(&small(number)).unwrap();
        }
        // The chains of an older table are dumped too.
        listen(Some(last + older.iter().count()));
        let error = kernel.install(&ruleset).unwrap_err();
        assert!(error.is_unknown(), "{error}");
        listen(None);
        assert_eq!(kernel.generation().unwrap(), Some(2), "{older:?}");
        let table = TABLES[older.iter().count()];
        compare(&mut kernel, table, &ruleset);
        let loaded = kernel.install(&ruleset).unwrap();
        assert_eq!(loaded.replaced.as_deref(), Some(table));
        assert_eq!(kernel.tables().unwrap(), [loaded.table]);
        kernel.remove().unwrap();
    }
    // An incomplete table is not active, and the next installation deletes it.
    listen(Some(last - 1));
    let error = kernel.install(&ruleset).unwrap_err();
    assert!(error.is_unknown(), "{error}");
    listen(None);
    assert_eq!(kernel.generation().unwrap(), None);
    assert_eq!(kernel.install(&small(3)).unwrap().replaced, None);
    assert_eq!(kernel.tables().unwrap(), [TABLES[0]]);
}

fn after_a_crash() {
    let half = |table| Ruleset {
        table: Name::word(table),
        sets: vec![generation(9)],
        chains: vec![inner(Name::word("half"), Vec::new())],
    };
    let mut kernel = Kernel::open().unwrap();
    // Before the first table was complete.
    kernel.install_plain(&half(TABLES[0])).unwrap();
    let loaded = kernel.install(&small(1)).unwrap();
    assert_eq!((loaded.table, loaded.replaced), (TABLES[0], None));
    assert_eq!(kernel.tables().unwrap(), [TABLES[0]]);
    // Created before a later one: it does not count as the active table.
    kernel.install_plain(&half(TABLES[1])).unwrap();
    assert_eq!(kernel.generation().unwrap(), Some(1));
    let loaded = kernel.install(&small(2)).unwrap();
    let replaced = loaded.replaced.as_deref();
    assert_eq!((loaded.table, replaced), (TABLES[1], Some(TABLES[0])));
    assert_eq!(kernel.tables().unwrap(), [TABLES[1]]);
    assert_eq!(kernel.generation().unwrap(), Some(2));
}

fn after_a_torn_swap() {
    let mut kernel = Kernel::open().unwrap();
    kernel.install(&small(1)).unwrap();
    // The new table is complete, the old one is not yet deleted.
    let newer = Ruleset {
        table: Name::word(TABLES[1]),
        ..small(2)
    };
    kernel.install_plain(&newer).unwrap();
    assert_eq!(kernel.generation().unwrap(), Some(2));
    let loaded = kernel.install(&small(3)).unwrap();
    let replaced = loaded.replaced.as_deref();
    assert_eq!((loaded.table, replaced), (TABLES[0], Some(TABLES[1])));
    assert_eq!(kernel.tables().unwrap(), [TABLES[0]]);
    assert_eq!(kernel.generation().unwrap(), Some(3));
}

fn others_may_not_touch_it() {
    let mut kernel = Kernel::open().unwrap();
    kernel.install(&small(1)).unwrap();
    let mut other = Kernel::open().unwrap();
    for result in [
        other.install(&small(2)).map(|_| ()),
        other.remove().map(|_| ()),
        other.adopt().map(|_| ()),
    ] {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Owned { .. }), "{error}");
    }
    let same_name = Ruleset {
        table: Name::word(TABLES[0]),
        ..small(2)
    };
    let Err(Error::Refused(refusal)) = other.install_plain(&same_name) else {
        panic!("it was not refused");
    };
    assert_eq!(refusal.errno, Errno::EPERM);
    assert!(refusal.action.contains("table `palisade1a`"), "{refusal}");
    assert!(refusal.hint().unwrap().contains("another program owns it"));
    // Reading is allowed.
    assert_eq!(other.generation().unwrap(), Some(1));
    compare(&mut other, TABLES[0], &small(1));
}

fn it_stays_and_can_be_adopted() {
    let mut first = Kernel::open().unwrap();
    first.install(&small(1)).unwrap();
    drop(first);

    let mut second = Kernel::open().unwrap();
    assert_eq!(second.generation().unwrap(), Some(1));
    compare(&mut second, TABLES[0], &small(1));
    assert!(second.adopt().unwrap());
    assert!(second.adopt().unwrap());
    let mut third = Kernel::open().unwrap();
    assert!(matches!(third.remove(), Err(Error::Owned { .. })));
    drop(second);

    // Without adopting it first.
    let loaded = third.install(&small(2)).unwrap();
    assert_eq!(loaded.replaced.as_deref(), Some(TABLES[0]));
    assert_eq!(third.tables().unwrap(), [TABLES[1]]);
    assert_eq!(third.generation().unwrap(), Some(2));
}

fn other_tables() {
    let mut kernel = Kernel::open().unwrap();
    let other = Ruleset {
        table: Name::word("other"),
        ..every_form()
    };
    let alike = Ruleset {
        table: Name::word("palisade1"),
        ..small(7)
    };
    kernel.install_plain(&other).unwrap();
    kernel.install_plain(&alike).unwrap();
    kernel.install(&small(1)).unwrap();
    kernel.install(&small(2)).unwrap();
    assert_eq!(kernel.remove().unwrap(), 1);
    assert_eq!(kernel.tables().unwrap(), ["other", "palisade1"]);
    compare(&mut kernel, "other", &other);
    compare(&mut kernel, "palisade1", &alike);
    assert_eq!(kernel.generation().unwrap(), None);
}

fn unusable_rulesets() {
    let mut kernel = Kernel::open().unwrap();
    let mut uneven = small(1);
    uneven.sets[0].keys.push(0);
    let mut without_fields = small(1);
    without_fields.sets[0] = Set::new(Name::word("empty"), Vec::new());
    let mut without_verdict = small(1);
    without_verdict.sets[2].values = Values::Verdicts(Vec::new());
    let mut long = small(1);
    long.chains[0].rules = vec![rule(&vec![Match::L4(6); 3000], &[])];
    for (ruleset, words) in [
        (uneven, "set generation has a key that is not as long"),
        (without_fields, "set empty has no fields"),
        (without_verdict, "set eg4 has more or fewer values"),
        (long, "rule 1 of chain e-10.0.0.1 is too long"),
    ] {
        let error = kernel.install(&ruleset).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(kernel.tables().unwrap(), Vec::<String>::new());
    }
}

fn connections() {
    let mut kernel = Kernel::open().unwrap();
    kernel.install(&every_form()).unwrap();
    let mut conntrack = Conntrack::open().unwrap();
    conntrack.flush().unwrap();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(b"x", "127.0.0.1:9").unwrap();
    assert_eq!(conntrack.count().unwrap(), 1);
    conntrack.flush().unwrap();
    assert_eq!(conntrack.count().unwrap(), 0);
}

fn lookup(set: &'static str) -> palisade_nft::ruleset::Rule {
    let lookup = Match::Lookup {
        set: Name::word(set),
        key: vec![palisade_nft::ruleset::Key::Number(1)],
        missing: false,
    };
    rule(&[lookup], &[])
}

/// A ruleset of many elements and chains.
fn large(number: u32, size: u32) -> Ruleset {
    use palisade_nft::ruleset::{Field, Key, Value};
    let mut ruleset = small(number);
    let mut set = Set::new(Name::word("numbers"), vec![Field::Number, Field::Number]);
    for number in 0..size {
        set.push(&[Value::Number(number), Value::Number(1)]);
    }
    ruleset.sets.push(set);
    let mut map = Set::map(Name::word("chains"), vec![Field::Number]);
    let mut chains = Vec::new();
    for number in 0..size / 10 {
        let name = Name::numbered("c", number);
        map.push_verdict(&[Value::Number(number)], Verdict::Jump(name.clone()));
        let lookup = Match::Lookup {
            set: Name::word("numbers"),
            key: vec![Key::Number(number), Key::Number(1)],
            missing: false,
        };
        let rule = rule(&[lookup], &[Statement::Counter]);
        let rules = vec![rule; 3];
        chains.push(Chain {
            name,
            hook: None,
            rules,
        });
    }
    ruleset.sets.push(map);
    chains.append(&mut ruleset.chains);
    let dispatch = Statement::Dispatch {
        map: Name::word("chains"),
        key: vec![Key::Number(3)],
    };
    chains.push(inner(
        Name::word("dispatch"),
        vec![rule(&[], std::slice::from_ref(&dispatch))],
    ));
    let to_it = Statement::Verdict(Verdict::Jump(Name::word("dispatch")));
    chains
        .iter_mut()
        .filter(|chain| chain.hook.is_some())
        .for_each(|chain| {
            chain
                .rules
                .insert(0, rule(&[], std::slice::from_ref(&to_it)))
        });
    ruleset.chains = chains;
    ruleset
}
