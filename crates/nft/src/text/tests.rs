//! The text form, compared with texts that were written by hand.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use palisade_core::net::CidrText;

use super::*;
use crate::ruleset::{Interface, Name, TCP, Value};

fn rule(matches: &[Match], statements: &[Statement]) -> Rule {
    Rule {
        matches: matches.to_vec(),
        statements: statements.to_vec(),
        origin: None,
    }
}

fn jump(chain: &'static str) -> Statement {
    Statement::Verdict(Verdict::Jump(Name::word(chain)))
}

#[test]
fn a_table_is_written_as_nft_lists_it() {
    let mut members = Set::new(Name::word("mem4"), vec![Field::Number, Field::V4]);
    for last in 1..=5 {
        let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        members.push(&[Value::Number(42), Value::Address(address)]);
    }
    members.size = 64;
    let mut map = Set::map(Name::word("in6"), vec![Field::V6]);
    let address: IpAddr = "fd00::7".parse().unwrap();
    let chain = Name::at("i", address);
    map.push_verdict(&[Value::Address(address)], Verdict::Jump(chain.clone()));
    let mut flows = Set::new(
        Name::word("flows"),
        vec![Field::Interface, Field::L4, Field::Port],
    );
    flows.push(&[
        Value::Interface(Interface::new("veth1").unwrap()),
        Value::L4(17),
        Value::Port(53),
    ]);

    let mut allow = rule(
        &[
            Match::L4(TCP),
            Match::CtPort(80, 90),
            Match::Lookup {
                set: Name::word("mem4"),
                key: vec![
                    Key::Number(42),
                    Key::Address(PacketEnd::CtClient, Family::V4, 24),
                ],
                missing: false,
            },
        ],
        &[Statement::Counter, jump("stamp")],
    );
    allow.origin = Some(RuleId(3));
    let hook = Hook {
        point: Point::Forward,
        priority: -10,
        nat: false,
    };
    let chain = |name, hook, rules| Chain { name, hook, rules };
    let dispatch = Statement::Dispatch {
        map: Name::word("in6"),
        key: vec![Key::Address(PacketEnd::CtServer, Family::V6, 128)],
    };
    let ruleset = Ruleset {
        table: Name::word("palisade1a"),
        sets: vec![
            members,
            map,
            flows,
            Set::new(Name::word("none"), vec![Field::V4]),
        ],
        chains: vec![
            chain(Name::word("stamp"), None, Vec::new()),
            chain(Name::at("i", address), None, vec![allow]),
            chain(
                Name::word("forward"),
                Some(hook),
                vec![rule(&[], &[dispatch])],
            ),
        ],
    };
    let name = |rule: RuleId| format!("rule {}\nof \u{1b}[31ma\u{202e}", rule.0);
    let expected = r#"table inet palisade1a {
	set mem4 {
		type mark . ipv4_addr
		size 64
		elements = { 0x0000002a . 10.0.0.1, 0x0000002a . 10.0.0.2, 0x0000002a . 10.0.0.3, 0x0000002a . 10.0.0.4,
			     0x0000002a . 10.0.0.5 }
	}

	map in6 {
		type ipv6_addr : verdict
		size 1
		elements = { fd00::7 : jump i-fd000000000000000000000000000007 }
	}

	set flows {
		type ifname . inet_proto . inet_service
		size 1
		elements = { "veth1" . udp . 53 }
	}

	set none {
		type ipv4_addr
		size 1
	}

	chain stamp {
	}

	chain i-fd000000000000000000000000000007 {
		meta l4proto tcp ct reply proto-src 80-90 0x0000002a . ct original ip saddr & 255.255.255.0 @mem4 counter jump stamp # rule 3\nof \u{1b}[31ma\u{202e}
	}

	chain forward {
		type filter hook forward priority filter - 10; policy accept;
		ct reply ip6 saddr vmap @in6
	}
}
"#;
    assert_eq!(ruleset.text(&name), expected);
}

#[test]
fn every_condition_has_a_text() {
    let block = |text| CidrText::parse(text).unwrap().cidr;
    let within = |end, text, outside| Match::Within {
        end,
        block: block(text),
        outside,
    };
    let mark = |mask, equal| Match::CtMark {
        mask,
        equal,
        value: 0x0003_0000,
    };
    let lookup = |key: &[Key], missing| Match::Lookup {
        set: Name::word("s"),
        key: key.to_vec(),
        missing,
    };
    let address = |end, family, prefix| Key::Address(end, family, prefix);
    for (matches, expected) in [
        (
            vec![mark(0xffff_0000, true)],
            "ct mark & 0xffff0000 == 0x00030000",
        ),
        (
            vec![mark(0xffff_0000, false)],
            "ct mark & 0xffff0000 != 0x00030000",
        ),
        (vec![mark(u32::MAX, true)], "ct mark 0x00030000"),
        (vec![mark(u32::MAX, false)], "ct mark != 0x00030000"),
        (
            vec![Match::CtState(state::INVALID | state::UNTRACKED)],
            "ct state invalid,untracked",
        ),
        (
            vec![Match::CtState(
                state::NEW | state::ESTABLISHED | state::RELATED,
            )],
            "ct state established,related,new",
        ),
        (vec![Match::CtIsReply(false)], "ct direction original"),
        (vec![Match::CtIsReply(true)], "ct direction reply"),
        (vec![Match::L4(132)], "meta l4proto sctp"),
        (vec![Match::L4(253)], "meta l4proto 253"),
        (vec![Match::Family(Family::V6)], "meta nfproto ipv6"),
        (vec![Match::CtPort(80, 80)], "ct reply proto-src 80"),
        (vec![Match::HeaderPort(1, 65_535)], "th dport 1-65535"),
        (
            vec![Match::L4(ICMP6), Match::IcmpType(130, 137)],
            "meta l4proto ipv6-icmp icmpv6 type 130-137",
        ),
        (
            vec![Match::L4(ICMP), Match::IcmpType(8, 8)],
            "meta l4proto icmp icmp type 8",
        ),
        (vec![Match::IcmpType(1, 2)], "@th,0,8 1-2"),
        (
            vec![Match::TcpNotOpening],
            "tcp flags & (fin | syn | rst | ack) != syn",
        ),
        (
            vec![lookup(&[Key::L4, Key::HeaderPort], true)],
            "meta l4proto . th dport != @s",
        ),
        (
            vec![lookup(
                &[Key::InterfaceIn, address(PacketEnd::Source, Family::V4, 32)],
                false,
            )],
            "iifname . ip saddr @s",
        ),
        (
            vec![lookup(&[Key::SourcePortBits(7), Key::CtPort], false)],
            "th sport & 0x0007 . ct reply proto-src @s",
        ),
        (
            vec![lookup(
                &[address(PacketEnd::Destination, Family::V6, 33)],
                false,
            )],
            "ip6 daddr & ffff:ffff:8000:: @s",
        ),
        (
            vec![lookup(
                &[address(PacketEnd::CtServer, Family::V4, 0)],
                false,
            )],
            "ct reply ip saddr & 0.0.0.0 @s",
        ),
        (
            vec![within(PacketEnd::CtClient, "fd00::/8", true)],
            "ct original ip6 saddr != fd00::/8",
        ),
        (
            vec![within(PacketEnd::Source, "10.0.0.1/32", false)],
            "ip saddr 10.0.0.1",
        ),
    ] {
        assert_eq!(rule(&matches, &[]).to_string(), expected);
    }
}

#[test]
fn every_statement_has_a_text() {
    let mark = |mask, value| Statement::SetCtMark { mask, value };
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    for (statement, expected) in [
        (Statement::Counter, "counter"),
        (
            mark(0xffff_0000, 0x0003_0001),
            "ct mark set ct mark & 0x0000ffff | 0x00030000",
        ),
        (mark(0xffff_0000, 0), "ct mark set ct mark & 0x0000ffff"),
        (mark(u32::MAX, 9), "ct mark set 0x00000009"),
        (Statement::Verdict(Verdict::Accept), "accept"),
        (Statement::Verdict(Verdict::Drop), "drop"),
        (Statement::Verdict(Verdict::Return), "return"),
        (
            Statement::Verdict(Verdict::Goto(Name::word("noct"))),
            "goto noct",
        ),
        (
            Statement::Dnat(address("10.0.0.9"), 8080),
            "dnat ip to 10.0.0.9:8080",
        ),
        (
            Statement::Dnat(address("fd00::9"), 8080),
            "dnat ip6 to [fd00::9]:8080",
        ),
        (Statement::Masquerade, "masquerade"),
        (Statement::Notrack, "notrack"),
    ] {
        assert_eq!(rule(&[], &[statement]).to_string(), expected);
    }
}

#[test]
fn priorities_have_the_names_that_nft_gives_them() {
    for (point, priority, expected) in [
        (Point::Forward, 0, "filter"),
        (Point::Input, -10, "filter - 10"),
        (Point::Input, 5, "filter + 5"),
        (Point::Input, 11, "11"),
        (Point::Prerouting, -300, "raw"),
        (Point::Prerouting, -290, "raw + 10"),
        (Point::Prerouting, -100, "dstnat"),
        (Point::Output, -100, "-100"),
        (Point::Postrouting, 100, "srcnat"),
        (Point::Output, i32::MIN, "-2147483648"),
    ] {
        assert_eq!(priority_text(point, priority), expected);
    }
}

#[test]
fn ranges_are_written_with_their_last_address() {
    let key = |text: &str| [Value::Number(5), Value::Address(text.parse().unwrap())];
    let mut set = Set::ranges(Name::word("ranges4"), vec![Field::Number, Field::V4]);
    set.push_range(&key("10.0.0.0"), Some(&key("10.1.0.0")));
    set.push_range(&key("10.9.0.7"), Some(&key("10.9.0.8")));
    set.push_range(&key("240.0.0.0"), None);
    let mut text = String::new();
    write_set(&set, &mut text);
    assert_eq!(
        text,
        "\tset ranges4 {\n\t\ttype mark . ipv4_addr\n\t\tsize 6\n\t\tflags interval\n\
         \t\telements = { 0x00000005 . 10.0.0.0-10.0.255.255, 0x00000005 . 10.9.0.7-10.9.0.7,\n\
         \t\t\t     0x00000005 . 240.0.0.0-255.255.255.255 }\n\t}\n"
    );
    let ends: Vec<bool> = (0..set.len()).map(|place| set.is_end(place)).collect();
    assert_eq!(ends, [false, true, false, true, false, true]);
}

#[test]
fn a_range_without_an_end_ends_behind_all_of_its_number() {
    for (number, behind) in [
        (0x0102_0304_u32, 0x0102_0305_u32),
        (0x0102_03ff, 0x0102_0400),
    ] {
        // Keys are compared byte by byte: the number is in network byte order here.
        let number = u32::from_ne_bytes(number.to_be_bytes());
        let mut set = Set::ranges(Name::word("ranges4"), vec![Field::Number, Field::V4]);
        let first = [Value::Number(number), Value::Address([10, 0, 0, 0].into())];
        set.push_range(&first, None);
        let expected = [behind.to_be_bytes(), [0; 4]].concat();
        assert_eq!(set.iter().nth(1), Some(expected.as_slice()));
    }
}

#[test]
fn leading_bits_of_a_port_are_written_as_a_mask() {
    assert_eq!(
        Key::CtPortBits(10).to_string(),
        "ct reply proto-src & 0xffc0"
    );
    assert_eq!(
        Key::CtPortBits(0).to_string(),
        "ct reply proto-src & 0x0000"
    );
}
