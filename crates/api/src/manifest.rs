//! Manifests: from sources to objects and problems, every document on its own.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use rayon::prelude::*;

use crate::kind::Kind;
use crate::lower::{Unread, UnreadScope};
use crate::object::Object;
use crate::problem::{Code, Problem, ProblemMark, Problems, Related, SourceId};
use crate::reader::{ReadStrategy, Reader};
use crate::source::{Source, documents};

pub(crate) const RENDER_HELP: &str = "render it first: `helm template CHART | palisade check -f -`";

/// How objects are to be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Drop unknown fields silently, as an API server does, and validate the rest.
    pub as_pruned: bool,
}

/// The result of reading.
#[derive(Debug, Default)]
pub struct Manifests<'a> {
    /// Objects of known kinds, in the order of the sources; invalid ones are marked.
    pub objects: Vec<Object<'a>>,
    /// All problems, in the order of the sources and positions.
    pub problems: Vec<Problem>,
    /// How many objects of other kinds were skipped, by apiVersion and kind.
    pub skipped: BTreeMap<(String, String), usize>,
    /// How many objects have errors, by kind: the invalid ones in `objects`, and those without a
    /// readable part.
    pub invalid: BTreeMap<String, usize>,
    /// The documents and items of lists that became no object and may be policies.
    pub dropped: Vec<Unread>,
}

/// Reads sources. Calls `progress` with the number of bytes read, from several threads.
pub fn read<'a>(
    sources: &'a [Source],
    options: Options,
    progress: &(dyn Fn(usize) + Sync),
) -> Manifests<'a> {
    read_by(sources, options, ReadStrategy::fastest(), progress)
}

/// [`read`] for one object that a server sent, on this thread: a second thread would start too late
/// to help.
pub fn read_served(source: &Source) -> Manifests<'_> {
    let ways = ReadStrategy {
        blocks: true,
        piece_bytes: usize::MAX,
    };
    let parts = read_source(source, SourceId(0), Options::default(), ways, &|_| {});
    gathered(parts)
}

/// [`read`] with a strategy.
pub(crate) fn read_by<'a>(
    sources: &'a [Source],
    options: Options,
    ways: ReadStrategy,
    progress: &(dyn Fn(usize) + Sync),
) -> Manifests<'a> {
    let per_source: Vec<Vec<SourcePart<'a>>> = sources
        .par_iter()
        .enumerate()
        .map(|(index, source)| {
            let id = SourceId(u32::try_from(index).unwrap_or(u32::MAX));
            read_source(source, id, options, ways, progress)
        })
        .collect();
    gathered(per_source.into_iter().flatten())
}

/// The results of all parts.
fn gathered<'a>(parts: impl IntoIterator<Item = SourcePart<'a>>) -> Manifests<'a> {
    let mut manifests = Manifests::default();
    for part in parts {
        move_to(&mut manifests.objects, part.objects);
        manifests.problems.extend(part.problems.into_vec());
        manifests.dropped.extend(part.dropped);
        for (key, count) in part.skipped {
            *manifests.skipped.entry(key).or_default() += count;
        }
        for (kind, count) in part.invalid {
            *manifests.invalid.entry(kind).or_default() += count;
        }
    }
    duplicates(&mut manifests);
    manifests
        .problems
        .sort_by_key(|it| (it.source, it.span.start, it.span.end, it.code));
    manifests
}

/// The same object twice: an error at the later one, which names the earlier (the later counts
/// under `--lenient`).
fn duplicates(manifests: &mut Manifests<'_>) {
    let Manifests {
        objects,
        problems,
        invalid,
        ..
    } = manifests;
    let mut seen: HashMap<(Kind, &str, &str), usize> = HashMap::with_capacity(objects.len());
    let mut again: Vec<(usize, usize)> = Vec::new();
    for (index, object) in objects.iter().enumerate() {
        if object.metadata.name.is_empty() {
            continue;
        }
        let namespace = object.namespace().unwrap_or_default();
        let key = (object.kind, namespace, &*object.metadata.name);
        if let Some(earlier) = seen.insert(key, index) {
            again.push((index, earlier));
        }
    }
    for (index, earlier) in again {
        let place = |object: &Object<'_>| (object.source, object.metadata.name_span);
        let Some((source, span)) = objects.get(earlier).map(place) else {
            continue;
        };
        let Some(object) = objects.get_mut(index) else {
            continue;
        };
        problems.push(Problem {
            code: Code::DuplicateObject,
            source: object.source,
            span: object.metadata.name_span,
            object: Some(object.id()),
            path: Some("metadata.name".to_owned()),
            message: format!("duplicate object `{}`", object.id()),
            help: Some("remove one of the two, or rename it".to_owned()),
            related: Some(Related {
                source,
                span,
                label: "the first one is here",
            }),
        });
        if object.valid {
            object.valid = false;
            *invalid.entry(object.kind.name().to_owned()).or_default() += 1;
        }
    }
}

/// The result of reading a part of a source.
#[derive(Default)]
pub(crate) struct SourcePart<'a> {
    pub(crate) objects: Vec<Object<'a>>,
    pub(crate) problems: Problems,
    pub(crate) skipped: BTreeMap<(String, String), usize>,
    pub(crate) invalid: BTreeMap<String, usize>,
    pub(crate) dropped: Vec<Unread>,
}

fn read_source<'a>(
    source: &'a Source,
    id: SourceId,
    options: Options,
    ways: ReadStrategy,
    progress: &(dyn Fn(usize) + Sync),
) -> Vec<SourcePart<'a>> {
    if let Some(problem) = source.problem(id) {
        let mut part = SourcePart::default();
        part.drop_for(problem, UnreadScope::Unknown);
        return vec![part];
    }
    let text = source.text();
    // A byte-order mark is no content.
    let start = if text.starts_with('\u{feff}') {
        '\u{feff}'.len_utf8()
    } else {
        0
    };
    let reader = Reader {
        source,
        text,
        id,
        options,
        strategy: ways,
    };
    if let Some((kind, api_version)) = source.type_of_served() {
        progress(text.len());
        return vec![reader.served(kind, api_version)];
    }
    let first = text.get(start..).unwrap_or_default().trim_start();
    if first.starts_with(['{', '['])
        && !first.starts_with("{{")
        && let Some(parts) = reader.json(start)
    {
        progress(text.len());
        return parts;
    }
    groups(documents(text, start))
        .into_par_iter()
        .map(|group| {
            let mut part = SourcePart::default();
            for range in group {
                let length = range.len();
                reader.yaml(range, &mut part);
                progress(length);
            }
            part
        })
        .collect()
}

/// The smallest part of a source that one task reads. Parts are shared among threads, and the
/// number of problems that are kept is limited for each.
const GROUP_BYTES: usize = 1 << 18;

fn groups(documents: Vec<Range<usize>>) -> Vec<Vec<Range<usize>>> {
    let mut groups = Vec::new();
    let mut group: Vec<Range<usize>> = Vec::new();
    let mut bytes = 0;
    for document in documents {
        bytes += document.len();
        group.push(document);
        if bytes >= GROUP_BYTES {
            groups.push(std::mem::take(&mut group));
            bytes = 0;
        }
    }
    groups.push(group);
    groups
}

/// Appends items; where there are none yet, without moving each.
fn move_to<T>(items: &mut Vec<T>, others: Vec<T>) {
    if items.is_empty() {
        *items = others;
    } else {
        items.extend(others);
    }
}

impl<'a> SourcePart<'a> {
    /// Reports a problem that keeps a document, which may be a policy, from becoming an object.
    pub(crate) fn drop_for(&mut self, problem: Problem, scope: UnreadScope) {
        let from = self.problems.mark();
        self.problems.push(problem);
        self.drop_since(from, scope);
    }

    /// Records a document that became no object and may be a policy. Its errors are those since a
    /// mark; where too many were reported to keep them, it is not recorded.
    pub(crate) fn drop_since(&mut self, from: ProblemMark, scope: UnreadScope) {
        let problem = self.problems.since(from).find(|it| it.is_error());
        let dropped = problem.map(|it| Unread::document(it.clone(), scope));
        self.dropped.extend(dropped);
    }

    pub(crate) fn append(&mut self, other: SourcePart<'a>) {
        move_to(&mut self.objects, other.objects);
        for problem in other.problems.into_vec() {
            self.problems.push(problem);
        }
        self.dropped.extend(other.dropped);
        for (key, count) in other.skipped {
            *self.skipped.entry(key).or_default() += count;
        }
        for (kind, count) in other.invalid {
            *self.invalid.entry(kind).or_default() += count;
        }
    }
}
