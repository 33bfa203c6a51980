//! YAML as a flat spanned tree: parser events, with anchors, merge keys and scalars resolved.
//!
//! The tree is one vector in document order; a map or list knows where it ends, so that passing
//! over it is one step. Scalars that the source spells as they are stay borrowed from it. Aliases
//! are expanded within a budget, so that memory stays a multiple of the document's size.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span as Marks, Tag};

use super::{Input, MAX_DEPTH, Scalar, Shape, keys_ahead, scalar};
use crate::problem::{Code, Span};

/// What aliases may add to a document: this many nodes, and this many for each of its own.
const ALIAS_BUDGET: usize = 20_000;
const ALIAS_BUDGET_PER_NODE: usize = 4;

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

/// One document.
#[derive(Debug, Default)]
pub(crate) struct Tree<'a> {
    nodes: Vec<Node<'a>>,
}

/// What is wrong with a document before it is decoded.
#[derive(Debug)]
pub(crate) struct Flaw {
    pub(crate) code: Code,
    pub(crate) span: Span,
    pub(crate) path: Option<String>,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
    /// The earlier of two equal keys.
    pub(crate) first: Option<Span>,
}

impl<'a> Tree<'a> {
    /// Whether the document holds nothing, or only comments.
    pub(crate) fn is_empty(&self) -> bool {
        match self.nodes.first() {
            None => true,
            Some(node) => {
                node.value == Value::Scalar(Scalar::Null) && node.span.start == node.span.end
            }
        }
    }

    /// A cursor at the document's root.
    pub(crate) fn cursor(&self) -> Cursor<'a, '_> {
        Cursor {
            nodes: &self.nodes,
            at: 0,
        }
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
    fn shape(&mut self) -> Shape {
        match self.node().map(|node| &node.value) {
            Some(Value::Scalar(scalar)) => match scalar {
                Scalar::Null => Shape::Null,
                Scalar::Bool(_) => Shape::Bool,
                Scalar::Int(_) => Shape::Int,
                Scalar::Number => Shape::Number,
                Scalar::Str(_) => Shape::Str,
            },
            Some(Value::Map(_)) => Shape::Map,
            Some(Value::Seq(_)) => Shape::Seq,
            Some(Value::End) | None => Shape::Broken,
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

    fn peek_keys(&self) -> Vec<Cow<'a, str>> {
        keys_ahead(self.clone())
    }
}

/// The index after the value at an index.
fn after(nodes: &[Node<'_>], at: usize) -> usize {
    match nodes.get(at).map(|node| &node.value) {
        Some(Value::Map(end) | Value::Seq(end)) => *end as usize,
        Some(Value::Scalar(_) | Value::End) | None => at + 1,
    }
}

/// Reads one document of a text. `range` is the document's place in the text, so that positions
/// are those of the text. With flaws the tree is not to be decoded.
pub(crate) fn read(text: &str, range: Range<usize>) -> (Tree<'_>, Vec<Flaw>) {
    let document = text.get(range.clone()).unwrap_or_default();
    let mut builder = Builder {
        document,
        offsets: Offsets::new(document, range.start),
        nodes: Vec::with_capacity(document.len() / 16),
        frames: Vec::new(),
        anchors: HashMap::new(),
        expanded: 0,
        flaws: Vec::new(),
        base: range.start,
    };
    builder.run();
    (
        Tree {
            nodes: builder.nodes,
        },
        builder.flaws,
    )
}

/// A map or list that is still open.
struct Frame<'a> {
    node: usize,
    anchor: usize,
    is_map: bool,
    /// Whether it stands in brackets, where indentation means nothing.
    is_flow: bool,
    /// In a map: the key whose value comes next.
    key: Option<usize>,
    /// In a map: what `<<` brought.
    merged: Vec<Node<'a>>,
}

struct Builder<'a> {
    document: &'a str,
    base: usize,
    offsets: Offsets<'a>,
    nodes: Vec<Node<'a>>,
    frames: Vec<Frame<'a>>,
    /// By the parser's number of the anchor: the nodes of its value; `None` while it is open.
    anchors: HashMap<usize, Option<Range<usize>>>,
    expanded: usize,
    flaws: Vec<Flaw>,
}

/// The reading of the document ends here; a flaw says why.
struct Stop;

impl<'a> Builder<'a> {
    fn run(&mut self) {
        let mut parser = Parser::new_from_str(self.document);
        while let Some(event) = parser.next_event() {
            let step = match event {
                Ok((event, marks)) => self.event(event, marks),
                Err(error) => self.syntax(&error),
            };
            if step.is_err() {
                return;
            }
        }
    }

    fn event(&mut self, event: Event<'a>, marks: Marks) -> Result<(), Stop> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.scalar(text, style, anchor, tag.as_deref(), marks)
            }
            Event::MappingStart(anchor, tag) => self.open(true, anchor, tag.as_deref(), marks),
            Event::SequenceStart(anchor, tag) => self.open(false, anchor, tag.as_deref(), marks),
            Event::MappingEnd | Event::SequenceEnd => self.close(marks),
            Event::Alias(anchor) => self.alias(anchor, marks),
            Event::DocumentStart(_) if !self.nodes.is_empty() => {
                let span = self.span(marks);
                self.flaw(
                    Code::YamlSyntax,
                    span,
                    "a second document starts here",
                    Some("start it with a line `---`"),
                );
                Err(Stop)
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => Ok(()),
        }
    }

    fn span(&mut self, marks: Marks) -> Span {
        let start = self.offsets.byte(marks.start.index());
        let end = self.offsets.byte(marks.end.index());
        Span::new(start, end)
    }

    fn flaw(&mut self, code: Code, span: Span, message: impl Into<String>, help: Option<&str>) {
        let path = self.path();
        let help = help.map(str::to_owned);
        self.flaws.push(Flaw {
            code,
            span,
            path,
            message: message.into(),
            help,
            first: None,
        });
    }

    /// The path of the value that is being read, from the open frames.
    fn path(&self) -> Option<String> {
        let mut path = crate::path::PathText::default();
        for frame in &self.frames {
            if !frame.is_map {
                path.index(self.count_items(frame));
            } else if let Some(Value::Scalar(Scalar::Str(key))) = frame
                .key
                .and_then(|key| self.nodes.get(key))
                .map(|node| &node.value)
            {
                path.field(key);
            }
        }
        path.finish()
    }

    /// How many items of an open list are complete. Only walked when there is a flaw to report.
    fn count_items(&self, frame: &Frame<'a>) -> usize {
        let mut at = frame.node + 1;
        let mut count = 0;
        while at < self.nodes.len() {
            match self.nodes.get(at).map(|node| &node.value) {
                // An open container's end is not known yet: it is the item being read.
                Some(Value::Map(0) | Value::Seq(0)) => break,
                _ => {
                    at = after(&self.nodes, at);
                    count += 1;
                }
            }
        }
        count
    }

    fn syntax(&mut self, error: &ScanError) -> Result<(), Stop> {
        let at = self.offsets.byte(error.marker().index());
        let flaw = crate::syntax::yaml_flaw(self.document, self.base, at, error.info());
        self.flaws.push(flaw);
        Err(Stop)
    }

    fn scalar(
        &mut self,
        text: Cow<'a, str>,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<&Tag>,
        marks: Marks,
    ) -> Result<(), Stop> {
        let span = self.span(marks);
        let text = self.borrow(text, span);
        let is_plain = style == ScalarStyle::Plain && tag.is_none();
        let at = self.nodes.len();
        if self.wants_key() {
            self.no_tab(span)?;
            if is_plain && text == "<<" {
                // The key itself stands for nothing: what it brings is laid in at the map's end.
                self.nodes.push(Node {
                    value: Value::Scalar(Scalar::Null),
                    span,
                });
                self.set_key(at);
                return Ok(());
            }
            let key = match tag {
                Some(tag) => self.tagged(tag, text, span).and_then(|it| key_text(&it)),
                None if is_plain => plain_key(text),
                None => Some(text),
            };
            self.push_key(key, span);
            self.anchor(anchor, at..at + 1);
            return Ok(());
        }
        if is_plain && scalar::is_unspeakable(&text) {
            let help = Some("put it in quotes if it is text");
            self.flaw(
                Code::WrongType,
                span,
                "a manifest cannot hold an infinite number",
                help,
            );
        }
        let value = match (tag, text) {
            (Some(tag), text) => self.tagged(tag, text, span).unwrap_or(Scalar::Null),
            (None, text) if !is_plain => Scalar::Str(text),
            (None, Cow::Borrowed(text)) => scalar::resolve(text),
            (None, Cow::Owned(text)) => owned(scalar::resolve(&text), &text),
        };
        self.no_tab_before_item(span)?;
        self.nodes.push(Node {
            value: Value::Scalar(value),
            span,
        });
        self.anchor(anchor, at..at + 1);
        self.value_done();
        Ok(())
    }

    fn tagged(&mut self, tag: &Tag, text: Cow<'a, str>, span: Span) -> Option<Scalar<'a>> {
        match tagged(tag, text) {
            Ok(scalar) => Some(scalar),
            Err(message) => {
                let help = "remove the tag, or quote the value if it is text";
                self.flaw(Code::YamlTag, span, message, Some(help));
                None
            }
        }
    }

    fn push_key(&mut self, key: Option<Cow<'a, str>>, span: Span) {
        if key.is_none() {
            let help = Some("put the key in quotes");
            self.flaw(Code::YamlKey, span, "this cannot be a key", help);
        }
        let key = key.unwrap_or_default();
        self.nodes.push(Node {
            value: Value::Scalar(Scalar::Str(key)),
            span,
        });
        self.set_key(self.nodes.len() - 1);
    }

    /// In block style, a tab before a key or an entry is an error to kubectl, though not to YAML 1.2.
    fn no_tab(&mut self, span: Span) -> Result<(), Stop> {
        if self.frames.last().is_none_or(|frame| frame.is_flow) {
            return Ok(());
        }
        let start = span.start as usize - self.base;
        let before = self.document.get(..start).unwrap_or_default();
        let line = before.rfind('\n').map_or(0, |newline| newline + 1);
        let before = before.get(line..).unwrap_or_default();
        let indent = before.len() - before.trim_start_matches([' ', '\t']).len();
        let Some(tab) = before.get(..indent).and_then(|indent| indent.find('\t')) else {
            return Ok(());
        };
        let at = self.base + line + tab;
        let help = Some("YAML allows only spaces for indentation");
        self.flaw(
            Code::TabIndent,
            Span::new(at, at + 1),
            "a tab indents this line",
            help,
        );
        Err(Stop)
    }

    /// The same for an entry of a list.
    fn no_tab_before_item(&mut self, span: Span) -> Result<(), Stop> {
        if self
            .frames
            .last()
            .is_some_and(|frame| !frame.is_map && !frame.is_flow)
        {
            return self.no_tab(span);
        }
        Ok(())
    }

    /// Points into the source instead of holding a copy, where the source spells it the same.
    fn borrow(&self, text: Cow<'a, str>, span: Span) -> Cow<'a, str> {
        let start = span.start as usize - self.base;
        let spelled = |from: usize| self.document.get(from..from + text.len());
        if spelled(start) == Some(&*text) {
            return spelled(start).map_or(text, Cow::Borrowed);
        }
        // A quoted scalar: one character further.
        match self.document.get(start + 1..start + 1 + text.len()) {
            Some(same) if same == text => Cow::Borrowed(same),
            _ => text,
        }
    }

    fn wants_key(&self) -> bool {
        self.frames
            .last()
            .is_some_and(|frame| frame.is_map && frame.key.is_none())
    }

    fn set_key(&mut self, key: usize) {
        if let Some(frame) = self.frames.last_mut() {
            frame.key = Some(key);
        }
    }

    fn anchor(&mut self, anchor: usize, range: Range<usize>) {
        if anchor > 0 {
            self.anchors.insert(anchor, Some(range));
        }
    }

    /// A value is complete: the map around it wants a key again, or was waiting for a merge.
    fn value_done(&mut self) {
        let Some(frame) = self.frames.last() else {
            return;
        };
        let Some(key) = frame.key.filter(|_| frame.is_map) else {
            return;
        };
        let is_merge = self
            .nodes
            .get(key)
            .is_some_and(|node| node.value == Value::Scalar(Scalar::Null));
        if is_merge {
            self.merge(key);
        }
        if let Some(frame) = self.frames.last_mut() {
            frame.key = None;
        }
    }

    /// Takes `<<` and its value out of the tree and keeps the entries for the map's end.
    fn merge(&mut self, key: usize) {
        let mut sources: Vec<usize> = Vec::new();
        let value = key + 1;
        match self.nodes.get(value).map(|node| &node.value) {
            Some(Value::Map(_)) => sources.push(value),
            Some(Value::Seq(end)) => {
                let end = *end as usize;
                let mut item = value + 1;
                while item + 1 < end {
                    sources.push(item);
                    item = after(&self.nodes, item);
                }
            }
            _ => sources.push(value),
        }
        let mut entries = Vec::new();
        for source in sources {
            match self.nodes.get(source).map(|node| &node.value) {
                Some(Value::Map(end)) => {
                    let inner = self
                        .nodes
                        .get(source + 1..*end as usize - 1)
                        .unwrap_or_default();
                    // Ends are absolute; they are moved when the entries are laid in.
                    entries.push((source + 1, inner.to_vec()));
                }
                _ => {
                    let span = self
                        .nodes
                        .get(source)
                        .map(|node| node.span)
                        .unwrap_or_default();
                    self.flaw(
                        Code::MergeKey,
                        span,
                        "`<<` needs a mapping, or a list of mappings",
                        Some("give it an alias of a mapping, like `<<: *defaults`"),
                    );
                }
            }
        }
        self.nodes.truncate(key);
        if let Some(frame) = self.frames.last_mut() {
            for (from, mut nodes) in entries {
                let offset = frame.merged.len();
                // Make the ends relative to the list of merged nodes.
                for node in &mut nodes {
                    shift(node, from, offset);
                }
                frame.merged.extend(nodes);
            }
        }
    }

    fn open(
        &mut self,
        is_map: bool,
        anchor: usize,
        tag: Option<&Tag>,
        marks: Marks,
    ) -> Result<(), Stop> {
        // The parser marks where a block collection's first entry starts, or the bracket.
        let start = self.offsets.byte(marks.start.index());
        let span = self.first_token(start, is_map);
        if self.frames.len() >= MAX_DEPTH {
            self.flaws.push(Flaw {
                code: Code::NestingDepth,
                span,
                path: None,
                message: format!("the document is nested more than {MAX_DEPTH} levels deep"),
                help: None,
                first: None,
            });
            return Err(Stop);
        }
        if self.wants_key() {
            self.flaw(
                Code::YamlKey,
                span,
                "a key is a mapping or a list",
                Some("keys are plain text; is this a template that was not rendered?"),
            );
            return Err(Stop);
        }
        if let Some(tag) = tag {
            let expected = if is_map { "map" } else { "seq" };
            if !(tag.is_yaml_core_schema() && tag.suffix == expected) && !is_non_specific(tag) {
                self.flaw(
                    Code::YamlTag,
                    span,
                    format!("the tag `{tag}` has no meaning here"),
                    Some("remove the tag"),
                );
            }
        }
        if anchor > 0 {
            self.anchors.insert(anchor, None);
        }
        self.no_tab_before_item(span)?;
        let written = self.document.as_bytes().get(start - self.base);
        let is_flow = matches!(written, Some(b'{' | b'['))
            || self.frames.last().is_some_and(|frame| frame.is_flow);
        let node = self.nodes.len();
        self.nodes.push(Node {
            value: if is_map { Value::Map(0) } else { Value::Seq(0) },
            span,
        });
        self.frames.push(Frame {
            node,
            anchor,
            is_map,
            is_flow,
            key: None,
            merged: Vec::new(),
        });
        Ok(())
    }

    /// The first word of a collection, for the caret: its first line would often be too long.
    fn first_token(&self, start: usize, is_map: bool) -> Span {
        let rest = self.document.get(start - self.base..).unwrap_or_default();
        let len = match rest.as_bytes().first() {
            Some(b'{' | b'[') => 1,
            _ if is_map => rest.find([':', '\n', '\r']).unwrap_or(rest.len()).max(1),
            _ => 1,
        };
        Span::new(start, (start + len).min(self.base + self.document.len()))
    }

    fn close(&mut self, marks: Marks) -> Result<(), Stop> {
        let Some(frame) = self.frames.pop() else {
            return Ok(());
        };
        if frame.is_map {
            self.lay_in(&frame)?;
        }
        let span = self.span(marks);
        self.nodes.push(Node {
            value: Value::End,
            span,
        });
        let end = self.nodes.len();
        let end_index = u32::try_from(end).unwrap_or(u32::MAX);
        if let Some(node) = self.nodes.get_mut(frame.node) {
            node.value = if frame.is_map {
                Value::Map(end_index)
            } else {
                Value::Seq(end_index)
            };
        }
        if frame.is_map {
            self.frames.push(frame);
            self.duplicate_keys(end);
            let frame = self.frames.pop();
            self.anchor(
                frame.as_ref().map_or(0, |frame| frame.anchor),
                frame.map_or(0, |frame| frame.node)..end,
            );
        } else {
            self.anchor(frame.anchor, frame.node..end);
        }
        self.value_done();
        Ok(())
    }

    /// Appends merged entries whose keys the map does not have itself.
    fn lay_in(&mut self, frame: &Frame<'a>) -> Result<(), Stop> {
        if frame.merged.is_empty() {
            return Ok(());
        }
        let mut known: std::collections::HashSet<Cow<'a, str>> = std::collections::HashSet::new();
        let mut at = frame.node + 1;
        while let Some(node) = self.nodes.get(at) {
            if let Value::Scalar(Scalar::Str(key)) = &node.value {
                known.insert(key.clone());
            }
            at = after(&self.nodes, at + 1);
        }
        let mut from = 0;
        while let Some(key) = frame.merged.get(from) {
            let to = after(&frame.merged, from + 1);
            if let Value::Scalar(Scalar::Str(name)) = &key.value
                && known.insert(name.clone())
            {
                let entry = frame.merged.get(from..to).unwrap_or_default();
                self.spend(entry.len(), key.span)?;
                let offset = self.nodes.len();
                for node in entry {
                    let mut node = node.clone();
                    shift(&mut node, from, offset);
                    self.nodes.push(node);
                }
            }
            from = to;
        }
        Ok(())
    }

    fn spend(&mut self, n_nodes: usize, span: Span) -> Result<(), Stop> {
        self.expanded += n_nodes;
        let own = self.nodes.len().saturating_sub(self.expanded);
        if self.expanded > ALIAS_BUDGET + ALIAS_BUDGET_PER_NODE * own {
            self.flaw(
                Code::AliasBudget,
                span,
                "the aliases of this document expand to too much",
                Some("write the values out, or split the document"),
            );
            return Err(Stop);
        }
        Ok(())
    }

    fn alias(&mut self, anchor: usize, marks: Marks) -> Result<(), Stop> {
        let span = self.span(marks);
        let Some(known) = self.anchors.get(&anchor) else {
            self.flaw(
                Code::AliasUndefined,
                span,
                "this alias names no anchor",
                Some("define the anchor before it, with `&name`"),
            );
            return Err(Stop);
        };
        let Some(range) = known.clone() else {
            self.flaw(
                Code::AliasCycle,
                span,
                "this alias stands inside the value it names",
                Some("a manifest cannot contain itself"),
            );
            return Err(Stop);
        };
        self.spend(range.len(), span)?;
        if self.wants_key() {
            let node = self.nodes.get(range.start).cloned();
            let Some(Node {
                value: Value::Scalar(scalar),
                ..
            }) = node
            else {
                self.flaw(Code::YamlKey, span, "a key is a mapping or a list", None);
                return Err(Stop);
            };
            self.push_key(key_text(&scalar), span);
            return Ok(());
        }
        let offset = self.nodes.len();
        for at in range.clone() {
            if let Some(mut node) = self.nodes.get(at).cloned() {
                shift(&mut node, range.start, offset);
                self.nodes.push(node);
            }
        }
        self.value_done();
        Ok(())
    }

    /// Compares the keys of the map that was just completed.
    fn duplicate_keys(&mut self, end: usize) {
        let Some(node) = self.frames.last().map(|frame| frame.node) else {
            return;
        };
        let mut keys: Vec<usize> = Vec::new();
        let mut at = node + 1;
        while at + 1 < end {
            keys.push(at);
            at = after(&self.nodes, at + 1);
        }
        let name = |at: usize| match self.nodes.get(at).map(|node| &node.value) {
            Some(Value::Scalar(Scalar::Str(key))) => &**key,
            _ => "",
        };
        let mut twice: Vec<(usize, usize)> = Vec::new();
        if keys.len() <= 12 {
            for (i, &key) in keys.iter().enumerate() {
                let earlier = keys
                    .iter()
                    .take(i)
                    .find(|&&earlier| name(earlier) == name(key));
                twice.extend(earlier.map(|&earlier| (earlier, key)));
            }
        } else {
            let mut seen: HashMap<&str, usize> = HashMap::with_capacity(keys.len());
            for &key in &keys {
                match seen.get(name(key)) {
                    Some(&earlier) => twice.push((earlier, key)),
                    None => drop(seen.insert(name(key), key)),
                }
            }
        }
        for (earlier, key) in twice {
            self.set_key(key);
            let span = self
                .nodes
                .get(key)
                .map(|node| node.span)
                .unwrap_or_default();
            let message = format!(
                "the key `{}` stands twice in this mapping",
                name_of(&self.nodes, key)
            );
            self.flaw(
                Code::DuplicateKey,
                span,
                message,
                Some("join the two, or remove one"),
            );
            let first = self.nodes.get(earlier).map(|node| node.span);
            if let Some(flaw) = self.flaws.last_mut() {
                flaw.first = first;
            }
        }
    }
}

fn name_of<'t>(nodes: &'t [Node<'_>], at: usize) -> &'t str {
    match nodes.get(at).map(|node| &node.value) {
        Some(Value::Scalar(Scalar::Str(key))) => key,
        _ => "",
    }
}

/// Moves a node's end when the node is copied from index `from` to `to`.
fn shift(node: &mut Node<'_>, from: usize, to: usize) {
    match &mut node.value {
        Value::Map(end) | Value::Seq(end) => {
            *end = u32::try_from(*end as usize + to - from).unwrap_or(u32::MAX);
        }
        Value::Scalar(_) | Value::End => {}
    }
}

/// Ties a resolved scalar to the document's lifetime when its text was built, not borrowed.
fn owned<'a>(scalar: Scalar<'_>, text: &str) -> Scalar<'a> {
    match scalar {
        Scalar::Null => Scalar::Null,
        Scalar::Bool(value) => Scalar::Bool(value),
        Scalar::Int(value) => Scalar::Int(value),
        Scalar::Number => Scalar::Number,
        Scalar::Str(_) => Scalar::Str(Cow::Owned(text.to_owned())),
    }
}

/// A plain scalar as a key.
fn plain_key(text: Cow<'_, str>) -> Option<Cow<'_, str>> {
    match text {
        Cow::Borrowed(text) => scalar::resolve_key(text),
        Cow::Owned(text) => scalar::resolve_key(&text).map(|key| Cow::Owned(key.into_owned())),
    }
}

/// A value that an alias or a tag puts in the place of a key.
fn key_text<'a>(scalar: &Scalar<'a>) -> Option<Cow<'a, str>> {
    match scalar {
        Scalar::Str(text) => Some(text.clone()),
        Scalar::Bool(value) => Some(Cow::Borrowed(if *value { "true" } else { "false" })),
        Scalar::Int(value) => Some(Cow::Owned(value.to_string())),
        Scalar::Null | Scalar::Number => None,
    }
}

/// `!`, which only says "not resolved".
fn is_non_specific(tag: &Tag) -> bool {
    tag.suffix.is_empty() || (tag.handle.is_empty() && tag.suffix == "!")
}

fn tagged<'a>(tag: &Tag, text: Cow<'a, str>) -> Result<Scalar<'a>, String> {
    if is_non_specific(tag) {
        return Ok(Scalar::Str(text));
    }
    if !tag.is_yaml_core_schema() {
        return Err(format!("the tag `{tag}` has no meaning in a manifest"));
    }
    if tag.suffix == "str" {
        return Ok(Scalar::Str(text));
    }
    let resolved = scalar::resolve(&text);
    let fits = match (tag.suffix.as_str(), &resolved) {
        ("int", _) => scalar::is_integer(&text),
        ("bool", Scalar::Bool(_)) | ("null", Scalar::Null) => true,
        ("float", Scalar::Int(_) | Scalar::Number) => !scalar::is_unspeakable(&text),
        _ => false,
    };
    if fits {
        Ok(owned(resolved, ""))
    } else {
        Err(format!("the tag `!!{}` does not fit its value", tag.suffix))
    }
}

/// Byte offsets of character positions. The parser counts characters.
struct Offsets<'a> {
    document: &'a str,
    base: usize,
    /// The byte offset of every 64th character; empty when all are ASCII.
    marks: Vec<u32>,
}

impl<'a> Offsets<'a> {
    fn new(document: &'a str, base: usize) -> Offsets<'a> {
        let mut marks = Vec::new();
        if !document.is_ascii() {
            let every = document.char_indices().step_by(64);
            marks.extend(every.map(|(at, _)| u32::try_from(at).unwrap_or(u32::MAX)));
        }
        Offsets {
            document,
            base,
            marks,
        }
    }

    fn byte(&self, index: usize) -> usize {
        if self.marks.is_empty() {
            return self.base + index.min(self.document.len());
        }
        let Some(&mark) = self.marks.get(index / 64) else {
            return self.base + self.document.len();
        };
        let rest = self.document.get(mark as usize..).unwrap_or_default();
        let within = rest
            .char_indices()
            .nth(index % 64)
            .map_or(rest.len(), |(at, _)| at);
        self.base + mark as usize + within
    }
}

#[cfg(test)]
mod tests;
