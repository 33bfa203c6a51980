//! The documents of `lint`.

use palisade_api::Source;
use serde::Serialize;

use super::flow::FlowView;
use super::{API_VERSION, Placer, RelatedView};
use crate::findings::LocatedFinding;

/// The document of `lint`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LintView<'f> {
    api_version: &'static str,
    kind: &'static str,
    findings: Vec<FindingView<'f>>,
    /// Findings that annotations suppress.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    suppressed: Vec<FindingView<'f>>,
}

impl<'f> LintView<'f> {
    pub(crate) fn new(
        findings: Vec<FindingView<'f>>,
        suppressed: Vec<FindingView<'f>>,
    ) -> LintView<'f> {
        LintView {
            api_version: API_VERSION,
            kind: "Lint",
            findings,
            suppressed,
        }
    }
}

/// A finding as JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FindingView<'f> {
    severity: &'static str,
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<&'f str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'f str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<&'f str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) column: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) end_line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) end_column: Option<usize>,
    message: &'f str,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<&'f str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    rules: &'f [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    witness: Option<FlowView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    always: Option<bool>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) fixable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) related: Option<RelatedView<'f>>,
    /// The reason, if it is suppressed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) justification: Option<&'f str>,
}

/// Builds views of findings.
pub(crate) struct FindingViews<'f>(Placer<'f>);

impl<'f> FindingViews<'f> {
    pub(crate) fn new(sources: &'f [Source]) -> FindingViews<'f> {
        FindingViews(Placer::new(sources))
    }

    /// Returns the view of a finding; one with a justification is suppressed.
    pub(crate) fn view(
        &mut self,
        finding: &'f LocatedFinding,
        fixable: bool,
        justification: Option<&'f str>,
    ) -> FindingView<'f> {
        let LocatedFinding {
            code,
            object_id,
            path,
            place,
            message,
            help,
            related,
            rules,
            witness,
            always,
            object: _,
            namespace: _,
            finding: _,
        } = finding;
        let start = place.map(|(source, span)| self.0.place(source, span.start));
        let end = place.map(|(source, span)| self.0.place(source, span.end).1);
        let related = related.as_ref().map(|related| {
            let (file, (line, column), _) = self.0.place(related.source, related.span.start);
            RelatedView { file, line, column }
        });
        FindingView {
            severity: code.severity().name(),
            code: code.name(),
            object: object_id.as_deref(),
            path: path.as_deref(),
            file: start.as_ref().map(|it| it.0),
            line: start.as_ref().map(|it| it.1.0),
            column: start.as_ref().map(|it| it.1.1),
            end_line: end.map(|it| it.0),
            end_column: end.map(|it| it.1),
            message,
            help: help.as_deref(),
            rules,
            witness: witness.clone().map(FlowView::from),
            always: *always,
            fixable,
            related,
            justification,
        }
    }
}
