//! SHA-256 in base64, by which a page says which script and which style belong to it.
//!
//! Nothing is kept secret by it: a browser compares it with what the page holds. That is too little to
//! bring in a library of cryptography.

const INITIAL: [u32; 8] = [
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
];

const ROUNDS: [u32; 64] = [
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
];

/// The digest of some bytes, in base64.
pub(super) fn sha256_base64(bytes: &[u8]) -> String {
    base64(&sha256(bytes))
}

fn sha256(bytes: &[u8]) -> Vec<u8> {
    let mut padded = bytes.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend((bytes.len() as u64 * 8).to_be_bytes());
    let mut state = INITIAL;
    for block in padded.chunks_exact(64) {
        state = compressed(state, block);
    }
    state.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn compressed(state: [u32; 8], block: &[u8]) -> [u32; 8] {
    let mut words: Vec<u32> = block
        .chunks_exact(4)
        .map(|four| {
            four.iter()
                .fold(0, |word, byte| word << 8 | u32::from(*byte))
        })
        .collect();
    let at = |words: &[u32], index: usize| words.get(index).copied().unwrap_or(0);
    for index in 16..64 {
        let (fifteenth, second) = (at(&words, index - 15), at(&words, index - 2));
        let small0 = fifteenth.rotate_right(7) ^ fifteenth.rotate_right(18) ^ fifteenth >> 3;
        let small1 = second.rotate_right(17) ^ second.rotate_right(19) ^ second >> 10;
        let word = at(&words, index - 16)
            .wrapping_add(small0)
            .wrapping_add(at(&words, index - 7))
            .wrapping_add(small1);
        words.push(word);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = state;
    for (word, round) in words.iter().zip(ROUNDS) {
        let big1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let chosen = e & f ^ !e & g;
        let first = h
            .wrapping_add(big1)
            .wrapping_add(chosen)
            .wrapping_add(round)
            .wrapping_add(*word);
        let big0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let majority = a & b ^ a & c ^ b & c;
        let second = big0.wrapping_add(majority);
        (h, g, f, e) = (g, f, e, d.wrapping_add(first));
        (d, c, b, a) = (c, b, a, first.wrapping_add(second));
    }
    let mut sums = state;
    for (sum, part) in sums.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *sum = sum.wrapping_add(part);
    }
    sums
}

fn base64(bytes: &[u8]) -> String {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let padded = three.iter().chain([&0, &0]).take(3);
        let bits = padded.fold(0u32, |bits, byte| bits << 8 | u32::from(*byte));
        for place in 0..4 {
            let six = (bits >> (18 - 6 * place) & 63) as usize;
            let sign = SIGNS.get(six).copied().unwrap_or(b'=');
            text.push(if place <= three.len() {
                char::from(sign)
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From FIPS 180-2, appendix B, and its message of no bits.
    #[test]
    fn the_examples_of_the_standard() {
        let hex = |bytes: &[u8]| -> String {
            let digest = sha256(bytes);
            digest.iter().map(|it| format!("{it:02x}")).collect()
        };
        assert_eq!(
            hex(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(
            hex(b""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        assert_eq!(
            hex(b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
        );
    }

    /// From RFC 4648, section 10.
    #[test]
    fn base64_is_padded() {
        assert_eq!(base64(b"f"), "Zg==");
        assert_eq!(base64(b"fo"), "Zm8=");
        assert_eq!(base64(b"foo"), "Zm9v");
        assert_eq!(base64(b"foobar"), "Zm9vYmFy");
    }
}
