//! The fields that an object can have, and what was found of them.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::problem::Span;

/// The fields that an object can have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields {
    pub(crate) names: &'static [&'static str],
    /// What to say of keys that people write although they do not exist.
    pub(crate) hints: &'static [(&'static str, &'static str)],
    /// What to say of other keys that are not near any name.
    pub(crate) fallback: &'static str,
    /// Whether other keys are passed over: the object has fields that policies never look at.
    pub(crate) open: bool,
}

impl Fields {
    /// No other fields exist.
    pub(crate) const fn strict(names: &'static [&'static str]) -> Fields {
        Fields {
            names,
            hints: &[],
            fallback: "",
            open: false,
        }
    }

    /// Other fields exist and are of no interest.
    pub(crate) const fn open(names: &'static [&'static str]) -> Fields {
        Fields {
            names,
            hints: &[],
            fallback: "",
            open: true,
        }
    }

    /// Adds what to say of certain wrong keys.
    pub(crate) const fn hints(self, hints: &'static [(&'static str, &'static str)]) -> Fields {
        Fields { hints, ..self }
    }

    /// Sets what to say of keys that are not near any name.
    pub(crate) const fn fallback(self, fallback: &'static str) -> Fields {
        Fields { fallback, ..self }
    }
}

/// What is known of an object after all its fields were read.
#[derive(Debug)]
pub(crate) struct ObjectFields {
    /// The key that the object is the value of, or its own first token: where to say that
    /// something is missing.
    pub(crate) anchor: Span,
    /// Whether every key was known.
    pub(crate) sound: bool,
    /// Whether unknown keys were dropped, as an API server does.
    pub(crate) pruned: bool,
    pub(crate) fields: Fields,
    pub(crate) present: u64,
    /// The fields that were given as null.
    pub(crate) null: u64,
    /// The advice given on unknown keys: a field that it names is not missed a second time.
    pub(crate) advice: String,
}

impl ObjectFields {
    /// Whether the field was given, and not null.
    pub(crate) fn has(&self, name: &str) -> bool {
        match self.fields.names.iter().position(|it| *it == name) {
            Some(position) => self.present >> position & 1 == 1,
            None => false,
        }
    }

    /// Whether the field was given as null.
    pub(crate) fn is_null(&self, name: &str) -> bool {
        match self.fields.names.iter().position(|it| *it == name) {
            Some(position) => self.null >> position & 1 == 1,
            None => false,
        }
    }

    pub(crate) fn count(&self, names: &[&str]) -> usize {
        names.iter().filter(|name| self.has(name)).count()
    }

    /// Whether the advice on an unknown key named this field.
    pub(crate) fn advises(&self, name: &str) -> bool {
        let ends = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric());
        let starts = |before: &str| before.ends_with(['`', ' ', '{']);
        let mut found = self.advice.match_indices(name);
        found.any(|(at, _)| {
            starts(self.advice.get(..at).unwrap_or_default())
                && ends(self.advice.get(at + name.len()..).unwrap_or_default())
        })
    }
}

/// What to say when not exactly one of several fields is set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneOfHelp {
    /// When none is.
    pub(crate) none: &'static str,
    /// When more than one is.
    pub(crate) several: &'static str,
}

/// Keys that were met, few as a rule.
#[derive(Default)]
pub(crate) struct SeenKeys<'a> {
    few: Vec<Cow<'a, str>>,
    many: BTreeSet<Cow<'a, str>>,
}

impl<'a> SeenKeys<'a> {
    /// Whether the key is new.
    pub(crate) fn insert(&mut self, key: Cow<'a, str>) -> bool {
        if self.few.contains(&key) {
            return false;
        }
        if self.few.len() < 16 {
            self.few.push(key);
            return true;
        }
        self.many.insert(key)
    }
}
