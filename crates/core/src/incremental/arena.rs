//! Many short texts in few pieces of memory. The space of a freed text is used again.

/// The bytes of a piece, and of the unit that texts are rounded up to.
// A `Box` for each text would add a pointer, a length and the allocator's own bytes. Pieces never
// move; a place in units fits into 32 bits up to 16 GiB of texts.
const PIECE: usize = 1 << 16;
const UNIT: usize = 4;
const UNITS: usize = PIECE / UNIT;

/// Longer texts have a piece of their own.
// A label key has at most 317 bytes. The bound also limits the tail that a full piece leaves
// unused, to 2 % of the piece.
const LONGEST: usize = 1024;
// In the place of a length; no short text is that long.
const IS_LONG: u16 = u16::MAX;

/// Texts, by their places.
#[derive(Debug, Default)]
pub(super) struct Arena {
    pieces: Vec<Box<[u8]>>,
    /// The bytes in use of the piece that is being filled, and the index of that piece.
    filled: usize,
    filling: Option<usize>,
    /// The free places, by their size in units.
    // Places are neither split nor joined: the texts of a cluster come back in the same few sizes.
    free: Vec<Vec<u32>>,
    free_pieces: Vec<usize>,
}

impl Arena {
    /// Stores a text. Two copies of a text have two places.
    pub(super) fn put(&mut self, text: &str) -> u32 {
        let Some(length) = u16::try_from(text.len())
            .ok()
            .filter(|length| usize::from(*length) <= LONGEST)
        else {
            // No length is stored: the piece ends where the text ends.
            let mut piece = Vec::with_capacity(text.len() + 2);
            piece.extend(IS_LONG.to_le_bytes());
            piece.extend(text.as_bytes());
            return place(self.add_piece(piece.into()), 0);
        };
        let units = (text.len() + 2).div_ceil(UNIT);
        let free = self.free.get_mut(units).and_then(Vec::pop);
        let at = free.unwrap_or_else(|| self.allocate(units));
        if let Some(block) = self.block_mut(at)
            && let Some((head, rest)) = block.split_at_mut_checked(2)
            && let Some(rest) = rest.get_mut(..text.len())
        {
            head.copy_from_slice(&length.to_le_bytes());
            rest.copy_from_slice(text.as_bytes());
        }
        at
    }

    pub(super) fn get(&self, at: u32) -> &str {
        str::from_utf8(self.bytes(at)).unwrap_or_default()
    }

    /// Returns the bytes of a text: enough for comparisons, without a check of the encoding.
    pub(super) fn bytes(&self, at: u32) -> &[u8] {
        let (piece, offset) = parts(at);
        let block = self.pieces.get(piece).and_then(|it| it.get(offset..));
        let text = block.and_then(|block| {
            let (head, rest) = block.split_first_chunk::<2>()?;
            match u16::from_le_bytes(*head) {
                IS_LONG => Some(rest),
                length => rest.get(..usize::from(length)),
            }
        });
        text.unwrap_or_default()
    }

    /// Frees the space of a text.
    pub(super) fn free(&mut self, at: u32) {
        // The stored length gives the same number of units as in `put`.
        let length = self.bytes(at).len();
        let (piece, _) = parts(at);
        if length > LONGEST {
            if let Some(long) = self.pieces.get_mut(piece) {
                *long = Box::default();
                self.free_pieces.push(piece);
            }
            return;
        }
        let units = (length + 2).div_ceil(UNIT);
        if self.free.len() <= units {
            self.free.resize_with(units + 1, Vec::new);
        }
        if let Some(free) = self.free.get_mut(units) {
            free.push(at);
        }
    }

    fn allocate(&mut self, units: usize) -> u32 {
        let needed = units * UNIT;
        let piece = match self.filling {
            Some(piece) if self.filled + needed <= PIECE => piece,
            _ => {
                // The rest of the piece before this one stays unused.
                let piece = self.add_piece(vec![0; PIECE].into());
                self.filling = Some(piece);
                self.filled = 0;
                piece
            }
        };
        let at = place(piece, self.filled / UNIT);
        self.filled += needed;
        at
    }

    fn add_piece(&mut self, bytes: Box<[u8]>) -> usize {
        if let Some(free) = self.free_pieces.pop()
            && let Some(piece) = self.pieces.get_mut(free)
        {
            *piece = bytes;
            return free;
        }
        self.pieces.push(bytes);
        self.pieces.len() - 1
    }

    fn block_mut(&mut self, at: u32) -> Option<&mut [u8]> {
        let (piece, offset) = parts(at);
        self.pieces.get_mut(piece)?.get_mut(offset..)
    }
}

fn place(piece: usize, unit: usize) -> u32 {
    u32::try_from(piece * UNITS + unit).unwrap_or(u32::MAX)
}

fn parts(at: u32) -> (usize, usize) {
    let at = at as usize;
    (at / UNITS, at % UNITS * UNIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_numbers_are_reused() {
        let mut arena = Arena::default();
        let long = "x".repeat(5_000);
        let first = arena.put("one");
        let second = arena.put(&long);
        let empty = arena.put("");
        assert_eq!(arena.get(first), "one");
        assert_eq!(arena.get(second), long);
        assert_eq!(arena.get(empty), "");
        arena.free(first);
        assert_eq!(arena.put("two"), first);
        assert_eq!(arena.get(first), "two");
        arena.free(second);
        assert_eq!(arena.put(&long), second);
        for _ in 0..1_000 {
            let texts: Vec<u32> = (0..100).map(|i| arena.put(&format!("text {i}"))).collect();
            texts.into_iter().for_each(|at| arena.free(at));
        }
        assert_eq!(arena.pieces.len(), 2);
    }
}
