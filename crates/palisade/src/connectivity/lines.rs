//! Connectivity as lines of CSV and Markdown.

use std::borrow::Cow;
use std::io::Write;

use super::Answer;
use super::names::Names;
use super::ports::Ports;
use super::rows::{plain_rows, rows};
use crate::draw::clean;

/// The most ports in a line of Markdown.
const MOST_PORTS: usize = 12;

/// The most names of a group in a line of Markdown.
const MOST_WORDS: usize = 12;

/// Formats a field of CSV: quoted where RFC 4180 requires it, never a formula to a spreadsheet, and
/// never a command to a terminal.
pub(crate) fn csv_field(text: &str) -> Cow<'_, str> {
    // A spreadsheet evaluates a field that starts with one of these, unless a quote precedes it.
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    // Byte by byte: every field of every pair passes here.
    let text = if text.bytes().any(|it| !matches!(it, b' '..=b'~')) {
        Cow::Owned(clean(text))
    } else {
        Cow::Borrowed(text)
    };
    let needs_quotes = text.bytes().any(|it| matches!(it, b'"' | b',')) || text.starts_with(' ');
    let guard = if is_formula { "'" } else { "" };
    match (is_formula, needs_quotes) {
        (false, false) => text,
        (true, false) => Cow::Owned(format!("{guard}{text}")),
        (_, true) => Cow::Owned(format!("\"{guard}{}\"", text.replace('"', "\"\""))),
    }
}

/// Escapes a cell of a Markdown table: no character in it is markup.
pub(crate) fn md_cell(text: &str) -> String {
    let mut cell = String::new();
    for c in clean(text).chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '~' | '&' => {
                cell.push('\\');
                cell.push(c);
            }
            c => cell.push(c),
        }
    }
    // A bare address would become a link.
    cell.replace("://", ":\\//").replace("www.", "www\\.")
}

/// Writes a line of CSV, with the line ending of RFC 4180.
pub(crate) fn csv_line(out: &mut impl Write, fields: &[&str]) -> std::io::Result<()> {
    for (at, field) in fields.iter().enumerate() {
        if at > 0 {
            out.write_all(b",")?;
        }
        out.write_all(csv_field(field).as_bytes())?;
    }
    out.write_all(b"\r\n")
}

/// Writes a line of a Markdown table.
pub(crate) fn md_line(out: &mut impl Write, cells: &[&str]) -> std::io::Result<()> {
    let cells: Vec<String> = cells.iter().map(|cell| md_cell(cell)).collect();
    writeln!(out, "| {} |", cells.join(" | "))
}

/// Writes the head of a Markdown table.
pub(crate) fn md_head(out: &mut impl Write, cells: &[&str]) -> std::io::Result<()> {
    md_line(out, cells)?;
    writeln!(out, "|{}", "---|".repeat(cells.len()))
}

/// Formats ports for a cell of Markdown.
pub(crate) fn md_ports(ports: &Ports) -> String {
    ports.text(MOST_PORTS)
}

/// Writes the blocks as CSV: all endpoints of a group, separated by blanks.
pub(crate) fn csv_blocks(out: &mut impl Write, answer: &Answer<'_>) -> std::io::Result<()> {
    csv_line(out, &["from", "to", "ports"])?;
    let group = |group: usize| answer.names(group).join(" ");
    for block in &answer.blocks {
        let ports = &answer.reaches.get(block.reach).marked;
        csv_line(out, &[&group(block.from), &group(block.to), ports])?;
    }
    Ok(())
}

/// Writes the blocks as a Markdown table.
pub(crate) fn md_blocks(
    out: &mut impl Write,
    answer: &Answer<'_>,
    governed_only: bool,
) -> std::io::Result<()> {
    md_head(out, &["From", "To", "Ports"])?;
    let mut line = |from: &[String], to: &[String], reach: usize| {
        let ports = md_ports(answer.reaches.get(reach));
        md_line(out, &[&from.join(", "), &to.join(", "), &ports])
    };
    let Some(rows) = rows(answer, governed_only) else {
        return plain_rows(answer, MOST_WORDS).try_for_each(|it| line(&it.0, &it.1, it.2));
    };
    let names = Names::new(&answer.ends);
    rows.iter().try_for_each(|row| {
        let (from, to) = row.few_words(answer, &names, MOST_WORDS);
        line(&from, &to, row.reach)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_is_quoted_and_no_formula() {
        assert_eq!(csv_field("shop/web-0"), "shop/web-0");
        assert_eq!(csv_field("a,b"), "\"a,b\"");
        assert_eq!(csv_field("a\"b"), "\"a\"\"b\"");
        assert_eq!(csv_field("=HYPERLINK(1)"), "'=HYPERLINK(1)");
        assert_eq!(csv_field("@a\nb"), "'@a\u{240a}b");
        assert_eq!(csv_field("\t=1"), "\"'    =1\"");
        assert_eq!(
            csv_field("\u{1b}[31m,\u{9b}1m"),
            "\"\u{241b}[31m,\u{b7}1m\""
        );
        assert_eq!(csv_field("caf\u{e9}"), "caf\u{e9}");
        assert_eq!(csv_field("-1+2"), "'-1+2");
    }

    #[test]
    fn markdown_has_no_markup_of_users() {
        assert_eq!(md_cell("a|b"), "a\\|b");
        assert_eq!(md_cell("<img src=x>"), "\\<img src=x\\>");
        assert_eq!(md_cell("[x](http://y)"), "\\[x\\](http:\\//y)");
        assert_eq!(md_cell("a\nb"), "a\u{240a}b");
        assert_eq!(md_cell("shop/web-0"), "shop/web-0");
    }
}
