//! User text in messages: shortened, and without control characters for the terminal.

/// The maximum number of characters of user text that a message repeats.
const SHOWN: usize = 80;

/// Returns the text in double quotes, escaped and shortened.
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", shown(text))
}

/// Returns the text in backticks, escaped and shortened.
pub fn ticked(text: &str) -> String {
    if text.is_empty() {
        return "the empty string".to_owned();
    }
    format!("`{}`", shown(text))
}

/// Returns a name without quotes, escaped. Names may be longer than other text in a message.
pub fn name(text: &str) -> String {
    // The longest name that the API allows.
    escaped(text, 253)
}

/// Returns the identifier of an object: `netpol/shop/db`, `cnp/tenants`. The namespace is empty for
/// cluster-wide kinds.
pub fn object_id(short: &str, namespace: &str, object: &str) -> String {
    match namespace {
        "" => format!("{short}/{}", name(object)),
        namespace => format!("{short}/{}/{}", name(namespace), name(object)),
    }
}

fn shown(text: &str) -> String {
    escaped(text, SHOWN)
}

fn escaped(text: &str, most: usize) -> String {
    let mut shown = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == most {
            shown.push('…');
            break;
        }
        if c.is_control() || is_invisible(c) || matches!(c, '"' | '\\') {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Returns whether a character changes the direction or the look of the text around it.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Returns the name nearest to a misspelled one, if it is near enough to be intended.
pub fn nearest<'n>(wrong: &str, names: &[&'n str]) -> Option<&'n str> {
    // The distance takes time and memory of the product of both lengths, and user text has no
    // limit.
    if wrong.len() > 64 {
        return None;
    }
    let fold = |text: &str| text.to_ascii_lowercase();
    let folded = fold(wrong);
    names
        .iter()
        .map(|name| (distance(&folded, &fold(name)), *name))
        // One edit, and one more for every five letters: among short names two edits would suggest
        // an unrelated one.
        .filter(|(distance, name)| *distance <= 1 + name.len().min(wrong.len()) / 5)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Returns whether one edit turns one word into the other. Does not allocate, since it runs for
/// every key of large objects.
pub fn is_one_edit(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len().abs_diff(b.len()) > 1 || a == b {
        return false;
    }
    let shorter = a.len().min(b.len());
    let longer = a.len().max(b.len());
    // If common prefix and suffix leave at most one letter of the longer word, that letter is the
    // edit. The suffix must not overlap the prefix: `aa` and `aaa` share both.
    let prefix = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let ends = a.iter().rev().zip(b.iter().rev());
    let suffix = ends
        .take_while(|(a, b)| a == b)
        .count()
        .min(shorter - prefix);
    let swapped = || {
        a.len() == b.len()
            && prefix + suffix + 2 == a.len()
            && a.get(prefix) == b.get(prefix + 1)
            && a.get(prefix + 1) == b.get(prefix)
    };
    prefix + suffix + 1 >= longer || swapped()
}

/// Returns the number of edits between two words; a swap of neighbors is one edit.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let width = b.len() + 1;
    let mut rows = vec![0usize; width * (a.len() + 1)];
    let set = |rows: &mut Vec<usize>, i: usize, j: usize, value: usize| {
        if let Some(cell) = rows.get_mut(i * width + j) {
            *cell = value;
        }
    };
    let cell = |rows: &[usize], i: usize, j: usize| rows.get(i * width + j).copied().unwrap_or(0);
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            let value = if i == 0 || j == 0 {
                i + j
            } else {
                let same = usize::from(a.get(i - 1) != b.get(j - 1));
                let mut best = (cell(&rows, i - 1, j) + 1)
                    .min(cell(&rows, i, j - 1) + 1)
                    .min(cell(&rows, i - 1, j - 1) + same);
                let swapped =
                    i > 1 && j > 1 && a.get(i - 1) == b.get(j - 2) && a.get(i - 2) == b.get(j - 1);
                if swapped {
                    best = best.min(cell(&rows, i - 2, j - 2) + 1);
                }
                best
            };
            set(&mut rows, i, j, value);
        }
    }
    cell(&rows, a.len(), b.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_others_are_not() {
        assert_eq!(
            nearest("samelabels", &["sameLabels", "notSameLabels"]),
            Some("sameLabels")
        );
        assert_eq!(
            nearest("namespaceSeletor", &["namespaceSelector"]),
            Some("namespaceSelector")
        );
        assert_eq!(nearest("form", &["from", "to"]), Some("from"));
        assert_eq!(nearest("banana", &["from", "to"]), None);
    }

    #[test]
    fn one_edit_is_a_change_a_gap_or_a_swap() {
        for (a, b) in [
            ("lables", "labels"),
            ("selectors", "selector"),
            ("hostNetwrk", "hostNetwork"),
            ("port", "port5"),
            ("abc", "abd"),
        ] {
            assert!(is_one_edit(a, b) && is_one_edit(b, a), "{a} {b}");
        }
        for (a, b) in [
            ("labels", "labels"),
            ("abcd", "dcba"),
            ("ab", "abcd"),
            ("affinity", "nodeName"),
        ] {
            assert!(!is_one_edit(a, b), "{a} {b}");
        }
    }

    #[test]
    fn user_text_cannot_reach_the_terminal_as_commands() {
        assert_eq!(ticked("a\u{1b}[2Jb\u{202e}"), "`a\\u{1b}[2Jb\\u{202e}`");
        assert_eq!(ticked(&"x".repeat(200)).chars().count(), SHOWN + 3);
    }
}
