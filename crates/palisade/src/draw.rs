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
        let title = normalize_untrusted_str(&problem.message);
        let mut group = Group::with_title(level.primary_title(title).id(problem.code.name()));
        group = self.place(
            group,
            placed.file,
            placed.start,
            (problem.source, problem.span),
            "",
        );
        if let (Some(related), Some((file, position))) = (&problem.related, placed.related) {
            group = self.place(
                group,
                file,
                position,
                (related.source, related.span),
                related.label,
            );
        }
        if let Some(text) = context(placed) {
            group = group.element(Level::NOTE.with_name("in").message(text));
        }
        if let Some(help) = &problem.help {
            group = group.element(Level::HELP.message(normalize_untrusted_str(help)));
        }
        self.renderer.render(&[group])
    }

    fn place<'g>(
        &self,
        group: Group<'g>,
        file: &'g str,
        (line, column): (usize, usize),
        (source, span): (SourceId, Span),
        label: &'static str,
    ) -> Group<'g> {
        let file = normalize_untrusted_str(file);
        let text = self
            .sources
            .get(source.0 as usize)
            .map_or("", |source| source.text());
        let Some(excerpt) = Excerpt::new(text, span) else {
            return group.element(Origin::path(file).line(line).char_column(column));
        };
        // The related place is drawn first in its own right, so that its label is enough.
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
    fn new(text: &str, span: Span) -> Option<Excerpt> {
        let start = (span.start as usize).min(text.len());
        let line_start = text
            .get(..start)?
            .rfind('\n')
            .map_or(0, |newline| newline + 1);
        let line_end = text
            .get(start..)?
            .find('\n')
            .map_or(text.len(), |newline| start + newline);
        let line = text.get(line_start..line_end)?;
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.is_empty() {
            return None;
        }
        let from = floor_boundary(line, (start - line_start).saturating_sub(WIDTH / 2));
        let to = floor_boundary(line, from + WIDTH);
        let (from, to) = if line.len() <= WIDTH {
            (0, line.len())
        } else {
            (from, to)
        };
        let window = line.get(from..to)?;
        let in_window = |offset: usize| offset.saturating_sub(line_start + from).min(window.len());
        let begin = in_window(start);
        let end = in_window(span.end as usize).max(begin);
        let end = if end == begin {
            ceil_boundary(window, begin + 1)
        } else {
            end
        };
        Some(Excerpt {
            text: window.to_owned(),
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
    normalize_untrusted_str(&format!(
        "{}:{line}:{column}: {}[{}]: {}{help}{context}",
        placed.file,
        problem.severity(),
        problem.code,
        problem.message,
    ))
}
