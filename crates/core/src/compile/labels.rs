//! Label sets and selectors as integers: each selector is matched once per distinct label set.
//!
//! Only text that selectors name can distinguish sets. Labels with other keys are dropped, and all
//! values that no selector names are one value, "other": a hash in a label does not make a new set.

use std::collections::HashMap;

use rustc_hash::FxHashMap;

use crate::id_set::{IdSet, all_ones, clear_bit, is_few, set_bit};
use crate::labels::{Operator, Selector};
use crate::set_hash::{SetInterner, pair_word};

/// The number of a key or value that a selector names.
type Symbol = u32;

/// Any value that no selector names.
const OTHER: Symbol = u32::MAX;

/// A requirement of a selector, over symbols.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Condition {
    key: Symbol,
    operator: Operator,
    values: Vec<Symbol>,
}

impl Condition {
    fn accepts(&self, value: Option<Symbol>) -> bool {
        let listed = |value: Symbol| self.values.binary_search(&value).is_ok();
        match self.operator {
            Operator::In => value.is_some_and(listed),
            Operator::NotIn => !value.is_some_and(listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }

    /// Whether the label must be present for the condition to hold.
    fn is_positive(&self) -> bool {
        match self.operator {
            Operator::In | Operator::Exists => true,
            Operator::NotIn | Operator::DoesNotExist => false,
        }
    }

    /// Returns the postings of the labels that the condition names. `postings` is sorted by key and
    /// value.
    fn postings<'p>(
        &self,
        postings: &'p [(Symbol, Symbol, u32)],
    ) -> impl Iterator<Item = &'p [(Symbol, Symbol, u32)]> {
        let start = postings.partition_point(|(key, ..)| *key < self.key);
        let of_key = postings.get(start..).unwrap_or_default();
        let end = of_key.partition_point(|(key, ..)| *key == self.key);
        let of_key = of_key.get(..end).unwrap_or_default();
        let (whole, values) = match self.operator {
            Operator::Exists | Operator::DoesNotExist => (Some(of_key), &[][..]),
            Operator::In | Operator::NotIn => (None, self.values.as_slice()),
        };
        let of_values = values.iter().map(|value| {
            let start = of_key.partition_point(|(_, it, _)| it < value);
            let of_value = of_key.get(start..).unwrap_or_default();
            let end = of_value.partition_point(|(_, it, _)| it == value);
            of_value.get(..end).unwrap_or_default()
        });
        // Collected, because the iterator borrows the condition and the result only the postings.
        let of_values: Vec<&'p [(Symbol, Symbol, u32)]> = of_values.collect();
        whole.into_iter().chain(of_values)
    }
}

/// The labels of one kind of object (pods, namespaces or nodes) and the selectors over them. All
/// selectors are added before the first label set: they define which labels matter.
#[derive(Debug, Default)]
pub(super) struct LabelSpace<'a> {
    symbols: HashMap<&'a str, Symbol>,
    /// Whether a symbol is a key of some selector.
    is_key: Vec<bool>,
    selectors: Vec<Vec<Condition>>,
    selector_ids: FxHashMap<Vec<Condition>, u32>,
    /// The pairs of all label sets, each set's sorted.
    pairs: Vec<(Symbol, Symbol)>,
    /// Where the pairs of each set end.
    ends: Vec<u32>,
    set_ids: SetInterner,
    /// The labels of the last call of [`LabelSpace::set`], with their symbols. The next pod is
    /// often of the same workload, and then no text has to be looked up.
    last: Vec<CachedLabel<'a>>,
    last_set: Option<u32>,
    /// A buffer for the pairs of the set that is looked up.
    draft: Vec<(Symbol, Symbol)>,
}

/// A label and its symbols.
#[derive(Clone, Copy, Debug)]
struct CachedLabel<'a> {
    key: &'a str,
    value: &'a str,
    /// The pair, if some selector names the key.
    pair: Option<(Symbol, Symbol)>,
}

impl<'a> LabelSpace<'a> {
    /// Returns the number of a selector. Equal selectors have the same number.
    pub(super) fn selector(&mut self, selector: &Selector<&'a str>) -> u32 {
        let mut conditions: Vec<Condition> = selector
            .requirements
            .iter()
            .map(|requirement| {
                let key = self.symbol(requirement.key);
                if let Some(is_key) = self.is_key.get_mut(key as usize) {
                    *is_key = true;
                }
                let values = requirement.values.iter();
                let mut values: Vec<Symbol> = values.map(|value| self.symbol(value)).collect();
                values.sort_unstable();
                values.dedup();
                Condition {
                    key,
                    operator: requirement.operator,
                    values,
                }
            })
            .collect();
        // A selector is a conjunction: order and repetition do not change what it matches.
        conditions.sort_unstable();
        conditions.dedup();
        if let Some(known) = self.selector_ids.get(&conditions) {
            return *known;
        }
        let id = count(self.selectors.len());
        self.selectors.push(conditions.clone());
        self.selector_ids.insert(conditions, id);
        id
    }

    fn symbol(&mut self, text: &'a str) -> Symbol {
        // Keys and values share one table. A value that some selector names only as a key is not
        // `OTHER`, which can make more label sets, but no wrong match.
        let next = count(self.symbols.len());
        let symbol = *self.symbols.entry(text).or_insert(next);
        if symbol == next {
            self.is_key.push(false);
        }
        symbol
    }

    /// Returns the number of a label set. All selectors must have been added before.
    pub(super) fn set(&mut self, labels: &[(&'a str, &'a str)]) -> u32 {
        let mut is_same = self.last.len() == labels.len();
        self.last.truncate(labels.len());
        for (index, (key, value)) in labels.iter().enumerate() {
            let cached = self.last.get(index).filter(|it| it.key == *key);
            // The value of a key that no selector names does not matter.
            if cached.is_some_and(|it| it.pair.is_none() || it.value == *value) {
                continue;
            }
            is_same = false;
            let key_symbol = match cached.and_then(|it| it.pair) {
                Some((key, _)) => Some(key),
                None => self.key_symbol(key),
            };
            let new = CachedLabel {
                key,
                value,
                pair: key_symbol.map(|key| {
                    let value = self.symbols.get(value).copied().unwrap_or(OTHER);
                    (key, value)
                }),
            };
            match self.last.get_mut(index) {
                Some(last) => *last = new,
                None => self.last.push(new),
            }
        }
        if let Some(known) = self.last_set.filter(|_| is_same) {
            return known;
        }
        let id = self.intern();
        self.last_set = Some(id);
        id
    }

    fn key_symbol(&self, key: &str) -> Option<Symbol> {
        let symbol = self.symbols.get(key).copied()?;
        let is_key = self.is_key.get(symbol as usize).copied();
        is_key.unwrap_or(false).then_some(symbol)
    }

    /// Returns the number of the label set in `last`.
    fn intern(&mut self) -> u32 {
        let mut draft = std::mem::take(&mut self.draft);
        draft.clear();
        draft.extend(self.last.iter().filter_map(|it| it.pair));
        // Labels are sorted by text, symbols are not.
        draft.sort_unstable();
        let words = draft.iter().map(|(key, value)| pair_word(*key, *value));
        let signature = words.fold(0, |all, word| all ^ word);
        let (pairs, ends) = (&self.pairs, &self.ends);
        let set = self
            .set_ids
            .number(signature, |id| pairs_of(pairs, ends, id) == draft);
        if set.is_new {
            self.pairs.extend_from_slice(&draft);
            self.ends.push(count(self.pairs.len()));
        }
        self.draft = draft;
        set.id
    }

    /// Returns the number of distinct label sets.
    pub(super) fn n_sets(&self) -> usize {
        self.ends.len()
    }

    /// Returns the sets that each selector matches. All sets must have been added before.
    pub(super) fn matches(&self) -> Vec<IdSet> {
        let mut postings: Vec<(Symbol, Symbol, u32)> = Vec::with_capacity(self.pairs.len());
        for id in 0..count(self.n_sets()) {
            let pairs = pairs_of(&self.pairs, &self.ends, id).iter();
            postings.extend(pairs.map(|(key, value)| (*key, *value, id)));
        }
        postings.sort_unstable();
        let matching = self.selectors.iter();
        matching
            .map(|selector| self.matched(selector, &postings))
            .collect()
    }

    /// Returns the sets that one selector matches.
    fn matched(&self, selector: &[Condition], postings: &[(Symbol, Symbol, u32)]) -> IdSet {
        let n_sets = self.n_sets();
        // The most selective condition that needs a label. If few sets have this label, only they
        // are compared, whatever the other conditions are.
        let positive = selector.iter().filter(|it| it.is_positive());
        let best = positive.min_by_key(|it| it.postings(postings).map(<[_]>::len).sum::<usize>());
        if let Some(best) = best {
            let candidates = best.postings(postings).flatten().map(|(.., set)| *set);
            let candidates: Vec<u32> = candidates.collect();
            if is_few(candidates.len(), n_sets) {
                let accepts = |set: &u32| {
                    let pairs = pairs_of(&self.pairs, &self.ends, *set);
                    selector.iter().all(|condition| {
                        let found = pairs.iter().find(|(key, _)| *key == condition.key);
                        condition.accepts(found.map(|(_, value)| *value))
                    })
                };
                let mut list: Vec<u32> = candidates.into_iter().filter(accepts).collect();
                list.sort_unstable();
                return IdSet::Few(list);
            }
        }
        // Otherwise each condition narrows all sets. A negative one takes away what it names: its
        // postings are short, and what it selects is nearly everything.
        let mut bits = all_ones(n_sets);
        for condition in selector {
            let sets = condition.postings(postings).flatten().map(|(.., set)| *set);
            if condition.is_positive() {
                let mut these = vec![0; bits.len()];
                sets.for_each(|set| set_bit(&mut these, set));
                for (word, these) in bits.iter_mut().zip(these) {
                    *word &= these;
                }
            } else {
                sets.for_each(|set| clear_bit(&mut bits, set));
            }
        }
        IdSet::from_bits(bits, n_sets)
    }
}

fn pairs_of<'p>(pairs: &'p [(Symbol, Symbol)], ends: &[u32], set: u32) -> &'p [(Symbol, Symbol)] {
    let end = |set: usize| ends.get(set).copied().unwrap_or(0) as usize;
    let start = (set as usize).checked_sub(1).map_or(0, end);
    pairs.get(start..end(set as usize)).unwrap_or_default()
}

/// Converts a length into a number of 32 bits. Sources are smaller than 4 GiB, so all counts fit.
pub(crate) fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::Requirement;

    fn selector(parts: &[(&'static str, Operator, &[&'static str])]) -> Selector<&'static str> {
        let requirements = parts.iter().map(|(key, operator, values)| Requirement {
            key: *key,
            operator: *operator,
            values: values.to_vec(),
        });
        Selector {
            requirements: requirements.collect(),
        }
    }

    #[test]
    fn values_that_no_selector_names_are_one_value() {
        let mut space = LabelSpace::default();
        let web = space.selector(&selector(&[("app", Operator::In, &["web"])]));
        let not_web = space.selector(&selector(&[("app", Operator::NotIn, &["web"])]));
        let absent = space.selector(&selector(&[("app", Operator::DoesNotExist, &[])]));
        let a = space.set(&[("app", "web"), ("hash", "1")]);
        let b = space.set(&[("app", "web"), ("hash", "2")]);
        let c = space.set(&[("app", "x")]);
        let d = space.set(&[("app", "y")]);
        let e = space.set(&[]);
        assert_eq!((a, c), (b, d));
        let matches = space.matches();
        let matches = matches
            .iter()
            .map(|it| [a, c, e].map(|set| it.contains(set)));
        let matches: Vec<[bool; 3]> = matches.collect();
        assert_eq!(matches[web as usize], [true, false, false]);
        assert_eq!(matches[not_web as usize], [false, true, true]);
        assert_eq!(matches[absent as usize], [false, false, true]);
    }

    #[test]
    fn a_set_does_not_depend_on_the_set_before_it() {
        let mut space = LabelSpace::default();
        space.selector(&selector(&[("app", Operator::In, &["a", "b"])]));
        space.selector(&selector(&[("tier", Operator::Exists, &[])]));
        let sets: [&[(&str, &str)]; 6] = [
            &[("app", "a"), ("hash", "1"), ("tier", "x")],
            &[("app", "b"), ("hash", "1"), ("tier", "x")],
            &[("app", "a"), ("hash", "2")],
            &[("hash", "2")],
            &[],
            &[("hash", "1"), ("tier", "y")],
        ];
        let numbers = sets.map(|set| space.set(set));
        for before in sets {
            for (set, number) in sets.into_iter().zip(numbers) {
                space.set(before);
                assert_eq!(space.set(set), number);
            }
        }
        assert_eq!(numbers[3], numbers[4]);
        assert_eq!(space.n_sets(), 5);
    }

    #[test]
    fn equal_selectors_have_one_number_however_they_are_written() {
        let mut space = LabelSpace::default();
        let one = selector(&[
            ("a", Operator::In, &["1", "2"]),
            ("b", Operator::Exists, &[]),
        ]);
        let two = selector(&[
            ("b", Operator::Exists, &[]),
            ("a", Operator::In, &["2", "1", "1"]),
        ]);
        assert_eq!(space.selector(&one), space.selector(&two));
    }
}
