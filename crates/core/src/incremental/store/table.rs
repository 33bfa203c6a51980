//! What is kept of each address of IPv4, so that one look at memory finds it.

/// Stands for nothing.
const EMPTY: u32 = u32::MAX;

/// Numbers by address, in eight bytes a slot and some free room. No number may be the largest.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// An address lies at its own slot or behind it, with no empty one between.
    slots: Vec<(u32, u32)>,
    length: usize,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn get(&self, address: u32) -> Option<u32> {
        // `Some(EMPTY)`: there is none.
        let among = |slots: &[(u32, u32)]| {
            let mut slots = slots.iter();
            let found = slots.find(|(its, number)| *its == address || *number == EMPTY);
            found.map(|(_, number)| *number)
        };
        let (before, behind) = self.slots.split_at_checked(self.start(address))?;
        let found = among(behind).or_else(|| among(before))?;
        (found != EMPTY).then_some(found)
    }

    /// Keeps a number for an address, in place of the one before.
    pub(super) fn insert(&mut self, address: u32, number: u32) {
        if (self.length + 1) * 5 > self.slots.len() * 4 {
            self.grow();
        }
        self.put(address, number);
    }

    fn put(&mut self, address: u32, number: u32) {
        let start = self.start(address);
        let halves = self.slots.split_at_mut_checked(start);
        let (before, behind) = halves.unwrap_or_default();
        let mut slots = behind.iter_mut().chain(before);
        let found = slots.find(|(its, number)| *its == address || *number == EMPTY);
        if let Some(slot) = found {
            self.length += usize::from(slot.1 == EMPTY);
            *slot = (address, number);
        }
    }

    pub(super) fn remove(&mut self, address: u32) {
        let room = self.slots.len();
        let mut at = self.start(address);
        loop {
            match self.slots.get(at) {
                None | Some((_, EMPTY)) => return,
                Some((its, _)) if *its == address => break,
                Some(_) => at = (at + 1) % room,
            }
        }
        self.length -= 1;
        // Whoever could not have its own slot, or one nearer to it, moves up.
        let distance = |from: usize, to: usize| (to + room - from) % room;
        let mut next = at;
        loop {
            next = (next + 1) % room;
            let Some(slot) = self.slots.get(next).copied().filter(|it| it.1 != EMPTY) else {
                break;
            };
            let own = self.start(slot.0);
            if distance(own, next) >= distance(at, next) {
                self.set(at, slot);
                at = next;
            }
        }
        self.set(at, (0, EMPTY));
    }

    /// Forgets everything, and keeps the room.
    pub(super) fn clear(&mut self) {
        if self.length > 0 {
            self.slots.fill((0, EMPTY));
            self.length = 0;
        }
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = u32> {
        let slots = self.slots.iter().filter(|(_, number)| *number != EMPTY);
        slots.map(|(address, _)| *address)
    }

    fn set(&mut self, at: usize, slot: (u32, u32)) {
        if let Some(place) = self.slots.get_mut(at) {
            *place = slot;
        }
    }

    fn grow(&mut self) {
        // A table that doubles would keep as much room as it uses.
        let room = ((self.length + 1) * 3 / 2).max(16);
        let old = std::mem::replace(&mut self.slots, vec![(0, EMPTY); room]);
        self.length = 0;
        for (address, number) in old {
            if number != EMPTY {
                self.put(address, number);
            }
        }
    }

    fn start(&self, address: u32) -> usize {
        // Neighbours come to lie far from each other.
        let hash = u64::from(address).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        // The share of the room that the hash is of all that it could be.
        let start = (hash * self.slots.len() as u64) >> 32;
        usize::try_from(start).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// The same as a map of the standard library, whatever comes and goes.
    #[test]
    fn it_is_a_map() {
        let mut table = Table::default();
        let mut map = BTreeMap::new();
        let mut state = 1_u64;
        for turn in 0..40_000_u32 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            // Few addresses, so that many are met again; the table is full and empty in turns.
            let address = (state >> 40) as u32 % 700;
            let grows = (turn / 5_000) % 2 == 0;
            if (state >> 33) % 4 < if grows { 3 } else { 1 } {
                table.insert(address, turn);
                map.insert(address, turn);
            } else {
                table.remove(address);
                map.remove(&address);
            }
            let asked = (state >> 20) as u32 % 700;
            assert_eq!(table.get(asked), map.get(&asked).copied(), "turn {turn}");
            assert_eq!(table.len(), map.len());
        }
        let mut addresses: Vec<u32> = table.addresses().collect();
        addresses.sort_unstable();
        assert!(addresses.iter().eq(map.keys()) && !map.is_empty());
        table.clear();
        assert_eq!((table.len(), table.addresses().count()), (0, 0));
        assert_eq!(Table::default().get(0), None);
    }
}
