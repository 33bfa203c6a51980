//! The addresses whose state may have changed since the last commit.

use std::net::IpAddr;

use rustc_hash::FxHashSet;

use super::Owner;
use super::table::Table;

/// The largest capacity that is kept between batches.
// A batch of the usual size needs no allocation then. The first one, with all pods of a cluster,
// would otherwise keep its memory for good.
const MOST_ROOM: usize = 1024;

/// The state of an address at the last commit.
#[derive(Clone, Copy, Debug)]
pub(in crate::incremental) struct AddressState {
    pub(in crate::incremental) owner: Option<Owner>,
    /// The owner now, set at the start of the commit.
    pub(in crate::incremental) now: Option<Owner>,
    /// The list of groups that it was in.
    pub(in crate::incremental) groups: u32,
    /// The list of ports of its owner's class.
    pub(in crate::incremental) ports: u32,
    /// Whether its owner was a local pod.
    pub(in crate::incremental) is_local: bool,
}

/// The recorded states of addresses, in the order of the first records.
// The list is for the commit. The two sets answer `contains`, which is called for every address
// that moves with its class.
#[derive(Debug, Default)]
pub(in crate::incremental) struct Touched {
    list: Vec<(IpAddr, AddressState)>,
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
    pub(super) fn add(&mut self, address: IpAddr, before: AddressState) {
        self.list.push((address, before));
        match address {
            IpAddr::V4(it) => self.v4.insert(it.to_bits(), 0),
            IpAddr::V6(it) => {
                self.v6.insert(it.to_bits());
            }
        }
    }

    pub(in crate::incremental) fn iter(&self) -> impl Iterator<Item = &(IpAddr, AddressState)> {
        self.list.iter()
    }

    pub(in crate::incremental) fn iter_mut(
        &mut self,
    ) -> impl Iterator<Item = &mut (IpAddr, AddressState)> {
        self.list.iter_mut()
    }

    /// Returns an empty value, with the memory of this one if that is small.
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
