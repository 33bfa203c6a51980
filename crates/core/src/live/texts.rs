//! Texts that objects have in common, each kept once as long as someone uses it.

use std::hash::{BuildHasher as _, RandomState};

use super::slab::{Index, Slab};

/// A text, by its number.
pub(super) type Symbol = u32;

/// All texts.
#[derive(Debug, Default)]
pub(super) struct Texts {
    texts: Slab<Text>,
    index: Index,
    /// Whoever names objects must not be able to choose the hashes.
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Text {
    text: Box<str>,
    uses: u32,
}

impl Texts {
    /// The number of a text, with one more use.
    pub(super) fn intern(&mut self, text: &str) -> Symbol {
        let hash = self.hasher.hash_one(text);
        if let Some(known) = self.index.find(hash, |id| self.get(id) == text) {
            self.retain(known);
            return known;
        }
        let id = self.texts.insert(Text {
            text: text.into(),
            uses: 1,
        });
        let (texts, hasher) = (&self.texts, &self.hasher);
        self.index.insert(hash, id, |id| {
            let text = texts.get(id).map(|it| &*it.text);
            hasher.hash_one(text.unwrap_or_default())
        });
        id
    }

    /// The number of a text that someone uses.
    pub(super) fn find(&self, text: &str) -> Option<Symbol> {
        let hash = self.hasher.hash_one(text);
        self.index.find(hash, |id| self.get(id) == text)
    }

    pub(super) fn get(&self, id: Symbol) -> &str {
        self.texts.get(id).map(|it| &*it.text).unwrap_or_default()
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
            let hash = self.hasher.hash_one(&*text.text);
            self.index.remove(hash, id);
            self.texts.remove(id);
        }
    }
}
