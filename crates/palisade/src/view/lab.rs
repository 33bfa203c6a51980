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
}

impl<'p> LabReportView<'p> {
    pub(crate) fn new(probes: &'p [ProbeView]) -> LabReportView<'p> {
        LabReportView {
            api_version: API_VERSION,
            kind: "LabReport",
            probes,
            differences: probes.iter().filter(|it| it.differs).count(),
        }
    }
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
}
