//! A splitmix64 generator: a seed gives the same inputs on every machine and with every version.

/// The characters of the random part of a pod's name: no vowels, so no words.
const NAME_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// A source of pseudo-random choices.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// Starts a sequence; equal seeds give equal sequences.
    pub fn new(seed: u64) -> Rng {
        Rng { state: seed }
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number less than `bound`; 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high half of the product is below `bound`, so it fits.
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A number of log-normal distribution: its logarithm has this mean and deviation.
    pub fn log_normal(&mut self, mean: f64, deviation: f64) -> f64 {
        // The sum of twelve even numbers from 0 to 1 is near enough to a normal distribution.
        let even: f64 = (0..12).map(|_| (self.bits() >> 11) as f64).sum();
        let normal = even / (1_u64 << 53) as f64 - 6.0;
        (mean + deviation * normal).exp()
    }

    /// One of `items`; the default value when there are none.
    pub fn pick<T: Copy + Default>(&mut self, items: &[T]) -> T {
        let index = self.below(items.len() as u64) as usize;
        items.get(index).copied().unwrap_or_default()
    }

    /// `length` lower-case hexadecimal digits.
    pub fn hex(&mut self, length: usize) -> String {
        (0..length)
            .map(|_| char::from(self.pick(b"0123456789abcdef")))
            .collect()
    }

    /// `length` characters as controllers append them to names.
    pub fn suffix(&mut self, length: usize) -> String {
        (0..length)
            .map(|_| char::from(self.pick(NAME_ALPHABET)))
            .collect()
    }

    /// A version 4 UUID.
    pub fn uid(&mut self) -> String {
        let (a, b, c, d) = (self.hex(8), self.hex(4), self.hex(3), self.hex(3));
        format!("{a}-{b}-4{c}-a{d}-{}", self.hex(12))
    }

    /// A moment of the year 2026, as the API server writes it.
    pub fn time(&mut self) -> String {
        let (month, day) = (self.between(1, 9), self.between(1, 28));
        let (hour, minute, second) = (self.below(24), self.below(60), self.below(60));
        format!("2026-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

/// Five characters that differ for every `serial` below 27^5.
pub(super) fn unique_suffix(serial: u64) -> String {
    const SPACE: u64 = 27 * 27 * 27 * 27 * 27;
    // The factor has no divisor in common with 27, so it permutes the space.
    let mut rest = (serial % SPACE) * 7_368_787 % SPACE;
    let mut suffix = String::with_capacity(5);
    for _ in 0..5 {
        let letter = NAME_ALPHABET
            .get((rest % 27) as usize)
            .copied()
            .unwrap_or(b'b');
        suffix.push(char::from(letter));
        rest /= 27;
    }
    suffix
}
