//! The addresses that something happened to since the last commit.

use std::net::IpAddr;

use rustc_hash::FxHashSet;

use super::Owner;
use super::table::Table;

/// The room for addresses that is kept between batches.
const MOST_ROOM: usize = 1024;

/// What an address was at the last commit.
#[derive(Clone, Copy, Debug)]
pub(in crate::incremental) struct Before {
    pub(in crate::incremental) owner: Option<Owner>,
    /// Who has it now; known once the commit has begun.
    pub(in crate::incremental) now: Option<Owner>,
    /// The groups it was in.
    pub(in crate::incremental) groups: u32,
    /// The ports of its owner's class.
    pub(in crate::incremental) ports: u32,
    /// Whether its owner was a local pod.
    pub(in crate::incremental) is_local: bool,
}

/// What addresses were, in the order in which something happened to them first.
#[derive(Debug, Default)]
pub(in crate::incremental) struct Touched {
    list: Vec<(IpAddr, Before)>,
    v4: Table,
    v6: FxHashSet<u128>,
}

impl Touched {
    pub(in crate::incremental) fn contains(&self, address: IpAddr) -> bool {
        !self.list.is_empty()
            && match address {
                IpAddr::V4(it) => self.v4.get(it.to_bits()).is_some(),
                IpAddr::V6(it) => self.v6.contains(&it.to_bits()),
            }
    }

    /// Adds an address that is not there yet.
    pub(super) fn add(&mut self, address: IpAddr, before: Before) {
        self.list.push((address, before));
        match address {
            IpAddr::V4(it) => self.v4.insert(it.to_bits(), 0),
            IpAddr::V6(it) => {
                self.v6.insert(it.to_bits());
            }
        }
    }

    pub(in crate::incremental) fn iter(&self) -> impl Iterator<Item = &(IpAddr, Before)> {
        self.list.iter()
    }

    pub(in crate::incremental) fn iter_mut(
        &mut self,
    ) -> impl Iterator<Item = &mut (IpAddr, Before)> {
        self.list.iter_mut()
    }

    /// No address; if there were few, with the room of those that there were.
    pub(super) fn emptied(mut self) -> Touched {
        if self.list.capacity() > MOST_ROOM {
            return Touched::default();
        }
        self.list.clear();
        self.v4.clear();
        self.v6.clear();
        self
    }
}
