//! YAML as a flat spanned tree: parser events, with anchors, merge keys and scalars resolved.
//!
//! The tree is one vector in document order; a map or list has the index of its end, and skipping
//! it is one step. Scalars whose value is their text are borrowed from the source. Aliases are
//! expanded within a budget: memory stays a multiple of the document's size.

mod alias;
mod build;
mod offsets;

use std::borrow::Cow;

use super::{Input, Scalar, ValueShape, keys_ahead};
use crate::problem::{Code, Span};

#[derive(Clone, Debug, PartialEq)]
enum Value<'a> {
    Scalar(Scalar<'a>),
    /// The keys and values follow, then an `End`; the index is that of the node after it.
    Map(u32),
    Seq(u32),
    End,
}

#[derive(Clone, Debug, PartialEq)]
struct Node<'a> {
    value: Value<'a>,
    span: Span,
}

pub(crate) use build::read;

/// One document.
#[derive(Debug, Default)]
pub(crate) struct Tree<'a> {
    nodes: Vec<Node<'a>>,
    /// Whether the document was read to its end.
    complete: bool,
}

/// A problem of a document that is found before it is decoded.
#[derive(Debug)]
pub(crate) struct DocumentFlaw {
    pub(crate) code: Code,
    pub(crate) span: Span,
    pub(crate) path: Option<String>,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
    /// The earlier of two equal keys.
    pub(crate) first: Option<Span>,
}

impl<'a> Tree<'a> {
    /// Whether the document is empty, or has only comments or `null`.
    pub(crate) fn is_empty(&self) -> bool {
        match self.nodes.first() {
            None => true,
            Some(node) => node.value == Value::Scalar(Scalar::Null),
        }
    }

    /// Whether the document was read to its end: with flaws inside, but whole.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    /// A cursor at the document's root.
    pub(crate) fn cursor(&self) -> Cursor<'a, '_> {
        self.cursor_at(0)
    }

    /// A cursor at a node.
    pub(crate) fn cursor_at(&self, at: usize) -> Cursor<'a, '_> {
        Cursor {
            nodes: &self.nodes,
            at,
        }
    }

    /// Where mappings start, and which node each is.
    pub(crate) fn maps(&self) -> impl Iterator<Item = (u32, usize)> {
        let nodes = self.nodes.iter().enumerate();
        let maps = nodes.filter(|(_, node)| matches!(node.value, Value::Map(_)));
        maps.map(|(at, node)| (node.span.start, at))
    }
}

/// A place in a [`Tree`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a, 't> {
    nodes: &'t [Node<'a>],
    at: usize,
}

impl<'a> Cursor<'a, '_> {
    fn node(&self) -> Option<&Node<'a>> {
        self.nodes.get(self.at)
    }
}

impl<'a> Input<'a> for Cursor<'a, '_> {
    fn shape(&mut self) -> ValueShape {
        match self.node().map(|node| &node.value) {
            Some(Value::Scalar(scalar)) => match scalar {
                Scalar::Null => ValueShape::Null,
                Scalar::Bool(_) => ValueShape::Bool,
                Scalar::Int(_) => ValueShape::Int,
                Scalar::Number => ValueShape::Number,
                Scalar::Str(_) => ValueShape::Str,
            },
            Some(Value::Map(_)) => ValueShape::Map,
            Some(Value::Seq(_)) => ValueShape::Seq,
            Some(Value::End) | None => ValueShape::Broken,
        }
    }

    fn span(&mut self) -> Span {
        self.node().map(|node| node.span).unwrap_or_default()
    }

    fn enter(&mut self) {
        self.at += 1;
    }

    fn next_key(&mut self) -> Option<(Cow<'a, str>, Span)> {
        let node = self.nodes.get(self.at)?;
        self.at += 1;
        match &node.value {
            Value::Scalar(Scalar::Str(key)) => Some((key.clone(), node.span)),
            // INVARIANT: the builder stores every key as a string.
            Value::Scalar(_) | Value::Map(_) | Value::Seq(_) | Value::End => None,
        }
    }

    fn next_item(&mut self) -> bool {
        match self.node().map(|node| &node.value) {
            Some(Value::End) | None => {
                self.at += 1;
                false
            }
            Some(_) => true,
        }
    }

    fn scalar(&mut self) -> (Scalar<'a>, Span) {
        let Some(node) = self.nodes.get(self.at) else {
            return (Scalar::Null, Span::default());
        };
        self.at += 1;
        match &node.value {
            Value::Scalar(scalar) => (scalar.clone(), node.span),
            Value::Map(_) | Value::Seq(_) | Value::End => (Scalar::Null, node.span),
        }
    }

    fn skip(&mut self) {
        self.at = after(self.nodes, self.at);
    }

    fn extent(&self) -> Option<Span> {
        let first = self.node()?.span;
        let last = self
            .nodes
            .get(after(self.nodes, self.at).checked_sub(1)?)?
            .span;
        Some(first.to(last))
    }

    fn peek_keys(&self) -> Vec<Cow<'a, str>> {
        keys_ahead(*self)
    }
}

/// The index after the value at an index.
fn after(nodes: &[Node<'_>], at: usize) -> usize {
    match nodes.get(at).map(|node| &node.value) {
        // A walk must advance in every tree, or it would not end.
        Some(Value::Map(end) | Value::Seq(end)) => (*end as usize).max(at + 1),
        Some(Value::Scalar(_) | Value::End) | None => at + 1,
    }
}

#[cfg(test)]
mod tests;
