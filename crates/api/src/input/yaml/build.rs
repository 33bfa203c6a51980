//! Builds the tree of a document from the parser's events.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::str::Chars;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span as Marks, Tag};

use super::offsets::Offsets;
use super::{DocumentFlaw, Node, Tree, Value};
use crate::input::{MAX_DEPTH, Scalar, scalar};
use crate::path::PathText;
use crate::problem::{Code, MAX_PROBLEMS, Span};
use crate::syntax::LenientSyntax;
use palisade_core::text::ticked;

/// Reads one document of a text. `range` is the document's place in the text; positions are those
/// of the text. A value with a flaw inside must not be decoded.
pub(crate) fn read(text: &str, range: Range<usize>) -> (Tree<'_>, Vec<DocumentFlaw>) {
    let document = text.get(range.clone()).unwrap_or_default();
    let mut softened: Vec<LenientSyntax> = Vec::new();
    let mut n_read = 0;
    loop {
        let mut builder = Builder {
            document,
            offsets: Offsets::new(document, range.start),
            nodes: Vec::with_capacity(document.len() / 16),
            frames: Vec::new(),
            anchors: HashMap::new(),
            expanded: 0,
            flaws: Vec::new(),
            base: range.start,
            soften: Vec::new(),
        };
        let complete = builder.run(&softened).is_ok();
        n_read += document.len().max(1 << 16);
        let is_new = builder.soften.iter().any(|it| !softened.contains(it));
        if is_new && n_read < MOST_READ_AGAIN {
            softened.append(&mut builder.soften);
            continue;
        }
        let tree = Tree {
            nodes: builder.nodes,
            complete,
        };
        return (tree, builder.flaws);
    }
}

/// The number of bytes read, in all attempts, after which a document is not read again with more of
/// its layout ignored.
const MOST_READ_AGAIN: usize = 1 << 23;

/// How much punctuation of flow style may occur between two events of the parser, which keeps every
/// token of an open collection in brackets in memory, at some two hundred bytes each.
const FLOW_BUDGET: u32 = 250_000;

/// The characters of a document, which end early when the budget is spent.
struct LimitedChars<'a> {
    characters: Chars<'a>,
    budget: Rc<Cell<u32>>,
    after_colon: bool,
    /// The offset of the next character.
    at: usize,
    /// Layout that counts as spaces.
    softened: Vec<LenientSyntax>,
}

impl Iterator for LimitedChars<'_> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        let c = self.characters.next()?;
        if matches!(c, ',' | ':' | '[' | ']' | '{' | '}') {
            let left = self.budget.get().checked_sub(1)?;
            self.budget.set(left);
        }
        // kubectl reads a tab between a key and its value as a space; the parser does not.
        let tab = self.after_colon && c == '\t';
        self.after_colon = c == ':' || tab;
        let at = self.at;
        self.at += c.len_utf8();
        let is_break = matches!(c, '\n' | '\r' | '\t');
        let is_soft = |it: &LenientSyntax| (it.blank || is_break) && it.range.contains(&at);
        let soft = self.softened.iter().any(is_soft);
        Some(if tab || soft { ' ' } else { c })
    }
}

/// A map or list that is still open.
pub(super) struct Frame<'a> {
    pub(super) node: usize,
    anchor: usize,
    is_map: bool,
    /// Whether it is in brackets, where indentation is ignored.
    is_flow: bool,
    /// In a list: how many items are complete.
    n_items: usize,
    /// In a map: the key whose value comes next.
    key: Option<usize>,
    /// In a map: the place of `<<`.
    merge: Option<Span>,
    /// In a map: the entries that `<<` merges.
    pub(super) merged: Vec<Node<'a>>,
}

pub(super) struct Builder<'a> {
    document: &'a str,
    base: usize,
    offsets: Offsets<'a>,
    pub(super) nodes: Vec<Node<'a>>,
    pub(super) frames: Vec<Frame<'a>>,
    /// By the parser's number of the anchor: the nodes of its value; `None` while it is open.
    pub(super) anchors: HashMap<usize, Option<Range<usize>>>,
    pub(super) expanded: usize,
    pub(super) flaws: Vec<DocumentFlaw>,
    /// Layout that the parser rejects and kubectl accepts.
    soften: Vec<LenientSyntax>,
}

/// The reading of the document ends here; a flaw is the reason.
pub(super) struct Stop;

impl<'a> Builder<'a> {
    fn run(&mut self, softened: &[LenientSyntax]) -> Result<(), Stop> {
        self.directive()?;
        let budget = Rc::new(Cell::new(FLOW_BUDGET));
        let characters = LimitedChars {
            characters: self.document.chars(),
            budget: Rc::clone(&budget),
            after_colon: false,
            at: 0,
            softened: softened.to_vec(),
        };
        let mut parser = Parser::new_from_iter(characters);
        while let Some(event) = parser.next_event() {
            match event {
                Ok((event, marks)) => self.event(event, marks)?,
                Err(_) if budget.get() == 0 => self.flow_too_large()?,
                Err(error) => self.syntax(&error)?,
            }
            budget.set(FLOW_BUDGET);
        }
        Ok(())
    }

    /// Every reader rejects a document that declares another version of YAML.
    fn directive(&mut self) -> Result<(), Stop> {
        let Some(rest) = self.document.strip_prefix("%YAML ") else {
            return Ok(());
        };
        if rest.trim_start().starts_with("1.") {
            return Ok(());
        }
        let line = rest.lines().next().unwrap_or_default();
        let span = Span::new(self.base, self.base + "%YAML ".len() + line.len());
        let help = Some("write `%YAML 1.1`, or remove the line");
        self.flaw(Code::YamlSyntax, span, "unknown YAML version", help);
        Err(Stop)
    }

    fn flow_too_large(&mut self) -> Result<(), Stop> {
        // The last event shows where the collection can have started.
        let at = self
            .nodes
            .last()
            .map_or(self.base, |node| node.span.end as usize);
        let rest = self.document.get(at - self.base..).unwrap_or_default();
        let at = at + rest.find(['[', '{']).unwrap_or(0);
        let help = "write it in block style, or the whole document as JSON";
        let message = "this collection in brackets is too large to be read as YAML";
        self.flaw(
            Code::FlowTooLarge,
            Span::new(at, at + 1),
            message,
            Some(help),
        );
        Err(Stop)
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

    pub(super) fn span(&mut self, marks: Marks) -> Span {
        let start = self.offsets.byte(marks.start.index());
        let end = self.offsets.byte(marks.end.index());
        Span::new(start, end)
    }

    pub(super) fn flaw(
        &mut self,
        code: Code,
        span: Span,
        message: impl Into<String>,
        help: Option<&str>,
    ) {
        // As many as problems of a document are kept, and one more to show that there were more.
        if self.flaws.len() > MAX_PROBLEMS {
            return;
        }
        let path = self.path();
        let help = help.map(str::to_owned);
        self.flaws.push(DocumentFlaw {
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
        let mut path = PathText::default();
        for frame in &self.frames {
            if !frame.is_map {
                path.index(frame.n_items);
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

    fn syntax(&mut self, error: &ScanError) -> Result<(), Stop> {
        let at = self.offsets.byte(error.marker().index());
        let place = at.saturating_sub(self.base);
        self.soften = crate::syntax::soft_layout(self.document, place, error.info());
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
        if self.expects_key() {
            self.no_tab(span)?;
            if is_plain && text == "<<" {
                // The key itself is no entry: the merged entries are inserted at the map's end.
                self.second_merge(span);
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
        if is_plain && scalar::is_infinite_or_nan(&text) {
            let help = Some("put it in quotes if it is text");
            self.flaw(
                Code::WrongType,
                span,
                "a manifest cannot have an infinite number or NaN",
                help,
            );
        }
        let value = match (tag, text) {
            (Some(tag), text) => self.tagged(tag, text, span).unwrap_or(Scalar::Null),
            (None, text) if !is_plain => Scalar::Str(text),
            (None, Cow::Borrowed(text)) => scalar::resolve(text),
            (None, Cow::Owned(text)) => owned(&scalar::resolve(&text), &text),
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

    /// One mapping can merge several others by a list, not by several `<<`.
    fn second_merge(&mut self, span: Span) {
        let Some(frame) = self.frames.last_mut() else {
            return;
        };
        if frame.merge.replace(span).is_some() {
            let help = Some("merge several mappings with a list: `<<: [*a, *b]`");
            let message = "duplicate key `<<`";
            self.flaw(Code::DuplicateKey, span, message, help);
        }
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

    pub(super) fn push_key(&mut self, key: Option<Cow<'a, str>>, span: Span) {
        if key.is_none() {
            let (message, help) = if span.start == span.end {
                ("an entry has no key", "write a key before the `:`")
            } else {
                ("this cannot be a key", "put the key in quotes")
            };
            self.flaw(Code::YamlKey, span, message, Some(help));
        }
        let key = key.unwrap_or_default();
        self.nodes.push(Node {
            value: Value::Scalar(Scalar::Str(key)),
            span,
        });
        self.set_key(self.nodes.len() - 1);
    }

    /// In block style, a tab before a key or an entry is an error to kubectl, though not to YAML
    /// 1.2.
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

    /// Borrows from the source where the value is its text.
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

    pub(super) fn expects_key(&self) -> bool {
        self.frames
            .last()
            .is_some_and(|frame| frame.is_map && frame.key.is_none())
    }

    pub(super) fn set_key(&mut self, key: usize) {
        if let Some(frame) = self.frames.last_mut() {
            frame.key = Some(key);
        }
    }

    fn anchor(&mut self, anchor: usize, range: Range<usize>) {
        if anchor > 0 {
            self.anchors.insert(anchor, Some(range));
        }
    }

    /// A value is complete: the map around it expects a key again, or waited for a merge.
    pub(super) fn value_done(&mut self) {
        let Some(frame) = self.frames.last_mut() else {
            return;
        };
        if !frame.is_map {
            frame.n_items += 1;
            return;
        }
        let Some(key) = frame.key else {
            return;
        };
        let node = self.nodes.get(key);
        if node.is_some_and(|node| node.value == Value::Scalar(Scalar::Null)) {
            self.merge(key);
        }
        if let Some(frame) = self.frames.last_mut() {
            frame.key = None;
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
            self.flaws.push(DocumentFlaw {
                code: Code::NestingDepth,
                span,
                path: None,
                message: format!("the document is nested more than {MAX_DEPTH} levels deep"),
                help: None,
                first: None,
            });
            return Err(Stop);
        }
        if self.expects_key() {
            self.flaw(
                Code::YamlKey,
                span,
                "a key is a mapping or a list",
                Some("keys are plain text; render the template if this is one"),
            );
            return Err(Stop);
        }
        if let Some(tag) = tag {
            let expected = if is_map { "map" } else { "seq" };
            let fits = tag.is_yaml_core_schema() && tag.suffix == expected;
            if !fits && !is_non_specific(tag) {
                self.flaw(
                    Code::YamlTag,
                    span,
                    format!("the tag {} is not supported here", ticked(&tag_text(tag))),
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
            n_items: 0,
            key: None,
            merge: None,
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
        if self.frames.last().is_some_and(|frame| frame.is_map) {
            self.insert_merged()?;
            self.duplicate_keys();
        }
        let Some(frame) = self.frames.pop() else {
            return Ok(());
        };
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
        self.anchor(frame.anchor, frame.node..end);
        self.value_done();
        Ok(())
    }
}

/// Gives a resolved scalar the document's lifetime when its text was built, not borrowed.
fn owned<'a>(scalar: &Scalar<'_>, text: &str) -> Scalar<'a> {
    match scalar {
        Scalar::Null => Scalar::Null,
        Scalar::Bool(value) => Scalar::Bool(*value),
        Scalar::Int(value) => Scalar::Int(*value),
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

/// A value that an alias or a tag makes a key.
pub(super) fn key_text<'a>(scalar: &Scalar<'a>) -> Option<Cow<'a, str>> {
    match scalar {
        Scalar::Str(text) => Some(text.clone()),
        Scalar::Bool(value) => Some(Cow::Borrowed(if *value { "true" } else { "false" })),
        Scalar::Int(value) => Some(Cow::Owned(value.to_string())),
        Scalar::Null | Scalar::Number => None,
    }
}

/// The tag as it is usually written.
fn tag_text(tag: &Tag) -> String {
    if tag.is_yaml_core_schema() {
        format!("!!{}", tag.suffix)
    } else {
        tag.to_string()
    }
}

/// `!`, the tag for "not resolved".
fn is_non_specific(tag: &Tag) -> bool {
    tag.suffix.is_empty() || (tag.handle.is_empty() && tag.suffix == "!")
}

fn tagged<'a>(tag: &Tag, text: Cow<'a, str>) -> Result<Scalar<'a>, String> {
    if is_non_specific(tag) {
        return Ok(Scalar::Str(text));
    }
    if !tag.is_yaml_core_schema() {
        return Err(format!(
            "the tag {} has no meaning in a manifest",
            ticked(&tag_text(tag))
        ));
    }
    if !["str", "int", "bool", "float", "null"].contains(&&*tag.suffix) {
        let tag = ticked(&format!("!!{}", tag.suffix));
        return Err(format!("the tag {tag} has no meaning in a manifest"));
    }
    if tag.suffix == "str" {
        return Ok(Scalar::Str(text));
    }
    let resolved = scalar::resolve(&text);
    let fits = match (tag.suffix.as_str(), &resolved) {
        ("int", _) => scalar::is_integer(&text),
        ("bool", Scalar::Bool(_)) | ("null", Scalar::Null) => true,
        ("float", Scalar::Int(_) | Scalar::Number) => !scalar::is_infinite_or_nan(&text),
        _ => false,
    };
    if fits {
        Ok(owned(&resolved, ""))
    } else {
        Err(format!(
            "the tag {} does not fit its value",
            ticked(&format!("!!{}", tag.suffix))
        ))
    }
}
