//! Hashes of texts under a secret key: the authors of objects must not be able to choose them.
//!
//! This is SipHash-1-3 with 128 bits. The hasher of the standard library lacks two things: 128 bits
//! in one pass, and the hash of a prefix on the way to the hash of a longer text.

use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;

/// The key of all hashes of an [`IncrementalPlanner`](super::IncrementalPlanner). The caller
/// chooses it: secret and random where others name the objects, fixed where two runs must be equal.
#[derive(Clone, Copy)]
pub struct HashKey(u64, u64);

impl HashKey {
    /// Returns the key with these two halves.
    pub const fn new(first: u64, second: u64) -> HashKey {
        HashKey(first, second)
    }
}

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A reader of the key could choose hashes; it must not reach a log or a panic message.
        f.write_str("HashKey")
    }
}

/// Makes hashes under a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hashes(HashKey);

impl Hashes {
    pub(super) fn new(key: HashKey) -> Hashes {
        Hashes(key)
    }

    pub(super) fn short(&self, bytes: &[u8]) -> u64 {
        let mut digest = self.begin();
        digest.part(bytes);
        digest.short()
    }

    /// Returns a hash of 128 bits, which stands for the text itself: the chance that two of a
    /// hundred thousand texts have the same one is one in 10^28.
    pub(super) fn long(&self, bytes: &[u8]) -> u128 {
        let mut digest = self.begin();
        digest.part(bytes);
        digest.long()
    }

    /// Returns the long hash of an address.
    pub(super) fn long_of(&self, address: IpAddr) -> u128 {
        // `long` takes in the length as well, which separates the families.
        match address {
            IpAddr::V4(it) => self.long(&it.octets()),
            IpAddr::V6(it) => self.long(&it.octets()),
        }
    }

    /// Begins a hash with a text.
    pub(super) fn text(&self, text: &str) -> Digest {
        let mut digest = self.begin();
        digest.text(text);
        digest
    }

    pub(super) fn begin(&self) -> Digest {
        let Hashes(HashKey(first, second)) = *self;
        // The constants of SipHash; 0xee selects its 128-bit form.
        Digest([
            first ^ 0x736f_6d65_7073_6575,
            second ^ 0x646f_7261_6e64_6f6d ^ 0xee,
            first ^ 0x6c79_6765_6e65_7261,
            second ^ 0x7465_6462_7974_6573,
        ])
    }
}

impl BuildHasher for Hashes {
    type Hasher = Digest;

    fn build_hasher(&self) -> Digest {
        self.begin()
    }
}

impl Hasher for Digest {
    fn write(&mut self, bytes: &[u8]) {
        self.part(bytes);
    }

    fn finish(&self) -> u64 {
        self.short()
    }
}

/// The state of a hash between two parts of its input.
#[derive(Clone, Copy, Debug)]
pub(super) struct Digest([u64; 4]);

impl Digest {
    /// Takes in some bytes, then their length. If several parts follow each other, the earlier ones
    /// must determine the length of each.
    pub(super) fn part(&mut self, bytes: &[u8]) {
        self.words(bytes);
        // The top byte of the last word is free: at most seven bytes are left for it.
        self.word(rest(bytes) | (bytes.len() as u64) << 56);
    }

    /// Takes in a text. Any number of texts may follow each other.
    pub(super) fn text(&mut self, text: &str) {
        let bytes = text.as_bytes();
        self.words(bytes);
        // Bytes of ones mark the end. UTF-8 has no such byte: `ab` followed by `c` differs from `a`
        // followed by `bc`, without a length.
        let behind = u64::MAX << (8 * (bytes.len() % 8));
        self.word(rest(bytes) | behind);
    }

    fn words(&mut self, bytes: &[u8]) {
        let (words, _) = bytes.as_chunks::<8>();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
    }

    /// Takes in a number.
    pub(super) fn word(&mut self, word: u64) {
        let Digest([.., last]) = self;
        *last ^= word;
        self.round();
        let Digest([first, ..]) = self;
        *first ^= word;
    }

    // One round for each word and three at the end: the form that the standard library uses against
    // flooded hash tables.
    fn round(&mut self) {
        let Digest([a, b, c, d]) = self;
        *a = a.wrapping_add(*b);
        *c = c.wrapping_add(*d);
        *b = b.rotate_left(13) ^ *a;
        *d = d.rotate_left(16) ^ *c;
        *a = a.rotate_left(32);
        *c = c.wrapping_add(*b);
        *a = a.wrapping_add(*d);
        *b = b.rotate_left(17) ^ *c;
        *d = d.rotate_left(21) ^ *a;
        *c = c.rotate_left(32);
    }

    fn end(&mut self) -> u64 {
        for _ in 0..3 {
            self.round();
        }
        let Digest([a, b, c, d]) = self;
        *a ^ *b ^ *c ^ *d
    }

    pub(super) fn short(mut self) -> u64 {
        let Digest([_, _, third, _]) = &mut self;
        *third ^= 0xee;
        self.end()
    }

    pub(super) fn long(mut self) -> u128 {
        let Digest([_, _, third, _]) = &mut self;
        *third ^= 0xee;
        // The low half is the short hash: the two finalizations share their first three rounds.
        let low = self.end();
        let Digest([_, second, ..]) = &mut self;
        *second ^= 0xdd;
        u128::from(self.end()) << 64 | u128::from(low)
    }
}

/// Returns the bytes behind the last whole word.
// Their number differs from text to text. A loop over them is mispredicted, and takes longer than
// a read of whole words that overlap.
fn rest(bytes: &[u8]) -> u64 {
    let length = bytes.len();
    if let Some(last) = bytes.last_chunk::<8>() {
        // A shift by 64, for a length of whole words, leaves nothing.
        let others = 64 - 8 * (length as u32 % 8);
        return u64::from_le_bytes(*last).checked_shr(others).unwrap_or(0);
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let [first, last] = [first, last].map(|it| u64::from(u32::from_le_bytes(*it)));
        return first | last << (8 * (length - 4));
    }
    let bytes = bytes.iter().rev();
    bytes.fold(0, |word, byte| word << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes 0, 1, 2, ... under the key of the bytes 0 to 15.
    fn hashed(length: u8) -> u128 {
        let key = HashKey::new(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        let hashes = Hashes::new(key);
        hashes.long(&(0..length).collect::<Vec<u8>>())
    }

    #[test]
    fn every_byte_and_every_length_counts() {
        let mut all: Vec<u128> = (0..200).map(hashed).collect();
        let hashes = Hashes::new(HashKey::new(1, 2));
        let zeros = |length: usize| hashes.long(&vec![0; length]);
        all.extend((0..200).map(zeros));
        for at in 0..100 {
            let mut bytes = vec![0_u8; 100];
            if let Some(byte) = bytes.get_mut(at) {
                *byte = 1;
            }
            all.push(hashes.long(&bytes));
        }
        let n = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), n);
    }

    #[test]
    fn the_last_word_is_masked_to_the_length() {
        let bytes: Vec<u8> = (1..=40).collect();
        for length in 0..=bytes.len() {
            let bytes = bytes.get(..length).unwrap_or_default();
            let (_, left) = bytes.as_chunks::<8>();
            let left = left.iter().rev();
            let left = left.fold(0, |word, byte| word << 8 | u64::from(*byte));
            assert_eq!(rest(bytes), left, "{length}");
        }
    }

    #[test]
    fn the_end_of_a_text_changes_the_hash() {
        let hashed = |texts: [&str; 2]| {
            let mut digest = Hashes::new(HashKey::new(1, 2)).begin();
            texts.iter().for_each(|text| digest.text(text));
            digest.long()
        };
        let alphabet = "abcdefghijklmnopqrstuvwxyz";
        let mut all: Vec<u128> = (0..=alphabet.len())
            .filter_map(|at| alphabet.split_at_checked(at))
            .map(|(first, second)| hashed([first, second]))
            .collect();
        let n = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!((all.len(), n), (27, 27));
    }

    #[test]
    fn the_short_one_is_half_of_the_long_one() {
        let hashes = Hashes::new(HashKey::new(1, 2));
        let long = hashes.long(b"default/web");
        assert_eq!(
            hashes.short(b"default/web"),
            (long & u128::from(u64::MAX)) as u64
        );
        assert_ne!(Hashes::new(HashKey::new(1, 3)).long(b"default/web"), long);
    }
}
