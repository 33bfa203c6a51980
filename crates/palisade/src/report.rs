//! Answers as typed values, from which both the documents and the texts are made.

pub mod affecting;
pub mod explain;
pub mod flow;
pub(crate) mod lab;
pub(crate) mod other_policies;
pub mod proposal;
pub mod unread;

use palisade_core::policy::Verdict;

/// Returns the name of a verdict in every output.
pub(crate) fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "Allow",
        Verdict::Deny => "Deny",
    }
}
