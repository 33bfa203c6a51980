//! Packets on the loopback interface: every condition and statement does what its name says.

use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use palisade_core::net::Family;
use palisade_nft::Kernel;
use palisade_nft::ruleset::{
    Chain, Field, Hook, ICMP, Key, Match, Name, PacketEnd, Point, Rule, Ruleset, Set, Statement,
    TCP, Value, Verdict, state,
};

use crate::Test;
use crate::rules::{block, hooked, inner, lo, rule};

pub(crate) const TESTS: &[Test] = &[
    ("packets::conditions_of_ipv4", conditions_of_ipv4),
    ("packets::conditions_of_ipv6", conditions_of_ipv6),
    ("packets::replies_and_errors", answers_and_errors),
    ("packets::tcp_that_opens", tcp_that_opens),
    ("packets::marks_keep_other_bits", marks_keep_other_bits),
    ("packets::maps_dispatch", maps_dispatch),
    ("packets::drops", drops),
    (
        "packets::replacing_neither_leaks_nor_loses",
        replacing_neither_leaks_nor_loses,
    ),
    ("packets::translation", translation),
    ("packets::untracked", untracked),
];

const UDP: u8 = 17;

/// Returns for each condition the number of packets that it matched meanwhile.
fn counts(sets: Vec<Set>, rules: &[Vec<Match>], traffic: impl FnOnce()) -> Vec<u64> {
    let rules = rules
        .iter()
        .map(|matches| rule(matches, &[Statement::Counter]));
    let ruleset = Ruleset {
        table: Name::word("counts"),
        sets,
        chains: vec![hooked("input", Point::Input, rules.collect())],
    };
    packets_of(&ruleset, "input", traffic)
}

fn packets_of(ruleset: &Ruleset, chain: &str, traffic: impl FnOnce()) -> Vec<u64> {
    let mut kernel = Kernel::open().unwrap();
    kernel.install(ruleset).unwrap();
    traffic();
    let counters = kernel.counters().unwrap().into_iter();
    counters
        .filter(|count| count.chain == chain)
        .map(|count| count.packets)
        .collect()
}

/// Asserts which conditions hold for the one packet of the traffic.
fn check(sets: Vec<Set>, expected: &[(u64, Match)], traffic: impl FnOnce()) {
    let rules: Vec<Vec<Match>> = expected
        .iter()
        .map(|(_, condition)| vec![condition.clone()])
        .collect();
    let counted = counts(sets, &rules, traffic);
    assert_eq!(counted.len(), expected.len());
    for (counted, (expected, condition)) in counted.iter().zip(expected) {
        assert_eq!(
            counted,
            expected,
            "{}",
            rule(std::slice::from_ref(condition), &[])
        );
    }
}

/// One UDP packet, to an open socket.
fn one_packet(from: &str, to: &str) {
    let server = UdpSocket::bind(to).unwrap();
    let client = UdpSocket::bind(from).unwrap();
    client.send_to(b"hello", to).unwrap();
    server
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    server.recv_from(&mut [0; 16]).unwrap();
}

fn sets_of(family: Family, client: &str, client_net: &str, server: &str) -> Vec<Set> {
    let field = Field::address(family);
    let address = |text: &str| Value::Address(text.parse().unwrap());
    let mut members = Set::new(Name::word("members"), vec![Field::Number, field]);
    members.push(&[Value::Number(42), address(client)]);
    members.push(&[Value::Number(43), address(server)]);
    members.push(&[Value::Number(44), address(client_net)]);
    // 40001 is 0x9c41.
    members.push(&[Value::Number(0x41), address(client)]);
    members.push(&[Value::Number(0x1c41), address(client)]);
    let mut flows = Set::new(
        Name::word("flows"),
        vec![field, field, Field::L4, Field::Port],
    );
    flows.push(&[
        address(client),
        address(server),
        Value::L4(UDP),
        Value::Port(50_002),
    ]);
    let mut interfaces = Set::new(Name::word("interfaces"), vec![Field::Interface, field]);
    interfaces.push(&[Value::Interface(lo()), address(client)]);
    vec![members, flows, interfaces]
}

fn lookup(set: &'static str, key: &[Key], missing: bool) -> Match {
    Match::Lookup {
        set: Name::word(set),
        key: key.to_vec(),
        missing,
    }
}

/// What holds for a packet of UDP from port 40001 to 50002 whichever the family is. The keys have
/// the prefix of the client's block.
fn expected(family: Family, prefix: u8) -> Vec<(u64, Match)> {
    let other = match family {
        Family::V4 => Family::V6,
        Family::V6 => Family::V4,
    };
    let all = match family {
        Family::V4 => 32,
        Family::V6 => 128,
    };
    let key = |end| Key::Address(end, family, all);
    let member = |number, end| lookup("members", &[Key::Number(number), key(end)], false);
    let missing = |number, end| lookup("members", &[Key::Number(number), key(end)], true);
    let net = |end| Key::Address(end, family, prefix);
    let some_bits = |bits| [Key::SourcePortBits(bits), key(PacketEnd::Source)];
    let mut expected = vec![
        (1, Match::CtState(state::NEW)),
        (1, Match::CtState(state::NEW | state::INVALID)),
        (0, Match::CtState(state::ESTABLISHED | state::UNTRACKED)),
        (1, Match::CtIsReply(false)),
        (0, Match::CtIsReply(true)),
        (1, Match::L4(UDP)),
        (0, Match::L4(TCP)),
        (1, Match::Family(family)),
        (0, Match::Family(other)),
        (1, Match::CtPort(50_002, 50_002)),
        (1, Match::CtPort(50_001, 50_002)),
        (1, Match::CtPort(50_002, 65_535)),
        (0, Match::CtPort(1, 50_001)),
        (0, Match::CtPort(40_001, 40_001)),
        (1, Match::HeaderPort(50_002, 50_002)),
        (1, Match::HeaderPort(0, 50_002)),
        (0, Match::HeaderPort(50_003, 65_535)),
        (0, Match::TcpNotOpening),
        (
            1,
            Match::CtMark {
                mask: 0xffff_0000,
                equal: true,
                value: 0,
            },
        ),
        (
            1,
            Match::CtMark {
                mask: 0xffff_0000,
                equal: false,
                value: 1 << 16,
            },
        ),
        (0, member(44, PacketEnd::CtClient)),
        (1, missing(44, PacketEnd::CtClient)),
        (
            1,
            lookup(
                "members",
                &[Key::Number(44), net(PacketEnd::CtClient)],
                false,
            ),
        ),
        (
            1,
            lookup("members", &[Key::Number(44), net(PacketEnd::Source)], false),
        ),
        (1, lookup("members", &some_bits(0xff), false)),
        (1, lookup("members", &some_bits(0x1fff), false)),
        (0, lookup("members", &some_bits(0x0fff), false)),
        (
            1,
            lookup(
                "interfaces",
                &[Key::InterfaceIn, key(PacketEnd::Source)],
                false,
            ),
        ),
        (
            0,
            lookup(
                "interfaces",
                &[Key::InterfaceIn, key(PacketEnd::Destination)],
                false,
            ),
        ),
    ];
    for (client, server) in [
        (PacketEnd::CtClient, PacketEnd::CtServer),
        (PacketEnd::Source, PacketEnd::Destination),
    ] {
        expected.push((1, member(42, client)));
        expected.push((0, missing(42, client)));
        expected.push((0, member(43, client)));
        expected.push((1, missing(43, client)));
        expected.push((1, member(43, server)));
        expected.push((0, member(42, server)));
        for port in [Key::CtPort, Key::HeaderPort] {
            let flow = [key(client), key(server), Key::L4, port];
            let back = [key(server), key(client), Key::L4, port];
            expected.push((1, lookup("flows", &flow, false)));
            expected.push((0, lookup("flows", &back, false)));
        }
    }
    expected
}

fn within(end: PacketEnd, text: &str, outside: bool) -> Match {
    Match::Within {
        end,
        block: block(text),
        outside,
    }
}

fn conditions_of_ipv4() {
    let mut expected = expected(Family::V4, 12);
    for end in [PacketEnd::CtClient, PacketEnd::Source] {
        expected.extend([
            (1, within(end, "127.16.0.0/12", false)),
            (0, within(end, "127.16.0.0/12", true)),
            (0, within(end, "127.0.0.0/12", false)),
            (1, within(end, "127.0.0.0/12", true)),
            (1, within(end, "0.0.0.0/0", false)),
            (1, within(end, "127.17.0.1/32", false)),
            (0, within(end, "127.17.0.2/32", false)),
            // Neither inside nor outside of the other family's blocks.
            (0, within(end, "::/0", false)),
            (0, within(end, "fd00::/8", true)),
        ]);
    }
    expected.push((1, within(PacketEnd::CtServer, "127.0.0.2/31", false)));
    expected.push((1, within(PacketEnd::Destination, "127.0.0.2/31", false)));
    expected.push((0, within(PacketEnd::Destination, "127.0.0.2/31", true)));
    let sets = sets_of(Family::V4, "127.17.0.1", "127.16.0.0", "127.0.0.2");
    check(sets, &expected, || {
        one_packet("127.17.0.1:40001", "127.0.0.2:50002");
    });
}

fn conditions_of_ipv6() {
    let mut expected = expected(Family::V6, 127);
    for end in [PacketEnd::CtClient, PacketEnd::Source] {
        expected.extend([
            (1, within(end, "::/64", false)),
            (0, within(end, "::/64", true)),
            (1, within(end, "::1/128", false)),
            (0, within(end, "::2/127", false)),
            (0, within(end, "0.0.0.0/0", false)),
            (0, within(end, "10.0.0.0/8", true)),
        ]);
    }
    // Both ends have the same address: no condition can distinguish them.
    let tells_apart = |condition: &Match| {
        let Match::Lookup { set, key, .. } = condition else {
            return false;
        };
        let is_of_an_end = key.contains(&Key::Number(42)) || key.contains(&Key::Number(43));
        is_of_an_end || *set == Name::word("flows") || key.contains(&Key::InterfaceIn)
    };
    expected.retain(|(_, condition)| !tells_apart(condition));
    let sets = sets_of(Family::V6, "::1", "::", "::1");
    check(sets, &expected, || one_packet("[::1]:40001", "[::1]:50002"));
}

fn answers_and_errors() {
    let is_error = [Match::L4(ICMP), Match::IcmpType(3, 3)];
    let rules = [
        vec![Match::CtIsReply(true), Match::CtState(state::ESTABLISHED)],
        // The tuple is the connection's, in both directions.
        vec![Match::L4(UDP), Match::CtPort(50_002, 50_002)],
        is_error.to_vec(),
        [&is_error[..], &[Match::CtState(state::RELATED)]].concat(),
        vec![Match::L4(ICMP), Match::IcmpType(0, 2)],
        // The error quotes a packet to this client.
        vec![
            Match::L4(ICMP),
            within(PacketEnd::CtClient, "127.0.0.1/32", false),
            within(PacketEnd::CtServer, "127.0.0.3/32", false),
        ],
    ];
    let counted = counts(Vec::new(), &rules, || {
        let server = UdpSocket::bind("127.0.0.2:50002").unwrap();
        let client = UdpSocket::bind("127.0.0.1:40001").unwrap();
        client.send_to(b"ping", "127.0.0.2:50002").unwrap();
        server.recv_from(&mut [0; 16]).unwrap();
        server.send_to(b"pong", "127.0.0.1:40001").unwrap();
        client.recv_from(&mut [0; 16]).unwrap();
        // No socket listens there.
        client.send_to(b"ping", "127.0.0.3:50003").unwrap();
    });
    assert_eq!(counted, [1, 2, 1, 1, 0, 1]);
}

fn tcp_that_opens() {
    let rules = [
        vec![Match::CtState(state::NEW), Match::L4(TCP)],
        vec![Match::CtState(state::NEW), Match::TcpNotOpening],
        vec![
            Match::CtIsReply(false),
            Match::L4(TCP),
            Match::TcpNotOpening,
        ],
    ];
    let counted = counts(Vec::new(), &rules, || {
        let server = TcpListener::bind("127.0.0.2:50002").unwrap();
        let client = TcpStream::connect("127.0.0.2:50002").unwrap();
        drop(server.accept().unwrap());
        drop(client);
    });
    assert_eq!(counted[..2], [1, 0]);
    assert!(counted[2] >= 1);
}

fn marks_keep_other_bits() {
    let set = |mask, value| rule(&[], &[Statement::SetCtMark { mask, value }]);
    let is = |mask, equal, value| {
        let condition = Match::CtMark { mask, equal, value };
        rule(&[condition], &[Statement::Counter])
    };
    let rules = vec![
        set(u32::MAX, 0x0000_12ff),
        is(u32::MAX, true, 0x0000_12ff),
        // Bits of the value that are not ours do not count.
        set(0xffff_0000, 0xabcd_4321),
        is(u32::MAX, true, 0xabcd_12ff),
        is(0xffff_0000, true, 0xabcd_0000),
        is(0xffff_0000, false, 0xabcd_0000),
        is(0x0000_ff00, true, 0x0000_1200),
        set(0xffff_0000, 0),
        is(u32::MAX, true, 0x0000_12ff),
    ];
    let ruleset = Ruleset {
        table: Name::word("marks"),
        sets: Vec::new(),
        chains: vec![hooked("input", Point::Input, rules)],
    };
    let counted = packets_of(&ruleset, "input", || {
        one_packet("127.0.0.1:40001", "127.0.0.2:50002");
    });
    assert_eq!(counted, [1, 1, 1, 0, 1, 1]);
}

fn maps_dispatch() {
    let mut ports = Set::map(Name::word("ports"), vec![Field::L4, Field::Port]);
    let goto = Verdict::Goto(Name::word("gone-to"));
    let key = [Value::L4(UDP), Value::Port(50_002)];
    ports.push_verdict(&key, Verdict::Jump(Name::word("jumped-to")));
    ports.push_verdict(&[Value::L4(UDP), Value::Port(50_003)], goto);
    let count = rule(&[], &[Statement::Counter]);
    let dispatch = Statement::Dispatch {
        map: Name::word("ports"),
        key: vec![Key::L4, Key::CtPort],
    };
    let ruleset = Ruleset {
        table: Name::word("maps"),
        sets: vec![ports],
        chains: vec![
            inner(Name::word("jumped-to"), vec![count.clone()]),
            inner(Name::word("gone-to"), vec![count.clone()]),
            hooked(
                "input",
                Point::Input,
                vec![rule(&[], &[dispatch]), count.clone()],
            ),
        ],
    };
    let mut kernel = Kernel::open().unwrap();
    kernel.install(&ruleset).unwrap();
    one_packet("127.0.0.1:40001", "127.0.0.2:50002");
    one_packet("127.0.0.1:40001", "127.0.0.2:50003");
    one_packet("127.0.0.1:40001", "127.0.0.2:50004");
    let counters = kernel.counters().unwrap().into_iter();
    let counted: Vec<(String, u64)> = counters.map(|count| (count.chain, count.packets)).collect();
    let expected = [("gone-to", 1), ("input", 2), ("jumped-to", 1)];
    assert_eq!(
        counted,
        expected.map(|(chain, packets)| (chain.to_owned(), packets))
    );
}

fn drops() {
    let drop = rule(
        &[Match::L4(UDP), Match::CtPort(50_002, 50_002)],
        &[Statement::Counter, Statement::Verdict(Verdict::Drop)],
    );
    let ruleset = Ruleset {
        table: Name::word("drops"),
        sets: Vec::new(),
        chains: vec![hooked("input", Point::Input, vec![drop])],
    };
    let counted = packets_of(&ruleset, "input", || {
        let server = UdpSocket::bind("127.0.0.2:50002").unwrap();
        server
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        let client = UdpSocket::bind("127.0.0.1:40001").unwrap();
        client.send_to(b"hello", "127.0.0.2:50002").unwrap();
        assert!(server.recv_from(&mut [0; 16]).is_err());
    });
    assert_eq!(counted, [1]);
}

fn replacing_neither_leaks_nor_loses() {
    let drop = rule(
        &[Match::L4(UDP), Match::CtPort(50_003, 50_003)],
        &[Statement::Verdict(Verdict::Drop)],
    );
    let ruleset = Ruleset {
        table: Name::word("drops"),
        sets: Vec::new(),
        chains: vec![hooked("input", Point::Input, vec![drop])],
    };
    let mut kernel = Kernel::open().unwrap();
    kernel.install(&ruleset).unwrap();
    let is_over = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let allowed = UdpSocket::bind("127.0.0.2:50002").unwrap();
            let patience = Some(Duration::from_secs(2));
            allowed.set_read_timeout(patience).unwrap();
            let denied = UdpSocket::bind("127.0.0.2:50003").unwrap();
            denied.set_nonblocking(true).unwrap();
            let client = UdpSocket::bind("127.0.0.1:40001").unwrap();
            let mut sent = 0;
            while !is_over.load(Ordering::Relaxed) {
                client.send_to(b"hello", "127.0.0.2:50003").unwrap();
                client.send_to(b"hello", "127.0.0.2:50002").unwrap();
                allowed
                    .recv_from(&mut [0; 16])
                    .expect("an allowed packet was lost");
                sent += 1;
            }
            let leaked = denied.recv_from(&mut [0; 16]).is_ok();
            assert!(!leaked, "a denied packet came through");
            sent
        });
        for _ in 0..100 {
            kernel.install(&ruleset).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        traffic.join().unwrap()
    });
    assert!(sent > 100, "{sent}");
    assert_eq!(kernel.tables().unwrap().len(), 1);
}

fn hook(name: &'static str, point: Point, priority: i32, nat: bool, rules: Vec<Rule>) -> Chain {
    Chain {
        name: Name::word(name),
        hook: Some(Hook {
            point,
            priority,
            nat,
        }),
        rules,
    }
}

fn translation() {
    let to = |text: &str, address: &str, port| {
        let to: IpAddr = address.parse().unwrap();
        rule(
            &[Match::L4(UDP), within(PacketEnd::Destination, text, false)],
            &[Statement::Dnat(to, port)],
        )
    };
    let nat = Ruleset {
        table: Name::word("lab"),
        sets: Vec::new(),
        chains: vec![hook(
            "services",
            Point::Output,
            -100,
            true,
            vec![
                to("127.9.9.9/32", "127.0.0.2", 50_002),
                to("::1/128", "::1", 50_006),
            ],
        )],
    };
    Kernel::open().unwrap().install_plain(&nat).unwrap();
    let rules = [
        vec![
            within(PacketEnd::CtServer, "127.0.0.2/32", false),
            Match::CtPort(50_002, 50_002),
        ],
        vec![
            within(PacketEnd::CtServer, "::1/128", false),
            Match::CtPort(50_006, 50_006),
        ],
    ];
    let counted = counts(Vec::new(), &rules, || {
        for (server, from, to) in [
            ("127.0.0.2:50002", "127.0.0.1:40001", "127.9.9.9:53"),
            ("[::1]:50006", "[::1]:40001", "[::1]:53"),
        ] {
            let server = UdpSocket::bind(server).unwrap();
            let client = UdpSocket::bind(from).unwrap();
            client.send_to(b"hello", to).unwrap();
            server
                .set_read_timeout(Some(Duration::from_secs(5)))
                .unwrap();
            server.recv_from(&mut [0; 16]).unwrap();
        }
    });
    assert_eq!(counted, [1, 1]);
}

fn untracked() {
    let notrack = rule(&[Match::HeaderPort(50_002, 50_002)], &[Statement::Notrack]);
    let lab = Ruleset {
        table: Name::word("lab"),
        sets: Vec::new(),
        chains: vec![hook("out", Point::Output, -300, false, vec![notrack])],
    };
    Kernel::open().unwrap().install_plain(&lab).unwrap();
    let rules = [
        vec![Match::CtState(state::UNTRACKED)],
        vec![Match::CtState(state::NEW)],
        vec![Match::CtMark {
            mask: u32::MAX,
            equal: true,
            value: 0,
        }],
        vec![within(PacketEnd::CtClient, "127.0.0.1/32", false)],
        vec![within(PacketEnd::CtClient, "10.0.0.1/32", true)],
    ];
    let counted = counts(Vec::new(), &rules, || {
        one_packet("127.0.0.1:40001", "127.0.0.2:50002");
    });
    // A condition on a missing connection matches neither positively nor negated.
    assert_eq!(counted, [1, 0, 0, 0, 0]);
}
