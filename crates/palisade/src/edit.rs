//! Edits of manifests: parts of texts that are removed, inserted or replaced, and every other byte
//! kept.

pub(crate) mod input;
pub(crate) mod insert;
pub(crate) mod remove;
pub(crate) mod unified;
pub(crate) mod write;

use std::io::Write as _;
use std::ops::Range;

use crate::draw::clean;

/// A range of a text, and its replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TextEdit {
    pub(crate) range: Range<usize>,
    pub(crate) insert: String,
}

/// Applies edits, which must be in order and must not overlap.
pub(crate) fn edited(text: &str, edits: &[TextEdit]) -> String {
    let mut edited = String::with_capacity(text.len());
    let mut at = 0;
    for edit in edits {
        edited += text.get(at..edit.range.start).unwrap_or_default();
        edited += &edit.insert;
        at = edit.range.end;
    }
    edited += text.get(at..).unwrap_or_default();
    edited
}

/// Prints a diff. A program gets its exact bytes; a terminal gets no control characters.
pub(crate) fn print_diff(diff: &str) -> anyhow::Result<()> {
    let mut out = anstream::stdout();
    if out.is_terminal() {
        for line in diff.lines() {
            writeln!(out, "{}", clean(line))?;
        }
    } else {
        write!(out, "{diff}")?;
    }
    out.flush()?;
    Ok(())
}
