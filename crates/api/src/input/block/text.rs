//! The values of scalars that differ from their text. The scanner has checked them.

use super::Chomp;

/// The inside of a quoted scalar without escapes; a comment may follow it.
pub(super) fn bare(spelled: &str) -> &str {
    let quote = spelled.as_bytes().first().copied().unwrap_or_default();
    let inside = spelled.get(1..).unwrap_or_default();
    let length = memchr::memchr(quote, inside.as_bytes()).unwrap_or(inside.len());
    inside.get(..length).unwrap_or_default()
}

/// A plain scalar over several lines, none of them empty.
pub(super) fn unwrapped(spelled: &str) -> String {
    let mut value = String::with_capacity(spelled.len());
    for (index, line) in spelled.split('\n').enumerate() {
        if index > 0 {
            value.push(' ');
        }
        value.push_str(line.trim_matches(' '));
    }
    value
}

/// A scalar in single quotes.
pub(super) fn single(spelled: &str) -> String {
    let mut value = String::with_capacity(spelled.len());
    let mut characters = spelled.chars().skip(1).peekable();
    while let Some(c) = characters.next() {
        match c {
            '\'' if characters.next_if_eq(&'\'').is_none() => break,
            '\n' => fold(&mut value, &mut characters),
            c => value.push(c),
        }
    }
    value
}

/// A scalar in double quotes.
pub(super) fn double(spelled: &str) -> String {
    let mut value = String::with_capacity(spelled.len());
    // Escaped white space stays when a line is folded.
    let mut kept = 0;
    let mut characters = spelled.chars().skip(1).peekable();
    while let Some(c) = characters.next() {
        match c {
            '"' => break,
            '\n' => {
                let end = value.trim_end_matches([' ', '\t']).len();
                value.truncate(end.max(kept));
                while characters.next_if(|c| matches!(c, ' ' | '\t')).is_some() {}
                value.push(' ');
                kept = value.len();
            }
            '\\' => {
                match characters.next() {
                    Some('n') => value.push('\n'),
                    Some('r') => value.push('\r'),
                    Some('t') => value.push('\t'),
                    Some('u') => {
                        let digits = characters.by_ref().take(4);
                        let code = digits.filter_map(|c| c.to_digit(16));
                        let code = code.fold(0, |code, digit| code * 16 + digit);
                        value.extend(char::from_u32(code));
                    }
                    Some('\n') => {
                        while characters.next_if(|c| matches!(c, ' ' | '\t')).is_some() {}
                    }
                    Some(same) => value.push(same),
                    None => break,
                }
                kept = value.len();
            }
            c => value.push(c),
        }
    }
    value
}

/// A line break in quotes, with the white space around it, is a space.
fn fold(value: &mut String, characters: &mut std::iter::Peekable<impl Iterator<Item = char>>) {
    value.truncate(value.trim_end_matches([' ', '\t']).len());
    while characters.next_if(|c| matches!(c, ' ' | '\t')).is_some() {}
    value.push(' ');
}

/// A literal or folded block. Its indentation is that of its first line, which starts in `before`.
pub(super) fn block(before: &str, spelled: &str, literal: bool, chomp: Chomp) -> String {
    let indent = before.len() - before.rfind('\n').map_or(0, |at| at + 1);
    let mut value = String::with_capacity(spelled.len());
    // Breaks since the last line with text: the one that ended it, and those of empty lines.
    let mut ended = false;
    let mut empty = 0;
    let mut was_blank = false;
    for (index, line) in spelled.split_inclusive('\n').enumerate() {
        let has_break = line.ends_with('\n');
        let line = line.strip_suffix('\n').unwrap_or(line);
        let inset = line.len() - line.trim_start_matches(' ').len();
        let inset = if index == 0 { 0 } else { inset.min(indent) };
        let line = line.get(inset..).unwrap_or_default();
        if line.is_empty() {
            // The rest of the line after the block has no line break.
            empty += usize::from(has_break);
            continue;
        }
        let blank = line.starts_with([' ', '\t']);
        if !literal && ended && !was_blank && !blank {
            if empty == 0 {
                value.push(' ');
            }
        } else if ended {
            value.push('\n');
        }
        value.extend(std::iter::repeat_n('\n', empty));
        value.push_str(line);
        (ended, empty, was_blank) = (has_break, 0, blank);
    }
    if chomp != Chomp::Strip && ended {
        value.push('\n');
    }
    if chomp == Chomp::Keep {
        value.extend(std::iter::repeat_n('\n', empty));
    }
    value
}
