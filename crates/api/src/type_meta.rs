//! The type of a document, and lists that declare the type of their items.

use std::borrow::Cow;
use std::sync::OnceLock;

use crate::input::{Input, Scalar, ValueShape};
use crate::kind::may_be_policy;
use crate::problem::Span;

/// A field of an object's type.
#[derive(Clone, Debug)]
pub(crate) enum Found<'a> {
    Nothing,
    Text(Cow<'a, str>, Span),
    Other(ValueShape, Span),
}

/// The type that an object declares.
#[derive(Clone, Debug)]
pub(crate) struct TypeMeta<'a> {
    pub(crate) api_version: Found<'a>,
    pub(crate) kind: Found<'a>,
    has_items: bool,
    /// Whether the lookahead stopped at the items, before the kind.
    kind_came_late: bool,
}

impl<'a> TypeMeta<'a> {
    /// A type that the text does not contain.
    fn implied(api_version: &'a str, kind: &'a str) -> TypeMeta<'a> {
        let text = |text| Found::Text(Cow::Borrowed(text), Span::default());
        TypeMeta {
            api_version: text(api_version),
            kind: text(kind),
            has_items: false,
            kind_came_late: false,
        }
    }

    /// Looks ahead for the type, and no further than needed: kubectl writes the kind of a list
    /// after its items, which may be most of the file.
    pub(crate) fn ahead(input: impl Input<'a>) -> TypeMeta<'a> {
        TypeMeta::look(input, true)
    }

    /// The whole type of a list that was read only up to its items.
    pub(crate) fn after_items(input: impl Input<'a>, ahead: &TypeMeta<'a>) -> TypeMeta<'a> {
        if ahead.kind_came_late {
            TypeMeta::look(input, false)
        } else {
            ahead.clone()
        }
    }

    fn look(mut input: impl Input<'a>, stop_at_items: bool) -> TypeMeta<'a> {
        let mut meta = TypeMeta {
            api_version: Found::Nothing,
            kind: Found::Nothing,
            has_items: false,
            kind_came_late: false,
        };
        input.enter();
        while let Some((key, _)) = input.next_key() {
            let shape = input.shape();
            let slot = match &*key {
                "apiVersion" => &mut meta.api_version,
                "kind" => &mut meta.kind,
                "items" if shape == ValueShape::Seq => {
                    meta.has_items = true;
                    if stop_at_items {
                        meta.kind_came_late = matches!(meta.kind, Found::Nothing);
                        return meta;
                    }
                    input.skip();
                    continue;
                }
                _ => {
                    let known = !matches!(meta.api_version, Found::Nothing)
                        && !matches!(meta.kind, Found::Nothing);
                    let is_list =
                        matches!(&meta.kind, Found::Text(kind, _) if kind.ends_with("List"));
                    if known && !is_list {
                        return meta;
                    }
                    input.skip();
                    continue;
                }
            };
            if !matches!(slot, Found::Nothing) {
                // A duplicate is reported when the object is read.
                input.skip();
                continue;
            }
            let span = input.span();
            *slot = match shape {
                ValueShape::Null => Found::Nothing,
                ValueShape::Str => match input.scalar() {
                    (Scalar::Str(text), span) if !text.is_empty() => {
                        *slot = Found::Text(text, span);
                        continue;
                    }
                    _ => continue,
                },
                ValueShape::Bool
                | ValueShape::Int
                | ValueShape::Number
                | ValueShape::Map
                | ValueShape::Seq
                | ValueShape::Broken => Found::Other(shape, span),
            };
            input.skip();
        }
        meta
    }

    /// Whether the object, or the items of the list, may be meant as policies.
    pub(crate) fn may_be_policy(&self) -> bool {
        match (&self.api_version, &self.kind) {
            (Found::Text(api_version, _), Found::Text(kind, _)) => may_be_policy(api_version, kind),
            (_, Found::Text(kind, _)) => may_be_policy("", kind),
            (_, Found::Nothing | Found::Other(..)) => true,
        }
    }

    pub(crate) fn is_list(&self) -> bool {
        let by_kind = match &self.kind {
            Found::Text(kind, _) => kind.ends_with("List"),
            Found::Nothing => true,
            Found::Other(..) => false,
        };
        self.has_items && by_kind
    }

    /// Completes a list's type.
    pub(crate) fn or<I: Input<'a> + Clone>(self, list: Option<&List<'a, I>>) -> TypeMeta<'a> {
        let complete = matches!(
            (&self.api_version, &self.kind),
            (Found::Text(..), Found::Text(..))
        );
        let Some(list) = list.filter(|_| !complete) else {
            return self;
        };
        let inherited = list.item_type();
        let fill = |own: Found<'a>, inherited: &Found<'a>| match own {
            Found::Nothing => inherited.clone(),
            Found::Text(..) | Found::Other(..) => own,
        };
        TypeMeta {
            api_version: fill(self.api_version, &inherited.api_version),
            kind: fill(self.kind, &inherited.kind),
            ..self
        }
    }

    /// The kind of the items of a list: `PodList` has items of kind `Pod`, a plain `List` declares
    /// none.
    fn item_type(self) -> TypeMeta<'a> {
        let kind = match self.kind {
            Found::Text(kind, span) => match kind.strip_suffix("List") {
                Some(item) if !item.is_empty() => Found::Text(Cow::Owned(item.to_owned()), span),
                _ => Found::Nothing,
            },
            Found::Nothing => Found::Nothing,
            Found::Other(shape, span) => Found::Other(shape, span),
        };
        let api_version = if matches!(kind, Found::Text(..)) {
            self.api_version
        } else {
            Found::Nothing
        };
        TypeMeta {
            api_version,
            kind,
            has_items: false,
            kind_came_late: false,
        }
    }
}

/// A list whose items are being read.
pub(crate) struct List<'a, I> {
    pub(crate) start: I,
    pub(crate) meta: TypeMeta<'a>,
    /// Whether it is an item of another list.
    pub(crate) is_inner: bool,
    item_type: OnceLock<TypeMeta<'a>>,
}

impl<'a, I: Input<'a> + Clone> List<'a, I> {
    pub(crate) fn new(start: I, meta: TypeMeta<'a>, is_inner: bool) -> List<'a, I> {
        List {
            start,
            meta,
            is_inner,
            item_type: OnceLock::new(),
        }
    }

    /// A list of which only one item is in the text. The item need not declare its type.
    pub(crate) fn of_one(start: I, api_version: &'a str, kind: &'a str) -> List<'a, I> {
        let item_type = TypeMeta::implied(api_version, kind);
        List {
            start,
            meta: item_type.clone(),
            is_inner: false,
            item_type: OnceLock::from(item_type),
        }
    }

    /// The type of items that do not declare one.
    fn item_type(&self) -> &TypeMeta<'a> {
        self.item_type
            .get_or_init(|| TypeMeta::after_items(self.start.clone(), &self.meta).item_type())
    }
}
