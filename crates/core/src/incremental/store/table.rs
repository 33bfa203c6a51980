//! A map from IPv4 addresses to numbers, with one read of memory per lookup.

/// The number in an empty slot.
const EMPTY: u32 = u32::MAX;

/// Numbers by IPv4 address, in slots of eight bytes. [`EMPTY`] must not be inserted.
// Linear probing: the slots that a lookup passes are neighbors in memory. A map of the standard
// library reads its control bytes first, and doubles when it grows.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// An address is in its own slot or behind it, without an empty slot between.
    slots: Vec<(u32, u32)>,
    length: usize,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn get(&self, address: u32) -> Option<u32> {
        // `Some(EMPTY)` ends the search: by the invariant the address is not behind that slot.
        let search = |slots: &[(u32, u32)]| {
            let mut slots = slots.iter();
            let found = slots.find(|(other, number)| *other == address || *number == EMPTY);
            found.map(|(_, number)| *number)
        };
        let (before, behind) = self.slots.split_at_checked(self.start(address))?;
        let found = search(behind).or_else(|| search(before))?;
        (found != EMPTY).then_some(found)
    }

    /// Sets the number of an address.
    pub(super) fn insert(&mut self, address: u32, number: u32) {
        // At 4/5 full an unsuccessful search passes 13 slots on average, at 9/10 it passes 50.
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
        let found = slots.find(|(other, number)| *other == address || *number == EMPTY);
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
                Some((other, _)) if *other == address => break,
                Some(_) => at = (at + 1) % room,
            }
        }
        self.length -= 1;
        // Entries behind the gap that could not have a slot nearer to their own move up. That is
        // possible without tombstones, because the slot has the address and thus its own slot.
        // Addresses come and go as long as the agent runs; tombstones would pile up.
        let distance = |from: usize, to: usize| (to + room - from) % room;
        let mut next = at;
        loop {
            next = (next + 1) % room;
            let Some(slot) = self.slots.get(next).copied().filter(|it| it.1 != EMPTY) else {
                break;
            };
            // An entry must not move to a place before its own slot.
            let own = self.start(slot.0);
            if distance(own, next) >= distance(at, next) {
                self.set(at, slot);
                at = next;
            }
        }
        self.set(at, (0, EMPTY));
    }

    /// Removes all addresses, and keeps the memory.
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
        // To 2/3 full, not half as with doubling. A fifth more addresses fit until the table grows
        // again, so an insert costs about six moves on average.
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
        // The addresses of a cluster are neighbors in a few blocks. The multiplication spreads them
        // over the table. It has no secret key: authors of objects do not choose addresses.
        let hash = u64::from(address).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        // Scales the hash to the number of slots, by a multiplication instead of a division.
        let start = (hash * self.slots.len() as u64) >> 32;
        usize::try_from(start).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Compares the table with a map of the standard library.
    #[test]
    fn the_table_agrees_with_a_map() {
        let mut table = Table::default();
        let mut map = BTreeMap::new();
        let mut state = 1_u64;
        for turn in 0..40_000_u32 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            // Few addresses, which come back often; the table is full and empty in turns.
            let address = (state >> 40) as u32 % 700;
            let grows = (turn / 5_000) % 2 == 0;
            if (state >> 33) % 4 < if grows { 3 } else { 1 } {
                table.insert(address, turn);
                map.insert(address, turn);
            } else {
                table.remove(address);
                map.remove(&address);
            }
            let looked_up = (state >> 20) as u32 % 700;
            let expected = map.get(&looked_up).copied();
            assert_eq!(table.get(looked_up), expected, "turn {turn}");
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
