//! Sets of ports and of protocols without ports.

use std::borrow::Cow;
use std::num::NonZeroU16;

use crate::net::Protocol;
use crate::query::PortQuery;

/// A set of ports and of protocols without ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortSet {
    /// Runs of ports of TCP, UDP and SCTP, ascending and apart.
    runs: [Vec<(u16, u16)>; 3],
    icmp: bool,
    icmp6: bool,
    /// All other protocols.
    other: bool,
}

impl PortSet {
    /// Everything.
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

    /// Adds all protocols without ports but the two forms of ICMP.
    pub fn add_other(&mut self) {
        self.other = true;
    }

    /// ICMP alone.
    pub(crate) fn icmp() -> PortSet {
        PortSet {
            icmp: true,
            ..PortSet::default()
        }
    }

    /// ICMPv6 alone.
    pub(crate) fn icmp6() -> PortSet {
        PortSet {
            icmp6: true,
            ..PortSet::default()
        }
    }

    /// All protocols without ports but the two forms of ICMP.
    pub(crate) fn other() -> PortSet {
        PortSet {
            other: true,
            ..PortSet::default()
        }
    }

    /// Whether ICMP is in it.
    pub fn has_icmp(&self) -> bool {
        self.icmp
    }

    /// Whether ICMPv6 is in it.
    pub fn has_icmp6(&self) -> bool {
        self.icmp6
    }

    /// Whether all protocols without ports but the two forms of ICMP are in it.
    pub fn has_other(&self) -> bool {
        self.other
    }

    /// Adds everything of another set.
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

    /// Everything of several sets.
    pub(crate) fn union<'s>(sets: impl Iterator<Item = Cow<'s, PortSet>>) -> PortSet {
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

    /// How many ports it has.
    pub(crate) fn n_ports(&self) -> usize {
        let runs = self.runs.iter().flatten();
        runs.map(|(first, last)| usize::from(last - first) + 1)
            .sum()
    }

    /// Takes one port out.
    pub fn remove(&mut self, protocol: Protocol, port: NonZeroU16) {
        let mut one = PortSet::default();
        one.add_run(protocol, port.get(), port.get());
        self.remove_all(&one);
    }

    /// Takes everything of another set out.
    pub fn remove_all(&mut self, other: &PortSet) {
        for (runs, less) in self.runs.iter_mut().zip(&other.runs) {
            for (first, last) in less {
                let parts = runs.iter().flat_map(|run| {
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

    /// What is in both sets.
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

    /// The ports that a question names; nothing if it names them otherwise than by number.
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

    /// The first and the last port of each run, and one of each sort of what has no ports.
    pub fn edges(&self) -> Vec<PortQuery> {
        let mut edges = Vec::new();
        for (protocol, runs) in Protocol::ALL.into_iter().zip(&self.runs) {
            let ends = runs.iter().flat_map(|(first, last)| [*first, *last]);
            let ports = ends.filter_map(NonZeroU16::new);
            edges.extend(ports.map(|port| PortQuery::Number(protocol, port)));
        }
        // A number that is free for experiments.
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

    /// Whether a port is in it.
    pub fn contains(&self, protocol: Protocol, port: NonZeroU16) -> bool {
        let runs = self.runs_of(protocol);
        runs.iter()
            .any(|(first, last)| (*first..=*last).contains(&port.get()))
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.runs.iter().all(Vec::is_empty) && !self.icmp && !self.icmp6 && !self.other
    }

    /// Whether it is everything.
    pub fn is_everything(&self) -> bool {
        let all = |runs: &Vec<(u16, u16)>| runs.as_slice() == [(1, u16::MAX)];
        self.runs.iter().all(all) && self.other
    }

    /// The set in words: `tcp/1-79`, `udp/*`, `icmp`.
    pub fn words(&self) -> Vec<String> {
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

/// Puts runs in order and joins those that meet.
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
