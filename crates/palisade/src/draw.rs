//! Draws problems for people: the line, a caret, and what to do.

use std::fmt::Display;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{
    AnnotationKind, Group, Level, Origin, Renderer, Snippet, normalize_untrusted_str,
};
use anstyle::Style;
use palisade_api::{Severity, Source, SourceId, Span};

use crate::view::Placed;

/// The longest part of a line that is shown. JSON is often one line.
const WIDTH: usize = 120;

/// Draws problems of some sources.
pub(crate) struct Drawing<'s> {
    sources: &'s [Source],
    renderer: Renderer,
}

impl<'s> Drawing<'s> {
    pub(crate) fn new(sources: &'s [Source]) -> Drawing<'s> {
        // Colours are removed by the stream where they are not wanted.
        Drawing {
            sources,
            renderer: Renderer::styled()
                .decor_style(DecorStyle::Ascii)
                .term_width(160),
        }
    }

    /// Draws a problem as several lines, without a newline at the end.
    pub(crate) fn draw(&self, placed: &Placed<'_>) -> String {
        let problem = placed.problem;
        let related = match (&problem.related, &placed.related) {
            (Some(related), Some(place)) => Some((
                DrawnSpan {
                    file: place.file,
                    position: place.start,
                    line: place.line.clone(),
                    source: related.source,
                    span: related.span,
                },
                related.label,
            )),
            _ => None,
        };
        self.draw_spotted(&DrawnProblem {
            severity: problem.severity(),
            code: problem.code.name(),
            message: &problem.message,
            help: problem.help.as_deref(),
            context: context(placed),
            spot: Some(DrawnSpan {
                file: placed.file,
                position: placed.start,
                line: placed.line.clone(),
                source: problem.source,
                span: problem.span,
            }),
            related,
        })
    }

    /// Draws a problem or a finding.
    pub(crate) fn draw_spotted(&self, drawn: &DrawnProblem<'_>) -> String {
        let level = match drawn.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
            Severity::Info => Level::INFO,
        };
        let title = level.primary_title(clean(drawn.message));
        let mut group = Group::with_title(title.id(drawn.code));
        if let Some(spot) = &drawn.spot {
            group = self.place(group, spot, "");
        }
        if let Some((spot, label)) = &drawn.related {
            group = self.place(group, spot, label);
        }
        if let Some(text) = &drawn.context {
            group = group.element(Level::NOTE.with_name("in").message(clean(text)));
        }
        if let Some(help) = drawn.help {
            group = group.element(Level::HELP.message(clean(help)));
        }
        self.renderer.render(&[group])
    }

    fn place<'g>(&self, group: Group<'g>, spot: &DrawnSpan<'_>, label: &'static str) -> Group<'g> {
        let file = clean(spot.file);
        let (line, column) = spot.position;
        let source = self.sources.get(spot.source.0 as usize);
        let text = source.map_or("", |source| source.text());
        let Some(excerpt) = Excerpt::new(text, spot) else {
            return group.element(Origin::path(file).line(line).char_column(column));
        };
        let annotation = AnnotationKind::Primary.span(excerpt.span);
        let annotation = if label.is_empty() {
            annotation
        } else {
            annotation.label(label)
        };
        let snippet = Snippet::source(excerpt.text)
            .line_start(line)
            .annotation(annotation);
        if excerpt.cut {
            // The library would count columns from the cut.
            let origin = Origin::path(file).line(line).char_column(column);
            return group.element(origin).element(snippet);
        }
        group.element(snippet.path(file))
    }
}

/// A problem or finding to draw.
pub(crate) struct DrawnProblem<'p> {
    pub(crate) severity: Severity,
    pub(crate) code: &'static str,
    pub(crate) message: &'p str,
    pub(crate) help: Option<&'p str>,
    /// The object and the field.
    pub(crate) context: Option<String>,
    pub(crate) spot: Option<DrawnSpan<'p>>,
    /// A related place, and its label.
    pub(crate) related: Option<(DrawnSpan<'p>, &'static str)>,
}

/// A place to draw.
pub(crate) struct DrawnSpan<'p> {
    pub(crate) file: &'p str,
    pub(crate) position: (usize, usize),
    pub(crate) line: std::ops::Range<usize>,
    pub(crate) source: SourceId,
    pub(crate) span: Span,
}

/// Returns text in one line, without characters that command a terminal.
// The library keeps line breaks; a name that contains one must not forge a line of output.
pub(crate) fn clean(text: &str) -> String {
    let text: String = text.chars().map(visible).collect();
    normalize_untrusted_str(&text).replace('\n', "\u{240a}")
}

/// Counts things: `1 object`, `2 objects`.
pub(crate) fn counted<N: Copy + Display + PartialEq + From<u8>>(count: N, what: &str) -> String {
    let ending = if count == N::from(1) { "" } else { "s" };
    format!("{count} {what}{ending}")
}

/// Paints a text in a style.
pub(crate) fn painted(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// Replaces control characters that the library leaves alone, by characters of the same length.
fn visible(c: char) -> char {
    match c {
        '\u{80}'..='\u{9f}' => '\u{b7}',
        '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
        c => c,
    }
}

/// Formats the object and the field.
fn context(placed: &Placed<'_>) -> Option<String> {
    let problem = placed.problem;
    match (&problem.object, &problem.path) {
        (Some(object), Some(path)) => Some(format!("{object} {path}")),
        (Some(object), None) => Some(object.clone()),
        (None, Some(path)) => Some(path.clone()),
        (None, None) => None,
    }
}

/// The line of a span, cut to a width around it.
struct Excerpt {
    text: String,
    span: std::ops::Range<usize>,
    cut: bool,
}

impl Excerpt {
    fn new(text: &str, spot: &DrawnSpan<'_>) -> Option<Excerpt> {
        let line = text.get(spot.line.clone())?;
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.is_empty() {
            return None;
        }
        let within = |offset: u32| (offset as usize).saturating_sub(spot.line.start);
        let start = floor_boundary(line, within(spot.span.start));
        let (from, to) = if line.len() <= WIDTH {
            (0, line.len())
        } else {
            let from = floor_boundary(line, start.saturating_sub(WIDTH / 2));
            (from, floor_boundary(line, from + WIDTH))
        };
        let window = line.get(from..to)?;
        let begin = floor_boundary(window, start - from);
        let end = ceil_boundary(window, within(spot.span.end).saturating_sub(from));
        let end = if end <= begin {
            ceil_boundary(window, begin + 1)
        } else {
            end
        };
        Some(Excerpt {
            text: window.chars().map(visible).collect(),
            span: begin..end,
            cut: line.len() > WIDTH,
        })
    }
}

fn floor_boundary(text: &str, mut at: usize) -> usize {
    at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn ceil_boundary(text: &str, mut at: usize) -> usize {
    at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

/// Formats a problem in one line.
pub(crate) fn line(placed: &Placed<'_>) -> String {
    let problem = placed.problem;
    let context = context(placed)
        .map(|context| format!(" [{context}]"))
        .unwrap_or_default();
    let help = problem
        .help
        .as_ref()
        .map(|help| format!(" ({help})"))
        .unwrap_or_default();
    let (line, column) = placed.start;
    clean(&format!(
        "{}:{line}:{column}: {}[{}]: {}{help}{context}",
        placed.file,
        problem.severity(),
        problem.code,
        problem.message,
    ))
}
