//! Numbered entries whose numbers are used again, and an index that finds them by content.

/// The number of entries in a piece.
// Pieces instead of one `Vec`: a vector that has just doubled is half empty, and growing moves all
// entries.
const PIECE: usize = 512;

/// Entries, by number. The number of a removed entry is used again.
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

    /// Takes an entry out. The next entry may get its number.
    pub(super) fn remove(&mut self, id: u32) -> T {
        let taken = self.take(id);
        self.give_back(id);
        taken
    }

    /// Takes an entry out. No other entry gets its number before [`Slab::give_back`].
    // The commit compares owners of addresses by number. If a number were used again within a
    // batch, an object that is gone and a new one would be equal.
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

    /// Returns the number of entries. One whose number is not yet given back counts.
    pub(super) fn len(&self) -> usize {
        self.length as usize - self.free.len()
    }

    /// Returns all entries, with a blank for each one that was taken out.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(self.pieces.iter().flatten())
    }
}

/// The first byte of a slot: empty, a tombstone, or else eight bits of the hash.
const EMPTY: u8 = 0;
const TAKEN_OUT: u8 = 1;
const FIRST: u8 = 2;

/// A slot: the first byte, then the number in little-endian order.
// Bytes instead of a struct: with alignment a slot would have eight bytes.
type Slot = [u8; 5];

/// Finds numbers by the high half of the hash of their content, with 1.2 to 1.6 slots of five bytes
/// for each. The caller compares the content; the bits in the slot rule out most other numbers.
// Linear probing. The tables of the standard library would store the keys or the whole hashes a
// second time, and double when they grow.
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
        // `Some(None)` ends the search without a result: an entry is never behind an empty slot. A
        // tombstone does not end it.
        let search = |slots: &[Slot]| {
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
        search(behind).or_else(|| search(before))?
    }

    /// Adds a number that is not there yet. `hash_of` returns the hashes of the others when the
    /// table grows.
    pub(super) fn insert(&mut self, hash: u64, id: u32, hash_of: impl Fn(u32) -> u64) {
        // Linear probing slows down steeply when the table fills: an unsuccessful search passes
        // about 18 slots at 5/6, and 50 at 9/10. Tombstones count, because they lengthen a search
        // like entries.
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
            // A tombstone: an empty slot would hide entries behind it that could not have a slot
            // before it. Moving them up, as in the table of addresses, would need their hashes.
            *bits = TAKEN_OUT;
            self.live -= 1;
        }
    }

    fn put(&mut self, hash: u64, id: u32) {
        let [a, b, c, d] = id.to_le_bytes();
        let free = walk(&mut self.slots, hash).find(|[found, ..]| *found < FIRST);
        if let Some(slot) = free {
            // A tombstone that gets an entry was counted before.
            self.used += usize::from(matches!(slot, [EMPTY, ..]));
            *slot = [bits(hash), a, b, c, d];
        }
    }

    fn rebuild(&mut self, hash_of: impl Fn(u32) -> u64) {
        // 8/5 slots per entry instead of twice as many as before: less memory for about four moves
        // per insert, since a third more entries fit until the next rebuild. The size follows the
        // live entries: a rebuild drops the tombstones, and a table with many of them shrinks.
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

/// Returns all slots, starting at the slot of a hash.
fn walk(slots: &mut [Slot], hash: u64) -> impl Iterator<Item = &mut Slot> {
    let start = start(slots, hash);
    let halves = slots.split_at_mut_checked(start);
    let (before, behind) = halves.unwrap_or_default();
    behind.iter_mut().chain(before)
}

fn start(slots: &[Slot], hash: u64) -> usize {
    // Scales the high half to the number of slots: a multiplication instead of a division, and the
    // number of slots need not be a power of two.
    let start = ((hash >> 32) * slots.len() as u64) >> 32;
    usize::try_from(start).unwrap_or(0)
}

/// Returns the low bits of the high half of a hash.
// The start is taken from the top bits. Entries near each other agree there, and differ in these.
fn bits(hash: u64) -> u8 {
    let low = (hash >> 32) as u8;
    if low < FIRST { low + FIRST } else { low }
}

/// Not a number of any entry.
pub(super) const NONE: u32 = u32::MAX;

/// Lists, each stored once while it has a use.
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
    /// Returns the number of a list, with one more use, and whether the list is new.
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

    /// Removes a use. Returns the list after its last use.
    // The caller must then release the texts of the items, which the list had one use of.
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

/// Returns a fast hash without a secret key.
// Enough for lists of our own numbers: an author of objects does not choose them.
pub(super) fn hash_of<H: std::hash::Hash + ?Sized>(it: &H) -> u64 {
    use std::hash::BuildHasher as _;
    let hash = rustc_hash::FxBuildHasher.hash_one(it);
    // The index uses the high half only. The multiplication carries the low bits into it.
    hash.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
