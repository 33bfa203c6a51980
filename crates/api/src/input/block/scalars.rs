//! Scalars: where they end, and whether this reader supports them.

use std::ops::Range;

use memchr::{memchr, memchr2};

use super::scan::Scan;
use super::{Chomp, Kind};
use crate::input::bytes::{before_indicator, spaces};
use crate::input::scalar;

/// Where a plain scalar ends in its line.
pub(super) enum Stop {
    Colon(usize),
    Comment(usize),
    Line(usize),
}

/// A scalar in quotes.
pub(super) struct Quoted {
    pub(super) kind: Kind,
    /// The offset of the closing quote.
    pub(super) close: usize,
}

impl Scan<'_> {
    /// Whether a plain scalar certainly starts here.
    pub(super) fn starts_plain(&self, at: usize) -> bool {
        match self.byte(at) {
            Some(b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | 0x80..) => true,
            Some(b'_' | b'/' | b'.' | b'$' | b'(' | b')' | b'+' | b'<') => true,
            Some(b'=' | b'~' | b'^' | b';' | b'\\') => true,
            Some(b'-') => self
                .byte(at + 1)
                .is_some_and(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b'/')),
            Some(_) | None => false,
        }
    }

    /// Finds the end of a plain scalar in its line.
    pub(super) fn plain(&self, at: usize) -> Option<Stop> {
        let mut next = at;
        loop {
            next += before_indicator(self.rest(next));
            match self.byte(next) {
                None | Some(b'\n') => return Some(Stop::Line(next)),
                Some(b':') if self.is_blank(next + 1) => return Some(Stop::Colon(next)),
                Some(b'#') if self.byte(next.wrapping_sub(1)) == Some(b' ') => {
                    return Some(Stop::Comment(next));
                }
                Some(b':' | b'#') => next += 1,
                Some(_) => return None,
            }
        }
    }

    /// Where the text ends before the spaces at its end.
    #[inline]
    pub(super) fn trimmed(&self, start: usize, end: usize) -> usize {
        let text = self.bytes.get(start..end).unwrap_or_default();
        let blank = text.iter().rev().take_while(|c| **c == b' ').count();
        end - blank
    }

    /// Reads a plain value, of which the first line is known.
    pub(super) fn plain_value(&mut self, at: usize, stop: &Stop) -> Option<()> {
        let (mut end, mut kind) = (at, Kind::Plain);
        match *stop {
            Stop::Colon(_) => return None,
            Stop::Comment(comment) => {
                end = self.trimmed(at, comment);
                self.pos = self.line_end(comment) + 1;
            }
            Stop::Line(mut line_end) => {
                let column = self.column()?;
                loop {
                    end = self.trimmed(end, line_end);
                    let next = self.past_spaces(line_end + 1);
                    let wraps = next - line_end - 1 > column;
                    if !wraps || matches!(self.byte(next), None | Some(b'\n' | b'#')) {
                        break;
                    }
                    let Stop::Line(next_end) = self.plain(next)? else {
                        return None;
                    };
                    (end, line_end, kind) = (next, next_end, Kind::Wrapped);
                }
                self.pos = line_end + 1;
            }
        }
        if matches!(self.byte(at), Some(b'.' | b'+' | b'-')) {
            self.finite(at..end)?;
        }
        self.push_value(at..end, kind)
    }

    /// Gives up at infinite numbers and NaN.
    pub(super) fn finite(&self, range: Range<usize>) -> Option<()> {
        let text = std::str::from_utf8(self.bytes.get(range)?).ok()?;
        (!scalar::is_infinite_or_nan(text)).then_some(())
    }

    /// Gives up at keys whose value is not their text.
    pub(super) fn plain_key(&self, range: Range<usize>) -> Option<()> {
        let key = self.bytes.get(range)?;
        // Numbers, and how booleans, nothing and the merge key start.
        let is_special = matches!(
            key,
            [b'0'..=b'9' | b'+' | b'-' | b'.' | b'~', ..]
                | [b'<', b'<']
                | [b'y' | b'Y' | b'n' | b'N']
                | [b'o' | b'O', b'n' | b'N']
                | [b'n' | b'N', b'o' | b'O']
                | [b'y' | b'Y', b'e' | b'E', _]
                | [b'o' | b'O', b'f' | b'F', _]
                | [b't' | b'T', b'r' | b'R', _, _]
                | [b'n' | b'N', b'u' | b'U', _, _]
                | [b'f' | b'F', b'a' | b'A', _, _, _]
        );
        if is_special {
            let key = std::str::from_utf8(key).ok()?;
            let same = key != "<<" && scalar::resolve_key(key)? == key;
            return same.then_some(());
        }
        Some(())
    }

    /// Finds the end of a quoted scalar, which may span several lines, none of them empty.
    pub(super) fn quoted(&self, at: usize) -> Option<Quoted> {
        let quote = self.byte(at)?;
        let mut kind = Kind::Bare;
        let special = if quote == b'"' {
            Kind::Double
        } else {
            Kind::Single
        };
        let mut next = at + 1;
        let mut line = memchr(b'\n', self.rest(next)).map(|length| next + length);
        loop {
            let found = match quote {
                b'"' => memchr2(b'"', b'\\', self.rest(next)),
                _ => memchr(b'\'', self.rest(next)),
            };
            let found = next + found?;
            while let Some(end) = line.filter(|end| *end < found) {
                kind = special;
                let start = self.past_spaces(end + 1);
                let column = self.column()?;
                if start - end - 1 <= column || matches!(self.byte(start)?, b'\n' | b'\t') {
                    return None;
                }
                let rest = self.rest(start);
                line = memchr(b'\n', rest).map(|length| start + length);
            }
            match (self.byte(found)?, self.byte(found + 1)) {
                (b'\\', escape) => {
                    kind = special;
                    next = found + self.escape(found, escape?)?;
                }
                (b'\'', Some(b'\'')) => {
                    kind = special;
                    next = found + 2;
                }
                _ => return Some(Quoted { kind, close: found }),
            }
        }
    }

    /// The length of a supported escape.
    fn escape(&self, at: usize, escape: u8) -> Option<usize> {
        match escape {
            b'"' | b'\\' | b'n' | b'r' | b't' | b' ' | b'\n' => Some(2),
            b'u' => {
                let digits = self.bytes.get(at + 2..at + 6)?;
                let digits = std::str::from_utf8(digits).ok()?;
                let is_hex = digits.bytes().all(|c| c.is_ascii_hexdigit());
                let code = u32::from_str_radix(digits, 16).ok()?;
                (is_hex && char::from_u32(code).is_some()).then_some(6)
            }
            _ => None,
        }
    }

    /// Reads a literal or folded scalar.
    pub(super) fn block(&mut self, at: usize) -> Option<()> {
        let (chomp, header) = match self.byte(at + 1)? {
            b'-' => (Chomp::Strip, at + 2),
            b'+' => (Chomp::Keep, at + 2),
            _ => (Chomp::Clip, at + 1),
        };
        if self.byte(header)? != b'\n' {
            return None;
        }
        let start = self.past_spaces(header + 1);
        let indent = start - header - 1;
        let is_empty = matches!(self.byte(start)?, b'\n' | b'\t');
        if is_empty || indent <= self.column()? {
            return None;
        }
        let mut line = start;
        let end = loop {
            line += memchr(b'\n', self.rest(line))? + 1;
            let inset = spaces(self.rest(line)).min(indent);
            match self.byte(line + inset) {
                None if inset == 0 => break line,
                None => return None,
                Some(_) if inset == indent => {}
                Some(b'\n') => {}
                Some(b'\t') => return None,
                Some(_) => break line + inset,
            }
        };
        self.pos = line;
        let kind = match self.byte(at)? {
            b'|' => Kind::Literal(chomp),
            _ => Kind::Folded(chomp),
        };
        self.push_value(start..end, kind)
    }
}
