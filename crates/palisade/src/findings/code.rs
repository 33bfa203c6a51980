//! The codes of all findings, of every origin.

use palisade_api::Severity;

/// The code of a finding, by its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LintCode {
    /// The engine.
    Engine(palisade_core::analysis::lint::Code),
    /// Reading of the objects.
    Reading(palisade_api::Code),
    /// Annotations that suppress findings.
    Ignore(IgnoreCode),
}

/// The errors of an annotation that suppresses findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum IgnoreCode {
    Reason,
    Unknown,
    Unused,
}

impl IgnoreCode {
    const ALL: [IgnoreCode; 3] = [IgnoreCode::Reason, IgnoreCode::Unknown, IgnoreCode::Unused];
}

impl LintCode {
    /// Returns every code that `lint` can print.
    pub(crate) fn all() -> Vec<LintCode> {
        let engine = palisade_core::analysis::lint::Code::ALL.iter().copied();
        let reading = palisade_api::Code::ALL.iter().copied();
        // Errors stop `lint`, and `check` reports them.
        let reading = reading.filter(|it| it.severity() < Severity::Error);
        let codes = engine.map(LintCode::Engine);
        let codes = codes.chain(reading.map(LintCode::Reading));
        codes.chain(IgnoreCode::ALL.map(LintCode::Ignore)).collect()
    }

    /// Returns the name in every output.
    pub(crate) fn name(self) -> &'static str {
        match self {
            LintCode::Engine(code) => code.name(),
            LintCode::Reading(code) => code.name(),
            LintCode::Ignore(IgnoreCode::Reason) => "LINT-IGNORE-REASON",
            LintCode::Ignore(IgnoreCode::Unknown) => "LINT-IGNORE-UNKNOWN",
            LintCode::Ignore(IgnoreCode::Unused) => "LINT-IGNORE-UNUSED",
        }
    }

    /// Returns the severity of findings with this code.
    pub(crate) fn severity(self) -> Severity {
        match self {
            LintCode::Engine(code) => code.severity(),
            // A server with the later CRDs prunes the selector: the peer then matches every
            // namespace (D38).
            LintCode::Reading(palisade_api::Code::AnpPrunedWide) => Severity::Error,
            LintCode::Reading(code) => code.severity(),
            LintCode::Ignore(IgnoreCode::Reason | IgnoreCode::Unknown) => Severity::Warning,
            LintCode::Ignore(IgnoreCode::Unused) => Severity::Info,
        }
    }

    /// Describes the code in one sentence.
    pub(crate) fn summary(self) -> &'static str {
        match self {
            LintCode::Engine(code) => code.summary(),
            LintCode::Reading(code) => code.summary(),
            LintCode::Ignore(IgnoreCode::Reason) => {
                "An annotation has no reason and suppresses no finding."
            }
            LintCode::Ignore(IgnoreCode::Unknown) => {
                "An annotation names a code that does not exist, or that cannot be suppressed."
            }
            LintCode::Ignore(IgnoreCode::Unused) => {
                "An annotation names a code that has no finding."
            }
        }
    }

    /// Returns the page that explains it.
    pub(crate) fn page(self) -> &'static str {
        match self {
            LintCode::Engine(_) | LintCode::Ignore(_) => "docs/reference/lint.md",
            LintCode::Reading(_) => "docs/reference/problems.md",
        }
    }
}
