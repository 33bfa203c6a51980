//! Problems drawn for people: the line, a caret, and what to do.

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{
    AnnotationKind, Group, Level, Origin, Renderer, Snippet, normalize_untrusted_str,
};
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

    /// A problem, as several lines without a newline at the end.
    pub(crate) fn draw(&self, placed: &Placed<'_>) -> String {
        let problem = placed.problem;
        let level = match problem.severity() {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
            Severity::Info => Level::INFO,
        };
        let title = level.primary_title(clean(&problem.message));
        let mut group = Group::with_title(title.id(problem.code.name()));
        let spot = Spot {
            file: placed.file,
            position: placed.start,
            line: placed.line.clone(),
            source: problem.source,
            span: problem.span,
        };
        group = self.place(group, &spot, "");
        if let (Some(related), Some(place)) = (&problem.related, &placed.related) {
            let spot = Spot {
                file: place.file,
                position: place.start,
                line: place.line.clone(),
                source: related.source,
                span: related.span,
            };
            group = self.place(group, &spot, related.label);
        }
        if let Some(text) = context(placed) {
            group = group.element(Level::NOTE.with_name("in").message(clean(&text)));
        }
        if let Some(help) = &problem.help {
            group = group.element(Level::HELP.message(clean(help)));
        }
        self.renderer.render(&[group])
    }

    fn place<'g>(&self, group: Group<'g>, spot: &Spot<'_>, label: &'static str) -> Group<'g> {
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

/// A place to draw.
struct Spot<'p> {
    file: &'p str,
    position: (usize, usize),
    line: std::ops::Range<usize>,
    source: SourceId,
    span: Span,
}

/// Text without anything that a terminal would obey, in one line.
pub(crate) fn clean(text: &str) -> String {
    let text: String = text.chars().map(visible).collect();
    normalize_untrusted_str(&text).replace('\n', "\u{240a}")
}

/// Stand-ins of the same length for the control characters that the library leaves alone.
fn visible(c: char) -> char {
    match c {
        '\u{80}'..='\u{9f}' => '\u{b7}',
        '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
        c => c,
    }
}

/// The object and the field.
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
    fn new(text: &str, spot: &Spot<'_>) -> Option<Excerpt> {
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

/// A problem in one line.
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
