//! What is wrong with a document that is not YAML, in words that help.

use crate::input::yaml::Flaw;
use crate::problem::{Code, Span};

/// Explains a syntax error of the YAML parser. `at` is its offset in the source that the document
/// starts at `base` of.
pub(crate) fn yaml_flaw(document: &str, base: usize, at: usize, info: &str) -> Flaw {
    let at = at.min(base + document.len());
    let mut flaw = Flaw {
        code: Code::YamlSyntax,
        span: Span::new(at, at + 1),
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
        flaw.message = "this alias names no anchor".to_owned();
        flaw.help = Some("define the anchor before it, with `&name`".to_owned());
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
    flaw
}

/// A Helm template gives itself away by its double braces.
pub(crate) fn template_start(document: &str) -> Option<usize> {
    let start = document.find("{{")?;
    document.get(start..)?.contains("}}").then_some(start)
}

/// The tab in the indentation of the line of an error, or of one of the two lines before it.
fn tab_near(document: &str, at: usize) -> Option<usize> {
    let mut end = at;
    for _ in 0..3 {
        let start = document
            .get(..end)?
            .rfind('\n')
            .map_or(0, |newline| newline + 1);
        let line = document.get(start..)?.lines().next().unwrap_or_default();
        let indent = line.len() - line.trim_start_matches([' ', '\t']).len();
        if let Some(tab) = line.get(..indent).and_then(|indent| indent.find('\t')) {
            return Some(start + tab);
        }
        end = start.checked_sub(1)?;
    }
    None
}

/// Advice for the mistakes that people make, from the line of the error.
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
            Some("a plain value cannot start with this sign; put it in quotes")
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
