//! Reads YAML as JSON values, by the parser's events alone: another reading than that of the
//! engine.

use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value};

/// Reads all documents of a text. Anchors and tags do not occur in the inputs of this campaign.
pub(super) fn documents(text: &str) -> Vec<Value> {
    let mut documents = Vec::new();
    // Open collections, each with the key that waits for its value.
    let mut open: Vec<(Value, Option<String>)> = Vec::new();
    for event in Parser::new_from_str(text) {
        let Ok((event, _)) = event else {
            return documents;
        };
        let value = match event {
            Event::SequenceStart(..) => {
                open.push((Value::Array(Vec::new()), None));
                continue;
            }
            Event::MappingStart(..) => {
                open.push((Value::Object(Map::new()), None));
                continue;
            }
            Event::Scalar(text, style, ..) => scalar(&text, style),
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some((value, _)) => value,
                None => continue,
            },
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::Alias(_) => continue,
        };
        match open.last_mut() {
            None => documents.push(value),
            Some((Value::Array(items), _)) => items.push(value),
            Some((Value::Object(entries), key)) => match key.take() {
                Some(key) => {
                    entries.insert(key, value);
                }
                None => *key = Some(key_text(&value)),
            },
            Some(_) => {}
        }
    }
    documents
}

fn key_text(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.to_owned(),
        None => value.to_string(),
    }
}

fn scalar(text: &str, style: ScalarStyle) -> Value {
    if style != ScalarStyle::Plain {
        return Value::String(text.to_owned());
    }
    match text {
        "null" | "~" | "" => Value::Null,
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ => match serde_json::from_str::<Value>(text) {
            Ok(number @ Value::Number(_)) => number,
            _ => Value::String(text.to_owned()),
        },
    }
}
