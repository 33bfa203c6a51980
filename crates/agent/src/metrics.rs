//! The metrics of the agent, for Prometheus. Names carry their units, and no label is unbounded.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::cluster::KindStatus;
use crate::command::{Latency, ReplaceReason, SyncOutcome};
use crate::process::{Process, Usage};

/// The label `result`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// What became of an Event of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventResult {
    /// The API server has it.
    Written,
    /// The API server refused it, or did not answer.
    Failed,
    /// Too many Events were waiting.
    Dropped,
}

impl EventResult {
    fn label(self) -> &'static str {
        match self {
            EventResult::Written => "written",
            EventResult::Failed => "failed",
            EventResult::Dropped => "dropped",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TypeLabel {
    r#type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SeverityLabel {
    severity: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StageLabel {
    stage: &'static str,
}

/// Creates a histogram from a quarter of a millisecond to two minutes.
fn durations() -> Histogram {
    Histogram::new(exponential_buckets(0.000_25, 2.0, 20))
}

/// Defines [`Metrics`] by a table: a field, its type, its name in the output without prefix and
/// suffix, its unit if it has one, its help, and how to create it if it has no default. The order
/// is that of the output.
macro_rules! metrics {
    ($($field:ident: $type:ty = $name:literal $(in $unit:ident)?, $help:literal $(, $new:expr)?;)*) => {
        /// All metrics of the agent.
        #[derive(Debug)]
        pub struct Metrics {
            registry: Registry,
            process: Process,
            $($field: $type,)*
        }

        impl Metrics {
            /// Creates and registers all metrics.
            pub fn new() -> Metrics {
                let mut registry = Registry::with_prefix("palisade");
                let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
                registry.register("build", "The running version", build);
                $(
                    let $field: $type = metrics!(@new $($new)?);
                    metrics!(@register registry, $name, $help, $field.clone() $(, $unit)?);
                )*
                Metrics {
                    registry,
                    process: Process::new(),
                    $($field,)*
                }
            }
        }
    };
    (@new) => { Default::default() };
    (@new $new:expr) => { $new };
    (@register $registry:ident, $name:literal, $help:literal, $metric:expr) => {
        $registry.register($name, $help, $metric)
    };
    (@register $registry:ident, $name:literal, $help:literal, $metric:expr, $unit:ident) => {
        $registry.register_with_unit($name, $help, Unit::$unit, $metric)
    };
}

metrics! {
    programming: Family<StageLabel, Histogram, fn() -> Histogram> =
        "policy_programming_duration" in Seconds,
        "Time from a change to its commit in the kernel; stage arrived: since it reached the agent; written: since the API server's timestamp, in whole seconds",
        Family::new_with_constructor(durations as fn() -> Histogram);
    pod_programming: Histogram = "pod_programming_duration" in Seconds,
        "Time from the arrival of a pod of this node with an address to its commit in the kernel",
        durations();
    transactions: Family<ResultLabel, Counter> = "kernel_transactions",
        "Transactions of nftables, by result";
    replacements: Family<ReasonLabel, Counter> = "table_replacements",
        "Installations of the whole table, by reason";
    drift_repairs: Counter = "drift_repairs",
        "Restorations of the table after a change by another program";
    cleared_marks: Counter = "mark_sweeps", "Clearings of stale connection marks";
    generation: Gauge = "generation", "The generation of the policies in the kernel";
    objects: Family<KindLabel, Gauge> = "objects", "Known objects, by kind";
    kernel_objects: Family<TypeLabel, Gauge> = "kernel_objects",
        "Objects of this node in the kernel, by type";
    problems: Family<SeverityLabel, Gauge> = "problems",
        "Problems in the objects, by severity";
    unread_objects: Gauge = "unread_objects",
        "Unreadable objects of the API server; their last readable state stays enforced";
    outliving_policies: Gauge = "outliving_policies",
        "Deleted NetworkPolicies that stay enforced until the last pod of their namespace is gone";
    over_budget_policies: Gauge = "over_budget_policies",
        "NetworkPolicies over the budget of their namespace, which isolate their pods and allow nothing";
    ready: Gauge = "ready",
        "1 while the agent is ready, 0 otherwise; /readyz has the reasons";
    source_age: Gauge<f64, AtomicU64> = "source_last_event_age" in Seconds,
        "Time since the last event of the source";
    watch_ages: Family<KindLabel, Gauge<f64, AtomicU64>> = "watch_last_event_age" in Seconds,
        "Time since the last event of a kind from the API server";
    watch_events: Family<KindLabel, Counter> = "watch_events",
        "Watch events of single objects, by kind";
    watch_lists: Family<KindLabel, Counter> = "watch_lists",
        "Lists of all objects from the API server, by kind";
    watch_errors: Family<KindLabel, Counter> = "watch_errors",
        "Failures to read objects from the API server, by kind";
    events: Family<ResultLabel, Counter> = "events", "Events of the node, by result";
    senders_unchecked: Gauge = "senders_unchecked",
        "Addresses of this node's pods whose interface can send with other source addresses";
    programs_unchecked: Gauge = "programs_unchecked",
        "1 while the agent cannot find eBPF programs attached by tcx on the path to this node's pods";
    bypasses: Gauge = "policies_bypassed",
        "Paths on which packets of this node's pods bypass its policies, or may";
    unclosed: Gauge = "pods_unclosed",
        "1 while pods of this node are open although they must be closed; their addresses are unknown";
    listen_failures: Counter = "listen_failures",
        "Failures to listen on the address for health and metrics";
    conntrack_entries: Gauge = "conntrack_entries", "Connections tracked by the kernel";
    conntrack_max: Gauge = "conntrack_max",
        "Limit of tracked connections; beyond it the kernel drops new ones";
}

impl Metrics {
    /// Counts an outcome.
    pub fn count(&self, outcome: &SyncOutcome) {
        let result = |result, count: usize| {
            let counter = self.transactions.get_or_create(&ResultLabel { result });
            counter.inc_by(count as u64);
        };
        match outcome {
            SyncOutcome::Installed { why, latency, .. } => {
                result("committed", 1);
                self.observe(latency);
                let reason = reason(*why);
                self.replacements
                    .get_or_create(&ReasonLabel { reason })
                    .inc();
            }
            // An installation, too, although no `ReplaceReason` is for it.
            SyncOutcome::Closed => {
                result("committed", 1);
                let reason = "boot";
                self.replacements
                    .get_or_create(&ReasonLabel { reason })
                    .inc();
            }
            SyncOutcome::Changed {
                transactions, took, ..
            } => {
                result("committed", *transactions);
                self.observe(took);
            }
            SyncOutcome::Drifted(_) => {
                self.drift_repairs.inc();
            }
            SyncOutcome::MarksCleared(_) | SyncOutcome::AddressesCleared(_) => {
                self.cleared_marks.inc();
            }
            SyncOutcome::Failed { what, .. } if what.is_change() => result("failed", 1),
            // An audit only reads: the alert on this counter is for refused changes.
            SyncOutcome::Failed { .. } | SyncOutcome::Unaffected | SyncOutcome::Verified => {}
        }
    }

    fn observe(&self, latency: &Latency) {
        let stages = [
            ("arrived", Some(latency.arrived)),
            ("written", latency.written),
        ];
        for (stage, duration) in stages {
            if let Some(duration) = duration {
                let histogram = self.programming.get_or_create(&StageLabel { stage });
                histogram.observe(duration.as_secs_f64());
            }
        }
        for duration in &latency.pods {
            self.pod_programming.observe(duration.as_secs_f64());
        }
    }

    /// Counts an Event of the node.
    pub fn count_event(&self, result: EventResult) {
        let result = result.label();
        self.events.get_or_create(&ResultLabel { result }).inc();
    }

    /// Counts a failure to listen on the address for health and metrics.
    pub fn count_listen_failure(&self) {
        self.listen_failures.inc();
    }

    /// Sets the metrics of the process.
    pub fn note_usage(&self, usage: &Usage) {
        self.process.note(usage);
    }

    /// Sets the gauges, and brings the counters of the watches up to date.
    pub fn note(&self, now: &State) {
        self.generation.set(now.generation.into());
        for (kind, count) in &now.objects {
            self.objects
                .get_or_create(&KindLabel { kind })
                .set(number(*count));
        }
        for (r#type, count) in &now.kernel_objects {
            let label = TypeLabel { r#type };
            self.kernel_objects
                .get_or_create(&label)
                .set(number(*count));
        }
        let severity = "error";
        let errors = self.problems.get_or_create(&SeverityLabel { severity });
        errors.set(number(now.errors));
        self.unread_objects.set(number(now.unread_objects));
        self.outliving_policies.set(number(now.outliving_policies));
        self.over_budget_policies
            .set(number(now.over_budget_policies));
        self.ready.set(now.ready.into());
        self.source_age.set(now.source_age.as_secs_f64());
        for following in &now.following {
            let label = KindLabel {
                kind: following.kind,
            };
            if let Some(age) = following.age {
                self.watch_ages.get_or_create(&label).set(age.as_secs_f64());
            }
            for (family, count) in [
                (&self.watch_events, following.events),
                (&self.watch_lists, following.lists),
                (&self.watch_errors, following.troubles),
            ] {
                // The totals are counted elsewhere, and counters can only be increased.
                let counter = family.get_or_create(&label);
                counter.inc_by(count.saturating_sub(counter.get()));
            }
        }
        self.senders_unchecked.set(number(now.senders_unchecked));
        self.programs_unchecked.set(now.programs_are_unseen.into());
        self.bypasses.set(number(now.bypasses));
        self.unclosed.set(now.is_unclosed.into());
        if let Some((entries, max)) = now.conntrack {
            self.conntrack_entries.set(entries.into());
            self.conntrack_max.set(max.into());
        }
    }

    /// Returns all metrics in the OpenMetrics format.
    pub fn text(&self) -> String {
        let mut body = String::new();
        let encoded = text::encode_registry(&mut body, &self.registry)
            .and_then(|()| text::encode(&mut body, self.process.registry()));
        match encoded {
            Ok(()) => body,
            // Writing into a string does not fail.
            Err(_) => String::new(),
        }
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn reason(why: ReplaceReason) -> &'static str {
    match why {
        ReplaceReason::Start => "start",
        ReplaceReason::Requested => "asked",
        ReplaceReason::Drift => "drift",
        ReplaceReason::Failure => "failure",
        ReplaceReason::Growth => "growth",
        ReplaceReason::Settings => "settings",
    }
}

/// A snapshot of the agent's state, for the gauges.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The generation in the kernel; 0: unknown.
    pub generation: u16,
    /// Objects by kind.
    pub objects: Vec<(&'static str, usize)>,
    /// Groups, rule chains and addresses of pods in the kernel.
    pub kernel_objects: Vec<(&'static str, usize)>,
    /// Errors in the objects.
    pub errors: usize,
    /// Unreadable objects.
    pub unread_objects: usize,
    /// Deleted NetworkPolicies that are still enforced.
    pub outliving_policies: usize,
    /// NetworkPolicies over the budget of their namespace.
    pub over_budget_policies: usize,
    /// Whether the agent is ready.
    pub ready: bool,
    /// The time since the last event of the source.
    pub source_age: Duration,
    /// The status of each watch of a cluster.
    pub following: Vec<KindStatus>,
    /// Addresses of pods whose interface can send with other source addresses.
    pub senders_unchecked: usize,
    /// Whether some eBPF programs cannot be found.
    pub programs_are_unseen: bool,
    /// The number of paths that bypass the policies, or may.
    pub bypasses: usize,
    /// Whether pods are open that must be closed.
    pub is_unclosed: bool,
    /// The number of tracked connections, and its limit.
    pub conntrack: Option<(u32, u32)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::FailedAction;

    #[test]
    fn a_failed_audit_is_no_failed_transaction() {
        let metrics = Metrics::new();
        let failed = |what| SyncOutcome::Failed {
            what,
            why: "no".to_owned(),
            again_in: Duration::ZERO,
            times: 1,
        };
        for what in [
            FailedAction::Audit,
            FailedAction::Update,
            FailedAction::ClearMarks,
        ] {
            metrics.count(&failed(what));
        }
        let text = metrics.text();
        let line = "palisade_kernel_transactions_total{result=\"failed\"} 2";
        assert!(text.lines().any(|it| it == line), "{text}");
    }
}
