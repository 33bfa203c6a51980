//! Alerts and dashboard ask for metrics that the agent has, with labels that those have.

use std::collections::BTreeSet;
use std::time::Duration;

use palisade_agent::cluster::KindStatus;
use palisade_agent::metrics::{EventResult, Metrics, State};
use palisade_agent::process::Usage;
use palisade_agent::{Latency, ReplaceReason, SyncOutcome};
use serde_json::Value;

use crate::objects::documents;
use crate::{Test, read};

pub(crate) const TESTS: [Test; 3] = [
    ("alerts_ask_for_metrics_that_exist", alerts),
    ("the_dashboard_asks_for_metrics_that_exist", dashboard),
    ("operating_names_every_alert", operating_names_every_alert),
];

/// The names of all samples that the agent serves.
fn samples() -> BTreeSet<String> {
    let metrics = Metrics::new();
    // A metric with labels has no sample before it has counted something.
    metrics.count(&SyncOutcome::Installed {
        why: ReplaceReason::Start,
        generation: 1,
        latency: Latency {
            written: Some(Duration::ZERO),
            ..Latency::default()
        },
    });
    metrics.note(&State {
        objects: vec![("pod", 1)],
        kernel_objects: vec![("group", 1)],
        following: vec![KindStatus {
            kind: "pod",
            age: Some(Duration::ZERO),
            lists: 1,
            events: 1,
            troubles: 1,
        }],
        conntrack: Some((1, 2)),
        ..State::default()
    });
    metrics.count_event(EventResult::Written);
    metrics.note_usage(&Usage::default());
    let text = metrics.text();
    let names = text.lines().filter(|line| !line.starts_with('#'));
    let names = names.filter_map(|line| line.split([' ', '{']).next());
    names.map(str::to_owned).collect()
}

/// Every name of ours in an expression exists.
#[track_caller]
fn check(expression: &str, samples: &BTreeSet<String>, used: &mut BTreeSet<String>) {
    let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let ours = |it: &&str| it.starts_with("palisade_") || it.starts_with("process_");
    for word in words.filter(ours) {
        assert!(samples.contains(word), "{word} is no metric: {expression}");
        used.insert(word.to_owned());
    }
}

/// The rules of the alerts.
fn rules() -> Vec<Value> {
    let alerts = documents(&read("deploy/monitoring/alerts.yaml"));
    assert_eq!(alerts.len(), 1);
    let groups = alerts[0]["groups"].as_array().unwrap().iter();
    groups
        .flat_map(|it| it["rules"].as_array().unwrap().clone())
        .collect()
}

fn alerts() {
    let (samples, mut used) = (samples(), BTreeSet::new());
    for rule in rules() {
        check(rule["expr"].as_str().unwrap(), &samples, &mut used);
        for word in ["summary", "description"] {
            let text = rule["annotations"][word].as_str().unwrap();
            assert!(text.len() > 20, "{rule}");
        }
        let severity = rule["labels"]["severity"].as_str().unwrap();
        assert!(["critical", "warning"].contains(&severity), "{rule}");
    }
    assert!(used.contains("palisade_ready"), "{used:?}");
    assert!(used.len() >= 7, "{used:?}");
}

fn dashboard() {
    let (samples, mut used) = (samples(), BTreeSet::new());
    let dashboard: Value = serde_json::from_str(&read("deploy/monitoring/dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    for panel in panels {
        for target in panel["targets"].as_array().unwrap() {
            check(target["expr"].as_str().unwrap(), &samples, &mut used);
        }
    }
    // Whatever is counted can be seen.
    let family = |name: &String| {
        let name = ["_bucket", "_sum", "_count"]
            .iter()
            .fold(name.as_str(), |name, end| {
                name.strip_suffix(end).unwrap_or(name)
            });
        name.to_owned()
    };
    let shown: BTreeSet<String> = used.iter().map(family).collect();
    let all: BTreeSet<String> = samples.iter().map(family).collect();
    let hidden: Vec<&String> = all.difference(&shown).collect();
    assert!(hidden.is_empty(), "not on the dashboard: {hidden:?}");
}

fn operating_names_every_alert() {
    let page = read("docs/operations/operate.md");
    for rule in rules() {
        let name = rule["alert"].as_str().unwrap();
        assert!(
            page.contains(&format!("`{name}`")),
            "docs/operations/operate.md does not name {name}"
        );
    }
}
