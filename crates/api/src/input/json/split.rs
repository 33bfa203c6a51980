//! Where the items of a large list probably start.
//!
//! Nobody can know without reading what stands before. It is guessed from how the first item starts,
//! and whoever reads the pieces finds out: if each ends just where the next one starts, all starts
//! were right.

use memchr::memmem;

/// How many pieces a list has at most.
const MOST: usize = 256;

/// Of how many bytes the start of an item is, at most.
const LONGEST_START: usize = 200;

/// The starts of pieces behind the first one, which begins at `from`, behind the list's bracket.
pub(super) fn starts(text: &[u8], from: usize, least: usize) -> Vec<usize> {
    let rest = text.get(from..).unwrap_or_default();
    let size = least.max(rest.len() / MOST).max(1);
    let Some(separator) = separator(rest).filter(|_| rest.len() / 2 > size) else {
        return Vec::new();
    };
    let finder = memmem::Finder::new(&separator.text);
    let mut starts = Vec::new();
    let mut at = size;
    while let Some(found) = rest.get(at..).and_then(|rest| finder.find(rest)) {
        at += found + separator.item;
        starts.push(from + at);
        at += size;
    }
    starts
}

/// The end of an item and the start of the next.
struct Separator {
    text: Vec<u8>,
    /// Where in the text the item starts.
    item: usize,
}

/// The end of an item, the comma, the space that stands before the first item, and how that item starts:
/// with two keys, or a key and its value. A list inside an item hardly ever looks the same.
fn separator(items: &[u8]) -> Option<Separator> {
    let space = items
        .iter()
        .position(|c| !matches!(c, b' ' | b'\n' | b'\r' | b'\t'))?;
    let item = items.get(space..)?;
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
    text.extend(items.get(..space)?);
    let item = text.len();
    text.extend(start.get(..=end)?);
    Some(Separator { text, item })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<&str> {
        let from = text.find('[').unwrap() + 1;
        let starts = starts(text.as_bytes(), from, 1);
        starts.into_iter().map(|at| &text[at..at + 3]).collect()
    }

    #[test]
    fn items_start_like_the_first_one() {
        let compact = r#"{"items":[{"a":1,"b":[{"a":3},{"a":4}]},{"a":1,"b":2},{"a":1,"b":2}]}"#;
        assert_eq!(found(compact), ["{\"a", "{\"a"]);
        let pretty = "{\"items\": [\n  {\n \"a\": 1, \"b\": 2},\n  {\n \"a\": 1, \"b\": 2}]}";
        assert_eq!(found(pretty), ["{\n "]);
        assert!(found(r#"{"items":[1,2,3,4,5,6,7,8,9]}"#).is_empty());
        assert!(found(r#"{"items":["#).is_empty());
    }
}
