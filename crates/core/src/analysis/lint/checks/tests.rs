//! For each kind of finding small clusters that have it, and similar ones that do not.

mod addresses;
mod lockout;
mod names;
mod shape;

use super::{Code, FindingDetail, FindingTarget, find};
use crate::analysis::affect::Decider;
use crate::compile::compile;
use crate::fixture::{decider, selected};
use crate::labels::Selector;
use crate::model::{Cluster, Peer, PodSet};
use crate::policy::Verdict;

const NOTHING: [&str; 0] = [];
const METADATA_NAME: &str = "kubernetes.io/metadata.name";

/// Returns the findings with a code, each as its target, the deciders, the detail, and `(always)`
/// if it does not depend on the objects of the input.
#[track_caller]
fn findings(code: Code, cluster: &Cluster<'_>) -> Vec<String> {
    let program = compile(cluster);
    let mut findings = find(cluster, &program);
    findings.sort_by(|a, b| (a.at, &a.by).cmp(&(b.at, &b.by)));
    let found = findings.iter().filter(|it| it.code == code).map(|it| {
        if let Some(witness) = &it.witness {
            let decision = program.decide(&witness.flow);
            assert_eq!(decision.verdict(), Verdict::Deny, "{it:?}");
        }
        let by = it
            .by
            .iter()
            .map(|it| format!(" by {}", decider(cluster, *it)));
        let by: String = by.collect();
        let always = if it.always { " (always)" } else { "" };
        let detail = match &it.detail {
            FindingDetail::Nothing => String::new(),
            FindingDetail::Text(text) => format!(": {text}"),
            FindingDetail::Typo { wrong, right } => format!(": {wrong} -> {right}"),
            FindingDetail::Share(some, all) => format!(": {some} of {all}"),
            FindingDetail::Others(others) => {
                let others = others.iter().map(|it| target(cluster, *it));
                format!(": with {}", others.collect::<Vec<_>>().join(", "))
            }
        };
        format!("{}{by}{detail}{always}", target(cluster, it.at))
    });
    found.collect()
}

fn target(cluster: &Cluster<'_>, target: FindingTarget) -> String {
    let rule = |place| decider(cluster, Decider::Rule(place));
    match target {
        FindingTarget::Policy(policy) => cluster.policy_name(policy),
        FindingTarget::Subject(policy) => format!("{}#subject", cluster.policy_name(policy)),
        FindingTarget::Rule(place) => rule(place),
        FindingTarget::Peer(place, index) => format!("{}.peer[{index}]", rule(place)),
        FindingTarget::Port(place, index) => format!("{}.port[{index}]", rule(place)),
        FindingTarget::Namespace(id) => format!("ns/{}", cluster.namespace_name(id)),
        FindingTarget::Pod(id) => cluster.pod_name(id),
        FindingTarget::Service(id) => cluster.service_name(id),
    }
}

/// Returns the pods of namespaces with some labels as a peer.
fn pods_of_selected(namespaces: Selector<&'static str>) -> Peer<'static> {
    Peer::Pods(PodSet {
        namespaces: selected(namespaces),
        pods: None,
    })
}
