//! Addresses of one family as ranges: blocks without their exceptions.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::net::{Cidr, Family};

/// Addresses of one family: the first and last of each range, in order. No two ranges touch.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ranges(Vec<(u128, u128)>);

impl Ranges {
    /// Returns the addresses of some ranges, which may overlap.
    fn of(mut ranges: Vec<(u128, u128)>) -> Ranges {
        ranges.sort_unstable();
        let mut joined: Vec<(u128, u128)> = Vec::new();
        for (first, last) in ranges {
            match joined.last_mut() {
                // The sum saturates at the last address of IPv6: no range starts after it.
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => joined.push((first, last)),
            }
        }
        Ranges(joined)
    }

    /// Returns all addresses of a family.
    pub(super) fn all(family: Family) -> Ranges {
        Ranges(vec![(0, most(family))])
    }

    /// Returns the addresses of blocks of one family.
    pub(super) fn of_blocks(blocks: impl IntoIterator<Item = Cidr>) -> Ranges {
        let bounds = |block: Cidr| (number(block.first()), number(block.last()));
        Ranges::of(blocks.into_iter().map(bounds).collect())
    }

    /// Returns the union of some addresses.
    pub(super) fn together<'r>(all: impl IntoIterator<Item = &'r Ranges>) -> Ranges {
        let all = all.into_iter().flat_map(|it| it.0.iter().copied());
        Ranges::of(all.collect())
    }

    /// Returns what is left without others.
    pub(super) fn without(&self, others: &Ranges) -> Ranges {
        // Both lists are sorted: one walk over both, whatever the number of exceptions.
        let mut left = Vec::new();
        let mut others = others.0.iter().copied().peekable();
        for (first, last) in &self.0 {
            let mut next = Some(*first);
            // One that ends after this range may also cut the next range: it is not consumed.
            while let (Some(from), Some((start, end))) = (next, others.peek().copied()) {
                if start > *last {
                    break;
                }
                if start > from {
                    left.push((from, start - 1));
                }
                if end >= from {
                    next = end.checked_add(1).filter(|next| next <= last);
                }
                if end > *last {
                    break;
                }
                others.next();
            }
            left.extend(next.map(|from| (from, *last)));
        }
        Ranges(left)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the bounds of the ranges: in turn the first address of a range and the first address
    /// after it. After the last address of a family there is none.
    pub(super) fn bounds(&self, family: Family) -> impl Iterator<Item = IpAddr> + '_ {
        let most = most(family);
        self.0.iter().flat_map(move |(first, last)| {
            let behind = last.checked_add(1).filter(|behind| *behind <= most);
            let bounds = [Some(*first), behind].into_iter().flatten();
            bounds.map(move |bound| address(bound, family))
        })
    }
}

/// Returns the last address of a family.
fn most(family: Family) -> u128 {
    match family {
        Family::V4 => u32::MAX.into(),
        Family::V6 => u128::MAX,
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn address(number: u128, family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::from_bits(number as u32).into(),
        Family::V6 => Ipv6Addr::from_bits(number).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::CidrText;

    fn blocks(texts: &[&str]) -> Ranges {
        let parse = |text: &&str| CidrText::parse(text).unwrap().cidr;
        Ranges::of_blocks(texts.iter().map(parse))
    }

    #[track_caller]
    fn check(block: &[&str], except: &[&str], family: Family, expected: &[&str]) {
        let left = blocks(block).without(&blocks(except));
        let bounds: Vec<String> = left.bounds(family).map(|it| it.to_string()).collect();
        assert_eq!(bounds, expected);
    }

    #[test]
    fn a_block_begins_and_ends() {
        check(&["10.0.0.0/8"], &[], Family::V4, &["10.0.0.0", "11.0.0.0"]);
    }

    #[test]
    fn blocks_that_overlap_or_touch_are_one_range() {
        let both = ["10.0.0.0/9", "10.128.0.0/9", "10.1.0.0/16"];
        check(&both, &[], Family::V4, &["10.0.0.0", "11.0.0.0"]);
    }

    #[test]
    fn an_exception_leaves_both_sides() {
        let expected = ["10.0.0.0", "10.1.0.0", "10.2.0.0", "11.0.0.0"];
        check(&["10.0.0.0/8"], &["10.1.0.0/16"], Family::V4, &expected);
    }

    #[test]
    fn exceptions_at_the_edges_leave_one_side() {
        let except = ["10.0.0.0/16", "10.255.0.0/16"];
        let expected = ["10.1.0.0", "10.255.0.0"];
        check(&["10.0.0.0/8"], &except, Family::V4, &expected);
    }

    #[test]
    fn an_exception_of_everything_leaves_nothing() {
        check(&["10.0.0.0/8"], &["10.0.0.0/8"], Family::V4, &[]);
        check(&["10.0.0.0/8"], &["0.0.0.0/0"], Family::V4, &[]);
        check(&["::/0"], &["::/0"], Family::V6, &[]);
    }

    #[test]
    fn an_exception_elsewhere_leaves_all() {
        let expected = ["10.0.0.0", "11.0.0.0"];
        let except = ["9.0.0.0/8", "11.0.0.0/8"];
        check(&["10.0.0.0/8"], &except, Family::V4, &expected);
    }

    #[test]
    fn an_exception_can_cut_several_ranges() {
        let block = ["10.0.0.0/16", "10.2.0.0/16", "12.0.0.0/8"];
        check(
            &block,
            &["10.0.0.0/8"],
            Family::V4,
            &["12.0.0.0", "13.0.0.0"],
        );
    }

    #[test]
    fn behind_the_last_address_there_is_none() {
        check(&["0.0.0.0/0"], &[], Family::V4, &["0.0.0.0"]);
        let expected = ["::", "8000::", "c000::"];
        check(&["::/0"], &["8000::/2"], Family::V6, &expected);
        let expected = ["0.0.0.0", "255.255.255.255"];
        check(
            &["0.0.0.0/0"],
            &["255.255.255.255/32"],
            Family::V4,
            &expected,
        );
    }
}
