//! Every form of a rule: the kernel accepts it, and its dump equals the input.

use std::net::IpAddr;

use palisade_core::net::Family;
use palisade_nft::Kernel;
use palisade_nft::encode::expressions;
use palisade_nft::load::{Element, RuleExpression, steps};
use palisade_nft::ruleset::{
    Chain, Field, Hook, ICMP, ICMP6, Key, Match, Name, PacketEnd, Point, Rule, Ruleset, Set,
    Statement, TCP, Value, Values, Verdict, state,
};

use crate::Test;
use crate::rules::{block, generation, hooked, inner, lo, rule, v6};

pub(crate) const TESTS: &[Test] = &[
    (
        "forms::dumped_rules_equal_installed_ones",
        dumped_rules_equal_installed_ones,
    ),
    (
        "forms::dumped_elements_equal_installed_ones",
        dumped_elements_equal_installed_ones,
    ),
    (
        "forms::dumped_translation_equals_the_installed_one",
        dumped_translation_equals_the_installed_one,
    ),
];

fn dumped_rules_equal_installed_ones() {
    let ruleset = every_form();
    let mut kernel = Kernel::open().unwrap();
    kernel.install(&ruleset).unwrap();
    compare(&mut kernel, "palisade1a", &ruleset);
}

fn dumped_elements_equal_installed_ones() {
    let ruleset = every_form();
    let mut kernel = Kernel::open().unwrap();
    kernel.install(&ruleset).unwrap();
    assert!(ruleset.sets.iter().all(|set| !set.is_empty()));
    compare_elements(&mut kernel, &ruleset);
}

/// Compares the elements of the kernel's table with the installed ones.
pub(crate) fn compare_elements(kernel: &mut Kernel, ruleset: &Ruleset) {
    for set in &ruleset.sets {
        let mut sent: Vec<Element> = set
            .iter()
            .enumerate()
            .map(|(place, key)| Element {
                key: key.to_vec(),
                value: match &set.values {
                    Values::Nothing => None,
                    Values::Ranges => set.is_end(place).then(|| "end".to_owned()),
                    Values::Verdicts(all) => Some(all[place].to_string()),
                    Values::Numbers(all) => Some(format!("0x{:08x}", all[place])),
                },
            })
            .collect();
        sent.sort();
        assert_eq!(
            kernel.elements(set.name.as_str()).unwrap(),
            sent,
            "{}",
            set.name
        );
    }
}

fn dumped_translation_equals_the_installed_one() {
    let to = |address: &str| rule(&[], &[Statement::Dnat(address.parse().unwrap(), 8080)]);
    let nat = |name, point, priority, rules| Chain {
        name: Name::word(name),
        hook: Some(Hook {
            point,
            priority,
            nat: true,
        }),
        rules,
    };
    let ruleset = Ruleset {
        table: Name::word("lab"),
        sets: Vec::new(),
        chains: vec![
            nat(
                "services",
                Point::Prerouting,
                -100,
                vec![to("10.0.0.9"), to("fd00::9")],
            ),
            nat(
                "out",
                Point::Postrouting,
                100,
                vec![rule(&[Match::L4(TCP)], &[Statement::Masquerade])],
            ),
            Chain {
                name: Name::word("untracked"),
                hook: Some(Hook {
                    point: Point::Prerouting,
                    priority: -300,
                    nat: false,
                }),
                rules: vec![rule(&[Match::HeaderPort(53, 53)], &[Statement::Notrack])],
            },
        ],
    };
    let mut kernel = Kernel::open().unwrap();
    // The second time it is replaced.
    kernel.install_plain(&ruleset).unwrap();
    kernel.install_plain(&ruleset).unwrap();
    compare(&mut kernel, "lab", &ruleset);
    assert_eq!(kernel.current().unwrap(), None);
}

/// Compares the rules of the kernel's table with the installed ones.
pub(crate) fn compare(kernel: &mut Kernel, table: &str, ruleset: &Ruleset) {
    let held = kernel.rules_of(table).unwrap();
    let given: Vec<&Chain> = ruleset
        .chains
        .iter()
        .filter(|chain| !chain.rules.is_empty())
        .collect();
    assert_eq!(held.len(), given.len());
    for chain in given {
        let held = held
            .iter()
            .find(|held| held.chain == chain.name.as_str())
            .unwrap();
        assert_eq!(held.rules.len(), chain.rules.len(), "{}", chain.name);
        for (held, given) in held.rules.iter().zip(&chain.rules) {
            let given_steps: Vec<RuleExpression> = steps(&expressions(given));
            assert_eq!(steps(held), given_steps, "{given}");
        }
    }
}

/// A ruleset with all forms of conditions, keys, statements and fields.
pub(crate) fn every_form() -> Ruleset {
    let v4: IpAddr = "10.1.2.3".parse().unwrap();
    let mut chains = vec![
        inner(Name::word("inner"), vec![accept(&[])]),
        inner(Name::word("nothing"), Vec::new()),
    ];
    chains.push(inner(
        Name::word("conditions"),
        conditions().into_iter().map(|one| accept(&[one])).collect(),
    ));
    chains.push(inner(
        Name::word("several"),
        vec![
            accept(&[Match::L4(ICMP), Match::IcmpType(3, 4)]),
            accept(&[Match::L4(ICMP6), Match::IcmpType(130, 137)]),
            accept(&[Match::L4(TCP), Match::TcpNotOpening]),
            accept(&[
                Match::Family(Family::V4),
                Match::Within {
                    end: PacketEnd::Source,
                    block: block("10.0.0.0/12"),
                    outside: true,
                },
            ]),
        ],
    ));
    chains.push(hooked("forward", Point::Forward, statements()));

    let mut map = Set::map(Name::word("map"), vec![Field::V4]);
    for (last, verdict) in [
        Verdict::Accept,
        Verdict::Drop,
        Verdict::Jump(Name::word("inner")),
        Verdict::Goto(Name::word("nothing")),
        Verdict::Return,
    ]
    .into_iter()
    .enumerate()
    {
        let address = IpAddr::from([10, 0, 0, last as u8]);
        map.push_verdict(&[Value::Address(address)], verdict);
    }
    let mut ports = Set::map(Name::word("ports"), vec![Field::L4, Field::Port]);
    ports.push_verdict(&[Value::L4(TCP), Value::Port(443)], Verdict::Accept);
    let mut by_port = Set::numbers(
        Name::word("by-port"),
        vec![Field::Number, Field::L4, Field::Port],
    );
    for (number, port) in [(0x2a, 443), (7, 80)] {
        let key = [Value::Number(1), Value::L4(TCP), Value::Port(port)];
        by_port.push_number(&key, number);
    }
    let mut members = Set::new(Name::word("mem4"), vec![Field::Number, Field::V4]);
    members.push(&[Value::Number(0x2a), Value::Address(v4)]);
    members.size = 100;
    let mut members6 = Set::new(Name::word("mem6"), vec![Field::Number, Field::V6]);
    for last in 0..500 {
        members6.push(&[Value::Number(42), Value::Address(v6(last))]);
    }
    let mut ranges = Set::ranges(Name::word("ranges4"), vec![Field::Number, Field::V4]);
    let mut ranges6 = Set::ranges(Name::word("ranges6"), vec![Field::Number, Field::V6]);
    for number in [7, 42] {
        let key = |address| [Value::Number(number), Value::Address(address)];
        for second in 0..200 {
            let [from, to] = [0, 9].map(|last| IpAddr::from([10, second, 0, last]));
            ranges.push_range(&key(from), Some(&key(to)));
        }
        // Up to the last address.
        ranges.push_range(&key(IpAddr::from([240, 0, 0, 0])), None);
        ranges6.push_range(&key(v6(1)), Some(&key(v6(2))));
        ranges6.push_range(&key(v6(9)), None);
    }
    let mut flows = Set::new(
        Name::word("flows"),
        vec![Field::V4, Field::V4, Field::L4, Field::Port],
    );
    flows.push(&[
        Value::Address(v4),
        Value::Address(v4),
        Value::L4(17),
        Value::Port(53),
    ]);
    let mut interfaces = Set::new(
        Name::word("interfaces"),
        vec![Field::Interface, Field::V6, Field::Number],
    );
    interfaces.push(&[
        Value::Interface(lo()),
        Value::Address(v6(1)),
        Value::Number(1),
    ]);
    Ruleset {
        table: Name::word("every-form"),
        sets: vec![
            generation(0x8000_0001),
            map,
            ports,
            by_port,
            members,
            members6,
            ranges,
            ranges6,
            flows,
            interfaces,
        ],
        chains,
    }
}

fn accept(matches: &[Match]) -> Rule {
    rule(matches, &[Statement::Verdict(Verdict::Accept)])
}

fn conditions() -> Vec<Match> {
    let lookup = |set, key: &[Key], missing| Match::Lookup {
        set: Name::word(set),
        key: key.to_vec(),
        missing,
    };
    let mark = |mask, equal| Match::CtMark {
        mask,
        equal,
        value: 0x0003_0000,
    };
    let within = |end, block: &str, outside| Match::Within {
        end,
        block: crate::rules::block(block),
        outside,
    };
    let by_port = |set, family, bits| Match::LookupNumber {
        map: Name::word("by-port"),
        of: vec![Key::Number(1), Key::CtL4, Key::CtPort],
        set: Name::word(set),
        rest: vec![Key::Address(PacketEnd::CtServer, family, bits)],
    };
    let mut all = vec![
        Match::CtL4(17),
        Match::HopLimit(255),
        Match::ReverseRoute,
        by_port("mem4", Family::V4, 32),
        by_port("mem6", Family::V6, 128),
        by_port("ranges4", Family::V4, 32),
        by_port("ranges6", Family::V6, 128),
        lookup(
            "ranges4",
            &[
                Key::Number(7),
                Key::Address(PacketEnd::CtClient, Family::V4, 32),
            ],
            false,
        ),
        Match::LookupNumber {
            map: Name::word("by-port"),
            of: vec![Key::Number(0), Key::CtL4, Key::CtPortBits(0)],
            set: Name::word("mem4"),
            rest: vec![Key::Address(PacketEnd::CtServer, Family::V4, 32)],
        },
        lookup(
            "by-port",
            &[Key::Number(12), Key::CtL4, Key::CtPortBits(12)],
            false,
        ),
        mark(0xffff_0000, true),
        mark(0xffff_0000, false),
        mark(u32::MAX, true),
        mark(u32::MAX, false),
        Match::CtState(state::INVALID | state::UNTRACKED),
        Match::CtState(state::NEW | state::RELATED | state::ESTABLISHED),
        Match::CtIsReply(false),
        Match::CtIsReply(true),
        Match::L4(TCP),
        Match::L4(132),
        Match::L4(253),
        Match::Family(Family::V4),
        Match::Family(Family::V6),
        Match::CtPort(80, 80),
        Match::CtPort(1, 65_535),
        Match::HeaderPort(8000, 8080),
        Match::HeaderPort(53, 53),
        Match::IcmpType(8, 8),
        Match::TcpNotOpening,
        lookup(
            "flows",
            &[
                Key::Address(PacketEnd::Source, Family::V4, 32),
                Key::Address(PacketEnd::Destination, Family::V4, 32),
                Key::L4,
                Key::HeaderPort,
            ],
            false,
        ),
        lookup(
            "flows",
            &[
                Key::Address(PacketEnd::CtClient, Family::V4, 8),
                Key::Address(PacketEnd::CtServer, Family::V4, 0),
                Key::L4,
                Key::CtPort,
            ],
            true,
        ),
        lookup(
            "interfaces",
            &[
                Key::InterfaceIn,
                Key::Address(PacketEnd::Source, Family::V6, 128),
                Key::SourcePortBits(0x0fff),
            ],
            false,
        ),
        lookup(
            "mem4",
            &[
                Key::SourcePortBits(7),
                Key::Address(PacketEnd::CtClient, Family::V4, 32),
            ],
            false,
        ),
    ];
    for end in [
        PacketEnd::CtClient,
        PacketEnd::CtServer,
        PacketEnd::Source,
        PacketEnd::Destination,
    ] {
        for prefix in [0, 7, 24, 32] {
            let key = [Key::Number(42), Key::Address(end, Family::V4, prefix)];
            all.push(lookup("mem4", &key, false));
        }
        for prefix in [0, 49, 64, 128] {
            let key = [Key::Number(42), Key::Address(end, Family::V6, prefix)];
            all.push(lookup("mem6", &key, true));
        }
        for block in ["0.0.0.0/0", "10.0.0.0/9", "10.1.2.3/32"] {
            all.push(within(end, block, false));
        }
        for block in ["::/0", "fd00::/23", "fd00::7/128"] {
            all.push(within(end, block, true));
        }
    }
    all
}

fn statements() -> Vec<Rule> {
    let mark = |mask, value| Statement::SetCtMark { mask, value };
    let dispatch = |map, key: &[Key]| Statement::Dispatch {
        map: Name::word(map),
        key: key.to_vec(),
    };
    let jump = Verdict::Jump(Name::word("inner"));
    let goto = Verdict::Goto(Name::word("conditions"));
    vec![
        rule(&[], &[Statement::Counter]),
        rule(&[], &[mark(0xffff_0000, 0x0003_0000)]),
        rule(&[], &[mark(0xffff_0000, 0)]),
        rule(&[], &[mark(u32::MAX, 9)]),
        rule(
            &[],
            &[dispatch(
                "map",
                &[Key::Address(PacketEnd::CtClient, Family::V4, 32)],
            )],
        ),
        rule(
            &[],
            &[dispatch(
                "map",
                &[Key::Address(PacketEnd::Destination, Family::V4, 24)],
            )],
        ),
        rule(&[], &[dispatch("ports", &[Key::L4, Key::CtPort])]),
        rule(&[], &[Statement::Counter, Statement::Verdict(jump)]),
        rule(&[], &[Statement::Verdict(Verdict::Return)]),
        rule(&[], &[Statement::Verdict(Verdict::Drop)]),
        rule(&[], &[Statement::Verdict(goto)]),
    ]
}
