//! What of a flow may arrive, by when it was sent.

/// What the policies say of a flow, or who sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The policies allow it.
    Allowed,
    /// The policies deny it.
    Denied,
    /// The policies deny it, and both ends have talked before any table was there: answers of established connections pass
    /// until the policies are known, and what they answer does not.
    Begun,
    /// The node asks its own pod, which answers.
    Probe,
}

/// When things happened, in nanoseconds of one clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    /// The agent was started.
    pub(super) started: u64,
    /// The first table was seen.
    pub(super) table: u64,
    /// The server answers again.
    pub(super) back: u64,
    /// The agent was ready.
    pub(super) ready: u64,
}

/// What became of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Denied packets that were sent after the first table.
    pub(super) denied: u64,
    /// Those of them that arrived.
    pub(super) leaked: u64,
    /// Denied packets that were sent after the agent's start and before its first table, and arrived.
    pub(super) in_gap: u64,
    /// Allowed packets that were sent when the agent was ready.
    pub(super) allowed: u64,
    /// Those of them that did not arrive.
    pub(super) lost: u64,
    /// Allowed packets that arrived although they were sent between the first table and the return of the server.
    pub(super) early: u64,
    /// What the node asked its pods.
    pub(super) probes: u64,
    /// What was not answered.
    pub(super) unanswered: u64,
}

impl Tally {
    /// Adds another.
    pub(super) fn add(&mut self, other: Tally) {
        self.denied += other.denied;
        self.leaked += other.leaked;
        self.in_gap += other.in_gap;
        self.allowed += other.allowed;
        self.lost += other.lost;
        self.early += other.early;
        self.probes += other.probes;
        self.unanswered += other.unanswered;
    }
}

/// Judges the packets of a flow: when each was sent, and whether it arrived or, of a probe, was answered.
pub(super) fn judge(kind: Kind, packets: impl Iterator<Item = (u64, bool)>, times: Times) -> Tally {
    let mut tally = Tally::default();
    for (sent, arrived) in packets {
        let came = u64::from(arrived);
        match kind {
            Kind::Denied | Kind::Begun if sent >= times.table => {
                tally.denied += 1;
                tally.leaked += came;
            }
            Kind::Denied if sent >= times.started => tally.in_gap += came,
            Kind::Allowed if sent >= times.ready => {
                tally.allowed += 1;
                tally.lost += 1 - came;
            }
            Kind::Allowed if sent >= times.table && sent < times.back => tally.early += came,
            Kind::Probe => {
                tally.probes += 1;
                tally.unanswered += 1 - came;
            }
            Kind::Denied | Kind::Allowed | Kind::Begun => {}
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::{Kind, Tally, Times, judge};

    const TIMES: Times = Times {
        started: 10,
        table: 20,
        back: 30,
        ready: 40,
    };

    fn judged(kind: Kind, packets: &[(u64, bool)]) -> Tally {
        judge(kind, packets.iter().copied(), TIMES)
    }

    #[test]
    fn denied_packets_leak_from_the_first_table_on() {
        let tally = judged(
            Kind::Denied,
            &[(5, true), (15, true), (20, true), (25, false), (50, true)],
        );
        assert_eq!((tally.in_gap, tally.denied, tally.leaked), (1, 3, 2));
    }

    #[test]
    fn allowed_packets_are_lost_once_the_agent_is_ready() {
        let tally = judged(
            Kind::Allowed,
            &[(5, false), (25, true), (35, true), (40, false), (50, true)],
        );
        assert_eq!((tally.early, tally.allowed, tally.lost), (1, 2, 1));
    }

    #[test]
    fn what_had_begun_stops_with_the_first_table() {
        let tally = judged(Kind::Begun, &[(15, true), (25, true), (45, false)]);
        assert_eq!((tally.in_gap, tally.denied, tally.leaked), (0, 2, 1));
    }

    #[test]
    fn every_probe_is_answered() {
        let tally = judged(Kind::Probe, &[(0, true), (15, false), (45, true)]);
        assert_eq!((tally.probes, tally.unanswered), (3, 1));
    }
}
