//! JSON, pulled value by value from the text, without a tree.
//!
//! No library does this with byte positions and borrowed strings (serde hides positions from
//! visitors, and pull parsers copy), so it is written here. Skipped values are checked too: a
//! document is accepted only if all of it is JSON.

mod skip;
mod split;

use std::borrow::Cow;

use self::skip::OpenContainer;
use super::bytes::before_quote;
use super::{Input, ItemEnd, ListPiece, MAX_DEPTH, Scalar, ValueShape, keys_ahead};
use crate::problem::Span;

/// Where and why the text stopped being JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JsonError {
    pub(crate) offset: usize,
    pub(crate) kind: JsonErrorKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JsonErrorKind {
    TooDeep,
    Syntax {
        message: &'static str,
        help: Option<&'static str>,
    },
}

/// A cursor in a JSON text. Cloning it is cheap and gives an independent look ahead.
#[derive(Clone, Debug)]
pub(crate) struct Json<'a> {
    text: &'a str,
    pos: usize,
    depth: usize,
    /// Whether a container was entered and none of its members read yet.
    fresh: bool,
    error: Option<JsonError>,
    /// Duplicate keys in skipped values: the later and the earlier.
    duplicates: Vec<(Span, Span)>,
    /// Storage for skipping a value, empty in between.
    open: Vec<OpenContainer<'a>>,
    keys: Vec<(&'a str, usize)>,
}

impl<'a> Json<'a> {
    /// Starts reading at an offset of the text; offsets in spans are those of the whole text.
    pub(crate) fn new(text: &'a str, pos: usize) -> Json<'a> {
        Json {
            text,
            pos,
            depth: 0,
            fresh: false,
            error: None,
            duplicates: Vec::new(),
            open: Vec::new(),
            keys: Vec::new(),
        }
    }

    /// The first syntax error so far.
    pub(crate) fn error(&self) -> Option<&JsonError> {
        self.error.as_ref()
    }

    /// The offset of the next thing that is not white space.
    pub(crate) fn offset(&mut self) -> usize {
        self.space();
        self.pos
    }

    /// The offset after what was read.
    pub(crate) fn end(&self) -> usize {
        self.pos
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.pos).copied()
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.byte() {
            self.pos += 1;
        }
    }

    fn fail(&mut self, message: &'static str, help: Option<&'static str>) {
        self.fail_with(JsonErrorKind::Syntax { message, help });
    }

    fn fail_with(&mut self, kind: JsonErrorKind) {
        if self.error.is_none() {
            self.error = Some(JsonError {
                offset: self.pos,
                kind,
            });
        }
        self.pos = self.text.len();
    }

    /// Reports what is wrong where a value should start.
    fn fail_value(&mut self) {
        match self.byte() {
            None => self.fail("the document ends in the middle of a value", None),
            Some(b'\'') => self.fail(
                "a string is in single quotes",
                Some("JSON needs double quotes"),
            ),
            Some(b',') => self.fail("a value is missing before `,`", None),
            Some(b'}' | b']') => self.fail(
                "a value is missing",
                Some("JSON allows no comma after the last entry"),
            ),
            Some(b'/' | b'#') => self.fail("a comment", Some("JSON has no comments")),
            Some(_) => self.fail(
                "this is not a JSON value",
                Some("strings need double quotes"),
            ),
        }
    }

    /// Reports what is wrong where a key should start.
    fn fail_key(&mut self) {
        match self.byte() {
            Some(b'}') => {
                let help = Some("JSON allows no comma after the last entry");
                self.fail("a key is missing", help);
            }
            Some(b'\'') => self.fail(
                "a key is in single quotes",
                Some("JSON needs double quotes"),
            ),
            Some(b'/' | b'#') => self.fail("a comment", Some("JSON has no comments")),
            Some(_) => {
                let help = Some("JSON needs keys in double quotes");
                self.fail("a key is not a string", help);
            }
            None => self.fail("a `{` is not closed", None),
        }
    }

    /// Reads a string, whose opening quote comes next.
    fn string(&mut self) -> Cow<'a, str> {
        self.pos += 1;
        let start = self.pos;
        let rest = self.text.as_bytes().get(start..).unwrap_or_default();
        match rest.get(before_quote(rest)) {
            Some(b'"') => {
                let end = start + before_quote(rest);
                self.pos = end + 1;
                Cow::Borrowed(self.text.get(start..end).unwrap_or_default())
            }
            _ => self.escaped_string(start),
        }
    }

    fn escaped_string(&mut self, start: usize) -> Cow<'a, str> {
        let mut value = String::new();
        self.pos = start;
        loop {
            let rest = self.text.as_bytes().get(self.pos..).unwrap_or_default();
            let plain = before_quote(rest);
            value.push_str(
                self.text
                    .get(self.pos..self.pos + plain)
                    .unwrap_or_default(),
            );
            self.pos += plain;
            match self.byte() {
                Some(b'"') => {
                    self.pos += 1;
                    return Cow::Owned(value);
                }
                Some(b'\\') => match self.escape() {
                    Some(c) => value.push(c),
                    None => return Cow::Owned(value),
                },
                Some(_) => {
                    self.fail(
                        "a control character in a string",
                        Some("write it as an escape, like `\\n`"),
                    );
                    return Cow::Owned(value);
                }
                None => {
                    self.fail("a string is not closed", None);
                    return Cow::Owned(value);
                }
            }
        }
    }

    /// Reads an escape; `None` after a failure.
    fn escape(&mut self) -> Option<char> {
        let c = match self.text.as_bytes().get(self.pos + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            _ => {
                self.fail(
                    "an unknown escape in a string",
                    Some("a backslash is written `\\\\`"),
                );
                return None;
            }
        };
        self.pos += 2;
        Some(c)
    }

    fn unicode_escape(&mut self) -> Option<char> {
        let first = self.hex4(self.pos + 2);
        let (code, len) = match first {
            Some(high @ 0xD800..0xDC00) => {
                let pair = self.text.as_bytes().get(self.pos + 6..self.pos + 8) == Some(b"\\u");
                match self.hex4(self.pos + 8) {
                    Some(low @ 0xDC00..0xE000) if pair => {
                        (Some(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)), 12)
                    }
                    _ => (None, 0),
                }
            }
            other => (other, 6),
        };
        match code.and_then(char::from_u32) {
            Some(c) => {
                self.pos += len;
                Some(c)
            }
            None => {
                self.fail("a `\\u` escape that is not a character", None);
                None
            }
        }
    }

    fn hex4(&self, at: usize) -> Option<u32> {
        let digits = self.text.get(at..at + 4)?;
        digits
            .bytes()
            .all(|c| c.is_ascii_hexdigit())
            .then(|| u32::from_str_radix(digits, 16).ok())?
    }

    /// Reads a number by the grammar of JSON and returns its text and whether it is whole.
    fn number(&mut self) -> Option<(&'a str, bool)> {
        let start = self.pos;
        let digits = |this: &mut Self| {
            let from = this.pos;
            while this.byte().is_some_and(|c| c.is_ascii_digit()) {
                this.pos += 1;
            }
            this.pos - from
        };
        let mut whole = true;
        if self.byte() == Some(b'-') {
            self.pos += 1;
        }
        let leading_zero = self.byte() == Some(b'0');
        let n_digits = digits(self);
        if n_digits == 0 || (leading_zero && n_digits > 1) {
            self.pos = start;
            self.fail(
                "this is not a JSON number",
                Some("JSON has no leading zeros, `+` or hexadecimal"),
            );
            return None;
        }
        if self.byte() == Some(b'.') {
            whole = false;
            self.pos += 1;
            if digits(self) == 0 {
                self.fail("a digit is missing after the decimal point", None);
                return None;
            }
        }
        if let Some(b'e' | b'E') = self.byte() {
            whole = false;
            self.pos += 1;
            if let Some(b'+' | b'-') = self.byte() {
                self.pos += 1;
            }
            if digits(self) == 0 {
                self.fail("a digit is missing in the exponent", None);
                return None;
            }
        }
        self.text.get(start..self.pos).map(|text| (text, whole))
    }

    fn word(&mut self, word: &str) -> bool {
        let rest = self.text.get(self.pos..).unwrap_or_default();
        let complete = rest.starts_with(word)
            && !rest
                .as_bytes()
                .get(word.len())
                .is_some_and(|c| c.is_ascii_alphanumeric());
        if complete {
            self.pos += word.len();
        } else {
            self.fail(
                "this is not a JSON value",
                Some("strings need double quotes"),
            );
        }
        complete
    }

    /// After a member: a comma, or the end of the container. Returns whether another one follows.
    fn another(&mut self, close: u8) -> bool {
        self.space();
        let fresh = std::mem::replace(&mut self.fresh, false);
        match self.byte() {
            Some(c) if c == close => {
                self.pos += 1;
                self.depth -= 1;
                false
            }
            Some(b',') if !fresh => {
                self.pos += 1;
                self.space();
                true
            }
            _ if self.error.is_some() => false,
            _ if fresh => true,
            None => {
                self.fail(
                    if close == b'}' {
                        "a `{` is not closed"
                    } else {
                        "a `[` is not closed"
                    },
                    None,
                );
                false
            }
            Some(b'/' | b'#') => {
                self.fail("a comment", Some("JSON has no comments"));
                false
            }
            Some(_) => {
                self.fail("a `,` is missing between two entries", None);
                false
            }
        }
    }
}

impl<'a> Input<'a> for Json<'a> {
    fn shape(&mut self) -> ValueShape {
        self.space();
        match self.byte() {
            _ if self.error.is_some() => ValueShape::Broken,
            Some(b'{') => ValueShape::Map,
            Some(b'[') => ValueShape::Seq,
            Some(b'"') => ValueShape::Str,
            Some(b't' | b'f') => ValueShape::Bool,
            Some(b'n') => ValueShape::Null,
            Some(b'-' | b'0'..=b'9') => match self.clone().scalar().0 {
                Scalar::Int(_) => ValueShape::Int,
                Scalar::Number => ValueShape::Number,
                Scalar::Null | Scalar::Bool(_) | Scalar::Str(_) => {
                    // The look ahead failed on a copy: fail here as well.
                    self.skip();
                    ValueShape::Broken
                }
            },
            _ => {
                self.fail_value();
                ValueShape::Broken
            }
        }
    }

    fn span(&mut self) -> Span {
        self.space();
        let start = self.pos;
        let end = match self.byte() {
            Some(b'{' | b'[') | None => start + 1,
            Some(_) => {
                let mut ahead = self.clone();
                ahead.scalar();
                if ahead.error.is_some() {
                    start + 1
                } else {
                    ahead.pos
                }
            }
        };
        Span::new(start, end.min(self.text.len()))
    }

    fn enter(&mut self) {
        self.space();
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            self.fail_with(JsonErrorKind::TooDeep);
            return;
        }
        self.pos += 1;
        self.fresh = true;
    }

    fn next_key(&mut self) -> Option<(Cow<'a, str>, Span)> {
        if !self.another(b'}') {
            return None;
        }
        if self.byte() != Some(b'"') {
            self.fail_key();
            return None;
        }
        let start = self.pos;
        let key = self.string();
        let span = Span::new(start, self.pos);
        self.space();
        if self.byte() != Some(b':') {
            self.fail("a `:` is missing after a key", None);
            return None;
        }
        self.pos += 1;
        self.error.is_none().then_some((key, span))
    }

    fn next_item(&mut self) -> bool {
        self.another(b']') && self.error.is_none()
    }

    fn scalar(&mut self) -> (Scalar<'a>, Span) {
        self.space();
        let start = self.pos;
        let scalar = match self.byte() {
            Some(b'"') => Scalar::Str(self.string()),
            Some(b't') => {
                self.word("true");
                Scalar::Bool(true)
            }
            Some(b'f') => {
                self.word("false");
                Scalar::Bool(false)
            }
            Some(b'n') => {
                self.word("null");
                Scalar::Null
            }
            Some(b'-' | b'0'..=b'9') => match self.number() {
                Some((text, true)) => text.parse().map_or(Scalar::Number, Scalar::Int),
                // API servers read a float without a fraction as the whole number.
                Some((text, false)) => match text.parse::<f64>() {
                    Ok(value) if value.fract() == 0.0 && value.abs() < 9.2e18 => {
                        Scalar::Int(value as i64)
                    }
                    _ => Scalar::Number,
                },
                None => Scalar::Null,
            },
            _ => {
                self.fail_value();
                Scalar::Null
            }
        };
        (scalar, Span::new(start, self.pos))
    }

    fn skip(&mut self) {
        self.space();
        match self.byte() {
            Some(b'{' | b'[') => {}
            Some(b'"') => return self.skip_string(),
            Some(_) | None => return drop(self.scalar()),
        }
        // One entry for each open container: deep nesting costs no stack.
        let mut open = std::mem::take(&mut self.open);
        let mut keys = std::mem::take(&mut self.keys);
        self.skip_containers(&mut open, &mut keys);
        open.clear();
        keys.clear();
        (self.open, self.keys) = (open, keys);
    }

    fn is_broken(&self) -> bool {
        self.error.is_some()
    }

    fn extent(&self) -> Option<Span> {
        let mut ahead = self.clone();
        let start = ahead.offset();
        ahead.skip();
        let is_whole = ahead.error.is_none();
        is_whole.then(|| Span::new(start, ahead.pos))
    }

    fn take_duplicates(&mut self) -> Vec<(Span, Span)> {
        std::mem::take(&mut self.duplicates)
    }

    fn pieces(&self, least: usize, most: usize) -> Vec<ListPiece<Json<'a>>> {
        if !self.duplicates.is_empty() {
            return Vec::new();
        }
        let cuts = split::cuts(self.text.as_bytes(), self.pos, least, most);
        let starts = std::iter::once(self.pos).chain(cuts.iter().copied());
        let piece = |(start, next): (usize, &usize)| ListPiece {
            input: Json {
                depth: self.depth,
                fresh: true,
                ..Json::new(self.text, start)
            },
            next: *next,
        };
        starts.zip(&cuts).map(piece).collect()
    }

    fn reached(&mut self, next: usize) -> ItemEnd {
        self.space();
        let mut ahead = self.pos;
        if self.byte() == Some(b',') {
            let rest = self.text.as_bytes().get(ahead + 1..).unwrap_or_default();
            let is_space = |c: &&u8| matches!(c, b' ' | b'\n' | b'\r' | b'\t');
            ahead += 1 + rest.iter().take_while(is_space).count();
            if ahead == next && self.duplicates.is_empty() {
                (self.pos, self.fresh) = (next, true);
                return ItemEnd::Next;
            }
        }
        if ahead < next {
            ItemEnd::Inside
        } else {
            // Also when a duplicate is still to be reported: the next piece would have to know it.
            ItemEnd::Beyond
        }
    }

    fn peek_keys(&self) -> Vec<Cow<'a, str>> {
        keys_ahead(self.clone())
    }
}
