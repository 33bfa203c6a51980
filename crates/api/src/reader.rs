//! From the text of a source to its documents: YAML or JSON, each document on its own.

use std::ops::Range;

use crate::input::json::{Json, JsonError, JsonErrorKind};
use crate::input::{Input, MAX_DEPTH, ValueShape, block, yaml};
use crate::kind::Kind;
use crate::lower::UnreadScope;
use crate::manifest::{Options, RENDER_HELP, SourcePart};
use crate::parallel_list::PIECE_BYTES;
use crate::problem::{Code, Problem, Related, SourceId, Span};
use crate::source::{Source, documents, unprintable};
use crate::syntax::template_after;
use crate::type_meta::{List, TypeMeta};

/// Reads the documents of one source.
pub(crate) struct Reader<'a> {
    pub(crate) source: &'a Source,
    pub(crate) text: &'a str,
    pub(crate) id: SourceId,
    pub(crate) options: Options,
    pub(crate) strategy: ReadStrategy,
}

/// How documents are read; the result is the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadStrategy {
    /// Whether block-style YAML is read without the full parser.
    pub(crate) blocks: bool,
    /// The least size in bytes of the pieces of a list that are read in parallel.
    pub(crate) piece_bytes: usize,
}

impl ReadStrategy {
    /// The fastest one.
    pub(crate) fn fastest() -> ReadStrategy {
        let several = rayon::current_num_threads() > 1;
        ReadStrategy {
            blocks: true,
            piece_bytes: if several { PIECE_BYTES } else { usize::MAX },
        }
    }
}

impl<'a> Reader<'a> {
    pub(crate) fn problem(
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

    /// Reports bytes that prevent reading a range at all.
    fn unreadable(&self, range: &Range<usize>) -> Option<Problem> {
        let span = self.source.broken_in(range)?;
        let help = "save the file as UTF-8";
        Some(self.problem(Code::NotUtf8, span, "these bytes are not UTF-8", Some(help)))
    }

    /// Reads one YAML document.
    pub(crate) fn yaml(&self, range: Range<usize>, part: &mut SourcePart<'a>) {
        if let Some(problem) = self.unreadable(&range) {
            part.drop_for(problem, UnreadScope::Unknown);
            return;
        }
        let document = self.text.get(range.clone()).unwrap_or_default();
        if let Some((at, c)) = unprintable(document) {
            let at = range.start + at;
            let span = Span::new(at, at + c.len_utf8());
            let message = format!(
                "YAML does not allow the control character U+{:04X}",
                u32::from(c)
            );
            let help = "remove it, or write it as an escape in double quotes";
            let problem = self.problem(Code::ControlCharacter, span, message, Some(help));
            part.drop_for(problem, UnreadScope::Unknown);
            return;
        }
        if self.json_document_in(&range, part) {
            return;
        }
        let followed = self
            .strategy
            .blocks
            .then(|| block::read(self.text, range.clone(), self.strategy.piece_bytes));
        if let Some(tree) = followed.flatten() {
            if !tree.is_empty() {
                self.value(&mut tree.cursor(), None, part);
            }
            return;
        }
        let (tree, flaws) = yaml::read(self.text, range.clone());
        if flaws.is_empty() {
            if !tree.is_empty() {
                self.value(&mut tree.cursor(), None, part);
            }
            return;
        }
        let mut places: Vec<Span> = flaws.iter().map(|flaw| flaw.span).collect();
        places.sort();
        // The first few flaws are enough; each search reads the whole document.
        let template = flaws
            .iter()
            .take(3)
            .find_map(|flaw| template_after(document, flaw.span.start as usize - range.start));
        if let Some(at) = template {
            let span = Span::new(range.start + at, range.start + at + 2);
            let message = "this is an unrendered template";
            let problem = self.problem(Code::HelmTemplate, span, message, Some(RENDER_HELP));
            part.drop_for(problem, UnreadScope::Unknown);
            return;
        }
        let from = part.problems.mark();
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
        let has_type = tree.is_complete() && tree.cursor().shape() == ValueShape::Map;
        if !has_type || TypeMeta::ahead(tree.cursor()).may_be_policy() {
            part.drop_since(from, UnreadScope::Unknown);
        }
        // In a list, the items without flaws can still be read.
        if tree.is_complete() {
            self.unflawed_items(&mut tree.cursor(), &places, part);
        }
    }

    /// Reads a document of a YAML stream as JSON, which is cheaper; returns whether it was JSON.
    fn json_document_in(&self, range: &Range<usize>, part: &mut SourcePart<'a>) -> bool {
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
        let mut found = SourcePart::default();
        self.json_document(&mut json, &mut found);
        let complete = json.error().is_none() && json.end() == end;
        if complete {
            part.append(found);
        }
        complete
    }

    /// Reads JSON values one after another. `None` if the text turns out to be YAML.
    pub(crate) fn json(&self, start: usize) -> Option<Vec<SourcePart<'a>>> {
        let mut part = SourcePart::default();
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
                // The rest of the broken document around the next one.
                at += 1;
                continue;
            }
            let mut document = SourcePart::default();
            self.json_document(&mut json, &mut document);
            let Some(error) = json.error().cloned() else {
                let end = json.end();
                self.separated(rest, end, &mut part);
                match self.unreadable(&(at..end)) {
                    Some(problem) => part.drop_for(problem, UnreadScope::Unknown),
                    None => part.append(document),
                }
                at = end;
                continue;
            };
            if at == start && !self.source.is_json_by_name() && self.is_yaml(start) {
                return None;
            }
            let is_array = rest.starts_with('[');
            let next = self.next_json_document(at, if is_array { error.offset } else { at + 1 });
            let problem = self.broken_json(&error, at..next);
            // The items of a list before the break were complete.
            part.append(document);
            part.drop_for(problem, UnreadScope::Unknown);
            at = next;
            recovering = true;
        }
    }

    /// Reads the one object that a server sent. It is JSON in any case, and no list of objects.
    pub(crate) fn served(&self, kind: Kind, api_version: &'a str) -> SourcePart<'a> {
        let mut part = SourcePart::default();
        let mut json = Json::new(self.text, 0);
        let list = List::of_one(json.clone(), api_version, kind.name());
        self.value(&mut json, Some(&list), &mut part);
        let from = part.problems.mark();
        let broken = json.error().cloned();
        let problem = match &broken {
            Some(error) => Some(self.broken_json(error, 0..self.text.len())),
            None => self.after_served(json.offset()),
        };
        if let Some(problem) = problem {
            part.problems.push(problem);
        }
        if broken.is_some() && kind.is_policy() {
            part.drop_since(from, UnreadScope::Unknown);
        }
        part
    }

    /// Reports text after the one object that a server sent.
    fn after_served(&self, end: usize) -> Option<Problem> {
        let has_more = end < self.text.len();
        has_more.then(|| {
            let span = Span::character(self.text, end);
            let message = "this is not JSON: text after the end of the object";
            self.problem(Code::JsonSyntax, span, message, None)
        })
    }

    /// Reports why a range is not JSON.
    fn broken_json(&self, error: &JsonError, range: Range<usize>) -> Problem {
        if let Some(problem) = self.unreadable(&range) {
            return problem;
        }
        // A truncated document continues into the next one.
        let document = self.text.get(range.clone()).unwrap_or_default();
        let end = range.start + document.trim_end().len();
        if error.offset > end {
            let message = "this is not JSON: the document is incomplete";
            let help = Some("is a bracket, a brace or a quote not closed?");
            return self.problem(Code::JsonSyntax, Span::new(end, end), message, help);
        }
        let span = Span::character(self.text, error.offset);
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
    }

    /// A number or a word ends at a space or punctuation; no other value may follow it directly.
    fn separated(&self, value: &str, end: usize, part: &mut SourcePart<'a>) {
        let next = self.text.as_bytes().get(end);
        let separated = next.is_none_or(|next| b" \t\r\n\"[]{},:".contains(next));
        if !value.starts_with(['{', '[', '"']) && !separated {
            let span = Span::character(self.text, end);
            let message = "this is not JSON: two values without a space between them";
            part.problems
                .push(self.problem(Code::JsonSyntax, span, message, None));
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

    /// Where the next document can start after a broken one: an object at the start of a line.
    fn next_json_document(&self, broken: usize, from: usize) -> usize {
        // It may start exactly where the error was found.
        let mut from = from.saturating_sub(1);
        while !self.text.is_char_boundary(from) {
            from -= 1;
        }
        let rest = self.text.get(from..).unwrap_or_default();
        let next = rest.match_indices('\n').map(|(at, _)| at + 1).find(|at| {
            let line = rest.get(*at..).unwrap_or_default();
            let body = line
                .strip_prefix('{')
                .map(str::trim_start)
                .unwrap_or_default();
            body.starts_with("\"apiVersion\"")
                || body.starts_with("\"kind\"")
                || line.starts_with("---")
        });
        // INVARIANT: the offset always grows, or reading would not end.
        next.map(|at| from + at)
            .filter(|next| *next > broken)
            .unwrap_or(self.text.len())
    }

    fn json_document(&self, json: &mut Json<'a>, part: &mut SourcePart<'a>) {
        if json.shape() != ValueShape::Seq {
            self.value(json, None, part);
            return;
        }
        json.enter();
        while json.next_item() {
            self.value(json, None, part);
        }
    }
}
