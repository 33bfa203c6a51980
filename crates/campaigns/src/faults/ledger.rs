//! What was sent, what arrived and what should have: leaks and losses, told by the clock.
//!
//! A packet is on its way from the moment before it is sent until it is taken from the receiver's
//! socket, or a later one is. It leaked if it arrived although it was denied during all of that time; it
//! was lost if it did not arrive although it was allowed during all of it. What is on its way while
//! a commit changes its verdict may do either.

use std::ops::AddAssign;

/// What should become of a flow's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// They arrive.
    Allowed,
    /// They do not.
    Denied,
    /// Either may happen.
    Either,
}

/// What should become of a flow's packets at any time.
#[derive(Clone, Debug)]
pub struct Timeline {
    first: Expected,
    changes: Vec<Change>,
}

/// A commit: before it began the last verdict holds, after it returned the new one.
#[derive(Clone, Copy, Debug)]
struct Change {
    began: u64,
    ended: u64,
    to: Expected,
}

impl Timeline {
    /// One in which nothing has changed yet.
    pub fn new(first: Expected) -> Timeline {
        Timeline {
            first,
            changes: Vec::new(),
        }
    }

    /// Adds a commit, later than all before.
    pub fn change(&mut self, (began, ended): (u64, u64), to: Expected) {
        if self.last() != to {
            self.changes.push(Change { began, ended, to });
        }
    }

    /// Adds a time in which either may happen, later than all before; then it is as it was.
    pub fn excuse(&mut self, (began, ended): (u64, u64)) {
        let to = self.last();
        self.changes.push(Change { began, ended, to });
    }

    /// What holds after the last commit.
    pub fn last(&self) -> Expected {
        self.changes.last().map_or(self.first, |it| it.to)
    }

    /// What holds at every moment from one to another.
    pub fn during(&self, from: u64, to: u64) -> Expected {
        let past = self.changes.partition_point(|it| it.ended <= from);
        let before = past.checked_sub(1).and_then(|it| self.changes.get(it));
        match self.changes.get(past) {
            Some(next) if next.began <= to => Expected::Either,
            _ => before.map_or(self.first, |it| it.to),
        }
    }
}

/// What happened to a flow's packets, which are numbered from 0.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// When each was about to be sent.
    pub sent: Vec<u64>,
    /// Which arrived, and when it was taken from the socket.
    pub arrived: Vec<(u32, u64)>,
    /// Whether some may have found no room in a socket, so that nothing follows from those that are missing.
    pub is_doubtful: bool,
}

/// What a log comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many packets were sent.
    pub sent: u64,
    /// How many arrived.
    pub arrived: u64,
    /// How many arrived although they were denied all along.
    pub leaked: u64,
    /// How many did not arrive although they were allowed all along.
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

/// When it is certain of each packet that it has arrived or was dropped. All packets of the one sender
/// go through the same queues, in order: when a later one is there, all earlier ones have been decided.
#[derive(Clone, Debug)]
pub struct Settled(Vec<(u64, u64)>);

/// Where no later packet arrives, what was not seen for so long, in nanoseconds, was dropped: on a busy
/// machine the kernel may leave packets in its queue for some time.
const PATIENCE: u64 = 100_000_000;

impl Settled {
    /// Of the logs of one sender.
    pub fn of(logs: &[Log]) -> Settled {
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
        Settled(all)
    }

    /// When a packet was decided at the latest.
    fn by(&self, sent: u64) -> u64 {
        let later = self.0.partition_point(|(it, _)| *it <= sent);
        let later = self.0.get(later).map_or(u64::MAX, |(_, at)| *at);
        later.min(sent + PATIENCE)
    }
}

/// So many packets are told of one by one.
const TOLD: usize = 5;

impl Log {
    /// The first packets that leaked, with the commits around them, in microseconds since each was sent.
    pub fn leaks(&self, expected: &Timeline, settled: &Settled) -> Vec<String> {
        let leaks = self.arrived.iter().filter_map(|(number, at)| {
            let sent = *self.sent.get(*number as usize)?;
            let by = settled.by(sent).min(*at);
            (expected.during(sent, by) == Expected::Denied).then_some((*number, sent, by, *at))
        });
        let told = leaks.take(TOLD).map(|(number, sent, by, at)| {
            let since = |time: u64| (time as f64 - sent as f64) / 1e3;
            let next = expected.changes.partition_point(|it| it.ended <= sent);
            let around = expected.changes.iter().skip(next.saturating_sub(2)).take(4);
            let around = around
                .map(|it| format!("{:.0}..{:.0} {:?}", since(it.began), since(it.ended), it.to));
            format!(
                "packet {number} arrived after {:.0} us, was decided by {:.0}; commits: {}",
                since(at),
                since(by),
                around.collect::<Vec<_>>().join(", ")
            )
        });
        told.collect()
    }

    /// Compares what happened with what should have.
    pub fn judge(&self, expected: &Timeline, settled: &Settled) -> Tally {
        let mut tally = Tally {
            sent: self.sent.len() as u64,
            ..Tally::default()
        };
        let mut seen = vec![false; self.sent.len()];
        for (number, at) in &self.arrived {
            let place = *number as usize;
            let (Some(seen), Some(sent)) = (seen.get_mut(place), self.sent.get(place)) else {
                continue;
            };
            if !*seen {
                *seen = true;
                tally.arrived += 1;
                let by = settled.by(*sent).min(*at);
                tally.leaked += u64::from(expected.during(*sent, by) == Expected::Denied);
            }
        }
        if self.is_doubtful {
            return tally;
        }
        let missing = self.sent.iter().zip(&seen).filter(|(_, seen)| !**seen);
        let is_lost = |sent: u64| expected.during(sent, settled.by(sent)) == Expected::Allowed;
        tally.lost = missing.filter(|(sent, _)| is_lost(**sent)).count() as u64;
        tally
    }
}

#[cfg(test)]
mod tests {
    use super::{Expected, Log, Settled, Tally, Timeline};

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
            is_doubtful: false,
        };
        let settled = Settled::of(std::slice::from_ref(&log));
        assert_eq!(
            log.judge(&timeline, &settled),
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
            is_doubtful: false,
        };
        let second = Log {
            sent: vec![95],
            arrived: vec![(0, 105)],
            is_doubtful: false,
        };
        let settled = Settled::of(&[first.clone(), second]);
        let mut timeline = Timeline::new(Expected::Denied);
        timeline.change((200, 210), Expected::Allowed);
        assert_eq!(first.judge(&timeline, &settled).leaked, 1);
        let mut timeline = Timeline::new(Expected::Allowed);
        timeline.change((200, 210), Expected::Denied);
        assert_eq!(first.judge(&timeline, &settled).lost, 1);
        timeline = Timeline::new(Expected::Allowed);
        timeline.change((100, 210), Expected::Denied);
        assert_eq!(first.judge(&timeline, &settled).lost, 0);
    }
}
