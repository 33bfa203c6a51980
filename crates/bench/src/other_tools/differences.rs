//! Where two programs differ, and why, as far as the reason is known.

use std::net::Ipv4Addr;

use super::answers::{Answers, Range, Sets};
use super::cluster::Cluster;

/// Why two programs differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// By the specification, an address block matches pods; netpol-analyzer never does.
    BlockOfPods,
    /// Addresses that are no other host's; palisade does not report them.
    NoHost,
    /// Unexplained.
    Unexplained,
}

impl Class {
    pub(super) const ALL: [Class; 3] = [Class::BlockOfPods, Class::NoHost, Class::Unexplained];

    pub(super) fn words(self) -> &'static str {
        match self {
            Class::BlockOfPods => {
                "an address block matches a pod, which netpol-analyzer leaves out"
            }
            Class::NoHost => {
                "addresses of no host (0.0.0.0/8, 127.0.0.0/8, 224.0.0.0/3), which palisade leaves out"
            }
            Class::Unexplained => "unexplained",
        }
    }
}

/// Addresses that no host in a network has: those of this network, of the host itself, of groups,
/// and reserved ones.
const NO_HOST: [(u32, u32); 3] = [
    (0, 0x00ff_ffff),
    (0x7f00_0000, 0x7fff_ffff),
    (0xe000_0000, u32::MAX),
];

/// One difference, in words.
#[derive(Clone, Debug)]
pub(super) struct Difference {
    pub(super) class: Class,
    pub(super) text: String,
}

/// The number of compared answers, and those that differ.
pub(super) fn differences(
    cluster: &Cluster,
    ours: &Answers,
    theirs: &Answers,
    sets: &Sets,
) -> (u64, Vec<Difference>) {
    let n_pods = cluster.addresses.len();
    let (mut compared, mut found) = (0, Vec::new());
    for from in 0..n_pods {
        for to in (0..n_pods).filter(|to| *to != from) {
            compared += 1;
            let of = |answers: &Answers| answers.pairs.get(&(from, to)).copied().unwrap_or(0);
            let (own, other) = (of(ours), of(theirs));
            if own != other {
                let in_block = cluster.is_in_some_block(from) || cluster.is_in_some_block(to);
                let class = if in_block {
                    Class::BlockOfPods
                } else {
                    Class::Unexplained
                };
                let ends = format!("{} -> {}", cluster.name(from), cluster.name(to));
                found.push(difference(class, &ends, (own, other), sets));
            }
        }
    }
    for pod in 0..n_pods {
        let name = cluster.name(pod);
        for (own, other, is_out) in [
            (ours.out.get(&pod), theirs.out.get(&pod), true),
            (ours.into.get(&pod), theirs.into.get(&pod), false),
        ] {
            let (n_ranges, differing) = ranges(slice(own), slice(other));
            compared += n_ranges;
            for (first, last, own, other) in differing {
                let outside = format!("{}-{}", Ipv4Addr::from(first), Ipv4Addr::from(last));
                let ends = if is_out {
                    format!("{name} -> {outside}")
                } else {
                    format!("{outside} -> {name}")
                };
                let is_no_host = NO_HOST
                    .iter()
                    .any(|(start, end)| first >= *start && last <= *end);
                let class = if is_no_host && own == 0 {
                    Class::NoHost
                } else {
                    Class::Unexplained
                };
                found.push(difference(class, &ends, (own, other), sets));
            }
        }
    }
    (compared, found)
}

fn slice(ranges: Option<&Vec<Range>>) -> &[Range] {
    ranges.map_or(&[], Vec::as_slice)
}

fn difference(class: Class, ends: &str, (own, other): (usize, usize), sets: &Sets) -> Difference {
    let (own, other) = (sets.words(own), sets.words(other));
    Difference {
        class,
        text: format!("{ends}: palisade {own}; netpol-analyzer {other}"),
    }
}

/// The number of pieces that the ranges of both cut the addresses into, and the pieces that differ,
/// with both sets.
fn ranges(ours: &[Range], theirs: &[Range]) -> (u64, Vec<(u32, u32, usize, usize)>) {
    let listed = ours
        .iter()
        .chain(theirs)
        .map(|(first, last, _)| (first, last));
    let special = NO_HOST.iter().map(|(first, last)| (first, last));
    let starts = listed.chain(special).flat_map(|(first, last)| {
        let after = last.checked_add(1);
        [Some(*first), after].into_iter().flatten()
    });
    let mut starts: Vec<u32> = starts.chain([0]).collect();
    starts.sort_unstable();
    starts.dedup();
    let ends = starts.iter().skip(1).map(|next| next - 1).chain([u32::MAX]);
    let (own, other) = (Sorted::new(ours), Sorted::new(theirs));
    let pieces = starts.iter().zip(ends);
    let differing = pieces.filter_map(|(&first, last)| {
        let (own, other) = (own.at(first), other.at(first));
        (own != other).then_some((first, last, own, other))
    });
    (starts.len() as u64, differing.collect())
}

/// Ranges in order, to be searched.
struct Sorted(Vec<Range>);

impl Sorted {
    fn new(ranges: &[Range]) -> Sorted {
        let mut ranges = ranges.to_vec();
        ranges.sort_unstable();
        Sorted(ranges)
    }

    /// The set of an address.
    fn at(&self, address: u32) -> usize {
        let after = self.0.partition_point(|(first, ..)| *first <= address);
        let before = after.checked_sub(1).and_then(|at| self.0.get(at));
        before.map_or(0, |(_, last, set)| if address <= *last { *set } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_compared_piece_by_piece() {
        // The same addresses, cut differently.
        let (pieces, differing) = ranges(&[(0, 9, 1), (10, 19, 1)], &[(0, 19, 1)]);
        // At 0, 10, 20, and where addresses of no host start and end: 1.0.0.0, 127.0.0.0, 128.0.0.0
        // and 224.0.0.0.
        assert_eq!((pieces, differing), (7, Vec::new()));
        // 5 to 9 is missing on one side, 224.0.0.0 and above on the other.
        let (_, differing) = ranges(&[(0, 4, 1)], &[(0, 9, 1), (0xe000_0000, u32::MAX, 2)]);
        assert_eq!(differing, [(5, 9, 0, 1), (0xe000_0000, u32::MAX, 0, 2)]);
    }

    #[test]
    fn a_pod_in_a_block_is_a_reason() {
        let mut cluster = Cluster::default();
        for (at, name) in ["a/x", "a/y"].into_iter().enumerate() {
            cluster.pods.insert(name.to_owned(), at);
            cluster
                .addresses
                .push(Some(Ipv4Addr::new(10, 128, 0, at as u8)));
        }
        let sets = Sets::default();
        let ours = Answers {
            pairs: [((0, 1), 1)].into(),
            ..Answers::default()
        };
        let classes = |cluster: &Cluster| {
            let (compared, found) = differences(cluster, &ours, &Answers::default(), &sets);
            // Two pairs; and for each pod, in two directions, addresses in five pieces.
            assert_eq!(compared, 2 + 2 * 2 * 5);
            found.iter().map(|it| it.class).collect::<Vec<Class>>()
        };
        assert_eq!(classes(&cluster), [Class::Unexplained]);
        cluster
            .blocks
            .push((u32::from(Ipv4Addr::new(10, 128, 0, 1)), u32::MAX));
        assert_eq!(classes(&cluster), [Class::BlockOfPods]);
    }
}
