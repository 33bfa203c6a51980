//! Finds the classes of pods that are in each pod set.
//!
//! A set has the namespaces of its scope and the label sets of its selector. The one of the two
//! that leaves fewer classes is walked. Where both leave many, both become bits and are conjoined.
//! A set with few classes (narrow) is an entry in the list of each of them, a set with many (wide)
//! a column of bits.

use super::labels::count;
use crate::id_set::{IdSet, all_ones, count_ones, fill, is_few, ones, set_bit, transpose};
use crate::program::{Hint, Rows};

/// Finds the classes of a namespace and of a label set.
pub(super) struct ClassIndex {
    n_classes: usize,
    namespaces: Vec<u32>,
    label_sets: Vec<u32>,
    /// Where the classes of each namespace end.
    namespace_ends: Vec<u32>,
    by_label_set: Vec<u32>,
    label_set_ends: Vec<u32>,
}

impl ClassIndex {
    /// Builds the index of classes that are sorted by namespace.
    pub(super) fn new(
        classes: &[(u32, u32)],
        n_namespaces: usize,
        n_label_sets: usize,
    ) -> ClassIndex {
        let (namespaces, label_sets): (Vec<u32>, Vec<u32>) = classes.iter().copied().unzip();
        let (by_label_set, label_set_ends) = group(&label_sets, n_label_sets);
        // Classes are sorted by namespace: those of one are a range of numbers, and need no list.
        let (_, namespace_ends) = group(&namespaces, n_namespaces);
        ClassIndex {
            n_classes: classes.len(),
            namespaces,
            label_sets,
            namespace_ends,
            by_label_set,
            label_set_ends,
        }
    }

    fn of_namespace(&self, namespace: u32) -> (u32, u32) {
        range(&self.namespace_ends, namespace)
    }

    fn of_label_set(&self, set: u32) -> &[u32] {
        let (start, end) = range(&self.label_set_ends, set);
        let classes = self.by_label_set.get(start as usize..end as usize);
        classes.unwrap_or_default()
    }

    fn n_in_scope(&self, scope: Option<&IdSet>) -> usize {
        let Some(namespaces) = scope else {
            return self.n_classes;
        };
        let mut n_classes = 0;
        namespaces.for_each(|namespace| {
            let (start, end) = self.of_namespace(namespace);
            n_classes += (end - start) as usize;
        });
        n_classes
    }

    fn n_selected(&self, selector: &IdSet) -> usize {
        let mut n_classes = 0;
        selector.for_each(|set| n_classes += self.of_label_set(set).len());
        n_classes
    }

    /// Returns the classes in some namespaces, as bits.
    fn bits_in_scope(&self, scope: Option<&IdSet>) -> Vec<u64> {
        match scope {
            None => all_ones(self.n_classes),
            Some(IdSet::Few(list)) => {
                let mut bits = vec![0; self.n_classes.div_ceil(64)];
                for namespace in list {
                    let (start, end) = self.of_namespace(*namespace);
                    fill(&mut bits, start, end, true);
                }
                bits
            }
            Some(IdSet::Many(members)) => {
                let (mut bits, value) = self.blank(members, self.namespace_ends.len());
                for namespace in those(members, self.namespace_ends.len(), value) {
                    let (start, end) = self.of_namespace(namespace);
                    fill(&mut bits, start, end, value);
                }
                bits
            }
        }
    }

    /// Returns the classes with some label sets, as bits.
    fn bits_selected(&self, selector: &IdSet) -> Vec<u64> {
        match selector {
            IdSet::Few(list) => {
                let mut bits = vec![0; self.n_classes.div_ceil(64)];
                for class in list.iter().flat_map(|set| self.of_label_set(*set)) {
                    set_bit(&mut bits, *class);
                }
                bits
            }
            IdSet::Many(members) => {
                let (mut bits, value) = self.blank(members, self.label_set_ends.len());
                for set in those(members, self.label_set_ends.len(), value) {
                    for class in self.of_label_set(set) {
                        fill(&mut bits, *class, class + 1, value);
                    }
                }
                bits
            }
        }
    }

    /// Returns the bits to start from, and the value to write: that of the smaller half.
    fn blank(&self, members: &[u64], bound: usize) -> (Vec<u64>, bool) {
        // `NotIn` and `DoesNotExist` select nearly all label sets. From all ones, only the classes
        // of the few others have to be cleared.
        if count_ones(members) * 2 > bound {
            (all_ones(self.n_classes), false)
        } else {
            (vec![0; self.n_classes.div_ceil(64)], true)
        }
    }
}

/// Returns the numbers below `bound` that are members, or those that are not.
fn those(members: &[u64], bound: usize, is_member: bool) -> impl Iterator<Item = u32> {
    let wanted: Vec<u64> = all_ones(bound)
        .into_iter()
        .zip(members)
        .map(|(all, word)| if is_member { *word } else { all & !word })
        .collect();
    let numbers: Vec<u32> = ones(&wanted).collect();
    numbers.into_iter()
}

/// Returns the positions of the keys, grouped by key, and where those of each key end.
pub(super) fn group(keys: &[u32], n_keys: usize) -> (Vec<u32>, Vec<u32>) {
    // Counting sort: an end is first the start of its key, and advances with each position that is
    // written there. One vector serves as both.
    let mut ends = vec![0; n_keys + 1];
    for key in keys {
        if let Some(next) = ends.get_mut(*key as usize + 1) {
            *next += 1;
        }
    }
    let mut total = 0;
    for end in &mut ends {
        total += *end;
        *end = total;
    }
    let mut places = vec![0; keys.len()];
    for (place, key) in keys.iter().enumerate() {
        if let Some(end) = ends.get_mut(*key as usize) {
            if let Some(slot) = places.get_mut(*end as usize) {
                *slot = count(place);
            }
            *end += 1;
        }
    }
    ends.truncate(n_keys);
    (places, ends)
}

/// Returns where the entries of a key start and end.
pub(super) fn range(ends: &[u32], key: u32) -> (u32, u32) {
    let end = |key: usize| ends.get(key).copied().unwrap_or(0);
    let start = (key as usize).checked_sub(1).map_or(0, end);
    (start, end(key as usize).max(start))
}

/// The classes of all pod sets: lists for narrow sets, bits for wide ones.
pub(super) struct SetMembers {
    /// For each class the narrow sets that it is in, ascending.
    pub(super) narrow: Vec<u32>,
    /// Where the narrow sets of each class end.
    pub(super) narrow_ends: Vec<u32>,
    /// The wide sets, ascending.
    pub(super) wide_sets: Vec<u32>,
    /// For each set whether it is narrow or wide, and its namespace if it has only one.
    pub(super) hints: Vec<Hint>,
    /// For each class a row with a bit for each wide set.
    pub(super) wide: Rows,
}

impl SetMembers {
    /// Returns where the narrow sets of a class start.
    pub(super) fn narrow_start(&self, class: u32) -> u32 {
        range(&self.narrow_ends, class).0
    }

    pub(super) fn narrow(&self, class: u32) -> &[u32] {
        let (start, end) = range(&self.narrow_ends, class);
        let sets = self.narrow.get(start as usize..end as usize);
        sets.unwrap_or_default()
    }
}

/// Matches sets against all classes, one after the other.
pub(super) struct SetsBuilder<'i> {
    index: &'i ClassIndex,
    scopes: &'i [Option<IdSet>],
    selectors: &'i [IdSet],
    n_in_scope: Vec<usize>,
    n_selected: Vec<usize>,
    /// The last selector that became bits, and the classes that it selects.
    spread: Option<(u32, Vec<u64>)>,
    hints: Vec<Hint>,
    /// Pairs of a class and a set.
    narrow: Vec<(u32, u32)>,
    wide_sets: Vec<u32>,
    /// The classes of each wide set, as bits.
    columns: Vec<u64>,
}

impl<'i> SetsBuilder<'i> {
    pub(super) fn new(
        index: &'i ClassIndex,
        scopes: &'i [Option<IdSet>],
        selectors: &'i [IdSet],
        n_sets: usize,
    ) -> SetsBuilder<'i> {
        let in_scope = scopes.iter().map(|it| index.n_in_scope(it.as_ref()));
        let selected = selectors.iter().map(|it| index.n_selected(it));
        SetsBuilder {
            index,
            scopes,
            selectors,
            n_in_scope: in_scope.collect(),
            n_selected: selected.collect(),
            spread: None,
            hints: vec![Hint::Narrow; n_sets],
            narrow: Vec::new(),
            wide_sets: Vec::new(),
            columns: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, id: u32, scope: u32, selector: Option<u32>) {
        let index = self.index;
        let n_in_scope = self.n_in_scope.get(scope as usize).copied().unwrap_or(0);
        let scope = self.scopes.get(scope as usize).and_then(Option::as_ref);
        let members = selector.and_then(|it| self.selectors.get(it as usize));
        let n_selected = selector.and_then(|it| self.n_selected.get(it as usize));
        let n_selected = n_selected.copied().unwrap_or(index.n_classes);
        // Most sets are of one namespace. The hint lets a verdict refuse a peer of another one
        // without a search.
        if let (Some(IdSet::Few(namespaces)), Some(hint)) = (scope, self.hints.get_mut(id as usize))
            && let [namespace] = **namespaces
        {
            *hint = Hint::Within(namespace);
        }
        let start = self.narrow.len();
        // Both counts are known before any class is looked at. The smaller side bounds the result:
        // if it is few, so is the set, and walking it costs no more than its own length.
        match (scope, members) {
            (Some(namespaces), _)
                if n_in_scope <= n_selected && is_few(n_in_scope, index.n_classes) =>
            {
                namespaces.for_each(|namespace| {
                    let (start, end) = index.of_namespace(namespace);
                    let classes = (start..end).filter(|class| {
                        let set = index.label_sets.get(*class as usize);
                        members.is_none_or(|it| set.is_some_and(|set| it.contains(*set)))
                    });
                    self.narrow.extend(classes.map(|class| (class, id)));
                });
            }
            (_, Some(members)) if is_few(n_selected, index.n_classes) => {
                members.for_each(|set| {
                    let classes = index.of_label_set(set).iter().filter(|class| {
                        let namespace = index.namespaces.get(**class as usize);
                        scope.is_none_or(|it| namespace.is_some_and(|ns| it.contains(*ns)))
                    });
                    self.narrow.extend(classes.map(|class| (*class, id)));
                });
            }
            _ => self.add_bits(id, scope, selector),
        }
        debug_assert!(is_few(self.narrow.len() - start, index.n_classes));
    }

    fn add_bits(&mut self, id: u32, scope: Option<&IdSet>, selector: Option<u32>) {
        let mut bits = self.index.bits_in_scope(scope);
        if let Some(selector) = selector {
            // Sets come sorted by selector: its bits are made once for all its scopes.
            if self.spread.as_ref().is_none_or(|(it, _)| *it != selector) {
                let members = self.selectors.get(selector as usize);
                let selected = members.map(|it| self.index.bits_selected(it));
                self.spread = selected.map(|it| (selector, it));
            }
            let selected = self.spread.iter().flat_map(|(_, bits)| bits);
            for (word, selected) in bits.iter_mut().zip(selected) {
                *word &= selected;
            }
        }
        if is_few(count_ones(&bits), self.index.n_classes) {
            self.narrow.extend(ones(&bits).map(|class| (class, id)));
        } else {
            self.wide_sets.push(id);
            self.columns.extend_from_slice(&bits);
        }
    }

    pub(super) fn finish(mut self) -> SetMembers {
        // By class, then by set: verdicts search the sets of a class by bisection.
        self.narrow.sort_unstable();
        let classes: Vec<u32> = self.narrow.iter().map(|(class, _)| *class).collect();
        let (_, narrow_ends) = group(&classes, self.index.n_classes);
        let (wide_sets, wide) = self.rows();
        for (column, set) in wide_sets.iter().enumerate() {
            if let Some(hint) = self.hints.get_mut(*set as usize) {
                *hint = Hint::Wide(count(column));
            }
        }
        SetMembers {
            narrow: self.narrow.iter().map(|(_, set)| *set).collect(),
            narrow_ends,
            wide_sets,
            hints: self.hints,
            wide,
        }
    }

    /// Returns the wide sets, ascending, and for each class a row with a bit for each of them.
    fn rows(&self) -> (Vec<u32>, Rows) {
        let mut order: Vec<(u32, usize)> = self.wide_sets.iter().copied().zip(0..).collect();
        order.sort_unstable();
        let words = order.len().div_ceil(64);
        let n_classes = self.index.n_classes;
        let class_words = n_classes.div_ceil(64);
        let mut rows = Rows::blank(words, n_classes);
        for (word, columns) in order.chunks(64).enumerate() {
            for class_word in 0..class_words {
                // Columns become rows 64 by 64 bits: bit by bit, each wide set would touch the row
                // of every class once more.
                let mut block = [0; 64];
                for (slot, (_, column)) in block.iter_mut().zip(columns) {
                    let word = self.columns.get(column * class_words + class_word);
                    *slot = word.copied().unwrap_or(0);
                }
                transpose(&mut block);
                for (class, bits) in (class_word * 64..n_classes).zip(block) {
                    if let Some(slot) = rows.bits.get_mut(class * words + word) {
                        *slot = bits;
                    }
                }
            }
        }
        let sets = order.into_iter().map(|(set, _)| set).collect();
        (sets, rows)
    }
}
