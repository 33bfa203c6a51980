//! Texts that objects have in common, each stored once while it has a use.

use super::arena::Arena;
use super::digest::Hashes;
use super::slab::{Index, Slab};

/// The number of a shared text.
pub(super) type Symbol = u32;

/// The shared texts, with a count of uses for each.
#[derive(Debug)]
pub(super) struct Texts {
    /// The bytes of the texts. Names of pods, which are not shared, are there as well.
    pub(super) arena: Arena,
    texts: Slab<Text>,
    index: Index,
    hashes: Hashes,
}

#[derive(Debug, Default)]
struct Text {
    at: u32,
    uses: u32,
}

impl Texts {
    pub(super) fn new(hashes: Hashes) -> Texts {
        Texts {
            arena: Arena::default(),
            texts: Slab::default(),
            index: Index::default(),
            hashes,
        }
    }

    /// Returns the number of a text, with one more use.
    pub(super) fn intern(&mut self, text: &str) -> Symbol {
        let hash = self.hashes.short(text.as_bytes());
        if let Some(known) = self.index.find(hash, |id| self.is(id, text)) {
            self.retain(known);
            return known;
        }
        let at = self.arena.put(text);
        let id = self.texts.insert(Text { at, uses: 1 });
        let (texts, hashes, arena) = (&self.texts, &self.hashes, &self.arena);
        // Entries do not store their hashes. Computing them when the index grows saves memory.
        self.index.insert(hash, id, |id| {
            let text = texts.get(id).map(|it| arena.bytes(it.at));
            hashes.short(text.unwrap_or_default())
        });
        id
    }

    /// Returns the number of a text that has a use.
    pub(super) fn find(&self, text: &str) -> Option<Symbol> {
        let hash = self.hashes.short(text.as_bytes());
        self.index.find(hash, |id| self.is(id, text))
    }

    fn is(&self, id: Symbol, text: &str) -> bool {
        let known = self.texts.get(id);
        known.is_some_and(|it| self.arena.bytes(it.at) == text.as_bytes())
    }

    pub(super) fn get(&self, id: Symbol) -> &str {
        // A removed entry is blank, and its place 0 belongs to another text.
        let text = self.texts.get(id).filter(|it| it.uses > 0);
        text.map_or("", |it| self.arena.get(it.at))
    }

    pub(super) fn retain(&mut self, id: Symbol) {
        if let Some(text) = self.texts.get_mut(id) {
            text.uses += 1;
        }
    }

    pub(super) fn release(&mut self, id: Symbol) {
        let Some(text) = self.texts.get_mut(id) else {
            return;
        };
        text.uses = text.uses.saturating_sub(1);
        if text.uses == 0 {
            // The index needs the hash of the bytes; they must not be freed before.
            let at = text.at;
            let hash = self.hashes.short(self.arena.bytes(at));
            self.index.remove(hash, id);
            self.texts.remove(id);
            self.arena.free(at);
        }
    }

    pub(super) fn hashes(&self) -> &Hashes {
        &self.hashes
    }
}
