//! Latency of changes, from their arrival to the kernel's commit.
//!
//! Times are kept until the commit only: for objects that are in force nothing is stored.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::command::Latency;

/// The number of waiting pods that are timed. While the kernel refuses everything, pods may come
/// and go for hours.
const MOST_PODS: usize = 4_096;

/// The changes that wait, and those that a running command programs.
#[derive(Debug, Default)]
pub(crate) struct LatencyTracker {
    waiting: Batch,
    running: Batch,
}

#[derive(Debug, Default)]
struct Batch {
    /// The arrival of the first change.
    arrived: Option<Duration>,
    /// The change that was written first, according to its object.
    written: Option<ObservedWrite>,
    /// The arrival of the first change of each address of a local pod.
    pods: BTreeMap<IpAddr, Duration>,
}

/// The arrival of a change, and the time between its writing and its arrival.
#[derive(Clone, Copy, Debug)]
struct ObservedWrite {
    arrived: Duration,
    before: Duration,
}

impl ObservedWrite {
    /// Returns the one that was written first.
    fn first(self, other: ObservedWrite) -> ObservedWrite {
        // Compares `arrived - before`, without the subtraction: the clock may have started after
        // the writing.
        match self.arrived + other.before <= other.arrived + self.before {
            true => self,
            false => other,
        }
    }
}

impl Batch {
    fn note(&mut self, now: Duration) {
        let first = self.arrived.map_or(now, |it| it.min(now));
        self.arrived = Some(first);
    }

    fn written(&mut self, written: ObservedWrite) {
        let first = self.written.map_or(written, |it| it.first(written));
        self.written = Some(first);
    }

    fn pod(&mut self, address: IpAddr, now: Duration) {
        if self.pods.len() < MOST_PODS || self.pods.contains_key(&address) {
            let first = self.pods.entry(address).or_insert(now);
            *first = now.min(*first);
        }
    }

    /// Adds the changes of another batch.
    fn join(&mut self, other: Batch) {
        if let Some(arrived) = other.arrived {
            self.note(arrived);
        }
        if let Some(written) = other.written {
            self.written(written);
        }
        for (address, arrived) in other.pods {
            self.pod(address, arrived);
        }
    }
}

impl LatencyTracker {
    /// Records the arrival of a change.
    pub(crate) fn note(&mut self, now: Duration) {
        self.waiting.note(now);
    }

    /// Records how long before its arrival a change was written.
    pub(crate) fn written(&mut self, now: Duration, before: Duration) {
        let arrived = now;
        self.waiting.written(ObservedWrite { arrived, before });
    }

    /// Records the arrival of a pod of this node with this address, or of its change.
    pub(crate) fn pod(&mut self, address: IpAddr, now: Duration) {
        self.waiting.pod(address, now);
    }

    /// Returns the arrival of the first change that waits or is being programmed.
    pub(crate) fn since(&self) -> Option<Duration> {
        let all = [self.waiting.arrived, self.running.arrived];
        all.into_iter().flatten().min()
    }

    /// Drops the waiting changes: they do not affect this node.
    pub(crate) fn nothing(&mut self) {
        self.waiting = Batch::default();
    }

    /// Moves the waiting changes to the running command, and with them the pods that it programs.
    pub(crate) fn begin(&mut self, is_programmed: impl Fn(&IpAddr) -> bool) {
        let mut batch = std::mem::take(&mut self.waiting);
        batch.pods.retain(|address, _| is_programmed(address));
        // Pods that are not programmed are dropped: they do not concern this node's table any more.
        self.running.join(batch);
    }

    /// Records that the running command failed: its changes wait again, since their arrival.
    pub(crate) fn failed(&mut self) {
        let batch = std::mem::take(&mut self.running);
        self.waiting.join(batch);
    }

    /// Records that the running command succeeded. Returns the latency of its changes.
    pub(crate) fn done(&mut self, now: Duration) -> Latency {
        let batch = std::mem::take(&mut self.running);
        let since = |it: Duration| now.saturating_sub(it);
        Latency {
            arrived: batch.arrived.map_or(Duration::ZERO, since),
            written: batch.written.map(|it| since(it.arrived) + it.before),
            pods: batch.pods.into_values().map(since).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn ms(it: u64) -> Duration {
        Duration::from_millis(it)
    }

    fn pod(last: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
    }

    #[test]
    fn the_first_of_a_batch_counts() {
        let mut latencies = LatencyTracker::default();
        latencies.note(ms(100));
        latencies.written(ms(100), ms(50));
        latencies.note(ms(120));
        // Arrived later, but was written before the other, and before the clock started.
        latencies.written(ms(120), ms(5_000));
        latencies.begin(|_| true);
        let latency = latencies.done(ms(130));
        assert_eq!(latency.arrived, ms(30));
        assert_eq!(latency.written, Some(ms(5_010)));
        // Nothing is left of it.
        assert_eq!(latencies.done(ms(200)), Latency::default());
    }

    #[test]
    fn a_change_that_arrives_during_a_command_is_timed_separately() {
        let mut latencies = LatencyTracker::default();
        latencies.note(ms(10));
        latencies.begin(|_| true);
        latencies.note(ms(20));
        assert_eq!(latencies.done(ms(30)).arrived, ms(20));
        latencies.begin(|_| true);
        assert_eq!(latencies.done(ms(50)).arrived, ms(30));
    }

    #[test]
    fn a_failed_change_is_timed_from_its_arrival() {
        let mut latencies = LatencyTracker::default();
        latencies.note(ms(10));
        latencies.pod(pod(1), ms(10));
        latencies.begin(|_| true);
        latencies.failed();
        latencies.note(ms(40));
        latencies.begin(|_| true);
        let latency = latencies.done(ms(50));
        assert_eq!(latency.arrived, ms(40));
        assert_eq!(latency.pods, [ms(40)]);
    }

    #[test]
    fn only_programmed_pods_are_timed() {
        let mut latencies = LatencyTracker::default();
        latencies.pod(pod(1), ms(10));
        latencies.pod(pod(2), ms(20));
        latencies.pod(pod(2), ms(30));
        latencies.begin(|it| *it == pod(2));
        assert_eq!(latencies.done(ms(60)).pods, [ms(40)]);
        latencies.pod(pod(3), ms(70));
        latencies.nothing();
        latencies.begin(|_| true);
        assert!(latencies.done(ms(80)).pods.is_empty());
    }

    #[test]
    fn the_number_of_timed_pods_is_bounded() {
        let mut latencies = LatencyTracker::default();
        for number in 0..10_000_u32 {
            latencies.pod(IpAddr::V4(Ipv4Addr::from(number)), ms(1));
        }
        latencies.begin(|_| true);
        assert_eq!(latencies.done(ms(2)).pods.len(), MOST_PODS);
    }
}
