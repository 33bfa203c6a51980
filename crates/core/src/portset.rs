//! Sets of ports and of protocols without ports.

use std::borrow::Cow;
use std::num::NonZeroU16;

use crate::net::Protocol;
use crate::query::PortQuery;

/// A set of ports and of protocols without ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortSet {
    /// Runs of ports of TCP, UDP and SCTP, in order and not adjacent.
    runs: [Vec<(u16, u16)>; 3],
    icmp: bool,
    icmp6: bool,
    /// All protocols without ports but ICMP and ICMPv6.
    other: bool,
}

impl PortSet {
    /// Returns the set of all ports and protocols.
    pub fn everything() -> PortSet {
        PortSet {
            runs: [const { (1, u16::MAX) }; 3].map(|run| vec![run]),
            icmp: true,
            icmp6: true,
            other: true,
        }
    }

    /// Adds the ports from `first` to `last`.
    pub fn add_run(&mut self, protocol: Protocol, first: u16, last: u16) {
        let runs = self.runs_mut(protocol);
        match runs.last_mut() {
            // Callers mostly add runs in order: only a run that starts before the last one ends
            // needs a sort.
            Some((_, end)) if end.checked_add(1) == Some(first) => *end = last,
            Some((_, end)) if *end >= first => {
                runs.push((first, last));
                tidy(runs);
            }
            Some(_) | None => runs.push((first, last)),
        }
    }

    /// Adds ICMP.
    pub fn add_icmp(&mut self) {
        self.icmp = true;
    }

    /// Adds ICMPv6.
    pub fn add_icmp6(&mut self) {
        self.icmp6 = true;
    }

    /// Adds all protocols without ports but ICMP and ICMPv6.
    pub fn add_other(&mut self) {
        self.other = true;
    }

    /// Returns the set of ICMP alone.
    pub(crate) fn icmp() -> PortSet {
        PortSet {
            icmp: true,
            ..PortSet::default()
        }
    }

    /// Returns the set of ICMPv6 alone.
    pub(crate) fn icmp6() -> PortSet {
        PortSet {
            icmp6: true,
            ..PortSet::default()
        }
    }

    /// Returns the set of all protocols without ports but ICMP and ICMPv6.
    pub(crate) fn other() -> PortSet {
        PortSet {
            other: true,
            ..PortSet::default()
        }
    }

    /// Returns whether ICMP is in the set.
    pub fn has_icmp(&self) -> bool {
        self.icmp
    }

    /// Returns whether ICMPv6 is in the set.
    pub fn has_icmp6(&self) -> bool {
        self.icmp6
    }

    /// Returns whether the protocols without ports but ICMP and ICMPv6 are in the set.
    pub fn has_other(&self) -> bool {
        self.other
    }

    /// Adds all members of another set.
    pub fn add(&mut self, other: &PortSet) {
        for (runs, more) in self.runs.iter_mut().zip(&other.runs) {
            if !more.is_empty() {
                runs.extend(more);
                tidy(runs);
            }
        }
        self.icmp |= other.icmp;
        self.icmp6 |= other.icmp6;
        self.other |= other.other;
    }

    /// Returns the union of several sets.
    pub(crate) fn union<'s>(sets: impl Iterator<Item = Cow<'s, PortSet>>) -> PortSet {
        // Sorted once at the end: a union by `add` would sort after each set.
        let mut union = PortSet::default();
        for set in sets {
            for (runs, more) in union.runs.iter_mut().zip(&set.runs) {
                runs.extend(more);
            }
            union.icmp |= set.icmp;
            union.icmp6 |= set.icmp6;
            union.other |= set.other;
        }
        union.runs.iter_mut().for_each(tidy);
        union
    }

    /// Returns the number of ports.
    pub(crate) fn n_ports(&self) -> usize {
        let runs = self.runs.iter().flatten();
        runs.map(|(first, last)| usize::from(last - first) + 1)
            .sum()
    }

    /// Removes one port.
    pub fn remove(&mut self, protocol: Protocol, port: NonZeroU16) {
        let mut one = PortSet::default();
        one.add_run(protocol, port.get(), port.get());
        self.remove_all(&one);
    }

    /// Removes all members of another set.
    pub fn remove_all(&mut self, other: &PortSet) {
        for (runs, less) in self.runs.iter_mut().zip(&other.runs) {
            for (first, last) in less {
                let parts = runs.iter().flat_map(|run| {
                    // The closures run only where a part is left: `first - 1` and `last + 1` cannot
                    // overflow.
                    let before = (run.0 < *first).then(|| (run.0, run.1.min(first - 1)));
                    let after = (run.1 > *last).then(|| (run.0.max(last + 1), run.1));
                    [before, after]
                });
                *runs = parts.flatten().collect();
            }
        }
        self.icmp &= !other.icmp;
        self.icmp6 &= !other.icmp6;
        self.other &= !other.other;
    }

    /// Returns the intersection of both sets.
    pub fn and(&self, other: &PortSet) -> PortSet {
        let mut both = PortSet {
            runs: Default::default(),
            icmp: self.icmp && other.icmp,
            icmp6: self.icmp6 && other.icmp6,
            other: self.other && other.other,
        };
        let runs = self.runs.iter().zip(&other.runs);
        for (protocol, (mine, its)) in Protocol::ALL.into_iter().zip(runs) {
            for (first, last) in mine {
                let meeting = its.iter().filter(|it| it.0 <= *last && *first <= it.1);
                for (its_first, its_last) in meeting {
                    both.add_run(protocol, *first.max(its_first), *last.min(its_last));
                }
            }
        }
        both
    }

    /// Returns the ports of a query; nothing for a name, which depends on the destination.
    pub fn of_query(query: &PortQuery) -> PortSet {
        let mut set = PortSet::default();
        match query {
            PortQuery::Number(protocol, port) => set.add_run(*protocol, port.get(), port.get()),
            PortQuery::Icmp => set.icmp = true,
            PortQuery::Icmp6(_) => set.icmp6 = true,
            PortQuery::Ip(_) => set.other = true,
            PortQuery::Any => return PortSet::everything(),
            PortQuery::Name(..) => {}
        }
        set
    }

    /// Returns the first and the last port of each run, and one query for each kind of protocol
    /// without ports.
    pub fn edges(&self) -> Vec<PortQuery> {
        let mut edges = Vec::new();
        for (protocol, runs) in Protocol::ALL.into_iter().zip(&self.runs) {
            let ends = runs.iter().flat_map(|(first, last)| [*first, *last]);
            let ports = ends.filter_map(NonZeroU16::new);
            edges.extend(ports.map(|port| PortQuery::Number(protocol, port)));
        }
        // 253 is reserved for experiments. Rules do not distinguish protocols without ports (D93):
        // one stands for all.
        const OTHER: u8 = 253;
        let others = [
            (self.icmp, PortQuery::Icmp),
            (self.icmp6, PortQuery::Icmp6(None)),
            (self.other, PortQuery::Ip(OTHER)),
        ];
        edges.extend(others.into_iter().filter(|it| it.0).map(|it| it.1));
        edges.dedup();
        edges
    }

    /// Returns whether a port is in the set.
    pub fn contains(&self, protocol: Protocol, port: NonZeroU16) -> bool {
        let runs = self.runs_of(protocol);
        runs.iter()
            .any(|(first, last)| (*first..=*last).contains(&port.get()))
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.runs.iter().all(Vec::is_empty) && !self.icmp && !self.icmp6 && !self.other
    }

    /// Returns whether the set is everything.
    pub fn is_everything(&self) -> bool {
        let all = |runs: &Vec<(u16, u16)>| runs.as_slice() == [(1, u16::MAX)];
        // Neither form of ICMP is required: ends that share one family have only one of them.
        self.runs.iter().all(all) && self.other
    }

    /// Returns the set in text: `tcp/1-79`, `udp/*`, `icmp`.
    pub fn text(&self) -> Vec<String> {
        let mut words = Vec::new();
        for (protocol, runs) in Protocol::ALL.into_iter().zip(&self.runs) {
            let protocol = protocol.name().to_ascii_lowercase();
            for run in runs {
                words.push(match run {
                    (1, u16::MAX) => format!("{protocol}/*"),
                    (first, last) if first == last => format!("{protocol}/{first}"),
                    (first, last) => format!("{protocol}/{first}-{last}"),
                });
            }
        }
        let others = [
            (self.icmp, "icmp"),
            (self.icmp6, "icmpv6"),
            (self.other, "ip/*"),
        ];
        words.extend(others.iter().filter(|it| it.0).map(|it| it.1.to_owned()));
        words
    }

    fn runs_of(&self, protocol: Protocol) -> &Vec<(u16, u16)> {
        let [tcp, udp, sctp] = &self.runs;
        match protocol {
            Protocol::Tcp => tcp,
            Protocol::Udp => udp,
            Protocol::Sctp => sctp,
        }
    }

    fn runs_mut(&mut self, protocol: Protocol) -> &mut Vec<(u16, u16)> {
        let [tcp, udp, sctp] = &mut self.runs;
        match protocol {
            Protocol::Tcp => tcp,
            Protocol::Udp => udp,
            Protocol::Sctp => sctp,
        }
    }
}

/// Sorts runs, and joins those that overlap or are adjacent.
fn tidy(runs: &mut Vec<(u16, u16)>) {
    runs.sort_unstable();
    let mut tidied: Vec<(u16, u16)> = Vec::with_capacity(runs.len());
    for (first, last) in runs.drain(..) {
        match tidied.last_mut() {
            Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
            Some(_) | None => tidied.push((first, last)),
        }
    }
    *runs = tidied;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::fixture::{Random, port};

    const MOST: u16 = 20;

    /// A set of TCP ports up to [`MOST`], made of runs in any order, and the same ports one by one.
    fn some_ports(random: &mut Random) -> (PortSet, BTreeSet<u16>) {
        let (mut set, mut ports) = (PortSet::default(), BTreeSet::new());
        for _ in 0..random.below(5) {
            let first = 1 + random.below(MOST.into()) as u16;
            let last = MOST.min(first + random.below(4) as u16);
            set.add_run(Protocol::Tcp, first, last);
            ports.extend(first..=last);
        }
        (set, ports)
    }

    #[track_caller]
    fn check(set: &PortSet, ports: &BTreeSet<u16>) {
        for number in 1..=MOST {
            let expected = ports.contains(&number);
            assert_eq!(
                set.contains(Protocol::Tcp, port(number)),
                expected,
                "{number}"
            );
            assert!(!set.contains(Protocol::Udp, port(number)));
        }
        assert_eq!(set.n_ports(), ports.len());
        // The runs are in order and not adjacent: equal sets are equal values.
        let mut again = PortSet::default();
        for number in ports {
            again.add_run(Protocol::Tcp, *number, *number);
        }
        assert_eq!(set, &again);
    }

    #[test]
    fn operations_are_those_of_sets_of_single_ports() {
        let mut random = Random(1);
        for _ in 0..2000 {
            let ((a, ports_of_a), (b, ports_of_b)) =
                (some_ports(&mut random), some_ports(&mut random));
            check(&a, &ports_of_a);
            check(&a.and(&b), &(&ports_of_a & &ports_of_b));
            let mut both = a.clone();
            both.add(&b);
            check(&both, &(&ports_of_a | &ports_of_b));
            let mut rest = a.clone();
            rest.remove_all(&b);
            check(&rest, &(&ports_of_a - &ports_of_b));
        }
    }

    #[test]
    fn the_first_and_the_last_port_can_be_removed() {
        let mut set = PortSet::everything();
        set.remove(Protocol::Tcp, port(1));
        set.remove(Protocol::Udp, port(u16::MAX));
        let expected = [
            "tcp/2-65535",
            "udp/1-65534",
            "sctp/*",
            "icmp",
            "icmpv6",
            "ip/*",
        ];
        assert_eq!(set.text(), expected);
    }

    #[test]
    fn the_ports_of_one_family_are_everything() {
        // ICMP exists in IPv4 only, and ICMPv6 in IPv6 only.
        let mut set = PortSet::everything();
        set.remove_all(&PortSet::icmp6());
        assert!(set.is_everything());
        set.remove_all(&PortSet::other());
        assert!(!set.is_everything());
    }
}
