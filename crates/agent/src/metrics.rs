//! What the agent counts, for Prometheus. Names carry their units, and no label is unbounded.

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

/// One label.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
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

/// From a quarter of a millisecond to two minutes.
fn durations() -> Histogram {
    Histogram::new(exponential_buckets(0.000_25, 2.0, 20))
}

/// Everything that is counted.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    programming: Family<StageLabel, Histogram, fn() -> Histogram>,
    pod_programming: Histogram,
    transactions: Family<ResultLabel, Counter>,
    replacements: Family<ReasonLabel, Counter>,
    drift_repairs: Counter,
    forgotten_marks: Counter,
    generation: Gauge,
    objects: Family<KindLabel, Gauge>,
    kernel_objects: Family<TypeLabel, Gauge>,
    problems: Family<SeverityLabel, Gauge>,
    unread_objects: Gauge,
    outliving_policies: Gauge,
    over_budget_policies: Gauge,
    ready: Gauge,
    source_age: Gauge<f64, AtomicU64>,
    watch_ages: Family<KindLabel, Gauge<f64, AtomicU64>>,
    watch_events: Family<KindLabel, Counter>,
    watch_lists: Family<KindLabel, Counter>,
    watch_errors: Family<KindLabel, Counter>,
    senders_unchecked: Gauge,
    programs_unchecked: Gauge,
    bypasses: Gauge,
    unclosed: Gauge,
    listen_failures: Counter,
    conntrack_entries: Gauge,
    conntrack_max: Gauge,
    events: Family<ResultLabel, Counter>,
    process: Process,
}

impl Metrics {
    /// Nothing counted yet.
    pub fn new() -> Metrics {
        let mut registry = Registry::with_prefix("palisade");
        let programming = Family::new_with_constructor(durations as fn() -> Histogram);
        registry.register_with_unit(
            "policy_programming_duration",
            "From a change to the kernel's commit: since it was written, by the server's clock in whole seconds, and since it arrived",
            Unit::Seconds,
            programming.clone(),
        );
        let pod_programming = durations();
        registry.register_with_unit(
            "pod_programming_duration",
            "From the arrival of a pod of this node with an address to the kernel's commit",
            Unit::Seconds,
            pod_programming.clone(),
        );
        let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The version that runs", build);
        let metrics = Metrics {
            programming,
            pod_programming,
            events: Family::default(),
            process: Process::new(),
            transactions: Family::default(),
            replacements: Family::default(),
            drift_repairs: Counter::default(),
            forgotten_marks: Counter::default(),
            generation: Gauge::default(),
            objects: Family::default(),
            kernel_objects: Family::default(),
            problems: Family::default(),
            unread_objects: Gauge::default(),
            outliving_policies: Gauge::default(),
            over_budget_policies: Gauge::default(),
            ready: Gauge::default(),
            source_age: Gauge::default(),
            watch_ages: Family::default(),
            watch_events: Family::default(),
            watch_lists: Family::default(),
            watch_errors: Family::default(),
            senders_unchecked: Gauge::default(),
            programs_unchecked: Gauge::default(),
            bypasses: Gauge::default(),
            unclosed: Gauge::default(),
            listen_failures: Counter::default(),
            conntrack_entries: Gauge::default(),
            conntrack_max: Gauge::default(),
            registry: Registry::default(),
        };
        registry.register(
            "kernel_transactions",
            "Transactions of nftables, by what came of them",
            metrics.transactions.clone(),
        );
        registry.register(
            "table_replacements",
            "How often the whole table was put in place, by the reason",
            metrics.replacements.clone(),
        );
        registry.register(
            "drift_repairs",
            "How often somebody else had changed the table and it was put right",
            metrics.drift_repairs.clone(),
        );
        registry.register(
            "mark_sweeps",
            "How often the marks of old generations were forgotten",
            metrics.forgotten_marks.clone(),
        );
        registry.register(
            "generation",
            "The generation of the policies in the kernel",
            metrics.generation.clone(),
        );
        registry.register(
            "objects",
            "Objects that are known, by kind",
            metrics.objects.clone(),
        );
        registry.register(
            "kernel_objects",
            "What the kernel holds for this node, by type",
            metrics.kernel_objects.clone(),
        );
        registry.register(
            "problems",
            "Problems of the objects, by severity",
            metrics.problems.clone(),
        );
        registry.register(
            "unread_objects",
            "Objects of the API server that cannot be read, of which the last state that could be read is enforced",
            metrics.unread_objects.clone(),
        );
        registry.register(
            "outliving_policies",
            "NetworkPolicies that are gone and enforced until the last pod of their namespace is gone",
            metrics.outliving_policies.clone(),
        );
        registry.register(
            "over_budget_policies",
            "NetworkPolicies that do not fit into the budgets of their namespaces, isolate their pods and allow nothing",
            metrics.over_budget_policies.clone(),
        );
        registry.register(
            "ready",
            "1 while the kernel holds what the objects say",
            metrics.ready.clone(),
        );
        registry.register_with_unit(
            "source_last_event_age",
            "How long ago the source last said something",
            Unit::Seconds,
            metrics.source_age.clone(),
        );
        registry.register_with_unit(
            "watch_last_event_age",
            "How long ago the API server last said something of a kind",
            Unit::Seconds,
            metrics.watch_ages.clone(),
        );
        registry.register(
            "watch_events",
            "What the API server said of single objects, by kind",
            metrics.watch_events.clone(),
        );
        registry.register(
            "watch_lists",
            "How often the API server listed all objects, by kind",
            metrics.watch_lists.clone(),
        );
        registry.register(
            "watch_errors",
            "How often objects could not be read from the API server, by kind",
            metrics.watch_errors.clone(),
        );
        registry.register(
            "events",
            "Events of the node, by what became of them",
            metrics.events.clone(),
        );
        registry.register(
            "senders_unchecked",
            "Addresses of this node's pods from whose interface other addresses can be sent",
            metrics.senders_unchecked.clone(),
        );
        registry.register(
            "programs_unchecked",
            "1 while programs of eBPF that are attached by tcx would not be found on the way to this node's pods",
            metrics.programs_unchecked.clone(),
        );
        registry.register(
            "policies_bypassed",
            "Ways by which packets of this node's pods pass its policies by, or may",
            metrics.bypasses.clone(),
        );
        registry.register(
            "pods_unclosed",
            "1 while pods of this node are open that should be closed, since nobody says which addresses they have",
            metrics.unclosed.clone(),
        );
        registry.register(
            "listen_failures",
            "How often the address for health and metrics could not be had",
            metrics.listen_failures.clone(),
        );
        registry.register(
            "conntrack_entries",
            "Connections that the kernel tracks",
            metrics.conntrack_entries.clone(),
        );
        registry.register(
            "conntrack_max",
            "How many connections it can track: beyond, it drops new ones",
            metrics.conntrack_max.clone(),
        );
        Metrics {
            registry,
            ..metrics
        }
    }

    /// Counts something that happened.
    pub fn count(&self, happening: &SyncOutcome) {
        let result = |result, count: usize| {
            let counter = self.transactions.get_or_create(&ResultLabel { result });
            counter.inc_by(count as u64);
        };
        match happening {
            SyncOutcome::Installed {
                why, latency: took, ..
            } => {
                result("committed", 1);
                self.took(took);
                let reason = reason(*why);
                self.replacements
                    .get_or_create(&ReasonLabel { reason })
                    .inc();
            }
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
                self.took(took);
            }
            SyncOutcome::Drifted(_) => {
                self.drift_repairs.inc();
            }
            SyncOutcome::MarksCleared(_) | SyncOutcome::AddressesCleared(_) => {
                self.forgotten_marks.inc();
            }
            SyncOutcome::Failed { .. } => result("failed", 1),
            SyncOutcome::Unaffected | SyncOutcome::Verified => {}
        }
    }

    fn took(&self, took: &Latency) {
        let stages = [("arrived", Some(took.arrived)), ("written", took.written)];
        for (stage, took) in stages {
            if let Some(took) = took {
                let histogram = self.programming.get_or_create(&StageLabel { stage });
                histogram.observe(took.as_secs_f64());
            }
        }
        for took in &took.pods {
            self.pod_programming.observe(took.as_secs_f64());
        }
    }

    /// Counts an event of the node: `written`, `failed`, or `dropped` since too many waited.
    pub fn count_event(&self, result: &'static str) {
        self.events.get_or_create(&ResultLabel { result }).inc();
    }

    /// Counts that the address for those who ask could not be had.
    pub fn count_listen_failure(&self) {
        self.listen_failures.inc();
    }

    /// Notes what the process uses.
    pub fn note_usage(&self, usage: &Usage) {
        self.process.note(usage);
    }

    /// Notes how things are.
    pub fn note(&self, now: &State) {
        self.generation.set(now.generation.into());
        for (kind, count) in &now.objects {
            self.objects
                .get_or_create(&KindLabel { kind })
                .set(number(*count));
        }
        for (r#type, count) in &now.kernel_objects {
            let of = TypeLabel { r#type };
            self.kernel_objects.get_or_create(&of).set(number(*count));
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
            let of = KindLabel {
                kind: following.kind,
            };
            if let Some(age) = following.age {
                self.watch_ages.get_or_create(&of).set(age.as_secs_f64());
            }
            for (family, count) in [
                (&self.watch_events, following.events),
                (&self.watch_lists, following.lists),
                (&self.watch_errors, following.troubles),
            ] {
                let counter = family.get_or_create(&of);
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

    /// All of it, in the format of OpenMetrics.
    pub fn text(&self) -> String {
        let mut words = String::new();
        let encoded = text::encode_registry(&mut words, &self.registry)
            .and_then(|()| text::encode(&mut words, self.process.registry()));
        match encoded {
            Ok(()) => words,
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

/// How things are.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The generation in the kernel; 0: none is known.
    pub generation: u16,
    /// Objects by kind.
    pub objects: Vec<(&'static str, usize)>,
    /// Groups, bodies, addresses of pods.
    pub kernel_objects: Vec<(&'static str, usize)>,
    /// Errors in the objects.
    pub errors: usize,
    /// Objects that cannot be read.
    pub unread_objects: usize,
    /// NetworkPolicies that are gone and still enforced.
    pub outliving_policies: usize,
    /// NetworkPolicies that do not fit into the budgets of their namespaces.
    pub over_budget_policies: usize,
    /// Whether the kernel holds what the objects say.
    pub ready: bool,
    /// How long ago the source last said something.
    pub source_age: Duration,
    /// How the reading of each kind of a cluster goes.
    pub following: Vec<KindStatus>,
    /// Addresses of pods from whose interface other addresses can be sent.
    pub senders_unchecked: usize,
    /// Whether some programs of eBPF would not be found.
    pub programs_are_unseen: bool,
    /// Ways past the policies.
    pub bypasses: usize,
    /// Whether pods are open that should be closed.
    pub is_unclosed: bool,
    /// Connections that are tracked, and how many could be.
    pub conntrack: Option<(u32, u32)>,
}
