//! The fields that an object can have, and those that were found.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::problem::Span;

/// The fields that an object can have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields {
    pub(crate) names: &'static [&'static str],
    /// The help for keys that do not exist and that users often write.
    pub(crate) hints: &'static [(&'static str, &'static str)],
    /// The help for other keys that resemble no name.
    pub(crate) fallback: &'static str,
    /// Whether other keys are skipped: the object has fields that policies never see.
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

    /// Other fields exist and are skipped.
    pub(crate) const fn open(names: &'static [&'static str]) -> Fields {
        Fields {
            names,
            hints: &[],
            fallback: "",
            open: true,
        }
    }

    /// Adds the help for certain wrong keys.
    pub(crate) const fn hints(self, hints: &'static [(&'static str, &'static str)]) -> Fields {
        Fields { hints, ..self }
    }

    /// Sets the help for keys that resemble no name.
    pub(crate) const fn fallback(self, fallback: &'static str) -> Fields {
        Fields { fallback, ..self }
    }
}

/// The fields of an object that was read.
#[derive(Debug)]
pub(crate) struct ObjectFields {
    /// The key that the object is the value of, or its own first token: the place to report a
    /// missing field.
    pub(crate) anchor: Span,
    /// Whether every key was known.
    pub(crate) sound: bool,
    /// Whether unknown keys were dropped, as an API server does.
    pub(crate) pruned: bool,
    pub(crate) fields: Fields,
    pub(crate) present: u64,
    /// The fields that are null.
    pub(crate) null: u64,
    /// The help for unknown keys: a field that it names is not reported as missing.
    pub(crate) advice: String,
}

impl ObjectFields {
    /// Whether the field is set, and not null.
    pub(crate) fn has(&self, name: &str) -> bool {
        match self.fields.names.iter().position(|it| *it == name) {
            Some(position) => self.present >> position & 1 == 1,
            None => false,
        }
    }

    /// Whether the field is null.
    pub(crate) fn is_null(&self, name: &str) -> bool {
        match self.fields.names.iter().position(|it| *it == name) {
            Some(position) => self.null >> position & 1 == 1,
            None => false,
        }
    }

    pub(crate) fn count(&self, names: &[&str]) -> usize {
        names.iter().filter(|name| self.has(name)).count()
    }

    /// Whether the help for an unknown key named this field.
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

/// The help when not exactly one of several fields is set.
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
