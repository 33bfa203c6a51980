//! Rewrites of text that keep its meaning.

use palisade_api::Span;
use palisade_core::net::CidrText;

use crate::edit::TextEdit;
use crate::edit::remove::renamed;

/// Clears the host bits of a block of addresses.
pub(super) fn masked(text: &str, span: Span) -> Option<Vec<TextEdit>> {
    let (span, block) = word(text, span)?;
    let masked = CidrText::parse(block).ok()?.cidr.to_string();
    Some(vec![renamed(text, span, &masked)?])
}

/// Writes a relation in the case of the API.
pub(super) fn related(text: &str, span: Span) -> Option<Vec<TextEdit>> {
    let (span, word) = word(text, span)?;
    let words = ["Self", "NotSelf"];
    let canonical = words.iter().find(|it| it.eq_ignore_ascii_case(word))?;
    Some(vec![renamed(text, span, canonical)?])
}

/// Returns the span of a word with its quotes, and the word without them. Parsers include a comment
/// after a quoted word in its span; this span ends at the quote.
fn word(text: &str, span: Span) -> Option<(Span, &str)> {
    let written = text.get(span.range())?;
    let quote = written.chars().next().filter(|it| matches!(it, '"' | '\''));
    let Some(quote) = quote else {
        return Some((span, written));
    };
    let (word, _) = written.get(1..)?.split_once(quote)?;
    let start = span.start as usize;
    Some((Span::new(start, start + word.len() + 2), word))
}
