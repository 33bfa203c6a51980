//! From lines to nodes.
//!
//! Everything here returns `None` to give up the document.

use std::ops::Range;

use memchr::{memchr, memchr2, memmem};

use super::keys::{Keys, Siblings, first_bytes};
use super::scalars::{Quoted, Stop};
use super::{Kind, Node, Tree, split};
use crate::input::bytes::spaces;

/// How deep collections are followed; far below where the full parser stops.
const MAX_FOLLOWED: usize = 64;

/// How many collections are open in a list that is an entry of the root.
const ROOT_LIST: usize = 2;

/// How long a key may be. The full parser stops its search for a colon a little later.
const MAX_KEY: usize = 512;

/// Punctuation is counted after more than this many bytes without a node, and more than this many
/// signs are too many: the full parser has a budget for them.
const MANY_SIGNS: usize = 1 << 16;

/// Reads one document of a text, or gives it up; see the module above. A long list is scanned in
/// pieces of at least this many bytes.
pub(crate) fn read(text: &str, range: Range<usize>, least: usize) -> Option<Tree<'_>> {
    let document = text.get(range.clone())?.as_bytes();
    u32::try_from(range.end).ok()?;
    if is_odd(document) {
        return None;
    }
    let nodes = match split::scan(text, &range, least) {
        Some(nodes) => nodes,
        None => Scan::new(text, range.clone())?.finish()?,
    };
    Some(Tree { text, range, nodes })
}

/// Whether the text has a character that only the full parser reads: a Windows line end, a tab
/// after a colon, a byte-order mark.
fn is_odd(document: &[u8]) -> bool {
    let has = |sign: &[u8]| memmem::find(document, sign).is_some();
    let has_space = memchr2(b'\r', b'\t', document).is_some();
    (has_space && (has(b"\r") || has(b":\t"))) || (!document.is_ascii() && has(b"\xef\xbb\xbf"))
}

/// A map or list that is still open.
struct Frame<'a> {
    node: usize,
    /// The column of its keys or dashes.
    column: usize,
    is_map: bool,
    /// In a map: the colon whose value comes next.
    pending: Option<usize>,
    siblings: Siblings<'a>,
}

/// What the next word of a line must be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExpectedToken {
    /// A key of the innermost map.
    Key,
    /// A value of any kind.
    Value,
}

pub(super) struct Scan<'a> {
    /// The text up to the document's end; offsets are those of the whole text.
    pub(super) bytes: &'a [u8],
    /// The start of the next line.
    pub(super) pos: usize,
    /// Where scanning stops, at the start of a line.
    limit: usize,
    nodes: Vec<Node>,
    frames: Vec<Frame<'a>>,
    keys: Keys<'a>,
    /// The end of the last node.
    last: usize,
    has_marker: bool,
}

impl<'a> Scan<'a> {
    #[inline]
    pub(super) fn byte(&self, at: usize) -> Option<u8> {
        self.bytes.get(at).copied()
    }

    #[inline]
    pub(super) fn rest(&self, at: usize) -> &'a [u8] {
        self.bytes.get(at..).unwrap_or_default()
    }

    /// The offset of the first byte from here on that is no space.
    #[inline]
    pub(super) fn past_spaces(&self, at: usize) -> usize {
        at + spaces(self.rest(at))
    }

    /// The offset of the line's end.
    pub(super) fn line_end(&self, at: usize) -> usize {
        let rest = self.rest(at);
        at + memchr(b'\n', rest).unwrap_or(rest.len())
    }

    pub(super) fn new(text: &'a str, range: Range<usize>) -> Option<Scan<'a>> {
        Some(Scan {
            bytes: text.as_bytes().get(..range.end)?,
            pos: range.start,
            limit: range.end,
            nodes: Vec::with_capacity(range.len() / 8),
            frames: Vec::with_capacity(16),
            keys: Keys::new(),
            last: range.start,
            has_marker: false,
        })
    }

    /// Scans to the document's end.
    pub(super) fn finish(mut self) -> Option<Vec<Node>> {
        self.lines()?;
        self.within_budget(self.bytes.len())?;
        while !self.frames.is_empty() {
            self.close()?;
        }
        Some(self.nodes)
    }

    /// Scans to the start of a line and not beyond it.
    pub(super) fn up_to(&mut self, limit: usize) -> Option<()> {
        let end = std::mem::replace(&mut self.limit, limit);
        self.lines()?;
        self.limit = end;
        self.within_budget(limit)?;
        (self.pos == limit).then_some(())
    }

    /// Closes what ends before an item in this column, which must be one of the root's.
    pub(super) fn at_item(&mut self, column: usize) -> Option<()> {
        let place = self.close_to(column, true)?;
        (place == ExpectedToken::Key && self.frames.len() == ROOT_LIST).then_some(())
    }

    /// Scans items of a list in the root, and gives up at anything else.
    pub(super) fn piece(
        document: &'a str,
        range: Range<usize>,
        column: usize,
    ) -> Option<Vec<Node>> {
        let mut scan = Scan::new(document, range.clone())?;
        // The bytes after the piece decide how its last line continues.
        scan.bytes = document.as_bytes();
        // These have no nodes: closing one of them gives up.
        for (column, is_map) in [(0, true), (column, false)] {
            scan.frames.push(Frame {
                node: usize::MAX,
                column,
                is_map,
                pending: None,
                siblings: scan.keys.open(),
            });
        }
        scan.up_to(range.end)?;
        while scan.frames.len() > ROOT_LIST {
            scan.close()?;
        }
        Some(scan.nodes)
    }

    /// Appends the nodes of a piece.
    pub(super) fn append(&mut self, piece: &[Node]) {
        let offset = self.nodes.len() as u32;
        let moved = |node: &Node| {
            let is_open = matches!(node.kind, Kind::Map | Kind::Seq);
            let end = node.end + if is_open { offset } else { 0 };
            Node { end, ..*node }
        };
        self.nodes.extend(piece.iter().map(moved));
    }

    /// Continues after the pieces.
    pub(super) fn go_on_at(&mut self, at: usize) {
        (self.pos, self.last) = (at, at);
    }

    /// The column of the innermost collection.
    pub(super) fn column(&self) -> Option<usize> {
        self.frames.last().map(|frame| frame.column)
    }

    fn lines(&mut self) -> Option<()> {
        while self.pos < self.limit {
            let at = self.past_spaces(self.pos);
            let column = at - self.pos;
            match self.byte(at) {
                None => break,
                Some(b'\n') => self.pos = at + 1,
                Some(b'#') => self.pos = self.line_end(at) + 1,
                Some(b'-' | b'.') if column == 0 && self.marker(at)? => {}
                Some(_) => self.line(at, column)?,
            }
        }
        Some(())
    }

    /// Skips a line that starts or ends the document; returns whether it is one.
    fn marker(&mut self, at: usize) -> Option<bool> {
        let rest = self.rest(at);
        let starts = rest.starts_with(b"---");
        if !(starts || rest.starts_with(b"...")) {
            return Some(false);
        }
        if !matches!(self.byte(at + 3), None | Some(b' ' | b'\n')) {
            return None;
        }
        self.pos = self.tail(at + 3)? + 1;
        if starts {
            let first = self.nodes.is_empty() && !self.has_marker;
            self.has_marker = true;
            return first.then_some(true);
        }
        let is_last = self.rest(self.pos).is_empty() && !self.nodes.is_empty();
        is_last.then_some(true)
    }

    /// Reads a line that is not blank.
    fn line(&mut self, mut at: usize, mut column: usize) -> Option<()> {
        let mut is_item = self.is_dash(at)?;
        let mut is_open = self.close_to(column, is_item)?;
        while is_item {
            let inner = self.past_spaces(at + 1);
            if is_open != ExpectedToken::Key {
                // A list in the column of its key has no mark of its own in the full parser.
                let around = self.frames.last();
                let is_flush = around.is_some_and(|frame| frame.column == column);
                self.open(false, if is_flush { inner } else { at }, column)?;
            }
            column += inner - at;
            at = inner;
            if matches!(self.byte(at), None | Some(b'\n' | b'#')) {
                return None;
            }
            is_item = self.is_dash(at)?;
            is_open = ExpectedToken::Value;
        }
        self.entry(at, column, is_open)
    }

    /// Whether a dash is here that makes the rest of the line an item.
    #[inline]
    fn is_dash(&self, at: usize) -> Option<bool> {
        if self.byte(at) != Some(b'-') {
            return Some(false);
        }
        match self.byte(at + 1) {
            Some(b' ') => Some(true),
            None | Some(b'\n' | b'\t') => None,
            Some(_) => Some(false),
        }
    }

    /// Closes what ends before a line of this column. `Key` is another entry of what is then the
    /// innermost collection, be it a map or a list.
    fn close_to(&mut self, column: usize, is_item: bool) -> Option<ExpectedToken> {
        loop {
            let Some(frame) = self.frames.last() else {
                return self.nodes.is_empty().then_some(ExpectedToken::Value);
            };
            if frame.column < column {
                return frame.pending.map(|_| ExpectedToken::Value);
            }
            if frame.column == column {
                match (frame.is_map, is_item) {
                    (true, false) => {
                        self.null_if_pending()?;
                        return Some(ExpectedToken::Key);
                    }
                    (false, true) => return Some(ExpectedToken::Key),
                    (true, true) => return frame.pending.map(|_| ExpectedToken::Value),
                    (false, false) => {}
                }
            }
            if self.frames.len() == 1 {
                return None;
            }
            self.close()?;
        }
    }

    /// Reads what starts here: an entry of a map, or a value.
    fn entry(&mut self, at: usize, column: usize, place: ExpectedToken) -> Option<()> {
        let first = self.byte(at)?;
        if matches!(first, b'"' | b'\'') {
            let quoted = self.quoted(at)?;
            let colon = self.past_spaces(quoted.close + 1);
            if self.byte(colon) != Some(b':') {
                return self.is_value(place)?.quoted_value(at, &quoted);
            }
            if quoted.kind != Kind::Bare || !self.is_blank(colon + 1) {
                return None;
            }
            self.key_place(at, column, place)?;
            self.key(at + 1..quoted.close, at..colon, Kind::Bare)?;
            return self.value(colon);
        }
        if !self.starts_plain(at) {
            return self.is_value(place)?.scalar(at);
        }
        match self.plain(at)? {
            Stop::Colon(colon) if colon - at <= MAX_KEY => {
                let end = self.trimmed(at, colon);
                self.plain_key(at..end)?;
                self.key_place(at, column, place)?;
                self.key(at..end, at..end, Kind::Plain)?;
                self.value(colon)
            }
            stop @ (Stop::Colon(_) | Stop::Comment(_) | Stop::Line(_)) => {
                self.is_value(place)?.plain_value(at, &stop)
            }
        }
    }

    /// Whether a value that is no map is expected here, and not at the root.
    fn is_value(&mut self, place: ExpectedToken) -> Option<&mut Self> {
        (place == ExpectedToken::Value && !self.frames.is_empty()).then_some(self)
    }

    fn key_place(&mut self, at: usize, column: usize, place: ExpectedToken) -> Option<()> {
        match place {
            ExpectedToken::Key => Some(()),
            ExpectedToken::Value => self.open(true, at, column),
        }
    }

    /// Reads what follows the colon of a key.
    fn value(&mut self, colon: usize) -> Option<()> {
        let frame = self.frames.last_mut()?;
        frame.pending = Some(colon);
        let at = self.past_spaces(colon + 1);
        match self.byte(at) {
            None | Some(b'\n') => self.pos = at + 1,
            Some(b'#') => self.pos = self.line_end(at) + 1,
            Some(b'"' | b'\'') => {
                let quoted = self.quoted(at)?;
                self.quoted_value(at, &quoted)?;
            }
            Some(_) if self.starts_plain(at) => {
                let stop = self.plain(at)?;
                self.plain_value(at, &stop)?;
            }
            Some(_) => self.scalar(at)?,
        }
        Some(())
    }

    /// Reads a value that starts with punctuation.
    fn scalar(&mut self, at: usize) -> Option<()> {
        match self.byte(at)? {
            b'|' | b'>' => self.block(at),
            b'[' | b'{' => {
                let end = self.flow(at)?;
                self.pos = self.tail(end)? + 1;
                Some(())
            }
            _ => None,
        }
    }

    fn quoted_value(&mut self, at: usize, quoted: &Quoted) -> Option<()> {
        let end = self.tail(quoted.close + 1)?;
        self.pos = end + 1;
        self.push_value(at..end, quoted.kind)
    }

    /// Nothing but spaces and a comment may follow in the line; returns its end.
    fn tail(&self, at: usize) -> Option<usize> {
        let next = self.past_spaces(at);
        match self.byte(next) {
            None | Some(b'\n') => Some(next),
            Some(b'#') if next > at => Some(self.line_end(next)),
            Some(_) => None,
        }
    }

    /// Whether a colon before this offset ends a key.
    #[inline]
    pub(super) fn is_blank(&self, at: usize) -> bool {
        matches!(self.byte(at), None | Some(b' ' | b'\n'))
    }

    /// Gives up where the full parser's budget for punctuation may be spent.
    #[inline]
    fn within_budget(&mut self, end: usize) -> Option<()> {
        if end - self.last > MANY_SIGNS {
            let passed = self.bytes.get(self.last..end)?;
            let is_sign = |c: &&u8| matches!(c, b',' | b':' | b'[' | b']' | b'{' | b'}');
            if passed.iter().filter(is_sign).count() > MANY_SIGNS {
                return None;
            }
        }
        self.last = end;
        Some(())
    }

    #[inline]
    fn push(&mut self, range: Range<usize>, kind: Kind) -> Option<()> {
        self.within_budget(range.end)?;
        self.nodes.push(Node {
            start: range.start as u32,
            end: range.end as u32,
            kind,
        });
        Some(())
    }

    #[inline]
    pub(super) fn push_value(&mut self, range: Range<usize>, kind: Kind) -> Option<()> {
        self.push(range, kind)?;
        self.frames.last_mut()?.pending = None;
        Some(())
    }

    pub(super) fn key(&mut self, text: Range<usize>, span: Range<usize>, kind: Kind) -> Option<()> {
        let start = text.start;
        let key = self.bytes.get(text)?;
        let siblings = &mut self.frames.last_mut()?.siblings;
        if span.len() > MAX_KEY
            || !self
                .keys
                .add(key, first_bytes(self.bytes, start, key.len()), siblings)
        {
            return None;
        }
        self.push(span, kind)
    }

    fn null_if_pending(&mut self) -> Option<()> {
        match self.frames.last_mut()?.pending.take() {
            Some(colon) => {
                self.nodes.push(Node {
                    start: colon as u32,
                    end: colon as u32,
                    kind: Kind::Null,
                });
                Some(())
            }
            None => Some(()),
        }
    }

    pub(super) fn open(&mut self, is_map: bool, at: usize, column: usize) -> Option<()> {
        if self.frames.len() == MAX_FOLLOWED {
            return None;
        }
        if let Some(frame) = self.frames.last_mut() {
            frame.pending = None;
        }
        let node = self.nodes.len();
        self.push(at..at, if is_map { Kind::Map } else { Kind::Seq })?;
        self.frames.push(Frame {
            node,
            column,
            is_map,
            pending: None,
            siblings: self.keys.open(),
        });
        Some(())
    }

    pub(super) fn close(&mut self) -> Option<()> {
        self.null_if_pending()?;
        let frame = self.frames.pop()?;
        self.keys.close(&frame.siblings);
        self.nodes.push(Node {
            start: 0,
            end: 0,
            kind: Kind::End,
        });
        self.nodes.get_mut(frame.node)?.end = self.nodes.len() as u32;
        Some(())
    }
}
