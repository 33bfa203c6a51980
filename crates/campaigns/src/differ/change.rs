//! A random change of a random cluster.

use palisade_oracle::generate::scenario;
use serde_json::Value;

use palisade_generate::Rng;

/// The objects after a change: some are deleted, some have the content of another cluster's
/// objects, some are new.
pub(super) fn changed(seed: u64, objects: &[Value]) -> Vec<Value> {
    let mut rng = Rng::new(seed ^ 0x5eed_d1ff);
    let other = scenario(seed.wrapping_add(1 << 40), 0).objects;
    let mut changed: Vec<Value> = Vec::new();
    // Most changes affect few objects.
    let often = 2 + rng.below(12);
    for object in objects {
        match rng.below(often) {
            0 if rng.below(2) == 0 => {}
            0 => changed.push(replaced(&mut rng, object, &other)),
            _ => changed.push(object.clone()),
        }
    }
    let n_new = rng.below(3);
    for _ in 0..n_new {
        let index = usize::try_from(rng.below(other.len().max(1) as u64)).unwrap_or(0);
        let new = other.get(index).cloned();
        let exists = |it: &Value| changed.iter().any(|known| identity(known) == identity(it));
        if let Some(new) = new.filter(|it| !exists(it)) {
            changed.push(new);
        }
    }
    changed
}

/// The identity of an object.
pub(super) fn identity(object: &Value) -> [Option<&str>; 4] {
    let at = |path: &str| object.pointer(path).and_then(Value::as_str);
    [
        at("/apiVersion"),
        at("/kind"),
        at("/metadata/namespace"),
        at("/metadata/name"),
    ]
}

/// An object with the content of another one of its kind.
fn replaced(rng: &mut Rng, object: &Value, other: &[Value]) -> Value {
    let [version, kind, ..] = identity(object);
    let has_kind = |it: &&Value| {
        let [its_version, its_kind, ..] = identity(it);
        its_version == version && its_kind == kind
    };
    let candidates: Vec<&Value> = other.iter().filter(has_kind).collect();
    let index = usize::try_from(rng.below(candidates.len().max(1) as u64)).unwrap_or(0);
    let Some(model) = candidates.get(index) else {
        return object.clone();
    };
    let mut new = (*model).clone();
    for key in ["name", "namespace"] {
        let old = object.pointer(&format!("/metadata/{key}")).cloned();
        let metadata = new.get_mut("metadata").and_then(Value::as_object_mut);
        match (metadata, old) {
            (Some(metadata), Some(old)) => {
                metadata.insert(key.to_owned(), old);
            }
            (Some(metadata), None) => {
                metadata.remove(key);
            }
            (None, _) => {}
        }
    }
    new
}
