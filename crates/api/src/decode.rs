//! The tools that every decoder is written with: objects, lists, scalars, and their problems.
//!
//! A decoder reads and validates in one pass. An unreadable part is reported at its place and
//! returned as [`Unreadable`]: the caller decides what that means for the rule or the object around
//! it, and reading goes on.

mod wrong_type;

use std::borrow::Cow;
use std::ops::RangeInclusive;

pub(crate) use self::wrong_type::Expected;
use crate::fields::{Fields, ObjectFields, OneOfHelp, SeenKeys};
use crate::input::{Input, Scalar, ValueShape};
use crate::path::At;
use crate::problem::{Code, Problem, ProblemMark, Problems, Related, Severity, SourceId, Span};
use crate::syntax::template_start;
use palisade_core::text::{is_one_edit, nearest, ticked};

/// A part of an object that could not be read. The problem has been reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Unreadable;

/// A part of an object, or [`Unreadable`].
pub type Readable<T> = Result<T, Unreadable>;

/// A text and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text<'a> {
    /// The text.
    pub value: Cow<'a, str>,
    /// Its place.
    pub span: Span,
}

/// Reads one object from an input.
pub(crate) struct Decode<'a, 'd> {
    input: &'d mut dyn Input<'a>,
    text: &'a str,
    source: SourceId,
    problems: &'d mut Problems,
    /// The key of the value that is read next, or the value itself in a list.
    anchor: Span,
    /// The help if the next value has the wrong type.
    type_hint: Option<&'static str>,
    /// Whether unknown fields are dropped silently, as an API server does.
    as_pruned: bool,
    /// The object's apiVersion.
    api_version: &'d str,
    /// How many parts around the next value can fail on their own, without the object.
    shelters: u32,
    /// Whether a value outside those parts had the wrong type.
    misread: bool,
}

impl<'a, 'd> Decode<'a, 'd> {
    pub(crate) fn new(
        input: &'d mut dyn Input<'a>,
        text: &'a str,
        source: SourceId,
        problems: &'d mut Problems,
        as_pruned: bool,
        api_version: &'d str,
    ) -> Decode<'a, 'd> {
        let anchor = input.span();
        Decode {
            input,
            text,
            source,
            problems,
            anchor,
            type_hint: None,
            as_pruned,
            api_version,
            shelters: 0,
            misread: false,
        }
    }

    pub(crate) fn api_version(&self) -> &str {
        self.api_version
    }

    pub(crate) fn as_pruned(&self) -> bool {
        self.as_pruned
    }

    /// The key of the value that is read next.
    pub(crate) fn anchor(&self) -> Span {
        self.anchor
    }

    pub(crate) fn shape(&mut self) -> ValueShape {
        self.input.shape()
    }

    /// The place of the next value.
    pub(crate) fn span(&mut self) -> Span {
        self.input.span()
    }

    /// Whether the mapping that comes next has entries and none of these keys.
    pub(crate) fn is_bare_map(&self, keys: &[&str]) -> bool {
        let found = self.input.peek_keys();
        !found.is_empty() && !found.iter().any(|key| keys.contains(&&**key))
    }

    pub(crate) fn skip(&mut self) {
        self.input.skip();
    }

    /// How many problems there are so far; see [`errors_since`](Self::errors_since).
    pub(crate) fn mark(&self) -> ProblemMark {
        self.problems.mark()
    }

    /// Whether an error was reported since the mark.
    pub(crate) fn errors_since(&self, mark: ProblemMark) -> bool {
        self.problems.errors_since(mark)
    }

    /// Whether a subject was reported as invalid since the mark.
    pub(crate) fn invalid_subject_since(&self, mark: ProblemMark) -> bool {
        self.problems
            .since(mark)
            .any(|problem| problem.code == Code::InvalidSubject)
    }

    /// The source text of a span.
    pub(crate) fn written(&self, span: Span) -> &'a str {
        self.text.get(span.range()).unwrap_or_default()
    }

    pub(crate) fn report(
        &mut self,
        code: Code,
        at: &At<'_>,
        span: Span,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        let (mut code, mut message, mut help) = (code, message.into(), help.into());
        // A value that is wrong because Helm has not rendered it.
        if code.severity() == Severity::Error && template_start(self.written(span)).is_some() {
            code = Code::HelmTemplate;
            message = "this value is an unrendered template".to_owned();
            help = crate::manifest::RENDER_HELP.to_owned();
        }
        self.push(code, at.text(), span, message, help, None);
    }

    /// Reports a problem at a place that was read before, with a related place.
    pub(crate) fn report_two(
        &mut self,
        code: Code,
        (path, span): (Option<String>, Span),
        (label, related): (&'static str, Span),
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        let related = Related {
            source: self.source,
            span: related,
            label,
        };
        self.push(code, path, span, message.into(), help.into(), Some(related));
    }

    /// Reports a problem at a place that was read before.
    pub(crate) fn report_late(
        &mut self,
        code: Code,
        path: Option<String>,
        span: Span,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.push(code, path, span, message.into(), help.into(), None);
    }

    fn push(
        &mut self,
        code: Code,
        path: Option<String>,
        span: Span,
        message: String,
        help: String,
        related: Option<Related>,
    ) {
        self.problems.push(Problem {
            code,
            source: self.source,
            span,
            object: None,
            path,
            message,
            help: (!help.is_empty()).then_some(help),
            related,
        });
    }

    /// Sets the help for the case that the next value has the wrong type.
    pub(crate) fn hint_type(&mut self, hint: &'static str) {
        self.type_hint = Some(hint);
    }

    /// Reads a mapping: `each` gets every known field that is not null and must read its value.
    pub(crate) fn object(
        &mut self,
        at: &At<'_>,
        fields: Fields,
        mut each: impl FnMut(&mut Self, &'static str, &At<'_>),
    ) -> Readable<ObjectFields> {
        let anchor = self.anchor;
        if self.input.shape() != ValueShape::Map {
            return Err(self.wrong_type(at, Expected::Mapping));
        }
        self.type_hint = None;
        self.input.enter();
        let mut seen = 0u64;
        let mut object = ObjectFields {
            anchor,
            sound: true,
            pruned: false,
            fields,
            present: 0,
            null: 0,
            advice: String::new(),
        };
        while let Some((key, span)) = self.input.next_key() {
            let found = fields
                .names
                .iter()
                .enumerate()
                .find(|(_, name)| **name == key);
            let Some((position, name)) = found else {
                if !fields.open || misspelt(&key, fields.names) {
                    self.unknown_field(at, &key, span, &mut object);
                }
                self.input.skip();
                continue;
            };
            let bit = 1u64 << position;
            if seen & bit != 0 {
                self.duplicate_key(at, &key, span);
                continue;
            }
            seen |= bit;
            if self.input.shape() == ValueShape::Null {
                self.input.skip();
                object.null |= bit;
                continue;
            }
            object.present |= bit;
            self.anchor = span;
            each(self, name, &at.field(name));
        }
        Ok(object)
    }

    /// Reads a mapping with keys of the user's choice, such as labels.
    pub(crate) fn entries(
        &mut self,
        at: &At<'_>,
        mut each: impl FnMut(&mut Self, Text<'a>, &At<'_>),
    ) -> Readable<()> {
        if self.input.shape() != ValueShape::Map {
            return Err(self.wrong_type(at, Expected::Mapping));
        }
        self.type_hint = None;
        self.input.enter();
        let mut seen = SeenKeys::default();
        while let Some((key, span)) = self.input.next_key() {
            if !seen.insert(key.clone()) {
                self.duplicate_key(at, &key, span);
                continue;
            }
            self.anchor = span;
            each(
                self,
                Text {
                    value: key.clone(),
                    span,
                },
                &at.field(&key),
            );
        }
        Ok(())
    }

    /// JSON only: the YAML reader has already rejected the document.
    fn duplicate_key(&mut self, at: &At<'_>, key: &str, span: Span) {
        self.report(
            Code::DuplicateKey,
            &at.field(key),
            span,
            format!("duplicate key {}", ticked(key)),
            "merge the two, or remove one",
        );
        self.input.skip();
    }

    fn unknown_field(&mut self, at: &At<'_>, key: &str, span: Span, object: &mut ObjectFields) {
        if self.as_pruned {
            object.pruned = true;
            return;
        }
        object.sound = false;
        let names = object.fields.names;
        let hint = object.fields.hints.iter().find(|(wrong, _)| *wrong == key);
        let help = match (hint, nearest(key, names)) {
            (Some((_, hint)), _) => (*hint).to_owned(),
            (None, Some(name)) => format!("did you mean `{name}`?"),
            (None, None) if names.is_empty() => "it must be empty: `{}`".to_owned(),
            (None, None) if !object.fields.fallback.is_empty() => object.fields.fallback.to_owned(),
            (None, None) => format!("the fields are {}", listed(names)),
        };
        object.advice.push_str(&help);
        self.report(
            Code::UnknownField,
            &at.field(key),
            span,
            format!("unknown field {}", ticked(key)),
            help,
        );
    }

    /// Reads a list; its length must fit.
    pub(crate) fn list<T>(
        &mut self,
        at: &At<'_>,
        length: RangeInclusive<usize>,
        mut each: impl FnMut(&mut Self, &At<'_>) -> T,
    ) -> Readable<Vec<T>> {
        let anchor = self.anchor;
        if self.input.shape() != ValueShape::Seq {
            return Err(self.wrong_type(at, Expected::List));
        }
        self.type_hint = None;
        let span = self.input.span();
        self.input.enter();
        let mut items = Vec::new();
        while self.input.next_item() {
            self.anchor = self.input.span();
            let index = items.len();
            if index == *length.end() {
                let span = self.anchor;
                self.report(
                    Code::TooMany,
                    at,
                    span,
                    format!("the list has more than {} entries", length.end()),
                    format!("the entry here is number {}", index + 1),
                );
            }
            items.push(each(self, &at.index(index)));
        }
        if items.len() < *length.start() {
            let span = if span == Span::default() {
                anchor
            } else {
                span
            };
            self.report(
                Code::TooFew,
                at,
                span,
                format!(
                    "the list needs at least {} {}",
                    length.start(),
                    if *length.start() == 1 {
                        "entry"
                    } else {
                        "entries"
                    }
                ),
                "add an entry",
            );
            return Err(Unreadable);
        }
        Ok(items)
    }

    /// Reads a string.
    pub(crate) fn string(&mut self, at: &At<'_>) -> Readable<Text<'a>> {
        if self.input.shape() != ValueShape::Str {
            return Err(self.wrong_type(at, Expected::Text));
        }
        self.type_hint = None;
        match self.input.scalar() {
            (Scalar::Str(value), span) => Ok(Text { value, span }),
            _ => Err(Unreadable),
        }
    }

    /// Reads a boolean.
    pub(crate) fn boolean(&mut self, at: &At<'_>) -> Readable<bool> {
        if self.input.shape() != ValueShape::Bool {
            return Err(self.wrong_type(at, Expected::Boolean));
        }
        self.type_hint = None;
        match self.input.scalar() {
            (Scalar::Bool(value), _) => Ok(value),
            _ => Err(Unreadable),
        }
    }

    /// Reads a whole number.
    pub(crate) fn integer(&mut self, at: &At<'_>) -> Readable<(i64, Span)> {
        if self.input.shape() != ValueShape::Int {
            return Err(self.wrong_type(at, Expected::WholeNumber));
        }
        self.type_hint = None;
        match self.input.scalar() {
            (Scalar::Int(value), span) => Ok((value, span)),
            _ => Err(Unreadable),
        }
    }

    /// Reads a whole number only to see that it is one.
    pub(crate) fn check_integer(&mut self, at: &At<'_>) {
        // A problem has been reported where it was read; nothing depends on the value.
        let _ = self.integer(at);
    }

    /// Reads a whole number of a range.
    pub(crate) fn integer_in(
        &mut self,
        at: &At<'_>,
        range: RangeInclusive<i64>,
    ) -> Readable<(i64, Span)> {
        let (value, span) = self.integer(at)?;
        if !range.contains(&value) {
            self.report(
                Code::OutOfRange,
                at,
                span,
                format!(
                    "{value} is outside the range {} to {}",
                    range.start(),
                    range.end()
                ),
                "",
            );
        }
        Ok((value, span))
    }

    /// Reads a part that fails on its own: a wrong type in it is not one of the object (D123).
    pub(crate) fn independent<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> T {
        self.shelters += 1;
        let value = read(self);
        self.shelters -= 1;
        value
    }

    /// Marks the object as misread: its fields cannot be trusted.
    pub(crate) fn misread(&mut self) {
        self.misread = true;
    }

    /// Whether a value had the wrong type outside the parts that fail on their own: the object's
    /// fields cannot be trusted (D123).
    pub(crate) fn is_misread(&self) -> bool {
        self.misread
    }

    /// Skips a mapping and returns its first key.
    fn first_key(&mut self) -> Option<Cow<'a, str>> {
        let mut first = None;
        self.input.enter();
        while let Some((key, _)) = self.input.next_key() {
            first.get_or_insert(key);
            self.input.skip();
        }
        first
    }

    /// Reports a missing required field, unless the help for another key named it.
    pub(crate) fn require(&mut self, at: &At<'_>, object: &ObjectFields, name: &str, help: &str) {
        if object.has(name) || object.advises(name) {
            return;
        }
        self.report(
            Code::Required,
            &at.field(name),
            object.anchor,
            format!("the required field `{name}` is missing"),
            help,
        );
    }

    /// Checks that exactly one of several fields is there.
    pub(crate) fn one_of(
        &mut self,
        at: &At<'_>,
        object: &ObjectFields,
        names: &[&str],
        code: Code,
        OneOfHelp { none, several }: OneOfHelp,
    ) -> Readable<()> {
        let count = object.count(names);
        if count == 1 {
            return Ok(());
        }
        let advised = count == 0 && names.iter().any(|name| object.advises(name));
        if !advised || code == Code::InvalidSubject {
            let (found, help) = match count {
                0 => ("none".to_owned(), none),
                _ => (count.to_string(), several),
            };
            self.report(
                code,
                at,
                object.anchor,
                format!(
                    "exactly one of {} must be set, found {found}",
                    listed(names)
                ),
                help,
            );
        }
        Err(Unreadable)
    }

    /// Reads one of several words.
    pub(crate) fn word<T: Copy>(
        &mut self,
        at: &At<'_>,
        words: &[(&'static str, T)],
        hints: &[(&str, &str)],
    ) -> Readable<(T, Span)> {
        let text = self.string(at)?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text.value) {
            return Ok((*value, text.span));
        }
        // The zero value is accepted, not suggested.
        let names = words.iter().map(|(word, _)| *word);
        let names: Vec<&str> = names.filter(|word| !word.is_empty()).collect();
        let help = match hints.iter().find(|(wrong, _)| *wrong == text.value) {
            Some((_, hint)) => (*hint).to_owned(),
            None => match nearest(&text.value, &names) {
                Some(name) => format!("did you mean `{name}`?"),
                None => format!("the values are {}", listed(&names)),
            },
        };
        self.report(
            Code::UnknownValue,
            at,
            text.span,
            format!("{} is not a value of this field", ticked(&text.value)),
            help,
        );
        Err(Unreadable)
    }
}

/// Whether a key of an object with other fields is surely a misspelling of one that we read: it
/// would silently change what policies see. `hostIPs` is a field of its own.
fn misspelt(key: &str, names: &[&str]) -> bool {
    let near = |name: &&str| key.eq_ignore_ascii_case(name) || is_one_edit(key, name);
    key != "hostIPs" && key.len() >= 5 && names.iter().any(near)
}

/// `a`, `b` and `c`.
pub(crate) fn listed(names: &[&str]) -> String {
    let mut list = String::new();
    for (index, name) in names.iter().enumerate() {
        if index > 0 {
            list.push_str(if index + 1 == names.len() {
                " and "
            } else {
                ", "
            });
        }
        list.push_str(&format!("`{name}`"));
    }
    list
}
