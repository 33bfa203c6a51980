//! Sent, arrived and expected packets: leaks and losses, determined by time.
//!
//! A packet is in flight from the moment before it is sent until it, or a later packet, is read
//! from the receiver's socket. It leaked if it arrived although it was denied during all of that
//! time. It was lost if it did not arrive although it was allowed during all of it. A packet in
//! flight while a commit changes its verdict may do either.

use std::ops::AddAssign;

/// The expected outcome of a flow's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// They arrive.
    Allowed,
    /// They are dropped.
    Denied,
    /// Either may happen.
    Either,
}

/// The expected outcomes of a flow's packets over time.
#[derive(Clone, Debug)]
pub struct Timeline {
    first: Expected,
    changes: Vec<Change>,
}

/// A commit: the previous verdict holds until it begins, the new one from its return on.
#[derive(Clone, Copy, Debug)]
struct Change {
    started: u64,
    ended: u64,
    to: Expected,
}

impl Timeline {
    /// A timeline without commits.
    pub fn new(first: Expected) -> Timeline {
        Timeline {
            first,
            changes: Vec::new(),
        }
    }

    /// Adds a commit, later than all before.
    pub fn change(&mut self, (started, ended): (u64, u64), to: Expected) {
        if self.last() != to {
            self.changes.push(Change { started, ended, to });
        }
    }

    /// Adds a time in which either may happen, later than all before. The verdict after it is the
    /// previous one.
    pub fn allow_either(&mut self, (started, ended): (u64, u64)) {
        let to = self.last();
        self.changes.push(Change { started, ended, to });
    }

    /// The expectation after the last commit.
    pub fn last(&self) -> Expected {
        self.changes.last().map_or(self.first, |it| it.to)
    }

    /// The expectation for a packet in flight from one moment to another.
    pub fn during(&self, from: u64, to: u64) -> Expected {
        let past = self.changes.partition_point(|it| it.ended <= from);
        let before = past.checked_sub(1).and_then(|it| self.changes.get(it));
        match self.changes.get(past) {
            Some(next) if next.started <= to => Expected::Either,
            _ => before.map_or(self.first, |it| it.to),
        }
    }
}

/// The packets of a flow, numbered from 0.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// The moment before each was sent.
    pub sent: Vec<u64>,
    /// The packets that arrived, and the moments they were read from the socket.
    pub arrived: Vec<(u32, u64)>,
    /// Whether a socket may have dropped some: then missing packets do not count as lost.
    pub may_have_overflowed: bool,
}

/// The counts of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets sent.
    pub sent: u64,
    /// Packets that arrived.
    pub arrived: u64,
    /// Packets that arrived although denied during all of their flight.
    pub leaked: u64,
    /// Packets that did not arrive although allowed during all of their flight.
    pub lost: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.sent += other.sent;
        self.arrived += other.arrived;
        self.leaked += other.leaked;
        self.lost += other.lost;
    }
}

/// The times at which each packet has arrived or was dropped. All packets of one sender pass the
/// same queues in order: when a later one arrives, all earlier ones are decided.
#[derive(Clone, Debug)]
pub struct DecisionTimes(Vec<(u64, u64)>);

/// Nanoseconds after which a packet counts as dropped if no later one arrives: on a busy machine
/// packets may stay in the kernel's queue for some time.
const DECISION_TIMEOUT: u64 = 100_000_000;

impl DecisionTimes {
    /// Of the logs of one sender.
    pub fn of(logs: &[Log]) -> DecisionTimes {
        let mut all: Vec<(u64, u64)> = Vec::new();
        for log in logs {
            let arrivals = log.arrived.iter();
            all.extend(arrivals.filter_map(|(number, at)| {
                let sent = log.sent.get(*number as usize)?;
                Some((*sent, *at))
            }));
        }
        all.sort_unstable();
        let mut earliest = u64::MAX;
        for (_, at) in all.iter_mut().rev() {
            earliest = earliest.min(*at);
            *at = earliest;
        }
        DecisionTimes(all)
    }

    /// The latest moment at which a packet was decided.
    fn by(&self, sent: u64) -> u64 {
        let later = self.0.partition_point(|(it, _)| *it <= sent);
        let later = self.0.get(later).map_or(u64::MAX, |(_, at)| *at);
        later.min(sent + DECISION_TIMEOUT)
    }
}

/// Leaked packets described one by one.
const MAX_LEAKS: usize = 5;

impl Log {
    /// The first leaked packets, with the commits around them, in microseconds since each was sent.
    pub fn leaks(&self, expected: &Timeline, decided: &DecisionTimes) -> Vec<String> {
        let leaks = self.arrived.iter().filter_map(|(number, at)| {
            let sent = *self.sent.get(*number as usize)?;
            let by = decided.by(sent).min(*at);
            (expected.during(sent, by) == Expected::Denied).then_some((*number, sent, by, *at))
        });
        let descriptions = leaks.take(MAX_LEAKS).map(|(number, sent, by, at)| {
            let since = |time: u64| (time as f64 - sent as f64) / 1e3;
            let next = expected.changes.partition_point(|it| it.ended <= sent);
            let around = expected.changes.iter().skip(next.saturating_sub(2)).take(4);
            let around = around.map(|it| {
                format!(
                    "{:.0}..{:.0} {:?}",
                    since(it.started),
                    since(it.ended),
                    it.to
                )
            });
            format!(
                "packet {number} arrived after {:.0} us, was decided by {:.0}; commits: {}",
                since(at),
                since(by),
                around.collect::<Vec<_>>().join(", ")
            )
        });
        descriptions.collect()
    }

    /// Compares the packets with the expectation.
    pub fn tally(&self, expected: &Timeline, decided: &DecisionTimes) -> Tally {
        let mut tally = Tally {
            sent: self.sent.len() as u64,
            ..Tally::default()
        };
        let mut arrived_once = vec![false; self.sent.len()];
        for (number, at) in &self.arrived {
            let place = *number as usize;
            let (Some(arrived_once), Some(sent)) =
                (arrived_once.get_mut(place), self.sent.get(place))
            else {
                continue;
            };
            if !*arrived_once {
                *arrived_once = true;
                tally.arrived += 1;
                let by = decided.by(*sent).min(*at);
                tally.leaked += u64::from(expected.during(*sent, by) == Expected::Denied);
            }
        }
        if self.may_have_overflowed {
            return tally;
        }
        let missing = self
            .sent
            .iter()
            .zip(&arrived_once)
            .filter(|(_, arrived_once)| !**arrived_once);
        let is_lost = |sent: u64| expected.during(sent, decided.by(sent)) == Expected::Allowed;
        tally.lost = missing.filter(|(sent, _)| is_lost(**sent)).count() as u64;
        tally
    }
}

#[cfg(test)]
mod tests {
    use super::{DecisionTimes, Expected, Log, Tally, Timeline};

    /// Denied, allowed from 110 on at the latest, denied again from 310 on.
    fn timeline() -> Timeline {
        let mut timeline = Timeline::new(Expected::Denied);
        timeline.change((100, 110), Expected::Allowed);
        timeline.change((200, 210), Expected::Allowed);
        timeline.change((300, 310), Expected::Denied);
        timeline
    }

    #[test]
    fn only_what_holds_all_the_time_is_expected() {
        let timeline = timeline();
        for (from, to, expected) in [
            (0, 99, Expected::Denied),
            (0, 100, Expected::Either),
            (105, 120, Expected::Either),
            (110, 299, Expected::Allowed),
            (205, 205, Expected::Allowed),
            (250, 300, Expected::Either),
            (310, 1_000, Expected::Denied),
        ] {
            assert_eq!(timeline.during(from, to), expected, "{from} to {to}");
        }
    }

    #[test]
    fn leaks_and_losses_are_counted() {
        let mut timeline = timeline();
        timeline.change((1_000, 1_001), Expected::Allowed);
        let log = Log {
            // Denied twice, on the border, allowed, on the border, denied, allowed twice.
            sent: vec![10, 20, 90, 150, 290, 400, 1_001, 2_000],
            arrived: vec![(1, 30), (2, 105), (3, 160), (5, 410), (5, 420), (7, 2_010)],
            may_have_overflowed: false,
        };
        let decided = DecisionTimes::of(std::slice::from_ref(&log));
        assert_eq!(
            log.tally(&timeline, &decided),
            Tally {
                sent: 8,
                arrived: 5,
                leaked: 2,
                lost: 1
            }
        );
    }

    #[test]
    fn what_comes_later_decides_what_was_before() {
        // The second flow's packet was sent after both of the first, and was there at 105.
        let first = Log {
            sent: vec![80, 90],
            arrived: vec![(0, 500)],
            may_have_overflowed: false,
        };
        let second = Log {
            sent: vec![95],
            arrived: vec![(0, 105)],
            may_have_overflowed: false,
        };
        let decided = DecisionTimes::of(&[first.clone(), second]);
        let mut timeline = Timeline::new(Expected::Denied);
        timeline.change((200, 210), Expected::Allowed);
        assert_eq!(first.tally(&timeline, &decided).leaked, 1);
        let mut timeline = Timeline::new(Expected::Allowed);
        timeline.change((200, 210), Expected::Denied);
        assert_eq!(first.tally(&timeline, &decided).lost, 1);
        timeline = Timeline::new(Expected::Allowed);
        timeline.change((100, 210), Expected::Denied);
        assert_eq!(first.tally(&timeline, &decided).lost, 0);
    }
}
