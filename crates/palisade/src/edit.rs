//! Edits of manifests: parts of texts that are removed, inserted or replaced, and every other byte
//! kept.

pub(crate) mod input;
pub(crate) mod insert;
pub(crate) mod remove;
pub(crate) mod unified;
pub(crate) mod write;

use std::ops::Range;

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
