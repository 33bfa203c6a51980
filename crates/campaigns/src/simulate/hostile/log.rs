//! What happened to the objects of a kind, on the server, and what an answer says of one.

use std::collections::BTreeMap;

use palisade_api::{ObjectSpec, Source, read_served};
use palisade_kube::Resource;
use serde_json::{Value, json};

use super::broken::Broken;
use crate::simulate::catalog::Catalog;
use palisade_generate::Rng;

/// The history of a kind.
pub(super) struct Log {
    pub(super) resource: Resource,
    /// The objects that there may be, each with its versions.
    versions: BTreeMap<usize, Vec<Value>>,
    /// Those that there are.
    pub(super) objects: BTreeMap<usize, usize>,
    /// What happened: the key, and the version from then on. The first leads to the resourceVersion 2.
    pub(super) events: Vec<(usize, Option<usize>)>,
    /// The list that is being read, and of which moment it is.
    pub(super) listed: (usize, Vec<(usize, usize)>),
    /// Whether the server has just said that it does not have the kind.
    pub(super) has_denied: bool,
}

impl Log {
    pub(super) fn new(resource: Resource, catalog: &Catalog<'_>) -> Log {
        let keys = (0..catalog.keys.len()).filter(|key| {
            let name = catalog.keys.get(*key);
            let is_placed =
                name.is_some_and(|it| !resource.kind.is_namespaced() || !it.namespace.is_empty());
            let kind = catalog.object(*key, 0).map(|it| it.kind);
            // What cannot be read although nobody broke it would be told for ever.
            let mut versions = (0..catalog.versions(*key)).map(|it| catalog.json(*key, it));
            let is_whole = versions.all(|it| it.is_some_and(|it| is_readable(resource, &it)));
            kind == Some(resource.kind) && is_placed && is_whole
        });
        let versions = keys.map(|key| {
            let all = 0..catalog.versions(key);
            (key, all.filter_map(|it| catalog.json(key, it)).collect())
        });
        Log {
            resource,
            versions: versions.collect(),
            objects: BTreeMap::new(),
            events: Vec::new(),
            listed: (1, Vec::new()),
            has_denied: false,
        }
    }

    /// Makes the first objects.
    pub(super) fn fill(&mut self, rng: &mut Rng) {
        for _ in 0..self.versions.len() {
            self.change(rng);
        }
    }

    /// Something happens to an object.
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

    /// An object as the server sends it.
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

/// Whether an object can be read at all, whatever is wrong with it.
fn is_readable(resource: Resource, object: &Value) -> bool {
    let bytes = object.to_string().into_bytes();
    let source = Source::served(resource.kind, &resource.group_version(), &bytes);
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

/// An object in an answer, and what can be read of it.
pub(super) struct Said {
    pub(super) key: usize,
    /// `None`: it is gone.
    pub(super) version: Option<usize>,
    /// Its resourceVersion.
    pub(super) moment: usize,
    pub(super) text: Vec<u8>,
    pub(super) how: How,
}

/// What can be read of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// Everything.
    Readable,
    /// Who it is.
    Unreadable,
    /// Not even that.
    Unnamed,
}

impl Said {
    pub(super) fn new(log: &Log, key: usize, version: Option<usize>, moment: usize) -> Said {
        // Of what is gone the server tells how it was last.
        let shown = version.unwrap_or(0);
        Said {
            key,
            version,
            moment,
            text: log.json(key, shown, moment).to_string().into_bytes(),
            how: How::Readable,
        }
    }

    /// Puts a field in front of the others.
    fn with(&mut self, field: &[u8]) {
        self.text.splice(1..1, field.iter().copied().chain(*b","));
    }

    /// Breaks it, if that is a way to break an object.
    pub(super) fn damage(&mut self, broken: Broken, log: &Log) {
        let mut object = log.json(self.key, self.version.unwrap_or(0), self.moment);
        if broken == Broken::Deeper {
            let (open, close) = ("{\"f:x\":".repeat(300), "}".repeat(300));
            self.with(format!("\"managed\":{open}{{}}{close}").as_bytes());
        } else if broken == Broken::Larger {
            let large = "x".repeat(20_000);
            self.with(format!("\"padding\":\"{large}\"").as_bytes());
        } else if broken == Broken::NotText {
            self.with(b"\"\xff\xfe\":\"\xc0\"");
        } else if broken == Broken::Unreadable {
            set(&mut object, "kind", json!("AnotherKind"));
            self.text = object.to_string().into_bytes();
            self.how = How::Unreadable;
        } else if broken == Broken::Unnamed {
            if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("name");
            }
            self.text = object.to_string().into_bytes();
            self.how = How::Unnamed;
        }
    }
}
