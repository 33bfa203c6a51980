//! Pods that have a name at a port and are destinations of rules.
//!
//! The destinations of rules with a port name can be a long list, which is the same for every port
//! that the name stands for. The list is stored once while a group needs it, as text and as
//! selections of classes.

use std::collections::HashSet;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::digest::Hashes;
use super::select::Selection;
use super::store::{Class, Store};
use super::texts::Symbol;
use crate::net::Protocol;
use crate::plan::{Bounds, contains};

/// Pods whose port of this number has this name; texts as bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NamedText {
    pub(super) name: Box<str>,
    pub(super) protocol: Protocol,
    pub(super) port: NonZeroU16,
    /// The subset that these pods must also be in.
    pub(super) subset: Option<Arc<SubsetText>>,
}

/// Pod sets in encoded form, sorted, and ranges of addresses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SubsetText {
    pub(super) pods: Vec<Box<[u8]>>,
    pub(super) bounds: Bounds,
}

/// The subsets as text, each stored once.
#[derive(Debug)]
pub(super) struct SubsetTexts(HashSet<Arc<SubsetText>, Hashes>);

impl SubsetTexts {
    pub(super) fn new(hashes: Hashes) -> SubsetTexts {
        SubsetTexts(HashSet::with_hasher(hashes))
    }

    pub(super) fn keep(&mut self, text: SubsetText) -> Arc<SubsetText> {
        if let Some(known) = self.0.get(&text) {
            return Arc::clone(known);
        }
        let text = Arc::new(text);
        self.0.insert(Arc::clone(&text));
        text
    }

    /// Drops the subsets that no group uses.
    pub(super) fn release_unused(&mut self) {
        // The groups share the same `Arc`; without them the only count is this table's.
        self.0.retain(|text| Arc::strong_count(text) > 1);
    }
}

/// Pods whose port of this number has this name; texts as symbols.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) name: Symbol,
    pub(super) protocol: Protocol,
    pub(super) port: u16,
    /// The subset that these pods must also be in.
    pub(super) subset: Option<Arc<LivePodSubset>>,
}

impl Named {
    /// Returns the port in the form in which classes list it.
    pub(super) fn key(&self) -> (Symbol, Protocol, u16) {
        (self.name, self.protocol, self.port)
    }

    /// Returns whether some of the pods are matched by their addresses alone.
    pub(super) fn has_ranges(&self) -> bool {
        self.subset.as_ref().is_some_and(|it| it.has_ranges())
    }
}

/// Pods that are selected, or whose addresses are in ranges.
#[derive(Debug)]
pub(super) struct LivePodSubset {
    // Owned, because the address of the text is the key of the subset: no other text can get this
    // address while the subset exists.
    text: Arc<SubsetText>,
    pods: Vec<Arc<Selection>>,
}

impl LivePodSubset {
    pub(super) fn has_ranges(&self) -> bool {
        self.text.bounds.iter().any(|bounds| !bounds.is_empty())
    }

    /// Returns whether an address is in the ranges.
    pub(super) fn holds(&self, address: IpAddr) -> bool {
        contains(&self.text.bounds, address)
    }

    /// Returns whether the pods of a class are selected.
    pub(super) fn selects(&self, store: &Store, class: &Class) -> bool {
        let Some(namespace) = store.namespaces.get(class.namespace) else {
            return false;
        };
        let namespace_labels = store.labels.get(namespace.labels);
        let labels = store.labels.get(class.labels);
        let mut pods = self.pods.iter();
        pods.any(|it| it.selects((namespace.name, namespace_labels), labels))
    }

    /// Returns the key of the subset with this text: the address of the text.
    // Equal texts are one `Arc` (`SubsetTexts`). A comparison of the texts would cost as much as
    // they are long, for every port that a name stands for.
    fn key_of(text: &Arc<SubsetText>) -> usize {
        Arc::as_ptr(text).addr()
    }
}

/// The subsets of groups by key, with the number of uses of each.
pub(super) type PodSubsets = FxHashMap<usize, (Arc<LivePodSubset>, u32)>;

impl Store {
    /// Returns named pods over the symbols of the store, with one more use of each text.
    pub(super) fn named(&mut self, text: &NamedText) -> Named {
        let subset = text.subset.as_ref();
        Named {
            name: self.texts.intern(&text.name),
            protocol: text.protocol,
            port: text.port.get(),
            subset: subset.map(|text| self.live_subset(text)),
        }
    }

    fn live_subset(&mut self, text: &Arc<SubsetText>) -> Arc<LivePodSubset> {
        let key = LivePodSubset::key_of(text);
        if let Some((known, uses)) = self.amongs.get_mut(&key) {
            *uses += 1;
            return Arc::clone(known);
        }
        let pods = text.pods.iter();
        let subset = Arc::new(LivePodSubset {
            text: Arc::clone(text),
            pods: pods.filter_map(|it| self.selection(it)).collect(),
        });
        self.amongs.insert(key, (Arc::clone(&subset), 1));
        subset
    }

    /// Removes one use of every text.
    pub(super) fn release_named(&mut self, named: &Named) {
        self.texts.release(named.name);
        let Some(subset) = &named.subset else {
            return;
        };
        let key = LivePodSubset::key_of(&subset.text);
        let Some((_, uses)) = self.amongs.get_mut(&key) else {
            return;
        };
        *uses -= 1;
        if *uses == 0 {
            self.amongs.remove(&key);
            // The selections took their uses once, with the first group.
            for selection in &subset.pods {
                for symbol in selection.symbols() {
                    self.texts.release(symbol);
                }
            }
        }
    }
}
