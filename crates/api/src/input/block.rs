//! Block-style YAML as kubectl and charts write it, read in one pass over the lines.
//!
//! Nearly all manifests use a small part of YAML. [`read`] knows that part and gives up at anything
//! else (anchors, tags, merge keys, complex keys, tabs in the layout, duplicate keys, every error):
//! the full parser then reads the document and reports its problems. Value by value and position by
//! position, the result is that of the full parser; tests and a fuzz target check it.
//!
//! The tree has twelve bytes a node: its place and its shape. Texts are decoded on demand; most
//! never are.

mod flow;
mod keys;
mod scalars;
mod scan;
mod split;
mod text;

use std::borrow::Cow;
use std::ops::Range;

use super::{Input, ItemEnd, ListPiece, Scalar, ValueShape, keys_ahead, scalar};
use crate::problem::Span;

pub(crate) use scan::read;

/// What happens to the line breaks at the end of a block scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chomp {
    Clip,
    Strip,
    Keep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Null,
    /// A plain scalar in one line.
    Plain,
    /// A plain scalar over several lines.
    Wrapped,
    /// A quoted scalar whose value is its text.
    Bare,
    /// A quoted scalar with escapes or over several lines.
    Single,
    Double,
    Literal(Chomp),
    Folded(Chomp),
    /// The end is the index of the node after the `End` of this one.
    Map,
    Seq,
    End,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    start: u32,
    end: u32,
    kind: Kind,
}

/// One document.
#[derive(Debug)]
pub(crate) struct Tree<'a> {
    text: &'a str,
    range: Range<usize>,
    nodes: Vec<Node>,
}

impl<'a> Tree<'a> {
    /// Whether the document is empty, or has only comments.
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// A cursor at the document's root.
    pub(crate) fn cursor(&self) -> Cursor<'a, '_> {
        self.cursor_at(0)
    }

    /// A cursor at a node.
    pub(crate) fn cursor_at(&self, at: usize) -> Cursor<'a, '_> {
        Cursor {
            text: self.text,
            end: self.range.end,
            nodes: &self.nodes,
            at,
        }
    }

    /// Where mappings start, and which node each is.
    pub(crate) fn maps(&self) -> impl Iterator<Item = (u32, usize)> {
        let nodes = self.nodes.iter().enumerate();
        let maps = nodes.filter(|(_, node)| node.kind == Kind::Map);
        maps.map(|(at, node)| (node.start, at))
    }
}

/// A place in a [`Tree`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a, 't> {
    text: &'a str,
    /// Where the document ends.
    end: usize,
    nodes: &'t [Node],
    at: usize,
}

impl<'a> Cursor<'a, '_> {
    fn node(&self) -> Option<Node> {
        self.nodes.get(self.at).copied()
    }

    /// The value of a node without nodes inside.
    fn value(&self, node: Node) -> Scalar<'a> {
        let (start, end) = (node.start as usize, node.end as usize);
        let spelled = self.text.get(start..end).unwrap_or_default();
        match node.kind {
            Kind::Plain => scalar::resolve(spelled),
            // A scalar with a space in it can only be text.
            Kind::Wrapped => Scalar::Str(Cow::Owned(text::unwrapped(spelled))),
            Kind::Bare => Scalar::Str(Cow::Borrowed(text::bare(spelled))),
            Kind::Single => Scalar::Str(Cow::Owned(text::single(spelled))),
            Kind::Double => Scalar::Str(Cow::Owned(text::double(spelled))),
            Kind::Literal(chomp) | Kind::Folded(chomp) => {
                let literal = matches!(node.kind, Kind::Literal(_));
                let before = self.text.get(..start).unwrap_or_default();
                Scalar::Str(Cow::Owned(text::block(before, spelled, literal, chomp)))
            }
            Kind::Null | Kind::Map | Kind::Seq | Kind::End => Scalar::Null,
        }
    }

    fn span_of(&self, node: Node) -> Span {
        let start = node.start as usize;
        let end = match node.kind {
            Kind::Map => {
                // The first word, for the caret.
                let rest = self.text.as_bytes().get(start..self.end);
                let rest = rest.unwrap_or_default();
                start
                    + match rest.first() {
                        Some(b'{') => 1,
                        _ => memchr::memchr2(b':', b'\n', rest)
                            .unwrap_or(rest.len())
                            .max(1),
                    }
            }
            Kind::Seq => start + 1,
            Kind::Null
            | Kind::Plain
            | Kind::Wrapped
            | Kind::Bare
            | Kind::Single
            | Kind::Double
            | Kind::Literal(_)
            | Kind::Folded(_)
            | Kind::End => node.end as usize,
        };
        Span::new(start, end)
    }
}

impl<'a> Input<'a> for Cursor<'a, '_> {
    fn shape(&mut self) -> ValueShape {
        let Some(node) = self.node() else {
            return ValueShape::Broken;
        };
        match node.kind {
            Kind::Null => ValueShape::Null,
            Kind::Map => ValueShape::Map,
            Kind::Seq => ValueShape::Seq,
            Kind::End => ValueShape::Broken,
            Kind::Plain => match self.value(node) {
                Scalar::Null => ValueShape::Null,
                Scalar::Bool(_) => ValueShape::Bool,
                Scalar::Int(_) => ValueShape::Int,
                Scalar::Number => ValueShape::Number,
                Scalar::Str(_) => ValueShape::Str,
            },
            Kind::Wrapped
            | Kind::Bare
            | Kind::Single
            | Kind::Double
            | Kind::Literal(_)
            | Kind::Folded(_) => ValueShape::Str,
        }
    }

    fn span(&mut self) -> Span {
        self.node()
            .map(|node| self.span_of(node))
            .unwrap_or_default()
    }

    fn enter(&mut self) {
        self.at += 1;
    }

    fn next_key(&mut self) -> Option<(Cow<'a, str>, Span)> {
        let node = self.node()?;
        self.at += 1;
        let spelled = self.text.get(node.start as usize..node.end as usize)?;
        let key = match node.kind {
            // INVARIANT: only keys whose value is their text are read.
            Kind::Plain => spelled,
            Kind::Bare => text::bare(spelled),
            Kind::Null
            | Kind::Wrapped
            | Kind::Single
            | Kind::Double
            | Kind::Literal(_)
            | Kind::Folded(_)
            | Kind::Map
            | Kind::Seq
            | Kind::End => return None,
        };
        Some((Cow::Borrowed(key), self.span_of(node)))
    }

    fn next_item(&mut self) -> bool {
        let has_item = self.node().is_some_and(|node| node.kind != Kind::End);
        self.at += usize::from(!has_item);
        has_item
    }

    fn scalar(&mut self) -> (Scalar<'a>, Span) {
        let Some(node) = self.node() else {
            return (Scalar::Null, Span::default());
        };
        self.at += 1;
        (self.value(node), self.span_of(node))
    }

    fn skip(&mut self) {
        self.at = match self.node() {
            Some(node) if matches!(node.kind, Kind::Map | Kind::Seq) => {
                // A walk must advance in every tree, or it would not end.
                (node.end as usize).max(self.at + 1)
            }
            Some(_) | None => self.at + 1,
        };
    }

    fn pieces(&self, least: usize, most: usize) -> Vec<ListPiece<Self>> {
        let mut pieces = Vec::new();
        let mut ahead = *self;
        let mut start = *self;
        let offset = |it: &Self| it.node().map_or(0, |node| node.start as usize);
        let end = offset(self).saturating_add(most);
        while ahead.next_item() && offset(&ahead) <= end {
            if offset(&ahead) - offset(&start) >= least {
                pieces.push(ListPiece {
                    input: start,
                    next: ahead.at,
                });
                start = ahead;
            }
            ahead.skip();
        }
        pieces
    }

    fn reached(&mut self, next: usize) -> ItemEnd {
        if self.at < next {
            ItemEnd::Inside
        } else {
            ItemEnd::Next
        }
    }

    fn extent(&self) -> Option<Span> {
        let node = self.node()?;
        let is_open = |it: &Node| matches!(it.kind, Kind::Map | Kind::Seq);
        let after = if is_open(&node) {
            (node.end as usize).max(self.at + 1)
        } else {
            self.at + 1
        };
        let nodes = self.nodes.get(self.at..after)?;
        let last = nodes.iter().rposition(|it| it.kind != Kind::End)?;
        let its = nodes.get(last)?;
        let bytes = self.text.as_bytes();
        // A collection in block style starts where its first node starts.
        let is_flow = |at: usize, it: &Node| {
            let first = nodes.get(at + 1).filter(|it| it.kind != Kind::End);
            let is_bracket = matches!(bytes.get(it.start as usize), Some(b'{' | b'['));
            is_open(it) && is_bracket && first.is_none_or(|first| first.start != it.start)
        };
        // Closing brackets have no nodes of their own.
        let closed = nodes.iter().enumerate().take(last + 1);
        let closed = closed.filter(|(at, it)| is_flow(*at, it));
        let closed = closed.filter(|(_, it)| it.end as usize > self.at + last + 1);
        let from = if is_open(its) {
            its.start as usize + usize::from(is_flow(last, its))
        } else {
            its.end as usize
        };
        let end = after_brackets(bytes, from, closed.count())?;
        Some(Span::new(node.start as usize, end))
    }

    fn peek_keys(&self) -> Vec<Cow<'a, str>> {
        keys_ahead(*self)
    }
}

/// The offset after this many closing brackets, with only punctuation between them.
fn after_brackets(bytes: &[u8], mut at: usize, mut count: usize) -> Option<usize> {
    while count > 0 {
        match bytes.get(at)? {
            b'}' | b']' => count -= 1,
            b'#' => at += memchr::memchr(b'\n', bytes.get(at..)?)?,
            _ => {}
        }
        at += 1;
    }
    Some(at)
}
