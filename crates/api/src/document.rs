//! From a document to objects: what kind it is, and the items of lists.

use crate::decode::Decode;
use crate::input::{Input, Scalar, ValueShape};
use crate::kind::{Kind, RecognizedKind, WrongKind, is_list_kind, may_be_policy, recognize_kind};
use crate::lower::UnreadScope;
use crate::manifest::{RENDER_HELP, SourcePart};
use crate::object::{Object, ObjectSpec, object};
use crate::problem::{Code, ProblemMark, Related, Span};
use crate::reader::Reader;
use crate::type_meta::{Found, List, TypeMeta};

impl<'a> Reader<'a> {
    /// Reads the items of a list that have no flaw; the flaws are sorted. Nothing is left to read
    /// in another document.
    pub(crate) fn unflawed_items<I: Input<'a> + Clone + Send + Sync>(
        &self,
        input: &mut I,
        flaws: &[Span],
        part: &mut SourcePart<'a>,
    ) {
        if input.shape() != ValueShape::Map {
            return;
        }
        let meta = TypeMeta::ahead(input.clone());
        if !meta.is_list() {
            if let Found::Text(kind, _) = &meta.kind {
                *part
                    .invalid
                    .entry(palisade_core::text::name(kind))
                    .or_default() += 1;
            }
            return;
        }
        let list = List::new(input.clone(), meta, false);
        input.enter();
        while let Some((key, _)) = input.next_key() {
            if key != "items" || input.shape() != ValueShape::Seq {
                input.skip();
                continue;
            }
            input.enter();
            while input.next_item() {
                let extent = input.extent().unwrap_or_default();
                let first = flaws.partition_point(|flaw| flaw.start < extent.start);
                if flaws
                    .get(first)
                    .is_some_and(|flaw| flaw.start <= extent.end)
                {
                    input.skip();
                } else {
                    self.value(input, Some(&list), part);
                }
            }
        }
    }

    /// Reads an object, or a list of objects.
    pub(crate) fn value<I: Input<'a> + Clone + Send + Sync>(
        &self,
        input: &mut I,
        list: Option<&List<'a, I>>,
        part: &mut SourcePart<'a>,
    ) {
        let is_map = input.shape() == ValueShape::Map;
        let meta = is_map.then(|| TypeMeta::ahead(input.clone()));
        let meta = match meta {
            Some(meta) if meta.is_list() => {
                let list = List::new(input.clone(), meta, list.is_some());
                return self.list(input, &list, part);
            }
            meta => meta,
        };
        let before = part.problems.mark();
        let n_dropped = part.dropped.len();
        self.single(input, meta, list, part);
        if input.is_broken() {
            // The type in a broken document cannot be trusted.
            part.problems.discard_since(before);
            part.dropped.truncate(n_dropped);
        }
    }

    /// Reads a document that is no list of objects; only a mapping has a type.
    fn single<I: Input<'a> + Clone + Send + Sync>(
        &self,
        input: &mut I,
        meta: Option<TypeMeta<'a>>,
        list: Option<&List<'a, I>>,
        part: &mut SourcePart<'a>,
    ) {
        let span = input.span();
        if input.shape() == ValueShape::Broken {
            return;
        }
        let Some(meta) = meta else {
            let found = input.shape().describe();
            let message = format!("expected an object, found {found}");
            let help =
                "write objects as documents separated by `---`, or as `items` of a `kind: List`";
            let problem = self.problem(Code::NotAnObject, span, message, Some(help));
            part.drop_for(problem, UnreadScope::Unknown);
            input.skip();
            return;
        };
        let meta = meta.or(list);
        let from = part.problems.mark();
        match (&meta.api_version, &meta.kind) {
            (Found::Text(api_version, _), Found::Text(kind, kind_span))
                if is_list_kind(api_version, kind) =>
            {
                self.list_without_items(input, *kind_span, part);
                if may_be_policy(api_version, kind) {
                    part.drop_since(from, UnreadScope::Unknown);
                }
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
                let message = "this document has neither `apiVersion` nor `kind`; it is skipped";
                let help = "if it is an object, add `apiVersion` and `kind`";
                part.problems
                    .push(self.problem(Code::NoType, span, message, Some(help)));
                input.skip();
            }
            (version, kind) => {
                self.missing_type(version, "apiVersion", Code::ApiVersionMissing, span, part);
                self.missing_type(kind, "kind", Code::KindMissing, span, part);
                input.skip();
                if meta.may_be_policy() {
                    part.drop_since(from, UnreadScope::Unknown);
                }
            }
        }
    }

    /// A list whose `items` are absent, null or no list.
    fn list_without_items(
        &self,
        input: &mut impl Input<'a>,
        kind: Span,
        part: &mut SourcePart<'a>,
    ) {
        let mut problem = None;
        let mut has_items = false;
        input.enter();
        while let Some((key, _)) = input.next_key() {
            let shape = input.shape();
            if key == "items" {
                has_items = true;
                if shape != ValueShape::Null {
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
        part: &mut SourcePart<'a>,
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

    /// Reads an object that declares its type.
    fn typed<I: Input<'a>>(
        &self,
        input: &mut I,
        version: (&str, Span),
        kind: (&str, Span),
        part: &mut SourcePart<'a>,
    ) {
        let from = part.problems.mark();
        let kind_name = || palisade_core::text::name(kind.0);
        let found = match recognize_kind(version.0, kind.0) {
            RecognizedKind::Known(kind) => Some(kind),
            RecognizedKind::Skipped => {
                input.skip();
                if self.duplicate_keys(input, part) {
                    *part.invalid.entry(kind_name()).or_default() += 1;
                } else {
                    let key = (palisade_core::text::name(version.0), kind_name());
                    *part.skipped.entry(key).or_default() += 1;
                }
                return;
            }
            RecognizedKind::Wrong(wrong) => self.wrong_kind(wrong, version, kind, part),
        };
        if let Some(kind) = found {
            self.object(input, version.0, kind, from, part);
        } else {
            *part.invalid.entry(kind_name()).or_default() += 1;
            input.skip();
            self.duplicate_keys(input, part);
            if may_be_policy(version.0, kind.0) {
                part.drop_since(from, UnreadScope::Unknown);
            }
        }
    }

    /// Reports a wrong type; returns the kind that is certainly meant.
    fn wrong_kind(
        &self,
        wrong: WrongKind,
        version: (&str, Span),
        kind: (&str, Span),
        part: &mut SourcePart<'a>,
    ) -> Option<Kind> {
        let (field, (_, span)) = if wrong.in_version {
            ("apiVersion", version)
        } else {
            ("kind", kind)
        };
        if is_template(version.0, kind.0) {
            let message = "this value is an unrendered template";
            let problem = self.problem(Code::HelmTemplate, span, message, Some(RENDER_HELP));
            part.problems.push(problem);
            return None;
        }
        let mut problem = self.problem(wrong.code, span, wrong.message, Some(&wrong.help));
        problem.path = Some(field.to_owned());
        part.problems.push(problem);
        wrong.meant
    }

    /// Reads an object of a known kind. `from` is the mark before its type was checked.
    fn object<I: Input<'a>>(
        &self,
        input: &mut I,
        api_version: &str,
        kind: Kind,
        from: ProblemMark,
        part: &mut SourcePart<'a>,
    ) {
        // An object that is only meant to be of this kind is validated and not kept.
        let is_kept = part.problems.mark() == from;
        let mut decode = Decode::new(
            input,
            self.text,
            self.id,
            &mut part.problems,
            self.options.as_pruned,
            api_version,
        );
        let object = object(&mut decode, kind, self.id);
        let is_misread = decode.is_misread();
        if input.is_broken() {
            // The document has its own type.
            *part.invalid.entry(kind.name().to_owned()).or_default() += 1;
            return;
        }
        self.duplicate_keys(input, part);
        if part.problems.since(from).next().is_some() {
            let named = object.as_ref().filter(|it| !it.metadata.name.is_empty());
            let id = named.map(Object::id);
            for problem in part.problems.since_mut(from) {
                problem.object.clone_from(&id);
            }
        }
        let valid = !part.problems.errors_since(from);
        if !valid {
            *part.invalid.entry(kind.name().to_owned()).or_default() += 1;
        }
        match object.filter(|_| is_kept) {
            Some(mut object) => {
                if is_misread {
                    object.spec = ObjectSpec::Unreadable;
                }
                object.valid = valid;
                part.objects.push(object);
            }
            None if kind.is_policy() && kind.is_namespaced() => {
                part.drop_since(from, UnreadScope::Unknown);
            }
            None if kind.is_policy() => part.drop_since(from, UnreadScope::Cluster),
            None => {}
        }
    }

    /// Reports duplicate keys in skipped values; returns whether there are any.
    fn duplicate_keys(&self, input: &mut impl Input<'a>, part: &mut SourcePart<'a>) -> bool {
        let duplicates = input.take_duplicates();
        for (span, first) in &duplicates {
            let key = self
                .text
                .get(span.range())
                .unwrap_or_default()
                .trim_matches('"');
            let message = format!("duplicate key {}", palisade_core::text::ticked(key));
            let help = "merge the two, or remove one";
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

    /// Reads the items of a list. If its kind, which may follow the items, is not one of a list,
    /// the object is read by its kind.
    fn list<I: Input<'a> + Clone + Send + Sync>(
        &self,
        input: &mut I,
        list: &List<'a, I>,
        part: &mut SourcePart<'a>,
    ) {
        let mut items = SourcePart::default();
        let mut is_list = true;
        input.enter();
        while let Some((key, _)) = input.next_key() {
            match (&*key, input.shape()) {
                ("items", ValueShape::Seq) => {
                    input.enter();
                    self.items(input, list, &mut items);
                }
                ("kind", ValueShape::Str) => {
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

/// Whether the type of an object is to be filled in by Helm.
fn is_template(api_version: &str, kind: &str) -> bool {
    api_version.contains("{{") || kind.contains("{{")
}
