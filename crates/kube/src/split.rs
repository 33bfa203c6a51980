//! Taking the objects out of an answer as its bytes arrive, one by one.
//!
//! What a server sends is bytes of which others wrote a part: an object may be nested a million times, or hold bytes that
//! are not UTF-8, and a server passes both on. So objects are told apart by brackets and quotes alone, without a limit of
//! depth and without taking anything for text. Whatever is not part of an object stays behind, with `0` in place of each
//! object: that is a small document of its own, which `serde_json` reads, and which has to have as many objects as were
//! taken out. Each object has to be one JSON value for `serde_json`, too. So a mistake made here, or a bracket that is
//! missing somewhere, cannot hide an object: the parts do not add up, and the answer is not believed.
//!
//! No library takes values out of JSON that need not be UTF-8 as they arrive, so it is done by hand.

use memchr::memchr2;

/// The largest object that is kept. Servers take requests of 3 MB at most; escapes can make more of them.
const LARGEST: usize = 32 << 20;
/// The most bytes that may be left when all objects are taken out, which is two for each of them and a few words.
const LARGEST_REST: usize = 8 << 20;

/// Which values of a document are objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectLocation {
    /// The elements of the list `items` of a list.
    Items,
    /// The value `object` of an event.
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

/// An object that was taken out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SplitObject {
    /// Its bytes.
    Whole(Vec<u8>),
    /// It was too large to be kept.
    TooLarge,
}

/// Takes the objects out of a document.
#[derive(Debug)]
pub struct Splitter {
    which: ObjectLocation,
    /// How many brackets and braces are open.
    depth: usize,
    /// Whether the next byte is inside a string, and whether it is escaped there.
    in_string: bool,
    is_escaped: bool,
    state: SplitState,
    /// How the last string of the outermost object begins, which may be a key.
    key: Vec<u8>,
    object: Vec<u8>,
    is_too_large: bool,
    rest: Vec<u8>,
    taken: usize,
}

/// Where the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SplitState {
    /// Among what stays behind.
    Around,
    /// Behind the key whose value is wanted.
    BehindKey,
    /// Between the elements of the wanted list.
    Between,
    /// In an object that began at this depth.
    Inside(usize),
}

impl Splitter {
    /// Nothing has arrived yet.
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

    /// Takes the next bytes; the objects that are whole now. `Err`: this is not the document that was asked for.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<SplitObject>, &'static str> {
        let mut found = Vec::new();
        let mut bytes = bytes;
        while let Some((first, behind)) = bytes.split_first() {
            // Most bytes are those of strings.
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

    /// What is left when everything has arrived, as a document with `0` for each object, and how many were taken out.
    pub fn finish(self) -> Result<(Vec<u8>, usize), &'static str> {
        if self.depth > 0 || self.in_string || self.state != SplitState::Around {
            return Err("the answer breaks off");
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
            // There may be no list at all: `null`, or something that is found to be wrong when the rest is read.
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
            // No object begins with it, and the list has not ended.
            b'}' => Err("the answer has a bracket too many"),
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
            // A number or a word has no bracket of its own: it ends before this one.
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

    /// The object ended before this byte, which is part of what is around it.
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
        self.depth = depth.ok_or("the answer has a bracket too many")?;
        Ok(())
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        if matches!(self.state, SplitState::Inside(_)) {
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
            return Err("the answer has too much beside its objects");
        }
        self.rest.extend_from_slice(bytes);
        // One byte more than the wanted key tells it from all longer ones.
        let room = (self.which.key().len() + 1).saturating_sub(self.key.len());
        if self.in_string && self.depth == 1 {
            self.key.extend(bytes.iter().take(room));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
