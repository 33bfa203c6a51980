//! What an answer lacks: kinds that a cluster refused to list, unreadable files and policies.

use palisade_api::OtherPolicies;
use serde::Serialize;

use super::{DocumentFormat, json, write_document};
use crate::live::UnreadKind;
use crate::report::unread::{UnreadAtFlow, UnreadObject};

/// What an answer lacks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerLimits<'l> {
    /// The kinds that the cluster refused to list.
    pub(crate) missing: &'l [UnreadKind],
    /// The unreadable policies.
    pub(crate) unread: &'l [UnreadObject],
    /// The policies of other vendors.
    pub(crate) other_policies: &'l OtherPolicies,
}

impl AnswerLimits<'_> {
    /// Writes the keys to the end of a document that is written piece by piece.
    pub(crate) fn write_end(
        &self,
        out: &mut impl std::io::Write,
        form: DocumentFormat,
    ) -> anyhow::Result<()> {
        let unread = self.views();
        if !unread.is_empty() {
            write_key(out, form, "unread", &unread)?;
        }
        let others = OtherPolicyView::all(self.other_policies);
        if !others.is_empty() {
            write_key(out, form, OTHER_POLICIES, &others)?;
        }
        Ok(())
    }

    /// Returns the entries of `unread`.
    pub(crate) fn views(&self) -> Vec<UnreadView<'_>> {
        let kinds = self.missing.iter().map(UnreadView::kind);
        let objects = self.unread.iter().map(UnreadView::object);
        kinds.chain(objects).collect()
    }
}

/// Writes a key to the end of a document.
fn write_key<T: Serialize + ?Sized>(
    out: &mut impl std::io::Write,
    form: DocumentFormat,
    key: &str,
    value: &T,
) -> anyhow::Result<()> {
    match form {
        DocumentFormat::Json => write!(out, ",\n  \"{key}\": ")?,
        DocumentFormat::Yaml => write!(out, "{key}: ")?,
    }
    // JSON is YAML, and stays on one line.
    json::write(out, value)?;
    if form == DocumentFormat::Yaml {
        writeln!(out)?;
    }
    Ok(())
}

/// Something that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum UnreadView<'l> {
    /// A kind of a cluster.
    Kind { resource: String, reason: String },
    /// A file.
    File { file: &'l str, reason: String },
    /// A policy, or a document that may be one.
    Object {
        #[serde(skip_serializing_if = "Option::is_none")]
        object: Option<&'l str>,
        code: &'static str,
        message: &'l str,
        file: &'l str,
        line: usize,
    },
}

impl<'l> UnreadView<'l> {
    pub(crate) fn kind(kind: &UnreadKind) -> UnreadView<'l> {
        UnreadView::Kind {
            resource: kind.resource.name(),
            reason: kind.reason(),
        }
    }

    pub(crate) fn file((file, error): &'l (String, std::io::Error)) -> UnreadView<'l> {
        UnreadView::File {
            file,
            reason: error.to_string(),
        }
    }

    fn object(object: &'l UnreadObject) -> UnreadView<'l> {
        let UnreadObject { unread, file, line } = object;
        UnreadView::Object {
            object: unread.object.as_deref(),
            code: unread.problem.code.name(),
            message: &unread.problem.message,
            file,
            line: *line,
        }
    }

    pub(crate) fn of_flow(unread: &UnreadAtFlow<'l>) -> UnreadView<'l> {
        UnreadView::object(unread.object)
    }
}

/// The key of the policies of other vendors.
const OTHER_POLICIES: &str = "notJudged";

/// The policies of one kind of another vendor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct OtherPolicyView {
    kind: &'static str,
    group: &'static str,
    count: usize,
}

impl OtherPolicyView {
    pub(crate) fn all(found: &OtherPolicies) -> Vec<OtherPolicyView> {
        let views = found.iter().map(|(it, count)| OtherPolicyView {
            kind: it.kind,
            group: it.group,
            count: *count,
        });
        views.collect()
    }
}

/// A document, with what its answer lacks.
#[derive(Debug, Serialize)]
struct LimitedView<'d, T> {
    #[serde(flatten)]
    document: &'d T,
    #[serde(skip_serializing_if = "<[UnreadView<'_>]>::is_empty")]
    unread: &'d [UnreadView<'d>],
    #[serde(rename = "notJudged", skip_serializing_if = "Vec::is_empty")]
    other_policies: Vec<OtherPolicyView>,
}

/// Writes one document, with what its answer lacks.
pub(crate) fn write_limited<T: Serialize>(
    out: &mut impl std::io::Write,
    form: DocumentFormat,
    document: &T,
    limits: AnswerLimits<'_>,
) -> anyhow::Result<()> {
    let unread = limits.views();
    write_with(out, form, document, (&unread, limits.other_policies))
}

/// Writes one document, with these entries of `unread` and these policies of other vendors.
pub(crate) fn write_with<T: Serialize>(
    out: &mut impl std::io::Write,
    form: DocumentFormat,
    document: &T,
    (unread, other_policies): (&[UnreadView<'_>], &OtherPolicies),
) -> anyhow::Result<()> {
    if unread.is_empty() && other_policies.is_empty() {
        return write_document(out, form, document);
    }
    let limited = LimitedView {
        document,
        unread,
        other_policies: OtherPolicyView::all(other_policies),
    };
    write_document(out, form, &limited)
}
