//! Something that differs by port: columns of ports that still agree share one value.

use rustc_hash::FxHashMap;

use super::columns::Covered;
use crate::compile::count;

/// A value for each column of ports; columns of one group have the same.
#[derive(Clone, Debug)]
pub(super) struct PerPort<T> {
    /// The group of each column.
    pub(super) of: Vec<u32>,
    pub(super) groups: Vec<T>,
    /// How many columns each group has.
    sizes: Vec<u32>,
}

impl<T> PerPort<T> {
    /// One value for `n` columns.
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

    /// Another value for each, made of the one before.
    pub(super) fn into_map<U>(self, make: impl FnMut(T) -> U) -> PerPort<U> {
        PerPort {
            of: self.of,
            groups: self.groups.into_iter().map(make).collect(),
            sizes: self.sizes,
        }
    }

    /// Another value for each.
    pub(super) fn map<U>(&self, make: impl FnMut(&T) -> U) -> PerPort<U> {
        PerPort {
            of: self.of.clone(),
            groups: self.groups.iter().map(make).collect(),
            sizes: self.sizes.clone(),
        }
    }

    /// A value for each column made of the values of two splits; once for each pair that meets.
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
    /// Applies a change to some columns; a group of which only some are covered is split first.
    pub(super) fn change(&mut self, covered: &Covered<'_>, mut change: impl FnMut(&mut T)) {
        let columns = match covered {
            Covered::All => {
                self.groups.iter_mut().for_each(change);
                return;
            }
            Covered::Some(columns) => columns,
        };
        // How many columns of each group are meant.
        let mut meant: Vec<(u32, u32)> = Vec::new();
        let of = |column: &u32| self.of.get(*column as usize).copied();
        let mut groups: Vec<u32> = columns.iter().filter_map(of).collect();
        groups.sort_unstable();
        for group in groups {
            match meant.last_mut() {
                Some((last, n)) if *last == group => *n += 1,
                Some(_) | None => meant.push((group, 1)),
            }
        }
        let mut moved: Vec<(u32, u32)> = Vec::new();
        for (group, n_meant) in meant {
            let value = self.groups.get_mut(group as usize);
            let (Some(value), Some(size)) = (value, self.sizes.get_mut(group as usize)) else {
                continue;
            };
            if n_meant == *size {
                change(value);
                continue;
            }
            *size -= n_meant;
            let mut apart = value.clone();
            change(&mut apart);
            moved.push((group, count(self.groups.len())));
            self.groups.push(apart);
            self.sizes.push(n_meant);
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
