//! Edits that insert items into a list, and keep every other byte.
//!
//! An edit is `None` where no place for the items is found. The caller reads the edited text again:
//! in a layout with anchors, an item may be inserted where several lists have it.

use palisade_api::{Layout, Located};

use super::TextEdit;
use crate::manifest_text::Value;

/// A list in a mapping: `spec.ingress`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListPlace {
    /// The mapping.
    pub(crate) parent: Located,
    /// The list; `None`: the mapping does not have it.
    pub(crate) list: Option<Located>,
    /// The item that the new items come before; `None`: they come last.
    pub(crate) before: Option<Located>,
}

/// Inserts items into a list, which is made if it does not exist.
pub(crate) fn with_items(
    text: &str,
    place: ListPlace,
    key: &'static str,
    items: &[Value],
) -> Option<TextEdit> {
    let edit = match place.list {
        Some(list) if is_bracketed(text, list, '[') => in_emptied_block(text, list, items)
            .or_else(|| in_brackets(text, list, place.before, items)),
        Some(list) => in_block(text, list, place.before, items),
        None if is_bracketed(text, place.parent, '{') => new_in_brackets(text, place, key, items),
        None => new_in_block(text, place.parent, key, items),
    }?;
    Some(with_line_ends(text, edit))
}

/// Appends a document to a file of YAML.
pub(crate) fn with_document(text: &str, document: &Value) -> TextEdit {
    let mut insert = String::new();
    if !text.is_empty() && !text.ends_with('\n') {
        insert.push('\n');
    }
    if !text.trim().is_empty() {
        insert += "---\n";
    }
    for line in document.lines() {
        insert += &line;
        insert.push('\n');
    }
    let range = text.len()..text.len();
    with_line_ends(text, TextEdit { range, insert })
}

/// Ends lines as the text does.
fn with_line_ends(text: &str, mut edit: TextEdit) -> TextEdit {
    if text.contains("\r\n") {
        edit.insert = edit.insert.replace('\n', "\r\n");
    }
    edit
}

fn is_bracketed(text: &str, value: Located, bracket: char) -> bool {
    let value = text.get(value.value.range());
    value.is_some_and(|it| it.starts_with(bracket))
}

fn written(layout: Layout, value: &Value) -> String {
    match layout {
        Layout::Yaml | Layout::Other => value.inline(),
        Layout::Json => value.json(),
    }
}

fn in_brackets(
    text: &str,
    list: Located,
    before: Option<Located>,
    items: &[Value],
) -> Option<TextEdit> {
    let items: Vec<String> = items.iter().map(|it| written(list.layout, it)).collect();
    let items = items.join(", ");
    if let Some(item) = before {
        let at = item.value.range().start;
        return Some(TextEdit {
            range: at..at,
            insert: format!("{items}, "),
        });
    }
    last_in_brackets(text, list, ['[', ']'], &items)
}

/// Inserts a last part into a collection in brackets.
fn last_in_brackets(
    text: &str,
    collection: Located,
    [open, close]: [char; 2],
    part: &str,
) -> Option<TextEdit> {
    let range = collection.value.range();
    let inside = text
        .get(range.clone())?
        .strip_prefix(open)?
        .strip_suffix(close)?;
    // A comment after the last part would take the new one with it.
    if inside.contains('#') {
        return None;
    }
    let kept = inside.trim_end();
    let at = range.start + open.len_utf8() + kept.len();
    let insert = match kept.trim_start() {
        "" => part.to_owned(),
        kept if kept.ends_with(',') => format!(" {part}"),
        _ => format!(", {part}"),
    };
    Some(TextEdit {
        range: at..at,
        insert,
    })
}

fn new_in_brackets(
    text: &str,
    place: ListPlace,
    key: &'static str,
    items: &[Value],
) -> Option<TextEdit> {
    let list = Value::List(items.to_vec());
    let entry = match place.parent.layout {
        Layout::Yaml | Layout::Other => format!("{key}: {}", list.inline()),
        Layout::Json => format!("\"{key}\": {}", list.json()),
    };
    last_in_brackets(text, place.parent, ['{', '}'], &entry)
}

/// Returns the start of the line of an offset, and its indentation, if only spaces precede the
/// offset.
fn line_of(text: &str, offset: usize) -> Option<(usize, &str)> {
    let before = text.get(..offset)?;
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    let indent = before.get(start..)?;
    indent
        .bytes()
        .all(|it| it == b' ')
        .then_some((start, indent))
}

/// Returns the offset of the dash of an item in block style.
fn dash(text: &str, item_start: usize) -> Option<usize> {
    // In a layout with rarities a list starts at its first dash.
    if text.get(item_start..)?.starts_with("- ") {
        return Some(item_start);
    }
    let before = text.get(..item_start)?.trim_end();
    before.ends_with('-').then(|| before.len() - 1)
}

/// Returns the end of the line after an offset, behind which only a comment may stand.
fn end_of_line(text: &str, offset: usize) -> Option<usize> {
    let rest = text.get(offset..)?;
    let line = rest.get(..rest.find('\n').unwrap_or(rest.len()))?;
    let word = line.trim();
    (word.is_empty() || word.starts_with('#')).then_some(offset + line.len())
}

fn block(items: &[Value], indent: &str) -> String {
    let lines = items.iter().flat_map(Value::item_lines);
    lines.map(|line| format!("{indent}{line}\n")).collect()
}

/// Replaces an empty list in brackets by one in block style, if its key starts its line.
fn in_emptied_block(text: &str, list: Located, items: &[Value]) -> Option<TextEdit> {
    let range = list.value.range();
    let key = list.key?.range();
    let is_empty = text.get(range.clone())? == "[]" && text.get(key.end..range.start)? == ": ";
    if list.layout == Layout::Json || !is_empty || end_of_line(text, range.end)? != range.end {
        return None;
    }
    let (_, indent) = line_of(text, key.start)?;
    let lines = block(items, indent);
    Some(TextEdit {
        range: key.end + 1..range.end,
        insert: format!("\n{}", lines.trim_end()),
    })
}

fn in_block(
    text: &str,
    list: Located,
    before: Option<Located>,
    items: &[Value],
) -> Option<TextEdit> {
    if list.layout == Layout::Json {
        return None;
    }
    let first = dash(text, list.value.range().start)?;
    let (_, indent) = line_of(text, first)?;
    if let Some(item) = before {
        let (mut at, own) = line_of(text, dash(text, item.value.range().start)?)?;
        if own != indent {
            return None;
        }
        // Comments directly above an item belong to it.
        while let Some(above) = text.get(..at)?.strip_suffix('\n') {
            let start = above.rfind('\n').map_or(0, |it| it + 1);
            let comment = above.get(start..)?.strip_prefix(indent);
            if !comment.is_some_and(|it| it.starts_with('#')) {
                break;
            }
            at = start;
        }
        return Some(TextEdit {
            range: at..at,
            insert: block(items, indent),
        });
    }
    after_line(text, list.value.range().end, &block(items, indent))
}

/// Inserts lines after the line of an offset.
fn after_line(text: &str, offset: usize, lines: &str) -> Option<TextEdit> {
    // The end of a value may be behind the end of its last line.
    let offset = text.get(..offset)?.trim_end().len();
    let end = end_of_line(text, offset)?;
    let edit = match text.get(end..)?.starts_with('\n') {
        true => TextEdit {
            range: end + 1..end + 1,
            insert: lines.to_owned(),
        },
        false => TextEdit {
            range: end..end,
            insert: format!("\n{lines}"),
        },
    };
    Some(edit)
}

fn new_in_block(
    text: &str,
    parent: Located,
    key: &'static str,
    items: &[Value],
) -> Option<TextEdit> {
    if parent.layout == Layout::Json {
        return None;
    }
    let range = parent.value.range();
    let (_, indent) = line_of(text, range.start)?;
    let lines = format!("{indent}{key}:\n{}", block(items, indent));
    after_line(text, range.end, &lines)
}

#[cfg(test)]
mod tests {
    use palisade_api::{Locator, Options, PathStep, Source, read};

    use super::*;
    use crate::edit::edited;

    /// Inserts `{port: 1}` into `spec.ingress` of a NetworkPolicy, before an item or at the end.
    fn inserted(text: &str, before: Option<usize>) -> Option<String> {
        let source = Source::new("a.yaml", text.as_bytes().to_vec());
        let sources = [source];
        let manifests = read(&sources, Options::default(), &|_| {});
        let object = &manifests.objects[0];
        let mut locator = Locator::new(&sources[0]);
        let spec = [PathStep::Field("spec")];
        let list = [PathStep::Field("spec"), PathStep::Field("ingress")];
        let place = ListPlace {
            parent: locator.locate(object, &spec)?,
            list: locator.locate(object, &list),
            before: before.and_then(|it| {
                let [spec, ingress] = list;
                locator.locate(object, &[spec, ingress, PathStep::Index(it)])
            }),
        };
        let port = Value::entry("port", Value::Number(1));
        let items = [Value::entry("ports", Value::List(vec![port]))];
        let edit = with_items(text, place, "ingress", &items)?;
        Some(edited(text, &[edit]))
    }

    const HEAD: &str =
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a}\n";

    fn check(spec: &str, before: Option<usize>, expected: Option<&str>) {
        let text = format!("{HEAD}{spec}");
        let expected = expected.map(|it| format!("{HEAD}{it}"));
        assert_eq!(inserted(&text, before), expected, "{spec}");
    }

    #[test]
    fn an_item_goes_into_a_list_in_block_style() {
        let spec = "spec:\n  ingress:\n  # one\n  - from: [] # all\n  # two\n  - ports: []\n";
        let last = format!("{spec}  - ports:\n    - port: 1\n");
        check(spec, None, Some(&last));
        let first = "spec:\n  ingress:\n  - ports:\n    - port: 1\n  # one\n  - from: [] # all\n  # two\n  - ports: []\n";
        check(spec, Some(0), Some(first));
        let middle = "spec:\n  ingress:\n  # one\n  - from: [] # all\n  - ports:\n    - port: 1\n  # two\n  - ports: []\n";
        check(spec, Some(1), Some(middle));
    }

    #[test]
    fn a_list_that_does_not_end_its_file_gets_its_item_inside() {
        let spec = "spec:\n    ingress:\n      - from: []\n    podSelector: {}";
        let expected = "spec:\n    ingress:\n      - from: []\n      - ports:\n        - port: 1\n    podSelector: {}";
        check(spec, None, Some(expected));
    }

    #[test]
    fn a_file_without_a_last_newline_gets_one() {
        let spec = "spec:\n  ingress:\n  - from: []";
        check(
            spec,
            None,
            Some("spec:\n  ingress:\n  - from: []\n  - ports:\n    - port: 1\n"),
        );
        let spec = "spec:\n  podSelector: {}";
        let expected = "spec:\n  podSelector: {}\n  ingress:\n  - ports:\n    - port: 1\n";
        check(spec, None, Some(expected));
    }

    #[test]
    fn an_item_goes_into_a_list_in_brackets() {
        check(
            "spec: {ingress: [{from: []}]}\n",
            None,
            Some("spec: {ingress: [{from: []}, {ports: [{port: 1}]}]}\n"),
        );
        check(
            "spec: {ingress: [{from: []}]}\n",
            Some(0),
            Some("spec: {ingress: [{ports: [{port: 1}]}, {from: []}]}\n"),
        );
        check(
            "spec: {ingress: []}\n",
            None,
            Some("spec: {ingress: [{ports: [{port: 1}]}]}\n"),
        );
        check(
            "spec: {podSelector: {}}\n",
            None,
            Some("spec: {podSelector: {}, ingress: [{ports: [{port: 1}]}]}\n"),
        );
        check(
            "spec: {}\n",
            None,
            Some("spec: {ingress: [{ports: [{port: 1}]}]}\n"),
        );
        // The comment would hide the item.
        check(
            "spec:\n  ingress: [\n    {from: []} # one\n  ]\n",
            None,
            None,
        );
    }

    #[test]
    fn an_empty_list_becomes_one_in_block_style() {
        let expected = "spec:\n  ingress:\n  - ports:\n    - port: 1\n  podSelector: {}\n";
        check(
            "spec:\n  ingress: []\n  podSelector: {}\n",
            None,
            Some(expected),
        );
        let expected = "spec:\n  ingress: [{ports: [{port: 1}]}] # none\n";
        check("spec:\n  ingress: [] # none\n", None, Some(expected));
    }

    #[test]
    fn json_stays_json() {
        let head = r#"{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "a"}, "spec": "#;
        let text = format!("{head}{{\"ingress\": [\n  {{}}\n]}}}}");
        let expected =
            format!("{head}{{\"ingress\": [\n  {{}}, {{\"ports\": [{{\"port\": 1}}]}}\n]}}}}");
        assert_eq!(inserted(&text, None), Some(expected));
        let text = format!("{head}{{\"podSelector\": {{}}}}}}");
        let expected = format!(
            "{head}{{\"podSelector\": {{}}, \"ingress\": [{{\"ports\": [{{\"port\": 1}}]}}]}}}}"
        );
        assert_eq!(inserted(&text, None), Some(expected));
    }

    #[test]
    fn lines_end_as_in_the_file() {
        let text = format!("{HEAD}spec:\n  ingress:\n  - from: []\n").replace('\n', "\r\n");
        let expected = format!("{text}  - ports:\r\n    - port: 1\r\n");
        assert_eq!(inserted(&text, None), Some(expected));
    }

    #[test]
    fn a_document_follows_the_others() {
        let document = Value::entry("kind", Value::text("A"));
        let appended = |text: &str| edited(text, &[with_document(text, &document)]);
        assert_eq!(appended("a: 1"), "a: 1\n---\nkind: A\n");
        assert_eq!(appended("a: 1\n"), "a: 1\n---\nkind: A\n");
        assert_eq!(appended(""), "kind: A\n");
    }
}
