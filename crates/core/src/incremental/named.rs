//! Pods that have a name at a port, among the destinations of rules.
//!
//! The destinations of rules with a name may be a long list, the same for every port that the name stands for: it is kept
//! once, as text and as what is asked of classes, as long as a group needs it.

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
use crate::plan::{Bounds, holds};

/// Pods whose port of a number has a name; texts as bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NamedText {
    pub(super) name: Box<str>,
    pub(super) protocol: Protocol,
    pub(super) port: NonZeroU16,
    /// Only those that are among these.
    pub(super) subset: Option<Arc<SubsetText>>,
}

/// Pod sets in encoded form, sorted, and ranges of addresses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SubsetText {
    pub(super) pods: Vec<Box<[u8]>>,
    pub(super) bounds: Bounds,
}

/// Equal texts are kept once.
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

    /// Forgets what nothing else has any more.
    pub(super) fn release_unused(&mut self) {
        self.0.retain(|text| Arc::strong_count(text) > 1);
    }
}

/// Pods whose port of a number has a name.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) name: Symbol,
    pub(super) protocol: Protocol,
    pub(super) port: u16,
    /// Only those that are among these.
    pub(super) subset: Option<Arc<LivePodSubset>>,
}

impl Named {
    /// The port, as classes have it.
    pub(super) fn key(&self) -> (Symbol, Protocol, u16) {
        (self.name, self.protocol, self.port)
    }

    /// Whether some of the pods are known by their addresses alone.
    pub(super) fn has_ranges(&self) -> bool {
        self.subset.as_ref().is_some_and(|it| it.has_ranges())
    }
}

/// Pods that are selected, or whose addresses are in ranges.
#[derive(Debug)]
pub(super) struct LivePodSubset {
    /// As long as it is there no other text has its place.
    text: Arc<SubsetText>,
    pods: Vec<Arc<Selection>>,
}

impl LivePodSubset {
    pub(super) fn has_ranges(&self) -> bool {
        self.text.bounds.iter().any(|bounds| !bounds.is_empty())
    }

    /// Whether an address is in the ranges.
    pub(super) fn holds(&self, address: IpAddr) -> bool {
        holds(&self.text.bounds, address)
    }

    /// Whether the pods of a class are selected.
    pub(super) fn selects(&self, store: &Store, class: &Class) -> bool {
        let Some(namespace) = store.namespaces.get(class.namespace) else {
            return false;
        };
        let namespace_labels = store.labels.get(namespace.labels);
        let labels = store.labels.get(class.labels);
        let mut pods = self.pods.iter();
        pods.any(|it| it.selects((namespace.name, namespace_labels), labels))
    }

    /// Where it is kept.
    fn place(text: &Arc<SubsetText>) -> usize {
        Arc::as_ptr(text).addr()
    }
}

/// The destinations of groups, by the places of their texts, and how often each is used.
pub(super) type Amongs = FxHashMap<usize, (Arc<LivePodSubset>, u32)>;

impl Store {
    /// Pods whose port has a name, with one more use of each text.
    pub(super) fn named(&mut self, text: &NamedText) -> Named {
        let among = text.subset.as_ref();
        Named {
            name: self.texts.intern(&text.name),
            protocol: text.protocol,
            port: text.port.get(),
            subset: among.map(|text| self.among(text)),
        }
    }

    fn among(&mut self, text: &Arc<SubsetText>) -> Arc<LivePodSubset> {
        let place = LivePodSubset::place(text);
        if let Some((known, uses)) = self.amongs.get_mut(&place) {
            *uses += 1;
            return Arc::clone(known);
        }
        let pods = text.pods.iter();
        let among = Arc::new(LivePodSubset {
            text: Arc::clone(text),
            pods: pods.filter_map(|it| self.selection(it)).collect(),
        });
        self.amongs.insert(place, (Arc::clone(&among), 1));
        among
    }

    /// One use less of every text.
    pub(super) fn release_named(&mut self, named: &Named) {
        self.texts.release(named.name);
        let Some(among) = &named.subset else {
            return;
        };
        let place = LivePodSubset::place(&among.text);
        let Some((_, uses)) = self.amongs.get_mut(&place) else {
            return;
        };
        *uses -= 1;
        if *uses == 0 {
            self.amongs.remove(&place);
            for selection in &among.pods {
                for symbol in selection.symbols() {
                    self.texts.release(symbol);
                }
            }
        }
    }
}
