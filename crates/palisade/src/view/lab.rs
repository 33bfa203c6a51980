//! The documents of `lab`.

use serde::Serialize;

use super::API_VERSION;
use super::flow::FlowView;
use super::unread::OtherPolicyView;
use crate::report::lab::{Probe, Round, RoundChange};

/// The report of a lab.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LabReportView<'p> {
    api_version: &'static str,
    kind: &'static str,
    probes: Vec<ProbeView<'p>>,
    differences: usize,
    /// The difference from the previous report.
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<ChangeView<'p>>,
    #[serde(rename = "notJudged", skip_serializing_if = "Vec::is_empty")]
    other_policies: Vec<OtherPolicyView>,
}

impl<'p> LabReportView<'p> {
    pub(crate) fn new(round: &'p Round, change: Option<&'p RoundChange>) -> LabReportView<'p> {
        LabReportView {
            api_version: API_VERSION,
            kind: "LabReport",
            probes: round.probes.iter().map(ProbeView::new).collect(),
            differences: round.n_differences(),
            change: change.map(ChangeView::new),
            other_policies: OtherPolicyView::all(&round.other_policies),
        }
    }
}

/// The changes since the previous report, and their effect.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ChangeView<'p> {
    /// New files, and files with new content.
    changed: &'p [String],
    /// Removed files.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    gone: &'p [String],
    /// Whether the lab was rebuilt because more than policies changed.
    rebuilt: bool,
    opened: usize,
    closed: usize,
    /// Flows that the previous round did not measure.
    new_flows: usize,
    /// Flows that only the previous round measured.
    old_flows: usize,
}

impl<'p> ChangeView<'p> {
    fn new(change: &'p RoundChange) -> ChangeView<'p> {
        ChangeView {
            changed: &change.files.changed,
            gone: &change.files.removed,
            rebuilt: change.rebuilt,
            opened: change.opened,
            closed: change.closed,
            new_flows: change.new_flows,
            old_flows: change.old_flows,
        }
    }
}

/// A flow, its predicted verdict, and its measured verdict.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProbeView<'p> {
    flow: FlowView,
    predicted: &'static str,
    /// Absent if not measurable with packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<&'static str>,
    /// Why it could not be evaluated or measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'p str>,
    /// Whether a packet arrived and its reply did not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unanswered: bool,
}

impl<'p> ProbeView<'p> {
    pub(crate) fn new(probe: &'p Probe) -> ProbeView<'p> {
        ProbeView {
            flow: probe.flow.clone().into(),
            predicted: probe.predicted.name(),
            measured: probe.measured.map(|it| it.name()),
            error: probe.error.as_deref(),
            unanswered: probe.unanswered,
        }
    }
}
