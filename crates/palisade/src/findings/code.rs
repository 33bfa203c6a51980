//! The codes of all findings, whoever makes them.

use palisade_api::Severity;

/// What kind of finding it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LintCode {
    /// The engine found it.
    Engine(palisade_core::lint::Code),
    /// It was remarkable when the objects were read.
    Reading(palisade_api::Code),
    /// It is about an annotation that keeps findings back.
    Ignore(IgnoreCode),
}

/// What can be wrong with an annotation that keeps findings back.
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
    /// Every code that `lint` can print.
    pub(crate) fn all() -> Vec<LintCode> {
        let engine = palisade_core::lint::Code::ALL.iter().copied();
        let reading = palisade_api::Code::ALL.iter().copied();
        // Errors of reading keep `lint` from answering, and are for `check` to show.
        let reading = reading.filter(|it| it.severity() < Severity::Error);
        let codes = engine.map(LintCode::Engine);
        let codes = codes.chain(reading.map(LintCode::Reading));
        codes.chain(IgnoreCode::ALL.map(LintCode::Ignore)).collect()
    }

    /// The name in every output.
    pub(crate) fn name(self) -> &'static str {
        match self {
            LintCode::Engine(code) => code.name(),
            LintCode::Reading(code) => code.name(),
            LintCode::Ignore(IgnoreCode::Reason) => "LINT-IGNORE-REASON",
            LintCode::Ignore(IgnoreCode::Unknown) => "LINT-IGNORE-UNKNOWN",
            LintCode::Ignore(IgnoreCode::Unused) => "LINT-IGNORE-UNUSED",
        }
    }

    /// How bad a finding of this kind is.
    pub(crate) fn severity(self) -> Severity {
        match self {
            LintCode::Engine(code) => code.severity(),
            // Stored by a newer cluster it would match every namespace (D38).
            LintCode::Reading(palisade_api::Code::AnpPrunedWide) => Severity::Error,
            LintCode::Reading(code) => code.severity(),
            LintCode::Ignore(IgnoreCode::Reason | IgnoreCode::Unknown) => Severity::Warning,
            LintCode::Ignore(IgnoreCode::Unused) => Severity::Info,
        }
    }

    /// One sentence on the kind of finding.
    pub(crate) fn summary(self) -> &'static str {
        match self {
            LintCode::Engine(code) => code.summary(),
            LintCode::Reading(code) => code.summary(),
            LintCode::Ignore(IgnoreCode::Reason) => {
                "An annotation would keep findings back and does not say why, so that it keeps none back."
            }
            LintCode::Ignore(IgnoreCode::Unknown) => {
                "An annotation names a code that does not exist, or that cannot be kept back."
            }
            LintCode::Ignore(IgnoreCode::Unused) => {
                "An annotation names a code of which there is no finding."
            }
        }
    }

    /// The page that explains it.
    pub(crate) fn page(self) -> &'static str {
        match self {
            LintCode::Engine(_) | LintCode::Ignore(_) => "docs/lint.md",
            LintCode::Reading(_) => "docs/problems.md",
        }
    }
}
