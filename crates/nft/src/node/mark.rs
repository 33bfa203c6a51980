//! The Palisade bits of the ct mark: the generation that evaluated a connection, and how far.

use palisade_core::plan::Generation;

/// The bits of the ct mark that Palisade uses. All others are neither read nor written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MarkBits {
    shift: u32,
    width: u32,
}

impl MarkBits {
    /// The upper half of the mark.
    pub const DEFAULT: MarkBits = MarkBits {
        shift: 16,
        width: 16,
    };

    /// Returns the bits of a mask: three to sixteen adjacent ones.
    pub fn new(mask: u32) -> Option<MarkBits> {
        // Three bits at least: one marks both accepts. With a single bit more there would be one
        // generation only, and no change could make marks stale.
        let (shift, width) = (mask.trailing_zeros(), mask.count_ones());
        let bits = MarkBits { shift, width };
        ((3..=16).contains(&width) && bits.mask() == mask).then_some(bits)
    }

    /// Returns the mask.
    pub fn mask(self) -> u32 {
        let ones = u32::MAX.checked_shr(32 - self.width).unwrap_or(0);
        ones.checked_shl(self.shift).unwrap_or(0)
    }

    /// Returns the largest generation that the bits can hold.
    pub fn last_generation(self) -> u16 {
        let ones = u16::MAX.checked_shr(17 - self.width).unwrap_or(0);
        ones.max(1)
    }

    /// Returns the number of the generation in a mark, or 0.
    pub fn number_in(self, mark: u32) -> u16 {
        let number = (mark & self.mask()).checked_shr(self.shift + 1);
        number.and_then(|it| u16::try_from(it).ok()).unwrap_or(0)
    }

    /// Returns the leading bits that the marks of two generations, and so of all between them, have
    /// in common: a mask and the value under it.
    pub(crate) fn common(self, first: u16, last: u16) -> (u32, u32) {
        let marks = [first, last].map(|it| u32::from(it) << (self.shift + 1) & self.mask());
        let [first, last] = marks;
        // Below the highest bit in which the two differ, the marks between them have any bits.
        let below = (first ^ last)
            .checked_ilog2()
            .map_or(0, |top| u32::MAX >> (31 - top));
        let mask = self.mask() & !self.full_bit() & !below;
        (mask, first & mask)
    }

    /// Returns the bit that marks an accept by both sides.
    pub fn full_bit(self) -> u32 {
        1 << self.shift
    }

    /// Returns the mark of a connection that both sides have accepted.
    pub fn full(self, generation: Generation) -> u32 {
        self.half(generation) | self.full_bit()
    }

    /// Returns the mark of a connection that the client's side has accepted.
    pub fn half(self, generation: Generation) -> u32 {
        // A number that is too large must not touch the bits of other programs, nor become zero,
        // which is the number of no generation.
        let number = (generation.get() - 1) % self.last_generation() + 1;
        u32::from(number) << (self.shift + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_stay_within_their_bits() {
        let bits = MarkBits::DEFAULT;
        assert_eq!(bits.mask(), 0xffff_0000);
        assert_eq!(bits.last_generation(), 0x7fff);
        let last = Generation::new(0x7fff).unwrap_or(Generation::FIRST);
        assert_eq!(bits.full(last), 0xffff_0000);
        assert_eq!(bits.half(last), 0xfffe_0000);
        assert_eq!(bits.full(Generation::FIRST), 0x0003_0000);
        let few = MarkBits::new(0x70).map(|few| few.full(last) & !few.mask());
        assert_eq!(few, Some(0));
        assert_eq!(bits.number_in(0xffff_1234), 0x7fff);
        assert_eq!(bits.number_in(0x0002_0000), 1);
        assert_eq!(bits.number_in(0x0001_ffff), 0);
        assert_eq!(last.next(bits.last_generation()), Generation::FIRST);
        assert_eq!(Generation::FIRST.next(bits.last_generation()).get(), 2);
    }

    #[test]
    fn generations_share_their_common_bits() {
        let bits = MarkBits::DEFAULT;
        assert_eq!(bits.common(1, 0x7fff), (0, 0));
        assert_eq!(bits.common(1, 0x3fff), (0x8000_0000, 0));
        assert_eq!(bits.common(0x4000, 0x7fff), (0x8000_0000, 0x8000_0000));
        assert_eq!(bits.common(5, 5), (0xfffe_0000, 0x000a_0000));
        assert_eq!(bits.common(4, 5), (0xfffc_0000, 0x0008_0000));
        let few = MarkBits::new(0x70).map(|few| few.common(2, 3));
        assert_eq!(few, Some((0x40, 0x40)));
    }

    #[test]
    fn a_mask_is_one_run_of_bits() {
        assert_eq!(MarkBits::new(0xffff_0000), Some(MarkBits::DEFAULT));
        for mask in [0, 1, 3, 0x0101, 0xf0f0, u32::MAX, 0x1ffff] {
            assert_eq!(MarkBits::new(mask), None, "{mask:#x}");
        }
        let bits = MarkBits::new(0x70).map(|it| (it.mask(), it.last_generation()));
        assert_eq!(bits, Some((0x70, 3)));
    }
}
