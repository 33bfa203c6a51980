//! What an answer lacks: kinds that a cluster refused to list, unreadable files and policies.

use serde::Serialize;

use super::{DocumentFormat, json, write_document};
use crate::live::UnreadKind;
use crate::report::unread::{UnreadAtFlow, UnreadObject};

/// What an answer lacks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AnswerLimits<'l> {
    /// The kinds that the cluster refused to list.
    pub(crate) missing: &'l [UnreadKind],
    /// The unreadable policies.
    pub(crate) unread: &'l [UnreadObject],
}

impl AnswerLimits<'_> {
    /// Writes the keys to the end of a document that is written piece by piece.
    pub(crate) fn write_end(
        &self,
        out: &mut impl std::io::Write,
        form: DocumentFormat,
    ) -> anyhow::Result<()> {
        let unread = self.views();
        if unread.is_empty() {
            return Ok(());
        }
        match form {
            DocumentFormat::Json => write!(out, ",\n  \"unread\": ")?,
            DocumentFormat::Yaml => write!(out, "unread: ")?,
        }
        // JSON is YAML, and stays on one line.
        json::write(out, &unread)?;
        if form == DocumentFormat::Yaml {
            writeln!(out)?;
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

/// A document, with what its answer lacks.
#[derive(Debug, Serialize)]
struct LimitedView<'d, T> {
    #[serde(flatten)]
    document: &'d T,
    #[serde(skip_serializing_if = "<[UnreadView<'_>]>::is_empty")]
    unread: &'d [UnreadView<'d>],
}

/// Writes one document, with what its answer lacks.
pub(crate) fn write_limited<T: Serialize>(
    out: &mut impl std::io::Write,
    form: DocumentFormat,
    document: &T,
    limits: AnswerLimits<'_>,
) -> anyhow::Result<()> {
    write_with_unread(out, form, document, &limits.views())
}

/// Writes one document, with these entries of `unread`.
pub(crate) fn write_with_unread<T: Serialize>(
    out: &mut impl std::io::Write,
    form: DocumentFormat,
    document: &T,
    unread: &[UnreadView<'_>],
) -> anyhow::Result<()> {
    if unread.is_empty() {
        // Without the flattening, the order of keys is the one of the type.
        return write_document(out, form, document);
    }
    write_document(out, form, &LimitedView { document, unread })
}
