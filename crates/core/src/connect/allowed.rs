//! Which sources are allowed, for every address that an end could have.

use super::bits::{Words, and, or};

/// Sources that are allowed, whatever address an end turns out to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AllowedSources {
    /// Allowed for all addresses.
    pub(super) all: Words,
    /// Allowed for some address, where that is not the same.
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

    /// Of two sides, both must allow; their addresses are chosen apart.
    pub(super) fn and(&self, other: &AllowedSources) -> AllowedSources {
        let mut all = self.all.clone();
        and(&mut all, &other.all);
        let any = (self.any.is_some() || other.any.is_some()).then(|| {
            let mut any = self.any().clone();
            and(&mut any, other.any());
            any
        });
        AllowedSources {
            any: any.filter(|any| *any != all),
            all,
        }
    }

    /// Another address that is possible.
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
