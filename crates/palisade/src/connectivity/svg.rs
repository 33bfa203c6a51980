//! Connectivity as a drawing: groups and the flows between them, or a heat map if there are many.

mod heat;
mod layers;

use std::fmt::Write as _;

use super::rows::rows;
use super::{Answer, Table};
use crate::draw::clean;

/// The most rows that are drawn as lines between groups; more make a heat map.
const MOST_ROWS: usize = 40;

/// Colours for light and dark mode, and the classes that both drawings use.
const STYLE: &str = "\
svg { --page: #ffffff; --card: #f4f6f9; --edge: #9aa5b4; --text: #1b2430; --faint: #5a6675;
  --open: #b45309; --some: #2563eb; --mixed: #a21caf; --none: #c3cad4; }
@media (prefers-color-scheme: dark) { svg { --page: #12161c; --card: #1f2630; --edge: #56616f;
  --text: #e6eaf0; --faint: #9aa7b7; --open: #f5a742; --some: #6ea3ff; --mixed: #e28bf0; --none: #46515f; } }
text { font: 13px system-ui, 'Liberation Sans', sans-serif; fill: var(--text); }
.faint { fill: var(--faint); font-size: 12px; }
.head { font-weight: 600; fill: var(--faint); }
.page { fill: var(--page); }
.box { fill: var(--card); stroke: var(--edge); }
.line { fill: none; stroke-width: 1.6; }
.open { --ink: var(--open); } .some { --ink: var(--some); } .mixed { --ink: var(--mixed); } .none { --ink: var(--none); }
.line.open, .line.some, .line.mixed { stroke: var(--ink); } .line.mixed { stroke-dasharray: 5 4; }
.tip { fill: var(--ink); }
.ports { fill: var(--ink); font-weight: 600; }
.cell { fill: var(--ink); }
";

/// Draws groups and the flows between them; `None`: there are too many.
pub(crate) fn layers(answer: &Answer<'_>, governed_only: bool) -> Option<String> {
    let rows = rows(answer, governed_only)?;
    (rows.len() <= MOST_ROWS).then(|| layers::drawing(answer, &rows))
}

/// Draws the matrix of classes or namespaces; an error is their number if there are too many.
pub(crate) fn heat(table: &Table) -> Result<String, usize> {
    heat::drawing(table)
}

/// Escapes text for markup.
fn escaped(text: &str) -> String {
    let mut safe = String::new();
    for c in clean(text).chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

/// Wraps elements into a document.
fn document(width: f64, height: f64, title: &str, body: &str) -> String {
    let mut text = String::new();
    let title = escaped(title);
    write!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"{title}\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n\
         <rect class=\"page\" width=\"100%\" height=\"100%\"/>\n{body}</svg>\n"
    )
    .unwrap_or_default();
    text
}

/// Estimates the width of a text.
fn width_of(text: &str) -> f64 {
    text.chars()
        .map(|c| if c.is_ascii() { 7.2 } else { 13.0 })
        .sum()
}

/// Wraps words into lines of about `width` characters.
fn folded(words: &[String], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let comma = if at + 1 < words.len() { "," } else { "" };
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() + 2 <= width => {
                write!(line, " {word}{comma}").unwrap_or_default();
            }
            _ => lines.push(format!("{word}{comma}")),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_never_markup() {
        assert_eq!(
            escaped("</style><script>'\"&"),
            "&lt;/style&gt;&lt;script&gt;&#39;&quot;&amp;"
        );
        assert!(document(1.0, 1.0, "<a>", "").contains("<title>&lt;a&gt;</title>"));
    }
}
