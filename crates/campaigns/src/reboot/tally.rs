//! Tallies the packets of a flow by the time they were sent.

/// The kind of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlowKind {
    /// The policies allow it.
    Allowed,
    /// The policies deny it.
    Denied,
    /// The policies deny it, but the connection was established before the first table. Replies of
    /// established connections pass until the agent has the policies; original packets do not.
    Established,
    /// A probe of the node to its own pod.
    Probe,
}

/// The times of events, in nanoseconds of one clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    /// The start of the agent.
    pub(super) started: u64,
    /// The first table.
    pub(super) table: u64,
    /// The return of the API server.
    pub(super) server_back: u64,
    /// The agent became ready.
    pub(super) ready: u64,
}

/// The counts of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Denied packets sent after the first table.
    pub(super) denied: u64,
    /// Those of them that arrived.
    pub(super) leaked: u64,
    /// Denied packets sent between the agent's start and its first table that arrived.
    pub(super) in_gap: u64,
    /// Allowed packets sent after the agent became ready.
    pub(super) allowed: u64,
    /// Those of them that did not arrive.
    pub(super) lost: u64,
    /// Allowed packets sent between the first table and the return of the server that arrived.
    pub(super) early: u64,
    /// Probes of the node.
    pub(super) probes: u64,
    /// Unanswered probes.
    pub(super) unanswered: u64,
}

impl Tally {
    /// Adds another tally.
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

/// Tallies the packets of a flow: the time each was sent, and whether it arrived or, for a probe,
/// was answered.
pub(super) fn tally_packets(
    kind: FlowKind,
    packets: impl Iterator<Item = (u64, bool)>,
    times: Times,
) -> Tally {
    let mut tally = Tally::default();
    for (sent, arrived) in packets {
        let arrived_count = u64::from(arrived);
        match kind {
            FlowKind::Denied | FlowKind::Established if sent >= times.table => {
                tally.denied += 1;
                tally.leaked += arrived_count;
            }
            FlowKind::Denied if sent >= times.started => tally.in_gap += arrived_count,
            FlowKind::Allowed if sent >= times.ready => {
                tally.allowed += 1;
                tally.lost += 1 - arrived_count;
            }
            FlowKind::Allowed if sent >= times.table && sent < times.server_back => {
                tally.early += arrived_count
            }
            FlowKind::Probe => {
                tally.probes += 1;
                tally.unanswered += 1 - arrived_count;
            }
            FlowKind::Denied | FlowKind::Allowed | FlowKind::Established => {}
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::{FlowKind, Tally, Times, tally_packets};

    const TIMES: Times = Times {
        started: 10,
        table: 20,
        server_back: 30,
        ready: 40,
    };

    fn tally_of(kind: FlowKind, packets: &[(u64, bool)]) -> Tally {
        tally_packets(kind, packets.iter().copied(), TIMES)
    }

    #[test]
    fn denied_packets_leak_from_the_first_table_on() {
        let tally = tally_of(
            FlowKind::Denied,
            &[(5, true), (15, true), (20, true), (25, false), (50, true)],
        );
        assert_eq!((tally.in_gap, tally.denied, tally.leaked), (1, 3, 2));
    }

    #[test]
    fn allowed_packets_are_lost_once_the_agent_is_ready() {
        let tally = tally_of(
            FlowKind::Allowed,
            &[(5, false), (25, true), (35, true), (40, false), (50, true)],
        );
        assert_eq!((tally.early, tally.allowed, tally.lost), (1, 2, 1));
    }

    #[test]
    fn what_had_begun_stops_with_the_first_table() {
        let tally = tally_of(
            FlowKind::Established,
            &[(15, true), (25, true), (45, false)],
        );
        assert_eq!((tally.in_gap, tally.denied, tally.leaked), (0, 2, 1));
    }

    #[test]
    fn every_probe_is_answered() {
        let tally = tally_of(FlowKind::Probe, &[(0, true), (15, false), (45, true)]);
        assert_eq!((tally.probes, tally.unanswered), (3, 1));
    }
}
