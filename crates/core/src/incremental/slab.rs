//! Numbered entries that are given back, and an index that finds them by content.

/// How many entries a piece has: a table that doubles would keep as much room as it uses.
const PIECE: usize = 512;

/// Entries by number. A number is used again once its entry was taken out.
#[derive(Debug)]
pub(super) struct Slab<T> {
    pieces: Vec<Vec<T>>,
    free: Vec<u32>,
    length: u32,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab {
            pieces: Vec::new(),
            free: Vec::new(),
            length: 0,
        }
    }
}

impl<T: Default> Slab<T> {
    pub(super) fn insert(&mut self, entry: T) -> u32 {
        if let Some(id) = self.free.pop() {
            if let Some(slot) = self.get_mut(id) {
                *slot = entry;
            }
            return id;
        }
        let id = self.length;
        self.length += 1;
        match self.pieces.last_mut() {
            Some(piece) if piece.len() < PIECE => piece.push(entry),
            _ => {
                let mut piece = Vec::with_capacity(PIECE);
                piece.push(entry);
                self.pieces.push(piece);
            }
        }
        id
    }

    /// Takes an entry out; its number may be given to the next one.
    pub(super) fn remove(&mut self, id: u32) -> T {
        let taken = self.take(id);
        self.give_back(id);
        taken
    }

    /// Takes an entry out, and keeps its number from others until it is given back.
    pub(super) fn take(&mut self, id: u32) -> T {
        self.get_mut(id).map(std::mem::take).unwrap_or_default()
    }

    pub(super) fn give_back(&mut self, id: u32) {
        self.free.push(id);
    }

    pub(super) fn get(&self, id: u32) -> Option<&T> {
        let id = id as usize;
        self.pieces.get(id / PIECE)?.get(id % PIECE)
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        let id = id as usize;
        self.pieces.get_mut(id / PIECE)?.get_mut(id % PIECE)
    }

    /// How many entries there are.
    pub(super) fn len(&self) -> usize {
        self.length as usize - self.free.len()
    }

    /// All entries, also those that were taken out and are blank.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(self.pieces.iter().flatten())
    }
}

/// What a slot says of its entry: that there is none, that it was taken out, or a few bits of its hash.
const EMPTY: u8 = 0;
const TAKEN_OUT: u8 = 1;
const FIRST: u8 = 2;

/// A slot: what it says of its entry, and the number.
type Slot = [u8; 5];

/// Finds numbers by the high half of the hash of what they stand for, in five bytes each and a third of free room. Who
/// asks compares; the bits beside each number spare looks at most of the wrong ones.
#[derive(Debug, Default)]
pub(super) struct Index {
    slots: Vec<Slot>,
    live: usize,
    /// The slots that are not empty.
    used: usize,
}

impl Index {
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let wanted = bits(hash);
        // `Some(None)`: there is none.
        let among = |slots: &[Slot]| {
            for [found, id @ ..] in slots {
                if *found == EMPTY {
                    return Some(None);
                }
                if *found == wanted {
                    let id = u32::from_le_bytes(*id);
                    if is_it(id) {
                        return Some(Some(id));
                    }
                }
            }
            None
        };
        let start = start(&self.slots, hash);
        let (before, behind) = self.slots.split_at_checked(start)?;
        among(behind).or_else(|| among(before))?
    }

    /// Adds a number that is not there yet; `hash_of` is asked for the others when room is made.
    pub(super) fn insert(&mut self, hash: u64, id: u32, hash_of: impl Fn(u32) -> u64) {
        if (self.used + 1) * 6 > self.slots.len() * 5 {
            self.rebuild(hash_of);
        }
        self.put(hash, id);
        self.live += 1;
    }

    pub(super) fn remove(&mut self, hash: u64, id: u32) {
        let [a, b, c, d] = id.to_le_bytes();
        let wanted = [bits(hash), a, b, c, d];
        let found = walk(&mut self.slots, hash)
            .find(|slot| **slot == wanted || matches!(slot, [EMPTY, ..]));
        if let Some([bits, ..]) = found
            && *bits != EMPTY
        {
            *bits = TAKEN_OUT;
            self.live -= 1;
        }
    }

    fn put(&mut self, hash: u64, id: u32) {
        let [a, b, c, d] = id.to_le_bytes();
        let free = walk(&mut self.slots, hash).find(|[found, ..]| *found < FIRST);
        if let Some(slot) = free {
            self.used += usize::from(matches!(slot, [EMPTY, ..]));
            *slot = [bits(hash), a, b, c, d];
        }
    }

    fn rebuild(&mut self, hash_of: impl Fn(u32) -> u64) {
        // A table that doubles would keep as much room as it uses.
        let room = ((self.live + 1) * 8 / 5).max(16);
        let old = std::mem::replace(&mut self.slots, vec![[EMPTY; 5]; room]);
        self.used = 0;
        for [its_bits, id @ ..] in old {
            if its_bits >= FIRST {
                let id = u32::from_le_bytes(id);
                self.put(hash_of(id), id);
            }
        }
    }
}

/// All slots, beginning with the one that belongs to a hash.
fn walk(slots: &mut [Slot], hash: u64) -> impl Iterator<Item = &mut Slot> {
    let start = start(slots, hash);
    let halves = slots.split_at_mut_checked(start);
    let (before, behind) = halves.unwrap_or_default();
    behind.iter_mut().chain(before)
}

fn start(slots: &[Slot], hash: u64) -> usize {
    // The share of the room that the high bits are of all that they could be.
    let start = ((hash >> 32) * slots.len() as u64) >> 32;
    usize::try_from(start).unwrap_or(0)
}

/// The bits of the half of a hash that say the least about where its slot is.
fn bits(hash: u64) -> u8 {
    let low = (hash >> 32) as u8;
    if low < FIRST { low + FIRST } else { low }
}

/// A number that stands for nothing.
pub(super) const NONE: u32 = u32::MAX;

/// Equal lists are kept once, as long as someone uses them.
#[derive(Debug)]
pub(super) struct Lists<T> {
    lists: Slab<List<T>>,
    index: Index,
}

#[derive(Debug)]
struct List<T> {
    items: Box<[T]>,
    uses: u32,
}

impl<T> Default for List<T> {
    fn default() -> List<T> {
        List {
            items: Box::default(),
            uses: 0,
        }
    }
}

impl<T> Default for Lists<T> {
    fn default() -> Lists<T> {
        Lists {
            lists: Slab::default(),
            index: Index::default(),
        }
    }
}

impl<T: Copy + Eq + std::hash::Hash> Lists<T> {
    /// The number of a list, with one more use; and whether it is new.
    pub(super) fn intern(&mut self, items: &[T]) -> (u32, bool) {
        let hash = hash_of(items);
        if let Some(known) = self.index.find(hash, |id| self.get(id) == items) {
            self.retain(known);
            return (known, false);
        }
        let id = self.lists.insert(List {
            items: items.into(),
            uses: 1,
        });
        let lists = &self.lists;
        let items_of = |id: u32| lists.get(id).map(|list| &*list.items).unwrap_or_default();
        self.index.insert(hash, id, |id| hash_of(items_of(id)));
        (id, true)
    }

    pub(super) fn retain(&mut self, id: u32) {
        if let Some(list) = self.lists.get_mut(id) {
            list.uses += 1;
        }
    }

    /// One use less; after the last one the list is handed back.
    pub(super) fn release(&mut self, id: u32) -> Option<Box<[T]>> {
        let list = self.lists.get_mut(id)?;
        list.uses = list.uses.saturating_sub(1);
        if list.uses > 0 {
            return None;
        }
        let hash = hash_of(&list.items);
        self.index.remove(hash, id);
        Some(self.lists.remove(id).items)
    }

    pub(super) fn get(&self, id: u32) -> &[T] {
        let list = self.lists.get(id);
        list.map(|list| &*list.items).unwrap_or_default()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &[T])> {
        let lists = self.lists.iter().filter(|(_, list)| list.uses > 0);
        lists.map(|(id, list)| (id, &*list.items))
    }
}

/// A hash of numbers, which nobody outside chooses.
pub(super) fn hash_of<H: std::hash::Hash + ?Sized>(it: &H) -> u64 {
    use std::hash::BuildHasher as _;
    let hash = rustc_hash::FxBuildHasher.hash_one(it);
    // Spreads what the fast hash leaves in its low bits.
    hash.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
