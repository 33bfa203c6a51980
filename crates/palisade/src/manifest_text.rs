//! Values as text of manifests: block YAML as people write it, YAML in brackets, and JSON.
//!
//! serde_saphyr writes whole documents. A rule goes into the middle of one, at the depth and in the
//! style that is there.

use std::borrow::Cow;

/// A value of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    Number(u16),
    List(Vec<Value>),
    /// Keys and values, in the order of the text.
    Map(Vec<(Cow<'static, str>, Value)>),
}

impl Value {
    pub(crate) fn text(text: impl Into<String>) -> Value {
        Value::Text(text.into())
    }

    /// Creates a mapping of one entry.
    pub(crate) fn entry(key: &'static str, value: Value) -> Value {
        Value::Map(vec![(key.into(), value)])
    }

    /// Formats the value in block style, in lines.
    pub(crate) fn lines(&self) -> Vec<String> {
        match self {
            Value::Map(entries) if !entries.is_empty() => {
                entries.iter().flat_map(entry_lines).collect()
            }
            Value::List(items) if !items.is_empty() => {
                items.iter().flat_map(Value::item_lines).collect()
            }
            Value::Text(_) | Value::Number(_) | Value::List(_) | Value::Map(_) => {
                vec![self.inline()]
            }
        }
    }

    /// Formats the value as an item of a list in block style, in lines.
    pub(crate) fn item_lines(&self) -> Vec<String> {
        let lines = self.lines().into_iter().enumerate();
        let lines = lines.map(|(index, line)| {
            let dash = if index == 0 { "- " } else { "  " };
            format!("{dash}{line}")
        });
        lines.collect()
    }

    /// Formats the value in one line of YAML.
    pub(crate) fn inline(&self) -> String {
        match self {
            Value::Text(text) => scalar(text),
            Value::Number(number) => number.to_string(),
            Value::List(items) => {
                let items: Vec<String> = items.iter().map(Value::inline).collect();
                format!("[{}]", items.join(", "))
            }
            Value::Map(entries) => {
                let entries = entries.iter();
                let entries = entries.map(|(key, it)| format!("{}: {}", scalar(key), it.inline()));
                format!("{{{}}}", entries.collect::<Vec<String>>().join(", "))
            }
        }
    }

    /// Formats the value as JSON in one line.
    pub(crate) fn json(&self) -> String {
        match self {
            Value::Text(text) => quoted(text),
            Value::Number(number) => number.to_string(),
            Value::List(items) => {
                let items: Vec<String> = items.iter().map(Value::json).collect();
                format!("[{}]", items.join(", "))
            }
            Value::Map(entries) => {
                let entries = entries.iter();
                let entries = entries.map(|(key, it)| format!("{}: {}", quoted(key), it.json()));
                format!("{{{}}}", entries.collect::<Vec<String>>().join(", "))
            }
        }
    }
}

fn entry_lines((key, value): &(Cow<'static, str>, Value)) -> Vec<String> {
    let key = scalar(key);
    match value {
        Value::Map(entries) if !entries.is_empty() => {
            let below = value.lines().into_iter().map(|line| format!("  {line}"));
            std::iter::once(format!("{key}:")).chain(below).collect()
        }
        // As kubectl does, with the dash at the depth of the key.
        Value::List(items) if !items.is_empty() => std::iter::once(format!("{key}:"))
            .chain(value.lines())
            .collect(),
        Value::Text(_) | Value::Number(_) | Value::List(_) | Value::Map(_) => {
            vec![format!("{key}: {}", value.inline())]
        }
    }
}

/// Formats a text as a YAML scalar, with quotes unless every YAML parser reads it as this text.
fn scalar(text: &str) -> String {
    if is_plain(text) {
        text.to_owned()
    } else {
        quoted(text)
    }
}

/// Reports whether a text without quotes is a string for every YAML parser.
fn is_plain(text: &str) -> bool {
    // kubectl reads YAML 1.1, where these words are booleans.
    const RESERVED: [&str; 9] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
    let is_part = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.' | b'/');
    let first = text.bytes().next();
    let is_word = first.is_some_and(|it| it.is_ascii_alphabetic()) && text.bytes().all(is_part);
    let is_reserved = RESERVED.iter().any(|it| it.eq_ignore_ascii_case(text));
    // A slash ends every form of a number: an IPv4 block needs no quotes.
    let is_block = text.contains('/')
        && text
            .bytes()
            .all(|c| c.is_ascii_digit() || matches!(c, b'.' | b'/'));
    (is_word && !is_reserved) || is_block
}

/// Formats a text with double quotes, as in JSON and YAML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(c);
            }
            // Both syntaxes have this escape. It keeps control characters off the terminal.
            c if c.is_control() => quoted += &format!("\\u{:04x}", u32::from(c)),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> Value {
        let labels = Value::Map(vec![
            ("app".into(), Value::text("on")),
            ("build".into(), Value::text("12")),
        ]);
        let peer = Value::entry("podSelector", Value::entry("matchLabels", labels));
        let port = Value::Map(vec![
            ("protocol".into(), Value::text("UDP")),
            ("port".into(), Value::Number(53)),
        ]);
        Value::Map(vec![
            ("from".into(), Value::List(vec![peer])),
            ("ports".into(), Value::List(vec![port])),
        ])
    }

    #[test]
    fn a_rule_is_written_as_kubectl_writes_it() {
        let expected = "\
- from:
  - podSelector:
      matchLabels:
        app: \"on\"
        build: \"12\"
  ports:
  - protocol: UDP
    port: 53";
        assert_eq!(rule().item_lines().join("\n"), expected);
        let expected = "{from: [{podSelector: {matchLabels: {app: \"on\", build: \"12\"}}}], ports: [{protocol: UDP, port: 53}]}";
        assert_eq!(rule().inline(), expected);
        let expected = r#"{"from": [{"podSelector": {"matchLabels": {"app": "on", "build": "12"}}}], "ports": [{"protocol": "UDP", "port": 53}]}"#;
        assert_eq!(rule().json(), expected);
    }

    #[test]
    fn a_text_that_could_be_something_else_has_quotes() {
        for plain in ["web", "a.b/c", "v1-2", "10.0.0.0/8", "Off-1"] {
            assert_eq!(scalar(plain), plain);
        }
        for other in [
            "",
            "1",
            "1.5",
            "1e3",
            "0x1f",
            "yes",
            "No",
            "TRUE",
            "null",
            "~",
            "-",
            "::/0",
            "a b",
            "a: b",
            "1_000",
            "2001:db8::/32",
            "#a",
            "\u{1b}",
        ] {
            assert!(scalar(other).starts_with('"'), "{other}");
        }
        assert_eq!(scalar("a\u{1b}\"b"), r#""a\u001b\"b""#);
    }

    #[test]
    fn an_empty_collection_has_brackets() {
        let value = Value::entry("podSelector", Value::Map(Vec::new()));
        assert_eq!(value.lines(), ["podSelector: {}"]);
        assert_eq!(
            Value::entry("to", Value::List(Vec::new())).lines(),
            ["to: []"]
        );
    }
}
