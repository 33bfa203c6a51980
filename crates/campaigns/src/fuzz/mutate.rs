//! Mutates an object by a sequence of decisions.

use serde_json::{Map, Value};

use super::{Target, dictionary};

/// Decisions read from bytes; after the last byte, every decision is the first choice.
pub(super) struct Decisions<'b> {
    bytes: std::slice::Iter<'b, u8>,
}

impl Decisions<'_> {
    pub(super) fn new(bytes: &[u8]) -> Decisions<'_> {
        Decisions {
            bytes: bytes.iter(),
        }
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.bytes.len() == 0
    }

    pub(super) fn byte(&mut self) -> usize {
        self.bytes.next().copied().map_or(0, usize::from)
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        let value = self.byte() << 8 | self.byte();
        if limit == 0 { 0 } else { value % limit }
    }

    pub(super) fn entry(&mut self) -> Value {
        let dictionary = dictionary();
        dictionary
            .get(self.below(dictionary.len()))
            .cloned()
            .unwrap_or_default()
    }

    fn key(&mut self) -> String {
        match self.entry() {
            Value::String(entry) => entry,
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => "unknown".to_owned(),
        }
    }
}

/// An object of the target's kind, mutated as the bytes decide.
pub fn mutated(target: &Target, bytes: &[u8]) -> Value {
    let mut decisions = Decisions::new(bytes);
    let seeds = target.seeds();
    let mut object = seeds
        .get(decisions.below(seeds.len()))
        .cloned()
        .unwrap_or_default();
    for _ in 0..decisions.below(12) {
        change(&mut object, &mut decisions, 0);
    }
    // Its type must stay: otherwise another kind is tested.
    if let (Some(changed), Some(seed)) = (
        object.as_object_mut(),
        seeds.first().and_then(Value::as_object),
    ) {
        for field in ["apiVersion", "kind"] {
            changed.insert(
                field.to_owned(),
                seed.get(field).cloned().unwrap_or_default(),
            );
        }
    }
    object
}

/// Descends to a value, and changes it.
pub(super) fn change(value: &mut Value, decisions: &mut Decisions<'_>, depth: usize) {
    let descends = depth < 12 && !decisions.byte().is_multiple_of(8);
    match value {
        Value::Object(map) if !map.is_empty() && descends => {
            let index = decisions.below(map.len());
            if let Some((_, inner)) = map.iter_mut().nth(index) {
                change(inner, decisions, depth + 1);
            }
        }
        Value::Array(items) if !items.is_empty() && descends => {
            let index = decisions.below(items.len());
            if let Some(inner) = items.get_mut(index) {
                change(inner, decisions, depth + 1);
            }
        }
        Value::Object(map) => change_map(map, decisions),
        Value::Array(items) => change_list(items, decisions),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            *value = decisions.entry()
        }
    }
}

fn change_map(map: &mut Map<String, Value>, decisions: &mut Decisions<'_>) {
    let index = decisions.below(map.len());
    let name = map.keys().nth(index).cloned().unwrap_or_default();
    match decisions.byte() % 5 {
        0 => drop(map.remove(&name)),
        1 => drop(map.insert(decisions.key(), decisions.entry())),
        2 => {
            if let Some(value) = map.remove(&name) {
                map.insert(decisions.key(), value);
            }
        }
        3 => drop(map.insert(name, decisions.entry())),
        _ => {
            // A misspelling.
            if let Some(value) = map.remove(&name) {
                map.insert(name.to_lowercase() + "s", value);
            }
        }
    }
}

fn change_list(items: &mut Vec<Value>, decisions: &mut Decisions<'_>) {
    let index = decisions.below(items.len());
    match decisions.byte() % 4 {
        0 if !items.is_empty() => drop(items.remove(index)),
        1 => items.push(decisions.entry()),
        2 => {
            // Beyond every limit of a list.
            let item = items.get(index).cloned().unwrap_or_default();
            items.resize(items.len() + decisions.below(110), item);
        }
        _ => items.clear(),
    }
}

/// Writes a value in block style with every key and string in double quotes: no text changes its
/// type.
pub(super) fn write_yaml(text: &mut String, value: &Value, indent: usize) {
    let start = |text: &mut String| {
        text.push('\n');
        text.push_str(&" ".repeat(indent));
    };
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                start(text);
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push_str(": ");
                write_yaml(text, value, indent + 1);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                start(text);
                text.push_str("- ");
                write_yaml(text, item, indent + 1);
            }
        }
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => text.push_str(&value.to_string()),
    }
}
