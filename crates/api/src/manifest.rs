//! Manifests: from sources to objects and problems, every document on its own.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use rayon::prelude::*;

use crate::decode::Decode;
use crate::input::json::{Json, JsonErrorKind};
use crate::input::{Input, MAX_DEPTH, Scalar, Shape, yaml};
use crate::kind::{Kind, Recognised, is_list_kind, recognise};
use crate::object::{Object, object};
use crate::problem::{Code, Problem, Problems, Related, SourceId, Span};
use crate::source::{Source, documents, unprintable};
use crate::syntax::template_behind;
use crate::type_meta::{Found, List, TypeMeta};

pub(crate) const RENDER_HELP: &str = "render it first: `helm template CHART | palisade check -f -`";

/// How objects are to be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Drop unknown fields silently, as an API server does, and judge what is left.
    pub as_pruned: bool,
}

/// What was read.
#[derive(Debug, Default)]
pub struct Manifests<'a> {
    /// Objects of the kinds we know, in the order of the sources; also invalid ones, marked so.
    pub objects: Vec<Object<'a>>,
    /// Everything that is wrong or remarkable, in the order of the sources and positions.
    pub problems: Vec<Problem>,
    /// How many objects of other kinds were passed over, by apiVersion and kind.
    pub passed_over: BTreeMap<(String, String), usize>,
    /// How many objects have errors, by kind. Those of `objects` that are not valid, and those of
    /// which nothing could be kept.
    pub invalid: BTreeMap<String, usize>,
}

/// Reads sources. `progress` is told the bytes that are done, from several threads.
pub fn read<'a>(
    sources: &'a [Source],
    options: Options,
    progress: &(dyn Fn(usize) + Sync),
) -> Manifests<'a> {
    let per_source: Vec<Vec<Part<'a>>> = sources
        .par_iter()
        .enumerate()
        .map(|(index, source)| {
            let id = SourceId(u32::try_from(index).unwrap_or(u32::MAX));
            read_source(source, id, options, progress)
        })
        .collect();
    let mut manifests = Manifests::default();
    for part in per_source.into_iter().flatten() {
        manifests.objects.extend(part.objects);
        manifests.problems.extend(part.problems.into_vec());
        for (key, count) in part.passed_over {
            *manifests.passed_over.entry(key).or_default() += count;
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
    let mut seen: HashMap<(Kind, String, String), (SourceId, Span)> =
        HashMap::with_capacity(objects.len());
    for object in objects {
        if object.metadata.name.is_empty() {
            continue;
        }
        let namespace = object.namespace().unwrap_or_default().to_owned();
        let key = (
            object.kind,
            namespace,
            object.metadata.name.clone().into_owned(),
        );
        let here = (object.source, object.metadata.name_span);
        let Some((source, span)) = seen.insert(key, here) else {
            continue;
        };
        problems.push(Problem {
            code: Code::DuplicateObject,
            source: here.0,
            span: here.1,
            object: Some(object.id()),
            path: Some("metadata.name".to_owned()),
            message: format!("`{}` is given a second time", object.id()),
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

/// What was read of a part of a source.
#[derive(Default)]
struct Part<'a> {
    objects: Vec<Object<'a>>,
    problems: Problems,
    passed_over: BTreeMap<(String, String), usize>,
    invalid: BTreeMap<String, usize>,
}

fn read_source<'a>(
    source: &'a Source,
    id: SourceId,
    options: Options,
    progress: &(dyn Fn(usize) + Sync),
) -> Vec<Part<'a>> {
    if let Some(problem) = source.problem(id) {
        let mut part = Part::default();
        part.problems.push(problem);
        return vec![part];
    }
    let text = source.text();
    // A byte-order mark says nothing.
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
    };
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
            let mut part = Part::default();
            for range in group {
                let length = range.len();
                reader.yaml(range, &mut part);
                progress(length);
            }
            part
        })
        .collect()
}

/// How much of a source is read in one go, at least. Work is shared by such groups of documents, and
/// the number of problems that are kept is limited for each.
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

struct Reader<'a> {
    source: &'a Source,
    text: &'a str,
    id: SourceId,
    options: Options,
}

impl<'a> Reader<'a> {
    fn problem(
        &self,
        code: Code,
        span: Span,
        message: impl Into<String>,
        help: Option<&str>,
    ) -> Problem {
        Problem {
            code,
            source: self.id,
            span,
            object: None,
            path: None,
            message: message.into(),
            help: help.map(str::to_owned),
            related: None,
        }
    }

    /// What keeps a range from being read at all.
    fn unreadable(&self, range: &Range<usize>) -> Option<Problem> {
        let span = self.source.broken_in(range)?;
        let help = "save the file as UTF-8";
        Some(self.problem(Code::NotUtf8, span, "these bytes are not UTF-8", Some(help)))
    }

    /// Reads one YAML document.
    fn yaml(&self, range: Range<usize>, part: &mut Part<'a>) {
        if let Some(problem) = self.unreadable(&range) {
            part.problems.push(problem);
            return;
        }
        let document = self.text.get(range.clone()).unwrap_or_default();
        if let Some((at, c)) = unprintable(document) {
            let at = range.start + at;
            let span = Span::new(at, at + c.len_utf8());
            let message = format!(
                "the control character U+{:04X} cannot stand in YAML",
                u32::from(c)
            );
            let help = "remove it, or write it as an escape in double quotes";
            part.problems
                .push(self.problem(Code::ControlCharacter, span, message, Some(help)));
            return;
        }
        if self.json_document_in(&range, part) {
            return;
        }
        let (tree, flaws) = yaml::read(self.text, range.clone());
        if flaws.is_empty() {
            if !tree.is_empty() {
                self.value(&mut tree.cursor(), None, part);
            }
            return;
        }
        // The first few flaws tell; each look goes through the whole document.
        let template = flaws
            .iter()
            .take(3)
            .find_map(|flaw| template_behind(document, flaw.span.start as usize - range.start));
        if let Some(at) = template {
            let span = Span::new(range.start + at, range.start + at + 2);
            let message = "this is a template that has not been rendered";
            part.problems
                .push(self.problem(Code::HelmTemplate, span, message, Some(RENDER_HELP)));
            return;
        }
        for flaw in flaws {
            let mut problem =
                self.problem(flaw.code, flaw.span, flaw.message, flaw.help.as_deref());
            problem.path = flaw.path;
            problem.related = flaw.first.map(|span| Related {
                source: self.id,
                span,
                label: "the first one is here",
            });
            part.problems.push(problem);
        }
    }

    /// A document of a YAML stream may be JSON, which is read as such: it is cheaper. Whether it was.
    fn json_document_in(&self, range: &Range<usize>, part: &mut Part<'a>) -> bool {
        let document = self.text.get(range.clone()).unwrap_or_default();
        let body = document
            .strip_prefix("---")
            .unwrap_or(document)
            .trim_start();
        if !body.starts_with('{') || body.starts_with("{{") {
            return false;
        }
        let end = range.start + document.trim_end().len();
        let text = self.text.get(..end).unwrap_or_default();
        let mut json = Json::new(text, range.start + document.len() - body.len());
        let mut found = Part::default();
        self.json_document(&mut json, &mut found);
        let complete = json.error().is_none() && json.end() == end;
        if complete {
            part.append(found);
        }
        complete
    }

    /// Reads JSON values one after another. `None` if the text turns out to be YAML.
    fn json(&self, start: usize) -> Option<Vec<Part<'a>>> {
        let mut part = Part::default();
        let mut at = start;
        let mut recovering = false;
        loop {
            let mut json = Json::new(self.text, at);
            at = json.offset();
            let rest = self.text.get(at..).unwrap_or_default();
            if rest.is_empty() {
                return Some(vec![part]);
            }
            if let Some(after) = rest.strip_prefix("---") {
                at = self.text.len() - after.len();
                continue;
            }
            if recovering && rest.starts_with([',', ']', '}']) {
                // What is left of the broken document around the next one.
                at += 1;
                continue;
            }
            let mut document = Part::default();
            self.json_document(&mut json, &mut document);
            let Some(error) = json.error().cloned() else {
                let end = json.end();
                match self.unreadable(&(at..end)) {
                    Some(problem) => part.problems.push(problem),
                    None => part.append(document),
                }
                at = end;
                continue;
            };
            if at == start && !self.source.is_json_by_name() && self.is_yaml(start) {
                return None;
            }
            let next = self.next_json_document(at);
            let problem = self.unreadable(&(at..next)).unwrap_or_else(|| {
                // A document that is cut off runs on into the next one.
                let end = at + self.text.get(at..next).unwrap_or_default().trim_end().len();
                if error.offset > end {
                    let message = "this is not JSON: the document breaks off";
                    let help = Some("is a bracket, a brace or a quote not closed?");
                    return self.problem(Code::JsonSyntax, Span::new(end, end), message, help);
                }
                let span = Span::new(error.offset, error.offset + 1);
                match error.kind {
                    JsonErrorKind::TooDeep => self.problem(
                        Code::NestingDepth,
                        span,
                        format!("the document is nested more than {MAX_DEPTH} levels deep"),
                        None,
                    ),
                    JsonErrorKind::Syntax { message, help } => self.problem(
                        Code::JsonSyntax,
                        span,
                        format!("this is not JSON: {message}"),
                        help,
                    ),
                }
            });
            // What a broken document says of itself cannot be trusted.
            part.problems.push(problem);
            at = next;
            recovering = true;
        }
    }

    /// A value that starts like JSON and is not: is it YAML in flow style?
    fn is_yaml(&self, start: usize) -> bool {
        let readable = |range: &Range<usize>| {
            let document = self.text.get(range.clone()).unwrap_or_default();
            unprintable(document).is_none() && yaml::read(self.text, range.clone()).1.is_empty()
        };
        let rest = self.text.get(start..).unwrap_or_default().trim_start();
        let quoted_key = rest
            .get(1..)
            .unwrap_or_default()
            .trim_start()
            .starts_with('"');
        let documents = documents(self.text, start);
        !quoted_key || documents.first().is_some_and(readable)
    }

    /// Where the next document can start after a broken one: a brace at the start of a line.
    fn next_json_document(&self, from: usize) -> usize {
        let rest = self.text.get(from..).unwrap_or_default();
        let next = rest.match_indices('\n').map(|(at, _)| at + 1).find(|at| {
            let line = rest.get(*at..).unwrap_or_default();
            line.starts_with('{') || line.starts_with("---")
        });
        next.map_or(self.text.len(), |at| from + at)
    }

    fn json_document(&self, json: &mut Json<'a>, part: &mut Part<'a>) {
        if json.shape() != Shape::Seq {
            self.value(json, None, part);
            return;
        }
        json.enter();
        while json.next_item() {
            self.value(json, None, part);
        }
    }

    /// Reads an object, or a list of objects.
    fn value<I: Input<'a> + Clone>(
        &self,
        input: &mut I,
        list: Option<&List<'a, I>>,
        part: &mut Part<'a>,
    ) {
        let span = input.span();
        if input.shape() == Shape::Broken {
            return;
        }
        if input.shape() != Shape::Map {
            let found = input.shape().describe();
            let message = format!("expected an object, found {found}");
            let help =
                "write objects as documents separated by `---`, or as `items` of a `kind: List`";
            part.problems
                .push(self.problem(Code::NotAnObject, span, message, Some(help)));
            input.skip();
            return;
        }
        let meta = TypeMeta::ahead(input.clone());
        if meta.is_list() {
            self.list(input, meta, part);
            return;
        }
        let meta = meta.or(list);
        match (&meta.api_version, &meta.kind) {
            (Found::Text(api_version, _), Found::Text(kind, kind_span))
                if is_list_kind(api_version, kind) =>
            {
                self.list_without_items(input, *kind_span, part);
            }
            (Found::Text(api_version, version_span), Found::Text(kind, kind_span)) => {
                self.typed(
                    input,
                    (api_version, *version_span),
                    (kind, *kind_span),
                    part,
                );
            }
            (Found::Nothing, Found::Nothing) if list.is_none() => {
                let message =
                    "this document has neither `apiVersion` nor `kind` and is passed over";
                let help = "if it is an object, say which";
                part.problems
                    .push(self.problem(Code::NoType, span, message, Some(help)));
                input.skip();
            }
            (version, kind) => {
                self.missing_type(version, "apiVersion", Code::ApiVersionMissing, span, part);
                self.missing_type(kind, "kind", Code::KindMissing, span, part);
                input.skip();
            }
        }
    }

    /// A list whose `items` are absent, null or no list.
    fn list_without_items(&self, input: &mut impl Input<'a>, kind: Span, part: &mut Part<'a>) {
        let mut problem = None;
        let mut has_items = false;
        input.enter();
        while let Some((key, _)) = input.next_key() {
            let shape = input.shape();
            if key == "items" {
                has_items = true;
                if shape != Shape::Null {
                    let message = format!("expected a list, found {}", shape.describe());
                    let help = Some("put `- ` before each object");
                    problem = Some(self.problem(Code::WrongType, input.span(), message, help));
                }
            }
            input.skip();
        }
        if !has_items {
            let help = Some("write `items: []` for an empty list");
            problem = Some(self.problem(Code::Required, kind, "the list has no `items`", help));
        }
        if let Some(mut problem) = problem {
            problem.path = Some("items".to_owned());
            part.problems.push(problem);
        }
    }

    fn missing_type(
        &self,
        found: &Found<'a>,
        field: &'static str,
        code: Code,
        span: Span,
        part: &mut Part<'a>,
    ) {
        let mut problem = match found {
            Found::Text(..) => return,
            Found::Nothing => self.problem(
                code,
                span,
                format!("the object has no `{field}`"),
                Some("every Kubernetes object has an `apiVersion` and a `kind`"),
            ),
            Found::Other(shape, span) => self.problem(
                Code::WrongType,
                *span,
                format!("expected a string, found {}", shape.describe()),
                None,
            ),
        };
        problem.path = Some(field.to_owned());
        part.problems.push(problem);
    }

    fn typed<I: Input<'a>>(
        &self,
        input: &mut I,
        (api_version, version_span): (&str, Span),
        (kind_name, kind_span): (&str, Span),
        part: &mut Part<'a>,
    ) {
        let from = part.problems.mark();
        let kind = match recognise(api_version, kind_name) {
            Recognised::Known(kind) => Some(kind),
            Recognised::PassedOver => {
                let key = (crate::text::name(api_version), crate::text::name(kind_name));
                input.skip();
                if self.duplicate_keys(input, part) {
                    *part.invalid.entry(key.1).or_default() += 1;
                } else {
                    *part.passed_over.entry(key).or_default() += 1;
                }
                return;
            }
            Recognised::Wrong {
                code,
                message,
                help,
                in_version,
                meant,
            } => {
                let span = if in_version { version_span } else { kind_span };
                let mut problem = self.problem(code, span, message, Some(&help));
                problem.path = Some(if in_version { "apiVersion" } else { "kind" }.to_owned());
                part.problems.push(problem);
                meant
            }
        };
        let recognised = part.problems.mark() == from;
        let Some(kind) = kind else {
            *part
                .invalid
                .entry(crate::text::name(kind_name))
                .or_default() += 1;
            input.skip();
            return;
        };
        let mut decode = Decode::new(
            input,
            self.text,
            self.id,
            &mut part.problems,
            self.options.as_pruned,
            api_version,
        );
        let (id, object) = object(&mut decode, kind, self.id);
        self.duplicate_keys(input, part);
        for problem in part.problems.since_mut(from) {
            problem.object.clone_from(&id);
        }
        let valid = !part.problems.errors_since(from);
        if !valid {
            *part.invalid.entry(kind.name().to_owned()).or_default() += 1;
        }
        if let Some(mut object) = object.filter(|_| recognised) {
            object.valid = valid;
            part.objects.push(object);
        }
    }

    /// Reports keys that stand twice in what was passed over; whether there are any.
    fn duplicate_keys(&self, input: &mut impl Input<'a>, part: &mut Part<'a>) -> bool {
        let duplicates = input.take_duplicates();
        for (span, first) in &duplicates {
            let key = self
                .text
                .get(span.range())
                .unwrap_or_default()
                .trim_matches('"');
            let message = format!(
                "the key {} stands twice in this mapping",
                crate::text::ticked(key)
            );
            let help = "join the two, or remove one";
            let mut problem = self.problem(Code::DuplicateKey, *span, message, Some(help));
            problem.related = Some(Related {
                source: self.id,
                span: *first,
                label: "the first one is here",
            });
            part.problems.push(problem);
        }
        !duplicates.is_empty()
    }

    /// Reads the items of a list. If its kind, which may stand behind the items, turns out not to
    /// be one of a list, the object is read as what it is.
    fn list<I: Input<'a> + Clone>(&self, input: &mut I, meta: TypeMeta<'a>, part: &mut Part<'a>) {
        let list = List::new(input.clone(), meta);
        let mut items = Part::default();
        let mut is_list = true;
        input.enter();
        while let Some((key, _)) = input.next_key() {
            match (&*key, input.shape()) {
                ("items", Shape::Seq) => {
                    input.enter();
                    while input.next_item() {
                        self.value(input, Some(&list), &mut items);
                    }
                }
                ("kind", Shape::Str) => {
                    let (kind, _) = input.scalar();
                    is_list = matches!(kind, Scalar::Str(kind) if kind.ends_with("List"));
                }
                _ => input.skip(),
            }
        }
        if is_list {
            part.append(items);
            return;
        }
        let meta = TypeMeta::after_items(list.start.clone(), &list.meta);
        match (&meta.api_version, &meta.kind) {
            (Found::Text(version, version_span), Found::Text(kind, kind_span)) => {
                self.typed(
                    &mut list.start.clone(),
                    (version, *version_span),
                    (kind, *kind_span),
                    part,
                );
            }
            _ => part.append(items),
        }
    }
}

impl<'a> Part<'a> {
    fn append(&mut self, other: Part<'a>) {
        self.objects.extend(other.objects);
        for problem in other.problems.into_vec() {
            self.problems.push(problem);
        }
        for (key, count) in other.passed_over {
            *self.passed_over.entry(key).or_default() += count;
        }
        for (kind, count) in other.invalid {
            *self.invalid.entry(kind).or_default() += count;
        }
    }
}
