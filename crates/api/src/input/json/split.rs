//! Where the items of a large list probably start.
//!
//! Only reading everything before a place shows whether an item starts there. A start is guessed
//! from how the first item starts, and reading the pieces verifies it: if each ends just where the
//! next one starts, all starts were right.

use memchr::memmem;

/// Of how many bytes the start of an item is, at most.
const LONGEST_START: usize = 200;

/// Where pieces end, and others start, from the item at `from` on: each of at least `least` bytes,
/// all together of at most `most`.
pub(super) fn cuts(text: &[u8], from: usize, least: usize, most: usize) -> Vec<usize> {
    let (before, rest) = text.split_at_checked(from).unwrap_or_default();
    let rest = rest.get(..most).unwrap_or(rest);
    let Some(separator) = separator(before, rest) else {
        return Vec::new();
    };
    let finder = memmem::Finder::new(&separator.text);
    let mut cuts = Vec::new();
    let mut at = least;
    while let Some(found) = rest.get(at..).and_then(|rest| finder.find(rest)) {
        at += found + separator.item;
        cuts.push(from + at);
        at += least;
    }
    cuts
}

/// The end of an item and the start of the next.
struct Separator {
    text: Vec<u8>,
    /// Where in the text the item starts.
    item: usize,
}

/// The end of an item, the comma, the space before the first item, and how that item starts: with
/// two keys, or a key and its value. A list inside an item hardly ever looks the same.
fn separator(before: &[u8], item: &[u8]) -> Option<Separator> {
    let is_space = |c: &&u8| matches!(c, b' ' | b'\n' | b'\r' | b'\t');
    let space = before.iter().rev().take(LONGEST_START);
    let space = space.take_while(is_space).count();
    if item.first() != Some(&b'{') {
        return None;
    }
    let start = item.get(..item.len().min(LONGEST_START))?;
    let mut in_string = false;
    let mut colons = 0;
    let end = start.iter().position(|c| {
        in_string ^= *c == b'"';
        colons += usize::from(*c == b':' && !in_string);
        colons == 2
    })?;
    let mut text = b"},".to_vec();
    text.extend(before.get(before.len() - space..)?);
    let item = text.len();
    text.extend(start.get(..=end)?);
    Some(Separator { text, item })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, least: usize, most: usize) -> Vec<&str> {
        let from = text.find('{').unwrap();
        let cuts = cuts(text.as_bytes(), from, least, most);
        cuts.into_iter().map(|at| &text[at..at + 3]).collect()
    }

    #[test]
    fn items_start_like_the_one_here() {
        let compact = r#"[{"a":1,"b":[{"a":3},{"a":4}]},{"a":1,"b":2},{"a":1,"b":2}]"#;
        assert_eq!(found(compact, 1, 1_000), ["{\"a", "{\"a"]);
        assert_eq!(found(compact, 31, 1_000), ["{\"a"]);
        assert_eq!(found(compact, 1, 50), ["{\"a"]);
        let pretty = "[\n  {\n \"a\": 1, \"b\": 2},\n  {\n \"a\": 1, \"b\": 2}]";
        assert_eq!(found(pretty, 1, 1_000), ["{\n "]);
        assert!(found("[1,2,3,4,{}]", 1, 1_000).is_empty());
    }
}
