//! The JSON output: mirror types that stay the same while the inner types change.

pub mod affecting;
pub(crate) mod connectivity;
pub(crate) mod diff;
pub mod explanation;
pub mod flow;
pub(crate) mod handover;
pub(crate) mod json;
pub(crate) mod lab;
pub(crate) mod lint;
mod proposal;
pub(crate) mod unread;

use std::collections::BTreeMap;
use std::ops::Range;

use palisade_api::{Lines, Manifests, Problem, Source, SourceId};
use palisade_core::policy::Direction;
use serde::Serialize;

pub(crate) use self::unread::{AnswerLimits, write_limited};

/// The apiVersion of every document.
pub const API_VERSION: &str = "palisade.dev/v1alpha1";

/// Returns the name of a direction.
fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Ingress => "Ingress",
        Direction::Egress => "Egress",
    }
}

/// The format of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentFormat {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// Writes one document.
pub fn write_document<T: Serialize>(
    out: &mut impl std::io::Write,
    form: DocumentFormat,
    document: &T,
) -> anyhow::Result<()> {
    match form {
        DocumentFormat::Yaml => write!(out, "{}", serde_saphyr::to_string(document)?)?,
        DocumentFormat::Json => {
            json::write_pretty(out, document)?;
            writeln!(out)?;
        }
    }
    Ok(())
}

/// A problem with its position in lines and columns.
#[derive(Debug)]
pub(crate) struct Placed<'p> {
    pub(crate) problem: &'p Problem,
    pub(crate) file: &'p str,
    pub(crate) start: (usize, usize),
    pub(crate) end: (usize, usize),
    /// The bytes of the line of its start.
    pub(crate) line: Range<usize>,
    /// The related place.
    pub(crate) related: Option<RelatedPlace<'p>>,
}

/// The related place of a problem.
#[derive(Clone, Debug)]
pub(crate) struct RelatedPlace<'p> {
    pub(crate) file: &'p str,
    pub(crate) start: (usize, usize),
    pub(crate) line: Range<usize>,
}

/// Converts offsets in sources to lines and columns.
pub(crate) struct Placer<'p> {
    sources: &'p [Source],
    lines: BTreeMap<SourceId, Lines<'p>>,
}

impl<'p> Placer<'p> {
    pub(crate) fn new(sources: &'p [Source]) -> Placer<'p> {
        Placer {
            sources,
            lines: BTreeMap::new(),
        }
    }

    /// Returns the file, the line and column, and the bytes of the line.
    pub(crate) fn place(
        &mut self,
        id: SourceId,
        offset: u32,
    ) -> (&'p str, (usize, usize), Range<usize>) {
        let source = self.sources.get(id.0 as usize);
        let lines = self
            .lines
            .entry(id)
            .or_insert_with(|| Lines::new(source.map_or("", Source::text)));
        let position = lines.position(offset as usize);
        let line = lines.line(position.0);
        (source.map_or("", Source::name), position, line)
    }
}

impl<'p> Placed<'p> {
    /// Adds positions to problems.
    pub(crate) fn all(sources: &'p [Source], problems: &'p [Problem]) -> Vec<Placed<'p>> {
        let mut placer = Placer::new(sources);
        let placed = problems.iter().map(|problem| {
            let (file, start, line) = placer.place(problem.source, problem.span.start);
            let (_, end, _) = placer.place(problem.source, problem.span.end);
            let related = problem.related.as_ref().map(|related| {
                let (file, start, line) = placer.place(related.source, related.span.start);
                RelatedPlace { file, start, line }
            });
            Placed {
                problem,
                file,
                start,
                end,
                line,
                related,
            }
        });
        placed.collect()
    }

    /// Returns the problem as JSON.
    pub(crate) fn view(&self) -> ProblemView<'_> {
        let Problem {
            code,
            object,
            path,
            message,
            help,
            ..
        } = self.problem;
        ProblemView {
            severity: self.problem.severity().name(),
            code: code.name(),
            object: object.as_deref(),
            path: path.as_deref(),
            file: self.file,
            line: self.start.0,
            column: self.start.1,
            end_line: self.end.0,
            end_column: self.end.1,
            message,
            help: help.as_deref(),
            related: self.related.as_ref().map(|related| RelatedView {
                file: related.file,
                line: related.start.0,
                column: related.start.1,
            }),
        }
    }
}

/// A problem as JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProblemView<'p> {
    severity: &'static str,
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<&'p str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'p str>,
    file: &'p str,
    line: usize,
    column: usize,
    end_line: usize,
    end_column: usize,
    message: &'p str,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<&'p str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    related: Option<RelatedView<'p>>,
}

/// The related place of a problem.
#[derive(Debug, Serialize)]
pub(crate) struct RelatedView<'p> {
    file: &'p str,
    line: usize,
    column: usize,
}

/// The document of `check`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CheckView<'p> {
    api_version: &'static str,
    kind: &'static str,
    /// Objects without errors, by kind; includes skipped kinds.
    objects: BTreeMap<String, usize>,
    /// Objects with errors, by kind.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    invalid: &'p BTreeMap<String, usize>,
    /// Objects of skipped kinds.
    #[serde(rename = "passedOver", skip_serializing_if = "Vec::is_empty")]
    skipped: Vec<SkippedKinds<'p>>,
    problems: Vec<ProblemView<'p>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SkippedKinds<'p> {
    api_version: &'p str,
    kind: &'p str,
    count: usize,
}

impl<'p> CheckView<'p> {
    pub(crate) fn new(manifests: &'p Manifests<'_>, placed: &'p [Placed<'p>]) -> CheckView<'p> {
        let mut objects = counts(manifests);
        for ((_, kind), n_objects) in &manifests.skipped {
            *objects.entry(kind.clone()).or_default() += n_objects;
        }
        let skipped = manifests.skipped.iter();
        CheckView {
            api_version: API_VERSION,
            kind: "Check",
            objects,
            invalid: &manifests.invalid,
            skipped: skipped
                .map(|((api_version, kind), count)| SkippedKinds {
                    api_version,
                    kind,
                    count: *count,
                })
                .collect(),
            problems: placed.iter().map(Placed::view).collect(),
        }
    }
}

/// Counts the valid objects of the kinds that Palisade reads, by kind.
pub(crate) fn counts(manifests: &Manifests<'_>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for object in manifests.objects.iter().filter(|object| object.valid) {
        *counts.entry(object.kind.name().to_owned()).or_default() += 1;
    }
    counts
}
