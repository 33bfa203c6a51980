//! Address blocks and domain patterns against tables of facts measured from Kubernetes' own code.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use palisade_core::domain::DomainPattern;
use palisade_core::net::CidrText;

fn rows(table: &str) -> Vec<Vec<String>> {
    let unescape = |text: &str| {
        let text = text
            .replace("\\\\", "\u{0}")
            .replace("\\t", "\t")
            .replace("\\n", "\n");
        text.replace('\u{0}', "\\")
    };
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.split('\t').map(unescape).collect())
        .collect()
}

/// What `isCIDR` accepts (D27), and which block it means.
#[test]
fn address_blocks_are_read_as_is_cidr_reads_them() {
    let rows = rows(include_str!("data/cidrs.tsv"));
    assert!(rows.len() > 300);
    for row in rows {
        let [text, cel, _, _, masked] = &row[..] else {
            panic!("{row:?}")
        };
        let ours = CidrText::parse(text).ok().filter(|it| !it.leading_zeros);
        assert_eq!(ours.is_some(), cel == "yes", "{text:?}");
        if let Some(ours) = ours {
            assert_eq!(ours.cidr.to_string(), *masked, "{text:?}");
        }
    }
}

/// What old NetworkPolicies may hold (D124): also leading zeros in octets, but not in the length, and
/// no IPv4-mapped addresses.
#[test]
fn leading_zeros_in_octets_are_read_as_decimal() {
    for row in rows(include_str!("data/cidrs.tsv")) {
        let [text, cel, legacy, ..] = &row[..] else {
            panic!("{row:?}")
        };
        let ours = CidrText::parse(text);
        assert!(
            ours.is_err() || legacy == "yes",
            "{text:?} is refused by every API server"
        );
        let zeros = ours.is_ok_and(|it| it.leading_zeros);
        assert_eq!(zeros, ours.is_ok() && cel == "no", "{text:?}");
    }
    let read = CidrText::parse("010.0.0.0/8").unwrap();
    assert_eq!(
        (read.cidr.to_string().as_str(), read.leading_zeros),
        ("10.0.0.0/8", true)
    );
}

#[test]
fn domain_names_follow_the_published_pattern() {
    let rows = rows(include_str!("data/domains.tsv"));
    assert!(rows.len() > 150);
    for row in rows {
        let [text, verdict] = &row[..] else {
            panic!("{row:?}")
        };
        assert_eq!(
            DomainPattern::parse(text).is_ok(),
            verdict == "yes",
            "{text:?}"
        );
    }
}
