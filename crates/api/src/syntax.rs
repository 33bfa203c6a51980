//! Messages and helps for documents that are not YAML.

use std::ops::Range;

use crate::input::yaml::DocumentFlaw;
use crate::problem::{Code, Span};

/// Explains a syntax error of the YAML parser. `at` is its offset in the source, and `base` that of
/// the document.
pub(crate) fn yaml_flaw(document: &str, base: usize, at: usize, info: &str) -> DocumentFlaw {
    let at = at.min(base + document.len());
    let mut flaw = DocumentFlaw {
        code: Code::YamlSyntax,
        span: character(document, base, at),
        path: None,
        message: String::new(),
        help: None,
        first: None,
    };
    if info.contains("recursion limit") {
        flaw.code = Code::NestingDepth;
        flaw.message = "the document is nested too deep".to_owned();
        return flaw;
    }
    if info.contains("unknown anchor") {
        flaw.code = Code::AliasUndefined;
        let alias = document.get(at - base..).unwrap_or_default();
        let alias = alias
            .split([' ', '\n', '\r', '\t', ',', ']', '}'])
            .next()
            .unwrap_or_default();
        flaw.span = Span::new(at, at + alias.len().max(1));
        flaw.message = format!(
            "the alias {} names no anchor",
            palisade_core::text::ticked(alias)
        );
        flaw.help = Some(
            "define the anchor before it, with `&name`; put the value in quotes if it is text"
                .to_owned(),
        );
        return flaw;
    }
    if let Some(tab) = tab_near(document, at - base) {
        flaw.code = Code::TabIndent;
        flaw.span = Span::new(base + tab, base + tab + 1);
        flaw.message = "a tab indents this line".to_owned();
        flaw.help = Some("YAML allows only spaces for indentation".to_owned());
        return flaw;
    }
    // The parser quotes characters of the document in a few of its messages.
    let info: String = info.chars().flat_map(printable).collect();
    flaw.message = format!("this is not YAML: {}", info.trim_end_matches('.'));
    flaw.help = syntax_help(document, at - base).map(str::to_owned);
    if info.contains("simple key expect") || info.contains("expected ':'") {
        key_without_colon(document, base, at, &mut flaw);
    } else if info.contains("mapping values are not allowed") {
        // The parser read the line before as the start of this one.
        let line = document.get(..at - base).unwrap_or_default().rfind('\n');
        key_without_colon(document, base, base + line.unwrap_or(0), &mut flaw);
    }
    flaw
}

/// A piece of layout that the parser rejects and kubectl's reader accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LenientSyntax {
    pub(crate) range: Range<usize>,
    /// Whether all of it counts as spaces, or only its line breaks and tabs.
    pub(crate) blank: bool,
}

/// The layout at an error, if kubectl's reader accepts it: the end of a quoted text over several
/// lines may be further left than YAML allows, and so may everything in brackets, where also tabs
/// are spaces.
pub(crate) fn soft_layout(document: &str, at: usize, info: &str) -> Vec<LenientSyntax> {
    if info.contains("invalid indentation in quoted scalar") {
        let length = document.get(at..).and_then(quoted_length);
        let breaks = length.map(|length| LenientSyntax {
            range: at..at + length,
            blank: false,
        });
        return breaks.into_iter().collect();
    }
    let place = match tab_near(document, at) {
        Some(tab) => tab,
        None if info.contains("invalid indentation") => at,
        None => return Vec::new(),
    };
    in_brackets(document, place)
}

/// The outermost collection in brackets around a place, and the comments in it, which would hide
/// the rest once it is all one line. The parser itself has read further when it reports an error.
fn in_brackets(document: &str, place: usize) -> Vec<LenientSyntax> {
    let mut depth = 0_u32;
    let mut start = 0;
    let mut comments = Vec::new();
    let mut at = 0;
    let mut before = ' ';
    while let Some(c) = document.get(at..).and_then(|rest| rest.chars().next()) {
        let rest = document.get(at..).unwrap_or_default();
        // Inside a word these characters are text.
        let starts = before.is_whitespace() || matches!(before, '[' | '{' | ',' | ':');
        let mut length = c.len_utf8();
        match c {
            '[' | '{' if starts || depth > 0 => {
                if depth == 0 {
                    start = at;
                    comments.clear();
                }
                depth += 1;
            }
            ']' | '}' if depth > 0 => {
                depth -= 1;
                if depth == 0 && start <= place && place <= at {
                    comments.push(LenientSyntax {
                        range: start..at + 1,
                        blank: false,
                    });
                    return comments;
                }
            }
            '"' | '\'' if starts => length = quoted_length(rest).unwrap_or(length),
            '#' if before.is_whitespace() => {
                length = rest.find('\n').unwrap_or(rest.len()).max(1);
                comments.push(LenientSyntax {
                    range: at..at + length,
                    blank: true,
                });
            }
            _ => {}
        }
        if depth == 0 && at > place {
            break;
        }
        before = document
            .get(at..at + length)
            .and_then(|it| it.chars().next_back())
            .unwrap_or(c);
        at += length;
    }
    Vec::new()
}

/// The length of a quoted text with its quotes.
fn quoted_length(text: &str) -> Option<usize> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let mut characters = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = characters.next() {
        if quote == '"' && c == '\\' {
            characters.next();
        } else if c == quote {
            // In single quotes a quote is written twice.
            let is_twice = quote == '\'' && characters.next_if(|(_, c)| *c == quote).is_some();
            if !is_twice {
                return Some(at + 1);
            }
        }
    }
    None
}

/// The character at an offset of the source. `base` is the offset of the document.
fn character(document: &str, base: usize, at: usize) -> Span {
    let Span { start, end } = Span::character(document, at - base);
    Span::new(base + start as usize, base + end as usize)
}

/// Whether a text has the double braces of a Helm template.
pub(crate) fn template_start(document: &str) -> Option<usize> {
    let start = document.find("{{")?;
    document.get(start..)?.contains("}}").then_some(start)
}

/// The place of the template that causes a flaw: in the flaw's own lines, or at the start of any
/// line, where it can only be a directive of the template. Braces in a quoted text elsewhere are
/// not the cause.
pub(crate) fn template_after(document: &str, flaw: usize) -> Option<usize> {
    template_start(document)?;
    let mut at = 0;
    for line in document.split_inclusive('\n') {
        let end = at + line.len();
        let near = at <= flaw && flaw <= end;
        let directive = is_directive(line.trim_start());
        if (near || directive)
            && let Some(start) = line.find("{{")
        {
            return Some(at + start);
        }
        at = end;
    }
    None
}

/// Whether a line is one that only a template can have, and not the text of some literal.
fn is_directive(line: &str) -> bool {
    const WORDS: [&str; 10] = [
        "if ",
        "range ",
        "with ",
        "end",
        "else",
        "define ",
        "include ",
        "template ",
        "block ",
        "/*",
    ];
    let Some(inside) = line.strip_prefix("{{") else {
        return false;
    };
    match inside.strip_prefix('-') {
        Some(_) => true,
        None => WORDS
            .iter()
            .any(|word| inside.trim_start().starts_with(word)),
    }
}

/// The tab in the indentation of the line of an error, of the next line, or of one of the two lines
/// before it: the parser reports some tabs late, and some one line early.
fn tab_near(document: &str, at: usize) -> Option<usize> {
    let line_start = |end: usize| {
        document
            .get(..end)
            .and_then(|before| before.rfind('\n'))
            .map_or(0, |newline| newline + 1)
    };
    let here = line_start(at);
    let next = document
        .get(at..)?
        .find('\n')
        .map(|newline| at + newline + 1);
    let before = here.checked_sub(1).map(line_start);
    let before_that = before
        .and_then(|before| before.checked_sub(1))
        .map(line_start);
    [Some(here), next, before, before_that]
        .into_iter()
        .flatten()
        .find_map(|start| {
            let line = document.get(start..)?.lines().next()?;
            let indent = line.len() - line.trim_start_matches([' ', '\t']).len();
            line.get(..indent)?.find('\t').map(|tab| start + tab)
        })
}

/// Finds the line without a colon: the parser reports it only on the next line.
fn key_without_colon(document: &str, base: usize, at: usize, flaw: &mut DocumentFlaw) {
    let before = document.get(..at - base).unwrap_or_default().trim_end();
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.get(start..).unwrap_or_default();
    let word = line.trim_start().trim_start_matches("- ");
    let is_entry = word.contains(": ") || word.ends_with(':');
    if word.is_empty() || is_entry || word.starts_with(['#', '"', '\'', '[', '{', '|', '>', '-']) {
        return;
    }
    let start = base + before.len() - word.len();
    flaw.span = Span::new(start, start + word.len());
    if word.contains(':') {
        flaw.message = "this is not YAML: there is no space after `:`".to_owned();
        flaw.help = Some("write `key: value`, with a space".to_owned());
    } else {
        flaw.message = "this is not YAML: a `:` is missing".to_owned();
        flaw.help =
            Some("write `key: value`; or is the line indented too far to the left?".to_owned());
    }
}

/// The help for common mistakes, from the line of the error.
fn syntax_help(document: &str, at: usize) -> Option<&'static str> {
    let start = document
        .get(..at)?
        .rfind('\n')
        .map_or(0, |newline| newline + 1);
    let line = document.get(start..)?.lines().next().unwrap_or_default();
    let in_braces = |sign: char| {
        line.split_once('{')
            .is_some_and(|(_, rest)| rest.split('}').next().is_some_and(|it| it.contains(sign)))
    };
    if in_braces(';') {
        return Some(
            "separate the entries of `{...}` by `,`; a list such as `matchExpressions` needs `- ` or `[...]` around each `{...}`",
        );
    }
    let value = line.split_once(": ").map(|(_, value)| value.trim_start());
    match value.and_then(|value| value.chars().next()) {
        Some('*') => Some("a plain value cannot start with `*`; put it in quotes"),
        Some('@' | '`' | '%') => {
            Some("a plain value cannot start with this character; put it in quotes")
        }
        Some('{' | '[' | '"' | '\'') => {
            Some("is a bracket or a quote not closed, or a `,` missing?")
        }
        Some(_) if value.is_some_and(|value| value.contains(": ")) => {
            Some("a plain value cannot contain `: `; put it in quotes")
        }
        _ => Some("check the indentation and the quotes of this line and the one before it"),
    }
}

fn printable(c: char) -> Vec<char> {
    if c.is_control() {
        c.escape_default().collect()
    } else {
        vec![c]
    }
}
