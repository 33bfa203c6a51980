//! The number of a version of a node's policies.

/// A version of the policies of a node. Each connection is marked with the one that evaluated it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(u16);

impl Generation {
    /// The first generation.
    pub const FIRST: Generation = Generation(1);

    /// Returns the generation with a number. Zero is none: it is the mark of every new connection.
    pub fn new(number: u16) -> Option<Generation> {
        (number != 0).then_some(Generation(number))
    }

    /// Returns its number.
    pub fn get(self) -> u16 {
        self.0
    }

    /// Returns the next generation, and the first one after the last.
    pub fn next(self, last: u16) -> Generation {
        if self.0 >= last {
            Generation::FIRST
        } else {
            Generation(self.0 + 1)
        }
    }
}
