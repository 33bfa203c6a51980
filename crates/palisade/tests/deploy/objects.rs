//! Objects of YAML text by kind and name, and how two of them differ.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Objects by `Kind/name`.
pub(crate) type Objects = BTreeMap<String, Value>;

/// Every document of a text.
#[track_caller]
pub(crate) fn documents(text: &str) -> Vec<Value> {
    let parts = format!("\n{text}");
    let parts = parts.split("\n---").map(|part| {
        // The rest of the line after the dashes is a comment.
        let part = part.split_once('\n').map_or("", |(_, rest)| rest);
        let is_empty = |line: &str| line.trim().is_empty() || line.trim().starts_with('#');
        (!part.lines().all(is_empty)).then_some(part)
    });
    let read =
        |part: &str| serde_saphyr::from_str(part).unwrap_or_else(|error| panic!("{error}\n{part}"));
    parts.flatten().map(read).collect()
}

/// The objects of a text; none may occur twice.
#[track_caller]
pub(crate) fn objects(text: &str) -> Objects {
    let mut all = Objects::new();
    for object in documents(text) {
        let word = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let kind = word("/kind").unwrap_or_else(|| panic!("{object}: no kind"));
        let name = word("/metadata/name").unwrap_or_else(|| panic!("{object}: no name"));
        let name = format!("{kind}/{name}");
        assert!(!all.contains_key(&name), "{name} twice");
        all.insert(name, object);
    }
    all
}

/// How objects differ from others, one line for each place: `+` is new, `-` is gone, `~` is another
/// value.
pub(crate) fn differences(old: &Objects, new: &Objects) -> Vec<String> {
    let mut lines = Vec::new();
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for name in names {
        match (old.get(name), new.get(name)) {
            (Some(old), Some(new)) => compare(name, old, new, &mut lines),
            (None, Some(_)) => lines.push(format!("+ {name}")),
            (Some(_), None) => lines.push(format!("- {name}")),
            (None, None) => {}
        }
    }
    lines
}

fn compare(path: &str, old: &Value, new: &Value, lines: &mut Vec<String>) {
    let children = |value: &Value| -> Option<BTreeMap<String, Value>> {
        match value {
            Value::Object(fields) => {
                let fields = fields.iter();
                Some(fields.map(|(key, it)| (key.clone(), it.clone())).collect())
            }
            Value::Array(items) => {
                let items = items.iter().enumerate();
                // Numbers of one width sort as numbers do.
                Some(
                    items
                        .map(|(at, it)| (format!("{at:02}"), it.clone()))
                        .collect(),
                )
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    };
    let same_shape = old.is_object() == new.is_object() && old.is_array() == new.is_array();
    match (children(old), children(new)) {
        (Some(old), Some(new)) if same_shape => {
            let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for key in keys {
                let path = format!("{path} {key}");
                match (old.get(key), new.get(key)) {
                    (Some(old), Some(new)) => compare(&path, old, new, lines),
                    (None, Some(new)) => lines.push(format!("+ {path} = {new}")),
                    (Some(old), None) => lines.push(format!("- {path} = {old}")),
                    (None, None) => {}
                }
            }
        }
        _ if old == new => {}
        _ => lines.push(format!("~ {path} = {old} -> {new}")),
    }
}
