//! Prints objects in block style, as kubectl and as charts do.

use serde_json::{Map, Value};

/// kubectl folds a plain scalar at the first space after this column.
const FOLD_COLUMN: usize = 80;

/// The style of the program that wrote the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Sequences at the column of their key, keys sorted, long text folded.
    Kubectl,
    /// Sequences indented, names first, images and values quoted.
    Helm,
}

/// Appends `value`, which must be an object or a list with items, to `out`.
pub fn to_yaml(out: &mut String, value: &Value, style: Style) {
    let mut printer = Printer { out, style };
    match value {
        Value::Object(map) => printer.mapping(map, 0, false),
        Value::Array(items) => printer.sequence(items, 0, false),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            printer.scalar(value, 0, false);
        }
    }
}

struct Printer<'a> {
    out: &'a mut String,
    style: Style,
}

impl Printer<'_> {
    /// `inline`: the first line continues one that a dash has begun.
    fn mapping(&mut self, map: &Map<String, Value>, indent: usize, mut inline: bool) {
        let name_first = self.style == Style::Helm;
        let first = map.iter().filter(|(key, _)| name_first && *key == "name");
        let rest = map
            .iter()
            .filter(|(key, _)| !(name_first && *key == "name"));
        for (key, value) in first.chain(rest) {
            if !inline {
                self.indent(indent);
            }
            inline = false;
            self.text(key, indent);
            self.out.push(':');
            match value {
                Value::Object(map) if !map.is_empty() => {
                    self.out.push('\n');
                    self.mapping(map, indent + 2, false);
                }
                Value::Array(items) if !items.is_empty() => {
                    self.out.push('\n');
                    let step = if self.style == Style::Helm { 2 } else { 0 };
                    self.sequence(items, indent + step, false);
                }
                Value::Object(_)
                | Value::Array(_)
                | Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::String(_) => {
                    let quoted = self.style == Style::Helm && (key == "image" || key == "value");
                    self.out.push(' ');
                    self.scalar(value, indent + 2, quoted);
                }
            }
        }
    }

    fn sequence(&mut self, items: &[Value], indent: usize, mut inline: bool) {
        for item in items {
            if !inline {
                self.indent(indent);
            }
            inline = false;
            self.out.push_str("- ");
            match item {
                Value::Object(map) if !map.is_empty() => self.mapping(map, indent + 2, true),
                Value::Array(items) if !items.is_empty() => self.sequence(items, indent + 2, true),
                Value::Object(_)
                | Value::Array(_)
                | Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::String(_) => self.scalar(item, indent + 2, false),
            }
        }
    }

    /// A scalar or an empty collection, and the end of its line.
    fn scalar(&mut self, value: &Value, indent: usize, quoted: bool) {
        match value {
            Value::Null => self.out.push_str("null"),
            Value::Bool(value) => self.out.push_str(if *value { "true" } else { "false" }),
            Value::Number(number) => self.out.push_str(&number.to_string()),
            Value::Object(_) => self.out.push_str("{}"),
            Value::Array(_) => self.out.push_str("[]"),
            Value::String(text) if text.contains('\n') => return self.literal(text, indent),
            Value::String(text) if quoted => self.double_quoted(text),
            Value::String(text) => self.text(text, indent),
        }
        self.out.push('\n');
    }

    fn text(&mut self, text: &str, indent: usize) {
        if reads_as_another_type(text) {
            self.double_quoted(text);
        } else if is_plain(text) {
            self.plain(text, indent);
        } else {
            self.out.push('\'');
            self.out.push_str(&text.replace('\'', "''"));
            self.out.push('\'');
        }
    }

    fn plain(&mut self, text: &str, indent: usize) {
        if self.style == Style::Helm {
            self.out.push_str(text);
            return;
        }
        let line_start = self.out.rfind('\n').map_or(0, |newline| newline + 1);
        let mut column = self.out.len() - line_start;
        for (index, word) in text.split(' ').enumerate() {
            if index > 0 && column > FOLD_COLUMN {
                self.out.push('\n');
                self.indent(indent);
                column = indent;
            } else if index > 0 {
                self.out.push(' ');
                column += 1;
            }
            self.out.push_str(word);
            column += word.len();
        }
    }

    fn double_quoted(&mut self, text: &str) {
        self.out.push('"');
        self.out
            .push_str(&text.replace('\\', "\\\\").replace('"', "\\\""));
        self.out.push('"');
    }

    fn literal(&mut self, text: &str, indent: usize) {
        self.out
            .push_str(if text.ends_with('\n') { "|\n" } else { "|-\n" });
        for line in text.lines() {
            if !line.is_empty() {
                self.indent(indent);
                self.out.push_str(line);
            }
            self.out.push('\n');
        }
    }

    fn indent(&mut self, width: usize) {
        self.out.extend(std::iter::repeat_n(' ', width));
    }
}

/// Whether a YAML 1.1 reader, such as kubectl's, would read plain `text` as another type.
fn reads_as_another_type(text: &str) -> bool {
    let word = matches!(
        text.to_ascii_lowercase().as_str(),
        "" | "~" | "null" | "true" | "false" | "yes" | "no" | "on" | "off" | "y" | "n"
    );
    let mut bytes = text.bytes();
    let timestamp =
        bytes.by_ref().take(4).all(|byte| byte.is_ascii_digit()) && bytes.next() == Some(b'-');
    word || timestamp || text.parse::<f64>().is_ok()
}

fn is_plain(text: &str) -> bool {
    let starts_well = !text.starts_with(|first: char| " ?:,[]{}#&*!|>'\"%@`".contains(first))
        && !text.starts_with("- ")
        && text != "-";
    starts_well
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.contains("  ")
        && text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}
