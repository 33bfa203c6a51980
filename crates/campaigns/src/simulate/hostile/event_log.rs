//! The events of a kind on the server, and the object of a response.

use std::collections::BTreeMap;

use palisade_api::{ObjectSpec, Source, read_served};
use palisade_kube::Resource;
use serde_json::{Value, json};

use super::fault::ResponseFault;
use crate::simulate::catalog::Catalog;
use palisade_generate::Rng;

/// The events of a kind.
pub(super) struct EventLog {
    pub(super) resource: Resource,
    /// All possible objects, each with its versions.
    versions: BTreeMap<usize, Vec<Value>>,
    /// The current objects.
    pub(super) objects: BTreeMap<usize, usize>,
    /// The events: the key, and its new version. The first event has resourceVersion 2.
    pub(super) events: Vec<(usize, Option<usize>)>,
    /// The list in progress, and its resourceVersion.
    pub(super) listed: (usize, Vec<(usize, usize)>),
    /// Whether the last discovery response denied the kind.
    pub(super) denied_last: bool,
}

impl EventLog {
    pub(super) fn new(resource: Resource, catalog: &Catalog<'_>) -> EventLog {
        let keys = (0..catalog.keys.len()).filter(|key| {
            let name = catalog.keys.get(*key);
            let is_placed =
                name.is_some_and(|it| !resource.kind.is_namespaced() || !it.namespace.is_empty());
            let kind = catalog.object(*key, 0).map(|it| it.kind);
            // An object that is unreadable without a fault would be reported forever.
            let mut versions = (0..catalog.versions(*key)).map(|it| catalog.json(*key, it));
            let is_whole = versions.all(|it| it.is_some_and(|it| is_readable(resource, &it)));
            kind == Some(resource.kind) && is_placed && is_whole
        });
        let versions = keys.map(|key| {
            let all = 0..catalog.versions(key);
            (key, all.filter_map(|it| catalog.json(key, it)).collect())
        });
        EventLog {
            resource,
            versions: versions.collect(),
            objects: BTreeMap::new(),
            events: Vec::new(),
            listed: (1, Vec::new()),
            denied_last: false,
        }
    }

    /// Creates the first objects.
    pub(super) fn fill(&mut self, rng: &mut Rng) {
        for _ in 0..self.versions.len() {
            self.change(rng);
        }
    }

    /// Creates, updates or deletes a random object.
    pub(super) fn change(&mut self, rng: &mut Rng) {
        if self.versions.is_empty() {
            return;
        }
        let place = rng.below(self.versions.len() as u64) as usize;
        let Some((key, versions)) = self.versions.iter().nth(place) else {
            return;
        };
        let version = rng.below(versions.len().max(1) as u64) as usize;
        if rng.chance(20) && self.objects.contains_key(key) {
            self.objects.remove(key);
            self.events.push((*key, None));
        } else if versions.len() > version {
            self.objects.insert(*key, version);
            self.events.push((*key, Some(version)));
        }
    }

    /// An object as the server sends it, with a resourceVersion.
    pub(super) fn json(&self, key: usize, version: usize, moment: usize) -> Value {
        let versions = self.versions.get(&key);
        let object = versions.and_then(|it| it.get(version)).cloned();
        let mut object = object.unwrap_or_default();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".to_owned(), json!(moment.to_string()));
        }
        set(&mut object, "kind", json!(self.resource.kind.name()));
        set(
            &mut object,
            "apiVersion",
            json!(self.resource.group_version()),
        );
        object
    }
}

/// Whether an object is readable, even with problems.
fn is_readable(resource: Resource, object: &Value) -> bool {
    let bytes = object.to_string().into_bytes();
    let source = Source::served(resource.kind, resource.group_version(), bytes);
    let manifests = read_served(&source);
    let body = manifests.objects.first().map(|it| &it.spec);
    body.is_some_and(|it| !matches!(it, ObjectSpec::Unreadable))
}

/// Sets a field of an object.
pub(super) fn set(object: &mut Value, field: &str, value: Value) {
    if let Some(object) = object.as_object_mut() {
        object.insert(field.to_owned(), value);
    }
}

/// An object in a response, and what is readable of it.
pub(super) struct SentObject {
    pub(super) key: usize,
    /// `None`: it is deleted.
    pub(super) version: Option<usize>,
    /// Its resourceVersion.
    pub(super) moment: usize,
    pub(super) text: Vec<u8>,
    pub(super) how: Readable,
}

/// The readable part of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readable {
    /// Everything.
    All,
    /// Its identity.
    Identity,
    /// Nothing.
    Nothing,
}

impl SentObject {
    pub(super) fn new(
        event_log: &EventLog,
        key: usize,
        version: Option<usize>,
        moment: usize,
    ) -> SentObject {
        // A deletion carries the last state of the object.
        let shown = version.unwrap_or(0);
        SentObject {
            key,
            version,
            moment,
            text: event_log.json(key, shown, moment).to_string().into_bytes(),
            how: Readable::All,
        }
    }

    /// Inserts a field before the others.
    fn with(&mut self, field: &[u8]) {
        self.text.splice(1..1, field.iter().copied().chain(*b","));
    }

    /// Applies a fault, if it is one of an object.
    pub(super) fn damage(&mut self, fault: ResponseFault, event_log: &EventLog) {
        let mut object = event_log.json(self.key, self.version.unwrap_or(0), self.moment);
        if fault == ResponseFault::Deeper {
            let (open, close) = ("{\"f:x\":".repeat(300), "}".repeat(300));
            self.with(format!("\"managed\":{open}{{}}{close}").as_bytes());
        } else if fault == ResponseFault::Larger {
            let large = "x".repeat(20_000);
            self.with(format!("\"padding\":\"{large}\"").as_bytes());
        } else if fault == ResponseFault::NotUtf8 {
            self.with(b"\"\xff\xfe\":\"\xc0\"");
        } else if fault == ResponseFault::Unreadable {
            set(&mut object, "kind", json!("AnotherKind"));
            self.text = object.to_string().into_bytes();
            self.how = Readable::Identity;
        } else if fault == ResponseFault::Unnamed {
            if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("name");
            }
            self.text = object.to_string().into_bytes();
            self.how = Readable::Nothing;
        }
    }
}
