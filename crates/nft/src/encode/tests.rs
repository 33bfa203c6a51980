//! How a ruleset is split into batches, and the bytes of simple messages.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use super::*;
use crate::netlink::Messages;
use crate::ruleset::{Value, Verdict};

fn ruleset(elements: u32, chains: u32) -> Ruleset {
    let mut set = Set::new(Name::word("set"), vec![Field::Number, Field::Number]);
    for number in 0..elements {
        set.push(&[Value::Number(number), Value::Number(1)]);
    }
    let rule = Rule {
        matches: vec![Match::Lookup {
            set: Name::word("set"),
            key: vec![Key::Number(1), Key::Number(2)],
            missing: false,
        }],
        statements: vec![Statement::Verdict(Verdict::Drop)],
        origin: None,
    };
    let chain = |name, hook| Chain {
        name,
        hook,
        rules: vec![rule.clone(); 4],
    };
    let hook = Hook {
        point: Point::Forward,
        priority: -10,
        nat: false,
    };
    // The base chain is sent last, wherever the ruleset has it.
    let mut all = vec![chain(Name::word("forward"), Some(hook))];
    all.extend((0..chains).map(|number| chain(Name::numbered("c", number), None)));
    Ruleset {
        table: Name::word("t"),
        sets: vec![set],
        chains: all,
    }
}

fn batches(ruleset: &Ruleset, most: usize) -> Result<Vec<Batch>, Error> {
    let mut batches = Vec::new();
    let mut first = Batch::new();
    first.add_table("t", 0);
    super::ruleset(ruleset, "t", first, most, &mut |batch| {
        batches.push(batch);
        Ok(())
    })?;
    Ok(batches)
}

#[test]
fn a_ruleset_that_fits_is_one_batch() {
    let ruleset = ruleset(3, 1);
    let mut batches = batches(&ruleset, 1 << 20).unwrap();
    assert_eq!(batches.len(), 1);
    let rules = |chain| (0..4).map(move |rule| BatchItem::AddRule(chain, rule));
    let mut expected = vec![
        BatchItem::Transaction,
        BatchItem::AddTable("t".into()),
        BatchItem::AddSet(0),
        BatchItem::AddChain(1),
        BatchItem::AddElements(0, 0),
    ];
    expected.extend(rules(1));
    expected.push(BatchItem::AddChain(0));
    expected.extend(rules(0));
    assert_eq!(batches[0].items(), expected);

    let length = batches[0].len();
    let bytes = batches[0].complete(7);
    assert_eq!(bytes.len(), length);
    let acknowledged: Vec<u32> = Messages(bytes)
        .filter(|message| message.flags & flag::ACK != 0)
        .map(|message| message.sequence)
        .collect();
    assert_eq!(acknowledged, [7 + expected.len() as u32 - 1]);
}

#[test]
fn a_larger_ruleset_is_divided_and_its_base_chains_come_last() {
    let ruleset = ruleset(5_000, 50);
    let whole = batches(&ruleset, 1 << 20).unwrap();
    for most in [2_000, 4_096, 50_000] {
        let mut parts = batches(&ruleset, most).unwrap();
        assert!(parts.len() > 2);
        let count = parts.len();
        let mut kinds = Vec::new();
        let mut elements = 0;
        for (place, part) in parts.iter_mut().enumerate() {
            assert!(part.len() <= most);
            let is_hooked = |subject: &BatchItem| {
                matches!(subject, BatchItem::AddChain(0) | BatchItem::AddRule(0, _))
            };
            assert!(place + 1 == count || !part.items().iter().any(is_hooked));
            let messages = part.items().len();
            let read: Vec<_> = Messages(part.complete(1)).collect();
            assert_eq!(read.len(), messages + 1);
            let last = &read[messages - 1];
            assert!(last.flags & flag::ACK != 0);
            for message in &read[1..messages] {
                if message.kind != kind::NEW_ELEMENTS {
                    kinds.push(message.kind);
                    continue;
                }
                let list = message.attributes().inside(abi::elements::ELEMENTS);
                elements += list.count();
            }
        }
        assert_eq!(elements, 5_000);
        let all = whole[0].items().iter();
        let others = all.filter(|subject| !matches!(subject, BatchItem::AddElements(..)));
        assert_eq!(kinds.len(), others.count() - 1);
    }
}

#[test]
fn an_indivisible_part_of_a_ruleset_must_fit() {
    let ruleset = ruleset(1, 1);
    let error = batches(&ruleset, 700).unwrap_err();
    assert!(
        matches!(error, Error::SmallBuffer { most: 700, .. }),
        "{error}"
    );
}

#[test]
fn elements_of_a_set_are_their_keys_in_three_wrappings() {
    let mut bytes = Vec::new();
    let set = Set::new(Name::word("set"), vec![Field::V4]);
    write_element(&[10, 0, 0, 1], &set, 0, &mut bytes);
    let mut expected = Vec::new();
    for (length, kind) in [(16u16, 0x8001u16), (12, 0x8001), (8, 1)] {
        expected.extend(length.to_ne_bytes());
        expected.extend(kind.to_ne_bytes());
    }
    expected.extend([10, 0, 0, 1]);
    assert_eq!(bytes, expected);
}

#[test]
fn types_of_keys_are_those_of_nft() {
    assert_eq!(key_type(&[Field::V4]), 7);
    assert_eq!(key_type(&[Field::Number, Field::V4]), 19 << 6 | 7);
    assert_eq!(
        key_type(&[Field::V4, Field::V4, Field::L4, Field::Port]),
        7 << 18 | 7 << 12 | 12 << 6 | 13
    );
}

#[test]
fn keys_must_be_those_of_the_set() {
    let mut wrong = ruleset(1, 1);
    let key = vec![Key::Number(1), Key::L4];
    let map = Name::word("set");
    wrong.chains[1].rules[2].statements = vec![Statement::Dispatch { map, key }];
    let error = batches(&wrong, 1 << 20).unwrap_err().to_string();
    assert_eq!(
        error,
        "the ruleset is unusable: rule 3 of chain c-0 has other key fields than set set"
    );
}
