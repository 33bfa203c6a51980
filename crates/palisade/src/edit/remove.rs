//! Edits that remove one part of a text and keep every other byte.
//!
//! An edit is `None` for a layout that it does not fully understand.

use std::ops::Range;

use palisade_api::{Layout, Located, Span};

use super::TextEdit;

/// Removes an item of a list of several: in block style with its dash, its lines and the comments
/// directly above, in brackets with one comma.
pub(crate) fn without_item(text: &str, item: Located) -> Option<TextEdit> {
    if item.layout == Layout::Other {
        return None;
    }
    let value = item.value.range();
    let before = text.get(..value.start)?.trim_end();
    if before.ends_with('-') && item.layout == Layout::Yaml {
        return lines(text, before.len() - 1, value.end);
    }
    in_brackets(text, &value, ['[', ','])
}

/// Removes an entry of a mapping.
pub(crate) fn without_entry(text: &str, entry: Located) -> Option<TextEdit> {
    let key = quoted(text, entry.key?);
    if entry.layout == Layout::Other {
        return None;
    }
    let line = text.get(..key.start)?;
    let line = line.get(line.rfind('\n').map_or(0, |at| at + 1)..)?;
    if line.bytes().all(|it| it == b' ') && entry.layout == Layout::Yaml {
        return lines(text, key.start, entry.value.range().end);
    }
    in_brackets(text, &(key.start..entry.value.range().end), ['{', ','])
}

/// Empties a list.
pub(crate) fn emptied(text: &str, list: Located) -> Option<TextEdit> {
    if list.layout == Layout::Other {
        return None;
    }
    let value = list.value.range();
    if text.get(value.clone())?.starts_with('[') {
        let insert = "[]".to_owned();
        return Some(TextEdit {
            range: value,
            insert,
        });
    }
    // Block style: only white space and the dash of the first item may follow the colon. A comment
    // there would be lost.
    let start = quoted(text, list.key?).end;
    let rest = text.get(start..value.start)?;
    let between = rest.strip_prefix(':')?.trim_end().strip_suffix('-')?;
    if !between.trim().is_empty() {
        return None;
    }
    let insert = ": []".to_owned();
    Some(TextEdit {
        range: start..value.end,
        insert,
    })
}

/// Replaces a word and keeps its quotes.
pub(crate) fn renamed(text: &str, key: Span, name: &str) -> Option<TextEdit> {
    let range = key.range();
    let written = text.get(range.clone())?;
    let quote = written.chars().next().filter(|it| matches!(it, '"' | '\''));
    let insert = match quote {
        Some(quote) => format!("{quote}{name}{quote}"),
        None => name.to_owned(),
    };
    Some(TextEdit { range, insert })
}

/// Returns the range of a key with its quotes, whether or not its span includes them.
fn quoted(text: &str, key: Span) -> Range<usize> {
    let range = key.range();
    let before = range
        .start
        .checked_sub(1)
        .and_then(|at| text.get(at..range.start));
    let after = text.get(range.end..range.end + 1);
    match (before, after) {
        (Some("\""), Some("\"")) => range.start - 1..range.end + 1,
        _ => range,
    }
}

/// Removes whole lines: only spaces may precede `from` on its line, and only a comment may follow
/// `to`.
fn lines(text: &str, from: usize, to: usize) -> Option<TextEdit> {
    let before = text.get(..from)?;
    let mut start = before.rfind('\n').map_or(0, |at| at + 1);
    let indent = before.get(start..)?;
    if !indent.bytes().all(|it| it == b' ') {
        return None;
    }
    // A comment directly above, at the same depth, belongs to the item.
    while let Some(above) = text.get(..start)?.strip_suffix('\n') {
        let line_start = above.rfind('\n').map_or(0, |at| at + 1);
        let comment = above.get(line_start..)?.strip_prefix(indent);
        if !comment.is_some_and(|it| it.starts_with('#')) {
            break;
        }
        start = line_start;
    }
    let rest = text.get(to..)?;
    let line = rest.get(..rest.find('\n').map_or(rest.len(), |at| at + 1))?;
    let is_blank = |it: &str| it.is_empty() || it.starts_with('#');
    if !is_blank(line.trim()) {
        return None;
    }
    Some(TextEdit {
        range: start..to + line.len(),
        insert: String::new(),
    })
}

/// Removes a part of a collection in brackets, with one adjacent comma.
fn in_brackets(text: &str, part: &Range<usize>, opening: [char; 2]) -> Option<TextEdit> {
    let before = text.get(..part.start)?.trim_end();
    let after = text.get(part.end..)?;
    if !before.ends_with(opening) {
        return None;
    }
    let range = if let Some(rest) = after.trim_start().strip_prefix(',') {
        // The next part moves to the start of this one.
        part.start..text.len() - rest.trim_start().len()
    } else if before.ends_with(',') {
        before.len() - 1..part.end
    } else {
        return None;
    };
    // A comment in the removed white space would be lost.
    let around = [range.start..part.start, part.end..range.end];
    let has_comment = around
        .into_iter()
        .any(|it| text.get(it).is_none_or(|it| it.contains('#')));
    (!has_comment).then_some(TextEdit {
        range,
        insert: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str, cut: Option<TextEdit>) -> Option<String> {
        let TextEdit { range, insert } = cut?;
        Some(format!(
            "{}{insert}{}",
            &text[..range.start],
            &text[range.end..]
        ))
    }

    /// Returns the span of a part of a text.
    fn span(text: &str, part: &str) -> Span {
        let start = text.find(part).unwrap();
        Span::new(start, start + part.len())
    }

    fn at(text: &str, key: Option<&str>, value: &str, layout: Layout) -> Located {
        Located {
            key: key.map(|key| span(text, key)),
            value: span(text, value),
            layout,
        }
    }

    #[test]
    fn an_item_in_block_style_goes_with_its_lines_and_comments() {
        let text = "a:\n  # all\n\n  # one\n  # first\n  - x: 1 # yes\n  # two\n  - y: 2\n";
        let item = at(text, None, "x: 1", Layout::Yaml);
        let left = cut(text, without_item(text, item));
        assert_eq!(left.as_deref(), Some("a:\n  # all\n\n  # two\n  - y: 2\n"));
        let item = at(text, None, "y: 2", Layout::Yaml);
        let left = cut(text, without_item(text, item));
        let expected = "a:\n  # all\n\n  # one\n  # first\n  - x: 1 # yes\n";
        assert_eq!(left.as_deref(), Some(expected));
    }

    #[test]
    fn an_item_whose_line_has_something_else_stays() {
        let text = "- - x\n  - y\n";
        let item = at(text, None, "x", Layout::Yaml);
        assert_eq!(without_item(text, item), None);
        let item = at(text, None, "y", Layout::Other);
        assert_eq!(without_item(text, item), None);
    }

    #[test]
    fn an_item_in_brackets_goes_with_one_comma() {
        for (text, item, expected) in [
            (
                "[{a: 1}, {b: 2}, {c: 3}]",
                "{a: 1}",
                Some("[{b: 2}, {c: 3}]"),
            ),
            (
                "[{a: 1}, {b: 2}, {c: 3}]",
                "{b: 2}",
                Some("[{a: 1}, {c: 3}]"),
            ),
            (
                "[{a: 1}, {b: 2}, {c: 3}]",
                "{c: 3}",
                Some("[{a: 1}, {b: 2}]"),
            ),
            ("[\n  1,\n  2\n]", "2", Some("[\n  1\n]")),
            ("[\n  1, # one\n  2\n]", "2", None),
            ("[1]", "1", None),
        ] {
            for layout in [Layout::Yaml, Layout::Json] {
                let item = at(text, None, item, layout);
                let left = cut(text, without_item(text, item));
                assert_eq!(left.as_deref(), expected, "{text}");
            }
        }
    }

    #[test]
    fn an_entry_goes_with_its_key() {
        let text = "spec:\n  a: 1\n  # rules\n  b:\n  - x\n  - y # last\n  c: 2\n";
        let entry = at(text, Some("b"), "x\n  - y", Layout::Yaml);
        let left = cut(text, without_entry(text, entry));
        assert_eq!(left.as_deref(), Some("spec:\n  a: 1\n  c: 2\n"));
        let text = r#"{"a": 1, "b": [1, 2], "c": 3}"#;
        let entry = at(text, Some("b"), "[1, 2]", Layout::Json);
        let left = cut(text, without_entry(text, entry));
        assert_eq!(left.as_deref(), Some(r#"{"a": 1, "c": 3}"#));
    }

    #[test]
    fn a_list_is_emptied_in_its_own_style() {
        let text = "a:\n  b: # why\n  - x: 1\n    y: 2\n  c: 3\n";
        let list = at(text, Some("b"), "x: 1\n    y: 2", Layout::Yaml);
        assert_eq!(emptied(text, list), None, "a comment would be lost");
        let text = "a:\n  b:\n  - x: 1\n    y: 2\n  c: 3\n";
        let list = at(text, Some("b"), "x: 1\n    y: 2", Layout::Yaml);
        let left = cut(text, emptied(text, list));
        assert_eq!(left.as_deref(), Some("a:\n  b: []\n  c: 3\n"));
        let text = r#"{"b": [{"x": 1}]}"#;
        let list = at(text, Some("b"), r#"[{"x": 1}]"#, Layout::Json);
        let left = cut(text, emptied(text, list));
        assert_eq!(left.as_deref(), Some(r#"{"b": []}"#));
    }
}
