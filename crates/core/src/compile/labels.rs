//! Label sets and selectors as integers: each selector is matched once per distinct label set.
//!
//! Only what selectors name can tell sets apart. Labels under other keys are dropped, and values
//! that no selector names are one value, "other": a hash in a label does not make a new set.

use std::collections::HashMap;

use rustc_hash::FxHashMap;

use crate::labels::{Operator, Selector};

/// Some text that a selector names.
type Symbol = u32;

/// A value that no selector names.
const OTHER: Symbol = u32::MAX;

/// A requirement over symbols.
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
}

/// Labels as pairs of symbols, sorted.
type Pairs = Vec<(Symbol, Symbol)>;

/// The labels of one sort of object (pods, namespaces or nodes) and the selectors over them.
/// Selectors come first, so that it is known which labels matter.
#[derive(Debug, Default)]
pub(super) struct LabelSpace<'a> {
    symbols: HashMap<&'a str, Symbol>,
    keys: FxHashMap<Symbol, ()>,
    selectors: Vec<Vec<Condition>>,
    selector_ids: FxHashMap<Vec<Condition>, u32>,
    sets: Vec<Pairs>,
    set_ids: FxHashMap<Pairs, u32>,
}

impl<'a> LabelSpace<'a> {
    /// The number of a selector; equal ones have one number.
    pub(super) fn selector(&mut self, selector: &Selector<&'a str>) -> u32 {
        let mut conditions: Vec<Condition> = selector
            .requirements
            .iter()
            .map(|requirement| {
                let key = self.symbol(requirement.key);
                self.keys.insert(key, ());
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
        let next = count(self.symbols.len());
        *self.symbols.entry(text).or_insert(next)
    }

    /// The number of a label set. All selectors must be known by now.
    pub(super) fn set(&mut self, labels: &[(&'a str, &'a str)]) -> u32 {
        let mut pairs = Pairs::new();
        for (key, value) in labels {
            if let Some(key) = self.symbols.get(key)
                && self.keys.contains_key(key)
            {
                let value = self.symbols.get(value).copied().unwrap_or(OTHER);
                pairs.push((*key, value));
            }
        }
        pairs.sort_unstable();
        if let Some(known) = self.set_ids.get(&pairs) {
            return *known;
        }
        let id = count(self.sets.len());
        self.sets.push(pairs.clone());
        self.set_ids.insert(pairs, id);
        id
    }

    /// How many distinct label sets there are.
    pub(super) fn n_sets(&self) -> usize {
        self.sets.len()
    }

    /// The sets that each selector matches, ascending. All sets must be known by now.
    pub(super) fn matches(&self) -> Vec<Vec<u32>> {
        let mut with_pair: FxHashMap<(Symbol, Symbol), Vec<u32>> = FxHashMap::default();
        let mut with_key: FxHashMap<Symbol, Vec<u32>> = FxHashMap::default();
        for (id, pairs) in self.sets.iter().enumerate() {
            for (key, value) in pairs {
                with_pair.entry((*key, *value)).or_default().push(count(id));
                with_key.entry(*key).or_default().push(count(id));
            }
        }
        let everything: Vec<u32> = (0..count(self.sets.len())).collect();
        let accepts = |conditions: &[Condition], set: u32| {
            let Some(pairs) = self.sets.get(set as usize) else {
                return false;
            };
            conditions.iter().all(|condition| {
                let found = pairs.iter().find(|(key, _)| *key == condition.key);
                condition.accepts(found.map(|(_, value)| *value))
            })
        };
        let of = |conditions: &Vec<Condition>| {
            // The candidates of the most selective condition that says what must be there.
            let mut candidates: Option<Vec<u32>> = None;
            for condition in conditions {
                let these: Vec<u32> = match condition.operator {
                    Operator::In => {
                        let lists = condition.values.iter();
                        let lists =
                            lists.filter_map(|value| with_pair.get(&(condition.key, *value)));
                        let mut these: Vec<u32> = lists.flatten().copied().collect();
                        these.sort_unstable();
                        these
                    }
                    Operator::Exists => with_key.get(&condition.key).cloned().unwrap_or_default(),
                    Operator::NotIn | Operator::DoesNotExist => continue,
                };
                if candidates.as_ref().is_none_or(|it| these.len() < it.len()) {
                    candidates = Some(these);
                }
            }
            let candidates = candidates.as_ref().unwrap_or(&everything);
            let matching = candidates.iter().copied();
            matching.filter(|set| accepts(conditions, *set)).collect()
        };
        self.selectors.iter().map(of).collect()
    }
}

/// A length as a number of 32 bits. Sources are smaller than 4 GiB, so that all counts fit.
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
        assert_eq!(matches[web as usize], [a]);
        assert_eq!(matches[not_web as usize], [c, e]);
        assert_eq!(matches[absent as usize], [e]);
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
