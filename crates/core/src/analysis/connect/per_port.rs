//! Values by port: columns of ports share a value until a rule covers only some of them.

use rustc_hash::FxHashMap;

use super::columns::Covered;
use crate::compile::count;

/// A value for each column of ports; columns of one group share it.
#[derive(Clone, Debug)]
pub(super) struct PerPort<T> {
    /// The group of each column.
    pub(super) of: Vec<u32>,
    pub(super) groups: Vec<T>,
    /// The number of columns of each group.
    sizes: Vec<u32>,
}

impl<T> PerPort<T> {
    /// Returns one value for `n` columns.
    pub(super) fn one(n: usize, value: T) -> PerPort<T> {
        PerPort {
            of: vec![0; n],
            groups: vec![value],
            sizes: vec![count(n)],
        }
    }

    pub(super) fn at(&self, column: usize) -> Option<&T> {
        self.groups.get(*self.of.get(column)? as usize)
    }

    /// Replaces each value by one that `make` makes of it.
    pub(super) fn into_map<U>(self, make: impl FnMut(T) -> U) -> PerPort<U> {
        PerPort {
            of: self.of,
            groups: self.groups.into_iter().map(make).collect(),
            sizes: self.sizes,
        }
    }

    /// Returns a value that `make` makes for each value.
    pub(super) fn map<U>(&self, make: impl FnMut(&T) -> U) -> PerPort<U> {
        PerPort {
            of: self.of.clone(),
            groups: self.groups.iter().map(make).collect(),
            sizes: self.sizes.clone(),
        }
    }

    /// Combines two splits: `make` makes one value for each pair of groups with a common column.
    pub(super) fn join<U, V>(
        &self,
        other: &PerPort<U>,
        mut make: impl FnMut(&T, &U) -> V,
    ) -> PerPort<V> {
        let mut ids: FxHashMap<(u32, u32), u32> = FxHashMap::default();
        let mut joined = PerPort {
            of: Vec::with_capacity(self.of.len()),
            groups: Vec::new(),
            sizes: Vec::new(),
        };
        // Neighbouring columns are mostly in the same two groups: `last` saves them the lookup.
        let mut last = None;
        for pair in self.of.iter().copied().zip(other.of.iter().copied()) {
            let known = match last {
                Some((it, id)) if it == pair => Some(id),
                _ => ids.get(&pair).copied(),
            };
            let id = match known {
                Some(id) => id,
                None => {
                    let mine = self.groups.get(pair.0 as usize);
                    let (Some(mine), Some(its)) = (mine, other.groups.get(pair.1 as usize)) else {
                        continue;
                    };
                    let id = count(joined.groups.len());
                    joined.groups.push(make(mine, its));
                    joined.sizes.push(0);
                    ids.insert(pair, id);
                    id
                }
            };
            last = Some((pair, id));
            joined.of.push(id);
            if let Some(size) = joined.sizes.get_mut(id as usize) {
                *size += 1;
            }
        }
        joined
    }
}

impl<T: Clone> PerPort<T> {
    /// Applies a change to some columns. A group that is covered in part is split first.
    pub(super) fn change(&mut self, covered: &Covered<'_>, mut change: impl FnMut(&mut T)) {
        let columns = match covered {
            Covered::All => {
                self.groups.iter_mut().for_each(change);
                return;
            }
            Covered::Some(columns) => columns,
        };
        // A group is changed in place if all its columns are covered. Otherwise the covered columns
        // move to a new group with the changed value. Groups are never merged: rules without ports,
        // which are most, split nothing, and a merge would have to compare values.
        // First the number of covered columns of each group.
        let mut counts: Vec<(u32, u32)> = Vec::new();
        let of = |column: &u32| self.of.get(*column as usize).copied();
        let mut groups: Vec<u32> = columns.iter().filter_map(of).collect();
        groups.sort_unstable();
        for group in groups {
            match counts.last_mut() {
                Some((last, n)) if *last == group => *n += 1,
                Some(_) | None => counts.push((group, 1)),
            }
        }
        // Ascending by group, as `counts` is, for the binary search below.
        let mut moved: Vec<(u32, u32)> = Vec::new();
        for (group, n_covered) in counts {
            let value = self.groups.get_mut(group as usize);
            let (Some(value), Some(size)) = (value, self.sizes.get_mut(group as usize)) else {
                continue;
            };
            if n_covered == *size {
                change(value);
                continue;
            }
            *size -= n_covered;
            let mut apart = value.clone();
            change(&mut apart);
            moved.push((group, count(self.groups.len())));
            self.groups.push(apart);
            self.sizes.push(n_covered);
        }
        if moved.is_empty() {
            return;
        }
        for column in columns.iter() {
            if let Some(group) = self.of.get_mut(*column as usize)
                && let Ok(found) = moved.binary_search_by_key(group, |(from, _)| *from)
                && let Some((_, apart)) = moved.get(found)
            {
                *group = *apart;
            }
        }
    }
}
