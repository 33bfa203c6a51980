//! The documents of `lab`.

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
    /// The difference from the previous report.
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

/// The changes since the previous report, and their effect.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ChangeView<'p> {
    /// New files, and files with new content.
    pub(crate) changed: &'p [String],
    /// Removed files.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub(crate) gone: &'p [String],
    /// Whether the lab was rebuilt because more than policies changed.
    pub(crate) rebuilt: bool,
    pub(crate) opened: usize,
    pub(crate) closed: usize,
    /// Flows that the previous round did not measure.
    pub(crate) new_flows: usize,
    /// Flows that only the previous round measured.
    pub(crate) old_flows: usize,
}

/// A flow, its predicted verdict, and its measured verdict.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProbeView {
    pub(crate) flow: FlowView,
    pub(crate) predicted: &'static str,
    /// Absent if packets cannot show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) measured: Option<&'static str>,
    /// Why it could not be evaluated or measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// Whether a packet arrived and its reply did not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) unanswered: bool,
    #[serde(skip)]
    pub(crate) differs: bool,
    /// Whether it is a flow of `--flows` that could not be evaluated.
    #[serde(skip)]
    pub(crate) unaskable: bool,
    /// The verdict of the previous round, if it was another one.
    #[serde(skip)]
    pub(crate) was: Option<&'static str>,
}
