//! The allowed sources of a destination, for known and unknown addresses.

use super::bits::{Words, and, or};

/// The allowed sources, as bounds over the addresses that unknown endpoints could have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AllowedSources {
    /// Allowed for every possible address.
    pub(super) all: Words,
    /// Allowed for some possible address; `None`: the same as `all`.
    pub(super) any: Option<Words>,
}

impl AllowedSources {
    pub(super) fn of(allowed: Words) -> AllowedSources {
        AllowedSources {
            all: allowed,
            any: None,
        }
    }

    pub(super) fn any(&self) -> &Words {
        self.any.as_ref().unwrap_or(&self.all)
    }

    /// Combines the two directions of flows: both must allow.
    pub(super) fn and(&self, other: &AllowedSources) -> AllowedSources {
        // Each direction depends on the address of its own peer only. The two addresses are
        // independent, so both bounds combine separately.
        let mut all = self.all.clone();
        and(&mut all, &other.all);
        let any = (self.any.is_some() || other.any.is_some()).then(|| {
            let mut any = self.any().clone();
            and(&mut any, other.any());
            any
        });
        // Equal bounds are kept as one set: the usual case then takes half the memory and no
        // second pass.
        AllowedSources {
            any: any.filter(|any| *any != all),
            all,
        }
    }

    /// Adds the result for another possible address.
    pub(super) fn or_else(&self, other: &AllowedSources) -> AllowedSources {
        let mut all = self.all.clone();
        and(&mut all, &other.all);
        let mut any = self.any().clone();
        or(&mut any, other.any());
        AllowedSources {
            any: Some(any).filter(|any| *any != all),
            all,
        }
    }
}
