//! How long changes wait until the kernel holds them.
//!
//! Times are kept from the arrival of a change to its commit, and no longer: of objects that are in force nothing is kept.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::command::Latency;

/// So many pods that wait are timed. While the kernel refuses everything, pods may come and go for hours.
const MOST_PODS: usize = 4_096;

/// What waits, and what is just being carried out.
#[derive(Debug, Default)]
pub(crate) struct LatencyTracker {
    waiting: Batch,
    running: Batch,
}

#[derive(Debug, Default)]
struct Batch {
    /// When the first change came.
    arrived: Option<Duration>,
    /// The change that was written first.
    written: Option<ObservedWrite>,
    /// When the first change of each address of a local pod came.
    pods: BTreeMap<IpAddr, Duration>,
}

/// A change that was written some time before it came.
#[derive(Clone, Copy, Debug)]
struct ObservedWrite {
    arrived: Duration,
    before: Duration,
}

impl ObservedWrite {
    /// The one of two that was written first. The clock may have started later than that.
    fn first(self, other: ObservedWrite) -> ObservedWrite {
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

    /// What another batch has is in this one, too.
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
    /// That a change came.
    pub(crate) fn note(&mut self, now: Duration) {
        self.waiting.note(now);
    }

    /// That the change that came was written so long before.
    pub(crate) fn written(&mut self, now: Duration, before: Duration) {
        let arrived = now;
        self.waiting.written(ObservedWrite { arrived, before });
    }

    /// That a pod of this node came, or changed, that has this address.
    pub(crate) fn pod(&mut self, address: IpAddr, now: Duration) {
        self.waiting.pod(address, now);
    }

    /// Since when the first change waits, or is being carried out.
    pub(crate) fn since(&self) -> Option<Duration> {
        let all = [self.waiting.arrived, self.running.arrived];
        all.into_iter().flatten().min()
    }

    /// That nothing of what waits has to be done.
    pub(crate) fn nothing(&mut self) {
        self.waiting = Batch::default();
    }

    /// That what waits is carried out now; of the pods those that this is true of.
    pub(crate) fn begin(&mut self, is_programmed: impl Fn(&IpAddr) -> bool) {
        let mut batch = std::mem::take(&mut self.waiting);
        batch.pods.retain(|address, _| is_programmed(address));
        self.running.join(batch);
    }

    /// That it was not done: it waits on.
    pub(crate) fn failed(&mut self) {
        let batch = std::mem::take(&mut self.running);
        self.waiting.join(batch);
    }

    /// That it was done; how long it took.
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
        let mut waits = LatencyTracker::default();
        waits.note(ms(100));
        waits.written(ms(100), ms(50));
        waits.note(ms(120));
        // Came later, but was written before the other, and before the clock started.
        waits.written(ms(120), ms(5_000));
        waits.begin(|_| true);
        let took = waits.done(ms(130));
        assert_eq!(took.arrived, ms(30));
        assert_eq!(took.written, Some(ms(5_010)));
        // Nothing is left of it.
        assert_eq!(waits.done(ms(200)), Latency::default());
    }

    #[test]
    fn what_comes_while_another_is_carried_out_waits_for_itself() {
        let mut waits = LatencyTracker::default();
        waits.note(ms(10));
        waits.begin(|_| true);
        waits.note(ms(20));
        assert_eq!(waits.done(ms(30)).arrived, ms(20));
        waits.begin(|_| true);
        assert_eq!(waits.done(ms(50)).arrived, ms(30));
    }

    #[test]
    fn what_failed_waits_on() {
        let mut waits = LatencyTracker::default();
        waits.note(ms(10));
        waits.pod(pod(1), ms(10));
        waits.begin(|_| true);
        waits.failed();
        waits.note(ms(40));
        waits.begin(|_| true);
        let took = waits.done(ms(50));
        assert_eq!(took.arrived, ms(40));
        assert_eq!(took.pods, [ms(40)]);
    }

    #[test]
    fn pods_count_that_are_programmed() {
        let mut waits = LatencyTracker::default();
        waits.pod(pod(1), ms(10));
        waits.pod(pod(2), ms(20));
        waits.pod(pod(2), ms(30));
        waits.begin(|it| *it == pod(2));
        assert_eq!(waits.done(ms(60)).pods, [ms(40)]);
        waits.pod(pod(3), ms(70));
        waits.nothing();
        waits.begin(|_| true);
        assert!(waits.done(ms(80)).pods.is_empty());
    }

    #[test]
    fn only_so_many_pods_are_timed() {
        let mut waits = LatencyTracker::default();
        for number in 0..10_000_u32 {
            waits.pod(IpAddr::V4(Ipv4Addr::from(number)), ms(1));
        }
        waits.begin(|_| true);
        assert_eq!(waits.done(ms(2)).pods.len(), MOST_PODS);
    }
}
