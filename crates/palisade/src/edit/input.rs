//! The input that edits change.

use std::collections::HashMap;
use std::net::IpAddr;

use palisade_api::{Code, Object, Options, Problem, Source, SourceId};
use palisade_core::budget::Budget;
use palisade_core::model::Cluster;

use super::{TextEdit, edited};

/// The input before any edit.
#[derive(Debug)]
pub struct EditInput<'k> {
    /// The files, then what was read from the cluster.
    pub sources: &'k [Source],
    /// The number of files among the sources; the others are the cluster's.
    pub n_files: usize,
    /// How they were read.
    pub options: Options,
    /// The addresses that names have resolved to.
    pub learned: &'k [(String, IpAddr)],
    /// The budget for the NetworkPolicies of each namespace.
    pub budget: Budget,
    /// The objects of the sources.
    pub objects: &'k [Object<'k>],
    /// The problems of the objects, and of their combination.
    pub problems: Vec<&'k Problem>,
    /// The model.
    pub cluster: &'k Cluster<'k>,
}

impl EditInput<'_> {
    pub(crate) fn text(&self, id: SourceId) -> &str {
        self.sources.get(id.0 as usize).map_or("", Source::text)
    }

    /// Returns the sources with edits of their texts.
    pub(crate) fn edited(&self, mut edits: HashMap<SourceId, Vec<TextEdit>>) -> Vec<Source> {
        let sources = self.sources.iter().enumerate().map(|(index, source)| {
            let id = SourceId(u32::try_from(index).unwrap_or(u32::MAX));
            let Some(mut edits) = edits.remove(&id) else {
                return source.clone();
            };
            edits.sort_by_key(|edit| edit.range.start);
            let text = edited(source.text(), &edits);
            Source::new(source.name(), text.into_bytes())
        });
        sources.collect()
    }

    /// Reports whether there is a problem that was not there before.
    pub(crate) fn has_new<'n>(&self, new: impl Iterator<Item = &'n Problem>) -> bool {
        // Without positions: an edit moves what comes after it.
        let mut left: HashMap<(Code, Option<&str>, &str), usize> = HashMap::new();
        for it in &self.problems {
            *left
                .entry((it.code, it.object.as_deref(), &it.message))
                .or_default() += 1;
        }
        for it in new {
            let count = left.get_mut(&(it.code, it.object.as_deref(), &*it.message));
            match count.filter(|count| **count > 0) {
                Some(count) => *count -= 1,
                None => return true,
            }
        }
        false
    }
}
