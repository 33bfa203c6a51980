//! One value at a time from a document: the boundary between syntax and meaning.
//!
//! Decoders pull values from an [`Input`] and never see whether the bytes were JSON (pulled from
//! the text, no tree), block-style YAML (pulled from a tree of places in the text) or any other
//! YAML (pulled from a flat spanned tree, because anchors and merge keys need one). Strings are
//! borrowed from the source wherever the source has them verbatim.

pub(crate) mod block;
mod bytes;
pub(crate) mod json;
pub(crate) mod scalar;
pub(crate) mod yaml;

use std::borrow::Cow;

use crate::problem::Span;

/// How deep a document may be nested. The deepest real objects, CRDs with nested schemas, stay far
/// below.
pub(crate) const MAX_DEPTH: usize = 200;

/// The shape of a value, before it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueShape {
    Null,
    Bool,
    /// An integer that fits 64 bits.
    Int,
    /// Any other number.
    Number,
    Str,
    Map,
    Seq,
    /// The syntax broke; the input has reported it, and nothing more can be read.
    Broken,
}

impl ValueShape {
    /// The words for messages: "expected a list, found …".
    pub(crate) fn describe(self) -> &'static str {
        match self {
            ValueShape::Null => "nothing",
            ValueShape::Bool => "a boolean",
            ValueShape::Int => "a number",
            ValueShape::Number => "a number that is not whole, or too large",
            ValueShape::Str => "a string",
            ValueShape::Map => "a mapping",
            ValueShape::Seq => "a list",
            ValueShape::Broken => "broken syntax",
        }
    }
}

/// A value without values inside.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scalar<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Number,
    Str(Cow<'a, str>),
}

/// A piece of a list.
#[derive(Clone, Debug)]
pub(crate) struct ListPiece<I> {
    /// Where it starts.
    pub(crate) input: I,
    /// Where the next one starts, in the input's own unit.
    pub(crate) next: usize,
}

/// Where an item ended that was read from a piece of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ItemEnd {
    Inside,
    /// Just before the item that the next piece starts with.
    Next,
    /// The next piece does not start at an item.
    Beyond,
}

/// Values in document order. Every value is consumed exactly once: a map by [`enter`](Self::enter)
/// and [`next_key`](Self::next_key) until `None`, a list likewise, a scalar by
/// [`scalar`](Self::scalar), and anything by [`skip`](Self::skip).
pub(crate) trait Input<'a> {
    /// What comes next.
    fn shape(&mut self) -> ValueShape;

    /// The place of the next value; of a map or list, only its first token.
    fn span(&mut self) -> Span;

    /// Enters the map or list that comes next.
    fn enter(&mut self);

    /// The next key of the map entered last, or `None` at its end, which is then left.
    fn next_key(&mut self) -> Option<(Cow<'a, str>, Span)>;

    /// Whether the list entered last has another item; at its end it is left.
    fn next_item(&mut self) -> bool;

    /// Reads the scalar that comes next.
    fn scalar(&mut self) -> (Scalar<'a>, Span);

    /// Skips the value that comes next, of any shape.
    fn skip(&mut self);

    /// Whether the syntax broke.
    fn is_broken(&self) -> bool {
        false
    }

    /// All bytes of the value that comes next, where they are known before it is read.
    fn extent(&self) -> Option<Span> {
        None
    }

    /// Duplicate keys in skipped mappings, each with its first place. The reader compares the keys
    /// of mappings that it reads.
    fn take_duplicates(&mut self) -> Vec<(Span, Span)> {
        Vec::new()
    }

    /// Pieces of the list entered last, from the next item on: each of at least `least` bytes, all
    /// together of at most `most`. Whether pieces start at items is known only when all before them
    /// was read; see [`reached`](Self::reached).
    fn pieces(&self, least: usize, most: usize) -> Vec<ListPiece<Self>>
    where
        Self: Sized,
    {
        let _ = (least, most);
        Vec::new()
    }

    /// After an item of a piece: where it ended, if the next piece is expected to start at `next`.
    /// If it does, the input moves there.
    fn reached(&mut self, next: usize) -> ItemEnd {
        let _ = next;
        ItemEnd::Inside
    }

    /// The keys of the mapping that comes next, without reading it.
    fn peek_keys(&self) -> Vec<Cow<'a, str>>;
}

/// [`Input::peek_keys`] for inputs that are cheap to copy.
fn keys_ahead<'a>(mut ahead: impl Input<'a>) -> Vec<Cow<'a, str>> {
    let mut keys = Vec::new();
    if ahead.shape() == ValueShape::Map {
        ahead.enter();
        while let Some((key, _)) = ahead.next_key() {
            keys.push(key);
            ahead.skip();
        }
    }
    keys
}
