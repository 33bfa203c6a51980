//! Collections in brackets, in one line and of simple words.

use super::Kind;
use super::scan::Scan;

impl Scan<'_> {
    /// Reads the collection whose bracket is here; returns the offset after it.
    pub(super) fn flow(&mut self, at: usize) -> Option<usize> {
        let is_map = self.byte(at)? == b'{';
        let close = if is_map { b'}' } else { b']' };
        self.open(is_map, at, usize::MAX)?;
        let mut next = self.past_spaces(at + 1);
        if self.byte(next)? == close {
            self.close()?;
            return Some(next + 1);
        }
        loop {
            if is_map {
                next = self.flow_key(next)?;
            }
            next = self.flow_value(next)?;
            next = self.past_spaces(next);
            match self.byte(next)? {
                b',' => next = self.past_spaces(next + 1),
                c if c == close => break,
                _ => return None,
            }
        }
        self.close()?;
        Some(next + 1)
    }

    /// Reads a key and its colon; returns where the value starts.
    fn flow_key(&mut self, at: usize) -> Option<usize> {
        let colon;
        if matches!(self.byte(at)?, b'"' | b'\'') {
            let quoted = self.flow_quoted(at)?;
            colon = self.past_spaces(quoted + 1);
            self.key(at + 1..quoted, at..colon, Kind::Bare)?;
        } else {
            colon = self.word(at)?;
            self.plain_key(at..colon)?;
            self.key(at..colon, at..colon, Kind::Plain)?;
        }
        let has_colon = self.byte(colon)? == b':' && self.byte(colon + 1)? == b' ';
        has_colon.then(|| self.past_spaces(colon + 1))
    }

    /// Reads a value; returns the offset after it.
    fn flow_value(&mut self, at: usize) -> Option<usize> {
        match self.byte(at)? {
            b'{' | b'[' => self.flow(at),
            b'"' | b'\'' => {
                let end = self.past_spaces(self.flow_quoted(at)? + 1);
                self.push_value(at..end, Kind::Bare)?;
                Some(end)
            }
            _ => {
                let end = self.word(at)?;
                self.finite(at..end)?;
                self.push_value(at..end, Kind::Plain)?;
                Some(end)
            }
        }
    }

    /// The closing quote of a scalar without escapes in one line.
    fn flow_quoted(&self, at: usize) -> Option<usize> {
        let quoted = self.quoted(at)?;
        (quoted.kind == Kind::Bare).then_some(quoted.close)
    }

    /// The end of a plain scalar of letters, digits and the few other characters of names and
    /// addresses.
    fn word(&self, at: usize) -> Option<usize> {
        let is_letter = |c: &u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.' | b'/');
        let mut next = at;
        if self.byte(at)? == b'-' {
            next += 1;
        }
        self.byte(next).filter(is_letter)?;
        loop {
            match self.byte(next)? {
                c if is_letter(&c) || c == b'-' => next += 1,
                b':' if self
                    .byte(next + 1)
                    .is_some_and(|c| is_letter(&c) || c == b':') =>
                {
                    next += 1;
                }
                _ => return Some(next),
            }
        }
    }
}
