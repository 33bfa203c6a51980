//! Workloads: objects that create pods, and represent them before they exist.

use std::borrow::Cow;

use crate::decode::{Decode, Readable};
use crate::fields::Fields;
use crate::path::At;
use crate::pod::{PodTemplate, pod_template};
use crate::selector::{Selector, selector};

/// A Deployment, StatefulSet, DaemonSet, ReplicaSet, ReplicationController, Job or CronJob.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload<'a> {
    /// The number of replicas, if it is set.
    pub replicas: Option<i64>,
    /// The selector of its pods, besides those with an owner reference to it.
    pub selector: Option<Selector<'a>>,
    /// The template of its pods.
    pub template: PodTemplate<'a>,
}

/// The kinds, by the place of their fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkloadKind {
    /// `selector` is a label selector.
    Selecting,
    /// `selector` is a bare map.
    ReplicationController,
    /// The template is in `jobTemplate.spec`.
    CronJob,
}

const SPEC: Fields = Fields::open(&["replicas", "selector", "template"]);
const CRON_JOB: Fields = Fields::open(&["jobTemplate"]);
const JOB_TEMPLATE: Fields = Fields::open(&["spec"]);

/// Reads `spec`.
pub(crate) fn spec<'a>(
    d: &mut Decode<'a, '_>,
    at: &At<'_>,
    kind: WorkloadKind,
) -> Readable<Workload<'a>> {
    let mut workload = Workload::default();
    if kind == WorkloadKind::CronJob {
        d.object(at, CRON_JOB, |d, _, at| {
            drop(d.object(at, JOB_TEMPLATE, |d, _, at| {
                workload = spec(d, at, WorkloadKind::Selecting).unwrap_or_default();
            }));
        })?;
        return Ok(workload);
    }
    d.object(at, SPEC, |d, name, at| match name {
        "replicas" => {
            workload.replicas = d
                .integer_in(at, 0..=i64::from(i32::MAX))
                .ok()
                .map(|(replicas, _)| replicas);
        }
        "template" => workload.template = pod_template(d, at).unwrap_or_default(),
        _ if kind == WorkloadKind::ReplicationController => {
            workload.selector = bare_selector(d, at).ok();
        }
        _ => workload.selector = selector(d, at).ok(),
    })?;
    Ok(workload)
}

/// A selector that is a map of labels, as Services and ReplicationControllers have it.
pub(crate) fn bare_selector<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Readable<Selector<'a>> {
    use palisade_core::labels::{Operator, Requirement};
    let labels: Vec<(Cow<'a, str>, Cow<'a, str>)> = crate::metadata::labels(d, at)?;
    let require = |(key, value)| Requirement {
        key,
        operator: Operator::In,
        values: vec![value],
    };
    Ok(Selector {
        requirements: labels.into_iter().map(require).collect(),
    })
}
