//! Splits the objects out of a response while its bytes arrive.
//!
//! Parts of a response are written by users: an object may be nested a million levels deep, or have
//! bytes that are not UTF-8, and a server passes both on. Objects are therefore found by brackets
//! and quotes alone, without a limit of depth and without decoding text. What is not part of an
//! object stays behind, with a `0` in the place of each object: a small document that `serde_json`
//! parses, and that must have as many objects as were split out. Each object must be one JSON value
//! for `serde_json`, too. A mistake of this module, or a missing bracket, thus cannot hide an
//! object: the counts differ, and the response is rejected.
//!
//! Written by hand, because no library splits values out of arriving JSON that need not be UTF-8.

use memchr::memchr2;

/// The largest object that is stored. Servers accept requests of 3 MB at most; escapes can enlarge
/// them.
const LARGEST: usize = 32 << 20;
/// The limit of the bytes beside the objects: two for each object, and the metadata.
const LARGEST_REST: usize = 8 << 20;

/// The place of the objects in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectLocation {
    /// The elements of `items`, in a list.
    Items,
    /// The value of `object`, in a watch event.
    Object,
}

impl ObjectLocation {
    fn key(self) -> &'static [u8] {
        match self {
            ObjectLocation::Items => b"items",
            ObjectLocation::Object => b"object",
        }
    }
}

/// An object that was split out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SplitObject {
    /// Its bytes.
    Whole(Vec<u8>),
    /// The object was too large to be stored.
    TooLarge,
}

/// Splits the objects out of a document.
#[derive(Debug)]
pub struct Splitter {
    which: ObjectLocation,
    /// The number of open brackets and braces.
    depth: usize,
    /// Whether the next byte is inside a string, and whether it is escaped there.
    in_string: bool,
    is_escaped: bool,
    state: SplitState,
    /// The beginning of the last string of the outermost object, which may be a key.
    key: Vec<u8>,
    object: Vec<u8>,
    is_too_large: bool,
    rest: Vec<u8>,
    taken: usize,
}

/// The place of the next byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SplitState {
    /// Outside of all objects.
    Around,
    /// After the key of the objects.
    BehindKey,
    /// Between two elements of the list.
    Between,
    /// In an object that began at this depth.
    Inside(usize),
}

impl Splitter {
    /// Creates a splitter of an empty document.
    pub fn new(which: ObjectLocation) -> Splitter {
        Splitter {
            which,
            depth: 0,
            in_string: false,
            is_escaped: false,
            state: SplitState::Around,
            key: Vec::new(),
            object: Vec::new(),
            is_too_large: false,
            rest: Vec::new(),
            taken: 0,
        }
    }

    /// Processes the next bytes. Returns the objects that are complete now; `Err`: the document is
    /// not of the expected form.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<SplitObject>, &'static str> {
        let mut found = Vec::new();
        let mut bytes = bytes;
        while let Some((first, behind)) = bytes.split_first() {
            // Most bytes are in strings: their plain parts are copied at once.
            if self.in_string && !self.is_escaped {
                let plain = memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len());
                if plain > 0 {
                    let (text, others) = bytes.split_at(plain);
                    self.keep(text)?;
                    bytes = others;
                    continue;
                }
            }
            self.byte(*first, &mut found)?;
            bytes = behind;
        }
        Ok(found)
    }

    /// Ends the document. Returns the rest, with `0` for each object, and the number of objects.
    pub fn finish(self) -> Result<(Vec<u8>, usize), &'static str> {
        if self.depth > 0 || self.in_string || self.state != SplitState::Around {
            return Err("the response is truncated");
        }
        Ok((self.rest, self.taken))
    }

    fn byte(&mut self, byte: u8, found: &mut Vec<SplitObject>) -> Result<(), &'static str> {
        if self.in_string {
            self.in_string = self.is_escaped || byte != b'"';
            self.is_escaped = !self.is_escaped && byte == b'\\';
            return self.keep(&[byte]);
        }
        match self.state {
            SplitState::Inside(_) => self.inside(byte, found),
            SplitState::Between => self.between(byte, found),
            SplitState::BehindKey => self.after_key(byte, found),
            SplitState::Around => self.around(byte),
        }
    }

    fn around(&mut self, byte: u8) -> Result<(), &'static str> {
        self.keep(&[byte])?;
        match byte {
            b'"' => {
                self.in_string = true;
                self.key.clear();
            }
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.close()?,
            // Deeper keys of that name belong to objects or metadata. An escaped spelling of the
            // key is not recognized: then the rest does not parse.
            b':' if self.depth == 1 && self.key == self.which.key() => {
                self.state = SplitState::BehindKey;
            }
            _ => {}
        }
        Ok(())
    }

    fn after_key(&mut self, byte: u8, found: &mut Vec<SplitObject>) -> Result<(), &'static str> {
        match (self.which, byte) {
            (_, b' ' | b'\t' | b'\r' | b'\n') => self.keep(&[byte]),
            (ObjectLocation::Items, b'[') => {
                self.state = SplitState::Between;
                self.depth += 1;
                self.keep(b"[")
            }
            // `null`, or something else that is not a list: parsing the rest detects it.
            (ObjectLocation::Items, _) => {
                self.state = SplitState::Around;
                self.around(byte)
            }
            (ObjectLocation::Object, _) => {
                self.state = SplitState::Inside(self.depth);
                self.inside(byte, found)
            }
        }
    }

    fn between(&mut self, byte: u8, found: &mut Vec<SplitObject>) -> Result<(), &'static str> {
        match byte {
            b']' => {
                self.state = SplitState::Around;
                self.close()?;
                self.keep(b"]")
            }
            b',' | b' ' | b'\t' | b'\r' | b'\n' => self.keep(&[byte]),
            // Neither the beginning of an object nor the end of the list.
            b'}' => Err("the response has unbalanced brackets"),
            _ => {
                self.state = SplitState::Inside(self.depth);
                self.inside(byte, found)
            }
        }
    }

    fn inside(&mut self, byte: u8, found: &mut Vec<SplitObject>) -> Result<(), &'static str> {
        let SplitState::Inside(outside) = self.state else {
            return Ok(());
        };
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            // A number or a word has no closing bracket: it ends before this byte.
            b'}' | b']' | b',' if self.depth == outside => return self.leave(byte, found),
            b'}' | b']' => {
                self.close()?;
                self.keep(&[byte])?;
                if self.depth == outside {
                    self.take(found)?;
                }
                return Ok(());
            }
            _ => {}
        }
        self.keep(&[byte])
    }

    /// Ends an object before this byte, which belongs to what surrounds it.
    fn leave(&mut self, byte: u8, found: &mut Vec<SplitObject>) -> Result<(), &'static str> {
        self.take(found)?;
        match self.state {
            SplitState::Between => self.between(byte, found),
            SplitState::Around | SplitState::BehindKey | SplitState::Inside(_) => self.around(byte),
        }
    }

    fn take(&mut self, found: &mut Vec<SplitObject>) -> Result<(), &'static str> {
        let object = std::mem::take(&mut self.object);
        found.push(match std::mem::take(&mut self.is_too_large) {
            true => SplitObject::TooLarge,
            false => SplitObject::Whole(object),
        });
        self.taken += 1;
        self.state = match self.which {
            ObjectLocation::Items => SplitState::Between,
            ObjectLocation::Object => SplitState::Around,
        };
        self.keep(b"0")
    }

    fn close(&mut self) -> Result<(), &'static str> {
        let depth = self.depth.checked_sub(1);
        self.depth = depth.ok_or("the response has unbalanced brackets")?;
        Ok(())
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        if matches!(self.state, SplitState::Inside(_)) {
            // The rest of the object is still counted in brackets: the objects after it stay
            // readable.
            if self.object.len() + bytes.len() > LARGEST {
                self.is_too_large = true;
                self.object = Vec::new();
            }
            if !self.is_too_large {
                self.object.extend_from_slice(bytes);
            }
            return Ok(());
        }
        if self.rest.len() + bytes.len() > LARGEST_REST {
            return Err("the response has too much data beside its objects");
        }
        self.rest.extend_from_slice(bytes);
        // One byte more than the expected key distinguishes it from all longer ones.
        let room = (self.which.key().len() + 1).saturating_sub(self.key.len());
        if self.in_string && self.depth == 1 {
            self.key.extend(bytes.iter().take(room));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
