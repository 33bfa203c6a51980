//! What a lab measured, as JSON.

use serde::Serialize;

use super::API_VERSION;
use super::explanation::FlowView;

/// The report of a lab.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LabReportView<'p> {
    api_version: &'static str,
    kind: &'static str,
    probes: &'p [ProbeView],
    differences: usize,
    /// What is different from the report before.
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<ChangeView<'p>>,
}

impl<'p> LabReportView<'p> {
    pub(crate) fn new(
        probes: &'p [ProbeView],
        change: Option<ChangeView<'p>>,
    ) -> LabReportView<'p> {
        LabReportView {
            api_version: API_VERSION,
            kind: "LabReport",
            probes,
            differences: probes.iter().filter(|it| it.differs).count(),
            change,
        }
    }
}

/// What happened since the report before, and what it did.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ChangeView<'p> {
    /// Files that are new or hold something else.
    pub(crate) changed: &'p [String],
    /// Files that are not there any more.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub(crate) gone: &'p [String],
    /// Whether more than policies changed, so that the lab was built anew.
    pub(crate) rebuilt: bool,
    pub(crate) opened: usize,
    pub(crate) closed: usize,
    /// Flows that were not measured before.
    pub(crate) new_flows: usize,
    /// Flows that are not measured any more.
    pub(crate) old_flows: usize,
}

/// A flow, what was predicted, and what packets showed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProbeView {
    pub(crate) flow: FlowView,
    pub(crate) predicted: &'static str,
    /// Absent: packets cannot show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) measured: Option<&'static str>,
    /// Why it could not be asked, or not be shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// A packet arrived, and its answer did not come back.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) unanswered: bool,
    #[serde(skip)]
    pub(crate) differs: bool,
    /// Whether someone typed the question, and it could not be asked.
    #[serde(skip)]
    pub(crate) unaskable: bool,
    /// What was measured in the round before, if it was something else.
    #[serde(skip)]
    pub(crate) was: Option<&'static str>,
}
