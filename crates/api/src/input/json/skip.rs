//! Skips values, and checks all of them.

use std::collections::HashMap;

use super::Json;
use crate::input::bytes::before_quote;
use crate::input::{Input, MAX_DEPTH};
use crate::problem::Span;

impl<'a> Json<'a> {
    /// Skips the map or list that comes next.
    pub(super) fn skip_containers(
        &mut self,
        open: &mut Vec<OpenContainer<'a>>,
        keys: &mut Vec<(&'a str, usize)>,
    ) {
        loop {
            self.space();
            match self.byte() {
                Some(b'{' | b'[') if self.depth >= MAX_DEPTH => self.skip_deep(),
                Some(bracket @ (b'{' | b'[')) => {
                    self.enter();
                    let first_key = (bracket == b'{').then_some(keys.len());
                    open.push(OpenContainer {
                        first_key,
                        many: None,
                    });
                }
                Some(b'"') => self.skip_string(),
                Some(_) | None => drop(self.scalar()),
            }
            // Close the containers that end here and go to the next member.
            while let Some(container) = open.last_mut() {
                let another = match container.first_key {
                    Some(first) => self.skip_key(first, keys, container),
                    None => self.next_item(),
                };
                if self.error.is_some() {
                    return;
                }
                if another {
                    break;
                }
                open.pop();
            }
            if open.is_empty() {
                return;
            }
        }
    }

    /// Skips a map or list that is nested deeper than any field that is read. Unread fields of a
    /// valid object may be nested a million times: only the closing bracket of each is kept, not
    /// its keys.
    fn skip_deep(&mut self) {
        let mut open: Vec<u8> = Vec::new();
        loop {
            self.space();
            match self.byte() {
                Some(bracket @ (b'{' | b'[')) => {
                    open.push(if bracket == b'{' { b'}' } else { b']' });
                    self.depth += 1;
                    self.pos += 1;
                    self.fresh = true;
                }
                Some(b'"') => self.skip_string(),
                Some(_) | None => drop(self.scalar()),
            }
            while let Some(close) = open.last() {
                let another = self.another(*close) && (*close == b']' || self.skip_name());
                if self.error.is_some() {
                    return;
                }
                if another {
                    break;
                }
                open.pop();
            }
            if open.is_empty() {
                return;
            }
        }
    }

    /// Skips a key and the colon after it; returns whether both were there.
    fn skip_name(&mut self) -> bool {
        if self.byte() != Some(b'"') {
            self.fail_key();
            return false;
        }
        self.skip_string();
        self.space();
        if self.byte() != Some(b':') {
            self.fail("a `:` is missing after a key", None);
            return false;
        }
        self.pos += 1;
        self.error.is_none()
    }

    /// Skips a string; only escapes are decoded.
    pub(super) fn skip_string(&mut self) {
        let start = self.pos + 1;
        let rest = self.text.as_bytes().get(start..).unwrap_or_default();
        let plain = before_quote(rest);
        if rest.get(plain) == Some(&b'"') {
            self.pos = start + plain + 1;
        } else {
            self.string();
        }
    }

    /// [`next_key`](Input::next_key) for skipped values: notes a duplicate key.
    fn skip_key(
        &mut self,
        first: usize,
        keys: &mut Vec<(&'a str, usize)>,
        container: &mut OpenContainer<'a>,
    ) -> bool {
        if !self.another(b'}') {
            keys.truncate(first);
            return false;
        }
        if self.byte() != Some(b'"') {
            self.fail_key();
            return false;
        }
        let start = self.pos;
        self.skip_string();
        let key = self.text.get(start..self.pos).unwrap_or_default();
        let siblings = keys.get(first..).unwrap_or_default();
        let earlier = if siblings.len() < MANY_KEYS {
            siblings
                .iter()
                .find(|(sibling, _)| *sibling == key)
                .map(|(_, at)| *at)
        } else {
            let all = || siblings.iter().copied().collect();
            container.many.get_or_insert_with(all).insert(key, start)
        };
        match earlier {
            Some(at) => {
                let first = Span::new(at, at + key.len());
                self.duplicates.push((Span::new(start, self.pos), first));
            }
            None => keys.push((key, start)),
        }
        self.space();
        if self.byte() != Some(b':') {
            self.fail("a `:` is missing after a key", None);
            return false;
        }
        self.pos += 1;
        self.error.is_none()
    }
}

/// From this many keys on, a map is faster than a search.
const MANY_KEYS: usize = 32;

/// A map or list that is being skipped.
#[derive(Clone, Debug)]
pub(super) struct OpenContainer<'a> {
    /// In a map: where its keys start among those of all open maps.
    first_key: Option<usize>,
    /// In a large map: its keys.
    many: Option<HashMap<&'a str, usize>>,
}
